// PowerFusion's merging: branch and bound against every way, and plans of known graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/base/effort.h"
#include "core/base/format.h"
#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "models/powerfusion/model.h"
#include "models/stitching/alike.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/part.h"

namespace tilewright::powerfusion {
namespace {

Question asked(const std::string& workload, const char* machine = "h200") {
  return {.name = workload,
          .workload = std::make_shared<const Workload>(named_workload(workload)),
          .machine = std::make_shared<const Machine>(named_machine(machine))};
}

std::int64_t bytes_of(const Question& q, const Graph& g, std::span<const Operators> kernels) {
  std::int64_t n = 0;
  for (const TrafficEntry& e : stitching::traffic_of(*q.machine, g, kernels).entries)
    n += (e.read + e.written).value;
  return n;
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others: {first, last}.
std::pair<int, int> drawn_seeds(int count) {
  const auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  const int first = number("TILEWRIGHT_SEED", 1);
  return {first, first + number("TILEWRIGHT_CASES", count) - 1};
}

TEST(PowerFusionSearch, BranchAndBoundIsEveryWay) {
  const Device d = *stitching::device_of(named_machine("h200"));
  const Options o;
  std::int64_t every = 0, bounded = 0;
  const auto [first, last] = drawn_seeds(300);
  for (int seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    const auto w = std::make_shared<const Workload>(named_workload(
        formatted("random-graph:rows=64,cols=64,vertices={},seed={}", 2 + seed % 7, seed)));
    const auto g = Graph::create(w, 1e30);
    ASSERT_TRUE(g);
    Operators all;
    for (int v = 0; v < g->size(); ++v) all.push_back(v);
    const KernelCost least = [&](const Operators& p) { return least_seconds(*g, d, o, p); };
    std::map<Operators, double> known;
    const KernelCost cost = [&](const Operators& p) {
      const auto [at, fresh] = known.try_emplace(p, INFINITY);
      if (fresh && stitching::components_of(*g, p, 64)) {
        std::uint64_t h = static_cast<std::uint64_t>(seed);
        for (int v : p) h = (h ^ static_cast<std::uint64_t>(v + 1)) * 1099511628211ULL;
        at->second = least(p) * (1 + static_cast<double>(h >> 40) / (1 << 25));
      }
      return at->second;
    };
    const Merging slow = exhaustive_merging(*g, all, cost),
                  fast = bounded_merging(*g, all, cost, least);
    EXPECT_DOUBLE_EQ(fast.cost, slow.cost);
    every += slow.states;
    bounded += fast.states;
  }
  EXPECT_LT(bounded, every);
}

/// The bound must hold for what kernels are priced by, not for a drawn price alone.
TEST(PowerFusionSearch, BranchAndBoundIsEveryWayByWhatKernelsTake) {
  std::int64_t every = 0, bounded = 0, merged = 0;
  for (const auto& [machine, price, seeds] : {std::tuple{"h200", PriceBy::overlap, 4},
                                              {"h200", PriceBy::parallel, 2},
                                              {"epyc-zen5", PriceBy::parallel, 40},
                                              {"mlu370", PriceBy::parallel, 40},
                                              {"ascend910", PriceBy::bytes, 40}})
    for (int seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(formatted("{} seed {}", machine, seed));
      const bool gpu = machine[0] == 'h';
      const Question q = asked(formatted("random-graph:rows=64,cols=64,vertices={},seed={}",
                                         gpu ? 4 : 3 + seed % 5, seed),
                               machine);
      Options o;
      o.duplicate = false;
      o.pack = false;
      o.price = price;
      o.search = Search::exhaustive;
      const auto slow = planned(q, o);
      o.search = Search::bound;
      const auto fast = planned(q, o);
      ASSERT_TRUE(slow);
      ASSERT_TRUE(fast);
      EXPECT_NEAR(fast->total_seconds(), slow->total_seconds(), 1e-12 * slow->total_seconds());
      every += slow->states;
      bounded += fast->states;
      merged += static_cast<std::int64_t>(q.workload->operators().size() > slow->kernels());
    }
  EXPECT_LT(bounded, every);
  EXPECT_GT(merged, 50);
}

TEST(PowerFusionSearch, PlansMoveNoMoreThanAKernelEachAndNoLessThanTheyMust) {
  for (const auto& [machine, seeds] :
       {std::pair{"h200", 8}, {"epyc-zen5", 30}, {"mlu370", 30}, {"ascend910", 30}}) {
    const auto [first, last] = drawn_seeds(seeds);
    for (int seed = first; seed <= last; ++seed) {
      SCOPED_TRACE(formatted("{} seed {}", machine, seed));
      const Question q =
          asked(formatted("random-graph:rows=64,cols=128,vertices=6,seed={}", seed), machine);
      Options o;
      o.duplicate = false;
      const auto p = planned(q, o);
      ASSERT_TRUE(p);
      std::vector<Operators> alone;
      for (int v = 0; v < p->graph->size(); ++v) alone.push_back({v});
      EXPECT_LE(bytes_of(q, *p->graph, p->price.patterns), bytes_of(q, *p->graph, alone));
      EXPECT_GE(bytes_of(q, *p->graph, p->price.patterns), q.workload->compulsory_bytes().value);
      EXPECT_TRUE(resolve(p->written.plan, p->workload, q.machine).ok());
    }
  }
}

TEST(PowerFusionSearch, MachinesThatLackAFigureSayWhich) {
  const Question q = asked("softmax:rows=64,cols=96", "mlu370");
  Options o;
  o.price = PriceBy::overlap;
  EXPECT_EQ(planned(q, o).reason(),
            "--price-by: overlap needs units.cycles of a GPU's instructions, which mlu370 does not "
            "give; accepted: auto, parallel, bytes");
  Machine dark = named_machine("ascend910");
  for (Level& l : dark.levels) l.bandwidth = {};
  const Result<Planned> p = planned(
      {.workload = q.workload, .machine = std::make_shared<const Machine>(std::move(dark))}, {});
  ASSERT_FALSE(p);
  EXPECT_TRUE(p.reason().starts_with("levels.L2.bandwidth: ascend910 does not say it"))
      << p.reason();
  // 49,152 bytes at 307.2 GB/s behind a launch of 2 us, where all cores have blocks of whole lines.
  o.price = PriceBy::bytes;
  EXPECT_NEAR(planned(q, o)->total_seconds(), 2e-6 + 49152 / 307.2e9, 1e-12);
}

TEST(PowerFusionSearch, TheShuffleNetUnitIsOneKernelWithNothingAboveLanes) {
  const Question q = asked("shuffle-unit");
  const auto p = planned(q, {});
  ASSERT_TRUE(p);
  ASSERT_EQ(p->kernels(), 1U);
  double before = 0, bytes = 0;
  for (const Gir& g : gir_of(*p, 0)) {
    const Gir after = optimised(g);
    for (Scope s : {Scope::warp, Scope::block, Scope::device}) EXPECT_EQ(syncs_of(after, s), 0);
    EXPECT_EQ(dram_bytes(after), compulsory_bytes(after));
    bytes += dram_bytes(after);
  }
  const auto named = Graph::create(q.workload, 1e30);
  for (int v = 0; v < named->size(); ++v)
    before += static_cast<double>(stitching::compulsory_of(*named, std::vector{v}).value);
  EXPECT_EQ(before, 2'182'656);
  EXPECT_EQ(bytes, 727'552);
}

/// A ring of kernels that wait for one another is no plan: an LSTM was a kernel an operator for it.
TEST(PowerFusionSearch, TheBeamsKernelsCanBePutInAnOrder) {
  const Device d = *stitching::device_of(named_machine("h200"));
  const Options o;
  for (int seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(formatted("seed {}", seed));
    const auto w = std::make_shared<const Workload>(
        named_workload(formatted("random-graph:rows=64,cols=64,vertices=30,seed={}", seed)));
    const auto g = Graph::create(w, 1e30);
    ASSERT_TRUE(g);
    Operators all;
    for (int v = 0; v < g->size(); ++v) all.push_back(v);
    const KernelCost least = [&](const Operators& p) { return least_seconds(*g, d, o, p); };
    for (int width : {1, 8}) {
      const Merging found = beam_merging(*g, all, least, least, width, 64);
      EXPECT_EQ(stitching::launch_order(*g, found.kernels).size(), found.kernels.size());
      EXPECT_LT(found.kernels.size(), all.size());
    }
  }
  const Question q = asked("lstm:steps=3,layers=3");
  const auto p = planned(q, {});
  ASSERT_TRUE(p);
  EXPECT_LE(p->kernels(), q.workload->operators().size() / 2);
}

/// Proposes tiles of `tile` that take `seconds`, and counts how often it is asked.
Model product_maker(const std::string& name, std::int64_t tile, double seconds, int& asked_for) {
  Model m{.name = name, .times = true};
  m.propose = [=, &asked_for](const Question& q, const Settings&) -> Result<Proposal> {
    ++asked_for;
    if (q.workload->operators().size() != 1) return Reason{"more than a product"};
    Node tree = compute(q.workload->operators().front().name);
    for (std::size_t l = 0; l < q.workload->loops().size(); ++l) {
      const auto& [name_of_loop, extent] = q.workload->loops()[l];
      const bool sum = q.workload->is_reduction(OpId(0), LoopId(l));
      tree = loop(name_of_loop, std::move(tree), sum ? extent : std::min(tile, extent));
    }
    Proposal p;
    p.plan.kernels.push_back({.name = name, .level = "L2", .tree = std::move(tree)});
    p.price.traffic.seconds = seconds;
    return p;
  };
  return m;
}

TEST(PowerFusionSearch, ProductsOnCoresAreTheFastestThatOthersMake) {
  int slow_asked = 0, fast_asked = 0;
  const Model slow = product_maker("slow", 24, 2e-3, slow_asked),
              fast = product_maker("fast", 48, 1e-3, fast_asked);
  Question q = asked("bert:layers=2,seq=64,hidden=128,heads=2,ffn=256", "epyc-zen5");
  Options o;
  o.library = Library::type;
  const auto tiles = [&] {
    const auto p = planned(q, o);
    EXPECT_TRUE(p) << p.reason();
    std::multiset<std::string> found;
    for (std::size_t k = 0; k < p->kernels(); ++k) {
      if (!p->library(k)) continue;
      const std::string tree = to_text(p->written.plan.kernels[k].tree);
      for (const char* tile : {"/24", "/48", "/64"})
        if (tree.find(tile) != std::string::npos) found.insert(tile);
    }
    EXPECT_TRUE(resolve(p->written.plan, p->workload, q.machine).ok());
    return found;
  };
  const std::size_t products = tiles().count("/64");
  EXPECT_GE(products, 16U);
  q.others = {&slow, &fast};
  EXPECT_EQ(tiles().count("/48"), products);
  EXPECT_EQ(slow_asked, fast_asked);
  EXPECT_LT(static_cast<std::size_t>(fast_asked), products / 2);  // layers are alike
}

/// Bounds leave nothing out: of every part of drawn graphs that is one kernel, what is stitched
/// with them is the best of all schedules, and takes no less than the search's bound.
TEST(PowerFusionSearch, BoundsLeaveOutNoBetterSchedule) {
  const Device d = *stitching::device_of(named_machine("h200"));
  Options o;
  o.price = PriceBy::overlap;
  const stitching::Options kernels = o.kernels();
  int compared = 0;
  const auto [first, last] = drawn_seeds(5);
  for (int seed = first; seed <= last; ++seed) {
    const auto w = std::make_shared<const Workload>(
        named_workload(formatted("random-graph:rows={},cols={},vertices=5,seed={}",
                                 32 + 700 * (seed % 4), 33 + 500 * (seed % 3), seed)));
    const auto g = Graph::create(w, 1e30);
    ASSERT_TRUE(g);
    for (int a = 0; a < g->size(); ++a)
      for (int b = a; b < std::min(g->size(), a + 3); ++b) {
        Operators p;
        for (int v = a; v <= b; ++v) p.push_back(v);
        SCOPED_TRACE(formatted("seed {}, operators {} to {}", seed, a, b));
        const auto best = stitching::stitch(*g, d, p, kernels);
        if (!best) continue;
        EXPECT_GE(best->seconds, bound_seconds(*g, d, o, p));
        const auto all = stitching::ranked(*g, d, p, kernels);
        if (best->parts.size() > 1 || all.empty()) continue;
        ++compared;
        // Ties of price go to the schedule of least L. Of its number of threads it is the quickest,
        // to the bit, and no number of threads has one that price tells apart from it.
        double least = all.front().seconds, of_threads = best->seconds;
        for (const stitching::StitchedKernel& k : all) {
          least = std::min(least, k.seconds);
          if (k.threads == best->threads) of_threads = std::min(of_threads, k.seconds);
        }
        EXPECT_EQ(best->seconds, of_threads);
        EXPECT_GE(best->seconds, least);
        EXPECT_LE(best->seconds, (1 + stitching::kTied) * least);
      }
  }
  EXPECT_GT(compared, 20);
}

/// A kernel that another is like but for names is that one, with its own operators and loops.
TEST(PowerFusionSearch, AlikeKernelsAreStitchedOnce) {
  const Device d = *stitching::device_of(named_machine("h200"));
  const stitching::Options kernels = Options().kernels();
  const auto w = std::make_shared<const Workload>(
      named_workload("bert:layers=2,seq=48,hidden=64,heads=2,ffn=96"));
  const auto g = Graph::create(w, 0.5);
  ASSERT_TRUE(g);
  stitching::Alike alike;
  int made = 0, asked_for = 0, renamed = 0;
  for (int a = 0; a < g->size(); ++a)
    for (int b = a; b < std::min(g->size(), a + 3); ++b) {
      Operators p;
      for (int v = a; v <= b; ++v) p.push_back(v);
      const auto own = stitching::stitched_anew(*g, d, p, kernels);
      const int before = made;
      const auto k = alike.kernel(*g, p, [&](const Graph&, const Operators&) {
        ++made;
        return own;
      });
      ASSERT_EQ(k.ok(), own.ok());
      ++asked_for;
      if (!k || made > before) continue;
      ++renamed;
      SCOPED_TRACE(formatted("operators {} to {}", a, b));
      EXPECT_EQ(k->seconds, own->seconds);
      ASSERT_EQ(k->parts.size(), own->parts.size());
      for (std::size_t i = 0; i < k->parts.size(); ++i) {
        const auto &x = k->parts[i], &y = own->parts[i];
        EXPECT_EQ(x.component.vertices, y.component.vertices);
        EXPECT_EQ(x.component.rows, y.component.rows);
        ASSERT_EQ(x.groups.size(), y.groups.size());
        for (std::size_t n = 0; n < x.groups.size(); ++n) {
          EXPECT_EQ(x.groups[n].root, y.groups[n].root);
          EXPECT_EQ(x.groups[n].vertices, y.groups[n].vertices);
        }
        const auto mine = stitching::bound_tree(*g, d, x, k->threads),
                   its = stitching::bound_tree(*g, d, y, own->threads);
        ASSERT_EQ(mine.ok(), its.ok());
        if (mine) {
          EXPECT_EQ(to_text(mine->tree), to_text(its->tree));
        }
      }
    }
  EXPECT_GT(renamed, 20);
  EXPECT_EQ(made + renamed, asked_for);
}

/// What another graph's kernels are like is found by stitch(), the same and for as much effort as
/// if each was stitched anew.
TEST(PowerFusionSearch, KernelsOfOtherGraphsAreFoundForAsMuchEffort) {
  const Device d = *stitching::device_of(named_machine("h200"));
  const stitching::Options kernels = Options().kernels();
  int found = 0;
  for (const char* name : {"bert:layers=1,seq=40,hidden=64,heads=2,ffn=112,standard=1",
                           "random-graph:vertices=14,rows=96,cols=80,seed=5"}) {
    const auto w = std::make_shared<const Workload>(named_workload(name));
    // One that stitches anew, one that may do so first, and one that finds all.
    std::vector<Graph> graphs;
    for (int i = 0; i < 3; ++i) graphs.push_back(*Graph::create(w, 0.5));
    for (int a = 0; a < graphs[0].size(); ++a)
      for (int b = a; b < std::min(graphs[0].size(), a + 4); ++b) {
        Operators p;
        for (int v = a; v <= b; ++v) p.push_back(v);
        SCOPED_TRACE(formatted("{}: operators {} to {}", name, a, b));
        std::vector<std::int64_t> effort;
        std::vector<Result<stitching::StitchedKernel>> made;
        for (const Graph& g : graphs) {
          constexpr std::int64_t kMost = 1'000'000'000;
          const Effort limit(kMost);
          made.push_back(made.empty() ? stitching::stitched_anew(g, d, p, kernels)
                                      : stitching::stitch(g, d, p, kernels));
          effort.push_back(kMost - Effort::remaining());
        }
        for (std::size_t i = 1; i < graphs.size(); ++i) {
          ASSERT_EQ(made[i].ok(), made[0].ok());
          EXPECT_EQ(effort[i], effort[0]);
          if (!made[0]) continue;
          EXPECT_EQ(made[i]->seconds, made[0]->seconds);
          EXPECT_EQ(made[i]->schedules, made[0]->schedules);
          ASSERT_EQ(made[i]->parts.size(), made[0]->parts.size());
          for (std::size_t n = 0; n < made[0]->parts.size(); ++n) {
            const auto mine =
                           stitching::bound_tree(graphs[i], d, made[i]->parts[n], made[i]->threads),
                       its =
                           stitching::bound_tree(graphs[0], d, made[0]->parts[n], made[0]->threads);
            ASSERT_EQ(mine.ok(), its.ok());
            if (mine) {
              EXPECT_EQ(to_text(mine->tree), to_text(its->tree));
            }
          }
        }
        found += made[0].ok() && made[0]->without_units.empty();
      }
    // Refusals are not kept, and schedules are what they looked for.
    EXPECT_LT(graphs[2].priced().schedules->size(), graphs[0].priced().schedules->size() / 4);
  }
  EXPECT_GT(found, 40);
}

/// Figure 13: a layer has four products of a library's, as the paper's GPT-2 has, and a kernel
/// each for the attention, both normalisations and GELU; the head and the tail of the network one
/// each.
TEST(PowerFusionSearch, Gpt2LayersAreFourLibraryKernelsAndFourOfMemory) {
  for (const auto& [layers, machine] : {std::pair{1, "a100"}, {2, "a100"}, {1, "h200"}}) {
    Question q = asked(formatted("gpt2:layers={}", layers));
    q.machine = std::make_shared<const Machine>(named_machine(machine));
    const auto p = planned(q, {});
    ASSERT_TRUE(p);
    int library = 0, memory = 0;
    for (std::size_t k = 0; k < p->kernels(); ++k) ++(p->library(k) ? library : memory);
    EXPECT_EQ(library, 4 * layers + 1) << machine;
    EXPECT_LE(memory, 4 * layers + 1) << machine;
    // Both products with the cache are in one kernel, in units of their own (figure 12).
    int attention = 0;
    for (std::size_t k = 0; k < p->kernels(); ++k) {
      if (p->library(k)) continue;
      for (const Gir& g : gir_of(*p, k)) {
        const Gir after = optimised(g);
        std::map<std::string, std::pair<Scope, SlicePattern>> of;
        for (const GOp& o : after.ops)
          if (o.kind == GKind::reduce && (o.name.starts_with("qk") || o.name.starts_with("pv")))
            of[o.name.substr(0, 2)] = {
                o.scope, pattern_of(after, after.slices[static_cast<std::size_t>(o.in.front())])};
        if (of.size() != 2) continue;
        ++attention;
        EXPECT_FALSE(of["qk"] == of["pv"]) << machine;
      }
    }
    EXPECT_EQ(attention, layers) << machine;
  }
}

}  // namespace
}  // namespace tilewright::powerfusion
