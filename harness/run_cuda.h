// emit and run for the CUDA targets, in the steps that one run and a batch of them share.
#pragma once

#include "harness/cuda_source.h"
#include "harness/registry.h"
#include "harness/verified_kernel.h"

namespace tilewright::harness {

/// One run on its way: what it answers so far, and what it was made into. `refusal` is set where it
/// went no further.
struct CudaJob {
  Request request;
  RunOptions options;
  nlohmann::ordered_json json = document();
  Scheduled on = {};
  std::optional<cuda::Source> source = {};
  std::optional<cuda::Binary> binary = {};
  std::optional<std::string> refusal = {};
  void refuse_with(std::string why) { refusal = std::move(why); }
  Answer answer() const { return refusal ? refuse(json, *refusal) : Answer{json, Status::done}; }
};

/// Makes the plan and emits its source. Throws InputError for bad input.
void emit_job(CudaJob& job);
/// Builds what was emitted, for --arch, else for `device`, else for sm_90a.
void build_job(CudaJob& job, const cuda::DeviceInfo* device);
/// Loads what was built, verifies it and, where it is right, times it.
void run_job(CudaJob& job, const std::shared_ptr<cuda::Device>& device, const Reference& reference);
/// Executes what was emitted on the CPU instead (simulator/cuda_host), verifies it, and reports
/// faults.
void emulate_job(CudaJob& job, const Reference& reference);

/// The lines of a batch's file over what they share. Throws InputError.
std::vector<CudaJob> batch_jobs(const std::string& file, const CudaJob& shared);
/// A request that is wrong in itself (a tile larger than its loop, say) is that line's outcome.
void guarded(CudaJob& job, const std::function<void(CudaJob&)>& step);

/// Into its document: verified, relative_error, tolerance; a refusal where it is wrong or failed.
void add_verification(CudaJob& job, const VerifyResult& checked);
/// The headers that stand in for CUDA on the host: name and text.
std::vector<std::pair<std::string, std::string>> emulated_headers();

Answer run_cuda(const Request& request, const RunOptions& options);
Answer emit_cuda(const Request& request, const EmitOptions& options);

/// Usable here: a device and what builds for it; a C++ compiler.
Availability cuda_here();
Availability cuda_emulated_here();

}  // namespace tilewright::harness
