// Where gathers read: the elements that indices' values name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/plan/stream.h"
#include "core/workload/reference/evaluate.h"

namespace tilewright {

/// Follows AccessKind::gather events into their tensors. The indices' values are those of
/// random_inputs(workload, seed), which a run with the same seed is verified with, or what the
/// evaluator makes of them. What lies outside the tensor is not read.
class GatherWalk {
 public:
  GatherWalk(const Workload& w, std::uint64_t seed) : w_(w), seed_(seed) {}

  /// Calls f(box) for what event `e` of kernel `k` reads, in the order of the operator's loops:
  /// rows along the last dimension where the indices are the same all along, else single elements.
  /// Cost: one visit a row or element; the first call draws the values (gather_indices).
  void each(const ScheduledKernel& k, const AccessEvent& e,
            const std::function<void(const Box& box)>& f);

 private:
  const Workload& w_;
  std::uint64_t seed_;
  std::optional<TensorValues> values_;
};

/// Whether some operator of a kernel reads by other tensors' values.
bool has_gathers(const Workload& w, const ScheduledKernel& k);

}  // namespace tilewright
