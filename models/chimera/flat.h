// Algorithm 1 compiled for one (workload, order, options): what pricing and the solver evaluate.
// Private to models/chimera.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/chimera/chain.h"
#include "models/chimera/chimera.h"

namespace tilewright::chimera::detail {

inline constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max();
/// a*b for counts, kSaturated when it leaves 64 bits.
constexpr std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  return __builtin_mul_overflow(a, b, &r) ? kSaturated : r;
}
constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  return __builtin_add_overflow(a, b, &r) ? kSaturated : r;
}

/// Tiles and trips by position, outermost first; implicit batch loops come before the order's.
struct Point {
  std::array<std::int64_t, kMaxMask> tile;
  std::array<std::int64_t, kMaxMask> trips;
  Mask multi = 0;  ///< positions with several trips
};

/// One tensor as one operator uses it. Masks are of positions.
struct Foot {
  std::size_t op = 0;
  TensorId tensor;
  std::vector<const Access*> accesses;
  Mask accessed = 0;   ///< loops that access it
  Mask windows = 0;    ///< and those that do where they are cut
  bool plain = false;  ///< each dimension is one loop of that extent: footprint = product of tiles
};

/// A tensor that moves (T in Ops.IOTensors() at line 7).
struct Use {
  std::size_t foot = 0;
  double weight = 1;
  Mask counted = 0;  ///< line 11: loops that may multiply
};

class Flat {
 public:
  Flat(const Workload& w, const Order& order, const Options& options);
  /// The same workload and options in another order.
  Flat(const Flat& other, const Order& order);

  const Workload& workload() const { return chain_->workload(); }
  const Chain& chain() const { return *chain_; }
  const Order& order() const { return order_; }
  const Options& options() const { return options_; }
  std::size_t size() const { return loops_.size(); }
  LoopId loop(std::size_t position) const { return loops_[position]; }
  std::int64_t extent(std::size_t position) const { return extents_[position]; }
  Mask implicit() const { return implicit_; }  ///< batch loops that the order does not name
  std::span<const LoopId> loops() const { return loops_; }
  std::span<const Foot> foots() const { return foots_; }
  std::span<const Use> uses() const { return uses_; }
  std::span<const std::size_t> foots_of(std::size_t op) const { return by_op_[op]; }
  std::size_t producer_foot(TensorId t) const { return produced_by_[t.index()]; }
  Mask on_chip() const { return on_chip_; }

  Point point(std::span<const std::int64_t> tiles_by_loop) const;
  /// Positions as LoopIds, and back.
  Mask loops_at(Mask positions) const;
  Mask positions_of(Mask loops) const;

  /// Loops that multiply the footprint, and the one that first ends reuse (-1: held throughout).
  Mask multipliers(const Use& u, Mask multi, int* decided_by = nullptr) const;
  /// DF with the tiles of positions in `cut`, other loops whole.
  std::int64_t footprint(const Foot& f, const Point& p, Mask cut = ~Mask{0}) const;
  /// Elements of all tiles at their true sizes, each once.
  std::int64_t exact_sum(const Foot& f, const Point& p) const;
  /// Positions that each dimension moves with, cut windows included.
  std::vector<Mask> dimensions(const Foot& f) const;
  /// The factors of footprint and exact_sum that the dimensions in `dims` (a set) contribute.
  std::int64_t footprint_factor(const Foot& f, const Point& p, Mask cut, Mask dims) const;
  std::int64_t exact_factor(const Foot& f, const Point& p, Mask dims) const;
  /// Every foot's footprint.
  void footprints(const Point& p, std::span<std::int64_t> out) const;
  /// DM, unweighted, given every foot's footprint.
  std::int64_t movement(const Use& u, const Point& p, std::span<const std::int64_t> df) const;
  /// For positions with several trips; `cut` and `foreign` are of positions. Made once and kept.
  const Structure& structure(Mask multi) const;
  std::int64_t memory(Memory mode, const Point& p, std::span<const std::int64_t> df) const;
  /// Points of an operator's iteration space that the tree computes, recomputation included.
  std::int64_t operations(std::size_t op, const Point& p) const;

 private:
  void place();
  void add_foots();
  void add_uses();
  /// Of a dimension, by its number in `dims`, the part that a tile has, given all ranges; and by
  /// how much its ends move at most, given how much the ranges' do.
  struct Parts {
    std::function<Interval(std::size_t, std::span<const Interval>)> part;
    std::function<std::int64_t(std::size_t, std::span<const std::int64_t>)> speed;
  };
  std::int64_t sum_over_tiles(std::span<const Mask> dims, const Point& p, Mask cut,
                              const Parts& parts) const;
  std::vector<Interval> whole_tiles(const Point& p, Mask cut) const;
  /// The product over the dimensions in `dims`, given the ranges of every operator's loops.
  std::int64_t size_within(const Foot& f, std::span<const Interval> ranges, Mask dims) const;

  std::shared_ptr<const Chain> chain_;
  Order order_;
  Options options_;
  std::vector<LoopId> loops_;
  std::vector<std::int64_t> extents_;
  std::vector<int> position_;  // by LoopId; -1: not in the order
  Mask implicit_ = 0, on_chip_ = 0;
  std::vector<Foot> foots_;
  std::vector<Use> uses_;
  std::vector<std::vector<std::size_t>> by_op_;
  std::vector<std::size_t> produced_by_;
  mutable std::unordered_map<Mask, Structure> structures_;
  mutable Mask last_multi_ = 0;
  mutable const Structure* last_ = nullptr;
};

/// One dimension's interval over all accesses of a foot, not clipped.
Interval interval_of(const Chain& c, const Foot& f, std::size_t dim, std::span<const Interval> r);

/// Throws InputError unless `order` is a permutation of the order loops, batch loops optional.
void check_order(const Chain& c, const Order& order);
/// Throws InputError unless every tile that the order uses lies in [1, extent].
void check_tiles(const Flat& f, const Tiles& tiles);
Price price_of(const Flat& f, const Point& p);
/// With several trips of the loops in `multi` (positions).
Legality legality_of(const Flat& f, Mask multi);
/// tree_of, of an order that is analysed already.
Node tree_at(const Flat& f, const Tiles& tiles);
/// Whether each thread block of a GPU has the level for itself, so that plan_of() shares
/// independent outer loops among blocks. The paper is silent about this; Algorithm 1 is of one
/// core.
bool shared_by_blocks(const Machine& m, LevelId level, const Options& options);

/// What comes of sharing.
struct Blocks {
  std::int64_t count = 1;
  double elements = 0;  ///< Algorithm 1's volume, and what each block loads anew beyond it
  /// The elements, and what could move meanwhile through instances of the level without a block:
  /// blocks come in rounds of one an instance. Section IV-C's bandwidth is all instances' together.
  double cost(std::int64_t instances) const;
};
/// Binds outermost independent loops of the order's tree to thread blocks: as many as cost least;
/// of equal ones the most. A block loads again what Algorithm 1 keeps over a loop that is shared.
Blocks share(const Workload& w, const Order& order, const Tiles& tiles, const Options& options,
             std::int64_t instances, Kernel& k);
/// Tiles by LoopId for a point: batch loops 1, inferred loops as a full tile has them.
Tiles tiles_of(const Flat& f, const Point& p);

}  // namespace tilewright::chimera::detail
