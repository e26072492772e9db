// Every family of emitted CUDA kernels at small sizes, odd ones among them: right numbers,
// `exact`'s bytes and no finding on simulator/cuda_host.
#include "tests/codegen/cuda_families.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "core/base/format.h"
#include "core/lowering/gpu/block_time.h"
#include "core/plan/schedule.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/support/golden.h"
#include "tests/support/places.h"

namespace tilewright {
namespace {

using testing::schedule_of;
using Case = testing::FamilyCase;

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
  const std::vector<Case> all = testing::family_cases();
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
  const std::vector<Case> families = testing::family_cases();
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

/// Of floats each kernel has the micro-kernel that its price supposes, and the one that is asked
/// for.
TEST(CudaFamilies, FloatsAreComputedAsTheyArePriced) {
  const auto machine = std::make_shared<const Machine>(named_machine("h200"));
  const auto rates = lowering::block_rates(*machine, DType::f32);
  ASSERT_TRUE(rates) << rates.reason();
  std::mt19937_64 random(15);
  const auto draw = [&](std::initializer_list<int> of) { return of.begin()[random() % of.size()]; };
  std::map<std::string, int> seen;
  for (int i = 0; i < 40; ++i) {
    const int m = draw({7, 64, 300, 2048}), n = draw({5, 96, 513, 2048}),
              d = draw({3, 31, 256, 2048});
    const auto w =
        std::make_shared<const Workload>(named_workload(formatted("gemm:m={},n={},k={}", m, n, d)));
    const Kernel k{
        .name = "k",
        .tree = parse_tree(formatted(
            "m/{}@grid n/{}@grid ( k/{} ( C.gemm ) S.C )", std::min(m, draw({4, 16, 64, 128})),
            std::min(n, draw({8, 32, 96, 128})), std::min(d, draw({4, 20, 32, 64}))))};
    const auto s = resolve({.kernels = {k}}, w, machine);
    ASSERT_TRUE(s) << s.reason();
    const auto time = lowering::block_time(*s, 0, *rates);
    const auto source = cuda::emit(*s);
    if (!time || !source || source->micro_kernel.empty()) continue;
    EXPECT_EQ(source->micro_kernel, time->micro_kernel) << w->name();
    ++seen[time->micro_kernel];
    const auto asked = cuda::emit(*s, {.micro_kernel = "simt"});
    ASSERT_TRUE(asked) << asked.reason();
    EXPECT_EQ(asked->micro_kernel, "simt");
  }
  EXPECT_GT(seen["tf32x3"], 5);
  EXPECT_GT(seen["simt"], 5);
}

/// Floats whose first 11 bits, cut off, leave almost as much as they can: were first parts not
/// rounded, each product would be 2^-20 too small.
TEST(CudaTf32, FirstPartsAreRounded) {
  const Schedule s = schedule_of(
      {"",
       "name: near\nloops: {m: 32, n: 16, k: 16}\nranges: {A: 1.00097 to 1.000976, B: 1.00097 to "
       "1.000976}\noperators:\n  - \"C[m,n] += A[m,k] * B[k,n]\"\n",
       {"m@grid n@grid ( k ( L.A L.B C.C ) S.C )"},
       "m=32,n=16,k=16"});
  const auto source = cuda::emit(s, {.micro_kernel = "tf32x3"});
  ASSERT_TRUE(source) << source.reason();
  ASSERT_EQ(source->micro_kernel, "tf32x3");
  const auto module = testing::build_cuda({*source});
  ASSERT_TRUE(module) << module.reason();
  const auto run = testing::run_cuda(*module, *source, *s.workload, 1);
  ASSERT_TRUE(run) << run.reason();
  EXPECT_GT(run->report.launches[0].mma, 0);
  EXPECT_LT(run->error, 0x1p-22);
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
      ::testing::HasSubstr("it has mma, wmma2x2, simt, tf32x3"));
  EXPECT_THAT(refusal({"", "gemm:m=512,n=512,k=512", {gemm}, "m=256,n=256,k=256"}),
              ::testing::HasSubstr("of shared memory"));
  EXPECT_THROW((void)refusal({"", "gemm:m=64,n=64,k=64", {gemm}, "m=16,n=16,k=16", {.warps = 99}}),
               InputError);
}

}  // namespace
}  // namespace tilewright
