// Does resolve say what plan.md says: memory, legality and its reasons, home points, the walk?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/plan/stream.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using testing::worked_machine;
using testing::worked_plan;
using testing::worked_rows;
using testing::worked_workload;
using testing::WorkedRow;

Result<Schedule> resolve_row(const WorkedRow& row) {
  return resolve(worked_plan(row), worked_workload(row), worked_machine(row.machine));
}

WorkedRow chain_row(std::string tree) {
  WorkedRow row = worked_rows().front();
  row.tree = std::move(tree);
  return row;
}

class Worked : public ::testing::TestWithParam<WorkedRow> {};

TEST_P(Worked, ResolvesWithTheMemoryOfTheTable) {
  const auto s = resolve_row(GetParam());
  ASSERT_TRUE(s.ok()) << s.reason();
  const auto memory = memory_use(*s);
  for (const auto& [level, elements] : GetParam().memory)
    EXPECT_EQ(memory.at(level), Bytes(elements * 4)) << level;
  EXPECT_FALSE(misfit(*s).has_value());
}

TEST_P(Worked, ResolvingAScheduleChangesNothing) {
  const auto workload = worked_workload(GetParam());
  const auto machine = worked_machine(GetParam().machine);
  const auto once = resolve(worked_plan(GetParam()), workload, machine);
  ASSERT_TRUE(once.ok()) << once.reason();
  const auto twice = resolve(once->resolved, workload, machine);
  ASSERT_TRUE(twice.ok()) << twice.reason() << "\n" << to_text(once->resolved.kernels[0].tree);
  EXPECT_EQ(once->resolved, twice->resolved);
  const auto events = [](const Schedule& s) {
    std::vector<std::tuple<int, int, int, std::string, std::int64_t>> list;
    walk(s, [&](const AccessEvent& e) {
      list.emplace_back(static_cast<int>(e.kind), e.tensor.value, e.op.value, to_text(e.box),
                        e.instance);
    });
    return list;
  };
  EXPECT_EQ(events(*once), events(*twice));
}

TEST_P(Worked, TheWalkRunsEveryOperatorAsOftenAsTheTableSays) {
  const auto s = resolve_row(GetParam());
  ASSERT_TRUE(s.ok()) << s.reason();
  std::map<std::string, std::int64_t> operations;
  walk(*s, [&](const AccessEvent& e) {
    if (e.kind == AccessKind::compute) operations[s->workload->op(e.op).name] += e.operations;
  });
  for (const auto& [op, count] : GetParam().operations) EXPECT_EQ(operations[op], count) << op;
}

