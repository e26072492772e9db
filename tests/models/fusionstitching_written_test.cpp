// Schedules as trees bound to warps, lanes and threads: are they the trees that the schemes mean,
// are they legal, do exact and a literal walk count the same bytes of them, and none twice?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/part.h"
#include "models/stitching/passes.h"
#include "tests/support/fusionstitching_graphs.h"
#include "tests/support/literal_walker.h"
#include "tests/support/small_graphs.h"

namespace tilewright::fusionstitching {
namespace {

using ::testing::HasSubstr;

/// The tree of the first ranked schedule that is of such a scheme, width and number of threads.
std::string tree_of(const Graph& g, Scheme scheme, std::int64_t vector, std::int64_t threads,
                    std::int64_t splits = 1, std::int64_t turns = 1) {
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const Stitched& s = k.parts.front();
    if (k.threads == threads && s.vector == vector && s.splits == splits && s.turns == turns &&
        s.groups.front().scheme == scheme)
      return to_text(bound_tree(g, device(), s, threads)->tree);
  }
  return "none";
}

TEST(BoundTree, SaysEachScheme) {
  const Graph g = graph_of("layernorm:rows=64,cols=768");
  EXPECT_EQ(tree_of(g, Scheme::warp, 4, 256),
            "r/8@grid r/1@warp ( L.x@registers c/4@lane ( C.sum ) Y.warp C.mean "
            "c/4@lane ( C.sub C.sq C.varsum ) Y.warp C.rstd c/4@lane ( C.norm ) )");
  EXPECT_EQ(tree_of(g, Scheme::block, 4, 192),
            "r/1@grid ( L.x@registers c/4@thread ( C.sum ) Y.block C.mean "
            "c/4@thread ( C.sub C.sq C.varsum ) Y.block C.rstd c/4@thread ( C.norm ) )");
  EXPECT_EQ(tree_of(g, Scheme::block, 4, 64),
            "r/1@grid ( L.x@registers c/384@warp c/4@lane ( C.sum ) Y.block C.mean "
            "c/384@warp c/4@lane ( C.sub C.sq C.varsum ) Y.block C.rstd "
            "c/384@warp c/4@lane ( C.norm ) )");
  // A thousand rows of 768 fit neither the registers of as many threads nor an SM.
  EXPECT_EQ(tree_of(g, Scheme::thread, 1, 1024), "none");
  EXPECT_EQ(tree_of(graph_of("layernorm:rows=64,cols=8"), Scheme::thread, 4, 32),
            "r/32@grid r/1@thread ( L.x@registers c/4 ( C.sum ) C.mean c/4 ( C.sub C.sq C.varsum ) "
            "C.rstd c/4 ( C.norm ) )");
}

TEST(ShareOut, LeavesNothingOutWhateverTheWarps) {
  const Graph g =
      graph_from("loops: {n: 2, c: 250, s: 1000}\noperators:\n  - y[n,c,s] = x[n,c,s] * 2\n");
  const std::vector<int> loops = {1, 2};
  for (Spread spread : {Spread::others, Spread::contiguous})
    for (std::int64_t warps = 1; warps <= 32; ++warps) {
      std::int64_t used = 1;
      for (const LoopShare& s : share_out(g, loops, 2, 4, warps, spread)) {
        EXPECT_GE(s.step * s.warps * s.lanes * s.turns, g.extent(s.loop)) << warps << " warps";
        used *= s.warps;
      }
      EXPECT_LE(used, warps);
    }
}

TEST(BoundTree, ElementsGoToThreadsOrShortRowsToWarps) {
  EXPECT_EQ(tree_of(graph_of("adam:size=100000"), Scheme::thread, 4, 256),
            "i/1024@grid i/4@thread ( C.first C.squared C.second C.mhat C.vhat C.root C.step "
            "C.update )");
  EXPECT_EQ(tree_of(graph_of("gelu:rows=24,cols=40"), Scheme::thread, 4, 256),
            "r/24@grid r/3@warp r/1@lane c/4@lane ( C.biased C.cubic C.tanh C.half C.gelu )");
  // Rows of more than half of a warp's lanes have it alone.
  EXPECT_EQ(tree_of(graph_of("gelu:rows=24,cols=68"), Scheme::thread, 4, 256),
            "r/8@grid r/1@warp c/4@lane ( C.biased C.cubic C.tanh C.half C.gelu )");
  // Several short rows a warp, one after the other, where all warps have as many.
  EXPECT_EQ(tree_of(graph_of("gelu:rows=48,cols=40"), Scheme::thread, 4, 128, 1, 2),
            "r/24@grid r/6@warp r/3 r/1@lane c/4@lane ( C.biased C.cubic C.tanh C.half C.gelu )");
  EXPECT_EQ(tree_of(graph_of("gelu:rows=33,cols=40"), Scheme::thread, 4, 128, 1, 2), "none");
  // What lacks the threads' loop is computed before it.
  EXPECT_EQ(tree_of(graph_from("loops: {r: 64, c: 4096}\noperators:\n  - a[r] = exp(s[r])\n"
                               "  - y[r,c] = x[r,c] * a[r] + t[r]\n"),
                    Scheme::thread, 4, 128),
            "r/1@grid c/512@grid ( L.t@registers C.a c/4@thread ( C.y ) )");
}

/// What is read along one loop and written along another: warps have tiles of both, so that sectors
/// come and go whole.
TEST(BoundTree, TilesOfBothLoopsOfATransposition) {
  const Graph g =
      graph_from("loops: {b: 4, m: 252, n: 520}\noperators:\n  - y[b,n,m] = x[b,m,n]\n");
  int tiles = 0;
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const Stitched& s = k.parts.front();
    if (s.lanes_across == 1 || s.vector * s.across < 16) continue;
    EXPECT_GE(s.demand.sectors * s.demand.blocks * 32, 2.0 * 4 * 4 * 252 * 520);
    ++tiles;
  }
  EXPECT_GT(tiles, 10);
  const StitchedKernel best = ranked(g, device(), whole(g), {}).front();
  EXPECT_GT(best.parts.front().lanes_across, 1);
  const auto crossing = [](const std::string& yaml) {
    const Graph one = graph_from(yaml);
    return crossing_loops(one, components_of(one, whole(one), 64)->front()).other;
  };
  const std::string loops = "loops: {m: 64, n: 64}\noperators:\n  - ";
  EXPECT_GE(crossing(loops + "y[n,m] = x[m,n] + r[n,m]\n"), 0);
  // A row of a bias is no matrix, and neither is an order of rows.
  EXPECT_EQ(crossing(loops + "y[m,n] = x[m,n] + r[m]\n"), -1);
  EXPECT_EQ(crossing("loops: {a: 9, m: 64, n: 64}\noperators:\n  - y[m,a,n] = x[a,m,n]\n"), -1);
}

