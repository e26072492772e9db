// Does a simulated schedule agree with loop nests written out by hand, and where caches and
// scratchpads mix?
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "simulator/cache.h"
#include "simulator/simulator.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using testing::kChain;

struct Given {
  std::string workload;
  std::string tree;
  std::map<std::string, std::int64_t> tiles = {};
  std::map<std::string, Pin> pins = {};
  std::string level = {};
};

Schedule scheduled(const Given& g, Machine machine) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(g.workload, "test"));
  const Plan plan{
      .kernels = {
          {.level = g.level, .tree = parse_tree(g.tree), .tiles = g.tiles, .pins = g.pins}}};
  auto s = resolve(plan, w, std::make_shared<const Machine>(std::move(machine)));
  EXPECT_TRUE(s.ok()) << s.reason();
  return s.value();
}

const std::map<std::string, std::int64_t> kSteps{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}};
constexpr const char* kMlkn = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";

/// A level of `line`-byte lines under those of the machine; capacity for `lines` of them.
Level cache_level(std::string name, std::int64_t lines, std::int64_t ways, std::int64_t line = 64) {
  return {.name = std::move(name),
          .capacity = Bytes(lines * line),
          .line = Bytes(line),
          .sector = Bytes(line),
          .ways = ways};
}

TEST(Simulate, ALargeCacheReadsEverythingOnceAndKeepsWhatIsWritten) {
  const Schedule s = scheduled({kChain, kMlkn, kSteps}, parse_synthetic_machine("cache:32K/8"));
  for (const Layout layout : {Layout::row_major, Layout::tiled}) {
    const Traffic t = simulate(s, {.layout = layout});
    EXPECT_EQ(t.source, Source::simulated);
    EXPECT_EQ(t.by, "cache");
    EXPECT_TRUE(t.counts.write_allocate);
    EXPECT_TRUE(t.counts.write_back);
    const std::map<std::string, std::int64_t> elements{
        {"A", 70}, {"B", 63}, {"D", 54}, {"E", 60}, {"C", 20}};
    for (const auto& [name, count] : elements) {
      const TrafficEntry e = t.at(name, "DRAM/L1");
      EXPECT_EQ(e.read, Bytes(ceil_div(count * 4, 64) * 64)) << name;
      EXPECT_EQ(e.written, Bytes(0));
      EXPECT_EQ(e.resident_dirty, name == "E" || name == "C" ? e.read : Bytes(0)) << name;
      EXPECT_EQ(e.misses * 64, e.read.value);
    }
    EXPECT_EQ(t.operations.at("gemm1"), Operations(630));
    EXPECT_EQ(t.operations.at("gemm2"), Operations(540));
  }
}