INSTANTIATE_TEST_SUITE_P(Rows, Worked, ::testing::ValuesIn(worked_rows()), [](const auto& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// What another kernel made is an input here: its pin keeps both its level and its `at`.
TEST(Resolve, APinWithALevelAndALoopResolvesToItself) {
  const auto w = worked_workload(worked_rows().front());
  const auto m = std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1M,1M"));
  Plan plan{.kernels = {{.tree = compute("gemm1")}, {.tree = compute("gemm2")}}};
  plan.kernels[1].pins["C"] = {.level = "L2", .at = "l"};
  const auto once = resolve(plan, w, m);
  ASSERT_TRUE(once.ok()) << once.reason();
  EXPECT_EQ(once->resolved.kernels[1].pins.at("C"), plan.kernels[1].pins["C"]);
}

TEST(Resolve, PrintsRuleNinesLoadsInParenthesesOfTheirOwn) {
  const auto s = resolve_row(chain_row("m n l ( k ( C.gemm1 ) C.gemm2 )"));
  ASSERT_TRUE(s.ok()) << s.reason();
  EXPECT_EQ(to_text(s->resolved.kernels[0].tree),
            "m/4 n/3 l/5 ( k/4 ( L.A@L1 L.B@L1 C.gemm1 ) ( L.D@L1 C.gemm2 ) )");
}

struct Illegal {
  const char* tree;
  const char* reason;
};

class IllegalTree : public ::testing::TestWithParam<Illegal> {};

TEST_P(IllegalTree, IsRefusedWithTheReason) {
  const auto s = resolve_row(chain_row(GetParam().tree));
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.reason(), HasSubstr(GetParam().reason));
}

INSTANTIATE_TEST_SUITE_P(
    Reasons, IllegalTree,
    ::testing::Values(
        Illegal{"m l k ( C.gemm1 n ( C.gemm2 ) )", "gemm2 is inside k, a reduction loop of gemm1"},
        Illegal{"m l ( n ( C.gemm2 ) k ( C.gemm1 ) )",
                "gemm2 reads C before gemm1 has computed it"},
        Illegal{"m l ( k ( L.A C.gemm1 ) ( L.B n ( C.gemm2 ) ) )", "no compute in the parentheses"},
        Illegal{"m l ( k ( ( L.A L.B S.E ) C.gemm1 ) n ( C.gemm2 ) )", "no compute"},
        Illegal{"m/4 ( l ( k ( C.gemm1 ) n ( C.gemm2 ) ) S.C )", "pin it to DRAM to spill it"},
        Illegal{"m ( k l ( C.gemm1 ) n ( S.E l ( C.gemm2 ) ) )", "S.E does not follow"},
        Illegal{"l@grid m ( k ( C.gemm1 ) n ( C.gemm2 ) )", "l reduces E over blocks"},
        Illegal{"l@grid m ( k ( C.gemm1 ) l/2 ( n ( C.gemm2 S.E!atomic ) ) )", "more than once"}));

TEST(Resolve, StoresATileThatOthersReadOnceItIsWhole) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("loops: {r: 4, c: 12}\noperators:\n  - \"t: t[r,c] = x[r,c] + z[r,c]\"\n"
                         "  - \"s: s[r] += t[r,c]\"\noutputs: [t, s]\n",
                         "t"));
  const auto m = std::make_shared<const Machine>(named_machine("scratchpad:4K"));
  const auto of = [&](const char* tree) {
    return resolve(Plan{.kernels = {{.tree = parse_tree(tree)}}}, w, m);
  };
  EXPECT_THAT(of("r/1 ( c/4 ( C.t S.t ) c/4 ( C.s ) )").reason(),
              HasSubstr("S.t is inside c, each of whose iterations makes a part of the tile that "
                        "t's readers share"));
  EXPECT_TRUE(of("r/1 ( c/4 ( C.t ) S.t c/4 ( C.s ) )").ok());
  EXPECT_TRUE(of("r/1 ( c/4 ( C.t S.t C.s ) )").ok());           // each iteration's own tile
  EXPECT_TRUE(of("r/1 ( c/12 ( C.t S.t ) c/4 ( C.s ) )").ok());  // one iteration
}

TEST(Resolve, AllLoadsOfATileReadOneLevel) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("loops: {r: 4, c: 12}\noperators:\n  - \"t: t[r] += x[r,c]\"\n", "t"));
  const auto m = std::make_shared<const Machine>(named_machine("h200"));
  const auto of = [&](const char* tree) {
    return resolve(Plan{.kernels = {{.tree = parse_tree(tree)}}}, w, m);
  };
  EXPECT_THAT(of("r/2 ( L.x@registers c/4 ( L.x@shared L.x@registers C.t ) )").reason(),
              HasSubstr("L.x at registers reads shared here and DRAM in an earlier load"));
  EXPECT_TRUE(of("r/2 ( L.x@shared L.x@registers c/4 ( L.x@registers C.t ) )").ok());
}

Result<Schedule> resolve_gather(const std::string& operators, const Kernel& kernel,
                                const std::string& tensors = "T: [9, d], ids: [b]") {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("loops: {b: 4, d: 3, r: 9}\ntensors: {" + tensors +
                             "}\ndtypes: {ids: i32}\noperators:\n" + operators,
                         "t"));
  return resolve(Plan{.kernels = {kernel}}, w,
                 std::make_shared<const Machine>(named_machine("scratchpad:4K")));
}

const char* const kLookup = "  - \"look: y[b,d] = T[ids[b],d] + q[d]\"\n  - \"u: u[r] = w[r]\"\n";

/// Why `resolve` takes no such plan; empty: it does.
std::string refusal(const std::string& workload, const std::string& tree,
                    const std::string& at_home = "") {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(workload, "test"));
  const auto m = std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1M"));
  Kernel k{.tree = parse_tree(tree, "tree")};
  if (!at_home.empty()) k.pins[at_home].level = "DRAM";
  const auto s = resolve({.kernels = {k}}, w, m);
  return s.ok() ? "" : s.reason();
}

