// What is loaded and computed, who uses it, and where it lies.
#include <algorithm>

#include "codegen/cuda/stitch.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kMostValues = 64;  ///< of one array in a thread's registers
constexpr std::int64_t kMostTurns = 8;    ///< that are unrolled where nothing asks for it

Linear renamed(const Linear& x, const std::map<int, int>& names) {
  Linear r = number(x.constant);
  for (const auto& [id, c] : x.terms) {
    const auto found = names.find(id);
    r = r + Linear{.terms = {{found == names.end() ? id : found->second, c}}, .constant = 0};
  }
  return r;
}

std::set<int> ids_of(const std::vector<Linear>& all) {
  std::set<int> ids;
  for (const Linear& x : all)
    for (const auto& [id, c] : x.terms) ids.insert(id);
  return ids;
}

}  // namespace

NodeId StitchEmitter::common(NodeId a, NodeId b) const {
  while (a != b && !is_around(a, b)) a = k_.node(a).parent;
  return a;
}

NodeId StitchEmitter::child_towards(NodeId ancestor, NodeId node) const {
  while (k_.node(node).parent != ancestor) node = k_.node(node).parent;
  return node;
}

bool StitchEmitter::encloses(NodeId scope, int id) const {
  const NodeId n = indices_[static_cast<std::size_t>(id)].node;
  return n == scope || is_around(n, scope);
}

/// The turns and elements that tell values of a key apart within a scope, outermost first.
std::vector<int> StitchEmitter::own(const Key& key, NodeId scope) const {
  std::vector<int> all;
  for (int id : ids_of(key)) {
    const Index::Kind kind = indices_[static_cast<std::size_t>(id)].kind;
    if ((kind == Index::Kind::loop || kind == Index::Kind::element) && !encloses(scope, id))
      all.push_back(id);
  }
  return all;
}

std::int64_t StitchEmitter::size_of_dims(const std::vector<int>& dims) const {
  std::int64_t n = 1;
  for (int id : dims)
    n *= std::min<std::int64_t>(1 << 20, indices_[static_cast<std::size_t>(id)].count);
  return n;
}

/// Which index of the user stands for which of the maker's, so that both keys are the same in every
/// thread; none: they are not.
std::optional<std::map<int, int>> StitchEmitter::match(const Key& made, const Key& used,
                                                       NodeId scope) const {
  const std::vector<int> of_made = own(made, scope);
  std::vector<int> of_used = own(used, scope);
  if (of_made.size() != of_used.size()) return std::nullopt;
  const auto factor = [](const Linear& x, int id) {
    const auto found = x.terms.find(id);
    return found == x.terms.end() ? std::int64_t{0} : found->second;
  };
  std::map<int, int> names;
  for (int m : of_made) {
    const auto same = std::ranges::find_if(of_used, [&](int u) {
      if (indices_[static_cast<std::size_t>(u)].count !=
          indices_[static_cast<std::size_t>(m)].count)
        return false;
      for (std::size_t d = 0; d < made.size(); ++d)
        if (factor(made[d], m) != factor(used[d], u)) return false;
      return true;
    });
    if (same == of_used.end()) return std::nullopt;
    names[m] = *same;
    of_used.erase(same);
  }
  for (std::size_t d = 0; d < made.size(); ++d)
    if (renamed(made[d], names) != used[d]) return std::nullopt;
  return names;
}

StitchEmitter::Key StitchEmitter::use_key(const Use& use) const {
  const Operator& op = workload_.op(k_.node(use.node).op);
  return key_of(op, op.inputs[static_cast<std::size_t>(use.input)], facts_[use.node.index()].point);
}

bool StitchEmitter::leaves(const Value& v) const {
  const Buffer& b = k_.buffer(v.buffer);
  return !v.loaded() && (b.role == BufferRole::output || b.leaves);
}

/// The loops that an operator adds up over within a block, as indices.
std::set<int> StitchEmitter::reduced(const Value& v) const {
  std::set<int> ids;
  const OpId op = k_.node(v.producer).op;
  const Facts& facts = facts_[v.producer.index()];
  for (std::size_t l = 0; l < workload_.op(op).loops.size(); ++l)
    if (workload_.is_reduction(op, workload_.op(op).loops[l]))
      for (int id : ids_of({facts.point[l]})) ids.insert(id);
  for (NodeId loop : facts.at.loops)
    for (const OpLoop& c : k_.node(loop).cuts)
      if (c.op == op && workload_.is_reduction(op, k_.node(loop).loop))
        for (int id : {facts_[loop.index()].unit, facts_[loop.index()].turn})
          if (id >= 0) ids.insert(id);
  std::erase_if(ids, [&](int id) {
    return indices_[static_cast<std::size_t>(id)].kind == Index::Kind::block ||
           (is_sum(v) && indices_[static_cast<std::size_t>(id)].node.valid() &&
            encloses(k_.node(v.anchor).parent, id));
  });
  return ids;
}

