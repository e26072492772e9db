// Which buffer holds what, and where each is fixed (plan.md rules 4 to 7 and 11).
#include <algorithm>
#include <optional>

#include "core/base/format.h"
#include "core/plan/resolver.h"

namespace tilewright::resolving {

namespace {

/// Levels on the way from home to `level`, home first, `level` itself last.
std::vector<LevelId> way_to(const Machine& m, LevelId level) {
  std::vector<LevelId> way{m.home()};
  for (const auto& [from, to] : m.path(m.home(), level)) way.push_back(to);
  return way;
}

/// An output's chain of buffers, inner first: its own level, then every level that it is stored to.
std::optional<Reason> add_chain(Draft& d, TensorId t) {
  const std::string& name = d.w.tensor(t).name;
  const bool on_chip = d.on_chip(t) || d.dropped(t);
  const LevelId pinned = d.level_of(t);
  const LevelId inner = pinned == d.m.home() ? d.k.level : pinned;
  std::vector<LevelId> levels{inner};
  const auto stores = d.stores_of.find(t);
  for (NodeId s : stores == d.stores_of.end() ? std::vector<NodeId>() : stores->second) {
    const ScheduleNode& n = d.node(s);
    if (n.level == d.m.home()) continue;
    if (std::ranges::find(levels, n.level) != levels.end())
      return Reason{formatted("{} is stored to {} twice, or to the level where it is", name,
                              d.m.level(n.level).name)};
    if (d.m.path(inner, n.level).empty())
      return Reason{formatted("{} has no path from {} to {}", name, d.m.level(inner).name,
                              d.m.level(n.level).name)};
    levels.push_back(n.level);
  }
  std::ranges::sort(levels, {}, [&](LevelId l) { return d.m.path(inner, l).size(); });

  auto& chain = d.chain[t.index()];
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool last = i + 1 == levels.size();
    const BufferId id(d.k.buffers.size());
    Buffer b{.tensor = t, .level = levels[i]};
    b.role = on_chip && last ? BufferRole::intermediate : BufferRole::output;
    b.outer = last ? BufferId() : BufferId(id.index() + 1);
    b.outer_level = last ? d.m.home() : levels[i + 1];
    b.leaves = on_chip && d.leaves(t);
    b.sliding = d.sliding[t];
    d.k.buffers.push_back(b);
    chain.push_back(id);
  }
  return std::nullopt;
}

std::optional<Reason> bind_store(Draft& d, NodeId id) {
  ScheduleNode& n = d.node(id);
  const std::string& name = d.w.tensor(n.tensor).name;
  const auto& chain = d.chain[n.tensor.index()];
  if (chain.empty())
    d.bad("S." + name, d.w.tensor(n.tensor).name, "is not computed in this kernel",
          "a tensor that a C in the same tree writes");
  for (BufferId b : chain) {
    Buffer& buffer = d.k.buffers[b.index()];
    if (buffer.outer_level != n.level) continue;
    if (buffer.role == BufferRole::intermediate && !buffer.leaves)
      return Reason{formatted("{} is an on-chip intermediate: pin it to {} to spill it", name,
                              d.m.level(d.m.home()).name)};
    if (buffer.store.valid())
      return Reason{formatted("{} is stored to {} twice", name, d.m.level(n.level).name)};
    n.buffer = b;
    buffer.store = id;
    buffer.atomic = n.atomic;
    if (buffer.role == BufferRole::output) buffer.fixed_at = d.body_of(id);
    return std::nullopt;
  }
  return Reason{formatted("{} is stored to {}, where no inner buffer of it goes", name,
                          d.m.level(n.level).name)};
}

/// The body from which on an intermediate keeps its region: inferred, or the pinned loop's.
NodeId region_body(const Draft& d, TensorId t) {
  const NodeId inferred = d.home_body[t.index()];
  const auto at = d.home_at.find(t);
  if (at == d.home_at.end()) return inferred;
  for (NodeId n = inferred; n.valid(); n = d.node(n).parent)
    if (d.node(n).kind == NodeKind::loop && d.w.loop(d.node(n).loop).name == at->second) return n;
  d.bad("pins." + d.w.tensor(t).name + ".at", at->second,
        "is not a loop around its producer and all its consumers", "such a loop, or no `at`");
}

/// Where units of a block reduce an output together, its tile is that of all of them (rule 12):
/// fixed outside the outermost of their loops. None: no unit-bound loop reduces it.
NodeId joined_at(const Draft& d, OpId producer) {
  NodeId outermost;
  for (NodeId n = d.compute_of[producer.index()]; n.valid(); n = d.node(n).parent) {
    const ScheduleNode& l = d.node(n);
    if (l.kind == NodeKind::loop && l.binding != Binding::grid && unit_of(l.binding) &&
        l.max_trips > 1 && d.w.is_reduction(producer, l.loop))
      outermost = n;
  }
  return outermost.valid() ? d.body_of(d.node(outermost).parent) : NodeId();
}

void fix_chain(Draft& d, TensorId t) {
  const auto& chain = d.chain[t.index()];
  const OpId producer = d.w.producer(t);
  const auto& outputs = d.w.op(producer).outputs;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    Buffer& b = d.k.buffers[chain[i].index()];
    // What several outputs are needed for decides together what is computed, and so written.
    const bool as_read = b.role == BufferRole::intermediate && !b.leaves && outputs.size() == 1;
    if (b.role == BufferRole::intermediate) b.fixed_at = region_body(d, t);
    if (as_read) b.reads = d.reads_inside(t, NodeId(0));
    if (!as_read) {
      if (!b.fixed_at.valid() && i == 0) b.fixed_at = joined_at(d, producer);
      // Without a store of its own, an outer buffer holds what the store into it brings.
      if (!b.fixed_at.valid() && i > 0) b.fixed_at = d.body_of(d.k.buffer(chain[i - 1]).store);
      for (std::size_t o = 0; o < outputs.size(); ++o)
        if (outputs[o].target.tensor == t) b.writes.emplace_back(producer, static_cast<int>(o));
    }
    if (!b.fixed_at.valid()) continue;
    std::vector<OpId> ops;
    for (const ReadRef& r : b.reads) ops.push_back(r.op);
    for (const auto& [op, output] : b.writes) ops.push_back(op);
    b.lookahead = d.lookahead(b.fixed_at, ops);
    d.node(b.fixed_at).fixes.push_back(chain[i]);
  }
}

