// Replaceable micro-kernels (Chimera, section V-A): one naive loop nest says what a micro-kernel
// computes, and every target has implementations of it that are chosen by name.
// `docs/micro-kernels.md` says how one is added.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/option.h"
#include "core/base/units.h"

namespace tilewright::codegen {

/// A box of a product, and where its operands' elements lie: `*_row`, `*_column`, `*_depth`
/// elements apart along each of its loops.
struct ProductBox {
  std::int64_t rows = 0, columns = 0, depth = 0;
  std::int64_t a_row = 0, a_depth = 1;
  std::int64_t b_depth = 0, b_column = 1;
  std::int64_t c_row = 0, c_column = 1;
};

/// The contract, C[i,j] += A[i,k] * B[k,j]. `fresh`: C starts from zero; else it is read. Products
/// of any box are this, edges of one row or column included; only the order of the sum is free.
/// Operands and sums have the types that a record names. Nothing outside the box is written.
template <class Element, class Sum>
void naive_product(const ProductBox& box, const Element* a, const Element* b, Sum* c, bool fresh) {
  for (std::int64_t i = 0; i < box.rows; ++i)
    for (std::int64_t j = 0; j < box.columns; ++j) {
      Sum& sum = c[i * box.c_row + j * box.c_column];
      if (fresh) sum = 0;
      for (std::int64_t k = 0; k < box.depth; ++k)
        sum += static_cast<Sum>(a[i * box.a_row + k * box.a_depth]) *
               static_cast<Sum>(b[k * box.b_depth + j * box.b_column]);
    }
}

/// One implementation of that nest.
struct MicroKernelRecord {
  std::string_view target;   ///< "cpu", "cuda", "npu"
  std::string_view variant;  ///< of the target: the instruction set on cpu; else empty
  std::string_view name;     ///< unique within target and variant: what --micro-kernel takes
  std::string_view summary;
  std::vector<DType> types;  ///< of the operands' tensors
  std::string block;         ///< of C that one step of the depth updates
  std::string operands;      ///< where they lie when it runs, and how
  std::string needs;         ///< what the hardware must have; empty: nothing
  bool runs_here = true;     ///< this processor has what it needs, where that is a processor
};

/// Throws InputError where `name` (--micro-kernel) is none of that target and variant (cpu: the
/// instruction set; else empty), listing those there are. Nothing given is nothing wrong.
void check_micro_kernel(std::string_view target, std::string_view variant,
                        const std::optional<std::string>& name);

/// Every one that is registered, by target, the first of each target and variant being what ties
/// are decided for.
std::vector<MicroKernelRecord> micro_kernel_records();
/// --micro-kernel of a target: the names of its records. Which of them the instruction set has is
/// checked where it is known.
OptionSpec micro_kernel_option(std::string_view target);

}  // namespace tilewright::codegen
