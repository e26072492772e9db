// The loops of several levels as one skeleton. Private to models/chimera.
#pragma once

#include "models/chimera/chain.h"
#include "models/chimera/levels.h"

namespace tilewright::chimera::detail {

/// A loop or a compute, in depth-first order.
struct NestItem {
  Item item;
  std::size_t depth = 0;   ///< loops: index of their level, 0 outermost
  std::int64_t trips = 1;  ///< loops
};
using Nest = std::vector<NestItem>;

/// Loop extents of each level's problem, by LoopId: the workload's, then the tiles of the level above.
std::vector<Tiles> extents_of(const Workload& w, std::span<const LevelTiling> tilings);
/// A level's loops, outermost first: implicit batch loops, then the order.
std::vector<LoopId> loops_of_level(const Chain& c, const LevelTiling& t);
Nest nest_of(const Chain& c, std::span<const LevelTiling> tilings);
/// By OpId: trips of the loops of levels before `depth` around the operator.
std::vector<std::int64_t> runs_of(const Chain& c, const Nest& nest, std::size_t depth);

}  // namespace tilewright::chimera::detail
