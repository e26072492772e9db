// What `exact` costs does not grow with trips, and what it says is right where no walk could check
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "tests/support/literal_walker.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

using testing::WorkedRow;

/// The row with every extent in its workload multiplied; tiles stay.
WorkedRow scaled(WorkedRow row, std::int64_t times) {
  const std::size_t open = row.workload.find("loops: {");
  const std::size_t close = row.workload.find('}', open);
  std::string loops;
  for (std::size_t i = open; i < close; ++i) {
    if (!std::isdigit(static_cast<unsigned char>(row.workload[i]))) {
      loops += row.workload[i];
      continue;
    }
    std::size_t end = i;
    while (std::isdigit(static_cast<unsigned char>(row.workload[end]))) ++end;
    loops += std::to_string(std::stoll(row.workload.substr(i, end - i)) * times);
    i = end - 1;
  }
  row.workload.replace(open, close - open, loops);
  return row;
}

struct Counted {
  Traffic traffic;
  ExactCost cost;
};

Counted count(const WorkedRow& row) {
  const auto schedule = resolve(testing::worked_plan(row), testing::worked_workload(row),
                                testing::worked_machine(row.machine));
  EXPECT_TRUE(schedule.ok()) << row.name << ": " << schedule.reason();
  Counted c;
  c.traffic = exact(*schedule, &c.cost);
  return c;
}

class ExactCostOf : public ::testing::TestWithParam<WorkedRow> {};

TEST_P(ExactCostOf, DoesNotGrowWithTrips) {
  // A thousand times the work and a hundred thousand times the work at the same price: every loop
  // is long enough by then that it is evaluated at as many iterations as it ever will be.
  const Counted thousand = count(scaled(GetParam(), 1000));
  // Recomputation grows with the fourth power, and 64 bits hold no more than this of it.
  const Counted more = count(scaled(GetParam(), GetParam().name == "recomputed" ? 8000 : 100000));
  EXPECT_GT(thousand.cost.jumps, 0);
  EXPECT_LE(more.cost.nodes, thousand.cost.nodes + thousand.cost.nodes / 4);
  EXPECT_LE(thousand.cost.nodes, 20000);
  std::cout << GetParam().name << ": " << thousand.cost.nodes << " nodes evaluated, then "
            << more.cost.nodes << "\n";
}

TEST(ExactCost, CountsThatLeave64BitsAreRefused) {
  for (const WorkedRow& row : testing::worked_rows())
    if (row.name == "recomputed") {
      EXPECT_THROW(count(scaled(row, 100000)), InputError);
      return;
    }
  FAIL() << "no such row";
}