/// Rows of a few neighbours that go on along one loop where they are read and along another where
/// they are written: warps have tiles of both, so that no sector comes or goes more often than in
/// long rows, but for those that a tile begins and ends in.
TEST(BoundTree, TilesOfShortPiecesOfATransposition) {
  for (const int piece : {3, 6, 10}) {
    const Graph g =
        graph_from("dtype: f16\nloops: {a: 7, m: 208, n: 1768, c: " + std::to_string(piece) +
                   "}\noperators:\n  - y[a,n,m,c] = x[a,m,n,c]\n");
    const Crossing crossing = crossing_loops(g, components_of(g, whole(g), 64)->front());
    EXPECT_TRUE(crossing.pieces);
    EXPECT_NE(crossing.along, crossing.other);
    const StitchedKernel best = ranked(g, device(), whole(g), {}).front();
    const Stitched& s = best.parts.front();
    EXPECT_GT(s.lanes_across, 1) << piece;
    EXPECT_LE(s.demand.sectors * s.demand.blocks * 32, 1.8 * 2.0 * 2 * 7 * 208 * 1768 * piece)
        << piece;
  }
}

TEST(BoundTree, SlicesThatDoNotOverlapStayInRegisters) {
  EXPECT_EQ(tree_of(graph_of("rotary:tokens=8,heads=16,half=64"), Scheme::thread, 2, 128),
            "t/1@grid h/4@grid h/1@warp ( L.x@registers i/2@lane ( C.low C.high ) )");
  // A block has both slices of a long row whole.
  EXPECT_THAT(tree_of(graph_of("rotary:tokens=8,heads=3,half=4096"), Scheme::thread, 4, 128),
              HasSubstr("t/1@grid h/1@grid ( L.x@registers "));
  // What overlaps is brought once.
  EXPECT_THAT(tree_of(graph_from("loops: {r: 64, c: 64}\ntensors: {x: [r, 65]}\noperators:\n"
                                 "  - y[r,c] = x[r,c] + x[r,c+1]\n"),
                      Scheme::thread, 1, 128),
              HasSubstr("L.x@shared"));
}

