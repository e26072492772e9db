// Chains of convolutions as emitted kernels: strides, padding, halos that are computed again,
// points that lie dense or not, channels that are split; each held against the reference evaluator.
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/random_convolutions.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

struct Case {
  std::string workload, tree, tiles;
};

Schedule schedule_of(const Case& c, bool in_place) {
  auto w = std::make_shared<const Workload>(named_workload(c.workload));
  const auto machine = testing::worked_machine("scratchpad:4M");
  auto s = resolve(Plan{.kernels = {{.tree = parse_tree(c.tree), .tiles = parse_tiles(c.tiles)}}},
                   w, in_place ? testing::cached(*machine) : machine);
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      // Whole rows: points of an output's rows follow one another, and vectors run across them.
      {"conv-chain:ic=5,h=21,w=19,oc1=9,oc2=7,st1=1,st2=1,k1=3,k2=1,relu=1",
       "h w ( C.conv1 C.relu oc2 ( C.conv2 ) )", "h=4,w=19,oc2=7"},
      // Strides of two and four, and a last tile of fewer rows.
      {"conv-chain:ic=3,h=41,w=75,oc1=8,oc2=5,st1=2,st2=1,k1=3,k2=1",
       "h w oc1 ( ic r1 s1 ( C.conv1 ) C.conv2 )", "h=5,w=38,oc1=4,ic=2,r1=3,s1=3"},
      {"conv-chain:ic=2,h=45,w=150,oc1=6,oc2=5,st1=4,st2=1,k1=3,k2=1", "h w ( C.conv1 C.conv2 )",
       "h=5,w=38"},
      // A second convolution of three rows: those of the first at the edges of tiles are computed
      // again.
      {"conv-chain:ic=6,h=20,w=18,oc1=7,oc2=8,st1=1,st2=1,k1=1,k2=3,relu=1",
       "h w ( C.conv1 C.relu C.conv2 )", "h=6,w=18"},
      // Columns cut in two: rows of points have gaps. Kernels of five and three, strided twice.
      {"conv-chain:ic=3,h=30,w=44,oc1=5,oc2=6,st1=1,st2=2,k1=5,k2=3",
       "oc1 h w ( ic ( C.conv1 ) C.conv2 )", "h=3,w=13,oc1=3,ic=2"},
      // A part of a kernel's rows and columns at a time: the weights' steps do not follow one
      // another.
      {"conv-chain:ic=4,h=17,w=23,oc1=6,oc2=5,st1=1,st2=1,k1=3,k2=3",
       "h w ( r1 ic s1 ( C.conv1 ) r2 s2 oc1 ( C.conv2 ) )",
       "h=5,w=23,r1=2,s1=1,ic=3,r2=1,s2=2,oc1=4"},
      {"conv-chain:ic=4,h=11,w=12,oc1=6,oc2=5,st1=1,st2=1,k1=3,k2=1,batch=3",
       "b/2 h w ( C.conv1 C.conv2 )", "h=5,w=12"},
      {"conv-chain:ic=3,h=14,w=20,oc1=5,oc2=6,st1=2,st2=1,k1=3,k2=3,dtype=f64",
       "h w ( C.conv1 C.conv2 )", "h=3,w=10"},
      {"conv-chain:ic=5,h=13,w=24,oc1=7,oc2=6,st1=3,st2=1,k1=3,k2=1", "h w ( C.conv1 C.conv2 )",
       "h=3,w=8"},
      // More channels than one group of vectors has, weights that are packed once for several
      // tiles.
      {"conv-chain:ic=3,h=12,w=33,oc1=40,oc2=18,st1=1,st2=1,k1=3,k2=3", "h w ( C.conv1 C.conv2 )",
       "h=5,w=33"},
      // Lines of a few of the channels have room for a whole image: bands of rows, the last of them
      // smaller, and a stride.
      {"conv-chain:ic=70,h=53,w=50,oc1=9,oc2=3,st1=1,st2=1,k1=3,k2=1,relu=1",
       "h w ( C.conv1 C.relu C.conv2 )", "h=53,w=50"},
      {"conv-chain:ic=90,h=93,w=76,oc1=12,oc2=3,st1=2,st2=1,k1=3,k2=1", "h w ( C.conv1 C.conv2 )",
       "h=47,w=38"},
      // More taps than are taken at once.
      {"conv-chain:ic=2,h=12,w=20,oc1=6,oc2=5,st1=2,st2=1,k1=9,k2=1", "h w ( C.conv1 C.conv2 )",
       "h=3,w=10"},
  };
  return all;
}

