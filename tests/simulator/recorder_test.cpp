// Does a recorder send each element access to the caches as it stands, hand-computed? Do loops of
// which only three iterations run leave the same behind? Do page walks touch what they should?
#include "simulator/recorder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace tilewright {
namespace {

constexpr std::int64_t kBase = 0x1000'0000;

CacheGeometry level(const char* name, std::int64_t bytes, std::int64_t ways,
                    const char* policy = "lru") {
  return {.name = name, .capacity = Bytes(bytes), .ways = ways, .policy = policy};
}

TEST(Traced, ReadsAndWritesValuesAndCountsEachAccess) {
  CacheHierarchy caches({level("L1", 1024, 0)}, 2);
  Recorder recorder(caches);
  std::vector<double> a{1, 2, 3, 4, 5, 6, 7, 8, 9};  // 72 bytes: lines 0 and 1 from kBase on
  std::vector<double> b(9);
  const traced<const double> A(recorder, a.data(), kBase, {9}, 0);
  const traced<double> B(recorder, b.data(), kBase + 4096, {9}, 1);
  for (std::int64_t i = 0; i < 9; ++i) B(i) = 2 * A(i);
  EXPECT_EQ(b, (std::vector<double>{2, 4, 6, 8, 10, 12, 14, 16, 18}));
  EXPECT_EQ(recorder.accesses(), 18);
  const auto counts = caches.counts(0);
  EXPECT_EQ(counts[0].misses, 2);
  EXPECT_EQ(counts[0].hits, 7);
  EXPECT_EQ(counts[0].resident_dirty, Bytes(0));
  EXPECT_EQ(counts[1].misses, 2);
  EXPECT_EQ(counts[1].resident_dirty, Bytes(128));
}

TEST(Traced, AddingToAnElementIsOneReadAndOneWrite) {
  CacheHierarchy caches({level("L1", 1024, 0)});
  Recorder recorder(caches);
  float x = 3;
  const traced<float> X(recorder, &x, kBase, {1});
  X(0) += 1;
  X(0) -= 2;
  X(0) *= 6;
  X(0) /= 4;
  EXPECT_EQ(x, 3);
  X(0) = X(0);
  EXPECT_EQ(recorder.accesses(), 10);
  EXPECT_EQ(caches.total(0).misses, 1);
  EXPECT_EQ(caches.total(0).hits, 9);
}

/// The line that a direct-mapped cache of many sets holds after one access.
std::int64_t line_after(const CacheHierarchy& caches) {
  for (const auto& set : caches.contents(0))
    for (const CacheLine& l : set) return l.line;
  return -1;
}

TEST(Traced, SubscriptsAreRowMajor) {
  std::vector<int> data(2 * 3 * 48);
  std::iota(data.begin(), data.end(), 0);
  const auto one = [&](auto&& access) {
    CacheHierarchy caches({level("L1", 1 << 16, 1)});
    Recorder recorder(caches);
    const int value = access(recorder);
    return std::pair(value, line_after(caches) - kBase / 64);
  };
  // Sixteen ints a line: element e lies in line e / 16.
  EXPECT_EQ(one([&](Recorder& r) -> int { return traced<int>(r, data.data(), kBase, {288})(100); }),
            std::pair(100, std::int64_t{6}));
  EXPECT_EQ(one([&](Recorder& r) -> int {
              return traced<int>(r, data.data(), kBase, {6, 48})(3, 17);
            }),
            std::pair(161, std::int64_t{10}));
  EXPECT_EQ(one([&](Recorder& r) -> int {
              return traced<int>(r, data.data(), kBase, {2, 3, 48})(1, 2, 40);
            }),
            std::pair(280, std::int64_t{17}));
}

// A matrix by a vector along columns: 16 rows of 64 doubles (8 lines), a cache of 8 lines, so that
// every A misses, x misses once for each 8 columns (8 of 64), y's two lines once for every column's
// pass through 16 other lines.
TEST(Traced, AColumnWalkMissesAsComputedByHand) {
  CacheHierarchy caches({level("L1", 8 * 64, 0)}, 3);
  Recorder recorder(caches);
  std::vector<double> a(16 * 64, 1.0), x(64, 2.0), y(16);
  const traced<const double> A(recorder, a.data(), kBase, {16, 64}, 0);
  const traced<const double> X(recorder, x.data(), kBase + 0x10000, {64}, 1);
  const traced<double> Y(recorder, y.data(), kBase + 0x20000, {16}, 2);
  for (std::int64_t j = 0; j < 64; ++j) {
    const double of_j = X(j);
    for (std::int64_t i = 0; i < 16; ++i) Y(i) += A(i, j) * of_j;
  }
  EXPECT_EQ(y, std::vector<double>(16, 128.0));
  const auto counts = caches.counts(0);
  EXPECT_EQ(counts[0].misses, 64 * 16);
  EXPECT_EQ(counts[1].misses, 64);  // sixteen lines of A came in between
  EXPECT_EQ(counts[2].misses, 2 * 64);
  EXPECT_EQ(counts[2].hits, 2 * 64 * 16 - 2 * 64);
  EXPECT_EQ(counts[2].written + counts[2].resident_dirty, Bytes(2 * 64 * 64));
}

// ---- Loops of which three iterations run --------------------------------------------------------

struct Setting {
  std::vector<CacheGeometry> levels;
  bool walks = false;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const char* policy : {"lru", "tree_plru", "fifo", "qlru_h00_m1_r0_u1", "bit_plru"})
    for (const bool walks : {false, true})
      all.push_back({{level("L1", 2048, 4, policy), level("L2", 16384, 8, "lru")}, walks});
  CacheGeometry fetching = level("L1", 2048, 4);
  fetching.behaviour.prefetch = {{.kind = PrefetchKind::next_line, .degree = 1}};
  all.push_back({{fetching, level("L2", 16384, 8)}, true});
  return all;
}

