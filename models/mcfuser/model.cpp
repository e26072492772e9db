#include "models/mcfuser/model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace tilewright::mcfuser {
namespace {

using nlohmann::ordered_json;

/// What the model says of a schedule, as Traffic: loads read, stores written; `exact`: partial
/// tiles at their true size.
Traffic traffic_of(const Question& q, LevelId level, const Price& price, bool exact) {
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.by = "mcfuser";
  traffic.machine = q.machine->name;
  const Workload& w = *q.workload;
  const std::string boundary = boundary_into(*q.machine, level);
  std::map<TensorId, TrafficEntry> entries;
  for (const StatementPrice& one : price.statements) {
    if (one.kind == Kind::compute) continue;
    TrafficEntry& e = entries[one.tensor];
    e.tensor = w.tensor(one.tensor).name;
    e.boundary = boundary;
    const Bytes bytes(static_cast<std::int64_t>(exact ? one.true_edges : one.total));
    (one.kind == Kind::load ? e.read : e.written) += bytes;
  }
  for (auto& [tensor, entry] : entries) traffic.entries.push_back(std::move(entry));
  traffic.memory[q.machine->level(level).name] = price.memory;
  for (const StatementPrice& one : price.statements)
    if (one.kind == Kind::compute) {
      const double points = std::min(one.points * one.trips, 9.2e18);
      traffic.operations[w.op(one.op).name] += Operations(static_cast<std::int64_t>(points));
    }
  traffic.seconds = price.time.seconds;
  return traffic;
}

}  // namespace

ordered_json tiles_json(const Chain& c, const Tiles& tiles) {
  ordered_json json = ordered_json::object();
  // Tiles are multiples of a step; of the last or only one no more than the loop is left.
  for (LoopId l : c.dims)
    json[c.workload->loop(l).name] = std::min(tiles[l.index()], c.workload->loop(l).extent);
  return json;
}

ordered_json time_json(const Price& price) {
  return {{"memory_seconds", price.time.memory_seconds},
          {"compute_seconds", price.time.compute_seconds},
          {"slowdown", price.time.slowdown},
          {"blocks", price.time.blocks},
          {"flops", price.flops}};
}

ordered_json options_json(const Settings& settings, const Options& o) {
  ordered_json json = settings.to_json();
  std::string rules;
  for (int i = 0; i < 4; ++i)
    if (o.rules[i]) rules += (rules.empty() ? "" : ",") + std::to_string(i + 1);
  json["rules"] = rules.empty() ? "none" : rules;
  json["flat"] = o.flat;
  return json;
}

