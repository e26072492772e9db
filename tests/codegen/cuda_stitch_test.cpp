// Do kernels whose loops are bound to warps, lanes and threads compute what the reference evaluator
// computes, move the bytes that `exact` counts, and have nothing found in them on
// simulator/cuda_host? Is what they must not do refused, and are planted faults found?
#include <gmock/gmock.h>

#include <set>
#include <stdexcept>

#include "codegen/cuda/build.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/support/random_stitched.h"

namespace tilewright {
namespace {

using testing::random_stitched::machine;

struct Case {
  std::string workload;            ///< built in, or a file's text
  std::vector<std::string> trees;  ///< a kernel each
  std::string level = "registers";
  std::map<std::string, Pin> pins = {};
  cuda::EmitOptions options = {};
  bool through_shared = false;  ///< registers are filled from shared memory alone
};

/// A GPU whose registers are filled from shared memory alone.
std::shared_ptr<const Machine> through_shared() {
  Machine m = *machine();
  for (Level& l : m.levels)
    if (l.kind == LevelKind::registers) l.filled_by = {"shared"};
  return std::make_shared<const Machine>(m);
}

Schedule schedule_of(const Case& c) {
  const bool file = c.workload.find('\n') != std::string::npos;
  auto w = std::make_shared<const Workload>(file ? workload_from_yaml(c.workload, "test")
                                                 : named_workload(c.workload));
  Plan plan;
  for (const std::string& tree : c.trees)
    plan.kernels.push_back({.level = c.level, .tree = parse_tree(tree), .pins = c.pins});
  auto s = resolve(plan, w, c.through_shared ? through_shared() : machine());
  if (!s.ok()) throw std::runtime_error(c.workload + ": " + s.reason());
  return std::move(s).value();
}

const char* const kLayerNorm =
    "r/8@grid ( r/1@warp ( L.x c/4@lane ( C.sum ) Y.warp C.mean c/4@lane ( C.sub C.sq C.varsum ) "
    "Y.warp C.rstd c/4@lane ( C.norm ) ) )";
const char* const kBlockNorm =
    "r/1@grid ( L.x c/4@thread ( C.sum ) Y.block C.mean c/4@thread ( C.sub C.sq C.varsum ) "
    "Y.block C.rstd c/4@thread ( C.norm ) )";
const char* const kSoftmax =
    "r/8@grid ( r/1@warp ( c/4@lane ( C.rowmax ) c/4@lane ( C.exp C.rowsum ) "
    "c/4@lane ( C.divide ) ) )";

std::vector<Case> warp_cases() {
  return {
      {"layernorm:rows=24,cols=40", {kLayerNorm}},
      {"layernorm:rows=21,cols=300", {kLayerNorm}},
      {"layernorm:rows=5,cols=37",
       {"r/4@grid ( r/1@warp ( L.x c/1@lane ( C.sum ) C.mean c/1@lane ( C.sub C.sq C.varsum ) "
        "C.rstd c/1@lane ( C.norm ) ) )"}},
      {"layernorm:rows=9,cols=1",
       {"r/8@grid ( r/1@warp ( L.x c/1@lane ( C.sum ) C.mean c/1@lane ( C.sub C.sq C.varsum ) "
        "C.rstd c/1@lane ( C.norm ) ) )"}},
      {"layernorm:rows=24,cols=40,dtype=f64", {kLayerNorm}},
      {"layernorm:rows=8,cols=264,dtype=f16",
       {"r/8@grid ( r/1@warp ( L.x c/8@lane ( C.sum ) C.mean c/8@lane ( C.sub C.sq C.varsum ) "
        "C.rstd c/8@lane ( C.norm ) ) )"}},
      {"softmax:rows=24,cols=40", {kSoftmax}},
      {"softmax:rows=9,cols=130,dtype=bf16", {kSoftmax}},
      {"residual-layernorm:rows=24,cols=40",
       {"r/8@grid ( r/1@warp ( c/4@lane ( C.biased C.dropped C.added C.sum ) C.mean "
        "c/4@lane ( C.sub C.sq C.varsum ) C.rstd c/4@lane ( C.norm ) ) )"}},
      {"masked-softmax:batch=2,heads=3,m=4,l=20",
       {"b/1@grid h/1@grid m/2@grid ( m/1@warp ( l/4@lane ( C.scaled C.masked C.rowmax ) "
        "l/4@lane ( C.exp C.rowsum ) l/4@lane ( C.divide ) ) )"}},
      // what no warp's rows move, in each warp's own tile
      {"name: own\nloops: {b: 9, c: 17, d: 1}\noperators:\n"
       "  - \"t[c] = tanh(u[]) + u[]\"\n  - \"y[b] += t[c] * w[d]\"\n",
       {"b/6@grid b/1@warp ( L.u@registers c/1@lane ( C.t ) Y.warp c/1 d/1@lane ( C.y ) S.y )"},
       "shared"},
      {"name: own\nloops: {b: 9, c: 17, d: 1, e: 40}\noperators:\n"
       "  - \"t[c] += x[c,e]\"\n  - \"y[b] += t[c] * w[d]\"\n",
       {"b/6@grid b/1@warp ( c/1 e/1@lane ( C.t ) Y.warp c/1 d/1@lane ( C.y ) S.y )"},
       "shared"},
      // several warps a row, of which some have no row
      {"layernorm:rows=5,cols=800",
       {"r/2@grid ( r/1@warp ( L.x c/200@warp ( c/4@lane ( C.sum ) ) C.mean "
        "c/200@warp ( c/4@lane ( C.sub C.sq C.varsum ) ) C.rstd "
        "c/200@warp ( c/4@lane ( C.norm ) ) ) )"}},
      // all columns in the one iteration of a loop of warps, within which the sum is read
      {"rmsnorm:rows=5,cols=436",
       {"r/1@grid c/436@warp r/1 ( c/4@lane ( C.sq C.sum ) Y.warp C.rstd c/4@lane ( C.norm ) )"}},
      {"rmsnorm:rows=11,cols=40",
       {"r/4@grid r/1@warp c/40@warp ( c/4@lane ( C.sq C.sum ) Y.warp C.rstd "
        "c/4@lane ( C.norm ) )"}},
      // several rows a warp, some lanes without a column
      {"softmax:rows=24,cols=12",
       {"r/16@grid ( r/8@warp ( r/1@lane ( c/4@lane ( C.rowmax ) c/4@lane ( C.exp C.rowsum ) "
        "c/4@lane ( C.divide ) ) ) )"}},
      // what all rows read, once a block in shared memory, or once a warp in registers
      {"layernorm:rows=21,cols=40",
       {"r/8@grid ( L.gain@shared r/1@warp ( L.x c/4@lane ( C.sum ) C.mean "
        "c/4@lane ( C.sub C.sq C.varsum ) C.rstd c/4@lane ( C.norm ) ) )"}},
      {"layernorm:rows=21,cols=40",
       {"r/8@grid ( r/4@warp ( L.gain r/1 ( L.x c/4@lane ( C.sum ) C.mean "
        "c/4@lane ( C.sub C.sq C.varsum ) C.rstd c/4@lane ( C.norm ) ) ) )"}},
      // what stands outside of a loop over units is another unit's: it has a tile of its own, and
      // those within find theirs again
      {"name: one\nloops: {r: 1, c: 4}\ntensors: {T: [7, c], S: [7], ids: [r]}\n"
       "dtypes: {ids: i32}\noperators:\n  - t: t[r] = tanh(S[ids[r]])\n"
       "  - y: y[r,c] = T[ids[r],c] * t[r]\n",
       {"r/1@grid r/1@warp ( C.t c/4@lane ( C.y ) )"}},
      {"name: first\nloops: {r: 12, c: 48}\noperators:\n  - t: t[r,c] = tanh(x[r,c])\n"
       "  - u: u[r] = tanh(x[r,0])\n  - v: v[r] += x[r,c] * t[r,c]\n",
       {"r/8@grid r/1@warp ( c/40@warp c/4@lane ( C.t ) C.u c/40@warp c/4@lane ( C.v ) )"}},
      // at shared memory's level, where nothing is held from loop to loop
      {"layernorm:rows=24,cols=40",
       {"r/8@grid ( r/1@warp ( c/4@lane ( C.sum ) Y.warp C.mean c/4@lane ( C.sub C.sq C.varsum ) "
        "Y.warp C.rstd c/4@lane ( C.norm ) ) )"},
       "shared"},
  };
}

std::vector<Case> thread_cases() {
  return {
      // a looked-up element that all threads of a block read alike, counted once
      {"name: alike\nloops: {r: 4, c: 47}\ntensors: {S: [7], ids: [r]}\ndtypes: {ids: i8}\n"
       "operators:\n  - t: t[r] = tanh(S[ids[r]])\n  - y: y[r,c] = t[r] * x[r,c]\n",
       {"r/2@grid r/1 ( C.t c/1@thread ( C.y ) )"},
       "shared"},
      // a warp's own tile, which an idle warp has not brought
      {"name: idle\nloops: {a: 17, b: 50, d: 1}\ntensors: {s: [2]}\noperators:\n"
       "  - y: y[d,a,b] = x[a] + s[2*d]\n",
       {"d/1@grid a/6@grid a/1@warp ( L.x@registers L.s@registers b/2@lane ( C.y ) )"}},
      // a part of a pack in one block
      {"name: beside\nloops: {r: 4, c: 47}\noperators:\n  - y: y[r,c] = tanh(x[r,c])\n"
       "  - s: s[] += z[c]\n",
       {"( r/1@grid c/1@thread ( C.y ) | c/1@thread ( C.s ) S.s )"},
       "shared"},
      {"layernorm:rows=6,cols=40", {kBlockNorm}},
      {"layernorm:rows=3,cols=1500", {kBlockNorm}},
      {"layernorm:rows=3,cols=1500,dtype=f64", {kBlockNorm}, "registers", {}, {.warps = 3}},
      {"gelu:rows=24,cols=40",
       {"r/1@grid c/32@grid c/4@thread ( C.biased C.cubic C.tanh C.half C.gelu )"}},
      {"adam:size=1003",
       {"i/512@grid i/1@thread ( C.first C.squared C.second C.mhat C.vhat C.root C.step "
        "C.update )"}},
      {"adam:size=1000",
       {"i/512@grid i/4@thread ( C.first C.squared C.second C.mhat C.vhat C.root C.step "
        "C.update )"}},
      // a row a thread
      {"softmax:rows=70,cols=10",
       {"r/64@grid ( r/1@thread ( L.x c/1 ( C.rowmax ) c/1 ( C.exp C.rowsum ) "
        "c/1 ( C.divide ) ) )"}},
  };
}

const char* const kTwo =
    "name: two\nloops: {r: 19, c: 44, i: 700}\noperators:\n"
    "  - sum: s[r] += x[r,c]\n  - y: y[r,c] = x[r,c] - s[r]\n  - z: z[i] = exp(v[i])\n";
const char* const kTranspose =
    "name: transpose\nloops: {r: 50, c: 70}\noperators:\n"
    "  - a: a[r,c] = exp(x[r,c])\n  - t: t[c,r] = a[r,c] * g[r]\n";
const char* const kPastTheEnd =
    "name: next\nloops: {r: 24}\ntensors: {x: [24], a: [24], g: [24]}\noperators:\n"
    "  - a: a[r] = exp(x[r])\n  - y: y[r] = a[r+1] * g[r+1]\n";
const Pin kShared{.level = "shared"};

/// 10 items of three warps, 4 each.
Case dots() {
  return {
      "name: dots\nloops: {b: 3, t: 10, d: 64}\noperators:\n"
      "  - h: h[b,d] = q[b,d] * 2\n  - s: s[b,t] += k[b,t,d] * h[b,d]\n",
      {"b/1@grid ( d/1@thread ( C.h ) Y.block t/4@warp t/1 d/2@lane ( C.s ) )"},
      "registers",
      {{"h", {.level = "shared"}}}};
}

std::vector<Case> block_cases() {
  return {
      dots(),
      {"{loops: {f: 1, g: 5, h: 5}, operators: ['a: t[f] = x[f]', 'b: y[g] max= t[g+h-4]']}\n",
       {"f/1 ( C.a ) Y.block g/1 h/1@lane ( C.b )"},
       "shared"},
      // a tile whose rows, neighbours at home, are not the inner loop of the product
      {"gemm:m=6,n=6,k=7", {"m/2@warp k/3@warp ( L.A C.gemm )"}},
      // sums over rows: registers over a warp's rows, warps in shared memory, blocks by atomics
      {"layernorm-backward:rows=45,cols=140",
       {"r/16@grid ( r/4@warp ( r/1 ( L.x L.dy L.mean L.rstd c/4@lane ( C.centred C.normal "
        "C.scaled C.sum1 C.along C.sum2 ) c/4@lane ( C.dx C.weighted C.dgain C.dbias ) ) ) "
        "S.dgain!atomic S.dbias!atomic )"}},
      // rows in runs, two at once; what a block's rows read alike is loaded before them
      {"layernorm-backward:rows=37,cols=50",
       {"r/10@grid ( L.mean@shared L.rstd@shared L.gain@registers r/2 ( c/2@thread ( C.scaled "
        "C.sum1 "
        "C.centred C.normal C.along C.sum2 C.weighted C.dgain C.dbias ) Y.block c/2@thread ( C.dx "
        ") "
        ") S.dgain!atomic S.dbias!atomic )"}},
      {"layernorm-backward:rows=37,cols=48",
       {"r/12@grid ( r/4@warp ( L.gain@registers r/2 ( L.mean@registers L.rstd@registers c/4@lane "
        "( "
        "C.scaled C.sum1 C.centred C.normal C.along C.sum2 C.weighted C.dgain C.dbias ) Y.warp "
        "c/4@lane ( C.dx ) ) ) S.dgain!atomic S.dbias!atomic )"}},
      {"layernorm-backward:rows=24,cols=40",
       {"r/1@grid ( L.mean L.rstd c/4@thread ( C.centred C.normal C.scaled C.sum1 C.along C.sum2 "
        ") c/4@thread ( C.dx C.weighted ) )",
        "c/32@grid r/8@grid ( r/1@warp ( c/4@lane ( C.dgain C.dbias ) ) S.dgain!atomic "
        "S.dbias!atomic )"},
       "registers",
       {{"weighted", {.level = "DRAM"}}}},
      // trees on consecutive blocks
      {kTwo,
       {"( r/4@grid ( r/1@warp ( L.x c/4@lane ( C.sum ) c/4@lane ( C.y ) ) ) | "
        "i/256@grid ( i/4@thread ( C.z ) ) )"}},
      // an exchange through shared memory
      {kTranspose,
       {"r/32@grid c/32@grid ( r/8@warp r/1 c/1@lane ( C.a ) Y.block c/8@warp c/1 r/1@lane ( C.t "
        ") )"},
       "registers",
       {{"a", kShared}}},
      // zeros past a tensor's end
      {kPastTheEnd,
       {"( r/4@lane ( C.a ) Y.warp r/4@lane ( C.y ) )"},
       "registers",
       {{"a", kShared}}},
      {"groupnorm:batch=3,groups=4,channels=2,size=20",
       {"n/1@grid g/1@grid ( L.x c/1 s/4@thread ( C.sum ) C.mean c/1 s/4@thread ( C.sub C.sq "
        "C.varsum ) C.rstd c/1 s/4@thread ( C.normal C.affine ) )"}},
      {"groupnorm:batch=2,groups=3,channels=5,size=150",
       {"n/1@grid g/1@grid ( L.x c/1@warp s/2@lane ( C.sum ) C.mean c/1@warp s/2@lane ( C.sub "
        "C.sq C.varsum ) C.rstd c/1@warp s/2@lane ( C.normal C.affine ) )"}},
      {"batchnorm:batch=3,channels=4,size=20",
       {"n/1@grid c/1@grid ( C.rstd C.scale C.shift s/4@thread ( C.scaled C.shifted ) )"}},
      {"lstm-cell:batch=6,hidden=20",
       {"b/1@grid ( g/4@thread ( C.pre ) Y.block j/1@thread ( C.input C.forget C.cell C.out "
        "C.kept C.state C.bent C.hidden ) )"},
       "registers",
       {{"pre", kShared}}},
      {"squeeze-excite:batch=3,channels=8,size=20,squeezed=4",
       {"n/1@grid ( c/4@warp c/1 ( s/4@lane ( C.sum ) C.mean ) Y.block j/1@thread ( c/1 ( "
        "C.squeeze ) C.relu ) Y.block c/1@thread ( j/1 ( C.excite ) C.gate ) Y.block "
        "c/4@warp c/1 s/4@lane ( C.scale ) )"},
       "registers",
       {{"mean", kShared}, {"a", kShared}, {"gate", kShared}}},
      {"attention-unit:batch=3,items=7,width=8,gather=0",
       {"b/1@grid ( t/1@warp ( d/4@lane ( C.product C.distance C.mixed C.score ) C.masked ) "
        "Y.block "
        "t/1@lane ( C.most ) t/1@lane ( C.exp C.norm ) t/1@lane ( C.share ) Y.block "
        "d/1@thread ( t/1 ( C.weighted C.interest ) ) )"},
       "registers",
       {{"masked", kShared}, {"a", kShared}}},
  };
}

void run_all(const std::vector<Case>& all, testing::BarriersLeftOut* seen = nullptr) {
  std::vector<Schedule> schedules;
  std::vector<cuda::Source> sources;
  for (std::size_t i = 0; i < all.size(); ++i) {
    schedules.push_back(schedule_of(all[i]));
    cuda::EmitOptions options = all[i].options;
    options.prefix = "k" + std::to_string(i);
    auto source = cuda::emit(schedules.back(), options);
    ASSERT_TRUE(source) << all[i].workload << ", " << all[i].trees.front() << ": "
                        << source.reason();
    sources.push_back(std::move(source).value());
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module) << module.reason();
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].workload + ", " + all[i].trees.front());
    const Workload& w = *schedules[i].workload;
    if (seen != nullptr) {
      seen->look(*module, sources[i], w, 100 + i, all[i].workload + "\n" + all[i].trees.front());
      continue;
    }
    const auto run = testing::run_cuda(*module, sources[i], w, 100 + i);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
    EXPECT_LT(run->error, w.dtype() == DType::f64   ? 1e-13
                          : w.dtype() == DType::f32 ? 1e-5
                          : w.dtype() == DType::f16 ? 2e-3
                                                    : 1.6e-2);
    EXPECT_EQ(run->bytes, testing::exact_bytes(schedules[i]))
        << testing::text(run->bytes)
        << "\nexact: " << testing::text(testing::exact_bytes(schedules[i]));
  }
}

