// Chimera over several levels of a memory hierarchy (HPCA 2023, section IV-C): tiles and an order at
// every on-chip level, each level's problem the tile of the level above, for the least of the largest
// Cost_d = DV_d / bw_d.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/chimera/chimera.h"

namespace tilewright::chimera {

/// What is minimised over the levels' costs.
enum class Objective : std::uint8_t {
  largest,  ///< eq. (3): the slowest level; ties by the sum
  sum,      ///< all levels one after the other, as the paper's public code adds them; ties by largest
};
std::string_view name_of(Objective o);  ///< "largest", "sum"
std::optional<Objective> objective_from_name(std::string_view name);

/// The on-chip levels that `--level all` plans for, outermost first: those on the way from home to
/// the machine's default level.
std::vector<LevelId> chip_levels(const Machine& m);

/// The machine with home and these levels alone, outermost first, each software-managed and filled
/// from the one before it: what `exact` counts of a plan over several caches.
Machine as_scratchpads(const Machine& m, std::span<const LevelId> levels);

/// The blocks of one level: S_d and the order of section IV-C.
struct LevelTiling {
  LevelId level;
  Order order;
  Tiles tiles;  ///< by LoopId; none larger than the level above has
  friend bool operator==(const LevelTiling&, const LevelTiling&) = default;
};

/// The tiles with those of inferred loops as a full tile of their consumers has them: a block.
Tiles with_inferred(const Workload& w, Tiles tiles);

/// The workload of one block: every loop as long as `tiles` says, tensors no larger than that touches.
Workload block_of(const Workload& w, const Tiles& tiles);

struct LevelPrice {
  LevelTiling at;
  Elements capacity;
  /// Algorithm 1 of the block of the level above, each operator's tensors counted as often as the
  /// outer levels' loops run it: `volume` is DV_d of the whole workload. An intermediate that an outer
  /// level holds, because its loops turn between the operators, is an input and an output here.
  Price price;
  std::vector<std::int64_t> runs;  ///< by OpId: how often
  double cost = 0;                 ///< Cost_d; seconds where the machine gives every bandwidth
};
struct LevelsPrice {
  std::vector<LevelPrice> levels;  ///< outermost first
  double largest = 0, sum = 0;
  bool fits = true;    ///< every level within its capacity, by Options::memory
  bool legal = true;   ///< every level's order, at its tiles
  std::string reason;  ///< why not
};

struct LevelsOptions {
  Options model = {};
  Objective objective = Objective::largest;
  std::map<LevelId, Elements> capacities = {};  ///< in place of the level's own
};

/// bw_d of every level, all instances of a level together, as blocks run on all of them; all 1 where
/// the machine does not give every one (costs are bytes then).
std::vector<double> bandwidths(const Machine& m, std::span<const LevelId> levels);

/// The price of these blocks. Throws InputError for tiles larger than the level above has.
LevelsPrice price_levels(const Workload& w, const Machine& m, std::span<const LevelTiling> tilings,
                         const LevelsOptions& options);

/// The loop tree of all levels: a level's nest (tree_of's, without loops of one trip) and, where
/// neighbouring operators of it are a block, the next level's nest of them. Every loop gives its
/// step; inputs are loaded to every level where its innermost loop around them turns, outputs and
/// intermediates that an outer level holds are stored outward where their tile is complete.
Plan plan_of(const Workload& w, std::span<const LevelTiling> tilings, const Machine& m,
             const Options& options = {});

/// The blocks whose plan a kernel is; where several orders have that tree, at each level the one that
/// the model prices least. A Reason where it is no such plan.
Result<std::vector<LevelTiling>> tilings_of(const Workload& w, const Machine& m,
                                            const Kernel& kernel, const LevelsOptions& options);

/// Orders of which no two have the same multipliers, memory, recomputation and legality, whatever
/// the tiles: one of each class, the first. `undominated`: without those that another never is worse
/// than in any of these. A Reason where there are too many orders to look at.
Result<std::vector<Order>> distinct_orders(const Workload& w, const Options& options,
                                           bool undominated = false);

struct LevelsPlan {
  Plan plan;
  LevelsPrice price;
  std::map<std::string, Bytes> memory;  ///< that the schedule truly needs, by level
  /// By level, as in `price`: the least cost it could have if it were the only level.
  std::vector<double> alone;
  bool tightened = false;  ///< Options::memory's best did not truly fit: searched again with sum
  double seconds = 0;
  /// orders, distinct_orders, solves (of one order at one level), evaluated, pruned, priced (plans)
  std::map<std::string, std::int64_t> counted;
};

/// The best plan found over all of chip_levels, whose schedule stays within every capacity. Each level
/// in turn gets the tiles it would like best; the levels outside it then get multiples of them, those
/// inside it blocks of them; every tiling of the outermost level is tried where those are few; then
/// level by level is improved while that helps. Not proven best: tests hold it against brute force on
/// small problems. A Reason when nothing fits.
Result<LevelsPlan> best_levels(const Workload& w, const Machine& m, const LevelsOptions& options);

}  // namespace tilewright::chimera
