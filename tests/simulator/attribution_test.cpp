// Are misses told apart as by hand, do the parts add up, and is the right loop blamed?
#include "simulator/attribution.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/base/error.h"
#include "simulator/cache.h"

namespace tilewright {
namespace {

CacheGeometry level(std::string name, std::int64_t sets, std::int64_t ways) {
  return {.name = std::move(name), .capacity = Bytes(sets * ways * 64), .ways = ways};
}

TEST(Attribution, KindsByHand) {
  CacheHierarchy h({level("L1", 2, 1)}, CacheOptions{.tensors = 2, .attribute = true});
  h.read(0, 4, 0);       // compulsory
  h.read(2 * 64, 4, 1);  // compulsory; set 0 too: 0 goes, though there was room for both
  h.read(0, 4, 0);       // conflict
  h.read(1 * 64, 4, 1);  // compulsory
  h.read(3 * 64, 4, 1);  // compulsory
  h.read(0, 4, 0);       // hit
  h.read(2 * 64, 4, 1);  // capacity: 0, 1 and 3 have been since
  const LevelBlame& b = h.blame(0);
  EXPECT_EQ(b.misses[0], (MissKinds{.compulsory = 1, .conflict = 1}));
  EXPECT_EQ(b.misses[1], (MissKinds{.compulsory = 3, .capacity = 1}));
  EXPECT_EQ(b.evictions, (std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 1}}));
}

TEST(Attribution, TheOutermostLoopThatAdvancedPays) {
  // for i: for j: read B[j]; then once more C. A cache of one line.
  CacheHierarchy h({level("L1", 1, 1)}, CacheOptions{.tensors = 2, .attribute = true});
  h.attribution().expect_loops(2);
  for (int i = 0; i < 3; ++i) {
    if (i > 0) h.attribution().advance(0);
    for (int j = 0; j < 4; ++j) {
      if (j > 0 || i > 0) h.attribution().advance(1);
      h.read(j * 64, 4, 0);
      h.read(100 * 64, 4, 1);
    }
  }
  const LevelBlame& b = h.blame(0);
  // B[j] comes back when i does; C when j does, and in the first j of an i when i does.
  EXPECT_EQ(b.by_loop, (std::vector<std::vector<std::int64_t>>{{8, 2}, {0, 9}, {0, 0}}));
  EXPECT_EQ(b.misses[0], (MissKinds{.compulsory = 4, .capacity = 8}));
}

class Any : public ::testing::TestWithParam<bool> {};

// Against books kept another way: sets of lines, and a second, fully associative hierarchy.
TEST_P(Any, PartsAddUpAndAgreeWithASecondCache) {
  const std::vector<CacheGeometry> levels{level("L1", 4, 2), level("L2", 7, 3)};
  CacheHierarchy h(levels, CacheOptions{.tensors = 3, .general = GetParam(), .attribute = true});
  CacheHierarchy plain(levels, CacheOptions{.tensors = 3, .general = GetParam()});
  CacheHierarchy associative({{.name = "L1", .capacity = Bytes(8 * 64), .ways = 0}}, 3);
  std::mt19937_64 random(31);
  std::set<std::int64_t> seen;
  std::vector<MissKinds> expected(3);
  std::int64_t line = 50;
  for (int i = 0; i < 30000; ++i) {
    line = random() % 4 == 0 ? static_cast<std::int64_t>(random() % 100)
                             : (line + static_cast<std::int64_t>(random() % 5)) % 100;
    const int tensor = static_cast<int>(random() % 3);
    const bool write = random() % 3 == 0;
    const std::int64_t before = h.total(0).misses, would = associative.total(0).misses;
    h.access(line * 64, 4, write, tensor);
    plain.access(line * 64, 4, write, tensor);
    associative.access(line * 64, 4, write, tensor);
    if (h.total(0).misses == before) {
      seen.insert(line);
      continue;
    }
    MissKinds& kinds = expected[static_cast<std::size_t>(tensor)];
    const bool would_miss = associative.total(0).misses != would;
    ++(seen.insert(line).second ? kinds.compulsory : would_miss ? kinds.capacity : kinds.conflict);
  }
  EXPECT_EQ(h.blame(0).misses, expected);
  for (std::size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(h.counts(l), plain.counts(l)) << "listening changes nothing";
    const LevelBlame& b = h.blame(l);
    std::int64_t evicted = 0, misses = 0, resident = 0;
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_EQ(b.misses[t].total(), h.counts(l)[t].misses);
      std::int64_t seen_before = 0;
      for (const auto& loop : b.by_loop) seen_before += loop[t];
      EXPECT_EQ(seen_before, b.misses[t].capacity + b.misses[t].conflict);
      for (const std::int64_t n : b.evictions[t]) evicted += n;
      misses += h.counts(l)[t].misses;
    }
    for (const auto& set : h.contents(l)) resident += std::ssize(set);
    if (l == 0) {
      EXPECT_EQ(misses, evicted + resident) << "what came in has gone or is there";
    } else {
      EXPECT_LE(misses, evicted + resident);  // write-backs allocate too
    }
  }
  EXPECT_GT(expected[0].conflict, 100);
  EXPECT_GT(expected[0].capacity, 100);
}

INSTANTIATE_TEST_SUITE_P(Engines, Any, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "general" : "plain"; });

TEST(Attribution, OneCore) {
  EXPECT_THROW(CacheHierarchy({level("L1", 1, 1)}, CacheOptions{.cores = 2, .attribute = true}),
               InputError);
}

}  // namespace
}  // namespace tilewright
