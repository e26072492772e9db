// Do bounds of rounding errors hold, and are they no wider than they need be?
#include "core/workload/reference/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/text.h"

namespace tilewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<double>& of(const Workload& w, const TensorValues& v, const std::string& name) {
  return v[w.find_tensor(name)->index()];
}

/// Kernels compare indices exactly, so that no element is in doubt beside a mask's edge; infinities
/// that nothing reads but exponentials leave no doubt either.
TEST(Bounds, IndicesAreExact) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\nloops: {i: 40, j: 90}\noperators:\n"
      "  - U[i,j] = select(lt(i - 3, j), select(lt(j, 2 * i + 1), X[i,j], -inf), -inf)\n"
      "  - R[i] max= U[i,j]\n  - P[i,j] = exp(U[i,j] - R[i])\n  - Z[i] += P[i,j]\n"
      "  - W[i,j] = select(lt(i - 3, j), X[i,j], select(lt(2 * i + 1, j), 7, 3 * X[i,j]))\n"
      "outputs: [U, P, Z, W]\ntensors: {X: [40, 90]}\n",
      "t");
  const Bounded all = evaluate_bounded(w, random_inputs(w, 3));
  for (const char* name : {"U", "P", "Z", "W"})
    for (std::size_t i = 0; i < of(w, all.bounds, name).size(); ++i) {
      if (name[0] == 'Z' && std::isnan(of(w, all.values, name)[i])) continue;
      ASSERT_LE(of(w, all.bounds, name)[i], 1e-4) << name << " " << i;
    }
}

/// Of the smaller and the larger of two, the error is that of the one that is taken.
TEST(Bounds, AnExtremumHasTheErrorOfWhatItIs) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\nloops: {i: 40}\noperators:\n  - S[i] = X[i] / 3 + Z[i]\n"
      "  - A[i] = min(S[i], 10)\n  - B[i] = min(10, S[i])\n  - C[i] = max(S[i], -10)\n"
      "  - D[i] = min(S[i], -10)\n  - E[i] = min(max(S[i], -10), 10)\n  - F[i] = max(10, S[i])\n"
      "outputs: [S, A, B, C, D, E, F]\ntensors: {X: [40], Z: [40]}\n",
      "t");
  const Bounded all = evaluate_bounded(w, random_inputs(w, 3));
  for (std::size_t i = 0; i < 40; ++i) {
    const double own = of(w, all.bounds, "S")[i];
    ASSERT_GT(own, 0);
    for (const char* name : {"A", "B", "C", "E"})
      EXPECT_EQ(of(w, all.bounds, name)[i], own) << name;
    for (const char* name : {"D", "F"}) EXPECT_LT(of(w, all.bounds, name)[i], own / 1000) << name;
  }
}

/// The same number, added again and again, is rounded alike each time.
TEST(Bounds, OfRepeatedTermsAddUp) {
  std::string zeros = "0";
  for (int i = 1; i < 500; ++i) zeros += ", 0";
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\nloops: {b: 60, k: 500}\nvalues: {y: [" + zeros +
          "]}\noperators:\n  - S[b] += 0.5 * x[b] - y[k]\ntensors: {x: [60], y: [500]}\n",
      "t");
  const TensorValues inputs = random_inputs(w, 3);
  const Bounded all = evaluate_bounded(w, inputs);
  double worst = 0;
  for (std::size_t b = 0; b < 60; ++b) {
    const float term = 0.5F * static_cast<float>(of(w, inputs, "x")[b]);
    float sum = 0;
    for (int k = 0; k < 500; ++k) sum += term;
    const double value = of(w, all.values, "S")[b], bound = of(w, all.bounds, "S")[b];
    worst = std::max(worst, std::abs(sum - value) / bound);
    EXPECT_LT(bound, 2e-4 * std::abs(value)) << b;
  }
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0.03);  // and without the repetitions more than 1
}

/// Terms that a clamp cuts off are equal, and rounded alike each time; whole ones are not rounded.
TEST(Bounds, OfTermsThatAreCutOffAddUp) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\nloops: {b: 60, k: 4000}\noperators:\n"
      "  - C[b,k] = min(x[b,k] - y[b], z[b])\n  - S[b] += C[b,k]\n"
      "  - W[b] += min(x[b,k] + 9, 6)\noutputs: [S, W]\n"
      "tensors: {x: [60, 4000], y: [60], z: [60]}\n",
      "t");
  TensorValues inputs = random_inputs(w, 3);
  const auto at = [&](const char* name) { return w.find_tensor(name)->index(); };
  for (double& y : inputs[at("y")]) y = -8;
  for (std::size_t b = 0; b < 60; ++b) inputs[at("z")][b] = 0.1F * static_cast<float>(b + 1);
  const Bounded all = evaluate_bounded(w, inputs);
  double worst = 0;
  for (std::size_t b = 0; b < 60; ++b) {
    const auto term = static_cast<float>(of(w, inputs, "z")[b]);
    float sum = 0;
    for (int k = 0; k < 4000; ++k) sum += term;
    const double value = of(w, all.values, "S")[b], bound = of(w, all.bounds, "S")[b];
    worst = std::max(worst, std::abs(sum - value) / bound);
    EXPECT_LT(bound, 2e-3 * std::abs(value)) << b;
    EXPECT_LT(of(w, all.bounds, "W")[b], 5e-5 * of(w, all.values, "W")[b]);
  }
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0.03);  // and without what equal terms add more than 1
}

