// Counts any schedule's traffic without walking it: the truth that every model is held against.
#pragma once

#include <cstdint>

#include "core/plan/schedule.h"
#include "core/plan/traffic.h"

namespace tilewright {

/// What a count took, so that a test can hold its growth.
struct ExactCost {
  std::int64_t nodes = 0;  ///< tree nodes evaluated
  std::int64_t jumps = 0;  ///< stretches of loop iterations that were multiplied, not evaluated
};

/// Bytes moved by a schedule at every boundary whose inner level software manages, per tensor and
/// direction, to the byte of a walk over the whole tree; operations by operator, recomputation
/// included; memory from memory_use. Source predicted, by "exact", write-backs counted,
/// write-allocate fills not (there are none).
///
/// Boundaries that a hardware cache decides are in Traffic::unavailable with the reason; if a
/// kernel's own level is a hardware cache, so is every boundary (resolve the plan on
/// as_scratchpad(machine, level) to get a number for it).
///
/// Method: a loop is evaluated at its first iterations, its last full one and its edge. The ones
/// between are multiplied once it is proven that they do the same: every decision (a tile held or
/// not, a footprint clipped or not, ...) compares affine functions of the iteration number, so one
/// that falls the same way at both ends of a stretch falls that way all along it. Where the ends
/// differ the stretch is bisected, and where nothing repeats iterations are evaluated one by one;
/// the count is right either way.
///
/// Cost: about four evaluations of its body a loop, whatever its trips (three without an edge), so
/// 4^depth of the tree at about a microsecond a node; a few more, at most a logarithm of the trips,
/// where padding clips footprints or a sliding tile takes an iteration to settle. Iterations are
/// evaluated one by one in unit-bound loops whose private buffers are used again later (under an
/// outer sequential loop, or across Y.grid), and where a !once result becomes complete in more than
/// one run of tiles. So that no such plan takes hours, a count that evaluates more than
/// `most_nodes` is given up: every boundary is then in Traffic::unavailable, and no operations are
/// counted.
inline constexpr std::int64_t kMostExactNodes = 10'000'000;
Traffic exact(const Schedule& schedule, ExactCost* cost = nullptr,
              std::int64_t most_nodes = kMostExactNodes);
/// The same without Traffic::memory, which takes longer to find.
Traffic exact_moved(const Schedule& schedule, ExactCost* cost = nullptr,
                    std::int64_t most_nodes = kMostExactNodes);

}  // namespace tilewright
