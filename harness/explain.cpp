// explain: every order of a workload priced and ranked, or a plan with its defaults made visible.
#include <algorithm>

#include "core/base/toolchain.h"
#include "harness/bounds_request.h"
#include "harness/chimera_levels.h"
#include "harness/chimera_paths.h"
#include "harness/chimera_request.h"
#include "harness/mcfuser_request.h"
#include "harness/schedule_json.h"
#include "harness/schedules.h"
#include "harness/stitch_request.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

ordered_json tensors_json(const Workload& w, const chimera::Price& price) {
  ordered_json json = ordered_json::object();
  for (const chimera::TensorPrice& t : price.tensors)
    json[w.tensor(t.tensor).name] = {{"footprint_elements", t.footprint.value},
                                     {"movement_elements", t.movement.value},
                                     {"buffer_elements", t.buffer.value},
                                     {"decided_by", t.decided_by}};
  return json;
}

ordered_json legality_json(const chimera::Legality& l) {
  return l.legal ? ordered_json(nullptr) : ordered_json(l.reason);
}

/// One row. `solution.tiles` empty: nothing fits, so there is no price.
ordered_json order_json(const Workload& w, const chimera::Solution& s, Elements capacity) {
  const bool priced = !s.tiles.empty();
  ordered_json json;
  json["order"] = chimera::to_text(w, s.order);
  json["legal"] = s.order_legality.legal;
  json["reason"] = legality_json(s.order_legality);
  json["volume_elements"] = priced ? ordered_json(s.price.volume.value) : ordered_json(nullptr);
  json["memory_elements"] = priced ? ordered_json(s.price.memory.value) : ordered_json(nullptr);
  json["tensors"] = priced ? tensors_json(w, s.price) : ordered_json::object();
  json["tiles"] = tiles_json(w, s.order, s.tiles);
  json["legal_at_tiles"] = s.legality.legal;
  json["fits"] = priced && s.price.memory <= capacity;
  json["feasible"] = s.feasible;
  json["infeasible_reason"] = s.feasible ? ordered_json(nullptr) : ordered_json(s.reason);
  if (!priced) return json;
  json["volume_bytes"] = bytes_of(s.price.volume, w.dtype()).value;
  json["memory_paper_elements"] = s.price.memory_paper.value;
  json["recomputed_operations"] = s.price.recomputed.value;
  json["tree"] = to_text(chimera::tree_of(w, s.order, s.tiles));
  return json;
}

chimera::Solution at_tiles(const Workload& w, const chimera::Order& order,
                           const chimera::Tiles& tiles, const chimera::Options& options) {
  chimera::Solution s;
  s.order = order;
  s.tiles = tiles;
  s.price = chimera::price(w, order, tiles, options);
  s.legality = chimera::legality(w, order, tiles);
  // With tiles given, legality is of the order at those tiles.
  s.order_legality = s.legality;
  return s;
}

/// All orders asked for, with --tiles or solved, by volume; what has no price comes last.
Result<std::vector<chimera::Solution>> priced_orders(const Request& request,
                                                     const Setting& setting,
                                                     const chimera::Options& options,
                                                     Elements capacity) {
  const Workload& w = *setting.workload;
  const bool all = request.order.value_or("all") == "all";
  std::vector<chimera::Solution> solutions;
  if (all && !request.tiles) {
    Result<chimera::Search> search = chimera::try_search(w, capacity, options);
    if (!search) return Reason{search.reason()};
    return std::move(search).value().ranked;
  }
  std::vector<chimera::Order> orders;
  if (all)
    orders = chimera::all_orders(w);
  else
    orders.push_back(chimera::parse_order(w, *request.order));
  if (orders.empty()) return Reason{"the workload has too many orders to list; name one by --order"};
  if (request.tiles) {
    const chimera::Tiles tiles = chimera::tiles_from(w, tiles_of(request, w), "--tiles");
    for (const chimera::Order& o : orders) solutions.push_back(at_tiles(w, o, tiles, options));
  } else {
    Result<chimera::Solution> solved = chimera::solve(w, orders.front(), capacity, options);
    if (solved) {
      solutions.push_back(std::move(solved).value());
    } else {
      chimera::Solution none;
      none.order = orders.front();
      none.order_legality = chimera::legality(w, none.order, {});
      none.feasible = none.fits = false;
      none.reason = solved.reason();
      solutions.push_back(std::move(none));
    }
  }
  std::stable_sort(solutions.begin(), solutions.end(), [](const auto& a, const auto& b) {
    return a.price.volume < b.price.volume;
  });
  return solutions;
}

/// The paper's closed form beside the integer optimum of the same order. The workload may name its
/// loops as it likes, so every order is tried; only mlkn in its roles has one.
void add_closed_form(ordered_json& json, const Workload& w,
                     const std::vector<chimera::Solution>& solutions,
                     const chimera::Options& options, Elements capacity) {
  for (const chimera::Solution& s : solutions) {
    const auto form = chimera::closed_form(w, s.order, capacity, options.min_tile);
    if (!form) continue;
    ordered_json block;
    block["order"] = chimera::to_text(w, s.order);
    block["alpha"] = options.min_tile;
    block["tile_real"] = form->tile;
    block["volume_real_elements"] = form->volume;
    block["tiles"] = tiles_json(w, s.order, form->tiles);
    block["volume_elements"] = form->price.volume.value;
    block["bound_ratio"] = form->bound;
    chimera::Options exact_edges = options;
    exact_edges.edges = chimera::Edges::exact;
    const auto best = chimera::solve(w, s.order, capacity, exact_edges);
    if (best && !best->tiles.empty()) {
      block["optimum_tiles"] = tiles_json(w, s.order, best->tiles);
      block["optimum_volume_elements"] = best->price.volume.value;
      block["gap"] = static_cast<double>(form->price.volume.value) /
                     static_cast<double>(best->price.volume.value);
    }
    json["closed_form"] = std::move(block);
    return;
  }
}

