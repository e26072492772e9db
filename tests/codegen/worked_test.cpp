// The worked rows as kernels, every sort of edge that a GEMM chain's kernel has, and what is
// refused.
#include "tests/support/worked.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "models/exact/exact.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

Schedule schedule_of(const std::string& workload, const std::string& machine,
                     const std::string& tree, const std::string& tiles = "") {
  auto w = std::make_shared<const Workload>(workload.find('\n') == std::string::npos
                                                ? named_workload(workload)
                                                : workload_from_yaml(workload, "test"));
  Kernel k{.tree = parse_tree(tree)};
  if (!tiles.empty()) k.tiles = parse_tiles(tiles);
  auto s = resolve(Plan{.kernels = {k}}, w, testing::worked_machine(machine));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

template <class Real = float>
double error_of(const Schedule& s, cpu::Kernel& kernel, std::uint64_t seed = 7) {
  const TensorValues inputs = random_inputs(*s.workload, seed);
  const TensorValues reference = evaluate(*s.workload, inputs);
  testing::Arrays<Real> arrays(*s.workload, inputs);
  kernel.run(arrays.pointers());
  return testing::worst_error(*s.workload, arrays, reference);
}

/// The same of a run that three threads' workspaces share in five parts, the last first.
double error_of_parts(const Schedule& s, cpu::Kernel& kernel) {
  const TensorValues inputs = random_inputs(*s.workload, 7);
  testing::Arrays<float> arrays(*s.workload, inputs);
  cpu::Kernel::Launch launch = kernel.launch(arrays.pointers());
  for (int part = 4; part >= 0; --part) launch.run(part % 3, part, 5);
  return testing::worst_error(*s.workload, arrays, evaluate(*s.workload, inputs));
}

/// Emits for every instruction set here, as one shared object; checks each result.
void check_everywhere(const std::vector<Schedule>& schedules, bool f64 = false) {
  std::vector<cpu::Source> sources;
  std::vector<const Schedule*> of;
  for (const Schedule& s : schedules)
    for (cpu::Isa isa : testing::isas_here()) {
      const Result<Schedule> in_place =
          resolve(s.resolved, s.workload, testing::cached(*s.machine));
      ASSERT_TRUE(in_place.ok()) << in_place.reason();
      for (const Schedule* each : {&s, &*in_place}) {
        auto source = cpu::emit(*each, {.isa = isa,
                                        .prefix = "k" + std::to_string(sources.size()),
                                        .prefetch = isa == cpu::Isa::avx2});
        ASSERT_TRUE(source.ok()) << source.reason();
        sources.push_back(std::move(source).value());
        of.push_back(&s);
      }
    }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < of.size(); ++i) {
    cpu::Kernel& k = kernels.value()[i];
    EXPECT_LT(f64 ? error_of<double>(*of[i], k) : error_of(*of[i], k), f64 ? 1e-13 : 1e-5)
        << cpu::name_of(sources[i].isa) << " " << to_text(of[i]->resolved.kernels.front().tree);
  }
}

TEST(WorkedKernels, CopyWhatTheRowsSayAndComputeTheWorkload) {
  std::vector<testing::WorkedRow> rows;
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  for (const testing::WorkedRow& row : testing::worked_rows()) {
    auto s = resolve(testing::worked_plan(row), testing::worked_workload(row),
                     testing::worked_machine(row.machine));
    ASSERT_TRUE(s.ok()) << row.name << ": " << s.reason();
    auto source = cpu::emit(*s, {.count = true, .prefix = "row" + std::to_string(sources.size())});
    ASSERT_TRUE(source.ok()) << row.name << ": " << source.reason();
    rows.push_back(row);
    sources.push_back(std::move(source).value());
    schedules.push_back(std::move(s).value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].name);
    const Workload& w = *schedules[i].workload;
    const TensorValues inputs = random_inputs(w, 11);
    testing::Arrays<float> arrays(w, inputs);
    const auto counted = kernels.value()[i].run_counted(arrays.pointers());
    ASSERT_TRUE(counted.ok()) << counted.reason();
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), 1e-5);
    const Traffic t{.entries = *counted};
    for (const auto& [key, elements] : rows[i].traffic) {
      std::istringstream words(key);
      std::string tensor, boundary, direction;
      words >> tensor >> boundary >> direction;
      const TrafficEntry e = t.at(tensor, boundary);
      EXPECT_EQ((direction == "read" ? e.read : e.written).value, 4 * elements) << key;
    }
  }
}

