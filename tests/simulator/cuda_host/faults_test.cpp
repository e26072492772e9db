// Is each kind of fault found, once planted, on the lines where it lies, and is the same kernel
// without it clean?
#include <algorithm>
#include <set>

#include "tests/simulator/cuda_host/support.h"

namespace tilewright::cuda_host {
namespace {

struct Case {
  std::string kernel;
  Fault fault;
  std::string line, other = {};  ///< the comments on the lines that the finding names
  int threads = 32;
  int blocks = 1;
  bool cooperative = false;
  int in = 32, out = 32;  ///< elements
  std::int64_t shared_bytes = 4096;
  bool stopped = false;  ///< the block does not come to its end

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.kernel; }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"missing_barrier", Fault::race, "barrier: read", "barrier: write", 64, 1, false, 64, 64},
      {"missing_warp_sync", Fault::race, "warp: write", "warp: read"},
      {"written_too_early", Fault::race, "early: write", "early: read", 64},
      {"shuffle_is_no_barrier", Fault::race, "shuffle: read", "shuffle: write"},
      {"missing_wait", Fault::race, "wait: read", "wait: copy", 32, 1, false, 128},
      {"wait_is_ones_own", Fault::race, "own: read", "own: copy", 64, 1, false, 256, 64},
      {"source_written", Fault::race, "source: write", "source: copy", 32, 1, false, 128},
      {"waits_for_one_reader", Fault::race, "readers: write", "readers: read", 96, 1, false, 32,
       96},
      {"waits_for_one_adder", Fault::race, "adders: read", "adders: add", 96},
      {"read_past", Fault::out_of_bounds, "past: read"},
      {"plain_read_past", Fault::out_of_bounds, "past: plain read"},
      {"write_past", Fault::out_of_bounds, "past: write"},
      {"copy_past", Fault::out_of_bounds, "past: copy", "", 32, 1, false, 30},
      {"shared_past", Fault::out_of_bounds, "past: shared", "", 32, 1, false, 32, 32, 128},
      {.kernel = "wild", .fault = Fault::out_of_bounds, .line = "wild: read", .stopped = true},
      {"unwritten_shared", Fault::uninitialised, "unwritten: shared"},
      {"unwritten_output", Fault::uninitialised, "unwritten: output"},
      {"misaligned_ldmatrix", Fault::misaligned, "misaligned: row"},
      {"misaligned_copy", Fault::misaligned, "misaligned: copy"},
      {"misaligned_load", Fault::misaligned, "misaligned: load"},
      {"wmma_stride", Fault::misaligned, "misaligned: stride"},
      {"divergent_barrier", Fault::barrier_mismatch, "divergent: barrier", "", 64, 1, false, 32,
       64},
      {"split_barrier", Fault::divergent, "split: one", "split: other", 64, 1, false, 32, 64},
      {.kernel = "barrier_counts",
       .fault = Fault::barrier_mismatch,
       .line = "counts: barrier",
       .threads = 64,
       .out = 64,
       .stopped = true},
      {.kernel = "deadlock",
       .fault = Fault::deadlock,
       .line = "deadlock: first",
       .threads = 64,
       .out = 64,
       .stopped = true},
      {.kernel = "divergent_shuffle",
       .fault = Fault::divergent,
       .line = "divergent: other",
       .stopped = true},
      {.kernel = "ended_lanes",
       .fault = Fault::divergent,
       .line = "ended: shuffle",
       .stopped = true},
      {"block_race", Fault::block_race, "blocks: write", "blocks: write", 32, 4},
      {"atomic_race", Fault::block_race, "atomics: store", "atomics: add", 32, 4},
      {"missing_grid_sync", Fault::block_race, "grid: read", "grid: write", 32, 4, true},
      {.kernel = "early_block",
       .fault = Fault::deadlock,
       .line = "early: grid",
       .blocks = 4,
       .cooperative = true,
       .stopped = true},
      {"unordered_mbarrier", Fault::race, "mbarrier: arrive", "mbarrier: init"},
      {"mbarrier_overrun", Fault::mbarrier_misuse, "mbarrier: overrun", "", 64},
      {"mbarrier_overwritten", Fault::mbarrier_misuse, "mbarrier: overwritten"},
      {.kernel = "mbarrier_never_made",
       .fault = Fault::mbarrier_misuse,
       .line = "mbarrier: never made",
       .stopped = true},
  };
  return all;
}

