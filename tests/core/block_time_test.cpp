// The time of blocks with tiles: does more of anything take longer, and does a block need what the
// emitted kernel was recorded to need?
#include "core/lowering/gpu/block_time.h"

#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

Machine h200() { return named_machine("h200"); }

Result<BlockTime> timed(const std::string& w, const std::string& tree, const Machine& m,
                        const Launch& launch = {}) {
  const auto workload = std::make_shared<const Workload>(named_workload(w));
  Kernel k{.name = "k", .tree = parse_tree(tree)};
  k.launch = launch;
  const auto s = resolve({.kernels = {k}}, workload, std::make_shared<const Machine>(m));
  if (!s) return Reason{s.reason()};
  const auto rates = block_rates(m, workload->dtype());
  if (!rates) return Reason{rates.reason()};
  return block_time(*s, 0, *rates);
}

Result<BlockTime> timed_text(const std::string& yaml, const std::string& tree, const Machine& m,
                             const Launch& launch) {
  const auto workload = std::make_shared<const Workload>(
      workload_from_yaml("name: test\ndtype: f32\n" + yaml, "test"));
  Kernel k{.name = "k", .tree = parse_tree(tree)};
  k.launch = launch;
  const auto s = resolve({.kernels = {k}}, workload, std::make_shared<const Machine>(m));
  if (!s) return Reason{s.reason()};
  const auto rates = block_rates(m, workload->dtype());
  if (!rates) return Reason{rates.reason()};
  return block_time(*s, 0, *rates);
}

constexpr const char* kChain =
    "b/1@grid m/32@grid n/64@grid ( l/256 ( k/64 ( C.gemm1 ) C.gemm2 ) S.E )";

/// experiments/results/h200-chains.json, "chimera/G1 mnlk m=32,l=256,k=64,n=64": 128 blocks of 384
/// threads, 151680 bytes of shared memory, one block an SM, 4.4 us.
TEST(BlockTime, ABlockNeedsWhatTheRecordedKernelNeeds) {
  const auto t = timed("chimera/G1:dtype=f16", kChain, h200());
  ASSERT_TRUE(t.ok()) << t.reason();
  EXPECT_EQ(t->threads, 384);
  EXPECT_EQ(t->resident, 1);
  EXPECT_EQ(t->phases.at(0).blocks, 128);
  EXPECT_NEAR(static_cast<double>(t->shared), 151680, 0.05 * 151680);
  EXPECT_TRUE(t->tiles.empty());
  EXPECT_NEAR(t->seconds, 4.4e-6, 0.4 * 4.4e-6);
}

TEST(BlockTime, MoreWorkTakesLonger) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 40; ++i) {
    const auto draw = [&](int most) { return 16 * (1 + static_cast<int>(random() % most)); };
    const int m = draw(20), n = draw(20), k = draw(30);
    const auto seconds = [&](int rows, int depth, int batch) {
      const auto t = timed(
          "gemm:m=" + std::to_string(rows) + ",n=" + std::to_string(n) +
              ",k=" + std::to_string(depth) + ",batch=" + std::to_string(batch) + ",dtype=f16",
          std::string(batch > 1 ? "b/1@grid " : "") + "m/16@grid n/16@grid ( k/16 ( C.gemm ) S.C )",
          h200());
      EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
      return t.ok() ? t->seconds : 0;
    };
    const double once = seconds(m, k, 1);
    EXPECT_GT(once, 0);
    EXPECT_LE(once, seconds(m, k + 64, 1)) << "seed 11: " << m << " " << n << " " << k;
    EXPECT_LE(once, seconds(4 * m, k, 1)) << "seed 11: " << m << " " << n << " " << k;
  }
}

