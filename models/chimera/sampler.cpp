#include "models/chimera/sampler.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

namespace tilewright::chimera {
namespace {

/// Uniform in [0, n), the same on every platform.
std::uint64_t below(std::mt19937_64& random, std::uint64_t n) {
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % n;
  std::uint64_t draw = random();
  while (draw >= limit) draw = random();
  return draw % n;
}

class Walk {
 public:
  Walk(const Workload& w, const Order& order, const Options& options,
       const SampleSpace& space, std::uint64_t seed)
      : pricer_(w, order, options), order_(order), most_(space.most.value), random_(seed) {
    for (std::size_t l = 0; l < w.loops().size(); ++l) {
      const std::int64_t extent = w.loops()[l].extent;
      const bool tiled = std::find(order.begin(), order.end(), LoopId(l)) != order.end();
      extents_.push_back(extent);
      smallest_.push_back(std::min(space.min_tile, extent));
      // What the order does not cut: batch loops go one by one, the rest is whole or inferred.
      tiles_.push_back(tiled ? smallest_.back() : w.is_batch(LoopId(l)) ? 1 : extent);
    }
  }

  /// A feasible tiling to start from: the smallest tiles, or one reduction whole beside them.
  bool start(const Workload& w) {
    if (feasible()) return true;
    for (OpId op : w.topological_order())
      for (LoopId l : w.reduction_loops(op)) {
        const std::int64_t small = std::exchange(tiles_[l.index()], extents_[l.index()]);
        if (feasible()) return true;
        tiles_[l.index()] = small;
      }
    return false;
  }
  bool feasible() const { return memory() <= most_; }
  std::int64_t memory() const { return pricer_.quick(tiles_).memory; }
  const Tiles& tiles() const { return tiles_; }
  bool some_below(std::int64_t size) const {
    return std::any_of(order_.begin(), order_.end(), [&](LoopId l) {
      return tiles_[l.index()] < std::min(size, extents_[l.index()]);
    });
  }

  void sweep() {
    for (LoopId loop : order_) redraw(loop.index());
  }

 private:
  /// The tile of one loop, uniform over its feasible sizes: a range from the smallest, and the whole
  /// loop, which as a reduction's only trip frees what unfinished results would take.
  void redraw(std::size_t l) {
    const std::int64_t before = tiles_[l], smallest = smallest_[l], whole = extents_[l];
    const auto fits = [&](std::int64_t size) {
      tiles_[l] = size;
      return feasible();
    };
    std::int64_t sizes = 0;
    if (fits(smallest)) {
      std::int64_t low = smallest, high = whole;
      while (low < high) {
        const std::int64_t middle = low + (high - low + 1) / 2;
        if (fits(middle)) low = middle;
        else high = middle - 1;
      }
      sizes = low - smallest + 1;
    }
    const bool apart = smallest + sizes <= whole && fits(whole);
    if (sizes == 0 && !apart) {
      tiles_[l] = before;
      return;
    }
    const auto draw = static_cast<std::int64_t>(
        below(random_, static_cast<std::uint64_t>(sizes + (apart ? 1 : 0))));
    tiles_[l] = draw < sizes ? smallest + draw : whole;
  }

  Pricer pricer_;
  Order order_;
  std::int64_t most_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> extents_, smallest_;
  Tiles tiles_;
};

}  // namespace

std::vector<Tiles> draw_tilings(const Workload& w, const Order& order,
                                         const Options& options, const SampleSpace& space,
                                         std::int64_t count, std::uint64_t seed) {
  constexpr int kMostMisses = 400;  // draws in a row without a new tiling
  Options held = options;
  held.memory = Memory::held;
  Walk walk(w, order, held, space, seed);
  std::vector<Tiles> drawn;
  if (!walk.start(w)) return drawn;
  std::set<Tiles> seen;
  for (int misses = 0; misses < kMostMisses && std::ssize(drawn) < count; ++misses) {
    for (int i = 0; i < kSweeps; ++i) walk.sweep();
    if (walk.memory() <= space.least.value) continue;
    if (space.some_below > 0 && !walk.some_below(space.some_below)) continue;
    if (!seen.insert(walk.tiles()).second) continue;
    drawn.push_back(walk.tiles());
    misses = -1;
  }
  return drawn;
}

std::vector<OrderedTiles> draw_unguided(const Workload& w, std::int64_t count, std::uint64_t seed) {
  constexpr int kMostMisses = 10000;  // draws in a row without a new legal tiling
  std::vector<OrderedTiles> drawn;
  const std::vector<Order> orders = all_orders(w);
  if (orders.empty()) return drawn;
  std::mt19937_64 random(seed);
  const Tiles whole = tiles_from(w, {});
  std::set<OrderedTiles> seen;
  for (int misses = 0; misses < kMostMisses && std::ssize(drawn) < count; ++misses) {
    OrderedTiles t{orders[below(random, orders.size())], whole};
    for (LoopId l : t.order)
      t.tiles[l.index()] = 1 + static_cast<std::int64_t>(
                                   below(random, static_cast<std::uint64_t>(w.loop(l).extent)));
    if (!legality(w, t.order, t.tiles).legal || !seen.insert(t).second) continue;
    drawn.push_back(std::move(t));
    misses = -1;
  }
  return drawn;
}

}  // namespace tilewright::chimera
