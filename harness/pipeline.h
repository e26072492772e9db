// The one way from a request to a kernel that is verified and timed, whatever the target: plan,
// emit, build, load, verify, time. In the steps that one run, a batch of them and measure share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/target.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "harness/verified_kernel.h"

namespace tilewright::harness {

/// One run on its way: what it answers so far, and what it was made into. `refusal` is set where it
/// went no further. Copies share what was emitted.
struct Job {
  Request request;
  RunOptions options;
  nlohmann::ordered_json json = document();
  Scheduled on = {};
  std::shared_ptr<codegen::Emitted> emitted = {};
  std::shared_ptr<VerifiedKernel> kernel = {};  ///< of verify_job
  std::optional<std::string> refusal = {};

  const codegen::Target& target() const { return target_named(request.target); }
  void refuse_with(std::string why) { refusal = std::move(why); }
  Answer answer() const { return refusal ? refuse(json, *refusal) : Answer{json, Status::done}; }
};

/// A job for the target that the options or else the request name. Throws InputError for one that
/// there is not.
Job job_of(Request request, RunOptions options = {});

// Each does nothing where the job is refused already.

/// Makes the plan. Throws InputError for bad input.
void plan_job(Job& job);
/// Emits the plan's source, which is made where it was not yet. A kernel that the target refuses is
/// replaced by the model's next choice, and the answer's "replaced" says so.
void emit_job(Job& job);
/// Builds what was emitted: for this machine's device, or with RunOptions::build_only without one.
void build_job(Job& job);
/// The same where another process will run it: what this one cannot run is built all the same.
void compile_job(Job& job);
/// Loads what was built and verifies it; describes the run, its faults included.
void verify_job(Job& job, const std::shared_ptr<codegen::Device>& device,
                const Reference& reference);
/// Times what was verified, or runs it for a profiler.
void time_job(Job& job);
/// The device that the job runs on, before anything is planned; null where the target has none, and
/// with RunOptions::build_only. Refuses the job where it, or what builds kernels that have none, is
/// not here. Throws InputError for bad input.
std::shared_ptr<codegen::Device> device_for(Job& job);
/// The target's device; null where it has none to open.
Result<std::shared_ptr<codegen::Device>> open_device(const codegen::Target& target);

/// The lines of a batch's file over what they share. Throws InputError.
std::vector<Job> batch_jobs(const std::string& file, const Request& request,
                            const RunOptions& options);
/// A request that is wrong in itself (a tile larger than its loop, say) is that line's outcome.
void guarded(Job& job, const std::function<void(Job&)>& step);

}  // namespace tilewright::harness
