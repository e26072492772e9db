// The ranges and indices that every node has, as expressions of the block, the unit and the turn.
#include <algorithm>
#include <numeric>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {
namespace {

constexpr std::size_t kMostEnds = 16;  // ways in which one index's range may end

}  // namespace

Lowering::Lowering(const Schedule& s, int kernel, const LowerOptions& options)
    : machine_(*s.machine),
      workload_(*s.workload),
      k_(s.kernels[static_cast<std::size_t>(kernel)]),
      options_(options),
      facts_(k_.nodes.size()),
      held_(k_.buffers.size(), -1),
      made_(workload_.tensors().size(), -1) {
  p_.workload = &workload_;
  p_.kernel = &k_;
  p_.f64 = workload_.dtype() == DType::f64;
}

ThreadProgram Lowering::lower() {
  check();
  shape_block();
  Point at;
  at.ranges.resize(k_.range_count);
  for (OpId op : k_.ops)
    for (std::size_t l = 0; l < workload_.op(op).loops.size(); ++l)
      at.ranges[slot(op, l)] = {
          .lo = number(0), .most = workload_.loop(workload_.op(op).loops[l]).extent, .ends = {}};
  enter_body(NodeId(0), at);
  walk(NodeId(0), std::make_shared<const Point>(std::move(at)));
  make_values();
  lay_out();
  blocks_here_ = k_.blocks;
  visit_children(NodeId(0), p_.steps);
  load_first(p_.steps);
  if (machine_.kind == "gpu") load_at_once(p_.steps, false);
  for (const auto& [anchor, flip] : flips_) p_.flips.push_back(flip);
  return std::move(p_);
}

Result<ThreadProgram> lower(const Schedule& s, int kernel, const LowerOptions& options) {
  try {
    return Lowering(s, kernel, options).lower();
  } catch (const Refused& refused) {
    return Reason{s.kernels[static_cast<std::size_t>(kernel)].name + ": " + refused.text,
                  refused.shortage};
  }
}

int Lowering::add_index(ProgramIndex i) {
  const Linear x = variables_.add(i.text, 0, i.count - 1);
  p_.indices.push_back(std::move(i));
  return x.terms.begin()->first;
}

/// Barriers of all blocks before a node: those of the root, the only ones that there are.
int Lowering::phase_of(NodeId node) const {
  while (k_.node(node).parent.valid() && k_.node(k_.node(node).parent).parent.valid())
    node = k_.node(node).parent;
  int phase = 0;
  for (NodeId c : k_.node(NodeId(0)).children) {
    if (c == node) break;
    phase += k_.node(c).kind == NodeKind::sync && k_.node(c).scope == Unit::machine ? 1 : 0;
  }
  return phase;
}

/// The compute that makes a tensor of this kernel.
NodeId Lowering::producer_node(TensorId t) const {
  const OpId op = workload_.producer(t);
  for (std::size_t i = 0; i < k_.nodes.size(); ++i)
    if (k_.nodes[i].kind == NodeKind::compute && k_.nodes[i].op == op) return NodeId(i);
  return NodeId(0);
}

/// What this emitter has no code for.
void Lowering::check() const {
  if (k_.blocks > 0x7fffffff) throw Refused{"it has more than 2^31 blocks"};
  for (const Loop& l : workload_.loops())
    if (l.extent >= (std::int64_t{1} << 31))
      throw Refused{"loop " + l.name + " has 2^31 iterations or more"};
  check_blocks(workload_, k_);
  refuse_once(workload_, k_, options_.target);
  check_sums(workload_, k_, options_.target);
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    const bool inside = k_.node(n.parent.valid() ? n.parent : NodeId(0)).parent.valid();
    if (n.kind == NodeKind::sync && n.scope == Unit::machine && inside)
      throw Refused{"Y.grid inside loops bound to warps, lanes or threads"};
    if (n.kind == NodeKind::drop && inside)
      throw Refused{"D." + workload_.tensor(n.tensor).name +
                    " inside loops bound to warps, lanes or threads"};
    if (n.kind == NodeKind::load && n.flush.valid() &&
        phase_of(producer_node(n.tensor)) == phase_of(NodeId(i)))
      throw Refused{workload_.tensor(n.tensor).name +
                    " goes home and back: another thread's stores would be read"};
    if (n.kind == NodeKind::loop && n.binding == Binding::cluster)
      throw Refused{"loop " + workload_.loop(n.loop).name + " is bound to clusters"};
    if (n.kind == NodeKind::loop && n.binding == Binding::grid)
      for (NodeId p = n.parent; p.valid(); p = k_.node(p).parent)
        if (k_.node(p).kind == NodeKind::loop && k_.node(p).binding != Binding::grid)
          throw Refused{"loop " + workload_.loop(n.loop).name +
                        "@grid stands inside a loop of a block"};
    if (n.kind == NodeKind::compute && workload_.op(n.op).running)
      throw Refused{"operator " + workload_.op(n.op).name +
                    " is running: its result is read before it is complete"};
  }
  for (const Buffer& b : k_.buffers) {
    const Level& level = machine_.level(b.level);
    const std::string what = workload_.tensor(b.tensor).name + " at " + level.name;
    if (level.managed != Managed::software || level.private_to < Unit::grid)
      throw Refused{what + ": tiles lie where software puts them, in a block"};
    if (b.role != BufferRole::input && b.outer.valid())
      throw Refused{workload_.tensor(b.tensor).name + " is computed at " + level.name +
                    " and goes to another level's tile"};
    if (b.sliding) throw Refused{what + ": it slides over loops bound to warps, lanes or threads"};
  }
}

