// Chimera over several levels, as plan, predict and explain answer with --level all.
#include <algorithm>

#include "models/bounds/bounds.h"
#include "models/chimera/model.h"
#include "models/exact/exact.h"

namespace tilewright::chimera {
namespace {

using nlohmann::ordered_json;

std::int64_t bytes(const Workload& w, Elements n) { return bytes_of(n, w.dtype()).value; }

bool bandwidths_known(const Machine& m, const std::vector<LevelId>& levels) {
  return std::all_of(levels.begin(), levels.end(),
                     [&](LevelId l) { return m.level(l).bandwidth.value > 0; });
}

ordered_json tensors_json(const Workload& w, const Price& price) {
  ordered_json tensors = ordered_json::object();
  for (const TensorPrice& t : price.tensors)
    tensors[w.tensor(t.tensor).name] = {{"footprint_elements", t.footprint.value},
                                        {"movement_elements", t.movement.value},
                                        {"decided_by", t.decided_by}};
  return tensors;
}

/// One level of a price; `moved`: what exact counts into each level, where it is known.
ordered_json level_json(const Question& q, const LevelPrice& p,
                        const std::map<std::string, Bytes>* moved) {
  const Workload& w = *q.workload;
  const Level& level = q.machine->level(p.at.level);
  const std::string boundary = boundary_into(*q.machine, p.at.level);
  ordered_json json = {{"level", level.name},
                       {"boundary", boundary},
                       {"order", to_text(w, p.at.order)},
                       {"tiles", tiles_json(w, p.at.order, p.at.tiles)},
                       {"volume_bytes", bytes(w, p.price.volume)},
                       {"cost", p.cost},
                       {"memory_bytes", bytes(w, p.price.memory)},
                       {"memory_paper_bytes", bytes(w, p.price.memory_paper)},
                       {"capacity_bytes", bytes(w, p.capacity)}};
  const auto at = moved != nullptr ? moved->find(boundary) : std::map<std::string, Bytes>::const_iterator();
  const bool known = moved != nullptr && at != moved->end();
  json["exact_bytes"] = known ? ordered_json(at->second.value) : ordered_json(nullptr);
  const Bytes room = bytes_of(p.capacity, w.dtype());
  const std::int64_t bound = bounds::proven(w, room).bytes.value;
  json["bound_bytes"] = bound;
  json["gap"] = known && bound > 0 ? ordered_json(double(at->second.value) / double(bound))
                                   : ordered_json(nullptr);
  json["tensors"] = tensors_json(w, p.price);
  ordered_json runs = ordered_json::object();
  for (std::size_t o = 0; o < w.operators().size(); ++o) runs[w.operators()[o].name] = p.runs[o];
  json["runs"] = runs;
  return json;
}

ordered_json levels_json(const Question& q, const LevelsPrice& price,
                         const Result<OverLevels>& exactly) {
  ordered_json levels = ordered_json::array();
  for (const LevelPrice& p : price.levels)
    levels.push_back(level_json(q, p, exactly ? &exactly->moved : nullptr));
  return levels;
}

/// What is minimised and what it came to.
void add_costs(ordered_json& json, const Question& q, const LevelsOptions& options,
               const LevelsPrice& price) {
  const bool known = bandwidths_known(*q.machine, chip_levels(*q.machine));
  json["objective"] = name_of(options.objective);
  json["cost_is"] = known ? "seconds" : "bytes";
  json["cost"] = options.objective == Objective::largest ? price.largest : price.sum;
  json["cost_largest"] = price.largest;
  json["cost_sum"] = price.sum;
  json["seconds"] = known ? ordered_json(price.largest) : ordered_json(nullptr);
}

/// The least that the objective can be, by what is proven of every level, and how far what truly moves
/// is from that.
void add_bound(ordered_json& json, const Machine& m, const LevelsOptions& options) {
  const auto bandwidth = bandwidths(m, chip_levels(m));
  double least = 0, truly = 0;
  bool known = true;
  for (std::size_t d = 0; d < json["levels"].size(); ++d) {
    const ordered_json& level = json["levels"][d];
    known = known && level["exact_bytes"].is_number();
    const auto add = [&](double& all, const char* key) {
      const double cost = level[key].is_number() ? level[key].get<double>() / bandwidth[d] : 0;
      all = options.objective == Objective::largest ? std::max(all, cost) : all + cost;
    };
    add(least, "bound_bytes");
    add(truly, "exact_bytes");
  }
  json["cost_bound"] = least;
  json["cost_exact"] = known ? ordered_json(truly) : ordered_json(nullptr);
  json["cost_gap"] = known && least > 0 ? ordered_json(truly / least) : ordered_json(nullptr);
}

/// What decides between levels, and of each level.
LevelsOptions levels_options(const Question& q, const Settings& settings) {
  if (q.room && over_levels(q))
    throw InputError({.where = "--capacity",
                      .value = std::to_string(q.room->value) + "B",
                      .problem = "is of one level",
                      .accepted = "--level all without it: every level has its own"});
  return {.model = options_of(settings), .objective = objective_of(settings)};
}

struct Planned {
  LevelsOptions options;
  Result<LevelsPlan> best = Reason{""};
};

/// The best plan; for a micro-kernel, where what that would like does not fit, without that.
Planned best_plan(const Question& q, const Settings& settings) {
  Planned p{levels_options(q, settings)};
  const Options wished = options_for(q, settings);
  const Options plain = p.options.model;
  p.options.model = wished;
  p.best = best_levels(*q.workload, *q.machine, p.options);
  if (p.best || wished.min_tiles.empty()) return p;
  p.options.model = plain;
  p.best = best_levels(*q.workload, *q.machine, p.options);
  return p;
}

/// The price of these blocks, whose plan is `plan`.
tilewright::Price priced(const Question& q, std::span<const LevelTiling> tilings, const Plan& plan,
                         const LevelsOptions& options, const Settings& settings) {
  const Workload& w = *q.workload;
  const Machine& m = *q.machine;
  const LevelsPrice price = price_levels(w, m, tilings, options);
  LevelsOptions reads_only = options;
  reads_only.model.write_weight = 0;
  const LevelsPrice reads = price_levels(w, m, tilings, reads_only);
  tilewright::Price out;
  Traffic& traffic = out.traffic;
  traffic.source = Source::predicted;
  traffic.by = "chimera";
  traffic.machine = m.name;
  for (std::size_t d = 0; d < price.levels.size(); ++d) {
    const LevelPrice& level = price.levels[d];
    for (std::size_t t = 0; t < level.price.tensors.size(); ++t) {
      const Elements all = level.price.tensors[t].movement;
      const Elements read = reads.levels[d].price.tensors[t].movement;
      const Tensor& tensor = w.tensor(level.price.tensors[t].tensor);
      if (all.value == 0) continue;
      traffic.entries.push_back({.tensor = tensor.name,
                                 .boundary = boundary_into(m, level.at.level),
                                 .read = bytes_of(read, tensor.dtype),
                                 .written = bytes_of(all - read, tensor.dtype)});
    }
    traffic.memory[m.level(level.at.level).name] = bytes_of(level.price.memory, w.dtype());
  }
  if (bandwidths_known(m, chip_levels(m))) traffic.seconds = price.largest;
  const Result<OverLevels> exactly = exact_over_levels(w, m, plan);
  ordered_json& json = out.detail;
  json["levels"] = levels_json(q, price, exactly);
  add_costs(json, q, options, price);
  add_bound(json, m, options);
  const ordered_json volume = json["levels"].front()["volume_bytes"];
  json["volume_bytes"] = volume;
  json["options"] = options_json(settings, options.model);
  return out;
}

}  // namespace

void refuse_of_one_level(const Words& words) {
  if (!words.text && !words.tiles) return;
  throw InputError({.where = words.text ? "--order" : "--tiles",
                    .value = words.text ? *words.text : "tiles",
                    .problem = "is of one level",
                    .accepted = "--level all without it: every level has its own"});
}

bool over_levels(const Question& q) { return q.all_levels && chip_levels(*q.machine).size() > 1; }

Result<OverLevels> exact_over_levels(const Workload& w, const Machine& m, const Plan& plan) {
  const auto machine =
      std::make_shared<const Machine>(as_scratchpads(m, chip_levels(m)));
  const auto schedule = resolve(plan, std::make_shared<const Workload>(w), machine);
  if (!schedule) return Reason{schedule.reason()};
  const Traffic traffic = tilewright::exact(*schedule);
  if (!traffic.unavailable.empty()) return Reason{traffic.unavailable.begin()->second};
  OverLevels r;
  for (const TrafficEntry& e : traffic.entries) r.moved[e.boundary] += e.read + e.written;
  r.operations = traffic.operations;
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    const auto at = traffic.operations.find(w.operators()[o].name);
    if (at != traffic.operations.end())
      r.recomputed +=
          std::max<std::int64_t>(0, at->second.value - w.operations(OpId(o)).value);
  }
  return r;
}

