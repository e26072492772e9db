// XLA's priority fusion: priorities by hand, their bookkeeping against none, what its plans
// compute.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "core/workload/workload_file.h"
#include "harness/ask.h"
#include "harness/verbs.h"
#include "models/xlapriority/xlapriority.h"
#include "tests/support/small_graphs.h"

namespace tilewright {
namespace {

using xlapriority::Bookkeeping;
using xlapriority::Costs;
using xlapriority::Fused;
using xlapriority::Step;

struct Subject {
  stitching::Graph graph;
  stitching::Device device;
  xlapriority::Options options;
  Costs costs;
  explicit Subject(const Workload& w, xlapriority::Options o = {})
      : graph(stitching::Graph::create(std::make_shared<const Workload>(w)).value()),
        device(stitching::device_of(named_machine("h200")).value()),
        options(o),
        costs(graph, xlapriority::gpu_of(device), options) {}
};

Workload made(const std::string& loops, const std::string& operators) {
  return workload_from_yaml("name: w\nloops: {" + loops + "}\noperators:\n" + operators, "w");
}

/// 2^20 elements: 4 MiB that are read and written, 4.8 TB/s, 1 us a launch; computing hides but for
/// its 5 %. An add is 7 cycles an element of 132 SMs' 128 units that do 2 a clock at 1.83 GHz.
TEST(XlaPriority, TimesByHand) {
  const Subject s(made("i: 1048576", "  - 'a: a[i] = x[i] + y[i]'\n  - 'b: b[i] = a[i] + y[i]'\n"));
  const double bytes = 4.0 * 1048576 / 4.8e12, add = 7.0 * 1048576 / (132 * 128 * 2 * 1.83e9);
  const auto both = [](double compute, double memory) { return memory + 0.05 * compute; };
  const auto a = s.costs.fusion({0}, {0}), b = s.costs.fusion({1}, {1});
  EXPECT_NEAR(a.seconds, both(add, 3 * bytes), 1e-12);
  // y is read once by both: at the same points.
  const double fused = both(2 * add, 3 * bytes);
  EXPECT_NEAR(s.costs.fused_seconds(a, b), fused, 1e-12);
  const Fused found = xlapriority::fuse(s.costs, s.options);
  ASSERT_EQ(found.steps.size(), 1u);
  EXPECT_EQ(found.steps[0].producer, "a");
  EXPECT_NEAR(found.steps[0].unfused, 2e-6 + 2 * both(add, 3 * bytes), 1e-12);
  EXPECT_NEAR(found.steps[0].fused, 1e-6 + fused, 1e-12);
}

/// The larger tensor first; a producer of two readers is computed in both.
TEST(XlaPriority, TheMostSavedGoesFirst) {
  const Subject s(made("i: 1048576, r: 4096",
                       "  - 'small: s[r] = p[r] + 1'\n  - 'last: t[r] = s[r] * 2'\n"
                       "  - 'large: l[i] = x[i] + 1'\n  - 'one: u[i] = l[i] * 2'\n"
                       "  - 'two: v[i] = l[i] * 3'\n"));
  xlapriority::Options alone = s.options;
  alone.multi_output = false;
  const Fused found = xlapriority::fuse(s.costs, alone);
  ASSERT_GE(found.steps.size(), 2u);
  EXPECT_EQ(found.steps[0].producer, "large");
  EXPECT_EQ(found.steps[0].consumers, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(found.steps[1].producer, "small");
  EXPECT_EQ(found.kernels.size(), 3u);
  alone.duplicate = false;
  EXPECT_EQ(xlapriority::fuse(s.costs, alone).kernels.size(), 4u);
}

TEST(XlaPriority, ReductionsAreNotFusedIntoEachOther) {
  const Subject s(named_workload("softmax:rows=4096,cols=1024"));
  for (const auto& f : xlapriority::fuse(s.costs, s.options).kernels) {
    int sums = 0;
    for (int v : f.ops) sums += s.graph.vertex(v).reduced.empty() ? 0 : 1;
    EXPECT_LE(sums, 1);
  }
}

/// Keeping times by pair comes to the priorities of computing all anew, and twice to the same.
TEST(XlaPriority, BookkeepingIsThatOfNone) {
  for (int seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    const Subject s(
        named_workload("random-graph:vertices=14,rows=512,cols=1024,seed=" + std::to_string(seed)));
    const Fused kept = xlapriority::fuse(s.costs, s.options);
    const Fused again = xlapriority::fuse(s.costs, s.options);
    const Fused anew = xlapriority::fuse(s.costs, s.options, Bookkeeping::anew);
    for (const Fused* other : {&again, &anew}) {
      ASSERT_EQ(kept.steps.size(), other->steps.size());
      for (std::size_t i = 0; i < kept.steps.size(); ++i) {
        EXPECT_EQ(kept.steps[i].producer, other->steps[i].producer);
        EXPECT_EQ(kept.steps[i].consumers, other->steps[i].consumers);
        EXPECT_EQ(kept.steps[i].made, other->steps[i].made);
        EXPECT_DOUBLE_EQ(kept.steps[i].fused, other->steps[i].fused);
        EXPECT_DOUBLE_EQ(kept.steps[i].unfused, other->steps[i].unfused);
      }
    }
    // Every operator is computed, and what leaves a kernel is given by one.
    std::vector<int> held(static_cast<std::size_t>(s.graph.size())), given(held);
    for (const auto& f : kept.kernels) {
      for (int v : f.ops) ++held[static_cast<std::size_t>(v)];
      for (int v : f.gives) ++given[static_cast<std::size_t>(v)];
    }
    for (std::size_t v = 0; v < held.size(); ++v) {
      EXPECT_GE(held[v], 1);
      EXPECT_LE(given[v], 1);
    }
  }
}

void expect_verified(const std::string& subject) {
  SCOPED_TRACE(subject);
  harness::Request r;
  r.subject = subject;
  r.machine = "h200";
  r.model = "xla-priority";
  const auto a = harness::run(r, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
  EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
}

TEST(XlaPriority, BuiltInGraphsAreVerified) {
  for (const std::string& name : testing::kSmallGraphs) expect_verified(name);
}

/// TILEWRIGHT_CASES and TILEWRIGHT_SEED ask for others.
TEST(XlaPriority, DrawnGraphsAreVerified) {
  const auto number = [](const char* name, int standard) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : standard;
  };
  const int first = number("TILEWRIGHT_SEED", 31), cases = number("TILEWRIGHT_CASES", 8);
  for (int seed = first; seed < first + cases; ++seed)
    expect_verified("random-graph:vertices=10,rows=22,cols=37,seed=" + std::to_string(seed) +
                    (seed % 3 == 0 ? ",indices=1" : ""));
}

}  // namespace
}  // namespace tilewright
