// Two products with operators between them by Hopper's warpgroups on simulator/cuda_host: drawn
// attentions, chains and others compute what the reference evaluator computes, move the bytes that
// `exact` counts, and have no fault found in them; each of their waits that is left out is found.
#include <algorithm>
#include <cstdlib>
#include <functional>

#include "codegen/cuda/build.h"
#include "core/base/format.h"
#include "core/lowering/gpu/block_time.h"
#include "core/lowering/gpu/warpgroup_pair.h"
#include "core/workload/text.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/codegen/cuda_cases.h"
#include "tests/codegen/cuda_emitted.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kSeed = 25002;

using testing::Case;
using testing::make_case;

class Draw : public testing::Draws {
 public:
  using Draws::Draws;

  /// `kind`: 0 a chain of products; 1 softmax in one pass, 2 also scaled, 3 also masked; 4 the
  /// exponential alone, whose sums are not rescaled; 5 a softmax whose row is one turn; 6, 7 as 1
  /// with a mask that empties whole turns, of one edge and of two (a window). `other`: operands are
  /// longer or shorter than the loops.
  Case pair(int kind, bool other = false) {
    const bool left_across = coin(), right_across = coin(), second_across = number(0, 3) > 0;
    const bool empties = kind >= 6;  // in tiles that are small beside the whole
    const bool heads = empties || coin(), groups = heads && coin(), bfloat = number(0, 3) == 0;
    // Boxes of rows that run along the columns of a turn have 64 of them, which three warpgroups
    // have too few registers for.
    const std::int64_t each = right_across || !second_across ? 64 : 16;
    const auto width = [&](std::int64_t most) {
      return number(0, 4) == 0 ? 8 * number(1, most / 8) : one_of<std::int64_t>({64, 80, 96, 128});
    };
    const std::int64_t k = width(256), n = width(each == 64 ? 160 : 208);
    const auto along = [&](bool runs) { return runs ? 8 * number(1, 24) : number(1, 190); };
    const std::int64_t m = along(left_across);
    std::int64_t l = each == 64 ? 8 * number(1, 30) : number(1, 250);
    const std::int64_t rows = 64 * number(1, empties || each == 64 || n > 128 ? 2 : 3);
    const std::int64_t room = (rows == 192 ? 160 : 240) - 50 - ceil_div(n, std::int64_t{16}) * 8;
    const std::int64_t most_step =
        empties ? 64 : std::min<std::int64_t>(160, room * 16 / 13 / 16 * 16);
    const std::int64_t step =
        kind == 5 ? std::min(l, most_step) : each * number(1, most_step / each);
    if (kind < 5 && coin()) l = round_up(std::max(l, 2 * step + 1), step);  // whole turns
    const std::int64_t whole = kind == 5 ? step : l;
    out_ = {};
    const std::string kv = heads ? "b," : "", q = groups ? "b,h," : kv;
    const bool first_heads = coin();
    const std::string of_q = groups && first_heads ? "b,h," : q;
    std::string ops, tree;
    const auto op = [&](const std::string& name, const std::string& text, bool inside) {
      ops += "  - \"" + name + ": " + text + "\"\n";
      (inside ? tree : after_) += "C." + name + " ";
    };
    after_.clear();
    const auto at = [&](const char* t, const char* loops) { return t + ("[" + q) + loops + "]"; };
    const auto kvs = [&](const char* t, const char* loops) { return t + ("[" + kv) + loops + "]"; };
    const char *ql = left_across ? "k,m" : "m,k", *kl = right_across ? "k,l" : "l,k",
               *vl = second_across ? "l,n" : "n,l";
    ops += "  - \"qk: " + at("S", "m,l") + " += " + at("Q", ql) + " * " + kvs("K", kl) + "\"\n";
    std::string scores = at("S", "m,l"), operand = scores;
    const std::string r = at("R", "m"), z = at("Z", "m"), shift = at("shift", "m"),
                      alpha = at("alpha", "m"), p = at("P", "m,l");
    if (kind == 2 || kind == 3) {
      op("scaled", at("T", "m,l") + " = " + scores + " * 0.25", true);
      scores = at("T", "m,l");
    }
    if (kind == 6) {
      const std::int64_t more = number(0, whole / 4);
      const bool turned = coin();
      op("masked",
         at("U", "m,l") +
             (turned ? formatted(" = select(lt(l, m + {}), ", more + 1) + scores + ", -inf)"
                     : formatted(" = select(lt(m + {}, l), -inf, ", more) + scores + ")"),
         true);
      scores = at("U", "m,l");
      out_ = [more](std::int64_t row, std::int64_t column) { return row + more < column; };
    }
    if (kind == 7) {
      // Sums of products of f16 are above -1e15; of bf16 nothing is known.
      const std::int64_t wide = std::max(number(1, 40), m - whole);  // no row without a column
      op("masked",
         at("U", "m,l") +
             formatted(" = select(lt(m, l), -1e15, select(lt(l, m - {}), -1e15, ", wide) + scores +
             "))",
         true);
      scores = at("U", "m,l");
      if (!bfloat)
        out_ = [wide](std::int64_t row, std::int64_t column) {
          return row < column || column < row - wide;
        };
    }
    if (kind == 3) {
      op("masked",
         at("U", "m,l") + formatted(" = select(lt(m + {}, l), -32768, ", whole / 2) + scores + ")",
         true);
      scores = at("U", "m,l");
    }
    const bool running = kind >= 1 && kind != 4 && kind != 5;
    if (running || kind == 5)
      op("rowmax",
         r + " max= " + scores + (running ? "; " + shift + " = before(R) - after(R) running" : ""),
         true);
    if (kind > 0) {
      op("exp", p + " = exp(" + (kind == 4 ? scores + " * 0.125" : scores + " - " + r) + ")", true);
      op("rowsum", z + " += " + p + (running ? " rescale(exp(" + shift + ")) running" : ""), true);
      operand = p;
    }
    if (running) op("rescale", alpha + " = exp(" + shift + ")", true);
    const bool out = kind == 0;
    ops += "  - \"pv: " + at(out ? "E" : "O", "m,n") + " += " + operand + " * " + kvs("V", vl) +
           (running ? " rescale(" + alpha + ") running" : "") + "\"\n";
    tree += "C.pv ";
    if (!out) op("divide", at("E", "m,n") + " = " + at("O", "m,n") + " / " + z, false);
    std::string shapes;
    const auto shape = [&](const std::string& name, const std::string& outer, const char* loops) {
      shapes += (shapes.empty() ? "tensors:\n  " : "\n  ") + name + ": [" + outer;
      for (const char* at = loops; *at != 0; ++at) {
        const std::int64_t there = *at == 'm'   ? m
                                   : *at == 'l' ? whole
                                   : *at == 'k' ? k
                                                : n,
                           some = std::max<std::int64_t>(1, there + number(-9, 9));
        shapes += *at == ',' ? ", " : std::to_string(at[1] == 0 ? round_up(some, 8) : some);
      }
      shapes += "]";
    };
    if (other) shape("Q", q, ql), shape("K", kv, kl), shape("V", kv, vl);
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{m: {}, l: {}, k: {}, \"n\": {}{}{}}}\n{}{}operators:\n{}",
        bfloat ? "bf16" : "f16", m, whole, k, n,
        !heads    ? ""
        : empties ? ", b: 4"
                  : ", b: 2",
        groups ? ", h: 2" : "", shapes, other ? "\n" : "", ops);
    const auto least = [](std::int64_t a, std::int64_t b) { return std::min(a, b); };
    std::string blocks = heads ? "b/1@grid " : "";
    if (groups) blocks += "h/1@grid ";
    blocks += formatted("m/{}@grid ", least(m, rows));
    Case c = make_case(yaml,
                       blocks + formatted("( l/{} ( k/{} ( C.qk ) {}) {}S.E )", least(whole, step),
                                          k, tree, after_),
                       number(1, 3), {.l2 = empties && coin() ? 8 * l * (k + n) : 0});
    c.out = out_;
    return c;
  }
  std::string after_;
  std::function<bool(std::int64_t, std::int64_t)> out_;
};

