// Does every replacement policy do what its words say, in both engines, by every way in?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "core/base/error.h"
#include "simulator/cache.h"
#include "simulator/cache_sets.h"
#include "tests/simulator/reference_policy.h"

namespace tilewright {
namespace {

using testing::ReferenceSet;

const std::vector<std::string> kPolicies = {"lru",
                                            "fifo",
                                            "random",
                                            "tree_plru",
                                            "bit_plru",
                                            "srrip",
                                            "brrip",
                                            "qlru_h11_m1_r0_u0",
                                            "qlru_h00_m1_r2_u1",
                                            "qlru_h11_m1_r1_u2",
                                            "qlru_h21_m2_r1_u3",
                                            "qlru_h10_m0_r1_u2_umo",
                                            "qlru_h20_mr31_r0_u1_umo",
                                            "qlru_h00_m3_r0_u1"};

CacheGeometry level(std::string name, const std::string& policy, std::int64_t sets,
                    std::int64_t ways) {
  return {
      .name = std::move(name), .capacity = Bytes(sets * ways * 64), .ways = ways, .policy = policy};
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {};

std::vector<std::int64_t> sorted_lines(const std::vector<CacheLine>& set) {
  std::vector<std::int64_t> lines;
  for (const CacheLine& c : set) lines.push_back(c.line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST_P(EveryPolicy, DoesWhatItsWordsSay) {
  for (const std::int64_t ways : {1, 2, 3, 4, 7, 8, 11, 12, 16, 33, 64})
    for (const bool general : {false, true}) {
      SCOPED_TRACE(std::to_string(ways) + " ways" + (general ? ", general" : ""));
      const std::int64_t sets = 3;
      const CacheOptions options{.seed = 17, .general = general};
      CacheHierarchy h({level("L1", GetParam(), sets, ways)}, options);
      std::vector<ReferenceSet> reference;
      for (std::uint64_t s = 0; s < 3; ++s)
        reference.emplace_back(GetParam(), static_cast<int>(ways), options.seed, s);
      std::mt19937_64 random(static_cast<std::uint64_t>(ways));
      std::int64_t hits = 0;
      for (int i = 0; i < 4000; ++i) {
        // Some lines more often than others, and now and then one twice.
        const std::int64_t span = random() % 3 == 0 ? ways : 2 * ways;
        const auto line =
            static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(3 * span));
        for (std::uint64_t k = 0; k <= random() % 3; ++k) {
          h.read(line * 64);
          hits += reference[static_cast<std::size_t>(line % sets)].touch(line);
        }
        if (i % 37 != 0) continue;
        const auto contents = h.contents(0);
        for (std::size_t s = 0; s < 3; ++s) {
          std::vector<std::int64_t> expected;
          for (const std::int64_t l : reference[s].lines)
            if (l >= 0) expected.push_back(l);
          std::sort(expected.begin(), expected.end());
          ASSERT_EQ(sorted_lines(contents[s]), expected) << "step " << i;
        }
      }
      EXPECT_EQ(h.total(0).hits, hits);
      EXPECT_GT(h.total(0).misses, ways);
    }
}

// Two engines, written apart, on hierarchies of that policy.
TEST_P(EveryPolicy, EnginesAgree) {
  const std::vector<std::vector<CacheGeometry>> hierarchies = {
      {level("L1", GetParam(), 4, 8), level("L2", GetParam(), 8, 12)},
      {level("L1", "lru", 4, 2), level("L2", GetParam(), 7, 11), level("L3", GetParam(), 16, 16)},
      {level("L1", GetParam(), 8, 4), level("L2", "tree_plru", 4, 4)}};
  for (const auto& levels : hierarchies) {
    CacheHierarchy fast(levels, CacheOptions{.tensors = 3}),
        general(levels, CacheOptions{.tensors = 3, .general = true});
    std::mt19937_64 random(3);
    std::int64_t line = 500;
    for (int i = 0; i < 20000; ++i) {
      line = random() % 4 == 0
                 ? static_cast<std::int64_t>(random() % 600)
                 : std::max<std::int64_t>(0, line + static_cast<std::int64_t>(random() % 9) - 4);
      const int tensor = static_cast<int>(random() % 3);
      const bool write = random() % 3 == 0;
      const auto at = line * 64 + static_cast<std::int64_t>(random() % 60);
      fast.access(at, 8, write, tensor);
      general.access(at, 8, write, tensor);
      if (i % 50 == 0) {
        fast.update(at, 200, tensor);
        general.update(at, 200, tensor);
      }
    }
    for (std::size_t l = 0; l < levels.size(); ++l) {
      EXPECT_EQ(fast.counts(l), general.counts(l)) << "level " << l;
      EXPECT_EQ(fast.contents(l), general.contents(l)) << "level " << l;
    }
  }
}

TEST_P(EveryPolicy, ElementsTilesAndStreamsEqualSingleAccesses) {
  const std::vector<CacheGeometry> levels = {level("L1", GetParam(), 4, 3),
                                             level("L2", GetParam(), 8, 4)};
  CacheHierarchy calls(levels, 3), singles(levels, 3);
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  for (int i = 0; i < 1500; ++i) {
    const std::int64_t address = below(9000), count = below(70) + 1;
    const std::int64_t size = std::array{1, 2, 4, 8, 12, 80}[static_cast<std::size_t>(below(6))];
    const int tensor = static_cast<int>(below(3));
    const bool write = below(2) == 0;
    if (i % 3 == 0) {
      const std::int64_t rows = below(4) + 1, pitch = below(1000);
      calls.tile(address, rows, pitch, count, size, write, tensor);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t k = 0; k < count; ++k)
          singles.access(address + r * pitch + k * size, size, write, tensor);
    } else if (i % 3 == 1) {
      std::vector<Stream> streams;
      for (std::int64_t s = below(4); s >= 0; --s)
        streams.push_back({.address = 9000 + below(9000),
                           .stride = below(5) == 0 ? 0 : below(40) - 20,
                           .bytes = below(8) == 0 ? 70 : 4,
                           .write = below(2) == 0,
                           .tensor = static_cast<int>(below(3))});
      calls.streams(streams, count);
      for (std::int64_t k = 0; k < count; ++k)
        for (const Stream& s : streams)
          singles.access(s.address + k * s.stride, s.bytes, s.write, s.tensor);
    } else if (i % 2 == 0) {
      calls.update_elements(address, count, size, tensor);
      for (std::int64_t k = 0; k < count; ++k) {
        singles.read(address + k * size, size, tensor);
        singles.write(address + k * size, size, tensor);
      }
    } else {
      calls.update(address, count * size, tensor);
      for (std::int64_t a = address; a < address + count * size; a = (a / 64 + 1) * 64) {
        singles.read(a, 1, tensor);
        singles.write(a, 1, tensor);
      }
    }
    if (i % 100 != 0) continue;
    for (std::size_t l = 0; l < 2; ++l) {
      ASSERT_EQ(calls.counts(l), singles.counts(l)) << "level " << l << " step " << i;
      ASSERT_EQ(calls.contents(l), singles.contents(l)) << "level " << l << " step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(kPolicies),
                         [](const auto& info) { return info.param; });

TEST(Replacement, ProcessorsWithAndWithoutVectorsAreAlike) {
  for (const char* name : {"fifo", "random", "tree_plru", "bit_plru", "srrip"})
    for (const std::int64_t ways : {1, 5, 8, 12, 17, 64}) {
      const Replacement r = *replacement_from_name(name);
      cache::Ways fast(5, ways, r, {.tensors = 100}),
          portable(5, ways, r, {.tensors = 100, .portable = true});
      cache::WideWays wide(5, ways, r, {.tensors = 32767});
      std::mt19937_64 random(static_cast<std::uint64_t>(ways));
      for (int i = 0; i < 3000; ++i) {
        const cache::Entry first =
            cache::entry_of(random() % static_cast<std::uint64_t>(8 * ways),
                            static_cast<int>(random() % 100), random() % 3 == 0);
        cache::Miss a[8], b[8], c[8];
        const std::size_t n = random() % 8 + 1, missed = fast.run(first, n, a);
        ASSERT_EQ(portable.run(first, n, b), missed);
        ASSERT_EQ(wide.run(first, n, c), missed);
        for (std::size_t k = 0; k < missed; ++k) {
          ASSERT_EQ(a[k].victim, b[k].victim);
          ASSERT_EQ(a[k].victim, c[k].victim);
        }
      }
    }
}

// A peer draws its victim with & (ways - 1): of twelve ways it never takes four.
TEST(Replacement, RandomTakesEveryWayAsOften) {
  for (const std::int64_t ways : {2, 11, 12, 16}) {
    CacheHierarchy h({level("L1", "random", 1, ways)});
    for (std::int64_t i = 0; i < ways; ++i) h.read(i * 64);
    std::map<std::size_t, int> taken;
    const int rounds = 1000 * static_cast<int>(ways);
    auto before = h.contents(0)[0];
    for (int i = 0; i < rounds; ++i) {
      h.read((ways + i) * 64);
      const auto after = h.contents(0)[0];
      for (std::size_t w = 0; w < after.size(); ++w)
        if (after[w].line != before[w].line) ++taken[w];
      before = after;
    }
    EXPECT_EQ(std::ssize(taken), ways);
    for (const auto& [way, times] : taken) EXPECT_NEAR(times, 1000, 150) << way << " of " << ways;
  }
}

TEST(Replacement, BrripFillsFarAndOnceIn32Near) {
  cache::Policy p(*replacement_from_name("brrip"), 4);
  cache::PolicyState s = p.start(5, 0);
  int near = 0;
  for (int i = 0; i < 32000; ++i) {
    const int way = p.fill<Replacement::Kind::ages>(s, 0b1111);
    near += (s.a >> way & s.b >> way & 1) == 0;
  }
  EXPECT_NEAR(near, 1000, 120);
}

TEST(Replacement, SameSeedSameCounts) {
  const auto misses = [](std::uint64_t seed) {
    CacheHierarchy h({level("L1", "random", 8, 4)}, CacheOptions{.seed = seed});
    std::mt19937_64 random(2);
    for (int i = 0; i < 5000; ++i) h.read(static_cast<std::int64_t>(random() % 64) * 64);
    return h.total(0).misses;
  };
  EXPECT_EQ(misses(1), misses(1));
  EXPECT_NE(misses(1), misses(2));
}

TEST(Replacement, NamesThatAreNone) {
  for (const char* name : {"", "LRU", "plru", "qlru", "qlru_h12_m1_r0_u0", "qlru_h11_m4_r0_u0",
                           "qlru_h11_m1_r0_u2", "qlru_h11_m1_r2_u3", "qlru_h11_m1_r3_u0",
                           "qlru_h11_mr12_r0_u0", "qlru_h11_m1_r0_u0_um", "qlru_h11_m1_r0_u0x"})
    EXPECT_FALSE(replacement_from_name(name)) << name;
  EXPECT_THROW(CacheHierarchy({level("L1", "plru", 1, 1)}), InputError);
  EXPECT_THROW(CacheHierarchy({level("L1", "tree_plru", 1, 65)}), InputError);
  EXPECT_NO_THROW(CacheHierarchy({level("L1", "fifo", 1, 65)}));
}

}  // namespace
}  // namespace tilewright
