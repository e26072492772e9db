#include "simulator/scratchpad.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tilewright {

BufferContents::BufferContents(const Schedule& s, Mover move) : s_(s), move_(std::move(move)) {}

BufferContents::State& BufferContents::state(BufferId b, std::int64_t instance) {
  Instances& i = instances_[b.index()];
  if (i.last == nullptr || i.last_key != instance) {
    if (i.last != nullptr && visited_once_[b.index()]) leave(b, *i.last);
    i.last = &i.all[instance];
    i.last->instance = instance;
    i.last_key = instance;
  }
  return *i.last;
}

/// The walk never comes back to this instance: what it holds is of no more use, and what it has to
/// write goes now where nothing can tell that from the kernel's end.
void BufferContents::leave(BufferId b, State& st) {
  const Buffer& buf = buffer(b);
  if (st.changed && (buf.role == BufferRole::output || buf.leaves)) {
    if (!order_free_ || buf.outer.valid()) return;
    write(b, st);
  }
  instances_[b.index()].all.erase(st.instance);
}

/// Whether each of its instances is one iteration of loops over units that nothing repeats.
bool BufferContents::visited_once(BufferId b) const {
  for (const Buffer& inner : kernel_->buffers)
    if (inner.outer == b && inner.role != BufferRole::input) return false;  // may be written late
  const auto uses = [&](const ScheduleNode& n) {
    return n.buffer == b || n.flush == b ||
           std::ranges::any_of(n.writes, [&](const OutputUse& w) { return w.buffer == b; });
  };
  const LevelId level = buffer(b).level;
  std::optional<std::vector<NodeId>> loops;
  if (const NodeId at = buffer(b).fixed_at; at.valid()) {
    loops = unit_loops(s_, *kernel_, at, level);
  } else {
    for (std::size_t n = 0; n < kernel_->nodes.size(); ++n) {
      if (!uses(kernel_->nodes[n])) continue;
      std::vector<NodeId> here = unit_loops(s_, *kernel_, NodeId(n), level);
      if (loops && *loops != here) return false;
      loops = std::move(here);
    }
  }
  if (!loops || loops->empty()) return false;
  for (NodeId n = loops->back(); n.valid(); n = kernel_->node(n).parent) {
    const ScheduleNode& l = kernel_->node(n);
    if (l.kind == NodeKind::loop && l.max_trips > 1 && std::ranges::find(*loops, n) == loops->end())
      return false;
  }
  return true;
}

std::vector<BufferContents::Held> BufferContents::held() const {
  std::vector<Held> all;
  for (std::size_t b = 0; b < instances_.size(); ++b)
    for (const auto& [instance, st] : instances_[b].all)
      if (st.valid) all.push_back({BufferId(b), instance, st.held, st.changed});
  std::ranges::sort(all, {}, [](const Held& h) { return std::pair(h.buffer, h.instance); });
  return all;
}

void BufferContents::apply(const AccessEvent& e) {
  event_ = &e;
  switch (e.kind) {
    case AccessKind::kernel_begin:
      return begin(e.kernel);
    case AccessKind::kernel_end:
      return end();
    case AccessKind::load:
      if (managed(e.buffer)) load(e.buffer, e.instance, e.tile);
      return;
    case AccessKind::update:
      if (managed(e.buffer)) update(e.buffer, e.instance, e.tile, e.initialises);
      return;
    case AccessKind::store:
      if (managed(e.buffer)) store(e.buffer, e.instance, e.initialises);
      return;
    case AccessKind::flush:
      if (managed(e.buffer))
        if (State& st = state(e.buffer, e.instance); st.changed) write(e.buffer, st);
      return;
    case AccessKind::drop:
      if (managed(e.buffer)) drop(e.buffer, e.instance);
      return;
    case AccessKind::zero:  // what it crosses is the reader's to know
    case AccessKind::compute:
    case AccessKind::read:    // operand reads cross no boundary
    case AccessKind::gather:  // no buffer holds it
    case AccessKind::sync:
      return;
  }
}

void BufferContents::begin(int kernel) {
  kernel_ = &s_.kernels[static_cast<std::size_t>(kernel)];
  managed_.clear();
  for (const Buffer& b : kernel_->buffers)
    managed_.push_back(s_.machine->level(b.level).managed == Managed::software);
  instances_.assign(kernel_->buffers.size(), {});
  visited_once_.assign(kernel_->buffers.size(), false);
  for (std::size_t b = 0; b < visited_once_.size(); ++b)
    visited_once_[b] = managed_[b] && visited_once(BufferId(b));
  order_free_ = std::ranges::none_of(s_.machine->levels,
                                     [](const Level& l) { return l.kind == LevelKind::cache; });
}