/// Each barrier of every kernel left out: docs/gpu.md says what becomes of them.
TEST(Stitched, BarriersLeftOutAreFound) {
  testing::BarriersLeftOut seen;
  run_all(warp_cases(), &seen);
  run_all(thread_cases(), &seen);
  run_all(block_cases(), &seen);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 15);
}

TEST(Stitched, WarpsAndLanes) { run_all(warp_cases()); }
/// What keeps a kernel right, taken out: each is found, as a fault or as a wrong result.
TEST(Stitched, PlantedFaultsAreFound) {
  struct Fault {
    Case c;
    std::string from, to;
    bool wrong;  ///< the result; else something is found
  };
  const Case block{"layernorm:rows=2,cols=200", {kBlockNorm}};
  const Case row{"layernorm:rows=3,cols=40",
                 {"r/2@grid ( r/1@warp ( L.x c/4@lane ( C.sum ) C.mean c/4@lane ( C.sub C.sq "
                  "C.varsum ) C.rstd c/4@lane ( C.norm ) ) )"}};
  const std::vector<Fault> faults = {
      {block, "block_sync();", "", false},
      {row, "over_lanes<32, 1>(sum_own, Sum{})", "sum_own", true},
      {row, " ? x0 : float(0));", " ? x0 : 1.0f);", true},
      {row, "home + at, in)", "home + at, true)", false},
      {row, "&y_own[0], in)", "&y_own[0], true)", false},
      {{kTranspose,
        {"r/32@grid c/32@grid ( r/8@warp r/1 c/1@lane ( C.a ) Y.block c/8@warp c/1 r/1@lane "
         "( C.t ) )"},
        "registers",
        {{"a", kShared}}},
       "block_sync();",
       "",
       false},
  };
  for (const Fault& f : faults) {
    SCOPED_TRACE(f.from);
    const Schedule s = schedule_of(f.c);
    const auto source = cuda::emit(s, {.prefix = "k"});
    ASSERT_TRUE(source) << source.reason();
    const auto module = testing::build_cuda({*source}, f.from, f.to);
    ASSERT_TRUE(module) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *s.workload, 7);
    ASSERT_TRUE(run) << run.reason();
    if (f.wrong)
      EXPECT_GT(run->error, 1e-3);
    else
      EXPECT_FALSE(run->report.clean());
  }
}

