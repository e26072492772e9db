// Verification of any target's kernel, through one that is made up here: it computes in double and
// rounds its outputs, as a perfect kernel would, with faults planted on demand.
#include "harness/verified_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/workload/reference/elements.h"
#include "core/workload/text.h"
#include "harness/run_cuda.h"

namespace tilewright::harness {
namespace {

class FakeKernel final : public TargetKernel {
 public:
  using Fault = std::function<void(TensorValues&)>;
  FakeKernel(const Workload& w, Fault fault)
      : w_(w), fault_(std::move(fault)), memory_(w.tensors().size()) {}
  bool needs(TensorId t) const override { return w_.is_input(t) || is_output(t); }
  std::optional<Reason> write(TensorId t, const void* elements) override {
    memory_[t.index()].resize(static_cast<std::size_t>(w_.tensor(t).bytes().value));
    std::memcpy(memory_[t.index()].data(), elements, memory_[t.index()].size());
    return std::nullopt;
  }
  std::optional<Reason> read(TensorId t, void* elements) override {
    std::memcpy(elements, memory_[t.index()].data(), memory_[t.index()].size());
    return std::nullopt;
  }
  Result<double> run() override {
    if (fails) return Reason{"the device is on fire"};
    TensorValues values(memory_.size());
    for (std::size_t t = 0; t < memory_.size(); ++t) {
      if (memory_[t].empty()) continue;
      const Tensor& tensor = w_.tensors()[t];
      values[t] = decode_elements(tensor.dtype, memory_[t].data(),
                                  static_cast<std::size_t>(tensor.elements().value));
      if (is_output(TensorId(t)) && runs == 0) {
        for (double x : values[t]) EXPECT_TRUE(std::isnan(x)) << "an output that was not forgotten";
      }
    }
    ++runs;
    TensorValues result = evaluate(w_, values);
    if (fault_) fault_(result);
    for (TensorId t : w_.outputs())
      encode_elements(w_.tensor(t).dtype, result[t.index()], memory_[t.index()].data());
    return 1e-3;
  }
  bool fails = false;
  int runs = 0;

 private:
  bool is_output(TensorId t) const {
    const auto outputs = w_.outputs();
    return std::find(outputs.begin(), outputs.end(), t) != outputs.end();
  }
  const Workload& w_;
  Fault fault_;
  std::vector<std::vector<std::byte>> memory_;
};

Workload chain(const std::string& dtype) {
  return named_workload("gemm-chain:m=37,n=19,k=64,l=45,dtype=" + dtype);
}

VerifyResult check(const Workload& w, FakeKernel::Fault fault = {}, bool fails = false) {
  auto kernel = std::make_unique<FakeKernel>(w, std::move(fault));
  kernel->fails = fails;
  return verify(std::move(kernel), w, reference_of(w, 3));
}

class EveryType : public testing::TestWithParam<const char*> {};

TEST_P(EveryType, APerfectKernelIsVerified) {
  const Workload w = chain(GetParam());
  VerifyResult r = check(w);
  ASSERT_NE(r.kernel, nullptr) << r.verification.relative_error;
  EXPECT_LE(r.verification.relative_error, r.verification.tolerance);
  // One rounding of the outputs, and no more.
  if (w.dtype() == DType::f16) {
    EXPECT_GT(r.verification.relative_error, 0x1p-14);
  }
  EXPECT_EQ(r.kernel->run(), 1e-3);
}

TEST_P(EveryType, AWrongElementIsFound) {
  const Workload w = chain(GetParam());
  const TensorId e = w.outputs().front();
  // The last element of an edge tile: forgotten, zero, and without its last addition.
  for (const double wrong : {std::nan(""), 0.0}) {
    const VerifyResult r = check(w, [&](TensorValues& v) { v[e.index()].back() = wrong; });
    EXPECT_EQ(r.kernel, nullptr);
    EXPECT_FALSE(r.failure);
    EXPECT_GT(r.verification.relative_error, r.verification.tolerance);
  }
  const VerifyResult r = check(w, [&](TensorValues& v) {
    const double largest =
        std::abs(*std::max_element(v[e.index()].begin(), v[e.index()].end(),
                                   [](double a, double b) { return std::abs(a) < std::abs(b); }));
    v[e.index()].front() += 3 * tolerance_of(w) * largest;
  });
  EXPECT_EQ(r.kernel, nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, EveryType, testing::Values("f16", "bf16", "f32", "f64"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Verify, AFailureOfTheTargetIsAReason) {
  const VerifyResult r = check(chain("f16"), {}, true);
  EXPECT_EQ(r.kernel, nullptr);
  ASSERT_TRUE(r.failure);
  EXPECT_EQ(r.failure->text, "the device is on fire");
}

TEST(Tolerance, OfNarrowTypesCountsRoundings) {
  const double sums = 0x1p-24 * (16 + 64 + 45);
  EXPECT_DOUBLE_EQ(tolerance_of(chain("f16")), 3 * 0x1p-11 + sums);
  EXPECT_DOUBLE_EQ(tolerance_of(chain("bf16")), 3 * 0x1p-8 + sums);
  EXPECT_DOUBLE_EQ(tolerance_of(chain("f32")), sums);
  // Attention has more operators on its way, qk, rowmax, exp, pv and divide: capped.
  const Workload attention = named_workload("attention:heads=2,m=32,l=32,k=16,n=16,dtype=f16");
  EXPECT_DOUBLE_EQ(tolerance_of(attention), 4 * 0x1p-11 + 0x1p-24 * (16 + 16 + 32 + 1 + 32 + 1));
  EXPECT_LT(tolerance_of(attention), 2e-3);
}

/// Emitted sources, headers and all, build with either builder and name the kernels that are launched.
TEST(CudaSource, EmittedSourcesBuildWithNvccAndNvrtc) {
  CudaJob j;
  j.request.subject = "gemm-chain:m=61,n=40,k=24,l=47,dtype=bf16";
  j.request.machine = "h100";
  j.request.tree = "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )";
  j.request.tiles = "m=32,l=32,k=16";
  j.options.target = "cuda";
  emit_job(j);
  ASSERT_FALSE(j.refusal) << *j.refusal;
  int built = 0;
  for (const char* builder : {"nvcc", "nvrtc"}) {
    const bool here =
        std::string(builder) == "nvcc" ? !cuda::find_nvcc().empty() : cuda::nvrtc_version().ok();
    if (!here) continue;
    ++built;
    const std::string architecture = built == 1 ? "sm_90a" : "sm_80";
    const auto binary = cuda::build(*j.source, {.architecture = architecture, .builder = builder});
    ASSERT_TRUE(binary) << builder << " " << architecture << ": " << binary.reason();
    for (const auto& launch : launches_json(*j.source, &*binary))
      EXPECT_GT(launch["registers"], 0) << builder << " " << launch;
  }
  if (built == 0) GTEST_SKIP() << "neither nvcc nor NVRTC here";
}

}  // namespace
}  // namespace tilewright::harness
