// What makes a plan illegal, with the reason (plan.md rules 3, 7 and 12).
#include <algorithm>

#include "core/base/format.h"
#include "core/plan/dependence.h"
#include "core/plan/resolver.h"
#include "core/workload/access.h"

namespace tilewright::resolving {

namespace {

/// Loop nodes around `n`, innermost first, up to but without `stop`.
std::vector<NodeId> loops_around(const Draft& d, NodeId n, NodeId stop = NodeId()) {
  std::vector<NodeId> loops;
  for (NodeId p = d.node(n).parent; p.valid() && p != stop; p = d.node(p).parent)
    if (d.node(p).kind == NodeKind::loop) loops.push_back(p);
  return loops;
}

bool cuts_reduction(const Draft& d, NodeId loop, OpId op) {
  const ScheduleNode& n = d.node(loop);
  return d.w.is_reduction(op, n.loop) && n.max_trips > 1 &&
         d.inside(d.compute_of[op.index()], loop);
}

std::optional<Reason> check_order(const Draft& d, OpId producer, OpId consumer, TensorId t) {
  const NodeId made = d.compute_of[producer.index()];
  const NodeId used = d.compute_of[consumer.index()];
  const std::string& p = d.w.op(producer).name;
  const std::string& c = d.w.op(consumer).name;
  if (used < made)
    return Reason{formatted("{} reads {} before {} has computed it", c, d.w.tensor(t).name, p)};
  if (d.w.op(producer).running) return std::nullopt;
  for (NodeId loop : loops_around(d, used))
    if (d.inside(made, loop) && cuts_reduction(d, loop, producer))
      return Reason{formatted("{} is inside {}, a reduction loop of {}, whose result it reads", c,
                              d.w.loop(d.node(loop).loop).name, p)};
  return std::nullopt;
}

std::optional<Reason> check_orders(const Draft& d) {
  for (OpId op : d.k.ops)
    for (const Output& out : d.w.op(op).outputs)
      for (OpId consumer : d.w.consumers(out.target.tensor))
        if (d.computed_here(consumer))
          if (auto reason = check_order(d, op, consumer, out.target.tensor)) return reason;
  return std::nullopt;
}

/// What node `reader` takes from a buffer must have come there by then: from the tensor's producer,
/// or by a store from within.
std::optional<Reason> check_made(const Draft& d, NodeId reader, TensorId t, BufferId from) {
  if (!d.computed_here(d.w.producer(t))) return std::nullopt;
  NodeId last = d.compute_of[d.w.producer(t).index()];
  for (BufferId b : d.chain[t.index()])
    if (const Buffer& inner = d.k.buffer(b); inner.outer == from && inner.store.valid())
      last = std::max(last, inner.store);
  if (reader < last) return Reason{d.w.tensor(t).name + " is read before it is there"};
  return std::nullopt;
}

std::optional<Reason> check_made(const Draft& d) {
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    const NodeId id(i);
    const ScheduleNode& n = d.k.nodes[i];
    if (n.kind == NodeKind::load) {
      std::vector<BufferId> from;
      if (n.flush.valid()) from.push_back(n.flush);
      for (BufferId b = d.k.buffer(n.buffer).outer; b.valid(); b = d.k.buffer(b).outer)
        if (d.k.buffer(b).role == BufferRole::intermediate) from.push_back(b);
      for (BufferId b : from)
        if (auto reason = check_made(d, id, n.tensor, b)) return reason;
    }
    for (const InputUse& use : n.reads)
      if (use.buffer.valid() && d.k.buffer(use.buffer).role == BufferRole::intermediate)
        if (auto reason = check_made(d, id, use.tensor, use.buffer)) return reason;
  }
  return std::nullopt;
}

/// The tensor dimensions that a loop cuts through an access, with the step.
std::vector<int> dimensions_cut(const Draft& d, NodeId loop, const Access& a) {
  std::vector<int> dims;
  for (std::size_t i = 0; i < a.index.size(); ++i)
    for (const Term& t : a.index[i].terms)
      if (t.loop == d.node(loop).loop) dims.push_back(static_cast<int>(i));
  return dims;
}

/// An intermediate's tile is all that its readers need. Within a loop each of whose iterations
/// makes a part of it, a store would write what is not made yet.
std::optional<Reason> check_whole(const Draft& d, NodeId store) {
  const ScheduleNode& n = d.node(store);
  const Buffer& b = d.k.buffer(n.buffer);
  if (b.role != BufferRole::intermediate) return std::nullopt;
  const auto& outputs = d.w.op(n.op).outputs;
  const Access& made = std::ranges::find_if(outputs, [&](const Output& o) {
                         return o.target.tensor == n.tensor;
                       })->target;
  for (NodeId loop : loops_around(d, store, b.fixed_at)) {
    const std::string& name = d.w.tensor(n.tensor).name;
    if (d.node(loop).max_trips > 1 && !dimensions_cut(d, loop, made).empty())
      return Reason{
          formatted("S.{} is inside {}, each of whose iterations makes a part of the tile "
                    "that {}'s readers share: S.{} after that loop stores it once",
                    name, d.w.loop(d.node(loop).loop).name, name, name)};
  }
  return std::nullopt;
}

/// A store must follow what it stores, in parentheses that hold it.
std::optional<Reason> check_stores(const Draft& d) {
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    const ScheduleNode& n = d.k.nodes[i];
    if (n.kind != NodeKind::store) continue;
    const std::string& name = d.w.tensor(n.tensor).name;
    const NodeId compute = d.compute_of[n.op.index()];
    if (NodeId(i) < compute || !d.inside(compute, d.body_of(NodeId(i))))
      return Reason{formatted("S.{} does not follow C.{} in parentheses around both", name,
                              d.w.op(n.op).name)};
    if (auto reason = check_whole(d, NodeId(i))) return reason;
    const auto& chain = d.chain[n.tensor.index()];
    const auto at = std::ranges::find(chain, n.buffer);
    if (at == chain.begin()) continue;
    const NodeId inner = d.k.buffer(*(at - 1)).store;
    if (NodeId(i) < inner || !d.inside(inner, d.body_of(NodeId(i))))
      return Reason{
          formatted("the outer S.{} does not follow the inner one in parentheses around "
                    "both",
                    name)};
  }
  return std::nullopt;
}

