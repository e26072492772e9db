// In which order a kernel's blocks begin.
#pragma once

#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// Whether a kernel's blocks begin with the last one: it reads a long tensor that an earlier kernel
/// of the schedule has read or written from its first element on, so that a cache still holds the
/// last ones. Of kernels whose loops are bound to warps, lanes or threads. Cost: the kernels'
/// buffers.
bool from_last_block(const Schedule& s, int kernel);

}  // namespace tilewright::lowering
