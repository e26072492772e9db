// Two products of one left operand by Hopper's warpgroups, whose sums operators join (a gated
// layer), on simulator/cuda_host: drawn shapes, layouts, types, tiles and operators compute what
// the reference evaluator computes, move the bytes that `exact` counts, and have no fault found in
// them; each of their waits that is left out is found.
#include <algorithm>
#include <cstdlib>

#include "codegen/cuda/build.h"
#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/codegen/cuda_cases.h"
#include "tests/codegen/cuda_emitted.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kSeed = 25141;

using testing::Case;
using testing::make_case;

class Draw : public testing::Draws {
 public:
  using Draws::Draws;

  /// Of one layer or several; operators may read rows, columns and elements, too.
  Case gated() {
    const bool across = coin(), left_across = coin(), batch = number(0, 2) == 0, all = coin();
    const std::int64_t m = left_across ? 8 * number(1, 20) : number(1, 160), k = 8 * number(1, 24),
                       l = across ? 8 * number(1, 26) : number(1, 200);
    static constexpr const char* kJoined[] = {
        "G[{0}m,l] * sigmoid(G[{0}m,l]) * U[{0}m,l]", "gelu(G[{0}m,l]) * U[{0}m,l]",
        "relu(U[{0}m,l] + c[l]) * (G[{0}m,l] + b[l])", "U[{0}m,l] + R[{0}m,l] * G[{0}m,l]"};
    std::string joined = kJoined[number(0, 3)];
    const std::string b = batch ? "b," : "", type = number(0, 2) == 0 ? "bf16" : "f16";
    for (std::size_t at; (at = joined.find("{0}")) != std::string::npos;) joined.replace(at, 3, b);
    const std::string x = left_across ? "k,m" : "m,k",
                      right = (all ? "" : b) + (across ? "k,l" : "l,k");
    // The second product's factors may stand the other way round.
    const std::string second = coin() ? formatted("X[{}{}] * W[{}]", b, x, right)
                                      : formatted("W[{}] * X[{}{}]", right, b, x);
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{{}m: {}, k: {}, l: {}}}\ndtypes: {{H: {}}}\noperators:\n"
        "  - gate: G[{}m,l] += X[{}{}] * V[{}]\n  - up: U[{}m,l] += {}\n  - H[{}m,l] = {}\n",
        type, batch ? "b: 2, " : "", m, k, l, coin() ? "f32" : type, b, b, x, right, b, second, b,
        joined);
    const std::int64_t rows = 64 * number(1, 2),
                       columns = across || coin() ? 64 : 16 * number(1, 4);
    return make_case(yaml,
                     formatted("{}m/{}@grid l/{}@grid ( k/{} ( C.gate C.up ) C.H S.H )",
                               batch ? "b/1@grid " : "", std::min(m, rows), std::min(l, columns),
                               std::min<std::int64_t>(k, 64 * number(1, 2))),
                     number(1, 3));
  }
};

TEST(Twins, ComputeMoveWhatExactCountsAndAreClean) {
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  const int count = cases != nullptr ? std::atoi(cases) : 12;
  Draw draw(seed != nullptr ? std::strtoull(seed, nullptr, 10) : kSeed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  for (int i = 0; i < count; ++i) {
    drawn.push_back(draw.gated());
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.warpgroups = true, .prefix = "k" + std::to_string(i)}));
    ASSERT_EQ(sources.back().micro_kernel, "wgmma")
        << drawn.back().text << sources.back().program.back();
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  int across = 0, whole = 0;
  for (int i = 0; i < count; ++i) {
    const Case& c = drawn[static_cast<std::size_t>(i)];
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    ASSERT_TRUE(product.ok()) << c.text;
    EXPECT_TRUE(product->twin.valid()) << c.text;
    const auto run = testing::run_cuda(*module, sources[static_cast<std::size_t>(i)], *c.workload,
                                       kSeed, {.turns = static_cast<std::uint64_t>(i % 3)});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    // In f16 and bf16 the reference rounds what one operator passes to the next.
    const bool bfloat = c.workload->dtype() == DType::bf16;
    EXPECT_LT(run->error, bfloat ? 3e-2 : 4e-3) << c.text;
    EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(c.schedule))) << c.text;
    across += product->right_across, whole += product->whole();
  }
  EXPECT_GE(across, count / 6);
  EXPECT_LT(across, count);
  EXPECT_LT(whole, count);
}

