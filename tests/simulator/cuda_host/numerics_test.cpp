// Do the device functions compute what the GPU's instructions do, bit for bit where those are
// exact?
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/simulator/cuda_host/support.h"

namespace tilewright::cuda_host {
namespace {

using tw_half::bf16_of_float;
using tw_half::f16_of_float;
using tw_half::float_of_bf16;
using tw_half::float_of_f16;

const Built& built() {
  static const Built all("numerics.cu",
                         {"round_to", "widen", "multiply_f16", "multiply_bf16", "multiply_wmma",
                          "wrong_operand", "shuffles", "atomics", "stencil", "plain"});
  return all;
}

Report run(const Launch& launch, const std::vector<Tensor>& tensors, std::int64_t workspace = 0) {
  auto report = built().module.run(std::span(&launch, 1), tensors, {.workspace_bytes = workspace});
  EXPECT_TRUE(report) << (report ? "" : report.reason());
  return report ? *report : Report{};
}

std::vector<int> first(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = i;
  return all;
}

/// The value of a float format with `mantissa` stored bits and this exponent bias, by its
/// definition.
double value_of(unsigned bits, int mantissa, int exponent_bits) {
  const int exponent = static_cast<int>(bits >> mantissa) & ((1 << exponent_bits) - 1);
  const double fraction = bits & ((1U << mantissa) - 1);
  const double sign = (bits >> (mantissa + exponent_bits) & 1U) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(1 + std::ldexp(fraction, -mantissa), exponent - bias);
}

/// The nearest representable value, ties to the even pattern, by looking at the neighbours.
std::uint16_t rounded(float x, int mantissa, int exponent_bits) {
  if (std::isnan(x)) return 0x7fff;
  const unsigned sign = std::signbit(x) ? 0x8000U : 0;
  const double magnitude = std::abs(static_cast<double>(x));
  const unsigned infinity = ((1U << exponent_bits) - 1) << mantissa;
  unsigned low = 0, high = infinity;  // the largest pattern whose value is at most |x|
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (value_of(middle, mantissa, exponent_bits) <= magnitude ? low : high) = middle;
  }
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
  // Beyond the largest finite value, the next one is what infinity stands for when rounding.
  const double below = value_of(low, mantissa, exponent_bits);
  const double above = high == infinity ? std::ldexp(1, 1 << (exponent_bits - 1))
                                        : value_of(high, mantissa, exponent_bits);
  const double down = magnitude - below, up = above - magnitude;
  return static_cast<std::uint16_t>(sign |
                                    (down < up || (down == up && low % 2 == 0) ? low : high));
}

TEST(CudaHostHalves, EveryPatternWidensToItsValue) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double half = value_of(i, 10, 5), bfloat = value_of(i, 7, 8);
    if (std::isnan(half))
      ASSERT_TRUE(std::isnan(float_of_f16(bits))) << i;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(float_of_f16(bits)),
                std::bit_cast<std::uint32_t>(static_cast<float>(half)))
          << i;
    if (std::isnan(bfloat))
      ASSERT_TRUE(std::isnan(float_of_bf16(bits))) << i;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(float_of_bf16(bits)),
                std::bit_cast<std::uint32_t>(static_cast<float>(bfloat)))
          << i;
    if (!std::isnan(half)) {
      ASSERT_EQ(f16_of_float(float_of_f16(bits)), bits);
    }
    if (!std::isnan(bfloat)) {
      ASSERT_EQ(bf16_of_float(float_of_bf16(bits)), bits);
    }
  }
}

void expect_rounded(float x) {
  ASSERT_EQ(f16_of_float(x), rounded(x, 10, 5)) << std::hexfloat << x;
  ASSERT_EQ(bf16_of_float(x), rounded(x, 7, 8)) << std::hexfloat << x;
}

