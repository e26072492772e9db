// The verbs on target npu: emit, run, measure, validate and a plan over an NPU's paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/toolchain.h"
#include "core/npu/assembly.h"
#include "harness/request.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using ::testing::HasSubstr;

Request product(const std::string& workload) {
  return {.subject = workload,
          .machine = "ascend910",
          .tree =
              "m/256@grid ( L.A@L1 n/128 ( k/256 ( L.B@L1x2 k/64 ( L.A@L0Ax2 L.B@L0Bx2 C.gemm ) "
              ") S.C ) )",
          .pins = {"C=L0C"}};
}

TEST(NpuRun, AProductReachesNineTenthsOfTheCubesPeak) {
  const Answer a = run(product("gemm:m=256,n=4096,k=256,dtype=f16"), {.target = "npu"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_TRUE(a.json["verified"]);
  EXPECT_EQ(a.json["faults"], 0);
  const auto& kernel = a.json["kernels"][0];
  EXPECT_EQ(kernel["multiply_accumulates"], std::int64_t{256} * 4096 * 256);
  EXPECT_GE(kernel["cube_utilisation"].get<double>(), 0.9);
  EXPECT_FALSE(a.json.contains("seconds_median"));  // nothing was timed
}

/// Each part of a pack has all of its blocks, from wherever they begin.
TEST(NpuRun, PartsOfAPackHaveTheirBlocks) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "fan.yaml").string();
  std::ofstream(file) << "name: fan\ndtype: f16\nloops: {r: 64, c: 64}\noperators:\n"
                         "  - \"a: a[r,c] = exp(x[r,c])\"\n  - \"b: b[r,c] = x[r,c] * 2\"\n";
  for (const char* first : {"", "7: "}) {
    Request r{.subject = file, .machine = "ascend910"};
    r.tree = "( r/16@grid ( C.a ) | " + std::string(first) + "r/16@grid ( C.b ) )";
    r.level = "UB";
    const Answer a = run(r, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << first;
    EXPECT_EQ(a.json["faults"], 0) << first;
  }
}

/// Rows may be longer than what their operator writes, where nobody reads the rest.
TEST(NpuRun, WhatNobodyReadsMayStayUnwritten) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "part.yaml").string();
  std::ofstream(file) << "name: part\ndtype: f32\nloops: {c: 35, d: 4, g: 64}\n"
                         "tensors: {a: [35, 4], t: [42], b: [64]}\noperators:\n"
                         "  - \"t: t[c] += a[c, d]\"\n  - \"y: y[g] = t[3] * b[g]\"\n"
                         "outputs: [y]\n";
  const Answer a = run({.subject = file, .machine = "ascend910"}, {.target = "npu"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_TRUE(a.json["verified"]) << a.json.dump(2);
}

/// Results of several kinds, and functions that are made of the unit's instructions.
TEST(NpuRun, AnOperatorMakesSeveralResults) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "several.yaml").string();
  for (const char* type : {"f16", "f32"}) {
    std::ofstream(file)
        << "name: several\ndtype: " << type
        << "\nloops: {r: 40, c: 96}\noperators:\n"
           "  - \"o: a[r,c] = erf(2 * x[r,c]); b[r,c] = gelu(x[r,c]) + y[r]; d[r,c] = "
           "pow(x[r,c], 3) + pow(2 + y[r], -0.5)\"\n"
           "  - \"s: m[r] max= a[r,c]; n[r] += b[r,c]\"\n";
    Request r{.subject = file, .machine = "ascend910"};
    r.tree = "r/16@grid ( C.o C.s )";
    r.level = "UB";
    const Answer a = run(r, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << type;
    EXPECT_EQ(a.json["faults"], 0) << type;
  }
}

