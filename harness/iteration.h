// What a plan's loops touch: figures that say where a model's premise holds, and how long a walk takes.
#pragma once

#include <optional>

#include "core/plan/schedule.h"

namespace tilewright::harness {

/// The bytes that one whole iteration of the innermost block-reusing loop touches. A loop reuses
/// blocks where some tensor below it does not move with it, but moves with a loop further in: models
/// that hold one tile of a tensor say that it is brought again in every iteration. A cache brings it
/// again only where one iteration touches more than fits. Counted are the boxes of all tensors below
/// the loop, those that stay on chip included, each once: loops further in are whole, the others as
/// long as their steps. Of several such loops the one that touches least. None where no loop reuses
/// blocks. In the order mlkn this is the loop l: A's row of blocks, B's and D's columns, E's row and
/// one block of C.
std::optional<Bytes> iteration_bytes(const Schedule& schedule);

/// About how many cache lines of 64 bytes two iterations of the outermost loop touch, or all where
/// there are fewer: for each compute its runs times the lines of its tiles.
double sure_touches(const Schedule& schedule);

}  // namespace tilewright::harness
