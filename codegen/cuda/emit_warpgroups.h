// Kernels that are one matrix product by Hopper's warpgroups.
#pragma once

#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::cuda {

/// Parameters of a kernel that are addresses at home: those of launch.tensors so far, the first of
/// which it writes, and what operators after a product read, which joins them. Marks all of them as
/// needed there.
struct HomeParameters {
  std::string list;   ///< of the kernel
  std::string after;  ///< those of the operators, as they are given to their struct
};
HomeParameters home_parameters(Program& program, Launch& launch,
                               const lowering::ProductEpilogue& epilogue);
/// The name of the level that has the kernel's tiles.
std::string level_of_tiles(const Program& program, int kernel);
/// Adds what a product and the operators after it make, in registers for `reason`.
void add_sums(KernelText& text, const Program& program, int kernel, OpId product,
              const lowering::ProductEpilogue& epilogue, const std::string& reason);

/// Operators of elements after a product, as a struct of device code.
struct OperatorsAfter {
  std::string name, element;  ///< of the struct; of the type that says which element
  bool whole = false;         ///< no tile passes an end of the product
  OpId product;
  OpId twin;        ///< of two products side by side the second one
  TensorId result;  ///< of the last operator
  const lowering::ProductLoops* loops = nullptr;
  const lowering::ProductEpilogue* epilogue = nullptr;
};
std::string operators_text(const Workload& w, const OperatorsAfter& after);

/// Text, launch, tiles and description. Marks what the kernel needs at home.
KernelText emit_warpgroups(Program& program, int kernel, const lowering::WarpgroupProduct& product);

}  // namespace tilewright::cuda
