// Loops: a few iterations evaluated, stretches of the rest multiplied.
#include <algorithm>

#include "models/exact/evaluation.h"

namespace tilewright::exact_model {

void Evaluation::loop(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  const std::int64_t all = trips(k_, id, ranges_);
  sig_.note(all);
  if (all == 0) return;
  const OpLoop& first = n.cuts.front();
  const std::int64_t full =
      ranges_[k_.range_base[first.op.index()] + static_cast<std::size_t>(first.local)].size() /
      n.step;
  const Tally::Mark before = tally_.mark();
  ++depth_;
  count(id, all, full, around(id));
  if (--depth_ == 0)
    tally_.forget();
  else
    tally_.join(before);
}

/// An iteration changes few of the kernel's ranges: those that it cuts, and those of producers.
Evaluation::Around Evaluation::around(NodeId id) const {
  Around kept;
  const auto keep = [&](OpId op, std::size_t local) {
    const std::size_t slot = k_.range_base[op.index()] + local;
    kept.emplace_back(slot, ranges_[slot]);
  };
  for (const OpLoop& c : k_.node(id).cuts) keep(c.op, static_cast<std::size_t>(c.local));
  for (const Inference& i : k_.node(id).infer)
    for (std::size_t l = 0; l < s_.workload->op(i.producer).loops.size(); ++l) keep(i.producer, l);
  return kept;
}

void Evaluation::put_back(const Around& around) {
  for (const auto& [slot, range] : around) ranges_[slot] = range;
}

Contents Evaluation::contents_in(NodeId loop) const {
  Contents part;
  for (BufferId b : touched_[loop.index()]) {
    part.held.push_back(contents_.held[b.index()]);
    part.fixed.push_back(contents_.fixed[b.index()]);
  }
  return part;
}

void Evaluation::set_contents(NodeId loop, const Contents& part) {
  const std::vector<BufferId>& touched = touched_[loop.index()];
  for (std::size_t i = 0; i < touched.size(); ++i) {
    contents_.held[touched[i].index()] = part.held[i];
    contents_.fixed[touched[i].index()] = part.fixed[i];
  }
}

void Evaluation::count(NodeId id, std::int64_t all, std::int64_t full, const Around& around) {
  std::vector<std::pair<std::size_t, std::int64_t>> block_low;
  if (k_.node(id).binding == Binding::grid)
    for (const auto& [slot, range] : around) block_low.emplace_back(slot, block_low_[slot]);
  // A loop's first iteration is mostly unlike the others. Blocks begin and end with nothing, so
  // theirs is mostly like them; many such loops stand in one another.
  std::int64_t next_try = k_.node(id).binding == Binding::grid ? 0 : 1;
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t most = full - 1 - i;
    const bool trying = jumps_[id.index()] && i >= next_try && most >= 2;
    Contents before;
    if (trying) before = contents_in(id);
    const Iteration done = iterate(id, i, around);
    if (trying) {
      const std::int64_t jumped = jump(id, i, most, around, before, done);
      i += jumped;
      // Where nothing repeats, trying costs more than it saves: try less and less often.
      next_try = i + (jumped > 0 || i < 4 ? 1 : i / 2);
    }
    for (const auto& [slot, low] : block_low) block_low_[slot] = low;
  }
  put_back(around);
}

Evaluation::Iteration Evaluation::iterate(NodeId id, std::int64_t i, const Around& around) {
  const ScheduleNode& n = k_.node(id);
  Iteration it;
  it.before = tally_.mark();
  Signature::Part outer = sig_.begin();
  put_back(around);
  cut(k_, id, i, ranges_, ranges_);
  index_[id.index()] = i;
  if (n.binding == Binding::grid)
    for (const OpLoop& c : n.cuts) {
      const std::size_t slot = k_.range_base[c.op.index()] + static_cast<std::size_t>(c.local);
      block_low_[slot] = ranges_[slot].lo;
    }
  enter(id);
  children(id);
  retire(retired_[id.index()]);
  it.decided = sig_.end(std::move(outer));
  return it;
}

/// Iteration i is done, from `before`. If iteration i + n, started from what the buffers would then
/// hold if every iteration in between moved them on as i did, decides the same and moves them on by
/// as much, then so does each one in between: what decides is affine in the iteration number. So
/// where some n fails, every larger one does. Tries n = most, and less; returns the n that it
/// found, with the buffers as after i + n, or 0.
std::int64_t Evaluation::jump(NodeId id, std::int64_t i, std::int64_t most, const Around& around,
                              const Contents& before, const Iteration& done) {
  const Contents after = contents_in(id);
  if (!same_shape(before, after)) return 0;
  const std::vector<std::int64_t> from = coordinates(before);
  const std::vector<std::int64_t> to = coordinates(after);
  const auto moved_on = [&](std::int64_t steps) {
    std::vector<std::int64_t> values = from;
    for (std::size_t c = 0; c < values.size(); ++c) values[c] += (to[c] - from[c]) * steps;
    return with_coordinates(after, values);
  };
  const Tally::Mark counted = tally_.mark();
  const Signature::Part decided = sig_.now();
  const auto undo = [&] {
    set_contents(id, after);
    tally_.undo(counted);
    sig_.restore(decided);
  };
  const auto repeats = [&](std::int64_t n) {
    set_contents(id, moved_on(n));
    const Iteration last = iterate(id, i + n, around);
    if (alike(done.decided, last.decided, n) && contents_in(id) == moved_on(n + 1)) return true;
    undo();
    return false;
  };

  std::int64_t n = most;
  if (!repeats(n) && (i == 0 || n <= 2 || !repeats(--n))) {
    if (i == 0) return 0;
    // The end is different (clipped, say), or there is no repetition yet: a short stretch tells.
    if (n <= 2 || !repeats(2)) return 0;
    undo();
    do n = std::max<std::int64_t>(n / 2, 2);
    while (!repeats(n));
  }
  tally_.repeat(done.before, counted, n - 1);
  sig_.note(n);
  ++cost_.jumps;
  return n;
}

}  // namespace tilewright::exact_model