// ---- loads
// ---------------------------------------------------------------------------------------

/// Whether a unit's iterations of the loop have tiles of their own.
bool StitchEmitter::is_private(NodeId loop, BufferId b) const {
  const std::optional<Unit> unit = unit_of(k_.node(loop).binding);
  return unit && *unit <= p_.machine().level(k_.buffer(b).level).private_to;
}

/// Whether the loop's index is part of where the load's tile begins or ends.
bool StitchEmitter::tile_moves(NodeId load, NodeId loop) const {
  const Facts& f = facts_[loop.index()];
  const auto has = [&](const Linear& x) {
    return (k_.node(loop).max_trips > 1 && x.terms.contains(f.unit)) || x.terms.contains(f.turn);
  };
  return std::ranges::any_of(facts_[load.index()].tile, [&](const Span& s) {
    return has(s.lo) || std::ranges::any_of(s.ends, has);
  });
}

/// Rule 8: what a loop's iterations find held is loaded before the loop.
void StitchEmitter::place_load(NodeId load) {
  const ScheduleNode& n = k_.node(load);
  NodeId place = load;
  const std::vector<NodeId>& loops = loops_around(load);
  for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
    if (k_.node(*l).binding == Binding::grid) break;
    if (is_private(*l, n.buffer)) {
      // Each turn has a tile of its own, which may be loaded ahead only if it is another one.
      const int turn = facts_[l->index()].turn;
      if (turn >= 0 && std::ranges::none_of(facts_[load.index()].tile, [&](const Span& s) {
            return s.lo.terms.contains(turn);
          }))
        break;
      continue;
    }
    if (tile_moves(load, *l)) break;
    bool alone = true;
    for (std::size_t m = 0; m < k_.nodes.size(); ++m)
      if (k_.nodes[m].kind == NodeKind::load && k_.nodes[m].buffer == n.buffer &&
          is_around(*l, NodeId(m)))
        alone = alone && same_tile(load, NodeId(m));
    if (!alone) break;
    place = *l;
  }
  place_[load] = place;
  if (place != load) hoisted_[place].push_back(load);
}

/// The loops whose iterations load by themselves.
std::vector<NodeId> StitchEmitter::loading_loops(NodeId load) const {
  std::vector<NodeId> loops = loops_around(load);
  std::erase_if(loops, [&](NodeId l) {
    return !is_around(l, place_.at(load)) && !is_private(l, k_.node(load).buffer);
  });
  return loops;
}

/// Rule 8: the buffer still holds the tile, in every unit that has one of its own.
bool StitchEmitter::same_tile(NodeId a, NodeId b) const {
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
        fx.unit != fy.unit)
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
void StitchEmitter::check_same_units() const {
  const auto trips = [&](NodeId load) {
    std::vector<std::pair<Binding, std::int64_t>> all;
    for (NodeId l : loops_around(load)) {
      const ScheduleNode& n = k_.node(l);
      if (n.binding != Binding::grid && n.max_trips > 1 && is_private(l, k_.node(load).buffer))
        all.emplace_back(n.binding, n.max_trips);
    }
    return all;
  };
  for (std::size_t a = 0; a < k_.nodes.size(); ++a)
    for (std::size_t b = a + 1; b < k_.nodes.size(); ++b) {
      const ScheduleNode &x = k_.nodes[a], &y = k_.nodes[b];
      if (x.kind != NodeKind::load || y.kind != NodeKind::load || x.buffer != y.buffer ||
          trips(NodeId(a)) == trips(NodeId(b)))
        continue;
      if (std::ranges::equal(facts_[a].tile, facts_[b].tile,
                             [](const Span& s, const Span& t) { return s.most == t.most; }))
        throw Refused{workload_.tensor(x.tensor).name +
                      " is loaded inside and outside of a loop bound to units: one L." +
                      workload_.tensor(x.tensor).name + " outside serves both"};
    }
}

