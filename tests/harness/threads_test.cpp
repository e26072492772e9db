// Tiles for several threads: a model's are made smaller where they cannot be dealt out evenly.
#include <gtest/gtest.h>

#include "core/plan/shares.h"
#include "core/workload/text.h"
#include "harness/schedules.h"

namespace tilewright::harness {
namespace {

Kernel shared(const std::string& workload, const std::string& tree, const std::string& tiles,
              int threads) {
  const Setting setting = setting_of({.subject = workload, .machine = "epyc-zen5"});
  const Plan plan{
      .kernels = {{.level = "L2", .tree = parse_tree(tree), .tiles = parse_tiles(tiles)}}};
  return shared_by_threads(plan, setting, threads).kernels.front();
}

using Tiles = std::map<std::string, std::int64_t>;

Tiles tiles(const std::string& workload, const std::string& tree, const std::string& tiles,
            int threads) {
  return shared(workload, tree, tiles, threads).tiles;
}

TEST(SharedByThreads, OneLoopsTilesAreMadeSmaller) {
  // 56 rows in three tiles of 19: two threads would wait for each other a quarter of the time.
  EXPECT_EQ(tiles("chimera/C6", "oc1 h w ( C.conv1 C.conv2 )", "oc1=64,h=19,w=56", 2),
            (Tiles{{"oc1", 64}, {"h", 14}, {"w", 56}}));
  // One tile for all: as many as there are threads.
  EXPECT_EQ(tiles("chimera/C7", "h w ( C.conv1 C.conv2 )", "h=56,w=56", 4),
            (Tiles{{"h", 14}, {"w", 56}}));
}

/// The longest stretch of steps, the last of which may be a shorter one, beside an even share.
TEST(SharedByThreads, TheLastStepCountsAsWhatItIs) {
  EXPECT_DOUBLE_EQ(used_of_threads(256, 64, 2), 1);
  EXPECT_DOUBLE_EQ(used_of_threads(267, 192, 2), 267.0 / (2 * 192));
  EXPECT_DOUBLE_EQ(used_of_threads(267, 128, 2), 267.0 / (2 * 139));
  EXPECT_DOUBLE_EQ(used_of_threads(1000, 300, 2), 1000.0 / (2 * 600));
  EXPECT_DOUBLE_EQ(used_of_threads(1000, 160, 4), 1000.0 / (4 * 320));
  EXPECT_DOUBLE_EQ(used_of_threads(100, 160, 4), 1.0 / 4);
}

TEST(SharedByThreads, WhatWouldBeComputedAgainStaysWhole) {
  // Two halves of oc2 would be even, but each would compute all of the first convolution.
  EXPECT_EQ(tiles("chimera/C2", "oc1 oc2 h w ( C.conv1 C.conv2 )", "oc1=64,oc2=80,h=15,w=74", 2),
            (Tiles{{"oc1", 64}, {"oc2", 80}, {"h", 13}, {"w", 74}}));
}

TEST(SharedByThreads, ALoopOfOneOperatorIsTakenOutside) {
  // The first convolution is complete before the second begins: no loop is around both.
  const Kernel k = shared("chimera/C4", "oc1 ( ic y x ( C.conv1 ) oc2 h w ( C.conv2 ) )",
                          "oc1=128,ic=64,y=14,x=28,oc2=128,h=14,w=28", 2);
  EXPECT_EQ(to_text(k.tree), "h oc1 ( ic y x ( C.conv1 ) oc2 w ( C.conv2 ) )");
  EXPECT_EQ(k.tiles.at("h"), 14);
}

TEST(SharedByThreads, WhatIsEvenStays) {
  const Tiles even = {{"m", 8}, {"l", 64}, {"k", 64}, {"n", 64}};
  EXPECT_EQ(tiles("chimera/G10", "n l m ( k ( C.gemm1 ) C.gemm2 )", "m=8,l=64,k=64,n=64", 2), even);
  EXPECT_EQ(tiles("chimera/C6", "oc1 h w ( C.conv1 C.conv2 )", "oc1=64,h=19,w=56", 1),
            (Tiles{{"oc1", 64}, {"h", 19}, {"w", 56}}));
}

/// Few rows: threads that share their columns as the plan has them read the right operand once
/// together; halves of the rows would each read it all.
TEST(SharedByThreads, ColumnsInWholeLinesAreSharedAsTheyAre) {
  const std::string product =
      "name: t\nloops: {m: 8, n: 2240, k: 64}\noperators: [\"C[m,n] += A[m,k] * B[k,n]\"]\n";
  const auto of = [&](const std::string& text, const std::string& given) {
    const Setting setting =
        setting_of({.subject = "t", .machine = "epyc-zen5", .subject_text = text});
    const Plan plan{
        .kernels = {
            {.level = "L2", .tree = parse_tree("m k n ( C.C )"), .tiles = parse_tiles(given)}}};
    return shared_by_threads(plan, setting, 2).kernels.front().tiles;
  };
  EXPECT_EQ(of(product, "m=8,k=64,n=32"), (Tiles{{"m", 8}, {"k", 64}, {"n", 32}}));
  // Two threads would write to the same lines.
  EXPECT_EQ(of(product, "m=8,k=64,n=40"), (Tiles{{"m", 4}, {"k", 64}, {"n", 40}}));
}

TEST(SharedByThreads, ColumnsAndSumsAreNotCut) {
  // Only n, the columns, and l, which is summed over, stand around everything.
  const Tiles given = {{"l", 256}, {"n", 64}};
  EXPECT_EQ(tiles("chimera/G10:m=1", "n l ( C.gemm1 C.gemm2 )", "l=256,n=64", 2), given);
}

}  // namespace
}  // namespace tilewright::harness
