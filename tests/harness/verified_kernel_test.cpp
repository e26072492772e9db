// Verification of any target's kernel, through one that is made up here: it computes in double and
// rounds its outputs, as a perfect kernel would, with faults planted on demand.
#include "harness/verified_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "codegen/cuda/target.h"
#include "core/workload/reference/elements.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "harness/schedules.h"

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
  const Reference reference = reference_of(w, 3);
  const VerifyResult r = check(w, [&](TensorValues& v) {
    v[e.index()].front() = reference.outputs[e.index()][0] + 3 * reference.bounds[e.index()][0];
  });
  EXPECT_EQ(r.kernel, nullptr);
  EXPECT_EQ(r.verification.at.element, 0);
  EXPECT_EQ(r.verification.at.reference, reference.outputs[e.index()][0]);
  EXPECT_THAT(reason_of(r.verification, w), testing::StartsWith("E[0,0] is "));
}

INSTANTIATE_TEST_SUITE_P(All, EveryType, testing::Values("f16", "bf16", "f32", "f64"),
                         [](const auto& info) { return std::string(info.param); });

/// A kernel of a part whose result has rows longer than what is written: nobody reads the rest.
TEST(Verify, WhatLiesBehindARowIsNotCompared) {
  const Workload whole = workload_from_yaml(
      "name: w\nloops: {a: 6, b: 4}\ntensors: {x: [a, b], y: [b, 9]}\noperators:\n"
      "  - \"o: y[b,a] = x[a,b] * 0.5\"\n  - z[b,a] = y[b,a] + 1\n",
      "test");
  const Workload w = subgraph(whole, std::array{OpId(0)});
  const TensorId y = w.outputs().front();
  ASSERT_EQ(w.tensor(y).shape, (std::vector<std::int64_t>{4, 9}));
  const auto with = [&](std::size_t row, std::size_t column, double value) {
    return check(w, [&](TensorValues& v) { v[y.index()][row * 9 + column] = value; });
  };
  for (const double left : {std::nan(""), 7.0}) {
    const VerifyResult r = with(1, 6, left);
    EXPECT_NE(r.kernel, nullptr) << reason_of(r.verification, w);
    EXPECT_EQ(r.verification.elements, 24);
  }
  const VerifyResult wrong = with(2, 5, std::nan(""));
  EXPECT_EQ(wrong.kernel, nullptr);
  EXPECT_THAT(reason_of(wrong.verification, w), testing::StartsWith("y[2,5] is nan"));
  EXPECT_THAT(reason_of(wrong.verification, w, [](TensorId) { return "mine"; }),
              testing::StartsWith("mine[2,5] is nan"));
}

TEST(Verify, AFailureOfTheTargetIsAReason) {
  const VerifyResult r = check(chain("f16"), {}, true);
  EXPECT_EQ(r.kernel, nullptr);
  ASSERT_TRUE(r.failure);
  EXPECT_EQ(r.failure->text, "the device is on fire");
}

/// The longest sums that the kernels had: one output of a million products.
TEST(Verify, ALongSumIsHeldToItsRounding) {
  const Workload w = named_workload("gemm:m=1,n=1,k=1000000");
  EXPECT_NE(check(w).kernel, nullptr);
  for (const double factor : {0.0, 0.95, 0.99, 1.01})
    EXPECT_EQ(check(w, [&](TensorValues& v) { v[w.outputs()[0].index()][0] *= factor; }).kernel,
              nullptr)
        << factor;
}

/// A plan whose steps have few points of the summed loops adds to its sums often.
TEST(Verify, APlanSaysHowOftenProductsAreAdded) {
  const auto additions = [](const std::string& workload, const std::string& tree) {
    const auto w = std::make_shared<const Workload>(named_workload(workload));
    Kernel k{.tree = parse_tree(tree)};
    Plan plan;
    plan.kernels.push_back(k);
    const auto s =
        resolve(plan, w, std::make_shared<const Machine>(named_machine("scratchpad:64K")));
    EXPECT_TRUE(s.ok()) << s.reason();
    const Rounding r = rounding_of(*s);
    return r.additions.empty() ? 0.0 : r.additions[w->outputs().front().index()];
  };
  const std::string odd = "gemm:m=32,n=32,k=313,dtype=f16", even = "gemm:m=32,n=32,k=320,dtype=f16";
  EXPECT_EQ(additions(odd, "m/16 n/16 ( k/1 ( C.gemm ) S.C )"), 313);
  EXPECT_EQ(additions(odd, "m/16 n/16 ( k/64 ( k/4 ( C.gemm ) ) S.C )"), 5 * 16);
  EXPECT_EQ(additions(even, "m/16 n/16 ( k/20 ( C.gemm ) S.C )"), 16 * 3);
  EXPECT_EQ(additions(even, "m/16 n/16 ( k/32 ( C.gemm ) S.C )"), 0);  // eight at once
  EXPECT_EQ(additions("gemm:m=32,n=32,k=313", "m/16 n/16 ( k/1 ( C.gemm ) S.C )"), 0);  // f32
}