const Case& case_of(const std::string& kernel) {
  return *std::ranges::find(cases(), kernel, &Case::kernel);
}

const Built& built() {
  static const Built all = [] {
    std::vector<std::string> names;
    for (const Case& c : cases())
      for (const char* kind : {"_right", "_wrong"}) names.push_back(c.kernel + kind);
    for (const char* one : {"endless", "part_of_a_warp", "reads_before"}) names.emplace_back(one);
    return Built("faults.cu", names);
  }();
  return all;
}

Report run(const Case& c, const std::string& kind, RunOptions options = {}) {
  std::vector<float> in(static_cast<std::size_t>(c.in), 1), out(static_cast<std::size_t>(c.out));
  const bool grid = c.cooperative;
  const Launch launch{.kernel = c.kernel + kind,
                      .tensors = {0, 1},
                      .workspace = grid,
                      .blocks = c.blocks,
                      .threads = c.threads,
                      .shared_bytes = c.shared_bytes,
                      .cooperative = grid};
  const std::vector<Tensor> tensors{tensor("in", in),
                                    // atomics add to what is there
                                    tensor("out", out, c.kernel == "atomic_race")};
  options.workspace_bytes = grid ? 4 : 0;
  auto report = built().module.run(std::span(&launch, 1), tensors, options);
  EXPECT_TRUE(report) << (report ? "" : report.reason());
  return report ? *report : Report{};
}

class CudaHostFault : public testing::TestWithParam<Case> {};

TEST_P(CudaHostFault, IsFoundWhereItLies) {
  const Case& c = GetParam();
  const Report report = run(c, "_wrong");
  const int line = built().line("// " + c.line),
            other = c.other.empty() ? 0 : built().line("// " + c.other);
  const std::set<int> lines{line, other};
  const auto found = std::ranges::find_if(report.findings, [&](const Finding& f) {
    return f.fault == c.fault && std::set<int>{f.place.line, f.other.line} == lines;
  });
  ASSERT_NE(found, report.findings.end()) << "lines " << line << " and " << other << "\n"
                                          << texts(report);
  EXPECT_EQ(found->kernel, c.kernel + "_wrong");
  EXPECT_THAT(found->text, testing::HasSubstr("line " + std::to_string(found->place.line)));
  EXPECT_THAT(found->place.text, testing::HasSubstr("// "));
  EXPECT_EQ(report.blocks_stopped > 0, c.stopped) << texts(report);
}

TEST_P(CudaHostFault, IsNotFoundWhereItIsNot) {
  const Report report = run(GetParam(), "_right");
  EXPECT_TRUE(report.clean()) << texts(report);
  EXPECT_EQ(report.blocks_stopped, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CudaHostFault, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.kernel; });

/// Before the launch before has ended, a launch may read what that one does not write, and no more.
TEST(CudaHostFaults, WhatTheLaunchBeforeWritesIsReadAfterIt) {
  const auto found = [](std::vector<Launch> launches) {
    std::vector<float> in(64, 1), middle(64), out(64);
    const std::vector<Tensor> tensors{tensor("in", in), tensor("middle", middle, true),
                                      tensor("out", out)};
    const auto report = built().module.run(launches, tensors, {});
    EXPECT_TRUE(report) << (report ? "" : report.reason());
    return report && !report->clean() ? report->findings.front().place.line : 0;
  };
  const auto early = [](std::vector<int> tensors) {
    return Launch{
        .kernel = "reads_before", .tensors = std::move(tensors), .threads = 32, .early = true};
  };
  const Launch writes_middle{
      .kernel = "missing_barrier_right", .tensors = {0, 1}, .threads = 64, .shared_bytes = 256};
  const int line = built().line("// before: read");
  EXPECT_EQ(found({writes_middle, early({0, 1, 2})}), 0);
  EXPECT_EQ(found({writes_middle, early({1, 0, 2})}), line);
  EXPECT_EQ(found({early({0, 1, 2})}), line) << "nobody knows what another program writes";
}

