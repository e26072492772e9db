// Bounds on workloads that come from input; more is refused as bad input.
#pragma once

#include <cstddef>

namespace tilewright {

inline constexpr int kMaxLoops = 12;               ///< loops of one operator
inline constexpr int kMaxExprDepth = 200;          ///< nesting of an expression
inline constexpr std::size_t kMaxNotation = 65536; ///< characters of one operator's text

}  // namespace tilewright
