// From a built kernel to a verified and timed one, on a stand-in for the driver (fake_cuda/) that
// this program finds instead of any real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "codegen/cuda/loaded.h"
#include "codegen/cuda/target.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "harness/pipeline.h"
#include "tests/codegen/cuda/hand_written.h"

namespace tilewright::harness {
namespace {

using testing::HasSubstr;

struct Planted {
  explicit Planted(const char* fault) { setenv("TILEWRIGHT_FAKE_CUDA", fault, 1); }
  ~Planted() { unsetenv("TILEWRIGHT_FAKE_CUDA"); }
};

/// A job whose source is written by hand, as if it had been emitted and built.
Job job(const OptionValues& options = {}, const std::function<void(cuda::Source&)>& change = {}) {
  Job j = job_of({.target_options = options}, {.target = "cuda", .seconds = 0.01});
  j.on.setting.workload =
      std::make_shared<const Workload>(named_workload("gemm:m=40,n=24,k=33,dtype=f16"));
  j.on.setting.machine = std::make_shared<const Machine>(named_machine("h100"));
  cuda::Source source = cuda::test::hand_written_gemm(40, 24, 33);
  if (change) change(source);
  // The stand-in computes by itself: any file that begins as a cubin does will do.
  cuda::Binary binary{.cubin =
                          "\x7f"
                          "ELF",
                      .architecture = "sm_90a",
                      .builder = "none"};
  j.json["launches"] = cuda::launches_json(source, &binary);
  j.emitted = cuda::with_binary(std::move(source), std::move(binary), j.on.setting.workload,
                                settings_for(j.target(), options));
  return j;
}

Job ran(Job j) {
  const auto device = open_device(j.target());
  if (!device) {
    j.refuse_with(device.reason());
    return j;
  }
  verify_job(j, *device, reference_of(*j.on.setting.workload, 1));
  time_job(j);
  return j;
}

TEST(CudaRun, VerifiesAndTimes) {
  const Job j = ran(job());
  ASSERT_FALSE(j.refusal) << *j.refusal;
  EXPECT_TRUE(j.json["verified"]);
  EXPECT_GT(j.json["relative_error"], 0);
  EXPECT_LT(j.json["relative_error"], j.json["tolerance"]);
  EXPECT_EQ(j.json["device"]["name"], "Fake H100");
  EXPECT_EQ(j.json["device"]["driver_version"], "13.0");
  EXPECT_EQ(j.json["device"]["compute_capability"], "9.0");
  // The stand-in's runs take 2 us each, whatever the clock says.
  EXPECT_NEAR(j.json["seconds_median"].get<double>(), 2e-6, 1e-9);
  EXPECT_NEAR(j.json["gflops"].get<double>(), 2.0 * 40 * 24 * 33 / 2e-6 * 1e-9, 0.1);
  EXPECT_GE(j.json["batches"], 20);
  EXPECT_GE(j.json["runs_a_batch"].get<double>() * 2e-6, 200e-6);
  EXPECT_THAT(j.json["l2"].get<std::string>(), HasSubstr("warm"));
  EXPECT_EQ(j.json["launches"][0]["blocks_a_multiprocessor"], 4);
  EXPECT_THAT(j.json["peak_source"].get<std::string>(), HasSubstr("machine file h100"));
}

/// Calls on memory of the caller's are not for kernels of a device: its launches keep theirs.
TEST(CudaRun, LaunchesOnTensorsThatAreNowhereAreRefused) {
  Job j = job();
  const auto device = open_device(j.target());
  ASSERT_TRUE(device) << device.reason();
  const auto kernel = j.emitted->load(*device, j.json);
  ASSERT_TRUE(kernel) << kernel.reason();
  const auto sequence = j.target().sequence(*device);
  ASSERT_TRUE(sequence) << sequence.reason();
  std::vector<void*> nowhere(j.on.setting.workload->tensors().size(), nullptr);
  const auto why = (*sequence)->add(**kernel, nowhere);
  ASSERT_TRUE(why);
  EXPECT_THAT(why->text, HasSubstr("memory that they are added with"));
  EXPECT_FALSE((*kernel)->place(TensorId(0), &nowhere));
}

TEST(CudaRun, ColdRunsUseSetsInTurn) {
  const Job j = ran(job({{"cold", {"on"}}}));
  ASSERT_FALSE(j.refusal) << *j.refusal;
  EXPECT_THAT(j.json["l2"].get<std::string>(), HasSubstr("cold: 342 sets"));
  EXPECT_NEAR(j.json["seconds_median"].get<double>(), 2e-6, 1e-9);
  EXPECT_EQ(j.json["runs_a_batch"].get<int>() % 342, 0);
  // 40*33 + 33*24 + 40*24 halves a set; twice the 1 MiB of the stand-in's L2.
  EXPECT_EQ(cuda::copies_past_l2({.l2_bytes = 1 << 20}, {2640, 1584, 1920}, {true, true, true}),
            342);
}

/// Without a CUDA graph every kernel of a run is launched by itself.
TEST(CudaRun, KernelsAreLaunchedByThemselves) {
  const Job j = ran(job({{"launch", {"stream"}}}));
  ASSERT_FALSE(j.refusal) << *j.refusal;
  EXPECT_TRUE(j.json["verified"]);
  EXPECT_THAT(j.json["timed_by"].get<std::string>(), HasSubstr("each kernel launched by itself"));
  // The stand-in takes 5 us for such a launch.
  EXPECT_NEAR(j.json["seconds_median"].get<double>(), 5e-6, 1e-9);
  EXPECT_GE(j.json["runs_a_batch"].get<double>() * 5e-6, 200e-6);
}

TEST(CudaRun, AWrongKernelIsNotTimed) {
  const Planted fault("wrong");
  const Job j = ran(job());
  ASSERT_TRUE(j.refusal);
  EXPECT_FALSE(j.json["verified"]);
  EXPECT_FALSE(j.json.contains("seconds_median"));
  EXPECT_GT(j.json["relative_error"], j.json["tolerance"]);
}

TEST(CudaRun, AfterAFaultTheDeviceOpensAfresh) {
  {
    const Planted fault("illegal");
    const Job j = ran(job());
    ASSERT_TRUE(j.refusal);
    EXPECT_THAT(*j.refusal, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  EXPECT_FALSE(ran(job()).refusal);
}

TEST(CudaRun, WhatTheDeviceHasNotIsARefusal) {
  const Job large = job({}, [](cuda::Source& s) { s.launches[0].shared_bytes = 300'000; });
  EXPECT_THAT(*ran(large).refusal, HasSubstr("232448"));
  const Job waiting = job({}, [](cuda::Source& s) {
    s.launches[0].cooperative = true;
    s.launches[0].blocks = 4 * 132 + 1;
  });
  EXPECT_THAT(*ran(waiting).refusal, HasSubstr("holds 528 at once"));
}

TEST(CudaRun, AKernelThatDoesNotEndIsFoundOut) {
  // Last: the stand-in hangs for good, as a device would.
  const Planted fault("hang");
  const auto device = cuda::Device::open();
  ASSERT_TRUE(device);
  const auto graph = device.value()->capture({});
  ASSERT_TRUE(graph);
  const auto seconds = device.value()->run(*graph, 1, 0.05);
  ASSERT_FALSE(seconds);
  EXPECT_THAT(seconds.reason(), HasSubstr("did not end"));
  EXPECT_TRUE(device.value()->hung());
}

}  // namespace
}  // namespace tilewright::harness
