// The latency-evaluator of overlapping resources, each term against a case worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/base/format.h"
#include "core/lowering/gpu/thread_program.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/fusionstitching/fusionstitching.h"
#include "models/stitching/accesses.h"
#include "models/stitching/overlap.h"

namespace tilewright::fusionstitching {
namespace {

using ::testing::DoubleNear;

/// Two SMs of round numbers: cycles are nanoseconds.
Device round_device() {
  Device d;
  d.sms = 2;
  d.clock_hz = 1e9;
  d.threads_per_sm = 2048;
  d.blocks_per_sm = 32;
  d.registers_per_sm = 65536;
  d.shared_per_sm = 100 * 1024;
  d.dram_bytes_per_second = 100e9;
  d.fill_bytes_per_second = 64e9;
  d.light = 4, d.expensive = 32, d.shuffle = 20, d.shared = 30, d.barrier = 40;
  d.l2 = 250, d.dram = 800, d.dispatch = 2, d.block = 100, d.launch = 1000;
  return d;
}

Graph graph_from(const std::string& text) {
  return *Graph::create(
      std::make_shared<const Workload>(workload_from_yaml("name: test\n" + text, "test")));
}
Demand demand(const Graph& g, const std::string& tree, std::map<std::string, Pin> pins = {},
              const Device& device = round_device()) {
  Plan plan;
  plan.kernels.push_back({.level = "registers", .tree = parse_tree(tree), .pins = std::move(pins)});
  const Schedule schedule =
      resolve(plan, g.shared_workload(), std::make_shared<const Machine>(named_machine("h200")))
          .value();
  std::vector<int> all;
  for (int v = 0; v < g.size(); ++v) all.push_back(v);
  return demands_of(g, all, device, lowering::lower(schedule, 0).value()).front();
}
/// Cycles of a warp's accesses beside what they wait for: two instructions each, of two cycles.
double accesses(double n) { return 2 * 2 * n; }
/// A kernel of this many blocks that ask for little.
Demand blocks(double n, double chain = 1) {
  return {.blocks = n, .warps = 8, .meets = true, .chain = chain, .registers = 32};
}

const char* const kAbs =
    "loops: {r: 8, c: 1024}\ntensors: {x: [r, c], a: [r, c]}\noutputs: [a]\n"
    "operators:\n  - a[r,c] = abs(x[r,c])\n";

TEST(Overlap, BlocksAreGivenOutOneAfterTheOther) {
  const Demand many = blocks(5000);
  const Overlap t = overlap(round_device(), {&many, 1}, 8, 0);
  EXPECT_DOUBLE_EQ(t.dispatch, 10e-6);  // 2 cycles each
  EXPECT_DOUBLE_EQ(t.seconds, t.launch + t.dispatch);
}

constexpr double kSeconds = 10e-6 / 0.955;  // of a megabyte at the rate that DRAM attains

TEST(Overlap, BytesTakeDramsRate) {
  const Demand one = blocks(2);
  const Overlap t = overlap(round_device(), {&one, 1}, 8, 1e6);
  // An SM's half megabyte is 122 times 4 KiB; twelve thousandths more a doubling.
  EXPECT_NEAR(t.dram, kSeconds * (1 + 0.012 * std::log2(1 + 500000.0 / 4096)), 1e-12);
  EXPECT_NEAR(t.seconds, t.launch + t.dram, 1e-8);  // nothing else takes long
}

TEST(Overlap, BytesOfManyTurnsLieApart) {
  Demand one = blocks(2);
  one.turns = 8;
  Demand straight = one;
  straight.turns = 1;
  const double more = overlap(round_device(), {&one, 1}, 8, 1e6).dram -
                      overlap(round_device(), {&straight, 1}, 8, 1e6).dram;
  EXPECT_NEAR(more, 3 * 0.0075 * kSeconds, 1e-12);
  const Graph g = graph_from(kAbs);
  EXPECT_EQ(demand(g, "r/1@grid c/1@lane ( C.a )").turns, 32);
  EXPECT_EQ(demand(g, "r/1@grid c/1024@grid c/4@thread ( C.a )").turns, 1);
}

TEST(Overlap, BytesOfFewRoundsAreSpread) {
  // Sixteen places: two blocks are one round of all bytes, 64 blocks four rounds of a quarter.
  const Demand few = blocks(2), many = blocks(64);
  const double one = overlap(round_device(), {&few, 1}, 8, 1e6).dram;
  const double four = overlap(round_device(), {&many, 1}, 8, 1e6).dram;
  EXPECT_NEAR(one - four,
              kSeconds * 0.012 * std::log2((1 + 500000.0 / 4096) / (1 + 125000.0 / 4096)), 1e-12);
}

TEST(Overlap, WarpsThatDoNotWaitLeaveTheirBlockOneByOne) {
  Demand apart = blocks(2);
  apart.meets = false;
  const Demand together = blocks(2);
  const double more = overlap(round_device(), {&apart, 1}, 8, 1e6).dram -
                      overlap(round_device(), {&together, 1}, 8, 1e6).dram;
  EXPECT_NEAR(more, 3 * 0.0075 * kSeconds, 1e-12);  // eight warps
}

TEST(Overlap, BlocksOfTheLastRoundAddOneAfterTheOther) {
  Demand w = blocks(4);
  w.added = 128;
  const Device d = round_device();
  // Zeroing is a launch; four blocks at once, or two and two: the first two while others work.
  EXPECT_DOUBLE_EQ(overlap(d, {&w, 1}, 8, 0).added, 1e-6 + 4 * 16e-9);
  EXPECT_DOUBLE_EQ(overlap(d, {&w, 1}, 1, 0).added, 1e-6 + 2 * 16e-9);
  // A word alone: an H200's 512 blocks that add one take no longer than 256.
  w.added = 4;
  EXPECT_DOUBLE_EQ(overlap(d, {&w, 1}, 8, 0).added, 1e-6 + 4 * 2e-9);
  w.added = 0;
  EXPECT_EQ(overlap(d, {&w, 1}, 8, 0).added, 0);
}

TEST(Overlap, LatenciesOfResidentBlocksOverlap) {
  const Demand chains = blocks(40, 1000);
  // Two SMs of five blocks each: four rounds of a microsecond. Of ten each: two.
  EXPECT_DOUBLE_EQ(overlap(round_device(), {&chains, 1}, 5, 0).latency, 4e-6);
  EXPECT_DOUBLE_EQ(overlap(round_device(), {&chains, 1}, 10, 0).latency, 2e-6);
  // However many places there are, a chain is no shorter.
  EXPECT_DOUBLE_EQ(overlap(round_device(), {&chains, 1}, 1000, 0).latency, 1e-6);
  // What their warps wait for together comes to one block after the other.
  Demand meet = chains;
  meet.awaited = 500;
  EXPECT_DOUBLE_EQ(overlap(round_device(), {&meet, 1}, 5, 0).latency, 6e-6);
}

TEST(Overlap, RoundsInStepWaitForEachOther) {
  const Demand one = blocks(20, 1000), two = blocks(22, 1000), full = blocks(40, 1000),
               many = blocks(210, 1000);
  const Device d = round_device();
  const auto exposed = [&](const Overlap& t) { return t.seconds - t.launch - t.latency; };
  // Of a chain of a microsecond: where one more round follows, seven hundredths, and fourteen of
  // what it leaves empty; of ten rounds a tenth of that.
  EXPECT_NEAR(exposed(overlap(d, {&one, 1}, 10, 0)), 0, 1e-8);
  EXPECT_NEAR(exposed(overlap(d, {&full, 1}, 10, 0)), 0.07 / 2 * 1e-6, 1e-8);
  EXPECT_NEAR(exposed(overlap(d, {&two, 1}, 10, 0)), (0.07 + 0.14 * 0.9) * 1e-6, 1e-8);
  EXPECT_NEAR(exposed(overlap(d, {&many, 1}, 10, 0)), (0.07 + 0.14 * 0.5) / 10 * 1e-6, 1e-8);
  // A fifth of a chain at the end, where something else takes longer than chains do.
  Demand busy = one;
  busy.instructions = 40000;
  const Overlap t = overlap(d, {&busy, 1}, 10, 0);
  EXPECT_NEAR(t.seconds - t.launch - t.issue, 0.2e-6 + 0.3 / 100 * t.issue, 1e-8);
}

TEST(Overlap, WhatNoOtherBlockOfAnSmHidesTakesLonger) {
  const Device d = round_device();
  Demand alone = blocks(2, 1000), several = blocks(16, 1000);
  const auto seconds = [&](const Demand& w) {
    const Overlap t = overlap(d, {&w, 1}, 32, 0);
    return t.seconds - t.launch;
  };
  // Three tenths of a tenth of a microsecond of instructions, where an SM has a block; of eight the
  // square of an eighth of all of theirs. They hide behind chains of one otherwise.
  const double one = seconds(alone), eight = seconds(several);
  alone.instructions = 400, several.instructions = 400.0 / 8;
  EXPECT_NEAR(seconds(alone) - one, 0.03e-6, 1e-11);
  EXPECT_NEAR(seconds(several) - eight, 0.03e-6 / 64, 1e-11);
  // Two doublings of registers, and no more than one that is missing.
  const auto latency = [&](Demand w, double registers) {
    w.registers = registers;
    return overlap(d, {&w, 1}, 32, 0).latency;
  };
  EXPECT_NEAR(latency(alone, 128), 1e-6 * (1 + 2 * 0.17), 1e-12);
  EXPECT_NEAR(latency(alone, 8), 1e-6 * (1 - 0.17), 1e-12);
  EXPECT_NEAR(latency(several, 128), 1e-6 * (1 + 2 * 0.17 / 64), 1e-12);
  // Warps of long blocks have drifted apart.
  EXPECT_NEAR(latency(blocks(2, 100000), 128), 100e-6 + 640e-9, 1e-12);
  Demand busy = blocks(2, 100000);
  const double idle = seconds(busy);
  busy.instructions = 40000;
  EXPECT_NEAR(seconds(busy) - idle, 640e-9, 1e-9);
}

TEST(Overlap, SmsHaveWholeBlocks) {
  const Demand three = {.blocks = 3,
                        .warps = 8,
                        .instructions = 8000,
                        .special = 1000,
                        .wavefronts = 3000,
                        .sectors = 4000,
                        .chain = 1};
  const Overlap t = overlap(round_device(), {&three, 1}, 8, 0);
  // One of two SMs has two blocks.
  EXPECT_NEAR(t.issue, 2 * 8000 / 4 * 1e-9, 1e-15);
  EXPECT_NEAR(t.special, 2 * 1000 * 2 * 1e-9, 1e-15);  // 16 of 32 lanes a cycle
  EXPECT_NEAR(t.local, 2 * 3000 * 1e-9, 1e-15);
  EXPECT_NEAR(t.fill, 2 * 4000 * 32 / 64e9, 1e-12);
}

TEST(Overlap, TheLongestDecidesAndOthersAdd) {
  Demand w = {.blocks = 2, .warps = 8, .special = 5000, .chain = 1};
  const Overlap one = overlap(round_device(), {&w, 1}, 8, 0);
  w.wavefronts = 10000;  // as long as the special functions
  const Overlap two = overlap(round_device(), {&w, 1}, 8, 0);
  EXPECT_NEAR((two.seconds - two.launch) / (one.seconds - one.launch), std::pow(2, 0.2), 1e-4);
}

TEST(DemandOf, LoadsAheadTakeNoMoreThan64Registers) {
  // GPT-2's attention to 256 keys in 16 warps: ptxas gives it 64, and an SM two blocks of 512.
  const Graph g = graph_from(
      "loops: {r: 8, c: 4096}\ntensors: {x: [r, c], a: [r, c], s: [r]}\noutputs: [s]\n"
      "operators:\n  - a[r,c] = abs(x[r,c])\n  - s[r] += a[r,c]\n");
  EXPECT_LE(demand(g, "r/1@grid c/256@warp c/8@lane ( C.a C.s )").registers, 64);
}

TEST(DemandOf, WideAccessesAreFewerInstructionsAndNoMoreBytes) {
  const Graph g = graph_from(kAbs);
  const Demand wide = demand(g, "r/1@grid c/1024@grid c/4@thread ( C.a )");
  EXPECT_EQ(wide.blocks, 8);
  EXPECT_EQ(wide.warps, 8);
  // A warp: 20 of its own; an access of 16 bytes a lane to x and to a, 2 instructions each; 4 abs.
  EXPECT_EQ(wide.instructions, 8 * (20 + 2 * 2 + 4));
  EXPECT_EQ(wide.sectors, 2 * 1024 * 4 / 32);
  EXPECT_EQ(wide.wavefronts, 2 * 1024 * 4 / 128);
  // Its own start, a load from DRAM, four abs at once, and its instructions.
  EXPECT_EQ(wide.chain, 100 + 800 + 4 + accesses(2));
  const Demand narrow = demand(g, "r/1@grid c/1024@grid c/1@thread ( C.a )");
  EXPECT_EQ(narrow.warps, 8);
  EXPECT_EQ(narrow.instructions, 8 * (20 + 4 * (2 * 2 + 1)));
  EXPECT_EQ(narrow.sectors, wide.sectors);
  EXPECT_EQ(narrow.wavefronts, wide.wavefronts);
}

TEST(DemandOf, LoadsOfFewTurnsAreUnderWayTogether) {
  const Graph g = graph_from(kAbs);
  // 32 turns of a warp, four at a time: eight times DRAM's latency; 32 abs of 4 cycles, four at
  // once.
  const Demand few = demand(g, "r/1@grid c/1@lane ( C.a )");
  EXPECT_EQ(few.chain, 100 + 8 * 800 + 32 + accesses(64));
}

TEST(DemandOf, LoadsFindTheRegistersThatTheLaunchAsksFor) {
  // 16 turns of d, four of them unrolled, in each of which a lane has four elements of e. Two
  // blocks have an SM each, so that the launch asks for all of its registers: 16 loads are under
  // way together. Of 64 blocks a thread has 32, which has room for fewer.
  const auto chain = [&](int blocks) {
    return demand(graph_from(formatted(
                      "loops: {{b: {}, d: 16, e: 128}}\ntensors: {{T: [b, d], W: [d, e]}}\n"
                      "operators:\n  - y[b,e] += T[b,d] * W[d,e]\n  - a[b,e] = relu(y[b,e])\n",
                      blocks)),
                  "b/1@grid ( d/16@warp d/1@lane e/1@lane ( C.y ) Y.block e/1@thread ( C.a ) )",
                  {{"y", {.level = "shared"}}})
        .chain;
  };
  EXPECT_LT(chain(2), chain(64) - 2 * 250);
}

TEST(DemandOf, WhatFollowsAPackBehindABarrierOfAllBlocksIsPartOfTheKernel) {
  const Graph g = graph_from(
      "loops: {r: 8, c: 1024}\ntensors: {x: [r, c], z: [r, c]}\noutputs: [s]\n"
      "operators:\n  - a[r,c] = abs(x[r,c])\n  - b[r,c] = abs(z[r,c])\n"
      "  - s[r,c] = a[r,c] + b[r,c]\n");
  Device d = round_device();
  d.grid_barrier = 5000, d.launch_together = 3000;
  const std::string elements = "r/1@grid c/1024@grid c/4@thread ";
  const Demand all = demand(g,
                            "( " + elements + "( C.a S.a ) | " + elements +
                                "( C.b S.b ) ) Y.grid " + elements + "( C.s )",
                            {{"a", {.level = "DRAM"}}, {"b", {.level = "DRAM"}}}, d);
  // Either part waits for a load from DRAM, and so does what follows the barrier.
  EXPECT_GE(all.chain, 100 + 3000 + 5000 + 2 * 250);
  // All blocks are in both phases, and each part has half of them.
  EXPECT_EQ(all.blocks, 16);
}

TEST(DemandOf, BlocksThatHaveNoRoomTogetherKeepTheirRegisters) {
  const Graph g = graph_from(
      "loops: {r: 256, c: 1024}\ntensors: {x: [r, c]}\noutputs: [s]\n"
      "operators:\n  - a[r,c] = abs(x[r,c])\n  - s[r,c] = a[r,c] + 1\n");
  const Demand d = demand(g,
                          "r/1@grid c/1024@grid c/1@thread ( C.a S.a ) Y.grid "
                          "r/1@grid c/1024@grid c/1@thread ( C.s )",
                          {{"a", {.level = "DRAM"}}});
  EXPECT_GT(d.registers, 0);
}

const char* const kCentred =
    "loops: {r: 4096, c: 768}\ntensors: {x: [r, c], a: [r, c], s: [r], y: [r, c]}\noutputs: [y]\n"
    "operators:\n  - a[r,c] = abs(x[r,c])\n  - s[r] += a[r,c]\n  - y[r,c] = a[r,c] - s[r]\n";

TEST(DemandOf, LoadsOfUnrolledTurnsFillTheRegistersThatAreFree) {
  const Graph g = graph_from(kCentred);
  // 24 values of a are kept: 33 registers, 40 of a thread. Before the first pass 32 of them are
  // free: all 24 loads are under way at once. Then 24 abs and sums, four at once; shuffles; 24
  // differences.
  const Demand all =
      demand(g, "r/2@grid r/1@warp ( c/1@lane ( C.a C.s ) Y.warp c/1@lane ( C.y ) )");
  EXPECT_EQ(all.chain, 100 + 800 + 2 * 24 + 5 * (20 + 4) + 24 + accesses(48));
  EXPECT_EQ(all.registers, 8 + 24 + 1);
  // Of two tensors 16 turns fit: two rounds.
  const Graph two = graph_from(
      "loops: {r: 4096, c: 768}\ntensors: {x: [r, c], z: [r, c], a: [r, c], s: [r], y: [r, c]}\n"
      "outputs: [y]\noperators:\n  - a[r,c] = x[r,c] + z[r,c]\n  - s[r] += a[r,c]\n"
      "  - y[r,c] = a[r,c] - s[r]\n");
  const Demand more =
      demand(two, "r/2@grid r/1@warp ( c/1@lane ( C.a C.s ) Y.warp c/1@lane ( C.y ) )");
  EXPECT_EQ(more.chain - accesses(72), all.chain - accesses(48) + 800);
}

TEST(DemandOf, NoLoadPassesAMeetingOfThreads) {
  // Every lane needs what all lanes make of a column: through shared memory in each of 8 turns.
  const Graph g = graph_from(
      "loops: {r: 64, t: 8, c: 32, d: 32}\ntensors: {x: [r, t, c], w: [c, d], a: [r, t, c], y: [r, "
      "t, d]}\n"
      "outputs: [y]\noperators:\n  - a[r,t,c] = abs(x[r,t,c])\n  - y[r,t,d] += a[r,t,c] * "
      "w[c,d]\n");
  const Demand met =
      demand(g, "r/1@grid t/1 ( c/1@lane ( C.a ) Y.warp d/1@lane c/1 ( C.y ) Y.warp )",
             {{"a", {.level = "shared"}}});
  EXPECT_GE(met.chain, 8 * (800 + 30));
  // Lanes with rows of their own make and use a: turns are under way together.
  const Demand own = demand(g, "r/1@grid t/1@lane ( c/1 ( C.a ) d/1 c/1 ( C.y ) )");
  EXPECT_LT(own.chain, met.chain);
}

TEST(DemandOf, WhatLoopsReadAgainStaysInRegisters) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 256}\ntensors: {x: [r, c], g: [c], a: [r, c], s: [r], y: [r, c]}\n"
      "outputs: [y]\noperators:\n  - a[r,c] = x[r,c] * g[c]\n  - s[r] += a[r,c]\n"
      "  - y[r,c] = a[r,c] - s[r]\n");
  const std::string rows = "( c/1@lane ( C.a C.s ) Y.warp c/1@lane ( C.y ) )";
  // Eight values of g outlive the last row that reads them, those of a do not meet them twice.
  const double turns = demand(g, "r/8@grid ( L.g@registers r/1 " + rows + " )").registers;
  const double once = demand(g, "r/1@grid ( L.g@registers " + rows + " )").registers;
  EXPECT_EQ(turns, 8 + 8 + 8 + 1);
  EXPECT_EQ(once, 8 + 8 + 8);
}

