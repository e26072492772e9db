// Which micro-kernels Chimera's search finds, which one a product gets, and which tiles are packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "codegen/cpu/cpu.h"
#include "codegen/cpu/loaded.h"
#include "core/base/format.h"
#include "core/lowering/product_loads.h"
#include "core/lowering/register_blocks.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "tests/codegen/kernel_support.h"

namespace tilewright::cpu {
namespace {

TEST(RankedMicroKernels, TheArgmaxIsFiveByFiveAndThePrintedChoiceTheBestPowerOfTwo) {
  const auto all = rank_micro_kernels(32);
  EXPECT_EQ(all[0].rows, 5);
  EXPECT_EQ(all[0].vectors, 5);
  EXPECT_DOUBLE_EQ(all[0].intensity, 2.5);
  EXPECT_EQ(all[0].registers, 31);
  const auto powers = rank_micro_kernels(32, 0, 2, true);
  EXPECT_EQ(powers[0].rows, 6);
  EXPECT_EQ(powers[0].vectors, 4);
  EXPECT_DOUBLE_EQ(powers[0].intensity, 2.4);
  EXPECT_EQ(powers[0].registers, 30);
  const auto sixteen = rank_micro_kernels(16);
  EXPECT_EQ(sixteen[0].rows, 4);
  EXPECT_EQ(sixteen[0].vectors, 3);
}

TEST(RankedMicroKernels, ShortDepthsCountTheAccumulatorsToo) {
  for (const RankedMicroKernel& k : rank_micro_kernels(32, 8)) {
    EXPECT_LE(k.registers, 32);
    EXPECT_DOUBLE_EQ(k.intensity, k.rows * k.vectors * 8.0 /
                                      (8.0 * (k.rows + k.vectors) + 2.0 * k.rows * k.vectors));
  }
}

TEST(MicroKernels, EightyColumnsTakeFiveVectorsAtOnce) {
  EXPECT_EQ(micro_kernel_fitting(Isa::avx512, 8, 80, 64, 4).name, "5x5");
  EXPECT_EQ(micro_kernel_fitting(Isa::avx512, 24, 64, 64, 4).name, "6x4");
  // Where the depth is long, what is read of B counts; where it is short, lines of C.
  EXPECT_EQ(micro_kernel_fitting(Isa::avx512, 16, 352, 515, 4).name, "8x3");
  EXPECT_EQ(micro_kernel_fitting(Isa::avx512, 24, 1015, 16, 4).name, "5x5");
  EXPECT_EQ(micro_kernel_fitting(Isa::avx2, 24, 32, 64, 4).name, "6x2");
  EXPECT_EQ(micro_kernel_fitting(Isa::avx2, 24, 24, 64, 4).name, "4x3");
  EXPECT_EQ(micro_kernel_fitting(Isa::generic, 24, 24, 64, 4).name, "scalar");
}

/// What is priced and measured is what is emitted: one list and one choice for both.
TEST(MicroKernels, AreTheBlocksThatArePriced) {
  for (const auto& [isa, registers] : {std::pair{Isa::avx2, 16}, {Isa::avx512, 32}}) {
    std::vector<RegisterBlock> emitted;
    for (const MicroKernel& k : micro_kernels())
      if (k.isa == isa && k.vector_bytes > 0) emitted.push_back({k.rows, k.vectors});
    const auto priced = register_blocks(registers);
    EXPECT_EQ(emitted, std::vector(priced.begin(), priced.end()));
    const std::int64_t lanes = isa == Isa::avx2 ? 8 : 16;
    for (std::int64_t m = 1; m < 100; m += 7)
      for (std::int64_t n = 1; n < 300; n += 13)
        for (const std::int64_t k : {8, 32, 300}) {
          const RegisterBlock& b = priced[block_fitting(priced, m, ceil_div(n, lanes), k)];
          const MicroKernel got = micro_kernel_fitting(isa, m, n, k, 4);
          EXPECT_EQ((RegisterBlock{got.rows, got.vectors}), b) << m << " " << n << " " << k;
        }
  }
  EXPECT_EQ(micro_kernel_fitting(Isa::avx2, 96, 128, 32, 4).name, "4x3");
}

cpu::Source source_of(const std::string& workload, const std::string& tiles, Isa isa) {
  auto w = std::make_shared<const Workload>(named_workload(workload));
  auto m = std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1M"));
  auto s = resolve(Plan{.kernels = {{.tree = parse_tree("m l ( k ( C.gemm1 ) n ( C.gemm2 ) )"),
                                     .tiles = parse_tiles(tiles)}}},
                   w, m);
  if (!s.ok()) throw std::runtime_error(s.reason());
  return emit(*s, {.isa = isa}).value();
}

TEST(FixedPart, IsTheSameForTilingsAndHoldsTheMicroKernel) {
  const auto fixed = [](const cpu::Source& s) {
    return s.text.substr(s.fixed_begin, s.fixed_end - s.fixed_begin);
  };
  const cpu::Source a =
      source_of("gemm-chain:m=64,n=32,k=32,l=64", "m=12,n=32,k=8,l=16", Isa::avx512);
  const cpu::Source b =
      source_of("gemm-chain:m=80,n=48,k=32,l=64", "m=9,n=16,k=32,l=32", Isa::avx512);
  EXPECT_THAT(fixed(a), ::testing::HasSubstr("void multiply("));
  EXPECT_EQ(fixed(a), fixed(b));
  EXPECT_NE(a.text, b.text);
  EXPECT_NE(fixed(a),
            fixed(source_of("gemm-chain:m=64,n=32,k=32,l=64", "m=12,n=32,k=8,l=16", Isa::generic)));
}

/// Within a kernel of much else its sums lay in memory: twice the time of 197 x 32 sums over 768.
TEST(LongProducts, AreFunctionsOfTheirOwn) {
  const auto calls = [](const std::string& tiles, Isa isa) {
    const std::string text = source_of("gemm-chain:m=256,n=64,k=512,l=256", tiles, isa).text;
    int count = 0;
    for (auto at = text.find("by_itself(["); at != std::string::npos;
         at = text.find("by_itself([", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(calls("m=128,n=64,k=512,l=128", Isa::avx512), 2);
  EXPECT_EQ(calls("m=128,n=16,k=512,l=128", Isa::avx2), 1) << "the second is short";
  EXPECT_EQ(calls("m=16,n=16,k=32,l=32", Isa::avx512), 0);
  EXPECT_EQ(calls("m=128,n=64,k=512,l=128", Isa::generic), 0);
}

std::map<std::string, bool> packed(const std::string& workload, const std::string& tree,
                                   const std::string& tiles, const std::string& machine) {
  auto w = std::make_shared<const Workload>(named_workload(workload));
  auto m = std::make_shared<const Machine>(parse_synthetic_machine(machine));
  auto s =
      resolve(Plan{.kernels = {{.tree = parse_tree(tree), .tiles = parse_tiles(tiles)}}}, w, m);
  if (!s.ok()) throw std::runtime_error(s.reason());
  auto source = emit(*s, {.isa = Isa::avx512});
  if (!source.ok()) throw std::runtime_error(source.reason());
  std::map<std::string, bool> out;
  for (const TileUse& t : source->tiles) out[t.tensor] = t.packed;
  return out;
}

using Packed = std::map<std::string, bool>;
constexpr const char* kTree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )";

TEST(Places, OnlyRowsThatShareSetsArePacked) {
  // Rows of 64 floats are contiguous; those of B lie 2 KiB apart: the kernel keeps its panels
  // itself.
  EXPECT_EQ(
      packed("gemm-chain:m=512,n=64,k=64,l=512", kTree, "m=12,n=64,k=64,l=64", "cache:48K/12"),
      (Packed{{"A", false}, {"B", false}, {"D", false}, {"E", false}}));
  // Rows of 4 KiB: 24 of them are one set's lines, and more than it has ways.
  EXPECT_EQ(
      packed("gemm-chain:m=512,n=64,k=1024,l=512", kTree, "m=24,n=64,k=32,l=64", "cache:48K/12"),
      (Packed{{"A", true}, {"B", false}, {"D", false}, {"E", false}}));
  // A depth of few steps keeps nothing: rows of B that meet in two groups of sets are copied.
  EXPECT_EQ(
      packed("gemm-chain:m=512,n=64,k=64,l=512", kTree, "m=12,n=64,k=15,l=64", "cache:48K/12"),
      (Packed{{"A", false}, {"B", true}, {"D", false}, {"E", false}}));
  // A whole tensor is one row, however many lines it has.
  EXPECT_EQ(packed("gemm:m=8192,n=64,k=1024", "n m k ( C.gemm )", "m=8192,n=64,k=1024",
                   "cache:64M/16")["A"],
            false);
}

TEST(Places, RowsOfALeftOperandMeetOnlyInTheStepsThatAreInUse) {
  const auto left = [](const std::string& workload) {
    return packed(workload, "m k n ( C.gemm )", "m=96,k=512,n=336", "cache:32K/8,1M/8")["A"];
  };
  // Rows two lines apart in the sets, 33 lines each: five of them meet in some set, yet of steps
  // that are read at the same time each has lines of its own.
  EXPECT_FALSE(left("gemm:m=192,n=336,k=3104"));
  // Rows of 12 KiB: all begin in one set.
  EXPECT_TRUE(left("gemm:m=192,n=336,k=3072"));
}

TEST(Places, SoftwareManagedTilesAreCopies) {
  for (const auto& [tensor, is] :
       packed("gemm-chain:m=512,n=64,k=64,l=512", kTree, "m=12,n=64,k=64,l=64", "scratchpad:48K"))
    EXPECT_TRUE(is) << tensor;
}

/// Weights are packed once wherever tiles of their columns begin: at panels of a micro-kernel's
/// columns or within one (half of a layer for each of two threads). In the first run and in later
/// ones, plain and transposed.
TEST(PackedWeights, ServeTilesThatBeginAnywhere) {
  std::mt19937 random(93105);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Schedule> schedules;
  std::vector<Source> sources;
  int within = 0;
  for (int i = 0; i < 24; ++i) {
    const int m = draw(1, 9), n = draw(40, 300), k = draw(3, 90), step = std::min(n, draw(20, 100));
    const auto w = std::make_shared<const Workload>(workload_from_yaml(
        formatted("name: t\nloops: {{m: {}, \"n\": {}, k: {}}}\noperators:\n"
                  "  - \"C[m,n] += A[m,k] * W[{}]\"\n  - \"Y[m,n] = relu(C[m,n])\"\n",
                  m, n, k, i % 2 == 0 ? "n,k" : "k,n"),
        "test"));
    const std::string tree = formatted("n/{}@grid ( k/{} ( C.C ) C.Y )", step, k);
    auto s = resolve({.kernels = {{.level = "L2", .tree = parse_tree(tree)}}}, w,
                     std::make_shared<const Machine>(named_machine("epyc-zen5")));
    ASSERT_TRUE(s.ok()) << s.reason();
    schedules.push_back(std::move(s).value());
    sources.push_back(
        emit(schedules.back(),
             {.threads = 1 + i % 2, .prefix = "k" + std::to_string(i), .constant = {"W"}})
            .value());
    if (host_runs(Isa::avx2)) {
      EXPECT_GT(sources.back().kept_bytes, 0) << tree << "\n" << to_yaml(*w);
      // Tiles are filled up to panels of as many whole vectors each, at most 5; all columns
      // together to one panel of 80.
      const int tiles = ceil_div(n, step), panels = ceil_div(step, 80),
                filled = panels * ceil_div(ceil_div(step, 16), panels) * 16;
      EXPECT_LE(sources.back().kept_bytes, 4 * k * std::max(tiles * filled, n + 79)) << tree << "\n"
                                                                                     << to_yaml(*w);
    }
    within += step % 16 != 0 && step < n;
  }
  EXPECT_GT(within, 8);
  auto kernels = build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    const TensorValues inputs = random_inputs(w, 9);
    testing::Arrays<float> arrays(w, inputs);
    std::vector<std::byte> kept(static_cast<std::size_t>(sources[i].kept_bytes));
    kernels.value()[i].prepare(arrays.pointers(), kept.data());
    for (int run = 0; run < 2; ++run) kernels.value()[i].run(arrays.pointers(), kept.data());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), 1e-5) << to_yaml(w);
  }
}

/// Multiply-adds of numbers that are too small to be normal take a hundred times as long on some
/// processors. Those just large enough stay.
TEST(PackedOnce, SubnormalFloatsBecomeZero) {
  if (host_isa() == Isa::generic) GTEST_SKIP() << "nothing is packed";
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: small\nloops: {i: 4, j: 64, k: 32}\noperators:\n"
                         "  - \"product: C[i,j] += A[i,k] * W[k,j]\"\n",
                         "test"));
  const auto s = resolve(Plan{.kernels = {{.tree = parse_tree("i/4 j/64 ( k/32 ( C.product ) )")}}},
                         w, std::make_shared<const Machine>(named_machine("cache:1M/16")));
  ASSERT_TRUE(s.ok()) << s.reason();
  const auto source = emit(s.value(), {.constant = {"W"}});
  ASSERT_TRUE(source.ok()) << source.reason();
  ASSERT_GT(source->kept_bytes, 0);
  auto kernel = build(*source, {.optimisation = "-O1"});
  ASSERT_TRUE(kernel.ok()) << kernel.reason();
  const auto sum_of = [&](float weight) {
    LoadedKernel loaded(kernel.value(), *w);
    const std::vector<float> a(4 * 32, 1e30F), b(32 * 64, weight);
    std::vector<float> c(4 * 64, 1);
    EXPECT_FALSE(loaded.write(*w->find_tensor("A"), a.data()));
    EXPECT_FALSE(loaded.write(*w->find_tensor("W"), b.data()));
    EXPECT_TRUE(loaded.run().ok());
    EXPECT_FALSE(loaded.read(*w->find_tensor("C"), c.data()));
    EXPECT_EQ(std::ranges::count(c, c.front()), 4 * 64);
    return c.front();
  };
  EXPECT_EQ(sum_of(1e-39F), 0);
  EXPECT_NEAR(sum_of(2e-38F), 32 * 2e-8, 1e-12);
}

