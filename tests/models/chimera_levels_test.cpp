// Chimera over several levels: plans that resolve and fit, prices by hand, the search against brute
// force, a plan read back.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "core/machine/machine.h"
#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "models/chimera/levels.h"
#include "models/exact/exact.h"

namespace tilewright::chimera {
namespace {

Workload gemm_chain(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t l) {
  return named_workload("gemm-chain:m=" + std::to_string(m) + ",n=" + std::to_string(n) +
                        ",k=" + std::to_string(k) + ",l=" + std::to_string(l));
}

std::map<std::string, std::int64_t> bytes_by_boundary(const Traffic& t) {
  std::map<std::string, std::int64_t> sum;
  for (const TrafficEntry& e : t.entries) sum[e.boundary] += e.read.value + e.written.value;
  return sum;
}

Tiles named(const Workload& w, std::map<std::string, std::int64_t> tiles) {
  return tiles_from(w, tiles, "test");
}

// GEMM chain 8 x 8 x 8 x 8 in blocks of m=4, l=4 (k, n whole), those in blocks of m=2, l=2, k=8, n=8:
// order mlkn at both. Outer: A 8*8*2, B 8*8*2, D 8*8*2, E 8*8*2 = 512. Inner, a block of m=4, l=4:
// A 4*8*2, B 8*4*2, D, E alike = 256, four blocks: 1024.
TEST(ChimeraLevels, PriceByHand) {
  const Workload w = gemm_chain(8, 8, 8, 8);
  const Machine m = parse_synthetic_machine("scratchpad:1K,4K");
  const Order order = parse_order(w, "mlkn");
  const std::vector<LevelTiling> t = {
      {*m.find("L2"), order, named(w, {{"m", 4}, {"l", 4}})},
      {*m.find("L1"), order, named(w, {{"m", 2}, {"l", 2}})}};
  const LevelsPrice p = price_levels(w, m, t, {});
  EXPECT_EQ(p.levels[0].price.volume, Elements(512));
  EXPECT_EQ(p.levels[1].price.volume, Elements(1024));
  EXPECT_EQ(p.levels[1].runs, (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(p.largest, 4096);  // bytes: the machine gives no bandwidths
  EXPECT_EQ(p.sum, 6144);
  const Plan plan = plan_of(w, t, m);
  EXPECT_EQ(to_text(plan.kernels[0].tree),
            "m/4 ( l/4 ( L.A@L2 L.B@L2 L.D@L2 m/2 ( l/2 ( L.A@L1 L.B@L1 C.gemm1 L.D@L1 C.gemm2 ) "
            "S.E@L2 ) ) S.E@DRAM )");
}

// The outer level cuts k and n: gemm1's blocks are finished before gemm2's, so C lives at L2.
TEST(ChimeraLevels, AnIntermediateLivesWhereItsLoopsTurn) {
  const Workload w = gemm_chain(8, 8, 8, 8);
  const Machine m = parse_synthetic_machine("scratchpad:1K,4K");
  const Order order = parse_order(w, "mlkn");
  const std::vector<LevelTiling> t = {
      {*m.find("L2"), order, named(w, {{"m", 4}, {"l", 4}, {"k", 4}, {"n", 4}})},
      {*m.find("L1"), order, named(w, {{"m", 2}, {"l", 2}, {"k", 4}, {"n", 4}})}};
  const Plan plan = plan_of(w, t, m);
  const auto machine = std::make_shared<const Machine>(m);
  const auto s = resolve(plan, std::make_shared<const Workload>(w), machine);
  ASSERT_TRUE(s) << s.reason() << ": " << to_text(plan.kernels[0].tree);
  // C: 8 x 8 four bytes, written to L2 for each of two k, read back for the second, and read by gemm2
  // for each of two n.
  std::int64_t read = 0, written = 0;
  for (const TrafficEntry& e : exact(*s).entries)
    if (e.tensor == "C" && e.boundary == "L2/L1") {
      read += e.read.value;
      written += e.written.value;
    }
  EXPECT_EQ(written, 2 * 64 * 4);
  EXPECT_EQ(read, 64 * 4 + 2 * 64 * 4);
  EXPECT_EQ(price_levels(w, m, t, {}).levels[1].runs, (std::vector<std::int64_t>{8, 8}));
}

TEST(ChimeraLevels, BlocksOfConvolutionsHaveTheirHalos) {
  const Workload w = named_workload("conv-chain:ic=4,h=8,w=8,oc1=4,oc2=4,st1=1,st2=1,k1=3,k2=3");
  const auto order = order_loops(w);
  const Machine m = parse_synthetic_machine("scratchpad:1M,1M");
  const Workload b = block_of(w, [&] {
    LevelTiling t{*m.find("L2"), order, named(w, {{"h", 2}, {"w", 4}})};
    return price_levels(w, m, std::vector{t}, {}).levels[0].at.tiles;
  }());
  for (std::size_t t = 0; t < b.tensors().size(); ++t)
    for (std::size_t d = 0; d < b.tensors()[t].shape.size(); ++d)
      EXPECT_LE(b.tensors()[t].shape[d], w.tensors()[t].shape[d]);
}

TEST(ChimeraLevels, EveryMachinesLevelsAreScratchpads) {
  for (const std::string& name : machine_names()) {
    if (name == "host") continue;  // whatever runs the test
    const Machine m = named_machine(name);
    const auto levels = chip_levels(m);
    EXPECT_EQ(as_scratchpads(m, levels).levels.size(), levels.size() + 1) << name;
  }
}

/// Every order that may differ (DistinctOrdersLoseNoPrice) and every tiling of every level by powers of
/// two: the least objective below `best`, else that. What is tried is decided here, what it costs by
/// price_levels.
double brute_force(const Workload& w, const Machine& m, const LevelsOptions& options, double best) {
  const auto levels = chip_levels(m);
  const std::vector<Order> orders = distinct_orders(w, options.model).value();
  std::vector<LevelTiling> t(levels.size());
  std::function<void(std::size_t)> level = [&](std::size_t d) {
    if (d == levels.size()) {
      const LevelsPrice p = price_levels(w, m, t, options);
      if (p.fits && p.legal)
        best = std::min(best, options.objective == Objective::largest ? p.largest : p.sum);
      return;
    }
    t[d].level = levels[d];
    std::vector<LoopId> loops = order_loops(w);
    std::function<void(std::size_t)> tile = [&](std::size_t i) {
      if (i == loops.size()) {
        const Tiles cut = t[d].tiles;
        t[d].tiles = with_inferred(w, t[d].tiles);
        for (const Order& o : orders) {
          t[d].order = o;
          // A level that already costs more, or does not fit, cannot be part of the best.
          const LevelsPrice so_far =
              price_levels(w, m, std::span<const LevelTiling>(t).first(d + 1), options);
          const double least = options.objective == Objective::largest ? so_far.largest : so_far.sum;
          if (!so_far.fits || !so_far.legal || least >= best) continue;
          level(d + 1);
        }
        t[d].tiles = cut;
        return;
      }
      const std::size_t l = loops[i].index();
      const std::int64_t most = d == 0 ? w.loop(loops[i]).extent : t[d - 1].tiles[l];
      for (std::int64_t s = most; s >= 1; s = s / 2) {
        t[d].tiles[l] = s;
        tile(i + 1);
      }
    };
    t[d].tiles.assign(w.loops().size(), 1);
    tile(0);
  };
  level(0);
  return best;
}

/// `reached`: the best are powers of two, so that the brute force gets down to ours from above.
void expect_best(const Workload& w, const std::string& machine, Objective objective, bool reached) {
  SCOPED_TRACE(w.name() + " " + machine + " " + std::string(name_of(objective)));
  LevelsOptions options;
  options.objective = objective;
  options.model.memory = Memory::sum;
  const Machine m = parse_synthetic_machine(machine);
  const auto found = best_levels(w, m, options);
  ASSERT_TRUE(found) << found.reason();
  const double ours = objective == Objective::largest ? found->price.largest : found->price.sum;
  const double least = brute_force(w, m, options, ours * (1 + 1e-9));
  EXPECT_GE(least, ours) << to_text(found->plan.kernels[0].tree);
  if (reached) {
    EXPECT_EQ(least, ours) << to_text(found->plan.kernels[0].tree);
  }
}

TEST(ChimeraLevels, NoWorseThanBruteForceOverPowersOfTwo) {
  struct Case {
    Workload w;
    std::string machine;
  };
  const std::vector<Case> cases = {
      {gemm_chain(4, 2, 2, 2), "scratchpad:64B,128B"},
      {gemm_chain(8, 2, 2, 4), "scratchpad:64B,160B"},
      {gemm_chain(4, 1, 1, 4), "scratchpad:32B,48B,96B"},
      {named_workload("gemm-chain:m=4,n=2,k=1,l=4,relu=1"), "scratchpad:64B,128B"},
      {named_workload("gemm-chain3:m=4,n=2,k=1,l=2,p=1"), "scratchpad:48B,112B"},
      {named_workload("attention:m=4,l=4,k=2,n=1"), "scratchpad:96B,160B"},
      {named_workload("attention:m=4,l=4,k=2,n=1,online=1"), "scratchpad:112B,176B"},
      {named_workload("softmax:rows=4,cols=8"), "scratchpad:64B,128B,256B"},
      {named_workload("conv-chain:ic=1,h=4,w=1,oc1=2,oc2=2,st1=1,k1=3,k2=1"), "scratchpad:200B,320B"},
      {named_workload("conv-chain:ic=1,h=8,w=1,oc1=2,oc2=2,st1=1,k1=1,k2=3"), "scratchpad:240B,400B"},
      {named_workload("conv-chain:ic=2,h=8,w=2,oc1=2,oc2=1,st1=2,k1=3,k2=1,relu=1"),
       "scratchpad:300B,500B"}};
  for (const Case& c : cases)
    for (Objective objective : {Objective::largest, Objective::sum})
      expect_best(c.w, c.machine, objective, true);
}

TEST(ChimeraLevels, NoWorseThanBruteForceOnRandomChains) {
  const unsigned seed = 8;
  std::mt19937 rng(seed);
  const auto one_of = [&](std::vector<std::int64_t> all) {
    return all[std::uniform_int_distribution<std::size_t>(0, all.size() - 1)(rng)];
  };
  for (int i = 0; i < 16; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(i));
    const std::int64_t inner = one_of({6, 8, 10, 14, 20, 28}), outer = inner + one_of({4, 8, 16, 32});
    const Workload w = gemm_chain(one_of({2, 4, 8}), one_of({1, 2}), one_of({1, 2}), one_of({2, 4}));
    expect_best(w, "scratchpad:" + std::to_string(4 * inner) + "B," + std::to_string(4 * outer) + "B",
                i % 2 == 0 ? Objective::largest : Objective::sum, false);
  }
}

TEST(ChimeraLevels, PlansResolveFitAndAreReadBack) {
  for (const char* name :
       {"gemm-chain:m=64,n=16,k=16,l=64", "gemm-chain:m=37,n=11,k=13,l=29,batch=2",
        "gemm-chain:m=64,n=64,k=64,l=64", "gemm-chain:m=48,n=16,k=40,l=56,relu=1",
        "conv-chain:ic=8,h=14,w=14,oc1=12,oc2=8,st1=2,st2=1,k1=3,k2=1,relu=1",
        "conv-chain:ic=6,h=12,w=12,oc1=8,oc2=10,st1=1,st2=1,k1=1,k2=3"})
    for (const char* machine : {"scratchpad:2K,8K", "scratchpad:1K,4K,16K"}) {
      SCOPED_TRACE(std::string(name) + " on " + machine);
      const Workload w = named_workload(name);
      const Machine m = parse_synthetic_machine(machine);
      const auto found = best_levels(w, m, {});
      ASSERT_TRUE(found) << found.reason();
      const auto s = resolve(found->plan, std::make_shared<const Workload>(w),
                             std::make_shared<const Machine>(m));
      ASSERT_TRUE(s) << s.reason();
      EXPECT_FALSE(misfit(*s));
      const Traffic t = exact(*s);
      EXPECT_TRUE(t.unavailable.empty());
      EXPECT_GE(bytes_by_boundary(t).begin()->second, 1);
      const auto again = chimera::tilings_of(w, m, found->plan.kernels[0], {});
      ASSERT_TRUE(again) << again.reason() << ": " << to_text(found->plan.kernels[0].tree);
      EXPECT_EQ(price_levels(w, m, *again, {}).largest, found->price.largest);
      EXPECT_EQ(to_text(plan_of(w, *again, m).kernels[0].tree),
                to_text(found->plan.kernels[0].tree));
    }
}

// One order of each class: every order's price is one of theirs, whatever the tiles.
TEST(ChimeraLevels, DistinctOrdersLoseNoPrice) {
  const unsigned seed = 5;
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const Workload w = gemm_chain(12, 10, 9, 8);
  const auto distinct = distinct_orders(w, {});
  ASSERT_TRUE(distinct);
  const auto all = all_orders(w);
  EXPECT_LT(distinct->size(), all.size());
  for (int round = 0; round < 40; ++round) {
    Tiles t;
    for (const Loop& l : w.loops())
      t.push_back(std::uniform_int_distribution<std::int64_t>(1, l.extent)(rng));
    const auto prices = [&](const std::vector<Order>& orders) {
      std::set<std::tuple<std::int64_t, std::int64_t, bool>> found;
      for (const Order& o : orders) {
        const Price p = price(w, o, t, {});
        found.emplace(p.volume.value, p.memory.value, legality(w, o, t).legal);
      }
      return found;
    };
    EXPECT_EQ(prices(*distinct), prices(all));
  }
}

}  // namespace
}  // namespace tilewright::chimera
