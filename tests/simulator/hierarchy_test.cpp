// What levels do beside replacing: inclusion, writes, sectors, prefetchers, cores, DRAM rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/base/error.h"
#include "simulator/cache.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

CacheGeometry level(std::string name, std::int64_t sets, std::int64_t ways,
                    CacheBehaviour behaviour = {}, std::int64_t line = 64,
                    std::int64_t sector = 0) {
  return {.name = std::move(name),
          .capacity = Bytes(sets * ways * line),
          .ways = ways,
          .line = Bytes(line),
          .sector = Bytes(sector),
          .behaviour = std::move(behaviour)};
}
CacheGeometry shared(CacheGeometry g) {
  g.shared = true;
  return g;
}

std::set<std::int64_t> lines(const CacheHierarchy& h, std::size_t l, int core = 0) {
  std::set<std::int64_t> all;
  for (const auto& set : h.contents(l, core))
    for (const CacheLine& c : set) all.insert(c.line);
  return all;
}
std::set<std::int64_t> dirty_lines(const CacheHierarchy& h, std::size_t l, int core = 0) {
  std::set<std::int64_t> all;
  for (const auto& set : h.contents(l, core))
    for (const CacheLine& c : set)
      if (c.dirty) all.insert(c.line);
  return all;
}

const CacheBehaviour kInclusive{.inclusion = Inclusion::inclusive};
const CacheBehaviour kExclusive{.inclusion = Inclusion::exclusive};
const CacheBehaviour kVictim{.inclusion = Inclusion::victim};
const CacheBehaviour kThrough{.write = WriteHit::through};
const CacheBehaviour kAround{.write = WriteHit::through, .write_miss = WriteMiss::around};
const CacheBehaviour kValidate{.write_miss = WriteMiss::validate};

CacheBehaviour prefetching(PrefetchKind kind, std::int64_t degree = 1) {
  return {.prefetch = {{.kind = kind, .degree = degree}}};
}

// Worked by hand ----------------------------------------------------------------------------------

TEST(Inclusive, AnEvictionTakesTheLineOutOfInnerLevelsWithItsData) {
  CacheHierarchy h({level("L1", 1, 4), level("L2", 1, 2, kInclusive)});
  h.write(0);
  h.read(64);
  EXPECT_EQ(lines(h, 0), (std::set<std::int64_t>{0, 1}));
  h.read(128);  // L2 has room for two: line 0 goes, dirty in L1 only
  EXPECT_EQ(lines(h, 0), (std::set<std::int64_t>{1, 2}));
  EXPECT_EQ(h.total(0).invalidations, 1);
  EXPECT_EQ(h.total(0).written, Bytes(64));
  EXPECT_EQ(h.total(1).written, Bytes(64));
}

TEST(Exclusive, AHitMovesTheLineAndAMissLeavesNothing) {
  CacheHierarchy h({level("L1", 1, 2), level("L2", 1, 2, kExclusive)});
  h.write(0);
  h.read(64);
  EXPECT_THAT(lines(h, 1), IsEmpty());
  h.read(128);  // 0 goes to L2, dirty
  EXPECT_EQ(dirty_lines(h, 1), (std::set<std::int64_t>{0}));
  EXPECT_EQ(h.total(0).written, Bytes(64));
  h.read(0);  // and back, dirty still; 1 goes out, clean
  EXPECT_EQ(dirty_lines(h, 0), (std::set<std::int64_t>{0}));
  EXPECT_EQ(lines(h, 1), (std::set<std::int64_t>{1}));
  EXPECT_EQ(h.total(0).handed, Bytes(64));
  EXPECT_EQ(h.total(1).hits, 1);
  EXPECT_EQ(h.total(1).misses, 3);
  EXPECT_EQ(h.total(1).written, Bytes(0));
}

