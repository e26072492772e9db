// How a block computes a product of tiles, and what it asks of their layout. One record a way.
#pragma once

#include <span>
#include <string_view>

#include "core/workload/workload.h"

namespace tilewright::lowering {

/// A way for a block to compute C[i,j] += A[i,k] * B[k,j] on tiles in shared memory.
struct MicroKernel {
  std::string_view name;  ///< "mma", "wmma2x2", "simt", "tf32x3"
  std::string_view summary;
  std::string_view text;  ///< the device code's struct; '@' stands for the element type
  bool f16 = false, bf16 = false, f32 = false;  ///< operands that it takes
  bool fragments = false;   ///< sums lie as Sums has them: they may stay in registers between calls
  bool blocks = false;      ///< its depth is blocks of 16, rounded up
  bool plain_rows = false;  ///< rows of its tiles are padded instead of swizzled
  bool elements = false;    ///< has contract(): operands that are read element by element
  bool fours = false;       ///< its threads have four neighbouring columns of sums
  bool matrix = false;      ///< by tensor cores
  bool takes(DType type) const {
    return type == DType::f16 ? f16 : type == DType::bf16 ? bf16 : type == DType::f32 && f32;
  }
};
std::span<const MicroKernel> micro_kernels();
/// By name; none: no such micro-kernel. An empty name: the first that takes the type.
const MicroKernel* find_micro_kernel(std::string_view name, DType type);

}  // namespace tilewright::lowering
