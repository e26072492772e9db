// What is loaded and computed, who uses it, and where it lies.
#include <algorithm>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kMostTurns = 8;  ///< that are unrolled where nothing asks for it

std::set<int> ids_of(const std::vector<Linear>& all) {
  std::set<int> ids;
  for (const Linear& x : all)
    for (const auto& [id, c] : x.terms) ids.insert(id);
  return ids;
}

}  // namespace

Linear renamed(const Linear& x, const std::map<int, int>& names) {
  Linear r = number(x.constant);
  for (const auto& [id, c] : x.terms) {
    const auto found = names.find(id);
    r = r + Linear{.terms = {{found == names.end() ? id : found->second, c}}, .constant = 0};
  }
  return r;
}

NodeId Lowering::common(NodeId a, NodeId b) const {
  while (a != b && !is_around(a, b)) a = k_.node(a).parent;
  return a;
}

NodeId Lowering::child_towards(NodeId ancestor, NodeId node) const {
  while (k_.node(node).parent != ancestor) node = k_.node(node).parent;
  return node;
}

bool Lowering::encloses(NodeId scope, int id) const {
  const NodeId n = index(id).node;
  return n == scope || is_around(n, scope);
}

/// The turns and elements that tell values of a key apart within a scope, outermost first.
std::vector<int> Lowering::own(const Key& key, NodeId scope) const {
  std::vector<int> all;
  for (int id : ids_of(key)) {
    const ProgramIndex::Kind kind = index(id).kind;
    if ((kind == ProgramIndex::Kind::loop || kind == ProgramIndex::Kind::element) &&
        !encloses(scope, id))
      all.push_back(id);
  }
  return all;
}

/// Turns that the key does not tell apart, and whose tiles are loaded before their loop: each turn
/// has a buffer of its own.
std::vector<int> Lowering::equal_turns(const Value& v) const {
  std::vector<int> turns = turns_ahead(v);
  const std::set<int> known = ids_of(v.key);
  std::erase_if(turns, [&](int turn) { return known.contains(turn); });
  return turns;
}

