// Does the cache agree with a plain LRU, with itself by other ways in, and with hand-worked cases?
#include "simulator/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/error.h"
#include "simulator/cache_sets.h"
#include "simulator/cache_walk.h"
#include "tests/simulator/reference_lru.h"

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReferenceLru;

constexpr int kTensors = 3;

CacheGeometry level(std::string name, std::int64_t sets, std::int64_t ways,
                    std::int64_t line = 64) {
  return {.name = std::move(name),
          .capacity = Bytes(sets * ways * line),
          .ways = ways,
          .line = Bytes(line)};
}
CacheGeometry associative(std::string name, std::int64_t lines) {
  return {.name = std::move(name), .capacity = Bytes(lines * 64), .ways = 0};
}

struct Geometry {
  std::string name;
  std::vector<CacheGeometry> levels;
};

std::vector<Geometry> geometries() {
  return {{"direct", {level("L1", 16, 1)}},
          {"eight_ways", {level("L1", 8, 8)}},
          {"three_sets", {level("L1", 3, 5)}},
          {"eleven_ways_odd_sets", {level("L1", 37, 11)}},
          {"one_set_of_32", {level("L1", 1, 32)}},
          {"fully_associative", {associative("L1", 24)}},
          {"wide_fully_associative", {associative("L1", 100)}},
          {"wide_sets", {level("L1", 3, 48)}},
          {"two_levels", {level("L1", 4, 2), level("L2", 8, 4)}},
          {"three_levels", {level("L1", 4, 3), level("L2", 7, 4), level("L3", 5, 33)}},
          {"outer_smaller", {level("L1", 8, 4), level("L2", 4, 4)}},  // write-backs miss in L2
          {"four_levels",
           {level("L1", 2, 2), associative("L2", 9), level("L3", 16, 2), level("L4", 9, 11)}}};
}

void expect_agreement(const CacheHierarchy& h, const ReferenceLru& r) {
  for (std::size_t i = 0; i < r.levels.size(); ++i) {
    const auto counts = h.counts(i);
    for (std::size_t t = 0; t < kTensors; ++t) {
      EXPECT_EQ(counts[t].hits, r.levels[i].hits[t]) << "level " << i << " tensor " << t;
      EXPECT_EQ(counts[t].misses, r.levels[i].misses[t]) << "level " << i << " tensor " << t;
      EXPECT_EQ(counts[t].read.value, 64 * r.levels[i].misses[t]);
      EXPECT_EQ(counts[t].written.value, 64 * r.levels[i].written[t])
          << "level " << i << " tensor " << t;
    }
    EXPECT_EQ(h.contents(i), r.levels[i].rows) << "level " << i;
  }
}

class RandomTrace : public ::testing::TestWithParam<Geometry> {};

TEST_P(RandomTrace, AgreesWithTheReference) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    CacheHierarchy h(GetParam().levels, kTensors);
    ReferenceLru r(GetParam().levels, kTensors);
    // Mostly near the last line, so that every level hits now and then.
    std::int64_t line = 1000;
    for (int i = 0; i < 20000; ++i) {
      line = random() % 4 == 0
                 ? static_cast<std::int64_t>(random() % 600)
                 : std::max<std::int64_t>(0, line + static_cast<std::int64_t>(random() % 17) - 8);
      const int tensor = static_cast<int>(random() % kTensors);
      const bool write = random() % 3 == 0;
      const auto offset = static_cast<std::int64_t>(random() % 64);
      write ? h.write(line * 64 + offset, 1, tensor) : h.read(line * 64 + offset, 1, tensor);
      r.touch(0, {line, tensor, write});
    }
    expect_agreement(h, r);
  }
}

