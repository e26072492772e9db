// Expressions as plans and back, and the model's price of any plan.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include "core/base/format.h"
#include "core/plan/stream.h"
#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {

using detail::Around;
using detail::bit;
using detail::has;

namespace {

Node joined(std::vector<Node> parts) {
  return parts.size() == 1 ? std::move(parts.front()) : sequence(std::move(parts));
}

bool computes(const Node& node, const std::string& op) {
  return (node.kind == Node::Kind::compute && node.name == op) ||
         std::ranges::any_of(node.children, [&](const Node& c) { return computes(c, op); });
}

/// Out of a loop's body, the stores of tensors of which the loop makes a part an iteration and that
/// are read outside of it too: the notation stores a tile once it is whole.
std::vector<Node> later_stores(const Workload& w, LoopId loop, std::vector<Node>& body) {
  const auto waits = [&](const Node& node) {
    if (node.kind != Node::Kind::store) return false;
    const TensorId t = *w.find_tensor(node.name);
    const auto& outputs = w.op(w.producer(t)).outputs;
    const auto made =
        std::ranges::find_if(outputs, [t](const Output& o) { return o.target.tensor == t; });
    const bool indexed = std::ranges::any_of(made->target.index, [loop](const Affine& i) {
      return std::ranges::any_of(i.terms, [loop](const Term& x) { return x.loop == loop; });
    });
    return indexed && std::ranges::any_of(w.consumers(t), [&](OpId reader) {
             return std::ranges::none_of(
                 body, [&](const Node& n) { return computes(n, w.op(reader).name); });
           });
  };
  std::vector<bool> late;
  for (const Node& node : body) late.push_back(waits(node));
  std::vector<Node> kept, later;
  for (std::size_t i = 0; i < body.size(); ++i)
    (late[i] ? later : kept).push_back(std::move(body[i]));
  body = std::move(kept);
  return later;
}

/// Items as nodes of a plan's tree, loops of one trip left out.
std::vector<Node> nodes_of(const Workload& w, const std::vector<Item>& items, Mask once) {
  std::vector<Node> out;
  for (const Item& item : items) {
    if (item.loop.valid()) {
      std::vector<Node> body = nodes_of(w, item.body, once);
      if (has(once, item.loop)) {
        std::ranges::move(body, std::back_inserter(out));
        continue;
      }
      std::vector<Node> later = later_stores(w, item.loop, body);
      out.push_back(loop(w.loop(item.loop).name, joined(std::move(body)), 0,
                         item.bound ? Binding::grid : Binding::seq));
      std::ranges::move(later, std::back_inserter(out));
    } else if (item.kind == Kind::compute) {
      out.push_back(compute(w.op(item.op).name));
    } else if (item.kind == Kind::load) {
      out.push_back(load(w.tensor(item.tensor).name));
    } else {
      out.push_back(store(w.tensor(item.tensor).name));
    }
  }
  return out;
}

/// Loops with several trips around computes, as text; batch loops left out. `marks`: those bound to
/// blocks are marked.
std::string loops_text(const Chain& c, const Node& node, bool marks) {
  std::string out;
  const auto children = [&] {
    std::string text;
    for (const Node& child : node.children) text += loops_text(c, child, marks);
    return text;
  };
  switch (node.kind) {
    case Node::Kind::loop: {
      const auto l = c.workload->find_loop(node.name);
      if (std::ranges::find(c.batch, *l) != c.batch.end()) return children();
      return node.name + (marks && node.binding == Binding::grid ? "@(" : "(") + children() + ")";
    }
    case Node::Kind::sequence:
    case Node::Kind::pack:
      return children();
    case Node::Kind::compute:
      return node.name + " ";
    default:
      return "";
  }
}

std::string loops_text(const Chain& c, const SubExpression& s, Mask once, bool marks) {
  return loops_text(
      c, joined(nodes_of(*c.workload, place(c, s, once, Hoist::dag, Stores::once), once)), marks);
}

/// The schedule's loops with several trips, likewise.
std::string loops_text(const Chain& c, const ScheduledKernel& k, NodeId id, bool marks) {
  const ScheduleNode& n = k.node(id);
  std::string inside;
  if (n.kind == NodeKind::compute) return c.workload->op(n.op).name + " ";
  for (NodeId child : n.children) inside += loops_text(c, k, child, marks);
  if (n.kind != NodeKind::loop || n.step >= c.workload->loop(n.loop).extent ||
      std::ranges::find(c.batch, n.loop) != c.batch.end())
    return inside;
  return c.workload->loop(n.loop).name + (marks && n.binding == Binding::grid ? "@(" : "(") +
         inside + ")";
}

// ---- The price of any schedule ------------------------------------------------------------------

class Walk {
 public:
  Walk(const Schedule& s, const ScheduledKernel& k, const Options& o, Price& out)
      : s_(s), k_(k), o_(o), out_(out) {}

