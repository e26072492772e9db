// The contract of micro-kernels: every registered one that can run here (natively, on the emulated
// GPU, on the emulated NPU) computes what the naive loop nest computes, on random boxes and edges.
#include "codegen/micro_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <random>
#include <set>

#include "codegen/npu/npu.h"
#include "core/workload/reference/elements.h"
#include "codegen/cpu/loaded.h"
#include "codegen/npu/emulated/loaded.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "harness/verified_kernel.h"
#include "tests/codegen/cuda_support.h"

namespace tilewright::harness {
namespace {

using codegen::MicroKernelRecord;

constexpr std::uint64_t kSeed = 20231;

/// A product of one box, cut into tiles, on a target's machine.
struct Case {
  const MicroKernelRecord* record;
  std::string text;  ///< for messages
  Scheduled on;
  const Workload& workload() const { return *on.setting.workload; }
};

struct Extents {
  std::int64_t m, n, k;
};

std::string joined(const Extents& e, const char* form) {
  std::string text = form;
  for (const auto& [letter, value] : {std::pair('M', e.m), {'N', e.n}, {'K', e.k}})
    for (std::size_t at; (at = text.find(letter)) != std::string::npos;)
      text.replace(at, 1, std::to_string(value));
  return text;
}

/// Tiles that leave edges, and a depth of several, so that sums start from zero and go on.
Case make_case(const MicroKernelRecord& r, DType type, const Extents& whole, const Extents& tile,
               int number) {
  Request request{.subject = joined(whole, "gemm:m=M,n=N,k=K,dtype=") + std::string(name_of(type))};
  if (r.target == "npu") {
    request.machine = "ascend910";
    request.tree = joined(tile, "m/M n/N ( k/K ( L.A@L1 L.B@L1 L.A@L0A L.B@L0B C.gemm ) S.C )");
    request.pins = {"C=L0C"};
  } else {
    request.machine = r.target == "cuda" ? "a100"
                      : number % 2 == 0  ? "scratchpad:1M"
                                         : "cache:4K/2";
    request.tree =
        r.target == "cuda" ? "m@grid n@grid ( k ( L.A L.B C.gemm ) S.C )" : "m n ( k ( C.gemm ) )";
    request.tiles = joined(tile, "m=M,n=N,k=K");
  }
  Case c{&r, std::string(r.target) + " " + std::string(r.variant) + " " + std::string(r.name) +
                 ": " + request.subject + " " + *request.tree + " " + request.tiles.value_or("")};
  c.on = schedule_of(request);
  EXPECT_TRUE(c.on.schedule) << c.text;
  return c;
}

/// What the naive nest makes of the same inputs, in double.
std::vector<double> expected(const Workload& w) {
  const TensorValues inputs = random_inputs(w, kSeed);
  const auto extent = [&](const char* loop) { return w.loop(*w.find_loop(loop)).extent; };
  const std::int64_t m = extent("m"), n = extent("n"), k = extent("k");
  std::vector<double> c(static_cast<std::size_t>(m * n));
  codegen::naive_product(
      {.rows = m, .columns = n, .depth = k, .a_row = k, .b_depth = n, .c_row = n},
      inputs[w.find_tensor("A")->index()].data(), inputs[w.find_tensor("B")->index()].data(),
      c.data(), true);
  return c;
}

void expect_product(const Case& c, const std::vector<double>& got) {
  const std::vector<double> want = expected(c.workload());
  const Workload& w = c.workload();
  const Bounded all = evaluate_bounded(w, random_inputs(w, kSeed));
  const Comparison compared =
      compare(DType::f64, got.data(), want, all.bounds[w.outputs().front().index()]);
  EXPECT_LE(compared.worst, 1) << c.text << ": " << compared.got << " for " << compared.reference;
}

/// Inputs into a kernel, one run, its output.
void check_kernel(const Case& c, TargetKernel& kernel) {
  const Workload& w = c.workload();
  const TensorValues inputs = random_inputs(w, kSeed);
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const std::vector<char> elements = testing::stored(w.tensors()[t], inputs[t]);
    ASSERT_FALSE(kernel.write(TensorId(t), elements.data())) << c.text;
  }
  const auto seconds = kernel.run();
  ASSERT_TRUE(seconds.ok()) << c.text << ": " << seconds.reason();
  const TensorId out = *w.find_tensor("C");
  std::vector<char> elements(static_cast<std::size_t>(w.tensor(out).bytes().value));
  ASSERT_FALSE(kernel.read(out, elements.data())) << c.text;
  expect_product(c, testing::read_back(w.tensor(out), elements));
}

void run_on_cpu(const std::vector<Case>& cases) {
  std::vector<cpu::Source> sources;
  for (const Case& c : cases) {
    const auto source = cpu::emit(*c.on.schedule, {.isa = *cpu::isa_from_name(c.record->variant),
                                                   .micro_kernel = std::string(c.record->name),
                                                   .prefix = "k" + std::to_string(sources.size())});
    ASSERT_TRUE(source.ok()) << c.text << ": " << source.reason();
    EXPECT_EQ(source->micro_kernel, c.record->name);
    sources.push_back(*source);
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cpu::LoadedKernel kernel(kernels.value()[i], cases[i].workload());
    check_kernel(cases[i], kernel);
  }
}

void run_on_cuda(const std::vector<Case>& cases) {
  std::vector<cuda::Source> sources;
  for (const Case& c : cases) {
    const auto source =
        cuda::emit(*c.on.schedule, {.micro_kernel = std::string(c.record->name),
                                    .prefix = "k" + std::to_string(sources.size())});
    ASSERT_TRUE(source.ok()) << c.text << ": " << source.reason();
    EXPECT_EQ(source->micro_kernel, c.record->name);
    sources.push_back(*source);
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto run = testing::run_cuda(*module, sources[i], cases[i].workload(), kSeed);
    ASSERT_TRUE(run.ok()) << cases[i].text << ": " << run.reason();
    EXPECT_TRUE(run->report.findings.empty()) << cases[i].text;
    expect_product(cases[i], run->outputs[cases[i].workload().find_tensor("C")->index()]);
  }
}

void run_on_npu(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const auto source = npu::emit(*c.on.schedule, {.micro_kernel = std::string(c.record->name)});
    ASSERT_TRUE(source.ok()) << c.text << ": " << source.reason();
    EXPECT_EQ(source->micro_kernel, c.record->name);
    npu::LoadedKernel kernel(*source, *c.on.schedule);
    check_kernel(c, kernel);
    for (const npu::Report& report : kernel.reports())
      EXPECT_TRUE(report.findings.empty()) << c.text;
  }
}

