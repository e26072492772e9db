// Simulated traffic of a schedule: a walk over its access stream.
#pragma once

#include "core/ir/traffic.h"
#include "core/lowering/schedule.h"
#include "core/lowering/stream.h"

namespace tilewright {

struct SimulateOptions {
  /// How tensors lie in memory; only hardware caches see it. What `tiled` costs to pack and unpack
  /// is AddressMap::packing_bytes, never part of the Traffic.
  Layout layout = Layout::tiled;
};

/// Bytes moved at every boundary of the machine, per tensor, source `simulated`.
///
/// Software-managed levels (`by` "scratchpad" where all are): the walk keeps what each buffer holds
/// and counts each movement of design/plan.md's rules 8 to 12 at every boundary it crosses.
///
/// Hardware caches (`by` "cache"): set-associative LRU, see CacheHierarchy. Each compute touches
/// its inputs as written, then its outputs (each line read unless initialised, then written), in
/// contiguous runs of rows along the last dimension, at the addresses of AddressMap; touches enter
/// at the innermost cache. Where a software-managed level lies inside caches (shared memory under
/// an L2, registers under an L1), what moves between its buffers and home touches the caches in
/// between instead. Blocks run one after the other in linear order, and so do all units, on one
/// core: each level is one instance, and a cache private to a core is shared by all blocks. Hits
/// and misses are counted in line touches, one for each line of a run; at outer levels they are the
/// requests from within.
///
/// Entries that would be all zero are left out; `operations` has every operator that ran.
/// Cost: one visit for each node of the walk, and one for each line touched.
/// Throws InputError for tensors too large for a cache's address space (2^52 bytes together).
Traffic simulate(const Schedule& schedule, const SimulateOptions& options = {});

}  // namespace tilewright
