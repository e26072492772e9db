// Convolutions by Hopper's warpgroups, of images whose channels lie side by side, on
// simulator/cuda_host: drawn sizes, directions, windows, layouts and tiles compute what the
// reference evaluator computes, move the bytes that `exact` counts, and have no fault found in
// them. Some have groups of channels.
#include <algorithm>
#include <cstdlib>

#include "codegen/cuda/build.h"
#include "core/base/format.h"
#include "core/lowering/gpu/box_bytes.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/codegen/cuda_cases.h"
#include "tests/codegen/cuda_emitted.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kSeed = 26113;

using testing::make_case;

struct Case : testing::Case {
  bool steps = false;   ///< points of the image are passed over
  bool ragged = false;  ///< the last tile of a loop has fewer points, or two taps the same ones
};

class Draw : public testing::Draws {
 public:
  using Draws::Draws;

  Case convolution(bool in_groups) {
    static constexpr const char *kPoints[] = {"x", "y", "z"}, *kTaps[] = {"s", "r", "t"};
    const auto directions = static_cast<std::size_t>(number(1, 3));
    const bool batch = coin(), last = coin(), taps_outside = coin();
    std::string loops, points, taps, shape, places, grid, around;
    std::int64_t tile = 1;  // points
    bool whole = true, steps = false, ragged = false, shared = false;
    for (std::size_t d = 0; d < directions; ++d) {
      const std::int64_t n = number(1, d == 0 ? 40 : 9), k = number(0, 2) == 0 ? 1 : number(2, 3),
                         stride = number(0, 2) == 0 ? number(2, 3) : 1,
                         dilate = k > 1 && number(0, 3) == 0 ? 2 : 1, pad = number(0, k - 1);
      const std::int64_t size =
          std::max<std::int64_t>(1, (n - 1) * stride + (k - 1) * dilate + 1 - 2 * pad);
      const std::string p = kPoints[d], t = kTaps[d];
      loops += formatted(", {}: {}{}", p, n, k > 1 ? formatted(", {}: {}", t, k) : "");
      points = p + "," + points;
      if (k > 1) taps = t + "," + taps;
      shape = formatted("{},{}", size, shape);
      places = formatted("{}*{}{}{},{}", stride, p, k > 1 ? formatted("+{}*{}", dilate, t) : "",
                         pad > 0 ? formatted("-{}", pad) : "", places);
      // All of the inner loops, a part of one, single points of the others.
      const std::int64_t room = 256 / tile;
      std::int64_t part = !whole ? 1
                          : n <= room && coin()
                              ? n
                              : number(1, std::max<std::int64_t>(1, std::min(room, n)));
      if (coin())
        while (n % part != 0) --part;
      whole = whole && part == n, tile *= part, steps = steps || stride > 1;
      ragged = ragged || n % part != 0;
      grid = formatted("{}/{}@grid {}", p, part, grid);
      if (k > 1) around = formatted("{}/1 {}", t, around);
    }
    const std::int64_t groups = in_groups ? number(2, 5) : 1;
    const bool joined = in_groups && coin();  // groups of the image are in one dimension
    const std::int64_t images = batch ? number(2, 5) : 1,
                       o = number(0, 2) == 0 ? number(1, 150) : 8 * number(1, 20),
                       c = 8 * number(1, 18), rows = 64 * number(1, 3);
    if (batch) {
      // Several whole images only where all of their points follow one another.
      const std::int64_t several = whole && last ? std::min(images, 256 / tile) : 1;
      grid = formatted("b/{}@grid {}", number(1, std::max<std::int64_t>(1, several)), grid);
      loops += formatted(", b: {}", images);
      points = "b," + points, shape = formatted("{},{}", images, shape), places = "b," + places;
    }
    const int operators = static_cast<int>(number(0, 2));
    if (operators == 0 && around.size() > 4 && number(0, 2) == 0) {
      around.insert(around.find(' '), "@cluster");
      shared = true;
    }
    const std::string g = groups > 1 ? "g," : "", o_of = g + "o",
                      weights = taps_outside ? taps + o_of + ",c" : o_of + "," + taps + "c",
                      results = last ? points + o_of
                                     : (batch ? "b," + o_of + "," + points.substr(2)
                                              : o_of + "," + points);
    if (groups > 1) {
      grid = "g/1@grid " + grid, loops += formatted(", g: {}", groups);
      shape += joined ? formatted("{}", groups * c) : formatted("{},{}", groups, c);
      places += joined ? formatted("{}*g+c", c) : "g,c";
    } else {
      shape += std::to_string(c), places += "c";
    }
    const std::string at = results.back() == ',' ? results.substr(0, results.size() - 1) : results;
    const std::string type = number(0, 2) == 0 ? "bf16" : "f16";
    std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{o: {}, c: {}{}}}\ntensors: {{I: [{}]}}\noperators:\n"
        "  - conv: O[{}] += I[{}] * W[{}]\n",
        type, o, c, loops, shape, at, places, weights);
    if (operators == 1) yaml += formatted("  - relu: Z[{0}] = relu(O[{0}] + G[{1}])\n", at, o_of);
    if (operators == 2) yaml += formatted("  - add: Z[{0}] = O[{0}] + R[{0}]\n", at);
    const int cluster = !shared && groups == 1 && number(0, 2) == 0 ? 2 : 1;
    Case made{make_case(yaml,
                        formatted("{}o/{}@grid ( {}c/{} ( C.conv ) {} )", grid, std::min(o, rows),
                                  around, std::min<std::int64_t>(c, 64),
                                  operators == 0   ? "S.O"
                                  : operators == 1 ? "C.relu S.Z"
                                                   : "C.add S.Z"),
                        number(1, 3), {.cluster = cluster}),
              steps, ragged || c <= 64};
    made.joins = shared;
    return made;
  }
};

