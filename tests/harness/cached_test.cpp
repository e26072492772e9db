// cached against the simulator, level by level, over seeded random trees of seeded random workloads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "core/plan/file.h"
#include "models/cached/cached.h"
#include "simulator/simulator.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

TEST(Cached, AgreesWithTheSimulatorOnRandomTrees) {
  constexpr std::uint64_t kSeed = 1;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  testing::RandomOptions options;
  options.max_extent = 40;
  options.two_levels = options.loads = options.stores = options.sliding = options.once = false;
  options.units = false;
  double sum = 0, truth = 0;
  int plans = 0;
  while (plans < 60) {
    testing::random_trees::Maker maker(random, options);
    const auto c = maker.make();
    if (!c) continue;
    const auto machine = std::make_shared<const Machine>(named_machine("cache:2K/4,16K/8"));
    try {
      const Result<Schedule> s = resolve(c->plan, c->workload, machine);
      if (!s) continue;
      const Layout layout = plans % 2 == 0 ? Layout::tiled : Layout::row_major;
      const Result<Traffic> predicted = cached_traffic(*s, layout);
      if (!predicted) continue;
      const Traffic simulated = simulate(*s, {.layout = layout});
      ++plans;
      for (const std::string boundary : {"L2/L1", "DRAM/L2"}) {
        const auto a = static_cast<double>(predicted->total(boundary).read.value);
        const auto b = static_cast<double>(simulated.total(boundary).read.value);
        sum += std::abs(a - b);
        truth += b;
      }
    } catch (const InputError&) {
    }
  }
  std::printf("bytes off by %.2f %%\n", 100 * sum / truth);
  EXPECT_LT(sum / truth, 0.05);
}

/// Bytes read from home, predicted and simulated, of the plan's text on a machine.
std::pair<double, double> read_from_home(const std::string& workload, const std::string& kernels) {
  const auto machine = std::make_shared<const Machine>(named_machine("cache:9K/9,100K/5"));
  const PlanFile file = plan_file_from_yaml(
      "workload: \"" + workload + "\"\nkernels:\n" + kernels, "the plan");
  const auto s = resolve(file.plan, std::make_shared<const Workload>(file.workload), machine);
  const Result<Traffic> predicted = cached_traffic(*s, Layout::row_major);
  return {static_cast<double>(predicted->total("DRAM/L2").read.value),
          static_cast<double>(
              simulate(*s, {.layout = Layout::row_major}).total("DRAM/L2").read.value)};
}

/// All fits the outer cache. The first and last tiles of the window lie in the padding and touch
/// nothing, which says nothing of what others touch.
TEST(Cached, TilesInThePaddingAreNoWholeTensors) {
  const auto [predicted, simulated] = read_from_home(
      "conv-chain:ic=8,h=27,w=7,oc1=3,oc2=3,st1=1,st2=1,k1=5,k2=1",
      "  - {tree: 'r1/2 x/5 s1/4 oc1/3 y/1 ic/2 ( C.conv1 )'}\n"
      "  - {tree: 'oc1/2 h/1 w/6 ( C.conv2 )'}\n");
  EXPECT_NEAR(predicted / simulated, 1, 0.02);
}

/// Every other row is never read.
TEST(Cached, RowsThatAStridePassesOverAreNotRead) {
  const auto [predicted, simulated] = read_from_home(
      "conv-chain:ic=8,h=31,w=38,oc1=29,oc2=15,st1=2,st2=1,k1=1,k2=1",
      "  - {tree: 'r1/1 y/1 oc1/3 ic/1 s1/1 x/4 ( C.conv1 )'}\n"
      "  - {tree: 'w/4 h/1 oc1/13 oc2/7 ( C.conv2 )'}\n");
  EXPECT_NEAR(predicted / simulated, 1, 0.04);
}

}  // namespace
}  // namespace tilewright