/// What is not read because no element of a turn is left, element by element.
std::pair<std::int64_t, std::int64_t> left_out(const Case& c, const lowering::WarpgroupPair& p) {
  std::int64_t columns = 0;
  for (std::int64_t row = 0; row < p.rows && c.out; row += p.tile_rows())
    for (std::int64_t from = 0; from < p.middle; from += p.tile_middle) {
      const std::int64_t to = std::min(from + p.tile_middle, p.middle);
      bool left = false;
      for (std::int64_t r = row; r < std::min(row + p.tile_rows(), p.rows); ++r)
        for (std::int64_t l = from; l < to; ++l) left = left || !c.out(r, l);
      if (!left) columns += to - from;
    }
  return {columns * p.count * p.depth * 2, columns * p.count * p.columns * 2};
}

/// TILEWRIGHT_SEED and TILEWRIGHT_CASES draw others. A tile that a thread has too few registers for
/// is no pair by warpgroups: it is told so, and the kernel that does without them is held as well.
TEST(Pairs, ComputeMoveWhatExactCountsAndAreClean) {
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const char* const other = std::getenv("TILEWRIGHT_SEED");
  const int count = cases != nullptr ? std::atoi(cases) : 24;
  const std::uint64_t seed = other != nullptr ? std::strtoull(other, nullptr, 10) : kSeed;
  RecordProperty("seed", std::to_string(seed));
  Draw draw(seed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  int of_one_stage = 0;
  for (int i = 0; i < count; ++i) {
    drawn.push_back(draw.pair(i % 8, i % 16 >= 8 && i % 8 < 3));
    const int stages = static_cast<int>(draw.number(0, 1));
    sources.push_back(testing::emitted(
        drawn.back().schedule,
        {.stages = stages, .warpgroups = true, .prefix = "k" + std::to_string(i)}));
    const auto pair = lowering::warpgroup_pair(drawn.back().schedule, 0);
    // A stage's next operand comes when its products are done.
    of_one_stage += stages == 1 && pair.ok() && !pair->ragged() && pair->edges.empty();
    EXPECT_TRUE(pair.ok() || pair.reason().find("registers a thread") != std::string::npos)
        << pair.reason() << "\n"
        << drawn.back().text;
    EXPECT_EQ(sources.back().micro_kernel == "wgmma", pair.ok()) << drawn.back().text;
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  std::int64_t left = 0, sections = 0, too_large = 0;
  for (int i = 0; i < count; ++i) {
    const Case& c = drawn[static_cast<std::size_t>(i)];
    const auto run = testing::run_cuda(*module, sources[static_cast<std::size_t>(i)], *c.workload,
                                       seed, {.turns = static_cast<std::uint64_t>(i % 3)});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    EXPECT_LT(run->error, c.workload->dtype() == DType::f16 ? 4e-3 : 3e-2) << c.text;
    auto bytes = testing::sm_bytes(c.schedule);
    const auto pair = lowering::warpgroup_pair(c.schedule, 0);
    if (!pair.ok()) {
      ++too_large;
      EXPECT_EQ(testing::text(run->bytes), testing::text(bytes)) << c.text;
      continue;
    }
    const auto [rights, seconds] = left_out(c, *pair);
    bytes["K"].first -= rights, bytes["V"].first -= seconds;
    left += rights;
    sections += pair->section > 1 && pair->section < pair->count ? 1 : 0;
    EXPECT_EQ(testing::text(run->bytes), testing::text(bytes)) << c.text;
    EXPECT_EQ(pair->left_out(), std::pair(rights, seconds)) << c.text;
    EXPECT_GT(run->report.launches.back().wgmma, 0) << c.text;
  }
  EXPECT_GT(left, 0);
  EXPECT_GE(of_one_stage, count / 12);
  EXPECT_GT(sections, 0);
  EXPECT_LE(too_large, count / 12);
  std::cout << "seed " << seed << ": " << count << " drawn, " << too_large
            << " with too few registers\n";
}

/// Chunks of keys as split-running makes them, the last one with fewer of them or not, for queries
/// of some heads that share keys (`joined`: one tile has the rows of all).
Case chunks(Draw& draw, bool joined) {
  const std::int64_t heads = draw.number(2, 5), m = draw.number(1, 12),
                     step = 16 * draw.number(1, 5), chunk = step * draw.number(1, 3),
                     count = draw.number(2, 4), last = draw.coin() ? chunk : draw.number(1, chunk),
                     k = 8 * draw.number(1, 16), n = 8 * draw.number(1, 16);
  const std::string place = formatted("{}*lo+li", chunk);
  std::string ops, tree, scores = "S";
  const auto element = [&](const std::string& to, const std::string& text) {
    ops += formatted("  - \"{}_made: {}[lo,b,h,m,li] = {}\"\n", to, to, text);
    tree += "C." + to + "_made ";
    scores = to;
  };
  if (last < chunk || draw.coin())
    element("T", formatted("select(lt({}*lo + li, {}), S[lo,b,h,m,li], -inf)", chunk,
                           (count - 1) * chunk + last));
  if (draw.coin())  // of every row the last elements stay
    element("U", formatted("select(lt(li, m - {}), -inf, {}[lo,b,h,m,li])", draw.number(11, 12),
                           scores));
  if (draw.coin()) element("H", "h * 0.125 + b * 0.25 + " + scores + "[lo,b,h,m,li]");
  return make_case(
      formatted(
          "name: chunks\ndtype: {}\nloops: {{lo: {}, li: {}, b: 2, h: {}, m: {}, k: {}, \"n\": "
          "{}}}\n"
          "tensors:\n  K: [b, {}, k]\n  V: [b, {}, n]\n"
          "dtypes: {{R: f32, Z: f32, O: f32, shift: f32, alpha: f32}}\noperators:\n"
          "  - \"qk: S[lo,b,h,m,li] += Q[b,h,m,k] * K[b,{},k]\"\n{}"
          "  - \"rowmax: R[lo,b,h,m] max= {}[lo,b,h,m,li]; shift[lo,b,h,m] = before(R) - after(R) "
          "running\"\n"
          "  - \"exp: P[lo,b,h,m,li] = exp({}[lo,b,h,m,li] - R[lo,b,h,m])\"\n"
          "  - \"rowsum: Z[lo,b,h,m] += P[lo,b,h,m,li] rescale(exp(shift[lo,b,h,m])) running\"\n"
          "  - \"rescale: alpha[lo,b,h,m] = exp(shift[lo,b,h,m])\"\n"
          "  - \"pv: O[lo,b,h,m,n] += P[lo,b,h,m,li] * V[b,{},n] rescale(alpha[lo,b,h,m]) "
          "running\"\n"
          "outputs: [O, R, Z]\n",
          draw.number(0, 3) == 0 ? "bf16" : "f16", count, chunk, heads, m, k, n,
          (count - 1) * chunk + last, (count - 1) * chunk + last, place, ops, scores, scores,
          place),
      formatted("lo/1@grid b/1@grid h/{}@grid m/{}@grid ( li/{} ( k/{} ( C.qk ) {}C.rowmax C.exp "
                "C.rowsum C.rescale C.pv ) S.O )",
                joined ? heads : 1, m, step, k, tree),
      draw.number(1, 3));
}

TEST(Pairs, ChunksOfKeysAndRowsOfSeveralHeads) {
  const char* const other = std::getenv("TILEWRIGHT_SEED");
  const std::uint64_t seed = other != nullptr ? std::strtoull(other, nullptr, 10) : kSeed;
  Draw draw(seed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  for (int i = 0; i < 10; ++i) {
    drawn.push_back(chunks(draw, i % 3 > 0));
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.warpgroups = true, .prefix = "k" + std::to_string(i)}));
    const auto pair = lowering::warpgroup_pair(drawn.back().schedule, 0);
    ASSERT_TRUE(pair.ok()) << pair.reason() << "\n" << drawn.back().text;
    EXPECT_EQ(pair->joined.valid(), i % 3 > 0);
    EXPECT_EQ(pair->row_results.size(), 2U);
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
    EXPECT_EQ(testing::text(run->bytes), testing::text(bytes)) << c.text;
    EXPECT_GT(run->report.launches.back().wgmma, 0) << c.text;
  }
}