/// Each call of a barrier, a line of the kernel, may be passed by all: the text stays as it is.
TEST(CudaHostFaults, ABarrierLeftOutIsMissed) {
  std::vector<std::string> kinds;
  for (const char* name :
       {"missing_barrier", "missing_warp_sync", "written_too_early", "missing_wait",
        "waits_for_one_reader", "missing_grid_sync", "unordered_mbarrier"}) {
    const Case& c = case_of(name);
    const Report whole = run(c, "_right", {.list_barriers = true});
    ASSERT_TRUE(whole.clean()) << texts(whole);
    EXPECT_TRUE(run(c, "_right").barriers.empty());
    int found = 0;
    for (const Barrier& b : whole.barriers) {
      kinds.push_back(b.kind);
      ASSERT_EQ(b.places.size(), 1U);
      EXPECT_THAT(b.places[0].text, testing::HasSubstr(b.kind));
      EXPECT_GE(b.threads, 32);
      found += run(c, "_right", {.without = b.calls}).clean() ? 0 : 1;
    }
    EXPECT_GE(found, 1) << name;
  }
  for (const char* kind : {"block_sync", "warp_sync", "cp_async_wait", "grid_sync", "mbarrier_wait",
                           "mbarrier_arrive"})
    EXPECT_THAT(kinds, testing::Contains(kind));
}

TEST(CudaHostFaults, OneByteTooFarNamesTensorOffsetAndSize) {
  const Report report = run(case_of("read_past"), "_wrong");
  ASSERT_EQ(report.findings.size(), 1U) << texts(report);
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.object, "in");
  EXPECT_EQ(f.offset_bytes, 128);
  EXPECT_EQ(f.thread, 31);
  EXPECT_EQ(f.count, 1);
  EXPECT_THAT(f.text, testing::HasSubstr("reads 4 bytes at byte 128 of in, which has 128"));
}

TEST(CudaHostFaults, FindingsAreCappedAndTheRestIsCounted) {
  const Case& c = case_of("missing_barrier");
  std::vector<float> in(64, 1), out(64);
  const std::vector<Tensor> tensors{tensor("in", in), tensor("out", out, false)};
  const Launch launch{
      .kernel = c.kernel + "_wrong", .tensors = {0, 1}, .threads = 64, .shared_bytes = 4096};
  const auto report = built().module.run(std::span(&launch, 1), tensors, {.max_findings = 0});
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->findings.empty());
  EXPECT_GT(report->findings_left_out, 0);
  EXPECT_FALSE(report->clean());
}

TEST(CudaHostFaults, WithoutChecksOnlyBoundsAndAlignmentAreChecked) {
  for (const Case& c : {case_of("missing_barrier"), case_of("read_past")}) {
    std::vector<float> in(static_cast<std::size_t>(c.in), 1), out(static_cast<std::size_t>(c.out));
    const std::vector<Tensor> tensors{tensor("in", in), tensor("out", out, false)};
    const Launch launch{.kernel = c.kernel + "_wrong",
                        .tensors = {0, 1},
                        .threads = c.threads,
                        .shared_bytes = c.shared_bytes};
    const auto report = built().module.run(std::span(&launch, 1), tensors, {.checks = false});
    ASSERT_TRUE(report);
    EXPECT_EQ(report->clean(), c.fault == Fault::race) << texts(*report);
  }
}

TEST(CudaHostFaults, MatrixInstructionsTakeWholeWarps) {
  std::vector<float> in(32, 1), out(32);
  const std::vector<Tensor> tensors{tensor("in", in), tensor("out", out, false)};
  Launch launch{.kernel = "part_of_a_warp", .tensors = {0, 1}, .threads = 16};
  const auto report = built().module.run(std::span(&launch, 1), tensors);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->findings.size(), 1U) << texts(*report);
  EXPECT_EQ(report->findings[0].fault, Fault::divergent);
  EXPECT_EQ(report->findings[0].place.line, built().line("// part of a warp"));
  launch.threads = 32;
  EXPECT_TRUE(built().module.run(std::span(&launch, 1), tensors)->clean());
}

