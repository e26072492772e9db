// Convolutions in 16 bits and in f32 by tensor cores, and in f32 by fused multiply-adds, on
// simulator/cuda_host: drawn channels, images, windows, strides, dilations, paddings, groups and
// tiles compute what the reference evaluator computes, move the bytes that `exact` counts, and have
// no fault found in them; each of their waits that is left out is found. So do products of matrices
// whose rows begin at no multiples of 16 bytes, and images and results that have their channels
// side by side.
#include <algorithm>
#include <cstdlib>

#include "codegen/cuda/build.h"
#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/lowering/gpu/window_product.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/codegen/cuda_cases.h"
#include "tests/codegen/cuda_emitted.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kSeed = 24001;

using testing::Case;

/// Run `i` of the kernel: no fault, right elements, and as many bytes as `exact` counts.
template <class Module>
void expect_right(const Module& module, const cuda::Source& source, const Case& c, int i) {
  const auto run = testing::run_cuda(module, source, *c.workload, kSeed,
                                     {.turns = static_cast<std::uint64_t>(i % 3)});
  ASSERT_TRUE(run.ok()) << c.text << run.reason();
  EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
  const DType out = c.workload->tensor(c.workload->outputs().front()).dtype;
  const bool bfloat = c.workload->dtype() == DType::bf16 || out == DType::bf16;
  const bool floats = c.workload->dtype() == DType::f32;
  EXPECT_LT(run->error, bfloat ? 2e-2 : floats ? 2e-6 : 3e-3) << c.text;
  EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(c.schedule))) << c.text;
}

/// Of odd numbers of rows on a machine whose tensor cores take no TF32: floats are multiplied by
/// fused multiply-adds there.
Case make_case(const std::string& yaml, const std::string& tree, int cluster) {
  Case c = testing::make_case(yaml, tree, 132, {.cluster = cluster});
  const auto rows = c.workload->find_loop("o");
  if (rows && c.workload->loop(*rows).extent % 2 == 1) {
    Machine m = *c.schedule.machine;
    m.units.front().peak.erase("tf32");
    c.schedule.machine = std::make_shared<const Machine>(std::move(m));
  }
  return c;
}

class Draw : public testing::Draws {
 public:
  using Draws::Draws;

