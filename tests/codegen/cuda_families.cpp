#include "tests/codegen/cuda_families.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/workload/text.h"

namespace tilewright::testing {
namespace {

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

/// A product whose operands' tiles a loop walks along, one of them by whole rows: wrong on an H200
/// while both began at one register (CompileForBothArchitecturesAndStepNoAddress).
const FamilyCase kPerceptron = {
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

bool long_run() { return std::getenv("TILEWRIGHT_LONG") != nullptr; }

std::shared_ptr<const Machine> machine() {
  Machine m = named_machine("scratchpad:232448B");
  m.levels.back().instances = 132;
  return std::make_shared<const Machine>(std::move(m));
}

}  // namespace

const FamilyCase& products_of_a_row() {
  static const FamilyCase all = {
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
  return all;
}

std::vector<FamilyCase> family_cases() {
  const std::string chain = "gemm-chain:m=70,n=33,k=37,l=90";
  const std::string even = "gemm-chain:m=80,n=48,k=64,l=96";
  const std::string fused = "m@grid ( L.A l ( L.B C.gemm1 L.D C.gemm2 ) S.E )";
  const std::string attention =
      "m@grid ( L.Q L.K C.qk C.rowmax C.exp C.rowsum L.V C.pv C.divide S.E )";
  const std::string online =
      "m@grid ( L.Q l ( L.K C.qk C.rowmax C.exp C.rowsum C.rescale L.V C.pv ) C.divide S.E )";
  const std::string gemm = "m@grid n@grid ( k ( L.A L.B C.gemm ) S.C )";
  std::vector<FamilyCase> all = {
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
  // Products of floats by tensor cores, too.
  for (const std::string of :
       {"gemm f32", "gemm f32, rows that begin anywhere, tiles of no four",
        "gemm f32, transposed right", "gemm f32, transposed left", "gemm, split reduction",
        "deep chain, f32", "attention, queries of a group in one block",
        "attention in one pass, f32", "attention in one pass, nothing in registers",
        "convolution by groups, f32, a window cut"}) {
    FamilyCase again = *std::ranges::find(all, of, &FamilyCase::name);
    again.name += ", tf32x3";
    again.options.micro_kernel = "tf32x3";
    all.push_back(std::move(again));
  }
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

Schedule schedule_of(const FamilyCase& c) {
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

}  // namespace tilewright::testing