/// No thread program says these: the reason, and all warps of the block share the work.
std::vector<std::pair<Case, std::string>> shared_work() {
  return {
      {{"name: columns\nloops: {r: 24, c: 4224}\noperators:\n  - s: s[c] += x[r,c]\n",
        {"r/8@grid ( r/1@warp ( c/4@lane ( C.s ) ) S.s!atomic )"}},
       "a thread would sum up 132 values of s: at most 64"},
      {{kTwo,
        {"( r/4@grid r/1@thread ( c/1 ( C.sum ) c/1 ( C.y ) ) | "
         "i/256@grid i/128@warp i/4@thread ( C.z ) )"}},
       "bound to threads inside a loop that is bound to warps"},
      {{"adam:size=1000",
        {"i/16@lane ( C.first C.squared C.second C.mhat C.vhat C.root C.step C.update )"},
        "registers",
        {{"g2", {.level = "DRAM"}}}},
       "goes home and back"},
      {{"softmax:rows=24,cols=40",
        {"r/8@grid ( r/1@warp ( c/16 c/4@lane ( C.rowmax ) c/16 c/4@lane ( C.exp "
         "C.rowsum ) c/16 c/4@lane ( C.divide ) ) )"}},
       "ends with a smaller piece"},
      // The piece is all that the last turn of an outer loop has: there the tile is held.
      {{"name: turns\nloops: {b: 7, t: 5}\noperators:\n  - z: z[b,t] = x[b,t] + c[t]\n",
        {"t/3 b/2 b/2@warp t/2 ( C.z )"}},
       "some blocks have one tile of c and hold it"},
  };
}

