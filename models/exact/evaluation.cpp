#include "models/exact/evaluation.h"

#include <algorithm>
#include <cstdlib>

#include "core/workload/access.h"

namespace tilewright::exact_model {

Evaluation::Evaluation(const Schedule& s, const ScheduledKernel& k, Tally& tally, ExactCost& cost,
                       std::int64_t most_nodes)
    : s_(s), k_(k), tally_(tally), cost_(cost), most_nodes_(most_nodes) {
  ranges_ = whole_ranges(s, k);
  block_low_.assign(ranges_.size(), 0);
  index_.assign(k.nodes.size(), 0);
  place_buffers();
}

void Evaluation::run() {
  zero();
  enter(NodeId(0));
  children(NodeId(0));
  std::vector<BufferId> all;
  for (std::size_t b = 0; b < k_.buffers.size(); ++b) all.emplace_back(b);
  retire(all);
}

/// A tensor combined over blocks is written once whole before they start (rule 12).
void Evaluation::zero() {
  for (TensorId t : k_.zeroed)
    for (std::size_t b = 0; b < k_.buffers.size(); ++b) {
      const Buffer& last = k_.buffers[b];
      if (last.tensor != t || last.role == BufferRole::input || last.outer.valid()) continue;
      for (std::size_t boundary : crossings_[b].out)
        tally_.written(boundary, t, s_.workload->tensor(t).bytes().value);
    }
}

void Evaluation::children(NodeId id) {
  for (NodeId c : k_.node(id).children) node(c);
}

void Evaluation::node(NodeId id) {
  if (++cost_.nodes > most_nodes_) throw GivenUp();
  switch (k_.node(id).kind) {
    case NodeKind::loop:
      return loop(id);
    case NodeKind::sequence:
    case NodeKind::pack:
      return children(id);
    case NodeKind::load:
      return load(id);
    case NodeKind::compute:
      return compute(id);
    case NodeKind::store:
      return store(id);
    case NodeKind::sync:
      return;
    case NodeKind::drop:
      return drop(id);
  }
}

void Evaluation::enter(NodeId body) {
  const ScheduleNode& n = k_.node(body);
  for (BufferId b : n.fixes) settle(b, body);
  for (const Inference& i : n.infer) {
    if (!i.sliding) {
      infer(at(), i, ranges_, nullptr, sig_);
      continue;
    }
    const Content* held = find(i.buffer);
    infer(at(), i, ranges_, held ? &held->tile : nullptr, sig_);
  }
  for (BufferId b : n.fixes) {
    const Box region = tile_of(at(), buffer(b), ranges_, sig_);
    contents_.fixed[b.index()] = region;
    if (!crossings_[b.index()].tracked) continue;
    Content* held = find(b);
    if (held && sig_.equal(held->tile, region)) continue;
    // Another region empties an intermediate (rule 5). Of one that slides, what is new is about to
    // be computed, so from here on it is there. What an output holds may still have to be written.
    if (stays(buffer(b)))
      put(b, {.tile = region});
    else if (held)
      held->complete.clear();
  }
}

void Evaluation::load(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  if (n.only_for.valid() && skipped(n.only_for)) return;
  const Box tile = load_box(at(), id, ranges_, sig_);
  if (tile.empty()) return;
  for (BufferId b = n.flush; b.valid(); b = buffer(b).outer) write_if_changed(b);
  settle(n.buffer, id);
  Content* held = find(n.buffer);
  if (held && sig_.equal(held->tile, tile)) return;
  move_in(n.buffer, held && buffer(n.buffer).sliding ? new_part(held->tile, tile, sig_) : tile);
  put(n.buffer, {.tile = tile});
}

void Evaluation::drop(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  auto& instances = contents_.held[n.buffer.index()];
  if (n.all_units) {
    sig_.note(static_cast<std::int64_t>(instances.size()));
    return instances.clear();
  }
  settle(n.buffer, id);
  sig_.note(static_cast<std::int64_t>(instances.erase(instance_[n.buffer.index()])));
}

bool Evaluation::combined_over_blocks(TensorId t) const {
  return std::ranges::find(k_.zeroed, t) != k_.zeroed.end();
}

void Evaluation::store(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  Content* c = find(n.buffer);
  sig_.note(c != nullptr && c->changed);
  if (!c || !c->changed) return;
  const bool initialises = at_low_end(n.op, combined_over_blocks(n.tensor));
  c->changed = false;
  write_out(n.buffer, Box(c->tile), initialises);
}

void Evaluation::compute(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  std::int64_t points = 1;
  for (const Interval& range : ranges_of(s_, k_, ranges_, n.op)) {
    sig_.note(range.size());
    points *= range.size();
  }
  if (points == 0 || skipped(id)) return;
  tally_.computed(n.op, points);
  gather(n);
  for (const OutputUse& use : n.writes) {
    const bool fixed = buffer(use.buffer).fixed_at.valid();
    if (!fixed) settle(use.buffer, id);
    const Box box = write_box(at(), n.op, use.output, ranges_, sig_);
    touch(use.buffer, fixed ? contents_.fixed[use.buffer.index()] : box,
          at_low_end(n.op, use.atomic));
    if (!n.once) continue;
    bool done = true;
    for (LoopId l : s_.workload->reduction_loops(n.op)) {
      const int local = s_.workload->local_index(n.op, l);
      const Interval range = ranges_of(s_, k_, ranges_, n.op)[static_cast<std::size_t>(local)];
      sig_.compare(range.hi, s_.workload->loop(l).extent);
      done &= range.hi == s_.workload->loop(l).extent;
    }
    if (done) complete(*find(use.buffer), box);
  }
}

/// What is indexed by values comes from home an element a point, whatever came before.
void Evaluation::gather(const ScheduleNode& compute) {
  for (const InputUse& use : compute.reads) {
    if (use.buffer.valid()) continue;
    note_edges(compute.op, use.inputs.front());
    const std::int64_t bytes = gathered_elements(s_, k_, compute.op, use.inputs.front(), ranges_) *
                               size_of(s_.workload->tensor(use.tensor).dtype);
    for (std::size_t boundary : tally_.crossed(s_.machine->home(), k_.level))
      tally_.read(boundary, use.tensor, bytes);
  }
}

/// What decides how many points of a gather are inside its tensor.
void Evaluation::note_edges(OpId id, int input) {
  const Operator& op = s_.workload->op(id);
  const Access& a = op.inputs[static_cast<std::size_t>(input)];
  const auto ranges = ranges_of(s_, k_, ranges_, id);
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine& index = a.index[d];
    if (index.gathered >= 0) continue;
    const Interval all{0, s_.workload->tensor(a.tensor).shape[d]};
    const Interval read = footprint(op, index, ranges);
    sig_.compare(read, all);
    if (contains(all, read)) continue;
    sig_.compare(read.hi, all.lo);
    sig_.compare(read.lo, all.hi);
    const Interval inside = intersect(read, all);
    sig_.note(inside.size());
    if (inside.empty()) continue;
    // A loop that moves one dimension alone by single steps is cut off as that is.
    if (index.terms.size() != 1 || std::abs(index.terms[0].coefficient) != 1 ||
        std::ranges::any_of(a.index, [&](const Affine& other) {
          return &other != &index && indexes(other, index.terms[0].loop);
        }))
      return sig_.poison();
  }
}

