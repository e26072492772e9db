// The best tiles for one order. Private to models/chimera.
#pragma once

#include <memory>
#include <optional>
#include <tuple>

#include "models/chimera/flat.h"

namespace tilewright::chimera::detail {

/// One choice of tile for a loop: the smallest tile that makes `trips`. A price depends on tiles
/// through trips and footprints only, so no other tile can be better: about 2 sqrt(extent) of them.
struct Candidate {
  std::int64_t tile = 1;
  std::int64_t trips = 1;
};
/// By rising tile; the last is the whole loop.
std::vector<Candidate> candidates(std::int64_t extent, std::int64_t min_tile,
                                  std::int64_t multiple = 1);

/// The smallest tile that options allow for a loop.
std::int64_t least_tile(const Options& o, LoopId loop, std::int64_t extent);

/// Positions that the solver leaves whole: windows, and all but one of loops that share a
/// subscript.
Mask left_whole(const Flat& f);

/// Minimum over real tiles of DV without ceilings, under the memory of a tree in which every loop
/// has several trips: a geometric program, convex in the logarithms, by a barrier method. Nothing
/// where the footprints are no monomials (halos) or the least tiles do not fit.
struct RealOptimum {
  std::vector<double> tile;  ///< by position
  double volume = 0;
};
std::optional<RealOptimum> real_optimum(const Flat& f, std::int64_t capacity);

struct Orders {
  std::vector<Order> orders;
  double left_out = 0;
};
/// All orders, or where those are too many, the loops that stay whole outermost and the others in
/// every order: a loop of one trip multiplies nothing, and outermost it ends no reuse early.
Result<Orders> orders_to_try(const Workload& w, const Options& options);

struct Effort {
  std::int64_t evaluated = 0;
  std::int64_t pruned = 0;
};

Result<Solution> solve_order(const Flat& f, std::int64_t capacity, Effort& effort);

/// Solves one order after another of the same loops. Their tables are made once, and so are lower
/// bounds of sets of cut loops with the same reuse and the same memory, and the real optimum, which
/// orders have in common; the answers are those of solve_order.
class OrdersSolver {
 public:
  OrdersSolver(const Workload& w, const Order& first, const Options& options,
               std::int64_t capacity);
  ~OrdersSolver();
  OrdersSolver(const OrdersSolver&) = delete;
  OrdersSolver& operator=(const OrdersSolver&) = delete;
  /// Throws InputError where `order` is no permutation of the first one's loops.
  Result<Solution> solve(const Order& order, Effort& effort);
  /// Whether the order has a legal tiling that fits and moves no more than `limit`. Cheaper than
  /// solve().
  bool reaches(const Order& order, double limit, Effort& effort);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// The best plans without every order's: a loop of one trip is outermost, where it multiplies
/// nothing and ends no reuse early, so that an order counts for the loops only that it cuts. Sets
/// of loops that are cut, and their orders, of up to as many loops as kMostCases lets all be tried.
/// `ranked` has the best of the cases of least bounds, and those that were better than all before.
/// Cost: some 15 us a case, most of which are illegal where operators are many.
inline constexpr std::int64_t kMostCases = 150'000;
Result<Search> search_cut_loops(const Workload& w, Elements capacity, const Options& options);
struct BestOfCuts {
  Solution solution;
  /// The loops that are cut, outermost first, in each case whose bound is no more than the
  /// solution's volume. An order that moves no more has them in one of these sequences.
  std::vector<Order> cuts;
};
/// What search_cut_loops ranks first, without bounding every case's own tree; none where no case is
/// legal and fits.
std::optional<BestOfCuts> best_of_cut_loops(const Workload& w, Elements capacity,
                                            const Options& options);

/// By which solutions are ranked: infeasible ones last (illegal ones before those that do not fit),
/// else by volume.
inline auto rank(const Solution& s) {
  return std::tuple(!s.feasible, s.tiles.empty(), s.price.volume, !s.fits, s.price.recomputed,
                    s.price.memory);
}

}  // namespace tilewright::chimera::detail