ordered_json space_json(const Space& space) {
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

Tiles named_tiles(const Chain& c, const std::map<std::string, std::int64_t>& named) {
  Tiles tiles;
  for (const Loop& l : c.workload->loops()) {
    const auto at = named.find(l.name);
    tiles.push_back(at == named.end() ? l.extent : at->second);
  }
  for (LoopId l : c.batch) tiles[l.index()] = 1;
  return tiles;
}

Result<Fused> fused_of(const Question& q) {
  Result<Chain> chain = chain_of(q.workload);
  if (!chain) return Reason{chain.reason()};
  const LevelId level = q.planned_level();
  Result<Device> device = device_of(*q.machine, level, *q.workload);
  if (!device) return Reason{device.reason()};
  if (q.room) device.value().shared = *q.room;
  return Fused{std::move(chain).value(), std::move(device).value(), level};
}

namespace {

/// The two records differ in their space: with flat tilings, or nested loops only.
struct Variant {
  const char* name;
  bool flat;
};

Result<tilewright::Price> price_plan(const Question& q, const Plan& plan, const Settings& settings,
                                     Variant v) {
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  const LevelId level = schedule->kernels.front().level;
  const Result<Device> device = device_of(*q.machine, level, *q.workload);
  if (!device) return Reason{device.reason()};
  const Options options = options_of(settings, v.flat);
  const Result<Price> price = mcfuser::price(*schedule, *device, options);
  if (!price) return Reason{price.reason()};
  tilewright::Price out;
  out.traffic = traffic_of(q, level, *price, settings.text("edges") == "exact");
  out.traffic.by = v.name;
  ordered_json& json = out.detail;
  const TrafficEntry total = out.traffic.total(boundary_into(*q.machine, level));
  json["volume_bytes"] = total.read.value + total.written.value;
  json.update(time_json(*price));
  json["expression"] = nullptr;
  if (const auto chain = chain_of(q.workload))
    if (const auto read = expression_of(*chain, *schedule)) {
      json["expression"] = to_text(*chain, read->expression);
      json["expression_paper"] = paper_text(*chain, read->expression);
    }
  json["options"] = options_json(settings, options);
  return out;
}

/// The best plan, of one expression where `only` names it.
Result<Proposal> propose_with(const Question& q, const Settings& settings, Variant v,
                              std::optional<std::string> only_text) {
  Result<Fused> on = fused_of(q);
  if (!on) return Reason{on.reason()};
  const Options options = options_of(settings, v.flat);
  const auto evolution = evolution_of(settings, q.seed);
  std::optional<Expression> only;
  if (only_text) only = parse_expression(on->chain, *only_text);
  Result<BestPlan> best =
      best_plan(on->chain, *q.machine, on->level, on->device, options, evolution, only);
  if (!best) return Reason{best.reason()};
  const Chain& c = on->chain;
  const Class& group = *best->chosen.group;
  Pricer pricer(c, group.sub, on->device, options);
  // The search takes tiles that are multiples of a step; what is said of the plan is of the tiles
  // that it has, so that every verb has the same price.
  Tiles tiles = best->chosen.tiles;
  for (LoopId l : c.dims) tiles[l.index()] = std::min(tiles[l.index()], c.workload->loop(l).extent);
  const Price price = pricer.price(tiles), searched = pricer.price(best->chosen.tiles);
  Proposal out;
  out.plan = best->plan;
  out.level = on->level;
  out.search_seconds = best->found.seconds;
  ordered_json& json = out.detail;
  json["expression"] = to_text(c, group.first);
  json["expression_paper"] = paper_text(c, group.first);
  json["sub_expression"] = to_text(c, group.sub.rest);
  json["expression_tiles"] = tiles_json(c, best->chosen.tiles);
  json["volume_bytes"] = price.bytes.value;
  const auto schedule = resolve(best->plan, q.workload, q.machine);
  TW_CHECK(schedule.ok(), "a plan that best_plan took is legal");
  json["memory"] = memory_json(memory_use(*schedule));
  json["memory_paper_bytes"] = searched.memory.value;
  json["capacity_bytes"] = on->device.shared.value;
  json["seconds"] = price.time.seconds;
  json.update(time_json(price));
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
    for (const Round& r : best->found.rounds)
      json["candidates"]["rounds"].push_back({{"evaluated", r.evaluated},
                                              {"round_best_seconds", finite(r.seconds)},
                                              {"best_seconds", finite(r.best)}});
    json["seed"] = evolution->seed;
  }
  json["notes"] = best->space->notes;
  json["options"] = options_json(settings, options);
  out.words = {.text = to_text(c, group.first), .tiles = std::map<std::string, std::int64_t>()};
  for (LoopId l : c.dims)
    (*out.words.tiles)[c.workload->loop(l).name] =
        std::min(best->chosen.tiles[l.index()], c.workload->loop(l).extent);
  Result<tilewright::Price> priced = price_plan(q, best->plan, settings, v);
  if (priced) out.price = std::move(priced).value();
  // Whatever a target refuses, the next of the search's best may stand in its place.
  out.choices = [on = *on, machine = q.machine, options,
                 best = std::make_shared<const BestPlan>(*best)](std::size_t) {
    std::vector<KernelChoice> choices;
    for (Ranked& one :
         ranked_plans(on.chain, *machine, on.level, on.device, options, best->found, kRanked))
      if (one.plan != best->plan)
        choices.push_back({.kernel = one.plan.kernels.front(), .seconds = one.candidate.seconds});
    return choices;
  };
  return out;
}

Result<Proposal> written(const Question& q, const Words& words, const Settings& settings,
                         Variant v) {
  if (!words.tiles) return propose_with(q, settings, v, words.text);
  Result<Chain> chain = chain_of(q.workload);
  if (!chain) return Reason{chain.reason()};
  const Options options = options_of(settings, v.flat);
  const Expression e = parse_expression(*chain, words.text.value_or(""));
  Proposal out;
  out.plan = plan_of(*chain, sub_expression(*chain, e, options.blocks),
                     named_tiles(*chain, *words.tiles), *q.machine, q.planned_level(), options);
  out.level = q.planned_level();
  out.words = words;
  Result<tilewright::Price> priced = price_plan(q, out.plan, settings, v);
  if (!priced) return Reason{priced.reason()};
  out.price = std::move(priced).value();
  return out;
}

std::vector<std::string> fuser_assumptions() {
  return {"matrix products in a line; element-wise operators and softmax between them",
          "memory and computation do not overlap; full tiles; no quantisation into waves",
          "an output's re-reading is not counted; a load may leave a loop bound to blocks"};
}

/// The first expression of every class that rules 1 and 2 leave.
std::vector<std::string> distinct_expressions(const Chain& c, const Options& o) {
  std::vector<std::string> texts;
  std::set<std::string> seen;
  for (const Expression& e : all_expressions(c)) {
    const SubExpression sub = sub_expression(c, e, o.blocks);
    if (!overwhelms(c, sub) && seen.insert(to_text(c, sub.rest)).second)
      texts.push_back(to_text(c, e));
  }
  return texts;
}

/// Tiles are multiples of this, and no larger than that.
constexpr std::int64_t kStep = 16, kMostTile = 256;

/// Tiles of each expression whose schedule is legal, fits and is taken.
Result<std::vector<DrawnPlan>> draw(const Question& q, const DrawSpace& space,
                                    const Settings& settings, bool flat) {
  const Result<Fused> on = fused_of(q);
  if (!on) return Reason{on.reason()};
  const Chain& c = on->chain;
  const Workload& w = *c.workload;
  const Options options = options_of(settings, flat);
  std::vector<std::string> texts;
  for (const std::string& text : space.texts)
    texts.push_back(to_text(c, parse_expression(c, text, "--orders")));
  if (texts.empty()) texts = distinct_expressions(c, options);
  std::mt19937_64 random(q.seed);
  std::vector<DrawnPlan> drawn;
  if (space.some_below > 0 || space.optimum) return drawn;  // no tile is that small
  for (const std::string& text : texts) {
    const SubExpression sub = sub_expression(c, parse_expression(c, text), options.blocks);
    std::set<std::map<std::string, std::int64_t>> seen;
    std::int64_t taken = 0;
    for (std::int64_t i = 0; i < 1000 * space.count && taken < space.count; ++i) {
      std::map<std::string, std::int64_t> tiles;
      for (const LoopId l : c.dims) {
        const std::int64_t most = std::min(w.loop(l).extent, kMostTile);
        const auto steps = static_cast<std::uint64_t>(ceil_div(most, kStep));
        const auto chosen = static_cast<std::int64_t>(random() % steps + 1) * kStep;
        tiles[w.loop(l).name] = std::min(chosen, most);
      }
      if (!seen.insert(tiles).second) continue;
      const Plan plan = plan_of(c, sub, named_tiles(c, tiles), *q.machine, on->level, options);
      const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
      if (!schedule || misfit(*schedule) || (space.accepts && !space.accepts(*schedule))) continue;
      const auto memory = memory_use(*schedule);
      const auto held = memory.find(q.machine->level(on->level).name);
      const Bytes bytes = held == memory.end() ? Bytes(0) : held->second;
      if (space.most.value > 0 && (bytes <= space.least || bytes > space.most)) continue;
      drawn.push_back({.words = {.text = text, .tiles = std::move(tiles)}});
      ++taken;
    }
  }
  return drawn;
}

Model record(Variant v, std::string summary, std::string section) {
  return {.name = v.name,
          .summary = std::move(summary),
          .source = "Zhang et al., MCFuser, SC 2024, section" + std::move(section),
          .assumptions = fuser_assumptions(),
          .options = option_specs(),
          .times = true,
          .notation = "expression",
          .propose =
              [v](const Question& q, const Settings& s) {
                return propose_with(q, s, v, s.find_text("expression"));
              },
          .price = [v](const Question& q, const Plan& p,
                       const Settings& s) { return price_plan(q, p, s, v); },
          .written = [v](const Question& q, const Words& w,
                         const Settings& s) { return written(q, w, s, v); },
          .draw = [v](const Question& q, const DrawSpace& space,
                      const Settings& s) { return draw(q, space, s, v.flat); },
          .explain = [v](const Question& q, const ExplainAsked& a,
                         const Settings& s) { return explain(q, a, s, v.flat); }};
}

}  // namespace

Model model() {
  return record({"mcfuser", true},
                "time of a chain of products under tiling expressions, and the best of all",
                "s III and IV");
}

Model nested_model() {
  return record({"mcfuser-chimera", false},
                "MCFuser's model over Chimera's space: nested loops only", " VI-A");
}

}  // namespace tilewright::mcfuser