TEST(DemandOf, RowsOfThreadsTouchASectorEach) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 128}\ntensors: {x: [r, c], s: [r]}\noutputs: [s]\n"
      "operators:\n  - s[r] += x[r,c]\n");
  const Demand w = demand(g, "r/32@grid r/1@thread c/4 ( C.s )");
  EXPECT_EQ(w.blocks, 2);
  EXPECT_EQ(w.warps, 1);
  // 32 turns, each lane in a line of its own, two turns in a sector, which L1 keeps; sums of 32
  // rows are neighbours.
  EXPECT_EQ(w.sectors, 32 * 32 / 2 + 4);
  EXPECT_EQ(w.wavefronts, 32 * 32 + 1);
}

/// L1 keeps what is loaded for the next element of its sector, and nothing of what is stored.
TEST(DemandOf, StoresGoToL2EachByItself) {
  const Graph g = graph_from("loops: {n: 64, m: 64}\noperators:\n  - y[n,m] = abs(x[n,m])\n");
  // A lane goes along a row: eight of its elements are a sector.
  EXPECT_EQ(demand(g, "n/32@grid n/1@lane m/1 ( C.y )").sectors, 32 * 64 / 8 + 32 * 64);
  EXPECT_EQ(demand(g, "n/1@grid m/1@lane ( C.y )").sectors, 2 * 64 / 8);
}