/// Chains drawn at random: kernels larger than their images, strides beyond them, single rows and
/// columns, one channel and several groups.
std::vector<Case> drawn(std::uint32_t seed, int count) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<Case> all;
  while (static_cast<int>(all.size()) < count) {
    const int h = draw(1, 30), w = draw(1, 50), k1 = draw(1, 6), k2 = 2 * draw(0, 1) + 1;
    const int st1 = draw(1, 5), st2 = draw(1, 2);
    const auto after = [](int size, int k, int st) { return (size + 2 * (k / 2) - k) / st + 1; };
    const int rows = after(after(h, k1, st1), k2, st2), columns = after(after(w, k1, st1), k2, st2);
    const bool relu = draw(0, 1) == 1;
    all.push_back({formatted("conv-chain:ic={},h={},w={},oc1={},oc2={},st1={},st2={},k1={},k2={},"
                             "relu={}",
                             draw(1, 6), h, w, draw(1, 40), draw(1, 20), st1, st2, k1, k2,
                             static_cast<int>(relu)),
                   formatted("h w ( C.conv1 {}C.conv2 )", relu ? "C.relu " : ""),
                   formatted("h={},w={}", draw(1, rows), draw(1, columns))});
  }
  return all;
}

template <class Real>
double error_of(const Workload& w, cpu::Kernel& kernel, std::int64_t kept_bytes = 0) {
  const TensorValues inputs = random_inputs(w, 9);
  testing::Arrays<Real> arrays(w, inputs);
  std::vector<std::byte> kept(static_cast<std::size_t>(kept_bytes));
  if (kept_bytes > 0) kernel.prepare(arrays.pointers(), kept.data());
  kernel.run(arrays.pointers(), kept_bytes > 0 ? kept.data() : nullptr);
  return testing::worst_error(w, arrays, evaluate(w, inputs));
}

class OnEveryIsa : public ::testing::TestWithParam<cpu::Isa> {};

TEST_P(OnEveryIsa, ComputesTheChain) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  for (const Case& c : cases()) {
    schedules.push_back(schedule_of(c, sources.size() % 3 != 0));
    auto source = cpu::emit(schedules.back(), {.isa = GetParam(),
                                               .threads = 1 + static_cast<int>(sources.size() % 2),
                                               .prefix = "k" + std::to_string(sources.size())});
    ASSERT_TRUE(source.ok()) << source.reason();
    if (GetParam() != cpu::Isa::generic && c.workload.find("k1=1") == std::string::npos) {
      const bool by_points = source->text.find(" convolve<") != std::string::npos;
      EXPECT_TRUE(by_points || source->text.find("convolve_lines<") != std::string::npos)
          << c.workload;
    }
    sources.push_back(std::move(source).value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const bool f64 = cases()[i].workload.find("f64") != std::string::npos;
    const Workload& w = *schedules[i].workload;
    EXPECT_LT(
        f64 ? error_of<double>(w, kernels.value()[i]) : error_of<float>(w, kernels.value()[i]),
        f64 ? 1e-13 : 1e-5)
        << cases()[i].workload << " " << cases()[i].tree;
  }
}