/// Drawn convolutions compute right, are clean and move what `exact` counts.
void expect_right(bool in_groups) {
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  const int count = cases != nullptr ? std::atoi(cases) : 16;
  Draw draw(seed != nullptr ? std::strtoull(seed, nullptr, 10) : kSeed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  int tried = 0, images = 0;
  for (; static_cast<int>(drawn.size()) < count && tried < 4 * count; ++tried) {
    Case c = draw.convolution(in_groups);
    // Tiles that are no warpgroups' are drawn, too: registers, clusters, results that lie apart.
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    if (!product) continue;
    images += product->images.has_value();
    sources.push_back(testing::emitted(
        c.schedule, {.warpgroups = true, .prefix = "k" + std::to_string(drawn.size())}));
    ASSERT_EQ(sources.back().micro_kernel, "wgmma") << c.text << sources.back().program.back();
    drawn.push_back(std::move(c));
  }
  ASSERT_EQ(static_cast<int>(drawn.size()), count);
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  int steps = 0, shares = 0, exact = 0;
  for (int i = 0; i < count; ++i) {
    const Case& c = drawn[static_cast<std::size_t>(i)];
    const auto run = testing::run_cuda(*module, sources[static_cast<std::size_t>(i)], *c.workload,
                                       kSeed, {.turns = static_cast<std::uint64_t>(i % 3)});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    const bool bfloat = c.workload->dtype() == DType::bf16;
    EXPECT_LT(run->error, bfloat ? 3e-2 : 4e-3) << c.text;
    // Boxes pass over points that `exact` counts with those around them, and the last one of a loop
    // has as many as the others.
    exact += !c.steps && !c.ragged;
    if (!c.steps && !c.ragged) {
      EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(c.schedule))) << c.text;
    }
    steps += c.steps, shares += c.joins;
  }
  EXPECT_GE(images, count / 2);
  EXPECT_GT(steps, 0);
  EXPECT_GT(exact, count / 6);
  EXPECT_GT(shares, 0);
}

TEST(Images, ComputeMoveWhatExactCountsAndAreClean) { expect_right(false); }
TEST(Images, InGroupsAreRight) { expect_right(true); }

