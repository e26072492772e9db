#include "harness/pipeline.h"

#include <algorithm>

#include "harness/statistics.h"
#include "harness/taken.h"
#include "models/exact/exact.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

/// The peak that a machine's file has for a type, and where that number is from.
struct FilePeak {
  double gflops = 0;
  std::string source;
};

std::optional<FilePeak> file_peak(const Machine& machine, DType type) {
  const std::string name(name_of(type));
  for (const ComputeUnit& unit : machine.units) {
    const auto peak = unit.peak.find(name);
    if (peak == unit.peak.end()) continue;
    const auto source = unit.sources.find("peak." + name);
    return FilePeak{peak->second.value * 1e-9,
                    "machine file " + machine.name +
                        (source == unit.sources.end() ? "" : ": " + source->second)};
  }
  return std::nullopt;
}

/// What packing costs: every byte that a packed tile is loaded or written with is copied once more.
/// Null where exact does not say.
ordered_json copied_bytes(const Scheduled& on, const std::vector<std::string>& packed) {
  if (on.schedule->kernels.size() != 1) return nullptr;
  const Result<Alone> alone = alone_at(on.setting, on.plan, on.schedule->kernels.front().level);
  if (!alone) return nullptr;
  Bytes copied;
  for (const TrafficEntry& e : alone->exact.entries)
    for (const std::string& tensor : packed)
      if (tensor == e.tensor) copied += e.read + e.written;
  return copied.value;
}

void add_timing(Job& job, const codegen::Timing& timing) {
  const Setting& setting = job.on.setting;
  const double flops = setting.as_named().flops();
  const double seconds = median(timing.seconds);
  ordered_json& json = job.json;
  const bool simulated = job.target().clock == codegen::Clock::simulated;
  if (simulated) {
    json["simulated_seconds"] = seconds;
  } else {
    json["seconds_median"] = seconds;
    json["seconds_min"] = *std::ranges::min_element(timing.seconds);
    merge(json, timing.detail);
    json["runs"] = timing.runs;
  }
  json["flops"] = flops;
  json[simulated ? "simulated_gflops" : "gflops"] = flops / seconds * 1e-9;
  json["peak_gflops"] = nullptr;
  if (!timing.peak_gflops.empty()) {
    json["peak_gflops"] = median(timing.peak_gflops);
    json["peak_source"] = timing.peak_source;
  } else if (const auto peak = file_peak(*setting.machine, setting.as_named().dtype())) {
    json["peak_gflops"] = peak->gflops;
    json["peak_source"] = peak->source;
  }
}

}  // namespace

Job job_of(Request request, RunOptions options) {
  if (options.target) request.target = options.target;
  request.target = std::string(target_named(request.target).name);
  return {.request = std::move(request), .options = std::move(options)};
}

std::shared_ptr<codegen::Device> device_for(Job& job) {
  const codegen::Target& target = job.target();
  if (job.refusal || job.options.build_only) return nullptr;
  const auto refuse = [&](std::string why) {
    settings_for(target, job.request.target_options);  // bad input is said first
    const Setting setting = setting_of(job.request);
    name_workload(job.json, setting);
    job.json["machine"] = setting.machine->name;
    job.json["target"] = target.name;
    job.refuse_with(std::move(why));
    return nullptr;
  };
  if (target.open == nullptr) {
    const Availability here = target.here();
    return here.usable
               ? nullptr
               : refuse("target " + std::string(target.name) + " is not available: " + here.reason);
  }
  Result<std::shared_ptr<codegen::Device>> device = target.open();
  if (!device) return refuse(device.reason());
  return std::move(device).value();
}

void plan_job(Job& job) {
  if (job.refusal) return;
  const codegen::Target& target = job.target();
  settings_for(target, job.request.target_options);  // bad input before anything is planned
  job.on = target.threads ? schedule_for_threads(job.request) : schedule_of(job.request);
  name_workload(job.json, job.on.setting);
  job.json["machine"] = job.on.setting.machine->name;
  job.json["target"] = target.name;
  if (job.on.schedule) return;
  merge(job.json, job.on.refusal.json);
  job.refuse_with(job.on.refusal.json.value("reason", "no schedule"));
}

