// emit and run for target npu: programs for the emulated NPU.
#pragma once

#include "codegen/npu/npu.h"
#include "harness/npu_kernel.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "harness/verified_kernel.h"

namespace tilewright::harness {

/// Makes the plan and emits its programs; the document says what became of tiles. Throws InputError
/// for a micro-kernel that there is none of.
struct NpuJob {
  Scheduled on = {};
  nlohmann::ordered_json json = document();
  std::optional<npu::Source> source = {};
  std::optional<Answer> refusal = {};
};
NpuJob npu_job(const Request& request, const std::optional<std::string>& micro_kernel);

/// A program that computes what it should and in which nothing was found.
struct VerifiedNpu {
  std::unique_ptr<VerifiedKernel> kernel;
  NpuKernel* running = nullptr;  ///< what `kernel` holds: its reports
  double seconds = 0;            ///< simulated
};
/// Emulates the job's programs once; cycles, pipes and findings go into its document. A Reason where
/// the values are wrong or anything was found.
Result<VerifiedNpu> verified_npu(NpuJob& job, const Request& request,
                                 const npu::EmulatorOptions& options);

Answer emit_npu(const Request& request, const EmitOptions& options);
Answer run_npu(const Request& request, const RunOptions& options);
Answer measure_npu(const Request& request, const MeasureOptions& options);

}  // namespace tilewright::harness
