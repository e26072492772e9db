#include "core/lowering/gpu/micro_kernel.h"

namespace tilewright::lowering {
namespace {

constexpr MicroKernel kMicroKernels[] = {
    {.name = "mma",
     .summary = "tensor cores: mma.m16n8k16 on operands by ldmatrix, sums in registers",
     .text = "Mma<@>",
     .f16 = true,
     .bf16 = true,
     .fragments = true,
     .blocks = true,
     .elements = true,
     .matrix = true},
    {.name = "wmma2x2",
     .summary = "Chimera's: 2 x 2 WMMA fragments of 16 x 16, sums in shared memory between calls",
     .text = "Wmma2x2",
     .f16 = true,
     .blocks = true,
     .plain_rows = true,
     .matrix = true},
    {.name = "simt",
     .summary = "fused multiply-adds on the same sums, four of the depth at a time",
     .text = "Simt",
     .f16 = true,
     .bf16 = true,
     .f32 = true,
     .fragments = true,
     .elements = true,
     .fours = true},
    {.name = "tf32x3",
     .summary = "tensor cores: each product of floats as three of TF32, sums in registers",
     .text = "Tf32x3",
     .f16 = true,
     .bf16 = true,
     .f32 = true,
     .fragments = true,
     .blocks = true,
     .elements = true,
     .matrix = true},
};

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kMicroKernels; }

const MicroKernel* find_micro_kernel(std::string_view name, DType type) {
  for (const MicroKernel& m : kMicroKernels)
    if (name.empty() ? m.takes(type) : m.name == name) return &m;
  return nullptr;
}

}  // namespace tilewright::lowering
