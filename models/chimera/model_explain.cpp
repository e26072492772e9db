// explain: every order of a workload priced and ranked, or the plan for every level or path.
#include <algorithm>

#include "models/chimera/flat.h"
#include "models/chimera/model.h"

namespace tilewright::chimera {
namespace {

using nlohmann::ordered_json;

/// Room for this many members: a document that grows copies what it has, and there are many.
ordered_json object_of(std::size_t members) {
  ordered_json json = ordered_json::object();
  json.get_ref<ordered_json::object_t&>().reserve(members);
  return json;
}

ordered_json tensors_json(const Workload& w, const Price& price) {
  ordered_json json = object_of(price.tensors.size());
  for (const TensorPrice& t : price.tensors) {
    ordered_json& row = json[w.tensor(t.tensor).name] = object_of(4);
    row["footprint_elements"] = t.footprint.value;
    row["movement_elements"] = t.movement.value;
    row["buffer_elements"] = t.buffer.value;
    row["decided_by"] = t.decided_by;
  }
  return json;
}

ordered_json legality_json(const Legality& l) {
  return l.legal ? ordered_json(nullptr) : ordered_json(l.reason);
}

/// One row. `solution.tiles` empty: nothing fits, so there is no price. `any`: an order of the same
/// loops, analysed once for all.
ordered_json order_json(const detail::Flat& any, const Solution& s, Elements capacity) {
  const Workload& w = any.workload();
  const bool priced = !s.tiles.empty();
  ordered_json json = object_of(15);
  json["order"] = to_text(w, s.order);
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
  json["tree"] = to_text(detail::tree_at(detail::Flat(any, s.order), s.tiles));
  return json;
}

Solution at_tiles(const Workload& w, const Order& order, const Tiles& tiles,
                  const Options& options) {
  Solution s;
  s.order = order;
  s.tiles = tiles;
  s.price = chimera::price(w, order, tiles, options);
  s.legality = chimera::legality(w, order, tiles);
  // With tiles given, legality is of the order at those tiles.
  s.order_legality = s.legality;
  return s;
}

/// All orders asked for, with --tiles or solved, by volume; what has no price comes last. "best":
/// the one that `plan` takes, with --tiles the first of all.
Result<std::vector<Solution>> priced_orders(const Question& q, const Words& words,
                                            const Options& options, Elements capacity) {
  const Workload& w = *q.workload;
  const bool best = words.text == "best", all = best || words.text.value_or("all") == "all";
  std::vector<Solution> solutions;
  if (best && !words.tiles) {
    Result<Solution> first = best_fit(w, *q.machine, q.planned_level(), options, capacity);
    if (!first) return Reason{first.reason()};
    solutions.push_back(std::move(first).value());
    return solutions;
  }
  if (all && !words.tiles) {
    Result<Search> search = try_search(w, capacity, options);
    if (!search) return Reason{search.reason()};
    return std::move(search).value().ranked;
  }
  std::vector<Order> orders;
  if (all)
    orders = all_orders(w);
  else
    orders.push_back(parse_order(w, *words.text));
  if (orders.empty())
    return Reason{"the workload has too many orders to list; name one by --order"};
  if (words.tiles) {
    const Tiles tiles = tiles_from(w, *words.tiles, "--tiles");
    for (const Order& o : orders) solutions.push_back(at_tiles(w, o, tiles, options));
  } else {
    Result<Solution> solved = solve(w, orders.front(), capacity, options);
    if (solved) {
      solutions.push_back(std::move(solved).value());
    } else {
      Solution none;
      none.order = orders.front();
      none.order_legality = chimera::legality(w, none.order, {});
      none.feasible = none.fits = false;
      none.reason = solved.reason();
      solutions.push_back(std::move(none));
    }
  }
  std::stable_sort(solutions.begin(), solutions.end(),
                   [](const auto& a, const auto& b) { return a.price.volume < b.price.volume; });
  if (best) solutions.resize(1);
  return solutions;
}

/// The paper's closed form beside the integer optimum of the same order. The workload may name its
/// loops as it likes, so every order is tried; only mlkn in its roles has one.
void add_closed_form(ordered_json& json, const Workload& w, const std::vector<Solution>& solutions,
                     const Options& options, Elements capacity) {
  for (const Solution& s : solutions) {
    const auto form = chimera::closed_form(w, s.order, capacity, options.min_tile);
    if (!form) continue;
    ordered_json block;
    block["order"] = to_text(w, s.order);
    block["alpha"] = options.min_tile;
    block["tile_real"] = form->tile;
    block["volume_real_elements"] = form->volume;
    block["tiles"] = tiles_json(w, s.order, form->tiles);
    block["volume_elements"] = form->price.volume.value;
    block["bound_ratio"] = form->bound;
    Options exact_edges = options;
    exact_edges.edges = Edges::exact;
    const auto best = solve(w, s.order, capacity, exact_edges);
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

Explained explain_orders(const Question& q, const ExplainAsked& asked, const Settings& settings) {
  const Workload& w = *q.workload;
  const Options options = options_of(settings);
  const LevelId level = q.planned_level();
  const Elements capacity = room_of(q, level);
  Explained out;
  ordered_json& json = out.detail;
  json["level"] = q.machine->level(level).name;
  json["capacity_elements"] = capacity.value;
  json["dtype"] = name_of(w.dtype());
  json["options"] = options_json(settings, options);
  const auto solutions = priced_orders(q, asked.words, options, capacity);
  json["orders"] = ordered_json::array();
  if (solutions) json["orders"].get_ref<ordered_json::array_t&>().reserve(solutions->size());
  if (!solutions) {
    out.refused = solutions.reason();
    return out;
  }
  if (!solutions->empty()) {
    const detail::Flat any(w, solutions->front().order, {});
    for (const Solution& s : *solutions) json["orders"].push_back(order_json(any, s, capacity));
  }
  add_closed_form(json, w, *solutions, options, capacity);
  return out;
}

/// The plan and, by level or path, what it moves and what decides it.
Explained explain_best(const Result<Proposal>& best) {
  Explained out;
  out.detail["level"] = "all";
  if (!best) {
    out.refused = best.reason();
    return out;
  }
  for (const auto& [key, value] : best->detail.items()) out.detail[key] = value;
  out.detail["trees"] = ordered_json::array();
  for (const Kernel& k : best->plan.kernels) out.detail["trees"].push_back(to_text(k.tree));
  return out;
}

}  // namespace

Explained explain(const Question& q, const ExplainAsked& asked, const Settings& settings) {
  if (over_paths(q)) return explain_best(propose_paths(q));
  if (over_levels(q)) {
    refuse_of_one_level(asked.words);
    return explain_best(propose_levels(q, settings));
  }
  return explain_orders(q, asked, settings);
}

}  // namespace tilewright::chimera
