// Schedules as what threads do: where values lie, what moves them, and who waits.
#include "core/lowering/gpu/thread_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/lowering/gpu/block_order.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Lowered {
  Schedule schedule;
  Result<ThreadProgram> program;
};

std::unique_ptr<Lowered> lowered(const std::string& text, const std::string& tree,
                                 std::map<std::string, Pin> pins = {},
                                 const LowerOptions& options = {}) {
  Plan plan;
  plan.kernels.push_back(
      {.name = "k", .level = "registers", .tree = parse_tree(tree), .pins = std::move(pins)});
  Result<Schedule> schedule = resolve(
      plan, std::make_shared<const Workload>(workload_from_yaml("name: test\n" + text, "test")),
      std::make_shared<const Machine>(named_machine("h200")));
  if (!schedule) throw std::runtime_error(schedule.reason());
  auto out = std::make_unique<Lowered>(Lowered{std::move(schedule).value(), Reason{"none"}});
  out->program = lower(out->schedule, 0, options);
  return out;
}

const Value& value_of(const ThreadProgram& p, const std::string& tensor) {
  return *std::ranges::find_if(
      p.values, [&](const Value& v) { return p.workload->tensor(v.tensor).name == tensor; });
}

void each_step(const std::vector<Step>& steps, const std::function<void(const Step&)>& f) {
  for (const Step& s : steps) {
    f(s);
    each_step(s.body, f);
  }
}
std::vector<const Step*> steps_of(const ThreadProgram& p, Step::Kind kind) {
  std::vector<const Step*> all;
  each_step(p.steps, [&](const Step& s) {
    if (s.kind == kind) all.push_back(&s);
  });
  return all;
}

const char* const kCentred =
    "loops: {r: 64, c: 256}\ntensors: {x: [r, c], s: [r], y: [r, c]}\noutputs: [y]\n"
    "operators:\n  - s[r] += x[r,c]\n  - y[r,c] = x[r,c] - s[r]\n";

TEST(ThreadProgram, AWarpKeepsItsRowInRegisters) {
  const auto l = lowered(
      kCentred, "r/4@grid r/1@warp ( L.x@registers c/4@lane ( C.s ) Y.warp c/4@lane ( C.y ) )");
  const ThreadProgram& p = l->program.value();
  EXPECT_EQ(p.warps, 4);
  EXPECT_EQ(p.shared_bytes, 0);
  const Value& x = value_of(p, "x");
  EXPECT_EQ(x.storage, Storage::registers);
  std::int64_t registers = 1;
  for (int id : x.dims) registers *= p.index(id).count;
  EXPECT_EQ(registers, 256 / 32);
  // One load of two runs of four neighbours; a sum over 32 lanes; nobody waits in shared memory.
  const auto loads = steps_of(p, Step::Kind::load);
  ASSERT_EQ(loads.size(), 1);
  EXPECT_EQ(loads[0]->strip.width, 4);
  ASSERT_EQ(steps_of(p, Step::Kind::lanes).size(), 1);
  EXPECT_TRUE(steps_of(p, Step::Kind::exchange).empty());
  EXPECT_TRUE(steps_of(p, Step::Kind::barrier).empty());
}

TEST(ThreadProgram, ABlockJoinsItsWarpsSumsAtOneBarrier) {
  const auto l =
      lowered(kCentred, "r/1@grid ( L.x@registers c/1@thread ( C.s ) Y.block c/1@thread ( C.y ) )");
  const ThreadProgram& p = l->program.value();
  EXPECT_EQ(p.warps, 8);
  const auto exchanges = steps_of(p, Step::Kind::exchange);
  ASSERT_EQ(exchanges.size(), 1);
  EXPECT_EQ(exchanges[0]->joined.at(0).elements, 8);  // a part of each warp
  EXPECT_EQ(p.shared_bytes, 8 * 4);
  EXPECT_TRUE(steps_of(p, Step::Kind::barrier).empty());  // every thread adds the parts up itself
}