  /// `beside`: the image has its channels side by side, `turned`: results have.
  Case convolution(bool beside = false, bool turned = false) {
    const bool batch = number(0, 3) == 0, groups = number(0, 3) == 0, joint = groups && coin();
    const std::int64_t c = coin() ? 8 * number(1, 4) : number(2, 33), o = number(2, 50);
    const std::int64_t r = number(0, 2) == 0 ? 1 : number(1, 4), s = coin() ? r : number(1, 4);
    const std::int64_t sy = number(1, 3), sx = coin() ? sy : number(1, 2), dy = number(1, 2),
                       dx = coin() ? dy : number(1, 3), py = number(0, r / 2 * dy),
                       px = number(0, s / 2 * dx);
    // As many points as the image has, or so many that the image is whole in pieces.
    const std::int64_t high = number(1, 20) + (r - 1) * dy,
                       across = coin() ? 8 * number(1, 4) : number(1, 25),
                       wide = std::max(across, (s - 1) * dx + 1 - 2 * px);
    const std::int64_t y = (high + 2 * py - (r - 1) * dy - 1) / sy + 1,
                       x = (wide + 2 * px - (s - 1) * dx - 1) / sx + 1;
    const std::string outer = std::string(batch ? "b," : "") + (groups ? "g," : "");
    const bool wider = number(0, 3) == 0;
    static constexpr const char* kTypes[] = {"bf16", "f16", "f32"};
    const std::string type = kTypes[number(0, 2)];
    static constexpr const char* kAfter[] = {"", "  - Z[{0}] = relu(Y[{0}] + B[{1}o])\n",
                                             "  - Z[{0}] = Y[{0}] + R[{0}]\n",
                                             "  - Z[{0}] = tanh(Y[{0}] * B[y,x])\n"};
    std::string after = kAfter[number(0, 3)];
    const std::string group = groups ? "g," : "", of = batch ? "b," : "",
                      results = turned ? of + "y,x," + group + "o" : outer + "o,y,x";
    for (const auto& [from, to] :
         {std::pair{std::string("{0}"), results}, {std::string("{1}"), group}})
      for (std::size_t at; (at = after.find(from)) != std::string::npos;)
        after.replace(at, from.size(), to);
    const std::string channel = !groups ? "c" : joint ? formatted("{}*g+c", c) : "g,c";
    const std::string loops =
        formatted("{}{}o: {}, c: {}, y: {}, x: {}, r: {}, s: {}", batch ? "b: 2, " : "",
                  groups ? "g: 3, " : "", o, c, y, x, r, s);
    const std::string channels = !groups ? formatted("{}", c)
                                 : joint ? formatted("{}", 3 * c)
                                         : formatted("3, {}", c),
                      points = formatted("{}*y+{}*r-{},{}*x+{}*s-{}", sy, dy, py, sx, dx, px),
                      image = (batch ? "2, " : "") +
                              (beside ? formatted("{}, {}, {}", high, wide, channels)
                                      : formatted("{}, {}, {}", channels, high, wide)),
                      weights = !beside        ? group + "o,c,r,s"
                                : sy + sx == 2 ? "r,s," + group + "o,c"
                                               : group + "o,r,s,c";
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{{}}}\ntensors:\n  X: [{}]\n  W: [{}]\n"
        "  Y: [{}]\ndtypes: {{{}: {}}}\noperators:\n"
        "  - conv: Y[{}] += X[{}{}] * W[{}]\n{}",
        type, loops, image, weights, results, after.empty() ? "Y" : "Z", wider ? "f32" : type,
        results, of, beside ? points + "," + channel : channel + "," + points, weights, after);
    // Most tiles have whole lines.
    const std::int64_t rows = std::min(o, 16 * number(1, 3)), lines = std::min(y, number(1, 4)),
                       part_x = number(0, 4) > 0 ? x : std::min(x, 4 * number(1, 3));
    std::int64_t step = std::min(c, coin() ? std::int64_t{8} : number(1, 12));
    std::int64_t cluster = std::int64_t{1} << number(0, 3);
    const auto part = [&] { return ceil_div(ceil_div(c, cluster), step) * step; };
    while ((cluster - 1) * part() >= c) cluster /= 2;
    return make_case(yaml,
                     formatted("{}{}o/{}@grid y/{}@grid x/{}@grid ( c/{} ( C.conv ) {} )",
                               batch ? "b/1@grid " : "", groups ? "g/1@grid " : "", rows, lines,
                               part_x, step, after.empty() ? "S.Y" : "C.Z S.Z"),
                     static_cast<int>(cluster));
  }

  /// Of one or several pairs of matrices; the right one may be the same for all.
  Case product() {
    const bool batch = coin(), same = coin();
    const std::int64_t m = number(2, 70), n = number(2, 90);
    // Some row of an operand begins at no multiple of 16 bytes.
    const std::int64_t k = n % 8 == 0 ? 8 * number(0, 15) + number(2, 7) : number(2, 130);
    const std::string type = number(0, 2) == 0 ? "bf16" : "f16", b = batch ? "b," : "";
    static constexpr const char* kAfter[] = {"", "  - Z[{0}m,n] = relu(Y[{0}m,n] + B[n])\n",
                                             "  - Z[{0}m,n] = Y[{0}m,n] * R[{0}m,n] + B[m]\n"};
    std::string after = kAfter[number(0, 2)];
    for (std::size_t at; (at = after.find("{0}")) != std::string::npos;) after.replace(at, 3, b);
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{{}m: {}, n: {}, k: {}}}\noperators:\n"
        "  - conv: Y[{}m,n] += X[{}m,k] * W[{}k,n]\n{}",
        type, batch ? "b: 3, " : "", m, n, k, b, b, same ? "" : b, after);
    const std::int64_t rows = std::min(m, 16 * number(1, 4)),
                       points = coin() ? n : std::min(n, 16 * number(1, 4)),
                       step = std::min(k, 4 * number(1, 16));
    std::int64_t cluster = std::int64_t{1} << number(0, 3);
    while ((cluster - 1) * ceil_div(ceil_div(k, cluster), step) * step >= k) cluster /= 2;
    return make_case(
        yaml,
        formatted("{}m/{}@grid n/{}@grid ( k/{} ( C.conv ) {} )", batch ? "b/1@grid " : "", rows,
                  points, step, after.empty() ? "S.Y" : "C.Z S.Z"),
        static_cast<int>(cluster));
  }
};

