// Operators between two products that read what the kernel does not make: a bias, a mask, slopes.
// By warpgroups on simulator/cuda_host they compute what the reference evaluator computes, and move
// the bytes that `exact` counts; for sm_90a they spill nothing.
#include <cstdlib>

#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "tests/codegen/cuda_cases.h"
#include "tests/codegen/cuda_emitted.h"
#include "tests/codegen/cuda_support.h"

namespace tilewright {
namespace {

using testing::Case;
using testing::make_case;

constexpr std::uint64_t kSeed = 25011;

struct Sizes {
  std::int64_t heads = 1, groups = 2, m = 64, l = 64, k = 64, n = 64, rows = 64, step = 64;
  bool joined = false, causal = false;
  const char *dtype = "f16", *given = "f16";
  const char* divide = "O[b,h,m,n] / Z[b,h,m]";
};

/// Attention whose scores become `term` of S[b,h,m,l] and of a tensor B.
Case attention(const Sizes& z, const std::string& term) {
  std::string ops = "  - \"biased: A[b,h,m,l] = " + term + "\"\n", tree = "C.biased ", at = "A";
  if (z.causal) {
    ops += "  - \"masked: U[b,h,m,l] = select(lt(m, l), -inf, A[b,h,m,l])\"\n";
    tree += "C.masked ", at = "U";
  }
  at += "[b,h,m,l]";
  std::string given;  // types of what the operators read at home
  for (const auto& [text, tensor] : {std::pair{term, "B"}, {std::string(z.divide), "G"}})
    if (text.find(std::string(tensor) + "[") != std::string::npos)
      given += formatted("{}{}: {}", given.empty() ? "" : ", ", tensor, z.given);
  return make_case(
      formatted("name: drawn\ndtype: {}\nloops: {{b: {}, h: {}, m: {}, l: {}, k: {}, \"n\": {}}}\n"
                "dtypes: {{{}}}\noperators:\n"
                "  - \"qk: S[b,h,m,l] += Q[b,h,m,k] * K[b,l,k]\"\n{}"
                "  - \"rowmax: R[b,h,m] max= {}; shift[b,h,m] = before(R) - after(R) running\"\n"
                "  - \"exp: P[b,h,m,l] = exp({} - R[b,h,m])\"\n"
                "  - \"rowsum: Z[b,h,m] += P[b,h,m,l] rescale(exp(shift[b,h,m])) running\"\n"
                "  - \"rescale: alpha[b,h,m] = exp(shift[b,h,m])\"\n"
                "  - \"pv: O[b,h,m,n] += P[b,h,m,l] * V[b,l,n] rescale(alpha[b,h,m]) running\"\n"
                "  - \"divide: E[b,h,m,n] = {}\"\n",
                z.dtype, z.heads, z.groups, z.m, z.l, z.k, z.n, given, ops, at, at, z.divide),
      formatted("b/1@grid h/{}@grid m/{}@grid ( l/{} ( k/{} ( C.qk ) {}C.rowmax C.exp C.rowsum "
                "C.rescale C.pv ) C.divide S.E )",
                z.joined ? z.groups : 1, z.rows, z.step, z.k, tree),
      2);
}

constexpr const char* kTerms[] = {
    "S[b,h,m,l] * 0.125 + B[b,h,m,l]",       // a bias of each head
    "S[b,h,m,l] + B[m,l]",                   // a mask
    "S[b,h,m,l] + B[b,l]",                   // of keys alone
    "S[b,h,m,l] + B[h] * (l - m)",           // slopes
    "S[b,h,m,l] * B[b,h,m]",                 // of each row
    "S[b,h,m,l] + B[h,l,m] * 0.5",           // lies the other way round
    "S[b,h,m,l] + B[b,m,h,l] * B[b,m,h,l]",  // heads within rows, read twice
    "S[b,h,m,l] + B[h,m-l+255]",             // relative places
    "S[b,h,m,l] * B[l-m+255]",               // the other way round, of all heads
};

TEST(PairReads, ComputeAndMoveWhatExactCounts) {
  const char* const other = std::getenv("TILEWRIGHT_SEED");
  const std::uint64_t seed = other != nullptr ? std::strtoull(other, nullptr, 10) : kSeed;
  testing::Draws draw(seed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  const int count = 3 * static_cast<int>(std::size(kTerms));
  for (int i = 0; i < count; ++i) {
    Sizes z{.heads = draw.number(1, 2), .groups = draw.number(2, 3), .joined = i % 3 == 2};
    z.m = z.joined ? draw.number(1, 40) : draw.number(1, 150);
    z.l = draw.coin() ? 8 * draw.number(4, 30) : draw.number(20, 200);
    z.k = 8 * draw.number(2, 10), z.n = 8 * draw.number(2, 10);
    z.rows = z.joined ? z.m : std::min<std::int64_t>(z.m, 64 * draw.number(1, 2));
    z.step = std::min<std::int64_t>(z.l, 16 * draw.number(1, 6));
    z.causal = draw.coin() && z.m <= z.l;
    z.dtype = draw.number(0, 3) == 0 ? "bf16" : "f16";
    z.given = draw.number(0, 2) == 0 ? "f32" : z.dtype;
    drawn.push_back(attention(z, kTerms[i / 3]));
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.warpgroups = true, .prefix = "k" + std::to_string(i)}));
    const auto pair = lowering::warpgroup_pair(drawn.back().schedule, 0);
    ASSERT_TRUE(pair.ok()) << pair.reason() << "\n" << drawn.back().text;
    EXPECT_EQ(pair->reads.size(), 1U);
    EXPECT_EQ(pair->joined.valid(), z.joined);
    EXPECT_EQ(pair->edges.empty(), !z.causal || z.joined) << drawn.back().text;
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Case& c = drawn[i];
    const auto run = testing::run_cuda(*module, sources[i], *c.workload, seed, {.turns = i % 3});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    EXPECT_LT(run->error, c.workload->dtype() == DType::f16 ? 4e-3 : 3e-2) << c.text;
    const auto pair = lowering::warpgroup_pair(c.schedule, 0);
    const auto [rights, seconds] = pair->left_out();
    auto bytes = testing::sm_bytes(c.schedule);
    bytes["K"].first -= rights, bytes["V"].first -= seconds;
    const Tensor& b = c.workload->tensor(pair->reads[0].tensor);
    const std::int64_t read = pair->elements_read(pair->reads[0]) * size_of(b.dtype);
    if (pair->edges.empty())
      EXPECT_EQ(bytes["B"].first, read) << c.text;
    else
      EXPECT_LE(read, bytes["B"].first) << c.text;
    bytes["B"].first = read;
    EXPECT_EQ(testing::text(run->bytes), testing::text(bytes)) << c.text;
  }
}