  void run() {
    Ranges r = whole_ranges(s_, k_);
    for (const Inference& i : k_.node(NodeId(0)).infer) infer(s_, k_, i, r);
    whole_ = r;
    visit(NodeId(0), r);
  }
  double bytes() const { return bytes_; }

 private:
  struct Ring {
    LoopId loop;
    bool bound;
    double trips;
    Ranges inside;  ///< the ranges in its first iteration
  };

  void visit(NodeId id, const Ranges& r) {
    for (NodeId child : k_.node(id).children) {
      const ScheduleNode& n = k_.node(child);
      if (n.kind == NodeKind::compute) {
        add(n);
      } else if (n.kind == NodeKind::loop) {
        Ranges inner = r;
        cut(k_, child, 0, r, inner);
        for (const Inference& i : n.infer) infer(s_, k_, i, inner);
        path_.push_back(
            {n.loop, n.binding == Binding::grid, static_cast<double>(trips(k_, child, r)), inner});
        visit(child, inner);
        path_.pop_back();
      } else {
        visit(child, r);
      }
    }
  }

  const Ranges& at(std::size_t depth) const {
    return depth == 0 ? whole_ : path_[depth - 1].inside;
  }

  double elements(OpId op, const Access& a, std::size_t depth) const {
    return static_cast<double>(
        footprint(*s_.workload, s_.workload->op(op), a, ranges_of(s_, k_, at(depth), op)).size());
  }

  /// Loops of the path that the DAG keeps.
  std::vector<std::size_t> kept() const {
    std::vector<std::size_t> out;
    const bool removes = o_.hoist == Hoist::dag || o_.hoist == Hoist::block;
    for (std::size_t i = 0; i < path_.size(); ++i)
      if (!removes || path_[i].trips > 1) out.push_back(i);
    return out;
  }

  /// Whether a loop moves the tile: it is in the access, or the tile is inferred from it.
  bool moves(OpId op, const Access& a, std::size_t i) const {
    for (const Affine& index : a.index)
      for (const Term& t : index.terms)
        if (t.loop == path_[i].loop) return true;
    return path_[i].trips > 1 && elements(op, a, i + 1) != elements(op, a, i);
  }

  void memory(Kind kind, OpId op, const Access& a) {
    const std::vector<std::size_t> live = kept();
    std::vector<Around> around;
    Mask indexed = 0, reduced = 0;  // by position in `around`
    for (std::size_t n = 0; n < live.size(); ++n) {
      const Ring& ring = path_[live[n]];
      around.push_back({LoopId(n), ring.bound});
      if (moves(op, a, live[n])) indexed |= bit(LoopId(n));
      if (s_.workload->is_reduction(op, ring.loop)) reduced |= bit(LoopId(n));
    }
    const std::size_t depth = detail::depth_of(kind, around, indexed, reduced, o_.hoist, o_.stores);
    StatementPrice one{.kind = kind,
                       .op = op,
                       .tensor = a.tensor,
                       .name = detail::statement_name(*s_.workload, kind, op, a.tensor),
                       .loops = {}};
    for (std::size_t n = 0; n < depth; ++n) {
      one.loops.push_back(path_[live[n]].loop);
      one.trips *= path_[live[n]].trips;
    }
    // Tiles of the loops below that move it come together; edge tiles count as full ones.
    one.amount = elements(op, a, path_.size());
    for (std::size_t n = depth; n < live.size(); ++n)
      if (has(indexed, LoopId(n))) one.amount *= path_[live[n]].trips;
    one.total =
        one.amount * one.trips * static_cast<double>(size_of(s_.workload->tensor(a.tensor).dtype));
    // Each pass over the tensor's part that the kernel touches, once.
    double passes = elements(op, a, 0);
    for (std::size_t n = 0; n < depth; ++n)
      if (!has(indexed, LoopId(n))) passes *= path_[live[n]].trips;
    one.true_edges = passes * static_cast<double>(size_of(s_.workload->tensor(a.tensor).dtype));
    bytes_ += one.total;
    out_.statements.push_back(std::move(one));
  }