/// More channels than a block has whose weights stay in the second cache, more points than sums
/// have room for, a stride, several groups of vectors.
TEST_P(OnEveryIsa, BroadcastsPoints) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  const std::vector<Case> all = {{"conv-chain:ic=200,h=5,w=5,oc1=33,oc2=3,st1=1,st2=1,k1=3,k2=1",
                                  "h w ( C.conv1 C.conv2 )", "h=5,w=5"},
                                 {"conv-chain:ic=3,h=37,w=29,oc1=64,oc2=3,st1=1,st2=1,k1=7,k2=1",
                                  "h w ( C.conv1 C.conv2 )", "h=37,w=29"},
                                 {"conv-chain:ic=9,h=35,w=33,oc1=48,oc2=3,st1=2,st2=1,k1=3,k2=1",
                                  "h w ( C.conv1 C.conv2 )", "h=18,w=17"}};
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  for (const Case& c : all) {
    schedules.push_back(schedule_of(c, true));
    cpu::EmitOptions options{.isa = GetParam(), .prefix = "k" + std::to_string(sources.size())};
    if (sources.empty()) options.constant = {"W1"};
    sources.push_back(cpu::emit(schedules.back(), options).value());
    // Of the last one lines and points cost about the same. With 16 registers of 32 bytes the
    // second one's lines are faster, too: of the first layer's 37 x 29 points they take 0.68 of the
    // time on a Zen 3.
    const std::size_t broadcast = GetParam() == cpu::Isa::avx512 ? 2 : 1;
    if (GetParam() != cpu::Isa::generic && sources.size() <= broadcast) {
      EXPECT_TRUE(sources.back().text.find(" convolve<") != std::string::npos) << c.workload;
    }
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_LT(error_of<float>(*schedules[i].workload, kernels.value()[i], sources[i].kept_bytes),
              1e-5)
        << all[i].workload;
}

// An image of 13 x 13 points, 512 channels apart by a tenth of a page: rows of a channel were taken
// for the panels of a plain product, which would share sets of the first cache, and all of it was
// copied.
TEST(Convolutions, PointwiseOnesReadTheirImageWhereItLies) {
  for (const auto& [side, channels] : {std::pair(13, 512), {14, 512}, {13, 384}}) {
    const std::string text = formatted(
        "name: point\nloops: {{i: 64, l: {0}, j: {0}, k: {1}}}\n"
        "operators:\n  - \"Y[i,l,j] += X[k,l,j] * W[i,k]\"\n",
        side, channels);
    const auto w = std::make_shared<const Workload>(workload_from_yaml(text, "test"));
    const auto machine = std::make_shared<const Machine>(named_machine("epyc-zen5"));
    const std::string tree = formatted("i/64 j/{} k/{} ( C.Y )", side, channels);
    const auto s = resolve({.kernels = {{.level = "L2", .tree = parse_tree(tree)}}}, w, machine);
    ASSERT_TRUE(s.ok()) << s.reason();
    for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512}) {
      const cpu::Source source = cpu::emit(*s, {.isa = isa, .constant = {"W"}}).value();
      EXPECT_NE(source.text.find("convolve"), std::string::npos) << text;
      for (const cpu::TileUse& t : source.tiles)
        EXPECT_FALSE(t.packed) << text << t.tensor << ": " << t.reason;
    }
  }
}

// Of a tensor of three rows of one column, the loop moves rows and columns against each other, to
// the same place: it was read once for all lanes, inside or outside as the first of them.
TEST_P(OnEveryIsa, ReadsADiagonalThatLeavesItsTensor) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: diagonal\nloops: {b: 4, f: 37}\ntensors: {x: [37, 1]}\n"
                         "operators:\n  - \"y[f] = x[f, 20 - f]\"\n"
                         "  - \"z[b,f] = y[f] + x[f, 3 - f] * x[b, b]\"\n",
                         "test"));
  const auto machine = std::make_shared<const Machine>(named_machine("epyc-zen5"));
  const auto s = resolve({.kernels = {{.tree = parse_tree("C.y C.z")}}}, w, machine);
  ASSERT_TRUE(s.ok()) << s.reason();
  const cpu::Source source = cpu::emit(*s, {.isa = GetParam()}).value();
  auto kernel = cpu::build(source);
  ASSERT_TRUE(kernel.ok()) << kernel.reason();
  EXPECT_LT(error_of<float>(*w, kernel.value()), 1e-5);
}

