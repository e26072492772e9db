// Which tilings a validation looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "models/chimera/chimera.h"

namespace tilewright::chimera {

struct SampleSpace {
  Elements least{0};         ///< tilings whose memory is above this
  Elements most;             ///< and at most this
  std::int64_t min_tile = 1; ///< no tile smaller, except where the loop itself is
  std::int64_t some_below = 0;  ///< where positive: some tile is smaller than this and its loop
};

/// Up to `count` distinct integer tilings of an order, drawn with equal probability from all those whose
/// memory (Chimera's Memory::held: what the plan's schedule has alive) lies in the space. Fewer
/// where the space has fewer, or none.
///
/// Method: Gibbs sampling. Memory grows with every tile, except that a reduction of one trip frees
/// its unfinished results, so that with the other tiles fixed the feasible sizes of one are a range
/// and perhaps the whole loop; one tile after the other is redrawn from its range, a loop's
/// sizes being equally likely, which leaves the uniform law over the whole set unchanged. kSweeps
/// rounds part a draw from the one before; repeated tilings and those at or below `least` are dropped.
/// Deterministic in the seed, on every platform. Cost: about 10 us a sweep.
std::vector<Tiles> draw_tilings(const Workload& w, const Order& order,
                                         const Options& options, const SampleSpace& space,
                                         std::int64_t count, std::uint64_t seed);

inline constexpr int kSweeps = 32;

struct OrderedTiles {
  Order order;
  Tiles tiles;
  friend auto operator<=>(const OrderedTiles&, const OrderedTiles&) = default;
};

/// Up to `count` distinct legal tilings as someone draws them who has no model: every order is as
/// likely, then every tile from one to its loop's extent, whatever memory that takes; illegal ones are
/// drawn again. Fewer where the orders are too many to list, or none is found. Deterministic in the
/// seed, on every platform.
std::vector<OrderedTiles> draw_unguided(const Workload& w, std::int64_t count, std::uint64_t seed);

}  // namespace tilewright::chimera