/// Turns that do not divide a chunk would read the next one's.
TEST(Pairs, TurnsDivideChunks) {
  const auto with = [](int step) {
    return lowering::warpgroup_pair(
        make_case(
            formatted(
                "name: chunks\ndtype: f16\nloops: {{lo: 2, li: 96, m: 16, k: 64, \"n\": 64}}\n"
                "tensors:\n  K: [192, k]\n  V: [192, n]\noperators:\n"
                "  - \"qk: S[lo,m,li] += Q[m,k] * K[96*lo+li,k]\"\n"
                "  - \"pv: O[lo,m,n] += S[lo,m,li] * V[96*lo+li,n]\"\n"),
            formatted("lo/1@grid m/16@grid ( li/{} ( k/64 ( C.qk ) C.pv ) S.O )", step), 4)
            .schedule,
        0);
  };
  EXPECT_TRUE(with(48).ok()) << with(48).reason();
  EXPECT_NE(with(64).reason().find("turns of 64 do not divide its chunks of 96"), std::string::npos)
      << with(64).reason();
}

/// Attention of 512 rows and columns with such a mask, in tiles of 128 x 64.
Case masked(const std::string& mask, const std::string& type = "f16", int l = 512,
            const std::string& p = "exp(U[m,l] - R[m])", int scale = 1) {
  const bool online = p.find("R[m]") != p.npos;
  return make_case(
      formatted("name: masked\ndtype: {}\nloops: {{m: 512, l: {}, k: 64, \"n\": 64}}\noperators:\n"
                "  - \"qk: S[m,l] += Q[m,k] * K[l,k]\"\n"
                "  - \"scaled: T[m,l] = S[m,l] * {}\"\n"
                "  - \"masked: U[m,l] = {}\"\n{}"
                "  - \"exp: P[m,l] = {}\"\n"
                "  - \"pv: O[m,n] += P[m,l] * V[l,n]{}\"\n",
                type, l, scale, mask,
                online
                    ? "  - \"rowmax: R[m] max= U[m,l]; shift[m] = before(R) - after(R) running\"\n"
                      "  - \"rescale: alpha[m] = exp(shift[m])\"\n"
                    : "",
                p, online ? " rescale(alpha[m]) running" : ""),
      formatted("m/128@grid ( l/64 ( k/64 ( C.qk ) C.scaled C.masked {}C.exp C.pv ) S.O )",
                online ? "C.rowmax C.rescale " : ""),
      4);
}

