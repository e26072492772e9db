#include "harness/chimera_levels.h"

#include <algorithm>

#include "harness/bounds_request.h"
#include "harness/chimera_request.h"
#include "harness/schedules.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

std::int64_t bytes(const Workload& w, Elements n) { return bytes_of(n, w.dtype()).value; }

bool bandwidths_known(const Machine& m, const std::vector<LevelId>& levels) {
  return std::all_of(levels.begin(), levels.end(),
                     [&](LevelId l) { return m.level(l).bandwidth.value > 0; });
}

ordered_json tensors_json(const Workload& w, const chimera::Price& price) {
  ordered_json tensors = ordered_json::object();
  for (const chimera::TensorPrice& t : price.tensors)
    tensors[w.tensor(t.tensor).name] = {{"footprint_elements", t.footprint.value},
                                        {"movement_elements", t.movement.value},
                                        {"decided_by", t.decided_by}};
  return tensors;
}

/// One level of a price; `moved`: what exact counts into each level, where it is known.
ordered_json level_json(const Setting& s, const chimera::LevelPrice& p,
                        const std::map<std::string, Bytes>* moved) {
  const Workload& w = *s.workload;
  const Level& level = s.machine->level(p.at.level);
  const std::string boundary = boundary_into(*s.machine, p.at.level);
  ordered_json json = {{"level", level.name},
                       {"boundary", boundary},
                       {"order", chimera::to_text(w, p.at.order)},
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

ordered_json levels_json(const Setting& s, const chimera::LevelsPrice& price,
                         const Result<OverLevels>& exactly) {
  ordered_json levels = ordered_json::array();
  for (const chimera::LevelPrice& p : price.levels)
    levels.push_back(level_json(s, p, exactly ? &exactly->moved : nullptr));
  return levels;
}

/// What is minimised and what it came to.
void add_costs(ordered_json& json, const Setting& s, const chimera::LevelsOptions& options,
               const chimera::LevelsPrice& price) {
  const bool known = bandwidths_known(*s.machine, chimera::chip_levels(*s.machine));
  json["objective"] = chimera::name_of(options.objective);
  json["cost_is"] = known ? "seconds" : "bytes";
  json["cost"] = options.objective == chimera::Objective::largest ? price.largest : price.sum;
  json["cost_largest"] = price.largest;
  json["cost_sum"] = price.sum;
  json["seconds"] = known ? ordered_json(price.largest) : ordered_json(nullptr);
}

/// The least that the objective can be, by what is proven of every level, and how far what truly moves
/// is from that.
void add_bound(ordered_json& json, const Machine& m, const chimera::LevelsOptions& options) {
  const auto bandwidth = chimera::bandwidths(m, chimera::chip_levels(m));
  double least = 0, truly = 0;
  bool known = true;
  for (std::size_t d = 0; d < json["levels"].size(); ++d) {
    const ordered_json& level = json["levels"][d];
    known = known && level["exact_bytes"].is_number();
    const auto add = [&](double& all, const char* key) {
      const double cost = level[key].is_number() ? level[key].get<double>() / bandwidth[d] : 0;
      all = options.objective == chimera::Objective::largest ? std::max(all, cost) : all + cost;
    };
    add(least, "bound_bytes");
    add(truly, "exact_bytes");
  }
  json["cost_bound"] = least;
  json["cost_exact"] = known ? ordered_json(truly) : ordered_json(nullptr);
  json["cost_gap"] = known && least > 0 ? ordered_json(truly / least) : ordered_json(nullptr);
}

struct Planned {
  chimera::LevelsOptions options;
  Result<chimera::LevelsPlan> best = Reason{""};
};

/// The best plan; with --target, where what the micro-kernel would like does not fit, without that.
Planned best_plan(const Request& request, const Setting& setting) {
  Planned p{levels_options(request)};
  const chimera::Options wished = chimera_options(request, *setting.workload);
  const chimera::Options plain = p.options.model;
  p.options.model = wished;
  p.best = chimera::best_levels(*setting.workload, *setting.machine, p.options);
  if (p.best || wished.min_tiles.empty()) return p;
  p.options.model = plain;
  p.best = chimera::best_levels(*setting.workload, *setting.machine, p.options);
  return p;
}

}  // namespace

bool over_levels(const Request& request, const Machine& machine) {
  return request.level == "all" && chimera::chip_levels(machine).size() > 1;
}

chimera::LevelsOptions levels_options(const Request& request) {
  chimera::LevelsOptions o{.model = chimera_options(request)};
  const auto refuse_one = [](const char* option, const std::string& value) {
    throw InputError({.where = option,
                      .value = value,
                      .problem = "is of one level",
                      .accepted = "--level all without it: every level has its own"});
  };
  if (request.capacity) refuse_one("--capacity", *request.capacity);
  if (request.order && *request.order != "all") refuse_one("--order", *request.order);
  if (request.tiles && !request.tree) refuse_one("--tiles", *request.tiles);
  o.objective = chimera::objective_of(chimera_settings(request));
  return o;
}

Result<OverLevels> exact_over_levels(const Workload& w, const Machine& m, const Plan& plan) {
  const auto machine =
      std::make_shared<const Machine>(chimera::as_scratchpads(m, chimera::chip_levels(m)));
  const auto schedule = resolve(plan, std::make_shared<const Workload>(w), machine);
  if (!schedule) return Reason{schedule.reason()};
  const Traffic traffic = exact(*schedule);
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

Result<Optimum> levels_optimise(const Request& request, const Setting& setting) {
  const Workload& w = *setting.workload;
  Planned planned = best_plan(request, setting);
  if (!planned.best) return Reason{planned.best.reason()};
  chimera::LevelsPlan best = std::move(planned.best).value();
  const Result<OverLevels> exactly = exact_over_levels(w, *setting.machine, best.plan);
  ordered_json json;
  json["levels"] = levels_json(setting, best.price, exactly);
  for (std::size_t d = 0; d < best.alone.size(); ++d) {
    json["levels"][d]["cost_alone"] = best.alone[d];
    json["levels"][d]["needs_bytes"] =
        best.memory[setting.machine->level(best.price.levels[d].at.level).name].value;
  }
  add_costs(json, setting, planned.options, best.price);
  add_bound(json, *setting.machine, planned.options);
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
  json["options"] = options_json(request, planned.options.model);
  return Optimum{std::move(best.plan), setting.machine->default_level(), std::move(json)};
}

Answer levels_price(const Request& request, const Setting& setting,
                    const std::optional<Plan>& plan) {
  const Workload& w = *setting.workload;
  const Machine& m = *setting.machine;
  auto json = document();
  name_workload(json, setting);
  json["source"] = "predicted";
  json["by"] = "chimera";
  json["machine"] = m.name;
  chimera::LevelsOptions options = levels_options(request);
  std::vector<chimera::LevelTiling> tilings;
  if (plan) {
    if (plan->kernels.size() != 1) return refuse(std::move(json), "this plan has several kernels");
    auto read = chimera::tilings_of(w, m, plan->kernels.front(), options);
    if (!read) return refuse(std::move(json), "Chimera prices blocks of every level only: " + read.reason());
    tilings = std::move(read).value();
  } else {
    Planned planned = best_plan(request, setting);
    if (!planned.best) return refuse(std::move(json), planned.best.reason());
    for (const chimera::LevelPrice& p : planned.best->price.levels) tilings.push_back(p.at);
    options = planned.options;
  }
  const chimera::LevelsPrice price = chimera::price_levels(w, m, tilings, options);
  chimera::LevelsOptions reads_only = options;
  reads_only.model.write_weight = 0;
  const chimera::LevelsPrice reads = chimera::price_levels(w, m, tilings, reads_only);
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.by = "chimera";
  traffic.machine = m.name;
  for (std::size_t d = 0; d < price.levels.size(); ++d) {
    const chimera::LevelPrice& level = price.levels[d];
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
  merge(json, to_json(traffic));
  const Result<OverLevels> exactly = exact_over_levels(
      w, m, plan ? *plan : chimera::plan_of(w, tilings, m, options.model));
  json["levels"] = levels_json(setting, price, exactly);
  add_costs(json, setting, options, price);
  add_bound(json, m, options);
  const ordered_json volume = json["levels"].front()["volume_bytes"];
  json["volume_bytes"] = volume;
  json["options"] = options_json(request, options.model);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
