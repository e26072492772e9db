// What becomes of an unrolled trace: loops found in it execute the very steps that it had, and flags
// order every two steps of different pipes that touch the same bytes.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "codegen/npu/pipeline.h"
#include "codegen/npu/reroll.h"
#include "codegen/npu/synchronise.h"

namespace tilewright::npu {
namespace {

using Scalars = std::map<std::string, std::int64_t>;

std::int64_t value(const IntExpr& e, const Scalars& scalars) {
  std::vector<std::int64_t> stack;
  for (const IntExpr::Node& n : e.code()) {
    if (n.op == IntOp::literal) {
      stack.push_back(n.literal);
    } else if (n.op == IntOp::scalar) {
      stack.push_back(scalars.at(n.scalar));
    } else {
      const bool unary = n.op == IntOp::negate || n.op == IntOp::logical_not;
      const std::int64_t b = unary ? 0 : stack.back();
      if (!unary) stack.pop_back();
      stack.back() = *apply(n.op, stack.back(), b);
    }
  }
  return stack.back();
}

/// Every instruction that statements execute, its operands as numbers.
void execute(const std::vector<Statement>& body, Scalars& scalars, std::vector<Instruction>& out) {
  for (const Statement& s : body) {
    if (const auto* loop = std::get_if<Loop>(&s.action)) {
      for (std::int64_t i = 0; i < value(loop->to, scalars); ++i) {
        scalars[loop->counter] = i;
        execute(loop->body, scalars, out);
      }
    } else if (const auto* mad = std::get_if<Mad>(&s.action)) {
      Instruction i = *mad;
      for (IntExpr* e : operands(i)) *e = value(*e, scalars);
      out.push_back(std::move(i));
    } else {
      FAIL() << "a statement that no trace here has";
    }
  }
}

void flatten(const std::vector<TraceNode>& trace, std::vector<TraceStep>& out) {
  for (const TraceNode& n : trace) {
    if (!n.is_loop()) out.push_back(n.step);
    for (const auto& iteration : n.iterations) flatten(iteration, out);
  }
}

/// A nest whose operands advance with the counters, take turns in two or three places, and differ in
/// the first and last iterations.
std::vector<TraceNode> nest(std::mt19937_64& random, int depth, std::int64_t base) {
  const auto up_to = [&](int n) { return std::uniform_int_distribution<int>(0, n)(random); };
  std::vector<TraceNode> body;
  for (int i = up_to(2); i >= 0; --i) {
    const Mad mad{.c = {"c", base % 7},
                  .a = {"a", 3 * base + i},
                  .b = {"b", base % 2 * 100},
                  .m = 16 + (up_to(9) == 0 ? 1 : 0),
                  .k = 16,
                  .n = 16,
                  .accumulate = base == 0 ? 0 : 1};
    body.push_back({.step = {.instruction = mad, .pipe = Pipe::cube}});
  }
  if (depth == 0) return body;
  TraceNode loop{.counter = "i"};
  const int trips = up_to(7);
  for (int i = 0; i < trips; ++i) loop.iterations.push_back(nest(random, depth - 1, base + 5 * i));
  if (trips > 0) body.push_back(std::move(loop));
  return body;
}

TEST(NpuReroll, ExecutesWhatWasUnrolled) {
  std::mt19937_64 random(3);
  std::size_t unrolled = 0, statements_left = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<TraceNode> trace = nest(random, 3, 0);
    std::vector<TraceStep> steps;
    flatten(trace, steps);
    const std::vector<Statement> body = statements(reroll(trace), {});
    std::vector<Instruction> executed;
    Scalars scalars;
    execute(body, scalars, executed);
    ASSERT_EQ(executed.size(), steps.size()) << "seed 3, case " << i;
    for (std::size_t s = 0; s < steps.size(); ++s)
      ASSERT_EQ(executed[s], steps[s].instruction) << "seed 3, case " << i << ", step " << s;
    unrolled += steps.size();
    statements_left += body.size();
  }
  EXPECT_LT(statements_left, unrolled);
}

TEST(NpuReroll, TurnsOfTwoPlacesAreOneLoop) {
  TraceNode loop{.counter = "i"};
  for (int i = 0; i < 8; ++i)
    loop.iterations.push_back(
        {{.step = {.instruction = Mad{.a = {"a", i % 2 * 512}, .b = {"b", 64 * i}},
                   .pipe = Pipe::cube}}});
  const std::vector<Rolled> rolled = reroll({loop});
  ASSERT_EQ(rolled.size(), 1U);
  EXPECT_EQ(rolled[0].trips, 4);
  EXPECT_EQ(rolled[0].body.size(), 2U);
}

/// Blocks told one after the other: those that advance evenly are one run, said of the block's number.
TEST(NpuReroll, PositionsThatAdvanceEvenlyAreOneRun) {
  const std::vector<std::int64_t> at = {7, 107, 207, 307, 1000, 1001, 1002, 5};
  Runs runs;
  for (const std::int64_t a : at)
    runs.add(reroll({{.step = {.instruction = Mad{.a = {"a", a}}, .pipe = Pipe::cube}}}));
  const std::vector<tilewright::npu::Run> found = runs.take();
  ASSERT_EQ(found.size(), 3U);
  std::int64_t position = 0;
  for (const tilewright::npu::Run& run : found) {
    EXPECT_EQ(run.first, position);
    for (std::int64_t i = 0; i < run.count; ++i, ++position) {
      Scalars scalars = {{"number", position}};
      std::vector<Instruction> executed;
      execute(statements(run.body, {scalar("number")}), scalars, executed);
      ASSERT_EQ(executed.size(), 1U);
      const Instruction expected = Mad{.a = {"a", at[static_cast<std::size_t>(position)]}};
      EXPECT_EQ(executed[0], expected) << position;
    }
  }
  EXPECT_EQ(position, std::ssize(at));
}

TraceStep touching(Pipe pipe, std::int64_t low, std::int64_t high, bool write) {
  return {.instruction = Mad{},
          .pipe = pipe,
          .touches = {{.memory = Memory::l1, .write = write, .low = low, .high = high}},
          .cycles = 10};
}

/// Whether flags order every conflict, by clocks kept apart from the synchroniser's: a pipe has seen a
/// step when a flag that was set after it was waited for.
void check_ordered(const std::vector<TraceStep>& steps) {
  std::vector<std::map<Pipe, std::int64_t>> clocks;  // by step
  std::map<Pipe, std::map<Pipe, std::int64_t>> seen;
  std::map<std::tuple<Pipe, Pipe, std::int64_t>, std::map<Pipe, std::int64_t>> flags;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const TraceStep& s = steps[at];
    clocks.emplace_back();
    if (const auto* set = std::get_if<SetFlag>(&s.instruction)) {
      const auto key = std::tuple(set->from, set->to, set->event.literal());
      ASSERT_FALSE(flags.contains(key)) << "a flag is set twice, step " << at;
      flags[key] = seen[set->from];
    } else if (const auto* wait = std::get_if<WaitFlag>(&s.instruction)) {
      const auto key = std::tuple(wait->from, wait->to, wait->event.literal());
      ASSERT_TRUE(flags.contains(key)) << "a wait for a flag that is not set, step " << at;
      for (const auto& [pipe, step] : flags[key])
        seen[wait->to][pipe] = std::max(seen[wait->to][pipe], step);
      flags.erase(key);
    } else if (std::holds_alternative<Barrier>(s.instruction)) {
      std::map<Pipe, std::int64_t> all;
      for (const auto& [pipe, clock] : seen)
        for (const auto& [of, step] : clock) all[of] = std::max(all[of], step);
      for (Pipe p : {Pipe::vector, Pipe::cube, Pipe::mte1, Pipe::mte2, Pipe::mte3}) seen[p] = all;
    } else {
      for (std::size_t before = 0; before < at; ++before) {
        const TraceStep& b = steps[before];
        if (b.touches.empty() || b.pipe == s.pipe) continue;
        const TraceTouch &x = b.touches[0], &y = s.touches[0];
        if (!(x.write || y.write) || !overlap(x, y)) continue;
        ASSERT_GE(seen[s.pipe][b.pipe], static_cast<std::int64_t>(before) + 1)
            << "steps " << before << " and " << at << " race";
      }
      seen[s.pipe][s.pipe] = static_cast<std::int64_t>(at) + 1;
    }
  }
  EXPECT_TRUE(flags.empty());
}