// The first two are alike, the third has other tiles. Each kernel alone says what it moves.
TEST(Simulate, KernelsOfSoftwareManagedLevelsCountAsEachAlone) {
  constexpr const char* kProducts = R"yaml(
name: products
loops: {m: 10, k: 7, l: 9, a: 10, b: 7, c: 9, x: 10, y: 7, z: 9}
operators:
  - "first: C[m,l] += A[m,k] * B[k,l]"
  - "second: F[a,c] += D[a,b] * E[b,c]"
  - "third: I[x,z] += G[x,y] * H[y,z]"
)yaml";
  const auto w = std::make_shared<const Workload>(workload_from_yaml(kProducts, "test"));
  for (const char* name : {"scratchpad:4096B", "scratchpad:1K,8K"}) {
    const auto machine = std::make_shared<const Machine>(parse_synthetic_machine(name));
    const auto kernel = [](const char* tree, std::map<std::string, std::int64_t> tiles) {
      return Kernel{.tree = parse_tree(tree), .tiles = std::move(tiles)};
    };
    const auto s =
        resolve({.kernels = {kernel("m l ( k ( C.first ) )", {{"m", 4}, {"l", 5}, {"k", 4}}),
                             kernel("a c ( b ( C.second ) )", {{"a", 4}, {"c", 5}, {"b", 4}}),
                             kernel("x z ( y ( C.third ) )", {{"x", 4}, {"z", 9}, {"y", 4}})}},
                w, machine);
    ASSERT_TRUE(s.ok()) << s.reason();
    const Traffic all = simulate(*s);
    std::int64_t computes = 0;
    for (std::size_t k = 0; k < s->kernels.size(); ++k) {
      const Simulated one = simulate_in_detail({.workload = w,
                                                .machine = machine,
                                                .kernels = {s->kernels[k]},
                                                .resolved = {{s->resolved.kernels[k]}}});
      computes += one.skipped.of_computes;
      EXPECT_FALSE(one.traffic.entries.empty());
      for (const TrafficEntry& e : one.traffic.entries) {
        EXPECT_EQ(all.at(e.tensor, e.boundary).read, e.read) << e.tensor;
        EXPECT_EQ(all.at(e.tensor, e.boundary).written, e.written) << e.tensor;
      }
      for (const auto& [op, count] : one.traffic.operations)
        EXPECT_EQ(all.operations.at(op), count) << op;
    }
    EXPECT_EQ(simulate_in_detail(*s).skipped.of_computes, computes);
    EXPECT_EQ(simulate_in_detail(*s, {.skip = false}).skipped.of_computes, computes);
    EXPECT_NE(all.at("A", machine->boundary(LevelId(0), LevelId(1))).read,
              all.at("G", machine->boundary(LevelId(0), LevelId(1))).read);
  }
}

// m, l, k and n have 3, 2, 2 and 2 iterations: 12 tiles of each product.
TEST(Simulate, StopsAfterSoManyTilesAndSaysWhatIsHeld) {
  for (const char* machine : {"scratchpad:4096B", "cache:512B/2,2K/4"}) {
    const Schedule s = scheduled({kChain, kMlkn, kSteps}, parse_synthetic_machine(machine));
    const Traffic whole = simulate(s);
    std::int64_t before = 0;
    for (std::int64_t n = 1; n <= 25; ++n) {
      const Simulated at = simulate_in_detail(s, {.contents = true, .most_computes = n});
      std::int64_t moved = 0;
      for (const TrafficEntry& e : at.traffic.entries) moved += e.read.value + e.written.value;
      EXPECT_GE(moved, before) << machine << " " << n;
      before = moved;
      EXPECT_EQ(at.finished, n == 25);
      EXPECT_EQ(at.stop.computes, std::min<std::int64_t>(n, 24));
      if (n == 25) {
        EXPECT_EQ(at.traffic.entries, whole.entries) << machine;
      }
    }
  }
}

TEST(Simulate, WhereItStopsTheLastTilesOperandsAreInTheirBuffers) {
  const Schedule s =
      scheduled({kChain, kMlkn, kSteps}, parse_synthetic_machine("scratchpad:4096B"));
  const Workload& w = *s.workload;
  const Stop second = simulate_in_detail(s, {.most_computes = 2}).stop;
  EXPECT_EQ(w.op(second.op).name, "gemm1");
  std::map<std::string, Box> touched, held;
  for (const auto& [t, box] : second.touched) touched[w.tensor(t).name] = box;
  const std::map<std::string, Box> expected{
      {"A", {{0, 4}, {4, 7}}}, {"B", {{4, 7}, {0, 5}}}, {"C", {{0, 4}, {0, 5}}}};
  EXPECT_EQ(touched, expected);
  for (const BufferContents::Held& h : second.buffers) {
    const std::string& name = w.tensor(s.kernels[0].buffer(h.buffer).tensor).name;
    held[name] = h.box;
    EXPECT_EQ(h.changed, name == "C") << name;
  }
  EXPECT_EQ(held, expected);
}