/// Of few channels a box's row has the taps of a row of the window, too: drawn ones compute right,
/// are clean, and move what their boxes have.
TEST(Images, FewChannelsLieBesideTapsOfARow) {
  const char* const seed = std::getenv("TILEWRIGHT_SEED");
  testing::Draws draws(seed != nullptr ? std::strtoull(seed, nullptr, 10) : kSeed);
  const auto number = [&](std::int64_t from, std::int64_t to) { return draws.number(from, to); };
  std::vector<testing::Case> drawn;
  std::vector<cuda::Source> sources;
  while (drawn.size() < 8) {
    const std::int64_t c = number(0, 1) == 0 ? 4 : 8, step = c == 4 ? 2 : number(1, 3),
                       k = number(2, 64 / c > 7 ? 7 : 64 / c), x = number(2, 40), y = number(1, 6),
                       wide = round_up((x - 1) * step + k, 2), pad = number(0, k - 1),
                       high = std::max<std::int64_t>(1, (y - 1) * step + k - 2 * pad),
                       o = number(2, 100);
    const bool last = number(0, 1) == 0;
    drawn.push_back(make_case(
        formatted("name: drawn\ndtype: f16\nloops: {{b: 2, o: {}, c: {}, y: {}, x: {}, r: {}, "
                  "s: {}}}\ntensors: {{I: [b,{},{},c], W: [o,r,{},c]}}\noperators:\n"
                  "  - conv: O[{}] += I[b,{}*y+r-{},{}*x+s,c] * W[o,r,s,c]\n",
                  o, c, y, x, k, k, high, wide, round_up(k, 2), last ? "b,y,x,o" : "b,o,y,x", step,
                  pad, step),
        formatted("b/1@grid y/1@grid x/{}@grid o/{}@grid ( r/1 ( C.conv ) S.O )", number(1, x),
                  std::min<std::int64_t>(o, 64)),
        number(1, 3)));
    const auto product = lowering::warpgroup_product(drawn.back().schedule, 0);
    if (!product) {  // results that begin anywhere
      EXPECT_TRUE(product.reason().find("O") != std::string::npos) << product.reason();
      drawn.pop_back();
      continue;
    }
    EXPECT_EQ(product->depth, 64 * k);
    sources.push_back(
        testing::emitted(drawn.back().schedule,
                         {.warpgroups = true, .prefix = "f" + std::to_string(sources.size())}));
    ASSERT_EQ(sources.back().micro_kernel, "wgmma") << drawn.back().text;
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const auto run =
        testing::run_cuda(*module, sources[i], *drawn[i].workload, kSeed, {.turns = i % 3});
    ASSERT_TRUE(run.ok()) << drawn[i].text << run.reason();
    EXPECT_TRUE(run->report.clean()) << drawn[i].text << "\n" << run->report.findings.front().text;
    EXPECT_LT(run->error, 4e-3) << drawn[i].text;
  }
}

/// A box's sectors, those outside of the image as well.
TEST(Images, BoxesTakeAllTapsOfAllPoints) {
  const testing::Case c = make_case(
      "name: drawn\ndtype: f16\nloops: {o: 64, c: 64, y: 8, x: 16, r: 3, s: 3}\n"
      "tensors: {I: [8,16,c]}\noperators:\n"
      "  - conv: O[y,x,o] += I[y+r-1,x+s-1,c] * W[o,r,s,c]\n",
      "y/8@grid x/16@grid o/64@grid ( r/1 s/1 c/64 ( C.conv ) S.O )", 132);
  const auto product = lowering::warpgroup_product(c.schedule, 0);
  ASSERT_TRUE(product.ok()) << product.reason();
  EXPECT_EQ(lowering::box_bytes(*product), 9 * 128 * (64 + 8 * 16));
}

TEST(Images, WhatIsNoSuchConvolutionIsSaid) {
  const auto reason = [](const std::string& image, const std::string& weights,
                         const std::string& tree) {
    const testing::Case c = make_case(
        formatted(
            "name: drawn\ndtype: f16\nloops: {{b: 2, o: 64, c: 64, y: 9, x: 12, r: 3, s: 3}}\n"
            "tensors: {{I: [b,{}]}}\noperators:\n  - conv: O[b,o,y,x] += I[b,{}] * W[{}]\n",
            image[0] == 'c' ? "c,9,12" : "9,12,c", image, weights),
        tree, 132);
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    return product ? std::string("none") : product.reason();
  };
  const std::string image = "y+r-1,x+s-1,c", weights = "o,r,s,c",
                    grid = "b/1@grid y/3@grid x/12@grid o/64@grid ",
                    tree = grid + "( r/1 s/1 c/64 ( C.conv ) S.O )";
  EXPECT_EQ(reason(image, weights, tree), "none");
  EXPECT_EQ(reason("c,y+r-1,x+s-1", weights, tree), "a tensor is indexed by more than loops");
  EXPECT_EQ(reason(image, "o,c,r,s", tree), "tensor W has no channels side by side");
  EXPECT_EQ(reason(image, "o,s,r,c", tree), "tensor W's taps do not lie at equal distances");
  EXPECT_EQ(reason(image, "o,s,c", tree), "tensor W is the same for all of loop r");
  EXPECT_EQ(reason(image, weights, grid + "( c/64 ( C.conv ) S.O )"),
            "loop s of its window is not gone through one by one");
  EXPECT_EQ(reason(image, weights, grid + "( c/32 r/1 s/1 ( C.conv ) S.O )"),
            "loop r of its window is within that of the channels");
  EXPECT_EQ(reason(image, weights,
                   "b/2@grid y/3@grid x/12@grid o/64@grid ( r/1 s/1 c/64 ( C.conv ) S.O )"),
            "its tile has a part of loop y and several of loop b");
  EXPECT_EQ(reason(image, weights,
                   "b/2@grid y/9@grid x/12@grid o/64@grid ( r/1 s/1 c/64 ( C.conv ) S.O )"),
            "tensor O has its points at no equal distances");
}

}  // namespace
}  // namespace tilewright
