// Does the evaluator agree with nests written out by hand?
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/base/error.h"
#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/reference/rounding.h"
#include "core/workload/text.h"

namespace tilewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const std::vector<double>& of(const Workload& w, const TensorValues& v, const std::string& name) {
  return v[w.find_tensor(name)->index()];
}

double error(const std::vector<double>& got, const std::vector<double>& wanted) {
  return relative_error(std::span<const double>(got), wanted);
}

TEST(RandomInputs, ThatNoMachineHoldsAreBadInput) {
  const Workload w = workload_from_yaml(
      "loops: {m: 1000000000, n: 500000000}\noperators: [\"B[m,n] = A[m,n]\"]\n", "huge");
  EXPECT_THROW(random_inputs(w, 1), InputError);
}

/// A workload of f64 tensors, so that no input is rounded.
Workload make(const std::string& loops, const std::string& operators,
              const std::string& tensors = "") {
  return workload_from_yaml("name: test\ndtype: f64\nloops: {" + loops + "}\n" +
                                (tensors.empty() ? "" : "tensors: {" + tensors + "}\n") +
                                "operators:\n" + operators,
                            "test");
}

TEST(Evaluate, GemmChainAgreesWithTripleLoops) {
  constexpr int M = 37, N = 21, K = 19, L = 45;
  const Workload w = make("m: 37, n: 21, k: 19, l: 45",
                          "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n");
  const TensorValues in = random_inputs(w, 1);
  const TensorValues out = evaluate(w, in);
  std::vector<double> c(M * L), e(M * N);
  for (int m = 0; m < M; ++m)
    for (int l = 0; l < L; ++l)
      for (int k = 0; k < K; ++k)
        c[m * L + l] += of(w, in, "A")[m * K + k] * of(w, in, "B")[k * L + l];
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n)
      for (int l = 0; l < L; ++l) e[m * N + n] += c[m * L + l] * of(w, in, "D")[l * N + n];
  EXPECT_LT(error(of(w, out, "C"), c), 1e-13);
  EXPECT_LT(error(of(w, out, "E"), e), 1e-13);
}

Workload lookup(const std::string& operators) {
  return workload_from_yaml(
      "name: test\ndtype: f64\nloops: {b: 7, d: 5}\ntensors: {table: [11, d], ids: [b]}\n"
      "dtypes: {ids: i32}\noperators:\n" +
          operators,
      "test");
}

TEST(Evaluate, GatherReadsByValue) {
  const Workload w = lookup("  - y[b,d] = 2 * table[ids[b],d] + ids[b]\n");
  TensorValues in = random_inputs(w, 3);
  for (double id : of(w, in, "ids")) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 11);
    EXPECT_EQ(id, std::floor(id));
  }
  in[w.find_tensor("ids")->index()] = {3, 0, 10, -1, 11, 3, 7};  // two outside: zero
  const TensorValues out = evaluate(w, in);
  std::vector<double> wanted;
  for (double id : of(w, in, "ids"))
    for (int d = 0; d < 5; ++d) {
      const bool inside = id >= 0 && id < 11;
      const double row =
          inside
              ? of(w, in, "table")[static_cast<std::size_t>(id) * 5 + static_cast<std::size_t>(d)]
              : 0.0;
      wanted.push_back(2 * row + id);
    }
  EXPECT_EQ(of(w, out, "y"), wanted);
}

TEST(Evaluate, GatherIsSummedOver) {
  const Workload w = lookup("  - y[d] += table[ids[b],d] * table[ids[b],d]\n");
  const TensorValues in = random_inputs(w, 4);
  std::vector<double> wanted(5);
  for (double id : of(w, in, "ids"))
    for (std::size_t d = 0; d < 5; ++d)
      wanted[d] += std::pow(of(w, in, "table")[static_cast<std::size_t>(id) * 5 + d], 2);
  EXPECT_LT(error(of(w, evaluate(w, in), "y"), wanted), 1e-14);
}