/// A thread that goes down a column finds none of its elements beside another: each brings a
/// sector.
TEST(DemandOf, ColumnsOfThreadsTouchASectorAnElement) {
  const Graph g = graph_from(
      "loops: {r: 256, c: 64}\ntensors: {x: [r, c], s: [c]}\noutputs: [s]\n"
      "operators:\n  - s[c] += x[r,c]\n");
  const Demand w = demand(g, "c/1@grid ( r/4@lane ( C.s ) S.s )");
  EXPECT_EQ(w.blocks, 64);
  EXPECT_EQ(w.sectors, 256 + 1);  // and the sum's
}

/// Products, and the largest of other types than f32, are compared and swapped: one comes after the
/// other. Sums of 16 bits are not, hardware adds two of them at once; bf16 only from sm_90 on.
TEST(DemandOf, NarrowAdditionsAreSwapped) {
  Device ampere = round_device();
  ampere.adds_bf16 = false;
  const auto of = [](const std::string& type, const std::string& adds, const Device& d) {
    const Graph g = graph_from("dtype: " + type +
                               "\nloops: {r: 64, c: 128}\ntensors: {x: [r, c], s: [c]}\n"
                               "outputs: [s]\noperators:\n  - s[c] " +
                               adds + " x[r,c]\n");
    return demand(g, "r/8@grid c/32@grid ( r/1@warp c/1@lane ( C.s ) S.s!atomic )", {}, d);
  };
  const auto swapped = [&](const std::string& type, const std::string& adds) {
    return of(type, adds, round_device()).swapped;
  };
  EXPECT_EQ(swapped("f32", "+="), 0);
  EXPECT_EQ(swapped("f16", "+="), 0);
  EXPECT_EQ(swapped("f16", "max="), 8 * 2);  // eight blocks, two halves of a word
  EXPECT_EQ(swapped("f32", "*="), 8);
  EXPECT_EQ(swapped("f32", "max="), 0);
  EXPECT_EQ(swapped("bf16", "+="), 0);
  EXPECT_EQ(of("bf16", "+=", ampere).swapped, 8 * 2);
  EXPECT_EQ(of("f16", "+=", ampere).swapped, 0);
  // The element is read and swapped, a way to L2 and back each.
  EXPECT_EQ(of("bf16", "+=", ampere).chain, of("bf16", "+=", round_device()).chain + 2 * 250);
  EXPECT_TRUE(device_of(named_machine("h100"))->adds_bf16);
  EXPECT_FALSE(device_of(named_machine("a100"))->adds_bf16);
}

