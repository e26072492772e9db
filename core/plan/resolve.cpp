// resolve: a plan into a schedule.
#include <algorithm>

#include "core/base/format.h"
#include "core/plan/resolver.h"

namespace tilewright {

namespace lowering {

bool Draft::inside(NodeId n, NodeId ancestor) const {
  for (; n.valid(); n = node(n).parent)
    if (n == ancestor) return true;
  return false;
}

NodeId Draft::body_of(NodeId n) const {
  while (node(n).kind != NodeKind::loop && node(n).parent.valid()) n = node(n).parent;
  return n;
}

NodeId Draft::common_body(NodeId a, NodeId b) const {
  while (!inside(b, a)) a = body_of(node(a).parent);
  return a;
}

void Draft::bad(std::string field, std::string value, std::string problem,
                std::string accepted) const {
  throw InputError({.where = where,
                    .field = std::move(field),
                    .value = std::move(value),
                    .problem = std::move(problem),
                    .accepted = std::move(accepted)});
}

namespace {

std::string level_name(const Draft& d, LevelId l) { return d.m.level(l).name; }

Node to_plan(const Draft& d, NodeId id);

/// Rule 9's loads of a !once compute belong to it and have no text of their own; nor then has any
/// other that rule 9 put for that tensor, since one load node in a kernel ends rule 9 for it.
bool has_no_text(const Draft& d, NodeId load) {
  if (std::ranges::find(d.implicit, load) == d.implicit.end()) return false;
  return std::ranges::any_of(d.implicit, [&](NodeId other) {
    return d.node(other).tensor == d.node(load).tensor && d.node(other).only_for.valid();
  });
}

std::vector<Node> parts(const Draft& d, NodeId id) {
  std::vector<Node> nodes;
  for (NodeId c : d.node(id).children) {
    if (d.node(c).kind == NodeKind::load && has_no_text(d, c)) continue;
    nodes.push_back(to_plan(d, c));
  }
  return nodes;
}

Node to_plan(const Draft& d, NodeId id) {
  const ScheduleNode& n = d.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return loop(d.w.loop(n.loop).name, sequence(parts(d, id)), n.step, n.binding);
    case NodeKind::sequence: return sequence(parts(d, id));
    case NodeKind::pack: {
      Node pack{.kind = Node::Kind::pack};
      pack.children = parts(d, id);
      return pack;
    }
    case NodeKind::load:
      return load(d.w.tensor(n.tensor).name, level_name(d, n.level), d.k.buffer(n.buffer).copies);
    case NodeKind::compute: return compute(d.w.op(n.op).name, n.once);
    case NodeKind::store: return store(d.w.tensor(n.tensor).name, level_name(d, n.level), n.atomic);
    case NodeKind::sync:
      return sync(n.scope == Unit::grid ? "grid" : n.scope == Unit::cluster ? "block" : "warp");
  }
  return {};
}

void place_packs(Draft& d) {
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    if (d.k.nodes[i].kind != NodeKind::pack) continue;
    std::int64_t first = 0;
    for (NodeId part : d.k.nodes[i].children) {
      d.node(part).first_block = first;
      const std::int64_t own = d.node(part).binding == Binding::grid ? d.node(part).max_trips : 1;
      first += own * blocks_below(d.k, part);
    }
  }
}

void number_ranges(Draft& d) {
  d.k.range_base.assign(d.w.operators().size(), std::size_t(-1));
  for (OpId op : d.w.topological_order()) {
    if (!d.computed_here(op)) continue;
    d.k.ops.push_back(op);
    d.k.range_base[op.index()] = d.k.range_count;
    d.k.range_count += d.w.op(op).loops.size();
  }
}

void check_tiles(const Draft& d) {
  for (const auto& [name, tile] : d.plan.tiles) {
    const auto loop = d.w.find_loop(name);
    std::vector<std::string> names;
    for (const Loop& l : d.w.loops()) names.push_back(l.name);
    if (!loop)
      d.bad("tiles", name, "is no loop of the workload", join(names));
    if (tile < 1 || tile > d.w.loop(*loop).extent)
      d.bad("tiles." + name, std::to_string(tile), "is no tile of this loop",
            formatted("1..{}", d.w.loop(*loop).extent));
  }
}

}  // namespace

Kernel resolved_kernel(const Draft& d) {
  Kernel r{.name = d.k.name};
  for (OpId op : d.k.ops) r.operators.push_back(d.w.op(op).name);
  r.level = level_name(d, d.k.level);
  std::vector<Node> nodes = parts(d, NodeId(0));
  r.tree = nodes.size() == 1 ? std::move(nodes.front()) : sequence(std::move(nodes));
  for (std::size_t t = 0; t < d.chain.size(); ++t) {
    const TensorId id(t);
    const std::string& name = d.w.tensor(id).name;
    if (d.spilled(id) || d.on_chip(id)) r.pins[name].level = level_name(d, d.level_of.at(id));
    if (d.home_at.contains(id)) r.pins[name].at = d.home_at.at(id);
  }
  for (const auto& [name, pin] : d.plan.pins) {
    Pin& kept = r.pins.try_emplace(name, pin).first->second;
    if (kept.level.empty()) kept.level = pin.level;  // there for its `at`
  }
  r.flags = d.plan.flags;
  return r;
}

