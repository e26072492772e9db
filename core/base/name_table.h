// Values that have names: of enumerators, both ways.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace tilewright {

template <class T, std::size_t N>
using NameTable = std::array<std::pair<T, std::string_view>, N>;

/// The value's name; each value must have one.
template <class T, std::size_t N>
std::string_view name_in(const NameTable<T, N>& names, T value) {
  for (const auto& [v, name] : names)
    if (v == value) return name;
  return "?";
}
/// The value of that name.
template <class T, std::size_t N>
std::optional<T> value_in(const NameTable<T, N>& names, std::string_view name) {
  for (const auto& [value, text] : names)
    if (text == name) return value;
  return std::nullopt;
}

}  // namespace tilewright
