// What threads share of a kernel.
#pragma once

#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::harness {

/// The loop whose tiles threads share, as kernels take it: of those around everything that walk a
/// dimension of every output, the one that divides most evenly. Invalid: there is none.
LoopId loop_of_threads(const Kernel& kernel, const Workload& w, int threads);

}  // namespace tilewright::harness
