#include "harness/mcfuser_request.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/schedules.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Candidates that may stand in for the best one: a target may refuse many in a row, such as all
/// tiles of a size that it pads.
constexpr std::size_t kMostChoices = 64;

/// What the model says of a schedule, as Traffic: loads read, stores written; `exact`: partial
/// tiles at their true size.
Traffic traffic_of(const Setting& s, LevelId level, const mcfuser::Price& price, bool exact) {
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.by = "mcfuser";
  traffic.machine = s.machine->name;
  const Workload& w = *s.workload;
  const std::string boundary = boundary_into(*s.machine, level);
  std::map<TensorId, TrafficEntry> entries;
  for (const mcfuser::StatementPrice& one : price.statements) {
    if (one.kind == mcfuser::Kind::compute) continue;
    TrafficEntry& e = entries[one.tensor];
    e.tensor = w.tensor(one.tensor).name;
    e.boundary = boundary;
    const Bytes bytes(static_cast<std::int64_t>(exact ? one.true_edges : one.total));
    (one.kind == mcfuser::Kind::load ? e.read : e.written) += bytes;
  }
  for (auto& [tensor, entry] : entries) traffic.entries.push_back(std::move(entry));
  traffic.memory[s.machine->level(level).name] = price.memory;
  for (const mcfuser::StatementPrice& one : price.statements)
    if (one.kind == mcfuser::Kind::compute) {
      const double points = std::min(one.points * one.trips, 9.2e18);
      traffic.operations[w.op(one.op).name] += Operations(static_cast<std::int64_t>(points));
    }
  traffic.seconds = price.time.seconds;
  return traffic;
}

/// The plan that the request says (convention 12), else the model's own best.
Result<Plan> plan_for(const Request& request, Setting& setting, const ModelRecord& record) {
  if (setting.file || request.tree || request.order ||
      request.options.contains("expression"))
    return plan_of(request, setting);
  Result<Optimum> best = record.optimise(request, setting);
  if (!best) return Reason{best.reason()};
  return std::move(best).value().plan;
}

Answer price_with(const Request& request, const Setting& asked, const ModelRecord& record,
                  bool flat) {
  Setting setting = asked;
  auto json = document();
  name_workload(json, setting);
  const auto refused = [&](const std::string& reason) {
    json["source"] = "predicted";
    json["by"] = record.name;
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), reason);
  };
  const Result<Plan> plan = plan_for(request, setting, record);
  if (!plan) return refused(plan.reason());
  const Result<Schedule> schedule = resolve(*plan, setting.workload, setting.machine);
  if (!schedule) {
    json["legal"] = false;
    return refused(schedule.reason());
  }
  const LevelId level = schedule->kernels.front().level;
  const Result<mcfuser::Device> device =
      mcfuser::device_of(*setting.machine, level, *setting.workload);
  if (!device) return refused(device.reason());
  const mcfuser::Options options = mcfuser_options(request, flat);
  const Result<mcfuser::Price> price = mcfuser::price(*schedule, *device, options);
  if (!price) return refused(price.reason());
  Traffic traffic = traffic_of(setting, level, *price, mcfuser_settings(request).text("edges") == "exact");
  traffic.by = record.name;
  merge(json, to_json(traffic));
  json["volume_bytes"] = traffic.total(boundary_into(*setting.machine, level)).read.value +
                         traffic.total(boundary_into(*setting.machine, level)).written.value;
  merge(json, time_json(*price));
  json["expression"] = nullptr;
  if (const auto chain = mcfuser::chain_of(setting.workload))
    if (const auto read = mcfuser::expression_of(*chain, *schedule)) {
      json["expression"] = mcfuser::to_text(*chain, read->expression);
      json["expression_paper"] = mcfuser::paper_text(*chain, read->expression);
    }
  json["options"] = options_json(request, options);
  return {std::move(json), Status::done};
}