/// Products by wgmma: a shorter ring is slower, rows that begin within a line too; few tiles with a
/// deep sum are faster in clusters, many with a short one are not.
TEST(BlockTime, RingsLinesAndClustersOfProducts) {
  const auto seconds = [](const std::string& w, const std::string& tree, const Launch& l = {}) {
    const auto t = timed(w, tree, h200(), l);
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    EXPECT_TRUE(t.ok() && t->warpgroups) << w << tree;
    return t.ok() ? t->seconds : 0;
  };
  const std::string alone = "m/64@grid n/64@grid ( k/64 ( C.gemm ) S.C )",
                    shared = "m/64@grid n/64@grid ( k/256@cluster ( k/64 ( C.gemm ) ) S.C )";
  double last = 1;
  for (const int stages : {2, 3, 4, 6}) {
    Launch launch;
    launch.stages = stages;
    const double now = seconds("gemm:m=1024,n=1024,k=1024,dtype=f16", alone, launch);
    EXPECT_LE(now, last) << stages;
    if (stages == 3) {
      EXPECT_LT(now, 0.9 * last);
    }
    last = now;
  }
  EXPECT_LT(seconds("gemm:m=2048,n=2048,k=1024,dtype=f16", alone),
            seconds("gemm:m=2048,n=2048,k=1016,dtype=f16", alone));
  const std::string deep = "gemm:m=128,n=128,k=8192,dtype=f16",
                    wide = "gemm:m=2048,n=2048,k=512,dtype=f16";
  EXPECT_LT(seconds(deep, "m/64@grid n/64@grid ( k/1024@cluster ( k/64 ( C.gemm ) ) S.C )"),
            0.5 * seconds(deep, alone));
  EXPECT_LT(seconds(wide, alone), seconds(wide, shared));
}

/// What no node stores leaves as what one stores: drawn products whose rows of results begin at no
/// multiple of 16 bytes, of which stores of parts of sectors take most.
TEST(BlockTime, ResultsLeaveWithAndWithoutANode) {
  std::mt19937_64 random(29);
  for (int i = 0; i < 20; ++i) {
    const auto draw = [&](int most) {
      return std::to_string(64 + static_cast<int>(random() % most));
    };
    const std::string m = draw(600), n = std::to_string(2 * (50 + random() % 2000) + 1),
                      w = "gemm:m=" + m + ",n=" + n + ",k=" + draw(400) + ",dtype=f32";
    const auto with = timed(w, "m/64@grid n/64@grid ( k/32 ( C.gemm ) S.C )", h200()),
               without = timed(w, "m/64@grid n/64@grid k/32 ( C.gemm )", h200());
    ASSERT_TRUE(with.ok() && without.ok()) << w;
    EXPECT_DOUBLE_EQ(with->seconds, without->seconds) << "seed 29: " << w;
  }
}