/// Temporaries of one size begin in bank groups that differ: conflicts took 21 % of the vector
/// unit's time before.
TEST(NpuRun, TemporariesAreReadAtOnce) {
  Request r{.subject = "gelu:rows=96,cols=38,dtype=f16", .machine = "ascend910"};
  r.tree = "r/80@grid c/32@grid ( C.biased C.cubic C.tanh C.half C.gelu )";
  r.level = "UB";
  const Answer a = run(r, {.target = "npu"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  for (const auto& pipe : a.json["kernels"][0]["pipes"])
    if (pipe["pipe"] == "V") {
      EXPECT_LT(pipe["bank_cycles"].get<double>(), 0.12 * pipe["busy_cycles"].get<double>());
    }
}

/// Sums of all are taken of parts first, by many cores. A matrix and its transpose are read as one
/// lies, however large they are: together they were whole in each core.
TEST(NpuRun, SumsToOneResultAndTransposesArePlanned) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "whole.yaml").string();
  for (const char* type : {"f32", "f16"})
    for (const auto& [loops, op, rewrite] :
         {std::tuple("m: 301, n: 97", "s[] += square(x[m,n] - y[m,n])", "split-sums:o"),
          {"n: 50021", "s[] max= abs(x[n])", "split-sums:o"},
          {"i: 400, j: 400", "s[i,j] = 0.5 * (x[i,j] + x[j,i])", "materialise-orders:o"}}) {
      std::ofstream(file) << "name: whole\ndtype: " << type << "\nloops: {" << loops
                          << "}\noperators: [{\"o\": \"" << op << "\"}]\n";
      const Answer a = run({.subject = file, .machine = "ascend910"}, {.target = "npu"});
      ASSERT_TRUE(a.ok()) << a.json.dump(2);
      EXPECT_TRUE(a.json["verified"]) << type << " " << op;
      EXPECT_EQ(a.json["faults"], 0) << type << " " << op;
      EXPECT_EQ(a.json["rewrites"][0], rewrite);
      EXPECT_GE(a.json["kernels"][0]["blocks"], 16) << a.json.dump(2);
    }
  // Few points are summed by one core: others' plans add blocks up.
  std::ofstream(file) << "name: few\ndtype: f32\nloops: {b: 32, c: 7}\noperators:\n"
                         "  - \"o: t[] += x[c,31 - b] * y[c]; s[] += z[b,c]\"\n";
  const Answer few = run({.subject = file, .machine = "ascend910b"}, {.target = "npu"});
  ASSERT_TRUE(few.ok()) << few.json.dump(2);
  EXPECT_TRUE(few.json["verified"]);
}

/// Rows that are summed are added by an instruction whose destination stays, not one by one.
TEST(NpuRun, SummedRowsAreAFewInstructions) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "rows.yaml").string();
  std::ofstream(file) << "name: rows\ndtype: f32\nloops: {b: 19, m: 6, n: 48}\noperators:\n"
                         "  - \"p: y[n] += x[b,m,n] * z[b,m]\"\n";
  Request r{.subject = file, .machine = "ascend910"};
  r.tree = "n/48@grid b/19 m/6 ( C.p )";
  r.level = "UB";
  const Answer a = run(r, {.target = "npu"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_TRUE(a.json["verified"]);
  for (const auto& pipe : a.json["kernels"][0]["pipes"])
    if (pipe["pipe"] == "V") {
      EXPECT_LT(pipe["instructions"], 10);
    }
}

/// What no vector instruction walks: the scalar unit moves its elements.
TEST(NpuRun, OperatorsOfAnyIndexRun) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "any.yaml").string();
  const std::pair<const char*, const char*> cases[] = {
      // windows, padding, strides, and the same tensor twice
      {", b: 13, k: 5}\ntensors: {x: [21, 30]}",
       "{\"o\": \"t[a,b] += x[a + k - 2, 2*b + k] * w[k] - x[a, b]\"}"},
      // a diagonal, a turned tensor, loops of a tile in another order, and a tensor read beyond its
      // end
      {", b: 13}\ntensors: {v: [18]}", "{\"o\": \"t[b,a] = x[a,a] + y[b,a] * z[12 - b] + v[a]\"}"},
      // gathers by one index and by two; indices beyond the table read zero
      {", b: 13}\ntensors: {n: [22], x: [21, 30]}\ndtypes: {n: i32}",
       "{\"o\": \"t[a,b] = x[n[a + 1], b] + x[n[b], n[a]] + x[n[4*a - 1], b]\"}"},
      // loops as values
      {", b: 13}",
       "{\"o\": \"t[a,b] = select(lt(a, 2*b + 3), x[a,b], -0.5) * (1 + 0.01 * b) + sin(0.3 * a * "
       "b) "
       "+ cos(a) + floor(3 * x[a,b])\"}"},
      // products, sums of all loops, of one loop alone, and a result of no dimension that another
      // reads
      {", b: 13}",
       "{\"o\": \"p[a] *= 1 + 0.05 * y[b,a]; s[a] max= y[b,a]\"}, {\"q\": \"s2[] += square(y[b,a]) "
       "* "
       "p[a]\"}, "
       "{\"r\": \"e[a] = s2[] * s[a]\"}"},
      {"}", "{\"o\": \"t[] *= 1 + 0.05 * v[a]\"}, {\"q\": \"u[] += v[a]; m[] min= v[a]\"}"},
      // a sum over two loops beside the slab's, begun again for each of the others
      {", b: 13, k: 5}", "{\"o\": \"t[b,k] += x[a, k + 2*a] * y[b,a]\"}"},
  };
  for (const char* type : {"f32", "f16", "bf16"})
    for (const auto& [tensors, operators] : cases) {
      std::ofstream(file) << "name: any\ndtype: " << type << "\n"
                          << "loops: {a: 21" << tensors << "\n"
                          << "operators: [" << operators << "]\n";
      const Answer a = run({.subject = file, .machine = "ascend910"}, {.target = "npu"});
      ASSERT_TRUE(a.ok()) << operators << a.json.dump(2);
      EXPECT_TRUE(a.json["verified"]) << type << operators;
      EXPECT_EQ(a.json["faults"], 0) << type << operators;
    }
}