TEST(Resolve, ReadersDoNotRunAheadOfWhatALoopAroundBothHasMade) {
  const auto reads_at = [](const std::string& at) {
    return "loops: {r: 20}\ntensors: {x: [30], t: [20]}\noperators:\n  - \"t: t[r] = -x[r]\"\n"
           "  - \"u: u[r] = t[" +
           at + "]\"\n  - \"v: v[r] = -t[r]\"\noutputs: [u, v]\n";
  };
  const std::string tree = "r/2 ( r/1 ( C.t ) r/1 ( C.u ) ) r/9 ( C.v )";
  EXPECT_THAT(refusal(reads_at("r+1"), tree), HasSubstr("u reads t further along r"));
  // Turns of such loops come one after the other, too.
  for (const char* hint : {"vector", "unroll"})
    EXPECT_THAT(refusal(reads_at("r+1"), "r/2@" + std::string(hint) + tree.substr(3)),
                HasSubstr("u reads t further along r"));
  EXPECT_EQ(refusal(reads_at("r"), tree), "");
  EXPECT_EQ(refusal(reads_at("r-1"), tree), "");
  EXPECT_EQ(refusal(reads_at("r+1"), "r/2 ( C.t ) r/2 ( C.u ) r/9 ( C.v )"), "");
  // Within one turn's tile the producer makes what its readers need.
  EXPECT_EQ(refusal(reads_at("r+1"), "r/2 ( C.t C.u C.v )"), "");
  // Nor where the tensor is kept at home in between.
  EXPECT_THAT(refusal(reads_at("r+1"), tree, "t"), HasSubstr("u reads t further along r"));
  EXPECT_EQ(refusal(reads_at("r"), tree, "t"), "");
  EXPECT_EQ(refusal(reads_at("r-1"), tree, "t"), "");
  EXPECT_EQ(refusal(reads_at("r+1"), "r/2 ( C.t ) r/2 ( C.u ) r/9 ( C.v )", "t"), "");
}

TEST(Resolve, RowsThatAreCompleteMayBeReadToTheirEnd) {
  const auto reads_at = [](const std::string& at) {
    return "loops: {r: 6, c: 8}\ntensors: {x: [r, c], t: [r, c]}\noperators:\n"
           "  - \"t: t[r,c] = -x[r,c]\"\n  - \"u: u[r,c] = t[" +
           at +
           "]\"\n"
           "  - \"v: v[r,c] = -t[r,c]\"\noutputs: [u, v]\n";
  };
  const std::string tree = "r/1 c/2 ( C.t C.u ) r/3 ( C.v )";
  EXPECT_EQ(refusal(reads_at("r-1,c+1"), tree), "");
  EXPECT_THAT(refusal(reads_at("r,c+1"), tree), HasSubstr("u reads t further along c"));
  EXPECT_THAT(refusal(reads_at("r+1,c"), tree), HasSubstr("u reads t further along r"));
}

TEST(Resolve, AGatherIsReadAtHomeAndItsIndicesAreLoaded) {
  const auto s = resolve_gather(kLookup, {.tree = parse_tree("( b/2 ( C.look ) C.u )")});
  ASSERT_TRUE(s.ok()) << s.reason();
  EXPECT_EQ(to_text(s->resolved.kernels[0].tree), "b/2 ( L.ids@L1 L.q@L1 C.look ) ( L.w@L1 C.u )");
  std::vector<std::int64_t> elements;
  walk(*s, [&](const AccessEvent& e) {
    if (e.kind != AccessKind::gather) return;
    elements.push_back(e.elements);
    EXPECT_EQ(s->workload->tensor(e.tensor).name, "T");
    EXPECT_FALSE(e.buffer.valid());
  });
  EXPECT_EQ(elements, (std::vector<std::int64_t>{6, 6}));  // two rows of b, three of d
}

TEST(Resolve, RefusesWhatAGatherCannotHave) {
  const auto reason = [](const std::string& operators, const Kernel& kernel,
                         const std::string& tensors = "T: [9, d], ids: [b]") {
    const auto s = resolve_gather(operators, kernel, tensors);
    return s.ok() ? "legal" : s.reason();
  };
  EXPECT_THAT(reason(kLookup, {.tree = parse_tree("( b/2 ( L.T C.look ) C.u )")}),
              HasSubstr("T is indexed by another tensor's values"));
  EXPECT_THAT(reason(kLookup, {.tree = parse_tree("( b/2 ( C.look ) C.u )"),
                               .pins = {{"T", {.level = "L1"}}}}),
              HasSubstr("T is pinned to L1, and look reads it by another tensor's values"));
  EXPECT_THAT(reason("  - \"make: T[r,d] = x[r,d]\"\n  - \"look: y[b,d] = T[ids[b],d]\"\n",
                     {.tree = parse_tree("( C.make C.look )")}, "ids: [b]"),
              HasSubstr("this kernel makes T"));
  // Beyond an edge nothing is read.
  EXPECT_EQ(reason("  - \"look: y[b,d] += T[ids[b],d + r]\"\n", {.tree = parse_tree("C.look")},
                   "T: [9, 4], ids: [b]"),
            "legal");
}

