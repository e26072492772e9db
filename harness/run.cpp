// emit and run: a schedule to source, to a verified kernel, to seconds.
#include "core/workload/import/onnx_import.h"
#include "harness/ask.h"
#include "harness/heard.h"
#include "harness/pipeline.h"
#include "harness/program.h"
#include "harness/taken.h"

namespace tilewright::harness {

Answer emit(const Request& request, const std::string& out, bool explain) {
  if (out.empty() && !explain)
    throw InputError({.where = "-o",
                      .problem = "no folder is given",
                      .accepted = "the folder to write the source into"});
  Job job = job_of(request);
  emit_job(job);
  if (job.refusal) return job.answer();
  if (explain) job.json["program"] = job.emitted->program();
  if (out.empty()) return job.answer();
  make_folder(out, "-o");
  job.json["files"] = nlohmann::ordered_json::array();
  for (const codegen::File& file : job.emitted->files()) {
    const std::string path = out + "/" + file.name;
    write_file(path, file.text, "-o");
    job.json["files"].push_back(path);
  }
  job.emitted->describe_files(job.json);
  return job.answer();
}

namespace {

/// Verifies and times what was built.
void finish(Job& job, const Reference& reference,
            const Result<std::shared_ptr<codegen::Device>>& device) {
  if (job.refusal) return;
  if (!device) return job.refuse_with(device.reason());
  verify_job(job, *device, reference);
  time_job(job);
}

std::optional<double> seconds_of(const Job& job) {
  for (const char* key : {"seconds_median", "simulated_seconds"})
    if (const auto at = job.json.find(key); !job.refusal && at != job.json.end())
      return at->get<double>();
  return std::nullopt;
}

/// The fastest of so many plans that the model offers. MCFuser's search measures its best eight
/// each round (SC 2024, Algorithm 1): --tune 8.
Answer tuned(const Job& planned) {
  const Reference reference = reference_of(planned.on.setting, planned.request.seed);
  const auto device = open_device(planned.target());
  const auto count = static_cast<std::size_t>(*planned.options.tune);
  nlohmann::ordered_json tried = nlohmann::ordered_json::array();
  std::optional<Job> best;
  std::size_t chosen = 0;
  for (Scheduled& candidate : candidates_of(planned.on, count)) {
    Job job = planned;
    job.on = std::move(candidate);
    emit_job(job);
    build_job(job);
    finish(job, reference, device);
    const std::optional<double> seconds = seconds_of(job);
    tried.push_back({{"seconds", seconds ? nlohmann::ordered_json(*seconds) : nullptr},
                     {"reason", job.refusal ? nlohmann::ordered_json(*job.refusal) : nullptr}});
    if (!best || (seconds && (!seconds_of(*best) || *seconds < *seconds_of(*best)))) {
      best = std::move(job);
      chosen = tried.size() - 1;
    }
  }
  best->json["tuned"] = {{"measured", tried.size()}, {"chosen", chosen}, {"candidates", tried}};
  if (!best->refusal)
    best->json["notes"].push_back(
        "the plan is the fastest of " + std::to_string(tried.size()) +
        " that were measured, not the model's own choice, unless that is the fastest: candidate 0");
  return best->answer();
}

/// Whether the request is of a network that is run as a program of kernels: it says so, names an
/// ONNX file, or a workload without a plan and without a model that makes one.
bool is_network(const Request& request, const RunOptions& options) {
  if (options.count) return false;
  if (target_named(options.target ? options.target : request.target).sequence == nullptr)
    return false;
  if (options.split || options.profile || options.trace) return true;
  if (names_onnx(request.subject) && !request.subject_text) return true;
  if (options.tune || request.model || request.tree || notation_of(request) != nullptr)
    return false;
  if (&planner_for(request) != &planning_model()) return false;
  if (!request.pins.empty() || !request.flags.empty() || request.tiles) return false;
  return !setting_of(request).has_plan();
}

}  // namespace

Answer run(const Request& request, const RunOptions& options) {
  if (is_network(request, options)) return run_program(job_of(request, options).request, options);
  Job job = job_of(request, options);
  plan_job(job);
  if (options.tune && !job.refusal) {
    if (job.target().clock == codegen::Clock::none || options.build_only || options.count)
      throw InputError({.where = "--tune",
                        .value = std::to_string(*options.tune),
                        .problem = "is for kernels that are timed",
                        .accepted = "a target whose kernels are timed, without --build-only and "
                                    "--count"});
    return tuned(job);
  }
  emit_job(job);
  build_job(job);
  if (job.refusal || options.build_only) return job.answer();
  const Reference reference = [&] {
    const ProgressListener listener(heard(request, "computing the reference"));
    return reference_of(job.on.setting, request.seed);
  }();
  finish(job, reference, open_device(job.target()));
  return job.answer();
}

}  // namespace tilewright::harness