/// Nests of blocks with barriers of all of them between: what other blocks stored is loaded past
/// L1, and what a thread has in registers it has after the barrier, too, unless it is dropped.
std::vector<Case> phase_cases() {
  const std::string columns =
      "name: columns\nloops: {r: 24, c: 40}\noperators:\n  - s: s[c] += x[r,c]\n"
      "  - y: y[r,c] = x[r,c] - s[c]\n";
  const std::map<std::string, Pin> spilled = {{"s", {.level = "DRAM"}}},
                                   module = {{"p", {.level = "DRAM"}}, {"a", {.level = "DRAM"}}};
  const std::string se = "se-module:size=6,channels=12,squeezed=5";
  const auto tree = [](const std::string& dropped) {
    return "c/2@grid c/1@warp ( y/1@lane x/2@lane ( C.sum ) Y.warp C.mean S.p ) " + dropped +
           " Y.grid j/2@grid j/1@warp ( c/2@lane ( C.reduce ) Y.warp C.biased1 C.swish S.a ) "
           "Y.grid c/2@grid c/1@warp ( j/1@lane ( C.expand ) Y.warp C.biased2 C.gate y/1@lane "
           "x/2@lane ( C.scale ) )";
  };
  return {
      {columns,
       {"r/8@grid ( r/1@warp ( c/4@lane ( C.s ) ) S.s!atomic ) Y.grid "
        "r/8@grid ( L.s r/1@warp ( c/4@lane ( C.y ) ) )"},
       "registers",
       spilled},
      {se, {tree("")}, "registers", module},
      {se, {tree("D.X")}, "registers", module},
  };
}

