// What the search over several levels and their recognition share. Private to models/chimera.
#pragma once

#include <span>
#include <vector>

#include "models/chimera/flat.h"
#include "models/chimera/levels.h"
#include "models/chimera/nest.h"

namespace tilewright::chimera::detail {

/// A level's capacity in elements of the workload's type.
Elements room(const Workload& w, const Machine& m, LevelId level, const LevelsOptions& options);

/// The options of a level below the loops of `nest` before `depth`: how often they run each operator,
/// and as spilled, which intermediates they hold.
Options at_level(const Options& options, const Chain& c, const Nest& nest, std::size_t depth);

/// Tiles that move no more and still fit, as large as they may be: the solver takes the least memory of
/// what moves the same, which leaves the levels inside the least room. `loops`: those that may grow.
Tiles grown(const Flat& f, Tiles tiles, std::int64_t capacity, std::span<const LoopId> loops);

/// A level's loops with several trips in the order in which the tree has them first; batch loops and
/// those that stand in for others aside.
std::vector<LoopId> turning_of(const Chain& c, const Nest& nest, std::size_t depth);

/// Gives each level, outermost first, the legal one of `orders` that fits and moves least at its
/// tiles. With `turning`: of those alone whose turning_of is that. False
/// where a level has none.
bool choose_orders(const Workload& w, const Machine& m, std::vector<LevelTiling>& tilings,
                   const std::vector<Order>& orders, const LevelsOptions& options,
                   std::span<const std::vector<LoopId>> turning = {});

}  // namespace tilewright::chimera::detail