TEST(Evaluate, ContractionTakesAnyOrderOfDimensions) {
  constexpr int B = 3, M = 17, N = 11, K = 23, J = 2;
  const Workload w =
      make("b: 3, m: 17, n: 11, k: 23, j: 2", "  - C[n,b,m] += X[k,m,b,j] * Y[n,j,b,k]\n");
  const TensorValues in = random_inputs(w, 2);
  const auto &x = of(w, in, "X"), &y = of(w, in, "Y");
  std::vector<double> c(N * B * M);
  for (int n = 0; n < N; ++n)
    for (int b = 0; b < B; ++b)
      for (int m = 0; m < M; ++m)
        for (int k = 0; k < K; ++k)
          for (int j = 0; j < J; ++j)
            c[(n * B + b) * M + m] +=
                x[((k * M + m) * B + b) * J + j] * y[((n * J + j) * B + b) * K + k];
  EXPECT_LT(error(of(w, evaluate(w, in), "C"), c), 1e-13);
}

// The same sum of products through matrix products and, made no product of two inputs, without.
TEST(Evaluate, MatrixProductsAgreeWithTheLoopNest) {
  for (const std::string body :
       {"A[m,k] * B[k,n]", "A[k,m] * A[k,n]", "A[m,k] * B[n,2*k+1]", "A[m+k,k] * B[n,k]",
        "A[m,-k+40] * B[k,n]", "A[m-3,k] * B[k,n+2]"}) {
    const std::string shapes = "A: [70, 70], B: [85, 85]";
    const Workload fast = make("m: 29, n: 31, k: 41", "  - C[m,n] += " + body + "\n",
                               body.find('B') == std::string::npos ? "A: [70, 70]" : shapes);
    const Workload slow = make("m: 29, n: 31, k: 41", "  - C[m,n] += (" + body + ") * 1\n",
                               body.find('B') == std::string::npos ? "A: [70, 70]" : shapes);
    const TensorValues in = random_inputs(fast, 3);
    EXPECT_LT(error(of(fast, evaluate(fast, in), "C"), of(slow, evaluate(slow, in), "C")), 1e-13)
        << body;
  }
}

TEST(Evaluate, ConvolutionReadsPaddingAsZero) {
  constexpr int IC = 5, OC = 7, H = 13, W = 9, OH = 7, OW = 5;
  const Workload w = make("oc: 7, ic: 5, h: 7, w: 5, r: 3, s: 3",
                          "  - O[oc,h,w] += I[ic, 2*h + r - 1, 2*w + s - 1] * F[oc, ic, r, s]\n",
                          "I: [ic, 13, 9]");
  const TensorValues in = random_inputs(w, 4);
  const auto &image = of(w, in, "I"), &filter = of(w, in, "F");
  std::vector<double> o(OC * OH * OW);
  for (int oc = 0; oc < OC; ++oc)
    for (int h = 0; h < OH; ++h)
      for (int x = 0; x < OW; ++x)
        for (int ic = 0; ic < IC; ++ic)
          for (int r = 0; r < 3; ++r)
            for (int s = 0; s < 3; ++s) {
              const int y = 2 * h + r - 1, z = 2 * x + s - 1;
              if (y < 0 || y >= H || z < 0 || z >= W) continue;
              o[(oc * OH + h) * OW + x] +=
                  image[(ic * H + y) * W + z] * filter[((oc * IC + ic) * 3 + r) * 3 + s];
            }
  EXPECT_LT(error(of(w, evaluate(w, in), "O"), o), 1e-13);
}

TEST(Evaluate, CombinesAndScalars) {
  const Workload w = make("i: 300",  // longer than the row that is evaluated at once
                          "  - top: T[] max= X[i]\n  - low: B[] min= X[i]\n"
                          "  - sum: S[] += X[i]\n  - prod: P[] *= X[i] + 1\n"
                          "  - back: R[i] = X[-i+299] + T[]\n");
  const TensorValues in = random_inputs(w, 5);
  const TensorValues out = evaluate(w, in);
  const auto& x = of(w, in, "X");
  EXPECT_EQ(of(w, out, "T")[0], *std::max_element(x.begin(), x.end()));
  EXPECT_EQ(of(w, out, "B")[0], *std::min_element(x.begin(), x.end()));
  EXPECT_NEAR(of(w, out, "S")[0], std::accumulate(x.begin(), x.end(), 0.0), 1e-12);
  double product = 1;
  for (double v : x) product *= v + 1;
  EXPECT_NEAR(of(w, out, "P")[0] / product, 1, 1e-12);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(of(w, out, "R")[i], x[299 - i] + of(w, out, "T")[0]);
}