/// Of floats the vector unit brings itself what lies as it cannot walk it: rows of heads, padding,
/// steps, other orders, one element for all. A box of four dimensions comes in few copies.
TEST(NpuRun, FloatsNeedNoScalarUnit) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "lines.yaml").string();
  const std::string out = (folder.path() / "out").string();
  const std::pair<const char*, const char*> cases[] = {
      {"a: 24, h: 3, e: 16}\ntensors: {x: [24, 48]}", "y[h,a,e] = x[a, 16*h + e] * u[a, h]"},
      {"a: 9, b: 13, k: 5}\ntensors: {x: [9, 30]}", "y[a,b] += x[a, 2*b + k - 2] * w[k]"},
      {"a: 70, b: 13}", "y[b,a] = x[a,b] * z[12 - b] + v[3]\", \"v: v[a] = c[a] * c[5]"},
      {"o: 24, i: 16, r: 3, s: 3, h: 6, q: 20}\ntensors: {x: [16, 6, 20]}",
       "y[o,h,q] += x[i, h + r - 1, q + s - 1] * w[o,i,r,s]"}};
  for (int i = 0; i < 7; ++i) {  // of f16 a convolution's program is longer
    const auto& [loops, op] = cases[i % 4];
    const char* type = i < 4 ? "f32" : "f16";
    std::ofstream(file) << "name: lines\ndtype: " << type << "\nloops: {" << loops
                        << "\noperators: [\"o: " << op << "\"]\n";
    Request request{.subject = file, .machine = "ascend910"};
    const Answer a = run(request, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << op << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << op;
    EXPECT_EQ(a.json["faults"], 0) << op;
    request.target = "npu";
    const Answer emitted = emit(request, out);
    ASSERT_TRUE(emitted.ok()) << op << emitted.json.dump(2);
    const std::string text = read_file(emitted.json["files"][0], "test");
    EXPECT_EQ(text.find("move "), std::string::npos) << type << op;
    EXPECT_LT(std::ranges::count(text, '\n'), 8000) << type << op;
  }
}

