// Bounds on workloads that come from input; more is refused as bad input.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright {

inline constexpr int kMaxLoops = 12;               ///< loops of one operator
inline constexpr int kMaxExprDepth = 200;          ///< nesting of an expression
/// Iterations of a loop whose index is a value: f32 holds every integer up to there.
inline constexpr std::int64_t kMaxIndexed = std::int64_t{1} << 24;
inline constexpr std::size_t kMaxNotation = 65536; ///< characters of one operator's text

}  // namespace tilewright