/// Every count of elements that a row leaves over: all are stored, nothing behind them is touched.
/// A masked store of AVX2 takes a Zen 3 ten cycles; stores of halves take one or two.
template <class Real>
void check_parts(Isa isa, const char* dtype) {
  std::vector<Schedule> schedules;
  std::vector<Source> sources;
  for (int columns = 1; columns <= 18; ++columns) {
    const auto w = std::make_shared<const Workload>(
        workload_from_yaml(formatted("name: parts\ndtype: {}\nloops: {{i: 3, j: {}}}\noperators:\n"
                                     "  - \"y: Y[i,j] = X[i,j] * 2 + S[i]\"\n",
                                     dtype, columns),
                           "test"));
    auto s = resolve(Plan{.kernels = {{.tree = parse_tree("i/3 ( C.y )")}}}, w,
                     std::make_shared<const Machine>(named_machine("cache:1M/16")));
    ASSERT_TRUE(s.ok()) << s.reason();
    schedules.push_back(std::move(s).value());
    auto source = emit(schedules.back(), {.isa = isa, .prefix = formatted("k{}", columns)});
    ASSERT_TRUE(source.ok()) << source.reason();
    EXPECT_EQ(source->text.find("_maskstore_"), std::string::npos);
    sources.push_back(std::move(source).value());
  }
  auto kernels = build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    const TensorValues inputs = random_inputs(w, 5);
    testing::Arrays<Real> arrays(w, inputs);
    kernels.value()[i].run(arrays.pointers());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), 1e-6) << to_yaml(w);
  }
}

