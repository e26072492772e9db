// Do blocks side by side move what the plan says, and meet in L2 as they should?
#include "simulator/gpu/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "simulator/simulator.h"
#include "tests/support/random_trees.h"

namespace tilewright::gpu {
namespace {

using testing::RandomCase;

Level cache(std::int64_t bytes, std::int64_t ways = 16) {
  Level l{.name = "LLC", .capacity = Bytes(bytes)};
  l.line = Bytes(128);
  l.sector = Bytes(32);
  l.ways = ways;
  l.private_to = Unit::machine;
  l.behaviour.write_miss = WriteMiss::validate;
  return l;
}

/// The same machine with an L2 below home, as a GPU of so many SMs.
std::shared_ptr<const Machine> as_gpu(Machine m, std::int64_t l2_bytes, std::int64_t sms,
                                      std::int64_t ways = 16) {
  m.kind = "gpu";
  m.levels.insert(m.levels.begin() + 1, cache(l2_bytes, ways));
  m.levels[1].filled_by = {"DRAM"};
  m.levels[2].filled_by = {"LLC"};
  for (Level& l : m.levels)
    if (l.managed == Managed::software && &l != &m.levels.front())
      l.bandwidth = BytesPerSecond(64e9);
  m.units = {
      {.name = "SM", .count = sms, .clock_hz = 1e9, .peak = {{"f32", FlopsPerSecond(1e12)}}}};
  return std::make_shared<const Machine>(std::move(m));
}

std::optional<Schedule> legal(const Plan& plan, std::shared_ptr<const Workload> w,
                              std::shared_ptr<const Machine> m) {
  try {
    auto s = resolve(plan, std::move(w), std::move(m));
    if (s) return s.value();
  } catch (const InputError&) {  // a pin at a loop that is not there
  }
  return std::nullopt;
}

/// What crosses each boundary but L2's outer one, by tensor; DRAM's for machines without L2.
std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_software(const Traffic& t) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> all;
  for (const TrafficEntry& e : t.entries) {
    if (e.boundary == "DRAM/LLC") continue;
    const std::string inner = e.boundary.substr(e.boundary.find('/'));
    auto& sum = all[e.tensor + inner];
    sum.first += e.read.value;
    sum.second += e.written.value;
  }
  return all;
}

TrafficEntry outer(const Simulated& s, const std::string& tensor) {
  for (const TrafficEntry& e : s.traffic.entries)
    if (e.tensor == tensor && e.boundary == "DRAM/LLC") return e;
  return {};
}

// What software moves is the plan's, whatever runs side by side: as the scratchpads alone move it,
// which other tests hold against `exact`.
TEST(Gpu, RandomPlansMoveWhatTheirBuffersMove) {
  std::mt19937_64 random(11);
  int grids = 0, skipped = 0, tried = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto c = testing::random_case(random, {.max_extent = 40});
    if (!c) continue;
    const auto plain = legal(c->plan, c->workload, c->machine);
    const auto s = legal(c->plan, c->workload, as_gpu(*c->machine, 1 << 13, 3));
    if (!plain || !s) continue;
    const Traffic alone = tilewright::simulate(*plain);
    const Simulated side_by_side = simulate_blocks(*s, {.blocks_per_sm = 2});
    ASSERT_EQ(by_software(side_by_side.traffic), by_software(alone)) << describe(*c);
    ASSERT_EQ(side_by_side.traffic.operations, alone.operations) << describe(*c);
    const Simulated walked = simulate_blocks(*s, {.blocks_per_sm = 2, .walk_all = true});
    ASSERT_EQ(side_by_side.traffic, walked.traffic) << describe(*c);
    ++tried;
    for (const KernelRun& k : side_by_side.kernels) {
      grids += k.blocks > 1 ? 1 : 0;
      skipped += k.walked < k.blocks ? 1 : 0;
    }
  }
  EXPECT_GT(tried, 300);
  EXPECT_GT(grids, 40);
  EXPECT_GT(skipped, 2);
}