/// Rows of a matrix may be any dimension, and loops besides are done one by one, also those that
/// are summed over: projections to heads and from them, and batches of rows, are the cube's.
TEST(NpuRun, ProductsOfMoreLoopsAreTheCubes) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "heads.yaml").string();
  const std::pair<const char*, const char*> cases[] = {
      {"m: 48, h: 3, e: 32, d: 72", "q[h,m,e] += x[m,d] * w[d,h,e]"},
      {"m: 48, h: 3, e: 32, d: 72", "q[m,h,e] += x[m,d] * w[h,e,d]"},
      {"m: 40, h: 3, n: 48, v: 32", "o[m,n] += x[h,m,v] * w[h,v,n]"},
      {"m: 40, h: 3, n: 48, v: 32", "o[n,m] += x[m,h,v] * w[h,v,n]"},
      {"b: 33, m: 2, n: 40, k: 24", "c[b,m,n] += a[b,m,k] * w[k,n]"},
      {"h: 2, l: 40, m: 24, v: 16", "o[m,h,v] += s[h,m,l] * u[l,h,v]"}};
  for (const char* machine : {"ascend910", "ascend910b"})
    for (const auto& [loops, op] : cases) {
      std::ofstream(file) << "name: heads\ndtype: f16\nloops: {" << loops
                          << "}\noperators: [\"o: " << op << "\"]\n";
      const Answer a = run({.subject = file, .machine = machine}, {.target = "npu"});
      ASSERT_TRUE(a.ok()) << op << a.json.dump(2);
      EXPECT_TRUE(a.json["verified"]) << op;
      EXPECT_EQ(a.json["faults"], 0) << op;
      double cube = 0;
      for (const auto& pipe : a.json["kernels"][0]["pipes"])
        if (pipe["pipe"] == "M") cube += pipe["busy_cycles"].get<double>();
      EXPECT_GT(cube, 0) << op;
    }
}

/// What a plan keeps whole and every tensor has together runs as one loop, in the same cycles as if
/// it were written so: windows of 7 by 7 are rows of 49.
TEST(NpuRun, LoopsThatGoTogetherAreOne) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "windows.yaml").string();
  struct Case {
    const char *loops, *op, *tree;
  };
  const std::pair<Case, Case> cases[] = {
      {{"b: 6, i: 7, j: 7, p: 7, q: 7, e: 8", "s[b,i,j,p,q] += a[b,i,j,e] * k[b,p,q,e]",
        "b/2@grid ( C.o )"},
       {"b: 6, i: 49, p: 49, e: 8", "s[b,i,p] += a[b,i,e] * k[b,p,e]", "b/2@grid ( C.o )"}},
      {{"b: 6, i: 7, j: 7, p: 7, q: 7", "y[b,i,j,p,q] = exp(s[b,i,j,p,q] - m[b,i,j])",
        "b/1@grid i/3@grid ( C.o )"},
       {"b: 6, i: 49, p: 49", "y[b,i,p] = exp(s[b,i,p] - m[b,i])", "b/1@grid i/21@grid ( C.o )"}},
      // one row, of which slabs have a part each
      {{"a: 13, b: 17, c: 190", "y[a,b,c] = gelu(x[a,b,c])", "a/1@grid ( C.o )"},
       {"a: 41990", "y[a] = gelu(x[a])", "a/3230@grid ( C.o )"}},
      // a window's loop stays
      {{"a: 8, b: 9, c: 10, r: 3", "y[a,b,c] += x[a,b,c + r - 1] * w[r]", "a/3@grid ( C.o )"},
       {"a: 72, c: 10, r: 3", "y[a,c] += x[a,c + r - 1] * w[r]", "a/27@grid ( C.o )"}}};
  for (const char* type : {"f32", "bf16"})
    for (const auto& [apart, merged] : cases) {
      std::vector<std::int64_t> cycles;
      for (const Case& c : {apart, merged}) {
        std::ofstream(file) << "name: windows\ndtype: " << type << "\nloops: {" << c.loops
                            << "}\noperators: [\"o: " << c.op << "\"]\n";
        Request r{.subject = file, .machine = "ascend910"};
        r.tree = c.tree, r.level = "UB";
        const Answer a = run(r, {.target = "npu"});
        ASSERT_TRUE(a.ok()) << c.op << a.json.dump(2);
        EXPECT_TRUE(a.json["verified"]) << type << c.op;
        EXPECT_EQ(a.json["faults"], 0) << type << c.op;
        cycles.push_back(a.json["cycles"]);
      }
      EXPECT_EQ(cycles[0], cycles[1]) << type << apart.op;
    }
}