/// The ranges at a node: of each loop around it the iteration that `pick` says.
template <class Pick>
Ranges ranges_at(const Draft& d, NodeId n, const Pick& pick) {
  std::vector<NodeId> path;
  for (NodeId p = n; p.valid(); p = d.node(p).parent) path.insert(path.begin(), p);
  Ranges r = whole_ranges(d.schedule, d.k);
  for (NodeId id : path) {
    if (d.node(id).kind == NodeKind::loop) {
      const Ranges around = r;
      cut(d.k, id, pick(id, trips(d.k, id, around)), around, r);
    }
    for (const Inference& i : d.node(id).infer) infer(d.schedule, d.k, i, r, nullptr);
  }
  return r;
}

/// Loops below the place of a buffer around its maker and a reader, each of whose iterations makes
/// a part of it, outermost first. Those over units are check_private()'s and the barriers'.
std::vector<NodeId> loops_that_make(const Draft& d, NodeId maker, NodeId reader, const Buffer& b,
                                    const Access& made) {
  std::vector<NodeId> loops;
  for (NodeId l : loops_around(d, reader, b.fixed_at))
    if (d.inside(maker, l) && !unit_of(d.node(l).binding) && d.node(l).max_trips > 1 &&
        !dimensions_cut(d, l, made).empty())
      loops.insert(loops.begin(), l);
  return loops;
}

/// The loop whose iterations have not made yet what the reader takes; none: all is there. Looked at
/// in the first and in a middle iteration of those loops.
NodeId reads_ahead(const Draft& d, const OutputUse& out, NodeId reader, int input,
                   const std::vector<NodeId>& loops, const Access& made) {
  const OpId producer = d.w.producer(out.tensor);
  const NodeId maker = d.compute_of[producer.index()];
  const Operator& op = d.w.op(d.node(reader).op);
  for (const bool middle : {false, true}) {
    const auto boxes = [&](bool last) {
      const auto pick = [&](NodeId loop, std::int64_t count) -> std::int64_t {
        if (std::ranges::find(loops, loop) != loops.end()) return middle ? count / 2 : 0;
        return last && !(d.inside(maker, loop) && d.inside(reader, loop))
                   ? std::max<std::int64_t>(count - 1, 0)
                   : 0;
      };
      const Ranges at_maker = ranges_at(d, maker, pick), at_reader = ranges_at(d, reader, pick);
      return std::pair(write_box(d.schedule, d.k, producer, out.output, at_maker),
                       footprint(d.w, op, op.inputs[static_cast<std::size_t>(input)],
                                 ranges_of(d.schedule, d.k, at_reader, d.node(reader).op)));
    };
    const auto [made_first, read_first] = boxes(false);
    const auto [made_last, read_last] = boxes(true);
    const Box there = hull(made_first, made_last), taken = hull(read_first, read_last);
    if (there.empty() || taken.empty()) continue;
    for (NodeId loop : loops) {
      const std::vector<int> dims = dimensions_cut(d, loop, made);
      if (std::ranges::any_of(dims, [&](int i) { return taken[i].hi <= there[i].lo; })) break;
      if (std::ranges::any_of(dims, [&](int i) { return taken[i].hi > there[i].hi; })) return loop;
    }
  }
  return {};
}

