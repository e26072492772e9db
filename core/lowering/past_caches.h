// Stores that go past the caches: which outputs of a kernel for a processor take them.
#pragma once

#include "core/plan/schedule.h"

namespace tilewright {

/// Whether an output that a kernel writes in place at home is written past the caches. Then no line
/// of it is fetched before it is overwritten: two thirds of the bytes of a copy. It is, where each
/// element is stored once, the last cache cannot hold what the kernel touches at home, and the
/// output is at least half as large as that cache, so that little of it would be found there later.
/// Cost: the buffers of the kernel.
bool stored_past_caches(const Schedule& s, const ScheduledKernel& k, BufferId b);

}  // namespace tilewright