/// Adds what must be positive; not where it always is.
void Lowering::require(std::vector<Linear>& inside, Linear x) const {
  if (variables_.lower(x) > 0) return;
  // A run of elements that ends where others begin lies inside or outside as a whole.
  for (const auto& [id, c] : x.terms) {
    const ProgramIndex& i = index(id);
    if (i.kind != ProgramIndex::Kind::element || c != -1) continue;
    const Linear without = x + linear(id);
    std::int64_t divisor = without.constant;
    for (const auto& [other, factor] : without.terms) divisor = std::gcd(divisor, factor);
    if (divisor % i.count == 0) return require(inside, without);
  }
  if (std::ranges::find(inside, x) == inside.end()) inside.push_back(std::move(x));
}

/// The values that an index takes; where they begin before the tensor, and that is known when the
/// source is written, `clipped` to it.
Span Lowering::access_span(OpId id, const Affine& a, std::int64_t extent, const Point& at,
                           bool clipped) const {
  Span s{.lo = number(a.offset), .most = 1, .ends = {}};
  // Past the last value: by each end of each loop's range, that of a sum of loops by all of theirs.
  std::vector<Linear> ends{number(1 + a.offset)};
  for (const Term& t : a.terms) {
    const Span& r =
        at.ranges[slot(id, static_cast<std::size_t>(workload_.local_index(id, t.loop)))];
    const bool up = t.coefficient > 0;
    if ((!r.ends.empty() || r.from_zero) && !up)
      throw Refused{"operator " + workload_.op(id).name + " reads by an index that falls with " +
                    workload_.loop(t.loop).name + ", whose range may be cut short"};
    if (r.from_zero && a.terms.size() > 1)
      throw Refused{"operator " + workload_.op(id).name + " reads by an index of " +
                    workload_.loop(t.loop).name + ", whose range may begin late"};
    s.from_zero = s.from_zero || r.from_zero;
    s.lo = s.lo + t.coefficient * (up ? r.lo : r.lo + number(r.most - 1));
    s.most += std::abs(t.coefficient) * (r.most - 1);
    std::vector<Linear> of_loop = r.ends, with_loop;
    of_loop.push_back(up ? r.lo + number(r.most) : r.lo + number(1));
    if (ends.size() * of_loop.size() > kMostEnds)
      throw Refused{"operator " + workload_.op(id).name +
                    " reads by an index of loops whose ranges "
                    "are cut short in too many ways"};
    for (const Linear& before : ends)
      for (const Linear& e : of_loop) with_loop.push_back(before + t.coefficient * (e - number(1)));
    ends = std::move(with_loop);
  }
  ends.pop_back();  // where no range is cut short
  for (Linear& e : ends)
    if (std::ranges::find(s.ends, e) == s.ends.end()) s.ends.push_back(std::move(e));
  if (clipped && s.lo.is_constant() && s.lo.constant < 0 && s.lo.constant + s.most > 0) {
    // Begins before the tensor, known when source is written: as if it began with it.
    s.most = std::min(s.most + s.lo.constant, extent);
    s.lo = number(0);
  }
  s.from_zero = s.from_zero || variables_.lower(s.lo) < 0;
  const Linear end = number(extent);
  const bool within =
      variables_.upper(s.lo) + s.most <= extent ||
      std::ranges::any_of(s.ends, [&](const Linear& e) { return variables_.upper(e) <= extent; });
  if (!within) s.ends.push_back(end);
  return s;
}