constexpr const char* kAfter[] = {
    "O[b,h,m,n] / Z[b,h,m] + G[b,h,m,n]",               // a residual
    "O[b,h,m,n] / Z[b,h,m] * G[n]",                     // a scale of each column
    "O[b,h,m,n] / Z[b,h,m] * G[b,m]",                   // a gate of each row
    "O[b,h,m,n] / Z[b,h,m] + G[m,h,n+8] * G[m,h,n+8]",  // rows of heads, a part of each
    "O[b,h,m,n] / Z[b,h,m] - G[h]",                     // of each head
    "O[b,h,m,n] / Z[b,h,m] + G[n-m+191]",               // of differences
};

/// Operators after the second product that read at home.
TEST(PairReads, AfterTheSecondProduct) {
  testing::Draws draw(kSeed + 1);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  for (int i = 0; i < 3 * static_cast<int>(std::size(kAfter)); ++i) {
    Sizes z{.heads = draw.number(1, 2), .groups = draw.number(2, 3), .joined = i % 3 == 2};
    z.m = z.joined ? draw.number(1, 40) : draw.number(1, 150);
    z.l = 8 * draw.number(4, 20), z.k = 8 * draw.number(2, 6);
    z.n = i % 3 == 0 ? draw.number(9, 70) * 2 : 8 * draw.number(2, 20);
    z.n = round_up(z.n, 8);
    z.rows = z.joined ? z.m : std::min<std::int64_t>(z.m, 64 * draw.number(1, 2));
    z.step = std::min<std::int64_t>(z.l, 16 * draw.number(1, 6));
    z.given = draw.number(0, 2) == 0 ? "f32" : "f16";
    z.divide = kAfter[i / 3];
    drawn.push_back(attention(z, draw.coin() ? "S[b,h,m,l] * 0.125" : "S[b,h,m,l] + B[m,l]"));
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.warpgroups = true, .prefix = "k" + std::to_string(i)}));
    const auto pair = lowering::warpgroup_pair(drawn.back().schedule, 0);
    ASSERT_TRUE(pair.ok()) << pair.reason() << "\n" << drawn.back().text;
    EXPECT_EQ(pair->after_reads.size(), 1U);
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Case& c = drawn[i];
    const auto run = testing::run_cuda(*module, sources[i], *c.workload, kSeed, {.turns = i % 3});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    EXPECT_LT(run->error, 4e-3) << c.text;
    const auto pair = lowering::warpgroup_pair(c.schedule, 0);
    auto bytes = testing::sm_bytes(c.schedule);
    EXPECT_EQ(bytes["G"].first, pair->elements_read(pair->after_reads[0], true) *
                                    size_of(c.workload->tensor(pair->after_reads[0].tensor).dtype))
        << c.text;
    EXPECT_EQ(testing::text(run->bytes), testing::text(bytes)) << c.text;
  }
}