Answer explain_orders(const Request& request, const Setting& setting) {
  const Workload& w = *setting.workload;
  const chimera::Options options = chimera_options(request);
  const LevelId level = level_of(request, *setting.machine);
  const Elements capacity = capacity_elements(request, setting, level);
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["level"] = setting.machine->level(level).name;
  json["capacity_elements"] = capacity.value;
  json["dtype"] = name_of(w.dtype());
  json["options"] = options_json(request, options);
  const auto solutions = priced_orders(request, setting, options, capacity);
  json["orders"] = ordered_json::array();
  if (!solutions) return refuse(std::move(json), solutions.reason());
  for (const chimera::Solution& s : *solutions)
    json["orders"].push_back(order_json(w, s, capacity));
  add_closed_form(json, w, *solutions, options, capacity);
  return {std::move(json), Status::done};
}

Answer explain_plan(const Request& request) {
  Scheduled on = schedule_of(request);
  if (!on.schedule) return on.refusal;
  const Schedule& schedule = *on.schedule;
  auto json = document();
  name_workload(json, on.setting);
  json["machine"] = on.setting.machine->name;
  json["legal"] = true;
  const auto why = misfit(schedule);
  json["fits"] = !why.has_value();
  json["fits_reason"] = why ? ordered_json(why->text) : ordered_json(nullptr);
  json["memory"] = memory_json(memory_use(schedule));
  json["resolved"] = to_json(schedule.resolved);
  json["trees"] = ordered_json::array();
  for (const Kernel& k : schedule.resolved.kernels) json["trees"].push_back(to_text(k.tree));
  json["kernels"] = kernels_json(schedule);
  return {std::move(json), Status::done};
}

}  // namespace

Answer explain_curve(const Request& request) {
  const bool machine = request.machine || request.machine_text;
  const Setting setting = machine ? setting_of(request) : workload_of(request);
  if (setting.file || request.tree)
    throw InputError({.where = "--curve",
                      .value = setting.file ? request.subject : "--tree",
                      .problem = "is a plan already",
                      .accepted = "a workload"});
  auto json = document();
  name_workload(json, setting);
  json["dtype"] = name_of(setting.workload->dtype());
  json["machine"] = machine ? ordered_json(setting.machine->name) : ordered_json(nullptr);
  merge(json, curve_json(*setting.workload, setting.machine.get()));
  json["command"] = "tilewright explain " + setting.workload_name + " --curve" +
                    (request.machine ? " -m " + *request.machine : "");
  return {std::move(json), Status::done};
}

namespace {

bool stitches(const ModelRecord& m) {
  return m.name == "fusionstitching" || m.name == "xla-rule" || m.name == "unfused";
}

/// `dot` as it is, or drawn by Graphviz where the path ends in .svg. A Reason where that is not here.
std::optional<Reason> write_drawing(const std::string& dot, const std::string& path) {
  if (!path.ends_with(".svg")) {
    write_file(path, dot, "-o");
    return std::nullopt;
  }
  if (!on_path("dot")) return Reason{"Graphviz's dot is not on the PATH; -o FILE.dot needs none"};
  const TemporaryDirectory folder;
  const std::string from = (folder.path() / "plan.dot").string();
  const std::string to = (folder.path() / "plan.svg").string();
  write_file(from, dot, "-o");
  if (auto why = run_program({"dot", "-Tsvg", from, "-o", to}, folder.path() / "log")) return why;
  write_file(path, text_of(to), "-o");
  return std::nullopt;
}

/// `explain W --level all`: the plan and, by level or path, what it moves and what decides it.
Answer explain_best(const Setting& setting, Result<Optimum> best) {
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["level"] = "all";
  if (!best) return refuse(std::move(json), best.reason());
  merge(json, best->document);
  json["trees"] = ordered_json::array();
  for (const Kernel& k : best->plan.kernels) json["trees"].push_back(to_text(k.tree));
  return {std::move(json), Status::done};
}

}  // namespace

Answer explain(const Request& request, bool resolved, const std::optional<std::string>& out) {
  Answer answer = explain(request, resolved);
  if (!out || !answer.ok()) return answer;
  if (!answer.json.contains("dot"))
    throw InputError({.where = "-o",
                      .value = *out,
                      .problem = "is for a drawing of a graph",
                      .accepted = "--model fusionstitching beside a workload"});
  if (const auto why = write_drawing(answer.json["dot"], *out))
    return refuse(std::move(answer.json), why->text);
  answer.json["written"] = *out;
  return answer;
}

Answer explain(const Request& request, bool resolved) {
  if (resolved) return explain_plan(request);
  const Setting setting = setting_of(request);
  if (setting.file || request.tree) return explain_plan(request);
  check_model_options(request, "chimera");
  if (request.model && stitches(find_model(*request.model)))
    return stitch_explain(request, setting);
  if (request.options.contains("expression") ||
      (request.model && find_model(*request.model).name.starts_with("mcfuser")))
    return mcfuser_explain(request, setting);
  if (over_paths(request, *setting.machine))
    return explain_best(setting, paths_optimise(request, setting));
  if (over_levels(request, *setting.machine))
    return explain_best(setting, levels_optimise(request, setting));
  Request one = request;
  if (one.level == "all") one.level.reset();
  return explain_orders(one, setting);
}

}  // namespace tilewright::harness