Span Lowering::hull(const Span& a, const Span& b) const {
  const Linear apart = b.lo - a.lo;
  if (!apart.is_constant())
    throw Refused{"what several operators read has no beginning known when source is written"};
  Span s;
  s.from_zero = a.from_zero || b.from_zero;
  const std::int64_t low = std::min<std::int64_t>(0, apart.constant);
  s.lo = a.lo + number(low);
  s.most = std::max(a.most, apart.constant + b.most) - low;
  // A span ends at the least of its ends and of where all of it would end. It ends no later than
  // another one if for each of the other's ends it has one that comes no later.
  const auto all_ends = [this](const Span& x) {
    std::vector<Linear> ends = x.ends;
    ends.push_back(x.lo + number(x.most));
    return ends;
  };
  const auto no_later = [&](const Span& x, const Span& y) {
    const std::vector<Linear> mine = all_ends(x), others = all_ends(y);
    return std::ranges::all_of(others, [&](const Linear& theirs) {
      return std::ranges::any_of(
          mine, [&](const Linear& e) { return variables_.lower(theirs - e) >= 0; });
    });
  };
  const Span* const last = no_later(a, b) ? &b : no_later(b, a) ? &a : nullptr;
  if (last == nullptr)
    throw Refused{"what several operators read ends in ways that are not told apart"};
  s.ends = last->ends;
  const Linear whole = last->lo + number(last->most);
  if (whole != s.lo + number(s.most)) s.ends.push_back(whole);
  return s;
}

std::vector<Span> Lowering::access_box(OpId op, const Access& access, const Point& at) const {
  std::vector<Span> box;
  for (std::size_t d = 0; d < access.index.size(); ++d)
    box.push_back(access_span(op, access.index[d], workload_.tensor(access.tensor).shape[d], at));
  return box;
}

std::vector<Span> Lowering::reads_box(const std::vector<ReadRef>& reads, const Point& at) const {
  std::vector<Span> all;
  for (const ReadRef& r : reads) {
    std::vector<Span> box =
        access_box(r.op, workload_.op(r.op).inputs[static_cast<std::size_t>(r.input)], at);
    if (all.empty()) {
      all = std::move(box);
      continue;
    }
    for (std::size_t d = 0; d < box.size(); ++d) all[d] = hull(all[d], box[d]);
  }
  return all;
}

/// What they read once the ranges further in are known.
std::vector<Span> Lowering::reads_ahead(const std::vector<ReadRef>& reads,
                                        const std::vector<Inference>& lookahead,
                                        const Point& at) const {
  if (lookahead.empty()) return reads_box(reads, at);
  Point ahead = at;
  for (const Inference& i : lookahead) infer(i, ahead);
  return reads_box(reads, ahead);
}

/// Rule 2: the producer's ranges become what its consumers need.
void Lowering::infer(const Inference& i, Point& at) const {
  const std::vector<Span> need = reads_ahead(i.reads, i.lookahead, at);
  const Access& target =
      workload_.op(i.producer).outputs[static_cast<std::size_t>(i.output)].target;
  for (std::size_t d = 0; d < need.size(); ++d) {
    const auto loop = target.index[d].plain_loop();
    if (!loop) continue;
    Span& r = at.ranges[slot(i.producer,
                             static_cast<std::size_t>(workload_.local_index(i.producer, *loop)))];
    r = i.merge ? hull(r, need[d]) : need[d];
  }
}

void Lowering::fix_tiles(NodeId body, const Point& at) {
  for (BufferId b : k_.node(body).fixes) {
    const Buffer& buffer = k_.buffer(b);
    std::vector<Span>& tile = tiles_[b];
    tile = reads_ahead(buffer.reads, buffer.lookahead, at);
    if (buffer.writes.empty()) {
      tile_loops_[b] = at.loops;
      continue;
    }
    Point ahead = at;
    for (const Inference& i : buffer.lookahead) infer(i, ahead);
    for (const auto& [op, output] : buffer.writes) {
      const std::vector<Span> box =
          access_box(op, workload_.op(op).outputs[static_cast<std::size_t>(output)].target, ahead);
      if (tile.empty())
        tile = box;
      else
        for (std::size_t d = 0; d < box.size(); ++d) tile[d] = hull(tile[d], box[d]);
    }
    tile_loops_[b] = at.loops;
  }
}

void Lowering::enter_body(NodeId body, Point& at) {
  for (const Inference& i : k_.node(body).infer) infer(i, at);
  fix_tiles(body, at);
}

Key Lowering::key_of(const Operator& op, const Access& access,
                     const std::vector<Linear>& point) const {
  Key key;
  for (const Affine& a : access.index) {
    Linear x = number(a.offset);
    for (const Term& t : a.terms) {
      const auto local = std::ranges::find(op.loops, t.loop) - op.loops.begin();
      x = x + t.coefficient * point[static_cast<std::size_t>(local)];
    }
    key.push_back(std::move(x));
  }
  return key;
}

