// Parts of workloads: taken out and evaluated one after the other they are the whole; their plans,
// joined, are a plan of the whole.
#include "core/workload/subgraph.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "core/plan/file.h"
#include "core/plan/join.h"
#include "core/plan/names.h"
#include "core/plan/schedule.h"
#include "core/workload/cut.h"
#include "core/workload/merge_loops.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/support/small_graphs.h"

namespace tilewright {
namespace {

Workload diamond() {
  return workload_from_yaml(
      "name: diamond\nloops: {r: 4, c: 5}\noperators:\n"
      "  - \"top: a[r,c] = abs(x[r,c])\"\n"
      "  - \"left: b[r,c] = relu(a[r,c])\"\n"
      "  - \"right: d[r,c] = exp(a[r,c])\"\n"
      "  - \"bottom: e[r,c] = b[r,c] + d[r,c]\"\n",
      "test");
}

std::vector<OpId> named(const Workload& w, std::vector<std::string> names) {
  return operators_named(w, names, "--part");
}

TEST(Subgraph, WhatCrossesTheCutIsInputAndOutput) {
  const Workload w = diamond();
  const Workload part = subgraph(w, named(w, {"left", "top"}));
  ASSERT_EQ(part.operators().size(), 2u);
  EXPECT_TRUE(part.is_input(*part.find_tensor("x")));
  EXPECT_TRUE(part.is_output(*part.find_tensor("a")));  // right reads it
  EXPECT_TRUE(part.is_output(*part.find_tensor("b")));
  EXPECT_FALSE(part.find_tensor("e"));
  EXPECT_EQ(part.find_op("b"), part.find_op("left"));  // by what it writes, too
  EXPECT_EQ(part.loop(*part.find_loop("c")).extent, 5);
  EXPECT_EQ(part.name(), "top+left");
}

TEST(Subgraph, IndicesAreThoseOfThePartsLoops) {
  const Workload w = workload_from_yaml(
      "name: t\nloops: {a: 3, m: 4, l: 5}\noperators:\n  - 'first: f[a] = a * g[a]'\n"
      "  - 'masked: u[m,l] = select(lt(m, l), 0, s[m,l])'\n",
      "t");
  const Workload part = subgraph(w, named(w, {"masked"}));
  EXPECT_EQ(part.loops().size(), 2u);
  EXPECT_EQ(to_text(part, OpId(0)), "masked: u[m,l] = select(lt(m, l), 0, s[m,l])");
}

TEST(Subgraph, AnOperatorThatIsMissingIsNamed) {
  const Workload w = diamond();
  EXPECT_TRUE(no_subgraph(w, named(w, {"top", "left", "bottom"})));
  try {
    (void)subgraph(w, named(w, {"top", "left", "bottom"}), "--part");
    FAIL() << "taken";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("right is outside"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--part"), std::string::npos);
  }
  EXPECT_THROW((void)subgraph(w, {}), InputError);
  EXPECT_THROW((void)named(w, {"topp"}), InputError);
  EXPECT_FALSE(no_subgraph(w, named(w, {"left", "right"})));
}

TEST(Subgraph, ARunningResultStaysWithWhatRescalesIt) {
  const auto w = apply("online-softmax", named_workload("attention:heads=1,m=4,l=6,k=3,n=3"));
  ASSERT_TRUE(w.ok()) << w.reason();
  int parted = 0, kept = 0;
  for (std::size_t i = 0; i < w->operators().size(); ++i)
    (no_subgraph(*w, std::array{OpId(i)}) ? parted : kept) += 1;
  EXPECT_GT(parted, 1);
  EXPECT_GT(kept, 0);
}

/// Random parts of a workload, each convex, in an order in which each has what it reads.
std::vector<std::vector<OpId>> random_parts(const Workload& w, std::mt19937_64& random) {
  std::vector<std::vector<OpId>> parts;
  for (OpId op : w.topological_order()) {
    if (!parts.empty() && random() % 3 != 0) {
      parts.back().push_back(op);
      std::ranges::sort(parts.back());
      if (!no_subgraph(w, parts.back())) continue;
      std::erase(parts.back(), op);
    }
    parts.push_back({op});
  }
  return parts;
}

TEST(Subgraph, PartsInOrderAreTheWhole) {
  std::vector<std::string> specs = testing::kSmallGraphs;
  for (int seed = 1; seed <= 20; ++seed)
    specs.push_back("random-graph:vertices=14,rows=5,cols=7,seed=" + std::to_string(seed));
  for (const char* spec :
       {"gemm-chain:m=5,n=4,k=3,l=6,relu=1,batch=2", "attention:m=4,l=6,k=3,n=3"})
    specs.emplace_back(spec);
  std::mt19937_64 random(5);
  std::size_t cut = 0;
  for (const std::string& spec : specs) {
    const Workload w = named_workload(spec);
    const TensorValues inputs = random_inputs(w, 3);
    const TensorValues whole = evaluate(w, inputs);
    TensorValues known = inputs;
    known.resize(w.tensors().size());
    const auto parts = random_parts(w, random);
    cut += parts.size() - 1;
    for (const auto& ops : parts) {
      const Workload part = subgraph(w, ops);
      TensorValues given(part.tensors().size());
      for (std::size_t t = 0; t < given.size(); ++t)
        if (part.is_input(TensorId(t)))
          given[t] = known[w.find_tensor(part.tensors()[t].name)->index()];
      const TensorValues made = evaluate(part, given);
      for (TensorId t : part.outputs())
        known[w.find_tensor(part.tensor(t).name)->index()] = made[t.index()];
    }
    for (TensorId t : w.outputs())
      // What crosses a cut is rounded to its type, as a kernel's tensor at home is.
      EXPECT_LT(relative_error(known[t.index()], whole[t.index()]), 1e-5) << spec;
  }
  EXPECT_GT(cut, 50u);
}

std::vector<std::string> texts(const Workload& w, const std::vector<Part>& parts) {
  std::vector<std::string> all;
  for (const Part& part : parts) all.push_back(subgraph(w, part).name());
  return all;
}

TEST(Cut, ATransformerBlockIsCutAroundItsContractions) {
  const Workload w = named_workload("transformer-block");
  EXPECT_EQ(
      texts(w, cut_contractions(w)),
      (std::vector<std::string>{"query", "key", "value", "qk+scaled+rowmax+exp+rowsum+pv+divide",
                                "project", "residual1+sum1+mean1+sub1+sq1+varsum1+rstd1+norm1",
                                "fc1+biased+cubic+bent+gelu+fc2",
                                "residual2+sum2+mean2+sub2+sq2+varsum2+rstd2+norm2"}));
  // With many tokens attention's scores are more than what the MLP has between its products; the
  // parts are the same, since neither excludes the other.
  const Workload more = named_workload("transformer-block:tokens=512");
  EXPECT_EQ(texts(more, cut_contractions(more)), texts(w, cut_contractions(w)));
}

TEST(Cut, PartsAreTheWholeAndWaitForNoOther) {
  std::vector<std::string> specs = testing::kSmallGraphs;
  for (const char* spec : {"transformer-block", "attention:heads=2,m=4,l=6,k=3,n=3",
                           "attention:m=4,l=6,k=3,n=3,online=1", "gemm-chain:m=4,n=5,k=6,l=7"})
    specs.emplace_back(spec);
  for (const std::string& spec : specs) {
    const Workload w = named_workload(spec);
    for (const auto& parts : {cut_each(w), cut_contractions(w), cut_contractions(w, false)}) {
      std::vector<int> part_of(w.operators().size(), -1);
      for (std::size_t p = 0; p < parts.size(); ++p)
        for (OpId op : parts[p]) {
          EXPECT_EQ(part_of[op.index()], -1) << spec;
          part_of[op.index()] = static_cast<int>(p);
        }
      EXPECT_EQ(std::ranges::count(part_of, -1), 0) << spec;
      for (const Part& part : parts) EXPECT_FALSE(no_subgraph(w, part)) << spec;
      // Parts as operators: an order exists where each can be taken once all it reads are taken.
      std::vector<bool> taken(parts.size(), false);
      std::size_t left = parts.size();
      for (bool more = true; more;) {
        more = false;
        for (std::size_t p = 0; p < parts.size(); ++p) {
          const bool ready = std::ranges::all_of(parts[p], [&](OpId op) {
            return std::ranges::all_of(w.op(op).inputs, [&](const Access& a) {
              const OpId from = w.producer(a.tensor);
              if (!from.valid()) return true;
              const auto other = static_cast<std::size_t>(part_of[from.index()]);
              return other == p || taken[other];
            });
          });
          if (taken[p] || !ready) continue;
          taken[p] = more = true;
          --left;
        }
      }
      EXPECT_EQ(left, 0u) << spec;
    }
  }
}

Plan plan_of(const Workload& part) {
  Plan plan;
  for (OpId op : part.topological_order())
    plan.kernels.push_back({.name = "fused", .tree = compute(part.op(op).name)});
  return plan;
}

TEST(Join, KernelsOfRandomPartsAreAPlanOfTheWhole) {
  const auto machine = std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:64M"));
  std::mt19937_64 random(9);
  for (const std::string& spec : testing::kSmallGraphs) {
    const auto w = std::make_shared<const Workload>(named_workload(spec));
    std::vector<PartPlan> parts;
    for (const auto& ops : random_parts(*w, random)) {
      Workload part = subgraph(*w, ops);
      Plan plan = plan_of(part);
      parts.push_back({.part = std::move(part), .plan = std::move(plan), .by = "some-model"});
    }
    std::ranges::shuffle(parts, random);
    const auto joined = join_plans(*w, parts);
    ASSERT_TRUE(joined.ok()) << spec << ": " << joined.reason();
    EXPECT_EQ(joined->plan.kernels.size(), w->operators().size());
    const auto s = resolve(joined->plan, w, machine);
    ASSERT_TRUE(s.ok()) << spec << ": " << s.reason();
    std::set<std::string> names;
    for (const Kernel& k : joined->plan.kernels) EXPECT_TRUE(names.insert(k.name).second) << k.name;

    parts.pop_back();
    EXPECT_FALSE(join_plans(*w, parts).ok()) << spec;
  }
}

TEST(Join, ARewriteOfAPartIsOneOfTheWholeOrIsRefused) {
  // Softmax's operators are others once online-softmax has rewritten the whole.
  const Workload w = named_workload("attention:heads=1,m=4,l=6,k=3,n=3");
  std::vector<OpId> all;
  for (std::size_t i = 0; i < w.operators().size(); ++i) all.emplace_back(i);
  const std::vector<OpId> head(all.begin(), all.begin() + 1), tail(all.begin() + 1, all.end());

  const Workload whole = subgraph(w, all);
  const auto online = apply("online-softmax", whole);
  ASSERT_TRUE(online.ok()) << online.reason();
  PartPlan one{.part = *online, .plan = plan_of(*online), .rewrites = {"online-softmax"}};
  const auto joined = join_plans(w, std::array{one});
  ASSERT_TRUE(joined.ok()) << joined.reason();
  EXPECT_EQ(joined->rewrites, std::vector<std::string>{"online-softmax"});

  one.part = whole;
  one.plan = plan_of(whole);
  EXPECT_FALSE(join_plans(w, std::array{one}).ok());  // planned without what the whole gets
}

TEST(Join, PartsThatWaitForOneAnotherAreRefused) {
  const Workload w = workload_from_yaml(
      "name: crossing\nloops: {r: 4}\noperators:\n"
      "  - \"a1: p[r] = abs(x[r])\"\n  - \"b1: q[r] = abs(y[r])\"\n"
      "  - \"a2: s[r] = relu(q[r])\"\n  - \"b2: t[r] = relu(p[r])\"\n",
      "test");
  const auto part = [&](std::vector<std::string> names, const char* tree) {
    return PartPlan{.part = subgraph(w, named(w, std::move(names))),
                    .plan = {.kernels = {{.tree = parse_tree(tree)}}}};
  };
  const std::array fused{part({"a1", "a2"}, "r/4 ( C.a1 C.a2 )"),
                         part({"b1", "b2"}, "r/4 ( C.b1 C.b2 )")};
  EXPECT_FALSE(join_plans(w, fused).ok());
}

TEST(MergedLoops, RowsAndColumnsThatNoWindowMovesOverAreOne) {
  const Workload w = workload_from_yaml(
      "name: t\nloops: {o: 3, y: 4, x: 5, c: 6}\noperators:\n"
      "  - 'point: p[o,y,x] += i[c,y,x] * k[o,c]'\n  - 'biased: b[o,y,x] = p[o,y,x] + g[o]'\n",
      "t");
  const std::optional<Workload> merged = merged_loops(w);
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->loops().size(), 3u);
  EXPECT_EQ(to_text(*merged, OpId(0)), "point: p[o,y] += i[c,y] * k[o,c]");
  EXPECT_EQ(merged->tensor(*merged->find_tensor("i")).shape, (std::vector<std::int64_t>{6, 20}));
}

/// An image that was made twice as large has its rows in pairs; windows over it have whole ones.
TEST(MergedLoops, TwoDigitsOfOneIndexAreOneLoop) {
  const Workload w = workload_from_yaml(
      "name: t\nloops: {c: 3, y: 4, p: 2, q: 2, r: 3}\ntensors: {i: [3, 20]}\noperators:\n"
      "  - 'window: b[c,y,p,q] += i[c,4*y+2*p+q+r-1] * k[c,r]'\n"
      "  - 'biased: o[c,y,p,q] = b[c,y,p,q] + g[c]'\n",
      "t");
  const std::optional<Workload> merged = merged_loops(w);
  ASSERT_TRUE(merged);
  EXPECT_EQ(to_text(*merged, OpId(0)), "window: b[c,y] += i[c,y+r-1] * k[c,r]");
  EXPECT_EQ(merged->tensor(*merged->find_tensor("o")).shape, (std::vector<std::int64_t>{3, 16}));
}

TEST(MergedLoops, WhatIsNotWholeOrNotInOrderStays) {
  const auto merged = [](const char* op, const char* tensors) {
    return merged_loops(workload_from_yaml(std::string("name: t\nloops: {y: 4, x: 5}\n") + tensors +
                                               "operators:\n  - 'op: " + op + "'\n",
                                           "t"));
  };
  EXPECT_TRUE(merged("b[y,x] = i[y,x]", ""));
  for (const char* op :
       {"b[y,x] = i[y,x] + g[y]", "b[y,x] = i[x,y]", "b[y,x] = i[y,x+1]", "b[y] += i[y,x]",
        "b[y,x] = select(lt(y, x), 0, i[y,x])", "b[y,x] = i[y,x] + i[y,0]", "b[y,x] = i[4*y+x]",
        "b[y,x] = i[y+4*x]", "b[y,x] = i[5*y+x] + g[y]"})
    EXPECT_FALSE(merged(op, "")) << op;
  EXPECT_FALSE(merged("b[y,x] = i[y,x]", "tensors: {i: [4, 6]}\n"));
}

/// Copies that share a launch: of `l` and `k`, one has neighbours that the other has apart.
TEST(MergedLoops, PartsThatPassNothingHaveLoopsOfTheirOwn) {
  const Workload w = workload_from_yaml(
      "name: t\nloops: {k: 3, l: 4, m: 5}\noperators:\n"
      "  - 'p: p[m,k,l] = x[k,l,m]'\n  - 'q: q[k,m,l] = y[l,m,k]'\n  - 'r: r[k,m,l] = 2 * "
      "q[k,m,l]'\n",
      "t");
  EXPECT_FALSE(merged_loops(w));
  const std::optional<Workload> merged = merged_loops_of_parts(w);
  ASSERT_TRUE(merged);
  EXPECT_EQ(to_text(*merged, OpId(0)), "p: p[m,k] = x[k,m]");
  EXPECT_EQ(to_text(*merged, OpId(1)), "q: q[k_2,m_2,l_2] = y[l_2,m_2,k_2]");
  EXPECT_EQ(to_text(*merged, OpId(2)), "r: r[k_2,m_2,l_2] = 2 * q[k_2,m_2,l_2]");
  const TensorValues inputs = random_inputs(w, 7);
  EXPECT_EQ(evaluate(*merged, inputs), evaluate(w, inputs));
}

TEST(MergedLoops, PartsOfNetworksComputeTheSame) {
  std::size_t merged_parts = 0;
  for (const char* name :
       {"efficientnet-b0:size=32,channels=8,blocks=1,classes=10",
        "shufflenet-v2:size=32,stem=8,channels=16,stages=2,blocks=2,head=32,classes=10",
        "swin-b:size=32,patch=4,window=4,width=16,heads=2,mlp=2,stages=2,blocks=2,classes=10",
        "bert:layers=1,seq=16,hidden=32,heads=2,ffn=64,standard=1"}) {
    const Workload whole = named_workload(name);
    for (const Part& ops : cut_followed(whole)) {
      const Workload part = without_names(subgraph(whole, ops));
      const std::optional<Workload> merged = merged_loops(part);
      if (!merged) continue;
      ++merged_parts;
      const TensorValues inputs = random_inputs(part, 7);
      const TensorValues expected = evaluate(part, inputs), got = evaluate(*merged, inputs);
      for (TensorId t : part.outputs()) {
        ASSERT_EQ(got[t.index()].size(), expected[t.index()].size());
        for (std::size_t i = 0; i < expected[t.index()].size(); ++i)
          ASSERT_NEAR(got[t.index()][i], expected[t.index()][i],
                      1e-12 * (1 + std::abs(expected[t.index()][i])))
              << name << ": " << to_yaml(part);
      }
    }
  }
  EXPECT_GT(merged_parts, 20u);
}

/// Attention is one part, with the sum of its rows and what divides by it; products without rows
/// that are reduced between them stay apart.
TEST(Cut, AttentionIsOnePart) {
  const auto parts = [](const std::string& name) {
    std::vector<std::string> all;
    const Workload w = named_workload(name);
    for (const Part& ops : cut_followed(w)) {
      std::string& text = all.emplace_back();
      for (OpId op : ops) text += (text.empty() ? "" : " ") + w.op(op).name;
    }
    return all;
  };
  EXPECT_EQ(parts("attention:heads=2,m=16,l=16,causal=1"),
            (std::vector<std::string>{"qk masked rowmax exp rowsum pv divide"}));
  EXPECT_EQ(parts("gemm-chain:m=16,n=16,k=16,l=16,relu=1").size(), 2U);
}

}  // namespace
}  // namespace tilewright
