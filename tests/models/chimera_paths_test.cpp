// Chimera over an NPU's paths: the micro-kernel's tile, prices by hand, and the best plan against
// every plan that it looks at.
#include <gtest/gtest.h>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/chimera/paths.h"

namespace tilewright::chimera {
namespace {

std::shared_ptr<const Machine> ascend() {
  return std::make_shared<const Machine>(named_machine("ascend910"));
}
std::shared_ptr<const Workload> workload(const char* name) {
  return std::make_shared<const Workload>(named_workload(name));
}

TEST(ChimeraPaths, MadsTileIsSquareWhereTheBlockIsLarge) {
  // Section V-B: M1 = N1 by what L0C holds; K1 by L0A and L0B. 256 KiB of fp32 sums are 256 x 256.
  const CubeTile t = mad_tile({.rows = 4096, .columns = 4096, .depth = 4096}, Bytes(64 << 10),
                              Bytes(64 << 10), Bytes(256 << 10));
  EXPECT_EQ(t, (CubeTile{.rows = 256, .columns = 256, .depth = 128}));
  EXPECT_EQ(mad_tile({.rows = 40, .columns = 24, .depth = 10}, Bytes(64 << 10), Bytes(64 << 10),
                     Bytes(256 << 10)),
            (CubeTile{.rows = 40, .columns = 24, .depth = 10}));
  EXPECT_EQ(mad_tile({.rows = 64, .columns = 64, .depth = 64}, Bytes(256), Bytes(256), Bytes(4096)),
            CubeTile{});
}

TEST(ChimeraPaths, PricesAProductByHand) {
  const auto w = workload("gemm:m=64,n=64,k=64,dtype=f16");
  const Result<Plan> plan = plan_of(*w, {.rows = 64, .depth = 64, .columns = 64,
                                         .first = {.rows = 64, .columns = 64, .depth = 64}});
  ASSERT_TRUE(plan) << plan.reason();
  const Result<PathPlan> p = price_paths(*plan, w, ascend(), {});
  ASSERT_TRUE(p) << p.reason();
  const double clock = 1220.703125e6;
  std::map<std::string, double> seconds;
  for (const PathCost& c : p->costs) seconds[c.boundary] = c.seconds * clock;
  // Cycles: A and B of 8 KiB at 64 bytes; A at 512, B at 256; C at 256, then at 64; 64^3 / 16^3.
  EXPECT_NEAR(seconds["L2/L1"], 2 * 8192 / 64.0, 1e-6);
  EXPECT_NEAR(seconds["L1/L0A"], 8192 / 512.0, 1e-6);
  EXPECT_NEAR(seconds["L1/L0B"], 8192 / 256.0, 1e-6);
  EXPECT_NEAR(seconds["UB/L0C"], 8192 / 256.0, 1e-6);
  EXPECT_NEAR(seconds["L2/UB"], 8192 / 64.0, 1e-6);
  EXPECT_NEAR(seconds["cube"], 64.0, 1e-6);
  EXPECT_NEAR(p->largest * clock, 256, 1e-6);
  EXPECT_EQ(p->blocks, 1);
}

TEST(ChimeraPaths, TheBestIsNoWorseThanAnyBlockTried) {
  const auto w = workload("gemm-chain:m=96,n=32,k=32,l=64,dtype=f16");
  const auto m = ascend();
  const Result<PathPlan> best = best_paths(*w, m, {});
  ASSERT_TRUE(best) << best.reason();
  int priced = 0;
  for (std::int64_t rows : {16, 32, 48, 96})
    for (std::int64_t out : {16, 32})
      for (std::int64_t mid : {16, 32, 64}) {
        const Result<Plan> plan =
            plan_of(*w, {.rows = rows, .depth = 32, .columns = mid, .second_columns = out,
                         .first = {.rows = rows, .columns = mid, .depth = 32},
                         .second = {.rows = rows, .columns = out, .depth = mid}});
        ASSERT_TRUE(plan);
        const Result<PathPlan> p = price_paths(*plan, w, m, {});
        ASSERT_TRUE(p) << p.reason();
        EXPECT_LE(best->largest, p->largest * (1 + 1e-12));
        ++priced;
      }
  EXPECT_EQ(priced, 24);
  const Result<PathPlan> apart = best_paths(*w, m, {.fused = false});
  ASSERT_TRUE(apart) << apart.reason();
  EXPECT_EQ(apart->plan.kernels.size(), 2U);
}

TEST(ChimeraPaths, SayWhatIsNoChain) {
  EXPECT_FALSE(best_paths(*workload("layernorm:rows=8,cols=16,dtype=f16"), ascend(), {}));
  EXPECT_FALSE(best_paths(*workload("gemm:m=8,n=8,k=8"),
                          std::make_shared<const Machine>(named_machine("h100")), {}));
}

}  // namespace
}  // namespace tilewright::chimera