TEST(Evaluate, EveryFunctionOfExpressions) {
  for (const ExprFunction& f : expr_functions()) {
    std::string args;
    const char* names[] = {"X[i]", "Y[i]", "Z[i]"};
    for (int a = 0; a < f.arity; ++a) args += (a ? ", " : "") + std::string(names[a]);
    const Workload w =
        make("i: 300", "  - O[i] = " + std::string(f.name) + "(" + args + ") + 0 * X[i]\n");
    TensorValues in = random_inputs(w, 6);
    for (double& v : in[w.find_tensor("X")->index()]) v = std::abs(v) + 0.25;
    const TensorValues out = evaluate(w, in);
    for (std::size_t i = 0; i < 300; ++i) {
      double a[3] = {};
      for (int j = 0; j < f.arity; ++j) a[j] = of(w, in, std::string(1, names[j][0]))[i];
      EXPECT_DOUBLE_EQ(of(w, out, "O")[i], f.evaluate(a)) << f.name;
    }
  }
}

TEST(Evaluate, LayerNorm) {
  constexpr int R = 5, C = 7;
  const Workload w = make("r: 5, c: 7",
                          "  - sum: t[r] += x[r,c]\n  - mean: mu[r] = t[r] / 7\n"
                          "  - sub: d[r,c] = x[r,c] - mu[r]\n  - sq: q[r,c] = d[r,c] * d[r,c]\n"
                          "  - varsum: v[r] += q[r,c]\n"
                          "  - rstd: s[r] = rsqrt(v[r] / 7 + 0.00001)\n"
                          "  - norm: y[r,c] = d[r,c] * s[r] * gain[r,c]\n");
  const TensorValues in = random_inputs(w, 7);
  const TensorValues out = evaluate(w, in);
  const auto& x = of(w, in, "x");
  for (int r = 0; r < R; ++r) {
    double mean = 0, var = 0;
    for (int c = 0; c < C; ++c) mean += x[r * C + c] / C;
    for (int c = 0; c < C; ++c) var += (x[r * C + c] - mean) * (x[r * C + c] - mean) / C;
    for (int c = 0; c < C; ++c)
      EXPECT_NEAR(of(w, out, "y")[r * C + c],
                  (x[r * C + c] - mean) / std::sqrt(var + 1e-5) * of(w, in, "gain")[r * C + c],
                  1e-12);
  }
}

constexpr const char* kAttentionLoops = "h: 2, m: 7, l: 13, k: 5, n: 3";
constexpr const char* kAttention =
    "  - qk: S[h,m,l] += Q[h,m,k] * K[h,l,k]\n"
    "  - rowmax: mx[h,m] max= S[h,m,l]\n"
    "  - exp: P[h,m,l] = exp(S[h,m,l] - mx[h,m])\n"
    "  - rowsum: sum[h,m] += P[h,m,l]\n"
    "  - pv: O[h,m,n] += P[h,m,l] * V[h,l,n]\n"
    "  - divide: E[h,m,n] = O[h,m,n] / sum[h,m]\n";
constexpr const char* kRunning =
    "  - 'qk: S[h,m,l] += Q[h,m,k] * K[h,l,k]'\n"
    "  - 'rowmax: mx[h,m] max= S[h,m,l]; shift[h,m] = before(mx) - after(mx) running'\n"
    "  - 'exp: P[h,m,l] = exp(S[h,m,l] - mx[h,m])'\n"
    "  - 'rowsum: sum[h,m] += P[h,m,l] rescale(exp(shift[h,m])) running'\n"
    "  - 'rescale: alpha[h,m] = exp(shift[h,m])'\n"
    "  - 'pv: O[h,m,n] += P[h,m,l] * V[h,l,n] rescale(alpha[h,m]) running'\n"
    "  - 'divide: E[h,m,n] = O[h,m,n] / sum[h,m]'\n";

