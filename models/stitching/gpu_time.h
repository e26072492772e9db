// One time for every kernel of a GPU: of trees with units by what their threads do (overlap.h), of
// others by what their blocks do (core/lowering/gpu/block_time.h). Both in seconds, from the
// resolved schedule and the machine file.
#pragma once

#include <optional>
#include <string>

#include "core/lowering/gpu/block_time.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {

struct GpuTime {
  double seconds = 0;
  std::optional<Overlap> units = {};               ///< a tree whose loops are bound below blocks
  std::optional<lowering::BlockTime> blocks = {};  ///< any other
};

class GpuPricer {
 public:
  /// Prices schedules of this workload. `working_set`: bytes that a program of which it is a part
  /// uses again and again; 0: the workload's tensors. A Reason where the machine is no GPU or its
  /// file lacks a number. Cost: that of Graph, when the first kernel with units comes.
  static Result<GpuPricer> of(std::shared_ptr<const Workload> w, const Machine& m,
                              double working_set = 0);
  /// A Reason where the kernel has no room, or is no program of threads.
  Result<GpuTime> kernel(const Schedule& s, std::size_t kernel) const;
  const lowering::BlockRates& rates() const { return rates_; }
  /// All kernels', one after the other.
  Result<double> seconds(const Schedule& s) const;

 private:
  double compulsory(const ScheduledKernel& k) const;

  std::shared_ptr<const Workload> w_;
  Device device_;
  lowering::BlockRates rates_;
  double working_set_ = 0;
  mutable std::shared_ptr<const Graph> graph_;
};

}  // namespace tilewright::stitching
