// Does the GPU's L2 answer what the engine of every behaviour answers, where both say the same?
#include <gtest/gtest.h>

#include <random>

#include "core/base/error.h"
#include "simulator/gpu/l2.h"

namespace tilewright::gpu {
namespace {

CacheGeometry beside(const L2Geometry& g) {
  return {.name = "L2",
          .capacity = g.capacity,
          .ways = g.ways,
          .line = g.line,
          .sector = g.sector,
          .policy = g.policy,
          .behaviour = {.write_miss = WriteMiss::validate},
          .shared = true};
}

struct Access {
  L2::Touch how;
  std::int64_t address, bytes;
  int tensor;
};

std::vector<Access> random_accesses(std::mt19937_64& random, std::int64_t span) {
  std::vector<Access> all(4000);
  for (Access& a : all)
    a = {.how = static_cast<L2::Touch>(random() % 3),
         .address = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(span)),
         .bytes = 1 + static_cast<std::int64_t>(random() % 400),
         .tensor = static_cast<int>(random() % 3)};
  return all;
}

TEST(L2, CountsAsTheGeneralEngineDoes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    const auto sets = static_cast<std::int64_t>(1 + random() % 7);
    const auto ways = static_cast<std::int64_t>(1 + random() % 8);
    const L2Geometry g{.capacity = Bytes(sets * ways * 128),
                       .ways = ways,
                       .policy = random() % 2 == 0 ? "lru" : "fifo",
                       .index = SetIndex::modulo};
    L2 l2(g, 3, 1);
    CacheHierarchy engine({beside(g)}, CacheOptions{.tensors = 3, .general = true});
    for (const Access& a : random_accesses(random, 3 * g.capacity.value)) {
      l2.range(a.how, a.address, a.bytes, a.tensor);
      if (a.how == L2::Touch::update)
        engine.update(a.address, a.bytes, a.tensor);
      else
        engine.range(a.address, a.bytes, a.how == L2::Touch::write, a.tensor);
    }
    ASSERT_EQ(l2.counts(), engine.counts(0)) << "case " << i << " " << g.policy;
  }
}

TEST(L2, RowsAreRangesOneAfterTheOther) {
  const L2Geometry g{.capacity = Bytes(8192), .ways = 4};
  L2 rows(g, 1, 1), ranges(g, 1, 1);
  for (int pass = 0; pass < 3; ++pass) {
    rows.rows(L2::Touch::read, 96, 200, 1000, 20, 0, 0);
    for (int r = 0; r < 20; ++r) ranges.range(L2::Touch::read, 96 + 1000 * r, 200, 0);
  }
  EXPECT_EQ(rows.counts(), ranges.counts());
  EXPECT_GT(rows.counts()[0].misses, 0);
}

TEST(L2, SharesOfTheSetsAddUp) {
  std::mt19937_64 random(6);
  for (const char* policy : {"lru", "fifo", "random"})
    for (const int partitions : {1, 2}) {
      const L2Geometry g{.capacity = Bytes(2 * 13 * 4 * 128),
                         .ways = 4,
                         .policy = policy,
                         .partitions = partitions};
      L2 whole(g, 3, 9);
      std::vector<L2> shares;
      for (int s = 0; s < 3; ++s) shares.emplace_back(g, 3, 9, L2Share{.index = s, .count = 3});
      for (const Access& a : random_accesses(random, 40000)) {
        const int side = partitions == 2 ? a.tensor % 2 : 0;
        whole.range(a.how, a.address, a.bytes, a.tensor, side);
        for (L2& s : shares) s.range(a.how, a.address, a.bytes, a.tensor, side);
      }
      std::int64_t misses = 0, read = 0, written = 0;
      for (const L2& s : shares)
        for (const L2::Moved& m : s.moved()) {
          misses += m.misses;
          read += m.read;
          written += m.written;
        }
      for (const L2::Moved& m : whole.moved()) {
        misses -= m.misses;
        read -= m.read;
        written -= m.written;
      }
      EXPECT_EQ(misses, 0) << policy << partitions;
      EXPECT_EQ(read, 0) << policy << partitions;
      EXPECT_EQ(written, 0) << policy << partitions;
    }
}

