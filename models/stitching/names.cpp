// Names of what options and schedules may be.
#include <array>
#include <utility>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {
namespace {

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<Kind, 4> kKinds{{{Kind::light, "light"},
                                 {Kind::expensive, "expensive"},
                                 {Kind::reduction, "reduction"},
                                 {Kind::product, "product"}}};
constexpr Names<Groupings, 2> kGroupings{{{Groupings::few, "few"}, {Groupings::each, "each"}}};
constexpr Names<Products, 2> kProducts{{{Products::ridge, "ridge"}, {Products::points, "points"}}};
constexpr Names<Latency, 2> kLatencies{
    {{Latency::overlap, "overlap"}, {Latency::published, "published"}}};
constexpr Names<Scheme, 3> kSchemes{
    {{Scheme::thread, "thread"}, {Scheme::warp, "warp"}, {Scheme::block, "block"}}};

template <class T, std::size_t N>
std::string_view name_in(const Names<T, N>& names, T value) {
  for (const auto& [v, name] : names)
    if (v == value) return name;
  return "?";
}
template <class T, std::size_t N>
std::optional<T> value_in(const Names<T, N>& names, std::string_view name) {
  for (const auto& [value, text] : names)
    if (text == name) return value;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Kind k) { return name_in(kKinds, k); }
std::string_view name_of(Groupings g) { return name_in(kGroupings, g); }
std::string_view name_of(Products p) { return name_in(kProducts, p); }
std::string_view name_of(Latency l) { return name_in(kLatencies, l); }
std::string_view name_of(Scheme s) { return name_in(kSchemes, s); }
std::optional<Groupings> groupings_from_name(std::string_view n) { return value_in(kGroupings, n); }
std::optional<Products> products_from_name(std::string_view n) { return value_in(kProducts, n); }
std::optional<Latency> latency_from_name(std::string_view n) { return value_in(kLatencies, n); }

}  // namespace tilewright::stitching
