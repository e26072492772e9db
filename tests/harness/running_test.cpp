// Running operators (online softmax): which trees resolve takes, and whether those compute the
// right values and are counted alike.
#include <gmock/gmock.h>

#include "core/workload/rewrite/rewrite.h"
#include "tests/codegen/kernel_support.h"
#include "tests/harness/witnesses.h"
#include "tests/support/interpreter.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAttention = "attention:m=8,l=16,k=4,n=4,online=1";

Result<Schedule> resolved(const std::string& tree, const std::map<std::string, Pin>& pins = {},
                          const std::map<std::string, TensorFlags>& flags = {}) {
  Kernel k{.tree = parse_tree(tree),
           .tiles = {{"m", 4}, {"l", 8}, {"k", 4}, {"n", 2}},
           .pins = pins,
           .flags = flags};
  return resolve(Plan{.kernels = {k}}, std::make_shared<const Workload>(named_workload(kAttention)),
                 std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1M")));
}

std::string refusal(const std::string& tree, const std::map<std::string, Pin>& pins = {},
                    const std::map<std::string, TensorFlags>& flags = {}) {
  const auto s = resolved(tree, pins, flags);
  return s.ok() ? "legal" : s.reason();
}

constexpr const char* kOnline =
    "m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) n ( C.divide ) )";

TEST(Running, WhatIsReadInTheSameBlockIsLegal) {
  EXPECT_EQ(refusal(kOnline), "legal");
  EXPECT_EQ(refusal(kOnline, {{"P", {.level = "DRAM"}}}), "legal");  // its tile moves with l
  EXPECT_EQ(refusal("n m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale C.pv C.rowsum ) C.divide )"),
            "legal");
  // One block, or the maximum completed first: nothing changes any more.
  EXPECT_EQ(refusal("m ( l/16 ( k ( C.qk ) C.rowmax C.exp C.rescale ) l/16 ( n ( C.pv ) C.rowsum ) "
                    "n ( C.divide ) )"),
            "legal");
}

TEST(Running, WhatIsAccumulatedMustBeHeldToTheLastBlock) {
  const std::string dropped =
      "l ( m ( k ( C.qk ) C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) ) m n ( C.divide )";
  EXPECT_THAT(refusal(dropped), HasSubstr("R is accumulated over l, and m inside it goes on to "
                                          "another tile of it"));
  // Pinned outside of the reduction, all of it is there in every block.
  EXPECT_EQ(
      refusal("n ( l ( m ( k ( C.qk ) C.rowmax C.exp C.rescale C.pv C.rowsum ) ) m ( C.divide "
              ") )",
              {{"R", {.at = "n"}}}),
      "legal");
}

TEST(Running, WhatChangesWithEveryBlockIsReadWhereItIsMade) {
  EXPECT_THAT(refusal(kOnline, {{"R", {.level = "DRAM"}}}),
              HasSubstr("L.R would keep what an earlier block of l has made"));
  EXPECT_THAT(refusal(kOnline, {{"alpha", {.level = "DRAM"}}}),
              HasSubstr("L.alpha would keep what an earlier block of l has made"));
  EXPECT_THAT(refusal("m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale!once n ( C.pv ) C.rowsum ) n ( "
                      "C.divide ) )"),
              HasSubstr("C.rescale!once would skip what changes with every block of l"));
  EXPECT_THAT(refusal(kOnline, {}, {{"P", {.sliding = true}}}), HasSubstr("P slides"));
}

TEST(Running, FactorsAreForTheBlockThatTheyRescale) {
  EXPECT_THAT(
      refusal("m@grid ( l ( k ( C.qk ) C.rowmax C.exp C.rowsum ) l ( C.rescale n ( C.pv ) ) "
              "n ( C.divide ) )"),
      HasSubstr("P belongs to one block of l"));
  EXPECT_THAT(refusal("m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale l/4 ( n ( C.pv ) ) C.rowsum ) n "
                      "( C.divide ) )"),
              HasSubstr("pv is rescaled by alpha, which rescale makes for other blocks"));
  EXPECT_THAT(refusal("m ( l ( k ( C.qk ) C.rowmax C.exp C.rescale ) l ( C.rowsum n ( C.pv ) ) n ( "
                      "C.divide ) )"),
              HasSubstr("P belongs to one block of l"));
}

TEST(Running, UnitsHaveNoPartialResultsOfTheirOwn) {
  for (const std::string binding : {"grid", "warp", "thread"})
    EXPECT_THAT(refusal("m ( l@" + binding +
                        " ( k ( C.qk ) C.rowmax C.exp C.rescale n ( C.pv ) C.rowsum ) n ( C.divide "
                        ") )"),
                ::testing::Not("legal"))
        << binding;
}

/// Workloads with running operators, small.
std::vector<Workload> running_workloads() {
  std::vector<Workload> all;
  for (const char* name : {"attention:m=4,l=6,k=2,n=3,online=1,dtype=f64",
                           "attention:m=3,l=5,k=2,n=2,online=1,scale=1,heads=2,dtype=f64"})
    all.push_back(named_workload(name));
  all.push_back(
      tilewright::apply("online-softmax", named_workload("attention:m=3,l=6,k=2,n=2,dtype=f64"))
          .value());
  return all;
}

TEST(Running, EveryTreeThatResolvesComputesTheRightValuesAndIsCountedAlike) {
  constexpr std::uint64_t kSeed = 20261122;
  std::mt19937_64 random(kSeed);
  const std::vector<Workload> workloads = running_workloads();
  testing::Agreement seen;
  std::map<std::string, int> reasons;
  int cut = 0;
  for (int i = 0; seen.legal < 900 && i < 60000; ++i) {
    const testing::RandomCase c =
        testing::random_case_of(random, workloads[static_cast<std::size_t>(i) % workloads.size()],
                                {.two_levels = false, .grid = false, .units = false});
    const std::string which = "case " + std::to_string(i);
    const int legal = seen.legal;
    seen.look(c, which);
    if (HasFailure()) return;
    if (seen.legal == legal) continue;
    const Schedule s = resolve(c.plan, c.workload, c.machine).value();
    const TensorValues inputs = random_inputs(*c.workload, 3);
    const TensorValues wanted = evaluate(*c.workload, inputs);
    const testing::Interpreter got(s, inputs);
    for (TensorId t : c.workload->outputs())
      for (std::size_t e = 0; e < wanted[t.index()].size(); ++e)
        ASSERT_NEAR(got.values()[t.index()][e], wanted[t.index()][e], 1e-12)
            << which << "\n"
            << testing::describe(c);
    for (const ScheduledKernel& k : s.kernels)
      for (const ScheduleNode& n : k.nodes)
        if (n.kind == NodeKind::loop && n.max_trips > 1 &&
            std::ranges::any_of(n.cuts, [&](const OpLoop& l) {
              return c.workload->op(l.op).running && c.workload->is_reduction(l.op, n.loop);
            })) {
          ++cut;
          break;
        }
  }
  std::cout << seen.legal << " legal, " << seen.illegal << " not, " << cut
            << " over several blocks\n";
  EXPECT_EQ(seen.legal, 900);
  EXPECT_GT(cut, 120);
}

TEST(Running, TheCpuTargetComputesThem) {
  std::mt19937_64 random(7);
  const std::vector<Workload> workloads = running_workloads();
  std::vector<cpu::Source> sources;
  std::vector<testing::RandomCase> cases;
  for (int i = 0; sources.size() < 16 && i < 20000; ++i) {
    testing::RandomCase c =
        testing::random_case_of(random, workloads[static_cast<std::size_t>(i) % workloads.size()],
                                {.two_levels = false, .units = false});
    try {
      const auto s = resolve(c.plan, c.workload, c.machine);
      if (!s.ok()) continue;
      auto source = cpu::emit(*s, {.prefix = "k" + std::to_string(sources.size())});
      if (!source.ok()) continue;
      sources.push_back(std::move(source).value());
      cases.push_back(std::move(c));
    } catch (const InputError&) {  // a pin at a loop that is not there
    }
  }
  ASSERT_EQ(sources.size(), 16u);
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Workload& w = *cases[i].workload;
    const TensorValues inputs = random_inputs(w, 5);
    testing::Arrays<double> arrays(w, inputs);
    kernels.value()[i].run(arrays.pointers());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), 1e-12)
        << testing::describe(cases[i]);
  }
}

}  // namespace
}  // namespace tilewright