TEST(Twins, WhatIsNoSecondProductIsSaid) {
  const auto reason = [&](const std::string& up, const std::string& joined, const std::string& tree,
                          int cluster = 1) {
    const Case c = make_case(
        formatted("name: drawn\ndtype: f16\nloops: {{m: 128, k: 128, l: 256}}\noperators:\n"
                  "  - gate: G[m,l] += X[m,k] * V[k,l]\n  - up: U[m,l] += {}\n  - H[m,l] = {}\n",
                  up, joined),
        tree, 132, {.cluster = cluster});
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    return product ? std::string("none") : product.reason();
  };
  const std::string both = "G[m,l] * U[m,l]", grid = "m/64@grid l/64@grid ",
                    tree = grid + "( k/64 ( C.gate C.up ) C.H S.H )",
                    apart = "its second product is not side by side with the first";
  EXPECT_EQ(reason("X[m,k] * W[k,l]", both, tree), "none");
  EXPECT_EQ(reason("Z[m,k] * W[k,l]", both, tree), apart);
  EXPECT_EQ(reason("X[m,k] * W[l,k]", both, tree), apart);
  EXPECT_EQ(reason("X[m,k] * V[k,l]", both, tree), apart);
  EXPECT_EQ(reason("X[m,k] * W[k,l]", both, grid + "( k/64 ( C.gate ) k/64 ( C.up ) C.H S.H )"),
            "its loops are not a chain");
  EXPECT_EQ(reason("X[m,k] * W[k,l]", both + " + W[m,l]", tree).substr(0, 8), "tensor W");
  EXPECT_EQ(reason("X[m,k] * W[k,l]", both, tree, 2),
            "two products side by side share no operands in clusters");
  EXPECT_EQ(
      reason("X[m,k] * W[k,l]", both, "m/64@grid l/192@grid ( k/64 ( C.gate C.up ) C.H S.H )"),
      "its two tiles have 384 columns, and an instruction at most 256");
}

/// The second launch copies both weights before the first has ended, but neither where it makes
/// one.
TEST(Twins, BothRightOperandsAreCopiedBeforeTheLaunchBeforeHasEnded) {
  for (const std::string made : {"X", "W"}) {
    auto w = std::make_shared<const Workload>(workload_from_yaml(
        formatted("name: drawn\ndtype: f16\nloops: {{m: 72, k: 72, l: 72}}\noperators:\n"
                  "  - first: {}[m,k] = A[m,k] + 1\n  - gate: G[m,l] += X[m,k] * V[k,l]\n"
                  "  - up: U[m,l] += X[m,k] * W[k,l]\n  - H[m,l] = G[m,l] * U[m,l]\n",
                  made),
        "drawn"));
    Kernel one{.name = "one"}, two{.name = "two"};
    one.tree = parse_tree("m/8@grid ( C.first S." + made + " )");
    two.tree = parse_tree("m/64@grid l/64@grid ( k/64 ( C.gate C.up ) C.H S.H )");
    auto s =
        resolve({.kernels = {one, two}}, w, std::make_shared<const Machine>(named_machine("h100")));
    ASSERT_TRUE(s.ok()) << s.reason();
    const auto source = cuda::emit(*s, {.warpgroups = true});
    ASSERT_TRUE(source.ok()) << source.reason();
    EXPECT_EQ(source->text.find("false, true, 2, 0, 0") != std::string::npos, made == "X");
    EXPECT_EQ(source->text.find("true, false, 2, 0, 0") != std::string::npos, made == "W");
    const auto module = testing::build_cuda({*source});
    ASSERT_TRUE(module.ok()) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *w, kSeed, {});
    ASSERT_TRUE(run.ok()) << run.reason();
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
    EXPECT_LT(run->error, 4e-3);
  }
}

