// The planner's time model on processors: do small tiles take what they take beside their
// operations? The measured cycles are of a Zen 5, where nothing else ran.
#include <gtest/gtest.h>

#include "core/plan/names.h"
#include "core/workload/text.h"
#include "models/quickest/quickest.h"

namespace tilewright {
namespace {

/// Cycles of a tile, of so many.
double cycles(const std::string& text, const char* tree, double tiles) {
  Question q{.workload = std::make_shared<const Workload>(
                 workload_from_yaml("name: t\n" + text + "\n", "test"))};
  q.machine = std::make_shared<const Machine>(named_machine("epyc-zen5"));
  q.threads = 1;
  Kernel k{.name = "k", .level = "L2", .tree = parse_tree(tree)};
  const auto s = resolve({.kernels = {k}}, q.workload, q.machine);
  EXPECT_TRUE(s.ok()) << tree << (s.ok() ? "" : ": " + s.reason());
  const quickest::Rates r = quickest::rates_of(q).value();
  return quickest::kernel_time(*s, s->kernels[0], r).seconds / r.cycle / tiles;
}

std::string product(int size) {
  const std::string n = std::to_string(size);
  return "loops: {m: " + n + ", \"n\": " + n + ", k: " + n +
         "}\noperators: [\"C[m,n] += A[m,k] * B[k,n]\"]";
}

/// Eight columns are a part of a vector: the next tile's sums lie in the line that it is stored to,
/// and wait for it (49 cycles a tile). Where the next tile has other rows, they do not (17).
TEST(PriceOfTiles, SumsWaitForAPartOfTheirLine) {
  constexpr double kTiles = 12 * 12 * 48;
  const double waits = cycles(product(96), "m/2 ( k/8 ( n/8 ( C.C ) ) )", kTiles),
               passes = cycles(product(96), "n/8 ( k/8 ( m/2 ( C.C ) ) )", kTiles);
  EXPECT_NEAR(waits, 49, 7);
  EXPECT_GT(waits, 2 * passes);
  // Sums that are whole do not come back (269 cycles a tile; the next's passes beside).
  EXPECT_LT(cycles(product(96), "n/1 ( m/1 ( C.C ) )", 96 * 96), 4 * 96);
}

/// Compilers know the sizes of tiles that divide their loops, and processors run such tiles beside
/// one another: 10 cycles for eight steps of a vector, where others of seven take 21.
TEST(PriceOfTiles, OnesOfOneSizePassBesideOneAnother) {
  EXPECT_LT(cycles(product(96), "k/8 ( m/1 ( n/16 ( C.C ) ) )", 12 * 96 * 6), 17);
  EXPECT_NEAR(cycles(product(100), "n/16 ( k/7 ( m/1 ( C.C ) ) )", 7 * 15 * 100), 21, 6);
}

/// A point's extreme is two comparisons (0.6 to 1.2 cycles), not a call (6).
TEST(PriceOfTiles, ExtremesOfPointsAloneAreCompared) {
  const std::string of = "loops: {r: 96, c: 96}\noperators: ";
  EXPECT_LT(cycles(of + "[\"M[r] max= X[r,c]\"]", "c/1 ( C.M )", 96 * 96), 3);
  EXPECT_LT(cycles(of + "[\"Y[r,c] = max(X[r,c], 0)\"]", "c/1 ( C.Y )", 96 * 96), 3);
}

/// Taps of one channel: rows of 20 points end in a part of a vector, which the next row's sums wait
/// for where they come back (45 cycles a row and tile), and rows of 16 do not (10).
TEST(PriceOfTiles, RowsOfTapsWaitForOneAnother) {
  const auto rows = [](int x) {
    return "loops: {o: 8, y: 12, x: " + std::to_string(x) +
           ", i: 16, r: 3, s: 3}\ntensors: {X: [i, 14, " + std::to_string(x + 2) +
           "]}\noperators: [\"Y[o,y,x] += X[i,y+r,x+s] * W[o,i,r,s]\"]";
  };
  const char* tree = "o/1 ( s/1 ( i/2 ( C.Y ) ) )";
  constexpr double kRows = 8 * 12 * 24;
  EXPECT_NEAR(cycles(rows(16), tree, kRows), 10.2, 3);
  EXPECT_NEAR(cycles(rows(20), tree, kRows), 44.7, 7);
}

/// A tile of a window looks at its taps and lists its steps (966 cycles of 8 channels, two rows and
/// two channels summed; the multiply-adds are 220 of them).
TEST(PriceOfTiles, WindowsBegin) {
  const std::string of =
      "loops: {o: 24, y: 20, x: 20, i: 16, r: 3, s: 3}\ntensors: {X: [i, 22, 22]}\n"
      "operators: [\"Y[o,y,x] += X[i,y+r,x+s] * W[o,i,r,s]\"]";
  EXPECT_GT(cycles(of, "o/8 ( y/2 ( i/2 ( C.Y ) ) )", 3 * 10 * 8), 650);
  // Columns one wide are points that are broadcast: 4,700 cycles for 20 points of 144 taps.
  EXPECT_LT(cycles(of, "o/2 ( x/1 ( C.Y ) )", 12 * 20), 12000);
}

}  // namespace
}  // namespace tilewright
