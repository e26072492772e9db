// Loops whose iterations overlap: a pipe takes its instructions in order, so that what it has of the
// next iteration waits behind what it still lacks of this one, unless the program has the next one's
// first part before.
#pragma once

#include <vector>

#include "codegen/npu/trace.h"

namespace tilewright::npu {

/// Cycles from the first step to the last result: each pipe in order, a step when all that it
/// conflicts with is done. What the order of a loop is chosen by; not a prediction.
std::int64_t estimate(const std::vector<const std::vector<TraceNode>*>& order);

/// Before:  for i: P(i) Q(i)
/// After:   P(0); for i: P(i+1) Q(i); Q(n-1)
/// for every loop, innermost first, where P(i+1) and Q(i) touch nothing that the other writes and the
/// estimate says that it is faster; P is the body's nodes up to some point, the best of all points.
void pipeline(std::vector<TraceNode>& trace);

}  // namespace tilewright::npu