TEST(CudaHostHalves, TiesBetweenAllNeighboursGoToTheEvenOne) {
  for (unsigned i = 0; i < 0x8000; ++i) {
    for (const bool bfloat : {false, true}) {
      const int mantissa = bfloat ? 7 : 10, exponent_bits = bfloat ? 8 : 5;
      const double low = value_of(i, mantissa, exponent_bits),
                   high = value_of(i + 1, mantissa, exponent_bits);
      if (!std::isfinite(low)) continue;
      const auto tie = static_cast<float>(std::isfinite(high) ? (low + high) / 2 : low);
      for (const float x : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, INFINITY)}) {
        expect_rounded(x);
        expect_rounded(-x);
      }
    }
  }
}

TEST(CudaHostHalves, RandomFloatsRoundToTheNearest) {
  std::mt19937 random(7);
  for (int i = 0; i < 300000; ++i)
    expect_rounded(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (const float x :
       {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 65504.0F, 65519.996F, 65520.0F, 65536.0F,
        std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()})
    expect_rounded(x);
}

TEST(CudaHostNumerics, KernelsRoundAsTheHostDoes) {
  std::vector<float> x(256), a(256), b(256);
  std::mt19937 random(3);
  for (float& v : x) v = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0xbfffffffU);
  std::vector<std::uint16_t> half(256), bfloat(256);
  std::vector<std::uint32_t> packed(512);
  const Report report = run({.kernel = "round_to", .tensors = first(4), .blocks = 4, .threads = 64},
                            {tensor("x", x), tensor("half", half, false),
                             tensor("bfloat", bfloat, false), tensor("packed", packed, false)});
  EXPECT_TRUE(report.clean()) << texts(report);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(half[i], rounded(x[i], 10, 5));
    ASSERT_EQ(bfloat[i], rounded(x[i], 7, 8));
    ASSERT_EQ(packed[2 * i], rounded(x[i], 10, 5) | std::uint32_t{rounded(-x[i], 10, 5)} << 16);
    ASSERT_EQ(packed[2 * i + 1], rounded(-x[i], 7, 8) | std::uint32_t{rounded(x[i], 7, 8)} << 16);
  }
  run({.kernel = "widen", .tensors = first(4), .blocks = 4, .threads = 64},
      {tensor("half", half), tensor("bfloat", bfloat), tensor("a", a, false),
       tensor("b", b, false)});
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(a[i], static_cast<float>(value_of(half[i], 10, 5)));
    EXPECT_EQ(b[i], static_cast<float>(value_of(bfloat[i], 7, 8)));
  }
}

/// Sums in f32, in the order of k.
std::vector<float> plain_product(const std::vector<float>& a, const std::vector<float>& b,
                                 float start) {
  std::vector<float> c(256, start);
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 16; ++j)
      for (std::size_t k = 0; k < 16; ++k) c[i * 16 + j] += a[i * 16 + k] * b[k * 16 + j];
  return c;
}

std::vector<std::uint16_t> transposed(const std::vector<std::uint16_t>& x) {
  std::vector<std::uint16_t> y(256);
  for (std::size_t i = 0; i < 256; ++i) y[i % 16 * 16 + i / 16] = x[i];
  return y;
}

template <class F>
std::vector<float> widened(const std::vector<std::uint16_t>& x, F&& to_float) {
  std::vector<float> y;
  for (const std::uint16_t v : x) y.push_back(to_float(v));
  return y;
}

TEST(CudaHostNumerics, MmaIsTheProductOfWhatLdmatrixLoads) {
  for (const bool bfloat : {false, true}) {
    std::vector<std::uint16_t> a = random_f16(256, 4), b = random_f16(256, 5);
    if (bfloat)
      for (auto* m : {&a, &b})
        for (auto& v : *m) v = bf16_of_float(float_of_f16(v));
    std::vector<std::uint16_t> bt = transposed(b);
    std::vector<float> c(256), ct(256);
    const Report report = run({.kernel = bfloat ? "multiply_bf16" : "multiply_f16",
                               .tensors = first(5),
                               .threads = 32,
                               .shared_bytes = 1536},
                              {tensor("a", a), tensor("b", b), tensor("bt", bt),
                               tensor("c", c, false), tensor("ct", ct, false)});
    EXPECT_TRUE(report.clean()) << texts(report);
    const auto to_float = [&](std::uint16_t v) {
      return bfloat ? float_of_bf16(v) : float_of_f16(v);
    };
    const auto wide_a = widened(a, to_float), wide_b = widened(b, to_float);
    EXPECT_EQ(c, plain_product(wide_a, wide_b, 1));
    EXPECT_EQ(ct, plain_product(wide_a, wide_b, 0));
    EXPECT_EQ(report.launches[0].mma, 4);
    EXPECT_EQ(report.launches[0].ldmatrix, 3);
    EXPECT_EQ(report.launches[0].shared_read, 3 * 512);
    EXPECT_EQ(report.launches[0].shared_written, 3 * 512);
  }
}

