#include "codegen/npu/alike_blocks.h"

#include <algorithm>
#include <map>
#include <optional>

namespace tilewright::npu {
namespace {

/// What tells an iteration of a grid loop from one that is its translation. Within such an
/// iteration all is an affine form of where its ranges begin, but for three things: an index beyond
/// its tensor, the ends of loops, where sums begin and complete, and how far apart two accesses to
/// one tensor are.
class Alike {
 public:
  Alike(const Schedule& s, const ScheduledKernel& k, const std::vector<NodeId>& loops,
        const std::function<bool(OpId, LoopId)>& by_value)
      : s_(s), k_(k), w_(*s.workload), loops_(loops), by_value_(by_value) {}

  std::vector<AlikeBlocks> run() {
    Ranges ranges = whole_ranges(s_, k_);
    for (const Inference& i : k_.node(NodeId(0)).infer) infer(s_, k_, i, ranges);
    add(0, 0, 1, ranges);
    std::ranges::sort(found_, {}, &AlikeBlocks::first);
    return std::move(found_);
  }

 private:
  using Signature = std::vector<std::int64_t>;

  /// The blocks from `first` on that differ in the loops from `depth` on.
  void add(std::size_t depth, std::int64_t first, std::int64_t times, const Ranges& around) {
    if (depth == loops_.size()) return found_.push_back({first, times});
    const NodeId loop = loops_[depth];
    const std::int64_t count = trips(k_, loop, around), inside = blocks_below(k_, loop);
    struct Kind {
      std::int64_t first = 0, times = 0;
      Ranges ranges;
    };
    std::map<Signature, Kind> kinds;
    for (std::int64_t i = 0; i < count; ++i) {
      Ranges ranges = around;
      cut(k_, loop, i, around, ranges);
      for (const Inference& n : k_.node(loop).infer) infer(s_, k_, n, ranges);
      Kind& kind = kinds[signature(ranges)];
      if (kind.times++ == 0) kind.first = i, kind.ranges = std::move(ranges);
    }
    for (const auto& [_, kind] : kinds)
      add(depth + 1, first + kind.first * inside, times * kind.times, kind.ranges);
    // Blocks beyond the iterations that there are run what stands outside of this loop.
    if (const std::int64_t most = k_.node(loop).max_trips; count < most)
      found_.push_back({first + count * inside, times * (most - count) * inside});
  }

  Signature signature(Ranges ranges) const {
    Signature of;
    const auto add_ranges = [&] {
      for (OpId op : k_.ops) {
        const auto its = ranges_of(s_, k_, ranges, op);
        for (std::size_t l = 0; l < its.size(); ++l) {
          const LoopId loop = w_.op(op).loops[l];
          of.push_back(its[l].size());
          of.push_back((its[l].lo == 0 ? 1 : 0) + (its[l].hi == w_.loop(loop).extent ? 2 : 0));
          if (by_value_(op, loop)) of.push_back(its[l].lo);
        }
      }
    };
    add_ranges();
    // With the ranges that operators have further in, or more: what is inside its tensor with
    // these, is with fewer.
    for (const ScheduleNode& n : k_.nodes)
      for (const Inference& i : n.infer) infer(s_, k_, i, ranges);
    add_ranges();
    std::vector<std::vector<std::int64_t>> begins(w_.tensors().size());
    const auto add_access = [&](OpId op, const Access& access) {
      const auto its = ranges_of(s_, k_, ranges, op);
      std::vector<std::int64_t>& first = begins[access.tensor.index()];
      const bool is_first = first.empty();
      first.resize(access.index.size());
      for (std::size_t d = 0; d < access.index.size(); ++d) {
        if (access.index[d].gathered >= 0) continue;
        Interval all{access.index[d].offset, access.index[d].offset + 1};
        for (const Term& t : access.index[d].terms) {
          const Interval& range = its[static_cast<std::size_t>(w_.local_index(op, t.loop))];
          const std::int64_t low = t.coefficient * range.lo;
          const std::int64_t high = t.coefficient * (range.hi - 1);
          all.lo += std::min(low, high);
          all.hi += std::max(low, high);
        }
        const bool beyond = all.lo < 0 || all.hi > w_.tensor(access.tensor).shape[d];
        of.push_back(beyond ? 1 : 0);
        if (beyond) of.push_back(all.lo);
        if (is_first) first[d] = all.lo;
        of.push_back(all.lo - first[d]);
      }
    };
    for (OpId op : k_.ops) {
      for (const Access& a : w_.op(op).inputs) add_access(op, a);
      for (const Output& o : w_.op(op).outputs) add_access(op, o.target);
    }
    return of;
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  const std::vector<NodeId>& loops_;
  const std::function<bool(OpId, LoopId)>& by_value_;
  std::vector<AlikeBlocks> found_;
};

/// Whether nothing but sequences is around grid loops.
bool outermost(const ScheduledKernel& k, const std::vector<NodeId>& grid_loops) {
  return std::ranges::all_of(grid_loops, [&](NodeId loop) {
    for (NodeId n = k.node(loop).parent; n.valid(); n = k.node(n).parent)
      if (k.node(n).kind == NodeKind::loop && k.node(n).binding != Binding::grid) return false;
    return true;
  });
}

}  // namespace

std::vector<AlikeBlocks> alike_blocks(const Schedule& schedule, const ScheduledKernel& kernel,
                                      const std::vector<NodeId>& grid_loops,
                                      const std::function<bool(OpId, LoopId)>& by_value) {
  if (!grid_loops.empty() && outermost(kernel, grid_loops))
    return Alike(schedule, kernel, grid_loops, by_value).run();
  std::vector<AlikeBlocks> each;
  for (std::int64_t b = 0; b < kernel.blocks; ++b) each.push_back({b, 1});
  return each;
}

}  // namespace tilewright::npu
