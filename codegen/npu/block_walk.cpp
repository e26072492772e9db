#include "codegen/npu/block_walk.h"

#include <algorithm>

namespace tilewright::npu {

void BlockWalk::walk(std::int64_t block) {
  rest_ = block;
  states_.assign(k_.buffers.size(), {});
  tiles_.assign(k_.buffers.size(), Box());
  open_.clear();
  Ranges ranges = whole_ranges(s_, k_);
  enter_body(NodeId(0), ranges);
  for (NodeId child : k_.node(NodeId(0)).children) visit(child, ranges);
  finish();
}

void BlockWalk::enter_body(NodeId body, Ranges& ranges) {
  const ScheduleNode& n = k_.node(body);
  for (const Inference& i : n.infer) infer(s_, k_, i, ranges);
  for (BufferId b : n.fixes) tiles_[b.index()] = tile_of(s_, k_, buffer(b), ranges);
}

void BlockWalk::visit(NodeId id, const Ranges& ranges) {
  const ScheduleNode& n = k_.node(id);
  switch (n.kind) {
    case NodeKind::loop:
      return visit_loop(id, ranges);
    case NodeKind::sequence:
      for (NodeId c : n.children) {
        begin_part(c);
        visit(c, ranges);
      }
      return;
    case NodeKind::pack:
      for (NodeId c : n.children) {
        const std::int64_t first = k_.node(c).first_block, outer = rest_;
        if (rest_ < first || rest_ >= first + blocks_of(k_, c)) continue;
        rest_ -= first;
        visit(c, ranges);
        rest_ = outer;
      }
      return;
    case NodeKind::load:
      return visit_load(id, ranges);
    case NodeKind::compute:
      return visit_compute(id, ranges);
    case NodeKind::store:
      return visit_store(id, ranges);
    case NodeKind::sync:  // flags order what depends on one another, wherever it stands
      return;
    case NodeKind::drop:  // outside of the loops over blocks, each block comes here, too
      states_[k_.node(id).buffer.index()].valid = false;
      return;
  }
}

void BlockWalk::visit_loop(NodeId id, const Ranges& ranges) {
  const std::int64_t count = trips(k_, id, ranges);
  if (k_.node(id).binding != Binding::grid) {
    for (std::int64_t i = 0; i < count; ++i) visit_iteration(id, i, ranges);
    return;
  }
  const std::int64_t outer = rest_, inside = blocks_below(k_, id);
  const std::int64_t i = rest_ / inside;
  rest_ %= inside;
  if (i < count) visit_iteration(id, i, ranges);
  rest_ = outer;
}

void BlockWalk::visit_iteration(NodeId id, std::int64_t i, const Ranges& around) {
  Ranges inside = around;
  cut(k_, id, i, around, inside);
  begin_iteration(id, i);
  open_.push_back({.id = id, .i = i, .around = &around});
  enter_body(id, inside);
  for (NodeId c : k_.node(id).children) visit(c, inside);
  open_.pop_back();
  end_iteration(id);
}

/// Rule 8.
void BlockWalk::visit_load(NodeId id, const Ranges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Box box = load_box(s_, k_, id, ranges);
  if (box.empty()) return;
  for (BufferId f = n.flush; f.valid(); f = buffer(f).outer)
    if (states_[f.index()].changed) write(f);
  TileState& st = states_[n.buffer.index()];
  tiles_[n.buffer.index()] = box;
  if (st.valid && st.tile == box) return;
  st = {.tile = box, .valid = true};
  open(n.buffer);
  move_in(n.buffer, box);
}

/// Every reduction of the operator is at its low end.
bool BlockWalk::initialises(OpId op, const Ranges& ranges) const {
  const auto r = ranges_of(s_, k_, ranges, op);
  return std::ranges::all_of(w_.reduction_loops(op), [&](LoopId l) {
    return r[static_cast<std::size_t>(w_.local_index(op, l))].lo == 0;
  });
}

bool BlockWalk::completes(OpId op, const Ranges& ranges) const {
  const auto r = ranges_of(s_, k_, ranges, op);
  return std::ranges::all_of(w_.reduction_loops(op), [&](LoopId l) {
    return r[static_cast<std::size_t>(w_.local_index(op, l))].hi == w_.loop(l).extent;
  });
}

/// A sum that is computed again under a loop that does not index it must not be added twice: where
/// some reduction around that loop has begun before, only the loop's first iteration adds.
bool BlockWalk::added_already(OpId op) const {
  return std::ranges::any_of(open_, [&](const OpenLoop& l) {
    const ScheduleNode& n = k_.node(l.id);
    return n.binding != Binding::grid && l.i > 0 &&
           std::ranges::none_of(n.cuts, [&](const OpLoop& c) { return c.op == op; }) &&
           !initialises(op, *l.around);
  });
}

void BlockWalk::visit_compute(NodeId id, const Ranges& ranges) {
  const ScheduleNode& n = k_.node(id);
  if (operations(s_, k_, n.op, ranges).value == 0) return;
  std::vector<SumStep> steps;
  for (const OutputUse& w : n.writes) {
    if (!buffer(w.buffer).fixed_at.valid())
      tiles_[w.buffer.index()] = write_box(s_, k_, n.op, w.output, ranges);
    steps.push_back(
        {.initialises = initialises(n.op, ranges), .completes = completes(n.op, ranges)});
    update(w.buffer, steps.back().initialises);
  }
  if (!added_already(n.op)) compute(id, ranges, steps);
}

void BlockWalk::visit_store(NodeId id, const Ranges& ranges) {
  const ScheduleNode& n = k_.node(id);
  TileState& st = states_[n.buffer.index()];
  if (!st.changed) return;
  const BufferId outer = buffer(n.buffer).outer;
  if (outer.valid())
    update(outer, buffer(n.buffer).role == BufferRole::intermediate ||
                      initialises(w_.producer(n.tensor), ranges));
  move_out(n.buffer, st.tile);
  st.changed = false;
}

/// Rule 12: the buffer's tile is about to be written, by a compute or from an inner buffer.
void BlockWalk::update(BufferId b, bool first) {
  TileState& st = states_[b.index()];
  const Box& tile = tiles_[b.index()];
  if (!st.valid || st.tile != tile) {
    replace(b, tile);
    if (!first && buffer(b).role == BufferRole::output) read_back(b);
  }
  st.changed = true;
}

/// Makes room for another tile: rule 10 for what is changed; on-chip intermediates just go.
void BlockWalk::replace(BufferId b, const Box& tile) {
  TileState& st = states_[b.index()];
  const tilewright::Buffer& buf = buffer(b);
  if (st.changed && (buf.role == BufferRole::output || buf.leaves)) write(b);
  st = {.tile = tile, .valid = true};
  open(b);
}

/// The tile comes from the sink, which may have to read it from its own.
void BlockWalk::read_back(BufferId b) {
  const BufferId outer = buffer(b).outer;
  if (outer.valid() && buffer(outer).role == BufferRole::output) {
    const Box& tile = tiles_[outer.index()];
    if (const TileState& from = state(outer); !from.valid || from.tile != tile) {
      replace(outer, tile);
      read_back(outer);
    }
  }
  move_in(b, states_[b.index()].tile);
}

/// Writes what is held when it has to go: the sink is the tile that held it when it was made.
void BlockWalk::write(BufferId b) {
  TileState& st = states_[b.index()];
  const BufferId outer = buffer(b).outer;
  if (outer.valid()) {
    TileState& to = states_[outer.index()];
    if (to.valid && contains(to.tile, st.tile))
      to.changed = true;
    else
      update(outer, true);
  }
  move_out(b, st.tile);
  st.changed = false;
}

/// Rule 10 at the kernel's end, inner buffers first: they write to outer ones.
void BlockWalk::finish() {
  std::vector<std::pair<int, std::size_t>> order;
  for (std::size_t b = 0; b < k_.buffers.size(); ++b) {
    int depth = 0;
    for (BufferId o = k_.buffers[b].outer; o.valid(); o = buffer(o).outer) ++depth;
    order.emplace_back(-depth, b);
  }
  std::ranges::sort(order);
  for (const auto& [depth, b] : order) {
    const tilewright::Buffer& buf = k_.buffers[b];
    if (states_[b].changed && (buf.role == BufferRole::output || buf.leaves)) write(BufferId(b));
  }
}

}  // namespace tilewright::npu