Result<Proposal> propose_levels(const Question& q, const Settings& settings) {
  const Workload& w = *q.workload;
  Planned planned = best_plan(q, settings);
  if (!planned.best) return Reason{planned.best.reason()};
  LevelsPlan best = std::move(planned.best).value();
  const Result<OverLevels> exactly = exact_over_levels(w, *q.machine, best.plan);
  Proposal out;
  out.plan = best.plan;
  out.level = q.machine->default_level();
  out.all_levels = true;
  ordered_json& json = out.detail;
  json["levels"] = levels_json(q, best.price, exactly);
  for (std::size_t d = 0; d < best.alone.size(); ++d) {
    json["levels"][d]["cost_alone"] = best.alone[d];
    json["levels"][d]["needs_bytes"] =
        best.memory[q.machine->level(best.price.levels[d].at.level).name].value;
  }
  add_costs(json, q, planned.options, best.price);
  add_bound(json, *q.machine, planned.options);
  const ordered_json outermost = json["levels"].front();  // a copy: new keys move the old
  json["volume_bytes"] = outermost["volume_bytes"];
  json["exact_bytes"] = outermost["exact_bytes"];
  json["bound_bytes"] = outermost["bound_bytes"];
  json["gap"] = outermost["gap"];
  if (!exactly) json["gap_reason"] = exactly.reason();
  json["recomputed_operations"] =
      exactly ? ordered_json(exactly->recomputed) : ordered_json(nullptr);
  json["tightened"] = best.tightened;
  json["search_seconds"] = best.seconds;
  json["candidates"] = ordered_json::object();
  for (const auto& [name, n] : best.counted) json["candidates"][name] = n;
  json["options"] = options_json(settings, planned.options.model);
  out.search_seconds = best.seconds;
  std::vector<LevelTiling> tilings;
  for (const LevelPrice& p : best.price.levels) tilings.push_back(p.at);
  out.price = priced(q, tilings, plan_of(w, tilings, *q.machine, planned.options.model),
                     planned.options, settings);
  return out;
}

Result<tilewright::Price> price_levels(const Question& q, const Plan& plan,
                                       const Settings& settings) {
  if (plan.kernels.size() != 1) return Reason{"this plan has several kernels"};
  const LevelsOptions options = levels_options(q, settings);
  const auto read = tilings_of(*q.workload, *q.machine, plan.kernels.front(), options);
  if (!read) return Reason{"Chimera prices blocks of every level only: " + read.reason()};
  return priced(q, *read, plan, options, settings);
}

}  // namespace tilewright::chimera
