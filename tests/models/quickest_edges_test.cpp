// The planner's edges: is the choice of each the cheaper one by what it says itself, and are tiles
// of few rows searched?
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "core/workload/text.h"
#include "models/quickest/chooser.h"
#include "models/quickest/partition.h"
#include "models/quickest/refine.h"
#include "models/tables.h"
#include "tests/models/planner_support.h"
#include "tests/support/drawn_graphs.h"

namespace tilewright::quickest {

ModelTable table();

namespace {

/// Where other models know time, a small graph's plan has the cheaper choice of each edge. The
/// first is one whose plan had not.
TEST(Planner, EdgesBySecondsHaveTheCheaperChoice) {
  std::vector<std::string> texts = {R"yaml(
name: edges
dtype: bf16
loops: {a: 48, b: 1, c: 5, d: 1}
tensors: {i0: [d, b], i1: [a, c], i2: [c], i3: [a, 2], i4: [d], n: [b], i5: [50, d]}
dtypes: {n: i32}
operators:
  - "o0: t0[d,b] = relu(i0[d,b])"
  - "o1: t1[] += i1[a,c]"
  - "o2: t2[] += t1[] * i2[c]"
  - "o3: t3[a,d,b] = exp(0 - abs(t1[])) * i3[a,2*b]"
  - "o4: t4[] max= i4[d]"
  - "o5: t5[] += t1[] * i5[n[b],d]"
  - "o7: t7[d,b] = sigmoid(t2[])"
  - "o8: t8[c] = t4[] * 0.5 - t5[]"
)yaml"};
  for (unsigned seed = 1; seed <= 12; ++seed) texts.push_back(testing::GraphDrawer(seed).text(7));
  int compared = 0;
  for (const std::string& text : texts)
    for (const char* machine : {"mlu370", "ascend910"}) {
      Question q{.workload = std::make_shared<const Workload>(workload_from_yaml(text, "edges"))};
      q.machine = std::make_shared<const Machine>(named_machine(machine));
      for (const Model& m : builtin_models())
        if (m.name != planner().name) q.others.push_back(&m);
      const Result<Proposal> p =
          planner().propose(q, {planner().options, {{"why", {"on"}}}, "planner"});
      if (!p) continue;
      for (const auto& e : p->detail.at("edges")) {
        if (!e.contains("seconds_fused") || e["seconds_fused"].is_null() ||
            e["seconds_apart"].is_null())
          continue;
        ++compared;
        const double fused = e["seconds_fused"], apart = e["seconds_apart"];
        EXPECT_LE(e["fused"].get<bool>() ? fused : apart, 1.02 * std::min(fused, apart))
            << text << machine << ": " << e["tensor"];
      }
    }
  EXPECT_GT(compared, 10);
}

/// On caches what a joined plan moves is no sum of its parts: both choices of an edge are counted
/// as the whole plan, and the plan has the one that moves less.
TEST(Planner, EdgesOnCachesAreOfTheWholePlan) {
  std::vector<std::shared_ptr<const Workload>> all = {
      question("gemm-chain:m=464,n=512,k=208,l=240", "epyc-zen5").workload};
  for (unsigned seed = 31; seed <= 38; ++seed)
    all.push_back(std::make_shared<const Workload>(
        workload_from_yaml(testing::GraphDrawer(seed).text(6), "drawn")));
  int compared = 0;
  for (const auto& w : all)
    for (const char* machine : {"cache:4K/8", "cache:48K/12,1M/16"}) {
      Question q{.workload = w};
      q.machine = std::make_shared<const Machine>(named_machine(machine));
      for (const Model& m : builtin_models())
        if (m.name != planner().name) q.others.push_back(&m);
      const Result<Proposal> p =
          planner().propose(q, {planner().options, {{"why", {"on"}}}, "planner"});
      if (!p || !p->detail.contains("volume_bytes") || w->operators().size() > 12) continue;
      const auto whole = p->detail["volume_bytes"].get<double>();
      for (const auto& e : p->detail.at("edges")) {
        if (!e.contains("bytes_fused") || e["bytes_fused"].is_null() || e["bytes_apart"].is_null())
          continue;
        ++compared;
        const double fused = e["bytes_fused"], apart = e["bytes_apart"];
        EXPECT_NEAR(e["fused"].get<bool>() ? fused : apart, whole, 1) << machine << ": " << e;
        EXPECT_LE(whole, std::min(fused, apart) + 1) << machine << ": " << e;
      }
    }
  EXPECT_GT(compared, 10);
}

/// 269 rows on 32 cores: nine rows a core are one turn. Rows of a product stay multiples of 16.
TEST(Planner, TilesOfFewRowsAreSearched) {
  for (const auto& [name, tree, best] :
       {std::tuple("softmax:rows=269,cols=64", "r/4@grid c/64 ( C.rowmax )", 9.0),
        std::tuple("gemm:m=269,n=64,k=64", "m/16@grid n/64 k/64 ( C.gemm )", 16.0)}) {
    const auto w = question(name, "epyc-zen5").workload;
    Plan plan{.kernels = {{.tree = parse_tree(tree)}}};
    double seconds = 1e9;
    const std::string loop = w->loops().front().name;
    refine(plan, 0, seconds, *w, 96, [&](const Plan& p) -> std::optional<double> {
      const Node& rows = p.kernels.front().tree;
      EXPECT_EQ(rows.name, loop);
      return static_cast<double>(
          ceil_div(ceil_div(std::int64_t{269}, rows.step), std::int64_t{32}) * rows.step);
    });
    EXPECT_EQ(seconds, best) << name;
  }
}

/// A part is the same before a rewrite of the whole and after: what its plan takes is known then,
/// of the very plan, and of no other workload's.
TEST(Planner, TimesAreKnownByWhatWorkloadsSay) {
  KnownTimes times;
  const Workload w = named_workload("gemm:m=8,n=8,k=8");
  const Plan plan{.kernels = {{.tree = parse_tree("m/2 ( C.gemm )")}}};
  times.of(w, plan) = {.plan = plan, .seconds = 1e-6, .most_steps = 7, .steps = 5};
  EXPECT_EQ(times.of(named_workload("gemm:m=8,n=8,k=8"), plan).steps, 5);
  EXPECT_FALSE(times.of(named_workload("gemm:m=8,n=8,k=9"), plan).seconds);
  EXPECT_FALSE(times.of(w, {.kernels = {{.tree = parse_tree("m/4 ( C.gemm )")}}}).seconds);
}

/// The steps that a search tries beside one, when none is faster.
std::vector<std::int64_t> tried_beside(const Workload& w, const std::string& tree) {
  Plan plan{.kernels = {{.tree = parse_tree(tree)}}};
  const std::int64_t before = plan.kernels.front().tree.step;
  std::vector<std::int64_t> tried;
  double seconds = 1;
  refine(plan, 0, seconds, w, 96, [&](const Plan& p) -> std::optional<double> {
    const std::int64_t now = p.kernels.front().tree.step;
    if (now != before) tried.push_back(now);
    return std::nullopt;
  });
  std::ranges::sort(tried);
  return tried;
}

/// Of the steps with a number of trips, the least is tried: the next to a step, to its double and
/// to its half, listed here one by one.
TEST(Planner, StepsThatAreTriedDifferInTrips) {
  for (const std::int64_t extent : {1, 7, 16, 17, 48, 100, 269, 1000}) {
    const auto w = workload("softmax:cols=64,rows=" + std::to_string(extent));
    std::vector<std::int64_t> all;
    for (std::int64_t t = 1; t <= extent; ++t)
      if ((t < 16 || t % 16 == 0 || t == extent) &&
          (all.empty() || t == extent || ceil_div(extent, t) != ceil_div(extent, all.back())))
        all.push_back(t);
    for (std::int64_t step = 1; step <= extent; step += 1 + extent / 37) {
      std::set<std::int64_t> near;
      for (const std::int64_t most : {step / 2, step - 1})
        if (const auto at = std::ranges::upper_bound(all, most); at != all.begin())
          near.insert(*std::prev(at));
      for (const std::int64_t least : {step + 1, 2 * step})
        if (const auto at = std::ranges::lower_bound(all, least); at != all.end()) near.insert(*at);
      EXPECT_EQ(tried_beside(*w, "r/" + std::to_string(step) + "@grid c/64 ( C.rowmax )"),
                std::vector(near.begin(), near.end()))
          << step << " of " << extent;
    }
  }
  const auto many = workload("softmax:cols=1,rows=2147483647");
  EXPECT_EQ(tried_beside(*many, "r/16@grid c/1 ( C.rowmax )"),
            (std::vector<std::int64_t>{8, 15, 32}));
}

/// Layers that differ in names alone have their tiles searched once, also in a plan of the whole.
TEST(Planner, TilesOfEqualLayersAreSearchedOnce) {
  const auto tried = [](int blocks) {
    Question q = question("resnext101:size=32,blocks=" + std::to_string(blocks), "mlu370");
    for (const Model& m : builtin_models())
      if (m.name != planner().name) q.others.push_back(&m);
    const Result<Proposal> p = planner().propose(q, standard());
    EXPECT_TRUE(p.ok());
    return p->detail.at("candidates").at("generated").get<int>();
  };
  const int two = tried(2);
  EXPECT_GT(two, 100);
  EXPECT_EQ(tried(5), two);
}

/// Larger graphs whose parts' costs are sums have the cheaper choice of each edge, too, and explain
/// says so on one screen.
TEST(Planner, LargerGraphsHaveTheCheaperChoiceOnOneScreen) {
  constexpr std::ptrdiff_t kScreen = 50;
  int compared = 0, many = 0;
  for (const char* name : {"random-graph:vertices=37,rows=416,cols=168,seed=180626",
                           "random-graph:vertices=38,rows=448,cols=240,seed=824300"})
    for (const char* machine : {"cache:48K/12,1M/16", "scratchpad:200K"}) {
      SCOPED_TRACE(std::string(name) + " on " + machine);
      Question q = question(name, machine);
      for (const Model& m : builtin_models())
        if (m.name != planner().name) q.others.push_back(&m);
      const Result<Proposal> p =
          planner().propose(q, {planner().options, {{"why", {"on"}}}, "planner"});
      ASSERT_TRUE(p.ok()) << p.reason();
      for (const auto& e : p->detail.at("edges")) {
        if (e["bytes_fused"].is_null() || e["bytes_apart"].is_null()) continue;
        ++compared;
        const double fused = e["bytes_fused"], apart = e["bytes_apart"];
        EXPECT_LE(e["fused"].get<bool>() ? fused : apart, 1.02 * std::min(fused, apart)) << e;
      }
      nlohmann::ordered_json said = p->detail;
      said["workload"] = name, said["machine"] = machine, said["model"] = planner().name;
      const std::string text = table().explained(said);
      EXPECT_LE(std::ranges::count(text, '\n'), kScreen) << text;
      many += text.find(" more edges, which --json lists") != std::string::npos;
    }
  EXPECT_GT(compared, 20);
  EXPECT_GT(many, 0);
}

}  // namespace
}  // namespace tilewright::quickest
