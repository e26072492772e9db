// Are the kernels those of PolyBench, access for access and miss for miss? Held against what Dinero
// IV counted of the compiled programs: data of the PLDI'22 warping artifact, where it is at hand.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "simulator/polybench/polybench.h"

namespace tilewright::polybench {
namespace {

std::vector<CacheGeometry> cascade_lake() {
  return {{.name = "L1", .capacity = Bytes(32 << 10), .ways = 8},
          {.name = "L2", .capacity = Bytes(1 << 20), .ways = 16}};
}

struct Row {
  double accesses = 0, l1 = 0, l2 = 0;
};

std::map<std::string, Row> dinero(const char* size) {
  std::map<std::string, Row> rows;
  std::ifstream file(std::string("../shared/data/polybench-papi/dinero-") + size + "-l1-l2.csv");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    Row row;
    if (words >> name >> row.accesses >> row.l1 >> row.l2) rows[name] = row;
  }
  return rows;
}

struct Tolerance {
  double accesses = 5e-5, l1 = 1e-3, l2 = 3e-3;
};

/// Counts agree to 15 accesses (a function's entry and exit are in theirs) and 4 misses (so are its
/// stack's lines), or to 0.005 %, 0.1 % and 0.3 %, but for these:
/// adi: ten accesses a line more of registers that theirs reloads; their L2, like that of fdtd-2d,
///   depends on where the allocator put arrays that together are a little larger than it.
/// correlation: four accesses a column more.
/// durbin: at these sizes theirs misses the two of its outer loop; its third array is on the stack.
/// gesummv: at these sizes theirs has one a row less.
/// heat-3d: one access a plane and step more, and the allocator again.
/// nussinov: seven accesses a pair more, by the count spilled registers, whose line takes room in
/// L1.
const std::map<std::string, Tolerance> kExceptions{
    {"adi", {.accesses = 2e-3, .l1 = 2e-3, .l2 = 0.21}},
    {"correlation", {.accesses = 4e-4}},
    {"durbin", {.accesses = 5e-3}},
    {"fdtd-2d", {.l2 = 0.08}},
    {"gesummv", {.accesses = 2e-3}},
    {"gramschmidt", {.accesses = 6e-5}},
    {"heat-3d", {.l2 = 0.09}},
    {"nussinov", {.accesses = 0.04, .l1 = 0.012}},
};

void hold_against_dinero(Size size) {
  const auto theirs = dinero(std::string(name_of(size)).c_str());
  if (theirs.empty()) GTEST_SKIP() << "no ../shared/data/polybench-papi here";
  ASSERT_EQ(theirs.size(), 30U);
  for (const Kernel& k : kernels()) {
    SCOPED_TRACE(k.name);
    const Counted ours = count(k, k.of(size), cascade_lake());
    const Row& row = theirs.at(std::string(k.name));
    const auto exception = kExceptions.find(std::string(k.name));
    const Tolerance may = exception == kExceptions.end() ? Tolerance{} : exception->second;
    EXPECT_NEAR(static_cast<double>(ours.accesses), row.accesses,
                std::max(15.0, may.accesses * row.accesses));
    EXPECT_NEAR(static_cast<double>(ours.levels[0].misses), row.l1, std::max(4.0, may.l1 * row.l1));
    EXPECT_NEAR(static_cast<double>(ours.levels[1].misses), row.l2, std::max(4.0, may.l2 * row.l2));
  }
}

TEST(PolybenchDinero, CountedTheSameAtTheSmallSize) { hold_against_dinero(Size::small); }
TEST(PolybenchDinero, CountedTheSameAtTheMediumSize) { hold_against_dinero(Size::medium); }

}  // namespace
}  // namespace tilewright::polybench
