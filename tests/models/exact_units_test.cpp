// Buffers of units within a block (plan.md rules 7 and 12): sums that units join, units within
// units, and what a unit's memory holds. exact, a literal walk and the access stream, against hand
// counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/exact/exact.h"
#include "tests/support/literal_walker.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMachine = R"(
name: units
kind: gpu
default_level: registers
levels:
  - {name: DRAM, kind: home}
  - {name: shared, kind: scratchpad, capacity: {value: 1M, source: test}, private_to: grid}
  - {name: registers, kind: registers, capacity: {value: 1M, source: test}, private_to: thread, filled_by: [DRAM, shared]}
)";

Result<Schedule> schedule_of(const std::string& operators, const std::string& tree) {
  static const auto machine = std::make_shared<const Machine>(machine_from_yaml(kMachine, "test"));
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: test\nloops: {r: 64, c: 64}\noperators:\n" + operators, "test"));
  return resolve({.kernels = {{.level = "registers", .tree = parse_tree(tree)}}}, w, machine);
}

struct Moved {
  std::int64_t read = 0, written = 0;
  friend bool operator==(const Moved&, const Moved&) = default;
};

/// Elements of a tensor across DRAM/registers, by exact; the literal walk must say the same.
Moved moved(const Schedule& s, const std::string& tensor) {
  const TrafficEntry e = exact(s).at(tensor, "DRAM/registers");
  testing::LiteralWalker literal(s);
  EXPECT_EQ(e.read.value, (literal.bytes[{tensor, "DRAM/registers", "read"}])) << tensor;
  EXPECT_EQ(e.written.value, (literal.bytes[{tensor, "DRAM/registers", "written"}])) << tensor;
  return {e.read.value / 4, e.written.value / 4};
}

TEST(Units, JoinASumOnceAndReadNothingBack) {
  // An output that warps, lanes or both reduce: initialised, joined, written once (rule 12).
  for (const char* tree :
       {"r/8@grid r/1@warp c/4@lane ( C.y )", "r/8@grid r/1@warp ( c/4@lane ( C.y ) S.y )",
        "r/1@grid c/16@warp c/4@lane ( C.y )", "r/1@grid c/4@thread ( C.y )"}) {
    SCOPED_TRACE(tree);
    const auto s = schedule_of("  - y[r] += x[r,c]\n", tree);
    ASSERT_TRUE(s.ok()) << s.reason();
    EXPECT_EQ(moved(*s, "y"), (Moved{0, 64}));
    EXPECT_EQ(moved(*s, "x"), (Moved{64 * 64, 0}));
  }
  const char* columns = "  - y[c] += x[r,c]\n";
  for (const char* tree :
       {"c/32@grid r/8@warp c/4@lane ( C.y )", "c/32@grid r/8@warp c/4@lane r/1 ( C.y )",
        "c/32@grid ( r/8@warp c/4@lane r/1 ( C.y ) S.y )"}) {
    SCOPED_TRACE(tree);
    const auto s = schedule_of(columns, tree);
    ASSERT_TRUE(s.ok()) << s.reason();
    EXPECT_EQ(moved(*s, "y"), (Moved{0, 64}));
  }
  // Over blocks: zeroed, and each of 4 blocks adds its part.
  const auto split =
      schedule_of(columns, "c/32@grid r/16@grid ( r/4@warp c/4@lane ( C.y ) S.y!atomic )");
  ASSERT_TRUE(split.ok()) << split.reason();
  EXPECT_EQ(moved(*split, "y"), (Moved{0, 64 + 4 * 64}));
}

TEST(Units, StoreNoPartOfASum) {
  const auto s = schedule_of("  - y[c] += x[r,c]\n", "c/32@grid r/8@warp ( c/4@lane ( C.y ) S.y )");
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.reason(), HasSubstr("S.y is inside r@warp, over whose units it is reduced"));
}

TEST(Units, AreNotTheFirstOfTheUnitsWithinThem) {
  // s is loaded for warp 1 (before its lanes) and, where it is read again, for lane 1 of warp 0:
  // others.
  const auto s = schedule_of("  - a[r,c] = x[r,c] * t[r]\n  - y[r,c] = a[r,c] + u[c]\n",
                             "r/2@grid r/1@warp ( ( L.t c/2@lane ( C.a ) ) c/2@lane ( L.u C.y ) )");
  ASSERT_TRUE(s.ok()) << s.reason();
  EXPECT_EQ(moved(*s, "t"), (Moved{64, 0}));
  EXPECT_EQ(moved(*s, "u"), (Moved{64 * 64, 0}));
  // The same value loaded at both depths is loaded twice, for the warp once and for each of 32
  // lanes.
  const auto twice =
      schedule_of("  - a[r,c] = x[r,c] * t[r]\n  - y[r,c] = a[r,c] + t[r]\n",
                  "r/2@grid r/1@warp ( ( L.t c/2@lane ( C.a ) ) c/2@lane ( L.t C.y ) )");
  ASSERT_TRUE(twice.ok()) << twice.reason();
  EXPECT_EQ(moved(*twice, "t"), (Moved{64 + 64 * 32, 0}));
}

TEST(Units, HoldTheirOwnAndTheirPartOfWhatIsSpread) {
  // Every lane has 2 of a row's 64 x and of its 64 a, one sum, and while it computes a, all of
  // that.
  const auto s = schedule_of("  - y[r] += x[r,c]\n  - z[r,c] = x[r,c] * y[r]\n",
                             "r/4@grid r/1@warp ( L.x c/2@lane ( C.y ) c/2@lane ( C.z ) )");
  ASSERT_TRUE(s.ok()) << s.reason();
  // x: 64 over 32 lanes; y: 1, known to all; z: the lane's 2.
  EXPECT_EQ(memory_use(*s).at("registers"), Bytes((2 + 1 + 2) * 4));
  // 64 trips go round 32 lanes: 2 of x again, one of z at a time.
  const auto round = schedule_of("  - y[r] += x[r,c]\n  - z[r,c] = x[r,c] * y[r]\n",
                                 "r/4@grid r/1@warp ( L.x c/1@lane ( C.y ) c/1@lane ( C.z ) )");
  ASSERT_TRUE(round.ok()) << round.reason();
  EXPECT_EQ(memory_use(*round).at("registers"), Bytes((2 + 1 + 1) * 4));
}

}  // namespace
}  // namespace tilewright