TEST(Pairs, ScalesAreMultipliedWhereTheyCostNothing) {
  const auto factors = [](const Case& c) {
    const auto p = lowering::warpgroup_pair(c.schedule, 0);
    EXPECT_TRUE(p.ok()) << p.reason() << c.text;
    std::vector<double> all;
    for (const char* t : {"S", "T", "U", "P"})
      all.push_back(p->find(*c.workload->find_tensor(t))->factor);
    EXPECT_EQ(p->between.front().scales, all[1] != 1) << c.text;
    return all;
  };
  using All = std::vector<double>;
  const std::string causal = "select(lt(m, l), -inf, T[m,l])", softmax = "exp(U[m,l] - R[m])";
  EXPECT_EQ(factors(masked(causal, "f16", 512, softmax, 3)), (All{1, 3, 3, 1}));
  EXPECT_EQ(factors(masked("select(lt(l, m + 1), T[m,l], 0)", "f16", 512, softmax, 3)),
            (All{1, 3, 3, 1}));
  EXPECT_EQ(factors(masked("T[m,l] * 2", "f16", 512, softmax, 3)), (All{1, 3, 6, 1}));
  // A sign would turn a maximum round; what is masked, added or multiplied is no multiple.
  const All none{1, 1, 1, 1};
  EXPECT_EQ(factors(masked(causal, "f16", 512, softmax, -3)), none);
  EXPECT_EQ(factors(masked("select(lt(m, l), -32768, T[m,l])", "f16", 512, softmax, 3)), none);
  EXPECT_EQ(factors(masked("T[m,l] + m", "f16", 512, softmax, 3)), none);
  EXPECT_EQ(factors(masked(causal, "f16", 512, "exp(U[m,l] - R[m]) * U[m,l]", 3)), none);
  EXPECT_EQ(factors(masked(causal, "f16", 512, "exp(R[m] - U[m,l])", 3)), none);
  EXPECT_EQ(factors(masked(causal, "f16", 512, "U[m,l] * 2", 3)), none);
}