/// Loads whose parentheses hold the compute (or load) `n` and come before it: they govern it.
std::vector<NodeId> governing(const Draft& d, TensorId t, NodeId n) {
  std::vector<NodeId> loads;
  const auto all = d.loads_of.find(t);
  if (all == d.loads_of.end()) return loads;
  for (NodeId l : all->second) {
    if (l >= n) break;
    if (d.inside(n, d.node(l).parent)) loads.push_back(l);
  }
  return loads;
}

/// The last of them that fills buffer `b`; none if there is no such load.
NodeId nearest_load(const Draft& d, const std::vector<NodeId>& loads, BufferId b) {
  NodeId nearest;
  for (NodeId l : loads)
    if (d.node(l).buffer == b) nearest = l;
  return nearest;
}

/// Of `candidates`, the one at the level nearest to the load's, and of equally near ones the one
/// furthest from home: on the level's way from home, or where another way leads from a tile that a
/// load around this one holds.
BufferId next_outer(const Draft& d, NodeId load, const std::vector<BufferId>& candidates) {
  if (candidates.empty()) return {};
  const ScheduleNode& n = d.node(load);
  std::optional<std::vector<LevelId>> way;
  const std::vector<NodeId> around = governing(d, n.tensor, load);
  BufferId best;
  std::pair<std::size_t, std::size_t> least;
  for (BufferId b : candidates) {
    const LevelId level = d.k.buffer(b).level;
    const auto steps = d.m.path(level, n.level);
    const bool inwards = std::ranges::all_of(steps, [&](const auto& step) {
      const auto& from = d.m.level(step.second).filled_by;
      return from.empty() ? step.first.index() + 1 == step.second.index()
                          : std::ranges::find(from, d.m.level(step.first).name) != from.end();
    });
    if (steps.empty() || !inwards) continue;
    if (!way) way = way_to(d.m, n.level);
    if (std::ranges::find(*way, level) == way->end() && !nearest_load(d, around, b).valid())
      continue;
    const std::pair far{steps.size(), d.m.levels.size() - d.m.path(d.m.home(), level).size()};
    if (best.valid() && far >= least) continue;
    best = b, least = far;
  }
  return best;
}

