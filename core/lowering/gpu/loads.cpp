// Loads: before which loop each stands, and which find their tile held (rule 8).
#include <algorithm>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {

/// Whether a unit's iterations of the loop have tiles of their own.
bool Lowering::is_private(NodeId loop, BufferId b) const {
  const std::optional<Unit> unit = unit_of(k_.node(loop).binding);
  return unit && *unit <= machine_.level(k_.buffer(b).level).private_to;
}

/// How many loops over units within a block around a load or a drop tell the buffer's instances
/// apart: a unit is not the first of those within it, and neither finds what the other holds.
std::size_t Lowering::depth_of_units(NodeId place) const {
  return static_cast<std::size_t>(std::ranges::count_if(loops_around(place), [&](NodeId l) {
    return k_.node(l).binding != Binding::grid && is_private(l, k_.node(place).buffer);
  }));
}

/// Whether the loop's index is part of where the load's tile begins or ends.
bool Lowering::tile_moves(NodeId load, NodeId loop) const {
  const Facts& f = facts_[loop.index()];
  const auto has = [&](const Linear& x) {
    return (k_.node(loop).max_trips > 1 && x.terms.contains(f.unit)) || x.terms.contains(f.turn);
  };
  return std::ranges::any_of(facts_[load.index()].tile, [&](const Span& s) {
    return has(s.lo) || std::ranges::any_of(s.ends, has);
  });
}

/// Rule 8: what a loop's iterations find held is loaded before the loop.
void Lowering::place_load(NodeId load) {
  const ScheduleNode& n = k_.node(load);
  NodeId place = load;
  bool equal_turns = false;  // which have a buffer each, of equal tiles
  const auto begins_at = [&](int turn) {
    return std::ranges::any_of(facts_[load.index()].tile,
                               [&](const Span& s) { return s.lo.terms.contains(turn); });
  };
  const std::vector<NodeId>& loops = loops_around(load);
  for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
    if (k_.node(*l).binding == Binding::grid) break;
    if (is_private(*l, n.buffer)) {
      const int turn = facts_[l->index()].turn;
      equal_turns = equal_turns || (turn >= 0 && !begins_at(turn));
      continue;
    }
    if (tile_moves(load, *l)) break;
    if (equal_turns && k_.node(*l).max_trips <= 1) continue;  // nothing finds them held
    bool alone = true;
    for (std::size_t m = 0; m < k_.nodes.size(); ++m)
      if (k_.nodes[m].kind == NodeKind::load && k_.nodes[m].buffer == n.buffer &&
          is_around(*l, NodeId(m)) && depth_of_units(NodeId(m)) == depth_of_units(load))
        alone = alone && same_tile(load, NodeId(m));
    if (!alone) break;
    place = *l;
  }
  place_[load] = place;
  if (place != load) hoisted_[place].push_back(load);
}

/// The loops whose iterations load by themselves.
std::vector<NodeId> Lowering::loading_loops(NodeId load) const {
  std::vector<NodeId> loops = loops_around(load);
  std::erase_if(loops, [&](NodeId l) {
    return !is_around(l, place_.at(load)) && !is_private(l, k_.node(load).buffer);
  });
  return loops;
}

/// Whether they are in different parts of a pack: what one block holds another one does not.
bool Lowering::in_other_blocks(NodeId a, NodeId b) const {
  return k_.node(common(a, b)).kind == NodeKind::pack;
}

/// Rule 8: the buffer still holds the tile, in every unit that has one of its own.
bool Lowering::same_tile(NodeId a, NodeId b) const {
  if (in_other_blocks(a, b)) return false;
  const BufferId buffer = k_.node(a).buffer;
  const auto own_loops = [&](NodeId load) {
    std::vector<NodeId> loops = loops_around(load);
    std::erase_if(loops, [&](NodeId l) {
      return k_.node(l).max_trips <= 1 || !(is_private(l, buffer) || tile_moves(load, l));
    });
    return loops;
  };
  const std::vector<NodeId> la = own_loops(a), lb = own_loops(b);
  if (la.size() != lb.size()) return false;
  std::map<int, int> names;
  for (std::size_t i = 0; i < la.size(); ++i) {
    if (la[i] == lb[i]) continue;
    const ScheduleNode &x = k_.node(la[i]), &y = k_.node(lb[i]);
    const Facts &fx = facts_[la[i].index()], &fy = facts_[lb[i].index()];
    if (x.binding != y.binding || !is_private(la[i], buffer) || x.max_trips != y.max_trips ||
        fx.unit != fy.unit || (x.binding == Binding::grid && fx.turn != fy.turn))
      return false;
    if (fx.turn >= 0) names[fy.turn] = fx.turn;
  }
  return std::ranges::equal(facts_[a.index()].tile, facts_[b.index()].tile,
                            [&](const Span& s, const Span& t) {
                              return s.lo == renamed(t.lo, names) && s.most == t.most;
                            });
}

