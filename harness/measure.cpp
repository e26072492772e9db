// measure: what a verified kernel moves, by a meter; beside it what its plan was simulated to move.
#include <algorithm>

#include "core/plan/stream.h"
#include "harness/executed.h"
#include "harness/measure_ncu.h"
#include "harness/metered_kernel.h"
#include "harness/meters.h"
#include "harness/path_differences.h"
#include "harness/pipeline.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "models/exact/exact.h"
#include "simulator/simulator.h"

namespace tilewright::harness {

using nlohmann::ordered_json;
using profilers::Measurement;

namespace {

/// Traces longer than this (two gigabytes of text) are not made.
constexpr double kMostInstructions = 5e7;

ordered_json addresses_json(const profilers::BuiltKernel& k) {
  ordered_json json = ordered_json::array();
  for (const profilers::PlacedTensor& t : k.tensors)
    if (t.address != 0)
      json.push_back({{"tensor", t.name}, {"address", t.address}, {"bytes", t.bytes}});
  json.push_back({{"tensor", "workspace"}, {"address", k.workspace}, {"bytes", nullptr}});
  return json;
}

/// The plan's simulation, the addresses executed and the meter's count at one boundary.
ordered_json comparison_json(const Executed& e, const ExecutedMisses& at, const Traffic& plan,
                             const Traffic& meter) {
  const std::int64_t counted = meter.total(at.boundary).misses;
  ordered_json json = {{"boundary", at.boundary},
                       {"plan_misses", plan.total(at.boundary).misses},
                       {"executed_misses", at.lines},
                       {"executed_clean_misses", at.clean},
                       {"executed_clean_accesses", at.accesses},
                       {"meter_misses", counted}};
  json["executed_over_meter"] =
      counted > 0 ? ordered_json(static_cast<double>(at.accesses) / static_cast<double>(counted))
                  : ordered_json(nullptr);
  json["causes"] = ordered_json::array();
  for (const Cause& c : causes(e, at, plan, counted))
    json["causes"].push_back({{"cause", c.what}, {"lines", c.lines}});
  return json;
}

double counter(const Measurement& m, std::string_view name) {
  for (const auto& [key, value] : m.counters)
    if (key == name) return value;
  return 0;
}

/// Adds the simulation of the plan and, beside it, what its kernel executed. A Reason where the
/// addresses executed cannot be had.
std::optional<Reason> add_executed(ordered_json& json, const MeteredKernel& kernel,
                                   const Schedule& schedule, const Measurement& m) {
  if (const double n = counter(m, "Ir"); n > kMostInstructions)
    return Reason{"the kernel executes " + std::to_string(static_cast<std::int64_t>(n)) +
                  " instructions, and --executed traces at most " +
                  std::to_string(static_cast<std::int64_t>(kMostInstructions))};
  const Machine& machine = *schedule.machine;
  const Result<Executed> executed = execute(kernel.built(), machine);
  if (!executed) return Reason{"the addresses executed: " + executed.reason()};
  const Traffic plan = tilewright::simulate(schedule, {.layout = Layout::row_major});
  json["executed"] = executed_json(*executed);
  json["plan"] = to_json(plan);
  json["comparison"] = ordered_json::array();
  for (const ExecutedMisses* at : {&executed->last, &executed->first})
    if (!at->boundary.empty() && !m.traffic.unavailable.contains(at->boundary))
      json["comparison"].push_back(comparison_json(*executed, *at, plan, m.traffic));
  return std::nullopt;
}

/// By the kernel itself, and where exact counts other bytes.
Answer self_counted(Job job, const std::shared_ptr<codegen::Device>& device) {
  emit_job(job);
  build_job(job);
  if (job.refusal) return job.answer();
  verify_job(job, device, reference_of(job.on.setting, job.request.seed));
  if (job.refusal) return job.answer();
  const std::optional<Traffic> counted = job.kernel->kernel().counted();
  TW_CHECK(counted.has_value(), "a meter of kernels that do not count");
  merge(job.json, to_json(*counted));
  const Traffic predicted = exact(*job.on.schedule);
  job.json["predicted"] = to_json(predicted);
  job.json["differences"] = ordered_json::array();
  for (const PathDifference& d : path_differences(predicted, *counted))
    job.json["differences"].push_back({{"tensor", d.tensor},
                                       {"boundary", d.boundary},
                                       {"exact_bytes", d.exact.value},
                                       {"emulated_bytes", d.emulated.value}});
  return job.answer();
}

/// By a meter of this machine's processor.
Answer metered(Job job, const profilers::MeterRecord& record, const MeasureOptions& options) {
  const Request& request = job.request;
  emit_job(job);
  if (job.refusal) return job.answer();
  if (const auto why = job.emitted->cannot_run()) {
    job.refuse_with(why->text);
    return job.answer();
  }
  if (request.progress) request.progress("building, usually 1 to 10 s", 0);
  const auto kernel = MeteredKernel::make(*job.on.schedule, *job.emitted,
                                          reference_of(job.on.setting, request.seed));
  ordered_json& json = job.json;
  if (!kernel) return refuse(std::move(json), kernel.reason());
  const MeteredKernel& k = **kernel;
  json["seed"] = request.seed;
  json["verified"] = true;
  json["relative_error"] = k.verification().relative_error;
  if (request.progress) request.progress("measuring", 0);
  const auto m = record.make()->measure(k.built(), *job.on.setting.machine);
  if (!m) return refuse(std::move(json), m.reason());

  const std::vector<std::string> notes = json["notes"];
  merge(json, to_json(m->traffic));
  if (!m->traffic.counts.write_back)  // what is not counted is not zero
    for (ordered_json& entry : json["traffic"])
      if (m->traffic.total(entry["boundary"]).written == Bytes(0)) entry["written_bytes"] = nullptr;
  ordered_json counters = ordered_json::object();
  for (const auto& [name, value] : m->counters) counters[name] = value;
  json["counters"] = std::move(counters);
  json["notes"] = m->notes;
  for (const std::string& note : notes) json["notes"].push_back(note);
  json["addresses"] = addresses_json(k.built());
  json["command"] = m->command.empty() ? ordered_json(nullptr) : ordered_json(m->command);
  if (options.executed) {
    if (request.progress) request.progress("tracing", 0);
    if (const auto why = add_executed(json, k, *job.on.schedule, *m))
      return refuse(std::move(json), why->text);
  }
  return {std::move(json), Status::done};
}

}  // namespace

Answer measure(const Request& request, const MeasureOptions& options) {
  const profilers::MeterRecord& record = find_meter(options.meter, "--meter");
  Job job = job_of(request, {.target = options.target, .build_only = options.build_only});
  const codegen::Target& target = job.target();
  const std::optional<Reason> missing = absent(record);
  if (measures(record, target) && record.counts == profilers::Counts::process &&
      (!missing || options.build_only))
    return measure_by_process(std::move(job), options);
  job.json["meter"] = record.name;
  const auto refused = [&](const std::string& why) {
    const Setting setting = setting_of(request);
    name_workload(job.json, setting);
    job.json["machine"] = setting.machine->name;
    job.json["target"] = target.name;
    return refuse(job.json, why);
  };
  if (missing) return refused(missing->text);
  if (!measures(record, target))
    return refused("meter " + options.meter + " measures kernels of target " +
                   std::string(target_of(record).name));
  const std::shared_ptr<codegen::Device> device = device_for(job);
  if (job.refusal) return job.answer();
  if (record.counts == profilers::Counts::itself) return self_counted(std::move(job), device);
  job.request.target_options = options_under(record, target, job.request.target_options);
  return metered(std::move(job), record, options);
}

}  // namespace tilewright::harness