/// h100-chain-plans.json and h100-products-of-128-rows.json, of an H100: chains by warpgroups and
/// by `mma` whose first results lie in shared memory, because the second product takes a part of
/// them at a time; 16 clusters of 8 blocks, of which 15 run at the same time, take longer than 16
/// of 4.
TEST(BlockTime, RecordedChainsAndClusters) {
  const auto seconds = [](const std::string& w, const std::string& tree) {
    const auto t = timed(w, tree, h200());
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  const auto fused = [&](int rows, int inner, bool columns) {
    return seconds("mcfuser/G11",
                   formatted("b/1@grid m/{}@grid {}( l/{} ( k/128 ( C.gemm1 ) C.gemm2 ) S.E )",
                             rows, columns ? "n/64@grid " : "", inner));
  };
  EXPECT_NEAR(fused(64, 128, true), 6.89e-6, 0.12 * 6.89e-6);
  EXPECT_NEAR(fused(64, 128, false), 8.45e-6, 0.12 * 8.45e-6);
  EXPECT_NEAR(fused(128, 64, true), 9.46e-6, 0.12 * 9.46e-6);
  EXPECT_NEAR(fused(128, 64, false), 11.81e-6, 0.12 * 11.81e-6);
  // Of the same chip with its launch as measured: the file of an H200 has an older one, which holds
  // a microsecond that is none.
  const auto parts = [](int columns, int inner) {
    const auto t = timed(
        "flashfuser/G1",
        formatted("m/16@grid n/{}@grid ( k/32 ( C.gemm1 ) l/{} ( C.gemm2 ) S.E )", columns, inner),
        named_machine("h100"));
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  EXPECT_NEAR(parts(64, 128), 5.07e-6, 0.12 * 5.07e-6);
  EXPECT_NEAR(parts(128, 256), 6.52e-6, 0.15 * 6.52e-6);
  const auto shared = [&](int rows, int columns, int part) {
    return seconds("gemm:m=128,n=1024,k=4096,dtype=f16",
                   formatted("m/{}@grid n/{}@grid ( k/{}@cluster ( k/64 ( C.gemm ) ) S.C )", rows,
                             columns, part));
  };
  EXPECT_NEAR(shared(64, 128, 512), 10.01e-6, 0.12 * 10.01e-6);
  EXPECT_LT(shared(128, 64, 1024), 0.85 * shared(64, 128, 512));
}

/// h200-products-shallow.json and h200-products-slow.json: few turns by mma.sync, in blocks that
/// have an SM alone and together. Prices were 0.45 to 0.7 of these times.
TEST(BlockTime, RecordedShallowProducts) {
  const auto of = [](const char* workload, int m, int n) {
    const auto t = timed(
        workload, formatted("m/{}@grid n/{}@grid ( k/64 ( L.A L.B C.gemm ) S.C )", m, n), h200());
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    EXPECT_FALSE(t.ok() && t->warpgroups);
    return t.ok() ? *t : BlockTime{};
  };
  const BlockTime slow = of("gemm:m=2816,n=944,k=128,dtype=f16", 128, 80);
  EXPECT_EQ(slow.registers, 96);  // as ptxas gives it
  EXPECT_EQ(slow.resident, 1);
  EXPECT_NEAR(slow.seconds, 7.06e-6, 0.15 * 7.06e-6);
  const BlockTime few = of("gemm:m=256,n=256,k=128,dtype=bf16", 64, 80);
  EXPECT_NEAR(few.seconds, 3.04e-6, 0.15 * 3.04e-6);
  const BlockTime rounds = of("gemm:m=2816,n=2304,k=192,dtype=bf16", 64, 96);
  EXPECT_NEAR(rounds.seconds, 16.25e-6, 0.15 * 16.25e-6);
  // Seven warps, of which an SM has room for twelve.
  const BlockTime odd = of("gemm:m=2176,n=1152,k=72,dtype=bf16", 96, 80);
  EXPECT_EQ(odd.threads, 224);
  EXPECT_EQ(odd.resident, 1);
  EXPECT_NEAR(odd.seconds, 11.77e-6, 0.15 * 11.77e-6);
}

TEST(BlockTime, LaunchesAskForAsManyBlocksAsThereAre) {
  EXPECT_EQ(blocks_asked(1, 160, 132, 65536, kLeastOfTiled), 1);
  EXPECT_EQ(blocks_asked(133, 160, 132, 65536, kLeastOfTiled), 2);
  EXPECT_EQ(blocks_asked(264, 256, 132, 65536, kLeastOfTiled), 2);
  // Three of 256 threads would leave a thread 85.
  EXPECT_EQ(blocks_asked(265, 256, 132, 65536, kLeastOfTiled), 0);
  EXPECT_EQ(blocks_asked(265, 256, 132, 65536, kLeastOfStitched), 3);
  EXPECT_EQ(blocks_asked(1, 160, 132, 0, kLeastOfTiled),
            0);  // a machine that does not say how many
}

/// Whole fours of warps: 14 warps of 144 registers a thread would have room by their number.
TEST(BlockTime, RegistersAreGivenOutToFoursOfWarps) {
  EXPECT_EQ(blocks_by_registers(224, 144, 65536), 1);
  EXPECT_EQ(blocks_by_registers(256, 96, 65536), 2);
  EXPECT_EQ(blocks_by_registers(384, 80, 65536), 2);
  EXPECT_EQ(blocks_by_registers(384, 81, 65536), 1);
  EXPECT_EQ(blocks_by_registers(1024, 72, 65536), 0);
}

/// h100-drawn-seconds-priced.json: operators of one block point by point, whose time is barriers,
/// places of elements and rings' turns; and rows of 16 bits that begin anywhere, through registers:
/// h200-planned-odd.json.
/// A machine file may say any number.
TEST(BlockTime, FewRegistersAreAReason) {
  for (const std::int64_t registers : {1, 100, 1000, 3000, 20000, 65536}) {
    Machine m = h200();
    for (ComputeUnit& u : m.units)
      if (u.name == "SM") u.registers = registers;
    const auto t = timed("chimera/G1:dtype=f16", kChain, m);
    if (t.ok())
      EXPECT_GE(t->resident, 1) << registers;
    else
      EXPECT_NE(t.reason().find("registers"), std::string::npos) << t.reason();
    EXPECT_EQ(t.ok(), registers > 3000) << registers;
  }
}

TEST(BlockTime, RecordedPointsAndCopiedElements) {
  const auto near = [](const std::string& w, const std::string& tree, double recorded) {
    const auto t = timed(w, tree, named_machine("h100"));
    ASSERT_TRUE(t.ok()) << t.reason();
    EXPECT_NEAR(t->seconds, recorded, 0.3 * recorded) << w << tree;
  };
  const auto softmax = [&](int rows, int columns, double recorded) {
    near("masked-softmax:batch=5,heads=8,m=48,l=58,dtype=bf16",
         formatted("b/1 h/1 m/{} ( l/{} ( C.scaled C.masked C.rowmax ) l/{} ( C.exp C.rowsum ) "
                   "l/{} ( C.divide ) )",
                   rows, columns, columns, columns),
         recorded);
  };
  softmax(1, 58, 2273.6e-6);
  softmax(2, 58, 1139.6e-6);
  softmax(1, 16, 10722.8e-6);
  near("gemm-chain:m=2699,n=37,k=115,l=1889,batch=12,dtype=f16",
       "b/1@grid m/128@grid n/37@grid ( l/128 ( k/115 ( C.gemm1 ) C.gemm2 ) S.E )", 127.4e-6);
  near("gemm-chain:m=6990,n=292,k=45,l=746,batch=12,dtype=f16",
       "b/1@grid m/128@grid n/112@grid ( l/64 ( k/45 ( C.gemm1 ) C.gemm2 ) S.E )", 483.8e-6);
}

/// Products by fused multiply-adds: large tiles where there are many, small ones where there are
/// few; rows that begin anywhere cost more copies; no kernel is faster than the multiply-adds.
/// Where the machine's file has no TF32.
TEST(BlockTime, TilesOfFusedMultiplyAdds) {
  Machine fma = h200();
  fma.units.front().peak.erase("tf32");
  const auto seconds = [&](int m, int n, int k, int tile) {
    const auto t =
        timed("gemm:m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" + std::to_string(k),
              "m/" + std::to_string(tile) + "@grid n/" + std::to_string(tile) +
                  "@grid ( k/32 ( C.gemm ) S.C )",
              fma);
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  EXPECT_LT(1.2 * seconds(4096, 4096, 4096, 128), seconds(4096, 4096, 4096, 32));
  EXPECT_LT(1.5 * seconds(512, 512, 2048, 32), seconds(512, 512, 2048, 128));
  EXPECT_LT(seconds(4096, 4096, 4096, 128), seconds(4096, 4096, 4095, 128));
  const double least = 2 * 4096.0 * 4096 * 4096 / h200().units.front().peak.at("f32").value;
  EXPECT_GT(seconds(4096, 4096, 4096, 128), least);
  // h200-products-f32-rows.json has 3.21 ms. Before copies at edges and sums that leave were
  // changed, four recordings of an H100 had 3.48 to 3.53 ms.
  EXPECT_NEAR(seconds(4096, 4096, 4096, 128), 3.21e-3, 0.1e-3);
}

/// Of floats the quicker one of two micro-kernels: h200-products-tf32.json has 2.16 ms of tensor
/// cores and 3.07 of fused multiply-adds. Tiles of which a product takes a part that is no block of
/// 16 are multiplied by the latter.
TEST(BlockTime, FloatsTakeTheQuickerMicroKernel) {
  const std::string tree = "m/128@grid n/96@grid ( k/32 ( C.gemm ) S.C )";
  Machine m = h200();
  const auto tensor = timed("gemm:m=4096,n=4096,k=4096", tree, m, {.warps = 4});
  ASSERT_TRUE(tensor) << tensor.reason();
  EXPECT_EQ(tensor->micro_kernel, "tf32x3");
  EXPECT_NEAR(tensor->seconds, 2.16e-3, 0.15 * 2.16e-3);
  const auto parts = timed("gemm-chain:m=512,n=64,k=64,l=512",
                           "m/64@grid ( l/60 ( C.gemm1 l/20 ( C.gemm2 ) ) S.E )", m);
  ASSERT_TRUE(parts) << parts.reason();
  EXPECT_EQ(parts->micro_kernel, "simt");
  m.units.front().peak.erase("tf32");
  const auto fma = timed("gemm:m=4096,n=4096,k=4096", tree, m, {.warps = 4});
  ASSERT_TRUE(fma) << fma.reason();
  EXPECT_GT(fma->seconds, 1.2 * tensor->seconds);
}

/// Two warps that compute have two of an SM's four schedulers, however many blocks are on it:
/// BERT's queries by such blocks take 25.4 us (h200-whole-f32-tf32.json), and were priced at 13.8.
TEST(BlockTime, TwoWarpsHaveTwoSchedulers) {
  const auto t = timed("gemm:m=384,n=768,k=768", "m/32@grid n/32@grid ( k/64 ( C.gemm ) S.C )",
                       h200(), {.warps = 2, .stages = 4});
  ASSERT_TRUE(t) << t.reason();
  EXPECT_EQ(t->micro_kernel, "tf32x3");
  EXPECT_EQ(t->resident, 3);
  EXPECT_NEAR(t->seconds, 25.4e-6, 0.15 * 25.4e-6);
}

/// A convolution's weights have its windows between their rows: no such tile is a product of sums
/// in registers. h100-whole-networks-third.json has 606 us of this kernel on an H100 (s3b2mid).
TEST(BlockTime, RowsThatLieApartAreNoProduct) {
  const auto w = std::make_shared<const Workload>(
      workload_from_yaml("name: t\ndtype: f32\nloops: {o: 256, y: 14, x: 14, k: 256, r: 3, s: 3}\n"
                         "tensors: {I: [256, 14, 14], W: [256, 256, 3, 3]}\noperators:\n"
                         "  - \"conv: C[o,y,x] += I[k,y + r - 1,x + s - 1] * W[o,k,r,s]\"\n",
                         "t"));
  const Machine m = h200();
  const Kernel k{.name = "k",
                 .tree = parse_tree("o/64@grid y/1@grid x/14@grid k/16 r/1 s/1 ( C.conv )")};
  const auto s = resolve({.kernels = {k}}, w, std::make_shared<const Machine>(m));
  ASSERT_TRUE(s) << s.reason();
  const auto t = block_time(*s, 0, *block_rates(m, DType::f32));
  ASSERT_TRUE(t) << t.reason();
  // An H100 takes 298 us (h100-convolution-plans.json), as a product it would be priced 88.
  EXPECT_GT(t->seconds, 150e-6);
  EXPECT_LT(t->seconds, 600e-6);
}

/// The second product takes a part of the first's sums at a time, so they and all that is computed
/// with them lie in shared memory. An H100 takes 18.0 us (h100-attention-by-mma.json); with the
/// sums in registers it would be priced 5.
TEST(BlockTime, WhatIsComputedWithSumsInSharedMemoryLiesThereToo) {
  const auto t = timed("mcfuser/S1",
                       "b/1@grid m/32@grid n/64@grid ( k/16 ( C.qk ) C.rowmax C.exp C.rowsum "
                       "l/128 ( C.pv ) C.divide S.E )",
                       h200());
  ASSERT_TRUE(t) << t.reason();
  EXPECT_GT(t->seconds, 11e-6);
  EXPECT_LT(t->seconds, 30e-6);
}

/// The first block of a pooled convolution is cut off at the image's edge, those in the middle have
/// a row and a column more, for which all tiles are laid out: 76,544 bytes and 122 registers a
/// thread, two blocks an SM. ResNet-50's takes 124 us (h100-whole-merged.json); by the first block
/// it was priced 28, of four blocks an SM.
TEST(BlockTime, BlocksAtTheEdgeAreNotTheLargest) {
  const auto t = timed_text(
      "loops: {c: 64, i: 3, y: 112, x: 112, r: 7, s: 7, v: 56, u: 56, p: 3, q: 3}\n"
      "tensors: {I: [3, 224, 224], W: [64, 3, 7, 7], S: [64, 112, 112], P: [64, 56, 56]}\n"
      "operators:\n  - \"stem: S[c,y,x] += I[i,2*y+r-3,2*x+s-3] * W[c,i,r,s]\"\n"
      "  - \"pool: P[c,v,u] max= S[c,2*v+p-1,2*u+q-1]\"\noutputs: [P]\n",
      "c/16@grid v/8@grid u/4@grid ( r/7 ( C.stem ) C.pool S.P )", named_machine("h100"), {});
  ASSERT_TRUE(t) << t.reason();
  EXPECT_GE(t->registers, 96);
  EXPECT_EQ(t->resident, 2);
  EXPECT_GT(t->seconds, 45e-6);
  EXPECT_LT(t->seconds, 130e-6);
}

/// Before sm_90 bf16 is added by compare and swap: 16 blocks add to a word of two elements, one
/// after the other, each a way to L2 and back.
TEST(BlockTime, AdditionsOfBf16AreSwappedWhereTheyAreNoInstruction) {
  const auto seconds = [](const std::string& type, double capability) {
    Machine m = h200();
    m.units.front().capability = capability;
    const auto t = timed("gemm:m=128,n=128,k=4096,dtype=" + type,
                         "m/64@grid n/64@grid k/256@grid ( k/32 ( C.gemm ) S.C!atomic )", m);
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  EXPECT_EQ(seconds("bf16", 9.0), seconds("f16", 9.0));
  EXPECT_GT(seconds("bf16", 8.0), seconds("f16", 8.0) + 2 * 16 * 260 / 1.83e9);
}

/// Few blocks that wait for keys from memory take longer than the memory alone: 64 heads of 7 rows
/// over 38,092 keys took 357 us on an H200 (h200-attention-any.json), whose memory takes 260.
TEST(BlockTime, APairWaitsForMemoryAndComputes) {
  const auto t =
      timed("attention:heads=64,m=7,l=38092,k=128,n=128,scale=1,causal=1,dtype=f16,online=1",
            "b/1@grid m/7@grid ( l/96 ( k/128 ( C.qk ) C.scaled C.masked C.rowmax C.exp C.rowsum "
            "C.rescale C.pv ) C.divide S.E )",
            h200());
  ASSERT_TRUE(t) << t.reason();
  const double block = t->phases.at(0).seconds;
  EXPECT_GT(t->seconds, 1.02 * std::max(block, t->memory));
  EXPECT_LT(t->seconds, block + t->memory);
  EXPECT_NEAR(t->seconds, 357e-6, 0.15 * 357e-6);
}

TEST(BlockTime, WgmmaIsOfMachinesThatHaveIt) {
  Machine m = h200();
  for (const auto& [capability, has] : {std::pair(9.0, true), std::pair(8.0, false),
                                        std::pair(10.0, false), std::pair(0.0, true)}) {
    m.units.front().capability = capability;
    EXPECT_EQ(block_rates(m, DType::f16)->wgmma > 0, has) << capability;
  }
}

/// h200-drawn-seconds-noon.json: sums in shared memory are made two columns at a time, since 46
/// blocks of columns are no multiple of more that have room. The price was 0.57 of it.
TEST(BlockTime, RecordedPartsOfColumns) {
  const auto t =
      timed("gemm-chain:m=8,n=8,k=128,l=368,batch=3,relu=0,dtype=bf16",
            "b/1@grid m/8@grid n/8@grid ( k/64 l/368 ( C.gemm1 ) l/368 ( C.gemm2 ) )", h200());
  ASSERT_TRUE(t.ok()) << t.reason();
  EXPECT_NEAR(t->seconds, 14.2e-6, 0.15 * 14.2e-6);
}

/// Rows that begin anywhere are copied by groups of threads, which take one tensor after the other:
/// the second tensor's first tile comes beside the first one's, the third one's after it.
TEST(BlockTime, GroupsOfThreadsCopyFirstTiles) {
  const auto ends = [](int tensors) {
    std::string yaml =
                    "name: test\ndtype: f16\nloops: {r: 64, c: 7}\noperators:\n  - \"o: O[r,c] = 1",
                tree = "r/1@grid ( ";
    for (int i = 0; i < tensors; ++i)
      yaml += formatted(" + A{}[r,c]", i), tree += formatted("L.A{} ", i);
    const auto w = std::make_shared<const Workload>(workload_from_yaml(yaml + "\"\n", "test"));
    const Machine m = h200();
    const auto s = resolve({.kernels = {{.name = "k", .tree = parse_tree(tree + "C.o S.O )")}}}, w,
                           std::make_shared<const Machine>(m));
    EXPECT_TRUE(s.ok()) << (s.ok() ? "" : s.reason());
    const auto t = block_time(*s, 0, *block_rates(m, DType::f16));
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->phases.at(0).ends : 0;
  };
  EXPECT_NEAR(ends(2), ends(1), 0.05 * ends(1));
  EXPECT_GT(ends(3), 1.2 * ends(2));
  EXPECT_NEAR(ends(4), ends(3), 0.05 * ends(3));
}

/// Drawn plans of an H200 whose prices were 5.3, 2.5 and 2.3 times their times: a result that is
/// read in the same block stays until its body ends, and leaves once
/// (h200-drawn-seconds-measured-twice); a contraction of two products needs few registers
/// (-other-constants); rows of one dimension that begin anywhere are moved together by 44
/// instructions at edges, some of them under way together
/// (-dawn).
TEST(BlockTime, RecordedResultsThatStayShallowContractionsAndLargeShiftedTiles) {
  const auto near = [](const std::string& yaml, const std::string& tree, double recorded,
                       double off) -> Result<BlockTime> {
    const auto w = std::make_shared<const Workload>(workload_from_yaml(yaml, "test"));
    const Machine m = h200();
    const auto s = resolve({.kernels = {{.name = "k", .tree = parse_tree(tree)}}}, w,
                           std::make_shared<const Machine>(m));
    if (!s) return Reason{s.reason()};
    auto t = block_time(*s, 0, *block_rates(m, w->dtype()));
    if (t.ok()) {
      EXPECT_NEAR(t->seconds, recorded, off * recorded) << tree;
    }
    return t;
  };
  const auto norm = near(
      "name: norm\ndtype: f16\nloops: {a: 142, b: 45, c: 420}\noperators:\n"
      "  - \"add: t[a,b,c] = x[a,b,c] + z[a,b,c]\"\n  - \"sum: s[c] += t[a,b,c]\"\n"
      "  - \"centre: d[a,b,c] = t[a,b,c] - s[c] * 0.000156495\"\n"
      "  - \"squares: q[c] += d[a,b,c] * d[a,b,c]\"\n"
      "  - \"norm: y[a,b,c] = d[a,b,c] * rsqrt(q[c] * 0.000156495 + 0.001) * gain[b] + bias[b]\"\n"
      "outputs: [t, y]\n",
      "c/4@grid ( b/1 a/142 ( C.add C.sum ) b/1 a/142 ( C.centre C.squares ) b/1 a/142 ( C.norm ) "
      ")",
      103.5e-6, 0.4);
  ASSERT_TRUE(norm.ok()) << norm.reason();
  const auto shallow = near(
      "name: shallow\ndtype: f32\nloops: {b: 7, t: 2496, c: 64, r: 2}\n"
      "tensors: {x: [b, t, c]}\noperators:\n"
      "  - \"conv: y[b,t,c] += x[b,t + r - 1,c] * w[r,c]\"\n"
      "  - \"gate: z[b,t,c] = y[b,t,c] * sigmoid(y[b,t,c])\"\n",
      "c/1@grid b/7@grid t/64@grid ( r/2 ( C.conv ) C.gate )", 26.2e-6, 1.1);
  ASSERT_TRUE(shallow.ok()) << shallow.reason();
  EXPECT_EQ(shallow->registers, 48);
  const auto shifted = near(
      "name: shifted\ndtype: f16\nloops: {m: 209, n: 62, k: 234}\noperators:\n"
      "  - \"qkv: Q[m,n] += X[m,k] * Wq[k,n]; K[m,n] += X[m,k] * Wk[k,n]; "
      "V[m,n] += X[m,k] * Wv[k,n]\"\noutputs: [Q, K, V]\n",
      "m/16@grid ( L.X L.Wq L.Wk L.Wv C.qkv S.Q S.K S.V )", 5.6e-6, 0.5);
  ASSERT_TRUE(shifted.ok()) << shifted.reason();
}

TEST(BlockTime, ASlowerMachineIsNotFaster) {
  const auto at = [](auto change) {
    Machine m = h200();
    change(m);
    const auto t = timed("chimera/G1:dtype=f16", kChain, m);
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  const double now = at([](Machine&) {});
  EXPECT_LT(now, at([](Machine& m) {
              for (Level& l : m.levels)
                if (l.name == "shared") l.bandwidth.value /= 8;
            }));
  EXPECT_LT(now, at([](Machine& m) { m.units.front().clock_hz /= 2; }));
  EXPECT_LT(now, at([](Machine& m) { m.units.front().count /= 4; }));
  EXPECT_LT(now, at([](Machine& m) { m.units.front().cycles["launch_unit"] *= 4; }));
  // A launch that begins early hides most of it: not so before sm_90.
  EXPECT_LT(now + 0.4e-6, at([](Machine& m) { m.units.front().cycles.erase("wgmma"); }));
  EXPECT_LT(now, at([](Machine& m) {
              for (Level& l : m.levels)
                if (l.name == "L2") l.capacity.value = 1 << 20, l.bandwidth.value /= 16;
            }));
}

// Squeezenet's convolution and the pooling of what it is concatenated to: the first of two blocks
// of channels has no convolution. It took 56.1 us on an H100 (h100-onnx-files-before.json), and was
// said to take 2.4.
TEST(BlockTime, TheFirstBlockMayHaveNothingToDo) {
  const std::string text = R"yaml(
loops: {a: 64, o: 128, i: 16, y: 55, x: 55, p: 27, q: 27, r: 3, s: 3}
tensors: {X: [i, y, x], Z: [o, y, x]}
operators:
  - "c: C[a,y,x] += X[i,y+r-1,x+s-1] * W[a,i,r,s]"
  - "b: B[a,y,x] = relu(C[a,y,x] + bias[a])"
  - "f: F[o,y,x] = Z[o,y,x] + B[o-SHIFT,y,x]"
  - "g: G[o,p,q] max= F[o,2*p+r,2*q+s]"
)yaml";
  const auto seconds = [&](const std::string& shift) {
    std::string shifted = text;
    shifted.replace(shifted.find("SHIFT"), 5, shift);
    const auto t =
        timed_text(shifted, "o/64@grid p/1@grid q/4@grid ( i/16 ( C.c ) C.b C.f C.g S.G )",
                   named_machine("h100"), {.warps = 8});
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  EXPECT_GT(seconds("64"), 0.5 * 56.1e-6);
  EXPECT_LT(seconds("64"), 1.5 * 56.1e-6);
  EXPECT_NEAR(seconds("64"), seconds("0"), 0.2 * seconds("0"));  // where the first has it, instead
}

/// A product of 128 of 1,024 rows that a kernel joins with others: eight of its blocks have all the
/// work, wherever they are.
TEST(BlockTime, WorkOfATensorThatIsJoinedWithOthersIsFound) {
  const auto seconds = [](int first) {
    const auto t = timed_text(
        formatted("loops: {{a: 128, b: 64, c: 1024, k: 4096}}\noperators:\n  - p: p[a,b] += "
                  "u[a,k] * v[k,b]\n  - y: y[c,b] = q[c,b] + p[c-{},b]\n",
                  first),
        "c/16@grid ( k/16 ( C.p ) C.y S.y )", h200(), {});
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  for (const int first : {128, 384, 768, 896})
    EXPECT_NEAR(seconds(first), seconds(0), 0.05 * seconds(0)) << first;
}

/// A block has one of a pack's parts. Two directions of a GRU's step take 1.9 us on an H200 and
/// were said to take 4.3 (h200-onnx-files-fresh.json).
TEST(BlockTime, ABlockHasOnePartOfAPack) {
  const auto seconds = [](const std::string& operators, const std::string& tree) {
    const auto t =
        timed_text("loops: {i: 112, j: 112}\noperators:\n" + operators, tree, h200(), {});
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  const std::string y = "  - y: y[i] += u[i,j] * h[j]\n", z = "  - z: z[i] += v[i,j] * g[j]\n",
                    few = "  - f: f[j] = w[j] * r[j]\n";
  const double one = seconds(y, "i/1@grid ( C.y )");
  const double two = seconds(y + z, "( i/1@grid ( C.y ) | i/1@grid ( C.z ) )");
  EXPECT_GE(two, one);
  EXPECT_LT(two, 1.2 * one);
  const double light = seconds(y + few, "( j/1@grid ( C.f ) | i/1@grid ( C.y ) )");
  EXPECT_NEAR(light, one, 0.1 * one);
}

/// Work of what is joined twice: windows of 256 taps, of which a block of nmp's constant-Q
/// transform has all, were priced as if no block had any (2.3 us, 15.8 on an H200:
/// h200-onnx-files-fresh.json).
TEST(BlockTime, WorkOfATensorThatIsJoinedAgainIsFound) {
  const auto seconds = [](int first, int again) {
    const auto t = timed_text(
        formatted("loops: {{a: 128, b: 64, c: 1024, d: 2048, k: 4096}}\noperators:\n  - p: "
                  "p[a,b] += u[a,k] * v[k,b]\n  - y: y[c,b] = q[c,b] + p[c-{},b]\n"
                  "  - z: z[d,b] = r[d,b] + y[d-{},b]\n",
                  first, again),
        "d/16@grid ( k/16 ( C.p ) C.y C.z S.z )", h200(), {});
    EXPECT_TRUE(t.ok()) << (t.ok() ? "" : t.reason());
    return t.ok() ? t->seconds : 0;
  };
  const double all = seconds(0, 0);
  for (const int first : {0, 128, 600, 896})
    for (const int again : {128, 512, 900})
      EXPECT_NEAR(seconds(first, again), all, 0.05 * all) << first << " " << again;
}

TEST(BlockTime, WhatHasNoRoomOrOtherUnitsHasAReason) {
  const auto room = timed("gemm:m=4096,n=4096,k=4096,dtype=f16",
                          "m/1024@grid n/1024@grid ( k/512 ( C.gemm ) S.C )", h200());
  ASSERT_FALSE(room.ok());
  EXPECT_NE(room.reason().find("shared"), std::string::npos) << room.reason();
  Machine lacks = h200();
  lacks.units.front().cycles.erase("l2");
  const auto none = block_rates(lacks, DType::f16);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.reason().find("l2"), std::string::npos) << none.reason();
  EXPECT_FALSE(block_rates(named_machine("epyc-zen5"), DType::f32).ok());
}

}  // namespace
}  // namespace tilewright::lowering