/// A factor that the terms of a sum share is rounded once for all of them: nowhere else are so many
/// of them off alike as where it cancels.
TEST(Bounds, OfSharedFactorsAddUp) {
  std::string near;
  for (int i = 0; i < 60; ++i) near += (i > 0 ? ", " : "") + std::to_string(0.9 + 1e-4 * (i + 1));
  const Workload w =
      workload_from_yaml("name: t\ndtype: f32\nloops: {b: 60, k: 4000}\nvalues: {y: [" + near +
                             "]}\noperators:\n  - S[b] += square(x[k]) * log(y[b] + 0.1)\n"
                             "tensors: {x: [4000], y: [60]}\n",
                         "t");
  const TensorValues inputs = random_inputs(w, 3);
  const Bounded all = evaluate_bounded(w, inputs);
  double squares = 0, worst = 0;
  for (const double x : of(w, inputs, "x")) squares += x * x;
  for (std::size_t b = 0; b < 60; ++b) {
    const float argument = static_cast<float>(of(w, inputs, "y")[b]) + 0.1F;
    const double sum = squares * static_cast<float>(std::log(static_cast<double>(argument)));
    const double value = of(w, all.values, "S")[b], bound = of(w, all.bounds, "S")[b];
    worst = std::max(worst, std::abs(sum - value) / bound);
    EXPECT_LT(bound, 0.03 * std::abs(value)) << b;
  }
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0.03);  // more than 1, if each term rounded the factor anew
}

/// What is chosen of f64 is rounded where it is stored in f32.
TEST(Bounds, WhatIsCutOffIsRounded) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\ndtypes: {P: f64}\nloops: {i: 40}\noperators:\n  - P[i] = exp(X[i])\n"
      "  - Y[i] = select(Z[i], P[i], 0)\noutputs: [Y]\ntensors: {X: [40], Z: [40]}\n",
      "t");
  const Bounded all = evaluate_bounded(w, random_inputs(w, 3));
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_GE(of(w, all.bounds, "Y")[i], 0x1p-25 * std::abs(of(w, all.values, "Y")[i])) << i;
}

/// Another library's sigmoid may be off by a last bit of 1 where little is left of it.
TEST(Bounds, OfAnotherLibraryAreThoseOfOne) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\nloops: {i: 40}\noperators:\n  - Y[i] = sigmoid(X[i] - 15)\n"
      "outputs: [Y]\ntensors: {X: [40]}\n",
      "t");
  const Bounded own = evaluate_bounded(w, random_inputs(w, 3)),
                other = evaluate_bounded(w, random_inputs(w, 3), {.other = true});
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_LT(of(w, own.bounds, "Y")[i], 1e-10);
    EXPECT_GT(of(w, other.bounds, "Y")[i], 1e-7);
    EXPECT_LT(of(w, other.bounds, "Y")[i], 1e-6);
  }
}

/// A sum past the largest number of its type is infinite. About there, nobody can say which; and
/// what reads either of them as it is stored is in doubt.
TEST(Bounds, WhatOverflowsIsInfinite) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f16\nloops: {i: 3, k: 400}\noperators:\n  - S[i] += X[i,k]\n"
      "  - R[i] = S[i] / 1024\noutputs: [S, R]\ntensors: {X: [3, 400]}\n",
      "t");
  TensorValues in(w.tensors().size());
  in[0].assign(400, -200.0);
  in[0].insert(in[0].end(), 240, 163.75);
  in[0].insert(in[0].end(), 160, 163.875);  // 65520 in all: half way to what would follow 65504
  in[0].insert(in[0].end(), 400, 100.0);
  const Bounded all = evaluate_bounded(w, in);
  const auto& sums = of(w, all.values, "S");
  const auto& bounds = of(w, all.bounds, "S");
  EXPECT_EQ(sums[0], -INFINITY);
  EXPECT_EQ(bounds[0], 0);
  EXPECT_TRUE(std::isinf(bounds[1])) << bounds[1];
  EXPECT_LT(bounds[2], 100);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_FALSE(std::isfinite(of(w, all.bounds, "R")[i]));
  EXPECT_LT(of(w, all.bounds, "R")[2], 1);
  // An infinite sum is right where the first is, and only there.
  const auto held = [&](double first, double second, double third) {
    std::vector<std::byte> bytes(6);
    encode_elements(DType::f16, std::vector<double>{first, second, third}, bytes.data());
    return compare(DType::f16, bytes.data(), sums, bounds);
  };
  EXPECT_LE(held(-INFINITY, INFINITY, 40000).worst, 1);
  EXPECT_LE(held(-INFINITY, 65504, 40000).worst, 1);
  EXPECT_EQ(held(-INFINITY, 65504, 40000).unseen, 1);
  EXPECT_GT(held(-65504, 65504, 40000).worst, 1);
  EXPECT_GT(held(-INFINITY, 65504, INFINITY).worst, 1);
}