std::vector<int> Lowering::own(const Value& v) const {
  std::vector<int> all = own(v.key, k_.node(v.anchor).parent);
  const std::vector<int> turns = equal_turns(v);
  all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

std::int64_t Lowering::size_of_dims(const std::vector<int>& dims) const {
  std::int64_t n = 1;
  for (int id : dims) n *= std::min<std::int64_t>(1 << 20, index(id).count);
  return n;
}

/// Which index of the user stands for which of the maker's, so that both keys are the same in every
/// thread; none: they are not.
std::optional<std::map<int, int>> Lowering::match(const Key& made, const Key& used,
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
      if (index(u).count != index(m).count) return false;
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

Key Lowering::use_key(const Use& use) const {
  const Operator& op = workload_.op(k_.node(use.node).op);
  return key_of(op, op.inputs[static_cast<std::size_t>(use.input)], facts_[use.node.index()].point);
}

/// What must hold for a use to read something: outside of its tensor there are zeros.
std::vector<Linear> Lowering::there(const Use& use) const {
  const Operator& op = workload_.op(k_.node(use.node).op);
  const Access& a = op.inputs[static_cast<std::size_t>(use.input)];
  std::vector<Linear> all;
  if (!can_leave(workload_, op, a)) return all;
  const Key key = use_key(use);
  for (std::size_t d = 0; d < key.size(); ++d) {
    require(all, number(workload_.tensor(a.tensor).shape[d]) - key[d]);
    require(all, key[d] + number(1));
  }
  return all;
}

bool Lowering::leaves(const Value& v) const {
  const Buffer& b = k_.buffer(v.buffer);
  return !v.loaded() && (b.role == BufferRole::output || b.leaves);
}

/// The loops that an operator adds up over within a block, as indices.
std::set<int> Lowering::reduced(const Value& v) const {
  std::set<int> ids;
  const OpId op = k_.node(v.producer).op;
  const Facts& facts = facts_[v.producer.index()];
  for (std::size_t l = 0; l < workload_.op(op).loops.size(); ++l)
    if (workload_.is_reduction(op, workload_.op(op).loops[l]))
      for (int id : ids_of({facts.point[l]})) ids.insert(id);
  for (NodeId loop : facts.at->loops)
    for (const OpLoop& c : k_.node(loop).cuts)
      if (c.op == op && workload_.is_reduction(op, k_.node(loop).loop))
        for (int id : {facts_[loop.index()].unit, facts_[loop.index()].turn})
          if (id >= 0) ids.insert(id);
  std::erase_if(ids, [&](int id) {
    return index(id).kind == ProgramIndex::Kind::block ||
           (v.sum && index(id).node.valid() && encloses(k_.node(v.anchor).parent, id));
  });
  return ids;
}

// ---- computes ---------------------------------------------------------------------------------

/// Whether all that the operator makes stays within the loop.
bool Lowering::read_within(OpId op, NodeId loop) const {
  for (const Output& o : workload_.op(op).outputs) {
    const TensorId made = o.target.tensor;
    for (const Buffer& b : k_.buffers)
      if (b.tensor == made && (b.role != BufferRole::intermediate || b.leaves)) return false;
    for (std::size_t i = 0; i < k_.nodes.size(); ++i)
      if (std::ranges::find(k_.nodes[i].reads, made, &InputUse::tensor) !=
              k_.nodes[i].reads.end() &&
          !is_around(loop, NodeId(i)))
        return false;
  }
  return true;
}

/// The outermost loop of a block over which the operator reduces; the compute itself without one.
NodeId Lowering::anchor_of(NodeId compute) const {
  const OpId op = k_.node(compute).op;
  for (NodeId l : loops_around(compute)) {
    const ScheduleNode& n = k_.node(l);
    if (n.binding == Binding::grid || !workload_.is_reduction(op, n.loop)) continue;
    if (n.max_trips <= 1 && read_within(op, l)) continue;  // complete in its one iteration
    if (std::ranges::any_of(n.cuts, [&](const OpLoop& c) { return c.op == op; })) return l;
  }
  return compute;
}

void Lowering::add_compute(NodeId id) {
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
            .sum = !workload_.reduction_loops(n.op).empty(),
            .anchor = anchor_of(id),
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
void Lowering::check_sum(const Value& v) const {
  if (!v.sum) return;
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
void Lowering::check_leaving(const Value& v) const {
  const OpId op = k_.node(v.producer).op;
  const Buffer& b = k_.buffer(v.buffer);
  const std::string& name = workload_.tensor(v.tensor).name;
  for (std::size_t i = 0; v.sum && i < k_.nodes.size(); ++i) {
    if (k_.nodes[i].kind != NodeKind::store || k_.nodes[i].buffer != v.buffer) continue;
    for (NodeId l : loops_around(NodeId(i))) {
      const ScheduleNode& n = k_.node(l);
      if (n.max_trips > 1 && n.binding != Binding::grid && workload_.is_reduction(op, n.loop) &&
          std::ranges::any_of(n.cuts, [&](const OpLoop& c) { return c.op == op; }))
        throw Refused{"every iteration of loop " + workload_.loop(n.loop).name +
                      " writes what there is of " + name + " so far"};
    }
  }
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
    // A unit with a buffer of its own keeps its own part of the result.
    if (cut && inside && !workload_.is_reduction(op, n.loop) && !is_private(l, v.buffer) && !kept)
      throw Refused{"parts of " + name + " would leave before they are summed up: S." + name +
                    " after loop " + workload_.loop(k_.node(v.anchor).loop).name + " keeps them"};
  }
}

// ---- where values lie -------------------------------------------------------------------------

/// Whether the threads that use a load have each of its tile's elements once, where an index of
/// theirs is one of a loop's values.
bool Lowering::covers(const Value& v, const Use& use) const {
  const OpId id = k_.node(use.node).op;
  const Access& a = workload_.op(id).inputs[static_cast<std::size_t>(use.input)];
  Point at = *facts_[v.producer.index()].at;
  for (const Inference& i : k_.node(v.producer).lookahead) infer(i, at);
  // What a block, or a thread that has a tile of its own, has one value of moves where it reads,
  // and nothing within it. What it reads outside of the tensor is zero in each thread by itself.
  const auto fixed = [&](LoopId loop) {
    const Span& r = at.ranges[slot(id, static_cast<std::size_t>(workload_.local_index(id, loop)))];
    return r.most == 1 && std::ranges::all_of(r.lo.terms, [&](const auto& term) {
             const ProgramIndex& i = index(term.first);
             return i.kind == ProgramIndex::Kind::block ||
                    (i.node.valid() && is_around(i.node, v.anchor) &&
                     (i.kind == ProgramIndex::Kind::loop || is_private(i.node, v.buffer)));
           });
  };
  std::set<LoopId> loops;
  for (const Affine& x : a.index) {
    bool moves = false;
    for (const Term& t : x.terms) {
      if (x.terms.size() > 1 && fixed(t.loop)) continue;
      if (moves || t.coefficient != 1 || !loops.insert(t.loop).second) return false;
      moves = true;
    }
  }
  const std::vector<Span> box = access_box(id, a, at);
  return std::ranges::equal(box, v.tile, [](const Span& s, const Span& t) {
    return s.lo == t.lo && s.most == t.most && s.ends == t.ends && s.from_zero == t.from_zero;
  });
}

/// What of `inside` holds where a value is loaded: of loops that the load stands before, in their
/// first turns, in which no unit has less to do than in others.
std::vector<Linear> Lowering::inside_before(const Value& v, const std::vector<Linear>& inside,
                                            const std::set<int>& known) const {
  const auto is_known = [&](const Linear& x) {
    return std::ranges::all_of(x.terms, [&](const auto& t) {
      return known.contains(t.first) || index(t.first).kind == ProgramIndex::Kind::block;
    });
  };
  std::vector<Linear> all;
  std::ranges::copy_if(inside, std::back_inserter(all), is_known);
  for (const Linear& x : inside) {
    Linear first = x;
    for (const auto& [id, c] : x.terms) {
      const ProgramIndex& i = index(id);
      if (i.kind == ProgramIndex::Kind::loop && c < 0 && !known.contains(id) &&
          (i.node == v.anchor || is_around(v.anchor, i.node)))
        first.terms.erase(id);
    }
    if (first != x && is_known(first) && !follows(first, all)) require(all, first);
  }
  return all;
}

/// Whether it is positive wherever all of these are.
bool Lowering::follows(const Linear& x, const std::vector<Linear>& positive) const {
  return std::ranges::any_of(positive,
                             [&](const Linear& y) { return variables_.lower(x - y) >= 0; });
}

/// A load takes the indices of its first use.
bool Lowering::adopt_key(Value& v) {
  v.key = use_key(v.uses.front());
  if (!covers(v, v.uses.front())) {
    v.reason = "no thread has it all, and none an element for itself";
    return false;
  }
  std::set<int> known = ids_of(v.key);
  for (NodeId l : v.around)
    for (int id : {facts_[l.index()].unit, facts_[l.index()].turn}) known.insert(id);
  v.inside = inside_before(v, facts_[v.uses.front().node.index()].inside, known);
  return true;
}

bool Lowering::fits_registers(Value& v) {
  if (v.loaded() && !adopt_key(v)) return false;
  v.dims = own(v.key, v.sum ? k_.node(v.anchor).parent : v.scope);
  if (v.sum && size_of_dims(v.dims) > kArrayValues)
    throw Refused{"a thread would sum up " + std::to_string(size_of_dims(v.dims)) + " values of " +
                  workload_.tensor(v.tensor).name + ": at most " + std::to_string(kArrayValues)};
  std::vector<int> dims = own(v.key, v.scope);
  const std::vector<int> turns = equal_turns(v);
  dims.insert(dims.end(), turns.begin(), turns.end());
  if (size_of_dims(dims) > kArrayValues) {
    v.reason = std::to_string(size_of_dims(dims)) + " values a thread";
    return false;
  }
  for (const Use& use : v.uses) {
    const auto names = match(v.key, use_key(use), v.scope);
    const bool in_turn =
        std::ranges::all_of(turns, [&](int turn) { return is_around(index(turn).node, use.node); });
    if (!names || !in_turn) {
      v.reason = "threads use what others make";
      return false;
    }
    std::vector<Linear> holds = facts_[use.node.index()].inside;
    if (v.loaded())  // what is not loaded is zero, as it is read past the end
      for (Linear& x : there(use)) holds.push_back(std::move(x));
    for (const Linear& x : v.inside)
      if (!follows(renamed(x, *names), holds)) {
        v.reason = "threads use it that do not make it";
        return false;
      }
  }
  if (v.loaded() && warps_ > 1 && copies(v.key, v.around).warp) {
    const Copies c = copies(v.key, v.around);
    v.alike = c.of_warp() && c.of_block() && size_of_dims(dims) <= kAlikeValues;
    v.reason = "loaded once for all warps";
    if (!v.alike) return false;
  }
  v.dims = dims;
  if (v.alike) {
    v.reason = "the same for all threads, each of which loads it";
    return true;
  }
  v.reason = v.uses.empty() ? "on its way home" : "made and used by the same threads";
  return true;
}

/// Whether neighbours read some of the same elements: an index has several loops, or leaps.
bool Lowering::reads_window(const Value& v) const {
  return std::ranges::any_of(v.uses, [&](const Use& use) {
    const Access& a =
        workload_.op(k_.node(use.node).op).inputs[static_cast<std::size_t>(use.input)];
    return std::ranges::any_of(a.index, [](const Affine& x) {
      return x.terms.size() > 1 || (x.terms.size() == 1 && x.terms.front().coefficient != 1);
    });
  });
}

void Lowering::put_shared(Value& v, const std::string& reason) {
  const std::string& name = workload_.tensor(v.tensor).name;
  if (v.uses.empty())
    throw Refused{name + ": " + std::to_string(size_of_dims(own(v.key, v.scope))) +
                  " values a thread"};
  v.storage = Storage::shared;
  v.reason = reason;
  if (const std::vector<int> turns = equal_turns(v); !turns.empty())
    throw Refused{name + " is held by turns of " + index(turns.front()).text +
                  " that have a tile each, all of them equal: " + reason};
  if (!v.loaded()) {
    if (!tiles_.contains(v.buffer)) throw Refused{name + " is computed, and its tile not known"};
    v.tile = tiles_.at(v.buffer);
    v.around = tile_loops_.at(v.buffer);
  } else if (const Copies c = copies({}, v.around); !c.of_warp() && !reads_window(v)) {
    throw Refused{name + (c.lane ? " would be loaded by some lanes of a warp"
                                 : " would be loaded by a lane for others: " + reason)};
  } else if (!c.of_warp()) {
    for (NodeId l : v.around)
      if (unit_of(k_.node(l).binding) && k_.node(l).binding != Binding::grid &&
          k_.node(l).max_trips > 1 && !is_private(l, v.buffer))
        throw Refused{name + " is loaded by each iteration of " +
                      workload_.loop(k_.node(l).loop).name + " into one tile of them all"};
  }
  const bool padded = pad(v);
  v.elements = 1;
  v.pitch.assign(v.tile.size(), 1);
  for (std::size_t d = v.tile.size(); d-- > 0;) {
    v.pitch[d] = v.elements;
    std::int64_t most = v.tile[d].most;
    // An odd number of words between rows: neither rows nor columns meet in one bank.
    // Of a padded window neighbours are read together, from where such a group begins.
    if (d + 1 == v.tile.size() && v.tile.size() > 1 && most > 1 && !padded) most |= 1;
    v.elements *= most;
  }
}

/// The innermost node around a value's maker and all uses.
NodeId Lowering::scope_of(const Value& v) const {
  NodeId scope = k_.node(v.anchor).parent;
  for (const Use& use : v.uses) scope = common(scope, k_.node(use.node).parent);
  return scope;
}

void Lowering::choose_storage(Value& v) {
  if (v.loaded() && v.uses.empty())
    throw Refused{workload_.tensor(v.tensor).name + " is loaded and not used"};
  v.scope = scope_of(v);
  if (k_.node(v.scope).kind == NodeKind::pack)
    throw Refused{workload_.tensor(v.tensor).name + " is used by other blocks than made it"};
  if (fits_registers(v)) return;
  const bool once = v.uses.size() <= 1 && !v.sum &&
                    (v.uses.empty() || loops_around(v.uses.front().node) == loops_around(v.anchor));
  if (once && (v.loaded() ? !v.inside.empty() || covers(v, v.uses.front()) : v.uses.empty()) &&
      size_of_dims(own(v.key, v.scope)) > kArrayValues) {
    v.storage = Storage::direct;
    return;
  }
  put_shared(v, v.reason);
}

void Lowering::choose_unrolling() {
  const auto unroll = [&](int id) { index(id).unrolled = true; };
  for (const Value& v : values_) {
    if (v.storage == Storage::registers || v.sum)
      for (int id : v.dims) unroll(id);
    if (v.storage != Storage::registers) continue;
    for (const Use& use : v.uses)
      for (int id : own(use_key(use), v.scope)) unroll(id);
  }
  for (ProgramIndex& i : p_.indices) {
    if (i.kind == ProgramIndex::Kind::element && i.count <= kArrayValues) i.unrolled = true;
    if (i.kind != ProgramIndex::Kind::loop) continue;
    const Binding b = k_.node(i.node).binding;
    if (b == Binding::unroll || b == Binding::vector ||
        (b != Binding::seq && i.count <= kMostTurns))
      i.unrolled = true;
  }
}

void Lowering::visit_values(NodeId id) {
  const auto before = hoisted_.find(id);
  if (before != hoisted_.end())
    for (NodeId load : before->second) add_load(load);
  const ScheduleNode& n = k_.node(id);
  if (n.kind == NodeKind::load && place_.at(id) == id) add_load(id);
  if (n.kind == NodeKind::compute) add_compute(id);
  if (n.kind == NodeKind::drop) {
    held_[n.buffer.index()] = -1;
    for (auto& [of, held] : held_by_units_)
      if (of.first == n.buffer && (n.all_units || of.second == depth_of_units(id))) held = -1;
  }
  for (NodeId c : n.children) visit_values(c);
}

void Lowering::make_values() {
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::load) place_load(NodeId(i));
  check_same_units();
  for (const auto& [load, place] : place_) check_last_tiles(load);
  visit_values(NodeId(0));
  split_slices();
  for (Value& v : values_) choose_storage(v);
  choose_unrolling();
  unroll_windows();
  // Neighbours at home, which are moved as one, are neighbours in registers.
  for (Value& v : values_) {
    const int last = contiguous(v.tensor, v.key, own(v));
    std::stable_partition(v.dims.begin(), v.dims.end(), [&](int id) { return id != last; });
  }
  choose_names();
}

void Lowering::choose_names() {
  for (Value& v : values_) {
    if (v.storage == Storage::direct) continue;
    v.name = p_.names.fresh(identifier("", workload_.tensor(v.tensor).name) +
                            (v.storage == Storage::shared ? "_shared" : "_own"));
  }
}

}  // namespace tilewright::lowering