/// The tree of the first ranked schedule of so many threads that shares rows' loops out like this.
std::string spread_tree(const Graph& g, Spread spread, std::int64_t vector, std::int64_t threads) {
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const Stitched& s = k.parts.front();
    if (k.threads == threads && s.vector == vector && s.spread == spread)
      return to_text(bound_tree(g, device(), s, threads)->tree);
  }
  return "none";
}

TEST(BoundTree, RowsOfSeveralLoopsAreSharedOut) {
  // Sixteen lanes a row of 64, the other sixteen and eight warps along the other loop.
  EXPECT_EQ(
      spread_tree(graph_of("attention-unit:batch=512,items=128,width=64,rows=1000"), Spread::others,
                  4, 256),
      "b/1@grid ( L.ids@registers L.q@registers L.w1@registers L.w2@registers L.seen@registers "
      "t/16@warp t/1@lane d/4@lane ( C.lookup ) t/16@warp t/1@lane d/4@lane ( C.product C.distance "
      "C.mixed C.score ) Y.block t/1@thread ( C.masked C.most ) Y.block t/1@thread ( C.exp C.norm "
      ") "
      "Y.block t/1@thread ( C.share ) Y.block t/16@warp t/1@lane d/4@lane ( C.weighted C.interest "
      ") "
      "S.interest )");
  const Graph norm = graph_of("groupnorm:batch=16,groups=32,channels=8,size=1024");
  EXPECT_THAT(spread_tree(norm, Spread::others, 4, 256),
              HasSubstr("c/1@warp s/4@lane ( C.sum ) Y.block C.mean"));
  EXPECT_THAT(spread_tree(norm, Spread::contiguous, 4, 256),
              HasSubstr("s/128@warp c/1 s/4@lane ( C.sum ) Y.block C.mean"));
  // One loop within a row: there is nothing to share out.
  EXPECT_EQ(spread_tree(graph_of("layernorm:rows=64,cols=768"), Spread::others, 4, 256), "none");
}

TEST(BoundTree, EachProductWalksItsOwnWeights) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: gate\nloops: {n: 16, c: 256, j: 16}\noperators:\n"
                         "  - z[n,j] += mean[n,c] * W1[c,j]\n  - a[n,j] = relu(z[n,j])\n"
                         "  - e[n,c] += a[n,j] * W2[j,c]\n  - g[n,c] = sigmoid(e[n,c])\n",
                         "test"));
  const Graph g = *Graph::create(w, ridge_of(device(), {}));
  const std::string tree = spread_tree(g, Spread::others, 4, 256);
  EXPECT_THAT(tree, HasSubstr("c/32@warp c/1@lane j/4@lane ( C.z )"));
  EXPECT_THAT(tree, HasSubstr("c/4@lane ( C.e )"));
}

