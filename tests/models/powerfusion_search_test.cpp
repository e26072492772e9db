// PowerFusion's merging: branch and bound against every way, and plans of known graphs.
#include <gtest/gtest.h>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "models/powerfusion/model.h"

namespace tilewright::powerfusion {
namespace {

Question asked(const std::string& workload) {
  return {.name = workload,
          .workload = std::make_shared<const Workload>(named_workload(workload)),
          .machine = std::make_shared<const Machine>(named_machine("h200"))};
}

TEST(PowerFusionSearch, BranchAndBoundIsEveryWay) {
  const Device d = *stitching::device_of(named_machine("h200"));
  const Options o;
  std::int64_t every = 0, bounded = 0;
  for (int seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    const auto w = std::make_shared<const Workload>(named_workload(
        formatted("random-graph:rows=64,cols=64,vertices={},seed={}", 2 + seed % 7, seed)));
    const auto g = Graph::create(w, 1e30);
    ASSERT_TRUE(g);
    Operators all;
    for (int v = 0; v < g->size(); ++v) all.push_back(v);
    const KernelCost least = [&](const Operators& p) { return least_seconds(*g, d, o, p); };
    std::map<Operators, double> known;
    const KernelCost cost = [&](const Operators& p) {
      const auto [at, fresh] = known.try_emplace(p, INFINITY);
      if (fresh && stitching::components_of(*g, p, 64)) {
        std::uint64_t h = static_cast<std::uint64_t>(seed);
        for (int v : p) h = (h ^ static_cast<std::uint64_t>(v + 1)) * 1099511628211ULL;
        at->second = least(p) * (1 + static_cast<double>(h >> 40) / (1 << 25));
      }
      return at->second;
    };
    const Merging slow = exhaustive_merging(*g, all, cost),
                  fast = bounded_merging(*g, all, cost, least);
    EXPECT_DOUBLE_EQ(fast.cost, slow.cost);
    every += slow.states;
    bounded += fast.states;
  }
  EXPECT_LT(bounded, every);
}

TEST(PowerFusionSearch, PlansMoveNoMoreThanAKernelEachAndNoLessThanTheyMust) {
  for (int seed = 1; seed <= 8; ++seed) {
    const Question q = asked(formatted("random-graph:rows=64,cols=128,vertices=6,seed={}", seed));
    Options o;
    o.duplicate = false;
    const auto p = planned(q, o);
    ASSERT_TRUE(p) << seed;
    const auto bytes = [&](std::span<const Operators> kernels) {
      std::int64_t n = 0;
      for (const TrafficEntry& e : stitching::traffic_of(*q.machine, *p->graph, kernels).entries)
        n += (e.read + e.written).value;
      return n;
    };
    std::vector<Operators> alone;
    for (int v = 0; v < p->graph->size(); ++v) alone.push_back({v});
    EXPECT_LE(bytes(p->price.patterns), bytes(alone)) << seed;
    EXPECT_GE(bytes(p->price.patterns), q.workload->compulsory_bytes().value) << seed;
  }
}

TEST(PowerFusionSearch, TheShuffleNetUnitIsOneKernelOfItsCompulsoryBytes) {
  const auto p = planned(asked("shuffle-unit"), {});
  ASSERT_TRUE(p);
  ASSERT_EQ(p->kernels(), 1U);
  for (const Gir& g : gir_of(*p, 0)) {
    const Gir after = optimised(g);
    // Within blocks values are exchanged: the least predicted time is no kernel of lanes alone
    // (fig3.yaml).
    EXPECT_EQ(syncs_of(after, Scope::device), 0);
    EXPECT_EQ(dram_bytes(after), compulsory_bytes(after));
  }
}

}  // namespace
}  // namespace tilewright::powerfusion