/// An H100 takes 9.05 cycles of an SM for a warp's exponential of doubles, 146 from one to the next
/// (h100-unit-costs.json); they have no special units.
TEST(DemandOf, DoublesAreManyInstructions) {
  const auto of = [](const std::string& type) {
    const Graph g = graph_from("dtype: " + type +
                               "\nloops: {r: 8, c: 32}\ntensors: {x: [r, c], y: [r, c]}\n"
                               "outputs: [y]\noperators:\n  - y[r,c] = exp(x[r,c])\n");
    return demand(g, "r/1@grid c/1@lane ( C.y )");
  };
  EXPECT_EQ(of("f64").instructions - of("f32").instructions, 2 * 18 - 7);
  EXPECT_EQ(of("f32").special, 1);
  EXPECT_EQ(of("f64").special, 0);
  EXPECT_EQ(of("f64").chain - of("f32").chain, 2 * 18 * 4 - 32);
}

/// Rows of w that all blocks read: an SM has them from L2 once, if L1 has room for them.
TEST(DemandOf, WhatBlocksOfAnSmReadAlikeStaysInL1) {
  const auto sectors = [](int columns) {
    const Graph g =
        graph_from(formatted("loops: {{r: 64, c: {0}}}\ntensors: {{x: [r, c], w: [c], "
                             "y: [r, c]}}\noutputs: [y]\noperators:\n"
                             "  - y[r,c] = x[r,c] * w[c]\n",
                             columns));
    return demand(g, "r/1@grid c/4@lane ( C.y )").sectors;
  };
  // x and y, and of w what 32 blocks of each of two SMs share.
  EXPECT_NEAR(sectors(256), 2 * 32 + 33.0 / 32, 0.5);
  // Else both ask L2 for the same of w.
  EXPECT_NEAR(sectors(1 << 16), (2 + 1 / std::cbrt(2)) * (1 << 13), 1e-6);
}