TEST(Resolve, RefusesALoopWhoseOperatorsHaveDifferentRanges) {
  // g makes only what u needs around o; v, an output, makes everything. One loop cannot cut both.
  WorkedRow row;
  row.workload = R"yaml(
loops: {o: 10, h: 12, r: 3}
operators:
  - "f: P[h] = 2 * I[h]"
  - "g: Q[h] = P[h] + 1"
  - "v: Z[h] = P[h] * 3"
  - "u: O[o] += Q[o+r] * W[r]"
)yaml";
  row.machine = "scratchpad:4096B";
  row.tree = "o/4 ( h/2 ( C.f C.g C.v ) C.u )";
  const auto s = resolve_row(row);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.reason(), HasSubstr("different ranges of"));
  row.tree = "( h/2 ( C.f C.v ) o/4 ( h/2 ( C.g ) C.u ) )";
  const auto apart = resolve_row(row);
  EXPECT_TRUE(apart.ok()) << apart.reason();
}

TEST(Resolve, BadPlansAreInputErrorsThatNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"z ( C.gemm1 )", "z"},
      {"m l ( k ( C.gemm1 ) n ( C.gemm3 ) )", "gemm3"},
      {"m/11 l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "11"},
      {"m m ( l k ( C.gemm1 ) n ( C.gemm2 ) )", "nested in itself"},
      {"m l ( k ( L.A@L7 C.gemm1 ) n ( C.gemm2 ) )", "L7"},
      {"m l k ( C.gemm1 )", "gemm2"},
      {"m l ( k ( C.gemm1 C.gemm1 ) n ( C.gemm2 ) )", "twice"},
      {"m l ( k ( C.gemm1 ) n ( C.gemm2 S.A ) )", "A"}};
  for (const auto& [tree, expected] : cases) {
    try {
      const auto s = resolve_row(chain_row(tree));
      ADD_FAILURE() << tree << " was accepted" << (s.ok() ? "" : s.reason());
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(expected)) << tree;
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Resolve, MissingStepsAndTilesPastTheExtentAreNamed) {
  WorkedRow row = chain_row("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )");
  row.tiles.erase("k");
  EXPECT_THROW((void)resolve_row(row), InputError);
  row.tiles["k"] = 8;  // k is 7 long
  EXPECT_THROW((void)resolve_row(row), InputError);
  row.tiles["k"] = 7;
  EXPECT_TRUE(resolve_row(row).ok());
  row.tiles["q"] = 1;
  EXPECT_THROW((void)resolve_row(row), InputError);
}

TEST(Resolve, AReductionLoopOfOneTripHidesNothing) {
  WorkedRow row = chain_row("m l k ( C.gemm1 n ( C.gemm2 ) )");
  row.tiles["k"] = 7;
  const auto s = resolve_row(row);
  EXPECT_TRUE(s.ok()) << s.reason();
}

TEST(Resolve, OnceSkipsWhatIsCompleteAndItsLoads) {
  WorkedRow row = chain_row("m n l ( k ( C.gemm1!once ) C.gemm2 )");
  row.pins["C"] = Pin{.level = "", .at = "m"};
  const auto s = resolve_row(row);
  ASSERT_TRUE(s.ok()) << s.reason();
  std::int64_t gemm1 = 0;
  std::int64_t loaded = 0;
  walk(*s, [&](const AccessEvent& e) {
    if (e.kind == AccessKind::compute && s->workload->op(e.op).name == "gemm1")
      gemm1 += e.operations;
    if (e.kind == AccessKind::load && s->workload->tensor(e.tensor).name == "B")
      loaded += e.box.size();
  });
  EXPECT_EQ(gemm1, 630);      // once, although n is outside
  EXPECT_EQ(loaded, 3 * 63);  // B once for every m block
}