TEST(Exclusive, TwoLevelsHoldAsMuchAsBothTogether) {
  CacheHierarchy h({level("L1", 1, 4), level("L2", 1, 4, kExclusive)});
  for (int round = 0; round < 3; ++round)
    for (std::int64_t line = 0; line < 8; ++line) h.read(line * 64);
  EXPECT_EQ(h.total(1).misses, 8);
}

TEST(Victim, AHitLeavesTheLine) {
  CacheHierarchy h({level("L1", 1, 1), level("L2", 1, 4, kVictim)});
  h.read(0);
  h.read(64);
  h.read(0);
  EXPECT_EQ(lines(h, 1), (std::set<std::int64_t>{0, 1}));
  EXPECT_EQ(h.total(1).hits, 1);
}

TEST(Victim, TakesTheShareOfCleanVictimsThatItIsGiven) {
  for (const double share : {0.0, 0.25, 1.0}) {
    CacheBehaviour behaviour = kVictim;
    behaviour.clean_victims = share;
    CacheHierarchy h({level("L1", 1, 1), level("L2", 1, 8, behaviour)});
    for (std::int64_t line = 0; line < 4001; ++line) h.read(line * 64);
    EXPECT_NEAR(static_cast<double>(h.total(0).handed.value) / 64, 4000 * share,
                share == 0.25 ? 120 : 0);
    h.write(0);
    h.read(64);  // dirty ones always
    EXPECT_TRUE(lines(h, 1).contains(0));
  }
}

TEST(WriteThrough, EveryWriteGoesOnAndNothingIsDirty) {
  CacheHierarchy h({level("L1", 1, 2, kThrough), level("L2", 1, 4)});
  h.write(0, 4);
  h.write(4, 8);
  EXPECT_EQ(h.total(0),
            (CacheCount{.hits = 1, .misses = 1, .read = Bytes(64), .written = Bytes(12)}));
  EXPECT_EQ(h.total(1),
            (CacheCount{.hits = 2, .misses = 1, .read = Bytes(64), .resident_dirty = Bytes(64)}));
}

TEST(WriteAround, AMissLeavesTheLevelAlone) {
  CacheHierarchy h({level("L1", 1, 2, kAround), level("L2", 1, 4, kAround)});
  h.write(0, 4);
  EXPECT_THAT(lines(h, 0), IsEmpty());
  EXPECT_EQ(h.total(1), (CacheCount{.misses = 1, .written = Bytes(4)}));
  h.read(0);
  h.write(0, 4);
  EXPECT_EQ(h.total(0),
            (CacheCount{.hits = 1, .misses = 2, .read = Bytes(64), .written = Bytes(8)}));
}

TEST(WriteValidate, WholeSectorsNeedNoFetch) {
  CacheHierarchy h({level("L1", 2, 2, kValidate, 128, 32)});
  h.write(0, 64);
  EXPECT_EQ(h.total(0).read, Bytes(0));
  EXPECT_EQ(h.total(0).resident_dirty, Bytes(64));
  h.write(72, 40);  // sectors 2 in part, 3 in part
  EXPECT_EQ(h.total(0).read, Bytes(64));
  h.write(128, 32);
  h.read(160);  // the line is there, the sector is not
  EXPECT_EQ(h.total(0).read, Bytes(96));
  EXPECT_EQ(h.total(0).misses, 4);
}

TEST(Sectors, OnlyWhatIsTouchedMoves) {
  CacheHierarchy h({level("L2", 1, 1, {}, 128, 32)});
  h.read(0, 4);
  h.read(100, 4);
  h.read(4, 4);
  EXPECT_EQ(h.total(0), (CacheCount{.hits = 1, .misses = 2, .read = Bytes(64)}));
  h.write(96, 4);
  h.read(128, 4);  // drives it out: one dirty sector
  EXPECT_EQ(h.total(0).written, Bytes(32));
  EXPECT_EQ(h.total(0).read, Bytes(96));
}

