// Launches one after the other by the host, over the host's memory.
#pragma once

#include <memory>

#include "codegen/target.h"

namespace tilewright::codegen {

/// Of kernels that can be placed (TargetKernel::place). The device is not asked.
Result<std::unique_ptr<LaunchSequence>> host_sequence(const std::shared_ptr<Device>& device);

}  // namespace tilewright::codegen