TEST(BoundTree, SumsOverRowsAreCutOverBlocks) {
  const Graph g = graph_from(
      "loops: {r: 4096, c: 768}\noperators:\n  - w[r,c] = x[r,c] * s[r]\n  - y[c] += w[r,c]\n");
  EXPECT_EQ(tree_of(g, Scheme::thread, 4, 256, 8),
            "c/128@grid r/512@grid ( r/64@warp c/4@lane r/1 ( C.w C.y ) S.y!atomic )");
  EXPECT_EQ(tree_of(g, Scheme::thread, 4, 256),
            "c/128@grid ( r/512@warp c/4@lane r/1 ( C.w C.y ) S.y )");
  EXPECT_EQ(tree_of(g, Scheme::warp, 4, 256), "none");
  // A maximum is not added up.
  const Graph most = graph_from("loops: {r: 4096, c: 768}\noperators:\n  - y[c] max= x[r,c]\n");
  EXPECT_EQ(tree_of(most, Scheme::thread, 4, 256, 8), "none");
}

TEST(BoundTree, WhatOtherThreadsReadIsShared) {
  // z reads y transposed, within a block's part n.
  const Graph g = graph_from(
      "loops: {n: 8, i: 32, j: 32}\noperators:\n  - y[n,i,j] = exp(x[n,i,j])\n"
      "  - z[n,i,j] = y[n,j,i] + 1\n");
  bool found = false;
  for (const StitchedKernel& k : ranked(g, device(), whole(g), {})) {
    const auto tree = bound_tree(g, device(), k.parts.front(), k.threads);
    ASSERT_TRUE(tree.ok());
    EXPECT_EQ(tree->pins.at("y").level, "shared");
    EXPECT_GE(k.parts.front().shared_bytes, 32 * 32 * 4);
    found = true;
  }
  EXPECT_TRUE(found);
}

/// A kernel a pattern, with these schedules.
WrittenPlan written(const Graph& g, const std::vector<Pattern>& patterns,
                    const std::vector<StitchedKernel>& kernels) {
  PlanPrice p{.kernels = kernels, .patterns = patterns};
  return write_plan(g, device(), p, h200());
}

void expect_counted_alike(const Schedule& s) {
  const Traffic t = exact(s);
  const testing::LiteralWalker literal(s);
  std::int64_t compared = 0;
  for (const auto& [key, bytes] : literal.bytes) {
    const auto& [tensor, boundary, direction] = key;
    if (t.unavailable.contains(boundary)) continue;
    const TrafficEntry e = t.at(tensor, boundary);
    EXPECT_EQ((direction == "read" ? e.read : e.written).value, bytes)
        << tensor << " " << boundary << " " << direction;
    ++compared;
  }
  EXPECT_GT(compared, 0);
  for (const auto& [op, points] : literal.operations) EXPECT_EQ(t.operations.at(op).value, points);
}

/// Nothing that a kernel makes and nobody else needs moves; every operator runs once; outputs are
/// written once, and what every row has its own part of is read once.
void expect_no_byte_twice(const Graph& g, const StitchedKernel& k, const Schedule& s) {
  const Workload& w = g.workload();
  const Traffic t = exact(s);
  Bytes added;
  for (const TrafficEntry& e : t.entries) {
    SCOPED_TRACE(e.tensor);
    const TensorId id = *w.find_tensor(e.tensor);
    if (!e.boundary.starts_with("L2/")) continue;
    EXPECT_TRUE(w.is_input(id) || w.is_output(id));
    if (w.is_output(id)) {
      // What blocks add to is zeroed first.
      if (e.written != w.tensor(id).bytes()) added += e.written - w.tensor(id).bytes();
      EXPECT_EQ(e.read, Bytes(0));
    }
    // What is looked up is read where it lies, a point at a time, whatever else is read of the
    // tensor.
    Bytes looked_up;
    for (OpId reader : s.kernels.front().ops)
      for (std::size_t i = 0; i < w.op(reader).inputs.size(); ++i)
        if (const Access& a = w.op(reader).inputs[i]; a.tensor == id && is_gather(a))
          looked_up += Bytes(gathered_elements(s, s.kernels.front(), reader, static_cast<int>(i),
                                               whole_ranges(s, s.kernels.front())) *
                             size_of(w.tensor(id).dtype));
    for (OpId reader : w.consumers(id))
      for (const Access& a : w.op(reader).inputs) {
        if (is_gather(a)) continue;
        LoopSet indexed;
        for (const Affine& index : a.index)
          for (const Term& term : index.terms) indexed |= LoopSet(term.loop);
        if (a.tensor == id && (k.parts.front().component.rows & ~indexed).empty() &&
            w.is_input(id)) {
          EXPECT_EQ(e.read, w.tensor(id).bytes() + looked_up);
        }
      }
  }
  EXPECT_EQ(added, Bytes(k.parts.front().added_bytes));
}

