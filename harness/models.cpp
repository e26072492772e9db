// The models: a record each, and the two functions that every verb reaches a model through.
#include <algorithm>
#include <chrono>
#include <set>

#include "harness/bounds_request.h"
#include "harness/chimera_levels.h"
#include "harness/chimera_paths.h"
#include "harness/chimera_request.h"
#include "harness/mcfuser_request.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/stitch_request.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

// ---- chimera ------------------------------------------------------------------------------------

std::optional<double> seconds_into(const Machine& m, LevelId level, std::int64_t bytes) {
  const BytesPerSecond bandwidth = m.level(level).bandwidth;
  if (bandwidth.value <= 0) return std::nullopt;
  return seconds_for(Bytes(bytes), bandwidth);
}

/// What Algorithm 1 says of a tiling, as Traffic. It counts each tensor's movement once; what the
/// producer of a tensor moves of it is `written`, the rest `read`.
Traffic traffic_of(const Setting& s, const OrderedTiling& t, const chimera::Price& price) {
  chimera::Options reads_only = t.options;
  reads_only.write_weight = 0;
  const Workload& w = *s.workload;
  const chimera::Price reads = chimera::price(w, t.order, t.tiles, reads_only);
  Traffic traffic;
  traffic.source = Source::predicted;
  traffic.by = "chimera";
  traffic.machine = s.machine->name;
  const std::string boundary = boundary_into(*s.machine, t.level);
  for (std::size_t i = 0; i < price.tensors.size(); ++i) {
    const std::int64_t all = price.tensors[i].movement.value;
    if (all == 0) continue;
    const Tensor& tensor = w.tensor(price.tensors[i].tensor);
    const Elements read = reads.tensors[i].movement;
    traffic.entries.push_back({.tensor = tensor.name,
                               .boundary = boundary,
                               .read = bytes_of(read, tensor.dtype),
                               .written = bytes_of(Elements(all) - read, tensor.dtype)});
  }
  traffic.memory[s.machine->level(t.level).name] = bytes_of(price.memory, w.dtype());
  for (std::size_t o = 0; o < w.operators().size(); ++o)
    traffic.operations[w.operators()[o].name] = price.operations[o];
  const std::int64_t bytes = bytes_of(price.volume, w.dtype()).value;
  traffic.seconds = seconds_into(*s.machine, t.level, bytes);
  return traffic;
}

/// Whether a plan brings tiles to several levels, so that Algorithm 1 prices each.
bool brings_to_several(const Node& tree, std::set<std::string>& levels) {
  if (tree.kind == Node::Kind::load && !tree.level.empty()) levels.insert(tree.level);
  for (const Node& c : tree.children) brings_to_several(c, levels);
  return levels.size() > 1;
}

/// Footprints are boxes known beforehand. An outcome here, so that other models' rows go on.
std::optional<Reason> gathers_refused(const Workload& w) {
  for (OpId op : w.topological_order())
    if (w.gathers(op))
      return Reason{w.op(op).name +
                    " reads by another tensor's values, which Chimera does not price"};
  return std::nullopt;
}

Answer chimera_price(const Request& asked, const Setting& setting) {
  if (const auto refused = gathers_refused(*setting.workload)) {
    auto json = document();
    name_workload(json, setting);
    json["source"] = "predicted";
    json["by"] = "chimera";
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), refused->text);
  }
  Request request = asked;
  if (request.level == "all" && !over_levels(request, *setting.machine)) request.level.reset();
  const std::optional<Plan> said = plan_in_place(request, setting);
  std::set<std::string> levels;
  if (setting.machine->npu_core &&
      (over_paths(request, *setting.machine) ||
       (said && brings_to_several(said->kernels.front().tree, levels))))
    return paths_price(request, setting, said);
  if (request.level == "all" || (said && said->kernels.size() == 1 &&
                                 brings_to_several(said->kernels.front().tree, levels)))
    return levels_price(request, setting, said);
  auto json = document();
  name_workload(json, setting);
  const bool by_order = request.order && !request.tree && !setting.file;
  Result<OrderedTiling> tiling = Reason{""};
  if (by_order) {
    tiling = named_tiling(request, setting);
  } else if (request.tree || setting.file) {
    tiling = ordered_tiling(request, setting, *plan_in_place(request, setting));
  } else if (request.options.contains("expression")) {
    const Result<Plan> plan = mcfuser_named_plan(request, setting);
    if (plan)
      tiling = ordered_tiling(request, setting, *plan);
    else
      tiling = Reason{plan.reason()};
  } else {
    const LevelId level = level_of(request, *setting.machine);
    const auto best = chimera::best_plan(*setting.workload, *setting.machine, level,
                                         chimera_options(request, *setting.workload),
                                         capacity_elements(request, setting, level));
    if (!best)
      tiling = Reason{best.reason()};
    else
      tiling = OrderedTiling{best->solution.order, best->solution.tiles, chimera_options(request),
                             level};
  }
  if (!tiling) {
    json["source"] = "predicted";
    json["by"] = "chimera";
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), tiling.reason());
  }
  const Workload& w = *setting.workload;
  const chimera::Price price = chimera::price(w, tiling->order, tiling->tiles, tiling->options);
  merge(json, to_json(traffic_of(setting, *tiling, price)));
  json["order"] = chimera::to_text(w, tiling->order);
  json["tiles"] = tiles_json(w, tiling->order, tiling->tiles);
  if (!tiling->whole)
    json["notes"] = "the order of the plan's loops; where it loads, stores and binds is not priced";
  json["options"] = options_json(request, tiling->options);
  json["volume_elements"] = price.volume.value;
  json["volume_bytes"] = bytes_of(price.volume, w.dtype()).value;
  json["memory_paper_bytes"] = bytes_of(price.memory_paper, w.dtype()).value;
  json["recomputed_operations"] = price.recomputed.value;
  return {std::move(json), Status::done};
}

