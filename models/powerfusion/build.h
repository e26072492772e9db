// A kernel's loop tree as GIR: section 6's graphs of basic operators, before any of them is
// optimised.
#pragma once

#include <vector>

#include "core/plan/plan.h"
#include "models/powerfusion/gir.h"

namespace tilewright::powerfusion {

/// Each operator of the kernel by itself, in the units that the tree binds its loops to: moves from
/// DRAM, broadcasts, element-wise, transpose and reduce gOperators, moves to DRAM; between an
/// operator and its readers a sync of the device. Of a pack, one a part. `warps`: of a block. Loops
/// that no lane has are trips; of a tree that binds no units, the results' last loop (or, where
/// blocks leave none of it, a sum's) goes over lanes. What a tree says of loads, stores and pins is
/// left aside: what they should be is the rewriting's to find. Cost: linear in the tree and the
/// operators' accesses.
std::vector<Gir> gir_of(const Workload& w, const Kernel& k, std::int64_t warps);

}  // namespace tilewright::powerfusion