TEST(NpuSynchronise, OrdersEveryConflict) {
  std::mt19937_64 random(5);
  const Pipe pipes[] = {Pipe::vector, Pipe::cube, Pipe::mte1, Pipe::mte2, Pipe::mte3};
  for (int i = 0; i < 200; ++i) {
    std::vector<TraceNode> trace;
    for (int s = 0; s < 60; ++s) {
      const auto low = static_cast<std::int64_t>(random() % 12 * 32);
      trace.push_back({.step = touching(pipes[random() % 5], low,
                                        low + 32 * static_cast<std::int64_t>(1 + random() % 3),
                                        random() % 3 == 0)});
    }
    synchronise(trace, 1 + static_cast<std::int64_t>(random() % 8));
    std::vector<TraceStep> steps;
    flatten(trace, steps);
    SCOPED_TRACE("seed 5, case " + std::to_string(i));
    check_ordered(steps);
    if (HasFatalFailure()) return;
  }
}

TEST(NpuPipeline, OverlapsIterationsThatDoNotTouchOneAnother) {
  // Each iteration: MTE1 fills a place, the cube reads it and writes another, MTE1 reads that.
  const auto loop_of = [](int places) {
    TraceNode loop{.counter = "i"};
    for (int i = 0; i < 8; ++i) {
      const std::int64_t at = i % places * 1000;
      TraceStep multiply = touching(Pipe::cube, at, at + 100, false);
      multiply.touches.push_back(
          {.memory = Memory::l1, .write = true, .low = at + 500, .high = at + 600});
      loop.iterations.push_back({{.step = touching(Pipe::mte1, at, at + 100, true), .part = 1},
                                 {.step = multiply, .part = 1},
                                 {.step = touching(Pipe::mte1, at + 500, at + 600, false), .part = 2}});
    }
    return std::vector<TraceNode>{loop};
  };
  std::vector<TraceNode> two = loop_of(2), one = loop_of(1);
  const auto cycles = [](const std::vector<TraceNode>& t) { return estimate({&t}); };
  const std::int64_t before = cycles(two);
  pipeline(two);
  EXPECT_LT(cycles(two), before);
  EXPECT_EQ(two[0].iterations.size(), 9U);
  pipeline(one);  // one place: the next iteration would overwrite what this one still reads
  EXPECT_EQ(one[0].iterations.size(), 8U);
}

}  // namespace
}  // namespace tilewright::npu
