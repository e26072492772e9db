// Kernels that are one convolution in 16 bits by tensor cores.
#pragma once

#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/window_product.h"

namespace tilewright::cuda {

/// Text, launch, tiles and description. Marks what the kernel needs at home.
KernelText emit_windows(Program& program, int kernel, const lowering::WindowProduct& product);

}  // namespace tilewright::cuda