struct Tally {
  int schedules = 0, whole = 0;
};

/// About `most` schedules of every kernel of the explorer's plans, spread over their ranking.
void check_graph(const std::string& name, std::size_t most, Tally& tally) {
  SCOPED_TRACE(name);
  const Graph g = graph_of(name);
  Evaluator e(g, device(), {});
  for (const FusionPlan& fused : explore(e).plans) {
    const auto price = tilewright::fusionstitching::price(g, device(), fused, {});
    ASSERT_TRUE(price.ok()) << price.reason();
    for (std::size_t k = 0; k < price->patterns.size(); ++k) {
      if (price->kernels[k].parts.empty()) continue;
      const auto all = ranked(g, device(), price->patterns[k], {});
      EXPECT_FALSE(all.empty());
      for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most)) {
        auto kernels = price->kernels;
        kernels[k] = all[i];
        const WrittenPlan plan = written(g, price->patterns, kernels);
        SCOPED_TRACE(to_text(plan.plan.kernels[k].tree));
        EXPECT_EQ(plan.unbound[k], "");
        const auto s = resolve(plan.plan, g.shared_workload(), h200());
        ASSERT_TRUE(s.ok()) << s.reason();
        EXPECT_FALSE(misfit(*s).has_value()) << misfit(*s)->text;
        expect_counted_alike(*s);
        ++tally.schedules;
        if (price->kernels.size() > 1 || all[i].parts.size() > 1 || all[i].parts[0].splits > 1)
          continue;
        ++tally.whole;
        expect_no_byte_twice(g, all[i], *s);
      }
    }
  }
}

TEST(WrittenPlans, OfBuiltInGraphsAreCountedAlike) {
  Tally tally;
  for (const std::string& name : testing::kSmallGraphs) check_graph(name, 3, tally);
  EXPECT_GT(tally.schedules, 60);
  EXPECT_GT(tally.whole, 20);
}

TEST(WrittenPlans, OfOddSizesAreCountedAlike) {
  Tally tally;
  for (const char* name :
       {"layernorm:rows=5,cols=7", "layernorm:rows=1,cols=33", "layernorm:rows=33,cols=1",
        "softmax:rows=3,cols=131", "layernorm-backward:rows=37,cols=66", "adam:size=1",
        "gelu:rows=7,cols=129", "lstm-cell:batch=5,hidden=33", "layernorm:rows=6,cols=40,dtype=f16",
        "groupnorm:batch=1,groups=3,channels=5,size=9", "batchnorm:batch=1,channels=3,size=1"})
    check_graph(name, 3, tally);
  EXPECT_GT(tally.schedules, 50);
}

TEST(WrittenPlans, OfRandomGraphsAreCountedAlike) {
  Tally tally;
  for (int seed = 1; seed <= 16; ++seed)
    check_graph("random-graph:vertices=9,rows=12,cols=10,seed=" + std::to_string(seed), 2, tally);
  EXPECT_GT(tally.schedules, 60);
}