TEST(Evaluate, RunningAttentionIsTheSameInBlocksAsWhole) {
  const Workload plain = make(kAttentionLoops, kAttention), w = make(kAttentionLoops, kRunning);
  TensorValues in = random_inputs(w, 8);
  for (double& q : in[w.find_tensor("Q")->index()]) q *= 20;  // maxima that really move
  TensorValues for_plain(plain.tensors().size());
  for (const char* name : {"Q", "K", "V"})
    for_plain[plain.find_tensor(name)->index()] = of(w, in, name);
  const TensorValues wanted = evaluate(plain, for_plain);
  for (std::int64_t block : {0, 1, 2, 3, 5, 6, 12, 13, 100}) {
    const TensorValues got = evaluate(w, in, {.running_block = block});
    for (const char* name : {"mx", "sum", "O", "E"})
      EXPECT_LT(error(of(w, got, name), of(plain, wanted, name)), 1e-12) << name << " " << block;
    // A block's probabilities are relative to the maximum so far: the rescaling was exercised.
    if (block == 1) {
      EXPECT_GT(error(of(w, got, "P"), of(plain, wanted, "P")), 0.1);
    }
    if (block == 0) {
      EXPECT_LT(error(of(w, got, "P"), of(plain, wanted, "P")), 1e-13);
      EXPECT_EQ(of(w, got, "shift")[0], -kInfinity);
      EXPECT_EQ(of(w, got, "alpha")[0], 0.0);
    }
  }
}

// Two layers over the same loop: the second's operators must not join the first's blocks.
TEST(Evaluate, RunningGroupsOverTheSameLoopStaySeparate) {
  const std::string second =
      "  - 'qk2: S2[h,m,l] += E[h,m,n] * K2[h,l,n]'\n"
      "  - 'rowmax2: mx2[h,m] max= S2[h,m,l]; shift2[h,m] = before(mx2) - after(mx2) running'\n"
      "  - 'exp2: P2[h,m,l] = exp(S2[h,m,l] - mx2[h,m])'\n"
      "  - 'rowsum2: sum2[h,m] += P2[h,m,l] rescale(exp(shift2[h,m])) running'\n";
  const Workload w = make(kAttentionLoops, kRunning + second);
  const TensorValues in = random_inputs(w, 9);
  const TensorValues whole = evaluate(w, in), blocks = evaluate(w, in, {.running_block = 4});
  for (const char* name : {"E", "S2", "sum2"})
    EXPECT_LT(error(of(w, blocks, name), of(w, whole, name)), 1e-12) << name;
}

TEST(Evaluate, RefusesBlocksOfWhatIsNotRunning) {
  // sum is complete only after l, but pv wants it inside.
  const Workload w =
      make("m: 4, l: 6, n: 3",
           "  - 'rowmax: mx[m] max= S[m,l]; shift[m] = before(mx) - after(mx) running'\n"
           "  - 'exp: P[m,l] = exp(S[m,l] - mx[m])'\n  - 'rowsum: sum[m] += P[m,l]'\n"
           "  - 'norm: N[m,l] = P[m,l] / sum[m]'\n"
           "  - 'pv: O[m,n] += N[m,l] * V[l,n] rescale(exp(shift[m])) running'\n");
  EXPECT_NO_THROW(evaluate(w, random_inputs(w, 1)));
  EXPECT_THROW(evaluate(w, random_inputs(w, 1), {.running_block = 2}), InputError);
}