struct Left {
  std::vector<CacheCount> counts;
  std::vector<std::vector<CacheLine>> contents;
  std::int64_t accesses = 0, walks = 0, first_misses = 0;
  bool operator==(const Left&) const = default;
};

/// Random nests over four arrays, some along lines, some along columns, some downwards.
Left random_nests(const Setting& setting, std::uint64_t seed, bool addresses_only) {
  CacheHierarchy caches(setting.levels, 5);
  RecorderOptions options{.addresses_only = addresses_only};
  if (setting.walks)
    options.walks =
        PageWalkOptions{.inner_to_outer = {{4, 2}, {8, 4}}, .table = 0x0800'0000, .tensor = 4};
  Recorder recorder(caches, options);
  constexpr std::int64_t kRows = 40, kColumns = 300;
  std::vector<double> data(kRows * kColumns);
  std::vector<traced<double>> arrays;
  for (int a = 0; a < 4; ++a)
    arrays.emplace_back(recorder, data.data(), kBase + a * 0x20000,
                        std::initializer_list{kRows, kColumns}, a);
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % n); };
  for (int nest = 0; nest < 60; ++nest) {
    const bool down_a_column = below(2) == 0, backwards = below(3) == 0;
    const std::int64_t count = 1 + below(down_a_column ? kRows : kColumns);
    const std::int64_t step = backwards ? -1 : 1, first = backwards ? count - 1 : 0;
    const std::int64_t fixed = below(kRows), other = below(kRows);
    const auto &to = arrays[below(4)], &from = arrays[below(4)], &and_from = arrays[below(4)];
    recorder.affine(first, count, step, [&](std::int64_t i) {
      const double x = down_a_column ? from(i, fixed) : from(fixed, i);
      to(other, fixed) += x * and_from(other, i);
    });
  }
  Left left{.contents = caches.contents(1), .accesses = recorder.accesses()};
  const auto inner = caches.contents(0);
  left.contents.insert(left.contents.end(), inner.begin(), inner.end());
  for (const std::size_t l : {0, 1})
    for (const CacheCount& c : caches.counts(l)) left.counts.push_back(c);
  if (recorder.walks() != nullptr) {
    left.walks = recorder.walks()->walks();
    left.first_misses = recorder.walks()->misses(0);
  }
  return left;
}

TEST(Affine, ThreeIterationsLeaveTheSameAsAll) {
  for (const Setting& s : settings())
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(s.levels[0].policy + (s.walks ? ", walks" : "") + ", seed " +
                   std::to_string(seed));
      const Left all = random_nests(s, seed, false), three = random_nests(s, seed, true);
      EXPECT_GT(all.accesses, 10'000);
      EXPECT_EQ(s.walks, all.walks > 100);
      EXPECT_TRUE(all == three);
    }
}

