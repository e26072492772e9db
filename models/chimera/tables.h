// What the solver precomputes: candidates and factors of every loop, and the subproblem that is
// left once it is fixed which loops make several trips. Private to models/chimera.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "models/chimera/solver.h"

namespace tilewright::chimera::detail {

/// Factors by candidate of one loop; empty where the loop has none (factor 1).
using Factors = std::vector<double>;

/// Everything that does not depend on which loops make several trips. A footprint is its base times
/// one factor for each loop that may be cut (left_whole leaves one such loop a dimension).
struct Tables {
  std::vector<std::vector<Candidate>> candidates;  // by position; loops that are fixed have one
  std::vector<Factors> trips;                      // by position
  std::vector<std::vector<Factors>> foot, exact;   // by foot and position; exact: of exact_sum
  std::vector<double> foot_base, exact_base;
};
Tables make_tables(const Flat& f);

/// All loops whole, batch loops that the order does not name at one.
Point whole_point(const Flat& f);
void set_choice(Point& p, std::size_t position, const Candidate& c);

inline constexpr std::size_t kMostCut =
    14;  ///< loops that may be cut: subproblems are their subsets

/// A product of one factor a free loop.
struct Product {
  double base = 1;
  std::array<const double*, kMostCut> factor{};  // by free loop, then choice; null: 1
};

/// A loop with several trips and what is left to choose from.
struct Free {
  std::size_t position = 0;
  std::vector<int> choice;  // indices into Tables::candidates, by rising tile
};

/// The subproblem of one set of loops with several trips: minimise the sum of `volume`, so that the
/// sum of each row of sizes is at most the capacity. Sizes rise with the choices.
struct Problem {
  std::vector<Free> loops;      // those with fewest choices first
  std::vector<Product> volume;  // one a use
  std::vector<Product> least;   // the same with each factor's least over choices 0..c
  std::vector<Product> sizes;
  std::vector<std::vector<std::size_t>> rows;  // indices into sizes
  std::unique_ptr<double[]> store;             // what the products point at
};
/// `rows`: of each position of `f`, the position in the tables, which may be of another order of
/// the same loops. Throws nothing; at most kMostCut loops of `multi` may be cut.
Problem make_problem(const Flat& f, const Tables& t, std::span<const std::size_t> rows, Mask multi);
/// The same but for the rows: of each operator, one tile of every tensor that it touches, which any
/// tree holds at least. It does not need the order's tree.
Problem make_relaxed_problem(const Flat& f, const Tables& t, std::span<const std::size_t> rows,
                             Mask multi);
/// Positions of `Problem::loops` of these problems, in the same order.
std::vector<std::size_t> free_loops(const Flat& f, const Tables& t,
                                    std::span<const std::size_t> rows, Mask multi);
/// Of each position of `f`, the position of the same loop in `base`, which has it.
std::vector<std::size_t> rows_in(const Flat& base, const Flat& f);

}  // namespace tilewright::chimera::detail
