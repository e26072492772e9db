// TorchInductor's scheduler: what it writes to memory and in which order it fuses, by hand; every
// decision's consequences on drawn graphs; what its plans compute.
#include "models/inductor/inductor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "core/machine/machine.h"
#include "core/workload/workload_file.h"
#include "harness/ask.h"
#include "harness/verbs.h"
#include "tests/support/small_graphs.h"

namespace tilewright {
namespace {

using inductor::Fused;
using inductor::Nest;
using inductor::Options;

struct Subject {
  stitching::Graph graph;
  stitching::Device device = stitching::device_of(named_machine("h200")).value();
  Options options;
  explicit Subject(const Workload& w, Options o = {})
      : graph(stitching::Graph::create(std::make_shared<const Workload>(w)).value()), options(o) {}

  std::vector<std::string> names(std::span<const int> vertices) const {
    std::vector<std::string> out;
    for (int v : vertices) out.push_back(graph.workload().op(graph.vertex(v).op).name);
    return out;
  }
  /// The values that are written, before anything is fused.
  std::vector<std::string> written() const {
    std::vector<int> out;
    for (const Nest& n : inductor::nests_of(graph, device, options))
      out.insert(out.end(), n.gives.begin(), n.gives.end());
    return names(out);
  }
  /// Operators of each kernel, "a b".
  std::vector<std::string> kernels() const {
    std::vector<std::string> out;
    for (const Nest& n : inductor::fuse(graph, device, options).kernels) {
      out.emplace_back();
      for (const std::string& name : names(n.ops))
        out.back() += (out.back().empty() ? "" : " ") + name;
    }
    return out;
  }
};

Workload made(const std::string& loops, const std::vector<std::string>& operators) {
  std::string text = "name: w\nloops: {" + loops + "}\noperators:\n";
  for (const std::string& o : operators) text += "  - '" + o + "'\n";
  return workload_from_yaml(text, "w");
}
using Names = std::vector<std::string>;

TEST(Inductor, SumsAreWrittenAndElementsComputedAgain) {
  const Subject s(named_workload("softmax:rows=4096,cols=768"));
  EXPECT_EQ(s.written(), (Names{"rowmax", "rowsum", "divide"}));
  const auto nests = inductor::nests_of(s.graph, s.device, s.options);
  EXPECT_EQ(s.names(nests[1].ops), (Names{"exp", "rowsum"}));
  EXPECT_EQ(s.names(nests[2].ops), (Names{"exp", "divide"}));
  // x is read in one order by both, and the maxima are what the first one writes.
  EXPECT_EQ(inductor::score_of(nests[0], nests[1]).bytes, 4 * (4096 * 768 + 4096));
  EXPECT_EQ(s.kernels(), (Names{"rowmax exp rowsum divide"}));
}

/// Five tensors are one too many for a value that two read, and not for one that one reads; nine
/// are.
TEST(Inductor, ValuesThatReadMuchAreWritten) {
  const std::string five = "a: a[i] = p[i] + q[i] + s[i] + t[i] + u[i]";
  const std::string nine = "a: a[i] = p[i] + q[i] + s[i] + t[i] + u[i] + v[i] + x[i] + y[i] + z[i]";
  const std::string one = "b: b[i] = a[i] * 2", two = "c: c[i] = a[i] * 3";
  EXPECT_EQ(Subject(made("i: 4096", {five, one})).written(), (Names{"b"}));
  EXPECT_EQ(Subject(made("i: 4096", {five, one, two})).written(), (Names{"a", "b", "c"}));
  EXPECT_EQ(Subject(made("i: 4096", {nine, one})).written(), (Names{"a", "b"}));
  EXPECT_EQ(Subject(made("i: 4096", {five, one, two}), {.reads = 5}).written(), (Names{"b", "c"}));
}

TEST(Inductor, LongExpressionsAreWritten) {
  std::string chain = "x[i]";
  for (int i = 0; i < 30; ++i) chain = "tanh(" + chain + ")";
  const std::string last = "b: b[i] = a[i] * 2";
  EXPECT_EQ(Subject(made("i: 4096", {"a: a[i] = " + chain, last})).written(), (Names{"a", "b"}));
  EXPECT_EQ(Subject(made("i: 4096", {"a: a[i] = tanh(x[i])", last})).written(), (Names{"b"}));
}

TEST(Inductor, ShortSumsAreWrittenOut) {
  const auto sum = [](int terms) {
    return made("r: 4096, c: " + std::to_string(terms),
                {"sum: z[r] += x[r,c]", "half: y[r] = z[r] * 0.5"});
  };
  EXPECT_EQ(Subject(sum(8)).written(), (Names{"half"}));
  EXPECT_EQ(Subject(sum(9)).written(), (Names{"sum", "half"}));
}

/// A sum over rows and one over columns have other sizes; loops of the same points in another order
/// share nothing until the last round.
TEST(Inductor, SizesAndOrdersHaveToMatch) {
  EXPECT_EQ(
      Subject(made("r: 512, c: 256", {"rows: a[r] += x[r,c]", "cols: b[c] += x[r,c]"})).kernels(),
      (Names{"rows", "cols"}));
  const Workload across = made("r: 512, c: 256", {"straight: a[r,c] = x[r,c] * y[r,c] + z[r,c]",
                                                  "across: b[c,r] = x[r,c] * u[c,r] + v[c,r]"});
  EXPECT_EQ(Subject(across).kernels(), (Names{"straight across"}));
  EXPECT_EQ(Subject(across, {.reorder = false}).kernels().size(), 2u);
}

/// Kernels of one element, which share what they read, have no loops to be put into another order.
TEST(Inductor, SingleElementsHaveNoOrder) {
  const Workload w = made("i: 3", {"s: s[] += x[i]", "a: a[] = s[] + c[]",
                                   "b: b[] = exp(a[] - c[])", "y: y[i] = x[i] * b[] + a[]"});
  EXPECT_FALSE(Subject(w).kernels().empty());
}

/// 264 sums down 528 rows, of four rows a thread and 32 elements: five parts. From 132 * 64 sums on
/// the device is full with one.
TEST(Inductor, FewSumsDownColumnsAreTakenInParts) {
  const auto parts = [](int rows, int cols, const std::string& sum) {
    const Subject s(made("r: " + std::to_string(rows) + ", c: " + std::to_string(cols), {sum}));
    return inductor::nests_of(s.graph, s.device, s.options).front().parts;
  };
  EXPECT_EQ(parts(528, 264, "s: a[c] += x[r,c]"), 5);
  EXPECT_EQ(parts(528, 8448, "s: a[c] += x[r,c]"), 1);
  EXPECT_EQ(parts(32, 264, "s: a[c] += x[r,c]"), 1);
  EXPECT_EQ(parts(264, 528, "s: a[r] += x[r,c]"), 1);
  // One long sum: 32 elements a thread, 256 threads a block.
  EXPECT_EQ(parts(1, 1 << 20, "s: a[r] += x[r,c]"), 128);
  // A vector along columns says nothing of how the matrix is read.
  EXPECT_EQ(parts(528, 264, "s: a[c] += x[r,c] * y[r]"), 5);
}

/// `last` waits for `middle`, a product, and so `first` and `last` are no kernel though they share
/// x.
TEST(Inductor, NothingWaitsForItself) {
  const Subject s(made("m: 64, n: 64, k: 64",
                       {"first: a[m,k] = x[m,k] + 1", "middle: p[m,n] += a[m,k] * w[k,n]",
                        "last: y[m,n] = p[m,n] * x[m,n]"}));
  EXPECT_EQ(s.kernels(), (Names{"first", "middle", "last"}));
}

/// The pair that shares more bytes goes first: b could go with either.
TEST(Inductor, TheMostBytesGoFirst) {
  const Subject s(made("r: 4096, c: 64", {"rows: a[r] += x[r,c]", "other: b[r,c] = x[r,c] * y[r,c]",
                                          "third: d[r,c] = y[r,c] + z[r,c]"}));
  const Fused f = inductor::fuse(s.graph, s.device, s.options);
  ASSERT_FALSE(f.steps.empty());
  EXPECT_EQ(f.steps[0].first + " " + f.steps[0].second, "other third");
  EXPECT_EQ(f.steps[0].score.bytes, 4 * 4096 * 64);
}

/// Every operator is computed, a written value by one kernel, kernels wait only for earlier ones,
/// and what a kernel reads of the others they give.
TEST(Inductor, KernelsOfDrawnGraphsAreSound) {
  for (int seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const Subject s(named_workload("random-graph:vertices=" + std::to_string(5 + seed) +
                                   ",rows=512,cols=1024,seed=" + std::to_string(seed)));
    const Fused f = inductor::fuse(s.graph, s.device, s.options);
    std::set<int> computed, given;
    for (const Nest& n : f.kernels) {
      for (int v : n.ops)
        for (int e : s.graph.vertex(v).in) {
          const int from = s.graph.edge(e).from;
          EXPECT_TRUE(std::ranges::binary_search(n.ops, from) || given.contains(from));
        }
      computed.insert(n.ops.begin(), n.ops.end());
      for (int v : n.gives) EXPECT_TRUE(given.insert(v).second);
    }
    EXPECT_EQ(computed.size(), static_cast<std::size_t>(s.graph.size()));
    for (int v = 0; v < s.graph.size(); ++v) {
      if (s.graph.vertex(v).leaves) {
        EXPECT_TRUE(given.contains(v));
      }
    }
    // The score counts bytes that are read or written once less: fewer kernels, never more.
    EXPECT_LE(f.kernels.size(), inductor::nests_of(s.graph, s.device, s.options).size());
  }
}

void expect_verified(const std::string& subject) {
  SCOPED_TRACE(subject);
  harness::Request r;
  r.subject = subject;
  r.machine = "h200";
  r.model = "inductor";
  const auto a = harness::run(r, {.target = "cuda-emulated", .seconds = 0.0});
  ASSERT_TRUE(a.ok()) << a.json.dump(1);
  EXPECT_TRUE(a.json.value("verified", false));
  EXPECT_EQ(a.json.at("faults"), 0) << a.json["findings"].dump(1);
}

TEST(Inductor, BuiltInGraphsAreVerified) {
  for (const std::string& name : testing::kSmallGraphs) expect_verified(name);
}

/// TILEWRIGHT_CASES and TILEWRIGHT_SEED ask for others.
TEST(Inductor, DrawnGraphsAreVerified) {
  const auto number = [](const char* name, int standard) {
    const char* text = std::getenv(name);
    return text ? std::atoi(text) : standard;
  };
  const int first = number("TILEWRIGHT_SEED", 71), cases = number("TILEWRIGHT_CASES", 6);
  for (int seed = first; seed < first + cases; ++seed)
    expect_verified("random-graph:vertices=10,rows=22,cols=37,seed=" + std::to_string(seed) +
                    (seed % 3 == 0 ? ",indices=1" : ""));
}

}  // namespace
}  // namespace tilewright
