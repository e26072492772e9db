// Do samples say who holds what, at the strides that they state?
#include "simulator/occupancy.h"

#include <gtest/gtest.h>

#include "simulator/simulator.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using Lines = std::vector<std::vector<std::int64_t>>;

TEST(Occupancy, ByHand) {
  CacheHierarchy h({{.name = "L1", .capacity = Bytes(2 * 64), .ways = 2},
                    {.name = "L2", .capacity = Bytes(8 * 64), .ways = 8}},
                   2);
  Occupancy o(2);
  const auto read = [&](std::int64_t line, int tensor) {
    h.read(line * 64, 4, tensor);
    o.touched(1, h);
  };
  read(0, 0);
  read(1, 1);
  read(2, 1);
  read(3, 1);
  read(4, 0);
  o.finish(h);
  ASSERT_EQ(o.samples().size(), 4u);  // after 1, then 2, 4 and the end
  EXPECT_EQ(o.samples()[0].accesses, 1);
  EXPECT_EQ(o.samples()[1].accesses, 2);
  EXPECT_EQ(o.samples()[1].lines, (Lines{{1, 1}, {1, 1}}));
  EXPECT_EQ(o.samples()[2].lines, (Lines{{0, 2}, {1, 3}}));
  EXPECT_EQ(o.samples()[3].accesses, 5);
  EXPECT_EQ(o.samples()[3].lines, (Lines{{1, 1}, {2, 3}}));
}

TEST(Occupancy, ThinsToAStrideThatHolds) {
  CacheHierarchy h({{.name = "L1", .capacity = Bytes(2 * 64), .ways = 2}}, 1);
  Occupancy o;
  for (int i = 0; i < 100000; ++i) {
    h.read(i * 64);
    o.touched(1, h);
  }
  EXPECT_EQ(o.stride(), 128);
  EXPECT_LE(std::ssize(o.samples()), Occupancy::kMostSamples);
  EXPECT_GE(std::ssize(o.samples()), Occupancy::kMostSamples / 2);
  for (std::size_t i = 1; i + 1 < o.samples().size(); ++i)
    EXPECT_EQ(o.samples()[i].accesses, 128 * static_cast<std::int64_t>(i));
}

TEST(Occupancy, OfAPlanIsAllItsTouchesAndEndsWithWhatIsLeft) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(testing::kChain, "test"));
  const Plan plan{.kernels = {{.tree = parse_tree("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"),
                               .tiles = {{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}}}}};
  const auto s = resolve(
      plan, w, std::make_shared<const Machine>(parse_synthetic_machine("cache:512B/2,2K/4")));
  ASSERT_TRUE(s.ok());
  Occupancy o(10);
  const Simulated done = simulate_in_detail(*s, {.contents = true, .occupancy = &o});
  std::int64_t touches = 0;
  for (const CacheCount& c : done.caches.front().second) touches += c.hits + c.misses;
  EXPECT_EQ(o.accesses(), touches);
  Lines left(2, std::vector<std::int64_t>(w->tensors().size(), 0));
  for (std::size_t level = 0; level < 2; ++level)
    for (const auto& set : done.contents[level])
      for (const CacheLine& line : set) ++left[level][static_cast<std::size_t>(line.tensor)];
  EXPECT_EQ(o.samples().back().lines, left);
  for (std::size_t i = 1; i + 1 < o.samples().size(); ++i)
    EXPECT_NE(o.samples()[i].accesses / 10, o.samples()[i - 1].accesses / 10);
}

}  // namespace
}  // namespace tilewright