/// Tensors that have loops in different orders: where rows follow one another in every tile, one
/// instruction has the rows of several loops. Blocks of such a result are planned.
TEST(NpuRun, RowsOfSeveralLoopsAreOfOneInstruction) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "heads.yaml").string();
  std::ofstream(file) << "name: heads\ndtype: f32\n"
                         "loops: {y: 3, x: 2, h: 2, i: 7, j: 7, e: 8, d: 20}\n"
                         "operators: [\"o: q[y,x,h,i,j,e] += n[y,i,x,j,d] * w[d,h,e]\"]\n";
  std::vector<double> instructions, cycles;
  for (const std::string tree :
       {"y/1@grid x/1@grid ( C.o )", "y/1@grid x/1@grid i/1 ( C.o )", ""}) {
    Request r{.subject = file, .machine = "ascend910"};
    if (!tree.empty()) r.tree = tree, r.level = "UB";
    const Answer a = run(r, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << tree;
    EXPECT_EQ(a.json["faults"], 0) << tree;
    instructions.push_back(a.json["kernels"][0]["instructions"].get<double>());
    cycles.push_back(a.json["cycles"].get<double>());
  }
  // Of 94,080 products; a row of e alone has eight.
  EXPECT_LT(instructions[0], 94080.0 / 24);
  EXPECT_LE(cycles[2], cycles[0]);
  // Where a slab's loops were those of the fewest instructions, it took longer.
  constexpr std::array kFewestInstructions = {9685.0, 17087.0, 2284.0};
  for (std::size_t i = 0; i < cycles.size(); ++i) EXPECT_LT(cycles[i], kFewestInstructions[i]) << i;
}

/// Integers and bf16 beside floats: rounded as they are stored.
TEST(NpuRun, TensorsOfSeveralTypes) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "types.yaml").string();
  std::ofstream(file) << "name: types\ndtype: f32\nloops: {a: 70, b: 45}\n"
                         "dtypes: {i: i8, j: i32, q: i8, c: i32, h: bf16}\nranges: {i: 5, j: 100}\n"
                         "operators:\n"
                         "  - {\"o\": \"q[a,b] = round(20 * x[a,b]); h[a,b] = x[a,b] * i[a,b]\"}\n"
                         "  - {\"r\": \"c[a] += q[a,b] * i[a,b] + j[a]\"}\n"
                         "  - {\"e\": \"e[b,a] = q[a,b] + h[a,b]\"}\n";
  for (const char* machine : {"ascend910", "ascend910b"}) {
    const Answer a = run({.subject = file, .machine = machine}, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << machine;
    EXPECT_EQ(a.json["faults"], 0) << machine;
  }
}

/// Sums of the vector unit whose depth is in turns: kept in f32 until they are complete, then
/// rounded once. They were rounded after each turn, 47 times what rounding once explains.
TEST(NpuRun, SumsInTurnsAreRoundedOnce) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "turns.yaml").string();
  struct Case {
    const char *type, *dtypes, *operators, *tree;
  };
  const std::string three =
      "\"qkv: Q[m,n] += X[m,k]*Wq[k,n]; K[m,n] += X[m,k]*Wk[k,n]; V[m,n] += X[m,k]*Wv[k,n]\"";
  const std::string read = "\"c: C[m,n] += X[m,k]*W[k,n]\", \"d: D[m,n] = relu(C[m,n]) + C[m,n]\"";
  const Case cases[] = {
      {"f16", "{}", three.c_str(), "m/8@grid n/8@grid k/37 ( C.qkv )"},
      {"bf16", "{}", three.c_str(), "m/8@grid k/16 ( C.qkv )"},
      {"f32", "{}", three.c_str(), "k/37 ( C.qkv )"},
      // read on chip, and stored as well
      {"f16", "{}", read.c_str(), "m/16 ( k/16 ( C.c ) C.d )"},
      // rows and columns that are reduced, a product, and what is rounded alike before
      {"f16", "{}",
       "\"s: r[m] += X[m,k]; p[m] *= 1 + 0.01*X[m,k]; t[m] max= X[m,k]; u[m] min= X[m,k]\"",
       "k/37 ( C.s )"},
      {"f16", "{}", "\"s: q[k] += X[m,k]\"", "m/3 ( C.s )"},
      {"f16", "{}", "\"s: w[] += X[m,k]\"", "m/3 k/16 ( C.s )"},
      // whole numbers, whose sums are whole where they are read; and sums that are not
      {"f16", "{X: i8, W: i8, C: i32, D: f32}", read.c_str(), "m/16 ( k/16 ( C.c ) C.d )"},
      {"f16", "{C: i32, D: f32}", read.c_str(), "m/16 ( k/16 ( C.c ) C.d )"},
      // no vector instruction walks it
      {"f16", "{}", "\"c: y[n,m] += X[m,k]*W[k,n]\"", "k/37 ( C.c )"},
      // partial sums leave and come back, rounded each time as the plan says
      {"f16", "{}", "\"c: C[m,n] += X[m,k]*W[k,n]\"", "k/37 m/8 n/16 ( C.c )"},
  };
  for (const Case& c : cases) {
    std::ofstream(file) << "name: turns\ndtype: " << c.type << "\nloops: {m: 21, "
                        << (std::string(c.operators).find("n]") != std::string::npos ? "n: 38, "
                                                                                     : "")
                        << "k: 224}\ndtypes: " << c.dtypes << "\noperators: [" << c.operators
                        << "]\n";
    Request r{.subject = file, .machine = "ascend910"};
    r.tree = c.tree;
    r.level = "UB";
    const Answer a = run(r, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << c.tree << c.operators << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << c.tree << c.operators << c.type;
    EXPECT_EQ(a.json["faults"], 0) << c.tree << c.operators << c.type;
  }
}