TEST(Evaluate, IndicesAreThoseOfTheWholeLoop) {
  // Rows longer than those that are evaluated together, reductions, several threads.
  constexpr std::size_t I = 70, J = 1000;
  const Workload w =
      make("i: 70, j: 1000",
           "  - Y[i,j] = i + 1000 * j + X[i,j]\n"
           "  - S[i] += select(lt(j, i), j, 0) * X[i,j]\n"
           "  - T[j,i] = select(lt(i - 3, j), select(lt(j, 2 * i + 1), X[i,j], 7), -i)\n"
           "  - C[i] = 0.5 * i\n");
  const TensorValues in = random_inputs(w, 5);
  const auto& x = of(w, in, "X");
  std::vector<double> y, s(I), t(I * J), c;
  for (std::size_t i = 0; i < I; ++i) {
    c.push_back(0.5 * static_cast<double>(i));
    for (std::size_t j = 0; j < J; ++j) {
      const double v = x[i * J + j];
      y.push_back(static_cast<double>(i + 1000 * j) + v);
      if (j < i) s[i] += static_cast<double>(j) * v;
      t[j * I + i] = i < j + 3 ? (j < 2 * i + 1 ? v : 7.0) : -static_cast<double>(i);
    }
  }
  for (int threads : {1, 3}) {
    const TensorValues out = evaluate(w, in, {.threads = threads});
    EXPECT_EQ(of(w, out, "Y"), y);
    EXPECT_EQ(of(w, out, "T"), t);
    EXPECT_EQ(of(w, out, "C"), c);
    EXPECT_LT(error(of(w, out, "S"), s), 1e-13);
  }
}

TEST(Evaluate, CausalAttentionAgreesWithLoops) {
  for (const std::string more : {"", ",online=1", ",scale=1", ",scale=1,online=1"}) {
    constexpr std::size_t M = 7, L = 12, K = 5, N = 3, kMore = L - M;
    const Workload w = named_workload("attention:m=7,l=12,k=5,n=3,dtype=f64,causal=1" + more);
    TensorValues in = random_inputs(w, 6);
    for (double& q : in[w.find_tensor("Q")->index()]) q *= 20;
    const auto &q = of(w, in, "Q"), &k = of(w, in, "K"), &v = of(w, in, "V");
    const double scale = more.find("scale") == std::string::npos ? 1 : 1 / std::sqrt(5.0);
    std::vector<double> e(M * N);
    for (std::size_t m = 0; m < M; ++m) {
      std::vector<double> p;
      double most = -kInfinity, sum = 0;
      for (std::size_t l = 0; l <= m + kMore; ++l) {
        double dot = 0;
        for (std::size_t i = 0; i < K; ++i) dot += q[m * K + i] * k[l * K + i];
        p.push_back(dot * scale);
        most = std::max(most, p.back());
      }
      for (double& x : p) sum += x = std::exp(x - most);
      for (std::size_t l = 0; l < p.size(); ++l)
        for (std::size_t n = 0; n < N; ++n) e[m * N + n] += p[l] / sum * v[l * N + n];
    }
    for (std::int64_t block : {0, 1, 2, 5}) {
      if (block > 0 && more.find("online") == std::string::npos) continue;
      const TensorValues got = evaluate(w, in, {.running_block = block});
      EXPECT_LT(error(of(w, got, "E"), e), 1e-12) << more << " " << block;
    }
  }
}

TEST(Evaluate, RefusesInputsOfTheWrongSize) {
  const Workload w = make("i: 4", "  - Y[i] = X[i]\n");
  EXPECT_THROW(evaluate(w, {}), InputError);
  EXPECT_THROW(evaluate(w, {{1, 2, 3}, {}}), InputError);
  EXPECT_THROW(evaluate(w, random_inputs(w, 1), {.running_block = -1}), InputError);
}

TEST(RandomInputs, AreTheSameEverywhere) {
  const Workload w = make("i: 3, j: 2", "  - Y[i,j] = X[i] * Z[j]\n");
  const TensorValues in = random_inputs(w, 42);
  // From the definition: mt19937_64(42)'s first outputs, top 53 bits.
  std::mt19937_64 engine(42);
  EXPECT_EQ(engine(), 13930160852258120406u);
  EXPECT_EQ(of(w, in, "X")[0], std::ldexp(13930160852258120406u >> 11, -52) - 1);
  EXPECT_EQ(of(w, in, "X").size(), 3u);
  EXPECT_EQ(of(w, in, "Z").size(), 2u);
  EXPECT_TRUE(of(w, in, "Y").empty());
  EXPECT_EQ(in, random_inputs(w, 42));
  EXPECT_NE(in, random_inputs(w, 43));
}