TEST(Kernels, ChainsOfEveryEdge) {
  std::vector<Schedule> s;
  const std::string tree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";
  s.push_back(schedule_of("gemm-chain:m=1,n=1,k=1,l=1", "scratchpad:1M", tree, "m=1,n=1,k=1,l=1"));
  s.push_back(
      schedule_of("gemm-chain:m=67,n=83,k=29,l=131", "scratchpad:1M", tree, "m=31,n=65,k=13,l=63"));
  s.push_back(schedule_of("gemm-chain:m=53,n=17,k=64,l=97,batch=3", "scratchpad:1M",
                          "b/1 n l ( m ( k ( C.gemm1 ) ) m ( C.gemm2 ) )", "m=13,n=16,k=31,l=33"));
  check_everywhere(s);
}

TEST(Kernels, TransposedOperandsConvolutionsAndReductions) {
  std::vector<Schedule> s;
  // S[m,l] += Q[m,k] * K[l,k]: columns of the right operand are rows in memory.
  s.push_back(
      schedule_of("name: t\nloops: {m: 37, l: 45, k: 19}\noperators: [\"S[m,l] += Q[m,k] * "
                  "K[l,k]\"]\n",
                  "scratchpad:1M", "m/16 l/17 ( k/7 ( C.S ) )"));
  // The output's contiguous loop is the left operand's: the operands change places.
  s.push_back(
      schedule_of("name: u\nloops: {m: 37, l: 45, k: 19}\noperators: [\"S[l,m] += Q[k,m] * "
                  "K[l,k]\"]\n",
                  "scratchpad:1M", "m/16 l/17 ( k/7 ( C.S ) )"));
  s.push_back(schedule_of("conv-chain:ic=5,h=13,w=11,oc1=7,oc2=6,st1=2,st2=1,k1=3,k2=1,relu=1",
                          "scratchpad:1M", "h/3 ( C.conv1 C.relu C.conv2 )"));
  s.push_back(
      schedule_of("name: r\nloops: {i: 9, j: 14}\noperators:\n  - \"a[i] max= x[i,j]\"\n"
                  "  - \"b[i] min= x[i,j]\"\n  - \"p[i] *= y[i,j]\"\n"
                  "  - \"z[i] = gelu(a[i] - b[i]) + p[i] / 3\"\n",
                  "scratchpad:1M", "i/4 ( j/5 ( C.a C.b C.p ) C.z )"));
  // From one element of the diagonal to the next is one element, along two dimensions.
  s.push_back(schedule_of("name: d\nloops: {i: 2}\noperators: [\"y[i] = x[i,1 - i]\"]\n",
                          "scratchpad:1M", "i/2 ( C.y )"));
  check_everywhere(s);
}

TEST(Kernels, DoublePrecision) {
  check_everywhere({schedule_of("gemm-chain:m=21,n=35,k=18,l=40,dtype=f64", "scratchpad:1M",
                                "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=8,n=33,k=5,l=17")},
                   true);
}