TEST(CudaHostFaults, AFrameTooLargeForAStackIsRefused) {
  const std::string kernel =
      "#include \"tilewright_device.h\"\n"
      "extern \"C\" __global__ void k(float* out) {\n"
      "  float x[50000];\n  x[threadIdx.x] = 1;\n"
      "  for (int i = 0; i < 50000; ++i) out[i] = x[i];\n}\n";
  const auto module =
      Module::build({.text = kernel, .headers = {device_header()}, .kernels = {"k"}});
  ASSERT_FALSE(module);
  EXPECT_THAT(module.reason(), testing::HasSubstr("frame size"));
}

TEST(CudaHostFaults, ALaunchPastItsTimeIsStopped) {
  std::vector<float> in(32, 1), out(32);
  const std::vector<Tensor> tensors{tensor("in", in), tensor("out", out, false)};
  const Launch launch{.kernel = "endless", .tensors = {0, 1}, .blocks = 3, .threads = 32};
  const auto report = built().module.run(std::span(&launch, 1), tensors, {.max_seconds = 0.05});
  ASSERT_TRUE(report);
  ASSERT_EQ(report->findings.size(), 1U) << texts(*report);
  EXPECT_EQ(report->findings[0].fault, Fault::deadlock);
  EXPECT_EQ(report->findings[0].place.line, built().line("// endless"));
  EXPECT_LT(report->seconds, 5);
}

TEST(CudaHostFaults, AFaultInAHeaderNamesItsLineAndItsCaller) {
  const std::string kernel =
      "#include \"tilewright_device.h\"\n#include \"part.h\"\n"
      "extern \"C\" __global__ void k(float* out) {\n"
      "  part(out, threadIdx.x);\n}\n";
  const std::string part =
      "\nTW_DEVICE void part(float* out, int i) {\n"
      "  tw::store_global(out + i, 0.0f);\n}\n";
  const auto module = Module::build(
      {.text = kernel, .headers = {device_header(), {"part.h", part}}, .kernels = {"k"}});
  ASSERT_TRUE(module) << module.reason();
  std::vector<float> out(31);
  const std::vector<Tensor> tensors{tensor("out", out, false)};
  const Launch launch{.kernel = "k", .tensors = {0}, .threads = 32};
  const auto report = module->run(std::span(&launch, 1), tensors);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->findings.size(), 1U) << texts(*report);
  EXPECT_EQ(report->findings[0].place, (Place{"part.h", 3, 4, "tw::store_global(out + i, 0.0f);"}));
  EXPECT_THAT(report->findings[0].text, testing::HasSubstr("line 3 of part.h (from line 4)"));
}

TEST(CudaHostFaults, WhatCannotRunIsRefusedWithAReason) {
  const auto bad = Module::build({.text = "int f() { return nothing; }", .kernels = {}});
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.reason(), testing::HasSubstr("nothing"));
  EXPECT_THROW(static_cast<void>(Module::build({.text = "", .kernels = {"a b"}})), InputError);
  EXPECT_THROW(static_cast<void>(Module::build({.file_name = "../k.cu", .text = ""})), InputError);
  std::vector<float> in(32, 1);
  const std::vector<Tensor> tensors{tensor("in", in)};
  Launch launch{.kernel = "read_past_right", .tensors = {0}, .threads = 32};
  const auto few = built().module.run(std::span(&launch, 1), tensors);
  ASSERT_FALSE(few);
  EXPECT_EQ(few.reason(), "read_past_right takes 2 pointers, its launch gives 1");
  launch.threads = 1025;
  EXPECT_THROW(static_cast<void>(built().module.run(std::span(&launch, 1), tensors)), InputError);
  launch = {.kernel = "missing", .tensors = {}};
  EXPECT_FALSE(built().module.run(std::span(&launch, 1), tensors));
}

}  // namespace
}  // namespace tilewright::cuda_host