TEST(ThreadProgram, WhatOtherThreadsReadGoesThroughSharedMemory) {
  const auto l = lowered(
      "loops: {r: 64, c: 32, d: 32}\ntensors: {x: [r, c], a: [r, c], y: [r, d]}\noutputs: [y]\n"
      "operators:\n  - a[r,c] = abs(x[r,c])\n  - y[r,d] += a[r,c]\n",
      "r/4@grid r/1@warp ( c/1@lane ( C.a ) Y.warp d/1@lane c/1 ( C.y ) )",
      {{"a", {.level = "shared"}}});
  const ThreadProgram& p = l->program.value();
  EXPECT_EQ(value_of(p, "a").storage, Storage::shared);
  EXPECT_EQ(p.shared_bytes, 4 * 33 * 4);  // a row for each warp, of an odd number of elements
  const auto barriers = steps_of(p, Step::Kind::barrier);
  ASSERT_EQ(barriers.size(), 1);
  EXPECT_TRUE(barriers[0]->warp);  // of a warp: no other reads its row
  bool found = false;
  for (const Step* s : steps_of(p, Step::Kind::compute))
    for (const Read& r : s->reads) found = found || r.from == Read::From::shared;
  EXPECT_TRUE(found);
}

/// Indices and a shared tile are both under way before either is waited for; the tile is put into
/// shared memory behind the lookups, which are under way before threads meet.
TEST(ThreadProgram, LoadsAreUnderWayBeforeOneIsWaitedFor) {
  const auto l = lowered(
      "loops: {b: 8, t: 96, d: 64}\ntensors: {ids: [b, t], table: [1000, d],"
      " q: [b, d], k: [b, t, d], z: [b, t]}\ndtypes: {ids: i32}\noutputs: [z]\n"
      "operators:\n  - k[b,t,d] = table[ids[b,t],d]\n  - z[b,t] += k[b,t,d] * q[b,d]\n",
      "b/1@grid ( L.ids@registers L.q@registers t/24@warp t/1@lane d/4@lane ( C.k ) t/24@warp "
      "t/1@lane d/4@lane ( C.z ) S.z )");
  const ThreadProgram& p = l->program.value();
  using Kind = Step::Kind;
  std::vector<std::string> order;
  std::size_t ahead = 0;
  each_step(p.steps, [&](const Step& s) {
    const auto of = [&] { return p.workload->tensor(p.value(s.values.front()).tensor).name; };
    if (s.kind == Kind::load) order.push_back("load " + of());
    if (s.kind == Kind::stage) order.push_back("stage " + of());
    if (s.kind == Kind::spread) order.push_back("spread " + of());
    if (s.kind == Kind::put) order.push_back("put " + of());
    if (s.kind == Kind::barrier) order.push_back("barrier");
    if (s.kind == Kind::compute)
      order.push_back("compute " + p.workload->op(p.kernel->node(s.node).op).name);
    if (s.ahead) ++ahead;
  });
  EXPECT_EQ(order, (std::vector<std::string>{"load ids", "stage q", "spread ids", "compute k",
                                             "put q", "barrier", "compute z"}));
  EXPECT_EQ(ahead, 1u);
  EXPECT_FALSE(steps_of(p, Kind::stage).front()->fetched.empty());
}

TEST(ThreadProgram, StepsSayHowManyWarpsAndIterationsThereAre) {
  // Three rows for four warps in the last block; 20 of 32 lanes.
  const auto l = lowered(
      "loops: {r: 7, c: 20}\ntensors: {x: [r, c], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - y[r,c] = abs(x[r,c])\n",
      "r/4@grid r/1@warp c/1@lane ( C.y )");
  const Step& s = *steps_of(l->program.value(), Step::Kind::compute).front();
  EXPECT_EQ(s.warps, 4);
  EXPECT_DOUBLE_EQ(s.full, 7.0 / 8);
}

TEST(ThreadProgram, RefusesWithTheReason) {
  const auto l = lowered(
      kCentred, "r/4@grid r/1@warp ( L.x@registers c/4@lane ( C.s ) Y.warp c/4@lane ( C.y ) )", {},
      {.shared_room = 1});
  EXPECT_TRUE(l->program.ok());  // needs none
  const auto large =
      lowered(kCentred, "r/1@grid ( L.x@registers c/1@thread ( C.s ) Y.block c/1@thread ( C.y ) )",
              {}, {.shared_room = 31});
  ASSERT_FALSE(large->program.ok());
  ASSERT_TRUE(large->program.why().shortage);
  EXPECT_EQ(large->program.why().shortage->needed, 32);
  EXPECT_EQ(large->program.why().shortage->room, 31);
}

