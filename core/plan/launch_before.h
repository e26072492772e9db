// What a kernel of a program follows, where launches may overlap.
#pragma once

#include <vector>

#include "core/plan/schedule.h"

namespace tilewright {

/// The launch that a kernel's own launch always follows.
struct LaunchBefore {
  const Schedule* schedule = nullptr;  ///< of one kernel, of a workload of its own
  /// By TensorId of the kernel that follows: whether the launch before may write the tensor. Empty:
  /// it may write any, as behind another run.
  std::vector<bool> writes;
};

}  // namespace tilewright