/// Where rounding alone may make anything of most elements, nothing is called right: exponentials
/// of scores that bf16 has to the nearest 32.
TEST(Verify, WhatCannotBeSeenIsRefused) {
  const Workload w = workload_from_yaml(
      "dtype: bf16\nloops: {m: 8, l: 64, k: 4096}\n"
      "operators: ['S[m,l] += A[m,k] * B[l,k]', 'T[m,l] = S[m,l] * 100', 'y[m,l] = "
      "sigmoid(T[m,l])']\n",
      "test");
  const VerifyResult r = check(w);
  EXPECT_EQ(r.kernel, nullptr);
  EXPECT_GT(r.verification.unseen, r.verification.elements / 20);
  EXPECT_THAT(reason_of(r.verification, w), testing::HasSubstr("cannot be verified"));
}

/// Where the reference is no number the kernel must have none either; nothing is called right
/// there.
TEST(Verify, WhatIsNoNumberCannotBeVerified) {
  const Workload w =
      workload_from_yaml("loops: {i: 400}\noperators: ['y[i] = sqrt(x[i])']\n", "test");
  const VerifyResult r = check(w);
  EXPECT_EQ(r.kernel, nullptr);
  EXPECT_LE(r.verification.worst, 1);
  EXPECT_GT(r.verification.undefined, 100);
  EXPECT_EQ(r.verification.undefined, r.verification.unseen);
  EXPECT_THAT(reason_of(r.verification, w), testing::HasSubstr("they are no numbers"));
  const VerifyResult wrong = check(w, [&](TensorValues& v) {
    for (double& y : v[w.outputs()[0].index()])
      if (std::isnan(y)) y = 0;
  });
  EXPECT_GT(wrong.verification.worst, 1);
}

/// The place of a row's largest element: where one alone may be it, the place is exact; where
/// several are within rounding of it, any of theirs is right and no other.
TEST(Verify, APlaceIsRightWhoseElementMayBeTheLargest) {
  const auto ranked = [](const char* score) {
    return workload_from_yaml(
        std::string("dtype: f32\nloops: {i: 30, h: 2, j: 10}\noperators:\n  - S[i,h,j] = ") +
            score +
            "\n  - M[i] max= S[i,h,j]\n"
            "  - P[i,h,j] = select(lt(S[i,h,j], M[i]), 20, 10 * h + j)\n  - R[i] min= P[i,h,j]\n",
        "test");
  };
  const Workload alone = ranked("(X[i,j] + h) / 3"), twice = ranked("(X[i,j] + 0 * h) / 3");
  for (const Workload* w : {&alone, &twice}) {
    const std::size_t r = w->outputs().front().index();
    EXPECT_NE(check(*w).kernel, nullptr);
    for (const double other : {1.0, -1.0, 20.0})  // the next place, the one before, none
      EXPECT_EQ(
          check(*w, [&](TensorValues& v) { v[r][7] = other == 20 ? 20 : v[r][7] + other; }).kernel,
          nullptr);
    const auto half = [&](TensorValues& v) { v[r][7] += v[r][7] < 10 ? 10 : -10; };
    EXPECT_EQ(check(*w, half).kernel != nullptr, w == &twice);
  }
}

/// Emitted sources, headers and all, build with either builder and name the kernels that are
/// launched.
TEST(CudaSource, EmittedSourcesBuildWithNvccAndNvrtc) {
  const Request request{.subject = "gemm-chain:m=61,n=40,k=24,l=47,dtype=bf16",
                        .machine = "h100",
                        .tree = "m@grid ( l ( k ( C.gemm1 ) C.gemm2 ) )",
                        .tiles = "m=32,l=32,k=16"};
  const Scheduled on = schedule_of(request);
  ASSERT_TRUE(on.schedule);
  const Result<cuda::Source> source = cuda::emit(*on.schedule);
  ASSERT_TRUE(source) << source.reason();
  int built = 0;
  for (const char* builder : {"nvcc", "nvrtc"}) {
    const bool here =
        std::string(builder) == "nvcc" ? !cuda::find_nvcc().empty() : cuda::nvrtc_version().ok();
    if (!here) continue;
    ++built;
    const std::string architecture = built == 1 ? "sm_90a" : "sm_80";
    const auto binary = cuda::build(*source, {.architecture = architecture, .builder = builder});
    ASSERT_TRUE(binary) << builder << " " << architecture << ": " << binary.reason();
    for (const auto& launch : cuda::launches_json(*source, &*binary))
      EXPECT_GT(launch["registers"], 0) << builder << " " << launch;
  }
  if (built == 0) GTEST_SKIP() << "neither nvcc nor NVRTC here";
}

}  // namespace
}  // namespace tilewright::harness