TEST_P(RandomTrace, RangesAndElementsEqualSingleAccesses) {
  std::mt19937_64 random(7);
  CacheHierarchy ranges(GetParam().levels, kTensors), lines(GetParam().levels, kTensors),
      elements(GetParam().levels, kTensors), singles(GetParam().levels, kTensors);
  const std::array<std::int64_t, 6> sizes{1, 2, 4, 8, 12, 80};
  for (int i = 0; i < 3000; ++i) {
    const auto address = static_cast<std::int64_t>(random() % 40000);
    const auto count = static_cast<std::int64_t>(random() % 70 + 1);
    const std::int64_t size = sizes[random() % sizes.size()];
    const int tensor = static_cast<int>(random() % kTensors);
    const bool write = random() % 2 == 0;
    const std::int64_t end = address + count * size;
    ranges.range(address, end - address, write, tensor);
    for (std::int64_t a = address; a < end; a = (a / 64 + 1) * 64) lines.range(a, 1, write, tensor);
    elements.elements(address, count, size, write, tensor);
    for (std::int64_t a = address; a < end; a += size) singles.range(a, size, write, tensor);
  }
  for (std::size_t l = 0; l < GetParam().levels.size(); ++l) {
    EXPECT_EQ(ranges.counts(l), lines.counts(l));
    EXPECT_EQ(elements.counts(l), singles.counts(l));
    EXPECT_EQ(ranges.contents(l), lines.contents(l));
    EXPECT_EQ(elements.contents(l), singles.contents(l));
    EXPECT_EQ(ranges.contents(l), singles.contents(l));
  }
}

TEST_P(RandomTrace, UpdateIsReadAndWriteLineByLine) {
  std::mt19937_64 random(11);
  CacheHierarchy updates(GetParam().levels, kTensors), pairs(GetParam().levels, kTensors);
  for (int i = 0; i < 3000; ++i) {
    const auto address = static_cast<std::int64_t>(random() % 40000);
    const auto bytes = static_cast<std::int64_t>(random() % 700 + 1);
    const int tensor = static_cast<int>(random() % kTensors);
    updates.update(address, bytes, tensor);
    for (std::int64_t a = address; a < address + bytes; a = (a / 64 + 1) * 64) {
      pairs.read(a, 1, tensor);
      pairs.write(a, 1, tensor);
    }
    const auto other = static_cast<std::int64_t>(random() % 40000);
    updates.read(other, 1, 0);
    pairs.read(other, 1, 0);
  }
  for (std::size_t l = 0; l < GetParam().levels.size(); ++l) {
    EXPECT_EQ(updates.counts(l), pairs.counts(l));
    EXPECT_EQ(updates.contents(l), pairs.contents(l));
  }
}