/// Collects the operators that a tree computes, by name.
void computed_names(const Node& n, std::vector<std::string>& names) {
  if (n.kind == Node::Kind::compute) names.push_back(n.name);
  for (const Node& c : n.children) computed_names(c, names);
}

Placement place_operators(const Plan& plan, const Workload& w) {
  Placement p;
  p.kernel_of.assign(w.operators().size(), -1);
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    std::vector<std::string> names;
    computed_names(plan.kernels[i].tree, names);
    for (const std::string& name : names) {
      const auto op = w.find_op(name);
      if (!op) continue;  // bind_tree says which name and where
      int& kernel = p.kernel_of[op->index()];
      if (kernel >= 0 && kernel != static_cast<int>(i))
        throw InputError({.where = formatted("kernel {}", i + 1),
                          .field = "operator",
                          .value = name,
                          .problem = formatted("is computed in kernel {} already", kernel + 1),
                          .accepted = "every operator in one kernel"});
      kernel = static_cast<int>(i);
    }
  }
  return p;
}

void check_placement(const Placement& p, const Workload& w) {
  for (OpId op : w.topological_order()) {
    const int here = p.kernel_of[op.index()];
    const std::string& name = w.op(op).name;
    if (here < 0)
      throw InputError({.where = "plan",
                        .field = "operator",
                        .value = name,
                        .problem = "is computed by no kernel",
                        .accepted = "C." + name + " in one tree"});
    for (const Access& a : w.op(op).inputs) {
      const OpId producer = w.producer(a.tensor);
      if (producer.valid() && p.kernel_of[producer.index()] > here)
        throw InputError({.where = "plan",
                          .field = "operator",
                          .value = name,
                          .problem = formatted("reads {} in kernel {}, before {} writes it in "
                                                 "kernel {}", w.tensor(a.tensor).name, here + 1,
                                                 w.op(producer).name,
                                                 p.kernel_of[producer.index()] + 1),
                          .accepted = "kernels in an order that keeps the data flow"});
    }
  }
}

std::optional<Reason> run(Draft& d) {
  check_tiles(d);
  bind_pins(d);
  bind_tree(d);
  number_ranges(d);
  if (auto reason = check_gathers(d)) return reason;
  if (auto reason = place_cuts(d)) return reason;
  place_packs(d);
  d.k.blocks = blocks_below(d.k, NodeId(0));
  if (auto reason = place_buffers(d)) return reason;
  return check_legal(d);
}

}  // namespace lowering

std::optional<Unit> unit_of(Binding binding) {
  switch (binding) {
    case Binding::grid: return Unit::grid;
    case Binding::cluster: return Unit::cluster;
    case Binding::warp: return Unit::warp;
    case Binding::lane: return Unit::lane;
    case Binding::thread: return Unit::thread;
    case Binding::seq:
    case Binding::vector:
    case Binding::unroll: return std::nullopt;
  }
  return std::nullopt;
}

Result<Schedule> resolve(const Plan& plan, std::shared_ptr<const Workload> workload,
                         std::shared_ptr<const Machine> machine) {
  Schedule s{.workload = workload, .machine = machine};
  if (plan.kernels.empty())
    throw InputError({.where = "plan", .field = "kernels", .value = "none",
                      .problem = "leaves nothing to run", .accepted = "one kernel or more"});
  const lowering::Placement placement = lowering::place_operators(plan, *workload);
  std::vector<std::pair<ScheduledKernel, Kernel>> done;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    lowering::Draft d{.w = *workload,
                      .m = *machine,
                      .schedule = s,
                      .plan = plan.kernels[i],
                      .index = static_cast<int>(i),
                      .where = formatted("kernel {}", i + 1),
                      .placement = placement};
    d.k.name = plan.kernels[i].name.empty() ? formatted("kernel{}", i + 1) : plan.kernels[i].name;
    d.input_buffers.resize(workload->tensors().size());
    d.chain.resize(workload->tensors().size());
    if (auto reason = lowering::run(d)) return Reason{formatted("{}: {}", d.k.name, reason->text)};
    Kernel resolved = lowering::resolved_kernel(d);
    done.emplace_back(std::move(d.k), std::move(resolved));
  }
  lowering::check_placement(placement, *workload);
  for (auto& [kernel, resolved] : done) {
    s.kernels.push_back(std::move(kernel));
    s.resolved.kernels.push_back(std::move(resolved));
  }
  return s;
}

}  // namespace tilewright