TEST(Stitched, PhasesOfThreads) {
  const std::vector<Case> all = phase_cases();
  for (const Case& c : all) {
    const auto source = cuda::emit(schedule_of(c), c.options);
    ASSERT_TRUE(source) << source.reason();
    EXPECT_TRUE(source->notes.empty()) << source->notes.back();
    EXPECT_TRUE(source->launches.back().cooperative);
    EXPECT_THAT(source->text, ::testing::HasSubstr("grid_sync(arrivals);"));
  }
  run_all(all);
}

/// Results that blocks combine in other ways than by adding: a kernel of each kind, by type. An odd
/// number of them, so that one of 16 bits has a word of its own.
std::vector<Case> combined_cases() {
  std::vector<Case> all;
  for (const char* type : {"f32", "f64", "f16", "bf16"})
    for (const char* how : {"max=", "min=", "*="}) {
      const std::string w = std::string("name: combined\ndtype: ") + type +
                            "\nloops: {r: 9, c: 7}\noperators:\n  - \"y[r] " + how + " x[r,c]\"\n";
      all.push_back({w, {"c/2@grid ( L.x r/1@lane ( C.y ) S.y!atomic )"}});
      all.push_back({w, {"c/2@grid ( C.y S.y!atomic )"}, "shared"});
    }
  return all;
}

