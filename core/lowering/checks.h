// What of a schedule no kernel can be written for, and what every lowering asks of a compute's
// accesses.
#pragma once

#include <string>

#include "core/lowering/symbolic.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// Whether some index of the access lies outside its tensor: a convolution's padding.
bool can_leave(const Workload& w, const Operator& op, const Access& a);
/// The buffer that a compute reads op.inputs[input] from; none: a gather.
BufferId buffer_of_input(const ScheduleNode& compute, int input);
/// Throws Refused for atomic stores that would add up wrongly and, without `through_levels`, for
/// those whose results pass through a tile of another level; `target` names the target in the
/// reasons.
void check_sums(const Workload& w, const ScheduledKernel& k, const std::string& target,
                bool through_levels = false);
/// Throws Refused for nodes that only one block of several would run; unless, with
/// `first_block_alone`, the first block has all that shares a tile with them.
void check_blocks(const Workload& w, const ScheduledKernel& k, bool first_block_alone = false);
/// Throws Refused where a compute is !once, in a target that has no record of what is complete.
void refuse_once(const Workload& w, const ScheduledKernel& k, const std::string& target);

/// The one compute of a subtree, beside its loads; none where there are more, or a loop of it has
/// more than `most_trips` iterations.
NodeId only_compute(const ScheduledKernel& k, NodeId id, std::int64_t most_trips);

}  // namespace tilewright::lowering
