// Launches of CUDA kernels over device memory that they share, as CUDA graphs.
#pragma once

#include <memory>

#include "codegen/target.h"

namespace tilewright::cuda {

/// Of kernels that this target loaded on that device. A run is one graph; launches are timed each
/// in graphs of their own.
Result<std::unique_ptr<codegen::LaunchSequence>> device_sequence(
    const std::shared_ptr<codegen::Device>& device);

}  // namespace tilewright::cuda