TEST(Pairs, OnlyWhatProvablyAddsNothingIsLeftOut) {
  using Edges = std::vector<lowering::MaskEdge>;
  const Edges causal{{1, -1, 0}}, none;
  const auto edges = [](const Case& c) {
    const auto p = lowering::warpgroup_pair(c.schedule, 0);
    EXPECT_TRUE(p.ok()) << p.reason() << c.text;
    return p->edges;
  };
  EXPECT_EQ(edges(masked("select(lt(m, l), -inf, T[m,l])")), causal);
  EXPECT_EQ(edges(masked("select(lt(m, l), -inf, T[m,l])", "bf16")), causal);
  EXPECT_EQ(edges(masked("select(lt(l, m + 1), T[m,l], -inf)")), causal);
  EXPECT_EQ(edges(masked("select(lt(m + 0.5, l), -inf, T[m,l])")), causal);
  EXPECT_EQ(edges(masked("select(lt(2 * m, 3 * l - 7), -inf, T[m,l])")), (Edges{{2, -3, 7}}));
  EXPECT_EQ(edges(masked("select(lt(m, l), -inf, select(lt(l, m - 255), -inf, T[m,l]))")),
            (Edges{{1, -1, 0}, {-1, 1, 255}}));
  EXPECT_EQ(edges(masked("select(lt(l, m + 1) * lt(m, l + 64), T[m,l], -inf)")),
            (Edges{{1, -1, 0}, {-1, 1, 63}}));
  // Products of f16 add up to more than -64 * 65504^2, which is -2.7e11, or may not.
  EXPECT_EQ(edges(masked("select(lt(m, l), -1e12, T[m,l])")), causal);
  EXPECT_EQ(edges(masked("select(lt(m, l), -2e11, T[m,l])")), none);
  EXPECT_EQ(edges(masked("select(lt(m, l), -1e12, T[m,l])", "f16", 512, "exp(U[m,l] - R[m])", 8)),
            none);
  EXPECT_EQ(edges(masked("select(lt(m, l), -1e12, T[m,l])", "bf16")), none);
  EXPECT_EQ(edges(masked("select(lt(m, l), -32768, T[m,l])")), none);
  // What is given from outside is any number.
  EXPECT_EQ(edges(masked("select(lt(m, l), -inf, T[m,l] + B[m,l])")), causal);
  EXPECT_EQ(edges(masked("select(lt(m, l), -inf, T[m,l]) + B[m]")), causal);
  EXPECT_EQ(edges(masked("select(lt(m, l), -1e12, T[m,l] + B[m,l])")), none);
  // Rows without a column; more of what is infinite; an infinity of the other sign.
  EXPECT_EQ(edges(masked("select(lt(m - 1, l), -inf, T[m,l])")), none);
  EXPECT_EQ(edges(masked("select(lt(l, m - 255), -inf, T[m,l])", "f16", 256)), none);
  EXPECT_EQ(edges(masked("select(lt(l, m - 255), -inf, T[m,l])", "f16", 257)),
            (Edges{{-1, 1, 255}}));
  EXPECT_EQ(edges(masked("select(lt(m, l), inf, T[m,l])")), none);
  EXPECT_EQ(edges(masked("select(lt(m, l), -inf, T[m,l] - inf)")), none);
  // Without a maximum: what is zero or has a zero exponential.
  EXPECT_EQ(edges(masked("select(lt(m, l), 0, T[m,l])", "f16", 512, "U[m,l] * 2")), causal);
  EXPECT_EQ(edges(masked("select(lt(m, l), 1, T[m,l])", "f16", 512, "U[m,l] * 2")), none);
  EXPECT_EQ(edges(masked("select(lt(m, l), 0, T[m,l])", "f16", 512, "exp(U[m,l])")), none);
  EXPECT_EQ(edges(masked("select(lt(m, l), -200, T[m,l])", "f16", 512, "exp(U[m,l])")), causal);
  EXPECT_EQ(edges(masked("select(lt(m, l), -90, T[m,l])", "f16", 512, "exp(U[m,l])")), none);
}