TEST(Kernels, EveryMicroKernelOfEveryIsa) {
  const Schedule s = schedule_of("gemm-chain:m=19,n=70,k=23,l=66", "scratchpad:1M",
                                 "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=19,n=70,k=23,l=66");
  std::vector<cpu::Source> sources;
  for (const cpu::MicroKernel& m : cpu::micro_kernels()) {
    EXPECT_LE(m.registers, m.isa == cpu::Isa::avx512 ? 32 : 16) << m.name;
    if (!cpu::host_runs(m.isa)) continue;
    auto source = cpu::emit(s, {.isa = m.isa,
                                .micro_kernel = std::string(m.name),
                                .prefix = "k" + std::to_string(sources.size())});
    ASSERT_TRUE(source.ok()) << source.reason();
    EXPECT_EQ(source->micro_kernel, m.name);
    sources.push_back(std::move(source).value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (cpu::Kernel& k : kernels.value()) EXPECT_LT(error_of(s, k), 1e-5) << k.source().micro_kernel;
}

/// Right operands that never change, their columns contiguous or not, several matrices of them,
/// columns that fill no panel, a slice of a larger tensor: packed by prepare(), read there alone.
TEST(Kernels, RightOperandsArePackedOnce) {
  struct Case {
    const char *workload, *tree;
  };
  const Case cases[] = {
      // 64 columns are whole panels of both micro-kernels named below.
      {"name: g\nloops: {i: 7, j: 203, k: 33}\noperators: [\"y[i,j] += x[i,k] * w[k,j]\"]\n",
       "j/64 i/4 k/16 ( C.y )"},
      {"name: t\nloops: {i: 1, j: 77, k: 33}\noperators: [\"y[i,j] += x[i,k] * w[j,k]\"]\n",
       "( C.y )"},
      {"name: h\nloops: {h: 3, i: 9, j: 50, k: 20}\n"
       "operators: [\"y[h,i,j] += x[h,i,k] * w[h,j,k]\"]\n",
       "h/2 i/4 ( C.y )"},
      {"name: s\nloops: {i: 5, j: 40, k: 11}\ntensors: {w: [100, 11]}\n"
       "operators: [\"y[i,j] += x[i,k] * w[j+40,k]\"]\n",
       "i/2 ( C.y )"},
  };
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  for (const Case& c : cases)
    for (cpu::Isa isa : testing::isas_here()) {
      if (isa == cpu::Isa::generic) continue;
      schedules.push_back(schedule_of(c.workload, "cache:32K/8,1M/16", c.tree));
      auto source =
          cpu::emit(schedules.back(), {.isa = isa,
                                       .micro_kernel = isa == cpu::Isa::avx2 ? "6x2" : "6x4",
                                       .prefix = "k" + std::to_string(sources.size()),
                                       .constant = {"w"}});
      ASSERT_TRUE(source.ok()) << c.workload << source.reason();
      ASSERT_GT(source->kept_bytes, 0) << c.workload;
      EXPECT_THAT(source->text, HasSubstr("multiply_packed<")) << c.workload;
      sources.push_back(std::move(source).value());
    }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    const TensorValues inputs = random_inputs(w, 3);
    testing::Arrays<float> arrays(w, inputs);
    std::vector<std::byte> kept(static_cast<std::size_t>(sources[i].kept_bytes));
    std::vector<void*> pointers = arrays.pointers();
    kernels.value()[i].prepare(pointers, kept.data());
    kernels.value()[i].run(pointers, kept.data());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), 1e-5) << sources[i].text;
  }
}