// The nest of mlkn, written out, element by element. Its tiles fit into the innermost cache.
TEST(Simulate, AgreesWithTheNestWrittenOutByHand) {
  const std::int64_t M = 52, N = 37, K = 41, L = 45, m = 8, n = 12, k = 7, l = 16;
  const Given g{.workload =
                    "loops: {m: 52, n: 37, k: 41, l: 45}\n"
                    "operators: ['gemm1: C[m,l] += A[m,k] * B[k,l]', "
                    "'gemm2: E[m,n] += C[m,l] * D[l,n]']",
                .tree = kMlkn,
                .tiles = {{"m", m}, {"n", n}, {"k", k}, {"l", l}}};
  const Machine machine = parse_synthetic_machine("cache:2K/4,4K/4,12K/16");
  const Schedule s = scheduled(g, machine);
  const AddressMap map(s, Layout::row_major);
  const auto base = [&](const char* t) { return map.base(*s.workload->find_tensor(t)); };
  std::int64_t c_base = 0;
  walk(s, [&](const AccessEvent& e) {
    if (e.kind == AccessKind::update && s.workload->tensor(e.tensor).name == "C" && c_base == 0)
      map.packed_runs(e.kernel, map.array_of(e.kernel, e.buffer), e.tile, e.box,
                      [&](std::int64_t a, std::int64_t) { c_base = a; });
  });
  ASSERT_GT(c_base, 0);

  std::vector<CacheGeometry> levels;
  for (std::size_t i = machine.levels.size(); i-- > 1;)
    levels.push_back(geometry_of(machine.levels[i]));
  CacheHierarchy h(levels, 5);  // A B C D E
  enum { A, B, C, D, E };
  // A row of a tile: bytes [column0, column1) of a row of an array.
  const auto row = [&](int t, std::int64_t start, std::int64_t width, std::int64_t r,
                       std::int64_t c0, std::int64_t c1, bool update, bool first) {
    const std::int64_t address = start + (r * width + c0) * 4;
    for (std::int64_t c = c0; c < c1; ++c)
      if (!update)
        h.read(address + (c - c0) * 4, 4, t);
      else if (first)
        h.write(address + (c - c0) * 4, 4, t);
      else
        h.read(address + (c - c0) * 4, 4, t), h.write(address + (c - c0) * 4, 4, t);
  };
  for (std::int64_t m0 = 0; m0 < M; m0 += m)
    for (std::int64_t l0 = 0; l0 < L; l0 += l) {
      const std::int64_t m1 = std::min(m0 + m, M), l1 = std::min(l0 + l, L);
      for (std::int64_t k0 = 0; k0 < K; k0 += k) {
        const std::int64_t k1 = std::min(k0 + k, K);
        for (std::int64_t i = m0; i < m1; ++i) row(A, base("A"), K, i, k0, k1, false, false);
        for (std::int64_t i = k0; i < k1; ++i) row(B, base("B"), L, i, l0, l1, false, false);
        for (std::int64_t i = 0; i < m1 - m0; ++i)
          row(C, c_base, l1 - l0, i, 0, l1 - l0, true, k0 == 0);
      }
      for (std::int64_t n0 = 0; n0 < N; n0 += n) {
        const std::int64_t n1 = std::min(n0 + n, N);
        for (std::int64_t i = 0; i < m1 - m0; ++i)
          row(C, c_base, l1 - l0, i, 0, l1 - l0, false, false);
        for (std::int64_t i = l0; i < l1; ++i) row(D, base("D"), N, i, n0, n1, false, false);
        for (std::int64_t i = m0; i < m1; ++i) row(E, base("E"), N, i, n0, n1, true, l0 == 0);
      }
    }
  const Traffic t = simulate(s, {.layout = Layout::row_major});
  const char* const names[] = {"A", "B", "C", "D", "E"};
  const char* const boundaries[] = {"L2/L1", "L3/L2", "DRAM/L3"};
  for (std::size_t level = 0; level < 3; ++level)
    for (std::size_t i = 0; i < 5; ++i) {
      SCOPED_TRACE(std::string(names[i]) + " " + boundaries[level]);
      const TrafficEntry e = t.at(names[i], boundaries[level]);
      const CacheCount c = h.counts(level)[i];
      EXPECT_EQ(e.misses, c.misses);
      EXPECT_EQ(e.read, c.read);
      EXPECT_EQ(e.written, c.written);
      EXPECT_EQ(e.resident_dirty, c.resident_dirty);
    }
  EXPECT_GT(t.total("DRAM/L3").written, Bytes(0));
  EXPECT_GT(t.total("L2/L1").misses, 1000);
}

