#include "models/flashfuser/model.h"

#include <algorithm>

#include "core/plan/file.h"

namespace tilewright::flashfuser {
namespace {

using nlohmann::ordered_json;

/// Candidates of one block a cluster whose trees are tried in turn.
constexpr std::size_t kAlone = 2048;
constexpr const char* kNote =
    "no loop tree has clusters of two products: the plan is the best of single blocks, and "
    "clustered, with its bytes at cluster/shared, is what the model would run";

Bytes rounded(double bytes) { return Bytes(static_cast<std::int64_t>(std::min(bytes, 9.2e18))); }

Traffic as_traffic(const Question& q, const Asked& on, const flashfuser::Price& p) {
  const Workload& w = *q.workload;
  Traffic t{.source = Source::predicted, .by = "flashfuser", .machine = q.machine->name};
  std::vector<Volume> volumes = p.volumes;
  std::ranges::sort(volumes, {}, [](const Volume& v) { return v.tensor.index(); });
  for (const Volume& v : volumes)
    t.entries.push_back({.tensor = w.tensor(v.tensor).name,
                         .boundary = boundary_into(*q.machine, on.level),
                         .read = rounded(v.read),
                         .written = rounded(v.written)});
  const auto dsm = [&](TensorId tensor, double bytes) {
    if (bytes > 0)
      t.entries.push_back(
          {.tensor = w.tensor(tensor).name, .boundary = "cluster/shared", .read = rounded(bytes)});
  };
  dsm(on.chain.joint, p.exchange + p.shuffle);
  dsm(on.chain.partial, p.scatter);
  t.memory[q.machine->level(on.level).name] = rounded(p.shared_used);
  for (OpId op : w.topological_order()) t.operations[w.op(op).name] = w.operations(op);
  if (on.device.timed) t.seconds = p.seconds;
  return t;
}

ordered_json by_loop(const Chain& c, const ByRole<std::int64_t>& values) {
  ordered_json json = ordered_json::object();
  for (std::size_t l = 0; l < c.workload->loops().size(); ++l)
    for (Role r : {kM, kJ, kK, kN})
      if (c.loops[r] == LoopId(l)) json[c.workload->loop(LoopId(l)).name] = values[r];
  return json;
}

ordered_json price_json(const Asked& on, const Candidate& one, const flashfuser::Price& p) {
  const Workload& w = *on.chain.workload;
  const auto s = [&](double x) {
    return on.device.timed ? ordered_json(x) : ordered_json(nullptr);
  };
  return {{"schedule", to_text(on.chain, one.schedule)},
          {"cluster", by_loop(on.chain, one.cluster)},
          {"shuffle_group", shuffle_group(one.cluster)},
          {"reduce_group", reduce_group(one.cluster)},
          {"tiles", by_loop(on.chain, one.tiles)},
          {"blocks", static_cast<std::int64_t>(p.blocks)},
          {"seconds", s(p.seconds)},
          {"by_level",
           {{{"level", "global"}, {"bytes", p.global}, {"seconds", s(p.global_s)}},
            {{"level", "dsm"}, {"bytes", p.dsm_bytes()}, {"seconds", s(p.dsm_s)}},
            {{"level", "shared"}, {"bytes", p.shared}, {"seconds", s(p.shared_s)}}}},
          {"dsm",
           {{"all_exchange", p.exchange}, {"shuffle", p.shuffle}, {"reduce_scatter", p.scatter}}},
          {"placed",
           {{{"tensor", w.tensor(on.chain.joint).name},
             {"at", name_of(p.joint)},
             {"block_bytes", rounded(p.joint_bytes).value}},
            {{"tensor", w.tensor(on.chain.partial).name},
             {"at", name_of(p.partial)},
             {"block_bytes", rounded(p.partial_bytes).value}}}},
          {"shared_bytes", p.shared_used},
          {"register_bytes", p.registers_used}};
}

/// A candidate's tree that resolves and fits, with its price without clusters.
struct Alone {
  Candidate candidate;
  flashfuser::Price price;
  Plan plan;
};
std::optional<Alone> alone_of(const Question& q, const Asked& on, const Candidate& one) {
  Alone out{without_clusters(one), {}, {}};
  const auto p = price(on.chain, on.device, on.options, out.candidate, true);
  if (!p) return std::nullopt;
  out.price = *p;
  out.plan = plan_of(on.chain, *q.machine, on.level, out.candidate, *p);
  const auto schedule = resolve(out.plan, q.workload, q.machine);
  if (!schedule) return std::nullopt;
  const auto memory = memory_use(*schedule);
  const auto used = memory.find(q.machine->level(on.level).name);
  if (used != memory.end() && used->second > on.device.shared_capacity) return std::nullopt;
  if (q.refuses && q.refuses(*schedule)) return std::nullopt;
  return out;
}

/// Trees of the best candidates of one block a cluster.
std::vector<Alone> trees_of(const Question& q, const Asked& on, std::size_t most) {
  std::vector<Alone> out;
  Asked single = on;
  single.options.cluster = 1;
  for (const Ranked& r : search(on.chain, on.device, single.options, kAlone).best) {
    if (out.size() == most) break;
    if (auto a = alone_of(q, on, r.candidate);
        a && std::ranges::find(out, a->plan, &Alone::plan) == out.end())
      out.push_back(std::move(*a));
  }
  return out;
}

tilewright::Price shown(const Question& q, const Asked& on, const Candidate& one,
                        const flashfuser::Price& p, const Settings& settings) {
  tilewright::Price out;
  out.traffic = as_traffic(q, on, p);
  out.detail["volume_bytes"] = rounded(p.global).value;
  out.detail.update(price_json(on, one, p));
  out.detail["options"] = settings.to_json();
  return out;
}

Result<Proposal> propose(const Question& q, const Settings& settings) {
  const Result<Asked> on = asked_of(q, settings);
  if (!on) return Reason{on.reason()};
  const Found found = search(on->chain, on->device, on->options, 1);
  if (found.best.empty())
    return Reason{"no candidate's tiles fit " + q.machine->level(on->level).name};
  const std::vector<Alone> trees = trees_of(q, *on, 1);
  if (trees.empty())
    return Reason{"no candidate without clusters has a loop tree that fits " +
                  q.machine->level(on->level).name};
  const Candidate& best = found.best.front().candidate;
  const auto clustered = price(on->chain, on->device, on->options, best, true);
  Proposal out;
  out.plan = trees.front().plan;
  out.level = on->level;
  out.search_seconds = found.seconds;
  out.price = shown(q, *on, trees.front().candidate, trees.front().price, settings);
  out.detail = out.price.detail;
  out.detail["clustered"] = price_json(*on, best, *clustered);
  out.detail["clustered"]["traffic"] = to_json(as_traffic(q, *on, *clustered));
  out.detail["note"] = kNote;
  out.detail["candidates"] = {{"priced", found.priced}, {"feasible", found.feasible}};
  out.detail["search_seconds"] = found.seconds;
  // Whatever a target refuses, another candidate's tree may stand in its place.
  out.choices = [q, on = *on](std::size_t) {
    std::vector<KernelChoice> choices;
    for (const Alone& a : trees_of(q, on, 16))
      choices.push_back(
          {.kernel = a.plan.kernels.front(),
           .seconds = on.device.timed ? std::optional(a.price.seconds) : std::nullopt});
    return choices;
  };
  return out;
}

Result<tilewright::Price> price_plan(const Question& q, const Plan& plan,
                                     const Settings& settings) {
  Question there = q;
  there.level = q.level_of(plan);
  const Result<Asked> on = asked_of(there, settings);
  if (!on) return Reason{on.reason()};
  const auto one = candidate_of(on->chain, *q.machine, on->level, on->device, on->options, plan);
  if (!one) return Reason{one.reason()};
  const auto p = price(on->chain, on->device, on->options, *one, true);
  return shown(there, *on, *one, *p, settings);
}

Explained explain(const Question& q, const ExplainAsked&, const Settings& settings) {
  Explained out;
  const Result<Asked> on = asked_of(q, settings);
  if (!on) {
    out.refused = on.reason();
    return out;
  }
  ordered_json& json = out.detail;
  json["source"] = "predicted";
  json["level"] = q.machine->level(on->level).name;
  json["funnel"] = funnel_json(funnel_of(on->chain, on->device, on->options));
  const Found found = search(on->chain, on->device, on->options, 1);
  json["rules"] = {{"schedules", all_schedules().size()}, {"priced", found.priced}};
  json["search_seconds"] = found.seconds;
  json["cluster_shapes"] = ordered_json::object();
  for (ClusterRule r : kClusterRules)
    json["cluster_shapes"][std::string(name_of(r))] = clusters(r, on->options.cluster).size();
  if (found.best.empty()) {
    out.refused = "no candidate's tiles fit " + q.machine->level(on->level).name;
    return out;
  }
  const Candidate& best = found.best.front().candidate;
  json["chosen"] = price_json(*on, best, *price(on->chain, on->device, on->options, best));
  json["spills"] = found.spills;
  if (const auto trees = trees_of(q, *on, 1); !trees.empty()) {
    json["without_clusters"] = price_json(*on, trees.front().candidate, trees.front().price);
    json["tree"] = to_text(trees.front().plan.kernels.front().tree);
  }
  json["note"] = kNote;
  json["compulsory_bytes"] = q.workload->compulsory_bytes().value;
  json["options"] = settings.to_json();
  return out;
}

}  // namespace

Result<Asked> asked_of(const Question& q, const Settings& settings) {
  Result<Chain> chain = chain_of(q.workload);
  if (!chain) return Reason{chain.reason()};
  const Options options = options_of(settings);
  const LevelId level = q.planned_level();
  Result<Device> device = device_of(*q.machine, level, options);
  if (!device) return Reason{device.reason()};
  if (q.room) device.value().shared_capacity = *q.room;
  // Only a GPU has clusters.
  Options there = options;
  if (device->dsm == 0) there.cluster = 1;
  return Asked{std::move(chain).value(), *device, level, there};
}

ordered_json funnel_json(const std::vector<Count>& funnel) {
  ordered_json rows = ordered_json::array();
  for (const Count& one : funnel)
    rows.push_back({{"after", one.rule},
                    {"candidates", one.ours},
                    {"as_counted", or_null(one.as_counted)},
                    {"paper", or_null(one.paper)}});
  return rows;
}

Model model() {
  return {
      .name = "flashfuser",
      .summary =
          "two products in clusters of thread blocks: the slowest memory level of every plan",
      .source = "FlashFuser, HPCA 2026, arXiv:2512.12949",
      .assumptions =
          {"two products in a line, the first perhaps gated; indices are single loops",
           "a cluster's blocks load inputs each for itself; operands are read from shared memory",
           "a result is held whole at one level: the join first, then the partial sums",
           "partial sums take 4 bytes; arithmetic and latency take no time",
           "no loop tree has clusters of two products: the plan is the best of single blocks"},
      .options = option_specs(),
      .times = true,
      .propose = propose,
      .price = price_plan,
      .explain = explain};
}

}  // namespace tilewright::flashfuser