/// How many cases, and what draws them: TILEWRIGHT_CASES and TILEWRIGHT_SEED ask for others.
std::pair<int, Draw> asked() {
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  return {cases != nullptr ? std::atoi(cases) : 16,
          Draw(seed != nullptr ? std::strtoull(seed, nullptr, 10) : kSeed)};
}

TEST(Windows, DrawnConvolutionsAreRightAndMoveWhatExactCounts) {
  auto [count, draw] = asked();
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  while (std::ssize(drawn) < count) {
    const bool matrices = std::ssize(drawn) % 3 == 1;
    Case c = matrices ? draw.product() : draw.convolution();
    const auto product = lowering::window_product(c.schedule, 0);
    // A window of one, and one channel: no product of matrices. A window of one, and one line: no
    // more than such a product.
    if (!product && product.reason() == "it sums nothing") continue;
    const auto one = [&](const char* loop) {
      return !matrices && c.workload->loop(*c.workload->find_loop(loop)).extent == 1;
    };
    if (!product && product.reason() == "it is a product of matrices" && one("y") && one("r") &&
        one("s"))
      continue;
    ASSERT_TRUE(product) << product.reason() << "\n" << c.text;
    drawn.push_back(std::move(c));
    const int at = static_cast<int>(sources.size());
    sources.push_back(testing::emitted(
        drawn.back().schedule,
        {.warpgroups =
             drawn.back().schedule.kernels.front().launch.cluster.value_or(1) > 1 || at % 2 == 0,
         .prefix = "k" + std::to_string(at)}));
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  int clusters = 0, pieces = 0, joined = 0, one_by_one = 0, flat = 0, at_once = 0, adds = 0,
      parts = 0;  // of floats
  for (int i = 0; i < count; ++i) {
    const Case& c = drawn[static_cast<std::size_t>(i)];
    const bool floats = c.workload->dtype() == DType::f32;
    expect_right(*module, sources[static_cast<std::size_t>(i)], c, i);
    const auto product = lowering::window_product(c.schedule, 0);
    clusters += product->share > 1, pieces += product->right_piece > 1;
    adds += product->fma(), parts += product->tf32, flat += product->flat;
    joined += product->out_x > product->wide;
    at_once += product->turns() > 1 && product->ahead == product->turns();
    one_by_one += !floats && product->left_piece == 1 && product->right_piece == 1;
  }
  EXPECT_GE(adds + parts, count / 8);
  EXPECT_GE(std::min(adds, parts), std::max(1, count / 32));
  EXPECT_GE(clusters, count / 8);
  EXPECT_GE(one_by_one, std::max(1, count / 32));
  EXPECT_GE(pieces, count / 16);
  EXPECT_GE(flat, std::max(1, count / 32));
  if (count >= 100) {
    EXPECT_GE(joined, 1);
    EXPECT_GE(at_once, 1);
  }
}

/// Points without a window are read eight at a time, but not where they are copied as they lie. Of
/// a chain the second launch copies its weights before the first has ended, and what the first
/// writes after that.
TEST(Windows, ChainsWithoutAWindowAreRightAndWaitForOneAnother) {
  testing::BarriersLeftOut barriers;
  for (const auto& [size, lines, points] : {std::tuple(8, 3, 8), std::tuple(7, 7, 7)}) {
    auto w = std::make_shared<const Workload>(workload_from_yaml(
        formatted("name: drawn\ndtype: f16\nloops: {{o: 20, c: 24, p: 33, y: {0}, x: {0}}}\n"
                  "tensors: {{X: [24, {0}, {0}], W: [20, 24], M: [20, {0}, {0}], V: [33, 20],\n"
                  "          Y: [33, {0}, {0}]}}\noperators:\n"
                  "  - one: M[o,y,x] += X[c,y,x] * W[o,c]\n"
                  "  - two: Y[p,y,x] += M[o,y,x] * V[p,o]\n",
                  size),
        "drawn"));
    Kernel one{.name = "one"}, two{.name = "two"};
    one.tree =
        parse_tree(formatted("o/16@grid y/{}@grid x/{}@grid ( c/8 ( C.one ) S.M )", lines, points));
    two.tree =
        parse_tree(formatted("p/16@grid y/{}@grid x/{}@grid ( o/8 ( C.two ) S.Y )", lines, points));
    auto s =
        resolve({.kernels = {one, two}}, w, std::make_shared<const Machine>(named_machine("h100")));
    ASSERT_TRUE(s.ok()) << s.reason();
    for (int kernel : {0, 1}) {
      const auto product = lowering::window_product(*s, kernel);
      ASSERT_TRUE(product) << product.reason();
      // Whole images of an odd size are copied as they lie at home.
      EXPECT_EQ(product->aligned(), size == 8);
      EXPECT_EQ(product->flat, size == 7);
      // Three stages, all copied from the beginning.
      EXPECT_EQ(product->ahead, 3);
      EXPECT_EQ(product->turns(), 3);
    }
    auto source = cuda::emit(*s, {.warpgroups = true});
    ASSERT_TRUE(source.ok()) << source.reason();
    const std::size_t second = source->text.find("Shape_tilewright_1");
    EXPECT_EQ(source->text.find("kLeftBefore = true", second) != std::string::npos, true);
    EXPECT_LT(source->text.find("kLeftBefore = false"), second);
    const auto module = testing::build_cuda({*source});
    ASSERT_TRUE(module.ok()) << module.reason();
    const auto run = testing::run_cuda(*module, *source, *w, kSeed, {});
    ASSERT_TRUE(run.ok()) << run.reason();
    EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
    EXPECT_LT(run->error, 3e-3);
    EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(*s)));
    if (size == 8) barriers.look(*module, *source, *w, kSeed, "a chain");
  }
  using Left = testing::BarriersLeftOut;
  EXPECT_GE(barriers.barriers(), 5);
  EXPECT_EQ(
      barriers.count(Left::wrong) + barriers.count(Left::idle) + barriers.count(Left::doubled), 0);
}

