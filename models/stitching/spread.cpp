// The latency-evaluator of schedules whose rows' loops are shared out to lanes and warps.
#include <cmath>

#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr double kOfAnAccess = 4;  // instructions: address, predicate, access, conversion (assumed)

}  // namespace

/// Of each row, one after the other: instructions of every operator at the elements that a thread
/// has; its accesses to a tensor at home, which do not wait for one another and are under way
/// together; accesses to shared memory; sums over lanes by shuffles, over warps at barriers.
void Part::cost_spread(Stitched& s, std::int64_t threads) const {
  s.recomputed = 1;
  const auto tree = bound_tree(g_, d_, s, threads);
  if (!tree) return;  // place() has asked before
  double cycles = 0;
  for (const auto& [v, work] : tree->work) {
    const Vertex& x = g_.vertex(v);
    cycles +=
        work.turns * static_cast<double>(work.step) *
        (static_cast<double>(x.light) * d_.light + static_cast<double>(x.expensive) * d_.expensive);
    const double shuffles = std::log2(static_cast<double>(work.lanes));
    cycles += work.sums * shuffles * (d_.shuffle + d_.light);
    if (work.warps > 1) cycles += work.sums * (1 + static_cast<double>(work.warps)) * d_.shared;
    if (written_home(v))
      cycles +=
          static_cast<double>(x.outputs) * d_.global *
          (!x.reduced.empty() ? std::max(1.0, work.sums / static_cast<double>(work.step)) : work.turns);
  }
  for (const auto& [tensor, times] : tree->loads) cycles += d_.global + (times - 1) * kOfAnAccess * d_.light;
  cycles += tree->handed_on * d_.shared + tree->barriers * d_.barrier;
  s.cycles_per_warp = cycles;
}

}  // namespace tilewright::stitching
