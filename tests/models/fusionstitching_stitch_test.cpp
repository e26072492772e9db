// Does the code generator's search keep locality, share shared memory and price as written down by
// hand? Do its plans resolve, and do exact and the simulator count the same bytes of them?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/machine/machine.h"
#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/fusionstitching/fusionstitching.h"
#include "tests/support/small_graphs.h"

namespace tilewright::fusionstitching {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const Workload> workload(const std::string& name) {
  return std::make_shared<const Workload>(named_workload(name));
}
Graph graph_of(const std::string& name) { return *Graph::create(workload(name)); }
Graph graph_from(const std::string& operators) {
  return *Graph::create(std::make_shared<const Workload>(
      workload_from_yaml("name: test\nloops: {r: 512, c: 256}\noperators:\n" + operators, "test")));
}
const Device& v100() {
  static const Device d = *device_of(named_machine("v100"));
  return d;
}
Pattern whole(const Graph& g) {
  Pattern p;
  for (int v = 0; v < g.size(); ++v) p.push_back(v);
  return p;
}

TEST(Share, OnlyWhatIsOverIsReused) {
  // a -> b -> d -> e: a's space is free for d once b, its only reader, has run; b's is not, d reads
  // it.
  const Graph g = graph_from(
      "  - a[r] += x[r,c]\n  - b[r] = exp(a[r])\n  - d[r] = exp(b[r])\n"
      "  - e[r] = exp(d[r])\n");
  const std::vector<int> all = {0, 1, 2, 3};
  const std::vector<SharedRequest> chain = {{0, 64, {1}}, {1, 64, {2}}, {2, 64, {3}}};
  EXPECT_THAT(share(g, all, chain).offsets, ElementsAre(0, 64, 0));
  EXPECT_EQ(share(g, all, chain).bytes, 128);
  // A later reader keeps it.
  const std::vector<SharedRequest> kept = {{0, 64, {1, 3}}, {1, 64, {2}}, {2, 64, {3}}};
  EXPECT_EQ(share(g, all, kept).bytes, 192);
  // What is too small is not taken.
  const std::vector<SharedRequest> small = {{0, 32, {1}}, {1, 64, {2}}, {2, 64, {3}}};
  EXPECT_EQ(share(g, all, small).bytes, 160);
}

TEST(Share, SiblingsDoNotDominate) {
  // b and d both follow a; neither is on every path to e, so e cannot have their space.
  const Graph g = graph_from(
      "  - a[r] += x[r,c]\n  - b[r] = exp(a[r])\n  - d[r] = abs(a[r])\n"
      "  - e[r] = b[r] + d[r]\n  - f[r] = exp(e[r])\n");
  const std::vector<int> all = {0, 1, 2, 3, 4};
  EXPECT_EQ(share(g, all, std::vector<SharedRequest>{{1, 64, {3}}, {3, 64, {4}}}).bytes, 128);
  EXPECT_EQ(share(g, all, std::vector<SharedRequest>{{0, 64, {1, 2}}, {3, 64, {4}}}).bytes, 128);
  EXPECT_EQ(share(g, all, std::vector<SharedRequest>{{0, 64, {}}, {3, 64, {4}}}).bytes, 64);
}

TEST(Stitch, ElementWiseByHand) {
  const Graph g = graph_from("  - a[r,c] = abs(x[r,c])\n  - b[r,c] = exp(a[r,c])\n");
  const auto k = stitch(g, v100(), {0, 1}, {.latency = Latency::published});
  ASSERT_TRUE(k.ok()) << k.reason();
  ASSERT_EQ(k->parts.size(), 1u);
  const Stitched& s = k->parts.front();
  EXPECT_EQ(s.groups.size(), 1u);
  EXPECT_EQ(s.groups.front().scheme, Scheme::thread);
  // One point a thread: a load, abs, exp, a store.
  EXPECT_DOUBLE_EQ(s.cycles_per_warp, 2 * v100().global + v100().light + v100().expensive);
  EXPECT_EQ(k->warps, 512 * 256 / 32);
  EXPECT_DOUBLE_EQ(k->waves, 1);  // 4096 warps, 80 * 64 of them resident
  EXPECT_DOUBLE_EQ(k->seconds, s.cycles_per_warp / v100().clock_hz);
  EXPECT_DOUBLE_EQ(s.recomputed, 1);
  EXPECT_EQ(s.shared_bytes, 0);
}

TEST(Stitch, ReductionsAreHandedOnWithinTheirScope) {
  const Graph g = graph_of("layernorm");
  for (const Groupings groupings : {Groupings::few, Groupings::each}) {
    const auto k = stitch(g, v100(), whole(g), {.groupings = groupings, .written = false});
    ASSERT_TRUE(k.ok()) << k.reason();
    const Stitched& s = k->parts.front();
    EXPECT_EQ(s.component.rows, LoopSet(LoopId(0)));
    EXPECT_GE(s.groups.size(), 3u);
    for (const Group& sub_root : s.groups) {
      if (!sub_root.sub_root || sub_root.scheme == Scheme::block) continue;
      for (const Group& reader : s.groups) {
        const bool reads = std::ranges::any_of(g.edges(), [&](const Edge& e) {
          return e.from == sub_root.root && std::ranges::binary_search(reader.vertices, e.to);
        });
        if (reads) {
          EXPECT_EQ(reader.scheme, sub_root.scheme);
        }
      }
    }
    EXPECT_GT(s.recomputed, 1);  // sub is computed for the variance and again for the result
  }
}

/// Eight groups: more combinations of schemes than are tried; more are than those with all roots alike
/// and all sub-roots alike, of which there are nine for each of four numbers of threads.
TEST(Stitch, ManyGroupsAreSearchedByABeam) {
  std::string operators = "  - t0[r,c] = x[r,c] * 2\n";
  std::string sum = "t0[r,c]";
  for (int i = 0; i < 7; ++i) {
    const std::string n = std::to_string(i);
    operators += "  - s" + n + "[r] += " + (i % 2 == 0 ? "x[r,c]" : "z[r]") +
                 (i % 2 == 0 ? "\n" : " * x[r,c]\n");
    sum += " + s" + n + "[r]";
  }
  const Graph g = graph_from(operators + "  - y[r,c] = " + sum + "\n");
  const auto beam = stitch(g, v100(), whole(g), {.written = false});
  ASSERT_TRUE(beam.ok()) << beam.reason();
  ASSERT_EQ(beam->parts.front().groups.size(), 8u);
  EXPECT_GT(beam->schedules, 4 * 9);
}

TEST(Stitch, WideRowsTakeWholeBlocks) {
  // 64 rows of 64 Ki: one row a warp would leave the GPU empty.
  const Graph g = graph_of("softmax:rows=64,cols=65536");
  const auto k = stitch(g, v100(), whole(g), {.written = false});
  ASSERT_TRUE(k.ok()) << k.reason();
  for (const Group& group : k->parts.front().groups) EXPECT_EQ(group.scheme, Scheme::block);
  EXPECT_LE(k->parts.front().shared_bytes, k->parts.front().shared_unshared_bytes);
}

TEST(Stitch, MoreOccupancyIsNeverSlower) {
  Device small = v100();
  small.shared_per_sm /= 8;
  small.registers_per_sm /= 4;
  for (const char* name : {"layernorm", "softmax", "residual-layernorm", "groupnorm"}) {
    const Graph g = graph_of(name);
    const stitching::Options of_paper{.written = false};
    const auto large = stitch(g, v100(), whole(g), of_paper);
    const auto less = stitch(g, small, whole(g), of_paper);
    ASSERT_TRUE(large.ok() && less.ok()) << name;
    EXPECT_LE(large->cycles, less->cycles) << name;
  }
}

/// What one kernel moves is what it must: each output once, nothing made on the way, and of the
/// inputs those once that every block has its own part of.
void expect_compulsory(const Schedule& s, const Stitched& part) {
  const Workload& w = *s.workload;
  const ScheduledKernel& kernel = s.kernels.front();
  const Traffic t = exact(s);
  const LoopSet rows = part.component.rows;
  Bytes added;
  for (const TrafficEntry& e : t.entries) {
    SCOPED_TRACE(e.tensor);
    const TensorId id = *w.find_tensor(e.tensor);
    EXPECT_TRUE(w.is_input(id) || w.is_output(id));
    const Bytes whole = w.tensor(id).bytes();
    if (w.is_output(id)) {
      EXPECT_EQ(e.read, Bytes(0));
      // What blocks add to is zeroed first.
      if (e.written != whole) added += e.written - whole;
      continue;
    }
    // What is looked up is read where it lies, a point at a time, whatever else is read of the
    // tensor.
    Bytes looked_up;
    for (OpId reader : w.consumers(id))
      for (std::size_t i = 0; i < w.op(reader).inputs.size(); ++i)
        if (const Access& a = w.op(reader).inputs[i]; a.tensor == id && is_gather(a))
          looked_up += Bytes(
              gathered_elements(s, kernel, reader, static_cast<int>(i), whole_ranges(s, kernel)) *
              size_of(w.tensor(id).dtype));
    for (OpId reader : w.consumers(id))
      for (const Access& a : w.op(reader).inputs) {
        if (a.tensor != id || is_gather(a)) continue;
        LoopSet indexed;
        for (const Affine& index : a.index)
          for (const Term& term : index.terms) indexed |= LoopSet(term.loop);
        if ((rows & ~indexed).empty()) {
          EXPECT_EQ(e.read, whole + looked_up);
        }
      }
  }
  EXPECT_EQ(added, Bytes(part.added_bytes));
}

std::int64_t moved(const Schedule& s) {
  const Traffic t = exact(s);
  EXPECT_TRUE(t.unavailable.empty());
  const TrafficEntry all = t.total("DRAM/L1");
  return (all.read + all.written).value;
}

TEST(StitchedPlans, AreCountedByExact) {
  const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:256K"));
  int kernels = 0;
  for (const std::string& name : testing::kSmallGraphs) {
    SCOPED_TRACE(name);
    const auto w = workload(name);
    const Graph g = *Graph::create(w);
    Evaluator e(g, v100(), {});
    const FusionPlan fused = explore(e).plans.front();
    int single = 0;
    const auto bytes = [&](const FusionPlan& p) -> std::int64_t {
      const auto priced = price(g, v100(), p, {});
      EXPECT_TRUE(priced.ok()) << priced.reason();
      const auto s = resolve(plan_of(g, *priced), w, machine);
      EXPECT_TRUE(s.ok()) << s.reason();
      if (!s) return 0;
      EXPECT_FALSE(misfit(*s).has_value());
      if (priced->kernels.size() == 1 && priced->kernels.front().parts.size() == 1) {
        ++single;
        expect_compulsory(*s, priced->kernels.front().parts.front());
      }
      return moved(*s);
    };
    const std::int64_t one = bytes(fused), each = bytes({});
    // Where no operator reads another's result, a pack saves launches, and its parts read what they
    // share each.
    if (testing::has_intermediates(*w))
      EXPECT_LT(one, each);
    else
      EXPECT_EQ(one, each);
    EXPECT_GE(one, w->compulsory_bytes().value);
    EXPECT_LT(kernels_of(g, fused), g.size());
    kernels += single;
  }
  EXPECT_GE(kernels, 8);  // of these workloads become one kernel
}

TEST(StitchedPlans, RandomGraphsResolve) {
  const auto machine = std::make_shared<const Machine>(named_machine("scratchpad:1M"));
  for (int seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto w = workload("random-graph:vertices=9,rows=12,cols=10,seed=" + std::to_string(seed));
    const Graph g = *Graph::create(w);
    Evaluator e(g, v100(), {});
    for (const FusionPlan& p : explore(e).plans) {
      const auto priced = price(g, v100(), p, {});
      ASSERT_TRUE(priced.ok()) << priced.reason();
      const auto s = resolve(plan_of(g, *priced), w, machine);
      ASSERT_TRUE(s.ok()) << s.reason();
      EXPECT_GE(moved(*s), w->compulsory_bytes().value);
    }
  }
}

}  // namespace
}  // namespace tilewright::fusionstitching