/// Images with their channels side by side, results with their rows side by side, and both.
TEST(Windows, ChannelsSideBySideAreRightAndMoveWhatExactCounts) {
  auto [count, draw] = asked();
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  int beside = 0, turned = 0, clusters = 0, adds = 0, parts = 0, one_by_one = 0, turns = 0;
  for (int tried = 0; std::ssize(drawn) < count; ++tried) {
    ASSERT_LT(tried, 4 * count);
    Case c = draw.convolution(tried % 3 != 0, tried % 3 != 1);
    const auto product = lowering::window_product(c.schedule, 0);
    // Of a window of one, rows that clusters do not share; or products by warpgroups.
    if (!product || !(product->beside || product->turned) ||
        lowering::warpgroup_product(c.schedule, 0))
      continue;
    beside += product->beside, turned += product->turned, clusters += product->share > 1;
    adds += product->fma(), parts += product->tf32, turns += product->turns() > 2;
    one_by_one += product->beside && product->alone(product->right_piece);
    drawn.push_back(std::move(c));
    const int at = static_cast<int>(sources.size());
    sources.push_back(testing::emitted(
        drawn.back().schedule,
        {.warpgroups = product->share > 1 || at % 2 == 0, .prefix = "k" + std::to_string(at)}));
  }
  EXPECT_GE(beside, count / 2);
  EXPECT_GE(turned, count / 2);
  EXPECT_GE(clusters, count / 8);
  EXPECT_GE(adds + parts, count / 8);
  EXPECT_GE(std::min(adds, parts), std::max(1, count / 32));
  EXPECT_GE(one_by_one, count / 16);
  EXPECT_GE(turns, count / 8);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    expect_right(*module, sources[at], drawn[at], i);
  }
}

