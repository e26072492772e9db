// A schedule's CUDA source, and what a document says of it and of its built kernels.
#pragma once

#include "codegen/cuda/build.h"
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/driver.h"
#include "harness/schedules.h"
#include "harness/verbs.h"

namespace tilewright::harness {

/// Throws InputError for a micro-kernel that there is none of.
Result<cuda::Source> cuda_source_of(const Scheduled& on,
                                    const std::optional<std::string>& micro_kernel,
                                    const CudaOptions& options);

/// Into a document: source_fnv64 (equal where the text is), micro_kernel, tiles, workspace_bytes,
/// notes.
void add_source(nlohmann::ordered_json& json, const cuda::Source& source);
/// Every launch, and of what was built its registers, spills and shared memory.
nlohmann::ordered_json launches_json(const cuda::Source& source, const cuda::Binary* binary);
nlohmann::ordered_json device_json(const cuda::DeviceInfo& info);

/// The peak that a machine's file has for a type, and where that number is from.
struct FilePeak {
  double gflops = 0;
  std::string source;
};
std::optional<FilePeak> file_peak(const Machine& machine, DType type);

}  // namespace tilewright::harness