/// The first bits of a number, the rest cut off.
double first_bits(double x, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::trunc(std::ldexp(fraction, bits)), exponent - bits);
}

/// Tensor cores add eight products to a sum in f32 and cut off what does not fit. Where a long sum
/// is small, that is more than rounding would be: the bound allows it, and no three bits more.
/// Where a plan gives them one product at a time, eight times as much is cut off.
TEST(Bounds, TensorCoresCutOffTheirSums) {
  const int rows = 8, columns = 32, depth = 65536;
  const Workload w = named_workload("gemm:m=8,n=32,k=65536,dtype=f16");
  const TensorValues in = random_inputs(w, 7);
  const std::size_t out = w.outputs().front().index();
  Rounding one_by_one{.additions = std::vector<double>(w.tensors().size())};
  one_by_one.additions[out] = depth;
  const Bounded eights = evaluate_bounded(w, in), ones = evaluate_bounded(w, in, one_by_one);
  const auto farthest = [&](const Bounded& all, int at_once, int bits) {  // as a part of the bound
    double most = 0;
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) {
        double sum = 0;
        for (int k = 0; k < depth; k += at_once) {
          for (int t = k; t < k + at_once; ++t)
            sum += in[0][static_cast<std::size_t>(i * depth + t)] *
                   in[1][static_cast<std::size_t>(t * columns + j)];
          sum = first_bits(sum, bits);
        }
        const auto at = static_cast<std::size_t>(i * columns + j);
        most = std::max(
            most, std::abs(round_to(DType::f16, sum) - all.values[out][at]) / all.bounds[out][at]);
      }
    return most;
  };
  EXPECT_LT(farthest(eights, 8, 24), 0.7);  // 0.39; 3.6 where the bound has no part for it
  EXPECT_GT(farthest(eights, 8, 21), 1);
  EXPECT_LT(farthest(ones, 1, 24), 0.7);
  EXPECT_GT(farthest(eights, 1, 24), 1);
  EXPECT_GT(farthest(ones, 1, 21), 1);
}

/// Where a number lies so near to a half that f32 rounds it up, a right sum is off by the whole
/// step, and by what its other terms are off by.
TEST(Bounds, OfAStepCoverItAndWhatIsBesideIt) {
  constexpr std::size_t kRows = 2000, kTerms = 60;
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f32\nloops: {i: 2000, k: 60}\noperators:\n  - Q[i,k] = X[i,k] * 127\n"
      "  - R[i,k] = round(Q[i,k])\n  - Y[i] += R[i,k] * Z[k]\noutputs: [Y]\n"
      "tensors: {X: [2000, 60], Z: [60]}\n",
      "t");
  TensorValues inputs = random_inputs(w, 3);
  std::vector<double>&x = inputs[w.find_tensor("X")->index()],
  &z = inputs[w.find_tensor("Z")->index()];
  std::mt19937 random(7);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((static_cast<double>(random() % 100) + (i % kTerms == 0 ? 0.5 : 0)) /
                              127);
  z[0] = static_cast<float>(0.284);
  const Bounded all = evaluate_bounded(w, inputs);
  int steps = 0;
  double worst = 0;
  for (std::size_t i = 0; i < kRows; ++i) {
    float sum = 0;
    for (std::size_t k = 0; k < kTerms; ++k)
      sum +=
          std::nearbyint(static_cast<float>(x[i * kTerms + k]) * 127.0F) * static_cast<float>(z[k]);
    const double off = std::abs(sum - of(w, all.values, "Y")[i]), bound = of(w, all.bounds, "Y")[i];
    steps += off > 0.2;
    worst = std::max(worst, off / bound);
    EXPECT_LT(bound, 0.45) << i;
  }
  EXPECT_GT(steps, 10);
  EXPECT_LE(worst, 1);
}

}  // namespace
}  // namespace tilewright
