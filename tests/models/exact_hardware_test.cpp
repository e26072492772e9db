// What `exact` counts next to hardware caches, and what it leaves to the simulator.
#include <gtest/gtest.h>

#include "models/exact/exact.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

Schedule scheduled(const testing::WorkedRow& row, Machine machine) {
  auto s = resolve(testing::worked_plan(row), testing::worked_workload(row),
                   std::make_shared<const Machine>(std::move(machine)));
  EXPECT_TRUE(s.ok()) << s.reason();
  return std::move(s).value();
}

TEST(ExactHardware, ACacheDecidesEverythingBelowIt) {
  const testing::WorkedRow row = testing::worked_rows()[0];
  const Machine cache = parse_synthetic_machine("cache:4K/4,64K/8");
  const Traffic t = exact(scheduled(row, cache));
  EXPECT_TRUE(t.entries.empty());
  EXPECT_EQ(t.unavailable.size(), 2u);
  EXPECT_NE(t.unavailable.at("L2/L1").find("L1 is a hardware cache"), std::string::npos);
  EXPECT_TRUE(t.unavailable.contains("DRAM/L2"));
  EXPECT_EQ(t.operations.at("gemm1").value, row.operations.at("gemm1"));
}

TEST(ExactHardware, AsAScratchpadItCounts) {
  const testing::WorkedRow row = testing::worked_rows()[0];
  const Machine cache = parse_synthetic_machine("cache:4K/4,64K/8");
  const Traffic t = exact(scheduled(row, as_scratchpad(cache, *cache.find("L1"))));
  EXPECT_TRUE(t.unavailable.empty());
  EXPECT_EQ(t.at("A", "DRAM/L1").read.value, 4 * row.traffic.at("A DRAM/L1 read"));
  EXPECT_EQ(t.total("DRAM/L1").written.value, 4 * row.traffic.at("E DRAM/L1 written"));
}

TEST(ExactHardware, SharedMemoryUnderACacheCounts) {
  testing::WorkedRow row = testing::worked_rows()[0];
  const Traffic t = exact(scheduled(row, named_machine("h100")));
  EXPECT_EQ(t.unavailable.size(), 1u);
  EXPECT_NE(t.unavailable.at("DRAM/L2").find("L2 is a hardware cache"), std::string::npos);
  for (const char* tensor : {"A", "B", "D", "E"})
    EXPECT_EQ(t.at(tensor, "L2/shared").read.value,
              4 * row.traffic.at(std::string(tensor) + " DRAM/L1 read"))
        << tensor;
  EXPECT_EQ(t.at("E", "L2/shared").written.value, 4 * row.traffic.at("E DRAM/L1 written"));
}

/// A load to a cache touches nothing, and software levels inside it count as ever.
TEST(ExactHardware, LoadsToACacheMoveNothingOfTheirOwn) {
  testing::WorkedRow row = testing::worked_rows()[0];
  row.tree = "m l ( L.A@L2 k ( L.A@shared C.gemm1 ) n ( C.gemm2 ) )";
  const Traffic t = exact(scheduled(row, named_machine("h100")));
  EXPECT_TRUE(t.unavailable.contains("DRAM/L2"));
  EXPECT_EQ(t.at("A", "L2/shared").read.value, 4 * row.traffic.at("A DRAM/L1 read"));
}

}  // namespace
}  // namespace tilewright