TEST(Prefetch, NextLineRunsAheadOfAStreamAndStopsAtThePage) {
  CacheHierarchy h({level("L1", 1, 64, prefetching(PrefetchKind::next_line)), level("L2", 1, 64)});
  for (std::int64_t line = 0; line < 64; ++line) h.read(line * 64);
  const CacheCount c = h.total(0);
  EXPECT_EQ(c.misses, 1);  // each first hit of what was prefetched asks for the next
  EXPECT_EQ(c.prefetches, 63);
  EXPECT_EQ(c.useful_prefetches, 63);
  EXPECT_EQ(c.read, Bytes(4096));
  EXPECT_FALSE(lines(h, 0).contains(64));
  EXPECT_EQ(h.total(1).misses, 1);  // what a prefetcher asks for is neither hit nor miss
  EXPECT_EQ(h.total(1).read, Bytes(4096));
}

TEST(Prefetch, AdjacentCompletesThePair) {
  CacheHierarchy h({level("L1", 1, 8, prefetching(PrefetchKind::adjacent))});
  h.read(5 * 64);
  EXPECT_EQ(lines(h, 0), (std::set<std::int64_t>{4, 5}));
  h.read(4 * 64);
  EXPECT_EQ(h.total(0).useful_prefetches, 1);
}

TEST(Prefetch, StrideNeedsTwoEqualSteps) {
  CacheHierarchy h({level("L1", 1, 64, prefetching(PrefetchKind::stride, 2))});
  h.read(0);
  h.read(3 * 64);
  EXPECT_EQ(h.total(0).prefetches, 0);
  h.read(6 * 64);
  EXPECT_EQ(lines(h, 0), (std::set<std::int64_t>{0, 3, 6, 9, 12}));
  h.read(5 * 64);  // another step
  EXPECT_EQ(h.total(0).prefetches, 2);
  h.read(61 * 64);
  h.read(58 * 64);
  h.read(55 * 64);  // downwards
  EXPECT_TRUE(lines(h, 0).contains(49));
}

TEST(StoreAround, TakesLinesOutAndCrossesEveryBoundary) {
  CacheHierarchy h({level("L1", 1, 4), level("L2", 1, 4)}, CacheOptions{.general = true});
  h.write(0);  // dirty in L1, clean in L2
  h.read(64);
  h.store_around(0, 64);  // covers line 0: its dirty data is of no use
  EXPECT_EQ(lines(h, 0), (std::set<std::int64_t>{1}));
  EXPECT_EQ(lines(h, 1), (std::set<std::int64_t>{1}));
  EXPECT_EQ(h.total(0).written, Bytes(64));
  EXPECT_EQ(h.total(1).written, Bytes(64));
  h.write(64);
  h.store_around(64, 8);  // covers a part: line 1 is written back first
  EXPECT_EQ(h.total(0).written, Bytes(64 + 64 + 8));
  EXPECT_EQ(h.total(1).written, Bytes(64 + 64 + 8));
  EXPECT_EQ(h.dram().writes, 3);
}

TEST(Index, FoldedAndSlicesSpreadPowersOfTwo) {
  for (const Index index : {Index::folded, Index::slices}) {
    CacheGeometry g =
        level("L3", 16, 2, {.index = index, .slices = index == Index::slices ? 4 : 1});
    CacheHierarchy h({g});
    for (std::int64_t i = 0; i < 32; ++i) h.read(i * 16 * 64);  // all in one set, by remainder
    std::size_t used = 0;
    for (const auto& set : h.contents(0)) used += !set.empty();
    EXPECT_GE(used, index == Index::folded ? 16u : 3u) << name_of(index);
    // Where a line goes depends on nothing else, and what fits is found again.
    CacheHierarchy again({g});
    for (int round = 0; round < 2; ++round)
      for (std::int64_t i = 0; i < 8; ++i) again.read(i * 64);
    EXPECT_EQ(again.total(0).hits + again.total(0).misses, 16);
    EXPECT_LE(again.total(0).misses, 12);
  }
}