/// What a buffer holds after a loop is its last tile; where a tile comes again, the last must be
/// known to be another one, in every unit that has a buffer.
void StitchEmitter::check_last_tiles(NodeId load) const {
  const ScheduleNode& n = k_.node(load);
  bool again = false;
  for (std::size_t m = 0; m < k_.nodes.size(); ++m)
    again = again || (k_.nodes[m].kind == NodeKind::load && k_.nodes[m].buffer == n.buffer &&
                      !same_tile(load, NodeId(m)));
  bool moves = false, differs = false;
  for (NodeId l : loops_around(load)) {
    const ScheduleNode& loop = k_.node(l);
    if (loop.binding == Binding::grid || loop.max_trips <= 1 || is_private(l, n.buffer)) continue;
    if (!tile_moves(load, l)) {
      again = true;
      continue;
    }
    moves = true;
    differs = differs || !facts_[l.index()].cut_short;
    for (NodeId unit : loops_around(load))
      if (again && is_around(l, unit) && is_private(unit, n.buffer) &&
          k_.node(unit).loop == loop.loop &&
          (facts_[l.index()].cut_short || facts_[l.index()].uneven))
        throw Refused{"loop " + workload_.loop(loop.loop).name + "/" + std::to_string(loop.step) +
                      " ends with a smaller piece, after which its units hold pieces of " +
                      workload_.tensor(n.tensor).name + " from different turns"};
  }
  if (again && moves && !differs)
    throw Refused{"some blocks have one tile of " + workload_.tensor(n.tensor).name +
                  " and hold it, others have several and load them again"};
}

void StitchEmitter::add_load(NodeId load) {
  const ScheduleNode& n = k_.node(load);
  const Buffer& buffer = k_.buffer(n.buffer);
  const std::string& tensor = workload_.tensor(n.tensor).name;
  int& held = held_[n.buffer.index()];
  if (buffer.outer.valid()) {  // what comes from another level's tile is read there
    held = held_[buffer.outer.index()];
    if (held < 0) throw Refused{tensor + " is loaded from a tile that is not loaded"};
    return;
  }
  const OpId producer = workload_.producer(n.tensor);
  if (producer.valid() && std::ranges::find(k_.ops, producer) != k_.ops.end())
    throw Refused{tensor + " is computed and loaded in one kernel"};
  if (held >= 0 && same_tile(values_[static_cast<std::size_t>(held)].producer, load)) return;
  held = static_cast<int>(values_.size());
  values_.push_back({.tensor = n.tensor,
                     .buffer = n.buffer,
                     .producer = load,
                     .anchor = place_.at(load),
                     .tile = facts_[load.index()].tile,
                     .around = loading_loops(load)});
}

// ---- computes
// ------------------------------------------------------------------------------------

/// The outermost loop of a block over which the operator reduces; the compute itself without one.
NodeId StitchEmitter::anchor_of(NodeId compute, int) const {
  const OpId op = k_.node(compute).op;
  for (NodeId l : loops_around(compute)) {
    const ScheduleNode& n = k_.node(l);
    if (n.binding == Binding::grid || !workload_.is_reduction(op, n.loop)) continue;
    if (std::ranges::any_of(n.cuts, [&](const OpLoop& c) { return c.op == op; })) return l;
  }
  return compute;
}

void StitchEmitter::add_compute(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const BufferId b = buffer_of_input(n, static_cast<int>(i));
    if (!b.valid()) continue;  // a gather: read where it lies
    const bool input = k_.buffer(b).role == BufferRole::input;
    const int value = input ? held_[b.index()] : made_[op.inputs[i].tensor.index()];
    if (value < 0)
      throw Refused{workload_.tensor(op.inputs[i].tensor).name + " is read before it is there"};
    used_by_[{id, static_cast<int>(i)}] = static_cast<std::size_t>(value);
    values_[static_cast<std::size_t>(value)].uses.push_back({id, static_cast<int>(i)});
  }
  for (std::size_t w = 0; w < n.writes.size(); ++w) {
    const Output& out = op.outputs[static_cast<std::size_t>(n.writes[w].output)];
    Value v{.tensor = n.writes[w].tensor,
            .buffer = n.writes[w].buffer,
            .producer = id,
            .output = static_cast<int>(w),
            .anchor = anchor_of(id, static_cast<int>(w)),
            .key = key_of(op, out.target, facts_[id.index()].point)};
    const std::set<int> added = reduced(v);
    for (const Linear& x : facts_[id.index()].inside)
      if (std::ranges::none_of(x.terms, [&](const auto& t) { return added.contains(t.first); }))
        v.inside.push_back(x);
    check_sum(v);
    if (leaves(v)) check_leaving(v);
    made_[v.tensor.index()] = static_cast<int>(values_.size());
    made_by_[id].push_back(values_.size());
    values_.push_back(std::move(v));
  }
}

