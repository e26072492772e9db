// Does the emulator compute what docs/npu.md says, bit by bit?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include "tests/simulator/npu/support.h"
#include "tests/support/places.h"

namespace tilewright::npu {
namespace {

using testing::HasSubstr;

/// f32 sums in the order of k, the definition of mad.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, int m, int n,
                           int k) {
  std::vector<float> c(static_cast<std::size_t>(m * n));
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int l = 0; l < k; ++l) {
        sum += a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(l * n + j)];
      }
      c[static_cast<std::size_t>(i * n + j)] = sum;
    }
  }
  return c;
}

std::vector<float> uniform(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> v(n);
  for (float& x : v) x = draw(random);
  return decoded(encoded(v, DType::f16), DType::f16);
}

TEST(NpuValues, GemmBitByBit) {
  const Program p = parse_assembly(gemm_text(48, 384, 192), "gemm");
  TensorData data = {{"A", encoded(uniform(48 * 192, 1), DType::f16)},
                     {"B", encoded(uniform(192 * 384, 2), DType::f16)}};
  const auto a = decoded(data["A"], DType::f16), b = decoded(data["B"], DType::f16);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  EXPECT_EQ(data["C"], encoded(product(a, b, 48, 384, 192), DType::f16));
  EXPECT_EQ(r.macs, 48 * 384 * 192);
  // Bytes by path: A once into L1, three times into L0A; B once all the way; C once.
  EXPECT_EQ(r.path("A", Memory::gm, Memory::l1).read, Bytes(48 * 192 * 2));
  EXPECT_EQ(r.path("A", Memory::l1, Memory::l0a).read, Bytes(3 * 48 * 192 * 2));
  EXPECT_EQ(r.path("B", Memory::l1, Memory::l0b).written, Bytes(192 * 384 * 2));
  EXPECT_EQ(r.path("C", Memory::l0c, Memory::ub).read, Bytes(48 * 384 * 4));
  EXPECT_EQ(r.path("C", Memory::ub, Memory::gm).written, Bytes(48 * 384 * 2));
  EXPECT_EQ(r.dram.at("B"), Bytes(192 * 384 * 2));
}

TEST(NpuValues, FusedChain) {
  const Program p = parse_assembly(chain_text(192), "chain");
  TensorData data = random_inputs(p, 3);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto in = [&](const char* name) { return decoded(data[name], DType::f16); };
  const auto c = decoded(encoded(product(in("A"), in("B"), 192, 64, 64), DType::f16), DType::f16);
  EXPECT_EQ(data["E"], encoded(product(c, in("D"), 192, 32, 64), DType::f16));
  EXPECT_EQ(r.path("C", Memory::ub, Memory::l1).written, Bytes(192 * 64 * 2));
}

TEST(NpuValues, ElementWise) {
  const Program p = parse_assembly(element_wise_text(3), "e");
  TensorData data = random_inputs(p, 4);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto half = [](float x) { return decoded(encoded({x}, DType::f16), DType::f16)[0]; };
  const auto x = decoded(data["X"], DType::f16), y = decoded(data["Y"], DType::f16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float e = half(static_cast<float>(std::exp(static_cast<double>(x[i]))));
    ASSERT_EQ(y[i], half(half(e * 0.5F) + x[i])) << i;
  }
}

/// Edges: an m x n x k product that fills no fractal, through every layout, B given transposed.
TEST(NpuValues, EdgesAndTransposedOperand) {
  const char* const text = R"(.input A f16[19, 37]
.input B f16[21, 37]
.output C f32[19, 21]
.buffer a1 L1 f16[1536] at 0 holds A
.buffer b1 L1 f16[1536] at 4096 holds B
.buffer a0 L0A f16[1536] at 0 holds A
.buffer b0 L0B f16[1536] at 0 holds B
.buffer c0 L0C f32[1024] at 0 holds C
.buffer cu UB f32[512] at 0 holds C
copy a1[0].Nz(32), A[0].nd(37), rows=19, columns=37
copy b1[0].Nz(32), B[0].nd(37), rows=21, columns=37
barrier all
copy a0[0].Zz(48), a1[0].Nz(32), rows=19, columns=37
copy b0[0].Zn(32), b1[0].Nz(32), rows=21, columns=37, transpose
barrier all
mad c0[0], a0[0], b0[0], m=19, n=21, k=37, accumulate=0
barrier all
copy cu[0].nd(24), c0[0].Nz(32), rows=19, columns=21
barrier all
copy C[0].nd(21), cu[0].nd(24), rows=19, columns=21
)";
  const Program p = parse_assembly(text, "edges");
  TensorData data = random_inputs(p, 5);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto a = decoded(data["A"], DType::f16), b = decoded(data["B"], DType::f16);
  std::vector<float> turned(37 * 21);
  for (std::size_t j = 0; j < 21; ++j) {
    for (std::size_t l = 0; l < 37; ++l) turned[l * 21 + j] = b[j * 37 + l];
  }
  EXPECT_EQ(decoded(data["C"], DType::f32), product(a, turned, 19, 21, 37));
  EXPECT_EQ(r.useful_macs, 19 * 21 * 37);
  EXPECT_EQ(r.macs, 32 * 32 * 48);
}

