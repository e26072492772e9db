// Text from a format string, by fmt. Its formatting code is compiled once, in format.cpp:
// instantiated in every user, as fmt's header-only form does, it took two seconds of each one's
// compilation.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

std::string format_arguments(fmt::string_view pattern, fmt::format_args arguments);

/// fmt::format(pattern, arguments...) for numbers, characters and strings; the pattern is checked
/// while compiling.
template <class... Arguments>
std::string formatted(fmt::format_string<Arguments...> pattern, Arguments&&... arguments) {
  return format_arguments(pattern, fmt::make_format_args(arguments...));
}

/// The lines of a text that are not empty, without their ends.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace tilewright