TEST(Windows, WhatIsNoConvolutionIsSaid) {
  const auto reason = [&](const std::string& access, const std::string& tree, int cluster = 1) {
    const Case c = make_case(
        formatted("name: drawn\ndtype: f16\nloops: {{o: 64, c: 32, y: 14, x: 14, r: 3, s: 3}}\n"
                  "tensors: {{X: [32, 14, 14], Y: [64, 14, 14]}}\n"
                  "operators:\n  - conv: Y[o,y,x] += X[c,y+r-1,x+s-1] * {}\n",
                  access),
        tree, cluster);
    const auto product = lowering::window_product(c.schedule, 0);
    return product ? std::string("none") : product.reason();
  };
  const std::string lines = "o/64@grid y/2@grid x/14@grid ";
  EXPECT_EQ(reason("W[o,c,r,s]", lines + "( c/16 ( C.conv ) S.Y )"), "none");
  EXPECT_EQ(reason("W[o,c,r,s]", lines + "( c/16 ( C.conv ) S.Y )", 2), "none");
  EXPECT_EQ(reason("W[o,c,r,s]", lines + "( c/16 ( C.conv ) S.Y )", 4),
            "its 32 channels in steps of 16 are too few for clusters of 4");
  EXPECT_EQ(reason("V[c,r,s,o]", lines + "( c/16 ( C.conv ) S.Y )"),
            "tensor V's channels and window are no row of it");
  EXPECT_EQ(reason("W[o,c,r,s]", lines + "( r/1 ( C.conv ) S.Y )"),
            "a block has several tiles of loop r");
  EXPECT_EQ(reason("W[o,c,r,s]", "o/40@grid y/2@grid x/14@grid ( c/16 ( C.conv ) S.Y )"),
            "its tile has 40 rows, and takes multiples of 16");
}

TEST(Windows, NoMultiprocessorHasMoreBlocksThanItTakes) {
  // 224 blocks in clusters of eight for 132 multiprocessors: two each, though three have room. 112
  // blocks have one each, with all of its shared memory.
  const auto bytes = [&](int lines) {
    const Case c = make_case(
        "name: drawn\nloops: {o: 32, c: 128, y: 56, x: 56, r: 3, s: 3}\n"
        "tensors: {X: [128, 56, 56], W: [32, 128, 3, 3], Y: [32, 56, 56]}\n"
        "operators:\n  - conv: Y[o,y,x] += X[c,y+r-1,x+s-1] * W[o,c,r,s]\n",
        formatted("o/32@grid y/{}@grid x/56@grid ( c/16 ( C.conv ) S.Y )", lines), 8);
    return lowering::window_product(c.schedule, 0)->shared_bytes + 1024;  // that a block reserves
  };
  constexpr std::int64_t kOfSm = 228 * 1024;
  EXPECT_EQ(kOfSm / bytes(2), 2);
  EXPECT_EQ(kOfSm / bytes(4), 1);
}