TEST(Simulate, LayingOutByTileAvoidsTheConflictsOfALeadingDimensionOf4KiB) {
  const Given g{.workload =
                    "loops: {m: 64, n: 1024, k: 1024}\n"
                    "operators: ['gemm: C[m,n] += A[m,k] * B[k,n]']",
                .tree = "n/16 k/64 m/4 ( C.gemm )"};
  const Schedule s = scheduled(g, parse_synthetic_machine("cache:32K/8"));
  const TrafficEntry tiled = simulate(s).total("DRAM/L1");
  const TrafficEntry rows = simulate(s, {.layout = Layout::row_major}).total("DRAM/L1");
  EXPECT_LT(2 * tiled.read.value, rows.read.value);
}

TEST(Simulate, ASpilledIntermediateTouchesHome) {
  Given g{kChain, kMlkn, kSteps};
  const Machine machine = parse_synthetic_machine("cache:32K/8");
  EXPECT_EQ(simulate(scheduled(g, machine)).at("C", "DRAM/L1").read, Bytes(128));  // 4 x 5, packed
  g.pins = {{"C", Pin{.level = "dram"}}};
  EXPECT_EQ(simulate(scheduled(g, machine)).at("C", "DRAM/L1").read, Bytes(384));  // 10 x 9
}

// Shared memory (software) under an L2 (hardware): what a block loads is exactly what the
// scratchpad alone would load, and passes the L2.
TEST(Simulate, ScratchpadMovementPassesTheCachesOnItsWay) {
  Machine machine = parse_synthetic_machine("scratchpad:4096B");
  machine.levels.back().name = "shared";
  machine.levels.back().filled_by = {"L2"};
  Level l2 = cache_level("L2", 1024, 16);
  l2.filled_by = {"DRAM"};
  machine.levels.insert(machine.levels.begin() + 1, l2);
  const Traffic mixed = simulate(scheduled({kChain, kMlkn, kSteps, {}, "shared"}, machine));
  const Traffic alone =
      simulate(scheduled({kChain, kMlkn, kSteps}, parse_synthetic_machine("scratchpad:4096B")));
  EXPECT_EQ(mixed.by, "cache");
  for (const char* t : {"A", "B", "C", "D", "E"}) {
    const TrafficEntry inner = mixed.at(t, "L2/shared"), only = alone.at(t, "DRAM/L1");
    EXPECT_EQ(inner.read, only.read) << t;
    EXPECT_EQ(inner.written, only.written) << t;
    EXPECT_EQ(inner.misses, 0);
  }
  // All of it fits in the L2: each line once, and E is still dirty there.
  EXPECT_EQ(mixed.at("A", "DRAM/L2").read, Bytes(320));
  EXPECT_EQ(mixed.at("E", "DRAM/L2").read, Bytes(256));
  EXPECT_EQ(mixed.at("E", "DRAM/L2").resident_dirty, Bytes(256));
  EXPECT_EQ(mixed.at("C", "DRAM/L2"), (TrafficEntry{.tensor = "C", .boundary = "DRAM/L2"}));
}

TEST(Simulate, AtomicStoresZeroTheTensorInTheCacheToo) {
  const Given g{testing::kGemm, "k/4@grid m/4 n/3 ( C.gemm S.C!atomic )"};
  const Traffic t = simulate(scheduled(g, parse_synthetic_machine("cache:32K/8")));
  EXPECT_EQ(t.at("C", "DRAM/L1").read, Bytes(128));
  EXPECT_EQ(t.at("C", "DRAM/L1").resident_dirty, Bytes(128));
}

