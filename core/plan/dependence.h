// What one part of the machine writes and another reads in the same kernel, and the barrier that
// must stand between (plan.md rule 16).
#pragma once

#include <optional>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright {

/// Values on their way from who writes them to who reads them. A place is a tensor's home, or an
/// intermediate's buffer on chip: everybody below the unit that it is private to shares it.
struct Dependence {
  TensorId tensor;
  BufferId buffer;  ///< the place; none: home
  NodeId writer;    ///< the store, or the compute, that puts them there; none: no store brings them
                    ///< home before the kernel's end
  NodeId reader;    ///< the load or compute that takes them
  /// Who must all have come to a barrier: machine: all blocks (Y.grid); grid: a block's threads
  /// (Y.block); warp: a warp's lanes (Y.warp). A wider barrier will do.
  Unit scope = Unit::machine;
  /// None: the reader must come after the writer. Else a loop around both, whose next iteration
  /// writes to the place again: the writer must come after the reader.
  NodeId loop;
};

/// Every dependence of a kernel between different units, whether or not a barrier stands there. A
/// reader that takes only what its own unit has written depends on no other: the grid, warp and
/// lane loops around both are the same, or cut the same dimensions of the tensor with the same
/// steps, from the same first block on. What stands outside the loops of a unit is run by all its
/// members. Loads wait for themselves: what one has brought is there for all. So do reductions
/// into a place that each unit has to itself.
/// Cost: pairs of one tensor's writers and readers, times the depth of the tree.
std::vector<Dependence> dependences(const Schedule& s, const ScheduledKernel& k);

/// A barrier of the kernel that orders it: between the two on every way, and for all units. None:
/// it is missing.
NodeId barrier_of(const ScheduledKernel& k, const Dependence& d);

/// The first dependence without a barrier, or without a store, as a reason; a barrier that some of
/// its units would not come to; what several blocks would write home, and not add up.
std::optional<Reason> check_barriers(const Schedule& s, const ScheduledKernel& k);

}  // namespace tilewright
