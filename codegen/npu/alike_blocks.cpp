#include "codegen/npu/alike_blocks.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace tilewright::npu {
namespace {

/// Whether nothing but sequences is around grid loops.
bool outermost(const ScheduledKernel& k, const std::vector<NodeId>& grid_loops) {
  return std::ranges::all_of(grid_loops, [&](NodeId loop) {
    for (NodeId n = k.node(loop).parent; n.valid(); n = k.node(n).parent)
      if (k.node(n).kind == NodeKind::loop && k.node(n).binding != Binding::grid) return false;
    return true;
  });
}

/// Of an access's dimension: the indices that it may have, wherever its tensor ends.
Interval indices(const Workload& w, OpId op, const Affine& index,
                 const std::span<const Interval> ranges) {
  Interval all{index.offset, index.offset + 1};
  for (const Term& t : index.terms) {
    const Interval& range = ranges[static_cast<std::size_t>(w.local_index(op, t.loop))];
    const std::int64_t low = t.coefficient * range.lo;
    const std::int64_t high = t.coefficient * (range.hi - 1);
    all.lo += std::min(low, high);
    all.hi += std::max(low, high);
  }
  return all;
}

template <class F>
void each_access(const Workload& w, const ScheduledKernel& k, F&& f) {
  for (OpId op : k.ops) {
    for (const Access& a : w.op(op).inputs) f(op, a);
    for (const Output& o : w.op(op).outputs) f(op, o.target);
  }
}

}  // namespace

BlockKinds::BlockKinds(const Schedule& schedule, const ScheduledKernel& kernel,
                       const std::vector<NodeId>& grid_loops, const ByValue& by_value)
    : s_(&schedule), k_(&kernel) {
  if (!grid_loops.empty() && outermost(kernel, grid_loops)) {
    loops_ = grid_loops;
    add(0, 0, 1, around_all(), by_value, iterations_);
    std::ranges::sort(all_, {}, &AlikeBlocks::first);
    return;
  }
  for (std::int64_t b = 0; b < kernel.blocks; ++b) all_.push_back({b, 1});
}

Ranges BlockKinds::around_all() const {
  Ranges ranges = whole_ranges(*s_, *k_);
  for (const Inference& i : k_->node(NodeId(0)).infer) infer(*s_, *k_, i, ranges);
  return ranges;
}

Ranges BlockKinds::within(NodeId loop, std::int64_t iteration, const Ranges& around) const {
  Ranges ranges = around;
  cut(*k_, loop, iteration, around, ranges);
  for (const Inference& n : k_->node(loop).infer) infer(*s_, *k_, n, ranges);
  return ranges;
}

/// The blocks from `first` on that differ in the loops from `depth` on.
void BlockKinds::add(std::size_t depth, std::int64_t first, std::int64_t times,
                     const Ranges& around, const ByValue& by_value, Iterations& its) {
  if (depth == loops_.size()) return all_.push_back({first, times});
  const NodeId loop = loops_[depth];
  const std::int64_t count = trips(*k_, loop, around), inside = blocks_below(*k_, loop);
  struct Kind {
    std::int64_t first = 0, times = 0;
    Ranges ranges;
  };
  std::map<Signature, Kind> kinds;
  for (std::int64_t i = 0; i < count; ++i) {
    Ranges ranges = within(loop, i, around);
    Kind& kind = kinds[signature(ranges, by_value)];
    if (kind.times++ == 0) kind.first = i, kind.ranges = std::move(ranges);
    its.first.push_back(kind.first);
  }
  for (const auto& [_, kind] : kinds)
    add(depth + 1, first + kind.first * inside, times * kind.times, kind.ranges, by_value,
        its.within[kind.first]);
  // Blocks beyond the iterations that there are run what stands outside of this loop.
  if (const std::int64_t most = k_->node(loop).max_trips; count < most)
    all_.push_back({first + count * inside, times * (most - count) * inside});
}

