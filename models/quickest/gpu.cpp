// The planner on a GPU: prices, and later plans, by the one time of models/stitching/gpu_time.h.
#include "models/quickest/gpu.h"

#include <algorithm>
#include <utility>

#include "core/base/format.h"
#include "core/workload/cut.h"

namespace tilewright::quickest {
namespace {

using nlohmann::ordered_json;

double micros(double cycles, double clock) { return 1e6 * cycles / clock; }

ordered_json blocks_json(const lowering::BlockTime& t, double clock) {
  ordered_json json = {{"blocks_a_multiprocessor", t.resident},
                       {"warps", t.warps},
                       {"threads", t.threads},
                       {"registers", t.registers},
                       {"shared_bytes", t.shared},
                       {"memory_us", 1e6 * t.memory}};
  if (!t.tiles.empty()) json["tiles_in_shared_memory"] = t.tiles;
  json["phases"] = ordered_json::array();
  for (const lowering::PhaseTime& p : t.phases)
    json["phases"].push_back({{"blocks", p.blocks},
                              {"rounds", p.rounds},
                              {"seconds", p.seconds},
                              {"block_work_us", micros(p.work, clock)},
                              {"block_copies_us", micros(p.copies, clock)},
                              {"block_waits_us", micros(p.waits, clock)},
                              {"block_ends_us", micros(p.ends, clock)},
                              {"busy_tensor_us", micros(p.tensor, clock)},
                              {"busy_shared_us", micros(p.near, clock)},
                              {"busy_issue_us", micros(p.issue, clock)},
                              {"busy_fill_us", micros(p.fill, clock)}});
  return json;
}

ordered_json units_json(const stitching::Overlap& t) {
  return {{"blocks", t.blocks},         {"blocks_a_multiprocessor", t.resident},
          {"registers", t.registers},   {"launch_us", 1e6 * t.launch},
          {"memory_us", 1e6 * t.dram},  {"fill_us", 1e6 * t.fill},
          {"issue_us", 1e6 * t.issue},  {"special_us", 1e6 * t.special},
          {"local_us", 1e6 * t.local},  {"latency_us", 1e6 * t.latency},
          {"atomics_us", 1e6 * t.added}};
}

}  // namespace

namespace {

/// Cycles that a GPU's file may lack, as on an H200.
constexpr std::pair<const char*, double> kAssumed[] = {{"l2", 260},      {"dram", 800},
                                                       {"launch", 3000}, {"dispatch", 1.1},
                                                       {"block", 700},   {"grid_barrier", 2730}};

}  // namespace

std::shared_ptr<const Machine> priced_machine(const Question& q) {
  if (q.machine->units.empty()) return q.machine;
  Machine m = *q.machine;
  ComputeUnit& u = m.units.front();
  if (q.needs.capability > 0 && u.capability > q.needs.capability)
    u.capability = q.needs.capability;
  for (const auto& [name, cycles] : kAssumed) u.cycles.try_emplace(name, cycles);
  return std::make_shared<const Machine>(std::move(m));
}

ordered_json assumed_json(const Question& q) {
  ordered_json all = ordered_json::array();
  for (const auto& [name, cycles] : kAssumed)
    if (!q.machine->units.front().cycles.contains(name))
      all.push_back(formatted("cycles of {}: {}", name, cycles));
  return all;
}

ordered_json gpu_time_json(const stitching::GpuTime& t, double clock) {
  return t.blocks ? blocks_json(*t.blocks, clock) : units_json(*t.units);
}

Result<Price> price_on_gpu(const Question& q, const Plan& plan) {
  const auto pricer = stitching::GpuPricer::of(q.workload, *priced_machine(q));
  if (!pricer) return Reason{pricer.reason()};
  const Result<Schedule> s = resolve(plan, q.workload, q.machine);
  if (!s) return Reason{s.reason()};
  Price out;
  out.traffic.source = Source::predicted;
  out.traffic.by = "tilewright";
  out.traffic.machine = q.machine->name;
  double all = 0, before = 0;  // of each run, and of what makes constants before all
  const std::vector<bool> constant = constant_operators(*q.workload);
  out.detail["kernels_predicted"] = ordered_json::array();
  for (std::size_t k = 0; k < s->kernels.size(); ++k) {
    const auto t = pricer->kernel(*s, k);
    if (!t) return Reason{t.reason()};
    const bool once =
        std::ranges::all_of(s->kernels[k].ops, [&](OpId op) { return constant[op.index()]; });
    (once ? before : all) += t->seconds;
    ordered_json one = {{"kernel", s->kernels[k].name},
                        {"operators", ordered_json::array()},
                        {"seconds", t->seconds}};
    if (once) one["once"] = true;
    for (OpId op : s->kernels[k].ops) one["operators"].push_back(q.workload->op(op).name);
    one.update(gpu_time_json(*t, q.machine->units.front().clock_hz));
    out.detail["kernels_predicted"].push_back(std::move(one));
  }
  out.traffic.seconds = all > 0 ? all : before;
  out.detail["assumed"] = assumed_json(q);
  return out;
}

}  // namespace tilewright::quickest