TEST(L2, ContiguousBytesFillItsSetsEvenly) {
  const L2Geometry g{.capacity = Bytes(128 * 16 * 24), .ways = 16};
  L2 l2(g, 1, 1);
  const std::int64_t base = 0x10000000 / (128 * 24) * (128 * 24);  // where the sets turn
  for (int pass = 0; pass < 3; ++pass) l2.range(L2::Touch::read, base, g.capacity.value, 0);
  EXPECT_EQ(l2.counts()[0].read, g.capacity);
}

TEST(L2, AStrideThatIsAMultipleOfTheSetsDoesNotMeetOne) {
  const L2Geometry g{.capacity = Bytes(128 * 16 * 64), .ways = 16};
  L2Geometry plain = g;
  plain.index = SetIndex::modulo;
  L2 hashed(g, 1, 1), modulo(plain, 1, 1);
  for (int pass = 0; pass < 4; ++pass)
    for (L2* l : {&hashed, &modulo}) l->rows(L2::Touch::read, 0, 128, 128 * 64, 256, 0, 0);
  EXPECT_EQ(modulo.counts()[0].misses, 4 * 256);
  EXPECT_EQ(hashed.counts()[0].misses, 256);
}

TEST(L2, TwoPartitionsKeepTwoCopiesOfWhatBothSidesRead) {
  L2Geometry g{.capacity = Bytes(1 << 20), .ways = 16, .partitions = 2};
  const auto read_twice = [&](int sides, std::int64_t bytes) {
    L2 l2(g, 1, 1);
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t a = 0; a < bytes; a += 4096)
        for (int s = 0; s < sides; ++s) l2.range(L2::Touch::read, a, 4096, 0, s);
    return l2.counts()[0].read.value;
  };
  const std::int64_t less = 3 << 17, more = 3 << 18;  // than half of it, than half but not whole
  EXPECT_EQ(read_twice(2, less), less);
  EXPECT_GT(read_twice(2, more), 3 * more / 2);
  g.partitions = 1;
  EXPECT_EQ(read_twice(1, more), more);
}

TEST(L2, AWriteTakesTheCopyOfTheOtherSideAway) {
  const L2Geometry g{.capacity = Bytes(1 << 20), .ways = 16, .partitions = 2};
  L2 l2(g, 1, 1);
  for (int s = 0; s < 2; ++s) l2.range(L2::Touch::read, 0, 128, 0, s);
  EXPECT_EQ(l2.counts()[0].misses, 1);  // the far side finds it at home
  l2.range(L2::Touch::write, 0, 128, 0, 1);
  const auto before = l2.counts()[0];
  l2.range(L2::Touch::read, 0, 128, 0, 1);
  EXPECT_EQ(l2.counts()[0].read, before.read);  // found at home again
  EXPECT_EQ(l2.counts()[0].resident_dirty, Bytes(128));
}

TEST(L2, RefusesWhatItCannotBe) {
  const L2Geometry good{.capacity = Bytes(1 << 20)};
  EXPECT_NO_THROW(check(good));
  L2Geometry g = good;
  g.policy = "srrip";
  EXPECT_THROW(check(g), InputError);
  g = good;
  g.partitions = 3;
  EXPECT_THROW(check(g), InputError);
  g = good;
  g.ways = 0;
  EXPECT_THROW(check(g), InputError);
  g = good;
  g.sector = Bytes(8);
  EXPECT_THROW(check(g), InputError);
  g = good;
  g.capacity = Bytes(1000);
  EXPECT_THROW(check(g), InputError);
}

}  // namespace
}  // namespace tilewright::gpu
