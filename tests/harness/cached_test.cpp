// cached against the simulator, level by level, over seeded random trees of seeded random
// workloads.
#include "models/cached/cached.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "core/plan/file.h"
#include "core/workload/text.h"
#include "simulator/simulator.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

/// Calls f(schedule, layout) for random trees that are said something of.
template <class F>
void each_random_tree(std::uint64_t seed, int count, F&& f,
                      const std::string& caches = "cache:2K/4,16K/8") {
  std::mt19937_64 random(seed);
  testing::RandomOptions options;
  options.max_extent = 40;
  options.two_levels = options.loads = options.stores = options.sliding = options.once = false;
  options.units = false;
  for (int plans = 0; plans < count;) {
    testing::random_trees::Maker maker(random, options);
    const auto c = maker.make();
    if (!c) continue;
    const auto machine = std::make_shared<const Machine>(named_machine(caches));
    try {
      const Result<Schedule> s = resolve(c->plan, c->workload, machine);
      if (s && f(*s, plans % 2 == 0 ? Layout::tiled : Layout::row_major)) ++plans;
    } catch (const InputError&) {
    }
  }
}

TEST(Cached, EstimatesAgreeWithTheSimulatorOnRandomTrees) {
  double sum = 0, truth = 0;
  each_random_tree(1, 60, [&](const Schedule& s, Layout layout) {
    const Result<Traffic> predicted = cached_traffic(s, layout, nullptr, 0);
    if (!predicted) return false;
    const Traffic simulated = simulate(s, {.layout = layout});
    for (const std::string boundary : {"L2/L1", "DRAM/L2"}) {
      const auto a = static_cast<double>(predicted->total(boundary).read.value);
      const auto b = static_cast<double>(simulated.total(boundary).read.value);
      sum += std::abs(a - b);
      truth += b;
    }
    return true;
  });
  std::printf("bytes off by %.2f %%\n", 100 * sum / truth);
  EXPECT_LT(sum / truth, 0.05);
}

TEST(Cached, SchedulesThatTouchFewLinesAreCountedAsTheSimulatorCounts) {
  int followed = 0;
  const auto compare = [&](const Schedule& s, Layout layout) {
    CachedCost cost;
    const Result<Traffic> counted = cached_traffic(s, layout, &cost);
    if (!counted) return false;
    if (!cost.walked) return true;
    ++followed;
    const Traffic simulated = simulate(s, {.layout = layout});
    for (const TrafficEntry& e : simulated.entries) {
      const TrafficEntry own = counted->at(e.tensor, e.boundary);
      EXPECT_EQ(own.read, e.read) << e.tensor << " " << e.boundary;
      EXPECT_EQ(own.written, e.written) << e.tensor << " " << e.boundary;
      EXPECT_EQ(own.resident_dirty, e.resident_dirty) << e.tensor << " " << e.boundary;
    }
    return true;
  };
  each_random_tree(2, 60, compare);
  EXPECT_GT(followed, 50);
  // Of many ways, one set or several.
  each_random_tree(3, 40, compare, "cache:3K/48,12K/96");
  each_random_tree(4, 40, compare, "cache:1K/2,9K/72");
  EXPECT_GT(followed, 110);
}

/// What planners suppose: a part whose compulsory bytes are too many already is not planned. Walked
/// or estimated, at every boundary of the caches, in either layout.
TEST(Cached, NoPlanMovesLessThanMustBeMoved) {
  int counted = 0;
  double least = 1e300;
  for (const std::int64_t most_steps : {std::int64_t{0}, kCachedSteps})
    each_random_tree(
        3 + static_cast<std::uint64_t>(most_steps), 150, [&](const Schedule& s, Layout layout) {
          const Result<Traffic> moved = cached_traffic(s, layout, nullptr, most_steps);
          if (!moved) return false;
          const Bytes compulsory = s.workload->compulsory_bytes();
          for (const std::string boundary : {"L2/L1", "DRAM/L2"}) {
            const TrafficEntry all = moved->total(boundary);
            const Bytes bytes = all.read + all.written;
            EXPECT_GE(bytes, compulsory)
                << boundary << (most_steps > 0 ? "" : ", estimated") << "\n"
                << to_yaml(*s.workload) << to_text(s.resolved.kernels.front().tree);
            least = std::min(
                least, static_cast<double>(bytes.value) / static_cast<double>(compulsory.value));
            ++counted;
          }
          return true;
        });
  std::printf("%d counts, at least %.3f of what must be moved\n", counted, least);
  EXPECT_EQ(counted, 600);
}

