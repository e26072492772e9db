// Maxima, minima and relu of what may be NaN: one rule for the reference evaluator and every
// target, a NaN stays (docs/conventions.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/base/toolchain.h"
#include "core/workload/expr.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/text.h"
#include "harness/request.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Roots of negative numbers in one row, or in one column: few enough that results of a sum of them
/// may be verified, at several places of a vector, as either argument, and in every way of a
/// reduction.
std::string text_of(const std::string& type) {
  const std::string row = "sqrt(x[r,c] + 1.5 - 9 * lt(6.5, r) * lt(r, 7.5))";
  const std::string column = "sqrt(x[r,c] + 1.5 - 9 * lt(36.5, c) * lt(c, 37.5))";
  return "name: roots\ndtype: " + type +
         "\nloops: {r: 37, c: 83}\noperators:\n"
         "  - \"z: z[r,c] = " +
         row + "; t[r,c] = " + column +
         "\"\n"
         "  - \"o: a[r,c] = max(z[r,c], 0.25); b[r,c] = max(0.25, t[r,c]); d[r,c] = relu(z[r,c]); "
         "e[r,c] = min(max(t[r,c], y[c]), 3); f[r,c] = max(y[c], z[r,c]) + min(0.5, z[r,c])\"\n"
         "  - \"s: m[r] max= z[r,c]; n[r] min= z[r,c]\"\n"
         "  - \"u: q[c] max= t[r,c]; p[c] min= t[r,c]\"\n"
         "outputs: [a, b, d, e, f, m, n, q, p]\n";
}

struct On {
  std::string machine, target, type, isa = {};
};

class NaNs : public ::testing::TestWithParam<On> {};

TEST_P(NaNs, StayInTheKernelAsInTheReference) {
  const On& on = GetParam();
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "roots.yaml").string();
  std::ofstream(file) << text_of(on.type);
  Request request{.subject = file, .machine = on.machine};
  if (!on.isa.empty()) request.target_options["isa"] = {on.isa};
  const Answer a = run(request, {.target = on.target, .seconds = 0});
  ASSERT_TRUE(a.ok()) << a.json.dump(2);
  EXPECT_TRUE(a.json["verified"]) << a.json.dump(2);
}

INSTANTIATE_TEST_SUITE_P(
    Targets, NaNs,
    ::testing::Values(On{"host", "cpu", "f32"}, On{"host", "cpu", "f64"}, On{"host", "cpu", "bf16"},
                      On{"host", "cpu", "f16"}, On{"host", "cpu", "f32", "generic"},
                      On{"h200", "cuda-emulated", "f32"}, On{"h200", "cuda-emulated", "f64"},
                      On{"a100", "cuda-emulated", "f16"}, On{"h200", "cuda-emulated", "bf16"},
                      On{"ascend910", "npu", "f32"}, On{"ascend910", "npu", "f16"},
                      On{"ascend910b", "npu", "bf16"}),
    [](const auto& info) {
      std::string name = info.param.target + "_" + info.param.type + "_" + info.param.isa;
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(NaN, StaysInExpressions) {
  for (const char* f : {"max", "min"})
    for (const double other : {-2.0, 0.0, 3.0, HUGE_VAL, -HUGE_VAL}) {
      const double first[] = {kNaN, other}, second[] = {other, kNaN};
      EXPECT_TRUE(std::isnan(find_expr_function(f)->evaluate(first))) << f << other;
      EXPECT_TRUE(std::isnan(find_expr_function(f)->evaluate(second))) << f << other;
    }
  EXPECT_TRUE(std::isnan(find_expr_function("relu")->evaluate(&kNaN)));
}

/// Elements that are NaN by hand, in rows that are reduced in one go and in parts.
TEST(NaN, StaysInReductions) {
  const Workload w = workload_from_yaml(
      "name: most\ndtype: f64\nloops: {r: 3, c: 40}\n"
      "operators:\n  - \"m[r] max= x[r,c]\"\n  - \"n[r] min= x[r,c]\"\n"
      "  - \"a[r,c] = max(x[r,c], 1) - min(1, x[r,c])\"\noutputs: [m, n, a]\n",
      "test");
  TensorValues inputs(w.tensors().size());
  std::vector<double>& x = inputs[w.find_tensor("x")->index()];
  for (int i = 0; i < 120; ++i) x.push_back(0.01 * i);
  x[0] = x[79] = kNaN;
  const TensorValues values = evaluate(w, inputs);
  const auto of = [&](const char* t) { return values[w.find_tensor(t)->index()]; };
  for (const char* t : {"m", "n"}) {
    EXPECT_TRUE(std::isnan(of(t)[0]) && std::isnan(of(t)[1])) << t;
    EXPECT_FALSE(std::isnan(of(t)[2])) << t;
  }
  for (std::size_t i = 0; i < 120; ++i) EXPECT_EQ(std::isnan(of("a")[i]), i == 0 || i == 79) << i;
}

}  // namespace
}  // namespace tilewright::harness
