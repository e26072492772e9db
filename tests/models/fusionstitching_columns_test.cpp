// Sums along rows beside sums within a row, in one kernel: which parts have them, what their trees
// are, and what their blocks add.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/fusionstitching/model.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/column_roots.h"
#include "tests/support/fusionstitching_graphs.h"

namespace tilewright::fusionstitching {
namespace {

using Names = std::set<std::string>;
struct Found {
  std::size_t parts = 0;  ///< 0: it cannot be one kernel
  Names rows, partial;    ///< of the first part
  friend bool operator==(const Found&, const Found&) = default;
};
std::ostream& operator<<(std::ostream& out, const Found& f) {
  out << f.parts << " parts, rows";
  for (const std::string& n : f.rows) out << " " << n;
  out << ", partial";
  for (const std::string& n : f.partial) out << " " << n;
  return out;
}
Found found(const Graph& g) {
  const auto parts = components_of(g, whole(g), 64);
  if (!parts) return {};
  Found f{.parts = parts->size()};
  const Workload& w = g.workload();
  for (std::size_t l = 0; l < w.loops().size(); ++l)
    if (parts->front().rows.has(l)) f.rows.insert(w.loops()[l].name);
  for (int v : parts->front().partial) f.partial.insert(w.op(g.vertex(v).op).name);
  return f;
}
Found found(const std::string& loops, const std::string& operators) {
  return found(graph_from("loops: {" + loops + "}\noperators:\n" + operators));
}

TEST(PartialSums, StandBesideSumsThatAreRead) {
  // dbias reads dy, as the others do, and nothing that they make: it is joined to them.
  const Graph g = graph_of("layernorm-backward:rows=4096,cols=768");
  EXPECT_EQ(found(g), (Found{1, {"r"}, {"dgain", "dbias"}}));
  // Rows of two loops, of which a sum goes along one; and along both.
  EXPECT_EQ(found("n: 64, r: 64, c: 40",
                  "  - s: s[n,r] += x[n,r,c]\n"
                  "  - y: y[n,r,c] = x[n,r,c] - s[n,r]\n"
                  "  - g: g[n,c] += y[n,r,c]\n"),
            (Found{1, {"n", "r"}, {"g"}}));
  EXPECT_EQ(found("n: 64, r: 64, c: 40",
                  "  - s: s[n,r] += x[n,r,c]\n"
                  "  - y: y[n,r,c] = x[n,r,c] - s[n,r]\n"
                  "  - g: g[c] += y[n,r,c]\n"),
            (Found{1, {"n", "r"}, {"g"}}));
  // Enough columns to fill a GPU: nothing needs to be added.
  EXPECT_EQ(found("n: 640, r: 64, c: 40",
                  "  - s: s[n,r] += x[n,r,c]\n"
                  "  - y: y[n,r,c] = x[n,r,c] - s[n,r]\n"
                  "  - g: g[n,c] += y[n,r,c]\n"),
            (Found{1, {"n"}, {}}));
}

TEST(PartialSums, OfTwoKindsTheOneAlongRowsIsAdded) {
  EXPECT_EQ(found("r: 900, c: 700",
                  "  - y: y[r,c] = exp(x[r,c])\n  - a: a[r] += y[r,c]\n"
                  "  - b: b[c] += y[r,c]\n"),
            (Found{1, {"r"}, {"b"}}));
  EXPECT_EQ(found("r: 900, c: 700", "  - y: y[r,c] = exp(x[r,c])\n  - a: a[] += y[r,c]\n"),
            (Found{1, {"r"}, {"a"}}));
}

TEST(PartialSums, AreNoOthers) {
  const std::string rows = "  - s: s[r] += x[r,c]\n  - y: y[r,c] = x[r,c] - s[r]\n";
  // Read in the kernel; a maximum; of halves, which each addition would round; of one point's rows.
  EXPECT_EQ(
      found("r: 900, c: 700", rows + "  - g: g[c] += y[r,c]\n  - z: z[r,c] = y[r,c] * g[c]\n"),
      Found{});
  EXPECT_EQ(found("r: 900, c: 700", rows + "  - g: g[c] max= y[r,c]\n"), Found{});
  EXPECT_EQ(found(graph_from("dtype: f16\nloops: {r: 900, c: 700}\noperators:\n" + rows +
                             "  - g: g[c] += y[r,c]\n")),
            Found{});
  // Few of them are one block's.
  EXPECT_EQ(found("i: 5000", "  - y: y[i] = exp(x[i])\n  - a: a[] += y[i]\n"), (Found{1, {}, {}}));
  // A maximum of columns keeps blocks from rows, and along columns neighbours lie far apart.
  EXPECT_EQ(found("r: 900, c: 700",
                  "  - y: y[r,c] = exp(x[r,c])\n  - a: a[r] += y[r,c]\n  - b: b[c] max= y[r,c]\n"),
            Found{});
  // Sums along one loop each: no run of rows makes both.
  EXPECT_EQ(found("n: 64, r: 64, c: 40",
                  "  - s: s[n,r] += x[n,r,c]\n"
                  "  - y: y[n,r,c] = x[n,r,c] - s[n,r]\n"
                  "  - g: g[n,c] += y[n,r,c]\n  - h: h[r,c] += y[n,r,c]\n"),
            Found{});
}

/// Sums, and the largest, of all points: whichever threads have them.
TEST(PartialSums, OfAllPointsAreOfAnyBlocks) {
  const std::string all = "  - y: y[i] = exp(x[i])\n  - a: a[] += y[i]\n";
  EXPECT_EQ(found("i: 50000", all), (Found{1, {"i"}, {"a"}}));
  EXPECT_EQ(found("i: 50000", all + "  - b: b[] max= y[i]\n"), (Found{1, {"i"}, {"a", "b"}}));
  // What all of them make is known when all have ended.
  EXPECT_EQ(found("i: 50000", all + "  - z: z[i] = y[i] * a[]\n"), Found{});
  EXPECT_EQ(found("i: 50000, c: 3", "  - y: y[i] = exp(x[i])\n  - a: a[c] += y[i] * m[c]\n"),
            Found{});
  // Numbers alone are one thread's.
  EXPECT_EQ(found("i: 1", "  - b: b[] += s[i]\n  - c: c[] = b[] + t[]\n"), (Found{1, {}, {}}));
}

std::set<std::string> trees_of(const Graph& g) {
  std::set<std::string> all;
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {}))
    if (k.parts.size() == 1)
      all.insert(to_text(bound_tree(g, device(), k.parts.front(), k.threads)->tree));
  return all;
}