/// Whether a compute inside `scope` reads the tensor by another's values.
bool is_gathered_inside(const Draft& d, TensorId t, NodeId scope) {
  return std::ranges::any_of(d.k.ops, [&](OpId op) {
    return d.inside(d.compute_of[op.index()], scope) &&
           std::ranges::any_of(d.w.op(op).inputs,
                               [&](const Access& a) { return a.tensor == t && is_gather(a); });
  });
}

std::optional<Reason> place_load(Draft& d, NodeId id) {
  ScheduleNode& n = d.node(id);
  const std::string& name = d.w.tensor(n.tensor).name;
  const int slice = d.slice_of(n.buffer);
  n.reads_below = d.reads_inside(n.tensor, n.parent);
  std::erase_if(n.reads_below,
                [&](const ReadRef& r) { return d.slices.slice_of(n.tensor, r) != slice; });
  if (n.reads_below.empty() && is_gathered_inside(d, n.tensor, n.parent))
    return Reason{
        formatted("L.{}: {} is indexed by another tensor's values, so that no box of it "
                  "is known to load: it is read at home, element by element",
                  name, name)};
  if (n.reads_below.empty())
    return Reason{formatted("no compute in the parentheses of L.{} reads {}", name, name)};
  std::vector<OpId> ops;
  for (const ReadRef& r : n.reads_below) ops.push_back(r.op);
  n.lookahead = d.lookahead(n.parent, ops);

  std::vector<BufferId> outer = d.input_buffers[n.tensor.index()];
  std::erase_if(outer, [&](BufferId b) { return d.slice_of(b) != slice; });
  if (d.on_chip(n.tensor)) {
    const auto& chain = d.chain[n.tensor.index()];
    for (BufferId b : chain)
      if (d.k.buffer(b).level == n.level && d.k.buffer(b).role == BufferRole::intermediate)
        return Reason{formatted("{} is on chip at {} already: L.{} does nothing", name,
                                d.m.level(n.level).name, name)};
    outer.push_back(chain.back());
  }
  Buffer& b = d.k.buffers[n.buffer.index()];
  const BufferId from_before = b.outer;
  b.outer = next_outer(d, id, outer);
  if (!b.outer.valid() && d.on_chip(n.tensor)) b.outer = d.chain[n.tensor.index()].back();
  const auto& loads = d.loads_of.at(n.tensor);
  if (b.outer != from_before && std::ranges::any_of(loads, [&](NodeId l) {
        return l < id && d.node(l).buffer == n.buffer;
      })) {
    const auto at = [&](BufferId from) {
      return d.m.level(from.valid() ? d.k.buffer(from).level : d.m.home()).name;
    };
    return Reason{
        formatted("L.{} at {} reads {} here and {} in an earlier load; accepted: all loads of it "
                  "from one level",
                  name, d.m.level(n.level).name, at(b.outer), at(from_before))};
  }
  b.outer_level = b.outer.valid() ? d.k.buffer(b.outer).level : d.m.home();
  if (b.outer_level != d.m.home() && d.k.buffer(b.outer).role == BufferRole::input &&
      !nearest_load(d, governing(d, n.tensor, id), b.outer).valid())
    return Reason{formatted("L.{} at {} is outside what any load to {} holds", name,
                            d.m.level(n.level).name, d.m.level(b.outer_level).name)};
  if (d.m.path(b.outer_level, n.level).empty())
    return Reason{formatted("{} has no path from {} to {}", name, d.m.level(b.outer_level).name,
                            d.m.level(n.level).name)};
  if (d.spilled(n.tensor)) n.flush = d.chain[n.tensor.index()].front();
  return std::nullopt;
}

/// Whether one of these nodes (loads, drops) may have taken away what `load` brought by the time
/// that `n` uses it.
bool gone_between(const Draft& d, const std::vector<NodeId>& nodes, NodeId load, NodeId n) {
  for (auto at = std::ranges::upper_bound(nodes, load); at != nodes.end(); ++at) {
    const NodeId other = *at;
    if (!d.inside(other, d.node(load).parent)) break;
    if (d.node(other).buffer != d.node(load).buffer) continue;
    if (other < n) return true;
    for (NodeId p = d.node(other).parent; p != d.node(load).parent; p = d.node(p).parent)
      if (d.node(p).kind == NodeKind::loop && d.inside(n, p)) return true;
  }
  return false;
}