TEST(Windows, EachWaitThatIsLeftOutIsFound) {
  // With and without a cluster, warps in turn in the depth, operators, and copies one by one.
  testing::BarriersLeftOut barriers;
  for (const auto& [size, tree, cluster, type] :
       {std::tuple(8, "o/16@grid y/4@grid x/8@grid ( c/4 ( C.conv ) C.Z S.Z )", 1, "f16"),
        std::tuple(8, "o/16@grid y/4@grid x/8@grid ( c/8 ( C.conv ) C.Z S.Z )", 1, "f16"),
        std::tuple(7, "o/16@grid y/7@grid x/7@grid ( c/4 ( C.conv ) C.Z S.Z )", 2, "f16"),
        std::tuple(7, "o/16@grid y/7@grid x/7@grid ( c/2 ( C.conv ) C.Z S.Z )", 2, "f32")}) {
    const Case c = make_case(
        formatted("name: drawn\ndtype: {1}\nloops: {{o: 16, c: 16, y: {0}, x: {0}, r: 3, s: 3}}\n"
                  "tensors: {{X: [16, {0}, {0}], W: [16, 16, 3, 3], Y: [16, {0}, {0}], B: [16]}}\n"
                  "operators:\n  - conv: Y[o,y,x] += X[c,y+r-1,x+s-1] * W[o,c,r,s]\n"
                  "  - Z[o,y,x] = relu(Y[o,y,x] + B[o])\n",
                  size, type),
        tree, cluster);
    const cuda::Source source = testing::emitted(c.schedule, {.stages = 2, .warpgroups = true});
    const auto module = testing::build_cuda({source});
    ASSERT_TRUE(module.ok()) << module.reason();
    barriers.look(*module, source, *c.workload, kSeed, c.text);
  }
  barriers.print();
  using Left = testing::BarriersLeftOut;
  EXPECT_GE(barriers.barriers(), 8);
  EXPECT_EQ(
      barriers.count(Left::wrong) + barriers.count(Left::idle) + barriers.count(Left::doubled), 0);
}

TEST(Windows, NoRegisterIsSpilled) {
  if (cuda::find_nvcc().empty()) GTEST_SKIP() << "no nvcc here";
  // Elements of an odd image one by one beside a cluster; the most sums of a thread.
  cuda::Source all{.file_name = "all.cu"};
  for (const auto& [o, c, size, window, tree, cluster, type] :
       {std::tuple(512, 512, 7, 3, "o/32@grid y/4@grid x/7@grid ( c/32 ( C.conv ) C.Z S.Z )", 8,
                   "f16"),
        std::tuple(512, 512, 7, 3, "o/32@grid y/3@grid x/7@grid ( c/32 ( C.conv ) C.Z S.Z )", 4,
                   "f16"),
        std::tuple(1024, 256, 14, 1, "o/64@grid y/2@grid x/14@grid ( c/64 ( C.conv ) C.Z S.Z )", 1,
                   "f16"),
        std::tuple(64, 256, 56, 1, "o/64@grid y/4@grid x/56@grid ( c/16 ( C.conv ) C.Z S.Z )", 2,
                   "f16"),
        std::tuple(216, 168, 65, 3, "o/128@grid y/2@grid x/65@grid ( c/16 ( C.conv ) C.Z S.Z )", 2,
                   "f32")}) {
    const Case one = make_case(
        formatted("name: drawn\ndtype: {5}\n"
                  "loops: {{o: {0}, c: {1}, y: {2}, x: {2}, r: {3}, s: {3}}}\n"
                  "tensors: {{X: [{1}, {2}, {2}], W: [{0}, {1}, {3}, {3}], Y: [{0}, {2}, {2}], "
                  "B: [{0}]}}\n"
                  "operators:\n  - conv: Y[o,y,x] += X[c,y+r-{4},x+s-{4}] * W[o,c,r,s]\n"
                  "  - Z[o,y,x] = relu(Y[o,y,x] + B[o])\n",
                  o, c, size, window, window / 2, type),
        tree, cluster);
    const cuda::Source source = testing::emitted(
        one.schedule, {.warpgroups = true,
                       .prefix = formatted("window_{}_{}_{}", window, type, all.launches.size())});
    testing::add_kernel(all, source);
  }
  // Places of copies that are held beside others for the rest of the depth.
  const Case rest = make_case(
      "name: drawn\ndtype: f16\nloops: {m: 495, n: 191, k: 75}\noperators:\n"
      "  - conv: Y[m,n] += X[m,k] * W[k,n]\n",
      "m/16@grid n/48@grid ( k/64 ( C.conv ) S.Y )", 1);
  const cuda::Source last =
      testing::emitted(rest.schedule, {.warpgroups = true, .prefix = "window_rest"});
  testing::add_kernel(all, last);
  testing::expect_no_spills(all);
}

}  // namespace
}  // namespace tilewright