// Columns up to eight apart, as a copied band of an image has them in phases and as a row of points
// reads them: each element in the lane of its own point, none of those outside.
TEST_P(OnEveryIsa, PicksColumnsThatLieApart) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  const auto machine = std::make_shared<const Machine>(named_machine("epyc-zen5"));
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  for (int apart = 1; apart <= 8; ++apart)
    for (const char* type : {"f32", "f64"})
      for (const char* tree : {"c/2 ( C.A )", "c/1 y/1 ( C.A )"}) {
        const auto w = std::make_shared<const Workload>(workload_from_yaml(
            formatted("name: apart\ndtype: {0}\nloops: {{c: 2, y: 4, x: 37, r: 3, s: 9}}\n"
                      "tensors: {{X: [c, {2}, {3}]}}\noperators: [\"A[c,y,x] += "
                      "X[c,{1}*y + r - 1,{1}*x + s - 4] * W[c,r,s]\"]\n",
                      type, apart, 3 * apart + 1, 36 * apart + 1),
            "test"));
        auto s = resolve({.kernels = {{.level = "L2", .tree = parse_tree(tree)}}}, w, machine);
        ASSERT_TRUE(s.ok()) << s.reason();
        schedules.push_back(std::move(s).value());
        sources.push_back(cpu::emit(schedules.back(),
                                    {.isa = GetParam(), .prefix = formatted("k{}", sources.size())})
                              .value());
      }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    const bool f64 = w.dtype() == DType::f64;
    EXPECT_LT(
        f64 ? error_of<double>(w, kernels.value()[i]) : error_of<float>(w, kernels.value()[i]),
        f64 ? 1e-13 : 1e-5)
        << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Convolutions, OnEveryIsa,
                         ::testing::Values(cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512),
                         [](const auto& info) { return std::string(cpu::name_of(info.param)); });

TEST(Convolutions, ChainsDrawnAtRandom) {
  constexpr std::uint32_t kSeed = 20;
  const std::vector<Case> all = drawn(kSeed, 12);
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  bool by_lines = false, by_points = false;
  for (const Case& c : all) {
    const std::size_t i = sources.size();
    schedules.push_back(schedule_of(c, i % 2 == 0));
    cpu::EmitOptions options{.threads = 1 + static_cast<int>(i % 3),
                             .prefix = "k" + std::to_string(i)};
    if (i % 4 < 2) options.constant = {"W1", "W2"};
    sources.push_back(cpu::emit(schedules.back(), options).value());
    const std::string& text = sources.back().text;
    by_lines = by_lines || text.find("convolve_lines<") != std::string::npos;
    by_points = by_points || text.find(" convolve<") != std::string::npos;
  }
  EXPECT_TRUE(by_lines && by_points) << by_lines << by_points;
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_LT(error_of<float>(*schedules[i].workload, kernels.value()[i], sources[i].kept_bytes),
              1e-5)
        << "seed " << kSeed << ": " << all[i].workload << " " << all[i].tree << " " << all[i].tiles;
}

/// A column that is left over of tiles of sixteen is seventeen vectors row by row, and three where
/// its rows are summed one behind the other and set apart afterwards. So are columns of an output
/// that lies at home.
TEST(Convolutions, ShortRowsAreSummedOneBehindTheOther) {
  if (!cpu::host_runs(cpu::Isa::avx2)) GTEST_SKIP() << "not run by this processor";
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  for (const std::string tree : {"h/17 w/16 ( C.y )", "oc/48 h/17 w/16 ( ic/8 ( C.y ) )"})
    for (const bool in_place : {false, true}) {
      const auto w = std::make_shared<const Workload>(workload_from_yaml(
          "name: left\nloops: {ic: 16, oc: 96, h: 17, w: 17, r: 3, s: 3}\n"
          "tensors: {X: [ic, h, w], W: [oc, ic, r, s], Y: [oc, h, w]}\noperators:\n"
          "  - \"y: Y[oc,h,w] += X[ic,h+r-1,w+s-1] * W[oc,ic,r,s]\"\n",
          "test"));
      const auto machine = testing::worked_machine("scratchpad:4M");
      auto s = resolve(Plan{.kernels = {{.tree = parse_tree(tree)}}}, w,
                       in_place ? testing::cached(*machine) : machine);
      ASSERT_TRUE(s.ok()) << s.reason();
      schedules.push_back(std::move(s).value());
      auto source = cpu::emit(schedules.back(), {.isa = cpu::Isa::avx2,
                                                 .prefix = "k" + std::to_string(sources.size())});
      ASSERT_TRUE(source.ok()) << source.reason();
      EXPECT_THAT(source->text, ::testing::HasSubstr(", Keep{}, reinterpret_cast<Real*>(memory"))
          << tree << in_place;
      sources.push_back(std::move(source).value());
    }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < sources.size(); ++i)
    EXPECT_LT(error_of<float>(*schedules[i].workload, kernels.value()[i]), 1e-5) << i;
}