/// Whose iterations cut blocks at places that differ from one to the next, in seven loops.
TEST(Cached, IterationsThatStandForAllAreFew) {
  const auto machine = std::make_shared<const Machine>(named_machine("cache:9K/9,100K/5"));
  const PlanFile file = plan_file_from_yaml(
      "workload: \"conv-chain:ic=9,h=13,w=33,oc1=10,oc2=8,st1=1,st2=1,k1=5,k2=1,batch=2\"\n"
      "kernels:\n"
      "  - {tree: 's1/2 b/1 ic/5 y/5 x/2 oc1/6 r1/4 ( C.conv1 )'}\n"
      "  - {tree: 'oc2/2 h/3 r2/1 oc1/3 w/6 b/1 s2/1 ( C.conv2 )'}\n",
      "the plan");
  const auto s = resolve(file.plan, std::make_shared<const Workload>(file.workload), machine);
  ASSERT_TRUE(s.ok()) << s.reason();
  CachedCost cost;
  ASSERT_TRUE(cached_traffic(*s, Layout::tiled, &cost, 0).ok());
  EXPECT_LE(cost.counted, 2 * 200);  // computes, and combinations of iterations of each
}

/// Bytes read across a boundary, predicted and simulated, of the plan's text on a machine.
std::pair<double, double> read_across(const std::string& workload, const std::string& kernels,
                                      const std::string& caches = "cache:9K/9,100K/5",
                                      const std::string& boundary = "DRAM/L2") {
  const auto machine = std::make_shared<const Machine>(named_machine(caches));
  const PlanFile file =
      plan_file_from_yaml("workload: \"" + workload + "\"\nkernels:\n" + kernels, "the plan");
  const auto s = resolve(file.plan, std::make_shared<const Workload>(file.workload), machine);
  const Result<Traffic> predicted = cached_traffic(*s, Layout::row_major, nullptr, 0);
  return {
      static_cast<double>(predicted->total(boundary).read.value),
      static_cast<double>(simulate(*s, {.layout = Layout::row_major}).total(boundary).read.value)};
}

/// Kernels by the hundred, each of one operator, with more tensors than a mask has bits: whether a
/// kernel touches a tensor, and what it touches as a whole, is asked of each many times.
TEST(Cached, KernelsOfANetworkThatWeightsAreReadAgainBy) {
  const auto machine = std::make_shared<const Machine>(named_machine("cache:2K/4,1M/16"));
  const auto w =
      std::make_shared<const Workload>(named_workload("lstm:steps=40,layers=1,hidden=48"));
  Plan plan;
  for (const Operator& op : w->operators())
    plan.kernels.push_back({.name = op.name, .tree = compute(op.name)});
  const auto s = resolve(plan, w, machine);
  ASSERT_TRUE(s.ok()) << s.reason();
  ASSERT_GT(w->tensors().size(), 64U);
  const Result<Traffic> predicted = cached_traffic(*s, Layout::row_major, nullptr, 0);
  ASSERT_TRUE(predicted.ok()) << predicted.reason();
  const Traffic simulated = simulate(*s, {.layout = Layout::row_major});
  for (const std::string boundary : {"L2/L1", "DRAM/L2"}) {
    const auto a = static_cast<double>(predicted->total(boundary).read.value);
    const auto b = static_cast<double>(simulated.total(boundary).read.value);
    EXPECT_NEAR(a, b, 0.05 * b) << boundary;
  }
}

/// Two kernels compute an operator, each for one of its results. What a kernel makes and nobody in
/// it reads has a tile that no loop fixes: the walk looked up a loop that is none.
TEST(Cached, SaysOfWhichResultNobodyReadsATile) {
  const auto machine = std::make_shared<const Machine>(named_machine("cache:1K/2,4K/8"));
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: two\nloops: {c: 2, e: 1000, l: 8}\noperators:\n"
                         "  - 'o: t[l,c] = x[c] * y[l]; u[c,l] = y[c] + x[c] * 2 + y[l]'\n"
                         "  - 'p: z[e] = u[1 + 3*e, e*2 - 1]'\n",
                         "test"));
  const Plan plan{
      .kernels = {{.tree = parse_tree("C.o")},
                  {.operators = {"o", "p"}, .tree = parse_tree("c/1 l/2 ( C.o ) C.p")}}};
  const auto s = resolve(plan, w, machine);
  ASSERT_TRUE(s.ok()) << s.reason();
  const Result<Traffic> counted = cached_traffic(*s, Layout::tiled);
  ASSERT_FALSE(counted.ok());
  EXPECT_EQ(counted.reason(),
            "no loop fixes the tile of u, which kernel1 makes and nobody in it reads");
}

