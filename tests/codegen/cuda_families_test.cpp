// Every family of emitted CUDA kernels at small sizes, odd ones among them: right numbers,
// `exact`'s bytes and no finding on simulator/cuda_host; all of them compile for sm_80 and sm_90a.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "codegen/cuda/build.h"
#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/support/golden.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

struct Case {
  std::string name, workload;
  std::vector<std::string> trees;  ///< one a kernel
  std::string tiles;
  cuda::EmitOptions options = {};
  std::map<std::string, Pin> pins = {};
};

/// A reduction in four parts, each by blocks of its own, that a second kernel adds up.
const char* const kSplit = R"(
name: split-gemm
dtype: f16
loops: {p: 4, m: 40, n: 48, k: 32}
tensors: {A: [m, 128], B: [128, n], W: [p, m, n], C: [m, n]}
operators:
  - "part: W[p,m,n] += A[m,32*p+k] * B[32*p+k,n]"
  - "whole: C[m,n] += W[p,m,n]"
outputs: [C]
)";

/// Products of one row: sums of the second are in a tile, whose kernel was wrong on an H200 and
/// nowhere else (NoAddressOfSharedMemoryIsStepped).
const Case kRows = {
    "products of a row",
    "name: rows\ndtype: f32\nloops: {b: 2, h: 2, e: 8, d: 16, l: 6}\n"
    "tensors: {N: [b, d], Wq: [d, h, e], Wk: [d, h, e], Wv: [d, h, e], P: [b, h, 5, e], "
    "B: [b, h, 1, e]}\noperators:\n"
    "  - \"q: Q[b,h,e] += N[b,d] * Wq[d,h,e]\"\n  - \"k: K[b,h,e] += N[b,d] * Wk[d,h,e]\"\n"
    "  - \"v: V[b,h,e] += N[b,d] * Wv[d,h,e]\"\n  - \"qb: Qb[b,h,e] = Q[b,h,e] + bq[h,e]\"\n"
    "  - \"kb: B[b,h,0,e] = K[b,h,e] + bk[h,e]\"\n  - \"vb: Vb[b,h,e] = V[b,h,e] + bv[h,e]\"\n"
    "  - \"keys: A[b,h,l,e] = P[b,h,l,e] + B[b,h,l-5,e]\"\n",
    {"b/1@grid h/1@grid e/1@grid ( L.N L.Wq C.q L.Wk C.k L.Wv C.v L.bq C.qb S.Qb L.bk C.kb L.bv "
     "C.vb "
     "S.Vb L.P C.keys S.A )"},
    ""};

/// A product whose operands' tiles a loop walks along, one of them by whole rows: wrong on an H200
/// while both began at one register (the same test).
const Case kPerceptron = {
    "a hidden layer of one",
    "name: perceptron\ndtype: f32\nloops: {m: 6, k: 256, f: 1, n: 32}\noperators:\n"
    "  - \"one: H[m,f] += X[m,k] * W1[k,f]\"\n  - \"relu: A[m,f] = relu(H[m,f] + b1[f])\"\n"
    "  - \"two: Y[m,n] += A[m,f] * W2[f,n]\"\n",
    {"n/16@grid ( L.X L.W1 C.one L.b1 C.relu L.W2 C.two S.Y )"},
    ""};

/// Channels of an image in two groups, a window of 3 x 2 with stride 2 and padding.
std::string grouped_convolution(const std::string& type) {
  return R"(
name: grouped
dtype: )" +
         type + R"(
loops: {b: 2, g: 2, o: 12, y: 5, x: 9, c: 9, r: 3, s: 2}
tensors: {I: [b, g, c, 9, 18], W: [g, o, c, r, s], O: [b, g, o, y, x]}
operators:
  - "conv: O[b,g,o,y,x] += I[b,g,c,2*y+r-1,2*x+s-1] * W[g,o,c,r,s]"
outputs: [O]
)";
}

/// Three products of one left operand by one operator, one of them of the other operand's
/// transpose.
const char* const kThreeProducts = R"(
name: three-products
dtype: bf16
loops: {m: 37, e: 29, d: 50}
tensors: {X: [m, d], Wq: [d, e], Wk: [e, d], Wv: [d, e], Q: [m, e], K: [m, e], V: [e, m]}
operators:
  - "qkv: Q[m,e] += X[m,d] * Wq[d,e]; K[m,e] += Wk[e,d] * X[m,d]; V[e,m] += X[m,d] * Wv[d,e]"