TEST(Stitched, WhatNoThreadProgramSaysIsSharedWork) {
  std::vector<Case> all;
  for (const auto& [c, reason] : shared_work()) {
    const auto source = cuda::emit(schedule_of(c), c.options);
    ASSERT_TRUE(source) << source.reason();
    ASSERT_FALSE(source->notes.empty()) << reason;
    EXPECT_THAT(source->notes.back(), ::testing::HasSubstr(reason));
    all.push_back(c);
  }
  run_all(all);
}

TEST(Stitched, BlocksCombineOtherwiseThanByAdding) { run_all(combined_cases()); }

/// What stands there from the run before is nothing to combine with.
TEST(Stitched, CombiningBeginsAnewInEveryRun) {
  const std::vector<Case> all = combined_cases();
  for (std::size_t i = 0; i < all.size(); i += 5) {
    const Schedule s = schedule_of(all[i]);
    auto source = cuda::emit(s);
    ASSERT_TRUE(source) << source.reason();
    ASSERT_EQ(source->launches.size(), 2u);
    const auto module = testing::build_cuda({*source});
    ASSERT_TRUE(module) << module.reason();
    const std::vector<cuda::Launch> once = source->launches;
    std::vector<cuda::Launch>& launches = source.value().launches;
    launches.insert(launches.end(), once.begin(), once.end());
    const auto run = testing::run_cuda(*module, *source, *s.workload, 7);
    ASSERT_TRUE(run) << run.reason();
    EXPECT_LT(run->error, 2e-3) << all[i].workload;
  }
}

TEST(Stitched, CombiningCompilesForBothArchitectures) {
  cuda::Source all;
  all.prefix = "combined";
  const std::vector<Case> cases = combined_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    auto source = cuda::emit(schedule_of(cases[i]), {.prefix = "k" + std::to_string(i)});
    ASSERT_TRUE(source) << source.reason();
    all.text += source->text;
  }
  for (const char* architecture : {"sm_80", "sm_90a"}) {
    const auto built = cuda::build(all, {.architecture = architecture, .builder = "nvcc"});
    if (!built && built.reason().starts_with("no nvcc"))
      GTEST_SKIP() << "SKIPPED: " << built.reason();
    ASSERT_TRUE(built) << architecture << ": " << built.reason();
    EXPECT_EQ(built->kernels.size(), 2 * cases.size());
  }
}

