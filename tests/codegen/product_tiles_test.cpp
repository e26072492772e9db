// What a product's tiles take, as estimated for models, against what the CUDA emitter lays out; the
// best tile against all others; and sums that share registers because they are not alive together.
#include "core/lowering/gpu/product_tiles.h"

#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/lowering/gpu/block_time.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_support.h"

namespace tilewright {
namespace {

using lowering::ProductShape;
using lowering::ProductTile;

/// An H200 whose floats are not multiplied in TF32, which the tiles here are not priced for.
Machine h200() {
  Machine m = named_machine("h200");
  for (ComputeUnit& u : m.units) u.peak.erase("tf32");
  return m;
}

cuda::Source emitted(const Workload& w, Kernel kernel) {
  const auto s = resolve({.kernels = {std::move(kernel)}}, std::make_shared<const Workload>(w),
                         std::make_shared<const Machine>(h200()));
  if (!s.ok()) throw std::runtime_error(s.reason());
  const auto source = cuda::emit(*s, {});
  if (!source.ok()) throw std::runtime_error(source.reason());
  return *source;
}

TEST(ProductTiles, TakeWhatTheEmitterLaysOut) {
  std::mt19937_64 random(20291);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int i = 0; i < 60; ++i) {
    const bool half = i % 2 == 0;
    // Rows begin at multiples of 16 bytes.
    const ProductShape shape{.rows = draw(2, 1200),
                             .columns = 8 * draw(1, 200),
                             .depth = 8 * draw(2, 200),
                             .element = half ? 2 : 4};
    const Workload w = named_workload(formatted("gemm:m={},n={},k={},dtype={}", shape.rows,
                                                shape.columns, shape.depth, half ? "f16" : "f32"));
    const auto unit = lowering::product_unit(named_machine("h200"), w.dtype());
    ASSERT_TRUE(unit);
    const auto tile = lowering::best_tile(*unit, shape);
    ASSERT_TRUE(tile) << w.name();
    Kernel kernel{.name = "one"};
    kernel.tree =
        parse_tree(formatted("m/{}@grid n/{}@grid ( k/{} ( L.A@x{} L.B@x{} C.gemm ) S.C )",
                             tile->rows, tile->columns, tile->depth, tile->stages, tile->stages));
    kernel.launch.warps = tile->warps;
    const cuda::Launch launch = emitted(w, kernel).launches.back();
    EXPECT_EQ(launch.blocks, tile->blocks) << w.name();
    EXPECT_EQ(launch.threads, tile->threads) << w.name();
    EXPECT_EQ(launch.shared_bytes, tile->shared.value) << w.name() << " " << to_text(kernel.tree);
  }
}

TEST(ProductTiles, FewRegistersLeaveNoTile) {
  for (const DType type : {DType::f16, DType::f32})
    for (const std::int64_t registers : {1, 100, 1000, 65536}) {
      Machine m = named_machine("h200");
      for (ComputeUnit& u : m.units)
        if (u.name == "SM") u.registers = registers;
      const auto unit = lowering::product_unit(m, type);
      ASSERT_TRUE(unit);
      EXPECT_EQ(lowering::best_tile(
                    *unit, {.rows = 128, .columns = 128, .depth = 64, .element = size_of(type)})
                    .has_value(),
                registers > 1000)
          << registers;
    }
}

TEST(ProductTiles, NoOtherTileIsFaster) {
  for (const ProductShape& shape :
       {ProductShape{384, 768, 768}, ProductShape{384, 768, 3072}, ProductShape{384, 384, 64, 12},
        ProductShape{17, 4096, 1000}, ProductShape{4096, 4096, 4096},
        ProductShape{512, 512, 512, 1, 4}}) {
    const auto unit =
        lowering::product_unit(named_machine("h200"), shape.element == 2 ? DType::f16 : DType::f32);
    const auto best = lowering::best_tile(*unit, shape);
    ASSERT_TRUE(best);
    EXPECT_LE(best->shared.value, unit->shared.value);
    EXPECT_LE(best->threads * best->registers, unit->registers);
    // Less than all the arithmetic or all the bytes takes no tile.
    const double flops = 2.0 * static_cast<double>(shape.rows * shape.columns) *
                         static_cast<double>(shape.depth * shape.batch);
    EXPECT_GE(best->seconds, flops / unit->flops);
    for (std::int64_t m : {16, 48, 64, 128})
      for (std::int64_t n : {16, 64, 96, 128})
        for (std::int64_t k : {16, 64}) {
          ProductTile t{.rows = std::min(m, shape.rows),
                        .columns = std::min(n, shape.columns),
                        .depth = std::min(k, shape.depth)};
          t.operands = {{t.rows, t.depth, shape.element}, {t.depth, t.columns, shape.element}};
          t.steps = ceil_div(shape.depth, t.depth);
          t.blocks =
              shape.batch * ceil_div(shape.rows, t.rows) * ceil_div(shape.columns, t.columns);
          if (lowering::estimate(*unit, t)) {
            EXPECT_GE(t.seconds, best->seconds * (1 - 1e-12));
          }
        }
  }
}

TEST(ProductTiles, SumsThatAreNotAliveTogetherShareRegisters) {
  // Four tiles of 64 sums a thread: two of them would not fit.
  const Workload w = workload_from_yaml(
      "name: chain\ndtype: f16\nloops: {m: 128, n: 128, k: 64}\noperators:\n"
      "  - C[m,n] += A[m,k] * B[k,n]\n  - D[m,n] = relu(C[m,n])\n  - E[m,n] = D[m,n] * 0.5\n"
      "  - F[m,n] = exp(E[m,n] * 0.01)\n",
      "test");
  Kernel kernel{.name = "one"};
  kernel.tree = parse_tree("m/128@grid n/128@grid ( k/32 ( L.A L.B C.C ) C.D C.E C.F S.F )");
  kernel.launch.warps = 8;
  const cuda::Source source = emitted(w, kernel);
  for (const cuda::TileUse& t : source.tiles)
    if (t.tensor != "A" && t.tensor != "B") {
      EXPECT_EQ(t.place, "registers") << t.tensor << t.reason;
    }
  const auto module = testing::build_cuda({source});
  ASSERT_TRUE(module) << module.reason();
  const auto run = testing::run_cuda(*module, source, w, 1);
  ASSERT_TRUE(run) << run.reason();
  EXPECT_TRUE(run->report.clean());
  EXPECT_LT(run->error, 4e-3);
}

/// Plans are priced by the same rules as blocks are laid out: the threads of a block, and what it
/// has of shared memory.
TEST(ProductTiles, BlocksArePricedAsTheyAreLaidOut) {
  std::mt19937_64 random(20301);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  const auto machine = std::make_shared<const Machine>(named_machine("h200"));
  int priced = 0;
  for (int i = 0; i < 60; ++i) {
    const bool half = i % 2 == 0;
    const auto w = std::make_shared<const Workload>(
        named_workload(formatted("gemm:m={},n={},k={},dtype={}", 16 * draw(8, 60),
                                 16 * draw(12, 60), 16 * draw(6, 60), half ? "f16" : "f32")));
    Kernel kernel{.name = "one"};
    kernel.tree = parse_tree(formatted("m/{}@grid n/{}@grid ( k/{} ( L.A L.B C.gemm ) S.C )",
                                       16 * draw(1, 8), 16 * draw(1, 12), 16 * draw(1, 6)));
    if (i % 5 == 0) kernel.launch.warps = static_cast<int>(draw(1, 8));
    if (i % 7 == 0) kernel.launch.stages = static_cast<int>(draw(1, 4));
    const auto s = resolve({.kernels = {kernel}}, w, machine);
    ASSERT_TRUE(s.ok()) << s.reason();
    auto rates = lowering::block_rates(*machine, w->dtype());
    ASSERT_TRUE(rates.ok()) << rates.reason();
    lowering::BlockRates by_mma = std::move(rates).value();
    by_mma.wgmma = 0;
    const auto time = lowering::block_time(
        *s, 0, by_mma,
        {.warps = kernel.launch.warps.value_or(0), .stages = kernel.launch.stages.value_or(0)});
    const auto source = cuda::emit(*s, {});
    EXPECT_EQ(time.ok(), source.ok()) << to_text(kernel.tree);
    if (!time || !source) continue;
    ++priced;
    EXPECT_EQ(time->threads, source->launches.back().threads) << to_text(kernel.tree);
    EXPECT_EQ(time->shared, source->launches.back().shared_bytes) << to_text(kernel.tree);
  }
  EXPECT_GT(priced, 50);
}

/// The first product's results stay in registers where the second one takes them at once, in a loop
/// of one turn, too, and have a tile in shared memory where it takes a part of them at a time. The
/// price says the same.
TEST(ProductTiles, AChainsResultsAreWhereTheirPriceHasThem) {
  std::mt19937_64 random(2611);
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  const auto machine = std::make_shared<const Machine>(named_machine("h200"));
  int in_registers = 0, in_shared = 0;
  for (int i = 0; i < 40; ++i) {
    const std::int64_t l = 16 * draw(4, 16), k = 16 * draw(1, 6);
    const auto w = std::make_shared<const Workload>(named_workload(formatted(
        "gemm-chain:m={},l={},k={},n={},dtype=f16", 16 * draw(1, 20), l, k, 16 * draw(4, 20))));
    const std::int64_t part = i % 2 == 0 ? l : 16 * draw(1, static_cast<int>(l / 32));
    Kernel kernel{.name = "one"};
    kernel.tree =
        parse_tree(formatted("m/16@grid n/{}@grid ( k/{} ( C.gemm1 ) l/{} ( C.gemm2 ) S.E )",
                             16 * draw(1, 4), i % 3 == 0 ? 16 : k, part));
    const auto s = resolve({.kernels = {kernel}}, w, machine);
    ASSERT_TRUE(s.ok()) << s.reason();
    lowering::BlockRates by_mma = *lowering::block_rates(*machine, w->dtype());
    by_mma.wgmma = 0;
    const auto time = lowering::block_time(*s, 0, by_mma);
    const auto source = cuda::emit(*s, {});
    if (!time || !source) continue;
    const auto c = std::ranges::find(source->tiles, "C", &cuda::TileUse::tensor);
    ASSERT_NE(c, source->tiles.end());
    const bool shared = c->place != "registers";
    EXPECT_EQ(shared, part < l) << to_text(kernel.tree) << ": " << c->reason;
    // Paddings differ, C's tile of floats is there or is not.
    EXPECT_NEAR(static_cast<double>(time->shared),
                static_cast<double>(source->launches.back().shared_bytes),
                16 * 4 * static_cast<double>(l) / 2)
        << to_text(kernel.tree);
    ++(shared ? in_shared : in_registers);
  }
  EXPECT_GT(in_registers, 12);
  EXPECT_GT(in_shared, 12);
}

/// What is read again later is alive until then, also around a loop.
TEST(ProductTiles, SumsThatAreAliveTogetherDoNot) {
  const Workload w = workload_from_yaml(
      "name: both\ndtype: f16\nloops: {m: 128, n: 128, k: 64}\noperators:\n"
      "  - C[m,n] += A[m,k] * B[k,n]\n  - D[m,n] += A[m,k] * G[k,n]\n"
      "  - E[m,n] = C[m,n] + D[m,n]\n",
      "test");
  Kernel kernel{.name = "one"};
  kernel.tree = parse_tree("m/128@grid n/128@grid ( k/32 ( L.A L.B L.G C.C C.D ) C.E S.E )");
  kernel.launch.warps = 8;
  int in_shared = 0;
  for (const cuda::TileUse& t : emitted(w, kernel).tiles)
    in_shared += (t.tensor == "C" || t.tensor == "D") && t.place != "registers";
  EXPECT_GT(in_shared, 0);
}

}  // namespace
}  // namespace tilewright
