// NVRTC, opened at run time: what builds CUDA source where there is no nvcc.
#pragma once

#include "codegen/cuda/build.h"

namespace tilewright::cuda {

/// The device header is passed in memory; nothing is written. A Reason: no libnvrtc here, or its
/// first error.
Result<Binary> build_with_nvrtc(const Source& source, const std::string& architecture);

}  // namespace tilewright::cuda