outputs: [Q, K, V]
)";

/// With TILEWRIGHT_LONG set: every row of the papers' tables as well, one of its batch.
bool long_run() { return std::getenv("TILEWRIGHT_LONG") != nullptr; }

std::vector<Case> cases() {
  const std::string chain = "gemm-chain:m=70,n=33,k=37,l=90";
  const std::string even = "gemm-chain:m=80,n=48,k=64,l=96";
  const std::string fused = "m@grid ( L.A l ( L.B C.gemm1 L.D C.gemm2 ) S.E )";
  const std::string attention =
      "m@grid ( L.Q L.K C.qk C.rowmax C.exp C.rowsum L.V C.pv C.divide S.E )";
  const std::string online =
      "m@grid ( L.Q l ( L.K C.qk C.rowmax C.exp C.rowsum C.rescale L.V C.pv ) C.divide S.E )";
  const std::string gemm = "m@grid n@grid ( k ( L.A L.B C.gemm ) S.C )";
  std::vector<Case> all = {
      kPerceptron,
      {"gemm f16", "gemm:m=70,n=90,k=50,dtype=f16", {gemm}, "m=32,n=48,k=16"},
      {"gemm bf16, whole blocks", "gemm:m=64,n=96,k=64,dtype=bf16", {gemm}, "m=64,n=48,k=32"},
      {"gemm f32", "gemm:m=70,n=90,k=50", {gemm}, "m=32,n=48,k=16"},
      {"gemm f32, rows that begin anywhere, tiles of no four",
       "gemm:m=35,n=45,k=51",
       {gemm},
       "m=32,n=32,k=22"},
      {"gemm f32, transposed right",
       "name: nt\ndtype: f32\nloops: {b: 2, m: 35, n: 70, k: 50}\noperators:\n"
       "  - \"gemm: C[b,m,n] += A[b,m,k] * B[b,n,k]\"\n",
       {"b/1@grid " + gemm},
       "m=32,n=64,k=24"},
      {"gemm f32, transposed left",
       "name: tn\ndtype: f32\nloops: {m: 36, n: 70, k: 45}\noperators:\n"
       "  - \"gemm: C[m,n] += A[k,m] * B[k,n]\"\n",
       {gemm},
       "m=32,n=64,k=16"},
      {"gemm f64", "gemm:m=20,n=17,k=19,dtype=f64", {gemm}, "m=8,n=8,k=8"},
      {"gemm, batch",
       "gemm:m=40,n=48,k=32,batch=3,dtype=f16",
       {"b/1@grid " + gemm},
       "m=16,n=48,k=16"},
      {"gemm, 24 x 40 tiles", "gemm:m=70,n=90,k=50,dtype=f16", {gemm}, "m=24,n=40,k=24"},
      {"gemm, tiles of one", "gemm:m=5,n=4,k=3,dtype=f16", {gemm}, "m=1,n=1,k=1"},
      {"gemm, sums read back",
       "gemm:m=40,n=48,k=64,dtype=f16",
       {"k m@grid n ( C.gemm )"},
       "m=16,n=16,k=32"},
      {"gemm, split reduction",
       "gemm:m=40,n=48,k=64",
       {"k@grid m@grid n ( C.gemm S.C!atomic )"},
       "m=32,n=16,k=16"},
      {"gemm, split reduction, f16",
       "gemm:m=40,n=48,k=64,dtype=f16",
       {"k@grid m@grid n ( C.gemm S.C!atomic )"},
       "m=16,n=16,k=32"},
      {"gemm, split reduction by workspace",
       kSplit,
       {"p/1@grid m@grid n@grid ( k ( L.A L.B C.part ) S.W )", "m@grid n@grid ( L.W C.whole S.C )"},
       "m=16,n=16,k=16"},
      {"gemm by wmma",
       "gemm:m=80,n=96,k=64,dtype=f16",
       {gemm},
       "m=48,n=80,k=32",
       {.micro_kernel = "wmma2x2"}},
      {"gemm by simt on f16",
       "gemm:m=70,n=90,k=50,dtype=f16",
       {gemm},
       "m=32,n=48,k=16",
       {.micro_kernel = "simt"}},
      {"gemm, many stages",
       "gemm:m=64,n=64,k=256,dtype=f16",
       {gemm},
       "m=64,n=64,k=32",
       {.stages = 5}},
      {"gemm, one copying warp",
       "gemm:m=64,n=64,k=128,dtype=f16",
       {gemm},
       "m=64,n=64,k=32",
       {.copy_warps = 1}},
      {"deep chain", chain + ",dtype=f16", {fused}, "m=32,l=48"},
      {"deep chain, bf16, ReLU",
       chain + ",relu=1,dtype=bf16",
       {"m@grid ( L.A l ( L.B C.gemm1 C.relu L.D C.gemm2 ) S.E )"},
       "m=32,l=48"},
      {"deep chain, f32", chain, {fused}, "m=32,l=48"},
      {"deep chain, few rows and many columns", even + ",dtype=f16", {fused}, "m=16,l=96"},
      {"deep chain, six warps", even + ",dtype=f16", {fused}, "m=48,l=32", {.warps = 6}},
      {"deep chain by wmma",
       even + ",dtype=f16",
       {fused},
       "m=48,l=32",
       {.micro_kernel = "wmma2x2"}},
      {"deep chain, sums in shared memory",
       even + ",dtype=f16",
       {fused},
       "m=48,l=32",
       {.registers = false}},
      {"deep chain, k cut",
       even + ",dtype=f16",
       {"m@grid l ( k ( L.A L.B C.gemm1 ) n ( L.D C.gemm2 ) )"},
       "m=32,l=32,k=16,n=16"},
      {"Chimera's mlkn",
       chain + ",dtype=f16",
       {"m@grid l ( k ( C.gemm1 ) n ( C.gemm2 ) )"},
       "m=32,l=32,k=16,n=16"},
      {"flat chain, a row of C kept",
       even + ",dtype=f16",
       {"m@grid ( k ( l ( C.gemm1 ) ) n ( l ( C.gemm2 ) ) )"},
       "m=32,l=32,k=16,n=16"},
      {"flat chain, E's row kept",
       even + ",dtype=f16",
       {"m@grid ( l ( k ( C.gemm1 ) n ( C.gemm2 ) ) S.E )"},
       "m=32,l=32,k=16,n=16"},
      {"recomputed product",
       chain + ",dtype=f16",
       {"m@grid n@grid ( l ( k ( C.gemm1 ) C.gemm2 ) S.E )"},
       "m=32,l=48,k=16,n=16"},
      {"chain, batch",
       "gemm-chain:m=40,n=16,k=32,l=48,batch=3,dtype=f16",
       {"b/1@grid " + fused},
       "m=16,l=16"},
      {"spilled intermediate",
       even + ",dtype=f16",
       {"m@grid ( l ( k ( C.gemm1 ) ) l ( L.C n ( C.gemm2 ) ) )"},
       "m=32,l=32,k=16,n=16",
       {},
       {{"C", {.level = "DRAM"}}}},
      {"blocks that wait for all",
       even + ",dtype=f16",
       {"( m@grid l@grid ( k ( L.A L.B C.gemm1 ) S.C ) Y.grid m@grid n@grid ( l ( L.C L.D C.gemm2 "
        ") S.E ) )"},
       "m=32,l=32,k=16,n=16",
       {},
       {{"C", {.level = "DRAM"}}}},
      {"two kernels",
       chain + ",dtype=f16",
       {"m@grid l@grid ( k ( L.A L.B C.gemm1 ) S.C )",
        "m@grid n@grid ( l ( L.C L.D C.gemm2 ) S.E )"},
       "m=32,l=32,k=16,n=16"},
      {"three products",
       "gemm-chain3:m=48,n=32,k=32,l=64,p=32,dtype=f16",
       {"m@grid ( l ( C.gemm1 C.gemm2 ) C.gemm3 S.G )"},
       "m=32,l=32"},
      {"attention, whole rows", "attention:m=40,l=70,k=32,n=48,dtype=f16", {attention}, "m=16"},
      {"attention, whole rows, bf16",
       "attention:m=40,l=64,k=32,n=48,dtype=bf16",
       {attention},
       "m=32"},
      {"attention, scaled, heads",
       "attention:heads=2,m=40,l=48,k=32,n=16,scale=1,dtype=f16",
       {"b/1@grid m@grid ( L.Q L.K C.qk C.scaled C.rowmax C.exp C.rowsum L.V C.pv C.divide S.E )"},
       "m=16"},
      {"attention, grouped queries, f16",
       "attention:heads=6,groups=3,m=21,l=37,k=24,n=19,scale=1,dtype=f16",
       {"b/1@grid h/1@grid m@grid ( L.Q L.K C.qk C.scaled C.rowmax C.exp C.rowsum L.V C.pv "
        "C.divide "
        "S.E )"},
       "m=16"},
      {"attention, queries of a group in one block",
       "attention:heads=3,groups=3,m=13,l=27,k=16,n=17",
       {"m@grid ( L.K L.V h/1 ( L.Q C.qk C.rowmax C.exp C.rowsum C.pv C.divide S.E ) )"},
       "m=8"},
      {"attention in one pass",
       "attention:m=70,l=90,k=32,n=48,online=1,dtype=f16",
       {online},
       "m=32,l=32"},
      {"attention, causal, whole rows in registers",
       "attention:m=40,l=70,k=32,n=48,causal=1,dtype=f16",
       {"m@grid ( L.Q L.K C.qk C.masked C.rowmax C.exp C.rowsum L.V C.pv C.divide S.E )"},
       "m=16"},
      {"attention, causal, in one pass, warps share columns",
       "attention:m=70,l=128,k=32,n=32,causal=1,online=1,dtype=f16",
       {"m@grid ( L.Q l ( L.K C.qk C.masked C.rowmax C.exp C.rowsum C.rescale L.V C.pv ) C.divide "
        "S.E )"},
       "m=16,l=64",
       {.warps = 4}},
      {"attention, causal, in one pass, nothing in registers",
       "attention:m=37,l=90,k=40,n=48,causal=1,online=1",
       {"m@grid ( L.Q l ( L.K C.qk C.masked C.rowmax C.exp C.rowsum C.rescale L.V C.pv ) C.divide "
        "S.E )"},
       "m=16,l=32",
       {.registers = false}},
      {"attention in one pass, f32",
       "attention:m=40,l=50,k=16,n=32,online=1",
       {online},
       "m=16,l=16"},
      {"attention in one pass, warps share columns",
       "attention:m=64,l=128,k=32,n=32,online=1,dtype=f16",
       {online},
       "m=16,l=64",
       {.warps = 4}},
      {"convolutions",
       "conv-chain:ic=3,h=9,w=8,oc1=4,oc2=5,st1=1,st2=1,k1=3,k2=1",
       {"h/3@grid ( C.conv1 C.conv2 )"},
       ""},
      {"attention in one pass, rescaled in shared memory",
       "attention:m=37,l=90,k=40,n=48,online=1,dtype=f16",
       {"m@grid ( L.Q l ( L.K C.qk C.rowmax C.exp C.rowsum C.rescale n/16 ( L.V C.pv ) ) C.divide "
        "S.E )"},
       "m=32,l=32"},
      {"attention, scores rounded to have room",
       "attention:m=21,l=200,k=24,n=24,dtype=bf16",
       {"m@grid ( L.Q l ( L.K C.qk C.rowmax ) l ( C.exp C.rowsum L.V C.pv ) C.divide S.E )"},
       "m=16,l=40",
       {.shared_room = 22000}},
      {"attention in one pass, nothing in registers",
       "attention:m=37,l=90,k=40,n=48,online=1",
       {online},
       "m=32,l=32",
       {.registers = false}},
      {"convolution by groups, f16",
       grouped_convolution("f16"),
       {"g/1@grid y/3@grid ( c/6 ( C.conv ) S.O )"},
       ""},
      {"convolution by groups, bf16, all at once",
       grouped_convolution("bf16"),
       {"b/1@grid ( C.conv S.O )"},
       ""},
      {"convolution by groups, f32, a window cut",
       grouped_convolution("f32"),
       {"b/1@grid x/4@grid ( g/1 r/2 ( C.conv ) )"},
       ""},
      {"convolutions on tensor cores",
       "conv-chain:ic=20,h=15,w=11,oc1=24,oc2=18,st1=2,st2=1,k1=3,k2=3,relu=1,dtype=f16",
       {"h/5@grid ( oc1/16 ( C.conv1 C.relu C.conv2 ) )"},
       ""},
      {"three products of an operator",
       kThreeProducts,
       {"m/20@grid e/16@grid ( d/24 ( C.qkv ) )"},
       ""},
      {"convolutions, stride and halos",
       "conv1d-chain:h=20,r=3,s=3,dtype=f16",
       {"h/4@grid ( C.conv1 C.conv2 )"},
       ""},
      {"layer norm",
       "layernorm:rows=13,cols=50",
       {"r/2@grid ( L.x C.sum C.mean C.sub C.sq C.varsum C.rstd C.norm S.y )"},
       ""},
      {"a pack of grid loops: each part has its own blocks",
       "layernorm-backward:rows=13,cols=20",
       {"r/1@grid ( C.centred C.normal C.scaled C.sum1 C.along C.sum2 C.dx C.weighted )",
        "( c/4@grid ( r/13 ( C.dgain ) ) | c/4@grid ( r/13 ( C.dbias ) ) )"},
       ""},
      {"a pack with a part of one block",
       "layernorm-backward:rows=13,cols=20",
       {"r/1@grid ( C.centred C.normal C.scaled C.sum1 C.along C.sum2 C.dx C.weighted )",
        "( c/4@grid ( r/13 ( C.dgain ) ) | r/4 ( C.dbias ) )"},
       ""},
      {"a product of looked-up rows, each read by many threads and counted once",
       "name: looked-up\nloops: {b: 9, d: 20, e: 12}\ntensors: {ids: [b], T: [7, d]}\n"
       "dtypes: {ids: i32}\noperators:\n  - \"gemm: y[b,e] += T[ids[b],d] * W[d,e]\"\n"
       "  - \"act: a[b,e] = relu(y[b,e])\"\n",
       {"b/4@grid e/8@grid ( d/8 ( C.gemm ) C.act )"},
       ""},
      {"layer norm, f16",
       "layernorm:rows=13,cols=64,dtype=f16",
       {"r/1@grid ( L.x C.sum C.mean C.sub C.sq C.varsum C.rstd C.norm S.y )"},
       ""},
      {"softmax",
       "softmax:rows=9,cols=40,dtype=f16",
       {"r/4@grid ( L.x C.rowmax C.exp C.rowsum C.divide S.y )"},
       ""},
  };
  if (long_run()) {
    for (int i = 1; i <= 12; ++i) {
      all.push_back(
          {"row", "chimera/G" + std::to_string(i) + ":dtype=f16,batch=1", {fused}, "m=64,l=64"});
      all.push_back({"row",
                     "mcfuser/G" + std::to_string(i) + ":batch=1",
                     {"m@grid n@grid ( l ( k ( L.A L.B C.gemm1 ) L.D C.gemm2 ) S.E )"},
                     "m=32,l=64,k=64,n=64"});
    }
    for (int i = 1; i <= 9; ++i)
      all.push_back(
          {"row", "mcfuser/S" + std::to_string(i) + ":heads=1,online=1", {online}, "m=64,l=64"});
  }
  for (std::size_t i = 0; i < all.size(); ++i) all[i].options.prefix = "f" + std::to_string(i);
  return all;
}