void BufferContents::move(BufferId b, const State& st, const Box& box, bool inward) {
  if (box.empty()) return;
  move_({.kernel = event_->kernel,
         .buffer = b,
         .instance = st.instance,
         .box = box,
         .inward = inward,
         .tiles = event_->tiles});
}

/// Rule 8.
void BufferContents::load(BufferId b, std::int64_t instance, const Box& tile) {
  State& st = state(b, instance);
  if (st.valid && st.held == tile) return;
  const bool part = st.valid && buffer(b).sliding;
  move(b, st, part ? new_part(st.held, tile) : tile, true);
  st.held = tile;
  st.valid = true;
}

/// What is only loaded is at home, too: nothing moves.
void BufferContents::drop(BufferId b, std::int64_t instance) {
  if (instance != kEveryInstance) {
    state(b, instance).valid = false;
    return;
  }
  for (auto& [key, st] : instances_[b.index()].all) st.valid = false;
}

/// Makes room for another tile: rule 10 for what is changed; on-chip intermediates just go.
void BufferContents::replace(BufferId b, State& st, const Box& tile) {
  const Buffer& buf = buffer(b);
  if (st.changed && (buf.role == BufferRole::output || buf.leaves)) write(b, st);
  st.held = tile;
  st.valid = true;
  st.changed = false;
}

/// Rule 12: the buffer's tile is written in part or whole, by a compute or from an inner buffer.
void BufferContents::update(BufferId b, std::int64_t instance, const Box& tile, bool initialises) {
  State& st = state(b, instance);
  const BufferId outer = buffer(b).outer;
  const bool held = st.valid && st.held == tile;
  if (!held) replace(b, st, tile);
  if (outer.valid()) st.outer_instance = event_->instances[outer.index()];
  if (!held && !initialises && buffer(b).role == BufferRole::output && !buffer(b).atomic)
    read_back(b, st);
  st.changed = true;
}

/// The tile comes from the sink, which may have to read it from its own.
void BufferContents::read_back(BufferId b, State& st) {
  const BufferId outer = buffer(b).outer;
  if (managed(outer) && buffer(outer).role == BufferRole::output) {
    State& from = state(outer, st.outer_instance);
    const Box& tile = event_->tiles[outer.index()];
    if (!from.valid || !(from.held == tile)) {
      replace(outer, from, tile);
      if (buffer(outer).outer.valid())
        from.outer_instance = event_->instances[buffer(outer).outer.index()];
      read_back(outer, from);
    }
  }
  move(b, st, st.held, true);
}

/// Writes what is held when it has to go: the sink is the tile that held it when it was made.
void BufferContents::write(BufferId b, State& st) {
  move(b, st, st.held, false);
  st.changed = false;
  const BufferId outer = buffer(b).outer;
  if (!managed(outer)) return;
  State& to = state(outer, st.outer_instance);
  if (to.valid && contains(to.held, st.held))
    to.changed = true;
  else
    update(outer, st.outer_instance, event_->tiles[outer.index()], true);
}

/// An explicit store: the sink is written as by a compute, with its tile of now.
void BufferContents::store(BufferId b, std::int64_t instance, bool initialises) {
  State& st = state(b, instance);
  if (!st.changed) return;
  move(b, st, st.held, false);
  st.changed = false;
  const BufferId outer = buffer(b).outer;
  if (managed(outer))
    update(outer, event_->instances[outer.index()], event_->tiles[outer.index()], initialises);
}

/// Rule 10 at the kernel's end, inner buffers first: they write to outer ones.
void BufferContents::end() {
  std::vector<std::pair<int, std::size_t>> order;
  for (std::size_t b = 0; b < kernel_->buffers.size(); ++b) {
    if (!managed_[b]) continue;
    int depth = 0;
    for (BufferId o = kernel_->buffers[b].outer; o.valid(); o = buffer(o).outer) ++depth;
    order.emplace_back(-depth, b);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [depth, b] : order) {
    const Buffer& buf = kernel_->buffers[b];
    if (buf.role != BufferRole::output && !buf.leaves) continue;
    std::vector<std::int64_t> changed;
    for (const auto& [instance, st] : instances_[b].all)
      if (st.changed) changed.push_back(instance);
    std::sort(changed.begin(), changed.end());  // caches on the way see an order that is stated
    for (const std::int64_t instance : changed) write(BufferId(b), state(BufferId(b), instance));
  }
}

}  // namespace tilewright