TEST(RandomInputs, FitTheTypeAndTheRange) {
  for (const char* type : {"f16", "bf16", "f32", "f64", "i8"}) {
    const Workload w = workload_from_yaml("name: t\ndtype: " + std::string(type) +
                                              "\nloops: {i: 5000}\noperators: [\"Y[i] = X[i]\"]\n",
                                          "test");
    double low = 0, high = 0;
    const TensorValues inputs = random_inputs(w, 7);
    for (double x : of(w, inputs, "X")) {
      ASSERT_EQ(x, round_to(w.dtype(), x));
      low = std::min(low, x);
      high = std::max(high, x);
    }
    EXPECT_LT(low, -0.99) << type;
    EXPECT_GE(low, -1) << type;
    EXPECT_GT(high, 0.99) << type;
    EXPECT_LE(high, 1) << type;
  }
}

TEST(RoundTo, FloatsTieToEvenAndOverflow) {
  EXPECT_EQ(round_to(DType::f16, 1 + 0x1p-11), 1.0);             // tie, down to even
  EXPECT_EQ(round_to(DType::f16, 1 + 3 * 0x1p-11), 1 + 0x1p-9);  // tie, up to even
  EXPECT_EQ(round_to(DType::f16, 0.1), 0.0999755859375);
  EXPECT_EQ(round_to(DType::f16, 65519.999), 65504.0);
  EXPECT_EQ(round_to(DType::f16, -65520.0), -kInfinity);
  EXPECT_EQ(round_to(DType::f16, 0x1p-24), 0x1p-24);  // least subnormal
  EXPECT_EQ(round_to(DType::f16, 0x1p-25), 0.0);
  EXPECT_EQ(round_to(DType::bf16, 1 + 0x1p-8), 1.0);
  EXPECT_EQ(round_to(DType::bf16, 3.0e38 * 2), kInfinity);
  EXPECT_EQ(round_to(DType::f64, 0.1), 0.1);
  EXPECT_TRUE(std::isnan(round_to(DType::f16, kNan)));
  EXPECT_EQ(round_to(DType::i8, 2.5), 2.0);
  EXPECT_EQ(round_to(DType::i8, -1000), -128.0);
  std::mt19937_64 engine(11);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::ldexp(static_cast<double>(engine() >> 11) * 0x1p-52 - 1,
                                static_cast<int>(engine() % 300) - 160);
    ASSERT_EQ(round_to(DType::f32, x), static_cast<double>(static_cast<float>(x))) << x;
  }
}

TEST(RelativeError, IsOfTheLargestReference) {
  const std::vector<double> reference{1, -4, 2};
  EXPECT_EQ(relative_error(std::vector<float>{1, -4, 2}, reference), 0);
  EXPECT_EQ(relative_error(std::vector<float>{1.5f, -4, 2}, reference), 0.125);
  EXPECT_EQ(relative_error(std::vector<float>{1, -4, NAN}, reference), kInfinity);
  EXPECT_EQ(relative_error(std::vector<float>{INFINITY, -4, 2}, reference), kInfinity);
  // NaN in both: right, but not of many elements.
  std::vector<float> got(20, 2);
  std::vector<double> wanted(20, 4);
  got[7] = NAN;
  EXPECT_EQ(relative_error(got, wanted), kInfinity);
  wanted[7] = NAN;
  EXPECT_EQ(relative_error(got, wanted), 0.5);
  got[8] = NAN;
  EXPECT_EQ(relative_error(got, wanted), kInfinity);
  wanted[8] = NAN;
  EXPECT_EQ(relative_error(got, wanted), kInfinity);
  EXPECT_EQ(relative_error(std::vector<float>{0, 0}, std::vector<double>{0, 0}), 0);
  EXPECT_EQ(relative_error(std::vector<float>{0, 1}, std::vector<double>{0, 0}), kInfinity);
  EXPECT_EQ(relative_error(std::vector<float>{}, std::vector<double>{}), 0);
}