Result<Optimum> optimise_with(const Request& request, const Setting& setting, bool flat) {
  const Result<Fused> on = fused_of(request, setting);
  if (!on) return Reason{on.reason()};
  const mcfuser::Options options = mcfuser_options(request, flat);
  const Settings settings = mcfuser_settings(request);
  const auto evolution = mcfuser::evolution_of(settings, request.seed);
  std::optional<mcfuser::Expression> only;
  if (settings.has("expression"))
    only = mcfuser::parse_expression(on->chain, settings.text("expression"));
  Result<mcfuser::BestPlan> best = mcfuser::best_plan(on->chain, *setting.machine, on->level,
                                                      on->device, options, evolution, only);
  if (!best) return Reason{best.reason()};
  const mcfuser::Chain& c = on->chain;
  const mcfuser::Class& group = *best->chosen.group;
  mcfuser::Pricer pricer(c, group.sub, on->device, options);
  const mcfuser::Price price = pricer.price(best->chosen.tiles);
  ordered_json json;
  json["expression"] = mcfuser::to_text(c, group.first);
  json["expression_paper"] = mcfuser::paper_text(c, group.first);
  json["sub_expression"] = mcfuser::to_text(c, group.sub.rest);
  json["expression_tiles"] = tiles_json(c, best->chosen.tiles);
  json["volume_bytes"] = price.bytes.value;
  const auto schedule = resolve(best->plan, setting.workload, setting.machine);
  TW_CHECK(schedule.ok(), "a plan that best_plan took is legal");
  json["memory"] = memory_json(memory_use(*schedule));
  json["memory_paper_bytes"] = price.memory.value;
  json["capacity_bytes"] = on->device.shared.value;
  json["seconds"] = price.time.seconds;
  merge(json, time_json(price));
  json["search"] = evolution ? "evolutionary" : "exhaustive";
  json["search_seconds"] = best->found.seconds;
  json["candidates"] = space_json(*best->space);
  json["candidates"]["evaluated"] = best->found.evaluated;
  json["candidates"]["overflowed"] = best->overflowed;
  if (evolution) {
    json["candidates"]["generations"] = best->found.generations;
    json["candidates"]["rounds"] = ordered_json::array();
    const auto finite = [](double s) {
      return std::isfinite(s) ? ordered_json(s) : ordered_json(nullptr);
    };
    for (const mcfuser::Round& r : best->found.rounds)
      json["candidates"]["rounds"].push_back({{"evaluated", r.evaluated},
                                              {"round_best_seconds", finite(r.seconds)},
                                              {"best_seconds", finite(r.best)}});
    json["seed"] = evolution->seed;
  }
  json["notes"] = best->space->notes;
  json["options"] = options_json(request, options);
  Plan plan = best->plan;
  const auto kept = std::make_shared<const mcfuser::BestPlan>(std::move(best).value());
  const auto choices = [kept, on = *on, machine = setting.machine, options](std::size_t) {
    std::vector<KernelChoice> all;
    for (mcfuser::Ranked& r : mcfuser::ranked_plans(on.chain, *machine, on.level, on.device,
                                                    options, kept->found, kMostChoices))
      if (r.plan != kept->plan)
        all.push_back({std::move(r.plan.kernels.front()), r.candidate.seconds, ""});
    return all;
  };
  return Optimum{std::move(plan), on->level, std::move(json), {}, choices};
}

}  // namespace

mcfuser::Tiles named_tiles(const Request& request, const mcfuser::Chain& c) {
  const auto named = tiles_of(request, *c.workload);
  mcfuser::Tiles tiles;
  for (const Loop& l : c.workload->loops()) {
    const auto at = named.find(l.name);
    tiles.push_back(at == named.end() ? l.extent : at->second);
  }
  for (LoopId l : c.batch) tiles[l.index()] = 1;
  return tiles;
}

ordered_json tiles_json(const mcfuser::Chain& c, const mcfuser::Tiles& tiles) {
  ordered_json json = ordered_json::object();
  for (LoopId l : c.dims) json[c.workload->loop(l).name] = tiles[l.index()];
  return json;
}

ordered_json time_json(const mcfuser::Price& price) {
  return {{"memory_seconds", price.time.memory_seconds},
          {"compute_seconds", price.time.compute_seconds},
          {"slowdown", price.time.slowdown},
          {"blocks", price.time.blocks},
          {"flops", price.flops}};
}