/// Rows with grids and units, whose bindings do not change the cost, are among them. Left out is
/// the convolution with h/4 whose y is cut inside: its extents do not scale by one factor.
std::vector<WorkedRow> scalable() {
  std::vector<WorkedRow> rows;
  for (WorkedRow& row : testing::worked_rows())
    if (row.workload != testing::kConv) rows.push_back(std::move(row));
  return rows;
}
INSTANTIATE_TEST_SUITE_P(Plan, ExactCostOf, ::testing::ValuesIn(scalable()), [](const auto& info) {
  std::string name;
  for (char c : info.param.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

/// mlkn's closed form (Chimera's table, full edges replaced by true ones), far past what walks.
TEST(ExactCost, AgreesWithTheClosedFormOfMlkn) {
  const Counted c = count(scaled(testing::worked_rows()[0], 1000));
  const std::int64_t m = 10000, n = 6000, k = 7000, l = 9000;
  const auto read = [&](const char* t) { return c.traffic.at(t, "DRAM/L1").read.value / 4; };
  EXPECT_EQ(read("A"), m * k * ceil_div(l, 5));
  EXPECT_EQ(read("B"), k * l * ceil_div(m, 4));
  EXPECT_EQ(read("D"), l * n * ceil_div(m, 4));
  EXPECT_EQ(read("E"), m * n * (ceil_div(l, 5) - 1));
  EXPECT_EQ(c.traffic.at("E", "DRAM/L1").written.value / 4, m * n * ceil_div(l, 5));
  EXPECT_EQ(c.traffic.operations.at("gemm1").value, m * l * k);
}

TEST(ExactCost, IsGivenUpBeyondItsLimit) {
  const WorkedRow row = testing::worked_rows()[0];
  const auto schedule = resolve(testing::worked_plan(row), testing::worked_workload(row),
                                testing::worked_machine(row.machine));
  ASSERT_TRUE(schedule.ok()) << schedule.reason();
  const Schedule& s = *schedule;
  ExactCost cost;
  const Traffic whole = exact(s, &cost);
  EXPECT_TRUE(whole.unavailable.empty());
  EXPECT_EQ(exact(s, nullptr, cost.nodes).entries, whole.entries);
  const Traffic none = exact(s, nullptr, cost.nodes - 1);
  EXPECT_TRUE(none.entries.empty());
  EXPECT_TRUE(none.operations.empty());
  EXPECT_THAT(none.unavailable.at("DRAM/L1"),
              ::testing::HasSubstr("more than " + std::to_string(cost.nodes - 1)));
}

WorkedRow conv(std::int64_t h, const std::string& input, const std::string& tree, bool slide) {
  const std::string y = std::to_string(h + 2);
  WorkedRow row{.name = "conv",
                .workload = "name: long-conv\nloops: {h: " + std::to_string(h) + ", y: " + y +
                            ", r: 3, s: 3}\ntensors: {I: [" + std::to_string(h + 4) + "], M: [" +
                            y + "]}\noperators:\n  - \"conv1: M[y] += I[" + input +
                            "] * W[r]\"\n  - \"conv2: O[h] += M[h+s] * V[s]\"\n",
                .machine = "scratchpad:4096B",
                .tree = tree};
  if (slide) row.flags = {{"I", {.sliding = true}}, {"M", {.sliding = true}}};
  return row;
}

TEST(ExactCost, HalosCostNoMoreOnLongTensors) {
  for (const bool slide : {false, true})
    for (const std::string tree : {"h/4 ( C.conv1 C.conv2 )", "h/4 ( y/4 ( C.conv1 ) C.conv2 )",
                                   "h/64 ( h/4 ( y/3 ( C.conv1 ) C.conv2 ) )"}) {
      const Counted shorter = count(conv(100002, "y+r", tree, slide));
      const Counted longer = count(conv(100000002, "y+r", tree, slide));
      EXPECT_LE(longer.cost.nodes, shorter.cost.nodes + shorter.cost.nodes / 4) << tree;
      EXPECT_LE(longer.cost.nodes, 2000) << tree;
    }
  const Counted both = count(conv(100000002, "y+r", "h/4 ( C.conv1 C.conv2 )", true));
  EXPECT_EQ(both.traffic.at("I", "DRAM/L1").read.value, 4 * (100000002 + 4));
  EXPECT_EQ(both.traffic.operations.at("conv1").value, 3 * (100000002 + 2));
}

/// Padding clips a prefix and a suffix of iterations: found by bisection, so a logarithm more.
TEST(ExactCost, PaddingCostsALogarithm) {
  const std::string tree = "h/4 ( y/2 ( C.conv1 ) C.conv2 )";
  const WorkedRow small = conv(50, "y+r-7", tree, false);
  const auto schedule = resolve(testing::worked_plan(small), testing::worked_workload(small),
                                testing::worked_machine(small.machine));
  ASSERT_TRUE(schedule.ok());
  const testing::LiteralWalker walked(*schedule);
  EXPECT_EQ(exact(*schedule).at("I", "DRAM/L1").read.value,
            walked.bytes.at({"I", "DRAM/L1", "read"}));
  const Counted longer = count(conv(100000000, "y+r-7", tree, false));
  EXPECT_LE(longer.cost.nodes, 4000);
}

/// Both parts of a pack read x, each in blocks of its own: no block keeps it for another, so that
/// blocks repeat.
TEST(ExactCost, PartsOfAPackThatReadTheSameRepeat) {
  const auto machine = std::make_shared<const Machine>(named_machine("h200"));
  const auto nodes = [&](std::int64_t rows) {
    const auto workload = std::make_shared<const Workload>(
        workload_from_yaml("name: pack\nloops: {r: " + std::to_string(rows) +
                               ", c: 64}\noperators:\n  - \"one: y[r,c] = x[r,c] * 2\"\n"
                               "  - \"two: z[r,c] = x[r,c] + 1\"\n",
                           "test"));
    const Kernel pack{.level = "registers",
                      .tree = parse_tree("( r/4@grid r/1@warp c/2@lane ( C.one ) | "
                                         "r/2@grid r/1@warp c/2@lane ( C.two ) )")};
    const auto schedule = resolve(Plan{.kernels = {pack}}, workload, machine);
    EXPECT_TRUE(schedule.ok()) << schedule.reason();
    ExactCost cost;
    EXPECT_EQ(exact(*schedule, &cost).at("x", "L2/registers").read.value, 2 * rows * 64 * 4);
    return cost.nodes;
  };
  EXPECT_LE(nodes(1000000), nodes(1000) * 5 / 4);
}

/// !once fills in a row of tiles and then skips them: the row is kept as one run of tiles.
TEST(ExactCost, OnceIsARun) {
  WorkedRow row = testing::worked_rows()[0];
  row.tree = "m n l ( k ( C.gemm1!once ) C.gemm2 )";
  row.pins = {{"C", Pin{.at = "m"}}};
  const Counted c = count(scaled(row, 1000));
  EXPECT_EQ(c.traffic.operations.at("gemm1").value, std::int64_t{10000} * 9000 * 7000);
  EXPECT_EQ(c.traffic.at("A", "DRAM/L1").read.value / 4, std::int64_t{10000} * 7000 * 1800);
  EXPECT_LE(c.cost.nodes, 20000);
}

}  // namespace
}  // namespace tilewright
