// Kernels that are one matrix product by Hopper's warpgroups.
#pragma once

#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::cuda {

/// Text, launch, tiles and description. Marks what the kernel needs at home.
KernelText emit_warpgroups(Program& program, int kernel, const lowering::WarpgroupProduct& product);

}  // namespace tilewright::cuda