/// Boxes of a record: single elements, and random ones whose tiles leave edges. Tiles of the tensor
/// units are multiples of 16.
std::vector<Case> cases_of(const MicroKernelRecord& r, std::mt19937_64& random) {
  const std::int64_t step = r.target == "npu" ? 16 : 1;
  const std::int64_t most = r.target == "cpu" ? 150 : 70;
  const auto up_to = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(1, n)(random);
  };
  const auto tile = [&](std::int64_t extent) {
    return std::min(extent, step * up_to((extent + step - 1) / step));
  };
  std::vector<Case> cases;
  for (DType type : r.types) {
    cases.push_back(make_case(r, type, {1, 1, 1}, {1, 1, 1}, 0));
    for (int i = 0; i < 3; ++i) {
      const Extents whole{up_to(most), up_to(most), up_to(most)};
      cases.push_back(make_case(r, type, whole, {tile(whole.m), tile(whole.n), tile(whole.k)}, i));
    }
  }
  return cases;
}

TEST(MicroKernels, EveryRegisteredOneComputesTheNaiveNest) {
  const std::map<std::string_view, std::function<void(const std::vector<Case>&)>> runners = {
      {"cpu", run_on_cpu}, {"cuda", run_on_cuda}, {"npu", run_on_npu}};
  std::mt19937_64 random(kSeed);
  RecordProperty("seed", std::to_string(kSeed));
  const std::vector<MicroKernelRecord> records = codegen::micro_kernel_records();
  std::map<std::string_view, std::vector<Case>> cases;
  for (const MicroKernelRecord& r : records) {
    ASSERT_TRUE(runners.contains(r.target)) << r.target << " has micro-kernels that nothing runs";
    const auto isa = cpu::isa_from_name(r.variant);
    if (isa && !cpu::host_runs(*isa)) {
      std::cout << "not run here: " << r.target << " " << r.variant << " " << r.name << "\n";
      continue;
    }
    for (Case& c : cases_of(r, random)) cases[r.target].push_back(std::move(c));
  }
  for (const auto& [target, some] : cases) runners.at(target)(some);
}

TEST(MicroKernels, NamesAreUniqueAndRecordsSayWhatTheyTake) {
  std::set<std::string> seen;
  for (const MicroKernelRecord& r : codegen::micro_kernel_records()) {
    const std::string name =
        std::string(r.target) + "/" + std::string(r.variant) + "/" + std::string(r.name);
    EXPECT_TRUE(seen.insert(name).second) << name;
    EXPECT_FALSE(r.summary.empty() || r.types.empty() || r.block.empty() || r.operands.empty())
        << name;
  }
}

TEST(NaiveProduct, OfAHandComputedBox) {
  // [1 2; 3 4] times [5 6; 7 8], transposed B, on top of ones; what is beyond the box stays.
  const float a[] = {1, 2, 3, 4}, b[] = {5, 7, 6, 8};
  double c[] = {1, 1, -1, 1, 1, -1};
  const codegen::ProductBox box{
      .rows = 2, .columns = 2, .depth = 2, .a_row = 2, .b_depth = 1, .b_column = 2, .c_row = 3};
  codegen::naive_product(box, a, b, c, false);
  EXPECT_THAT(c, ::testing::ElementsAre(20, 23, -1, 44, 51, -1));
  codegen::naive_product(box, a, b, c, true);
  EXPECT_THAT(c, ::testing::ElementsAre(19, 22, -1, 43, 50, -1));
}

}  // namespace
}  // namespace tilewright::harness
