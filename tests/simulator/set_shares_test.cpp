// Do threads that share the sets count and leave what one thread does, and is it said where they
// cannot?
#include "simulator/set_shares.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "tests/support/random_trees.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using testing::RandomCase;

/// One or two levels, every other machine's plain LRU so that iterations are passed over too, else
/// of any policy, sectors and inclusion, under a scratchpad now and then.
Machine random_machine(std::mt19937_64& random, std::size_t levels) {
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  constexpr const char* kPolicies[] = {"lru", "fifo", "tree_plru", "brrip", "random"};
  constexpr Inclusion kInclusions[] = {Inclusion::non_inclusive, Inclusion::inclusive,
                                       Inclusion::exclusive, Inclusion::victim};
  Machine m = parse_synthetic_machine(levels == 2 ? "cache:1M,1M" : "cache:1M");
  const bool plain = pick(0, 1) == 0;
  for (std::size_t l = 1; l < m.levels.size(); ++l) {
    Level& level = m.levels[l];
    const std::int64_t ways = pick(1, 4);
    level.line = Bytes(std::int64_t{8} << (pick(0, 3) == 0 ? 1 : 0));
    level.sector = !plain && pick(0, 2) == 0 ? Bytes(level.line.value / 2) : level.line;
    level.ways = ways;
    level.capacity = level.line * ((2 * pick(1, 4)) * ways);
    if (!plain) level.policy = kPolicies[random() % std::size(kPolicies)];
  }
  if (levels == 2 && !plain) {
    Level& outer = m.levels[1];
    outer.behaviour.inclusion = kInclusions[random() % std::size(kInclusions)];
    if (outer.behaviour.inclusion == Inclusion::exclusive ||
        outer.behaviour.inclusion == Inclusion::victim) {
      outer.line = m.levels[2].line;
      outer.sector = m.levels[2].sector;
      outer.capacity = outer.line * (4 * outer.ways);
    }
    if (pick(0, 7) == 0) {
      m.levels[2] = parse_synthetic_machine("scratchpad:1M,1M").levels[2];
      outer.behaviour.inclusion = Inclusion::non_inclusive;
    }
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

TEST(SetShares, RandomPlansCountAndLeaveTheSameAsOneThread) {
  constexpr std::uint64_t kSeed = 7;
  std::mt19937_64 random(kSeed);
  int shared = 0, skipped = 0;
  for (int i = 0; i < 3000; ++i) {
    auto c = testing::random_case(random, {.max_extent = 32, .units = false});
    if (!c) continue;
    c->machine =
        std::make_shared<const Machine>(random_machine(random, c->machine->levels.size() - 1));
    const auto s = legal(*c);
    if (!s) continue;
    const Simulated one = simulate_in_detail(*s, {.skip = false, .contents = true});
    const Simulated many = simulate_in_detail(*s, {.threads = 2 + i % 4, .contents = true});
    const std::string what = "seed " + std::to_string(kSeed) + ", case " + std::to_string(i) +
                             "\n" + testing::describe(*c);
    EXPECT_EQ(many.caches, one.caches) << what;
    EXPECT_EQ(many.contents, one.contents) << what;
    EXPECT_EQ(many.traffic, one.traffic) << what;
    EXPECT_EQ(many.dram, one.dram) << what;
    if (::testing::Test::HasFailure()) return;
    EXPECT_EQ(many.threads < 2 + i % 4, !many.why_serial.empty());
    shared += many.threads > 1;
    skipped += many.threads > 1 && many.skipped.computes > 0;
  }
  EXPECT_GT(shared, 300);
  EXPECT_GT(skipped, 10);
}

TEST(SetShares, SaysWhatKeepsSetsTogether) {
  const auto why = [](Machine m, SimulateOptions o = {}) {
    std::string reason;
    const std::int64_t round = independent_round(m, o, reason);
    EXPECT_EQ(round == 0, !reason.empty());
    return reason;
  };
  const Machine plain = parse_synthetic_machine("cache:32K/8,1M/16");
  EXPECT_EQ(why(plain), "");
  EXPECT_EQ(why(plain, {.attribute = true}), "misses are told apart by a fully associative cache");
  EXPECT_EQ(why(plain, {.cores = 2}), "cores keep each other's lines coherent");
  Machine m = plain;
  m.levels.back().behaviour.prefetch = {{.kind = PrefetchKind::next_line}};
  EXPECT_EQ(why(m), "L1 prefetches");
  m = plain;
  m.levels[1].behaviour.index = Index::folded;
  EXPECT_EQ(why(m), "L2 chooses sets by a hash");
  EXPECT_EQ(why(parse_synthetic_machine("scratchpad:32K")), "no hardware cache is touched");
  EXPECT_EQ(why(parse_synthetic_machine("cache:32K")), "the levels' sets have no common division");
}

}  // namespace
}  // namespace tilewright