/// As split-running makes them, the last one with fewer keys or not, of some heads in a tile or
/// one.
TEST(PairReads, InChunksOfKeys) {
  testing::Draws draw(kSeed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  for (int i = 0; i < 8; ++i) {
    const std::int64_t step = 16 * draw.number(1, 4), chunk = step * draw.number(1, 3),
                       last = i % 4 < 2 ? draw.number(1, chunk - 1) : chunk,
                       all = 2 * chunk + (i % 4 == 1 ? round_up(last, 2) : last),
                       m = draw.number(1, 30);
    const std::string end = formatted("select(lt({}*lo + li, {}), ", chunk, all);
    // Without the condition what lies behind the end counts, as zero.
    const bool open = i == 4 || i == 5;
    drawn.push_back(make_case(
        formatted(
            "name: chunks\ndtype: {}\nloops: {{lo: 3, li: {}, b: 2, h: 3, m: {}, k: 40, \"n\": "
            "48}}\n"
            "tensors:\n  K: [b, {}, k]\n  V: [b, {}, n]\n{}"
            "dtypes: {{R: f32, Z: f32, O: f32, shift: f32, alpha: f32}}\noperators:\n"
            "  - \"qk: S[lo,b,h,m,li] += Q[b,h,m,k] * K[b,{}*lo+li,k]\"\n"
            "  - \"biased: A[lo,b,h,m,li] = {}S[lo,b,h,m,li] * 0.25 + {}{}\"\n"
            "  - \"rowmax: R[lo,b,h,m] max= A[lo,b,h,m,li]; shift[lo,b,h,m] = before(R) - after(R) "
            "running\"\n"
            "  - \"exp: P[lo,b,h,m,li] = exp(A[lo,b,h,m,li] - R[lo,b,h,m])\"\n"
            "  - \"rowsum: Z[lo,b,h,m] += P[lo,b,h,m,li] rescale(exp(shift[lo,b,h,m])) running\"\n"
            "  - \"rescale: alpha[lo,b,h,m] = exp(shift[lo,b,h,m])\"\n"
            "  - \"pv: O[lo,b,h,m,n] += P[lo,b,h,m,li] * V[b,{}*lo+li,n] rescale(alpha[lo,b,h,m]) "
            "running\"\noutputs: [O, R, Z]\n",
            i % 4 == 3 ? "bf16" : "f16", chunk, m, all, all,
            i % 3 == 0   ? formatted("  B: [b, h, m, {}]\n", all)
            : i % 3 == 1 ? formatted("  B: [m, {}]\n", all)
                         : std::string(),
            chunk, open ? "" : end,
            i % 3 == 0   ? formatted("B[b,h,m,{}*lo+li]", chunk)
            : i % 3 == 1 ? formatted("B[m,{}*lo+li]", chunk)
                         : formatted("B[h] * ({}*lo + li - m)", chunk),
            open ? "" : ", -inf)", chunk),
        formatted(
            "lo/1@grid b/1@grid h/{}@grid m/{}@grid ( li/{} ( k/40 ( C.qk ) C.biased C.rowmax "
            "C.exp C.rowsum C.rescale C.pv ) S.O )",
            i % 2 == 0 ? 3 : 1, m, step),
        2));
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.warpgroups = true, .prefix = "k" + std::to_string(i)}));
    const auto pair = lowering::warpgroup_pair(drawn.back().schedule, 0);
    ASSERT_TRUE(pair.ok()) << pair.reason() << "\n" << drawn.back().text;
    EXPECT_EQ(pair->read_ends(), i % 3 < 2 && all % chunk != 0) << drawn.back().text;
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const Case& c = drawn[i];
    const auto run = testing::run_cuda(*module, sources[i], *c.workload, kSeed, {.turns = i % 3});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    EXPECT_LT(run->error, c.workload->dtype() == DType::f16 ? 4e-3 : 3e-2) << c.text;
    auto bytes = testing::sm_bytes(c.schedule);
    const auto pair = lowering::warpgroup_pair(c.schedule, 0);
    bytes["B"].first = pair->elements_read(pair->reads[0]) *
                       size_of(c.workload->tensor(pair->reads[0].tensor).dtype);
    EXPECT_EQ(testing::text(run->bytes), testing::text(bytes)) << c.text;
  }
}