TEST(Kernels, BlocksAndLoopsShareThreads) {
  const Schedule blocks =
      schedule_of("gemm-chain:m=40,n=24,k=16,l=32", "scratchpad:1M",
                  "m/8@grid l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "n=12,k=8,l=16");
  const Schedule loop = schedule_of("gemm-chain:m=40,n=24,k=16,l=32", "scratchpad:1M",
                                    "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=8,n=12,k=8,l=16");
  const Schedule kept = schedule_of("gemm-chain:m=40,n=24,k=16,l=32", "scratchpad:1M",
                                    "l m ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=8,n=12,k=8,l=16");
  // m is shared inside l, which every thread goes through.
  for (const Schedule* s : {&blocks, &loop, &kept}) {
    auto source = cpu::emit(*s, {.threads = 3});
    ASSERT_TRUE(source.ok()) << source.reason();
    EXPECT_EQ(source->threads, 3);
    EXPECT_THAT(source->text, HasSubstr("#pragma omp"));
    auto kernel = cpu::build(*source, {.optimisation = "-O1"});
    ASSERT_TRUE(kernel.ok()) << kernel.reason();
    EXPECT_LT(error_of(*s, kernel.value()), 1e-5);
    EXPECT_TRUE(source->in_parts);
    EXPECT_LT(error_of_parts(*s, kernel.value()), 1e-5);
  }
  const Schedule sums =
      schedule_of("name: z\nloops: {i: 9, j: 40}\noperators: [\"z[i] += x[i,j]\"]\n",
                  "scratchpad:1M", "j/8 ( C.z )");
  // j is summed over: its iterations are no threads' own.
  auto source = cpu::emit(sums, {.threads = 3});
  ASSERT_TRUE(source.ok()) << source.reason();
  EXPECT_EQ(source->threads, 1);
  ASSERT_EQ(source->notes.size(), 1U);
  EXPECT_THAT(source->notes[0], HasSubstr("one thread"));
}

/// Sums that blocks add up at home start from nothing in every run, once, before any thread adds.
TEST(Kernels, SumsThatStartFromNothingOnSeveralThreads) {
  const std::string w = "name: z\nloops: {i: 9, j: 40}\noperators: [\"z[i] += x[i,j]\"]\n";
  for (const auto& [tree, threads] : {std::pair{"j/8@grid ( C.z S.z!atomic )", 3},
                                      {"j/8@grid i/3 ( C.z S.z!atomic )", 3},
                                      {"i/3@grid ( j/8 ( C.z ) S.z!atomic )", 3},
                                      // Without blocks a part could begin after another has added.
                                      {"i/3 ( j/8 ( C.z ) S.z!atomic )", 1}}) {
    const Schedule s = schedule_of(w, "scratchpad:1M", tree);
    ASSERT_FALSE(s.kernels.front().zeroed.empty()) << tree;
    auto source = cpu::emit(s, {.threads = 3});
    ASSERT_TRUE(source.ok()) << source.reason();
    EXPECT_EQ(source->threads, threads) << tree;
    auto kernel = cpu::build(*source, {.optimisation = "-O1"});
    ASSERT_TRUE(kernel.ok()) << kernel.reason();
    const TensorValues inputs = random_inputs(*s.workload, 7);
    const TensorValues reference = evaluate(*s.workload, inputs);
    testing::Arrays<float> arrays(*s.workload, inputs);
    for (int run = 0; run < 5; ++run) {
      kernel.value().run(arrays.pointers());
      ASSERT_LT(testing::worst_error(*s.workload, arrays, reference), 1e-5) << tree << " " << run;
    }
  }
}

TEST(Refusals, SayWhatAndWhy) {
  const Schedule s = schedule_of("gemm-chain:m=8,n=8,k=8,l=8", "scratchpad:1M",
                                 "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=4,n=4,k=4,l=4");
  const auto unknown = cpu::emit(s, {.isa = cpu::Isa::avx2, .micro_kernel = "6x4"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.reason(),
            "micro-kernel '6x4' is not available for avx2; available: 6x2, 4x3, scalar");
  EXPECT_THROW(cpu::emit(s, {.threads = 0}), InputError);
  EXPECT_THROW(cpu::emit(s, {.prefix = "a b"}), InputError);
  EXPECT_THROW(cpu::emit(s, {.prefix = "2nd"}), InputError);
  // What is emitted is while_run, which is no word of a language.
  EXPECT_TRUE(cpu::emit(s, {.prefix = "while"}).ok());
}

TEST(Building, FailuresAreReasonsAndLeaveNothing) {
  const Schedule s = schedule_of("gemm-chain:m=8,n=8,k=8,l=8", "scratchpad:1M",
                                 "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=4,n=4,k=4,l=4");
  cpu::Source source = cpu::emit(s).value();
  const TemporaryFolder folder;
  const auto missing =
      cpu::build(source, {.compiler = "no-such-compiler", .directory = folder.path()});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.reason(), HasSubstr("no-such-compiler is not on the PATH"));
  // Shell text in a compiler's name is a name, nothing else.
  const auto shell =
      cpu::build(source, {.compiler = "true;touch${IFS}/tmp/x", .directory = folder.path()});
  EXPECT_FALSE(shell.ok());
  cpu::Source broken = source;
  broken.text += "\n#error \"not this time\"\n";
  const auto failed = cpu::build(broken, {.optimisation = "-O0", .directory = folder.path()});
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.reason(), HasSubstr("not this time"));
  auto kernel = cpu::build(source, {.optimisation = "-O0", .directory = folder.path()});
  ASSERT_TRUE(kernel.ok()) << kernel.reason();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(kernel.value().run({}), InputError);
  std::vector<void*> none(s.workload->tensors().size(), nullptr);
  EXPECT_FALSE(kernel.value().run_counted(none).ok());
}

TEST(Sources, CompileAloneWithWarningsAsErrors) {
  const Schedule s = schedule_of("gemm-chain:m=30,n=20,k=10,l=40", "scratchpad:1M",
                                 "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=4,n=4,k=4,l=4");
  for (cpu::Isa isa : testing::isas_here())
    for (const std::string compiler : {"g++", "clang++"}) {
      cpu::Source source = cpu::emit(s, {.isa = isa}).value();
      EXPECT_EQ(source.text.find("codegen/"), std::string::npos) << "no headers of ours";
      source.flags = {"-O3", "-std=c++17", "-Wall", "-Wextra", "-Werror"};
      auto kernel = cpu::build(source, {.compiler = compiler, .optimisation = "-O1"});
      if (!kernel.ok() && kernel.reason().find("not on the PATH") != std::string::npos) {
        std::cout << "SKIPPED: " << kernel.reason() << "\n";
        continue;
      }
      ASSERT_TRUE(kernel.ok()) << cpu::name_of(isa) << ": " << kernel.reason();
      EXPECT_LT(error_of(s, kernel.value()), 1e-5);
    }
}

