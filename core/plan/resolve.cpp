// resolve: a plan into a schedule.
#include <algorithm>
#include <set>

#include "core/base/effort.h"
#include "core/base/format.h"
#include "core/plan/resolver.h"

namespace tilewright {

namespace resolving {

Placement::Placement(const Workload& w)
    : kernels_of(w.operators().size()),
      written_by(w.tensors().size(), -1),
      rank(w.operators().size()),
      w_(w) {
  for (std::size_t i = 0; i < w.topological_order().size(); ++i)
    rank[w.topological_order()[i].index()] = i;
  // The first of a name, as a search finds it.
  for (std::size_t i = 0; i < w.loops().size(); ++i) loops_.try_emplace(w.loops()[i].name, i);
  for (std::size_t i = 0; i < w.tensors().size(); ++i) tensors_.try_emplace(w.tensors()[i].name, i);
  for (std::size_t i = 0; i < w.operators().size(); ++i) ops_.try_emplace(w.operators()[i].name, i);
}

namespace {

template <class T>
std::optional<T> found(const std::unordered_map<std::string_view, T>& names,
                       std::string_view name) {
  const auto at = names.find(name);
  return at == names.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace

std::optional<LoopId> Placement::find_loop(std::string_view name) const {
  return found(loops_, name);
}

std::optional<TensorId> Placement::find_tensor(std::string_view name) const {
  return found(tensors_, name);
}

std::optional<OpId> Placement::find_op(std::string_view name) const {
  if (const auto op = found(ops_, name)) return op;
  const auto t = find_tensor(name);
  return t && w_.producer(*t).valid() ? std::optional(w_.producer(*t)) : std::nullopt;
}

Tables::Tables(const Workload& w)
    : compute_of(w.operators().size()),
      inferred_at(w.operators().size()),
      input_buffers(w.tensors().size()),
      chain(w.tensors().size()),
      home_body(w.tensors().size()) {}

void Draft::number() {
  last.resize(k.nodes.size());
  for (std::size_t i = k.nodes.size(); i-- > 0;) {
    last[i] = std::max(last[i], NodeId(i));
    if (const NodeId parent = k.nodes[i].parent; parent.valid())
      last[parent.index()] = std::max(last[parent.index()], last[i]);
  }
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    if (n.kind == NodeKind::compute) in_tree.push_back(n.op);
    if (n.kind == NodeKind::load) loads_of[n.tensor].emplace_back(i);
    if (n.kind == NodeKind::store) stores_of[n.tensor].emplace_back(i);
  }
  k.ops = ops_inside(NodeId(0));
  k.range_base.assign(w.operators().size(), std::size_t(-1));
  for (OpId op : k.ops) {
    k.range_base[op.index()] = k.range_count;
    k.range_count += w.op(op).loops.size();
  }
}

void Draft::clear() {
  const auto clear_tensor = [&](TensorId t) {
    input_buffers[t.index()].clear();
    chain[t.index()].clear();
    home_body[t.index()] = NodeId();
  };
  for (OpId op : k.ops) {
    compute_of[op.index()] = inferred_at[op.index()] = NodeId();
    for (const Access& in : w.op(op).inputs) clear_tensor(in.tensor);
    for (const Output& out : w.op(op).outputs) clear_tensor(out.target.tensor);
  }
}

LevelId Draft::level_of(TensorId t) const {
  const auto pin = pinned.find(t);
  return pin == pinned.end() ? k.level : pin->second;
}

std::vector<OpId> Draft::ops_inside(NodeId scope) const {
  const auto at = [&](OpId op) { return compute_of[op.index()]; };
  const auto from = std::ranges::lower_bound(in_tree, scope, {}, at);
  const auto to = std::ranges::upper_bound(in_tree, last[scope.index()], {}, at);
  std::vector<OpId> ops(from, to);
  std::ranges::sort(ops, {}, [&](OpId op) { return placement.rank[op.index()]; });
  return ops;
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
  if (!std::ranges::binary_search(d.implicit, load)) return false;
  const auto only = [&](NodeId l) { return d.node(l).only_for.valid(); };
  return d.has_once && std::ranges::any_of(d.loads_of.at(d.node(load).tensor), only);
}

std::vector<Node> parts(const Draft& d, NodeId id) {
  std::vector<Node> nodes;
  for (NodeId c : d.node(id).children) {
    if (d.node(c).kind == NodeKind::load &&
        (has_no_text(d, c) || std::ranges::binary_search(d.further, c)))
      continue;
    nodes.push_back(to_plan(d, c));
  }
  return nodes;
}

Node to_plan(const Draft& d, NodeId id) {
  const ScheduleNode& n = d.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return loop(d.w.loop(n.loop).name, sequence(parts(d, id)), n.step, n.binding);
    case NodeKind::sequence:
      return sequence(parts(d, id));
    case NodeKind::pack: {
      Node pack{.kind = Node::Kind::pack};
      pack.children = parts(d, id);
      std::int64_t next = 0;
      for (std::size_t i = 0; i < n.children.size(); ++i) {
        const std::int64_t first = d.node(n.children[i]).first_block;
        if (first != next || n.children.size() == 1) pack.children[i].first_block = first;
        next = first + blocks_of(d.k, n.children[i]);
      }
      return pack;
    }
    case NodeKind::load:
      return load(d.w.tensor(n.tensor).name, level_name(d, n.level), d.k.buffer(n.buffer).copies);
    case NodeKind::compute:
      return compute(d.w.op(n.op).name, n.once);
    case NodeKind::store:
      return store(d.w.tensor(n.tensor).name, level_name(d, n.level), n.atomic);
    case NodeKind::sync:
      return sync(std::string(barrier_name(n.scope)));
    case NodeKind::drop:
      return drop(d.w.tensor(n.tensor).name, level_name(d, n.level));
  }
  return {};
}

/// Inner packs first: how many blocks a part has is a matter of where its own packs' parts begin.
std::optional<Reason> place_packs(Draft& d) {
  for (std::size_t i = d.k.nodes.size(); i-- > 0;) {
    if (d.k.nodes[i].kind != NodeKind::pack) continue;
    std::int64_t next = 0;
    std::map<std::int64_t, std::int64_t> taken;  // blocks from, to
    for (NodeId part : d.k.nodes[i].children) {
      const auto said = d.first_blocks.find(part);
      const std::int64_t first = said == d.first_blocks.end() ? next : said->second;
      next = first + blocks_of(d.k, part);
      const auto after = taken.lower_bound(first);
      if ((after != taken.end() && after->first < next) ||
          (after != taken.begin() && std::prev(after)->second > first))
        return Reason{formatted(
            "blocks {} to {} of a part of a pack are another part's, too: parts run side by side",
            first, next - 1)};
      taken[first] = next;
      d.node(part).first_block = first;
    }
  }
  return std::nullopt;
}

void check_tiles(const Draft& d) {
  for (const auto& [name, tile] : d.plan.tiles) {
    const auto loop = d.placement.find_loop(name);
    if (!loop) {
      std::vector<std::string> names;
      for (const Loop& l : d.w.loops()) names.push_back(l.name);
      d.bad("tiles", name, "is not a loop of the workload", join(names));
    }
    if (tile < 1 || tile > d.w.loop(*loop).extent)
      d.bad("tiles." + name, std::to_string(tile), "is not a tile of this loop",
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
  for (OpId op : d.k.ops)
    for (const Output& out : d.w.op(op).outputs)
      if (const TensorId t = out.target.tensor; d.spilled(t) || d.on_chip(t))
        r.pins[d.w.tensor(t).name].level = level_name(d, d.level_of(t));
  for (const auto& [t, at] : d.home_at) r.pins[d.w.tensor(t).name].at = at;
  for (const auto& [name, pin] : d.plan.pins) {
    Pin& kept = r.pins.try_emplace(name, pin).first->second;
    if (kept.level.empty()) kept.level = pin.level;  // there for its `at`
  }
  r.flags = d.plan.flags;
  r.launch = d.plan.launch;
  r.by = d.plan.by;
  return r;
}

/// Collects the operators that a tree computes, by name.
void computed_names(const Node& n, std::vector<std::string>& names) {
  if (n.kind == Node::Kind::compute) names.push_back(n.name);
  for (const Node& c : n.children) computed_names(c, names);
}

bool Placement::computes(int kernel, OpId op) const {
  return std::ranges::binary_search(kernels_of[op.index()], kernel);
}

/// Collects the tensors that a kernel says it writes home: stored there, or spilled.
void stored_home(const Node& n, const std::string& home, std::set<std::string>& names) {
  if (n.kind == Node::Kind::store && (n.level.empty() || n.level == home)) names.insert(n.name);
  for (const Node& c : n.children) stored_home(c, home, names);
}

/// Of the kernels that compute `t`, the one that writes it home: the one that says so, else the
/// first.
int writer_of(const Workload& w, TensorId t, const std::vector<int>& kernels,
              const std::vector<std::set<std::string>>& stored) {
  int writer = -1;
  for (int k : kernels) {
    if (!stored[static_cast<std::size_t>(k)].contains(w.tensor(t).name)) continue;
    if (writer >= 0)
      throw InputError({.where = formatted("kernel {}", k + 1),
                        .field = "tensor",
                        .value = w.tensor(t).name,
                        .problem = formatted("is stored by kernel {} already", writer + 1),
                        .accepted = "one kernel that stores what several compute"});
    writer = k;
  }
  return writer >= 0 ? writer : kernels.front();
}

Placement place_operators(const Plan& plan, const Workload& w, const std::string& home) {
  Placement p(w);
  std::vector<std::set<std::string>> stored(plan.kernels.size());
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const Kernel& kernel = plan.kernels[i];
    std::vector<std::string> names;
    computed_names(kernel.tree, names);
    for (const std::string& name : names) {
      const auto op = p.find_op(name);
      if (!op) continue;  // bind_tree says which name and where
      std::vector<int>& kernels = p.kernels_of[op->index()];
      if (kernels.empty() || kernels.back() != static_cast<int>(i))
        kernels.push_back(static_cast<int>(i));
    }
    stored_home(kernel.tree, home, stored[i]);
    for (const auto& [name, pin] : kernel.pins)
      if (pin.level == home) stored[i].insert(name);
  }
  for (std::size_t i = 0; i < w.tensors().size(); ++i) {
    const TensorId t(i);
    const OpId producer = w.producer(t);
    if (!producer.valid() || p.kernels_of[producer.index()].empty()) continue;
    const bool needed = w.is_output(t) || std::ranges::any_of(w.consumers(t), [&](OpId c) {
                          return std::ranges::any_of(p.kernels_of[c.index()], [&](int k) {
                            return !p.computes(k, producer);
                          });
                        });
    const int writer = writer_of(w, t, p.kernels_of[producer.index()], stored);
    if (needed) p.written_by[i] = writer;
  }
  return p;
}

/// A kernel must have what its operator reads, and its results must be of use.
void check_operator(const Placement& p, const Workload& w, OpId op, int here) {
  const std::string& name = w.op(op).name;
  for (const Access& a : w.op(op).inputs) {
    const OpId producer = w.producer(a.tensor);
    if (!producer.valid() || p.computes(here, producer)) continue;
    const int writer = p.written_by[a.tensor.index()];
    if (writer > here)
      throw InputError(
          {.where = "plan",
           .field = "operator",
           .value = name,
           .problem = formatted("reads {} in kernel {}, before {} writes it in "
                                "kernel {}",
                                w.tensor(a.tensor).name, here + 1, w.op(producer).name, writer + 1),
           .accepted = "kernels in an order that keeps the data flow"});
  }
  const bool used = std::ranges::any_of(w.op(op).outputs, [&](const Output& out) {
    const auto readers = w.consumers(out.target.tensor);
    return p.written_by[out.target.tensor.index()] == here ||
           std::ranges::any_of(readers, [&](OpId c) { return p.computes(here, c); });
  });
  if (!used && p.kernels_of[op.index()].size() > 1)
    throw InputError({.where = formatted("kernel {}", here + 1),
                      .field = "operator",
                      .value = name,
                      .problem = "is computed there for nobody: no operator of that kernel reads "
                                 "its result, and another kernel writes it",
                      .accepted = "a kernel that reads or stores it"});
}

void check_placement(const Placement& p, const Workload& w) {
  for (OpId op : w.topological_order()) {
    if (p.kernels_of[op.index()].empty())
      throw InputError({.where = "plan",
                        .field = "operator",
                        .value = w.op(op).name,
                        .problem = "is computed by no kernel",
                        .accepted = "C." + w.op(op).name + " in one tree"});
    for (int here : p.kernels_of[op.index()]) check_operator(p, w, op, here);
  }
}

/// Names, cuts and ranges.
std::optional<Reason> begin(Draft& d) {
  check_tiles(d);
  bind_pins(d);
  bind_tree(d);
  if (auto reason = check_gathers(d)) return reason;
  return place_cuts(d);
}

std::optional<Reason> finish(Draft& d) {
  if (auto reason = place_packs(d)) return *reason;
  d.k.blocks = blocks_below(d.k, NodeId(0));
  if (auto reason = place_buffers(d)) return reason;
  if (auto reason = check_legal(d)) return reason;
  place_parts(d);
  return std::nullopt;
}

using Resolved = std::pair<ScheduledKernel, Kernel>;

Result<Resolved> finished(Draft& d) {
  if (auto reason = finish(d)) return Reason{formatted("{}: {}", d.k.name, reason->text)};
  Kernel resolved = resolved_kernel(d);
  d.clear();
  return Resolved{std::move(d.k), std::move(resolved)};
}

/// `fresh(slices)` is a draft of the kernel that nothing has been done to.
template <class Fresh>
Result<Resolved> kernel_of(const Fresh& fresh) {
  Draft d = fresh(Slices{});
  const auto failed = [](const Draft& of, const Reason& reason) {
    return Reason{formatted("{}: {}", of.k.name, reason.text)};
  };
  if (auto reason = begin(d)) return failed(d, *reason);
  // Ranges and neighbours are looked up along the operators: a unit of Effort for each, and more.
  constexpr std::size_t kLookedAt = 40;
  Effort::spend(static_cast<std::int64_t>(d.k.ops.size() * (1 + d.k.ops.size() / kLookedAt)));
  Slices slices = slices_of(d);
  if (slices.empty()) return finished(d);
  d.clear();
  Draft sliced = fresh(std::move(slices));
  if (auto reason = begin(sliced)) return failed(sliced, *reason);
  return finished(sliced);
}

}  // namespace resolving

std::optional<Unit> unit_of(Binding binding) {
  switch (binding) {
    case Binding::grid:
      return Unit::grid;
    case Binding::cluster:
      return Unit::cluster;
    case Binding::warp:
      return Unit::warp;
    case Binding::lane:
      return Unit::lane;
    case Binding::thread:
      return Unit::thread;
    case Binding::seq:
    case Binding::vector:
    case Binding::unroll:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string_view barrier_name(Unit scope) {
  return scope == Unit::machine ? "grid" : scope == Unit::grid ? "block" : "warp";
}

Result<Schedule> resolve(const Plan& plan, std::shared_ptr<const Workload> workload,
                         std::shared_ptr<const Machine> machine) {
  Schedule s{.workload = workload, .machine = machine};
  if (plan.kernels.empty())
    throw InputError({.where = "plan",
                      .field = "kernels",
                      .value = "none",
                      .problem = "leaves nothing to run",
                      .accepted = "one kernel or more"});
  const resolving::Placement placement =
      resolving::place_operators(plan, *workload, machine->level(machine->home()).name);
  resolving::Tables tables(*workload);
  std::vector<std::pair<ScheduledKernel, Kernel>> done;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    auto one = resolving::kernel_of([&](resolving::Slices slices) {
      resolving::Draft d{.w = *workload,
                         .m = *machine,
                         .schedule = s,
                         .plan = plan.kernels[i],
                         .index = static_cast<int>(i),
                         .where = formatted("kernel {}", i + 1),
                         .placement = placement,
                         .tables = tables,
                         .slices = std::move(slices)};
      d.k.launch = plan.kernels[i].launch;
      d.k.name = plan.kernels[i].name.empty() ? formatted("kernel{}", i + 1) : plan.kernels[i].name;
      return d;
    });
    if (!one) return Reason{one.reason()};
    done.push_back(std::move(one).value());
  }
  resolving::check_placement(placement, *workload);
  for (auto& [kernel, resolved] : done) {
    s.kernels.push_back(std::move(kernel));
    s.resolved.kernels.push_back(std::move(resolved));
  }
  return s;
}

}  // namespace tilewright