/// Of what a compute reads.
int slice_of(const Draft& d, NodeId compute, const InputUse& use) {
  return d.slices.slice_of(use.tensor, {d.node(compute).op, use.inputs.front()});
}

std::optional<Reason> place_input(Draft& d, NodeId id, InputUse& use) {
  const std::string& name = d.w.tensor(use.tensor).name;
  std::vector<NodeId> loads = governing(d, use.tensor, id);
  std::erase_if(loads,
                [&](NodeId l) { return d.slice_of(d.node(l).buffer) != slice_of(d, id, use); });
  std::size_t deepest = 0;
  for (NodeId l : loads) {
    const std::size_t depth = loads.size() == 1 ? 0 : d.m.path(d.m.home(), d.node(l).level).size();
    if (depth < deepest) continue;
    deepest = depth;
    use.buffer = d.node(l).buffer;
  }
  if (!use.buffer.valid() && d.on_chip(use.tensor)) use.buffer = d.chain[use.tensor.index()].back();
  if (!use.buffer.valid())
    return Reason{formatted("{} reads {} outside what any load of it holds",
                            d.w.op(d.node(id).op).name, name)};
  const NodeId load = nearest_load(d, loads, use.buffer);
  if (load.valid() && gone_between(d, d.loads_of.at(use.tensor), load, id))
    return Reason{formatted("{} reads {} after another load has replaced it",
                            d.w.op(d.node(id).op).name, name)};
  return std::nullopt;
}

/// Whose tile a drop empties: one that loads fill, and that nothing reads before the next load.
std::optional<Reason> place_drop(Draft& d, NodeId id) {
  ScheduleNode& n = d.node(id);
  const std::string what = "D." + d.w.tensor(n.tensor).name;
  const std::string& level = d.m.level(n.level).name;
  for (BufferId b : d.input_buffers[n.tensor.index()])
    if (d.k.buffer(b).level == n.level) n.buffer = b;
  if (!n.buffer.valid())
    return Reason{
        formatted("{}: no load brings it to {}, from where nothing else could be dropped: "
                  "what is computed goes home by S",
                  what, level)};
  const std::vector<NodeId> here = unit_loops(d.schedule, d.k, id, n.level);
  n.all_units = here.empty();
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    const ScheduleNode& other = d.k.nodes[i];
    if (other.kind == NodeKind::load && other.buffer == n.buffer && !here.empty() &&
        unit_loops(d.schedule, d.k, NodeId(i), n.level) != here)
      return Reason{
          formatted("{} stands inside some of the loops that share out its tiles at {}: "
                    "inside all of them, or outside of all",
                    what, level)};
    const bool reads =
        (other.kind == NodeKind::load && d.k.buffer(other.buffer).outer == n.buffer) ||
        std::ranges::find(other.reads, n.buffer, &InputUse::buffer) != other.reads.end();
    if (!reads) continue;
    const NodeId load = nearest_load(d, governing(d, n.tensor, NodeId(i)), n.buffer);
    if (load.valid() && gone_between(d, {id}, load, NodeId(i)))
      return Reason{
          formatted("{} reads {} after {} has dropped it",
                    other.kind == NodeKind::load ? "a load further in" : d.w.op(other.op).name,
                    d.w.tensor(n.tensor).name, what)};
  }
  return std::nullopt;
}