/// A sum must get every part once.
void StitchEmitter::check_sum(const Value& v) const {
  if (!is_sum(v)) return;
  const OpId op = k_.node(v.producer).op;
  for (NodeId l : loops_around(v.producer)) {
    const ScheduleNode& n = k_.node(l);
    if ((l != v.anchor && !is_around(v.anchor, l)) || n.max_trips <= 1) continue;
    if (std::ranges::none_of(n.cuts, [&](const OpLoop& c) { return c.op == op; }))
      throw Refused{"every iteration of loop " + workload_.loop(n.loop).name + " would add to " +
                    workload_.tensor(v.tensor).name + " again"};
  }
}

/// What leaves the kernel is written when it is complete, once.
void StitchEmitter::check_leaving(const Value& v) const {
  const OpId op = k_.node(v.producer).op;
  const Buffer& b = k_.buffer(v.buffer);
  const std::string& name = workload_.tensor(v.tensor).name;
  for (NodeId l : loops_around(v.producer)) {
    const ScheduleNode& n = k_.node(l);
    if (n.max_trips <= 1 || n.binding == Binding::grid) continue;
    const bool cut = std::ranges::any_of(n.cuts, [&](const OpLoop& c) { return c.op == op; });
    if (!cut)
      throw Refused{"every iteration of loop " + workload_.loop(n.loop).name + " would write " +
                    name + " again"};
    const bool inside = l == v.anchor || is_around(v.anchor, l);
    const bool kept = b.role == BufferRole::intermediate ||
                      (b.fixed_at.valid() && is_around(b.fixed_at, v.anchor));
    // A unit with a buffer of its own keeps its own part of the result, and none of a sum's.
    if (cut && inside && workload_.is_reduction(op, n.loop) == is_private(l, v.buffer) && !kept)
      throw Refused{"parts of " + name + " would leave before they are summed up: S." + name +
                    " after loop " + workload_.loop(k_.node(v.anchor).loop).name + " keeps them"};
  }
}

// ---- where values lie
// ----------------------------------------------------------------------------

/// Whether the threads that use a load have each of its tile's elements once, where an index of
/// theirs is one of a loop's values.
bool StitchEmitter::covers(const Value& v, const Use& use) const {
  const OpId id = k_.node(use.node).op;
  const Access& a = workload_.op(id).inputs[static_cast<std::size_t>(use.input)];
  std::set<LoopId> loops;
  for (const Affine& x : a.index) {
    if (x.terms.empty()) continue;
    if (x.terms.size() > 1 || x.terms.front().coefficient != 1 ||
        !loops.insert(x.terms.front().loop).second)
      return false;
  }
  Point at = facts_[v.producer.index()].at;
  for (const Inference& i : k_.node(v.producer).lookahead) infer(i, at);
  const std::vector<Span> box = access_box(id, a, at);
  return std::ranges::equal(box, v.tile, [](const Span& s, const Span& t) {
    return s.lo == t.lo && s.most == t.most && s.ends == t.ends;
  });
}

/// A load takes the indices of its first use.
bool StitchEmitter::adopt_key(Value& v) {
  v.key = use_key(v.uses.front());
  if (!covers(v, v.uses.front())) {
    v.reason = "no thread has it all, and none an element for itself";
    return false;
  }
  std::set<int> known = ids_of(v.key);
  for (NodeId l : v.around)
    for (int id : {facts_[l.index()].unit, facts_[l.index()].turn}) known.insert(id);
  v.inside.clear();
  for (const Linear& x : facts_[v.uses.front().node.index()].inside)
    if (std::ranges::all_of(x.terms, [&](const auto& t) {
          return known.contains(t.first) ||
                 indices_[static_cast<std::size_t>(t.first)].kind == Index::Kind::block;
        }))
      v.inside.push_back(x);
  return true;
}

bool StitchEmitter::fits_registers(Value& v) {
  if (v.loaded() && !adopt_key(v)) return false;
  v.dims = own(v.key, is_sum(v) ? k_.node(v.anchor).parent : v.scope);
  if (is_sum(v) && size_of_dims(v.dims) > kMostValues)
    throw Refused{"a thread would sum up " + std::to_string(size_of_dims(v.dims)) + " values of " +
                  workload_.tensor(v.tensor).name + ": at most " + std::to_string(kMostValues)};
  const std::vector<int> dims = own(v.key, v.scope);
  if (size_of_dims(dims) > kMostValues) {
    v.reason = std::to_string(size_of_dims(dims)) + " values a thread";
    return false;
  }
  for (const Use& use : v.uses) {
    const auto names = match(v.key, use_key(use), v.scope);
    if (!names) {
      v.reason = "threads use what others make";
      return false;
    }
    const std::vector<Linear>& there = facts_[use.node.index()].inside;
    for (const Linear& x : v.inside)
      if (std::ranges::find(there, renamed(x, *names)) == there.end()) {
        v.reason = "threads use it that do not make it";
        return false;
      }
  }
  if (v.loaded() && warps_ > 1 && !copies(v.key, v.around).warp.empty()) {
    v.reason = "loaded once for all warps";
    return false;
  }
  v.dims = dims;
  v.reason = v.uses.empty() ? "on its way home" : "made and used by the same threads";
  return true;
}

