// What a block of a product in registers loads: one count for whoever emits it or prices it.
#pragma once

#include <algorithm>

namespace tilewright {

/// Loads of a step of the depth, over a block of so many rows and vectors, and its part of the
/// block's sums. Where the depth is long, vectors of the right operand come from the second cache:
/// they count more than twice. Where it is short, lines of sums count, too: rows begin anywhere.
inline double product_loads(double rows, double vectors, double depth) {
  constexpr double kLongDepth = 128, kFurther = 2.25;
  const double of_right = depth < kLongDepth ? 1 : kFurther;
  return rows + of_right * vectors + 2 * rows * (vectors + 1) / std::max(depth, 1.0);
}

}  // namespace tilewright
