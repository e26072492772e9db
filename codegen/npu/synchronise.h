// Flags between pipes, put where a block's instructions need them: what a step reads or overwrites
// must be done with, and a pipe knows of another only what flags told it.
#pragma once

#include <vector>

#include "codegen/npu/trace.h"

namespace tilewright::npu {

struct SyncCounts {
  std::int64_t flags = 0;     ///< pairs of set_flag and wait_flag
  std::int64_t barriers = 0;  ///< of all pipes, where the events between two pipes had run out
};

/// Puts a set_flag after, and a wait_flag before, what depends on one another in different pipes,
/// unless flags before imply it. A pipe itself is in order. `events`: flags there are between two
/// pipes; one is set again only where the setting pipe knows that its last wait is over.
/// Cost: linear in the steps, times what overlaps.
SyncCounts synchronise(std::vector<TraceNode>& trace, std::int64_t events);

}  // namespace tilewright::npu