/// Where loops of different units load the same tile, which unit finds it held is a matter of how
/// units are numbered: not known here.
void Lowering::check_same_units() const {
  const auto trips = [&](NodeId load) {
    std::vector<std::pair<Binding, std::int64_t>> all;
    for (NodeId l : loops_around(load)) {
      const ScheduleNode& n = k_.node(l);
      if (n.binding != Binding::grid && is_private(l, k_.node(load).buffer))
        all.emplace_back(n.binding, n.max_trips);
    }
    return all;
  };
  for (std::size_t a = 0; a < k_.nodes.size(); ++a)
    for (std::size_t b = a + 1; b < k_.nodes.size(); ++b) {
      const ScheduleNode &x = k_.nodes[a], &y = k_.nodes[b];
      if (x.kind != NodeKind::load || y.kind != NodeKind::load || x.buffer != y.buffer ||
          in_other_blocks(NodeId(a), NodeId(b)))
        continue;
      const auto units_of_x = trips(NodeId(a)), units_of_y = trips(NodeId(b));
      if (units_of_x == units_of_y || units_of_x.size() != units_of_y.size()) continue;
      if (std::ranges::equal(facts_[a].tile, facts_[b].tile,
                             [](const Span& s, const Span& t) { return s.most == t.most; }))
        throw Refused{workload_.tensor(x.tensor).name +
                      " is loaded in loops over different units: one L." +
                      workload_.tensor(x.tensor).name + " outside of them serves both"};
    }
}

/// What a buffer holds after a loop is its last tile; where a tile comes again, the last must be
/// known to be another one, in every unit that has a buffer.
void Lowering::check_last_tiles(NodeId load) const {
  const ScheduleNode& n = k_.node(load);
  bool again = false;
  for (std::size_t m = 0; m < k_.nodes.size(); ++m)
    again =
        again || (k_.nodes[m].kind == NodeKind::load && k_.nodes[m].buffer == n.buffer &&
                  !in_other_blocks(load, NodeId(m)) &&
                  depth_of_units(NodeId(m)) == depth_of_units(load) && !same_tile(load, NodeId(m)));
  std::vector<NodeId> turns;  // outermost first
  for (NodeId l : loops_around(load))
    if (k_.node(l).binding != Binding::grid && k_.node(l).max_trips > 1 && !is_private(l, n.buffer))
      turns.push_back(l);
  const auto check = [&](std::size_t first) {
    bool moves = false, differs = false;
    for (std::size_t i = first; i < turns.size(); ++i) {
      if (!tile_moves(load, turns[i])) continue;
      moves = true;
      differs = differs || !facts_[turns[i].index()].cut_short;
    }
    if (moves && !differs)
      throw Refused{"some blocks have one tile of " + workload_.tensor(n.tensor).name +
                    " and hold it, others have several and load them again"};
  };
  if (again) check(0);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const ScheduleNode& loop = k_.node(turns[i]);
    if (!tile_moves(load, turns[i])) {  // its next turn finds the last tile of the loops within it
      again = true;
      check(i + 1);
      continue;
    }
    const Facts& facts = facts_[turns[i].index()];
    for (NodeId unit : loops_around(load))
      if (again && is_around(turns[i], unit) && is_private(unit, n.buffer) &&
          k_.node(unit).loop == loop.loop && (facts.cut_short || facts.uneven))
        throw Refused{"loop " + workload_.loop(loop.loop).name + "/" + std::to_string(loop.step) +
                      " ends with a smaller piece, after which its units hold pieces of " +
                      workload_.tensor(n.tensor).name + " from different turns"};
  }
}