/// The loop over the sums of 16 warps is unrolled, and all of them are read at once: ptxas gives
/// such a block of 29 warps 59 registers, 32 where that loop is not unrolled.
TEST(DemandOf, SumsOfManyWarpsNeedRegistersToBeJoined) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 1024}\ntensors: {x: [r, c], s: [r]}\noutputs: [s]\n"
      "operators:\n  - s[r] += x[r,c]\n");
  const double few = demand(g, "r/1@grid c/64@warp c/1@lane ( C.s )").registers,
               many = demand(g, "r/1@grid c/32@warp c/1@lane ( C.s )").registers;
  EXPECT_GE(many, 8 + 32);
  EXPECT_GE(many, few + 8);
}

TEST(DemandOf, SumsAreShuffledAndJoined) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 1024}\ntensors: {x: [r, c], s: [r], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - s[r] += x[r,c]\n  - y[r,c] = x[r,c] - s[r]\n");
  const Demand warp =
      demand(g, "r/8@grid r/1@warp ( L.x@registers c/4@lane ( C.s ) Y.warp c/4@lane ( C.y ) )");
  const Demand block =
      demand(g, "r/1@grid ( L.x@registers c/4@thread ( C.s ) Y.block c/4@thread ( C.y ) )");
  EXPECT_EQ(warp.warps, 8);
  EXPECT_EQ(block.warps, 8);
  // A load; 32 sums, four at once; five shuffles and sums; 32 differences.
  EXPECT_EQ(warp.chain - accesses(16), 100 + 800 + 32 + 5 * (20 + 4) + 32);
  // A load; a sum and a difference of four; then through shared memory, where each warp adds all
  // eight sums, one after the other, and waits for the last warp.
  EXPECT_EQ(block.chain - accesses(2),
            100 + 800 + 4 + 5 * (20 + 4) + (2 * 30 + 2 * 40 + 8 * 4) + 4);
  // x stays in registers: 32 values, or 4; a block then reads the sums of its eight warps at once.
  EXPECT_EQ(warp.registers - block.registers, 27);
}

