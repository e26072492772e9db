// Every worked row of design/plan.md through `exact`.
#include <gtest/gtest.h>

#include <sstream>

#include "models/exact/exact.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using testing::WorkedRow;

class ExactWorked : public ::testing::TestWithParam<WorkedRow> {};

TEST_P(ExactWorked, CountsTheRow) {
  const WorkedRow& row = GetParam();
  const auto workload = testing::worked_workload(row);
  const auto machine = testing::worked_machine(row.machine);
  const auto schedule = resolve(testing::worked_plan(row), workload, machine);
  ASSERT_TRUE(schedule.ok()) << schedule.reason();
  const Traffic t = exact(*schedule);
  EXPECT_EQ(t.source, Source::predicted);
  EXPECT_EQ(t.by, "exact");
  EXPECT_TRUE(t.unavailable.empty());
  for (const auto& [key, elements] : row.traffic) {
    std::istringstream words(key);
    std::string tensor, boundary, direction;
    words >> tensor >> boundary >> direction;
    const TrafficEntry entry = t.at(tensor, boundary);
    EXPECT_EQ((direction == "read" ? entry.read : entry.written).value, 4 * elements) << key;
  }
  for (const auto& [op, count] : row.operations) EXPECT_EQ(t.operations.at(op).value, count) << op;
  for (const auto& [level, elements] : row.memory)
    EXPECT_EQ(t.memory.at(level).value, 4 * elements) << level;
}

INSTANTIATE_TEST_SUITE_P(Plan, ExactWorked, ::testing::ValuesIn(testing::worked_rows()),
                         [](const auto& info) {
                           std::string name;
                           for (char c : info.param.name)
                             name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace tilewright