/// Transposed A: what L0A gets is A^T.
TEST(NpuValues, TransposesIntoL0A) {
  const char* const text = R"(.input A f16[32, 48]
.input I f16[32, 32]
.output C f32[48, 32]
.buffer a1 L1 f16[1536] at 0 holds A
.buffer i1 L1 f16[1024] at 4096 holds I
.buffer a0 L0A f16[1536] at 0 holds A
.buffer i0 L0B f16[1024] at 0 holds I
.buffer c0 L0C f32[1536] at 0 holds C
.buffer cu UB f32[1536] at 0 holds C
copy a1[0].Nz(32), A[0].nd(48), rows=32, columns=48
copy i1[0].Nz(32), I[0].nd(32), rows=32, columns=32
barrier all
copy a0[0].Zz(32), a1[0].Nz(32), rows=32, columns=48, transpose
copy i0[0].Zn(32), i1[0].Nz(32), rows=32, columns=32
barrier all
mad c0[0], a0[0], i0[0], m=48, n=32, k=32, accumulate=0
barrier all
copy cu[0].Nz(48), c0[0].Nz(48), rows=48, columns=32
barrier all
copy C[0].nd(32), cu[0].Nz(48), rows=48, columns=32
)";
  const Program p = parse_assembly(text, "t");
  TensorData data = random_inputs(p, 6);
  std::vector<float> identity(32 * 32);
  for (std::size_t i = 0; i < 32; ++i) identity[i * 33] = 1;
  data["I"] = encoded(identity, DType::f16);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto a = decoded(data["A"], DType::f16), c = decoded(data["C"], DType::f32);
  for (std::size_t i = 0; i < 48; ++i) {
    for (std::size_t j = 0; j < 32; ++j) ASSERT_EQ(c[i * 32 + j], a[j * 48 + i]);
  }
}

/// x through one vector instruction in UB; what it does not write of y is -1.
std::vector<float> through_vector(const std::string& line, const std::vector<float>& x, DType type,
                                  std::size_t out, DType to) {
  const std::string t = type == DType::f16 ? "f16" : "f32", u = to == DType::f16 ? "f16" : "f32";
  const std::string n = std::to_string(x.size()), m = std::to_string(out);
  const std::string text =
      ".input X " + t + "[" + n + "]\n.output Y " + u + "[" + m + "]\n" + ".buffer x UB " + t +
      "[" + n + "] at 0 holds X\n.buffer y UB " + u + "[" + m + "] at 65536 holds Y\n" +
      "copy x[0].nd(" + n + "), X[0].nd(" + n + "), rows=1, columns=" + n +
      "\nbarrier all\nvdup y[0], -1, repeat=" +
      std::to_string(ceil_div(static_cast<std::int64_t>(out) * size_of(to), 256)) + "\n" + line +
      "\nbarrier all\ncopy Y[0].nd(" + m + "), y[0].nd(" + m + "), rows=1, columns=" + m + "\n";
  const Program p = parse_assembly(text, "v");
  TensorData data = {{"X", encoded(x, type)}};
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r) << text;
  return decoded(data["Y"], to);
}

TEST(NpuValues, MaskStridesAndBroadcast) {
  std::vector<float> x(256);
  std::iota(x.begin(), x.end(), 0.0F);
  const auto masked =
      through_vector("vcopy y[0], x[128], repeat=1, mask=5", x, DType::f16, 128, DType::f16);
  EXPECT_EQ(masked[4], 132);
  EXPECT_EQ(masked[5], -1);
  // Every second block of x; 16 elements a block.
  const auto strided =
      through_vector("vcopy y[0], x[0](16, 2), repeat=1", x, DType::f16, 128, DType::f16);
  EXPECT_EQ(strided[15], 15);
  EXPECT_EQ(strided[16], 32);
  const auto spread = through_vector("vbrcb y[0], x[3], repeat=2", x, DType::f32, 128, DType::f32);
  for (std::size_t i = 0; i < 128; ++i) ASSERT_EQ(spread[i], static_cast<float>(3 + i / 8));
  x.resize(384);
  std::iota(x.begin(), x.end(), 0.0F);
  const auto rows =
      through_vector("vadd y[0], x[0], x[64](0, 0), repeat=3", x, DType::f16, 384, DType::f16);
  EXPECT_EQ(rows[37], 37 + 64 + 37 % 16) << "one block, again and again";
}