TEST(Cached, SaysWhatACacheDoesThatItDoesNotKnow) {
  const PlanFile file = plan_file_from_yaml(
      "workload: \"gemm:m=20,n=20,k=20\"\nkernels:\n  - {tree: 'm/5 n/5 k/5 ( C.gemm )'}\n",
      "the plan");
  Machine machine = named_machine("cache:2K/4,16K/8");
  machine.levels[1].behaviour.write = WriteHit::through;
  const auto s = resolve(file.plan, std::make_shared<const Workload>(file.workload),
                         std::make_shared<const Machine>(machine));
  ASSERT_TRUE(s.ok()) << s.reason();
  const Result<Traffic> counted = cached_traffic(*s, Layout::row_major);
  ASSERT_FALSE(counted.ok());
  EXPECT_EQ(counted.reason(), "L2 passes writes through, and this knows plain caches");
}

/// All fits the outer cache. The first and last tiles of the window lie in the padding and touch
/// nothing, which says nothing of what others touch.
TEST(Cached, TilesInThePaddingAreNoWholeTensors) {
  const auto [predicted, simulated] =
      read_across("conv-chain:ic=8,h=27,w=7,oc1=3,oc2=3,st1=1,st2=1,k1=5,k2=1",
                  "  - {tree: 'r1/2 x/5 s1/4 oc1/3 y/1 ic/2 ( C.conv1 )'}\n"
                  "  - {tree: 'oc1/2 h/1 w/6 ( C.conv2 )'}\n");
  EXPECT_NEAR(predicted / simulated, 1, 0.02);
}

/// The last tiles of an intermediate that lies packed are smaller, and so are their rows.
TEST(Cached, SmallerTilesHaveRowsThatAreCloser) {
  const std::string workload =
      "conv-chain:ic=9,h=24,w=23,oc1=22,oc2=29,st1=1,st2=1,k1=1,k2=1,"
      "relu=1,batch=2";
  const std::string kernels = "  - {tree: 'b/1 oc2/8 h/14 w/18 ( C.conv1 C.relu C.conv2 )'}\n";
  const auto [predicted, simulated] =
      read_across(workload, kernels, "cache:48K/12,1M/16,32M/16", "L2/L1");
  EXPECT_NEAR(predicted / simulated, 1, 0.1);
}

/// The first iterations of a window are in the padding only at the ends of its other loop.
TEST(Cached, IterationsInThePaddingStandForNoOthers) {
  const auto [predicted, simulated] =
      read_across("conv-chain:ic=17,h=7,w=20,oc1=2,oc2=10,st1=2,st2=2,k1=5,k2=1,batch=2",
                  "  - {tree: 'r1/3 y/3 s1/1 ic/17 b/2 oc1/2 x/1 ( C.conv1 )'}\n"
                  "  - {tree: 's2/1 r2/1 h/1 oc1/2 b/2 w/1 oc2/3 ( C.conv2 )'}\n",
                  "cache:9K/9,100K/5", "L2/L1");
  EXPECT_NEAR(predicted / simulated, 1, 0.05);
}

/// Every other row is never read.
TEST(Cached, RowsThatAStridePassesOverAreNotRead) {
  const auto [predicted, simulated] =
      read_across("conv-chain:ic=8,h=31,w=38,oc1=29,oc2=15,st1=2,st2=1,k1=1,k2=1",
                  "  - {tree: 'r1/1 y/1 oc1/3 ic/1 s1/1 x/4 ( C.conv1 )'}\n"
                  "  - {tree: 'w/4 h/1 oc1/13 oc2/7 ( C.conv2 )'}\n");
  EXPECT_NEAR(predicted / simulated, 1, 0.04);
}

}  // namespace
}  // namespace tilewright
