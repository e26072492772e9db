// Are the kernels those of PolyBench? They compute what they should; traced or not, recorded singly
// or by loops, they come to the same; and access for access and miss for miss they are what Dinero
// IV counted of the compiled programs (the data of the PLDI'22 warping artifact, where it is at
// hand).
#include "simulator/polybench/polybench.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewright::polybench {
namespace {

std::vector<CacheGeometry> cascade_lake() {
  return {{.name = "L1", .capacity = Bytes(32 << 10), .ways = 8},
          {.name = "L2", .capacity = Bytes(1 << 20), .ways = 16}};
}

Sizes tiny(const Kernel& k) {
  Sizes n = k.of(Size::small);
  for (std::int64_t& x : n) x = x == 0 ? 0 : x / 5 + 3;
  return n;
}

const Kernel& kernel(const char* name) { return *find_kernel(name); }

TEST(Polybench, HasThirtyKernelsByName) {
  ASSERT_EQ(kernels().size(), 30U);
  for (std::size_t i = 1; i < kernels().size(); ++i)
    EXPECT_LT(kernels()[i - 1].name, kernels()[i].name);
  EXPECT_EQ(find_kernel("gemmm"), nullptr);
  EXPECT_EQ(size_from_name("medium"), Size::medium);
  EXPECT_EQ(size_from_name("mini"), std::nullopt);
}

TEST(Polybench, TracedOrPlainTheValuesAreTheSame) {
  for (const Kernel& k : kernels()) {
    SCOPED_TRACE(k.name);
    const auto plain = compute(k, tiny(k));
    const Counted traced = count(k, tiny(k), cascade_lake(), {.values = true});
    EXPECT_EQ(static_cast<int>(plain.size()), k.arrays);
    EXPECT_EQ(plain, traced.values);
    for (const auto& array : plain)
      for (const double x : array) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(Polybench, RecordedSinglyOrByLoopsTheCountsAreTheSame) {
  const std::vector<CacheGeometry> small{
      {.name = "L1", .capacity = Bytes(1024), .ways = 4, .policy = "tree_plru"},
      {.name = "L2", .capacity = Bytes(8192), .ways = 8}};
  const PageWalkOptions walks{.inner_to_outer = {{2, 2}, {4, 4}}};
  for (const Kernel& k : kernels()) {
    SCOPED_TRACE(k.name);
    const Counted single = count(k, tiny(k), small, {.walks = walks, .values = true});
    const Counted loops = count(k, tiny(k), small, {.walks = walks});
    EXPECT_GT(single.accesses, 100);
    EXPECT_EQ(single.accesses, loops.accesses);
    EXPECT_EQ(single.walks, loops.walks);
    for (const std::size_t l : {0, 1}) {
      EXPECT_EQ(single.levels[l].hits, loops.levels[l].hits);
      EXPECT_EQ(single.levels[l].misses, loops.levels[l].misses);
      EXPECT_EQ(single.levels[l].walk_misses, loops.levels[l].walk_misses);
    }
    EXPECT_EQ(single.levels[0].hits + single.levels[0].misses, single.accesses + single.walks);
  }
}

// ---- What the kernels compute -------------------------------------------------------------------

/// Row i, column j of a matrix of `columns` columns.
double at(const std::vector<double>& a, std::int64_t columns, std::int64_t i, std::int64_t j) {
  return a[static_cast<std::size_t>(i * columns + j)];
}

/// The initial arrays: the same kernel with the extents that make it do nothing cannot give them,
/// so they are taken from gemm with the same shape, whose A is never written.
std::vector<double> initial(std::int64_t rows, std::int64_t columns) {
  return compute(kernel("gemm"), {rows, 1, columns})[1];
}

TEST(Polybench, ThreeMmMultiplies) {
  const std::int64_t ni = 5, nj = 7, nk = 6, nl = 4, nm = 8;
  const auto r = compute(kernel("3mm"), {ni, nj, nk, nl, nm});
  for (std::int64_t i = 0; i < ni; ++i)
    for (std::int64_t l = 0; l < nl; ++l) {
      double g = 0;
      for (std::int64_t j = 0; j < nj; ++j) {
        double e = 0, f = 0;
        for (std::int64_t k = 0; k < nk; ++k) e += at(r[1], nk, i, k) * at(r[2], nj, k, j);
        for (std::int64_t m = 0; m < nm; ++m) f += at(r[4], nm, j, m) * at(r[5], nl, m, l);
        g += e * f;
      }
      EXPECT_NEAR(at(r[6], nl, i, l), g, 1e-12 * g);
    }
}

TEST(Polybench, LuTimesItsFactorsIsTheMatrix) {
  const std::int64_t n = 9;
  const auto lu = compute(kernel("lu"), {n})[0];
  const auto a = initial(n, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double product = 0;
      for (std::int64_t k = 0; k <= std::min(i, j); ++k)
        product += (k == i ? 1.0 : at(lu, n, i, k)) * at(lu, n, k, j);
      EXPECT_NEAR(product, at(a, n, i, j) + (i == j ? n : 0), 1e-12 * n);
    }
}

TEST(Polybench, CholeskyTimesItsTransposeIsTheMatrix) {
  const std::int64_t n = 9;
  const auto l = compute(kernel("cholesky"), {n})[0];
  const auto a = initial(n, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      double product = 0;
      for (std::int64_t k = 0; k <= j; ++k) product += at(l, n, i, k) * at(l, n, j, k);
      EXPECT_NEAR(product, at(a, n, i, j) + (i == j ? n : 0), 1e-12 * n);
    }
}

TEST(Polybench, SolversSolve) {
  const std::int64_t n = 11;
  const auto a = initial(n, n);
  const auto ludcmp = compute(kernel("ludcmp"), {n});    // A b x y
  const auto trisolv = compute(kernel("trisolv"), {n});  // L x b
  for (std::int64_t i = 0; i < n; ++i) {
    double full = 0, lower = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const double of_a = at(a, n, i, j) + (i == j ? n : 0);
      full += of_a * ludcmp[2][static_cast<std::size_t>(j)];
      if (j <= i) lower += of_a * trisolv[1][static_cast<std::size_t>(j)];
    }
    EXPECT_NEAR(full, ludcmp[1][static_cast<std::size_t>(i)], 1e-12);
    EXPECT_NEAR(lower, trisolv[2][static_cast<std::size_t>(i)], 1e-12);
  }
}

TEST(Polybench, GramschmidtFactorsIntoOrthonormalColumns) {
  const std::int64_t m = 10, n = 6;
  const auto r = compute(kernel("gramschmidt"), {m, n});  // A R Q
  const auto a = initial(m, n);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double product = 0;
      for (std::int64_t k = 0; k <= j; ++k) product += at(r[2], n, i, k) * at(r[1], n, k, j);
      EXPECT_NEAR(product, at(a, n, i, j) + (i == j ? n : 0), 1e-12 * n);
    }
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t k = 0; k < n; ++k) {
      double dot = 0;
      for (std::int64_t i = 0; i < m; ++i) dot += at(r[2], n, i, j) * at(r[2], n, i, k);
      EXPECT_NEAR(dot, j == k ? 1.0 : 0.0, 1e-12);
    }
}