TEST(NpuRun, ChimerasPlanOfAChainRunsFused) {
  const Request request{.subject = "chimera/G10", .machine = "ascend910", .model = "chimera"};
  const Answer a = measure(request, {.target = "npu", .meter = "emulator"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_EQ(a.json["kernels"].size(), 1U);
  EXPECT_EQ(a.json["source"], "simulated");
  EXPECT_TRUE(a.json["differences"].empty()) << a.json["differences"].dump(2);
  for (const auto& e : a.json["traffic"])
    EXPECT_FALSE(e["tensor"] == "C" && e["boundary"].get<std::string>().starts_with("L2")) << e;
}

TEST(NpuRun, WritesATimelineForEachKernel) {
  const std::string folder = ::testing::TempDir() + "npu_timeline";
  std::filesystem::create_directories(folder);
  const Request request = product("gemm:m=256,n=256,k=256,dtype=f16");
  const auto with_timeline = [&request](const char* target, const std::string& file) {
    Request asked = request;
    asked.target_options["timeline"] = {file};
    return run(asked, {.target = target});
  };
  for (const char* ending : {".json", ".svg"}) {
    const std::string file = folder + "/one" + ending;
    const Answer a = with_timeline("npu", file);
    ASSERT_TRUE(a.ok()) << a.json.dump(2);
    ASSERT_EQ(a.json["files"], nlohmann::ordered_json({file}));
    const std::string text = read_file(file, "test");
    if (file.ends_with(".svg")) {
      EXPECT_THAT(text, HasSubstr("<svg"));
      continue;
    }
    EXPECT_EQ(nlohmann::json::parse(text)["cycles"], a.json["cycles"]);
  }
  EXPECT_THROW(with_timeline("cpu", folder + "/one.svg"), InputError);
}

TEST(NpuRun, EmitsAssemblyThatReadsBack) {
  const std::string folder = ::testing::TempDir() + "npu_emit";
  Request request = product("gemm:m=500,n=300,k=300,dtype=f16");
  request.target = "npu";
  const Answer a = emit(request, folder);
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  const std::string text = read_file(a.json["files"][0], "test");
  EXPECT_EQ(npu::to_text(npu::parse_assembly(text, "test")), text);
  std::filesystem::remove_all(folder);
}

TEST(NpuRun, ValidateHoldsAlgorithm1AndExactAgainstTheEmulator) {
  const Request request{.subject = "gemm-chain:m=100,n=40,k=50,l=90,dtype=f16",
                        .machine = "ascend910-256"};
  const Answer a = validate(request, {.samples = 10, .truth = "emulator"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_EQ(a.json["valid"], 10);
  EXPECT_EQ(a.json["exact"]["differing"], 0);
  EXPECT_GT(a.json["exact"]["paths"], 50);
}

/// The plan that takes least has parts with rewrites that change other parts of the whole: all of
/// it is planned with them. It was refused.
TEST(NpuRun, RewritesOfPartsAreOfTheWhole) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "apart.yaml").string();
  std::ofstream(file)
      << "name: apart\ndtype: f64\n"
         "loops: {a: 4, b: 1, c: 8, d: 4, e: 2, f: 1, g: 1, h: 7, i: 1, j: 3, k: 1, l: 5, m: 1, "
         "n: 1, o: 7, p: 3, q: 1}\n"
         "tensors: {i3: [1, 4, 2], i4: [4], ids0: [1], i6: [7, 1], i7: [1], i8: [], i9: [3], "
         "i10: [5], i11: [], ids1: [7], i13: [1], i14: [3]}\n"
         "dtypes: {ids0: i32, ids1: i32}\noutputs: [t29, t3, t35]\noperators:\n"
         "  - \"o1: t1[b,a,c] = t0[a,b,c]\"\n"
         "  - \"o2: t2[b,f,d] += t1[b,a,2*d + 1*e - 0] * i3[f,a,e]\"\n"
         "  - \"o3: t3[] += t2[b,f,d]\"\n"
         "  - \"o5: t5[b,f,d] = exp(0 - abs(t4[b,f,d]))\"\n"
         "  - \"o6: t6[b,f,d] = t5[b,f,d] / 3 + i4[d]\"\n"
         "  - \"o7: t7[b,d,f] = t6[b,f,d]\"\n"
         "  - \"o8: t8[b,d,f] = log(1.5 + abs(t7[b,d,f]))\"\n"
         "  - \"o9: t9[b,g,f] = t8[b,ids0[g],f]\"\n"
         "  - \"o10: t10[b,f] min= max(t9[b,g,f], 0.1)\"\n"
         "  - \"o11: t11[b,h] += t10[b,f] * i6[h,f]\"\n"
         "  - \"o12: t12[h,b] = t11[b,h]\"\n"
         "  - \"o13: t13[b] += t12[h,b]\"\n"
         "  - \"o14: t14[b] = t13[b]\"\n"
         "  - \"o15: t15[b] = t14[b] / 3 + i7[b] + i8[]\"\n"
         "  - \"o17: t17[b] = t15[b]\"\n"
         "  - \"o18: t18[b] = t17[b]\"\n"
         "  - \"o19: t19[i] += 0.3 * t18[3*i + 1*j - 2] * i9[j]\"\n"
         "  - \"o20: t20[i] = t19[i]\"\n"
         "  - \"o21: t21[i] = select(lt(i, i + 0), t20[i], -1.5)\"\n"
         "  - \"o22: t22[k] += 0.3 * t21[3*k + 1*l - 2] * i10[l]\"\n"
         "  - \"o23: t23[k] = select(lt(k, k + 2), t22[k], -1.5)\"\n"
         "  - \"o24: t24[k] = t23[k]\"\n"
         "  - \"o25: t25[m] min= t24[1*m + 2*n - 0]\"\n"
         "  - \"o27: t27[m] = rsqrt(1.5 + square(t25[m])) - i11[]\"\n"
         "  - \"o28: t28[m] = select(lt(m, m + 0), t27[m], 0)\"\n"
         "  - \"o29: t29[] max= t28[m]\"\n"
         "  - \"o30: t30[m] = t28[m]\"\n"
         "  - \"o31: t31[m] = t30[m]\"\n"
         "  - \"o32: t32[o] = t31[ids1[o]]\"\n"
         "  - \"o33: t33[p] += 0.3 * t32[3*p + 1*q - 0] * i13[q]\"\n"
         "  - \"o34: t34[p] = min(0.25, t33[p]) + i14[p]\"\n"
         "  - \"o35: t35[p] = erf(t34[p])\"\n";
  const Answer a = plan({.subject = file, .machine = "ascend910"});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_FALSE(a.json["plan"]["rewrites"].empty());
}

/// The answer for one operator, written in notation, with a tree.
Answer run_one(const std::string& type, const std::string& loops, const std::string& tensors,
               const std::string& op, const std::string& tree) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "one.yaml").string();
  std::ofstream(file) << "name: one\ndtype: " << type << "\nloops: {" << loops << "}\n"
                      << (tensors.empty() ? "" : "tensors: {" + tensors + "}\n")
                      << "operators:\n  - \"p: " << op << "\"\n";
  Request r{.subject = file, .machine = "ascend910"};
  r.tree = tree;
  r.level = "UB";
  return run(r, {.target = "npu"});
}