TEST(Simulate, BlocksShareTheCacheInLinearOrder) {
  const Given blocks{kChain, "m@grid l ( k ( C.gemm1 ) n ( C.gemm2 ) )", kSteps};
  const Given loops{kChain, kMlkn, kSteps};
  const Machine machine = parse_synthetic_machine("cache:512B/2,1K/4");
  EXPECT_EQ(simulate(scheduled(blocks, machine)).entries,
            simulate(scheduled(loops, machine)).entries);
}

TEST(Simulate, EntriesAreOuterBoundariesFirstThenTensorsAsDeclared) {
  const Schedule s =
      scheduled({kChain, kMlkn, kSteps}, parse_synthetic_machine("cache:512B/2,1K/4"));
  const Traffic t = simulate(s);
  std::vector<std::pair<std::string, std::string>> order;
  for (const TrafficEntry& e : t.entries) order.emplace_back(e.boundary, e.tensor);
  std::vector<std::pair<std::string, std::string>> expected;
  for (const char* b : {"DRAM/L2", "L2/L1"})
    for (const Tensor& tensor : s.workload->tensors()) expected.emplace_back(b, tensor.name);
  EXPECT_EQ(order, expected);
}

TEST(Simulate, AnIntermediateThatIsAnOutputIsWrittenOnce) {
  const std::string both = std::string(kChain) + "outputs: [C, E]\n";
  const Schedule s = scheduled({both, kMlkn, kSteps}, parse_synthetic_machine("scratchpad:4096B"));
  const TrafficEntry c = simulate(s).at("C", "DRAM/L1");
  EXPECT_EQ(c.written, Bytes(90 * 4));
  EXPECT_EQ(c.read, Bytes(0));
}

TEST(Simulate, KernelsMeetAtHome) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(kChain, "test"));
  const Plan plan{.kernels = {{.tree = parse_tree("m l ( k ( C.gemm1 ) )"), .tiles = kSteps},
                              {.tree = parse_tree("m n l ( C.gemm2 )"), .tiles = kSteps}}};
  const auto resolved = [&](const char* machine) {
    return resolve(plan, w, std::make_shared<const Machine>(parse_synthetic_machine(machine)));
  };
  const auto s = resolved("scratchpad:4096B");
  ASSERT_TRUE(s.ok()) << s.reason();
  const Traffic t = simulate(*s);
  EXPECT_EQ(t.at("C", "DRAM/L1").written, Bytes(90 * 4));
  EXPECT_EQ(t.at("C", "DRAM/L1").read, Bytes(2 * 90 * 4));  // again for each of two n
  EXPECT_EQ(t.at("E", "DRAM/L1").written, Bytes(60 * 4));
  const auto cached = resolved("cache:32K/8");
  ASSERT_TRUE(cached.ok()) << cached.reason();
  EXPECT_EQ(simulate(*cached).at("C", "DRAM/L1").read, Bytes(384));
}

// Registers under a cache: B's panels pass L1 by loads, operands cross nothing.
TEST(Simulate, RegistersUnderCaches) {
  Machine machine = parse_synthetic_machine("cache:32K/8");
  machine.levels.push_back({.name = "registers",
                            .kind = LevelKind::registers,
                            .managed = Managed::software,
                            .capacity = Bytes(4096),
                            .filled_by = {"L1"}});
  const Given g{testing::kGemm, "m/2 n/3 ( k/1 ( L.A L.B C.gemm ) S.C )", {}, {}, "registers"};
  const Traffic t = simulate(scheduled(g, machine));
  EXPECT_EQ(t.at("A", "L1/registers").read, Bytes(4 * 5 * 7 * 2));
  EXPECT_EQ(t.at("B", "L1/registers").read, Bytes(4 * 7 * 6 * 3));
  EXPECT_EQ(t.at("C", "L1/registers").written, Bytes(4 * 30));
  EXPECT_EQ(t.at("A", "DRAM/L1").read, Bytes(192));
  EXPECT_EQ(t.at("C", "DRAM/L1").resident_dirty, Bytes(128));
}

}  // namespace
}  // namespace tilewright
