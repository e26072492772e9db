// Are counts and the state left behind those of the whole walk where iterations are passed over,
// are any, and is it said where none can be?
#include "simulator/skipping.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include "simulator/simulator.h"
#include "tests/support/random_trees.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using testing::RandomCase;

constexpr const char* kPolicies[] = {"lru",   "fifo",  "tree_plru",         "bit_plru",
                                     "srrip", "brrip", "qlru_h11_m1_r0_u0", "random"};

/// Caches so small that they fill, with lines so short that small tiles are whole lines.
Machine tiny_caches(std::mt19937_64& random, std::size_t levels, const std::string& policy) {
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  Machine m = parse_synthetic_machine(levels == 2 ? "cache:1M,1M" : "cache:1M");
  for (std::size_t l = 1; l < m.levels.size(); ++l) {
    Level& level = m.levels[l];
    const std::int64_t sets = pick(1, 6), ways = pick(1, l == 1 ? 12 : 4);
    level.line = level.sector = Bytes(std::int64_t{4} << pick(0, 2));
    level.ways = ways;
    level.capacity = level.line * (sets * ways);
    level.policy = policy;
  }
  return m;
}

std::optional<Schedule> legal(const RandomCase& c) {
  try {
    auto s = resolve(c.plan, c.workload, c.machine);
    if (s) return s.value();
  } catch (const InputError&) {  // a pin at a loop that is not there
  }
  return std::nullopt;
}