TEST(NpuValues, ComparesChoosesAndRounds) {
  const std::vector<float> x = {-1.5F, 0.5F, 2.5F, -0.25F, 7, 7, -0.0F, 3};
  const auto through = [&](const std::string& line) {
    return through_vector(line, x, DType::f32, 64, DType::f32);
  };
  EXPECT_THAT(through("vfloor y[0], x[0], repeat=1, mask=4"), testing::Contains(-2).Times(1));
  EXPECT_EQ(through("vround y[0], x[0], repeat=1, mask=4")[2], 2) << "to even";
  const auto less = through("vlt y[0], x[0], x[0](0, 0), repeat=1, mask=8");
  EXPECT_THAT(std::vector<float>(less.begin(), less.begin() + 8), testing::Each(0));
  // Where x is not zero, x, elsewhere y, which is -1 by then.
  const auto chosen =
      through("vdup y[0], -1, repeat=1\nvsel y[0], x[0], x[0], y[0], repeat=1, mask=8");
  EXPECT_EQ(chosen[5], 7);
  EXPECT_EQ(chosen[6], -1);
}

TEST(NpuValues, TheScalarUnitMovesElements) {
  const std::vector<float> x = {5, 6, 7, 8, 9, 1, 2, -1};
  const std::string begin = "barrier all\n";
  const auto through = [&](const std::string& line) {
    return through_vector(begin + line, x, DType::f32, 128, DType::f16);
  };
  EXPECT_EQ(through("put y[3], 4 - 6")[3], -2);
  EXPECT_EQ(through("move y[2], x[4]")[2], 9);
  EXPECT_EQ(through("move y[2], x[0], by x[5], step=3, below=2")[2], 8);
  EXPECT_EQ(through("move y[2], x[1], by x[5], step=3, below=2, by x[6], step=-1, below=3")[2], 7);
  EXPECT_EQ(through("move y[2], x[0], by x[6], step=1, below=2")[2], 0) << "beyond its table";
  EXPECT_EQ(through("move y[2], x[0], by x[7], step=1, below=2")[2], 0) << "before it";
}

TEST(NpuValues, ReductionsInTheirOrder) {
  std::vector<float> x = random_values(256, 7);
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] *= 1e-3F;
  const auto sums =
      through_vector("vrsum y[1](2), x[0], repeat=4, mask=50", x, DType::f32, 64, DType::f32);
  for (std::size_t r = 0; r < 4; ++r) {
    std::vector<float> lanes(x.begin() + static_cast<std::ptrdiff_t>(64 * r),
                             x.begin() + static_cast<std::ptrdiff_t>(64 * r + 50));
    lanes.resize(64, 0.0F);  // adding 0 changes nothing
    for (std::size_t h = 32; h > 0; h /= 2) {
      for (std::size_t i = 0; i < h; ++i) lanes[i] += lanes[i + h];
    }
    EXPECT_EQ(sums[1 + 2 * r], lanes[0]);
    EXPECT_EQ(sums[2 + 2 * r], -1) << "between them nothing is written";
  }
  const auto most = through_vector("vrmax y[0], x[0], repeat=2", x, DType::f16, 128, DType::f16);
  EXPECT_EQ(most[1], *std::max_element(x.begin() + 128, x.end()));
}

TEST(NpuValues, RoundsToNearestEven) {
  // 2049 lies between the f16 2048 and 2050; 65520 between 65504 and infinity.
  const std::vector<float> x = {2049, 2051, 65519, 65520, 1e-8F, 5.9604645e-8F, -0.0F, 1};
  auto y = through_vector("vcast y[0], x[0], repeat=1, mask=8", x, DType::f32, 128, DType::f16);
  EXPECT_EQ(y[0], 2048);
  EXPECT_EQ(y[1], 2052);
  EXPECT_EQ(y[2], 65504);
  EXPECT_TRUE(std::isinf(y[3]));
  EXPECT_EQ(y[4], 0);
  EXPECT_EQ(y[5], 5.9604645e-8F) << "subnormal";
  EXPECT_TRUE(std::signbit(y[6]));
  // 1/3 in f16 is 0x3555: correctly rounded, through f32.
  y = through_vector("vrecip y[0], x[0], repeat=1, mask=1", {3}, DType::f16, 128, DType::f16);
  EXPECT_EQ(y[0], 0.333251953125F);
}

