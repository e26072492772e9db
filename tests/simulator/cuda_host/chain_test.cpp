// Does a fused chain of two GEMMs run, clean and right, and how fast is it with every check on? And
// do all kernels of these tests compile for GPUs?
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "tests/simulator/cuda_host/support.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::cuda_host {
namespace {

TEST(CudaHostChain, IsCleanAndRight) {
  const Built built("chain.cu", {"chain"});
  std::vector<std::uint16_t> a = random_f16(512 * 64, 1), b = random_f16(64 * 512, 2),
                             d = random_f16(512 * 64, 3), e(512 * 64, 0x7e00);
  const Launch launch{.kernel = "chain",
                      .tensors = {0, 1, 2, 3},
                      .blocks = 8,
                      .threads = 160,
                      .shared_bytes = 5 * 8192 + 40};
  const std::vector<Tensor> tensors{tensor("A", a), tensor("B", b), tensor("D", d),
                                    tensor("E", e, false)};
  for (const bool checks : {true, false}) {
    const auto report = built.module.run(std::span(&launch, 1), tensors, {.checks = checks});
    ASSERT_TRUE(report) << report.reason();
    EXPECT_TRUE(report->clean()) << texts(*report);
    std::cout << "33.6 M multiply-adds, checks " << (checks ? "on" : "off") << ": "
              << report->seconds << " s\n";
    const LaunchCounts& counts = report->launches[0];
    EXPECT_EQ(counts.tensors[0].read, 512 * 64 * 2);
    EXPECT_EQ(counts.tensors[1].read, 8 * 64 * 512 * 2);
    EXPECT_EQ(counts.tensors[2].read, 8 * 512 * 64 * 2);
    EXPECT_EQ(counts.tensors[3].written, 512 * 64 * 2);
    EXPECT_EQ(counts.mma, 2 * 512 * 512 * 64 / 2048);
  }
  using tw_half::float_of_f16;
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < 512; i += 7)
    for (std::size_t n = 0; n < 64; ++n) {
      double sum = 0;
      for (std::size_t l = 0; l < 512; ++l) {
        double c = 0;
        for (std::size_t k = 0; k < 64; ++k)
          c += static_cast<double>(float_of_f16(a[i * 64 + k])) * float_of_f16(b[k * 512 + l]);
        sum += c * float_of_f16(d[l * 64 + n]);
      }
      worst = std::max(worst, std::abs(sum - float_of_f16(e[i * 64 + n])));
      largest = std::max(largest, std::abs(sum));
    }
  EXPECT_LT(worst / largest, 1e-3);
}

TEST(CudaHostChain, RunsSideBySideAreTheSame) {
  const Built built("chain.cu", {"chain"});
  std::vector<std::uint16_t> a = random_f16(512 * 64, 1), b = random_f16(64 * 512, 2),
                             d = random_f16(512 * 64, 3);
  std::vector<std::vector<std::uint16_t>> e(3, std::vector<std::uint16_t>(512 * 64, 0x7e00));
  const Launch launch{.kernel = "chain",
                      .tensors = {0, 1, 2, 3},
                      .blocks = 8,
                      .threads = 160,
                      .shared_bytes = 5 * 8192 + 40};
  std::vector<std::thread> threads;
  for (auto& one : e)
    threads.emplace_back([&] {
      const std::vector<Tensor> tensors{tensor("A", a), tensor("B", b), tensor("D", d),
                                        tensor("E", one, false)};
      const auto report = built.module.run(std::span(&launch, 1), tensors);
      ASSERT_TRUE(report);
      EXPECT_TRUE(report->clean()) << texts(*report);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(e[0], e[1]);
  EXPECT_EQ(e[0], e[2]);
  EXPECT_NE(e[0][0], 0x7e00);
}

class CudaHostCompiles : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(CudaHostCompiles, WithNvcc) {
  const std::string nvcc = on_path("nvcc") ? "nvcc" : "/usr/local/cuda/bin/nvcc";
  if (!on_path(nvcc)) GTEST_SKIP() << "nvcc is neither on the PATH nor at /usr/local/cuda/bin";
  const auto& [file, architecture] = GetParam();
  const TemporaryFolder folder;
  folder.write(device_header().name, device_header().text);
  const std::string source = folder.write(file, contents("tests/simulator/cuda_host/" + file));
  const auto failed = run_program({nvcc, "-std=c++17", "-O1", "-arch=" + architecture, "-cubin",
                                   "-I", folder.path(), "-o", folder.path() + "/out.cubin", source},
                                  folder.path() + "/log");
  EXPECT_FALSE(failed) << failed->text;
}

INSTANTIATE_TEST_SUITE_P(All, CudaHostCompiles,
                         testing::Combine(testing::Values("gemm.cu", "numerics.cu", "faults.cu",
                                                          "chain.cu"),
                                          testing::Values("sm_80", "sm_90a")),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param) + "_" + std::get<1>(info.param);
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace tilewright::cuda_host