TEST(CudaHostNumerics, WmmaMultipliesWhateverTheLayout) {
  std::vector<std::uint16_t> a = random_f16(256, 6), b = random_f16(256, 7);
  std::vector<std::uint16_t> at = transposed(a), bt = transposed(b);
  std::vector<float> c(1024);
  const Report report = run(
      {.kernel = "multiply_wmma", .tensors = first(5), .threads = 32, .shared_bytes = 4096 + 1280},
      {tensor("a", a), tensor("b", b), tensor("at", at), tensor("bt", bt), tensor("c", c, false)});
  EXPECT_TRUE(report.clean()) << texts(report);
  const auto expected = plain_product(widened(a, float_of_f16), widened(b, float_of_f16), 2);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), c.begin() + static_cast<int>(256 * i)))
        << i;
}

TEST(CudaHostNumerics, AnOperandOfTheOtherSideIsFound) {
  std::vector<std::uint16_t> a = random_f16(256, 8);
  std::vector<float> c(32);
  const Report report =
      run({.kernel = "wrong_operand", .tensors = first(2), .threads = 32, .shared_bytes = 512},
          {tensor("a", a), tensor("c", c, false)});
  ASSERT_EQ(report.findings.size(), 1U) << texts(report);
  EXPECT_EQ(report.findings[0].fault, Fault::bad_argument);
  EXPECT_EQ(report.findings[0].place.line, built().line("// wrong operand"));
}

TEST(CudaHostNumerics, ShufflesAndBallots) {
  std::vector<float> in(32), out(160);
  for (std::size_t i = 0; i < 32; ++i) in[i] = static_cast<float>(i) - 10;
  std::vector<std::uint32_t> votes(32);
  const Report report =
      run({.kernel = "shuffles", .tensors = first(3), .threads = 32},
          {tensor("in", in), tensor("out", out, false), tensor("votes", votes, false)});
  EXPECT_TRUE(report.clean()) << texts(report);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 32 * 31 / 2 - 320);
    EXPECT_EQ(out[32 + i], in[i ^ 5]);
    EXPECT_EQ(out[64 + i], in[i + 3 < 32 ? i + 3 : i]);
    EXPECT_EQ(out[96 + i], in[7]);
    EXPECT_EQ(out[128 + i], in[i / 2]);
    EXPECT_EQ(votes[i], 0xffffffffU << 11);
  }
}