TEST(NpuValues, AtomicAddsOfManyBlocks) {
  const char* const text = R"(.blocks 40
.input X f32[40, 64]
.output S f32[64]
.buffer x UB f32[64] at 0 holds S
.buffer in UB f32[64] at 256 holds X
copy in[0].nd(64), X[block*64].nd(64), rows=1, columns=64
barrier all
vcopy x[0], in[0], repeat=1
barrier all
copy S[0].nd(64), x[0].nd(64), rows=1, columns=64, add
)";
  const Program p = parse_assembly(text, "add");
  TensorData data = random_inputs(p, 8);
  const auto x = decoded(data["X"], DType::f32);
  data["S"] = encoded(std::vector<float>(64, 0.5F), DType::f32);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto s = decoded(data["S"], DType::f32);
  for (std::size_t c = 0; c < 64; ++c) {
    float sum = 0.5F;
    for (std::size_t b = 0; b < 40; ++b) sum += x[b * 64 + c];
    EXPECT_EQ(s[c], sum);
  }
}

TEST(NpuValues, HalvesAgreeWithAndWithoutVectorInstructions) {
  std::vector<std::uint16_t> all(65536), one(65536), many(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  std::vector<float> values(65536);
  floats_of_halves(all.data(), values.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    float alone = 0;
    floats_of_halves(&all[i], &alone, 1);
    ASSERT_TRUE(std::isnan(alone) || std::memcmp(&alone, &values[i], 4) == 0) << i;
    halves_of_floats(&values[i], &one[i], 1);
  }
  halves_of_floats(values.data(), many.data(), values.size());
  EXPECT_EQ(one, many);
  std::mt19937 random(9);
  std::vector<float> floats(4096);
  for (float& f : floats) {
    const auto bits = static_cast<std::uint32_t>(random()) % 0x10000000U + 0x33000000U;
    std::memcpy(&f, &bits, 4);
  }
  one.resize(4096);
  many.resize(4096);
  for (std::size_t i = 0; i < floats.size(); ++i) halves_of_floats(&floats[i], &one[i], 1);
  halves_of_floats(floats.data(), many.data(), floats.size());
  EXPECT_EQ(one, many);
}

/// The program that docs/npu.md begins with.
TEST(NpuValues, TheDocumentedProgram) {
  std::ifstream file(test::in_sources("docs/npu.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::size_t begin = page.find("```\n") + 4;
  const Program p = parse_assembly(page.substr(begin, page.find("```", begin) - begin), "npu.md");
  TensorData data = random_inputs(p, 10);
  const Report r = emulate(p, ascend(), data);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto x = decoded(data["X"], DType::f16), y = decoded(data["Y"], DType::f16);
  ASSERT_EQ(y.size(), 512U * 128U);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 0.5F * x[i]);
}

TEST(NpuValues, MissingOrWrongInputIsRefused) {
  const Program p = parse_assembly(chain_text(64), "chain");
  TensorData data = random_inputs(p, 1);
  data["A"].pop_back();
  EXPECT_THAT([&] { emulate(p, ascend(), data); },
              testing::ThrowsMessage<InputError>(HasSubstr("A")));
}

TEST(NpuValues, RunsOn910BAndAt256TeraFlops) {
  const Program p = parse_assembly(gemm_text(128, 256, 128), "gemm");
  TensorData data = random_inputs(p, 2), slow = data;
  const Report fast_run = emulate(p, ascend(), data);
  const Report slow_run = emulate(p, named_machine("ascend910-256"), slow);
  EXPECT_EQ(data["C"], slow["C"]);
  EXPECT_TRUE(slow_run.ok());
  EXPECT_GT(slow_run.seconds, fast_run.seconds);
  // On 910B what leaves L0C does so through FIX, and L0C is half as large.
  std::string text = replaced(gemm_text(64, 256, 128), "M, V,", "M, FIX,");
  for (const char* pair : {"V, M,", "V, MTE3,", "MTE3, V,"}) {
    text = replaced(text, pair, replaced(pair, "V", "FIX"));
  }
  text = replaced(text, "f32[65536]", "f32[16384]");
  text = replaced(text, "t%2*32768", "t%2*8192");
  text = replaced(text, "at 1015808", "at 65536");
  const Program b = parse_assembly(text, "910b");
  TensorData on_b = random_inputs(b, 2);
  const Report r = emulate(b, named_machine("ascend910b"), on_b);
  EXPECT_TRUE(r.ok()) << findings_text(r);
  const auto product_b =
      product(decoded(on_b["A"], DType::f16), decoded(on_b["B"], DType::f16), 64, 256, 128);
  EXPECT_EQ(on_b["C"], encoded(product_b, DType::f16));
  EXPECT_GT(r.pipes[0][static_cast<std::size_t>(Pipe::fix)].busy, 0);
}

}  // namespace
}  // namespace tilewright::npu
