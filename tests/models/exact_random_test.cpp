// `exact` against a literal walk, on random legal plans.
#include <gtest/gtest.h>

#include <iostream>

#include "models/exact/exact.h"
#include "tests/support/literal_walker.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

using testing::LiteralWalker;
using testing::RandomCase;
using testing::RandomOptions;

std::map<LiteralWalker::Key, std::int64_t> nonzero(
    std::map<LiteralWalker::Key, std::int64_t> bytes) {
  std::erase_if(bytes, [](const auto& entry) { return entry.second == 0; });
  return bytes;
}

std::map<LiteralWalker::Key, std::int64_t> bytes_of(const Traffic& t) {
  std::map<LiteralWalker::Key, std::int64_t> bytes;
  for (const TrafficEntry& e : t.entries) {
    bytes[{e.tensor, e.boundary, "read"}] += e.read.value;
    bytes[{e.tensor, e.boundary, "written"}] += e.written.value;
  }
  return nonzero(std::move(bytes));
}

std::map<std::string, std::int64_t> operations_of(const Traffic& t) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& [op, n] : t.operations)
    if (n.value != 0) counts[op] = n.value;
  return counts;
}

struct Tried {
  int legal = 0;
  int illegal = 0;
  int jumps = 0;
};

Tried compare(std::uint64_t seed, const RandomOptions& options, int wanted) {
  std::mt19937_64 random(seed);
  Tried tried;
  while (tried.legal < wanted && tried.illegal < 50 * wanted) {
    const auto c = random_case(random, options);
    if (!c) continue;
    std::optional<Schedule> schedule;
    try {
      auto resolved = resolve(c->plan, c->workload, c->machine);
      if (resolved.ok()) schedule = std::move(resolved).value();
    } catch (const InputError&) {
    }
    if (!schedule) {
      ++tried.illegal;
      continue;
    }
    ++tried.legal;
    ExactCost cost;
    const Traffic t = exact(*schedule, &cost);
    tried.jumps += cost.jumps > 0;
    const LiteralWalker walked(*schedule);
    EXPECT_EQ(bytes_of(t), nonzero(walked.bytes)) << "seed " << seed << "\n" << describe(*c);
    EXPECT_EQ(operations_of(t), walked.operations) << "seed " << seed << "\n" << describe(*c);
    if (::testing::Test::HasFailure()) return tried;
  }
  return tried;
}

/// Bytes from home and to it that no plan can do without, of plans that `exact` counts.
TEST(ExactDrawn, NoPlanMovesLessThanMustBeMoved) {
  std::mt19937_64 random(77);
  int counted = 0;
  double least = 1e300;
  for (int drawn = 0; counted < 400 && drawn < 20000; ++drawn) {
    const auto c = testing::random_case(random, RandomOptions{});
    if (!c) continue;
    try {
      const auto schedule = resolve(c->plan, c->workload, c->machine);
      if (!schedule) continue;
      const Traffic t = exact(*schedule);
      Bytes moved;
      for (const TrafficEntry& e : t.entries)
        if (e.boundary.starts_with(c->machine->level(c->machine->home()).name + "/"))
          moved += e.read + e.written;
      if (!t.unavailable.empty()) continue;
      const Bytes compulsory = c->workload->compulsory_bytes();
      EXPECT_GE(moved, compulsory) << testing::describe(*c);
      least =
          std::min(least, static_cast<double>(moved.value) / static_cast<double>(compulsory.value));
      ++counted;
    } catch (const InputError&) {
    }
  }
  std::cout << counted << " counts, at least " << least << " of what must be moved\n";
  EXPECT_EQ(counted, 400);
}

class ExactRandom : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ExactRandom, EqualsALiteralWalk) {
  const Tried tried = compare(GetParam(), {}, 250);
  std::cout << "seed " << GetParam() << ": " << tried.legal << " legal, " << tried.illegal
            << " not, " << tried.jumps << " with stretches multiplied\n";
  EXPECT_EQ(tried.legal, 250);
  EXPECT_GT(tried.jumps, 50);
}

/// Operators that several kernels compute, each for its own readers.
TEST_P(ExactRandom, EqualsALiteralWalkOfKernelsThatComputeTheSame) {
  const Tried tried = compare(GetParam() + 7000, {.recompute = true}, 100);
  EXPECT_EQ(tried.legal, 100);
}

/// Longer loops, so that stretches, their edges and the clipping at tensors' ends all matter.
TEST_P(ExactRandom, EqualsALiteralWalkOnLongLoops) {
  const Tried tried = compare(GetParam() + 1000, {.max_extent = 41, .most_operators = 2}, 100);
  EXPECT_EQ(tried.legal, 100);
  EXPECT_GT(tried.jumps, 40);
}

/// Planes with halos in both dimensions; intermediates that leave the inner level and come back.
TEST_P(ExactRandom, EqualsALiteralWalkOnConvolutionsAndReloads) {
  const Tried planes = compare(GetParam() + 2000, {.planes = true}, 60);
  EXPECT_EQ(planes.legal, 60);
  const Tried reloads = compare(GetParam() + 3000, {.pins = false, .reloads = true}, 100);
  EXPECT_EQ(reloads.legal, 100);
}

TEST_P(ExactRandom, EqualsALiteralWalkOnGathers) {
  const Tried tried = compare(GetParam() + 4000, {.max_extent = 23, .gathers = true}, 100);
  EXPECT_EQ(tried.legal, 100);
  EXPECT_GT(tried.jumps, 30);
}

/// Blocks that wait for one another: tensors that go home and back, sums over blocks that are read
/// after the barrier, packs whose blocks go on with something else.
TEST_P(ExactRandom, EqualsALiteralWalkOfBlocksThatWait) {
  const Tried tried = compare(GetParam() + 5000, {.phases = true}, 150);
  EXPECT_EQ(tried.legal, 150);
}

/// Tiles that are dropped are loaded again.
TEST_P(ExactRandom, EqualsALiteralWalkOfDrops) {
  EXPECT_EQ(compare(GetParam() + 8000, {.drops = true}, 60).legal, 60);
  EXPECT_EQ(compare(GetParam() + 9000, {.phases = true, .drops = true}, 60).legal, 60);
}

/// Loops over the blocks of clusters, which run in turn on a machine without clusters: nothing
/// moves between blocks.
TEST_P(ExactRandom, EqualsALiteralWalkOfLoopsOverClusters) {
  EXPECT_EQ(compare(GetParam() + 10000, {.clusters = true}, 100).legal, 100);
  EXPECT_EQ(compare(GetParam() + 11000, {.phases = true, .clusters = true}, 60).legal, 60);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExactRandom, ::testing::Range<std::uint64_t>(1, 9));

}  // namespace
}  // namespace tilewright
