// measure: what a verified kernel moves, by a meter; beside it what its plan was simulated to move.
#include <algorithm>

#include "core/plan/stream.h"
#include "harness/executed.h"
#include "harness/measure_cuda.h"
#include "harness/metered_kernel.h"
#include "harness/meters.h"
#include "harness/registry.h"
#include "harness/run_npu.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
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

}  // namespace

Answer measure(const Request& request, const MeasureOptions& options) {
  const profilers::MeterRecord& record = find_meter(options.meter, "--meter");
  const TargetRecord& target = find_target(options.target);
  Request suited = request;
  if (!suited.target) suited.target = options.target;
  if (target.name == "npu" && record.target == "npu") return measure_npu(request, options);
  if (target.name == "cuda" && record.target == "cuda") return measure_cuda(request, options);
  const cpu::Isa isa = options.isa ? isa_named(*options.isa) : isa_for(record);
  suited.isa = std::string(cpu::name_of(isa));
  suited.micro_kernel = options.micro_kernel;
  Scheduled on = schedule_of(suited);
  auto json = document();
  name_workload(json, on.setting);
  json["machine"] = on.setting.machine->name;
  json["target"] = options.target;
  json["meter"] = record.name;
  if (const auto why = absent(record)) return refuse(std::move(json), why->text);
  if (target.name != record.target)
    return refuse(std::move(json), "meter " + options.meter + " measures kernels of target " +
                                       std::string(record.target));
  if (!on.schedule) return on.refusal;
  json["isa"] = cpu::name_of(isa);
  if (!cpu::host_runs(isa))
    return refuse(std::move(json), "this processor does not run " + std::string(cpu::name_of(isa)));

  if (request.progress) request.progress("building", 0);
  const auto kernel = MeteredKernel::make(*on.schedule,
                                          {.isa = isa,
                                           .threads = request.threads.value_or(1),
                                           .micro_kernel = options.micro_kernel.value_or(""),
                                           .prefetch = options.prefetch},
                                          reference_of(on.setting, request.seed));
  if (!kernel) return refuse(std::move(json), kernel.reason());
  const MeteredKernel& k = **kernel;
  json["seed"] = request.seed;
  json["verified"] = true;
  json["relative_error"] = k.verification().relative_error;
  json["threads"] = k.source().threads;
  json["micro_kernel"] = k.source().micro_kernel;
  if (request.progress) request.progress("measuring", 0);
  const auto m = record.make()->measure(k.built(), *on.setting.machine);
  if (!m) return refuse(std::move(json), m.reason());

  merge(json, to_json(m->traffic));
  if (!m->traffic.counts.write_back)  // what is not counted is not zero
    for (ordered_json& entry : json["traffic"])
      if (m->traffic.total(entry["boundary"]).written == Bytes(0)) entry["written_bytes"] = nullptr;
  ordered_json counters = ordered_json::object();
  for (const auto& [name, value] : m->counters) counters[name] = value;
  json["counters"] = std::move(counters);
  json["notes"] = m->notes;
  for (const std::string& note : k.source().notes) json["notes"].push_back(note);
  json["addresses"] = addresses_json(k.built());
  json["command"] = m->command.empty() ? ordered_json(nullptr) : ordered_json(m->command);
  if (options.executed) {
    if (request.progress) request.progress("tracing", 0);
    if (const auto why = add_executed(json, k, *on.schedule, *m))
      return refuse(std::move(json), why->text);
  }
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