/// A result that lies otherwise than what it copies: working memory is not the tile.
TEST(NpuRun, CopiesInAnotherOrderKeepTheirTile) {
  const Answer a =
      run_one("f32", "o: 48, r: 5, s: 5, c: 16", "", "Y[o,r,s,c] = X[o,c,r,s]", "o/2@grid ( C.p )");
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_TRUE(a.json["verified"]);
  EXPECT_EQ(a.json["faults"], 0);
}

/// Rows that begin anywhere, forwards and backwards, whole and cut off, of every type; in
/// little more than a cycle for each element that a core brings.
TEST(NpuRun, RowsThatBeginAnywhereAreBroughtTogether) {
  for (const char* type : {"f16", "f32", "bf16"})
    for (const char* read : {"X[i,j + 3]", "X[i,90 - j]", "X[i,j - 5]", "X[i,j + 13]"}) {
      const Answer a = run_one(type, "i: 512, j: 83", "X: [512, 91]",
                               "Y[i,j] = Z[i,j] + " + std::string(read), "i/128@grid ( C.p )");
      ASSERT_TRUE(a.ok()) << a.json.dump(2);
      EXPECT_TRUE(a.json["verified"]) << type << ' ' << read << a.json.dump(2);
      EXPECT_EQ(a.json["faults"], 0) << type << ' ' << read;
      const double each = std::string(read).find("- j") != std::string::npos
                              ? 2
                              : 1;  // backwards: eight elements an instruction
      EXPECT_LT(a.json["cycles"].get<double>(), 3000 + each * 1.25 * 128 * 83) << type << ' ' << read;
    }
}

