// A partition as a proposal, and what it says of itself.
#include <algorithm>

#include "core/base/format.h"
#include "core/plan/join.h"
#include "core/plan/names.h"
#include "core/workload/rewrite/rewrite.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {
using nlohmann::ordered_json;

std::optional<Part> kernel_with(const Plan& plan, const Workload& w, const Workload& whole,
                                const Edge& e) {
  const auto from = w.find_op(whole.op(e.from).name);
  const auto to = w.find_op(whole.op(e.to).name);
  if (!from || !to) return std::nullopt;
  for (const Kernel& k : plan.kernels) {
    const std::vector<OpId> ops = operators_of(k, w);
    if (!std::ranges::binary_search(ops, *from) || !std::ranges::binary_search(ops, *to)) continue;
    Part all;
    for (OpId op : ops) {
      const auto its = whole.find_op(w.op(op).name);
      if (!its) return std::nullopt;
      all.push_back(*its);
    }
    std::ranges::sort(all);
    return all;
  }
  return Part{};
}

ordered_json edges_json(const Workload& w, const std::vector<Edge>& edges,
                        const std::string& unit) {
  const auto said = [&unit](double cost) {
    return unit == "bytes" ? formatted("{:.0f} B", cost) : formatted("{:.3g} us", 1e6 * cost);
  };
  ordered_json all = ordered_json::array();
  for (const Edge& e : edges) {
    std::string why = "one kernel would not be legal, or is none that is searched for";
    if (!e.note.empty())
      why = e.note;
    else if (e.together && e.apart)
      why = formatted("{} {}, {} {}", e.fused ? "fused" : "apart",
                      said(e.fused ? *e.together : *e.apart), e.fused ? "apart" : "fused",
                      said(e.fused ? *e.apart : *e.together));
    else if (e.together)
      why = "the operators cannot be parted";
    all.push_back({{"tensor", w.tensor(e.tensor).name},
                   {"from", w.op(e.from).name},
                   {"to", w.op(e.to).name},
                   {"fused", e.fused},
                   {unit + "_fused", or_null(e.together)},
                   {unit + "_apart", or_null(e.apart)},
                   {"why", why}});
  }
  return all;
}

std::string why_none(const std::shared_ptr<const Workload>& part, const Question& q) {
  std::string tree;
  for (const Operator& op : part->operators()) {
    for (LoopId l : op.loops) tree += part->loop(l).name + "/1 ";
    tree += "( C." + op.name + " ) ";
  }
  const auto s = resolve(Plan{.kernels = {{.tree = parse_tree(tree)}}}, part, q.machine);
  if (!s) return s.reason();
  if (const auto no = misfit(*s)) return no->text;
  if (!q.refuses) return "";
  const auto no = q.refuses(*s);
  return no ? no->text : "";
}

std::optional<Schedule> legal(const Plan& plan, std::shared_ptr<const Workload> w,
                              const Question& q) {
  try {
    Result<Schedule> s = resolve(plan, std::move(w), q.machine);
    if (!s) return std::nullopt;
    return std::move(s).value();
  } catch (const InputError&) {
    return std::nullopt;  // a tree that is no plan of this workload
  }
}

std::optional<Schedule> resolved(const Plan& plan, std::shared_ptr<const Workload> w,
                                 const Question& q) {
  std::optional<Schedule> s = legal(plan, std::move(w), q);
  if (!s || misfit(*s)) return std::nullopt;
  if (!q.room) return s;
  // A cache takes any tiles; who says how much room there is, means it.
  const auto held = memory_use(*s);
  const auto at = held.find(q.machine->level(q.planned_level()).name);
  return at != held.end() && at->second > *q.room ? std::nullopt : std::move(s);
}

std::shared_ptr<const Workload> rewritten(std::shared_ptr<const Workload> w,
                                          const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Result<Workload> next = tilewright::apply(name, *w);
    if (!next) return nullptr;
    w = std::make_shared<const Workload>(*next);
  }
  return w;
}

Result<Proposal> joined_proposal(const Question& q, const Partition& found) {
  std::vector<PartPlan> parts;
  for (std::size_t g = 0; g < found.groups.size(); ++g) {
    const auto w = rewritten(found.groups[g].workload, found.best[g].rewrites);
    TW_CHECK(w != nullptr, "a rewrite applied once and not again");
    parts.push_back({.part = *w,
                     .plan = found.best[g].plan,
                     .rewrites = found.best[g].rewrites,
                     .by = found.best[g].by.empty() ? "tilewright" : found.best[g].by});
  }
  Result<JoinedPlan> joined = join_plans(*q.workload, parts);
  if (!joined) return Reason{joined.reason()};
  Proposal out;
  out.plan = joined->plan;
  out.rewrites = joined->rewrites;
  out.level = q.planned_level();
  out.choices = [best = found.best, part_of = joined->part_of,
                 plan = out.plan](std::size_t kernel) {
    std::vector<KernelChoice> all;
    const Best& b = best[part_of[kernel]];
    if (b.plan.kernels.size() > 1) return all;
    for (const Choice& c : b.others) all.push_back({.kernel = c.kernel, .seconds = c.seconds});
    for (KernelChoice& c : all)
      c.kernel.name = plan.kernels[kernel].name, c.kernel.by = plan.kernels[kernel].by;
    return all;
  };
  return out;
}

void describe(Partitioner& partitioner, const Partition& found, bool why, ordered_json& detail) {
  if (why)
    detail["edges"] = edges_json(partitioner.workload(), partitioner.edges(found), "seconds");
  detail["partitions"] = found.exact ? "all into connected parts" : "grown along edges that gain";
  detail["groups_priced"] = found.priced;
}

}  // namespace tilewright::quickest