std::optional<Reason> place_uses(Draft& d, NodeId id) {
  ScheduleNode& n = d.node(id);
  const Operator& op = d.w.op(n.op);
  const auto gathered = [&](const InputUse& use) {
    return is_gather(op.inputs[static_cast<std::size_t>(use.inputs.front())]);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const TensorId t = op.inputs[i].tensor;
    const bool gather = is_gather(op.inputs[i]);
    const int slice = d.slices.slice_of(t, {n.op, static_cast<int>(i)});
    const auto same = std::ranges::find_if(n.reads, [&](const InputUse& use) {
      return !gather && use.tensor == t && !gathered(use) && slice_of(d, id, use) == slice;
    });
    if (same != n.reads.end())
      same->inputs.push_back(static_cast<int>(i));
    else
      n.reads.push_back({.tensor = t, .inputs = {static_cast<int>(i)}});
  }
  for (InputUse& use : n.reads) {
    if (gathered(use)) continue;
    if (auto reason = place_input(d, id, use)) return reason;
  }
  for (std::size_t o = 0; o < op.outputs.size(); ++o) {
    const TensorId t = op.outputs[o].target.tensor;
    const BufferId b = d.chain[t.index()].front();
    bool atomic = false;
    for (BufferId c : d.chain[t.index()]) atomic |= d.k.buffer(c).atomic;
    n.writes.push_back({.tensor = t, .output = static_cast<int>(o), .buffer = b, .atomic = atomic});
    if (atomic && std::ranges::find(d.k.zeroed, t) == d.k.zeroed.end()) d.k.zeroed.push_back(t);
  }
  return std::nullopt;
}

void name_sliding_buffers(Draft& d) {
  for (std::size_t n = 0; n < d.k.nodes.size(); ++n)
    for (Inference& i : d.k.nodes[n].infer) {
      i.buffer = d.chain[i.tensor.index()].back();
      if (!i.sliding) continue;
      const Buffer& b = d.k.buffer(i.buffer);
      if (b.role != BufferRole::intermediate || b.fixed_at != NodeId(n) ||
          d.w.op(i.producer).outputs.size() > 1)
        d.bad("flags." + d.w.tensor(i.tensor).name, "sliding",
              "needs a tensor on chip whose home point is not pinned further out",
              "the flag on such a tensor, or no flag");
    }
}

/// Barriers of all blocks before each node that stand in no loop.
std::vector<int> phases_of(const Draft& d) {
  std::vector<int> phases(d.k.nodes.size());
  int phase = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    phases[i] = phase;
    const ScheduleNode& n = d.k.nodes[i];
    if (n.kind == NodeKind::sync && n.scope == Unit::machine &&
        d.node(d.body_of(NodeId(i))).kind != NodeKind::loop)
      ++phase;
  }
  return phases;
}

/// Ranges at the beginning of the kernel.
Ranges ranges_at_root(const Draft& d) {
  Ranges r = whole_ranges(d.schedule, d.k);
  for (const Inference& i : d.node(NodeId(0)).infer) infer(d.schedule, d.k, i, r, nullptr);
  return r;
}

/// Extents of what a load brings in the first iteration of all loops around it.
std::vector<std::int64_t> first_tile(const Draft& d, NodeId load, Ranges r) {
  std::vector<NodeId> path;
  for (NodeId p = load; p != NodeId(0); p = d.node(p).parent) path.insert(path.begin(), p);
  for (NodeId id : path) {
    if (d.node(id).kind == NodeKind::loop) cut(d.k, id, 0, Ranges(r), r);
    for (const Inference& i : d.node(id).infer) infer(d.schedule, d.k, i, r, nullptr);
  }
  const Box box = load_box(d.schedule, d.k, load, r);
  std::vector<std::int64_t> extents;
  for (int i = 0; i < box.rank(); ++i) extents.push_back(box[i].size());
  return extents;
}

/// Whether one is longer along a dimension, and the other along another.
bool crossed(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  bool longer = false, shorter = false;
  for (std::size_t i = 0; i < a.size(); ++i) longer |= a[i] > b[i], shorter |= a[i] < b[i];
  return longer && shorter;
}

/// By phase, the tile that its loads bring to a buffer. Empty: some content is used in another
/// phase than the one that loads it, or by more than computes.
std::map<int, std::vector<std::int64_t>> tiles_by_phase(const Draft& d, BufferId id,
                                                        const std::vector<int>& phases,
                                                        const Ranges& at_root) {
  const Buffer& b = d.k.buffer(id);
  std::map<int, std::vector<std::int64_t>> tiles;
  if (std::ranges::any_of(d.k.buffers, [&](const Buffer& of) { return of.outer == id; })) return {};
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    const ScheduleNode& n = d.k.nodes[i];
    if (n.kind == NodeKind::drop && n.buffer == id) return {};
    if (n.kind == NodeKind::load && n.buffer == id) {
      const auto tile = first_tile(d, NodeId(i), at_root);
      auto& most = tiles.try_emplace(phases[i], tile).first->second;
      std::ranges::transform(most, tile, most.begin(), std::ranges::max);
    }
    if (std::ranges::find(n.reads, id, &InputUse::buffer) == n.reads.end()) continue;
    const NodeId load = nearest_load(d, governing(d, b.tensor, NodeId(i)), id);
    if (!load.valid() || phases[load.index()] != phases[i]) return {};
  }
  return tiles;
}

