// Does the scratchpad simulator give the numbers of every worked row of design/plan.md?
#include "tests/support/worked.h"

#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "simulator/simulator.h"

namespace tilewright {
namespace {

using testing::worked_machine;
using testing::worked_plan;
using testing::worked_rows;
using testing::worked_workload;
using testing::WorkedRow;

std::string test_name(const ::testing::TestParamInfo<WorkedRow>& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class WorkedTraffic : public ::testing::TestWithParam<WorkedRow> {};

TEST_P(WorkedTraffic, IsThatOfTheTable) {
  const WorkedRow& row = GetParam();
  const auto s = resolve(worked_plan(row), worked_workload(row), worked_machine(row.machine));
  ASSERT_TRUE(s.ok()) << s.reason();
  const Traffic t = simulate(*s);
  EXPECT_EQ(t.source, Source::simulated);
  EXPECT_EQ(t.by, "scratchpad");
  EXPECT_FALSE(t.counts.write_allocate);
  EXPECT_TRUE(t.counts.write_back);
  ASSERT_FALSE(row.traffic.empty());
  for (const auto& [key, elements] : row.traffic) {
    std::istringstream words(key);
    std::string tensor, boundary, direction;
    words >> tensor >> boundary >> direction;
    const TrafficEntry e = t.at(tensor, boundary);
    EXPECT_EQ(direction == "read" ? e.read : e.written, Bytes(elements * 4)) << key;
  }
  for (const auto& [op, count] : row.operations)
    EXPECT_EQ(t.operations.at(op), Operations(count)) << op;
  for (const auto& [level, elements] : row.memory)
    EXPECT_EQ(t.memory.at(level), Bytes(elements * 4)) << level;
  for (const TrafficEntry& e : t.entries) EXPECT_GT(e.read + e.written, Bytes(0)) << e.tensor;
}

INSTANTIATE_TEST_SUITE_P(Rows, WorkedTraffic, ::testing::ValuesIn(worked_rows()), test_name);

}  // namespace
}  // namespace tilewright
