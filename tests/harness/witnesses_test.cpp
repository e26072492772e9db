// Do the witnesses agree? exact and the scratchpad simulator count independently; on every legal
// plan of software-managed levels they must give the same bytes, operations and memory.
#include "tests/harness/witnesses.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(Witnesses, AgreeToTheByteOnAThousandRandomLegalTrees) {
  constexpr std::uint64_t kSeed = 20261120;
  std::mt19937_64 random(kSeed);
  testing::Agreement seen;
  for (int i = 0; seen.legal < 1000 && i < 20000; ++i) {
    const auto c = testing::random_case(random, {});
    if (c) seen.look(*c, "seed " + std::to_string(kSeed) + ", case " + std::to_string(i));
    if (HasFailure()) return;
  }
  EXPECT_EQ(seen.legal, 1000) << "seed " << kSeed;
}

TEST(Witnesses, AgreeToTheByteOnRandomGathers) {
  constexpr std::uint64_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  testing::Agreement seen;
  for (int i = 0; seen.legal < 400 && i < 8000; ++i) {
    const auto c = testing::random_case(random, {.gathers = true});
    if (c) seen.look(*c, "seed " + std::to_string(kSeed) + ", case " + std::to_string(i));
    if (HasFailure()) return;
  }
  EXPECT_EQ(seen.legal, 400) << seen.why;
}

/// Loops over the blocks of clusters, anywhere in the tree, in packs and beside barriers, too.
TEST(Witnesses, AgreeToTheByteOnLoopsOverClusters) {
  constexpr std::uint64_t kSeed = 20261127;
  std::mt19937_64 random(kSeed);
  testing::Agreement seen;
  for (int i = 0; seen.legal < 400 && i < 8000; ++i) {
    const auto c = testing::random_case(
        random, {.gathers = i % 3 == 0, .phases = i % 3 == 1, .clusters = true});
    if (c) seen.look(*c, "seed " + std::to_string(kSeed) + ", case " + std::to_string(i));
    if (HasFailure()) return;
  }
  EXPECT_EQ(seen.legal, 400) << seen.why;
}

}  // namespace
}  // namespace tilewright