/// Rows of B lie 1,644 bytes apart: the first group of rows keeps its panels, and where there is
/// one group only it fetches rows ahead. Widths and depths leave edges.
TEST(Products, KeepPanelsOfRowsThatLieApart) {
  for (const char* rows : {"29", "5"}) {
    const Schedule s =
        schedule_of("gemm:m=" + std::string(rows) + ",n=411,k=70", "cache:48K/12",
                    "n k ( m ( C.gemm ) )", "m=" + std::string(rows) + ",n=203,k=33");
    for (cpu::Isa isa : testing::isas_here()) {
      const cpu::Source source = cpu::emit(s, {.isa = isa}).value();
      EXPECT_EQ(source.text.find(", true>(") != std::string::npos, isa != cpu::Isa::generic);
      auto kernel = cpu::build(source, {.optimisation = "-O1"});
      ASSERT_TRUE(kernel.ok()) << cpu::name_of(isa) << ": " << kernel.reason();
      EXPECT_LT(error_of(s, kernel.value()), 1e-5) << rows << " " << cpu::name_of(isa);
    }
  }
}

TEST(Sources, KeepNamesOutOfTheCode) {
  // Names of levels and kernels are any text; whatever they say stays in its comment.
  Machine machine = parse_synthetic_machine("scratchpad:1M");
  machine.levels[1].name = "L1\n#error level";
  auto w = std::make_shared<const Workload>(named_workload("gemm-chain:m=8,n=8,k=8,l=8"));
  Kernel k{.name = "k\n#error kernel",
           .tree = parse_tree("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"),
           .tiles = parse_tiles("m=4,n=4,k=4,l=4")};
  auto s = resolve(Plan{.kernels = {k}}, w, std::make_shared<const Machine>(machine));
  ASSERT_TRUE(s.ok()) << s.reason();
  auto source = cpu::emit(*s, {.count = true});
  ASSERT_TRUE(source.ok()) << source.reason();
  EXPECT_EQ(source->text.find("\n#error"), std::string::npos);
}

/// The text of one kernel, kept so that a change of it is seen. To write it anew:
///   TILEWRIGHT_REGENERATE=1 cpu_worked_test --gtest_filter=Golden.*
TEST(Golden, GemmChain) {
  const Schedule s = schedule_of(testing::kChain, "scratchpad:4096B",
                                 "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=4,n=3,k=4,l=5");
  const std::string text =
      cpu::emit(s, {.isa = cpu::Isa::avx512, .prefix = "worked_chain"}).value().text;
  testing::expect_golden("worked_chain.cpp", text);
}

/// Prints, gates nothing: how far an emitted kernel is from the machine's FMA rate.
TEST(Speed, PrintsTheShareOfTheFmaPeak) {
  const Schedule s = schedule_of("chimera/G2:batch=1", "scratchpad:1M",
                                 "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )", "m=96,l=128,k=64,n=64");
  auto kernel = cpu::build(cpu::emit(s).value());
  ASSERT_TRUE(kernel.ok()) << kernel.reason();
  testing::Arrays<float> arrays(*s.workload, random_inputs(*s.workload, 3));
  const auto pointers = arrays.pointers();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    kernel.value().run(pointers);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const double gflops = s.workload->flops() / best * 1e-9;
  const double peak = cpu::fma_peak_gflops(cpu::host_isa(), 1, 0.05);
  std::cout << s.workload->name() << ": " << gflops << " GFLOP/s of " << peak << " ("
            << 100 * gflops / peak << " %)\n";
  EXPECT_GT(gflops, 0);
  EXPECT_GT(peak, 0);
}

TEST(Isas, HaveNames) {
  for (cpu::Isa isa : {cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512})
    EXPECT_EQ(cpu::isa_from_name(cpu::name_of(isa)), isa);
  EXPECT_FALSE(cpu::isa_from_name("sse9"));
  EXPECT_TRUE(cpu::host_runs(cpu::Isa::generic));
  EXPECT_TRUE(cpu::host_runs(cpu::host_isa()));
  EXPECT_THROW(cpu::fma_peak_gflops(cpu::Isa::generic, 0), InputError);
}

/// A reader by another loop asks for columns that no iteration around has: packing goes no further
/// out than where they are known.
TEST(WorkedKernels, PackWhatReadersAskFor) {
  const std::string w =
      "loops: {b: 19, i: 5, h: 6, j: 6}\noperators:\n  - P[b,h] += X[b,i] * W[h,i]\n"
      "  - U[b,h] += P[b,j] * R[h,j]\n";
  std::vector<Schedule> all;
  for (const char* tree : {"h/2 b/17 ( i/3 ( C.P ) j/2 ( C.U ) )", "h/2 b/17 i/5 ( C.P C.U )",
                           "h/4 ( b/5 ( i/2 ( C.P ) j/6 ( C.U ) ) )"})
    all.push_back(schedule_of(w, "scratchpad:1M", tree, "j=6"));
  check_everywhere(all);
}

}  // namespace
}  // namespace tilewright