/// As many multiprocessors as an H200 has, their shared memory filled from DRAM: nothing that
/// blocks share, so that `exact` counts.
std::shared_ptr<const Machine> machine() {
  Machine m = named_machine("scratchpad:232448B");
  m.levels.back().instances = 132;
  return std::make_shared<const Machine>(std::move(m));
}

Schedule schedule_of(const Case& c) {
  auto w = std::make_shared<const Workload>(c.workload.find('\n') == std::string::npos
                                                ? named_workload(c.workload)
                                                : workload_from_yaml(c.workload, "test"));
  Plan plan;
  for (const std::string& tree : c.trees) {
    Kernel k{.tree = parse_tree(tree)};
    if (!c.tiles.empty()) k.tiles = parse_tiles(c.tiles);
    k.pins = c.pins;
    plan.kernels.push_back(k);
  }
  auto s = resolve(plan, w, machine());
  if (!s.ok()) throw std::runtime_error(c.name + ": " + s.reason());
  return std::move(s).value();
}

void emit_all(const std::vector<Case>& all, std::vector<Schedule>& schedules,
              std::vector<cuda::Source>& sources) {
  for (const Case& c : all) {
    schedules.push_back(schedule_of(c));
    auto source = cuda::emit(schedules.back(), c.options);
    ASSERT_TRUE(source) << c.name << ": " << source.reason();
    sources.push_back(std::move(source).value());
  }
}