/// A reader must not run ahead of what the loops around it and the maker have made so far.
std::optional<Reason> check_ahead(const Draft& d) {
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i)
    for (const InputUse& use : d.k.nodes[i].reads) {
      if (!use.buffer.valid()) continue;
      const OpId producer = d.w.producer(use.tensor);
      if (!d.computed_here(producer)) continue;
      const NodeId maker = d.compute_of[producer.index()];
      const auto& writes = d.node(maker).writes;
      // What is spilled is read through another buffer than it is written through.
      const BufferRole role = d.k.buffer(use.buffer).role;
      const bool spilled = role == BufferRole::input;
      if (!spilled && role != BufferRole::intermediate) continue;
      const auto out = std::ranges::find_if(writes, [&](const OutputUse& w) {
        return spilled ? w.tensor == use.tensor : w.buffer == use.buffer;
      });
      if (out == writes.end()) continue;
      const Access& made = d.w.op(producer).outputs[static_cast<std::size_t>(out->output)].target;
      const auto loops = loops_that_make(d, maker, NodeId(i), d.k.buffer(use.buffer), made);
      if (loops.empty()) continue;
      for (int input : use.inputs)
        if (const NodeId loop = reads_ahead(d, *out, NodeId(i), input, loops, made); loop.valid())
          return Reason{
              formatted("{} reads {} further along {} than that loop has made it by then: "
                        "C.{} before that loop makes all of it",
                        d.w.op(d.k.nodes[i].op).name, d.w.tensor(use.tensor).name,
                        d.w.loop(d.node(loop).loop).name, d.w.op(producer).name)};
    }
  return std::nullopt;
}

bool stores_inside(const Draft& d, const OutputUse& out, NodeId loop) {
  return std::ranges::any_of(d.chain[out.tensor.index()], [&](BufferId b) {
    const NodeId store = d.k.buffer(b).store;
    return store.valid() && d.inside(store, loop);
  });
}

/// Rule 12: a reduction over blocks needs !atomic, and each block's partial is written once.
std::optional<Reason> check_grid_reductions(const Draft& d) {
  for (OpId op : d.k.ops) {
    const NodeId compute = d.compute_of[op.index()];
    for (const OutputUse& out : d.node(compute).writes) {
      const std::string& name = d.w.tensor(out.tensor).name;
      const NodeId store = d.k.buffer(d.chain[out.tensor.index()].back()).store;
      for (NodeId loop : loops_around(d, compute)) {
        if (!cuts_reduction(d, loop, op)) continue;
        const ScheduleNode& n = d.node(loop);
        if (n.binding == Binding::grid && !out.atomic)
          return Reason{formatted("{} reduces {} over blocks: S.{}!atomic is needed",
                                  d.w.loop(n.loop).name, name, name)};
        if (!out.atomic && n.binding != Binding::grid && unit_of(n.binding) &&
            stores_inside(d, out, loop))
          return Reason{
              formatted("S.{} is inside {}@{}, over whose units it is reduced: what each of "
                        "them has is a part of it",
                        name, d.w.loop(n.loop).name, name_of(n.binding))};
        if (out.atomic && n.binding != Binding::grid && d.inside(store, loop))
          return Reason{
              formatted("S.{}!atomic is inside {}, so that a block would write its "
                        "partial result more than once",
                        name, d.w.loop(n.loop).name)};
      }
      if (out.atomic && d.consumed_here(out.tensor) && d.on_chip(out.tensor))
        return Reason{formatted("{} is combined over blocks and read in the same kernel", name)};
    }
  }
  return std::nullopt;
}

/// Unit-bound loops around `n` and below `place` to whose units `level` is private.
std::vector<NodeId> private_loops(const Draft& d, NodeId n, NodeId place, LevelId level) {
  std::vector<NodeId> loops;
  const Unit owner = d.m.level(level).private_to;
  for (NodeId l : loops_around(d, n, place)) {
    const auto unit = unit_of(d.node(l).binding);
    if (unit && *unit <= owner) loops.push_back(l);
  }
  return loops;
}