TEST(WrittenPlans, SchemesThatNoTreeSaysFallBackWithAReason) {
  const Graph g = graph_of("layernorm:rows=24,cols=40");
  auto k = *stitch(g, device(), whole(g), {});
  ASSERT_TRUE(k.written());
  k.parts.front().groups.front().scheme = Scheme::block;
  k.parts.front().groups.back().scheme = Scheme::thread;
  const WrittenPlan plan = written(g, {whole(g)}, {k});
  EXPECT_EQ(plan.unbound.front(), "its groups are of different schemes");
  EXPECT_EQ(plan.plan, plan_of(g, {.kernels = {k}, .patterns = {whole(g)}}));
  // Rows of 64 Ki find no room in an SM, with units or without: by the paper's L there is a price.
  const Graph wide = graph_of("softmax:rows=64,cols=65536");
  EXPECT_FALSE(stitch(wide, device(), whole(wide), {}).ok());
  EXPECT_TRUE(ranked(wide, device(), whole(wide), {}).empty());
  const auto priced = stitch(wide, device(), whole(wide), {.latency = Latency::published});
  ASSERT_TRUE(priced.ok());
  EXPECT_FALSE(priced->written());
  // A plan with that pattern has its operators one by one.
  const auto apart = price(wide, device(), {.patterns = {{whole(wide), 1.0}}}, {});
  ASSERT_TRUE(apart.ok()) << apart.reason();
  EXPECT_EQ(apart->patterns.size(), whole(wide).size());
}

/// By price, but for the first: of those tied with the least price it is the one of least L.
TEST(Ranked, IsInOrderAndStitchTakesTheFirst) {
  for (const char* name : {"layernorm", "adam:size=100000", "residual-layernorm"}) {
    const Graph g = graph_of(name);
    const auto all = ranked(g, device(), whole(g), {});
    ASSERT_GE(all.size(), 10u) << name;
    const std::span<const StitchedKernel> others(all.begin() + 1, all.end());
    EXPECT_TRUE(std::ranges::is_sorted(others, {}, &StitchedKernel::seconds));
    EXPECT_LE(all.front().seconds, (1 + stitching::kTied) * others.front().seconds) << name;
    if (others.front().seconds < all.front().seconds) {
      EXPECT_GT(others.front().cycles, all.front().cycles) << name;
    }
    EXPECT_DOUBLE_EQ(stitch(g, device(), whole(g), {})->seconds, all.front().seconds) << name;
    Options published;
    published.latency = Latency::published;
    const auto by_latency = ranked(g, device(), whole(g), published);
    EXPECT_EQ(by_latency.size(), all.size());
    EXPECT_TRUE(std::ranges::is_sorted(by_latency, {}, &StitchedKernel::cycles));
    EXPECT_DOUBLE_EQ(stitch(g, device(), whole(g), published)->cycles, by_latency.front().cycles);
  }
}

/// Where kernels share an online softmax between them, nothing could rescale what one of them makes
/// of a block of the reduction: each takes all of it together.
TEST(WrittenPlans, RunningOperatorsOfSeveralKernelsReduceWhole) {
  int cut = 0;
  for (const char* name : {"attention:heads=16,m=167,l=2404,k=256,n=256,online=1",
                           "attention:m=8,l=2404,k=8,n=256,online=1"}) {
    SCOPED_TRACE(name);
    const Graph g = graph_of(name);
    Evaluator e(g, device(), {});
    for (const FusionPlan& fused : explore(e).plans) {
      const auto price = tilewright::fusionstitching::price(g, device(), fused, {});
      ASSERT_TRUE(price.ok()) << price.reason();
      const WrittenPlan plan = write_plan(g, device(), *price, h200());
      const auto s = resolve(plan.plan, g.shared_workload(), h200());
      EXPECT_TRUE(s.ok()) << s.reason();
      cut += price->patterns.size() > 2;
    }
  }
  EXPECT_GT(cut, 0);
}

}  // namespace
}  // namespace tilewright::fusionstitching
