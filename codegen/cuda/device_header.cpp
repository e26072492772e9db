#include "codegen/cuda/cuda.h"
#include "codegen/cuda/device_header_text.h"

namespace tilewright::cuda {

std::string_view device_header() { return {kDeviceHeaderText, sizeof kDeviceHeaderText - 1}; }

}  // namespace tilewright::cuda