/// A panel of five vectors beside two rows fills registers as well, and leaves no rows over, but
/// takes a fifth longer: its vectors come from the caches again for every two rows.
TEST(Convolutions, BlocksOfSixteenRegistersHaveThreeRowsAtLeast) {
  for (const int oc : {158, 70, 16}) {
    const auto w = std::make_shared<const Workload>(workload_from_yaml(
        formatted("name: lines\nloops: {{ic: 16, oc: {}, h: 69, w: 69, r: 3, s: 3}}\n"
                  "tensors: {{X: [ic, h, w], W: [oc, ic, r, s], Y: [oc, h, w]}}\noperators:\n"
                  "  - \"y: Y[oc,h,w] += X[ic,h+r-1,w+s-1] * W[oc,ic,r,s]\"\n",
                  oc),
        "test"));
    const auto s = resolve(Plan{.kernels = {{.tree = parse_tree("h/23 ( C.y )")}}}, w,
                           testing::cached(*testing::worked_machine("scratchpad:4M")));
    ASSERT_TRUE(s.ok()) << s.reason();
    const auto source = cpu::emit(*s, {.isa = cpu::Isa::avx2, .prefix = "lines"});
    ASSERT_TRUE(source.ok()) << source.reason();
    const std::string call = "convolve_lines<";
    const std::size_t at = source->text.rfind(call);
    if (at == std::string::npos) continue;  // points are broadcast
    EXPECT_GE(std::stoi(source->text.substr(at + call.size())), 3) << oc;
  }
}

/// Depthwise convolutions and poolings at random: steps, dilations, edges, images narrower than a
/// vector and wider than several.
std::string drawn_strip(std::mt19937& random, bool f64, bool channels_last) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const int c = draw(1, 5), times = draw(1, 2), apart = draw(1, 2), down = draw(1, 3);
  const int taps_down = draw(1, 7), taps = draw(1, 7), row_step = draw(1, 4);
  const int step = draw(0, 1) == 0 ? draw(1, 2) : draw(1, 8);
  const int h = draw(1, 40), w = draw(1, 140), above = draw(0, (taps_down - 1) * down);
  const int pad = draw(0, (taps - 1) * apart);
  const int rows = (h - 1) / row_step + 1, columns = (w - 1) / step + 1;
  const std::string row = formatted("{}*y+{}*r-{}", row_step, down, above);
  const std::string column = formatted("{}*j+{}*s-{}", step, apart, pad);
  const std::string at =
      channels_last ? formatted("x[{},{},c]", row, column) : formatted("x[c,{},{}]", row, column);
  // As an image's import writes it: what is outside is no part of the maximum.
  const auto masked = [&](const std::string& value, const std::string& index, int extent) {
    return formatted("select(lt({1}, 0), -inf, select(lt({2}, {1}), -inf, {0}))", value, index,
                     extent - 1);
  };
  const std::string joined[] = {"d[c,m,y,j] max= " + at,
                                "d[c,m,y,j] max= " + masked(masked(at, column, w), row, h),
                                "d[c,m,y,j] += " + at + " * k[c,m,r,s]",
                                "d[c,m,y,j] += " + at,
                                "d[c,m,y,j] += k[c,m,r,s] * (" + at + " + b[c])",
                                "d[c,m,y,j] += abs(" + at + ")"};
  return formatted(
      "name: strip\ndtype: {}\nloops: {{c: {}, m: {}, y: {}, j: {}, r: {}, s: {}}}\n"
      "tensors: {{x: [{}], k: [c, m, r, s], b: [c], d: [c, m, y, j], e: [c, m, y, j]}}\n"
      "operators:\n  - d: {}\n  - e: e[c,m,y,j] = relu(d[c,m,y,j] + b[c] * k[c,m,0,0])\n",
      f64 ? "f64" : "f32", c, times, rows, columns, taps_down, taps,
      channels_last ? formatted("{}, {}, {}", h, w, c) : formatted("{}, {}, {}", c, h, w),
      joined[draw(0, 5)]);
}

