// Blocks of a kernel that do the same elsewhere: one of them is walked for all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::npu {

struct AlikeBlocks {
  std::int64_t first = 0;  ///< the one to walk
  std::int64_t times = 1;  ///< how many there are, itself included
};

/// A block beside the first one that does the same.
struct Elsewhere {
  std::int64_t first = 0;
  /// By tensor and dimension: how much further on its boxes lie. Empty: it is that block.
  std::vector<std::vector<std::int64_t>> moved = {};
};

/// The kernel's blocks by what they do: those of one entry open tiles of the same sizes, move and
/// compute the same parts of them in the same order, and begin and complete the same sums. Only
/// where in their tensors these lie differs.
class BlockKinds {
 public:
  BlockKinds() = default;
  /// `grid_loops`: nested in this order, they count all blocks; empty: each block is its own entry.
  /// `by_value`: whether what an operator does depends on where in a loop it is.
  /// Keeps the schedule and the kernel. Cost: a look at the kernel's accesses for each iteration of
  /// a grid loop, of those around it for one of each entry; without grid loops a block.
  BlockKinds(const Schedule& schedule, const ScheduledKernel& kernel,
             const std::vector<NodeId>& grid_loops,
             const std::function<bool(OpId, LoopId)>& by_value);

  /// Ascending by `first`.
  const std::vector<AlikeBlocks>& all() const { return all_; }
  /// Cost: two looks at the kernel's accesses.
  Elsewhere of(std::int64_t block) const;

 private:
  using Signature = std::vector<std::int64_t>;
  using ByValue = std::function<bool(OpId, LoopId)>;
  /// Iterations of a grid loop: by each the first one that does the same, and what is within that.
  struct Iterations {
    std::vector<std::int64_t> first = {};
    std::map<std::int64_t, Iterations> within = {};
  };
  void add(std::size_t depth, std::int64_t first, std::int64_t times, const Ranges& around,
           const ByValue& by_value, Iterations& its);
  Signature signature(Ranges ranges, const ByValue& by_value) const;
  Ranges around_all() const;
  Ranges within(NodeId loop, std::int64_t iteration, const Ranges& around) const;
  /// By tensor: where its first access begins, with the ranges that operators have further in.
  std::vector<std::vector<std::int64_t>> begins(Ranges ranges) const;

  const Schedule* s_ = nullptr;
  const ScheduledKernel* k_ = nullptr;
  std::vector<NodeId> loops_;
  std::vector<AlikeBlocks> all_;
  Iterations iterations_;
};

}  // namespace tilewright::npu