/// Rule 4: where phases bring tiles of one tensor neither of which is in the other's shape (rows of
/// it, then columns), each shape has a buffer.
void split_by_phase(Draft& d) {
  const std::vector<int> phases = phases_of(d);
  if (phases.back() == 0) return;
  const Ranges at_root = ranges_at_root(d);
  for (std::size_t b = 0, count = d.k.buffers.size(); b < count; ++b) {
    if (d.k.buffers[b].role != BufferRole::input || d.k.buffers[b].sliding) continue;
    std::vector<std::pair<std::vector<std::int64_t>, BufferId>> shapes;
    std::map<int, BufferId> now;
    for (const auto& one : tiles_by_phase(d, BufferId(b), phases, at_root)) {
      const auto& [phase, tile] = one;
      const auto same = std::ranges::find_if(
          shapes, [&](const auto& shape) { return !crossed(shape.first, one.second); });
      if (same != shapes.end()) {
        std::ranges::transform(same->first, tile, same->first.begin(), std::ranges::max);
        now[phase] = same->second;
        continue;
      }
      const BufferId fresh(shapes.empty() ? b : d.k.buffers.size());
      if (!shapes.empty()) {
        d.k.buffers.push_back(Buffer(d.k.buffers[b]));
        d.input_buffers[d.k.buffers[b].tensor.index()].push_back(fresh);
      }
      shapes.emplace_back(tile, fresh);
      now[phase] = fresh;
    }
    if (shapes.size() < 2) continue;
    for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
      ScheduleNode& n = d.k.nodes[i];
      if (n.kind == NodeKind::load && n.buffer == BufferId(b)) n.buffer = now.at(phases[i]);
      for (InputUse& use : n.reads)
        if (use.buffer == BufferId(b)) use.buffer = now.at(phases[i]);
    }
  }
}

}  // namespace

std::optional<Reason> place_buffers(Draft& d) {
  std::vector<TensorId> made;
  for (OpId op : d.k.ops)
    for (const Output& out : d.w.op(op).outputs) {
      if (auto reason = add_chain(d, out.target.tensor)) return reason;
      made.push_back(out.target.tensor);
    }
  for (std::size_t n = 0; n < d.k.nodes.size(); ++n)
    if (d.k.nodes[n].kind == NodeKind::store)
      if (auto reason = bind_store(d, NodeId(n))) return reason;
  std::ranges::sort(made);
  for (TensorId t : made) fix_chain(d, t);
  for (std::size_t n = 0; n < d.k.nodes.size(); ++n)
    if (d.k.nodes[n].kind == NodeKind::load)
      if (auto reason = place_load(d, NodeId(n))) return reason;
  for (std::size_t n = 0; n < d.k.nodes.size(); ++n)
    if (d.k.nodes[n].kind == NodeKind::compute)
      if (auto reason = place_uses(d, NodeId(n))) return reason;
  for (std::size_t n = 0; n < d.k.nodes.size(); ++n)
    if (d.k.nodes[n].kind == NodeKind::drop)
      if (auto reason = place_drop(d, NodeId(n))) return reason;
  name_sliding_buffers(d);
  split_by_phase(d);
  return std::nullopt;
}

bool Draft::consumed_here(TensorId t) const {
  return std::ranges::any_of(w.consumers(t), [&](OpId c) { return computed_here(c); });
}

bool Draft::spilled(TensorId t) const {
  return computed_here(w.producer(t)) && consumed_here(t) && level_of(t) == m.home();
}

bool Draft::on_chip(TensorId t) const {
  return computed_here(w.producer(t)) && consumed_here(t) && level_of(t) != m.home();
}

bool Draft::leaves(TensorId t) const { return placement.written_by[t.index()] == index; }

bool Draft::dropped(TensorId t) const {
  return computed_here(w.producer(t)) && !leaves(t) && !consumed_here(t) && !w.consumers(t).empty();
}

}  // namespace tilewright::resolving
