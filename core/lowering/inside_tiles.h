// In which order a compute goes over a tile that is larger than the cache.
#pragma once

#include <optional>

#include "core/plan/schedule.h"

namespace tilewright {

/// The schedule with loops around each compute whose operands' boxes together are larger than the
/// innermost cache that hardware manages; nothing where every compute's fit. A plan does not say
/// how a compute walks its tile, and where the tile fits that moves no line. Where it does not, the
/// order is that of the kernels that are emitted for processors:
/// - A product goes by panels of columns, as wide as a block of sums in vector registers. A panel
/// is
///   cut along the depth to half the cache. Each part of a panel meets all rows, one group after
///   the other.
/// - Anything else goes by its outputs as declared. The loop along their last dimension is the
///   innermost of these, a line at a time, and reductions run within it.
/// What of that order fits into the cache is one step: its lines are touched once whatever is done
/// within. So a step that fits holds all that it reads and writes at once, and what is counted is
/// what some execution with that cache moves.
///
/// Register blocks are the machine's, of 16 registers of 32 bytes where its file does not say.
/// Computes stay as they are that are marked `!once`, that use what software manages, or whose
/// output nobody reads. Buffers and nodes keep their numbers; a compute's own number is its
/// outermost loop's. Tensors lie as the schedule that was given says: AddressMap is to be made of
/// it. `resolved` is not changed.
/// Cost: the loops around each compute; where some do not fit, each loop is walked over at most
/// four representative iterations.
std::optional<Schedule> with_loops_inside(const Schedule& s);

}  // namespace tilewright
