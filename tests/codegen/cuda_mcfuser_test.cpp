// MCFuser's candidates on the CUDA target: of chains of any sizes, among the best by the model's
// time is one that the emitter takes, though it pads tiles to the blocks of its micro-kernels.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "codegen/cuda/cuda.h"
#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/mcfuser/mcfuser.h"

namespace tilewright {
namespace {

struct Case {
  std::string workload, machine;
};

Case draw(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto extent = [&]() -> std::int64_t {
    constexpr std::int64_t kRound[] = {64, 80, 96, 128, 160, 208, 256, 512, 1024, 2048};
    switch (below(3)) {
      case 0:
        return static_cast<std::int64_t>(1 + below(40));
      case 1:
        return static_cast<std::int64_t>(16 + below(1200));
      default:
        return kRound[below(std::size(kRound))];
    }
  };
  constexpr const char* kTypes[] = {"f16", "bf16", "f32"};
  constexpr const char* kEnds[] = {"", ",relu=1", ",batch=2"};
  const std::string sizes = formatted("m={},n={},k={},l={},dtype={}", extent(), extent(), extent(),
                                      extent(), kTypes[below(3)]);
  const std::string chain = "gemm-chain:" + sizes + kEnds[below(3)];
  return {below(4) == 0 ? "attention:" + sizes : chain, below(2) == 0 ? "h200" : "a100"};
}

/// The shapes of which a target refuses every one of the candidates are said, and there is none.
TEST(CudaMcfuser, TakesOneOfTheBestCandidates) {
  constexpr std::uint64_t kSeed = 19;
  constexpr int kCases = 300;
  std::mt19937_64 random(kSeed);
  int first = 0;
  std::int64_t furthest = 0;
  std::string where;
  double slowest = 1;
  for (int i = 0; i < kCases; ++i) {
    const Case one = draw(random);
    SCOPED_TRACE(formatted("seed {}, case {}: {} on {}", kSeed, i, one.workload, one.machine));
    const auto chain =
        mcfuser::chain_of(std::make_shared<const Workload>(named_workload(one.workload)));
    ASSERT_TRUE(chain.ok()) << chain.reason();
    const Machine machine = named_machine(one.machine);
    const LevelId level = *machine.find("shared");
    const auto device = mcfuser::device_of(machine, level, *chain->workload);
    ASSERT_TRUE(device.ok()) << device.reason();
    const auto space = mcfuser::space_of(*chain, *device, {});
    ASSERT_TRUE(space.ok()) << space.reason();
    const auto found = mcfuser::search_all(*chain, *space, *device, {}, std::size_t{1} << 16);
    ASSERT_TRUE(found.ok()) << found.reason();
    const auto any = mcfuser::ranked_plans(*chain, machine, level, *device, {}, *found, 1);
    ASSERT_FALSE(any.empty());
    const auto taken = mcfuser::ranked_plans(*chain, machine, level, *device, {}, *found, 1,
                                             [](const Schedule& s) {
                                               const auto source = cuda::emit(s, {});
                                               return source.ok() && !source->makeshift;
                                             });
    if (taken.empty()) {
      ADD_FAILURE() << "none of " << found->best.size() << " candidates";
      continue;
    }
    first += any.front().before == taken.front().before ? 1 : 0;
    const double times = taken.front().candidate.seconds / any.front().candidate.seconds;
    slowest = std::max(slowest, times);
    if (taken.front().before > furthest) {
      furthest = taken.front().before;
      where = one.workload + " on " + one.machine;
    }
  }
  std::cout << "seed " << kSeed << ": the first candidate is taken of " << first << " of " << kCases
            << " chains; the most that stand before one that is taken: " << furthest << " ("
            << where << "); its predicted time over the best's, at most: " << slowest << "\n";
  EXPECT_GT(first, kCases / 2);
}

}  // namespace
}  // namespace tilewright
