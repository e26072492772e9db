// explain: the chain's ratios, the space rule by rule, the DAG and the statements'
// prices.
#include <algorithm>

#include "models/mcfuser/model.h"

namespace tilewright::mcfuser {

using nlohmann::ordered_json;

namespace {

ordered_json products_json(const Fused& on, const Options& o) {
  ordered_json rows = ordered_json::array();
  for (const auto& i : intensities(on.chain, on.device, o.ratio))
    rows.push_back({{"operator", on.chain.workload->op(i.op).name},
                    {"phi_flops_per_element", i.ratio},
                    {"threshold_flops_per_element", i.threshold},
                    {"memory_bound", i.memory_bound}});
  return rows;
}

ordered_json expressions_json(const Chain& c, const Space& space, const Options& o) {
  ordered_json rows = ordered_json::array();
  for (const Expression& e : space.expressions) {
    const SubExpression sub = sub_expression(c, e, o.blocks);
    const std::string rest = to_text(c, sub.rest);
    const auto group = std::ranges::find_if(space.classes, [&](const Class& k) {
      return o.rules[0] ? to_text(c, k.sub.rest) == rest : k.first == e;
    });
    ordered_json row = {{"expression", to_text(c, e)},
                        {"expression_paper", paper_text(c, e)},
                        {"sub_expression", rest},
                        {"bound", ordered_json::array()},
                        {"kept", true},
                        {"reason", nullptr}};
    for (LoopId l : sub.bound) row["bound"].push_back(c.workload->loop(l).name);
    if (group->first != e) {
      row["kept"] = false;
      row["reason"] = "rule 1: equals " + to_text(c, group->first);
    } else if (space.rule2 && group->overwhelmed) {
      row["kept"] = false;
      row["reason"] = "rule 2: " + *group->overwhelmed;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json dag_json(const Dag& dag) {
  return {{"loops", dag.loops},
          {"statements", dag.statements},
          {"scope", dag.scope},
          {"order", dag.order}};
}

ordered_json statements_json(const Chain& c, const Price& price) {
  ordered_json rows = ordered_json::array();
  for (const StatementPrice& s : price.statements) {
    ordered_json row = {
        {"statement", s.name}, {"loops", ordered_json::array()}, {"trips", s.trips}};
    for (LoopId l : s.loops) row["loops"].push_back(c.workload->loop(l).name);
    const bool compute = s.kind == Kind::compute;
    row[compute ? "tile_flops" : "tile_elements"] = s.amount;
    row[compute ? "flops" : "bytes"] = s.total;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The expression and tiles to look at: --expression and --tiles, else the best of the search (of
/// that expression's class alone where only --expression is given).
struct Shown {
  Expression expression;
  SubExpression sub;
  Tiles tiles;
};
Result<Shown> shown_of(const Words& words, const Fused& on, const Options& o, const Space& space) {
  const Chain& c = on.chain;
  if (!words.text) {
    const Result<Found> found = search_all(c, space, on.device, o, 1);
    if (!found) return Reason{found.reason()};
    const Candidate& best = found->best.front();
    return Shown{best.group->first, best.group->sub, best.tiles};
  }
  const Expression e = parse_expression(c, *words.text);
  SubExpression sub = sub_expression(c, e, o.blocks);
  if (words.tiles) return Shown{e, std::move(sub), named_tiles(c, *words.tiles)};
  const Space alone = narrowed(c, space, e, o);
  const Result<Found> found = search_all(c, alone, on.device, o, 1);
  if (!found) return Reason{found.reason()};
  return Shown{e, std::move(sub), found->best.front().tiles};
}

}  // namespace

Explained explain(const Question& q, const ExplainAsked& asked, const Settings& settings,
                  bool flat) {
  Explained out;
  ordered_json& json = out.detail;
  const auto refused = [&out](const std::string& reason) {
    out.refused = reason;
    return out;
  };
  const Options o = options_of(settings, flat);
  const Result<Fused> on = fused_of(q);
  if (!on) return refused(on.reason());
  const Chain& c = on->chain;
  const Workload& w = *c.workload;
  json["level"] = q.machine->level(on->level).name;
  json["shared_bytes"] = on->device.shared.value;
  json["options"] = options_json(settings, o);
  json["products"] = products_json(*on, o);
  json["memory_bound"] = std::ranges::all_of(
      json["products"], [](const ordered_json& p) { return p["memory_bound"].get<bool>(); });
  const Result<Space> space = space_of(c, on->device, o);
  if (!space) return refused(space.reason());
  json["candidates"] = space_json(*space);
  json["expressions"] = expressions_json(c, *space, o);
  if (asked.samples) {
    json["seed"] = q.seed;
    json["drawn"] = ordered_json::array();
    for (const Candidate& one : draw_candidates(c, *space, on->device, o,
                                                static_cast<std::size_t>(*asked.samples), q.seed))
      json["drawn"].push_back({{"expression", to_text(c, one.group->first)},
                               {"tiles", tiles_json(c, one.tiles)},
                               {"seconds", one.seconds}});
  }
  const Result<Shown> shown = shown_of(asked.words, *on, o, *space);
  if (!shown) return refused(shown.reason());
  Mask once = 0;
  ordered_json removed = ordered_json::array();
  for (LoopId l : c.dims)
    if (shown->tiles[l.index()] >= w.loop(l).extent) {
      once |= Mask{1} << l.index();
      removed.push_back(w.loop(l).name);
    }
  ordered_json placed = ordered_json::object();
  for (auto hoist : {Hoist::none, Hoist::scope, Hoist::dag, Hoist::block})
    placed[std::string(name_of(hoist))] = to_text(c, place(c, shown->sub, once, hoist, o.stores));
  Pricer pricer(c, shown->sub, on->device, o);
  // The tiles that the plan has, which end where their loops do: plan and predict price these.
  Tiles tiles = shown->tiles;
  for (LoopId l : c.dims) tiles[l.index()] = std::min(tiles[l.index()], w.loop(l).extent);
  const Price price = pricer.price(tiles);
  json["shown"] = {{"expression", to_text(c, shown->expression)},
                   {"expression_paper", paper_text(c, shown->expression)},
                   {"tiles", tiles_json(c, shown->tiles)},
                   {"removed_loops", removed},
                   {"placed", placed},
                   {"dag_before", dag_json(dag_of(c, 0))},
                   {"dag_after", dag_json(dag_of(c, once))},
                   {"statements", statements_json(c, price)},
                   {"volume_bytes", price.bytes.value},
                   {"memory_bytes", price.memory.value},
                   {"seconds", price.time.seconds}};
  json["shown"].update(time_json(price));
  const Plan plan = plan_of(c, shown->sub, shown->tiles, *q.machine, on->level, o);
  json["shown"]["tree"] = to_text(plan.kernels.front().tree);
  return out;
}

}  // namespace tilewright::mcfuser