void check_strips(cpu::Isa isa, bool channels_last, const char* copied) {
  const char* const asked = std::getenv("TILEWRIGHT_SEED");
  const std::uint32_t kSeed = asked != nullptr ? static_cast<std::uint32_t>(std::atoi(asked)) : 24;
  int by_planes = 0, in_turn = 0;  // rows and columns of the taps, one after the other
  std::mt19937 random(kSeed);
  for (const bool f64 : {false, true}) {
    std::vector<cpu::Source> sources;
    std::vector<Schedule> schedules;
    std::vector<std::string> texts;
    for (int i = 0; i < 16; ++i) {
      texts.push_back(drawn_strip(random, f64, channels_last));
      auto w = std::make_shared<const Workload>(workload_from_yaml(texts.back(), "strip"));
      const auto tile = [&](const char* loop, std::int64_t most) {
        return std::min(most, w->loop(*w->find_loop(loop)).extent);
      };
      const std::string tree =
          i % 3 == 0   ? formatted("c/{} y/{} ( C.d C.e )", tile("c", 2), tile("y", 9))
          : i % 3 == 1 ? formatted("y/{} j/{} ( C.d C.e )", tile("y", 3), tile("j", 21))
                       : formatted("c/1 r/{} ( C.d ) C.e", tile("r", 2));
      auto s = resolve(Plan{.kernels = {{.tree = parse_tree(tree)}}}, w,
                       testing::cached(*testing::worked_machine("scratchpad:4M")));
      ASSERT_TRUE(s.ok()) << s.reason();
      schedules.push_back(std::move(s).value());
      sources.push_back(
          cpu::emit(schedules.back(), {.isa = isa, .prefix = "k" + std::to_string(i)}).value());
      by_planes += sources.back().text.find(copied) != std::string::npos ? 1 : 0;
      in_turn += sources.back().text.find(" by_rows = ") != std::string::npos ? 1 : 0;
    }
    auto kernels = cpu::build_all(sources, {.optimisation = "-O1"});
    ASSERT_TRUE(kernels.ok()) << kernels.reason();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Workload& w = *schedules[i].workload;
      EXPECT_LT(
          f64 ? error_of<double>(w, kernels.value()[i]) : error_of<float>(w, kernels.value()[i]),
          f64 ? 1e-13 : 1e-5)
          << "seed " << kSeed << ", drawn " << i << ":\n"
          << texts[i];
    }
  }
  EXPECT_GT(by_planes, isa == cpu::Isa::generic ? -1 : 5);
  EXPECT_GT(in_turn, asked != nullptr || isa == cpu::Isa::generic ? -1 : 1);
}

TEST_P(OnEveryIsa, StripsWithStepsAndEdges) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  check_strips(GetParam(), false, " copy_plane<");
}

/// Columns of such an image lie apart: they are put side by side as they are copied.
TEST_P(OnEveryIsa, StripsOfAnImageWhoseChannelsAreLast) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  check_strips(GetParam(), true, " copy_plane_apart<");
}