// Every line that turned dirty in a level was written out since, or is still there.
TEST_P(RandomTrace, ConservesDirtyLinesAndSumsTensors) {
  std::mt19937_64 random(13);
  CacheHierarchy h(GetParam().levels, kTensors);
  const std::size_t outermost = GetParam().levels.size() - 1;
  std::int64_t turned_dirty = 0;  // somewhere in the hierarchy, while clean everywhere in it
  const auto dirty_anywhere = [&](std::int64_t line) {
    for (std::size_t l = 0; l <= outermost; ++l)
      for (const auto& set : h.contents(l))
        for (const CacheLine& c : set)
          if (c.line == line && c.dirty) return true;
    return false;
  };
  for (int i = 0; i < 1500; ++i) {
    const auto line = static_cast<std::int64_t>(random() % 300);
    const bool write = random() % 3 == 0;
    if (write && !dirty_anywhere(line)) ++turned_dirty;
    h.range(line * 64, 64, write, static_cast<int>(random() % kTensors));
  }
  std::int64_t distinct_dirty = 0;
  for (std::int64_t line = 0; line < 300; ++line) distinct_dirty += dirty_anywhere(line);
  // Dirty in = written back to home + still in the caches. A line may leave several times from an
  // outer level while an inner copy is dirty again, so home gets at least what turned dirty.
  const std::int64_t home = h.total(outermost).written.value / 64;
  if (outermost == 0) {
    EXPECT_EQ(turned_dirty, home + distinct_dirty);
    EXPECT_EQ(h.total(0).resident_dirty.value, 64 * distinct_dirty);
  } else {
    EXPECT_LE(turned_dirty, home + distinct_dirty);
  }
  for (std::size_t l = 0; l <= outermost; ++l) {
    std::int64_t resident = 0;
    CacheCount sum;
    for (const auto& set : h.contents(l))
      for (const CacheLine& c : set) resident += c.dirty;
    for (const CacheCount& c : h.counts(l)) {
      EXPECT_EQ(c.read.value, 64 * c.misses);
      sum.hits += c.hits;
      sum.misses += c.misses;
      sum.resident_dirty += c.resident_dirty;
      sum.written += c.written;
    }
    EXPECT_EQ(sum.resident_dirty.value, 64 * resident);
    const CacheCount total = h.total(l);
    EXPECT_EQ(total.hits, sum.hits);
    EXPECT_EQ(total.written, sum.written);
    // What a level is asked for is what the one inside it missed.
    EXPECT_EQ(total.hits + total.misses, l == 0 ? 1500 : h.total(l - 1).misses);
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, RandomTrace, ::testing::ValuesIn(geometries()),
                         [](const auto& info) { return info.param.name; });

// Processors with AVX-512, with AVX2 and with neither count alike, and so do tables.
TEST(Cache, EveryWayOfKeepingSetsIsTheSame) {
  for (const std::int64_t ways : {1, 2, 7, 8, 9, 11, 12, 16, 17, 20, 24, 25, 31, 32})
    for (const std::uint64_t sets : {1u, 3u, 8u}) {
      cache::Tags packed(sets, ways, 5), packed_avx2(sets, ways, 5, cache::Instructions::avx2),
          packed_portable(sets, ways, 5, cache::Instructions::plain);
      cache::Rows portable(sets, ways, true), fast(sets, ways);
      cache::Lists table(sets, ways);
      std::mt19937_64 random(static_cast<std::uint64_t>(ways) * 10 + sets);
      const auto lines = static_cast<std::uint64_t>(ways) * sets * 5 / 4 + 2;
      for (int i = 0; i < 2000; ++i) {
        const cache::Entry first =
            cache::entry_of(random() % lines, static_cast<int>(random() % 5), random() % 3 == 0);
        const std::size_t n = random() % 20 + 1;
        cache::Miss a[20], b[20];
        const std::size_t missed = portable.run(first, n, a);
        const auto same = [&](auto& other) {
          ASSERT_EQ(other.run(first, n, b), missed) << ways << " ways, step " << i;
          for (std::size_t k = 0; k < missed; ++k) {
            ASSERT_EQ(a[k].line, b[k].line);
            ASSERT_EQ(a[k].victim, b[k].victim) << ways << " ways, step " << i;
          }
        };
        same(fast);
        same(table);
        if (i % 2 == 0) {
          same(packed);
          same(packed_avx2);
          same(packed_portable);
        } else {  // line by line
          for (const auto by : {&packed, &packed_avx2, &packed_portable}) {
            std::size_t k = 0;
            for (std::size_t l = 0; l < n; ++l) {
              const cache::Answer answer = by->touch(first + (l << cache::kMetaBits));
              if (!answer.missed) continue;
              ASSERT_LT(k, missed);
              ASSERT_EQ(cache::line_of(first) + l, a[k].line);
              ASSERT_EQ(answer.victim, a[k++].victim);
            }
            ASSERT_EQ(k, missed);
          }
        }
        if (HasFatalFailure()) return;
      }
      for (std::uint64_t s = 0; s < sets; ++s) {
        const auto held = [s](const auto& in) {
          std::vector<cache::Entry> entries;
          in.each(s, [&](cache::Entry e) { entries.push_back(e); });
          return entries;
        };
        for (const auto& other :
             {held(fast), held(table), held(packed), held(packed_avx2), held(packed_portable)})
          EXPECT_EQ(other, held(portable));
      }
    }
}

/// What two levels ask of the next one, and what they count, touch by touch.
struct TouchByTouch {
  cache::Tags inner, outer;
  std::vector<cache::Tally> inner_tally, outer_tally;
  std::vector<cache::Entry> asks;

  void ask_outer(cache::Entry now) {
    const cache::Answer a = outer.touch(now);
    auto& tally = outer_tally[static_cast<std::size_t>(cache::tensor_of(now))];
    if (!cache::is_dirty(now)) {
      ++(a.missed ? tally.misses : tally.hits);
      if (a.missed) asks.push_back(now);
    }
    if (!cache::is_dirty(a.victim)) return;
    ++outer_tally[static_cast<std::size_t>(cache::tensor_of(a.victim))].written_bytes;
    asks.push_back(a.victim);
  }
  void touch(cache::Entry now) {
    const cache::Answer a = inner.touch(now);
    auto& tally = inner_tally[static_cast<std::size_t>(cache::tensor_of(now))];
    ++(a.missed ? tally.misses : tally.hits);
    if (!a.missed) return;
    ask_outer(now & ~cache::Entry{1});
    if (!cache::is_dirty(a.victim)) return;
    ++inner_tally[static_cast<std::size_t>(cache::tensor_of(a.victim))].written_bytes;
    ask_outer(a.victim);
  }
};

void expect_same(const std::vector<cache::Tally>& a, const std::vector<cache::Tally>& b) {
  for (std::size_t t = 0; t < a.size(); ++t) {
    EXPECT_EQ(a[t].hits, b[t].hits);
    EXPECT_EQ(a[t].misses, b[t].misses);
    EXPECT_EQ(a[t].written_bytes, b[t].written_bytes);
  }
}

TEST(Cache, LevelsWalkedTogetherAskForWhatTheyWouldTouchByTouch) {
  constexpr int kMany = 5;
  const auto walked = [](std::int64_t inner_ways, std::int64_t outer_ways, std::uint64_t sets,
                         cache::Instructions most) {
    cache::Tags inner(sets, inner_ways, kMany, most);
    cache::Tags outer(2 * sets + 1, outer_ways, kMany, most);
    const std::vector<cache::Tally> none(kMany);
    TouchByTouch apart{inner, outer, none, none, {}};
    inner.keep_fronts(6);
    std::vector<cache::Tally> inner_tally = none, outer_tally = none;
    cache::Walk w;
    w.inner = &inner;
    w.outer = &outer;
    w.inner_tally = inner_tally.data();
    w.outer_tally = outer_tally.data();
    std::mt19937_64 random(sets * 100 + static_cast<std::uint64_t>(inner_ways));
    const auto lines = static_cast<std::uint64_t>(inner_ways + 2 * outer_ways) * sets * 3 / 2 + 20;
    std::size_t asked = 0;
    for (int i = 0; i < 2000; ++i) {
      const cache::Entry first =
          cache::entry_of(random() % lines, static_cast<int>(random() % kMany), random() % 3 == 0);
      const std::size_t n = random() % 10 + 1;
      w.asked = 0;
      inner.walker (&outer)(w, first, n, static_cast<std::int64_t>(n));
      apart.asks.clear();
      for (std::size_t l = 0; l < n; ++l) apart.touch(first + (l << cache::kMetaBits));
      ASSERT_EQ(std::vector<cache::Entry>(w.asks, w.asks + w.asked), apart.asks) << "step " << i;
      asked += w.asked;
    }
    EXPECT_GT(asked, 100u);
    expect_same(inner_tally, apart.inner_tally);
    expect_same(outer_tally, apart.outer_tally);
    for (std::uint64_t s = 0; s < sets; ++s) {
      std::vector<cache::Entry> a, b;
      inner.each(s, [&](cache::Entry e) { a.push_back(e); });
      apart.inner.each(s, [&](cache::Entry e) { b.push_back(e); });
      EXPECT_EQ(a, b);
      EXPECT_EQ(inner.fronts()[s].address, cache::line_of(a[0]) << 6);
      EXPECT_EQ(inner.fronts()[s].meta, a[0] & cache::kMeta);
    }
  };
  for (const std::int64_t inner : {1, 7, 16, 17, 32})
    for (const std::int64_t outer : {2, 16, 31})
      for (const std::uint64_t sets : {1u, 3u, 8u, 64u})
        for (const auto most :
             {cache::Instructions::plain, cache::Instructions::avx2, cache::Instructions::avx512}) {
          SCOPED_TRACE(std::to_string(inner) + " and " + std::to_string(outer) + " ways, " +
                       std::to_string(sets) + " sets, instructions " +
                       std::to_string(static_cast<int>(most)));
          walked(inner, outer, sets, most);
          if (HasFatalFailure()) return;
        }
}

TEST(Cache, TranslationByAWholeNumberOfSetsChangesNothing) {
  const std::vector<CacheGeometry> g{level("L1", 12, 3), level("L2", 18, 4)};
  std::mt19937_64 random(5);
  CacheHierarchy here(g), there(g);
  const std::int64_t shift = std::int64_t{36} * 64 * 1234567;
  for (int i = 0; i < 20000; ++i) {
    const auto a = static_cast<std::int64_t>(random() % 16384);
    const bool write = random() % 2 == 0;
    here.range(a, 8, write);
    there.range(a + shift, 8, write);
  }
  for (std::size_t l = 0; l < 2; ++l) EXPECT_EQ(here.counts(l), there.counts(l));
}

TEST(Cache, AnyNumberOfSetsIsAPlainRemainder) {
  for (const std::int64_t sets : {1, 3, 5, 7, 36864, 36865, 65537, 1048583}) {
    CacheHierarchy h({level("L", sets, 1)});
    std::mt19937_64 random(9);
    for (int i = 0; i < 50; ++i) {
      const auto line = static_cast<std::int64_t>(random() & ((std::uint64_t{1} << 47) - 1));
      h.read(line * 64);
      const auto contents = h.contents(0);
      ASSERT_EQ(contents[static_cast<std::size_t>(line % sets)].size(), 1u);
      ASSERT_EQ(contents[static_cast<std::size_t>(line % sets)][0].line, line) << sets;
      if (sets > 100000 && i > 3) break;
    }
  }
}

// Peers' bugs: a store hit that leaves the order alone, a victim drawn with & (ways - 1).
TEST(Cache, AStoreHitRenewsTheLine) {
  CacheHierarchy h({level("L", 1, 3)});
  for (const std::int64_t line : {0, 1, 2}) h.read(line * 64);
  h.write(0);
  h.read(3 * 64);
  EXPECT_THAT(h.contents(0)[0],
              ElementsAre(CacheLine{3, 0, false}, CacheLine{0, 0, true}, CacheLine{2, 0, false}));
}

TEST(Cache, AWriteBackThatMissesAllocatesWithoutAFill) {
  // L2 smaller than L1: line 0 is gone from L2 when L1 writes it back.
  CacheHierarchy h({level("L1", 1, 4), level("L2", 1, 2)}, 2);
  h.write(0, 4, 1);
  for (const std::int64_t line : {1, 2, 3, 4}) h.read(line * 64, 4, 0);
  EXPECT_EQ(h.counts(0)[1].written, Bytes(64));
  EXPECT_EQ(h.counts(1)[1],
            (CacheCount{.misses = 1, .read = Bytes(64), .resident_dirty = Bytes(64)}));
  EXPECT_THAT(h.contents(1)[0], ElementsAre(CacheLine{0, 1, true}, CacheLine{4, 0, false}));
}

TEST(Cache, LongerOuterLinesAreFilledForAPartialWriteBack) {
  CacheHierarchy h({level("L1", 1, 1, 64), level("L2", 1, 1, 128)});
  h.write(0);   // fills 64 into L1, 128 into L2
  h.read(256);  // asks L2 for 256, which pushes 0 out; then 0 comes back dirty, fetched to merge
  EXPECT_EQ(h.total(0), (CacheCount{.misses = 2, .read = Bytes(128), .written = Bytes(64)}));
  EXPECT_EQ(h.total(1),
            (CacheCount{.misses = 3, .read = Bytes(384), .resident_dirty = Bytes(128)}));
}

TEST(Cache, ShorterOuterLinesAreAskedForOneByOne) {
  CacheHierarchy h({level("L1", 1, 1, 128), level("L2", 4, 1, 32)});
  h.read(0);
  EXPECT_EQ(h.total(1).misses, 4);
  EXPECT_EQ(h.total(1).read, Bytes(128));
}

TEST(Cache, AnEntryFurtherOutLeavesInnerLevelsAlone) {
  CacheHierarchy h({level("L1", 2, 2), level("L2", 4, 2)});
  h.range(0, 256, true, 0, 1);
  EXPECT_EQ(h.total(0), CacheCount{});
  EXPECT_EQ(h.total(1),
            (CacheCount{.misses = 4, .read = Bytes(256), .resident_dirty = Bytes(256)}));
}

TEST(Cache, GeometryThatCannotBeIsAnInputError) {
  const auto refuses = [](CacheGeometry g, const std::string& what) {
    try {
      CacheHierarchy h({g});
      ADD_FAILURE() << what << " was accepted";
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(what));
    }
  };
  refuses({.name = "L1", .capacity = Bytes(0), .ways = 8}, "capacity");
  refuses({.name = "L1", .capacity = Bytes(1000), .ways = 8}, "capacity");
  refuses({.name = "L1", .capacity = Bytes(4096), .ways = -1}, "ways");
  refuses({.name = "L1", .capacity = Bytes(4096), .ways = 8, .line = Bytes(48)}, "line");
}

}  // namespace
}  // namespace tilewright