/// C is made in two kernels: the first writes it home for the third, the second for itself alone.
TEST(Resolve, AnOperatorMayBeComputedInSeveralKernels) {
  const auto workload = std::make_shared<const Workload>(
      workload_from_yaml("name: shared\nloops: {m: 6, k: 4, l: 5}\noperators:\n"
                         "  - \"gemm: C[m,l] += A[m,k] * B[k,l]\"\n"
                         "  - \"left: X[m,l] = relu(C[m,l])\"\n"
                         "  - \"right: Y[m,l] = C[m,l] * X[m,l]\"\n",
                         "test"));
  const auto machine = std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1M"));
  Plan plan;
  const auto kernel = [&](const char* tree) { plan.kernels.push_back({.tree = parse_tree(tree)}); };
  kernel("m/2 k/4 l/5 C.gemm");
  kernel("m/2 ( k/2 l/5 C.gemm l/5 C.left )");
  kernel("m/3 l/5 C.right");
  const auto s = resolve(plan, workload, machine);
  ASSERT_TRUE(s.ok()) << s.reason();
  const auto home = [&](std::size_t k) {
    for (const Buffer& b : s->kernels[k].buffers)
      if (workload->tensor(b.tensor).name == "C") return b.role == BufferRole::output || b.leaves;
    throw std::logic_error("no buffer");
  };
  EXPECT_TRUE(home(0));
  EXPECT_FALSE(home(1));
  EXPECT_EQ(resolve(s->resolved, workload, machine)->resolved, s->resolved);

  // The one that stores it is the one that writes it.
  plan.kernels[1].tree = parse_tree("m/2 ( k/2 l/5 C.gemm l/5 C.left S.C )");
  EXPECT_THROW((void)resolve(plan, workload, machine), InputError);  // the first: for nobody
  plan.kernels.erase(plan.kernels.begin());
  EXPECT_TRUE(resolve(plan, workload, machine).ok());

  // Nobody reads it from home: each kernel has its own, and C never moves.
  plan.kernels.clear();
  kernel("m/2 ( k/2 l/5 C.gemm l/5 C.left )");
  kernel("m/2 ( k/2 l/5 C.gemm l/5 C.right )");
  const auto own = resolve(plan, workload, machine);
  ASSERT_TRUE(own.ok()) << own.reason();
  for (const ScheduledKernel& k : own->kernels)
    for (const Buffer& b : k.buffers)
      if (workload->tensor(b.tensor).name == "C") {
        EXPECT_EQ(b.role, BufferRole::intermediate);
        EXPECT_FALSE(b.leaves);
      }

  // Two may not store it, and one that nothing reads in its kernel is computed for nobody.
  plan.kernels[0].pins["C"].level = plan.kernels[1].pins["C"].level = "DRAM";
  EXPECT_THROW((void)resolve(plan, workload, machine), InputError);
}

TEST(Resolve, KernelsMeetAtHome) {
  WorkedRow row = chain_row("");
  const auto workload = worked_workload(row);
  const auto machine = worked_machine(row.machine);
  Plan plan;
  plan.kernels = {Kernel{.tree = parse_tree("m l k ( C.gemm1 )"), .tiles = row.tiles},
                  Kernel{.tree = parse_tree("m n l ( C.gemm2 )"), .tiles = row.tiles}};
  const auto s = resolve(plan, workload, machine);
  ASSERT_TRUE(s.ok()) << s.reason();
  ASSERT_EQ(s->kernels.size(), 2u);
  const auto role = [&](int kernel, const char* tensor) {
    for (const Buffer& b : s->kernels[static_cast<std::size_t>(kernel)].buffers)
      if (workload->tensor(b.tensor).name == tensor) return b.role;
    throw std::logic_error("no buffer");
  };
  EXPECT_EQ(role(0, "C"), BufferRole::output);
  EXPECT_EQ(role(1, "C"), BufferRole::input);
  std::swap(plan.kernels[0], plan.kernels[1]);
  EXPECT_THROW((void)resolve(plan, workload, machine), InputError);
}