// Without a number of blocks ptxas leaves a thread few registers, and its loads wait for one
// another.
TEST(Stitched, LaunchesAskForRegistersWhereAllBlocksHaveRoom) {
  const auto bounds = [](const Case& c) {
    const auto source = cuda::emit(schedule_of(c), {});
    if (!source) return source.reason();
    const std::size_t at = source->text.find("__launch_bounds__");
    return source->text.substr(at, source->text.find(')', at) + 1 - at);
  };
  const auto sms = machine()->units.front().count;
  const auto softmax = [&](std::int64_t blocks) {
    return Case{"softmax:rows=" + std::to_string(8 * blocks) + ",cols=256", {kSoftmax}};
  };
  EXPECT_EQ(bounds(softmax(1)), "__launch_bounds__(256, 1)");
  EXPECT_EQ(bounds(softmax(sms)), "__launch_bounds__(256, 1)");
  EXPECT_EQ(bounds(softmax(4 * sms)), "__launch_bounds__(256, 4)");
  // Threads of more blocks would have fewer than 64.
  EXPECT_EQ(bounds(softmax(4 * sms + 1)), "__launch_bounds__(256)");
  // 64 of a thread have no room for forty elements and what is computed of them: fewer blocks are
  // asked for, but one, even where that leaves a thread no more than 64.
  const char* const row =
      "r/1@grid ( L.x c/1280@warp c/40@lane ( C.sum ) Y.block C.mean c/1280@warp c/40@lane ( C.sub "
      "C.sq C.varsum ) Y.block C.rstd c/1280@warp c/40@lane ( C.norm ) )";
  EXPECT_EQ(bounds({"layernorm:rows=4,cols=40960", {row}}), "__launch_bounds__(1024, 1)");
  EXPECT_EQ(bounds({"layernorm:rows=" + std::to_string(2 * sms) + ",cols=20480", {row}}),
            "__launch_bounds__(512, 1)");
}

// Else ptxas puts most of a row's loads off to where they are used.
TEST(Stitched, ALongRowOf16BitsIsUnderWayBeforeItIsUsed) {
  const auto at_once = [](const std::string& sizes, const std::string& piece) {
    const Case c{
        "softmax:" + sizes,
        {"r/1@grid ( L.x c/" + piece + "@warp c/1@lane ( C.rowmax ) Y.block c/" + piece +
         "@warp c/1@lane ( C.exp C.rowsum ) Y.block c/" + piece + "@warp c/1@lane ( C.divide ) )"}};
    const auto source = cuda::emit(schedule_of(c), {});
    if (!source) throw std::runtime_error(source.reason());
    const std::string& text = source->text;
    const std::size_t loop = text.find("do {");
    if (loop != std::string::npos) {
      EXPECT_LT(loop, text.find("load_several<1>(&x_own"));
      EXPECT_LT(text.find("load_several<1>(&x_own"), text.find("} while"));
      run_all({c});
    }
    return loop != std::string::npos;
  };
  EXPECT_TRUE(at_once("rows=4,cols=1001,dtype=f16", "512"));
  EXPECT_FALSE(at_once("rows=4,cols=1001,dtype=f16", "128")) << "four elements of a thread";
  EXPECT_FALSE(at_once("rows=4,cols=1001", "512")) << "nothing is converted";
  EXPECT_FALSE(at_once("rows=1000000,cols=1001,dtype=f16", "512")) << "asks for no registers";
}

TEST(Stitched, BarriersOfSharedWorkLeftOutAreFound) {
  testing::BarriersLeftOut seen;
  std::vector<Case> some = combined_cases();
  some.resize(2);
  for (const auto& [c, reason] : shared_work())
    if (c.workload.find("4224") == std::string::npos) some.push_back(c);
  run_all(some, &seen);
  run_all(phase_cases(), &seen);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 5);
}

/// Tiles in shared memory and, of those, at registers: loaded, kept, written back, added to home.
std::vector<Case> cases_at_several_levels() {
  const std::string inner = "m/8 n/8 ( k/8 ( L.A@registers L.B@registers C.gemm ) S.C@shared )";
  const std::string loads = "L.A@sharedx2 L.B@shared ";
  std::vector<Case> all;
  for (const bool chained : {false, true})
    for (const auto& [workload, tree] : std::vector<std::pair<std::string, std::string>>{
             {"gemm:m=20,n=24,k=20,dtype=f16",
              "m/16@grid n/16@grid ( k/16 ( " + loads + inner + " ) S.C@DRAM )"},
             {"gemm:m=19,n=23,k=21", "m/16@grid ( n/16 ( k/16 ( " + loads + inner + " ) ) )"},
             {"gemm:m=20,n=24,k=40,dtype=bf16",
              "k/20@grid ( m/16 n/16 ( " + loads + inner + " S.C@DRAM!atomic ) )"},
             {"gemm:m=20,n=24,k=20,dtype=f64",
              "m/16@grid n/8@warp ( k/16 ( " + loads + inner + " ) S.C@DRAM )"}})
      all.push_back({.workload = workload, .trees = {tree}, .through_shared = chained});
  return all;
}

TEST(Stitched, TilesAtSeveralLevels) { run_all(cases_at_several_levels()); }