/// Convolutions are products of copies, on the cube, whatever their layout, groups and padding.
TEST(NpuRun, ConvolutionsRunOnTheCube) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "convolution.yaml").string();
  for (const auto& [tensors, op] :
       {std::pair("X: [b,g,c,14,14]", "Y[b,g,o,y,x] += X[b,g,c,y+r-1,x+s-1] * W[g,o,c,r,s]"),
        {"X: [b,14,14,g,c]", "Y[b,y,x,g,o] += X[b,y+r-1,x+s-1,g,c] * W[g,r,s,c,o]"},
        {"X: [b,g,c,28,28]", "Y[b,g,o,y,x] += X[b,g,c,2*y+r-1,2*x+s-1] * W[g,o,c,r,s]"}}) {
    std::ofstream(file) << "name: convolution\ndtype: f16\n"
                           "loops: {b: 1, g: 2, o: 32, c: 32, y: 14, x: 14, r: 3, s: 3}\n"
                        << "tensors: {" << tensors << "}\noperators:\n  - \"p: " << op << "\"\n";
    const Answer a =
        run({.subject = file, .machine = "ascend910", .model = "tilewright"}, {.target = "npu"});
    ASSERT_TRUE(a.ok()) << a.json.dump(2);
    EXPECT_TRUE(a.json["verified"]) << op;
    EXPECT_EQ(a.json["faults"], 0) << op;
    EXPECT_GE(a.json["emulated_multiply_accumulates"], 2 * 32 * 32 * 14 * 14 * 9) << op;
    // The vector unit would take 25,000 and more.
    EXPECT_LT(a.json["cycles"].get<double>(), 12'000) << op;
  }
}

TEST(NpuRun, SaysWhyItHasNoCode) {
  Request request{.subject = "gemm:m=64,n=64,k=64,dtype=f32", .machine = "ascend910"};
  request.tree = "( L.A@L1 L.B@L1 L.A@L0A L.B@L0B C.gemm S.C )";
  request.pins = {"C=L0C"};
  const Answer narrow = run(request, {.target = "npu"});
  ASSERT_FALSE(narrow.ok());
  EXPECT_THAT(narrow.json["reason"].get<std::string>(), HasSubstr("the cube multiplies f16"));
  request.subject = "gemm:m=64,n=64,k=64,dtype=f16";
  request.pins = {};
  const Answer sums = run(request, {.target = "npu"});
  ASSERT_FALSE(sums.ok());
  EXPECT_THAT(sums.json["reason"].get<std::string>(), HasSubstr("its place is L0C"));
  request.machine = "h100";
  request.tree = "( C.gemm )";
  EXPECT_THAT(run(request, {.target = "npu"}).json["reason"].get<std::string>(),
              HasSubstr("has no npu_core"));
  request.target_options["micro-kernel"] = {"mda"};
  EXPECT_THROW(run(request, {.target = "npu"}), InputError);
}

}  // namespace
}  // namespace tilewright::harness
