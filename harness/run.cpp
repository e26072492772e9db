// emit and run: a schedule to source, to a verified kernel, to seconds.
#include <cmath>

#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "core/machine/host_facts.h"
#include "core/workload/import/onnx_import.h"
#include "harness/ask.h"
#include "harness/circumstances.h"
#include "harness/heard.h"
#include "harness/in_runs.h"
#include "harness/pipeline.h"
#include "harness/points.h"
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
void finish(Job& job, const Reference& reference, const std::shared_ptr<codegen::Device>& device) {
  if (job.refusal) return;
  verify_job(job, device, reference);
  time_job(job);
}

std::optional<double> seconds_of(const Job& job) {
  for (const char* key : {"seconds_median", "simulated_seconds"})
    if (const auto at = job.json.find(key); !job.refusal && at != job.json.end())
      return at->get<double>();
  return std::nullopt;
}

/// What a time is of: the processor or GPU, the target's options, threads, the code. Planning
/// anew, another model or another description of the machine do not make it another time, unless
/// the time is simulated by that description.
std::string key_of(const Job& job, const std::string& device) {
  const bool simulated = job.target().clock == codegen::Clock::simulated;
  std::string all = device + "|" + std::string(job.target().name) + "|" +
                    (simulated ? to_yaml(*job.on.setting.machine) : "") + "|" +
                    std::to_string(job.request.threads.value_or(1)) + "|" +
                    job.on.setting.workload_name;
  for (const auto& [name, values] : job.request.target_options)
    for (const std::string& value : values) all += "|" + name + "=" + value;
  for (const codegen::File& file : job.emitted->files()) all += "|" + file.name + "|" + file.text;
  return hash_text(all);
}

/// Whether a line of the log is one of ours: a person, or another program, may have written it.
bool is_time(const nlohmann::ordered_json& kept) {
  if (!kept.is_object() || !kept.contains("seconds") || !kept["seconds"].is_number()) return false;
  const auto seconds = kept["seconds"].get<double>();
  return seconds > 0 && std::isfinite(seconds);
}

/// The fastest of so many plans that the model offers. MCFuser's search measures its best eight
/// each round (SC 2024, Algorithm 1): --tune 8.
Answer tuned(const Job& planned, const std::shared_ptr<codegen::Device>& device) {
  Points log;  // before anything that takes long: it may be refused
  if (planned.options.tune_log)
    log.open(*planned.options.tune_log, "tune", "1", false, "--tune-log");
  const Reference reference = reference_of(planned.on.setting, planned.request.seed);
  nlohmann::ordered_json described = {{"processor", processor_from_files().model}};
  if (device) device->describe(described);
  const auto count = static_cast<std::size_t>(*planned.options.tune);
  nlohmann::ordered_json tried = nlohmann::ordered_json::array();
  std::optional<Job> best;
  std::optional<double> first_seconds, best_seconds;
  std::size_t chosen = 0, measured = 0;
  for (Scheduled& candidate : candidates_of(planned.on, count)) {
    Job job = planned;
    job.on = std::move(candidate);
    emit_job(job);
    std::optional<double> seconds;
    bool now = false;
    struct Untimed {};  // is not kept: what failed may work the next time
    if (!job.refusal) try {
        const auto measure = [&] {
          now = true;
          build_job(job);
          finish(job, reference, device);
          const std::optional<double> took = seconds_of(job);
          if (!took) throw Untimed();
          nlohmann::ordered_json trees = nlohmann::ordered_json::array();
          for (const Kernel& k : job.on.plan.kernels)
            trees.push_back({{"tree", to_text(k.tree)}, {"tiles", k.tiles}});
          return nlohmann::ordered_json{{"seconds", *took},
                                        {"workload", job.on.setting.workload_name},
                                        {"kernels", trees},
                                        {"device", described},
                                        {"measured", circumstances("run --tune")}};
        };
        nlohmann::ordered_json found = log.once("tune", key_of(job, described.dump()), measure);
        if (!is_time(found)) found = measure();
        seconds = found["seconds"].get<double>();
      } catch (const Untimed&) {
      }
    measured += now ? 1 : 0;
    Setting warm = job.on.setting;
    warm.machine = in_runs(*warm.workload, warm.machine);
    const Result<Price> price = harness::price(planning_model(), job.request, warm, job.on.plan);
    nlohmann::ordered_json one = {{"seconds", nullptr}, {"predicted_seconds", nullptr}};
    if (seconds) one["seconds"] = *seconds;
    if (price && price->traffic.seconds) one["predicted_seconds"] = *price->traffic.seconds;
    one["reason"] = nullptr;
    if (job.refusal) one["reason"] = *job.refusal;
    one["from_log"] = !now && !job.refusal;
    one["plan"] = to_json(PlanFile{.workload = job.on.setting.as_named(),
                                   .workload_name = job.on.setting.workload_name,
                                   .machine = planned.request.machine,
                                   .model = {},
                                   .plan = job.on.plan,
                                   .rewrites = job.on.setting.rewrites});
    tried.push_back(std::move(one));
    if (tried.size() == 1) first_seconds = seconds;
    if (!best || (seconds && (!best_seconds || *seconds < *best_seconds))) {
      best = std::move(job);
      best_seconds = seconds;
      chosen = tried.size() - 1;
    }
  }
  // The answer is of a kernel that ran here and now, verified.
  if (!best->refusal && best->kernel == nullptr) {
    build_job(*best);
    finish(*best, reference, device);
  }
  auto& said = best->json["tuned"];
  said = {{"measured", measured}, {"chosen", chosen}, {"candidates", tried}};
  if (planned.options.tune_log) said["log"] = *planned.options.tune_log;
  said["gain"] = nullptr;
  if (first_seconds && best_seconds) {
    said["gain"] = *first_seconds / *best_seconds;
    if (!best->refusal)
      best->json["notes"].push_back(
          formatted("of {} plans, {} measured now, candidate {} is the fastest: {:.2f} times as "
                    "fast as candidate 0, the model's own choice",
                    tried.size(), measured, chosen, *first_seconds / *best_seconds));
  }
  return best->answer();
}