// A block that runs alone is the plain cache simulation of its stream.
TEST(Gpu, OneBlockIsThePlainCacheSimulation) {
  std::mt19937_64 random(12);
  int tried = 0;
  std::int64_t missed = 0, written = 0;
  for (int i = 0; i < 1500; ++i) {
    const auto c = testing::random_case(random, {.max_extent = 24, .grid = false, .units = false});
    if (!c) continue;
    const auto s = legal(c->plan, c->workload, as_gpu(*c->machine, 1 << 11, 3, 4));
    if (!s) continue;
    const bool adds = std::any_of(s->kernels.begin(), s->kernels.end(),
                                  [](const ScheduledKernel& k) { return !k.zeroed.empty(); });
    if (adds) continue;  // only a GPU's L2 adds by itself
    const Traffic plain = tilewright::simulate(*s, {.layout = Layout::row_major});
    const Simulated one = simulate_blocks(*s, {.index = SetIndex::modulo});
    for (const TrafficEntry& e : plain.entries) {
      if (e.boundary != "DRAM/LLC") continue;
      missed += e.misses;
      written += e.written.value;
      const TrafficEntry ours = outer(one, e.tensor);
      ASSERT_EQ(ours.read, e.read) << e.tensor << "\n" << describe(*c);
      ASSERT_EQ(ours.written, e.written) << e.tensor << "\n" << describe(*c);
      ASSERT_EQ(ours.misses, e.misses) << e.tensor << "\n" << describe(*c);
      ASSERT_EQ(ours.resident_dirty, e.resident_dirty) << e.tensor << "\n" << describe(*c);
      ASSERT_GE(ours.hits, e.hits) << e.tensor << "\n" << describe(*c);  // pieces may cut a line
    }
    ++tried;
  }
  EXPECT_GT(tried, 200);
  EXPECT_GT(missed, 10'000);
  EXPECT_GT(written, 10'000);
}

struct Gemm {
  std::int64_t m, n, k;
};

Schedule gemm(const Gemm& size, const std::string& tree, const std::string& tiles,
              std::int64_t l2_bytes, std::int64_t sms) {
  const std::string text = "name: gemm\nloops: {m: " + std::to_string(size.m) +
                           ", n: " + std::to_string(size.n) + ", k: " + std::to_string(size.k) +
                           "}\noperators: [\"C[m,n] += A[m,k] * B[k,n]\"]\n";
  const Plan plan{.kernels = {{.tree = parse_tree(tree), .tiles = parse_tiles(tiles)}}};
  auto s = legal(plan, std::make_shared<const Workload>(workload_from_yaml(text, "gemm")),
                 as_gpu(parse_synthetic_machine("scratchpad:228K"), l2_bytes, sms));
  return s.value();
}

constexpr const char* kRows = "m@grid ( n ( k ( C.C ) S.C ) )";

// Blocks of a wave ask for the same rows of B at the same time: it comes from DRAM once, though L2
// holds a fraction of it. One after the other each streams it again.
TEST(Gpu, BlocksInLockstepReadBOnce) {
  const Schedule s = gemm({64, 256, 256}, kRows, "m=16,n=16,k=16", 64 << 10, 4);
  const std::int64_t b = 256 * 256 * 4;
  EXPECT_EQ(outer(simulate_blocks(s, {.order = BlockOrder::lockstep, .blocks_per_sm = 1}), "B")
                .read.value,
            b);
  EXPECT_EQ(outer(simulate_blocks(s, {.blocks_per_sm = 1, .jitter = 0}), "B").read.value, b);
  EXPECT_EQ(outer(simulate_blocks(s, {.order = BlockOrder::serial}), "B").read.value, 4 * b);
}

// Twice as many blocks as places: the second wave finds of B what L2 could keep.
TEST(Gpu, BJustFitsOrJustDoesNot) {
  const std::int64_t b = 256 * 256 * 4, rest = 2 * 128 * 256 * 4;
  for (const BlockOrder order : {BlockOrder::lockstep, BlockOrder::timed, BlockOrder::serial}) {
    const auto read = [&](std::int64_t l2) {
      const Schedule s = gemm({128, 256, 256}, kRows, "m=16,n=16,k=16", l2, 4);
      return outer(simulate_blocks(s, {.order = order, .blocks_per_sm = 1}), "B").read.value;
    };
    const std::int64_t waves = order == BlockOrder::serial ? 8 : 2;
    EXPECT_EQ(read((b + rest) * 5 / 4), b) << name_of(order);
    EXPECT_GT(read(b * 3 / 4), (waves - 1) * b) << name_of(order);
    EXPECT_LE(read(b * 3 / 4), 8 * b) << name_of(order);
  }
}

TEST(Gpu, EveryByteOfAnOutputIsWrittenBackOnceOrLeftDirty) {
  for (const std::int64_t l2 : {8 << 10, 32 << 10, 4 << 20}) {
    const Schedule s =
        gemm({96, 80, 64}, "m@grid n@grid ( k ( C.C ) S.C )", "m=16,n=16,k=16", l2, 4);
    const TrafficEntry c = outer(simulate_blocks(s), "C");
    EXPECT_EQ(c.written.value + c.resident_dirty.value, 96 * 80 * 4);
    EXPECT_EQ(c.read.value, 0);  // whole sectors
    EXPECT_EQ(c.written.value == 0, l2 > (1 << 20));
  }
}

TEST(Gpu, PartialSumsAreAddedInL2) {
  const Schedule s =
      gemm({32, 32, 128}, "k@grid m@grid n@grid ( C.C S.C!atomic )", "m=16,n=16,k=16", 4 << 20, 4);
  const Simulated r = simulate_blocks(s);
  const TrafficEntry c = outer(r, "C");
  EXPECT_EQ(c.read.value, 0);  // zeroed in L2 before
  EXPECT_EQ(c.resident_dirty.value, 32 * 32 * 4);
}

TEST(Gpu, SeedsAndThreads) {
  const Schedule s =
      gemm({256, 256, 256}, "m@grid n@grid ( k ( C.C ) S.C )", "m=16,n=16,k=16", 32 << 10, 4);
  const auto run = [&](std::uint64_t seed, int threads, int partitions) {
    return simulate_blocks(s, {.blocks_per_sm = 2,
                               .partitions = partitions,
                               .jitter = 0.3,
                               .seed = seed,
                               .threads = threads})
        .traffic;
  };
  for (const int partitions : {1, 2}) {
    EXPECT_EQ(run(1, 1, partitions), run(1, 1, partitions));
    EXPECT_EQ(run(1, 1, partitions), run(1, 3, partitions));
    const Traffic one = run(1, 1, partitions), two = run(2, 1, partitions);
    EXPECT_NE(one, two);
    EXPECT_EQ(by_software(one), by_software(two));
  }
}

TEST(Gpu, SampledWavesStandForAll) {
  const Schedule s =
      gemm({1024, 128, 128}, "m@grid n@grid ( k ( C.C ) S.C )", "m=16,n=16,k=16", 32 << 10, 4);
  const Simulated all = simulate_blocks(s, {.blocks_per_sm = 2});
  const Simulated some = simulate_blocks(s, {.blocks_per_sm = 2, .sample_waves = 8});
  EXPECT_EQ(some.kernels[0].simulated, 64);
  EXPECT_EQ(all.kernels[0].simulated, 512);
  EXPECT_EQ(by_software(some.traffic), by_software(all.traffic));
  EXPECT_NEAR(static_cast<double>(outer(some, "B").read.value),
              static_cast<double>(outer(all, "B").read.value),
              0.1 * static_cast<double>(outer(all, "B").read.value));
}

// Clipped halos at both ends, tiles cut off at the edge, two grid loops: what is passed over is
// what a walk over every block finds.
TEST(Gpu, BlocksThatRepeatTheirNeighboursNeedNoWalk) {
  const auto expect_same = [](const Schedule& s) {
    const Simulated some = simulate_blocks(s, {.blocks_per_sm = 2});
    const Simulated all = simulate_blocks(s, {.blocks_per_sm = 2, .walk_all = true});
    EXPECT_EQ(some.traffic, all.traffic);
    EXPECT_LT(some.kernels[0].walked, some.kernels[0].blocks);
    EXPECT_EQ(all.kernels[0].walked, all.kernels[0].blocks);
    std::int64_t read = 0;
    for (const Tensor& t : s.workload->tensors()) read += outer(some, t.name).read.value;
    EXPECT_GT(read, 0);
  };
  expect_same(
      gemm({203, 250, 64}, "m@grid n@grid ( k ( C.C ) S.C )", "m=16,n=16,k=16", 32 << 10, 4));
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: conv\nloops: {h: 90, y: 90, v: 70, r: 5, s: 3}\noperators:\n"
      "  - \"M[y,v] += I[y+r-2,v] * W[r]\"\n  - \"O[h,v] += M[h+s-1,v] * V[s]\"\n",
      "conv"));
  const Plan plan{.kernels = {{.tree = parse_tree("h@grid v@grid ( C.M C.O )"),
                               .tiles = parse_tiles("h=4,v=8")}}};
  const auto s = legal(plan, w, as_gpu(parse_synthetic_machine("scratchpad:228K"), 8 << 10, 4));
  ASSERT_TRUE(s);
  expect_same(*s);
  // Parts of a pack, which begin one after the other and have grids of their own.
  const auto two = std::make_shared<const Workload>(
      workload_from_yaml("name: two\nloops: {m: 203, n: 250, k: 64, p: 170, q: 40}\noperators:\n"
                         "  - \"C[m,n] += A[m,k] * B[k,n]\"\n  - \"E[p] += D[p,q] * F[q]\"\n",
                         "two"));
  const Plan packed{
      .kernels = {
          {.tree = parse_tree("( m@grid n@grid ( k ( C.C ) S.C ) | p@grid ( q ( C.E ) S.E ) )"),
           .tiles = parse_tiles("m=16,n=16,k=16,p=8,q=16")}}};
  const auto both =
      legal(packed, two, as_gpu(parse_synthetic_machine("scratchpad:228K"), 8 << 10, 4));
  ASSERT_TRUE(both);
  expect_same(*both);
  EXPECT_LE(simulate_blocks(*both).kernels[0].walked, 6 * 6 + 6);
}

