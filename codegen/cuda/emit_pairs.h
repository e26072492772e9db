// Kernels that are two matrix products with operators between them, by Hopper's warpgroups.
#pragma once

#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/warpgroup_pair.h"

namespace tilewright::cuda {

/// Text, launch, tiles and description. Marks what the kernel needs at home.
KernelText emit_pair(Program& program, int kernel, const lowering::WarpgroupPair& pair);

}  // namespace tilewright::cuda