/// Gradients whole, in one tile a loop, and with two loops cut: what does not fit a micro-kernel
/// stands around it and moves either operand. TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others.
TEST_P(OnEveryIsa, Gradients) {
  if (!cpu::host_runs(GetParam())) GTEST_SKIP() << "not run by this processor";
  std::uint64_t seed = 31;
  std::size_t count = 60;
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::strtoul(other, nullptr, 10);
  std::mt19937_64 random(seed);
  // More taps than are taken at once move the left operand, too.
  std::vector<std::string> texts = {
      "name: weights\nloops: {c: 8, o: 8, r: 3, s: 3, n: 2, y: 9, x: 9}\n"
      "tensors: {X: [n, c, 9, 9]}\noperators:\n"
      "  - op: T[c,o,r,s] += X[n,c,y+r-1,x+s-1] * G[n,o,y,x]\n"};
  while (texts.size() < count) texts.push_back(testing::random_trees::GradientMaker(random).text());
  std::vector<cpu::Source> sources;
  std::vector<Schedule> schedules;
  for (const std::string& text : texts) {
    auto w = std::make_shared<const Workload>(workload_from_yaml(text, "gradient"));
    std::string tree;
    for (int cuts = static_cast<int>(schedules.size() % 3); cuts > 0; --cuts) {
      const Loop& loop = w->loops()[random() % w->loops().size()];
      if (tree.find(loop.name) == std::string::npos)
        tree += formatted("{}/{} ", loop.name, (loop.extent + 1) / 2);
    }
    auto s = resolve(Plan{.kernels = {{.tree = parse_tree(tree + "( C.op )")}}}, w,
                     testing::cached(*testing::worked_machine("scratchpad:4M")));
    ASSERT_TRUE(s.ok()) << s.reason();
    schedules.push_back(std::move(s).value());
    sources.push_back(cpu::emit(schedules.back(),
                                {.isa = GetParam(), .prefix = "k" + std::to_string(sources.size())})
                          .value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_LT(error_of<float>(*schedules[i].workload, kernels.value()[i]), 1e-5)
        << "seed " << seed << ", drawn " << i << ":\n"
        << texts[i];
}

TEST(Convolutions, WeightsThatNeverChangeArePackedOnce) {
  for (const Case& c : {cases()[0], cases()[7], cases()[9]}) {
    const Schedule s = schedule_of(c, true);
    const Workload& w = *s.workload;
    const bool f64 = c.workload.find("f64") != std::string::npos;
    const auto source = cpu::emit(s, {.constant = {"W1", "W2"}});
    ASSERT_TRUE(source.ok()) << source.reason();
    ASSERT_GT(source->kept_bytes, 0) << c.workload;
    auto kernel = cpu::build(*source, {.optimisation = "-O0"});
    ASSERT_TRUE(kernel.ok()) << kernel.reason();
    const TensorValues inputs = random_inputs(w, 9);
    const auto error = [&](auto arrays) {
      std::vector<std::byte> kept(static_cast<std::size_t>(source->kept_bytes));
      kernel.value().prepare(arrays.pointers(), kept.data());
      kernel.value().run(arrays.pointers(), kept.data());
      return testing::worst_error(w, arrays, evaluate(w, inputs));
    };
    EXPECT_LT(
        f64 ? error(testing::Arrays<double>(w, inputs)) : error(testing::Arrays<float>(w, inputs)),
        f64 ? 1e-13 : 1e-5)
        << c.workload;
  }
  EXPECT_THROW((void)cpu::emit(schedule_of(cases()[0], true), {.constant = {"M"}}), InputError);
}

TEST(Convolutions, CopyWhatExactCountsWithHalosComputedAgain) {
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  for (const Case& c : {cases()[0], cases()[3], cases()[4]}) {
    schedules.push_back(schedule_of(c, false));
    sources.push_back(
        cpu::emit(schedules.back(), {.count = true, .prefix = "k" + std::to_string(sources.size())})
            .value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const Workload& w = *schedules[i].workload;
    testing::Arrays<float> arrays(w, random_inputs(w, 4));
    const auto counted = kernels.value()[i].run_counted(arrays.pointers());
    ASSERT_TRUE(counted.ok()) << counted.reason();
    EXPECT_EQ(testing::table(*counted), testing::table(exact(schedules[i]).entries));
  }
  // Tiles of six rows of twenty need eight, seven or six rows of the first convolution's.
  const Traffic c6 = exact(schedules[1]);

  EXPECT_EQ(c6.operations.at("conv1").value, 6LL * 7 * 18 * (7 + 8 + 8 + 3));
}

}  // namespace
}  // namespace tilewright