TEST(Gpu, ResidencyFollowsMemoryUse) {
  // Tiles of 64 x 64 x 64: 48 KiB and 1 KiB reserved, so four of an SM's 228 KiB.
  const Schedule big =
      gemm({1024, 1024, 64}, "m@grid n@grid ( k ( C.C ) S.C )", "m=64,n=64,k=64", 1 << 20, 4);
  EXPECT_EQ(simulate_blocks(big).kernels[0].blocks_per_sm, 4);
  EXPECT_EQ(simulate_blocks(big).kernels[0].resident, 16);
  const Schedule one =
      gemm({64, 64, 64}, "m@grid n@grid ( k ( C.C ) S.C )", "m=64,n=64,k=64", 1 << 20, 4);
  EXPECT_EQ(simulate_blocks(one).kernels[0].resident, 1);
}

TEST(Gpu, RefusesOtherMachines) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: g\nloops: {m: 4, n: 4, k: 4}\noperators: [\"C[m,n] += A[m,k] * B[k,n]\"]\n", "g"));
  const Plan plan{
      .kernels = {{.tree = parse_tree("m n k ( C.C )"), .tiles = parse_tiles("m=2,n=2,k=2")}}};
  const auto s =
      legal(plan, w, std::make_shared<const Machine>(parse_synthetic_machine("cache:4K")));
  EXPECT_FALSE(simulates(*s->machine));
  EXPECT_THROW(simulate_blocks(*s), InputError);
}

}  // namespace
}  // namespace tilewright::gpu