TEST(PairReads, WhatNoThreadFindsIsRefused) {
  const auto reason = [](const std::string& term) {
    const auto p = lowering::warpgroup_pair(attention({}, term).schedule, 0);
    return p.ok() ? std::string() : p.reason();
  };
  EXPECT_EQ(reason("S[b,h,m,l] + B[m,l]"), "");
  EXPECT_EQ(reason("S[b,h,m,l] + B[h,m-l+63]"), "");
  EXPECT_NE(reason("S[b,h,m,l] + B[h,m-l+62]").find("outside of its elements"), std::string::npos);
  EXPECT_NE(reason("S[b,h,m,l] + B[m+l]").find("is indexed by more than loops"), std::string::npos);
  EXPECT_NE(reason("S[b,h,m,l] + B[2*m,l]").find("is indexed by more than loops"),
            std::string::npos);
  EXPECT_NE(reason("S[b,h,m,l] + B[m,l] * B[h,l]").find("B"), std::string::npos);
}

/// Each term with masks or without them by turns; both of each in a long run.
TEST(PairReads, SpillNothing) {
  if (cuda::find_nvcc().empty()) GTEST_SKIP() << "no nvcc here";
  cuda::Source all{.file_name = "all.cu"};
  const bool longer = std::getenv("TILEWRIGHT_LONG") != nullptr;
  int number = 0;
  for (const char* term : {kTerms[0], kTerms[3]})
    for (const bool causal : {false, true})
      for (const int rows : {64, 128, 192})
        for (const int width : {16, 64, 128, 256}) {
          if (!longer && ((term == kTerms[0]) == causal) == (rows == 128)) continue;
          bool found = false;
          for (int step = 256; step >= 16; step -= 16) {
            if (found && !longer) break;
            const Case c = attention({.m = 4000,
                                      .l = 8 * step + (causal ? 8 : 0),
                                      .k = width,
                                      .n = width,
                                      .rows = rows,
                                      .step = step,
                                      .causal = causal},
                                     term);
            if (!lowering::warpgroup_pair(c.schedule, 0)) continue;
            found = true;
            testing::add_kernel(
                all, testing::emitted(c.schedule, {.warpgroups = true,
                                                   .prefix = formatted("tile_{}_{}_{}_{}", number,
                                                                       rows, width, step)}));
          }
          ++number;
        }
  testing::expect_no_spills(all);
}

}  // namespace
}  // namespace tilewright