TEST(CudaFamilies, ComputeAndMoveWhatTheyShould) {
  const std::vector<Case> all = cases();
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  ASSERT_NO_FATAL_FAILURE(emit_all(all, schedules, sources));
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name + ", " + all[i].workload);
    const Workload& w = *schedules[i].workload;
    const auto run = testing::run_cuda(*module, sources[i], w, 100 + i);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
    const double most = w.dtype() == DType::f64   ? 1e-13
                        : w.dtype() == DType::f32 ? 1e-5
                        : w.dtype() == DType::f16 ? 2e-3
                                                  : 1.6e-2;
    EXPECT_LT(run->error, most);
    EXPECT_EQ(run->bytes, testing::exact_bytes(schedules[i]))
        << testing::text(run->bytes)
        << "\nexact: " << testing::text(testing::exact_bytes(schedules[i]));
  }
}

/// Each barrier of every eighth family left out; of all families in a long run.
TEST(CudaFamilies, BarriersLeftOutAreFound) {
  std::vector<Case> all;
  const std::vector<Case> families = cases();
  const std::size_t step = testing::BarriersLeftOut::long_run() ? 1 : 8;
  for (std::size_t i = 0; i < families.size(); i += step) all.push_back(families[i]);
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  ASSERT_NO_FATAL_FAILURE(emit_all(all, schedules, sources));
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  testing::BarriersLeftOut seen;
  for (std::size_t i = 0; i < all.size(); ++i)
    seen.look(*module, sources[i], *schedules[i].workload, 100 + i, all[i].name);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 20);
}

