// Our own trace format; for trace.cpp.
#pragma once

#include "simulator/trace.h"

namespace tilewright {

/// The highest address that a trace may touch.
inline constexpr std::int64_t kMostAddress = std::int64_t{1} << 52;
inline constexpr std::string_view kTraceMagic = "TWTRACE1";

/// From the file's beginning on.
std::vector<std::string> read_binary_header(std::istream& in, std::string_view where);
void read_binary(std::istream& in, std::string_view where, TraceSummary& summary,
                 const TraceSink& sink);

}  // namespace tilewright
