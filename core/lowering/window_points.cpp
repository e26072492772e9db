#include "core/lowering/window_points.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewright {

namespace {

/// Cycles of a tile's multiply-adds by groups of so many vectors of rows.
double cycles_by(const WindowPoints& p, std::int64_t vectors) {
  constexpr double kLatency = 4;
  constexpr double kRun = 40;  // a block of points begun
  // Beside multiply-adds, loads and broadcasts a step asks for a line, finds its operands and
  // counts. A Zen 3 with 16 registers of 32 bytes takes longer for that than for the step's few
  // multiply-adds; with twice as many registers of 64 bytes it is hidden.
  constexpr double kOthers = 5, kIssued = 3.5;
  constexpr double kVectorBytes = 32;
  const bool few = p.registers < 32;
  const auto all = static_cast<std::int64_t>(std::ceil(p.rows / static_cast<double>(p.lanes)));
  const std::int64_t most = points_in_registers(p.registers, vectors) * vectors;
  double cycles = 0;
  for (const auto& [groups, each] : {std::pair{all / vectors, vectors}, {1, all % vectors}}) {
    if (groups * each == 0) continue;
    const auto v = static_cast<double>(each);
    const double blocks = std::ceil(p.width / static_cast<double>(most / each));
    const double points = p.width / blocks;
    // Vectors of rows, elements that are broadcast, and where the step is.
    const double issued = few ? (points * v + points + v + kOthers) / kIssued : 0;
    const double step = std::max({points * v * p.multiply_add, (points + v + 3) / 2,
                                  kLatency / (1 + p.ahead / p.steps), issued});
    // Sums come and go once for as many steps as have their rows in the first cache.
    const double parts = few ? std::ceil(p.steps * v * kVectorBytes / p.near) : 1;
    cycles += static_cast<double>(groups) * blocks *
              (step * p.steps * p.inside + parts * (kRun + points * v));
  }
  return p.height * cycles;
}

}  // namespace

std::int64_t points_in_registers(std::int64_t registers, std::int64_t vectors) {
  return (registers - vectors - 1) / vectors;
}

std::int64_t vectors_beside_points(const WindowPoints& p) {
  return cycles_by(p, 3) < cycles_by(p, 2) ? 3 : 2;
}

double cycles_of_points(const WindowPoints& p) {
  constexpr double kPacked = 0.5;  // an element of the rows
  constexpr double kTurned = 7;    // a vector of sums, from rows to points
  const auto lanes = static_cast<double>(p.lanes);
  const double turned =
      std::ceil(p.rows / lanes) * lanes * std::ceil(p.width * p.height / lanes) * kTurned;
  return cycles_by(p, vectors_beside_points(p)) + turned +
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
