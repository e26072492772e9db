#include "core/lowering/window_points.h"

#include <algorithm>
#include <cmath>

namespace tilewright {

std::int64_t points_in_registers(std::int64_t registers) {
  return (registers - kPointVectors - 1) / kPointVectors;
}

double cycles_of_points(const WindowPoints& p) {
  constexpr double kLatency = 4;
  constexpr double kRun = 40;      // a block of points begun
  constexpr double kPacked = 0.5;  // an element of the rows
  constexpr double kTurned = 7;    // a vector of sums, from rows to points
  const auto lanes = static_cast<double>(p.lanes);
  const double vectors = std::ceil(p.rows / lanes);
  const double blocks = std::ceil(p.width / static_cast<double>(points_in_registers(p.registers)));
  const double points = p.width / blocks;
  // Vectors of rows, elements that are broadcast, and where the step is.
  const auto step = [&](double v) {
    return std::max({points * v * p.multiply_add, (points + v + 3) / 2, kLatency});
  };
  const double groups = std::floor(vectors / kPointVectors);
  const double one = vectors - groups * kPointVectors;
  const double of_steps = groups * step(kPointVectors) + one * step(1);
  const double begun = (groups + one) * (kRun + points * kPointVectors);
  const double turned = vectors * lanes * std::ceil(p.width * p.height / lanes) * kTurned;
  return p.height * blocks * (of_steps * p.steps * p.inside + begun) + turned +
         (p.packs ? p.rows * p.steps * kPacked : 0);
}

double inside_share(const Workload& w, const Access& a, std::size_t dimension) {
  constexpr std::int64_t kMost = 1 << 16;
  const Affine& index = a.index[dimension];
  std::int64_t all = 1;
  for (const Term& t : index.terms) {
    if (all > kMost / w.loop(t.loop).extent) return 1;
    all *= w.loop(t.loop).extent;
  }
  std::int64_t inside = 0;
  for (std::int64_t i = 0; i < all; ++i) {
    std::int64_t at = index.offset, rest = i;
    for (const Term& t : index.terms) {
      at += t.coefficient * (rest % w.loop(t.loop).extent);
      rest /= w.loop(t.loop).extent;
    }
    inside += at >= 0 && at < w.tensor(a.tensor).shape[dimension] ? 1 : 0;
  }
  return static_cast<double>(inside) / static_cast<double>(all);
}

}  // namespace tilewright