TEST(DemandOf, WarpsThatMeetWaitForWhatAllOfThemLoad) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 8192}\ntensors: {x: [r, c], z: [r, c], s: [r], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - s[r] += x[r,c] * z[r,c]\n  - y[r,c] = x[r,c] - s[r] * z[r,c]\n");
  const auto tree = [](const std::string& rows, const std::string& warps) {
    const std::string c = "c/" + warps + "@warp c/4@lane ( ";
    return rows + " ( L.x@registers L.z@registers " + c + "C.s ) Y.block " + c + "C.y ) Y.block )";
  };
  // Eight rows of three times 32 KiB, at half of 100 bytes a cycle: they meet in each.
  const Demand one = demand(g, tree("r/1@grid", "256"));
  const Demand eight = demand(g, tree("r/8@grid r/1", "256"));
  EXPECT_THAT(eight.awaited, DoubleNear(8 * 3 * 32768 / 50.0, 1e-6));
  EXPECT_THAT(eight.chain - 100, DoubleNear(8 * (one.chain - 100), 1e-6));
  // The eight values of x and z each that a thread has in the next turn are loaded early, as far as
  // 64 registers go.
  EXPECT_EQ(eight.registers, 64);
  const Graph half = graph_from(
      "loops: {r: 64, c: 4096}\ntensors: {x: [r, c], z: [r, c], s: [r], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - s[r] += x[r,c] * z[r,c]\n  - y[r,c] = x[r,c] - s[r] * z[r,c]\n");
  EXPECT_EQ(demand(half, tree("r/8@grid r/1", "128")).registers,
            demand(half, tree("r/1@grid", "128")).registers + 8);
  // So are fewer that store y in eight turns, all of them under way.
  EXPECT_THAT(demand(g, tree("r/8@grid r/1", "1024")).awaited,
              DoubleNear(8 * 3 * 32768 / 50.0, 1e-6));
  // Warps join sums once, after eight turns: the launch asks for 64 registers for each of 256
  // threads, four blocks an SM, enough for all of an unrolled four turns of four values, an address
  // and four sums. The price has each of the eight warps store the sums.
  const Graph columns = graph_from(
      "loops: {r: 64, c: 1024}\ntensors: {x: [r, c], s: [c]}\noutputs: [s]\n"
      "operators:\n  - s[c] += x[r,c]\n");
  EXPECT_THAT(demand(columns, "c/128@grid ( r/8@warp c/4@lane r/1 ( C.s ) S.s )").awaited,
              DoubleNear((64 * 128 * 4 / 2 + 8 * 128 * 4) / 50.0, 1e-6));
  // Warps that do not meet go on with what is theirs.
  EXPECT_EQ(demand(graph_from(kAbs), "r/1@grid c/1@lane ( C.a )").awaited, 0);
}

