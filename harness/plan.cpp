// plan: a model's best plan, what it says of it, and how far that is from what must move.
#include <algorithm>

#include "core/base/document.h"
#include "harness/ask.h"
#include "harness/files.h"
#include "harness/in_runs.h"
#include "harness/schedules.h"
#include "harness/taken.h"
#include "harness/verbs.h"
#include "models/bounds/model.h"

namespace tilewright::harness {
using nlohmann::ordered_json;

namespace {

/// The machine's two roofs for the workload at a level; null what the machine file does not say.
ordered_json roofline_json(const Workload& w, const Machine& m, LevelId level) {
  ordered_json json;
  const Level& l = m.level(level);
  json["boundary"] = boundary_into(m, level);
  json["dtype"] = name_of(w.dtype());
  json["flops"] = w.flops();
  json["peak_flops_per_second"] = nullptr;
  for (const ComputeUnit& u : m.units)
    if (const auto peak = u.peak.find(std::string(name_of(w.dtype()))); peak != u.peak.end())
      json["peak_flops_per_second"] =
          std::max(peak->second.value, json["peak_flops_per_second"].is_null()
                                           ? 0.0
                                           : json["peak_flops_per_second"].get<double>());
  json["bandwidth_bytes_per_second"] =
      l.bandwidth.value > 0 ? ordered_json(l.bandwidth.value) : ordered_json(nullptr);
  json["instances"] = l.instances;
  return json;
}

}  // namespace

Answer plan(const Request& request, const std::optional<std::string>& out) {
  Setting setting = setting_of(request);
  const auto refuse_plan = [](const char* what) {
    throw InputError({.where = "plan",
                      .value = what,
                      .problem = "is a plan already",
                      .accepted = "a workload; predict prices a plan, simulate walks it"});
  };
  if (setting.file) refuse_plan(request.subject.c_str());
  if (request.tree) refuse_plan("--tree");
  const Model& model = planner_for(request);
  const Model* const asked[] = {&model};
  check_options_of(request, asked);
  auto json = document();
  json["model"] = model.name;
  if (model.propose == nullptr) {
    std::vector<std::string> makers;
    for (const Model& m : models())
      if (m.propose != nullptr) makers.push_back(m.name);
    throw InputError({.where = "--model",
                      .value = model.name,
                      .problem = "makes no plans",
                      .accepted = "a model that does: " + join(makers)});
  }
  const bool all = request.level == "all" && several_levels(*setting.machine);
  if (all && !model.every_level) {
    std::vector<std::string> able;
    for (const Model& m : models())
      if (m.every_level) able.push_back("--model " + m.name);
    return refuse(std::move(json), "--level all: " + model.name +
                                       " plans for one level; for every level: " + join(able));
  }
  if (request.progress) request.progress("searching", 0);
  const Setting before = setting;
  Result<Proposal> best = propose(model, request, setting);
  if (!best) {
    name_workload(json, setting);
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), best.reason());
  }
  rewrite(setting, best->rewrites, "--model " + model.name);
  if (request.target && !all) {
    // What is shown is what `run --target` runs.
    const codegen::Target& target = target_named(request.target);
    json["target"] = target.name;
    const Result<Taken> taken = take(best.value(), setting, target, request,
                                     asked_again(model, request, before, best->level));
    if (!taken) {
      name_workload(json, setting);
      json["machine"] = setting.machine->name;
      return refuse(std::move(json), taken.reason());
    }
    merge(json, taken->json());
  }
  PlanFile file{.workload = setting.as_named(),
                .workload_name = setting.workload_name,
                .machine = request.machine,
                .model = model.name,
                .plan = best->plan,
                .rewrites = setting.rewrites};
  json["plan"] = to_json(file);
  json["level"] = all ? "all" : setting.machine->level(best->level).name;
  merge(json, best->detail);
  add_seconds_in_runs(json, model, request, setting, best->plan);
  const auto written = [&](ordered_json done) {
    if (out) {
      write_plan_file(*out, file);
      done["written"] = *out;
    }
    return Answer{std::move(done), Status::done};
  };
  if (all) return written(std::move(json));

  const Result<Alone> alone = alone_at(setting, best->plan, best->level);
  const Bytes capacity = capacity_of(request, setting, best->level);
  // A cache's plan may have tiles larger than the level: what does not stay there is read again.
  const Result<MovedAt> moved =
      alone ? moved_at(request, setting, best->plan, best->level, *alone) : Reason{alone.reason()};
  if (alone && !json.contains("memory")) {
    json["memory"] = {{setting.machine->level(best->level).name,
                       held_at(alone->exact, *setting.machine, best->level).value}};
    json["capacity_bytes"] = capacity.value;
  }
  const bool fits = alone && held_at(alone->exact, *setting.machine, best->level) <= capacity;
  json["bounds"] = bounds::bounds_json(
      *setting.workload, capacity,
      moved && (fits || moved->walked) ? std::optional(moved->bytes) : std::nullopt);
  const Bytes bound(json["bounds"]["proven"]["bytes"].get<std::int64_t>());
  json["bound_bytes"] = bound.value;
  json["bound"] = "proven";
  json["bound_is"] = json["bounds"]["proven"]["is"];
  json["exact_bytes"] = moved ? ordered_json(moved->bytes.value) : ordered_json(nullptr);
  if (moved && moved->walked) json["exact_bytes_of"] = kWalkedTiles;
  // The planner counts what the cache brings in; the bound and the gap are of a level that software
  // manages.
  const bool counted_lines = &model == &planning_model() && moved && !moved->walked &&
                             setting.machine->level(best->level).managed == Managed::hardware &&
                             !best->price.traffic.seconds && json.contains("volume_bytes");
  if (counted_lines && json["volume_bytes"] != json["exact_bytes"])
    json["exact_is"] =
        "were the level managed by software; the volume is the most that a model counts for the "
        "cache, where whole lines move, and lines are filled before they are written";
  json["gap"] = json["bounds"]["proven"]["gap"];
  json["roofline"] = roofline_json(*setting.workload, *setting.machine, best->level);
  if (fits) TW_CHECK(moved->bytes >= bound, "a plan cannot move less than what is proven");
  if (json["gap"].is_null())
    json["gap_reason"] = !moved                    ? moved.reason()
                         : (fits || moved->walked) ? "nothing must move"
                                                   : "its tiles are larger than the level";
  if (alone) json["operations_over_least"] = or_null(over_least(alone->exact, *setting.workload));
  return written(std::move(json));
}

}  // namespace tilewright::harness
