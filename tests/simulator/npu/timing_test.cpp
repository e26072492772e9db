// Is time what the rules of docs/npu.md give, by hand? The numbers below are ascend910's.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "simulator/npu/bandwidth.h"
#include "tests/simulator/npu/support.h"

namespace tilewright::npu {
namespace {

constexpr std::int64_t kIssue = 1, kVectorStart = 8, kCubeStart = 4;
constexpr std::int64_t kGmStart = 16, kInLatency = 200, kOutLatency = 100, kMte1Start = 4;
constexpr std::int64_t kMte1Latency = 16;
constexpr double kClock = 1220.703125e6;

/// Cycles of a program whose data nothing has written: time does not depend on values.
Report timed(const std::string& text) {
  const Program p = parse_assembly(text, "timed");
  TensorData data = random_inputs(p, 1);
  Report r = emulate(p, ascend(), data, {.check = false});
  for (const auto& pipes : r.pipes) {
    for (const PipeTimes& t : pipes) {
      std::int64_t sum = t.busy + t.barrier + t.empty + t.queue + t.idle;
      for (const std::int64_t f : t.flag) sum += f;
      EXPECT_EQ(sum, r.cycles.value) << "busy, waits and idle are all there is";
    }
  }
  EXPECT_TRUE(r.ok()) << findings_text(r);
  return r;
}

const std::string kVectors =
    ".input X f16[65536]\n.output Y f16[65536]\n.buffer x UB f16[32768] at 0 holds X\n"
    ".buffer z UB f16[16384] at 65792 holds Z\n.buffer y UB f16[16384] at 131072 holds Y\n";

TEST(NpuTiming, OneCopy) {
  const Report r = timed(kVectors + "copy x[0].nd(32768), X[0].nd(32768), rows=1, columns=32768");
  EXPECT_EQ(r.cycles.value, kIssue + 65536 / 64 + kGmStart + kInLatency);
}

TEST(NpuTiming, CopiesOfOnePipeFollowWithoutLatency) {
  const Report r = timed(kVectors +
                         "for i = 0 to 20\ncopy x[0].nd(320), X[0].nd(320), rows=3, "
                         "columns=300\nend");
  // Rows of 600 bytes take 608. The loop's entry is a statement too.
  EXPECT_EQ(r.cycles.value, 2 * kIssue + 20 * (std::ceil(3 * 608 / 64.0) + kGmStart) + kInLatency);
}

TEST(NpuTiming, OneMad) {
  const Report r = timed(
      ".buffer a L0A f16[8192] at 0 holds A\n.buffer b L0B f16[6144] at 0 holds B\n"
      ".buffer c L0C f32[12288] at 0 holds C\n"
      "mad c[0], a[0], b[0], m=120, n=96, k=50, accumulate=0");
  EXPECT_EQ(r.cycles.value, kIssue + kCubeStart + 8 * 6 * 4);
}

TEST(NpuTiming, VectorRepeats) {
  EXPECT_EQ(timed(kVectors + "vadd y[0], x[0], z[0], repeat=100").cycles.value,
            kIssue + kVectorStart + 100);
  EXPECT_EQ(timed(kVectors + "vexp y[0], x[0], repeat=100").cycles.value,
            kIssue + kVectorStart + 400);
  EXPECT_EQ(timed(kVectors + "vrsum y[0], x[0], repeat=100").cycles.value,
            kIssue + kVectorStart + 200);
}

TEST(NpuTiming, BankConflicts) {
  // x and y begin in the same bank group: two reads of each; z begins eight groups further.
  const Report same = timed(kVectors + "vadd z[0], x[0], y[0], repeat=10");
  EXPECT_EQ(same.cycles.value, kIssue + kVectorStart + 20);
  EXPECT_EQ(same.pipes[0][1].bank, 10);
  // All eight blocks of a repeat in one group: eight cycles.
  EXPECT_EQ(timed(kVectors + "vcopy y[0], x[0](1, 16), repeat=5").cycles.value,
            kIssue + kVectorStart + 5 * 8);
  EXPECT_EQ(timed(kVectors + "vcopy y[0], x[0](1, 8), repeat=5").cycles.value,
            kIssue + kVectorStart + 5 * 4);
}

TEST(NpuTiming, AFlagWaitsForTheLastByte) {
  const Report r = timed(kVectors +
                         "copy x[0].nd(128), X[0].nd(128), rows=1, columns=128\n"
                         "set_flag MTE2, V, 0\nwait_flag MTE2, V, 0\n"
                         "vmuls y[0], x[0], 2, repeat=1");
  const std::int64_t there = kIssue + 256 / 64 + kGmStart + kInLatency;
  EXPECT_EQ(r.cycles.value, there + kVectorStart + 1);
  const PipeTimes& v = r.pipes[0][static_cast<std::size_t>(Pipe::vector)];
  EXPECT_EQ(v.empty, 3 * kIssue);
  EXPECT_EQ(v.flag[static_cast<std::size_t>(Pipe::mte2)], there - 3 * kIssue);
}

TEST(NpuTiming, PipesOverlap) {
  const Report r = timed(kVectors +
                         "copy x[0].nd(32768), X[0].nd(32768), rows=1, columns=32768\n"
                         "vexp y[0], z[0], repeat=128");
  EXPECT_EQ(r.cycles.value, kIssue + 1024 + kGmStart + kInLatency) << "the longer one";
}

TEST(NpuTiming, TheScalarUnit) {
  // A loop costs its entry, then each time its body and its step.
  EXPECT_EQ(timed("for i = 0 to 50\nlet x = i*3\nlet y = x\nend").cycles.value, 1 + 50 * 3);
  EXPECT_EQ(
      timed("for i = 5 to 5\nlet x = i\nend\nif 0\nlet y = 1\nelse\nlet z = 1\nend").cycles.value,
      1 + 2);
}

/// A load and a store; for each index three statements more; from home the path besides.
TEST(NpuTiming, TheScalarUnitMovesElements) {
  EXPECT_EQ(timed(kVectors + "put x[0], 3").cycles.value, kIssue);
  EXPECT_EQ(timed(kVectors + "move x[0], x[5]").cycles.value, 2 * kIssue);
  EXPECT_EQ(timed(kVectors + "put x[1], 0\nmove x[0], x[5], by x[1], step=2, below=4").cycles.value,
            6 * kIssue);
  EXPECT_EQ(timed(kVectors + "move x[0], X[5]").cycles.value, 2 * kIssue + kGmStart + kInLatency);
}

TEST(NpuTiming, ABarrierDrainsEveryPipe) {
  const Report r = timed(kVectors +
                         "copy x[0].nd(128), X[0].nd(128), rows=1, columns=128\n"
                         "vexp y[0], z[0], repeat=2\nbarrier all\nvexp y[0], z[0], repeat=2");
  const std::int64_t there = kIssue + 256 / 64 + kGmStart + kInLatency;
  EXPECT_EQ(r.cycles.value, there + 2 * kIssue + kVectorStart + 8) << "barrier, then issue";
  const Report one = timed(kVectors +
                           "copy x[0].nd(128), X[0].nd(128), rows=1, columns=128\n"
                           "barrier MTE2\ncopy x[0].nd(128), X[0].nd(128), rows=1, "
                           "columns=128");
  EXPECT_EQ(one.cycles.value, there + 4 + kGmStart + kInLatency);
}

TEST(NpuTiming, DoubleBufferingHidesTheShorterStage) {
  const Report r = timed(element_wise_text(40));
  // A tile: 512 + 16 cycles in and out. exp 8 + 4*128, muls 8 + 128, and add, which reads x and y
  // at 8 groups' distance, 8 + 128: 792 of the vector unit, which waits only for the first tile.
  const PipeTimes& v = r.pipes[0][static_cast<std::size_t>(Pipe::vector)];
  EXPECT_EQ(v.busy, 40 * 792);
  const std::int64_t first = v.empty + v.flag[static_cast<std::size_t>(Pipe::mte2)];
  EXPECT_NEAR(static_cast<double>(first), 512 + kGmStart + kInLatency, 20);
  EXPECT_NEAR(static_cast<double>(r.cycles.value),
              static_cast<double>(first + 40 * 792 + 512 + kGmStart + kOutLatency), 40);
}

TEST(NpuTiming, CoresShareTheBandwidth) {
  const auto read = [](int blocks, const char* from) {
    return timed(".blocks " + std::to_string(blocks) +
                 "\n.input X f16[1048576]\n"
                 ".buffer x UB f16[32768] at 0 holds X\ncopy x[0].nd(32768), X[" +
                 from + "].nd(32768), rows=1, columns=32768");
  };
  const double dram = 1200e9 / kClock, l2 = 2048e9 / kClock;  // bytes a cycle
  // Eight cores: 512 bytes a cycle, less than either.
  EXPECT_EQ(read(8, "block*32768").cycles.value, kIssue + 1024 + kGmStart + kInLatency);
  // 32 cores, each line from DRAM once.
  const Report all = read(32, "block*32768");
  EXPECT_EQ(all.cycles.value, kIssue + std::ceil(32 * 65536 / dram) + kGmStart + kInLatency);
  EXPECT_EQ(all.dram.at("X"), Bytes(32 * 65536));
  EXPECT_EQ(all.pipes[5][static_cast<std::size_t>(Pipe::mte2)].bandwidth,
            std::ceil(32 * 65536 / dram) - 1024);
  // The same data for all: DRAM gives it once, the L2 to everyone.
  const Report same = read(32, "0");
  EXPECT_EQ(same.cycles.value, kIssue + std::ceil(32 * 65536 / l2) + kGmStart + kInLatency);
  EXPECT_EQ(same.dram.at("X"), Bytes(65536));
}

TEST(NpuTiming, BlocksOfACoreFollowOneAnother) {
  const std::string text = ".blocks 64\n" + kVectors + "vexp y[0], x[0], repeat=100";
  const Report r = timed(text);
  EXPECT_EQ(r.cores, 32);
  EXPECT_EQ(r.cycles.value, 2 * (kIssue + kVectorStart + 400));
}

TEST(NpuTiming, AFullQueueHoldsTheScalarUnit) {
  const Report r = timed(kVectors + "for i = 0 to 100\nvexp y[0], x[0], repeat=100\nend");
  EXPECT_EQ(r.cycles.value, 2 * kIssue + 100 * 408);
  EXPECT_GT(r.pipes[0][0].queue, 60 * 400);
}

TEST(NpuTiming, L1ToL0) {
  const Report r = timed(
      ".buffer a L1 f16[16384] at 0 holds A\n.buffer c L0A f16[16384] at 0 holds A\n"
      "copy c[0].Zz(128), a[0].Nz(128), rows=128, columns=128");
  EXPECT_EQ(r.cycles.value, kIssue + kMte1Start + 32768 / 512 + kMte1Latency);
}

TEST(NpuTiming, RatesAreMaxMinFair) {
  // A narrow and a wide transfer share 60 bytes a cycle: 16 and 44; alone, the wide one has 60.
  SharedBandwidth two(60, 0);
  two.add({.core = 0, .left = 160, .width = 16});
  two.add({.core = 1, .left = 1000, .width = 64});
  EXPECT_DOUBLE_EQ(two.next_end(), 10);
  two.advance(10);
  ASSERT_EQ(two.take_ended().size(), 1U);
  EXPECT_DOUBLE_EQ(two.next_end(), 10 + (1000 - 440) / 60.0);
  // DRAM gives 6: 8 bytes a cycle for one that needs it for half of them (4) and for one that needs
  // it for a quarter (2); a third that does not need it has the rest of the L2's 100.
  SharedBandwidth three(100, 6);
  three.add({.core = 0, .left = 80, .width = 64, .dram = 0.5});
  three.add({.core = 1, .left = 80, .width = 64, .dram = 0.25});
  three.add({.core = 2, .left = 840, .width = 200, .dram = 0});
  EXPECT_DOUBLE_EQ(three.next_end(), 10) << "8, 8 and 84 bytes a cycle";
  three.advance(10);
  EXPECT_EQ(three.take_ended().size(), 3U);
  EXPECT_TRUE(three.empty());
}

// What is to be reached --------------------------------------------------------------------------

TEST(NpuTiming, ACopyReaches95PercentOfItsBandwidth) {
  const Report r = timed(kVectors +
                         "for i = 0 to 64\ncopy x[0].nd(32768), X[0].nd(32768), rows=1, "
                         "columns=32768\nend");
  const double rate = 64 * 65536.0 / static_cast<double>(r.cycles.value);
  std::printf("a copy of %.3f of its path, simulated\n", rate / 64);
  EXPECT_GT(rate, 0.95 * 64);
}

TEST(NpuTiming, AComputeBoundGemmReaches90PercentOfTheCube) {
  const Program p = parse_assembly(gemm_text(256, 2048, 1024), "gemm");
  TensorData data = random_inputs(p, 1);
  const auto begin = std::chrono::steady_clock::now();
  const Report r = emulate(p, ascend(), data);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_TRUE(r.ok()) << findings_text(r);
  EXPECT_GT(r.cube_utilisation(), 0.90);
  std::printf("cube utilisation %.3f, simulated; %.2f billion multiply-accumulates a second\n",
              r.cube_utilisation(), static_cast<double>(r.macs) / seconds / 1e9);
}

TEST(NpuTiming, TimeDoesNotDependOnTheRun) {
  const Program p = parse_assembly(element_wise_text(6), "e");
  TensorData data = random_inputs(p, 1), again = data;
  const Report a = emulate(p, ascend(), data, {.timeline = true});
  const Report b = emulate(p, ascend(), again, {.check = false});
  EXPECT_EQ(a.cycles, b.cycles);
  EXPECT_EQ(a.paths, b.paths);
  EXPECT_EQ(data, again);
  EXPECT_FALSE(a.timeline.empty());
  for (const Span& s : a.timeline) EXPECT_LE(s.end, a.cycles.value);
}

}  // namespace
}  // namespace tilewright::npu
