// Are the tilings of a validation drawn from where it says, and with equal probability?
#include "models/chimera/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/workload/text.h"

namespace tilewright::chimera {
namespace {

constexpr std::uint64_t kSeed = 7;

Options held() {
  Options o;
  o.memory = Memory::held;
  return o;
}

std::int64_t memory(const Workload& w, const Order& order, const Tiles& tiles) {
  return chimera::price(w, order, tiles, held()).memory.value;
}

TEST(Sampler, DistinctSeededWithinTheSpace) {
  const Workload w = named_workload("gemm-chain:m=48,n=40,k=33,l=52,batch=2");
  for (const char* text : {"mlkn", "mlnk", "mkln"}) {
    const Order order = parse_order(w, text);
    const SampleSpace space{.least = Elements(300), .most = Elements(600), .min_tile = 2};
    const auto drawn = draw_tilings(w, order, {}, space, 50, kSeed);
    EXPECT_EQ(drawn, draw_tilings(w, order, {}, space, 50, kSeed));
    EXPECT_NE(drawn, draw_tilings(w, order, {}, space, 50, kSeed + 1));
    EXPECT_EQ(drawn.size(), 50u);
    EXPECT_EQ(std::set<Tiles>(drawn.begin(), drawn.end()).size(), 50u);
    for (const Tiles& t : drawn) {
      EXPECT_GT(memory(w, order, t), 300);
      EXPECT_LE(memory(w, order, t), 600);
      for (LoopId l : order) {
        EXPECT_GE(t[l.index()], 2);
        EXPECT_LE(t[l.index()], w.loop(l).extent);
      }
    }
  }
}

TEST(Sampler, FindsAllOfASmallSpaceAndStops) {
  const Workload w = named_workload("gemm-chain:m=4,n=3,k=3,l=4");
  const Order order = parse_order(w, "mlkn");
  std::set<Tiles> all;
  Tiles t(w.loops().size(), 1);
  const auto at = [&](const char* name) -> std::int64_t& { return t[w.find_loop(name)->index()]; };
  for (at("m") = 1; at("m") <= 4; ++at("m"))
    for (at("l") = 1; at("l") <= 4; ++at("l"))
      for (at("k") = 1; at("k") <= 3; ++at("k"))
        for (at("n") = 1; at("n") <= 3; ++at("n"))
          if (memory(w, order, t) <= 20) all.insert(t);
  const auto drawn = draw_tilings(w, order, {}, {.most = Elements(20)}, 1000, kSeed);
  EXPECT_EQ(std::set<Tiles>(drawn.begin(), drawn.end()), all);
  EXPECT_TRUE(draw_tilings(w, order, {}, {.most = Elements(2)}, 10, kSeed).empty());
}

// First draws over many seeds, against the same chance for every tiling of a small space.
TEST(Sampler, EqualProbability) {
  const Workload w = named_workload("gemm-chain:m=3,n=2,k=2,l=3");
  const Order order = parse_order(w, "mlkn");
  const SampleSpace space{.most = Elements(14)};
  const auto all = draw_tilings(w, order, {}, space, 1000, kSeed);
  ASSERT_GT(all.size(), 4u);
  std::map<Tiles, double> count;
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i)
    ++count[draw_tilings(w, order, {}, space, 1, kSeed + static_cast<std::uint64_t>(i)).at(0)];
  const double expected = static_cast<double>(kDraws) / static_cast<double>(all.size());
  double chi = 0;
  for (const Tiles& t : all) chi += std::pow(count[t] - expected, 2) / expected;
  const double freedom = static_cast<double>(all.size()) - 1;
  // Five standard deviations of chi squared; the seed is fixed, so this never flickers.
  EXPECT_LT(chi, freedom + 5 * std::sqrt(2 * freedom)) << "seed " << kSeed;
}

TEST(Unguided, DrawsDistinctLegalTilingsOfEveryOrderAndSizeAgainFromTheSeed) {
  const Workload w = named_workload("gemm-chain:m=64,n=16,k=16,l=64,batch=2");
  const auto drawn = draw_unguided(w, 400, kSeed);
  ASSERT_EQ(drawn.size(), 400u);
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), drawn.size());
  EXPECT_EQ(draw_unguided(w, 400, kSeed), drawn);
  EXPECT_NE(draw_unguided(w, 400, kSeed + 1), drawn);
  std::set<Order> orders;
  std::int64_t largest = 0, most = 0;
  for (const OrderedTiles& t : drawn) {
    EXPECT_TRUE(legality(w, t.order, t.tiles).legal);
    EXPECT_EQ(t.tiles[w.find_loop("b")->index()], 1);
    orders.insert(t.order);
    largest = std::max(largest, t.tiles[w.find_loop("m")->index()]);
    most = std::max(most, memory(w, t.order, t.tiles));
  }
  EXPECT_EQ(orders.size(), all_orders(w).size());
  EXPECT_GT(largest, 56);
  EXPECT_GT(most, 64 * 64) << "nothing keeps tiles small";
}

}  // namespace
}  // namespace tilewright::chimera