TEST(DemandOf, WhatEveryBlockReadsComesFromL2) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 128}\ntensors: {g: [c], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - y[r,c] = abs(g[c])\n");
  const Demand d = demand(g, "r/1@grid c/4@lane ( C.y )");
  EXPECT_EQ(d.chain - accesses(2), 100 + 250 + 4);
}

TEST(DemandOf, WhatAllThreadsReadAlikeIsLoadedOnce) {
  const Graph g = graph_from(
      "loops: {r: 64, c: 128}\ntensors: {m: [r], n: [r], u: [r], v: [r], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - u[r] = abs(m[r])\n  - v[r] = u[r] + n[r]\n  - y[r,c] = v[r]\n");
  // m and n are under way together, from DRAM: each is its block's alone.
  const Demand d = demand(g, "r/1@grid ( C.u C.v c/4@lane ( C.y ) )");
  EXPECT_EQ(d.chain - accesses(3), 100 + 800 + 4 + 4);
}

TEST(DemandOf, TilesInSharedMemoryAreBroughtElementByElement) {
  // Lanes read other lanes' elements: a tile in shared memory.
  const Graph g = graph_from(
      "loops: {r: 64, c: 1024, k: 3}\ntensors: {x: [r, 1026], s: [r, c]}\noutputs: [s]\n"
      "operators:\n  - s[r,c] += x[r,c+k]\n");
  const Demand w = demand(g, "r/1@grid ( L.x@shared c/1@lane k/1 ( C.s ) )");
  // 1026 elements, 32 at a time: 33 turns, of which 8 are under way together.
  EXPECT_GE(w.chain, 100 + 5 * 800);
  EXPECT_LE(w.chain, 100 + 5 * 800 + 10000);
}