TEST(CudaHostNumerics, AtomicsAddInTheirOwnType) {
  std::vector<float> in(128), f(32, 1);
  std::mt19937 random(9);
  for (float& v : in) v = std::uniform_real_distribution<float>(-1, 1)(random);
  in[5] = std::numeric_limits<float>::denorm_min();
  f[5] = 0;
  for (int b = 1; b < 4; ++b) in[static_cast<std::size_t>(32 * b + 5)] = 0;
  std::vector<double> d(32, 1);
  std::vector<std::uint16_t> h(32, f16_of_float(1)), b(32, bf16_of_float(1));
  const Report report =
      run({.kernel = "atomics", .tensors = first(5), .blocks = 4, .threads = 32},
          {tensor("in", in), tensor("f", f), tensor("d", d), tensor("h", h), tensor("b", b)});
  EXPECT_TRUE(report.clean()) << texts(report);
  for (std::size_t i = 0; i < 32; ++i) {
    float sum = i == 5 ? 0.0F : 1.0F;
    double exact = 1;
    std::uint16_t half = f16_of_float(1), bfloat = bf16_of_float(1);
    for (std::size_t k = 0; k < 4; ++k) {
      const float x = in[32 * k + i];
      sum += i == 5 ? 0.0F : x;  // a subnormal addend counts as zero
      exact += x;
      half = rounded(static_cast<float>(value_of(half, 10, 5) + value_of(rounded(x, 10, 5), 10, 5)),
                     10, 5);
      bfloat = rounded(
          static_cast<float>(value_of(bfloat, 7, 8) + value_of(rounded(x, 7, 8), 7, 8)), 7, 8);
    }
    EXPECT_EQ(f[i], sum) << i;
    EXPECT_EQ(d[i], exact);
    EXPECT_EQ(h[i], half);
    EXPECT_EQ(b[i], bfloat);
  }
  const LaunchCounts& counts = report.launches[0];
  for (const int t : {1, 2, 3, 4})
    EXPECT_EQ(counts.tensors[static_cast<std::size_t>(t)],
              (TensorBytes{.atomic = 128 * (t == 1   ? 4
                                            : t == 2 ? 8
                                                     : 2)}));
}

TEST(CudaHostNumerics, BlocksOfACooperativeLaunchWaitForOneAnother) {
  std::vector<float> x(192), y(192);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 17);
  std::vector<float> expected = x;
  for (int round = 0; round < 4; ++round) {
    const std::vector<float> before = expected;
    for (std::size_t i = 0; i < 192; ++i)
      expected[i] = before[(i + 191) % 192] + before[(i + 1) % 192];
  }
  Launch launch{.kernel = "stencil",
                .tensors = first(2),
                .workspace = true,
                .blocks = 3,
                .threads = 64,
                .cooperative = true};
  const std::vector<Tensor> tensors{tensor("x", x), tensor("y", y, false)};
  const Report report = run(launch, tensors, 4);
  EXPECT_TRUE(report.clean()) << texts(report);
  EXPECT_EQ(x, expected);
  EXPECT_EQ(report.launches[0].grid_syncs, 4);
  launch.cooperative = false;
  const Report wrong = run(launch, tensors, 4);
  ASSERT_FALSE(wrong.findings.empty());
  EXPECT_EQ(wrong.findings[0].fault, Fault::bad_argument) << texts(wrong);
  EXPECT_EQ(wrong.blocks_stopped, 3);
}

TEST(CudaHostNumerics, PlainCppIsCheckedAndCountedAsGoingThroughL1) {
  std::vector<float> in(96), out(96);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) / 50;
  std::vector<std::uint32_t> wide(128), wide_out(128);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<std::uint32_t>(i);
  const Report report =
      run({.kernel = "plain", .tensors = first(4), .threads = 32, .shared_bytes = 384},
          {tensor("in", in), tensor("out", out, false), tensor("wide", wide),
           tensor("wide_out", wide_out, false)});
  EXPECT_TRUE(report.clean()) << texts(report);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[3 * i], std::exp(in[3 * (31 - i)]));
    EXPECT_EQ(out[3 * i + 1], std::sqrt(in[3 * (31 - i) + 1]));
    EXPECT_EQ(out[3 * i + 2], in[3 * (31 - i) + 2]);
  }
  EXPECT_EQ(wide_out, wide);
  const LaunchCounts& counts = report.launches[0];
  EXPECT_EQ(counts.tensors[0], (TensorBytes{.read_through_l1 = 384}));
  EXPECT_EQ(counts.tensors[1], (TensorBytes{.written_through_l1 = 384}));
  EXPECT_EQ(counts.tensors[2], (TensorBytes{.read_through_l1 = 512}));
  EXPECT_EQ(counts.tensors[3], (TensorBytes{.written_through_l1 = 512}));
  EXPECT_EQ(counts.shared_written, 384);
  EXPECT_EQ(counts.shared_read, 384);
}

}  // namespace
}  // namespace tilewright::cuda_host
