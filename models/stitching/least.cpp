// What a schedule takes at least, by its tree alone: most need not be lowered.
#include <algorithm>
#include <map>
#include <string_view>

#include "core/base/units.h"
#include "core/lowering/gpu/thread_program.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr double kMostWarps = 32;  // of a block

/// The blocks of a tree, and the warps of one, no more than Lowering::shape_block() gives it.
struct Launch {
  double blocks = 1, warps = 1;
};

/// `steps`: of the loops around, by name. Loops over blocks are around everything else.
Launch launch_of(const Workload& w, const Node& n, std::map<std::string_view, std::int64_t> steps) {
  Launch own;
  double threads = 1;
  const Node* at = &n;
  for (;; at = &at->children.front()) {
    if (at->kind == Node::Kind::loop) {
      const auto [around, whole] = steps.try_emplace(at->name, 0);
      if (whole) around->second = w.loop(*w.find_loop(at->name)).extent;
      const std::int64_t step = std::max<std::int64_t>(1, at->step);
      const auto trips = static_cast<double>(ceil_div(around->second, step));
      around->second = step;
      if (at->binding == Binding::grid) own.blocks *= trips;
      if (at->binding == Binding::warp) own.warps *= trips;
      if (at->binding == Binding::thread) threads *= trips;
    }
    if (at->children.size() != 1) break;
  }
  Launch most;
  for (const Node& child : at->children) {
    const Launch its = launch_of(w, child, steps);
    most.blocks = std::max(most.blocks, its.blocks);
    most.warps = std::max(most.warps, its.warps);
  }
  own.blocks *= most.blocks;
  // Of more trips each thread takes several.
  const double of_trips = std::min<double>(lowering::kTripWarps, std::ceil(threads / kWarp));
  own.warps = std::min(kMostWarps, own.warps * most.warps * std::max(1.0, of_trips));
  return own;
}

}  // namespace

/// The operations of all points, each computed once.
void Part::sum_up() {
  for (int v : c_.vertices) {
    const Vertex& x = g_.vertex(v);
    const double points = c_.along >= 0 ? inner(v) : g_.points(x.loops);
    Vertex least = x;
    if (image_ && !x.reduced.empty()) --least.light;  // products that are added: one instruction
    count_operations(all_, least, points, points, d_);
  }
  all_.sectors = static_cast<double>(compulsory_of(g_, c_.vertices).value) / kSectorBytes;
}

/// Seconds, by its blocks and its operators' instructions, the average of a block's threads.
double Part::least(const BoundTree& tree, std::int64_t threads) const {
  const Launch launch = launch_of(g_.workload(), tree.tree, {});
  const double part = c_.along >= 0 ? 1 : 1 / launch.blocks;
  const Demand block{.blocks = launch.blocks,
                     .warps = launch.warps,
                     .instructions = all_.instructions * part,
                     .special = all_.special * part,
                     .sectors = all_.sectors / launch.blocks,
                     .chain = d_.block + all_.chain * part / static_cast<double>(threads)};
  return least_overlap(d_, block, dram_bytes_) * (1 - 1e-9);
}

}  // namespace tilewright::stitching
