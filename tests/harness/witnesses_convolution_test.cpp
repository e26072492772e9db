// exact and the scratchpad simulator on chains of convolutions: any legal tree, Chimera's trees at
// any order and tiles, and its blocks over two and three levels, where an intermediate that an
// outer level holds is loaded back to an inner one.
#include <gtest/gtest.h>

#include <iostream>

#include "models/chimera/levels.h"
#include "tests/harness/witnesses.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

using testing::describe;
using testing::random_case;
using testing::RandomCase;
using testing::RandomOptions;
using testing::random_trees::ConvolutionMaker;

TEST(ConvolutionWitnesses, AgreeOnRandomLegalTrees) {
  constexpr std::uint64_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  testing::Agreement seen;
  for (int i = 0; seen.legal < 400 && i < 20000; ++i) {
    const auto c = random_case(random, {.planes = true});
    if (c) seen.look(*c, "seed " + std::to_string(kSeed) + ", case " + std::to_string(i));
    if (HasFatalFailure() || HasFailure()) return;
  }
  EXPECT_EQ(seen.legal, 400);
  EXPECT_GT(seen.recomputing, 50);
}

// Stored outward, loaded back inward: chains of products and of convolutions.
TEST(ConvolutionWitnesses, AgreeWhereAnIntermediateIsLoadedBack) {
  for (const bool planes : {false, true}) {
    constexpr std::uint64_t kSeed = 20261123;
    std::mt19937_64 random(kSeed);
    testing::Agreement seen;
    for (int i = 0; seen.reloading < 300 && i < 40000; ++i) {
      const auto c = random_case(random, {.pins = false, .planes = planes, .reloads = true});
      if (c) seen.look(*c, "seed " + std::to_string(kSeed) + ", case " + std::to_string(i));
      if (HasFailure()) return;
    }
    EXPECT_EQ(seen.reloading, 300) << planes;
  }
}

struct Draw {
  std::mt19937_64& random;
  std::int64_t upto(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random);
  }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; }

  chimera::Order order(const Workload& w) {
    chimera::Order o = chimera::order_loops(w);
    std::shuffle(o.begin(), o.end(), random);
    return o;
  }
  /// No larger than `around`; windows are mostly whole, as the solver leaves them.
  chimera::Tiles tiles(const Workload& w, const chimera::Tiles& around) {
    chimera::Tiles t = around;
    for (LoopId l : chimera::order_loops(w)) {
      const std::string& name = w.loop(l).name;
      const bool window = name[0] == 'r' || name[0] == 's';
      if (chance(window ? 0.15 : 0.6)) t[l.index()] = upto(t[l.index()]);
    }
    return chimera::with_inferred(w, std::move(t));
  }
};

std::optional<Workload> drawn(std::mt19937_64& random) {
  try {
    return workload_from_yaml(ConvolutionMaker(random).text(), "random");
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Chimera's trees of one level, and of several.
void agree_on_chimera(const char* machine, int wanted, testing::Agreement& seen) {
  constexpr std::uint64_t kSeed = 20261124;
  std::mt19937_64 random(kSeed);
  Draw draw{random};
  const auto m = std::make_shared<const Machine>(parse_synthetic_machine(machine));
  const auto levels = chimera::chip_levels(*m);
  for (int i = 0; seen.legal < wanted && i < 10 * wanted; ++i) {
    const auto w = drawn(random);
    if (!w) continue;
    RandomCase c{.workload = std::make_shared<const Workload>(*w), .machine = m};
    chimera::Options options;
    for (std::size_t t = 0; t < w->tensors().size(); ++t)
      if (w->is_intermediate(TensorId(t)) && draw.chance(0.05)) options.spilled.insert(TensorId(t));
    chimera::Tiles around;
    for (const Loop& l : w->loops()) around.push_back(l.extent);
    std::vector<chimera::LevelTiling> tilings;
    for (LevelId level : levels) {
      tilings.push_back({level, draw.order(*w), draw.tiles(*w, around)});
      around = tilings.back().tiles;
    }
    c.plan = levels.size() > 1
                 ? chimera::plan_of(*w, tilings, *m, options)
                 : chimera::plan_of(*w, tilings[0].order, tilings[0].tiles, *m, levels[0], options);
    seen.look(c, std::string(machine) + ", seed " + std::to_string(kSeed) + ", case " +
                     std::to_string(i));
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(seen.legal, wanted) << machine << ": " << seen.illegal << " illegal, as: " << seen.why;
}

TEST(ConvolutionWitnesses, AgreeOnChimerasTrees) {
  testing::Agreement one;
  agree_on_chimera("scratchpad:1M", 300, one);
  EXPECT_EQ(one.illegal, 0) << one.why;
  EXPECT_GT(one.recomputing, 50);
}

TEST(ConvolutionWitnesses, AgreeOnChimerasTreesOfSeveralLevels) {
  for (const char* machine : {"scratchpad:1M,1M", "scratchpad:1M,1M,1M"}) {
    testing::Agreement seen;
    agree_on_chimera(machine, 200, seen);
    EXPECT_GT(seen.reloading, 30) << machine;
    EXPECT_GT(seen.recomputing, 30) << machine;
    std::cout << machine << ": " << seen.legal << " legal, " << seen.illegal << " not (" << seen.why
              << "), " << seen.reloading << " load an intermediate back\n";
  }
}

}  // namespace
}  // namespace tilewright
