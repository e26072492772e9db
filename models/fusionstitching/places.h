// Where a node of a schedule's tree stands, for a thread of the kernel that the CUDA emitter
// writes: which turns, lanes and warps the loops around it come to. For `--stitch latency=overlap`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.h"
#include "models/fusionstitching/fusionstitching.h"

namespace tilewright::fusionstitching {

/// Where a node stands.
struct Place {
  std::vector<std::int64_t> range;  ///< of each loop: elements that are left
  std::vector<double> of_loop;      ///< turns of a thread, by loop
  /// Of a thread, one after the other, since the last sequence of several passes.
  double turns = 1;
  double repeats = 1;            ///< of that sequence
  double full = 1;               ///< of the units' turns, those that have elements
  double warps = 0;              ///< that run it; 0: all of the block
  std::vector<double> lanes;     ///< of each of them, by loop: those that have other iterations
  std::vector<double> shuffles;  ///< that add up over them, by loop
  std::vector<std::pair<std::size_t, double>> passed;  ///< loops of `turns`, outermost first
  int along = -1;                                      ///< the loop that goes over lanes or threads
  std::int64_t step = 1;                               ///< its
  LoopSet joined;                                     ///< loops that several warps share
  LoopSet blocks;                                     ///< loops that several blocks share
};

/// How a tree's loops are shared out to warps, lanes and threads. The workload and tree must
/// outlive it.
class Units {
 public:
  Units(const Workload& w, const Node& tree);
  double warps() const { return warps_; }  ///< of a block
  Place start() const;
  /// The place within a loop; `leaf`: only computes stand below it.
  Place inside(const Node& loop, Place at, bool leaf) const;
  std::optional<std::size_t> loop_named(const std::string& name) const;

 private:
  double warps_of(const Node& n, std::vector<std::int64_t> range) const;
  double lanes_of(const Node& n, std::vector<std::int64_t> range) const;
  const Workload& w_;
  double warps_ = 1;
};

}  // namespace tilewright::fusionstitching