TEST(Dram, RowsHitMissAndConflict) {
  CacheHierarchy h({level("L1", 1, 1)}, CacheOptions{.dram = {.row_bytes = 1024, .banks = 2}});
  h.read(0);      // bank 0 opens row 0
  h.read(64);     // hit
  h.read(1024);   // bank 1
  h.read(128);    // bank 0 still has row 0
  h.write(2048);  // bank 0, another row
  h.read(192);    // conflict again, and the write-back of 2048 after it: a third
  const DramCount d = h.dram();
  EXPECT_EQ(d.reads, 6);
  EXPECT_EQ(d.writes, 1);
  EXPECT_EQ(d.row_misses, 2);
  EXPECT_EQ(d.row_hits, 2);
  EXPECT_EQ(d.row_conflicts, 3);
}

TEST(Cores, AWriteTakesTheLineFromOthersAndAReadGetsWhatTheyHaveDirty) {
  CacheHierarchy h({level("L1", 1, 4), shared(level("L2", 1, 8))}, CacheOptions{.cores = 2});
  h.read(0);
  h.on_core(1);
  h.read(0);  // both have it; L2 hit
  EXPECT_EQ(h.total(1), (CacheCount{.hits = 1, .misses = 1, .read = Bytes(64)}));
  h.write(0);
  EXPECT_THAT(lines(h, 0, 0), IsEmpty());
  EXPECT_EQ(h.total(0).invalidations, 1);
  h.on_core(0);
  h.read(0);  // core 1 writes it back to L2 first, and keeps it clean
  EXPECT_EQ(h.total(0).written, Bytes(64));
  EXPECT_THAT(dirty_lines(h, 0, 1), IsEmpty());
  EXPECT_EQ(dirty_lines(h, 1), (std::set<std::int64_t>{0}));
  EXPECT_EQ(lines(h, 0, 1), (std::set<std::int64_t>{0}));
  EXPECT_EQ(h.total(1).hits, 2);
}

TEST(Cores, PrivateLevelsAreEachOnesOwn) {
  CacheHierarchy h({level("L1", 1, 2), level("L2", 1, 4)}, CacheOptions{.cores = 3});
  for (int core = 0; core < 3; ++core) {
    h.on_core(core);
    h.read(core * 64);
  }
  for (int core = 0; core < 3; ++core) EXPECT_EQ(lines(h, 1, core), (std::set<std::int64_t>{core}));
}

