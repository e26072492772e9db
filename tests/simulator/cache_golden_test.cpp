// Golden numbers of a tiled 512^3 GEMM (fp32, tiles of 64, loops ii jj kk i k j): for each i, k
// load A[i][k], for each j load B[k][j], load C[i][j], store C[i][j]. Sixteen j lie in one line of
// B and one of C, so that walking by lines leaves the same misses and the same order behind.
#include <gtest/gtest.h>

#include <array>

#include "simulator/cache.h"
#include "simulator/stack_distance.h"
#include "tests/support/tiled_gemm.h"

namespace tilewright {
namespace {

constexpr std::int64_t kAccesses = 404'750'336;
constexpr std::int64_t kN = 512, kT = 64, kElement = 4, kArena = 0x10000000;

struct Golden {
  std::int64_t leading;
  std::array<std::pair<std::int64_t, std::int64_t>, 3> misses_and_write_backs;
};

CacheHierarchy hierarchy() {
  return CacheHierarchy({{.name = "L1", .capacity = Bytes(48 << 10), .ways = 12},
                         {.name = "L2", .capacity = Bytes(1 << 20), .ways = 16},
                         {.name = "L3", .capacity = Bytes(32 << 20), .ways = 16}},
                        3);
}

void expect_golden(const CacheHierarchy& h, const Golden& golden) {
  for (std::size_t l = 0; l < 3; ++l) {
    const CacheCount c = h.total(l);
    EXPECT_EQ(c.misses, golden.misses_and_write_backs[l].first) << "L" << l + 1;
    EXPECT_EQ(c.written.value / 64, golden.misses_and_write_backs[l].second) << "L" << l + 1;
  }
}

class TiledGemm : public ::testing::TestWithParam<Golden> {};

TEST_P(TiledGemm, LineByLine) {
  CacheHierarchy h = hierarchy();
  testing::tiled_gemm(GetParam().leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    h.read(a, 4, 0);
    for (std::int64_t j = 0; j < kT * kElement; j += 64) {
      h.range(b + j, 64, false, 1);
      h.range(c + j, 64, false, 2);
      h.range(c + j, 64, true, 2);
    }
  });
  expect_golden(h, GetParam());
}

TEST_P(TiledGemm, ByRowsOf256Bytes) {
  CacheHierarchy h = hierarchy();
  testing::tiled_gemm(GetParam().leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    h.read(a, 4, 0);
    h.range(b, kT * kElement, false, 1);
    h.update(c, kT * kElement, 2);
  });
  expect_golden(h, GetParam());
}

TEST_P(TiledGemm, ElementByElementInRows) {
  CacheHierarchy h = hierarchy();
  testing::tiled_gemm(GetParam().leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    h.read(a, 4, 0);
    h.elements(b, kT, kElement, false, 1);
    h.update_elements(c, kT, kElement, 2);
  });
  expect_golden(h, GetParam());
  EXPECT_EQ(h.total(0).hits + h.total(0).misses, kAccesses);
}

TEST_P(TiledGemm, AsTheInnerLoopDoesIt) {
  CacheHierarchy h = hierarchy();
  testing::tiled_gemm(GetParam().leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    const std::array<Stream, 3> loop{
        Stream{.address = b, .stride = kElement, .tensor = 1},
        Stream{.address = c, .stride = kElement, .tensor = 2},
        Stream{.address = c, .stride = kElement, .write = true, .tensor = 2}};
    h.read(a, 4, 0);
    h.streams(loop, kT);
  });
  expect_golden(h, GetParam());
  EXPECT_EQ(h.total(0).hits + h.total(0).misses, kAccesses);
}

// 48 KiB fully associative, and 64 sets of every number of ways at once.
TEST_P(TiledGemm, StackDistancesPassThroughTheFirstLevel) {
  StackDistances sets(Bytes(64), 64, 3);
  testing::tiled_gemm(GetParam().leading, [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    sets.access(a, 4, 0);
    sets.range(b, kT * kElement, 1);
    sets.update(c, kT * kElement, 2);
  });
  EXPECT_EQ(sets.total().misses(12), GetParam().misses_and_write_backs[0].first);
}

INSTANTIATE_TEST_SUITE_P(
    Leading, TiledGemm,
    ::testing::Values(Golden{512, {{{8650752, 131068}, {172024, 14336}, {49152, 0}}}},
                      Golden{528, {{{391200, 128800}, {163840, 15297}, {49152, 0}}}}),
    [](const auto& info) { return "LD" + std::to_string(info.param.leading); });

}  // namespace
}  // namespace tilewright