TEST(Pairs, TurnsThatAMaskEmptiesAreInThePrice) {
  const auto seconds = [](const char* causal) {
    const Case c = make_case(
        to_yaml(named_workload("attention:heads=32,m=4096,l=4096,k=64,n=64,online=1,dtype=f16" +
                               std::string(*causal != 0 ? ",causal=1" : ""))),
        formatted("b/1@grid m/128@grid ( l/128 ( k/64 ( C.qk ) {}C.rowmax C.exp C.rowsum C.rescale "
                  "C.pv ) C.divide S.E )",
                  causal),
        132);
    const auto rates = lowering::block_rates(*c.schedule.machine, DType::f16);
    return lowering::block_time(c.schedule, 0, *rates)->seconds;
  };
  const double all = seconds(""), causal = seconds("C.masked ");
  EXPECT_GT(causal, 0.5 * all);  // half of the scores and the diagonal
  EXPECT_LT(causal, 0.6 * all);
}

TEST(Pairs, EachWaitThatIsLeftOutIsFound) {
  // Both ways of writing results; blocks of several tiles, rings shorter than the turns.
  testing::BarriersLeftOut barriers;
  for (const auto& [n, second, online] :
       {std::tuple(72, "l,n", true), std::tuple(77, "n,l", true), std::tuple(64, "l,n", false)}) {
    const std::string between = online ? "C.rowmax C.exp C.rowsum C.rescale " : "";
    const std::string softmax =
        "  - \"rowmax: R[m] max= S[m,l]; shift[m] = before(R) - after(R) running\"\n"
        "  - \"exp: P[m,l] = exp(S[m,l] - R[m])\"\n"
        "  - \"rowsum: Z[m] += P[m,l] rescale(exp(shift[m])) running\"\n"
        "  - \"rescale: alpha[m] = exp(shift[m])\"\n"
        "  - \"pv: O[m,n] += P[m,l] * V[{}] rescale(alpha[m]) running\"\n"
        "  - \"divide: E[m,n] = O[m,n] / Z[m]\"\n";
    const std::string chain = "  - \"pv: E[m,n] += S[m,l] * V[{}]\"\n";
    std::string rest = online ? softmax : chain;
    rest.replace(rest.find("{}"), 2, second);
    const Case c = make_case(
        formatted(
            "name: drawn\ndtype: f16\nloops: {{m: 300, l: 152, k: 64, \"n\": {}}}\noperators:\n"
            "  - \"qk: S[m,l] += Q[m,k] * K[l,k]\"\n{}",
            n, rest),
        formatted("m/128@grid ( l/{} ( k/64 ( C.qk ) {}C.pv ) {}S.E )", n == 77 ? 64 : 32, between,
                  online ? "C.divide " : ""),
        1);
    const cuda::Source source = testing::emitted(c.schedule, {.stages = 2, .warpgroups = true});
    ASSERT_EQ(source.micro_kernel, "wgmma") << source.program.back();
    const auto module = testing::build_cuda({source});
    ASSERT_TRUE(module.ok()) << module.reason();
    barriers.look(*module, source, *c.workload, kSeed, c.text);
  }
  barriers.print();
  using Left = testing::BarriersLeftOut;
  EXPECT_GE(barriers.barriers(), 40);
  EXPECT_EQ(barriers.count(Left::wrong) + barriers.count(Left::doubled), 0);
  EXPECT_EQ(barriers.count(Left::idle), 0);
}