/// Rule 7: what lies in a unit's own memory is consumed by the unit that made it.
std::optional<Reason> check_private(const Draft& d) {
  for (const Buffer& b : d.k.buffers) {
    if (b.role != BufferRole::intermediate) continue;
    const OpId producer = d.w.producer(b.tensor);
    const auto& outputs = d.w.op(producer).outputs;
    const Access& made = std::ranges::find_if(outputs, [&](const Output& o) {
                           return o.target.tensor == b.tensor;
                         })->target;
    // A reduction over the units is combined and known to all of them.
    std::vector<NodeId> makers;
    for (NodeId l : private_loops(d, d.compute_of[producer.index()], b.fixed_at, b.level))
      if (!dimensions_cut(d, l, made).empty()) makers.push_back(l);
    for (const ReadRef& r : d.reads_inside(b.tensor, NodeId(0))) {
      const Access& read = d.w.op(r.op).inputs[static_cast<std::size_t>(r.input)];
      std::vector<NodeId> users;
      for (NodeId l : private_loops(d, d.compute_of[r.op.index()], b.fixed_at, b.level))
        if (!dimensions_cut(d, l, read).empty()) users.push_back(l);
      const bool same = std::ranges::equal(makers, users, [&](NodeId x, NodeId y) {
        return d.node(x).binding == d.node(y).binding && d.node(x).step == d.node(y).step &&
               dimensions_cut(d, x, made) == dimensions_cut(d, y, read);
      });
      if (!makers.empty() && !same)
        return Reason{
            formatted("{} lies in memory of the unit that makes it at {}, and {} reads it "
                      "on another: pin it to a shared level",
                      d.w.tensor(b.tensor).name, d.m.level(b.level).name, d.w.op(r.op).name)};
    }
  }
  return std::nullopt;
}

/// Blocks that wait for one another run at the same time, as many on a unit as it has places for.
/// Whether their tiles fit together is for misfit() to say.
std::optional<Reason> check_co_residence(const Draft& d) {
  if (!d.k.co_resident) return std::nullopt;
  std::int64_t places = 1;
  for (const ComputeUnit& u : d.m.units) places = std::max(places, u.blocks);
  for (const Level& l : d.m.levels)
    if (l.private_to == Unit::grid && l.instances * places < d.k.blocks)
      return Reason{
          formatted("Y.grid needs all {} blocks resident, and {} has {} {} with room for "
                    "{} {}",
                    d.k.blocks, d.m.name, l.instances, l.name, places,
                    places == 1 ? "block each" : "blocks each")};
  return std::nullopt;
}

}  // namespace

namespace {

std::optional<Reason> check_gather(const Draft& d, const Operator& op, const Access& a) {
  const std::string& name = d.w.tensor(a.tensor).name;
  const OpId producer = d.w.producer(a.tensor);
  if (d.computed_here(producer))
    return Reason{
        formatted("{} reads {} by another tensor's values, and this kernel makes {}: which "
                  "part must be made first is not known",
                  op.name, name, name)};
  // Counted for every compute anew.
  constexpr double kMostSteps = 1e6;
  if (most_steps_of_points_named(d.w, op, a) > kMostSteps)
    return Reason{
        formatted("{} reads {} by another tensor's values and beyond its edges, by indices of so "
                  "many long loops together that how much this moves takes too long to count",
                  op.name, name)};
  const auto pin = d.plan.pins.find(name);
  if (pin != d.plan.pins.end() && !pin->second.level.empty() &&
      d.reads_inside(a.tensor, NodeId(0)).empty())
    return Reason{
        formatted("{} is pinned to {}, and {} reads it by another tensor's values, at home", name,
                  pin->second.level, op.name)};
  return std::nullopt;
}

}  // namespace

/// What is indexed by values is an input of the kernel, and stays at home.
std::optional<Reason> check_gathers(const Draft& d) {
  for (OpId op : d.k.ops)
    for (const Access& a : d.w.op(op).inputs)
      if (is_gather(a))
        if (auto reason = check_gather(d, d.w.op(op), a)) return reason;
  return std::nullopt;
}

std::optional<Reason> check_barriers(const Draft& d) {
  return tilewright::check_barriers(d.schedule, d.k);
}

std::optional<Reason> check_legal(const Draft& d) {
  for (const auto check :
       {check_orders, check_made, check_running, check_stores, check_ahead, check_grid_reductions,
        check_private, check_barriers, check_co_residence})
    if (auto reason = check(d)) return reason;
  return std::nullopt;
}

}  // namespace tilewright::resolving
