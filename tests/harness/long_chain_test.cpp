// Chains of hundreds of operators: what resolve, exact and the simulator do with them, and how the
// time that it takes grows.
#include <ctime>

#include "bench/lstm_chain.h"
#include "codegen/cpu/cpu.h"
#include "tests/harness/witnesses.h"

namespace tilewright {
namespace {

testing::RandomCase chain(int cells, int hidden, bool own_loops) {
  bench::LstmChain c = bench::lstm_chain(cells, hidden, own_loops);
  return {std::make_shared<const Workload>(std::move(c.workload)),
          std::make_shared<const Machine>(parse_synthetic_machine("scratchpad:1G")),
          std::move(c.plan)};
}

TEST(LongChain, OfThreeHundredLoopsIsCountedWalkedAndEmitted) {
  const testing::RandomCase c = chain(100, 8, true);
  ASSERT_EQ(c.workload->loops().size(), 301u);
  testing::Agreement seen;
  seen.look(c, "100 cells");
  EXPECT_EQ(seen.legal, 1) << seen.why;
  const Schedule s = resolve(c.plan, c.workload, c.machine).value();
  const Traffic t = exact(s);
  // Every block of the batch reads all of W for every cell anew.
  EXPECT_EQ(testing::moved(t).at({"DRAM/L1", "W"}).first, 4 * 100 * 8 * 32 * 4);
  const auto source = cpu::emit(s);
  EXPECT_TRUE(source.ok()) << source.reason();
}

template <class F>
double cpu_seconds(F&& f) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t from = std::clock();
    f();
    least = std::min(least, static_cast<double>(std::clock() - from) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(LongChain, FourTimesTheOperatorsTakeNotMuchMoreThanFourTimesAsLong) {
  const testing::RandomCase few = chain(75, 64, false), many = chain(300, 64, false);
  const auto both = [](const testing::RandomCase& c) {
    const auto s = resolve(c.plan, c.workload, c.machine);
    ASSERT_TRUE(s.ok()) << s.reason();
    EXPECT_FALSE(exact(*s).entries.empty());
  };
  const double one = cpu_seconds([&] { both(few); }), four = cpu_seconds([&] { both(many); });
  EXPECT_LT(four, 8 * one) << one << " s, " << four << " s";  // quadratic: 16
}

}  // namespace
}  // namespace tilewright