void StitchEmitter::put_shared(Value& v, const std::string& reason) {
  const std::string& name = workload_.tensor(v.tensor).name;
  if (v.uses.empty())
    throw Refused{name + ": " + std::to_string(size_of_dims(own(v.key, v.scope))) +
                  " values a thread"};
  v.storage = Storage::shared;
  v.reason = reason;
  if (!v.loaded()) {
    if (!tiles_.contains(v.buffer)) throw Refused{name + " is computed, and its tile not known"};
    v.tile = tiles_.at(v.buffer);
    v.around = tile_loops_.at(v.buffer);
  } else if (copies({}, v.around).lane.empty()) {
    throw Refused{name + " would be loaded by a lane for others: " + reason};
  }
  v.elements = 1;
  v.pitch.assign(v.tile.size(), 1);
  for (std::size_t d = v.tile.size(); d-- > 0;) {
    v.pitch[d] = v.elements;
    std::int64_t most = v.tile[d].most;
    // An odd number of words between rows: neither rows nor columns meet in one bank.
    if (d + 1 == v.tile.size() && v.tile.size() > 1 && most > 1) most |= 1;
    v.elements *= most;
  }
}

void StitchEmitter::choose_storage(Value& v) {
  if (v.loaded() && v.uses.empty())
    throw Refused{workload_.tensor(v.tensor).name + " is loaded and not used"};
  v.scope = k_.node(v.anchor).parent;
  for (const Use& use : v.uses) v.scope = common(v.scope, k_.node(use.node).parent);
  if (k_.node(v.scope).kind == NodeKind::pack)
    throw Refused{workload_.tensor(v.tensor).name + " is used by other blocks than made it"};
  if (fits_registers(v)) return;
  const bool once = v.uses.size() <= 1 && !is_sum(v) &&
                    (v.uses.empty() || loops_around(v.uses.front().node) == loops_around(v.anchor));
  if (once && (v.loaded() ? !v.inside.empty() || covers(v, v.uses.front()) : v.uses.empty()) &&
      size_of_dims(own(v.key, v.scope)) > kMostValues) {
    v.storage = Storage::direct;
    return;
  }
  put_shared(v, v.reason);
}

void StitchEmitter::choose_unrolling() {
  const auto unroll = [&](int id) { indices_[static_cast<std::size_t>(id)].unrolled = true; };
  for (const Value& v : values_) {
    if (v.storage == Storage::registers || is_sum(v))
      for (int id : v.dims) unroll(id);
    if (v.storage != Storage::registers) continue;
    for (const Use& use : v.uses)
      for (int id : own(use_key(use), v.scope)) unroll(id);
  }
  for (Index& i : indices_) {
    if (i.kind == Index::Kind::element && i.count <= kMostValues) i.unrolled = true;
    if (i.kind != Index::Kind::loop) continue;
    const Binding b = k_.node(i.node).binding;
    if (b == Binding::unroll || b == Binding::vector ||
        (b != Binding::seq && i.count <= kMostTurns))
      i.unrolled = true;
  }
}

void StitchEmitter::visit_values(NodeId id) {
  const auto before = hoisted_.find(id);
  if (before != hoisted_.end())
    for (NodeId load : before->second) add_load(load);
  const ScheduleNode& n = k_.node(id);
  if (n.kind == NodeKind::load && place_.at(id) == id) add_load(id);
  if (n.kind == NodeKind::compute) add_compute(id);
  for (NodeId c : n.children) visit_values(c);
}

void StitchEmitter::make_values() {
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::load) place_load(NodeId(i));
  check_same_units();
  for (const auto& [load, place] : place_)
    if (place == load) check_last_tiles(load);
  visit_values(NodeId(0));
  for (Value& v : values_) choose_storage(v);
  choose_unrolling();
  choose_names();
}

void StitchEmitter::choose_names() {
  std::map<TensorId, int> seen;
  for (Value& v : values_) {
    if (v.storage == Storage::direct) continue;
    v.name = names_.fresh(identifier("", workload_.tensor(v.tensor).name) +
                          (v.storage == Storage::shared ? "_shared" : "_own"));
  }
}

}  // namespace tilewright::cuda