/// What keeps an emitted kernel right, taken out piece by piece: each is found.
TEST(CudaFamilies, PlantedFaultsAreFound) {
  const Case c = {"",
                  "gemm-chain:m=32,n=32,k=32,l=128,dtype=f16",
                  {"m@grid ( L.A l ( L.B C.gemm1 L.D C.gemm2 ) S.E )"},
                  "m=16,l=32",
                  {.warps = 2}};
  const Schedule s = schedule_of(c);
  const auto source = cuda::emit(s, c.options);
  ASSERT_TRUE(source) << source.reason();
  struct Fault {
    std::string what, from, to;
    std::vector<cuda_host::Fault> found;
  };
  using F = cuda_host::Fault;
  const std::vector<Fault> faults = {
      {"nobody waits for a copied tile",
       "mbarrier_wait(barriers + stage, parity);",
       "",
       {F::race, F::uninitialised}},
      {"a tile is overwritten while it is read",
       "mbarrier_wait(barriers + Stages + stage, parity ^ 1);",
       "",
       {F::race}},
      {"partial sums are read before they are there",
       "barrier(1, Threads);",
       "",
       {F::race, F::uninitialised}},
      {"a tile is never given back",
       "mbarrier_arrive(barriers + Stages + stage);",
       "",
       {F::deadlock}},
      {"one row too many is read",
       "D_home + i64(l_l) * 32",
       "D_home + 32 + i64(l_l) * 32",
       {F::out_of_bounds}},
      {"another block's rows are written",
       "E_home + i64(l_m)",
       "E_home + i64(l_m / 32)",
       {F::block_race}},
  };
  for (const Fault& f : faults) {
    SCOPED_TRACE(f.what);
    const auto module = testing::build_cuda({*source}, f.from, f.to);
    ASSERT_TRUE(module) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *s.workload, 5);
    ASSERT_TRUE(run) << run.reason();
    const bool found = std::ranges::any_of(run->report.findings, [&](const cuda_host::Finding& x) {
      return std::ranges::find(f.found, x.fault) != f.found.end();
    });
    EXPECT_TRUE(found) << (run->report.findings.empty() ? "nothing was found"
                                                        : run->report.findings.front().text);
  }
}