TEST(PartsOfVectors, AreStoredAndNothingBehindThem) {
  for (const Isa isa : testing::isas_here()) {
    check_parts<float>(isa, "f32");
    check_parts<double>(isa, "f64");
  }
}

/// Of a lookup a row at a time, whose indices were copied and converted row by row: 13.7 us of
/// 256 rows of 155 in place of 7.5. Indices that values are made of, too, are converted.
TEST(Places, OfGathersAreReadWhereTheyLie) {
  for (const bool read : {false, true}) {
    const auto w = std::make_shared<const Workload>(workload_from_yaml(
        formatted(
            "name: bag\nloops: {{i: 21, j: 37, k: 3}}\ntensors: {{T: [50, 37], ids: [21, 3]}}\n"
            "dtypes: {{ids: i32}}\noperators:\n"
            "  - \"look: x[i,k,j] = T[ids[i,k],j] * q[i,k]{}\"\n  - \"sum: s[i,j] += x[i,k,j]\"\n",
            read ? " + ids[i,k]" : ""),
        "test"));
    const auto m = std::make_shared<const Machine>(parse_synthetic_machine("cache:1M/16"));
    auto s = resolve(Plan{.kernels = {{.tree = parse_tree("i/2 j/16 ( C.look C.sum )")}}}, w, m);
    ASSERT_TRUE(s.ok()) << s.reason();
    std::vector<Source> sources;
    for (Isa isa : testing::isas_here())
      sources.push_back(
          emit(*s, {.isa = isa, .prefix = "k" + std::to_string(sources.size())}).value());
    auto kernels = build_all(sources, {.optimisation = "-O0"});
    ASSERT_TRUE(kernels.ok()) << kernels.reason();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      for (const TileUse& t : sources[i].tiles) {
        if (t.tensor == "ids") {
          EXPECT_EQ(t.packed, read) << t.reason;
        }
      }
      TensorValues inputs = random_inputs(*w, 5);
      testing::Arrays<float> arrays(*w, inputs);
      kernels.value()[i].run(arrays.pointers());
      EXPECT_LT(testing::worst_error(*w, arrays, evaluate(*w, inputs)), 1e-5)
          << name_of(sources[i].isa);
    }
  }
}