void emit_job(Job& job) {
  if (!job.on.schedule) plan_job(job);
  if (job.refusal) return;
  const codegen::Target& target = job.target();
  Result<Taken> taken = emit_taken(job.on, target, settings_for(target, job.request.target_options),
                                   job.request.threads.value_or(1));
  if (!taken)
    return job.refuse_with("target " + std::string(target.name) +
                           " cannot emit this schedule: " + taken.reason());
  job.emitted = std::move(taken.value().emitted);
  job.emitted->describe(job.json);
  merge(job.json, taken->json());
  for (std::string& note : taken->notes()) job.json["notes"].push_back(std::move(note));
  if (const auto packed = job.emitted->packed())
    job.json["packing"]["copied_bytes"] = copied_bytes(job.on, *packed);
}

void build_job(Job& job) {
  if (job.refusal) return;
  if (!job.options.build_only)
    if (const auto why = job.emitted->cannot_run()) return job.refuse_with(why->text);
  compile_job(job);
}

void compile_job(Job& job) {
  if (job.refusal) return;
  if (job.request.progress) job.request.progress("building, usually 1 to 10 s", 0);
  if (const auto why = job.emitted->build(!job.options.build_only, job.json))
    job.refuse_with("the kernel cannot be built: " + why->text);
}

void verify_job(Job& job, const std::shared_ptr<codegen::Device>& device,
                const Reference& reference) {
  if (job.refusal) return;
  if (job.request.progress) job.request.progress("verifying", 0);
  if (device) device->describe(job.json);
  job.json["reference_seconds"] = reference.seconds;
  Result<std::unique_ptr<codegen::TargetKernel>> loaded = job.emitted->load(device, job.json);
  if (!loaded) return job.refuse_with("the kernel does not run here: " + loaded.reason());
  const codegen::TargetKernel& running = **loaded;
  std::optional<Reason> fault_if_right, fault_if_wrong;
  const Workload& w = *job.on.setting.workload;
  VerifyResult checked = verify(
      std::move(loaded).value(), w, reference,
      [&] {  // the kernel itself ends where it is wrong
        running.describe_run(job.json);
        fault_if_right = running.fault(true);
        fault_if_wrong = running.fault(false);
      },
      job.on.schedule ? &*job.on.schedule : nullptr);
  job.json["seed"] = job.request.seed;
  add_json(job.json, checked.verification, w);
  if (checked.failure) return job.refuse_with("the kernel failed: " + checked.failure->text);
  if (const auto& fault = checked.kernel ? fault_if_right : fault_if_wrong)
    return job.refuse_with(fault->text);
  if (!checked.kernel)
    return job.refuse_with("verification failed: " + reason_of(checked.verification, w) +
                           "; the kernel is not timed");
  job.kernel = std::move(checked.kernel);
  for (const codegen::File& file : job.kernel->kernel().files()) {
    write_file(file.name, file.text, "--target");
    job.json["files"].push_back(file.name);
  }
}

void time_job(Job& job) {
  if (job.refusal) return;
  codegen::TargetKernel& kernel = job.kernel->kernel();
  if (job.options.count) {
    if (const auto why = kernel.run_profiled())
      job.refuse_with("the kernel was not counted: " + why->text);
    return;
  }
  if (job.target().clock == codegen::Clock::none) return;
  const Result<codegen::Timing> timing = kernel.time(job.options.seconds, job.request.progress);
  if (!timing) return job.refuse_with("the kernel failed while it was timed: " + timing.reason());
  add_timing(job, *timing);
}

Result<std::shared_ptr<codegen::Device>> open_device(const codegen::Target& target) {
  if (target.open == nullptr) return std::shared_ptr<codegen::Device>();
  return target.open();
}

// ---- The registry as requests use it ------------------------------------------------------------

const codegen::Target& target_named(const std::optional<std::string>& name) {
  return name ? codegen::find_target(*name) : *codegen::targets().front();
}

Settings settings_for(const codegen::Target& target, const OptionValues& options) {
  return {target.options(), options, "target " + std::string(target.name)};
}

TargetNeeds target_needs(const Request& request, DType type) {
  if (!request.target) return {};
  const codegen::Target& target = target_named(request.target);
  if (target.needs == nullptr) return {};
  return target.needs(type, settings_for(target, request.target_options));
}

}  // namespace tilewright::harness