TEST(CudaFamilies, TheSkeletonIsAMicroKernel) {
  std::stringstream text;
  text << std::ifstream(test::in_sources("codegen/cuda/device/micro_kernel_skeleton.h")).rdbuf();
  const Case c = {"",
                  "gemm-chain:m=37,n=33,k=20,l=50",
                  {"m@grid ( L.A l ( L.B C.gemm1 L.D C.gemm2 ) S.E )"},
                  "m=32,l=32"};
  const Schedule s = schedule_of(c);
  auto emitted = cuda::emit(s, c.options);
  ASSERT_TRUE(emitted) << emitted.reason();
  cuda::Source source = std::move(emitted).value();
  const std::string include = "#include \"tilewright_products.h\"";
  source.text.replace(source.text.find(include), include.size(),
                      "#include \"micro_kernel_skeleton.h\"");
  const auto module = testing::build_cuda(
      {source}, "Simt::", "Skeleton::", {{"micro_kernel_skeleton.h", text.str()}});
  ASSERT_TRUE(module) << module.reason();
  const auto run = testing::run_cuda(*module, source, *s.workload, 5);
  ASSERT_TRUE(run) << run.reason();
  EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
  EXPECT_LT(run->error, 1e-5);
}

TEST(CudaFamilies, CompileForBothArchitectures) {
  cuda::Source all;
  all.prefix = "families";
  for (const Case& c : cases()) {
    auto source = cuda::emit(schedule_of(c), c.options);
    ASSERT_TRUE(source) << c.name << ": " << source.reason();
    all.text += source->text;
  }
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const auto built = cuda::build(all, {.architecture = architecture, .builder = "nvcc"});
    if (!built) {
      if (built.reason().starts_with("no nvcc")) GTEST_SKIP() << "SKIPPED: " << built.reason();
      FAIL() << architecture << ": " << built.reason();
    }
    std::int64_t spilled = 0;
    for (const auto& k : built->kernels) spilled += k.spill_store_bytes;
    std::cout << architecture << ": " << built->kernels.size() << " kernels, " << spilled
              << " bytes of registers spilled in all\n";
    EXPECT_GE(built->kernels.size(), cases().size());
  }
}