TEST(Polybench, DurbinSolvesYuleWalker) {
  const std::int64_t n = 7;
  const auto s = compute(kernel("durbin"), {n});  // r y z
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j)
      sum += (i == j ? 1.0 : s[0][static_cast<std::size_t>(std::abs(i - j) - 1)]) *
             s[1][static_cast<std::size_t>(j)];
    EXPECT_NEAR(sum, -s[0][static_cast<std::size_t>(i)], 1e-9);
  }
}

TEST(Polybench, FloydWarshallLeavesShortestPaths) {
  const std::int64_t n = 12;
  const auto p = compute(kernel("floyd-warshall"), {n})[0];
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t k = 0; k < n; ++k)
        EXPECT_LE(at(p, n, i, j), at(p, n, i, k) + at(p, n, k, j));
}

TEST(Polybench, CorrelationIsSymmetricWithOnesAndAtMostOne) {
  const std::int64_t m = 6, n = 20;
  const auto corr = compute(kernel("correlation"), {m, n})[1];
  for (std::int64_t i = 0; i < m; ++i) {
    EXPECT_EQ(at(corr, m, i, i), 1.0);
    for (std::int64_t j = 0; j < m; ++j) {
      EXPECT_EQ(at(corr, m, i, j), at(corr, m, j, i));
      EXPECT_LE(std::abs(at(corr, m, i, j)), 1 + 1e-12);
    }
  }
}

// ---- Accesses, in closed form -------------------------------------------------------------------

TEST(Polybench, AccessesAreThoseOfTheDefinition) {
  const auto accesses = [](const char* name, const Sizes& n) {
    return count(kernel(name), n, cascade_lake()).accesses;
  };
  EXPECT_EQ(accesses("gemm", {7, 8, 9}), 7 * 8 * 2 + 7 * 8 * 9 * 4);
  EXPECT_EQ(accesses("2mm", {7, 8, 9, 10}), 7 * 8 * (1 + 3 * 9) + 7 * 10 * (2 + 3 * 8));
  EXPECT_EQ(accesses("floyd-warshall", {11}), 4 * 11 * 11 * 11);
  EXPECT_EQ(accesses("seidel-2d", {3, 12}), 3 * 10 * 10 * 10);
  EXPECT_EQ(accesses("heat-3d", {3, 9}), 3 * 2 * 7 * 7 * 7 * 8);
  EXPECT_EQ(accesses("jacobi-1d", {3, 30}), 3 * 2 * 28 * 4);
  EXPECT_EQ(accesses("mvt", {13}), 6 * 13 * 13 + 2 * 13);
  EXPECT_EQ(accesses("deriche", {9, 8}), 16 * 9 * 8);
}

// Streams once through an array that no cache holds: each of its lines is one miss.
TEST(Polybench, ACompulsoryMissForEachLine) {
  const Counted c = count(kernel("jacobi-1d"), {1, 64 * 1024}, cascade_lake());
  EXPECT_EQ(c.levels[0].misses, 2 * 2 * 64 * 1024 / 8);
  EXPECT_EQ(c.levels[1].misses, 2 * 64 * 1024 / 8);  // both arrays fit into L2: a second pass hits
}

TEST(Polybench, PageWalksCountAsLinesOfTheirOwn) {
  const Sizes n{600};  // rows of 4800 bytes: a column lies on 600 pages
  const Counted without = count(kernel("mvt"), n, cascade_lake());
  const Counted with = count(kernel("mvt"), n, cascade_lake(),
                             {.walks = PageWalkOptions{.inner_to_outer = {{64, 4}, {128, 4}}}});
  EXPECT_EQ(without.walks, 0);
  EXPECT_EQ(without.levels[0].walk_misses, 0);
  // Every step down a column: 1.17 pages on, one line of the table for 8 pages.
  EXPECT_GT(with.walks, 600 * 600 * 0.9);
  EXPECT_NEAR(with.levels[0].walk_misses, 600 * 600 * 4800.0 / 32768, 600 * 600 * 0.02);
  EXPECT_NEAR(with.levels[0].misses - without.levels[0].misses, with.levels[0].walk_misses,
              0.1 * with.levels[0].walk_misses);
}

}  // namespace
}  // namespace tilewright::polybench