/// Rows times a matrix whose columns lie apart: nothing is turned for few rows, whatever tiles cut;
/// for more, or where the depth is short beside them, into panels.
TEST(Products, OfFewRowsReadARightOperandAsItLies) {
  for (const auto& [rows, columns, depth] : std::vector<std::array<std::int64_t, 3>>{{1, 37, 150},
                                                                                     {2, 37, 150},
                                                                                     {3, 37, 150},
                                                                                     {7, 70, 150},
                                                                                     {16, 37, 130},
                                                                                     {16, 37, 120},
                                                                                     {20, 37, 200},
                                                                                     {4, 37, 30}}) {
    const auto w = std::make_shared<const Workload>(
        workload_from_yaml(formatted("name: t\nloops: {{m: {}, n: {}, k: {}}}\noperators:\n"
                                     "  - \"C[m,n] += A[m,k] * B[n,k]\"\n",
                                     rows, columns, depth),
                           "test"));
    const bool few = reads_along_depth(rows, depth);
    EXPECT_EQ(few, rows <= 16 && 8 * rows <= depth) << rows << " x " << depth;
    const auto m = std::make_shared<const Machine>(parse_synthetic_machine("cache:1M/16"));
    auto s = resolve(Plan{.kernels = {{.tree = parse_tree("n k m ( C.C )"),
                                       .tiles = parse_tiles(formatted(
                                           "n=21,k={},m={}", std::min<std::int64_t>(depth, 100),
                                           few && rows > 1 ? rows - 1 : rows))}}},
                     w, m);
    ASSERT_TRUE(s.ok()) << s.reason();
    std::vector<Source> sources;
    for (Isa isa : testing::isas_here())
      sources.push_back(
          emit(*s, {.isa = isa, .prefix = "k" + std::to_string(sources.size())}).value());
    auto kernels = build_all(sources, {.optimisation = "-O0"});
    ASSERT_TRUE(kernels.ok()) << kernels.reason();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const TensorValues inputs = random_inputs(*w, 5);
      testing::Arrays<float> arrays(*w, inputs);
      kernels.value()[i].run(arrays.pointers());
      EXPECT_LT(testing::worst_error(*w, arrays, evaluate(*w, inputs)), 1e-5)
          << name_of(sources[i].isa);
      if (sources[i].isa == Isa::generic) continue;
      EXPECT_EQ(sources[i].text.find("pack_panels<16>(") != std::string::npos ||
                    sources[i].text.find("pack_panels<24>(") != std::string::npos ||
                    sources[i].text.find("pack_panels<32>(") != std::string::npos,
                !few);
      EXPECT_EQ(sources[i].text.find("  along_depth<") != std::string::npos, few);
    }
  }
}

}  // namespace
}  // namespace tilewright::cpu
