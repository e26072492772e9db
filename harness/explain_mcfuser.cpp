// explain with MCFuser: the chain's ratios, the space rule by rule, the DAG and the statements'
// prices.
#include <algorithm>

#include "harness/mcfuser_request.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

ordered_json products_json(const Fused& on, const mcfuser::Options& o) {
  ordered_json rows = ordered_json::array();
  for (const auto& i : mcfuser::intensities(on.chain, on.device, o.ratio))
    rows.push_back({{"operator", on.chain.workload->op(i.op).name},
                    {"phi_flops_per_element", i.ratio},
                    {"threshold_flops_per_element", i.threshold},
                    {"memory_bound", i.memory_bound}});
  return rows;
}

ordered_json expressions_json(const mcfuser::Chain& c, const mcfuser::Space& space,
                              const mcfuser::Options& o) {
  ordered_json rows = ordered_json::array();
  for (const mcfuser::Expression& e : space.expressions) {
    const mcfuser::SubExpression sub = mcfuser::sub_expression(c, e, o.blocks);
    const std::string rest = mcfuser::to_text(c, sub.rest);
    const auto group = std::ranges::find_if(space.classes, [&](const mcfuser::Class& k) {
      return o.rules[0] ? mcfuser::to_text(c, k.sub.rest) == rest : k.first == e;
    });
    ordered_json row = {{"expression", mcfuser::to_text(c, e)},
                        {"expression_paper", mcfuser::paper_text(c, e)},
                        {"sub_expression", rest},
                        {"bound", ordered_json::array()},
                        {"kept", true},
                        {"reason", nullptr}};
    for (LoopId l : sub.bound) row["bound"].push_back(c.workload->loop(l).name);
    if (group->first != e) {
      row["kept"] = false;
      row["reason"] = "rule 1: equals " + mcfuser::to_text(c, group->first);
    } else if (space.rule2 && group->overwhelmed) {
      row["kept"] = false;
      row["reason"] = "rule 2: " + *group->overwhelmed;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json dag_json(const mcfuser::Dag& dag) {
  return {{"loops", dag.loops},
          {"statements", dag.statements},
          {"scope", dag.scope},
          {"order", dag.order}};
}

ordered_json statements_json(const mcfuser::Chain& c, const mcfuser::Price& price) {
  ordered_json rows = ordered_json::array();
  for (const mcfuser::StatementPrice& s : price.statements) {
    ordered_json row = {
        {"statement", s.name}, {"loops", ordered_json::array()}, {"trips", s.trips}};
    for (LoopId l : s.loops) row["loops"].push_back(c.workload->loop(l).name);
    const bool compute = s.kind == mcfuser::Kind::compute;
    row[compute ? "tile_flops" : "tile_elements"] = s.amount;
    row[compute ? "flops" : "bytes"] = s.total;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The expression and tiles to look at: --expression and --tiles, else the best of the search (of
/// that expression's class alone where only --expression is given).
struct Shown {
  mcfuser::Expression expression;
  mcfuser::SubExpression sub;
  mcfuser::Tiles tiles;
};
Result<Shown> shown_of(const Request& request, const Fused& on, const mcfuser::Options& o,
                       const mcfuser::Space& space) {
  const mcfuser::Chain& c = on.chain;
  if (!request.options.contains("expression")) {
    const Result<mcfuser::Found> found = mcfuser::search_all(c, space, on.device, o, 1);
    if (!found) return Reason{found.reason()};
    const mcfuser::Candidate& best = found->best.front();
    return Shown{best.group->first, best.group->sub, best.tiles};
  }
  const mcfuser::Expression e = mcfuser::parse_expression(c, mcfuser_settings(request).text("expression"));
  mcfuser::SubExpression sub = mcfuser::sub_expression(c, e, o.blocks);
  if (request.tiles) return Shown{e, std::move(sub), named_tiles(request, c)};
  const mcfuser::Space alone = mcfuser::narrowed(c, space, e, o);
  const Result<mcfuser::Found> found = mcfuser::search_all(c, alone, on.device, o, 1);
  if (!found) return Reason{found.reason()};
  return Shown{e, std::move(sub), found->best.front().tiles};
}

}  // namespace

Answer mcfuser_explain(const Request& request, const Setting& setting) {
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["model"] = request.model.value_or("mcfuser");
  const mcfuser::Options o = mcfuser_options(request, request.model != "mcfuser-chimera");
  const Result<Fused> on = fused_of(request, setting);
  if (!on) return refuse(std::move(json), on.reason());
  const mcfuser::Chain& c = on->chain;
  const Workload& w = *c.workload;
  json["level"] = setting.machine->level(on->level).name;
  json["shared_bytes"] = on->device.shared.value;
  json["options"] = options_json(request, o);
  json["products"] = products_json(*on, o);
  json["memory_bound"] = std::ranges::all_of(
      json["products"], [](const ordered_json& p) { return p["memory_bound"].get<bool>(); });
  const Result<mcfuser::Space> space = mcfuser::space_of(c, on->device, o);
  if (!space) return refuse(std::move(json), space.reason());
  json["candidates"] = space_json(*space);
  json["expressions"] = expressions_json(c, *space, o);
  if (request.samples) {
    json["seed"] = request.seed;
    json["drawn"] = ordered_json::array();
    for (const mcfuser::Candidate& one :
         mcfuser::draw_candidates(c, *space, on->device, o,
                                  static_cast<std::size_t>(*request.samples), request.seed))
      json["drawn"].push_back({{"expression", mcfuser::to_text(c, one.group->first)},
                               {"tiles", tiles_json(c, one.tiles)},
                               {"seconds", one.seconds}});
  }
  const Result<Shown> shown = shown_of(request, *on, o, *space);
  if (!shown) return refuse(std::move(json), shown.reason());
  mcfuser::Mask once = 0;
  ordered_json removed = ordered_json::array();
  for (LoopId l : c.dims)
    if (shown->tiles[l.index()] >= w.loop(l).extent) {
      once |= mcfuser::Mask{1} << l.index();
      removed.push_back(w.loop(l).name);
    }
  ordered_json placed = ordered_json::object();
  for (auto hoist :
       {mcfuser::Hoist::none, mcfuser::Hoist::scope, mcfuser::Hoist::dag, mcfuser::Hoist::block})
    placed[std::string(mcfuser::name_of(hoist))] =
        mcfuser::to_text(c, mcfuser::place(c, shown->sub, once, hoist, o.stores));
  mcfuser::Pricer pricer(c, shown->sub, on->device, o);
  const mcfuser::Price price = pricer.price(shown->tiles);
  json["shown"] = {{"expression", mcfuser::to_text(c, shown->expression)},
                   {"expression_paper", mcfuser::paper_text(c, shown->expression)},
                   {"tiles", tiles_json(c, shown->tiles)},
                   {"removed_loops", removed},
                   {"placed", placed},
                   {"dag_before", dag_json(mcfuser::dag_of(c, 0))},
                   {"dag_after", dag_json(mcfuser::dag_of(c, once))},
                   {"statements", statements_json(c, price)},
                   {"volume_bytes", price.bytes.value},
                   {"memory_bytes", price.memory.value},
                   {"seconds", price.time.seconds}};
  merge(json["shown"], time_json(price));
  const Plan plan = mcfuser::plan_of(c, shown->sub, shown->tiles, *setting.machine, on->level, o);
  json["shown"]["tree"] = to_text(plan.kernels.front().tree);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
