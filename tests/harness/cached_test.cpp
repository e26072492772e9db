// cached against the simulator, level by level, over seeded random trees of seeded random workloads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>

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

}  // namespace
}  // namespace tilewright