TEST(Pairs, AnOperandThatChangesUnderWayIsFound) {
  Draw draw(kSeed);
  Case c = draw.pair(1);
  while (lowering::warpgroup_pair(c.schedule, 0)->middle <
         3 * lowering::warpgroup_pair(c.schedule, 0)->tile_middle)
    c = draw.pair(1);
  const cuda::Source source = testing::emitted(c.schedule, {.warpgroups = true});
  // What the second product reads is packed before it is waited for.
  const auto module = testing::build_cuda({source}, "      at.column += Middle;\n",
                                          "      at.column += Middle; pack(packed, x);\n");
  ASSERT_TRUE(module.ok()) << module.reason();
  const auto run = testing::run_cuda(*module, source, *c.workload, kSeed);
  ASSERT_TRUE(run.ok()) << run.reason();
  ASSERT_FALSE(run->report.clean());
  EXPECT_EQ(run->report.findings.front().fault, cuda_host::Fault::wgmma_misuse)
      << run->report.findings.front().text;
}

/// Attention of 1000 rows, with a causal mask or none, in such tiles.
Case attention_of(int l, int width, int rows, int step, bool causal) {
  const std::string scores = causal ? "U" : "S";
  return make_case(
      formatted("name: drawn\ndtype: f16\nloops: {{m: 1000, l: {}, k: {}, \"n\": {}}}\noperators:\n"
                "  - \"qk: S[m,l] += Q[m,k] * K[l,k]\"\n{}"
                "  - \"rowmax: R[m] max= {}[m,l]; shift[m] = before(R) - after(R) running\"\n"
                "  - \"exp: P[m,l] = exp({}[m,l] - R[m])\"\n"
                "  - \"rowsum: Z[m] += P[m,l] rescale(exp(shift[m])) running\"\n"
                "  - \"rescale: alpha[m] = exp(shift[m])\"\n"
                "  - \"pv: O[m,n] += P[m,l] * V[l,n] rescale(alpha[m]) running\"\n"
                "  - \"divide: E[m,n] = O[m,n] / Z[m]\"\n",
                l, width, width,
                causal ? "  - \"masked: U[m,l] = select(lt(m, l), -inf, S[m,l])\"\n" : "", scores,
                scores),
      formatted("m/{}@grid ( l/{} ( k/{} ( C.qk ) {}C.rowmax C.exp C.rowsum C.rescale C.pv ) "
                "C.divide S.E )",
                rows, step, width, causal ? "C.masked " : ""),
      132);
}

