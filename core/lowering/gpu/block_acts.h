// How long the threads of a block take for what is no product of whole tiles: points, contractions,
// copies and stores, counted in the instructions that codegen/cuda prints for them. Internal to
// block_time.cpp.
#pragma once

#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/block_work.h"

namespace tilewright::lowering {

/// Of one act.
struct ActTime {
  double alone = 0;  ///< cycles of its warps, when the block has its SM for itself
  double issue = 0;  ///< cycles that it keeps the SM's schedulers busy
  double near = 0;   ///< and shared memory
};
/// An operator point by point on tiles in shared memory, barriers among it.
ActTime points_time(const PointsRun& x, const BlockForms& f, const BlockRates& r);
/// An operator on sums in registers.
ActTime sums_time(const PointsRun& x, const BlockForms& f, const BlockRates& r);
/// A contraction, as often as its other loops turn, barriers among it.
ActTime contraction_time(const ProductRun& x, const BlockForms& f, const BlockRates& r);
/// A tile from home by so many warps, without the bytes' time. `latency`: of a load; `at_once`,
/// `groups`: pieces_at_once, copying_groups (block_rules.h).
ActTime copy_time(const CopyRun& x, const BlockWork& work, double latency, int at_once, int groups,
                  int warps, const BlockRates& r);
/// What a ring's two sides do for a tile beside copying it: boxes are compared, barriers counted,
/// one after the other. `ahead`: in a loop with a time of its own for a turn's beginning.
ActTime ring_time(const CopyRun& x, bool ahead, const BlockRates& r);
/// Whether blocks compare and swap what they add at home.
bool swaps(const StoreRun& x, const BlockWork& work, const BlockRates& r);
/// A tile in shared memory, or a part of sums in registers, to home, without the bytes' time.
ActTime store_time(const StoreRun& x, const BlockWork& work, const BlockForms& f,
                   const BlockRates& r);

}  // namespace tilewright::lowering