TEST(ThreadProgram, IsDescribedStepByStep) {
  const auto l = lowered(
      kCentred, "r/4@grid r/1@warp ( L.x@registers c/4@lane ( C.s ) Y.warp c/4@lane ( C.y ) )");
  const std::string text = describe(l->program.value());
  std::size_t at = 0;  // in this order
  for (const char* line :
       {"k: 16 blocks of 4 warps, 0 bytes of shared memory", "x: registers[", "blocks b_r, 16",
        "L.x[", "4 elements at once", "start sum s", "C.s: s[r] += x[r,c]", "adds to s",
        "join s over 32 lanes", "C.y: y[r,c] = x[r,c] - s[r]", "S.y["}) {
    const std::size_t found = text.find(line, at);
    ASSERT_NE(found, std::string::npos) << line << " is not after character " << at << " of\n"
                                        << text;
    at = found;
  }
  EXPECT_THAT(text, Not(HasSubstr("barrier")));
}

/// What L2 has of a long tensor are its last elements: the next kernel reads them first, the one
/// after that the first ones. A short tensor is there whole.
TEST(BlockOrder, BeginsWithWhatTheLastKernelEndedWith) {
  const auto from_last = [](const std::string& rows, const std::string& tree) {
    Plan plan;
    for (const char* op : {"s", "y", "z"}) {
      std::string one = tree;
      one.replace(one.find("OP"), 2, op);
      plan.kernels.push_back({.name = op, .level = "registers", .tree = parse_tree(one)});
    }
    const Result<Schedule> s =
        resolve(plan,
                std::make_shared<const Workload>(workload_from_yaml(
                    "name: test\nloops: {r: " + rows +
                        ", c: 4096}\noutputs: [s, y, z]\noperators:\n  - s: s[r] += x[r,c]\n"
                        "  - y: y[r,c] = x[r,c] * 2\n  - z: z[r,c] = x[r,c] + y[r,c]\n",
                    "test")),
                std::make_shared<const Machine>(named_machine("h200")));
    if (!s) throw std::runtime_error(s.reason());
    std::string found;
    for (int k = 0; k < 3; ++k) found += from_last_block(*s, k) ? '<' : '>';
    return found;
  };
  EXPECT_EQ(from_last("16384", "r/1@grid c/4@thread ( C.OP )"), "><>");
  EXPECT_EQ(from_last("64", "r/1@grid c/4@thread ( C.OP )"), ">>>");
  EXPECT_EQ(from_last("16384", "r/1@grid c/256 ( C.OP )"), ">>>") << "blocks order their own tiles";
}

/// What is looked up for a row is read outside of the loop over its elements, a run of elements in
/// one access.
TEST(ThreadProgram, SaysHowOftenAReadComesFromHome) {
  const auto l = lowered(
      "loops: {r: 64, c: 256}\ntensors: {k: [r], i: [r, c], e: [1000], f: [1000, 256], g: [1000]}\n"
      "dtypes: {k: i32, i: i32}\noutputs: [y]\n"
      "operators:\n  - y: y[r,c] = e[k[r]] * f[k[r],c] + g[i[r,c]]\n",
      "r/8@grid r/1@warp c/4@lane ( C.y )");
  ASSERT_TRUE(l->program.ok()) << l->program.reason();
  const ThreadProgram& p = *l->program;
  std::map<std::string, std::pair<std::size_t, std::int64_t>> found;
  for (const Step* s : steps_of(p, Step::Kind::compute))
    for (const Read& r : s->reads)
      if (r.at_home())
        found[p.workload->tensor(r.tensor).name] = {ThreadProgram::depth_of(*s, r),
                                                    p.loads_of(*s, r)};
  const std::pair<std::size_t, std::int64_t> of_row{0, 1}, of_run{0, 1}, of_element{1, 4};
  EXPECT_EQ(found.at("e"), of_row);
  EXPECT_EQ(found.at("f"), of_run);
  EXPECT_EQ(found.at("g"), of_element);
}

}  // namespace
}  // namespace tilewright::lowering