/// Of the first step of a kind, what its warps touch at home.
Accesses touched(const std::string& text, const std::string& tree, lowering::Step::Kind kind) {
  const Graph g = graph_from(text);
  Plan plan;
  plan.kernels.push_back({.level = "registers", .tree = parse_tree(tree)});
  const Schedule schedule =
      resolve(plan, g.shared_workload(), std::make_shared<const Machine>(named_machine("h200")))
          .value();
  const lowering::ThreadProgram p = lowering::lower(schedule, 0).value();
  const lowering::Step* found = nullptr;
  const std::function<void(const std::vector<lowering::Step>&)> look =
      [&](const std::vector<lowering::Step>& steps) {
        for (const lowering::Step& s : steps) {
          if (s.kind == kind && found == nullptr) found = &s;
          look(s.body);
        }
      };
  look(p.steps);
  const AccessCounts counts(p);
  if (kind == lowering::Step::Kind::stage) return counts.staged(*found);
  return counts.home(p.value(found->values.front()).tensor, found->at, found->dims,
                     found->strip.width, found->copies, found->inside, {},
                     kind == lowering::Step::Kind::store);
}

TEST(Accesses, AreCountedFromTheAddressesOfLanes) {
  using Kind = lowering::Step::Kind;
  const auto rows = [](const char* tree, Kind kind) {
    return touched(
        "loops: {r: 64, c: 128}\ntensors: {x: [r, c], s: [r]}\noutputs: [s]\n"
        "operators:\n  - s[r] += x[r,c]\n",
        tree, kind);
  };
  const Accesses wide = rows("r/1@grid c/4@lane ( C.s )", Kind::load);
  EXPECT_EQ(wide.count, 1);
  EXPECT_EQ(wide.sectors, 16);
  EXPECT_EQ(wide.wavefronts, 4);
  const Accesses narrow = rows("r/1@grid c/1@lane ( C.s )", Kind::load);
  EXPECT_EQ(narrow.sectors, 4);
  EXPECT_EQ(narrow.wavefronts, 1);
  // A row a lane: each in a line of its own.
  const Accesses apart = rows("r/32@grid r/1@thread c/1 ( C.s )", Kind::load);
  EXPECT_EQ(apart.sectors, 32);
  EXPECT_EQ(apart.wavefronts, 32);
  // One lane writes the sum of all.
  EXPECT_EQ(rows("r/1@grid c/4@lane ( C.s )", Kind::store).sectors, 1);
  EXPECT_EQ(rows("r/32@grid r/1@thread c/1 ( C.s )", Kind::store).sectors, 4);
  // A line that is stored whole is one pass, of which a part is stored takes 3.2.
  EXPECT_EQ(rows("r/1@grid c/4@lane ( C.s )", Kind::store).wavefronts, 3.2);
  EXPECT_EQ(rows("r/32@grid r/1@thread c/1 ( C.s )", Kind::store).wavefronts, 1);
  // Twenty lanes have something to load.
  const Accesses some = touched(
      "loops: {r: 64, c: 20}\ntensors: {x: [r, c], y: [r, c]}\noutputs: [y]\n"
      "operators:\n  - y[r,c] = abs(x[r,c])\n",
      "r/1@grid c/1@lane ( C.y )", Kind::load);
  EXPECT_EQ(some.sectors, 3);
}

TEST(Accesses, OfTilesGoAlongTheirRows) {
  const auto window = [](const char* tree) {
    return touched(
        "loops: {r: 64, c: 1024, k: 3}\ntensors: {x: [r, 1026], s: [r, c]}\noutputs: [s]\n"
        "operators:\n  - s[r,c] += x[r,c+k]\n",
        tree, lowering::Step::Kind::stage);
  };
  const Accesses along = window("r/1@grid ( L.x@shared c/1@lane k/1 ( C.s ) )");
  // Two neighbours a lane, of two lines, which it puts into shared memory in two passes.
  EXPECT_EQ(along.sectors, 8);
  EXPECT_EQ(along.wavefronts, 4);
}

}  // namespace
}  // namespace tilewright::fusionstitching