/// Fewer blocks than SMs that copy much, behind clusters: they begin when all SMs are free.
TEST(Twins, FewBlocksThatCopyMuchBehindClustersBeginOnIdleSms) {
  enum class Behind { itself, blocks, clusters };
  using enum Behind;
  const auto early = [](std::int64_t k, std::int64_t l, std::int64_t columns, Behind behind) {
    const std::string second =
        behind == itself   ? ""
        : behind == blocks ? "m/128@grid n/64@grid ( l/64 ( C.down ) S.E )"
                           : formatted("m/128@grid n/128@grid ( l/{}@cluster l/64 ( C.down ) S.E )",
                                       (l / 8 + 63) / 64 * 64);
    const Case c = make_case(
        formatted("name: drawn\ndtype: f16\nloops: {{m: 128, k: {}, l: {}{}}}\noperators:\n"
                  "  - gate: G[m,l] += X[m,k] * V[k,l]\n  - up: U[m,l] += X[m,k] * W[k,l]\n"
                  "  - H[m,l] = relu(G[m,l]) * U[m,l]\n{}",
                  k, l, second.empty() ? "" : ", n: 2048",
                  second.empty() ? "" : "  - down: E[m,n] += H[m,l] * D[l,n]\n"),
        formatted("m/128@grid l/{}@grid ( k/64 ( C.gate C.up ) C.H S.H )", columns), 132,
        {.second = second});
    const cuda::Source source = testing::emitted(c.schedule, {.warpgroups = true});
    EXPECT_TRUE(source.micro_kernel.starts_with("wgmma")) << source.micro_kernel;
    return source.launches.front().early;
  };
  EXPECT_FALSE(early(2048, 11008, 128, clusters));  // 86 blocks
  EXPECT_TRUE(early(2048, 11008, 128, blocks));
  EXPECT_TRUE(early(2048, 11008, 128, itself));
  EXPECT_TRUE(early(256, 11008, 128, clusters));   // which copy little
  EXPECT_TRUE(early(2048, 11008, 64, clusters));   // 132 blocks, of 172 tiles
  EXPECT_TRUE(early(2048, 16128, 128, clusters));  // 126 blocks: nearly all SMs have one
}

TEST(Twins, EachWaitThatIsLeftOutIsFound) {
  testing::BarriersLeftOut barriers;
  const Case c = make_case(
      "name: drawn\ndtype: f16\nloops: {m: 150, k: 264, l: 136}\noperators:\n"
      "  - gate: G[m,l] += X[m,k] * V[k,l]\n  - up: U[m,l] += X[m,k] * W[k,l]\n"
      "  - H[m,l] = relu(G[m,l]) * U[m,l]\n",
      "m/128@grid l/64@grid ( k/64 ( C.gate C.up ) C.H S.H )", 2);
  const cuda::Source source = testing::emitted(c.schedule, {.stages = 2, .warpgroups = true});
  const auto module = testing::build_cuda({source});
  ASSERT_TRUE(module.ok()) << module.reason();
  barriers.look(*module, source, *c.workload, kSeed, c.text);
  using Left = testing::BarriersLeftOut;
  EXPECT_GE(barriers.barriers(), 6);
  EXPECT_EQ(
      barriers.count(Left::wrong) + barriers.count(Left::idle) + barriers.count(Left::doubled), 0);
}

TEST(Twins, SpillNothingInTheLargestTiles) {
  if (cuda::find_nvcc().empty()) GTEST_SKIP() << "no nvcc here";
  cuda::Source all{.file_name = "all.cu"};
  for (const auto& [rows, columns, whole] :
       {std::tuple(64, 128, true), std::tuple(128, 128, true), std::tuple(192, 64, true),
        std::tuple(256, 64, true), std::tuple(64, 128, false), std::tuple(256, 64, false)}) {
    const Case c = make_case(
        formatted("name: drawn\ndtype: f16\nloops: {{m: {}, k: 1024, l: {}}}\noperators:\n"
                  "  - gate: G[m,l] += X[m,k] * V[k,l]\n  - up: U[m,l] += X[m,k] * W[k,l]\n"
                  "  - H[m,l] = gelu(G[m,l]) * U[m,l]\n",
                  whole ? 4 * rows : 1000, whole ? 4 * columns : 1000),
        formatted("m/{}@grid l/{}@grid ( k/64 ( C.gate C.up ) C.H S.H )", rows, columns), 132);
    const cuda::Source one = testing::emitted(
        c.schedule,
        {.warpgroups = true, .prefix = formatted("twin_{}_{}_{}", rows, columns, whole)});
    ASSERT_EQ(one.micro_kernel, "wgmma") << c.text;
    testing::add_kernel(all, one);
  }
  testing::expect_no_spills(all);
}

}  // namespace
}  // namespace tilewright
