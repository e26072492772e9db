// Kernels that are one matrix product by Hopper's warpgroups.
#pragma once

#include "codegen/cuda/emitter.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::cuda {

/// The parameter of a kernel that is a tensor's address at home.
std::string home_of(const Workload& w, TensorId t);

/// Operators of elements after a product, as a struct of device code.
struct OperatorsAfter {
  std::string name, element;  ///< of the struct; of the type that says which element
  bool whole = false;         ///< no tile passes an end of the product
  OpId product;
  TensorId result;  ///< of the last operator
  const lowering::ProductLoops* loops = nullptr;
  const lowering::ProductEpilogue* epilogue = nullptr;
};
std::string operators_text(const Workload& w, const OperatorsAfter& after);

/// Text, launch, tiles and description. Marks what the kernel needs at home.
KernelText emit_warpgroups(Program& program, int kernel, const lowering::WarpgroupProduct& product);

}  // namespace tilewright::cuda
