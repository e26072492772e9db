#include "codegen/cuda/cuda.h"

namespace tilewright::cuda {

std::span<const MicroKernel> micro_kernels() { return {}; }

Result<Source> emit(const Schedule&, const EmitOptions&) {
  return Reason{"this version has no CUDA code generator"};
}

}  // namespace tilewright::cuda