TEST(PartialSums, OfAllPointsGoAlongThem) {
  const Graph g = graph_from(
      "loops: {i: 65536}\noperators:\n  - y: y[i] = exp(x[i])\n  - a: a[] += y[i]\n"
      "  - b: b[] += square(x[i])\n");
  EXPECT_THAT(trees_of(g),
              ::testing::Contains("i/16384@grid ( i/1024@warp i/4@lane ( C.y C.a C.b ) "
                                  "S.a!atomic S.b!atomic )"));
  // Rows of 13: warps take as many as their lanes have room for.
  const Graph rows = graph_from(
      "loops: {r: 2048, c: 13}\noperators:\n  - y: y[r,c] = exp(x[r,c])\n  - a: a[] += y[r,c]\n");
  EXPECT_THAT(trees_of(rows),
              ::testing::Contains("r/64@grid ( r/8@warp r/2 r/1@lane c/1@lane ( C.y "
                                  "C.a ) S.a!atomic )"));
  // Two that read the same are one part, whose loop reads it once.
  const Graph two =
      graph_from("loops: {i: 65536}\noperators:\n  - a: a[] += x[i]\n  - b: b[] += square(x[i])\n");
  EXPECT_THAT(trees_of(two), ::testing::Contains("i/16384@grid ( i/1024@warp i/4@lane ( C.a C.b ) "
                                                 "S.a!atomic S.b!atomic )"));
}