void expect_same(const Simulated& a, const Simulated& b, const std::string& what) {
  EXPECT_EQ(a.caches, b.caches) << what;
  EXPECT_EQ(a.contents, b.contents) << what;
  EXPECT_EQ(a.traffic.operations, b.traffic.operations) << what;
  EXPECT_EQ(a.skipped.of_computes, b.skipped.of_computes) << what;
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others, and more of them.
TEST(Skipping, RandomPlansCountAndLeaveTheSameAsTheWholeWalk) {
  std::uint64_t seed = 20261121;
  int count = 2500;
  if (const char* other = std::getenv("TILEWRIGHT_SEED")) seed = std::strtoull(other, nullptr, 10);
  if (const char* other = std::getenv("TILEWRIGHT_CASES")) count = std::atoi(other);
  std::mt19937_64 random(seed);
  std::map<std::string, int> skipped;  // by policy: plans of which something was
  int plans = 0;
  for (int i = 0; i < count; ++i) {
    auto c = testing::random_case(random, {.max_extent = 40,
                                           .sliding = i % 16 == 0,
                                           .once = i % 16 == 1,
                                           .grid = i % 4 == 0,
                                           .units = false});
    if (!c) continue;
    const std::string policy = kPolicies[random() % std::size(kPolicies)];
    c->machine =
        std::make_shared<const Machine>(tiny_caches(random, c->machine->levels.size() - 1, policy));
    const std::optional<Schedule> s = legal(*c);
    if (!s) continue;
    ++plans;
    const Layout layout = i % 2 == 0 ? Layout::tiled : Layout::row_major;
    const Simulated whole =
        simulate_in_detail(*s, {.layout = layout, .skip = false, .contents = true});
    const Simulated less = simulate_in_detail(*s, {.layout = layout, .contents = true});
    expect_same(less, whole,
                "seed " + std::to_string(seed) + ", case " + std::to_string(i) + ", " + policy +
                    "\n" + testing::describe(*c));
    if (::testing::Test::HasFailure()) return;
    EXPECT_EQ(whole.skipped.computes, 0);
    if (less.skipped.computes > 0) ++skipped[policy];
  }
  EXPECT_GT(plans, count / 5);
  for (const char* policy : kPolicies) {
    const bool draws = std::string(policy) == "brrip" || std::string(policy) == "random";
    if (draws)
      EXPECT_EQ(skipped[policy], 0) << policy;
    else
      EXPECT_GT(skipped[policy], count / 250) << policy << " of " << plans;
  }
}

Schedule chain(const std::string& machine, std::int64_t size, std::int64_t tile,
               const std::string& tree = "m l ( k ( C.gemm1 ) n ( C.gemm2 ) )") {
  const std::string extent = std::to_string(size);
  auto w = std::make_shared<const Workload>(workload_from_yaml(
      "loops: {m: " + extent + ", n: " + extent + ", k: " + extent + ", l: " + extent +
          "}\noperators: ['gemm1: C[m,l] += A[m,k] * B[k,l]', "
          "'gemm2: E[m,n] += C[m,l] * D[l,n]']",
      "test"));
  const Plan plan{.kernels = {{.tree = parse_tree(tree),
                               .tiles = {{"m", tile}, {"n", tile}, {"k", tile}, {"l", tile}}}}};
  auto s = resolve(plan, w, std::make_shared<const Machine>(parse_synthetic_machine(machine)));
  EXPECT_TRUE(s.ok()) << s.reason();
  return s.value();
}

// Rows of blocks of A and E lie 20 * 256 * 4 bytes apart, a multiple of the 4096 bytes that the
// sets of 32K/8 take: one iteration of m is as the next. 13 of them, the last one cut short; the
// first finds cold caches, the second what the first left, so that the third is the first that may
// be known: iterations 0, 1 and the last are walked.
TEST(Skipping, WholeIterationsOfTheOutermostLoop) {
  const Schedule s = chain("cache:32K/8", 256, 20);
  const Simulated less = simulate_in_detail(s, {.contents = true});
  expect_same(less, simulate_in_detail(s, {.skip = false, .contents = true}), "");
  ASSERT_EQ(less.skipped.loops.size(), 1u);
  EXPECT_EQ(less.skipped.loops[0].loop, "m/20");
  EXPECT_EQ(less.skipped.loops[0].iterations, 10);
  EXPECT_EQ(less.skipped.of_computes, 13 * 13 * (13 + 13));
  EXPECT_EQ(less.skipped.computes, 10 * 13 * (13 + 13));
}

// gemm1 again for every tile of n: its k runs over the same tiles of A, B and C. Only what D's and
// E's tiles have left in the caches differs, and is gone after some iterations. Tiles of 28 bytes a
// row lie unevenly, so that no loop is passed over for its period.
TEST(Skipping, ALoopThatIsRunAgain) {
  const Schedule s = chain("cache:2K/4", 210, 7, "m l n ( k ( C.gemm1 ) C.gemm2 )");
  const Simulated less = simulate_in_detail(s, {.contents = true});
  expect_same(less, simulate_in_detail(s, {.skip = false, .contents = true}), "");
  ASSERT_EQ(less.skipped.loops.size(), 1u);
  EXPECT_EQ(less.skipped.loops[0].loop, "k/7");
  EXPECT_EQ(less.skipped.loops[0].iterations, less.skipped.computes);
  EXPECT_EQ(less.skipped.of_computes, 30 * 30 * 30 * 31);
  EXPECT_GT(less.skipped.computes, less.skipped.of_computes / 2);
}

TEST(Skipping, SaysWhyThereIsNone) {
  const auto why = [](const Schedule& s, const SimulateOptions& o) {
    const Simulated done = simulate_in_detail(s, o);
    EXPECT_EQ(done.skipped.computes, 0);
    return done.skipped.why_none;
  };
  const Schedule plain = chain("cache:2K/8", 64, 16);
  EXPECT_EQ(why(plain, {.skip = false}), "not asked for");
  EXPECT_EQ(why(plain, {.attribute = true}), "every miss is looked into");
  EXPECT_EQ(why(plain, {.cores = 2}),
            "the caches do more than replace lines in an order that their touches decide");
  EXPECT_EQ(why(chain("scratchpad:64K", 64, 16), {}), "no hardware cache is touched");
  EXPECT_EQ(simulate_in_detail(plain).skipped.why_none, "");
}

}  // namespace
}  // namespace tilewright