ordered_json counted_json(const chimera::Search& search) {
  ordered_json after = ordered_json::object();
  const auto count = [&search](auto&& test) {
    return std::count_if(search.ranked.begin(), search.ranked.end(), test);
  };
  after["legal_with_several_trips"] =
      count([](const chimera::Solution& s) { return s.order_legality.legal; });
  after["feasible"] = count([](const chimera::Solution& s) { return s.feasible; });
  after["fits"] = count([](const chimera::Solution& s) { return s.feasible && s.fits; });
  ordered_json json = {{"generated", search.ranked.size()}, {"after", after}};
  for (const auto& [name, n] : search.counted) json[name] = n;
  return json;
}

Result<Optimum> chimera_optimise(const Request& asked, const Setting& setting) {
  if (const auto refused = gathers_refused(*setting.workload)) return *refused;
  if (over_paths(asked, *setting.machine)) return paths_optimise(asked, setting);
  if (over_levels(asked, *setting.machine)) return levels_optimise(asked, setting);
  Request request = asked;
  if (request.level == "all") request.level.reset();
  const Workload& w = *setting.workload;
  chimera::Options options = chimera_options(request, w);
  const LevelId level = level_of(request, *setting.machine);
  const Elements room = capacity_elements(request, setting, level);
  const auto start = std::chrono::steady_clock::now();
  Result<chimera::BestPlan> best =
      chimera::best_plan(w, *setting.machine, level, options, room);
  if (!best && !options.min_tiles.empty()) {
    // Tiles that the micro-kernel would like do not fit; a slower kernel is better than none.
    options.min_tiles.clear();
    options.multiples.clear();
    best = chimera::best_plan(w, *setting.machine, level, options, room);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!best) return Reason{best.reason()};
  const chimera::Solution& solution = best->solution;
  const auto bytes = [&w](Elements n) { return bytes_of(n, w.dtype()).value; };
  ordered_json json;
  json["order"] = chimera::to_text(w, solution.order);
  json["volume_elements"] = solution.price.volume.value;
  json["volume_bytes"] = bytes(solution.price.volume);
  json["memory"] = {{setting.machine->level(level).name, bytes(solution.price.memory)}};
  json["memory_mode"] = chimera::name_of(options.memory);
  json["memory_paper_bytes"] = bytes(solution.price.memory_paper);
  json["capacity_bytes"] = bytes(best->capacity);
  json["tightened"] = best->tightened;
  json["recomputed_operations"] = solution.price.recomputed.value;
  const auto predicted = seconds_into(*setting.machine, level, bytes(solution.price.volume));
  json["seconds"] = predicted ? ordered_json(*predicted) : ordered_json(nullptr);
  json["search_seconds"] = seconds;
  json["candidates"] = counted_json(best->search);
  json["notes"] = best->search.notes;
  json["options"] = options_json(request, options);
  if (!options.min_tiles.empty()) {
    json["options"]["target"] = *request.target;
    for (const auto& [loop, least] : options.min_tiles)
      json["options"]["min_tiles"][w.loop(loop).name] = least;
    for (const auto& [loop, multiple] : options.multiples)
      json["options"]["multiples"][w.loop(loop).name] = multiple;
  }
  return Optimum{std::move(best->plan), level, std::move(json)};
}

// ---- exact --------------------------------------------------------------------------------------

/// Exact's count of the plan with its level as a scratchpad over home, where that can be said.
std::optional<ordered_json> as_one_scratchpad(const Schedule& schedule) {
  if (schedule.kernels.empty()) return std::nullopt;
  const LevelId level = schedule.kernels.front().level;
  for (const ScheduledKernel& k : schedule.kernels)
    if (k.level != level) return std::nullopt;
  const auto machine =
      std::make_shared<const Machine>(as_scratchpad(*schedule.machine, level));
  try {
    const Result<Schedule> alone = resolve(schedule.resolved, schedule.workload, machine);
    if (!alone) return std::nullopt;
    return to_json(exact(*alone));
  } catch (const InputError&) {
    return std::nullopt;  // the plan names levels that one scratchpad does not have
  }
}