TEST(Hierarchy, WhatDoesNotGoTogetherIsRefused) {
  const auto refuses = [](std::vector<CacheGeometry> levels, const std::string& what) {
    try {
      CacheHierarchy h(std::move(levels));
      ADD_FAILURE() << what << " was accepted";
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  };
  refuses({level("L1", 1, 1, kExclusive)}, "inclusion");
  refuses({level("L1", 1, 1), level("L2", 1, 1, kVictim, 128)}, "line");
  refuses({shared(level("L1", 1, 1)), level("L2", 1, 1)}, "shared");
  refuses({level("L1", 3, 1, {.index = Index::folded})}, "index");
  refuses({level("L1", 4, 1, {.index = Index::slices, .slices = 3})}, "slices");
  refuses({level("L1", 1, 1, prefetching(PrefetchKind::stride, 65))}, "prefetch");
  refuses({level("L1", 1, 1, {}, 128, 48)}, "sector");
  CacheBehaviour more = kVictim;
  more.clean_victims = 1.5;
  refuses({level("L1", 1, 1), level("L2", 1, 1, more)}, "clean_victims");
}

// Whatever the behaviour --------------------------------------------------------------------------

struct Setup {
  std::string name;
  std::vector<CacheGeometry> levels;
  int cores = 1;
};

std::vector<Setup> setups() {
  CacheBehaviour some_victims = kVictim;
  some_victims.clean_victims = 0.5;
  CacheBehaviour busy = kInclusive;
  busy.prefetch = {{.kind = PrefetchKind::stride, .degree = 2}, {.kind = PrefetchKind::adjacent}};
  CacheGeometry drawn = level("L3", 5, 4, kInclusive);
  drawn.policy = "random";
  return {
      {"plain", {level("L1", 4, 2), level("L2", 8, 3)}},
      {"inclusive", {level("L1", 4, 2), level("L2", 4, 4), level("L3", 3, 7, kInclusive)}},
      {"inclusive_twice", {level("L1", 4, 4), level("L2", 2, 4, kInclusive), drawn}},
      {"inclusive_longer_lines", {level("L1", 4, 4), level("L2", 2, 3, kInclusive, 256)}},
      {"inclusive_shorter_lines", {level("L1", 2, 2, {}, 256), level("L2", 8, 1, kInclusive, 64)}},
      {"exclusive", {level("L1", 4, 2), level("L2", 4, 4, kExclusive)}},
      {"exclusive_twice",
       {level("L1", 4, 2), level("L2", 4, 4, kExclusive), level("L3", 7, 3, kExclusive)}},
      {"victim", {level("L1", 4, 2), level("L2", 4, 3), level("L3", 5, 5, some_victims)}},
      {"through", {level("L1", 4, 2, kThrough), level("L2", 4, 4)}},
      {"around", {level("L1", 4, 2, kAround), level("L2", 4, 4, kAround), level("L3", 5, 4)}},
      {"validate", {level("L1", 2, 2, kValidate, 128, 32), level("L2", 4, 4, kValidate, 128, 32)}},
      {"validate_in_inclusive", {level("L1", 4, 4, kValidate), level("L2", 2, 3, kInclusive)}},
      {"sectors", {level("L1", 4, 2, {}, 32), level("L2", 4, 4, {}, 128, 32)}},
      {"prefetching",
       {level("L1", 4, 4, prefetching(PrefetchKind::next_line, 3)), level("L2", 6, 4, busy)}},
      {"cores", {level("L1", 4, 2), level("L2", 4, 3), shared(level("L3", 5, 7))}, 3},
      {"cores_inclusive", {level("L1", 4, 2), shared(level("L2", 5, 4, kInclusive))}, 3},
      {"cores_victim",
       {level("L1", 4, 2), level("L2", 4, 3), shared(level("L3", 5, 4, kVictim))},
       2},
      {"cores_longer_lines", {level("L1", 4, 2), level("L2", 2, 3, kInclusive, 128)}, 2},
      {"nothing_shared", {level("L1", 4, 2), level("L2", 4, 3)}, 2},
  };
}

class AnyBehaviour : public ::testing::TestWithParam<Setup> {
 protected:
  static constexpr int kLines = 120;
  int levels() const { return static_cast<int>(GetParam().levels.size()); }
  std::int64_t unit() const {  // a tensor a piece that moves on its own
    std::int64_t longest = 64;
    for (const CacheGeometry& g : GetParam().levels) longest = std::max(longest, g.line.value);
    return longest;
  }
  bool dirty_somewhere(const CacheHierarchy& h, std::int64_t piece) const {
    for (std::size_t l = 0; l < GetParam().levels.size(); ++l)
      for (int core = 0; core < GetParam().cores; ++core)
        for (const auto& set : h.contents(l, core))
          for (const CacheLine& c : set) {
            const std::int64_t size = GetParam().levels[l].line.value;
            if (c.dirty && c.line * size / unit() == piece) return true;
          }
    return false;
  }
};

// Each piece of memory is a tensor: what was written to it is dirty somewhere, or has reached home
// since.
TEST_P(AnyBehaviour, NoWriteIsLost) {
  std::mt19937_64 random(21);
  CacheHierarchy h(GetParam().levels, CacheOptions{.tensors = kLines, .cores = GetParam().cores});
  const std::size_t last = GetParam().levels.size() - 1;
  std::vector<std::int64_t> written_at(kLines, -1);  // what had reached home when it was written
  for (int i = 0; i < 3000; ++i) {
    const auto piece = static_cast<std::int64_t>(random() % kLines);
    const bool write = random() % 3 == 0;
    h.on_core(static_cast<int>(random() % static_cast<std::uint64_t>(GetParam().cores)));
    if (write)
      written_at[static_cast<std::size_t>(piece)] =
          h.counts(last)[static_cast<std::size_t>(piece)].written.value;
    h.range(piece * unit(), unit(), write, static_cast<int>(piece));
    if (i % 20 != 0) continue;
    const auto counts = h.counts(last);
    for (std::size_t p = 0; p < kLines; ++p) {
      if (written_at[p] < 0 || counts[p].written.value > written_at[p]) continue;
      ASSERT_TRUE(dirty_somewhere(h, static_cast<std::int64_t>(p)))
          << "piece " << p << ", step " << i;
    }
  }
}

TEST_P(AnyBehaviour, CountsAddUp) {
  std::mt19937_64 random(22);
  CacheHierarchy h(GetParam().levels, CacheOptions{.tensors = 5, .cores = GetParam().cores});
  std::int64_t touches = 0;
  for (int i = 0; i < 8000; ++i) {
    const auto at = static_cast<std::int64_t>(random() % 12000);
    h.on_core(static_cast<int>(random() % static_cast<std::uint64_t>(GetParam().cores)));
    const std::int64_t line = GetParam().levels[0].line.value;
    const std::int64_t bytes = 4 + 60 * static_cast<std::int64_t>(random() % 2);
    h.access(at, bytes, random() % 2 == 0, static_cast<int>(random() % 5));
    touches += (at + bytes - 1) / line - at / line + 1;
  }
  EXPECT_EQ(h.total(0).hits + h.total(0).misses, touches);
  for (std::size_t l = 0; l < GetParam().levels.size(); ++l) {
    CacheCount sum;
    for (const CacheCount& c : h.counts(l)) sum.read += c.read, sum.misses += c.misses;
    EXPECT_EQ(sum.read, h.total(l).read);
    EXPECT_LE(h.total(l).useful_prefetches, h.total(l).prefetches);
    for (int core = 0; core < GetParam().cores; ++core)
      for (const auto& set : h.contents(l, core))
        EXPECT_LE(std::ssize(set), GetParam().levels[l].ways);
  }
}

TEST_P(AnyBehaviour, InclusionHolds) {
  std::mt19937_64 random(23);
  const auto& levels = GetParam().levels;
  CacheHierarchy h(levels, CacheOptions{.cores = GetParam().cores});
  for (int i = 0; i < 4000; ++i) {
    h.on_core(static_cast<int>(random() % static_cast<std::uint64_t>(GetParam().cores)));
    h.access(static_cast<std::int64_t>(random() % 12000), 4, random() % 3 == 0);
    if (i % 20 != 0) continue;
    for (std::size_t l = 1; l < levels.size(); ++l)
      for (int core = 0; core < GetParam().cores; ++core) {
        const auto outer = lines(h, l, core), inner = lines(h, l - 1, core);
        for (const std::int64_t line : inner) {
          const std::int64_t first = line * levels[l - 1].line.value;
          if (levels[l].behaviour.inclusion == Inclusion::exclusive) {
            ASSERT_FALSE(outer.contains(line)) << "step " << i;
          }
          if (levels[l].behaviour.inclusion != Inclusion::inclusive ||
              levels[0].behaviour.write_miss == WriteMiss::validate)
            continue;
          for (std::int64_t at = first; at < first + levels[l - 1].line.value;
               at += levels[l].line.value) {
            ASSERT_TRUE(outer.contains(at / levels[l].line.value)) << "step " << i;
          }
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Setups, AnyBehaviour, ::testing::ValuesIn(setups()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tilewright
