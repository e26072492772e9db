#include "harness/chimera_paths.h"

#include "harness/registry.h"
#include "harness/schedules.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

/// paths, volume_bytes (into the default level), the costs, memory.
ordered_json paths_json(const chimera::PathPlan& plan, const Machine& m) {
  ordered_json json;
  json["paths"] = ordered_json::array();
  const std::string boundary = boundary_into(m, m.default_level());
  std::int64_t volume = 0;
  for (const chimera::PathCost& c : plan.costs) {
    ordered_json cost = {{"kernel", c.kernel}, {"path", c.boundary}, {"seconds", c.seconds}};
    if (c.boundary == "cube")
      cost["operations"] = c.bytes.value;
    else
      cost["bytes"] = c.bytes.value, cost["bandwidth_bytes_per_second"] = c.bandwidth;
    if (c.boundary == boundary) volume += c.bytes.value;
    json["paths"].push_back(std::move(cost));
  }
  json["volume_bytes"] = volume;
  json["seconds"] = plan.largest;
  json["cost_largest"] = plan.largest;
  json["cost_sum"] = plan.sum;
  json["blocks"] = plan.blocks;
  json["memory"] = memory_json(plan.memory);
  return json;
}

Result<chimera::PathPlan> best_of(const Request& request, const Setting& setting) {
  if (request.capacity)
    throw InputError({.where = "--capacity",
                      .value = *request.capacity,
                      .problem = "is of one level",
                      .accepted = "a plan over an NPU's paths without it"});
  return chimera::best_paths(*setting.workload, setting.machine, {});
}

}  // namespace

bool over_paths(const Request& request, const Machine& machine) {
  return machine.npu_core && (request.level == "all" ||
                              (!request.level && target_needs(request, DType::f16).every_level));
}

Result<Optimum> paths_optimise(const Request& request, const Setting& setting) {
  Result<chimera::PathPlan> best = best_of(request, setting);
  if (!best) return Reason{best.reason()};
  const Machine& m = *setting.machine;
  ordered_json json = paths_json(*best, m);
  json["search_seconds"] = best->seconds;
  json["candidates"] = best->counted;
  return Optimum{std::move(best->plan), m.default_level(), std::move(json)};
}

Answer paths_price(const Request& request, const Setting& setting,
                   const std::optional<Plan>& plan) {
  auto json = document();
  name_workload(json, setting);
  json["source"] = "predicted";
  json["by"] = "chimera";
  json["machine"] = setting.machine->name;
  const Result<chimera::PathPlan> priced =
      plan ? chimera::price_paths(*plan, setting.workload, setting.machine, {})
           : best_of(request, setting);
  if (!priced) return refuse(std::move(json), priced.reason());
  Traffic traffic = priced->traffic;
  traffic.by = "chimera";
  merge(json, to_json(traffic));
  merge(json, paths_json(*priced, *setting.machine));
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