/// What tells an iteration of a grid loop from one that is its translation. Within such an
/// iteration all is an affine form of where its ranges begin, but for three things: an index beyond
/// its tensor, the ends of loops, where sums begin and complete, and how far apart two accesses to
/// one tensor are.
BlockKinds::Signature BlockKinds::signature(Ranges ranges, const ByValue& by_value) const {
  const Workload& w = *s_->workload;
  Signature of;
  const auto add_ranges = [&] {
    for (OpId op : k_->ops) {
      const auto its = ranges_of(*s_, *k_, ranges, op);
      for (std::size_t l = 0; l < its.size(); ++l) {
        const LoopId loop = w.op(op).loops[l];
        of.push_back(its[l].size());
        of.push_back((its[l].lo == 0 ? 1 : 0) + (its[l].hi == w.loop(loop).extent ? 2 : 0));
        if (by_value(op, loop)) of.push_back(its[l].lo);
      }
    }
  };
  add_ranges();
  // With the ranges that operators have further in, or more: what is inside its tensor with
  // these, is with fewer.
  for (const ScheduleNode& n : k_->nodes)
    for (const Inference& i : n.infer) infer(*s_, *k_, i, ranges);
  add_ranges();
  std::vector<std::vector<std::int64_t>> begins(w.tensors().size());
  each_access(w, *k_, [&](OpId op, const Access& access) {
    const auto its = ranges_of(*s_, *k_, ranges, op);
    std::vector<std::int64_t>& first = begins[access.tensor.index()];
    const bool is_first = first.empty();
    first.resize(access.index.size());
    for (std::size_t d = 0; d < access.index.size(); ++d) {
      if (access.index[d].gathered >= 0) continue;
      const Interval all = indices(w, op, access.index[d], its);
      const bool beyond = all.lo < 0 || all.hi > w.tensor(access.tensor).shape[d];
      of.push_back(beyond ? 1 : 0);
      if (beyond) of.push_back(all.lo);
      if (is_first) first[d] = all.lo;
      of.push_back(all.lo - first[d]);
    }
  });
  return of;
}

std::vector<std::vector<std::int64_t>> BlockKinds::begins(Ranges ranges) const {
  const Workload& w = *s_->workload;
  for (const ScheduleNode& n : k_->nodes)
    for (const Inference& i : n.infer) infer(*s_, *k_, i, ranges);
  std::vector<std::vector<std::int64_t>> begins(w.tensors().size());
  each_access(w, *k_, [&](OpId op, const Access& access) {
    std::vector<std::int64_t>& first = begins[access.tensor.index()];
    if (!first.empty()) return;
    const auto its = ranges_of(*s_, *k_, ranges, op);
    for (const Affine& index : access.index)
      first.push_back(index.gathered >= 0 ? 0 : indices(w, op, index, its).lo);
  });
  return begins;
}

Elsewhere BlockKinds::of(std::int64_t block) const {
  if (loops_.empty()) return {.first = block};
  Ranges own = around_all(), first = own;
  Elsewhere found;
  std::int64_t rest = block;
  const Iterations* its = &iterations_;
  for (const NodeId loop : loops_) {
    const std::int64_t inside = blocks_below(*k_, loop), i = rest / inside;
    rest %= inside;
    const auto count = static_cast<std::int64_t>(its->first.size());
    if (i >= count) {  // beyond
      found.first += count * inside;
      break;
    }
    const std::int64_t like = its->first[static_cast<std::size_t>(i)];
    found.first += like * inside;
    own = within(loop, i, own);
    first = within(loop, like, first);
    its = &its->within.at(like);
  }
  if (found.first == block) return found;
  found.moved = begins(std::move(own));
  const auto from = begins(std::move(first));
  for (std::size_t t = 0; t < from.size(); ++t)
    for (std::size_t d = 0; d < from[t].size(); ++d) found.moved[t][d] -= from[t][d];
  return found;
}

}  // namespace tilewright::npu
