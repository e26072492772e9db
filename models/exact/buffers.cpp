// What buffers hold, and what moves when they are touched (plan.md rules 4 to 12).
#include <algorithm>

#include "models/exact/evaluation.h"

namespace tilewright::exact_model {

namespace {

/// Loop nodes around a node, itself included, outermost first.
std::vector<NodeId> loops_around(const ScheduledKernel& k, NodeId n) {
  std::vector<NodeId> loops;
  for (; n.valid(); n = k.node(n).parent)
    if (k.node(n).kind == NodeKind::loop) loops.push_back(n);
  std::reverse(loops.begin(), loops.end());
  return loops;
}

bool has(const std::vector<NodeId>& nodes, NodeId n) {
  return std::find(nodes.begin(), nodes.end(), n) != nodes.end();
}

/// The innermost loop all of whose iterations leave a buffer's instances behind for good: all
/// places that fix its tile are in it, and every loop around it tells instances apart too. None if
/// there is no such loop, or if units are numbered differently at different places.
NodeId left_behind(const ScheduledKernel& k, const std::vector<NodeId>& places,
                   const std::vector<std::vector<NodeId>>& units) {
  const auto within_block = [&](const std::vector<NodeId>& loops) {
    std::vector<NodeId> inner;
    for (NodeId l : loops)
      if (k.node(l).binding != Binding::grid) inner.push_back(l);
    return inner;
  };
  NodeId found;
  if (places.empty()) return found;
  for (NodeId l : loops_around(k, places.front())) {
    for (const auto& u : units)
      if (!has(u, l) ||
          (k.node(l).binding != Binding::grid && within_block(u) != within_block(units.front())))
        return found;
    found = l;
  }
  return found;
}

/// Whether two nodes stand in different parts of a pack, and so are run by different blocks.
bool in_other_parts(const ScheduledKernel& k, NodeId a, NodeId b) {
  while (a != b) {  // a node comes after those around it
    NodeId& later = a < b ? b : a;
    later = k.node(later).parent;
  }
  return k.node(a).kind == NodeKind::pack;
}

}  // namespace

void Evaluation::place_buffers() {
  const std::size_t n = k_.buffers.size();
  homes_.resize(k_.nodes.size());
  crossings_.resize(n);
  retired_.resize(k_.nodes.size());
  jumps_.assign(k_.nodes.size(), true);
  touched_ = find_touched();
  const std::vector<std::vector<NodeId>> places = this->places();
  contents_.held.resize(n);
  contents_.fixed.resize(n);
  instance_.resize(n);
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) blocks_.push_back(blocks_below(k_, NodeId(i)));
  for (const ScheduleNode& node : k_.nodes)
    if (node.kind == NodeKind::compute && node.once)
      for (const OutputUse& use : node.writes) crossings_[use.buffer.index()].complete = true;
  for (std::size_t i = 0; i < n; ++i) {
    const Buffer& b = k_.buffers[i];
    Crossing& c = crossings_[i];
    c.in = tally_.crossed(b.outer_level, b.level);
    c.out = tally_.crossed(b.level, b.outer_level);
    c.tracked = !stays(b) || b.sliding || c.complete;
    place_units(BufferId(i), places[i]);
  }
}

/// By buffer, the nodes that fix its tile: the body of its home point or store, loads, or computes.
std::vector<std::vector<NodeId>> Evaluation::places() const {
  std::vector<std::vector<NodeId>> places(k_.buffers.size());
  for (std::size_t b = 0; b < k_.buffers.size(); ++b)
    if (k_.buffers[b].fixed_at.valid()) places[b].push_back(k_.buffers[b].fixed_at);
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind == NodeKind::load || (n.kind == NodeKind::drop && !n.all_units))
      places[n.buffer.index()].emplace_back(i);
    if (n.kind != NodeKind::compute) continue;
    for (const OutputUse& use : n.writes)
      if (!buffer(use.buffer).fixed_at.valid()) places[use.buffer.index()].emplace_back(i);
  }
  return places;
}

/// By loop, the buffers that a node below it fills, writes, fixes or empties, with those behind
/// them.
std::vector<std::vector<BufferId>> Evaluation::find_touched() const {
  std::vector<std::vector<BufferId>> touched(k_.nodes.size());
  for (std::size_t i = k_.nodes.size(); i-- > 0;) {  // children before parents
    const ScheduleNode& n = k_.nodes[i];
    std::vector<BufferId>& own = touched[i];
    const auto add = [&](BufferId b) {
      for (; b.valid(); b = buffer(b).outer) own.push_back(b);
    };
    if (n.kind == NodeKind::load || n.kind == NodeKind::store || n.kind == NodeKind::drop)
      add(n.buffer);
    add(n.flush);
    for (const OutputUse& use : n.writes) add(use.buffer);
    for (BufferId b : n.fixes) add(b);
    for (NodeId c : n.children) {
      std::vector<BufferId>& below = touched[c.index()];
      own.insert(own.end(), below.begin(), below.end());
      if (k_.node(c).kind != NodeKind::loop) below = {};
    }
    std::ranges::sort(own);
    own.erase(std::unique(own.begin(), own.end()), own.end());
  }
  return touched;
}