/// Registers of a kernel in PTX that have an address of its shared memory, are stepped by a loop,
/// and from which others were computed before that loop: ptxas takes those to move along. Of the
/// address itself, which PTX makes anew wherever it is used, every step.
std::vector<std::string> stepped_addresses(const std::string& ptx) {
  std::vector<std::string> lines, found;
  std::istringstream text(ptx);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const auto words_of = [](std::string line) {
    std::ranges::replace(line, ',', ' ');
    std::ranges::replace(line, ';', ' ');
    std::istringstream in(line);
    std::vector<std::string> words(5);
    for (std::string& w : words) in >> w;
    return words;
  };
  std::map<std::string, std::size_t> labels;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].starts_with("$L")) labels[lines[i].substr(0, lines[i].find(':'))] = i;
  /// Where the loop around a line begins: what the next jump back goes to.
  const auto loop_of = [&](std::size_t line) {
    for (std::size_t i = line; i < lines.size(); ++i) {
      const std::size_t at = lines[i].find("$L");
      if (lines[i].find("bra") == std::string::npos || at == std::string::npos) continue;
      const auto label = labels.find(lines[i].substr(at, lines[i].find(';') - at));
      if (label != labels.end() && label->second < line) return label->second;
    }
    return std::size_t{0};
  };
  const char* const makes[] = {"add.", "mov.", "mad.", "sub.", "or.", "xor.", "and."};
  std::string kernel;
  std::set<std::string> roots;
  std::map<std::string, std::vector<std::size_t>> addresses;  // what is computed from each, where
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto words = words_of(lines[i]);
    if (lines[i].find(".entry") != std::string::npos) {
      addresses.clear(), roots.clear();
      kernel = lines[i];
    }
    if (words[0].starts_with("mov.") && words[2].starts_with("memory")) {
      addresses[words[1]], roots.insert(words[1]);
    } else if (words[0].starts_with("add.") && words[1] == words[2] &&
               addresses.contains(words[1])) {
      const std::size_t loop = loop_of(i);
      if (roots.contains(words[1]) ||
          std::ranges::any_of(addresses[words[1]], [&](std::size_t at) { return at < loop; }))
        found.push_back(kernel + ": " + lines[i]);
    } else if (std::ranges::any_of(makes, [&](const char* m) { return words[0].starts_with(m); })) {
      for (std::size_t from : {2, 3, 4})
        if (addresses.contains(words[from])) {
          addresses[words[from]].push_back(i);
          addresses[words[1]];
        }
    }
  }
  return found;
}