void Lowering::walk(NodeId id, const std::shared_ptr<const Point>& at) {
  const ScheduleNode& n = k_.node(id);
  facts_[id.index()].at = at;
  switch (n.kind) {
    case NodeKind::loop:
      return walk_loop(id, *at);
    case NodeKind::compute:
      return walk_compute(id, *at);
    case NodeKind::load:
      facts_[id.index()].tile = reads_ahead(n.reads_below, n.lookahead, *at);
      return check_window(n.tensor, facts_[id.index()].tile);
    case NodeKind::sequence:
    case NodeKind::pack:
      for (NodeId c : n.children) walk(c, at);
      return;
    case NodeKind::store:
    case NodeKind::sync:
    case NodeKind::drop:
      return;
  }
}

/// A window that is wider than its tensor has the same box, all of the tensor, in several turns:
/// loaded once, where each turn would read of it what it needs.
void Lowering::check_window(TensorId t, const std::vector<Span>& tile) const {
  for (std::size_t d = 0; d < tile.size(); ++d) {
    const std::int64_t wider = tile[d].most - workload_.tensor(t).shape[d];
    if (!tile[d].from_zero || wider <= 0) continue;
    for (const auto& [id, step] : tile[d].lo.terms)
      if (index(id).kind == ProgramIndex::Kind::loop && index(id).count > 1 &&
          std::abs(step) <= wider)
        throw Refused{"turns of " + index(id).text + " read the same of " +
                      workload_.tensor(t).name + ", which is narrower than the window"};
  }
}

void Lowering::walk_loop(NodeId id, const Point& around) {
  const ScheduleNode& n = k_.node(id);
  bind(id);
  const Facts& facts = facts_[id.index()];
  Linear turn = number(0);
  std::int64_t last = 0;
  if (facts.unit >= 0 && n.max_trips > 1) {
    turn = linear(facts.unit);
    last = index(facts.unit).count - 1;
  }
  if (facts.turn >= 0) {
    const std::int64_t size = facts.unit >= 0 ? index(facts.unit).count : 1;
    turn = turn + size * linear(facts.turn);
    last += size * (index(facts.turn).count - 1);
  }
  Point at = around;
  at.loops.push_back(id);
  const OpLoop& first = n.cuts.front();
  const Span outer = around.ranges[slot(first.op, static_cast<std::size_t>(first.local))];
  if (outer.from_zero && n.max_trips > 1)
    throw Refused{"loop " + workload_.loop(n.loop).name +
                  " cuts a range that begins late where a window reaches before its tensor"};
  facts_[id.index()].cut_short = !outer.ends.empty();
  facts_[id.index()].uneven = outer.most % n.step != 0;
  // A range that begins late has a single turn, and where it begins is not known here.
  Span inner{.lo = outer.lo + n.step * turn,
             .most = outer.from_zero ? outer.most : std::min(n.step, outer.most),
             .ends = {},
             .from_zero = outer.from_zero};
  std::vector<Linear> ends = outer.ends;
  if (last * n.step + inner.most > outer.most) {
    const Linear end = outer.lo + number(outer.most);
    if (std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  }
  for (const Linear& e : ends) {
    if (variables_.lower(e - inner.lo) >= inner.most) continue;
    inner.ends.push_back(e);
    require(at.inside, e - inner.lo);
  }
  if (facts.unit >= 0 && n.max_trips == 1) require(at.inside, number(1) - linear(facts.unit));
  for (const OpLoop& c : n.cuts) at.ranges[slot(c.op, static_cast<std::size_t>(c.local))] = inner;
  enter_body(id, at);
  const auto inside = std::make_shared<const Point>(std::move(at));
  for (NodeId c : n.children) walk(c, inside);
}

void Lowering::walk_compute(NodeId id, const Point& at) {
  const OpId op_id = k_.node(id).op;
  const Operator& op = workload_.op(op_id);
  Facts& facts = facts_[id.index()];
  std::vector<std::pair<std::size_t, Linear>> ends;
  std::vector<std::size_t> begins;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const Span& r = at.ranges[slot(op_id, l)];
    Linear value = r.lo;
    if (r.most > 1) {
      const int e =
          add_index({.kind = ProgramIndex::Kind::element,
                     .text = p_.names.fresh(identifier("e_", workload_.loop(op.loops[l]).name)),
                     .count = r.most,
                     .node = id});
      facts.elements.push_back(e);
      value = value + linear(e);
    }
    facts.point.push_back(value);
    for (const Linear& e : r.ends) ends.emplace_back(l, e);
    if (r.from_zero) begins.push_back(l);
  }
  facts.inside = at.inside;
  for (std::size_t l : begins) require(facts.inside, facts.point[l] + number(1));
  for (const auto& [l, e] : ends) require(facts.inside, e - facts.point[l]);
}

}  // namespace tilewright::lowering
