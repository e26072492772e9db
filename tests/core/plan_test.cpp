// The notation of loop trees, tile tables and plan files: what is written reads back, and what is
// wrong says where.
#include "core/plan/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "core/plan/file.h"

namespace tilewright {
namespace {

struct Example {
  const char* text;
  const char* canonical = nullptr;  ///< null: the text itself
};

// Every tree of design/plan.md, in its order.
const Example kExamples[] = {
    {"m/64@grid ( C.gemm )"},
    {"m l ( C.gemm )"},
    {"L.A@shared"},
    {"L.A@L1x2"},
    {"C.gemm1"},
    {"C.gemm1!once"},
    {"S.E@dram"},
    {"S.E!atomic"},
    {"S.E@dram!atomic"},
    {"Y.warp"},
    {"Y.block"},
    {"Y.grid"},
    {"m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"},
    {"m ( k ( l ( C.gemm1 ) ) n ( l ( C.gemm2 ) ) )", "m ( k l ( C.gemm1 ) n l ( C.gemm2 ) )"},
    {"m n l ( k ( C.gemm1 ) C.gemm2 )"},
    {"m/4 n/3 ( k/4 ( L.A@L1 L.B@L1 m/2 n/2 ( k/2 ( L.A@L0 L.B@L0 C.gemm ) S.C@L1 ) ) S.C@dram )"},
    {"k/4@grid m/4 n/3 ( C.gemm S.C!atomic )"},
    {"h/4 ( C.conv1 C.conv2 )"},
    {"h/4 ( y/4 ( C.conv1 ) C.conv2 )"},
    {"m@grid h@grid ( n ( k ( L.A L.B C.C ) L.D C.E ) S.E )"},
    {"m@grid ( n ( k ( C.C ) h ( C.E ) ) S.E )"},
    {"m@grid ( l ( k ( C.qk ) C.rowmax C.exp C.rowsum C.rescale C.pv ) C.divide S.E )"},
    {"r/1@grid ( L.x@registers c@thread ( C.sum ) Y.block C.mean c@thread ( C.sub C.sq C.varsum ) "
     "Y.block C.rstd c@thread ( C.norm S.y ) )"},
    {"( m/4@grid ( C.a ) | n/4@grid ( C.b ) )"},
    {"( m/4@grid ( C.a ) S.A | n/4@grid ( C.b ) | C.c )"},
    {"m/256@grid n/256 ( k/64 ( L.A@L1x2 L.B@L1x2 k/16 ( L.A@L0Ax2 L.B@L0Bx2 C.gemm1 ) ) S.C@UB )"},
    {"m/6 n/64 ( k/1 ( L.B m/1@unroll ( L.A n/16@vector ( C.gemm1 ) ) ) S.C )"},
    // Further forms.
    {"m C.a", "m ( C.a )"},
    {"  m/64@seq\n\t(k(C.a)S.C)", "m/64 ( k ( C.a ) S.C )"},
    {"( C.a )", "C.a"},
    {"( ( C.a C.b ) )", "C.a C.b"},
    {"m ( ( ( C.a C.b ) ) )", "m ( C.a C.b )"},
    {"m ( C.a ( C.b C.c ) )"},
    {"m ( ( C.a | C.b ) )", "m ( C.a | C.b )"},
    {"m ( C.a | ( C.b | C.c ) )"},
    {"L.A@x2"},
    {"L.A@L1x1", "L.A@L1"},
    {"C ( L.L@L C.C S.S@S )"},
    {"m C.a n C.b", "m ( C.a ) n ( C.b )"},
    {"m@lane n@warp k@cluster ( C.a )"},
    {"m/9223372036854775807 ( C.a )"},
};

TEST(PlanNotation, EveryExampleReadsBackAsCanonicalText) {
  for (const Example& e : kExamples) {
    SCOPED_TRACE(e.text);
    const Node tree = parse_tree(e.text);
    EXPECT_EQ(to_text(tree), e.canonical != nullptr ? e.canonical : e.text);
    EXPECT_EQ(parse_tree(to_text(tree)), tree);
  }
}

TEST(PlanNotation, TextAndBuildersSayTheSame) {
  EXPECT_EQ(
      parse_tree("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"),
      loop("m", loop("l", sequence({loop("k", compute("gemm1")), loop("n", compute("gemm2"))}))));
  EXPECT_EQ(parse_tree("m/64@grid ( L.A@L1x2 Y.block C.a!once S.C@dram!atomic )"),
            loop("m",
                 sequence({load("A", "L1", 2), sync("block"), compute("a", true),
                           store("C", "dram", true)}),
                 64, Binding::grid));
  EXPECT_EQ(sequence({compute("a")}), compute("a"));
  const Node placed = parse_tree("( 3: C.a C.b | C.c | 64 : m/4@grid ( C.d ) )");
  ASSERT_EQ(placed.children.size(), 3U);
  EXPECT_EQ(placed.children[0].first_block, 3);
  EXPECT_EQ(placed.children[1].first_block, std::nullopt);
  EXPECT_EQ(placed.children[2].first_block, 64);
  EXPECT_EQ(to_text(placed), "( 3: C.a C.b | C.c | 64: m/4@grid ( C.d ) )");
  const Node alone = parse_tree("m ( 0: C.a )");
  EXPECT_EQ(alone.children[0].kind, Node::Kind::pack);
  EXPECT_EQ(parse_tree(to_text(alone)), alone);
  const Node pack = parse_tree("( C.a C.b | C.c )");
  EXPECT_EQ(pack.kind, Node::Kind::pack);
  ASSERT_EQ(pack.children.size(), 2U);
  EXPECT_EQ(pack.children[0], sequence({compute("a"), compute("b")}));
}

struct BadTree {
  const char* text;
  const char* column;    ///< what the error says of the place
  const char* expected;  ///< part of what it accepts
};
const BadTree kBadTrees[] = {
    {"", "column 1", "a node"},
    {"   ", "column 4", "a node"},
    {"m", "column 2", "body of loop m"},
    {"m l", "column 4", "body of loop l"},
    {"m ( )", "column 5", "at least one node"},
    {"m ( C.a", "column 8", "')' that closes the '(' of column 3"},
    {"m ( C.a ) )", "column 11", "end of the tree"},
    {")", "column 1", "a node"},
    {"( C.a | )", "column 9", "at least one node"},
    {"( | C.a )", "column 3", "at least one node"},
    {"C.a | C.b", "column 5", "a pack in parentheses"},
    {"( 64 C.a | C.b )", "column 6", "':' after the first block"},
    {"( C.a | 64: )", "column 13", "at least one node"},
    {"( 2147483648: C.a )", "column 3", "a block, 0 to 2147483647"},
    {"64: C.a", "column 1", "the name of a loop"},
    {"X.a", "column 1", "L.TENSOR"},
    {"l.a", "column 1", "L.TENSOR"},
    {"C.", "column 3", "operator or tensor"},
    {"C.a!twice", "column 4", "!once"},
    {"C.a!once!once", "column 4", "!once"},
    {"C.a@L1", "column 3", "operator or tensor"},
    {"L.A@", "column 5", "level"},
    {"L.A@L1!atomic", "column 5", "level"},
    {"L.A@L1x0", "column 8", "copies from 1 to 8"},
    {"L.A@L1x9", "column 8", "copies from 1 to 8"},
    {"L.A@L1x99999999999999999999", "column 8", "copies from 1 to 8"},
    {"L.A@L1x2x2", "column 5", "only once"},
    {"S.E@L1x2", "column 5", "only at a load"},
    {"S.E!once", "column 4", "!atomic"},
    {"Y.lane", "column 3", "warp, block or grid"},
    {"Y.", "column 3", "warp, block or grid"},
    {"m/0 ( C.a )", "column 3", "a positive integer"},
    {"m/-4 ( C.a )", "column 3", "a positive integer"},
    {"m/+4 ( C.a )", "column 3", "a positive integer"},
    {"m/4x ( C.a )", "column 3", "a positive integer"},
    {"m/ ( C.a )", "column 3", "a positive integer"},
    {"m/9223372036854775808 ( C.a )", "column 3", "a positive integer"},
    {"m@gird ( C.a )", "column 3", "did you mean grid"},
    {"m@ ( C.a )", "column 3", "a binding"},
    {"m@grid/4 ( C.a )", "column 3", "a binding"},
    {"m/4/4 ( C.a )", "column 4", "NAME/STEP"},
    {"m!once ( C.a )", "column 2", "NAME/STEP"},
    {"2m ( C.a )", "column 1", "name of a loop"},
    {"m;rm ( C.a )", "column 1", "name of a loop"},
    {"m ( C.a, C.b )", "column 7", "operator or tensor"},
    {"m \xff ( C.a )", "column 3", "name of a loop"},
};

TEST(PlanNotation, BadTreesNameColumnAndWhatWasExpected) {
  for (const BadTree& bad : kBadTrees) {
    SCOPED_TRACE(bad.text);
    try {
      parse_tree(bad.text, "--tree");
      ADD_FAILURE() << "accepted";
    } catch (const InputError& e) {
      EXPECT_EQ(e.parts().where, "--tree");
      EXPECT_EQ(e.parts().field, bad.column) << e.what();
      EXPECT_NE(e.parts().accepted.find(bad.expected), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(PlanNotation, DepthAndLengthAreBounded) {
  const auto nested = [](int depth) {
    std::string s;
    for (int i = 0; i < depth; ++i) s += "m ";
    return s + "C.a";
  };
  EXPECT_EQ(parse_tree(to_text(parse_tree(nested(63)))), parse_tree(nested(63)));
  EXPECT_THROW(parse_tree(std::string(65, '(') + "C.a" + std::string(65, ')')), InputError);
  EXPECT_THROW(parse_tree(nested(64)), InputError);
  EXPECT_THROW(parse_tree(std::string(60'000, '(')), InputError);
  EXPECT_THROW(parse_tree(std::string((4 << 20) + 1, ' ') + "C.a"), InputError);
  std::string wide;
  for (int i = 0; i < 10'000; ++i) wide += "C.a ";
  EXPECT_EQ(parse_tree(wide).children.size(), 10'000U);
}

TEST(PlanNotation, MutatedTreesParseOrFailCleanly) {
  const unsigned seed = 20240711;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::string alphabet = "()|@/!.xLCSYmk01 9\n\t_-;\\\"\x01\xc3";
  int parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto& example = kExamples[random() % std::size(kExamples)];
    std::string text = example.text;
    const int edits = 1 + static_cast<int>(random() % 4);
    for (int e = 0; e < edits && !text.empty(); ++e) {
      const std::size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + random() % 3);
          break;
        default:
          text += text.substr(at, random() % 12);
          break;
      }
    }
    try {
      const Node tree = parse_tree(text);
      ++parsed;
      ASSERT_EQ(parse_tree(to_text(tree)), tree) << "seed " << seed << ": " << text;
      ASSERT_EQ(to_text(parse_tree(to_text(tree))), to_text(tree));
    } catch (const InputError& e) {
      ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos) << text;
    }
  }
  EXPECT_GT(parsed, 1000) << "seed " << seed;
}

TEST(PlanTiles, ReadsAndRefuses) {
  EXPECT_EQ(parse_tiles("m=64,l=64, k = 16"),
            (std::map<std::string, std::int64_t>{{"m", 64}, {"l", 64}, {"k", 16}}));
  for (const char* bad : {"", ",", "m", "m=", "=4", "m=0", "m=-1", "m=4,", "m=4,m=5", "m=4x",
                          "m=9223372036854775808", "m=4;l=5", "2=3", "m==4", "m=0x10"}) {
    SCOPED_TRACE(bad);
    EXPECT_THROW(parse_tiles(bad), InputError);
  }
  try {
    parse_tiles("m=4,l=zero");
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_EQ(e.parts().field, "l");
    EXPECT_EQ(e.parts().value, "zero");
  }
}

TEST(PlanNames, BindingsReadBack) {
  for (Binding b : {Binding::seq, Binding::grid, Binding::cluster, Binding::warp, Binding::lane,
                    Binding::thread, Binding::vector, Binding::unroll}) {
    EXPECT_EQ(binding_from_name(name_of(b)), b);
  }
  EXPECT_EQ(binding_from_name("GRID"), std::nullopt);
}

// Plan files --------------------------------------------------------------------------------------

const char* const kPlanFile = R"(schema: 1
workload: gemm-chain:m=10,n=6,k=7,l=9
machine: scratchpad:4096B
model: chimera
kernels:
  - name: fused
    operators: [gemm1, gemm2]
    level: L1
    tree: m l ( k ( C.gemm1 ) n ( C.gemm2 ) )
    tiles: {m: 4, n: 3, k: 4, l: 5}
    pins: {C: {level: L1, at: l}, E: dram}
    flags: {C: [sliding]}
)";

const char* const kInlinePlanFile = R"yaml(workload:
  name: chain
  loops: {m: 10, n: 6, k: 7, l: 9}
  tensors: {A: [m, k], B: [k, l], C: [m, l], D: [l, n], E: [m, n]}
  operators:
    - "gemm1: C[m,l] += A[m,k] * B[k,l]"
    - "gemm2: E[m,n] += C[m,l] * D[l,n]"
  outputs: [E]
workload_name: chain.yaml
kernels:
  - tree: m/4 l/5 ( k/4 ( C.gemm1 ) S.C@dram )
    pins: {C: dram}
  - tree: "m/4 ( n/3@vector ( C.gemm2 ) )"
)yaml";

TEST(PlanFile, ReadsEveryKey) {
  const PlanFile f = plan_file_from_yaml(kPlanFile, "p.yaml");
  EXPECT_EQ(f.workload_name, "gemm-chain:m=10,n=6,k=7,l=9");
  EXPECT_EQ(f.machine, "scratchpad:4096B");
  EXPECT_EQ(f.model, "chimera");
  ASSERT_EQ(f.plan.kernels.size(), 1U);
  const Kernel& k = f.plan.kernels[0];
  EXPECT_EQ(k.name, "fused");
  EXPECT_EQ(k.operators, (std::vector<std::string>{"gemm1", "gemm2"}));
  EXPECT_EQ(k.level, "L1");
  EXPECT_EQ(k.tree, parse_tree("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"));
  EXPECT_EQ(k.tiles, (std::map<std::string, std::int64_t>{{"m", 4}, {"n", 3}, {"k", 4}, {"l", 5}}));
  EXPECT_EQ(k.pins.at("C"), (Pin{.level = "L1", .at = "l"}));
  EXPECT_EQ(k.pins.at("E"), (Pin{.level = "dram"}));
  EXPECT_EQ(k.flags.at("C"), (TensorFlags{.sliding = true}));
}

TEST(PlanFile, AWorkloadInsideKeepsTheOrderOfTheFile) {
  const PlanFile f = plan_file_from_yaml(kInlinePlanFile, "p.yaml");
  std::string loops;
  for (const Loop& l : f.workload.loops()) loops += l.name;
  EXPECT_EQ(loops, "mnkl");
}

TEST(PlanFile, WhatIsWrittenReadsBack) {
  for (const char* text : {kPlanFile, kInlinePlanFile}) {
    const PlanFile f = plan_file_from_yaml(text, "p.yaml");
    const std::string yaml = to_yaml(f);
    SCOPED_TRACE(yaml);
    const PlanFile again = plan_file_from_yaml(yaml, "again.yaml");
    EXPECT_EQ(again.plan, f.plan);
    EXPECT_EQ(again.workload, f.workload);
    EXPECT_EQ(again.workload_name, f.workload_name);
    EXPECT_EQ(again.machine, f.machine);
    EXPECT_EQ(again.model, f.model);
    EXPECT_EQ(to_yaml(again), yaml);
    // JSON is YAML too, and as a plan of its own.
    const PlanFile from_json = plan_file_from_yaml(to_json(f).dump(2), "p.json");
    EXPECT_EQ(from_json.plan, f.plan);
    EXPECT_EQ(from_json.workload, f.workload);
    EXPECT_EQ(plan_from_json(nlohmann::json::parse(to_json(f).dump()), "j"), f.plan);
    EXPECT_EQ(plan_from_json(nlohmann::json::parse(to_json(f.plan).dump()), "j"), f.plan);
  }
}

TEST(PlanFile, AKernelSaysItsLaunchAndWhoProposedIt) {
  const std::string more = "    by: chain-model_2\n    launch: {warps: 8, stages: 3, cluster: 2}\n";
  const PlanFile f = plan_file_from_yaml(std::string(kPlanFile) + more, "p.yaml");
  const Kernel& k = f.plan.kernels.back();
  EXPECT_EQ(k.by, "chain-model_2");
  EXPECT_EQ(k.launch, (Launch{.warps = 8, .stages = 3, .cluster = 2}));
  EXPECT_EQ(plan_file_from_yaml(to_yaml(f), "again").plan, f.plan);
  EXPECT_EQ(plan_from_json(nlohmann::json::parse(to_json(f.plan).dump()), "j"), f.plan);
  EXPECT_FALSE(to_json(plan_file_from_yaml(kPlanFile, "p.yaml").plan)["kernels"][0].contains("launch"));
  for (const char* bad : {"by: \"\"", "by: a b", "launch: {warps: 0}", "launch: {stages: 9}",
                          "launch: {cluster: 17}", "launch: {waves: 1}", "launch: 3"})
    EXPECT_THROW(plan_file_from_yaml(std::string(kPlanFile) + "    " + bad + "\n", "p.yaml"),
                 InputError)
        << bad;
}

TEST(PlanFile, RewritesAreNamesInOrder) {
  const std::string text = std::string(kPlanFile) + "rewrites: [compose-gathers, compose]\n";
  const PlanFile f = plan_file_from_yaml(text, "p.yaml");
  EXPECT_EQ(f.rewrites, (std::vector<std::string>{"compose-gathers", "compose"}));
  EXPECT_EQ(plan_file_from_yaml(to_yaml(f), "again").rewrites, f.rewrites);
  EXPECT_EQ(plan_file_from_yaml(to_json(f).dump(), "json").rewrites, f.rewrites);
  // The workload is as it was named.
  EXPECT_EQ(f.workload, plan_file_from_yaml(kPlanFile, "p.yaml").workload);
  EXPECT_TRUE(plan_file_from_yaml(kPlanFile, "p.yaml").rewrites.empty());
  EXPECT_THROW(plan_from_json(nlohmann::json::parse(to_json(f).dump()), "j"), InputError);
  for (const char* bad : {"rewrites: compose\n", "rewrites: [\"a b\"]\n", "rewrites: [\"\"]\n",
                          "rewrites: [Compose]\n", "rewrites: {compose: 1}\n",
                          "rewrites: [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]\n"})
    EXPECT_THROW(plan_file_from_yaml(std::string(kPlanFile) + bad, "p.yaml"), InputError) << bad;
}

struct BadFile {
  const char* from;  ///< replaced in kPlanFile ...
  const char* to;    ///< ... by this
  const char* says;  ///< part of the error
};
const BadFile kBadFiles[] = {
    {"schema: 1", "schema: 2", "bad.yaml:1: schema"},
    {"tiles:", "tile:", "did you mean tiles"},
    {"machine:", "mashine:", "did you mean machine"},
    {"kernels:", "kernel:", "did you mean kernels"},
    {"m: 4", "m: 0", "bad.yaml:10: kernels[0].tiles.m: 0"},
    {"m: 4", "m: -4", "kernels[0].tiles.m: -4"},
    {"m: 4", "m: 4.5", "kernels[0].tiles.m: 4.5"},
    {"m: 4", "m: 9223372036854775808", "kernels[0].tiles.m"},
    {"m: 4", "m: 4, m: 5", "given twice"},
    {"m: 4", "m: [4]", "kernels[0].tiles.m: a list"},
    {"m: 4", "\"m;n\": 4", "not a name of a loop"},
    {"[sliding]", "[slide]", "sliding, running"},
    {"[sliding]", "[sliding, sliding]", "twice"},
    {"[sliding]", "sliding", "kernels[0].flags.C"},
    {"at: l", "att: l", "did you mean at"},
    {"E: dram", "E: \"$(id)\"", "not a name of a level"},
    {"C.gemm1 )", "C.gemm1", "bad.yaml:9: kernels[0].tree: column"},
    {"[gemm1, gemm2]", "gemm1", "kernels[0].operators"},
    {"[gemm1, gemm2]", "[gemm1, \"gemm2; rm\"]", "kernels[0].operators[1]"},
    {"name: fused", "name: \"a b\"", "kernels[0].name"},
    {"workload: gemm-chain:m=10,n=6,k=7,l=9\n", "", "workload: is missing"},
    {"gemm-chain:m=10", "gemm-chain:m=0", "bad.yaml:2"},
    {"kernels:\n", "kernels: [\n", "bad.yaml"},
    {"schema: 1\n", "schema: 1\nschema: 1\n", "given twice"},
    {"schema: 1\n", "--- {}\n---\nschema: 1\n", "second document"},
};

TEST(PlanFile, BadFilesSayWhere) {
  for (const BadFile& bad : kBadFiles) {
    std::string text = kPlanFile;
    const std::size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, std::string(bad.from).size(), bad.to);
    SCOPED_TRACE(text);
    try {
      plan_file_from_yaml(text, "bad.yaml");
      ADD_FAILURE() << "accepted";
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(bad.says), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(PlanFile, NestingAndAliasesAreBounded) {
  EXPECT_THROW(plan_file_from_yaml(std::string(100'000, '['), "deep.yaml"), InputError);
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string inner = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + inner;
    for (int j = 1; j < 10; ++j) bomb += ", " + inner;
    bomb += "]\n";
  }
  EXPECT_THROW(plan_file_from_yaml(bomb, "bomb.yaml"), InputError);
  EXPECT_THROW(plan_file_from_yaml("kernels: &k [*k]\nworkload: x\n", "loop.yaml"), InputError);
  EXPECT_THROW(plan_file_from_yaml("", "empty.yaml"), InputError);
  // YAML::LoadAll never ends on this one.
  EXPECT_THROW(plan_file_from_yaml(",a", "comma.yaml"), InputError);
  EXPECT_THROW(workload_from_yaml(",a", "comma.yaml"), InputError);
  EXPECT_THROW(plan_file_from_yaml(std::string("kernels:\0 []", 12), "nul.yaml"), InputError);
}

TEST(PlanFile, MutatedFilesReadOrFailCleanly) {
  const unsigned seed = 20240712;
  RecordProperty("seed", static_cast<int>(seed));
  std::mt19937 random(seed);
  const std::string alphabet = ":[]{}&*#-,'\"|> \n\t0x!%@\\";
  int read = 0;
  for (int round = 0; round < 1'500; ++round) {
    std::string text = random() % 2 == 0 ? kPlanFile : kInlinePlanFile;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int e = 0; e < edits; ++e) {
      const std::size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        case 2:
          text.erase(at, 1 + random() % 6);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
      }
    }
    try {
      const PlanFile f = plan_file_from_yaml(text, "fuzz.yaml");
      ++read;
      const PlanFile again = plan_file_from_yaml(to_yaml(f), "again.yaml");
      ASSERT_EQ(again.plan, f.plan) << "seed " << seed << "\n" << text;
      ASSERT_EQ(again.workload, f.workload) << "seed " << seed << "\n" << text;
    } catch (const InputError& e) {
      ASSERT_EQ(std::string(e.what()).find('\n'), std::string::npos) << text;
    }
  }
  EXPECT_GT(read, 50) << "seed " << seed;
}

}  // namespace
}  // namespace tilewright