/// A thread has a point's window; lanes go along its row, warps over rows.
TEST(Windows, AreReadByEachThread) {
  const Graph g = graph_from(
      "loops: {n: 4, i: 32, j: 32, a: 3, b: 3}\ntensors: {x: [n, 34, 34]}\noperators:\n"
      "  - s: s[n,i,j] += x[n,i+a,j+b]\n  - y: y[n,i,j] = s[n,i,j] / 9\n");
  EXPECT_THAT(trees_of(g),
              ::testing::Contains("n/1@grid i/8@grid i/1@warp j/1@lane ( a/1 b/1 ( C.s ) "
                                  "C.y )"));
}

std::string tree_of(const Graph& g, Scheme scheme, std::int64_t threads, std::int64_t in_turn) {
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const Stitched& s = k.parts.front();
    if (k.threads == threads && s.vector == 4 && s.groups.front().scheme == scheme &&
        s.rows_in_turn == in_turn)
      return to_text(bound_tree(g, device(), s, threads)->tree);
  }
  return "none";
}

TEST(PartialSums, AreKeptOverRunsOfRows) {
  const Graph g = graph_of("layernorm-backward:rows=4096,cols=768");
  const std::string first =
      "( C.scaled C.sum1 C.centred C.normal C.along C.sum2 C.weighted C.dgain C.dbias )";
  EXPECT_EQ(tree_of(g, Scheme::block, 192, 16),
            "r/16@grid ( L.mean@shared L.rstd@shared L.gain@registers r/1 ( c/4@thread " + first +
                " Y.block c/4@thread ( C.dx ) Y.block ) S.dgain!atomic S.dbias!atomic )");
  EXPECT_EQ(tree_of(g, Scheme::warp, 128, 8),
            "r/32@grid ( r/8@warp ( L.gain@registers r/1 ( L.mean@registers L.rstd@registers "
            "c/4@lane " +
                first + " Y.warp c/4@lane ( C.dx ) ) ) S.dgain!atomic S.dbias!atomic )");
  // A row a thread would leave each thread all columns.
  EXPECT_EQ(tree_of(g, Scheme::thread, 128, 8), "none");
}

/// Registers have no room for two such rows: no row's elements are under way while a thread goes
/// through the one before, and what else is a row's comes with them.
TEST(PartialSums, OfLongRowsLoadWhatIsTheRowsOwnWithTheRow) {
  const auto tree = [](int columns) {
    const Graph g =
        graph_from(formatted("loops: {{r: 528, c: {}}}\noperators:\n  - m: m[r] max= x[r,c]\n"
                             "  - e: e[r,c] = exp(x[r,c] - m[r])\n  - s: s[r] += e[r,c]\n"
                             "  - l: l[r] = log(s[r]) * w[r]\n  - t: t[] += l[r]\noutputs: [t]\n",
                             columns));
    return tree_of(g, Scheme::block, 512, 4);
  };
  EXPECT_THAT(tree(8192), ::testing::HasSubstr("r/4@grid ( L.w@shared r/1 ( L.x@registers c/"));
  EXPECT_THAT(tree(28672), ::testing::HasSubstr("r/4@grid ( r/1 ( L.x@registers L.w@registers c/"));
}

/// By hand: 4096 rows in runs of 16 are 256 blocks, each of which adds two rows of 768 floats.
TEST(PartialSums, AreCountedWhereBlocksAddThem) {
  const Graph g = graph_of("layernorm-backward:rows=4096,cols=768");
  bool seen = false;
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const Stitched& s = k.parts.front();
    if (s.rows_per_block != 16) continue;
    EXPECT_EQ(s.blocks, 256);
    EXPECT_EQ(s.added_bytes, 256 * 2 * 768 * 4);
    seen = true;
  }
  EXPECT_TRUE(seen);
  Device two;
  two.sms = 2;
  two.clock_hz = 1e9;
  EXPECT_DOUBLE_EQ(added_seconds(two, Bytes(800)), 100e-9);
}

/// Fewer bytes cross, so that it is chosen; where sums are long beside what is saved, it is not.
TEST(PartialSums, AreChosenWhereTheySaveMore) {
  const auto kernels = [](const std::string& name) {
    const Graph g = graph_of(name);
    Options with_bandwidth;
    with_bandwidth.bandwidth = true;
    Evaluator e(g, device(), with_bandwidth);
    double least = 0;
    std::size_t kernels = 0;
    for (const FusionPlan& p : explore(e).plans) {
      const auto priced = price(g, device(), p, with_bandwidth);
      if (!priced || (kernels != 0 && priced->seconds >= least)) continue;
      least = priced->seconds;
      kernels = priced->kernels.size();
    }
    return kernels;
  };
  EXPECT_EQ(kernels("layernorm-backward:rows=4096,cols=768"), 1u);
  EXPECT_EQ(kernels("layernorm-backward:rows=32768,cols=1024"), 1u);
}