// A kernel is given rounded inputs, so the reference evaluates those.
TEST(Evaluate, RoundsInputsToTheirType) {
  const Workload w = workload_from_yaml(
      "name: t\ndtype: f16\nloops: {i: 1}\noperators: [\"Y[i] = X[i] * 3\"]\n", "test");
  TensorValues in(2);
  in[w.find_tensor("X")->index()] = {0.1};
  EXPECT_EQ(of(w, evaluate(w, in), "Y")[0], 3 * 0.0999755859375);
}

// Large enough that every way to cut work into pieces is taken: rows, columns, parts of a reduction
// to a scalar, gathers and matrix products.
Workload cut_in_pieces() {
  return workload_from_yaml(R"(
name: t
dtype: f32
loops: {r: 3001, c: 1500, k: 40, h: 50, w: 8}
tensors: {ids: [r, k], table: [97, w]}
dtypes: {ids: i32}
operators:
  - sum[r] += X[r,c]
  - most[r] max= X[r,c] * gain[c]
  - Y[r,c] = exp(X[r,c] - most[r]) / 3 + max(sum[r], 0.5)
  - column[c] += Y[r,c] * X[r,c]
  - all[] += Y[r,c]
  - highest[] max= Y[r,c] + gain[c]
  - G[r,k,w] = table[ids[r,k],w] * 2
  - picked[w] += table[ids[r,k],w]
  - P[k,h] += A[k,r] * B[r,h]
outputs: [sum, Y, column, all, highest, G, picked, P]
)",
                            "test");
}

TEST(Evaluate, DoesNotDependOnTheNumberOfThreads) {
  const Workload w = cut_in_pieces();
  const TensorValues in = random_inputs(w, 3);
  const TensorValues one = evaluate(w, in, {.threads = 1});
  EXPECT_EQ(one, evaluate(w, in, {.threads = 5}));
  EXPECT_EQ(one, evaluate(w, in));
}

// Held against plain loops: no element is left out or counted twice where the work is cut.
TEST(Evaluate, WorkInPiecesAgreesWithPlainLoops) {
  const Workload w = cut_in_pieces();
  const TensorValues in = random_inputs(w, 3);
  const TensorValues out = evaluate(w, in, {.threads = 3});
  const auto &x = of(w, in, "X"), &gain = of(w, in, "gain"), &y = of(w, out, "Y");
  constexpr std::size_t kRows = 3001, kColumns = 1500;
  std::vector<double> sum(kRows), column(kColumns), all(1), highest(1, -kInfinity);
  for (std::size_t r = 0; r < kRows; ++r) {
    double most = -kInfinity;
    for (std::size_t c = 0; c < kColumns; ++c) {
      sum[r] += x[r * kColumns + c];
      most = std::max(most, x[r * kColumns + c] * gain[c]);
    }
    for (std::size_t c = 0; c < kColumns; ++c) {
      const double wanted = std::exp(x[r * kColumns + c] - most) / 3 + std::max(sum[r], 0.5);
      ASSERT_NEAR(y[r * kColumns + c], wanted, 1e-11);
      column[c] += wanted * x[r * kColumns + c];
      all[0] += wanted;
      highest[0] = std::max(highest[0], wanted + gain[c]);
    }
  }
  EXPECT_LT(error(of(w, out, "sum"), sum), 1e-13);
  EXPECT_LT(error(of(w, out, "column"), column), 1e-12);
  EXPECT_LT(error(of(w, out, "all"), all), 1e-12);
  EXPECT_LT(error(of(w, out, "highest"), highest), 1e-12);
  const auto &ids = of(w, in, "ids"), &table = of(w, in, "table"), &g = of(w, out, "G");
  std::vector<double> picked(8);
  for (std::size_t i = 0; i < ids.size(); ++i)
    for (std::size_t l = 0; l < 8; ++l) {
      const double value = table[static_cast<std::size_t>(ids[i]) * 8 + l];
      ASSERT_EQ(g[i * 8 + l], 2 * value);
      picked[l] += value;
    }
  EXPECT_LT(error(of(w, out, "picked"), picked), 1e-12);
}

