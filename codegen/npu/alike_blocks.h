// Blocks of a kernel that do the same elsewhere: one of them is walked for all.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::npu {

struct AlikeBlocks {
  std::int64_t first = 0;  ///< the one to walk
  std::int64_t times = 1;  ///< how many there are, itself included
};

/// The kernel's blocks by what they do: those of one entry open tiles of the same sizes, move and
/// compute the same parts of them in the same order, and begin and complete the same sums. Only
/// where in their tensors these lie differs. Ascending by `first`.
/// `grid_loops`: nested in this order, they count all blocks; empty: each block is its own entry.
/// `by_value`: whether what an operator does depends on where in a loop it is.
/// Cost: a look at the kernel's accesses for each iteration of a grid loop, of those around it for
/// one of each entry; without grid loops a block.
std::vector<AlikeBlocks> alike_blocks(const Schedule& schedule, const ScheduledKernel& kernel,
                                      const std::vector<NodeId>& grid_loops,
                                      const std::function<bool(OpId, LoopId)>& by_value);

}  // namespace tilewright::npu