// ---- Columns whose sums are handed on -----------------------------------------------------------

/// A block reads several neighbouring columns whole, once, and keeps them.
TEST(Columns, ABlockTakesSeveral) {
  const Graph g = graph_of("column-norm:rows=2048,cols=1536");
  std::set<std::int64_t> widths;
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const Stitched& s = k.parts.front();
    if (s.component.along < 0) continue;
    widths.insert(s.component.columns);
    EXPECT_EQ(s.blocks, 1536 / s.component.columns);
  }
  EXPECT_THAT(widths, ::testing::IsSupersetOf({8, 16}));
  const auto best = stitch(g, device(), whole(g), {});
  ASSERT_TRUE(best.ok()) << best.reason();
  EXPECT_GE(best->parts.front().component.columns, 8);
  // The paper's own schedules have whole rows.
  const auto paper = stitch(g, device(), whole(g), {.written = false});
  ASSERT_TRUE(paper.ok()) << paper.reason();
  EXPECT_LT(paper->parts.front().component.along, 0);
}

TEST(Columns, ThatNothingReadsStayAlone) {
  for (const char* name :
       {"layernorm:rows=512,cols=512", "layernorm-backward:rows=4096,cols=768"}) {
    const Graph g = graph_of(name);
    for (const auto& parts : packings_of(g, whole(g), 64))
      for (const Component& c : parts) EXPECT_LT(c.along, 0) << name;
  }
}

/// Sums too long for a block to keep their columns: in chunks, x is read twice instead of three
/// times, by two kernels, the chunks' sums and squares one of them.
TEST(Columns, LongOnesAreSplitIntoChunks) {
  const auto w =
      std::make_shared<const Workload>(named_workload("column-norm:rows=8192,cols=4096"));
  const auto others = compositions(*w);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others.front().rewrites, std::vector<std::string>{"split-variance"});
  EXPECT_EQ(compositions(named_workload("column-norm:rows=2213,cols=4095")).size(), 1u);
  EXPECT_TRUE(compositions(named_workload("column-norm:rows=1024,cols=4096")).empty());
  EXPECT_TRUE(compositions(named_workload("layernorm:rows=512,cols=4096")).empty());
  const Graph g = Graph::create(others.front().workload).value();
  const stitching::Options options;
  Known known;
  const PlanPrice alone = price(g, device(), std::vector<Pattern>{}, options, &known).value();
  const auto plan = joined(g, device(), options, alone, known);
  ASSERT_TRUE(plan.has_value());
  const PlanPrice fewer = price(g, device(), *plan, options, &known).value();
  EXPECT_LT(fewer.kernels.size(), alone.kernels.size());
  EXPECT_LT(compared_seconds({g, device(), fewer}), compared_seconds({g, device(), alone}));
  // Nothing is left to join.
  EXPECT_FALSE(joined(g, device(), options, fewer, known).has_value());
}

/// Two kernels that read the same rows wait for each other through a third: all three become one.
TEST(Columns, SumsAreJoinedWithWhatLiesBetween) {
  const auto w =
      std::make_shared<const Workload>(named_workload("column-norm:rows=8192,cols=4096"));
  for (const char* machine : {"h100", "h200"}) {
    const auto plan = stitched(w, named_machine(machine), {});
    ASSERT_TRUE(plan.ok()) << plan.reason();
    ASSERT_EQ(plan->price().patterns.size(), 3u) << machine;
    std::set<std::string> names;
    for (int v : plan->price().patterns.front())
      names.insert(plan->graph.workload().op(plan->graph.vertex(v).op).name);
    EXPECT_EQ(names, (std::set<std::string>{"sum_part", "sum_mean", "varsum_part"})) << machine;
  }
}

}  // namespace
}  // namespace tilewright::fusionstitching