Answer exact_price(const Request& request, const Setting& asked) {
  Setting setting = asked;
  auto json = document();
  name_workload(json, setting);
  const auto refused = [&](const std::string& reason) {
    json["source"] = "predicted";
    json["by"] = "exact";
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), reason);
  };
  Result<Plan> plan = plan_of(request, setting);
  if (!plan) return refused(plan.reason());
  const Result<Schedule> schedule = resolve(*plan, setting.workload, setting.machine);
  if (!schedule) {
    json["legal"] = false;
    return refused(schedule.reason());
  }
  const Traffic traffic = exact(*schedule);
  merge(json, to_json(traffic));
  const auto why = misfit(*schedule);
  json["fits"] = !why.has_value();
  if (!traffic.entries.empty() || traffic.unavailable.empty()) return {std::move(json), Status::done};
  if (auto alone = as_one_scratchpad(*schedule)) json["as_scratchpad"] = std::move(*alone);
  return refuse(std::move(json), "exact: not available: " + traffic.unavailable.begin()->second);
}

// ---- the table ----------------------------------------------------------------------------------

std::vector<ModelRecord> chain_records() {
  return {
      {.name = "chimera",
       .summary = "data movement of a chain under an order of its tiled loops, and the best order",
       .source = "Zheng et al., Chimera, HPCA 2023, section IV, Algorithm 1",
       .assumptions = {"one memory level holds a tile of every tensor; intermediates stay on chip",
                       "each tensor's movement counts once, an output's re-reading does not",
                       "recomputation and the conflicts of a cache are not priced"},
       .options = chimera::option_specs(),
       .optimise = chimera_optimise,
       .price = chimera_price},
      mcfuser_record(),
      mcfuser_chimera_record(),
      {.name = "exact",
       .summary = "bytes of any plan on software-managed levels, counted without walking it",
       .source = "the rules of the plan notation (movement, rules 8 to 12)",
       .assumptions = {"software manages the levels and no two blocks share a cache; elsewhere it is "
                       "not available"},
       .options = {},
       .optimise = nullptr,
       .price = exact_price},
      {.name = "bounds",
       .summary = "the least bytes of any plan, proven, and of the best loop tree, attained, by buffer size",
       .source = "Smith et al., arXiv:1702.02017 (2 V / sqrt(S), here without slack and for chains); the "
                 "trees are our own",
       .assumptions = {"one memory of that size under home, empty at first",
                       "attainable: matrix products and chains of two, each loop cut at most three times"},
       .options = {},
       .optimise = bounds_optimise,
       .price = bounds_price},
  };
}

const std::vector<ModelRecord>& table() {
  static const std::vector<ModelRecord> records = [] {
    std::vector<ModelRecord> all = chain_records();
    for (ModelRecord& r : stitch_records()) all.push_back(std::move(r));
    return all;
  }();
  return records;
}

}  // namespace

std::span<const ModelRecord> builtin_models() { return table(); }

Result<Plan> plan_of(const Request& request, Setting& setting) {
  KernelChoices unused;
  return plan_of(request, setting, unused);
}

Result<Plan> plan_of(const Request& request, Setting& setting, KernelChoices& choices) {
  if (auto plan = plan_in_place(request, setting)) return *plan;
  if (!request.pins.empty() || !request.flags.empty())
    throw InputError({.where = "--pin, --flag",
                      .value = "a pin or flag",
                      .problem = "is of a tree",
                      .accepted = "--tree beside it"});
  if (request.options.contains("expression")) return mcfuser_named_plan(request, setting);
  if (request.order) {
    const Result<OrderedTiling> t = named_tiling(request, setting);
    if (!t) return Reason{t.reason()};
    return chimera::plan_of(*setting.workload, t->order, t->tiles, *setting.machine, t->level,
                            t->options);
  }
  if (request.tiles)
    throw InputError({.where = "--tiles",
                      .value = *request.tiles,
                      .problem = "are of a tree or an order",
                      .accepted = "--tree, --order or --expression beside it"});
  std::vector<std::string> makers;
  for (const ModelRecord& m : models())
    if (m.optimise != nullptr) makers.push_back(m.name);
  const ModelRecord* model = request.model ? &find_model(*request.model) : nullptr;
  if (model == nullptr || model->optimise == nullptr)
    throw InputError({.where = "PLAN",
                      .value = request.subject,
                      .problem = model ? "is no plan, and the model " + model->name + " makes none"
                                       : "is a workload, no plan",
                      .accepted = "a plan file, or beside a workload --tree, --order, --expression, or "
                                  "--model " +
                                  join(makers, " or --model ")});
  Result<Optimum> best = model->optimise(request, setting);
  if (!best) return Reason{best.reason()};
  rewrite(setting, best->rewrites, "--model " + model->name);
  choices = std::move(best.value().choices);
  return std::move(best).value().plan;
}

}  // namespace tilewright::harness