Settings mcfuser_settings(const Request& request) {
  return settings_among(request, mcfuser::option_specs(), "model mcfuser");
}

mcfuser::Options mcfuser_options(const Request& request, bool flat) {
  return mcfuser::options_of(mcfuser_settings(request), flat);
}

ordered_json options_json(const Request& request, const mcfuser::Options& o) {
  ordered_json json = mcfuser_settings(request).to_json();
  std::string rules;
  for (int i = 0; i < 4; ++i)
    if (o.rules[i]) rules += (rules.empty() ? "" : ",") + std::to_string(i + 1);
  json["rules"] = rules.empty() ? "none" : rules;
  json["flat"] = o.flat;
  return json;
}

Result<Fused> fused_of(const Request& request, const Setting& setting) {
  Result<mcfuser::Chain> chain = mcfuser::chain_of(setting.workload);
  if (!chain) return Reason{chain.reason()};
  const LevelId level = level_of(request, *setting.machine);
  Result<mcfuser::Device> device = mcfuser::device_of(*setting.machine, level, *setting.workload);
  if (!device) return Reason{device.reason()};
  if (request.capacity) device.value().shared = capacity_of(request, setting, level);
  return Fused{std::move(chain).value(), std::move(device).value(), level};
}

Result<Plan> mcfuser_named_plan(const Request& request, const Setting& setting) {
  if (!request.tiles) {
    Result<Optimum> best = optimise_with(request, setting, true);
    if (!best) return Reason{best.reason()};
    return std::move(best).value().plan;
  }
  Result<mcfuser::Chain> chain = mcfuser::chain_of(setting.workload);
  if (!chain) return Reason{chain.reason()};
  const mcfuser::Options options = mcfuser_options(request);
  const mcfuser::Expression e =
      mcfuser::parse_expression(*chain, mcfuser_settings(request).text("expression"));
  return mcfuser::plan_of(*chain, mcfuser::sub_expression(*chain, e, options.blocks),
                          named_tiles(request, *chain), *setting.machine,
                          level_of(request, *setting.machine), options);
}

ordered_json space_json(const mcfuser::Space& space) {
  ordered_json json = {{"generated", space.counts.front().candidates},
                       {"after", ordered_json::object()},
                       {"expressions", ordered_json::object()},
                       {"tuples", ordered_json::object()}};
  for (const auto& c : space.counts) {
    if (c.rule != "generated") json["after"][c.rule] = c.candidates;
    json["expressions"][c.rule] = c.expressions;
    json["tuples"][c.rule] = c.tuples;
  }
  return json;
}

// ---- the records --------------------------------------------------------------------------------

namespace {

std::vector<std::string> fuser_assumptions() {
  return {"matrix products in a line; element-wise operators and softmax between them",
          "memory and computation do not overlap; full tiles; no quantisation into waves",
          "an output's re-reading is not counted; a load may leave a loop bound to blocks"};
}

}  // namespace

ModelRecord mcfuser_record() {
  return {.name = "mcfuser",
          .summary = "time of a chain of products under tiling expressions, and the best of all",
          .source = "Zhang et al., MCFuser, SC 2024, sections III and IV",
          .assumptions = fuser_assumptions(),
          .options = mcfuser::option_specs(),
          .optimise = [](const Request& r, const Setting& s) { return optimise_with(r, s, true); },
          .price = [](const Request& r,
                      const Setting& s) { return price_with(r, s, find_model("mcfuser"), true); }};
}

ModelRecord mcfuser_chimera_record() {
  return {.name = "mcfuser-chimera",
          .summary = "MCFuser's model over Chimera's space: nested loops only",
          .source = "Zhang et al., MCFuser, SC 2024, section VI-A",
          .assumptions = fuser_assumptions(),
          .options = mcfuser::option_specs(),
          .optimise = [](const Request& r, const Setting& s) { return optimise_with(r, s, false); },
          .price =
              [](const Request& r, const Setting& s) {
                return price_with(r, s, find_model("mcfuser-chimera"), false);
              }};
}

}  // namespace tilewright::harness