TEST(CudaFamilies, NoAddressOfSharedMemoryIsStepped) {
  EXPECT_EQ(stepped_addresses(".visible .entry k(\n mov.u32 \t%r1, memory_begin;\n"
                              " add.s32 \t%r2, %r1, 16;\n add.s32 \t%r1, %r1, 64;\n")
                .size(),
            1);
  const std::string loop =
      ".visible .entry k(\n mov.u32 \t%r1, memory_begin;\n add.s32 \t%r2, %r1, %r9;\n";
  const std::string step = " add.s32 \t%r2, %r2, 64;\n @%p1 bra \t$L__BB0_1;\n";
  const std::string other = " add.s32 \t%r3, %r2, 128;\n";
  EXPECT_EQ(stepped_addresses(loop + other + "$L__BB0_1:\n" + step).size(), 1);
  EXPECT_EQ(stepped_addresses(loop + "$L__BB0_1:\n" + other + step).size(), 0);
  const std::string multiplied = " mad.lo.s32 \t%r3, %r8, 128, %r2;\n";
  EXPECT_EQ(stepped_addresses(loop + multiplied + "$L__BB0_1:\n" + step).size(), 1);
  const std::filesystem::path nvcc = cuda::find_nvcc();
  if (nvcc.empty()) GTEST_SKIP() << "SKIPPED: no nvcc";
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "stepped_addresses";
  std::filesystem::create_directories(folder);
  for (const auto& h : cuda::device_headers()) std::ofstream(folder / h.name) << h.text;
  std::ofstream file(folder / "all.cu");
  int number = 0;
  std::vector<Case> all = cases();
  all.push_back(kRows);
  for (Case& c : all) {
    c.options.prefix = "k" + std::to_string(number++);
    auto source = cuda::emit(schedule_of(c), c.options);
    ASSERT_TRUE(source) << c.name << ": " << source.reason();
    file << source->text;
  }
  file.close();
  const std::string command =
      formatted("cd '{}' && '{}' -std=c++17 -w -I . -arch sm_90a -ptx -o all.ptx all.cu",
                folder.string(), nvcc.string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream ptx(folder / "all.ptx");
  const std::string text{std::istreambuf_iterator<char>(ptx), {}};
  EXPECT_GT(text.size(), 100000u);
  EXPECT_THAT(stepped_addresses(text), ::testing::IsEmpty());
  std::filesystem::remove_all(folder);
}

/// The text of one kernel, to be read. To accept a change:
///   TILEWRIGHT_REGENERATE=1 cuda_families_test --gtest_filter=CudaGolden.*
TEST(CudaGolden, FusedChain) {
  const Schedule s = schedule_of({"",
                                  "gemm-chain:m=512,n=64,k=64,l=512,relu=1,dtype=f16",
                                  {"m@grid ( L.A l ( L.B C.gemm1 C.relu L.D C.gemm2 ) S.E )"},
                                  "m=64,l=64"});
  const std::string text = cuda::emit(s, {.prefix = "chain"}).value().text;
  testing::expect_golden("fused_chain.cu", text);
}

TEST(CudaRefusals, SayWhy) {
  const auto refusal = [](const Case& c) {
    const auto s = cuda::emit(schedule_of(c), c.options);
    return s ? std::string() : s.reason();
  };
  const std::string gemm = "m@grid n@grid ( k ( L.A L.B C.gemm ) S.C )";
  EXPECT_EQ(refusal({"", "gemm:m=64,n=64,k=64,dtype=i8", {gemm}, "m=16,n=16,k=16"}), "");
  EXPECT_THAT(refusal({"",
                       "name: sums\nloops: {r: 8, c: 8}\ndtypes: {s: i32}\noperators:\n"
                       "  - s: s[r] += x[r,c]\n",
                       {"r@grid ( c ( L.x C.s ) S.s )"},
                       "r=4,c=4"}),
              ::testing::HasSubstr("of type i32 and combines values that are not whole numbers"));
  EXPECT_THAT(
      refusal({"", "gemm:m=64,n=64,k=64", {gemm}, "m=16,n=16,k=16", {.micro_kernel = "mma"}}),
      ::testing::HasSubstr("takes no f32"));
  EXPECT_THAT(
      refusal({"", "gemm:m=64,n=64,k=64", {gemm}, "m=16,n=16,k=16", {.micro_kernel = "mwa"}}),
      ::testing::HasSubstr("it has mma, wmma2x2, simt"));
  EXPECT_THAT(refusal({"", "gemm:m=512,n=512,k=512", {gemm}, "m=256,n=256,k=256"}),
              ::testing::HasSubstr("of shared memory"));
  EXPECT_THROW((void)refusal({"", "gemm:m=64,n=64,k=64", {gemm}, "m=16,n=16,k=16", {.warps = 99}}),
               InputError);
}

}  // namespace
}  // namespace tilewright