TEST(Resolve, EveryPlanOfTheDesignParsesAndResolvesOnItsTarget) {
  const auto check = [](const char* workload, const char* machine, const char* tree,
                        std::map<std::string, std::int64_t> tiles, std::map<std::string, Pin> pins,
                        const char* rewrite, const char* level) {
    Workload w = named_workload(workload);
    if (*rewrite != '\0') w = tilewright::apply(rewrite, w).value();
    const auto s = resolve(Plan{.kernels = {Kernel{.level = level,
                                                   .tree = parse_tree(tree),
                                                   .tiles = std::move(tiles),
                                                   .pins = std::move(pins)}}},
                           std::make_shared<const Workload>(std::move(w)),
                           std::make_shared<const Machine>(named_machine(machine)));
    ASSERT_TRUE(s.ok()) << tree << ": " << s.reason();
    EXPECT_FALSE(memory_use(*s).empty());
  };
  const char* const chain = "gemm-chain:m=256,n=64,k=64,l=256,dtype=f16";
  check(chain, "a100", "m@grid n@grid ( l ( k ( L.A L.B C.gemm1 ) L.D C.gemm2 ) S.E )",
        {{"m", 64}, {"n", 32}, {"l", 64}, {"k", 32}}, {}, "", "shared");
  check(chain, "a100", "m@grid ( l ( k ( C.gemm1 ) n ( C.gemm2 ) ) S.E )",
        {{"m", 64}, {"n", 32}, {"l", 64}, {"k", 32}}, {}, "", "shared");
  check("attention:m=256,l=256,k=64,n=64,dtype=f16", "h200",
        "m@grid ( l ( k ( C.qk ) C.rowmax C.exp C.rowsum C.rescale C.pv ) C.divide S.E )",
        {{"m", 64}, {"l", 64}, {"k", 64}}, {}, "online-softmax", "shared");
  check(
      "layernorm:rows=64,cols=256", "h200",
      "r/1@grid ( L.x@registers c@thread ( C.sum ) Y.block C.mean c@thread ( C.sub C.sq C.varsum ) "
      "Y.block C.rstd c@thread ( C.norm S.y ) )",
      {{"c", 1}}, {}, "", "registers");
  check("gemm-chain:m=48,n=64,k=16,l=64", "xeon-gold-6240",
        "m/6 l/64 ( k/1 ( L.B m/1@unroll ( L.A l/16@vector ( C.gemm1 ) ) ) n/64 ( L.D C.gemm2 ) )",
        {}, {}, "", "registers");
}

TEST(Walk, OfSeveralOutputsNoneIsWrittenOutsideOfItsTile) {
  // The second output leaves the kernel, or is read in other rows: more is made than the first
  // needs.
  const std::string two =
      "operators:\n  - \"T3: T3[c,w] = X[c,w]; T3b[c,w] = X[c,w] + 1\"\n"
      "  - \"T4[c,w] = T3[0,w]\"\n";
  for (const std::string& text : {two, two + "  - \"T5[c,w] = T3b[c,w] * 2\"\n"})
    for (const char* tree : {"c ( C.T3 ) c ( C.T4 )", "w/4 ( c ( C.T3 ) c ( C.T4 ) )"}) {
      const bool three = text != two;
      const auto w = std::make_shared<const Workload>(
          workload_from_yaml("name: two\nloops: {c: 40, w: 8}\n" + text, "test"));
      std::string whole = tree;
      if (three) whole = "( " + whole + " c ( C.T5 ) )";
      Kernel k{.tree = parse_tree(whole), .tiles = {{"c", 10}}};
      const auto s = resolve(Plan{.kernels = {k}}, w, worked_machine("scratchpad:64K"));
      ASSERT_TRUE(s.ok()) << s.reason();
      walk(*s, [&](const AccessEvent& e) {
        if (e.kind != AccessKind::update) return;
        EXPECT_TRUE(contains(e.tile, e.box)) << whole << ": " << w->tensor(e.tensor).name;
      });
    }
}

TEST(Walk, NeverStraysOutsideATensorAndVisitsEveryElementOfTheOutput) {
  for (const WorkedRow& row : worked_rows()) {
    const auto s = resolve_row(row);
    ASSERT_TRUE(s.ok()) << s.reason();
    std::map<TensorId, std::set<std::int64_t>> written;
    walk(*s, [&](const AccessEvent& e) {
      if (!e.tensor.valid()) return;
      const Tensor& t = s->workload->tensor(e.tensor);
      EXPECT_TRUE(contains(t.whole(), e.box)) << row.name << " " << t.name;
      EXPECT_TRUE(contains(e.tile, e.box)) << row.name << " " << t.name;
      if (e.kind != AccessKind::update || e.box.rank() != 2) return;
      for (std::int64_t i = e.box[0].lo; i < e.box[0].hi; ++i)
        for (std::int64_t j = e.box[1].lo; j < e.box[1].hi; ++j)
          written[e.tensor].insert(i * t.shape[1] + j);
    });
    for (TensorId t : s->workload->outputs()) {
      if (s->workload->tensor(t).shape.size() != 2) continue;
      EXPECT_EQ(static_cast<std::int64_t>(written[t].size()),
                s->workload->tensor(t).elements().value);
    }
  }
}

}  // namespace
}  // namespace tilewright