  void add(const ScheduleNode& n) {
    const Workload& w = *s_.workload;
    const Operator& op = w.op(n.op);
    for (const InputUse& use : n.reads)
      if (k_.buffer(use.buffer).role != BufferRole::intermediate)
        memory(Kind::load, n.op, op.inputs[static_cast<std::size_t>(use.inputs.front())]);
    StatementPrice one{.kind = Kind::compute,
                       .op = n.op,
                       .tensor = TensorId(),
                       .name = detail::statement_name(w, Kind::compute, n.op, TensorId()),
                       .loops = {}};
    for (std::size_t i : kept()) {
      one.loops.push_back(path_[i].loop);
      one.trips *= path_[i].trips;
    }
    one.points = static_cast<double>(operations(s_, k_, n.op, at(path_.size())).value);
    one.amount = detail::flops_at_point(op, detail::is_product(w, n.op)) * one.points;
    one.total = one.amount * one.trips;
    out_.flops += one.total;
    out_.statements.push_back(std::move(one));
    for (const OutputUse& use : n.writes) {
      const Buffer& b = k_.buffer(use.buffer);
      if (b.role != BufferRole::intermediate || b.leaves)
        memory(Kind::store, n.op, op.outputs[static_cast<std::size_t>(use.output)].target);
    }
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Options& o_;
  Price& out_;
  Ranges whole_;
  std::vector<Ring> path_;
  double bytes_ = 0;
};

/// Eq. (1) of a kernel: the largest tile of each buffer at its level, as the readings have it.
std::int64_t estimate(const Schedule& s, const ScheduledKernel& k, const Price& p, Shared reading) {
  std::map<TensorId, double> tiles;
  for (const StatementPrice& one : p.statements)
    if (one.kind == Kind::load || (reading == Shared::all && one.kind == Kind::store)) {
      double& tile = tiles[one.tensor];
      tile = std::max(tile, one.amount);
    }
  double bytes = 0;
  for (const auto& [tensor, elements] : tiles)
    bytes += elements * static_cast<double>(size_of(s.workload->tensor(tensor).dtype));
  if (reading == Shared::all)
    for (const Buffer& b : k.buffers)
      if (b.role == BufferRole::intermediate && b.level == k.level) {
        const auto writer = std::ranges::find_if(k.nodes, [&](const ScheduleNode& n) {
          return n.kind == NodeKind::compute && n.op == s.workload->producer(b.tensor);
        });
        if (writer == k.nodes.end()) continue;
        // One tile, as the equation says: what its compute writes in the innermost iteration.
        Ranges r = whole_ranges(s, k);
        std::vector<NodeId> path;
        for (NodeId n(static_cast<std::size_t>(writer - k.nodes.begin())); n.valid();
             n = k.node(n).parent)
          path.insert(path.begin(), n);
        for (NodeId n : path) {
          if (k.node(n).kind == NodeKind::loop) {
            const Ranges around = r;
            cut(k, n, 0, around, r);
          }
          for (const Inference& i : k.node(n).infer) infer(s, k, i, r);
        }
        const auto& outputs = s.workload->op(writer->op).outputs;
        for (std::size_t o = 0; o < outputs.size(); ++o)
          if (outputs[o].target.tensor == b.tensor)
            bytes +=
                static_cast<double>(write_box(s, k, writer->op, static_cast<int>(o), r).size() *
                                    size_of(s.workload->tensor(b.tensor).dtype));
      }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

Result<Price> price(const Schedule& s, const Device& d, const Options& o) {
  for (OpId op : s.workload->topological_order())
    if (s.workload->gathers(op))
      return Reason{formatted("MCFuser prices tiles: {} reads by another tensor's values",
                              s.workload->op(op).name)};
  Price total;
  double bytes = 0;
  for (const ScheduledKernel& k : s.kernels) {
    Price one;
    Walk walk(s, k, o, one);
    walk.run();
    Quick& q = one.time;
    q.blocks = k.blocks;
    q.memory_seconds = walk.bytes() / d.bandwidth;
    q.compute_seconds = one.flops / d.peak;
    const double blocks = static_cast<double>(k.blocks);
    q.slowdown = (blocks + static_cast<double>(d.units)) / blocks;
    q.seconds = (q.memory_seconds + q.compute_seconds) * q.slowdown;
    one.memory = Bytes(estimate(s, k, one, o.shared));
    if (total.statements.empty()) {
      total.time = q;
    } else {
      total.time.seconds += q.seconds;
      total.time.memory_seconds += q.memory_seconds;
      total.time.compute_seconds += q.compute_seconds;
      total.time.blocks = std::max(total.time.blocks, q.blocks);
      total.time.slowdown = std::max(total.time.slowdown, q.slowdown);
    }
    total.flops += one.flops;
    bytes += walk.bytes();
    total.memory = std::max(total.memory, one.memory);
    std::ranges::move(one.statements, std::back_inserter(total.statements));
  }
  if (bytes > 9e18) return Reason{"the plan's bytes leave 64 bits"};
  total.bytes = Bytes(static_cast<std::int64_t>(bytes));
  return total;
}

Plan plan_of(const Chain& c, const SubExpression& s, const Tiles& tiles, const Machine& m,
             LevelId level, const Options& o) {
  const Workload& w = *c.workload;
  const Mask once = detail::once_at(c, tiles);
  const Hoist hoist = o.hoist == Hoist::dag ? Hoist::block : o.hoist;
  Node tree = joined(nodes_of(w, place(c, s, once, hoist, o.stores), once));
  Kernel k{.name = "fused", .level = m.level(level).name};
  for (LoopId l : c.dims)
    if (!has(once, l)) k.tiles[w.loop(l).name] = tiles[l.index()];
  for (auto l = c.batch.rbegin(); l != c.batch.rend(); ++l)
    tree = loop(w.loop(*l).name, std::move(tree), 1, Binding::grid);
  k.tree = std::move(tree);
  return {.kernels = {std::move(k)}};
}

Result<Reading> expression_of(const Chain& c, const Schedule& s) {
  constexpr const char* kNone = "no tiling expression describes this plan: ";
  if (s.kernels.size() != 1) return Reason{kNone + std::string("it has several kernels")};
  const ScheduledKernel& k = s.kernels.front();
  if (k.ops.size() != c.workload->operators().size())
    return Reason{kNone + std::string("its kernel has not every operator")};
  Reading out;
  for (const Loop& l : c.workload->loops()) out.tiles.push_back(l.extent);
  for (LoopId l : c.batch) out.tiles[l.index()] = 1;
  Mask cut_once = 0;
  for (const ScheduleNode& n : k.nodes) {
    if (n.kind != NodeKind::loop) continue;
    const std::int64_t step = std::min(n.step, c.workload->loop(n.loop).extent);
    if (has(cut_once, n.loop) && out.tiles[n.loop.index()] != step)
      return Reason{kNone +
                    formatted("loop {} is cut by several steps", c.workload->loop(n.loop).name)};
    cut_once |= bit(n.loop);
    out.tiles[n.loop.index()] = step;
  }
  const Mask once = detail::once_at(c, out.tiles);
  // Where a loop makes one trip several expressions are the same: rather one that rule 2 keeps.
  std::vector<Expression> all = all_expressions(c);
  std::stable_partition(all.begin(), all.end(), [&](const Expression& e) {
    return !overwhelms(c, sub_expression(c, e, Blocks::between));
  });
  // Bindings as plan_of gives them first, then whatever they are.
  for (bool marks : {true, false}) {
    const std::string text = loops_text(c, k, NodeId(0), marks);
    for (int variant = 0; variant < 3; ++variant)
      for (const Expression& e : all) {
        const SubExpression sub = variant == 0   ? sub_expression(c, e, Blocks::between)
                                  : variant == 1 ? sub_expression(c, e, Blocks::always)
                                                 : SubExpression{{}, e};
        if (loops_text(c, sub, once, marks) != text) continue;
        out.expression = e;
        return out;
      }
  }
  return Reason{kNone + std::string("no nest or sequence of the loops has this tree")};
}

namespace {

/// No more than memory_use of the candidate's plan: the tiles of one operator, as loops cut them.
Bytes least_held(const Chain& c, const Tiles& tiles) {
  const Workload& w = *c.workload;
  const auto size = [&](LoopId l) {
    const bool batch = std::ranges::find(c.batch, l) != c.batch.end();
    return batch ? std::int64_t{1} : std::min(tiles[l.index()], w.loop(l).extent);
  };
  Bytes most(0);
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    std::vector<Interval> ranges;
    for (LoopId l : w.op(OpId(i)).loops) ranges.push_back({0, size(l)});
    most = std::max(most, touched_bytes(w, OpId(i), ranges));
  }
  return most;
}

}  // namespace

std::vector<Ranked> ranked_plans(const Chain& c, const Machine& m, LevelId level, const Device& d,
                                 const Options& o, const Found& found, std::size_t count,
                                 const Accepts& accepts) {
  const auto machine = std::make_shared<const Machine>(m);
  std::vector<Ranked> out;
  for (std::size_t i = 0; i < found.best.size() && out.size() < count; ++i) {
    const Candidate& one = found.best[i];
    if (least_held(c, one.tiles) > d.shared) continue;
    Plan plan = plan_of(c, one.group->sub, one.tiles, m, level, o);
    if (std::ranges::find(out, plan, &Ranked::plan) != out.end()) continue;
    const Result<Schedule> schedule = resolve(plan, c.workload, machine);
    if (!schedule) continue;
    const auto used = memory_use(*schedule);
    const auto at = used.find(m.level(level).name);
    if (at != used.end() && at->second > d.shared) continue;
    if (accepts && !accepts(*schedule)) continue;
    out.push_back({one, std::move(plan), static_cast<std::int64_t>(i)});
  }
  return out;
}

Result<BestPlan> best_plan(const Chain& c, const Machine& m, LevelId level, const Device& d,
                           const Options& o, const std::optional<Evolution>& evolution,
                           const std::optional<Expression>& only, const Accepts& accepts) {
  const auto start = std::chrono::steady_clock::now();
  Result<Space> space = space_of(c, d, o);
  if (!space) return Reason{space.reason()};
  BestPlan out;
  out.space = std::make_shared<const Space>(only ? narrowed(c, std::move(space).value(), *only, o)
                                                 : std::move(space).value());
  for (std::size_t keep : {std::size_t{32}, std::size_t{2048}, std::size_t{1} << 16}) {
    Result<Found> found =
        evolution ? evolve(c, *out.space, d, o, *evolution) : search_all(c, *out.space, d, o, keep);
    if (!found) return Reason{found.reason()};
    out.found = std::move(found).value();
    std::vector<Ranked> first = ranked_plans(c, m, level, d, o, out.found, 1, accepts);
    if (!first.empty()) {
      out.chosen = std::move(first.front().candidate);
      out.plan = std::move(first.front().plan);
      out.overflowed = first.front().before;
      out.found.seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      return out;
    }
    if (evolution || out.found.best.size() < keep) break;
  }
  return Reason{formatted("none of the {} fastest candidates has a plan that fits {} bytes of {}{}",
                          out.found.best.size(), d.shared.value, m.level(level).name,
                          accepts ? " and that the target takes" : "")};
}

}  // namespace tilewright::mcfuser
