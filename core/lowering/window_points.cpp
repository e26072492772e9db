#include "core/lowering/window_points.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tilewright {

std::int64_t points_in_registers(std::int64_t registers) {
  return (registers - kPointVectors - 1) / kPointVectors;
}

WindowColumns window_columns(const Workload& w, OpId op, const Access& a, std::size_t dimension,
                             LoopId columns) {
  const Affine& index = a.index[dimension];
  WindowColumns found{.first = index.offset, .image = w.tensor(a.tensor).shape[dimension]};
  int loops = 0;
  for (const Term& t : index.terms) {
    if (t.loop == columns) found.point = t.coefficient;
    if (!w.is_reduction(op, t.loop)) continue;
    found.tap = t.coefficient, found.taps = w.loop(t.loop).extent;
    ++loops;
  }
  return loops == 1 && found.taps <= kMostWindowTaps ? found : WindowColumns{};
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

double cycles_of_runs(const WindowPoints& p, const WindowColumns& c, double taps_down) {
  constexpr double kLatency = 4;
  constexpr double kOfStep = 9, kOfChannel = 18;  // instructions
  constexpr double kAtOnce = 5.5;                 // of them a cycle
  constexpr double kBlock = 40;                   // a block of points begun
  constexpr double kRun = 30;      // and a run over the channels with some of the taps
  constexpr double kPacked = 0.5;  // an element of the rows
  constexpr double kTurned = 7;    // a vector of sums, from rows to points
  const auto lanes = static_cast<double>(p.lanes);
  const double vectors = std::ceil(p.rows / lanes);
  const auto width = static_cast<std::int64_t>(p.width);
  const std::int64_t blocks = ceil_div(width, points_in_registers(p.registers));
  const double groups = std::floor(vectors / kPointVectors);
  const double one = vectors - groups * kPointVectors;
  // Multiply-adds, or all instructions: of a point, a vector that is asked for ahead, the step, and
  // a channel, whose taps are few.
  const auto step = [&](double points, double v, double taps) {
    const double instructions = points * (v + 1) + 2 * v + kOfStep + kOfChannel / taps;
    return std::max({points * v * p.multiply_add, instructions / kAtOnce, kLatency});
  };
  const auto of_groups = [&](double points, double across, double steps) {
    const double taps = across * taps_down;
    return (groups * step(points, kPointVectors, taps) + one * step(points, 1, taps)) * steps;
  };
  double cycles = 0;
  const double of_tap = p.steps / static_cast<double>(c.taps) * p.inside;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t x = width * b / blocks, points = width * (b + 1) / blocks - x;
    std::map<std::pair<std::int64_t, std::int64_t>, double> runs;  // taps by points inside
    for (std::int64_t t = 0; t < c.taps; ++t) {
      const std::int64_t column = c.first + x * c.point + t * c.tap;
      std::int64_t low = 0, high = points;
      if (c.image > 0 && c.point > 0) {
        low = column >= 0 ? 0 : std::min((c.point - 1 - column) / c.point, points);
        high = std::clamp((c.image - column + c.point - 1) / c.point, low, points);
      }
      if (low < high) runs[{low, high}] += 1;
    }
    cycles += (groups + one) * (kBlock + static_cast<double>(points) * kPointVectors);
    for (const auto& [inside, taps] : runs)
      cycles += of_groups(static_cast<double>(inside.second - inside.first), taps, taps * of_tap) +
                (runs.size() > 1 ? (groups + one) * kRun : 0);
  }
  const double turned = vectors * lanes * std::ceil(p.width * p.height / lanes) * kTurned;
  return p.height * cycles + turned + (p.packs ? p.rows * p.steps * kPacked : 0);
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