/// Whether the request is of a network that is run as a program of kernels: it says so, names an
/// ONNX file, or a workload without a plan that our planner plans.
bool is_network(const Request& request, const RunOptions& options) {
  if (options.count) return false;
  if (target_named(options.target ? options.target : request.target).sequence == nullptr)
    return false;
  if (options.split || options.profile || options.trace) return true;
  if (names_onnx(request.subject) && !request.subject_text) return true;
  if (options.tune || request.tree || notation_of(request) != nullptr) return false;
  if (&planner_for(request) != &planning_model()) return false;
  if (!request.pins.empty() || !request.flags.empty() || request.tiles) return false;
  return !setting_of(request).has_plan();
}

}  // namespace

Answer run(const Request& request, const RunOptions& options) {
  if (options.beside && *options.beside != "none" && find_program(*options.beside).empty())
    throw InputError({.where = "--beside",
                      .value = *options.beside,
                      .problem = "is no program",
                      .accepted = "a Python that has onnxruntime, or none"});
  const bool network = is_network(request, options);
  if (options.tune_log && (!options.tune || network))
    throw InputError({.where = "--tune-log",
                      .value = *options.tune_log,
                      .problem = options.tune ? "is not kept of a network's kernels"
                                              : "keeps the times that --tune takes",
                      .accepted = options.tune
                                      ? "one plan: no --split, --profile or --trace, no ONNX file"
                                      : "--tune N beside it"});
  Job job = job_of(request, options);
  if (options.tune &&
      (job.target().clock == codegen::Clock::none || options.build_only || options.count))
    throw InputError({.where = "--tune",
                      .value = std::to_string(*options.tune),
                      .problem = "is for kernels that are timed",
                      .accepted = "a target whose kernels are timed, without --build-only and "
                                  "--count"});
  const std::shared_ptr<codegen::Device> device = device_for(job);
  if (job.refusal) return job.answer();
  if (network) return run_program(job.request, options, device);
  plan_job(job);
  if (options.tune && !job.refusal) return tuned(job, device);
  emit_job(job);
  build_job(job);
  if (job.refusal || options.build_only) return job.answer();
  const Reference reference = [&] {
    const ProgressListener listener(heard(request, "computing the reference"));
    return reference_of(job.on.setting, request.seed);
  }();
  finish(job, reference, device);
  return job.answer();
}

}  // namespace tilewright::harness