/// Every reduction range is at its low end: the whole loop's, or with !atomic the block's.
bool Evaluation::at_low_end(OpId op, bool atomic) {
  bool at_low = true;
  for (LoopId l : s_.workload->reduction_loops(op)) {
    const std::size_t slot =
        k_.range_base[op.index()] + static_cast<std::size_t>(s_.workload->local_index(op, l));
    const std::int64_t low = atomic ? block_low_[slot] : 0;
    sig_.compare(ranges_[slot].lo, low);
    at_low &= ranges_[slot].lo == low;
  }
  return at_low;
}

/// Rule 13: a !once compute does nothing where every output holds this very box complete.
bool Evaluation::skipped(NodeId id) {
  const ScheduleNode& n = k_.node(id);
  if (!n.once) return false;
  for (const OutputUse& use : n.writes) {
    const Box box = write_box(at(), n.op, use.output, ranges_, sig_);
    const bool fixed = buffer(use.buffer).fixed_at.valid();
    if (!fixed) settle(use.buffer, id);
    const Content* held = find(use.buffer);
    const Box& tile = fixed ? contents_.fixed[use.buffer.index()] : box;
    if (!held || !sig_.equal(held->tile, tile)) return false;
    const auto found = find_complete(*held, box);
    sig_.note(found ? static_cast<std::int64_t>(found->progression) : -1);
    if (found) {
      const Progression& p = held->complete[found->progression];
      sig_.compare(found->position, 0);
      sig_.compare(found->position, p.count - 1);
      sig_.must_stay_whole(found->position);
      continue;
    }
    for (const Progression& p : held->complete) {
      bool beyond = false;
      for (int d = 0; d < box.rank(); ++d) {
        const auto [lo, hi] = std::minmax(p.first[d].lo, p.last[d].lo);
        sig_.compare(box[d].lo, lo);
        sig_.compare(box[d].lo, hi);
        beyond |= box[d].lo < lo || box[d].lo > hi || box[d].size() != p.first[d].size();
      }
      if (!beyond) sig_.poison();
    }
    return false;
  }
  return true;
}

void Evaluation::retire(std::span<const BufferId> buffers) {
  for (BufferId b : buffers) {
    auto& instances = contents_.held[b.index()];
    sig_.note(static_cast<std::int64_t>(instances.size()));
    for (auto& [instance, content] : instances) {
      instance_[b.index()] = instance;
      write_if_changed(b);
    }
    instances.clear();
  }
}

}  // namespace tilewright::exact_model
