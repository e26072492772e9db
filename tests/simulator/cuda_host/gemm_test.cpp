// Does a pipelined tensor-core GEMM compute the right numbers and move the right bytes with nothing
// found, and is each of its faults, planted, found where it lies?
#include <cmath>

#include "tests/simulator/cuda_host/support.h"

namespace tilewright::cuda_host {
namespace {

constexpr int kM = 128, kN = 128, kK = 256;

const Built& built() {
  static const Built all("gemm.cu", {"gemm_right", "gemm_no_full_wait", "gemm_no_empty_wait",
                                     "gemm_no_arrive", "gemm_wrong_parity"});
  return all;
}

struct Data {
  std::vector<std::uint16_t> a = random_f16(std::size_t{kM} * kK, 1),
                             b = random_f16(std::size_t{kK} * kN, 2);
  std::vector<std::uint16_t> c = std::vector<std::uint16_t>(std::size_t{kM} * kN, 0x7e00);
  std::vector<int> sizes{kN, kK};
  std::vector<Tensor> tensors() {
    return {tensor("A", a), tensor("B", b), tensor("C", c, false), tensor("sizes", sizes)};
  }
};

Report run(const std::string& kernel, Data& data) {
  const Launch launch{.kernel = kernel,
                      .tensors = {0, 1, 2, 3},
                      .blocks = kM / 64 * (kN / 64),
                      .threads = 160,
                      .shared_bytes = 3 * 8192 + 6 * 8};
  const auto tensors = data.tensors();
  auto report = built().module.run(std::span(&launch, 1), tensors);
  EXPECT_TRUE(report) << (report ? "" : report.reason());
  return report ? *report : Report{};
}

TEST(CudaHostGemm, ComputesAndMovesWhatItShouldAndIsClean) {
  Data data;
  const Report report = run("gemm_right", data);
  EXPECT_TRUE(report.clean()) << texts(report);
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      double sum = 0;
      for (int k = 0; k < kK; ++k)
        sum += static_cast<double>(tw_half::float_of_f16(data.a[i * kK + k])) *
               tw_half::float_of_f16(data.b[k * kN + j]);
      ASSERT_NEAR(tw_half::float_of_f16(data.c[i * kN + j]), sum, std::abs(sum) / 1024 + 1e-4)
          << i << " " << j;
    }
  const LaunchCounts& counts = report.launches.at(0);
  const std::int64_t blocks = 4;
  EXPECT_EQ(counts.tensors[0], (TensorBytes{.read = 2 * kM * kK * (kN / 64)}));
  EXPECT_EQ(counts.tensors[1], (TensorBytes{.read = 2 * kK * kN * (kM / 64)}));
  EXPECT_EQ(counts.tensors[2], (TensorBytes{.written = 2 * kM * kN}));
  EXPECT_EQ(counts.tensors[3], (TensorBytes{.read = blocks * 160 * 8}));
  EXPECT_EQ(counts.mma, std::int64_t{kM} * kN * kK / (16 * 8 * 16));
  EXPECT_EQ(counts.ldmatrix, blocks * 4 * (kK / 16) * 5);
  EXPECT_EQ(counts.copies, 2 * (kM * kK * (kN / 64) + kK * kN * (kM / 64)) / 16);
  EXPECT_EQ(counts.mbarrier_phases, blocks * 2 * (kK / 32));
}

TEST(CudaHostGemm, ReadingBeforeTheCopiesHaveLandedIsARace) {
  Data data;
  const Report report = run("gemm_no_full_wait", data);
  ASSERT_FALSE(report.clean());
  bool found = false;
  for (const Finding& f : report.findings)
    found |= f.place.line == built().line("// read A") &&
             (f.fault == Fault::race || f.fault == Fault::uninitialised);
  EXPECT_TRUE(found) << texts(report);
}

TEST(CudaHostGemm, CopyingOverWhatIsStillReadIsARace) {
  Data data;
  const Report report = run("gemm_no_empty_wait", data);
  bool found = false;
  for (const Finding& f : report.findings)
    found |=
        f.fault == Fault::race && f.object == "shared memory" &&
        (f.place.line == built().line("// copy A") || f.other.line == built().line("// copy A"));
  EXPECT_TRUE(found) << texts(report);
}

TEST(CudaHostGemm, AStageThatIsNeverGivenBackIsADeadlock) {
  Data data;
  const Report report = run("gemm_no_arrive", data);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].fault, Fault::deadlock) << texts(report);
  EXPECT_EQ(report.blocks_stopped, 4);
  EXPECT_THAT(report.findings[0].text, testing::HasSubstr("128 of 128 arrivals missing"));
}

TEST(CudaHostGemm, WaitingForTheOtherParityIsADeadlockThatSaysWhoWaitsWhere) {
  Data data;
  const Report report = run("gemm_wrong_parity", data);
  ASSERT_EQ(report.findings.size(), 1U) << texts(report);
  const Finding& f = report.findings[0];
  const int full = built().line("// wait full"), empty = built().line("// wait empty");
  EXPECT_EQ(f.fault, Fault::deadlock);
  EXPECT_EQ(f.place.line, full);
  EXPECT_THAT(f.text,
              testing::HasSubstr("threads 0-127 in mbarrier_wait at line " + std::to_string(full)));
  EXPECT_THAT(f.text, testing::HasSubstr("threads 128-159 in mbarrier_wait at line " +
                                         std::to_string(empty)));
}

}  // namespace
}  // namespace tilewright::cuda_host
