// Chains of hundreds of operators: what resolve, exact and the simulator do with them. How the time
// grows with them is in `tilewright-bench --only rates`.
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

}  // namespace
}  // namespace tilewright