void Lowering::add_load(NodeId load) {
  const ScheduleNode& n = k_.node(load);
  const Buffer& buffer = k_.buffer(n.buffer);
  const std::string& tensor = workload_.tensor(n.tensor).name;
  int& held = held_[n.buffer.index()];
  int& here = held_by_units_.try_emplace({n.buffer, depth_of_units(load)}, -1).first->second;
  if (buffer.outer.valid()) {  // what comes from another level's tile is read there
    held = held_[buffer.outer.index()];
    if (held < 0) throw Refused{tensor + " is loaded from a tile that is not loaded"};
    return;
  }
  const OpId producer = workload_.producer(n.tensor);
  if (producer.valid() && std::ranges::find(k_.ops, producer) != k_.ops.end() &&
      phase_of(producer_node(n.tensor)) == phase_of(load))
    throw Refused{tensor + " is computed and loaded in one kernel"};
  if (here >= 0 && same_tile(values_[static_cast<std::size_t>(here)].producer, load)) {
    held = here;
    return;
  }
  held = here = static_cast<int>(values_.size());
  values_.push_back({.tensor = n.tensor,
                     .buffer = n.buffer,
                     .producer = load,
                     .anchor = place_.at(load),
                     .tile = facts_[load.index()].tile,
                     .around = loading_loops(load)});
}

// ---- slices -----------------------------------------------------------------------------------

/// The parts of a load's tile that are read, X[i] and X[i+64], say, as values of their own. None
/// where two of them overlap, or where one does not fit a thread's registers: a tile in shared
/// memory then brings each element once. Nor where they leave a gap: slices that are known to leave
/// one have loads of their own, and what any other load moves is its whole box.
std::vector<Value> Lowering::slices_of(const Value& v) {
  Point at = *facts_[v.producer.index()].at;
  for (const Inference& i : k_.node(v.producer).lookahead) infer(i, at);
  const auto same = [](const std::vector<Span>& a, const std::vector<Span>& b) {
    return std::ranges::equal(a, b, [](const Span& s, const Span& t) {
      return s.lo == t.lo && s.most == t.most && s.ends == t.ends && s.from_zero == t.from_zero;
    });
  };
  const auto apart = [](const std::vector<Span>& a, const std::vector<Span>& b) {
    for (std::size_t d = 0; d < a.size(); ++d) {
      const Linear gap = b[d].lo - a[d].lo;
      if (gap.terms.empty() && (gap.constant >= a[d].most || -gap.constant >= b[d].most))
        return true;
    }
    return false;
  };
  std::vector<Value> out;
  for (const Use& use : v.uses) {
    const OpId op = k_.node(use.node).op;
    std::vector<Span> box =
        access_box(op, workload_.op(op).inputs[static_cast<std::size_t>(use.input)], at);
    auto slice = std::ranges::find_if(out, [&](const Value& s) { return same(s.tile, box); });
    if (slice == out.end()) {
      if (std::ranges::any_of(out, [&](const Value& s) { return !apart(s.tile, box); })) return {};
      slice = out.insert(out.end(), v);
      slice->uses.clear();
      slice->tile = std::move(box);
    }
    slice->uses.push_back(use);
  }
  const auto size = [](const std::vector<Span>& tile) {
    std::int64_t elements = 1;
    for (const Span& s : tile) elements *= s.most;
    return elements;
  };
  std::int64_t read = 0;
  for (const Value& slice : out) read += size(slice.tile);
  if (read < size(v.tile)) return {};
  for (const Value& slice : out) {
    Value tried = slice;
    tried.scope = scope_of(tried);
    if (k_.node(tried.scope).kind == NodeKind::pack || !fits_registers(tried)) return {};
  }
  return out;
}

void Lowering::split_slices() {
  for (std::size_t i = 0, loaded = values_.size(); i < loaded; ++i) {
    if (!values_[i].loaded() || values_[i].uses.size() < 2) continue;
    std::vector<Value> slices = slices_of(values_[i]);
    if (slices.size() < 2) continue;
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const std::size_t at = s == 0 ? i : values_.size();
      for (const Use& use : slices[s].uses) used_by_[{use.node, use.input}] = at;
      if (s == 0)
        values_[i] = std::move(slices[s]);
      else
        values_.push_back(std::move(slices[s]));
    }
  }
}

}  // namespace tilewright::lowering