/// What a tile in shared memory holds is not brought from home once more, whatever else could fill
/// registers; beside that tile it is.
TEST(Stitched, RegistersAreFilledFromTheTileAround) {
  const std::vector<Case> all = cases_at_several_levels();
  for (std::size_t i = 0; i < all.size() / 2; ++i)
    EXPECT_EQ(testing::exact_bytes(schedule_of(all[i])),
              testing::exact_bytes(schedule_of(all[i + all.size() / 2])))
        << all[i].trees.front();
  const auto outer_of_loads = [](const std::string& loads) {
    std::set<std::string> outer;
    const Schedule s = schedule_of({"gemm:m=20,n=24,k=20",
                                    {"m/16@grid n/16@grid ( k/16 ( " + loads +
                                     " m/8 n/8 ( k/8 ( L.A@registers C.gemm ) ) ) )"}});
    for (const Buffer& b : s.kernels[0].buffers)
      if (s.machine->level(b.level).name == "registers" && b.role == BufferRole::input)
        outer.insert(s.machine->level(b.outer_level).name);
    return outer;
  };
  EXPECT_EQ(outer_of_loads("L.A@shared L.B@registers"),
            (std::set<std::string>{"DRAM", "shared"}));  // A's and B's
}

TEST(Stitched, BarriersBetweenLevelsLeftOutAreFound) {
  testing::BarriersLeftOut seen;
  const std::vector<Case> all = cases_at_several_levels();
  run_all({all.begin(), all.begin() + 2}, &seen);
  seen.print();
  EXPECT_EQ(seen.count(testing::BarriersLeftOut::wrong), 0);
  EXPECT_GT(seen.count(testing::BarriersLeftOut::race), 3);
}

/// Every kernel says what its warps do.
TEST(Stitched, BlockKernelsSayWhatTheirWarpsDo) {
  const auto source = cuda::emit(
      schedule_of({"gemm:m=100,n=70,k=90,dtype=f16",
                   {"m/64@grid n/64@grid ( k/32 ( L.A@sharedx2 L.B@sharedx2 m/32 n/32 "
                    "( k/16 ( L.A@registers L.B@registers C.gemm ) S.C@shared ) ) S.C@DRAM )"}}),
      {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  std::string text;
  for (const std::string& line : source->program) text += line + "\n";
  for (const char* part :
       {"copy: 4 warps from warp", "L.A into the next stage", "wait for A",
        "by mma, a warp an instruction", "S.C to another level's tile", "barrier of 128 threads"})
    EXPECT_THAT(text, ::testing::HasSubstr(part));
}

TEST(Stitched, WhatAllThreadsReadAlikeNeedsNoBarrier) {
  const Case norm{"batchnorm:batch=2,channels=3,size=520",
                  {"n/1@grid c/1@grid s/520@grid ( C.rstd C.scale C.shift s/4@thread ( C.scaled "
                   "C.shifted ) )"}};
  const Schedule s = schedule_of(norm);
  const auto source = cuda::emit(s, {.prefix = "k"});
  ASSERT_TRUE(source) << source.reason();
  const std::string& text = source->text;
  EXPECT_THAT(text, ::testing::HasSubstr("load_alike<1>"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("block_sync")));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("TW_SHARED")));
}

std::string text_of(const Case& c) {
  const auto source = cuda::emit(schedule_of(c), {.prefix = "k"});
  return source ? source->text : source.reason();
}

/// Loads that some lanes have no element for are predicated; those that a whole block may not have
/// stand behind a branch; where there always is one, nothing asks.
TEST(Stitched, LoadsAreGuardedByWhoeverHasNoElement) {
  using ::testing::ContainsRegex;
  using ::testing::HasSubstr;
  using ::testing::Not;
  const auto rows = [](const char* columns, const char* tree) {
    return text_of({"name: half\nloops: {r: 10, c: " + std::string(columns) +
                        "}\noperators:\n  - y: y[r,c] = x[r,c] * 2\n",
                    {tree}});
  };
  EXPECT_THAT(rows("70", "r/1@grid c/1@lane ( C.y )"),
              ContainsRegex("load_several<1>\\(&[^;]*, in[_0-9]*\\);"));
  const std::string block = rows("64", "r/4@grid r/1 c/1@lane ( C.y )");
  EXPECT_THAT(block, ContainsRegex("load_together<1>\\(&[^;]*, in[_0-9]*\\);"));
  EXPECT_THAT(block, Not(HasSubstr("load_several")));
  EXPECT_THAT(rows("64", "r/1@grid c/1@lane ( C.y )"),
              Not(ContainsRegex("load_[a-z]*<1>\\([^;]*, in[_0-9]*\\);")));
}

/// Where h lies does not depend on whether there is an item: it is read once, before the items.
TEST(Stitched, SharedReadsAreHeldWhereItemsDoNotDivide) {
  const std::string text = text_of(dots());
  EXPECT_THAT(text, ::testing::HasSubstr("h_held["));
  EXPECT_THAT(text, ::testing::Not(::testing::ContainsRegex("\\? h_shared")));
}

TEST(Stitched, Blocks) { run_all(block_cases()); }
TEST(Stitched, Threads) { run_all(thread_cases()); }

}  // namespace
}  // namespace tilewright
