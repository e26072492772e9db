// Chains of convolutions as emitted kernels: strides, padding, halos that are computed again,
// points that lie dense or not, channels that are split; each held against the reference evaluator.
#include <gmock/gmock.h>

#include <random>

#include "core/base/format.h"
#include "models/exact/exact.h"
#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

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
double error_of(const Workload& w, cpu::Kernel& kernel) {
  const TensorValues inputs = random_inputs(w, 9);
  testing::Arrays<Real> arrays(w, inputs);
  kernel.run(arrays.pointers());
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
      EXPECT_THAT(source->text, HasSubstr("convolve<"));
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

INSTANTIATE_TEST_SUITE_P(Convolutions, OnEveryIsa,
                         ::testing::Values(cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512),
                         [](const auto& info) { return std::string(cpu::name_of(info.param)); });

TEST(Convolutions, ChainsDrawnAtRandom) {
  constexpr std::uint32_t kSeed = 20;
  const std::vector<Case> all = drawn(kSeed, 10);
  std::vector<Schedule> schedules;
  std::vector<cpu::Source> sources;
  for (const Case& c : all) {
    schedules.push_back(schedule_of(c, sources.size() % 2 == 0));
    sources.push_back(
        cpu::emit(schedules.back(), {.threads = 1 + static_cast<int>(sources.size() % 3),
                                     .prefix = "k" + std::to_string(sources.size())})
            .value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_LT(error_of<float>(*schedules[i].workload, kernels.value()[i]), 1e-5)
        << "seed " << kSeed << ": " << all[i].workload << " " << all[i].tree << " " << all[i].tiles;
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