TEST(Evaluate, OutputsOnlyAreTheSame) {
  const Workload w = cut_in_pieces();
  const TensorValues in = random_inputs(w, 5);
  const TensorValues all = evaluate(w, in), some = evaluate(w, in, {.outputs_only = true});
  for (TensorId t : w.outputs()) EXPECT_EQ(all[t.index()], some[t.index()]);
  EXPECT_TRUE(of(w, some, "most").empty());
  EXPECT_TRUE(of(w, some, "X").empty());
}

// Inputs that come back serve the next evaluation, whose results take the last ones' memory.
TEST(Evaluate, KeptInputsAndTheirResultsServeAgain) {
  const Workload w = cut_in_pieces();
  const TensorValues in = random_inputs(w, 5), all = evaluate(w, in);
  const EvaluateOptions kept{.outputs_only = true, .inputs_kept = true};
  TensorValues again = evaluate(w, in, kept);
  EXPECT_EQ(of(w, again, "X"), of(w, in, "X"));
  std::vector<const double*> first;
  for (TensorId t : w.outputs()) {
    std::fill(again[t.index()].begin(), again[t.index()].end(), 1e30);
    first.push_back(again[t.index()].data());
  }
  again = evaluate(w, std::move(again), kept);
  for (std::size_t o = 0; o < w.outputs().size(); ++o) {
    const std::size_t t = w.outputs()[o].index();
    EXPECT_EQ(again[t], all[t]);
    EXPECT_EQ(again[t].data(), first[o]);
  }
  EXPECT_TRUE(of(w, again, "most").empty());
}

// Whether a value near a type's end becomes an infinity is up to its last rounding.
TEST(RelativeError, AnInfinityOfSixteenBitsIsTheEndOfItsRange) {
  const auto error = [](DType type, std::vector<double> got, const std::vector<double>& reference) {
    std::vector<std::byte> memory(got.size() * sizeof(double));
    encode_elements(type, got, memory.data());
    return relative_error(type, memory.data(), reference);
  };
  EXPECT_EQ(error(DType::f16, {1, 1e6}, {1, 65472}), 32.0 / 65472);
  EXPECT_EQ(error(DType::f16, {1, 65472}, {1, kInfinity}), 32.0 / 65504);
  EXPECT_EQ(error(DType::f16, {2, -kInfinity}, {2, -kInfinity}), 0);
  EXPECT_GT(error(DType::f16, {1, 1e6}, {1, 100}), 600);
  EXPECT_EQ(error(DType::f16, {1, 5}, {1, kInfinity}), (65504.0 - 5) / 65504);
  EXPECT_EQ(error(DType::f16, {1, -kInfinity}, {1, kInfinity}), 2);
  EXPECT_LT(error(DType::bf16, {1, kInfinity}, {1, 0x1.FCp127}), 0.01);
  EXPECT_EQ(error(DType::f32, {1, kInfinity}, {1, 0x1.FCp127}), kInfinity);
  EXPECT_EQ(error(DType::f16, {kNan, 1}, {1, kInfinity}), kInfinity);
}

// Elements as a kernel has them, in every place of a piece and of a lane.
TEST(RelativeError, OfElementsFindsTheOneThatIsWrong) {
  constexpr std::size_t n = 70001;
  const std::vector<double> reference(n, 2.0);
  for (const DType type :
       {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i32}) {
    std::vector<std::byte> memory(n * sizeof(double));
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{3}, n / 2 + 1, n - 1}) {
      std::vector<double> values(reference);
      encode_elements(type, values, memory.data());
      EXPECT_EQ(relative_error(type, memory.data(), reference), 0);
      values[wrong] = 3;
      encode_elements(type, values, memory.data());
      EXPECT_EQ(relative_error(type, memory.data(), reference), 0.5) << wrong;
      if (type == DType::i8 || type == DType::i32) continue;
      values[wrong] = kNan;
      encode_elements(type, values, memory.data());
      EXPECT_EQ(relative_error(type, memory.data(), reference), kInfinity) << wrong;
    }
    fill_with_nan(type, n, memory.data());
    for (double x : decode_elements(type, memory.data(), n))
      ASSERT_TRUE(std::isnan(x) || x == std::numeric_limits<std::int32_t>::min() || x == -128);
  }
}

}  // namespace
}  // namespace tilewright
