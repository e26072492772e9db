// The loops of several levels as one skeleton. Private to models/chimera.
#pragma once

#include <set>

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

/// The level that holds an intermediate: that of the outermost loop which turns around its producer or
/// a consumer but not around all of them; the innermost level where none does.
std::size_t depth_of(const Chain& c, const Nest& nest, TensorId intermediate, std::size_t innermost);
/// Intermediates that a level before `depth` holds: inputs and outputs of the blocks of `depth`.
std::set<TensorId> held_outside(const Chain& c, const Nest& nest, std::size_t depth);

}  // namespace tilewright::chimera::detail