TEST(Pairs, SpillNothingInTilesOfEverySize) {
  if (cuda::find_nvcc().empty()) GTEST_SKIP() << "no nvcc here";
  cuda::Source all{.file_name = "all.cu"};
  const bool longer = std::getenv("TILEWRIGHT_LONG") != nullptr;
  enum Turns { masked, ragged, whole };
  for (const Turns turns : {masked, ragged, whole})
    for (const int rows : {64, 128, 192})
      for (const int width : {64, 80, 96, 128, 256}) {
        // The largest turns that registers have room for; all of them in a long run.
        bool found = false;
        for (int step = 256; step >= 16; step -= 16) {
          if (found && !longer) break;
          const Case c = attention_of(turns == whole ? 8 * step : 8 * step + 8, width, rows, step,
                                      turns == masked);
          if (!lowering::warpgroup_pair(c.schedule, 0)) continue;
          found = true;
          const cuda::Source one = testing::emitted(
              c.schedule, {.warpgroups = true,
                           .prefix = formatted("tile_{}_{}_{}_{}", static_cast<int>(turns), rows,
                                               width, step)});
          testing::add_kernel(all, one);
        }
        EXPECT_EQ(found, rows < 192 || width < 256) << rows << " rows, " << width << " wide";
      }
  testing::expect_no_spills(all);
}

}  // namespace
}  // namespace tilewright
