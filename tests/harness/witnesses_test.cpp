// Do the witnesses agree? exact and the scratchpad simulator count independently; on every legal plan
// of software-managed levels they must give the same bytes, operations and memory.
#include <gtest/gtest.h>

#include "models/exact/exact.h"
#include "simulator/simulator.h"
#include "tests/support/random_trees.h"

namespace tilewright {
namespace {

using testing::describe;
using testing::random_case;

/// Entries that are all zero say nothing.
std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> moved(
    const Traffic& t) {
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> bytes;
  for (const TrafficEntry& e : t.entries)
    if (e.read.value != 0 || e.written.value != 0)
      bytes[{e.boundary, e.tensor}] = {e.read.value, e.written.value};
  return bytes;
}

TEST(Witnesses, AgreeToTheByteOnAThousandRandomLegalTrees) {
  constexpr std::uint64_t kSeed = 20261120;
  std::mt19937_64 random(kSeed);
  int legal = 0;
  for (int i = 0; legal < 1000 && i < 20000; ++i) {
    const auto c = random_case(random, {});
    if (!c) continue;
    Result<Schedule> schedule = Reason{"not a plan"};
    try {
      schedule = resolve(c->plan, c->workload, c->machine);
    } catch (const InputError&) {  // a pin at a loop that is not there
    }
    if (!schedule) continue;
    ++legal;
    const Traffic counted = exact(*schedule);
    const Traffic simulated = simulate(*schedule);
    ASSERT_EQ(moved(counted), moved(simulated)) << "seed " << kSeed << ", case " << i << "\n" << describe(*c);
    ASSERT_EQ(counted.operations, simulated.operations) << describe(*c);
    ASSERT_EQ(counted.memory, simulated.memory) << describe(*c);
    const auto again = resolve(schedule->resolved, c->workload, c->machine);
    ASSERT_TRUE(again.ok()) << again.reason() << "\n" << describe(*c);
    ASSERT_EQ(moved(exact(*again)), moved(counted)) << describe(*c);
  }
  EXPECT_EQ(legal, 1000) << "seed " << kSeed;
}

}  // namespace
}  // namespace tilewright