TEST(Affine, ALoopThatIsNotIsFoundOut) {
  CacheHierarchy caches({level("L1", 1024, 0)});
  Recorder recorder(caches, {.addresses_only = true});
  std::vector<double> data(400);
  const traced<double> A(recorder, data.data(), kBase, {400});
  EXPECT_THROW(recorder.affine(0, 20, 1, [&](std::int64_t i) { A(i * i) = 1.0; }),
               std::logic_error);
  EXPECT_THROW(recorder.affine(0, 20, 1,
                               [&](std::int64_t i) {
                                 A(i) = 1.0;
                                 if (i == 0) A(i) = 2.0;
                               }),
               std::logic_error);
}

// ---- Page walks ---------------------------------------------------------------------------------

TEST(PageWalks, LoadTheEntryOfAPageThatNoBufferHas) {
  CacheHierarchy caches({level("L1", 1 << 16, 1)}, 2);
  PageWalks walks({.inner_to_outer = {{2, 0}, {4, 0}}, .table = 0x4000, .tensor = 1});
  const auto touch = [&](std::int64_t page) { return walks.touch(caches, page * 4096 + 8); };
  for (const std::int64_t page : {0, 1, 2}) EXPECT_FALSE(touch(page));
  EXPECT_EQ(walks.walks(), 3);
  EXPECT_EQ(caches.counts(0)[1].misses, 1);  // entries 0 to 2 share the line of 0x4000
  EXPECT_EQ(caches.counts(0)[1].hits, 2);
  EXPECT_FALSE(touch(0));  // the first buffer holds 1 and 2, the second all three
  EXPECT_EQ(walks.walks(), 3);
  EXPECT_TRUE(touch(2));  // the first holds 0 and 2
  EXPECT_TRUE(touch(0));
  EXPECT_FALSE(touch(8));  // a line on: 0x4040
  EXPECT_FALSE(touch(9));
  EXPECT_EQ(walks.walks(), 5);
  EXPECT_EQ(caches.counts(0)[1].misses, 2);
  EXPECT_EQ(caches.contents(0)[(0x4040 / 64) % 1024].front().line, 0x4040 / 64);
  // The second buffer, asked for 0 1 2 0 8 9, has let go of its oldest, 1.
  EXPECT_FALSE(touch(1));
  EXPECT_EQ(walks.walks(), 6);
  EXPECT_EQ(walks.misses(0), 7);
  EXPECT_EQ(walks.misses(1), 6);
}

// 32 pages in turn through 16 entries: LRU has none of them, each access is a walk, and eight
// entries lie in a line of the table.
TEST(PageWalks, AWalkOverMorePagesThanTheBuffersHold) {
  CacheHierarchy caches({level("L1", 32 << 10, 8)}, 2);
  Recorder recorder(caches,
                    {.walks = PageWalkOptions{.inner_to_outer = {{4, 4}, {16, 4}}, .tensor = 1}});
  std::vector<char> data(32 * 4096);
  const traced<char> A(recorder, data.data(), kBase, {32, 4096}, 0);
  for (int round = 0; round < 3; ++round)
    for (std::int64_t i = 0; i < 32; ++i) A(i, i * 64) = 1;
  EXPECT_EQ(recorder.walks()->walks(), 96);
  EXPECT_EQ(recorder.accesses(), 96);
  EXPECT_EQ(caches.counts(0)[1].misses, 4);
  EXPECT_EQ(caches.counts(0)[1].hits, 92);
  EXPECT_EQ(caches.counts(0)[0].misses, 32);
}

TEST(PageWalks, RefuseWhatIsNoBuffer) {
  EXPECT_THROW(PageWalks({.page = Bytes(3000)}), InputError);
  EXPECT_THROW(PageWalks({.inner_to_outer = {}}), InputError);
  EXPECT_THROW(PageWalks({.inner_to_outer = {{64, 5}}}), InputError);
  EXPECT_THROW(PageWalks({.inner_to_outer = {{48, 4}}}), InputError);
  EXPECT_THROW(PageWalks({.inner_to_outer = {{0, 1}}}), InputError);
  EXPECT_THROW(PageWalks({.inner_to_outer = {{64, -1}}}), InputError);
}

}  // namespace
}  // namespace tilewright