void Evaluation::place_units(BufferId id, const std::vector<NodeId>& places) {
  const LevelId level = buffer(id).level;
  std::vector<std::vector<NodeId>> units;
  for (NodeId place : places) {
    Home home{.units = unit_loops(s_, k_, place, level)};
    units.push_back(home.units);
    if (s_.machine->level(level).private_to != Unit::machine)
      for (NodeId n = place; n.valid(); n = k_.node(n).parent)
        home.first_block += k_.node(n).first_block;
    homes_[place.index()][id] = std::move(home);
  }
  // Parts of a pack are blocks of their own, and keep no instance for one another; but where the
  // same blocks go on with something else, they find what a part has left.
  std::vector<std::size_t> group(places.size());
  for (std::size_t p = 0; p < places.size(); ++p) {
    group[p] = p;
    for (std::size_t q = 0; q < p; ++q)
      if (group[q] != group[p] && !in_other_parts(k_, places[p], places[q]))
        std::ranges::replace(group, std::size_t(group[q]), std::size_t(group[p]));
  }
  std::map<std::size_t, std::pair<std::vector<NodeId>, std::vector<std::vector<NodeId>>>> parts;
  for (std::size_t p = 0; p < places.size(); ++p) {
    auto& [here, loops] = parts[group[p]];
    here.push_back(places[p]), loops.push_back(units[p]);
  }
  for (const auto& [part, of] : parts) {
    const NodeId left = left_behind(k_, of.first, of.second);
    if (left.valid()) retired_[left.index()].push_back(id);
    if (!crossings_[id.index()].tracked) continue;
    // Loops whose iterations keep instances for later have something new to hold each time.
    const auto covered = left.valid() ? loops_around(k_, left) : std::vector<NodeId>();
    for (const auto& u : of.second)
      for (NodeId l : u)
        if (!has(covered, l)) jumps_[l.index()] = false;
  }
}

/// The instance that a place (a load, a compute, a body) uses of a buffer is the current one.
void Evaluation::settle(BufferId b, NodeId place) {
  const Home& home = homes_[place.index()].at(b);
  Instance now{.block = home.first_block};
  std::int64_t depth = 0;
  for (NodeId l : home.units) {
    const ScheduleNode& n = k_.node(l);
    if (n.binding == Binding::grid)
      now.block += index_[l.index()] * blocks_[l.index()];
    else
      now.unit = now.unit * n.max_trips + index_[l.index()], ++depth;
  }
  // A unit is not the first of those within it.
  now.unit += depth << 40;
  instance_[b.index()] = now;
}

Content* Evaluation::find(BufferId b) {
  auto& instances = contents_.held[b.index()];
  const auto at = instances.find(instance_[b.index()]);
  sig_.note(at != instances.end());
  return at == instances.end() ? nullptr : &at->second;
}

Content& Evaluation::put(BufferId b, Content content) {
  Content& c = contents_.held[b.index()][instance_[b.index()]];
  c = std::move(content);
  return c;
}

void Evaluation::move_in(BufferId id, const Box& box) {
  const Buffer& b = buffer(id);
  sig_.sizes(box);
  const std::int64_t bytes = box.size() * size_of(s_.workload->tensor(b.tensor).dtype);
  for (std::size_t boundary : crossings_[id.index()].in) tally_.read(boundary, b.tensor, bytes);
  if (b.role != BufferRole::input && b.outer.valid())
    touch_to_read(b.outer, contents_.fixed[b.outer.index()]);
}

void Evaluation::move_out(BufferId id, const Box& box) {
  sig_.sizes(box);
  const TensorId t = buffer(id).tensor;
  const std::int64_t bytes = box.size() * size_of(s_.workload->tensor(t).dtype);
  for (std::size_t boundary : crossings_[id.index()].out) tally_.written(boundary, t, bytes);
}

void Evaluation::write_out(BufferId id, const Box& box, bool initialises) {
  move_out(id, box);
  const Buffer& b = buffer(id);
  if (b.outer.valid()) touch(b.outer, contents_.fixed[b.outer.index()], initialises);
}

void Evaluation::write_if_changed(BufferId b) {
  if (stays(buffer(b))) return;
  Content* c = find(b);
  sig_.note(c != nullptr && c->changed);
  if (!c || !c->changed) return;
  c->changed = false;
  const Box tile(c->tile);
  const BufferId outer = buffer(b).outer;
  Content* to = outer.valid() ? find(outer) : nullptr;
  if (to && holds(Box(to->tile), tile)) {
    // What is written late belongs to the outer tile that it was made in, where that is still
    // there.
    move_out(b, tile);
    to->changed = !stays(buffer(outer));
    return;
  }
  write_out(b, tile, c->fresh);
}

bool Evaluation::holds(const Box& outer, const Box& inner) {
  for (int d = 0; d < inner.rank(); ++d) {
    sig_.compare(outer[d].lo, inner[d].lo);
    sig_.compare(outer[d].hi, inner[d].hi);
  }
  return contains(outer, inner);
}

/// A compute, or an inner buffer that is written out, changes `tile` of an output or intermediate.
void Evaluation::touch(BufferId id, const Box& tile, bool initialises) {
  if (!crossings_[id.index()].tracked) return;
  const bool moves = !stays(buffer(id));
  Content* held = find(id);
  if (held && sig_.equal(held->tile, tile)) {
    held->changed = moves;
    return;
  }
  if (held && moves) write_if_changed(id);
  if (moves && !initialises) move_in(id, tile);
  put(id, {.tile = tile, .changed = moves, .fresh = initialises});
}

/// An inner buffer reads its tile back out of an outer one, which may have to read its own first.
void Evaluation::touch_to_read(BufferId id, const Box& tile) {
  if (stays(buffer(id))) return;
  const Content* held = find(id);
  if (held && sig_.equal(held->tile, tile)) return;
  if (held) write_if_changed(id);
  move_in(id, tile);
  put(id, {.tile = tile});
}

}  // namespace tilewright::exact_model
