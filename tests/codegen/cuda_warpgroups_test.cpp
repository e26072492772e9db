// Products by Hopper's warpgroups on simulator/cuda_host: drawn shapes, layouts, types and tiles
// compute what the reference evaluator computes, move the bytes that `exact` counts, and have no
// fault found in them; each of their waits that is left out is found.
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "codegen/cuda/build.h"
#include "core/base/format.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/plan/file.h"
#include "tests/codegen/cuda_barriers.h"
#include "tests/codegen/cuda_cases.h"
#include "tests/codegen/cuda_emitted.h"

namespace tilewright {
namespace {

constexpr std::uint64_t kSeed = 25001;

using testing::Case;
using testing::make_case;

/// Of one product.
std::int64_t tiles_there(const lowering::WarpgroupProduct& p) {
  return ceil_div(p.rows, std::int64_t{p.tile_rows()}) * p.tiles_across();
}

class Draw : public testing::Draws {
 public:
  using Draws::Draws;

  /// Rows of operands begin at multiples of 16 bytes, so what they run along is a multiple of 8.
  /// `turned`: a tile has rows in multiples of 16; `shares`: in clusters that share operands, where
  /// its tiles make any. `other`: operands are longer or shorter than the loops, of any extents.
  Case product(bool turned, bool shares, bool other = false) {
    const bool left_across = coin() && !turned, right_across = coin();
    const std::int64_t batch = number(0, 2), all = batch > 0 ? number(0, 2) : 2;
    const auto extent = [&](bool runs) {
      return runs && !other ? 8 * number(1, 26) : number(1, 210);
    };
    const std::int64_t m = extent(left_across), n = extent(right_across),
                       share = number(0, 2) == 0 && !shares ? number(2, 8) : 1,
                       part = 64 * number(1, 3),
                       most = share == 1 ? extent(!left_across || !right_across) : share * part,
                       k = share == 1 ? most : most - 8 * number(0, part / 8 - 1);
    const std::string outer = batch == 0 ? "" : batch == 1 ? "b," : "b,h,";
    const std::string a = (all == 0 ? "" : outer) + (left_across ? "k,m" : "m,k"),
                      b = (all == 1 ? "" : outer) + (right_across ? "k,n" : "n,k");
    const auto shape = [&](const std::string& loops) {
      std::string all;
      for (const char loop : loops) {
        const std::int64_t some = std::max<std::int64_t>(1, (loop == 'm'   ? m
                                                             : loop == 'n' ? n
                                                                           : k) +
                                                                number(-9, 9));
        if (loop == ',')
          all += ", ";
        else if (loop == 'b' || loop == 'h')
          all += loop;
        else
          all += std::to_string(loop == loops.back() ? round_up(some, 8) : some);
      }
      return all;
    };
    const std::string shapes =
        other ? formatted("tensors:\n  A: [{}]\n  B: [{}]\n  C: [{}m, \"n\"]\n", shape(a), shape(b),
                          outer)
              : std::string();
    const bool bfloat = number(0, 2) == 0, wide = number(0, 2) == 0;
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{m: {}, \"n\": {}, k: {}{}}}\ndtypes: {{C: {}}}\n{}"
        "operators:\n  - C[{}m,n] += A[{}] * B[{}]\n",
        bfloat ? "bf16" : "f16", m, n, k,
        batch == 0   ? std::string()
        : batch == 1 ? formatted(", b: {}", number(2, 3))
                     : std::string(", b: 2, h: 2"),
        wide     ? "f32"
        : bfloat ? "bf16"
                 : "f16",
        shapes, outer, a, b);
    // Rows and columns of a tile, and the depth of a step.
    static constexpr std::pair<int, int> kTiles[] = {{64, 64},  {64, 128},  {64, 256},
                                                     {128, 64}, {128, 128}, {128, 192},
                                                     {192, 64}, {256, 64},  {256, 128}};
    auto [rows, columns] = kTiles[number(0, std::ssize(kTiles) - 1)];
    if (!right_across && coin()) columns = static_cast<int>(columns == 256 ? 208 : columns - 16);
    if (turned) {
      columns = static_cast<int>(64 * number(1, 4));
      rows = static_cast<int>(16 + 32 * number(0, columns == 256 && share > 1 ? 2 : 5));
    }
    const auto step = [](std::int64_t all, std::int64_t part) { return std::min(all, part); };
    std::string tree = batch == 0 ? "" : batch == 1 ? "b/1@grid " : "b/1@grid h/1@grid ";
    tree += coin() ? formatted("m/{}@grid n/{}@grid ", step(m, rows), step(n, columns))
                   : formatted("n/{}@grid m/{}@grid ", step(n, columns), step(m, rows));
    const std::string loads =
        formatted("k/{} ( L.A L.B C.C )", step(share == 1 ? k : part, 32 * number(1, 4)));
    tree += share == 1 ? formatted("( {} S.C )", loads)
                       : formatted("( k/{}@cluster ( {} ) S.C )", part, loads);
    const std::int64_t sms = number(1, 3) * share;
    Case made = make_case(yaml, tree, sms);
    made.joins = share > 1;
    if (!shares) return made;
    for (const int blocks : {8, 4, 2})
      if (Case those = make_case(yaml, tree, sms, {.cluster = blocks});
          lowering::warpgroup_product(those.schedule, 0))
        return those;
    return made;
  }

  /// In clusters that share operands, the last of which have tiles past an end.
  Case past_an_end() {
    for (;;) {
      Case c = product(coin(), true);
      const auto p = lowering::warpgroup_product(c.schedule, 0);
      if (p && p->tiles > p->count * tiles_there(*p)) return c;
    }
  }

  /// A sum over two loops. Of an operand one follows the other, or rows lie between them:
  /// attention's heads, which the next projection adds up over.
  Case sum_of_two() {
    const bool batch = coin(), left_across = coin(), right_across = coin(), left_apart = coin();
    const std::int64_t h = number(2, 5), v = 64 * number(1, 2), m = 8 * number(1, 26),
                       n = 8 * number(1, 26), heads = coin() ? number(1, h - 1) : h;
    // Between both loops, around both, or within both.
    const auto lies = [](bool across, bool apart, const std::string& row) {
      return across ? (apart ? "h," + row + ",v" : "h,v," + row)
                    : (apart ? "h," + row + ",v" : row + ",h,v");
    };
    const std::string b = batch ? "b," : "", type = number(0, 2) == 0 ? "bf16" : "f16";
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{{}h: {}, v: {}, m: {}, \"n\": {}}}\noperators:\n"
        "  - C[{}m,n] += A[{}{}] * B[{}]\n",
        type, batch ? "b: 2, " : "", h, v, m, n, b, b, lies(left_across, left_apart, "m"),
        (coin() ? b : "") + lies(right_across, !left_apart || coin(), "n"));
    const std::string loads =
        formatted("h/1 ( v/{} ( L.A L.B C.C ) )", std::min<std::int64_t>(v, 64 * number(1, 2)));
    return make_case(yaml,
                     formatted("{}m/{}@grid n/{}@grid ( {} S.C )", batch ? "b/1@grid " : "",
                               std::min<std::int64_t>(m, 64 * number(1, 2)),
                               std::min<std::int64_t>(n, 64 * number(1, 2)),
                               heads < h ? formatted("h/{}@cluster ( {} )", heads, loads) : loads),
                     ceil_div(h, heads) * number(1, 3));
  }

  /// Lines of points, of which a tile has several whole ones, or one where lines begin at no
  /// multiples of 16 bytes: followed by operators, or with sums that a cluster shares, or neither.
  Case image() {
    std::int64_t y = 0, x = 0, lines = 0;
    const bool batch = coin(), follow = coin();
    // Operators that read elements need registers.
    while (y * x % 8 != 0 || (lines < 2 && x % 8 == 0) || lines > y ||
           (lines < y && lines * x % 8 != 0) || lines * x > (follow ? 128 : 256) || y < 2)
      y = number(2, 24), x = number(2, 60), lines = number(1, 9);
    const std::int64_t m = number(1, 150), k = 8 * number(9, 40), share = !follow && coin() ? 2 : 1,
                       part = share == 1 ? k : ceil_div(ceil_div(k, share), 64) * 64;
    const std::string b = batch ? "b," : "", type = number(0, 2) == 0 ? "bf16" : "f16";
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{{}m: {}, k: {}, y: {}, x: {}}}\noperators:\n"
        "  - C[{}m,y,x] += A[m,k] * B[{}k,y,x]\n{}",
        type, batch ? "b: 2, " : "", m, k, y, x, b, b,
        follow ? formatted("  - D[{0}m,y,x] = relu(C[{0}m,y,x] + r[m,y,x] * s[m])\n", b)
               : std::string());
    const std::string loads = formatted("k/{} ( L.A L.B C.C )", std::min(part, 32 * number(1, 4)));
    Case made =
        make_case(yaml,
                  formatted("{}m/{}@grid y/{}@grid x/{}@grid ( {} {} )", batch ? "b/1@grid " : "",
                            std::min<std::int64_t>(m, 64 * number(1, 2)), lines, x,
                            share == 1 ? loads : formatted("k/{}@cluster ( {} )", part, loads),
                            follow ? "C.D S.D" : "S.C"),
                  share * number(1, 3));
    made.joins = share > 1;
    return made;
  }

  /// A product and operators of its elements, which read rows, columns, elements, parts of larger
  /// tensors, and the same of all products.
  Case followed(bool turned) {
    const bool batch = coin(), across = coin(), even = coin();
    const std::int64_t m = number(1, 150), n = even || across ? 8 * number(1, 18) : number(1, 150),
                       k = 8 * number(1, 24);
    static constexpr const char* kReads[][2] = {
        {"b[n]", "add"},       {"b[m]", "mul"},     {"b[m,n]", "add"}, {"b[g,m,n]", "add"},
        {"b[g,n]", "add"},     {"b[m,n+6]", "sub"}, {"b[0]", "mul"},   {"b[n,m]", "max"},
        {"b[m+3,g,n]", "add"}, {"b[g]", "add"}};
    static constexpr const char* kChanges[] = {
        "gelu(V)",     "relu(V)", "tanh(V)", "V * sigmoid(V)", "select(lt(m, n), 0.5, V)",
        "V * V - 0.25"};
    const std::string all = batch ? "g,m,n" : "m,n";
    std::string operators, names, last = "C";
    const std::int64_t count = number(1, 3);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& [access, by] = kReads[number(0, std::ssize(kReads) - 1)];
      std::string from = access;
      if (!batch && from.find('g') != std::string::npos) from = "b[n]";
      from[0] = static_cast<char>('r' + i);
      operators += formatted("  - D{}[{}] = {}({}[{}], {})\n", i, all, by, last, all, from);
      std::string change = kChanges[number(0, std::ssize(kChanges) - 1)];
      for (std::size_t at; (at = change.find('V')) != std::string::npos;)
        change.replace(at, 1, formatted("D{}[{}]", i, all));
      operators += formatted("  - E{}[{}] = {}\n", i, all, change);
      names += formatted("C.D{} C.E{} ", i, i);
      last = formatted("E{}", i);
    }
    const bool bfloat = number(0, 2) == 0, wide = coin();
    const std::string type = bfloat ? "bf16" : "f16";
    const std::string yaml = formatted(
        "name: drawn\ndtype: {}\nloops: {{m: {}, \"n\": {}, k: {}{}}}\ndtypes: {{{}: {}{}}}\n"
        "operators:\n  - C[{}] += A[{}m,k] * B[{}]\n{}",
        type, m, n, k, batch ? ", g: 2" : "", last, coin() ? "f32" : type, wide ? ", r: f32" : "",
        all, batch ? "g," : "", across ? "k,n" : "n,k", operators);
    const std::int64_t rows = turned ? 16 + 32 * number(0, 3) : 64 * number(1, 2),
                       columns = turned || across ? 64 * number(1, 2) : 16 * number(1, 9);
    return make_case(yaml,
                     formatted("{}m/{}@grid n/{}@grid ( k/{} ( L.A L.B C.C ) {}S.{} )",
                               batch ? "g/1@grid " : "", std::min(m, rows), std::min(n, columns),
                               std::min<std::int64_t>(k, 64 * number(1, 2)), names, last),
                     number(1, 3));
  }
};

TEST(Warpgroups, ComputeMoveWhatExactCountsAndAreClean) {
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const int count = cases != nullptr ? std::atoi(cases) : 16;
  RecordProperty("seed", std::to_string(kSeed));
  Draw draw(kSeed);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  for (int i = 0; i < count; ++i) {
    drawn.push_back(i % 8 == 3    ? draw.image()
                    : i % 16 == 9 ? draw.past_an_end()
                    : i % 8 == 6  ? draw.sum_of_two()
                                  : draw.product(i % 4 == 0, i % 8 == 1 || i % 8 == 4,
                                                 i % 8 >= 5 || i % 8 == 0));
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.stages = draw.coin() || drawn.back().joins ? 0 : 2,
                                        .warpgroups = true,
                                        .prefix = "k" + std::to_string(i)}));
    EXPECT_EQ(sources.back().micro_kernel, "wgmma") << drawn.back().text;
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  int clusters = 0, turned = 0, shared = 0, past = 0, lines = 0, folded = 0;
  for (int i = 0; i < count; ++i) {
    const Case& c = drawn[static_cast<std::size_t>(i)];
    const auto run = testing::run_cuda(*module, sources[static_cast<std::size_t>(i)], *c.workload,
                                       kSeed, {.turns = static_cast<std::uint64_t>(i % 3)});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    const DType out = c.workload->tensor(c.workload->outputs().front()).dtype;
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    ASSERT_TRUE(product.ok()) << c.text;
    // In f16 and bf16 the reference rounds what one operator passes to the next.
    const bool rounded = !product->epilogue.operators.empty();
    EXPECT_LT(run->error, out == DType::f32   ? 1e-5
                          : out == DType::f16 ? (rounded ? 4e-3 : 1e-3)
                                              : (rounded ? 3e-2 : 8e-3))
        << c.text;
    auto said = testing::sm_bytes(c.schedule);
    if (product->columns_apart < product->tile_columns) {
      // Boxes of whole 64 columns bring some of the next tile's, too.
      ++lines;
      std::int64_t columns = 0;
      for (std::int64_t at = 0; at < product->columns; at += product->columns_apart)
        columns += std::min<std::int64_t>(product->tile_columns, product->columns - at);
      const std::int64_t bytes = 2 * product->count * product->depth * columns *
                                 ceil_div(product->rows, std::int64_t{product->tile_rows()});
      EXPECT_GE(bytes, said["B"].first) << c.text;
      said["B"].first = bytes;
    }
    // Blocks of tiles past an end get what their cluster shares, too.
    const std::int64_t down = ceil_div(product->rows, std::int64_t{product->tile_rows()}),
                       across = product->tiles_across();
    past += product->tiles > product->count * tiles_there(*product);
    const auto shared_by = [&](TensorId t, std::int64_t tiles, std::int64_t of_cluster) {
      std::int64_t& bytes = said[c.workload->tensor(t).name].first;
      bytes = bytes / tiles * round_up(tiles, of_cluster);
    };
    shared_by(product->left, across, product->across);
    shared_by(product->right, down, product->down);
    EXPECT_EQ(testing::text(run->bytes), testing::text(said)) << c.text;
    const cuda_host::LaunchCounts& counts = run->report.launches.back();
    EXPECT_GT(counts.wgmma, 0) << c.text;
    clusters += counts.cluster_read > 0;
    shared += counts.cluster_syncs > 0 && counts.cluster_read == 0;
    EXPECT_EQ(counts.cluster_read, product->cluster_bytes()) << c.text;
    // Pieces of four elements go: of lines of other lengths `exact` has less.
    const std::int64_t of_others = exact(c.schedule).total("cluster/shared").read.value;
    if ((product->turned ? product->rows : product->columns) % 4 == 0 &&
        product->columns_apart % 4 == 0)
      EXPECT_EQ(counts.cluster_read, of_others) << c.text;
    else
      EXPECT_GE(counts.cluster_read, of_others) << c.text;
    turned += product->turned;
    folded += product->left_fold + product->right_fold > 0;
  }
  EXPECT_GE(folded, count / 16);
  EXPECT_GT(clusters, count / 8);
  EXPECT_GE(turned, count / 8);
  EXPECT_GE(shared, count / 16);
  EXPECT_GE(past, count / 16);
  EXPECT_GE(lines, count / 16);
}

/// A 1 x 1 convolution is a product though its window has loops. Of two launches the second copies
/// its weights before the first has ended, and what the first writes after that.
TEST(Warpgroups, ConvolutionsOfOneElementAreProducts) {
  auto w = std::make_shared<const Workload>(workload_from_yaml(
      "name: drawn\ndtype: f16\nloops: {o: 72, c: 96, p: 64, y: 3, x: 40, r: 1, s: 1}\n"
      "tensors: {X: [96, 3, 40], W: [72, 96, 1, 1], M: [72, 3, 40], V: [64, 72], Y: [64, 3, 40]}\n"
      "operators:\n  - one: M[o,y,x] += X[c,y+r,x+s] * W[o,c,r,s]\n"
      "  - two: Y[p,y,x] += M[o,y,x] * V[p,o]\n",
      "drawn"));
  Kernel one{.name = "one"}, two{.name = "two"};
  one.tree = parse_tree("o/64@grid y/1@grid x/40@grid ( c/64 ( C.one ) S.M )");
  two.tree = parse_tree("p/64@grid y/1@grid x/40@grid ( o/64 ( C.two ) S.Y )");
  auto s = resolve({.kernels = {one, two}}, w, testing::h200_of(4));
  ASSERT_TRUE(s.ok()) << s.reason();
  const auto source = cuda::emit(*s, {.warpgroups = true});
  ASSERT_TRUE(source.ok()) << source.reason();
  EXPECT_EQ(source->micro_kernel, "wgmma, wgmma");
  // Which operands come before the launch before has ended.
  const auto before = [&](int kernel) {
    const std::size_t at = source->text.find("tilewright_" + std::to_string(kernel) + "(");
    const std::size_t end = source->text.find(">;", at);
    return source->text.substr(end - 21, 21);
  };
  EXPECT_EQ(before(0), "false, false, 0, 0, 0");
  EXPECT_EQ(before(1), " true, false, 2, 0, 0");
  const auto module = testing::build_cuda({*source});
  ASSERT_TRUE(module.ok()) << module.reason();
  const auto run = testing::run_cuda(*module, *source, *w, kSeed, {});
  ASSERT_TRUE(run.ok()) << run.reason();
  EXPECT_TRUE(run->report.clean()) << run->report.findings.front().text;
  EXPECT_LT(run->error, 2e-3);
  EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(*s)));
}

TEST(Warpgroups, OperatorsOfElementsFollowAProduct) {
  const char* const cases = std::getenv("TILEWRIGHT_CASES");
  const int count = cases != nullptr ? std::atoi(cases) : 8;
  Draw draw(kSeed + 1);
  std::vector<Case> drawn;
  std::vector<cuda::Source> sources;
  for (int i = 0; i < count; ++i) {
    drawn.push_back(draw.followed(i % 3 == 0));
    sources.push_back(testing::emitted(drawn.back().schedule,
                                       {.warpgroups = true, .prefix = "k" + std::to_string(i)}));
    ASSERT_EQ(sources.back().micro_kernel, "wgmma")
        << drawn.back().text << sources.back().program.back();
  }
  const auto module = testing::build_cuda(sources);
  ASSERT_TRUE(module.ok()) << module.reason();
  int turned = 0, pairs = 0;
  for (int i = 0; i < count; ++i) {
    const Case& c = drawn[static_cast<std::size_t>(i)];
    const auto run = testing::run_cuda(*module, sources[static_cast<std::size_t>(i)], *c.workload,
                                       kSeed, {.turns = static_cast<std::uint64_t>(i % 3)});
    ASSERT_TRUE(run.ok()) << c.text << run.reason();
    EXPECT_TRUE(run->report.clean()) << c.text << "\n" << run->report.findings.front().text;
    const DType out = c.workload->tensor(c.workload->outputs().front()).dtype;
    // In f16 and bf16 the reference rounds what one operator passes to the next.
    const bool bfloat = c.workload->dtype() == DType::bf16 || out == DType::bf16;
    EXPECT_LT(run->error, bfloat ? 3e-2 : 4e-3) << c.text;
    EXPECT_EQ(testing::text(run->bytes), testing::text(testing::sm_bytes(c.schedule))) << c.text;
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    turned += product->turned;
    for (const lowering::EpilogueRead& r : product->epilogue.reads) pairs += r.pairs;
  }
  EXPECT_GT(turned, 0);
  EXPECT_GT(pairs, 0);
}

TEST(Warpgroups, OperatorsThatCannotFollowAProductAreSaid) {
  const auto reason = [&](const std::string& operators, const std::string& tree) {
    const Case c = make_case(
        "name: drawn\ndtype: f16\nloops: {m: 128, \"n\": 64, k: 64}\noperators:\n"
        "  - C[m,n] += A[m,k] * B[n,k]\n" +
            operators,
        tree, 132);
    const auto product = lowering::warpgroup_product(c.schedule, 0);
    return product ? std::string("none") : product.reason();
  };
  const std::string sum = "m/64@grid ( k/64 ( C.C ) ";
  EXPECT_EQ(reason("  - D[m,n] = C[m,n] + b[n]\n", sum + "C.D S.D )"), "none");
  EXPECT_EQ(reason("  - D[m] += C[m,n]\n", sum + "C.D S.D )"),
            "a tensor has fewer than two dimensions");
  EXPECT_EQ(reason("  - D[m,n] = C[m,n] + A[m,n]\n", sum + "C.D S.D )"),
            "tensor A is an operand, and is read after it");
  EXPECT_EQ(reason("  - D[m,n] = C[m,n] + b[2*n]\n", sum + "C.D S.D )"),
            "tensor b is indexed by more than loops");
  EXPECT_EQ(reason("  - D[m,n] = C[m,n] + 1\n  - E[m,n] = C[m,n] * 2\n", sum + "C.D C.E S.D S.E )"),
            "it has several results");
}

TEST(Warpgroups, ClustersThatNobodyCanHaveAreMakeshifts) {
  const std::string yaml =
      "name: drawn\ndtype: f16\nloops: {m: 384, \"n\": 64, k: 64}\n"
      "operators:\n  - C[m,n] += A[m,k] * B[n,k]\n";
  const auto makeshift = [&](const std::string& tree, int blocks, bool warpgroups) {
    const Schedule schedule = make_case(yaml, tree, 132, {.cluster = blocks}).schedule;
    const auto source = cuda::emit(schedule, {.warpgroups = warpgroups});
    const auto own = cuda::emit(schedule, {.warpgroups = warpgroups, .own_form = true});
    EXPECT_EQ(own.ok(), source.ok() && !source->makeshift);
    return !source.ok() ? source.reason() : source->makeshift ? source->makeshift->text : "none";
  };
  // Three tiles of rows make no cluster of four.
  const std::string tree = "m/128@grid n/64@grid ( k/64 ( L.A L.B C.C ) S.C )";
  const std::string without = "its blocks run without clusters";
  EXPECT_NE(makeshift(tree, 4, true).find(without), std::string::npos) << makeshift(tree, 4, true);
  EXPECT_NE(makeshift(tree, 2, false).find(without), std::string::npos);
  // But of two, of which the last has one tile past the end.
  EXPECT_EQ(makeshift(tree, 2, true), "none");
  EXPECT_EQ(makeshift("m/96@grid n/64@grid ( k/64 ( L.A L.B C.C ) S.C )", 2, true), "none");
}

TEST(Warpgroups, EachWaitThatIsLeftOutIsFound) {
  // Each way of writing results, of clusters and of blocks alone; blocks of several tiles, rings
  // shorter than the depth.
  testing::BarriersLeftOut barriers;
  const std::string alone = "k/64 ( L.A L.B C.C )", shared = "k/192@cluster ( " + alone + " )";
  const std::string follows = "  - D[m,n] = C[m,n] + r[m,n]\n";
  for (const auto& [tile, n, depth, sms, blocks, after] :
       {std::tuple("m/128@grid n/64@grid", 192, alone, 2, 2, std::string()),
        std::tuple("m/64@grid n/64@grid", 136, alone, 4, 4, std::string()),
        std::tuple("m/128@grid n/64@grid", 77, alone, 1, 1, std::string()),
        std::tuple("m/128@grid n/64@grid", 77, shared, 2, 1, std::string()),
        std::tuple("m/80@grid n/64@grid", 136, alone, 1, 1, follows),
        std::tuple("m/48@grid n/128@grid", 141, shared, 2, 1, std::string())}) {
    const Case c =
        make_case(formatted("name: drawn\ndtype: f16\nloops: {{m: 150, \"n\": {}, k: 264}}\n"
                            "operators:\n  - C[m,n] += A[m,k] * B[n,k]\n{}",
                            n, after),
                  formatted("{} ( {} {} )", tile, depth, after.empty() ? "S.C" : "C.D S.D"), sms,
                  {.cluster = blocks});
    const cuda::Source source = testing::emitted(c.schedule, {.stages = 2, .warpgroups = true});
    const auto module = testing::build_cuda({source});
    ASSERT_TRUE(module.ok()) << module.reason();
    barriers.look(*module, source, *c.workload, kSeed, c.text);
  }
  barriers.print();
  using Left = testing::BarriersLeftOut;
  EXPECT_GE(barriers.barriers(), 28);
  EXPECT_EQ(
      barriers.count(Left::wrong) + barriers.count(Left::idle) + barriers.count(Left::doubled), 0);
}

// Tiles of one warpgroup: two blocks have room on an SM. Where each has an SM for itself and a deep
// sum, a ring that would be short takes all of the memory, and so does each that has clusters.
TEST(Warpgroups, BlocksAloneOnAnSmHaveLongRingsForDeepSums) {
  const auto product = [](int columns, std::int64_t depth, std::int64_t sms, int blocks = 1) {
    const Case c =
        make_case(formatted("name: drawn\ndtype: f16\nloops: {{m: 512, \"n\": 512, k: {}}}\n"
                            "operators:\n  - C[m,n] += A[m,k] * B[k,n]\n",
                            depth),
                  formatted("m/64@grid n/{}@grid ( k/64 ( L.A L.B C.C ) S.C )", columns), sms,
                  {.cluster = blocks});
    const auto found = lowering::warpgroup_product(c.schedule, 0);
    EXPECT_TRUE(found.ok()) << found.reason();
    return *found;
  };
  const auto alone = product(128, 2048, 32), beside = product(128, 2048, 31);
  EXPECT_EQ(alone.resident, 1);
  EXPECT_EQ(alone.stages, 8);
  EXPECT_EQ(alone.grid, 32);
  EXPECT_EQ(beside.resident, 2);
  EXPECT_EQ(beside.stages, 4);
  EXPECT_EQ(product(128, 512, 32).resident, 2);  // not deep
  EXPECT_EQ(product(64, 2048, 64).resident, 2);  // six stages suffice
  // 128 SMs have 15 clusters of 8 at the same time, 64 have 7.
  const auto clusters = product(64, 2048, 128, 8);
  EXPECT_EQ(clusters.resident, 1);
  EXPECT_EQ(clusters.stages, 12);
  EXPECT_EQ(product(64, 2048, 64, 8).resident, 2);
}

/// Boxes have 64 columns where rows run along them; instructions take what there is.
TEST(Warpgroups, ATileOfAllColumnsComputesTheseAlone) {
  const auto product = [](int columns) {
    const Case c = make_case(
        "name: drawn\ndtype: f16\nloops: {m: 384, \"n\": 144, k: 512}\n"
        "operators:\n  - C[m,n] += A[m,k] * B[k,n]\n",
        formatted("m/192@grid n/{}@grid ( k/64 ( L.A L.B C.C ) S.C )", columns), 8);
    const auto found = lowering::warpgroup_product(c.schedule, 0);
    EXPECT_TRUE(found.ok()) << found.reason();
    return *found;
  };
  const auto all = product(144), some = product(128);
  EXPECT_FALSE(all.turned);
  EXPECT_EQ(all.tile_columns, 144);
  EXPECT_EQ(all.stage_bytes(), (192 + 192) * 128);
  EXPECT_TRUE(all.boxed);
  EXPECT_EQ(some.tile_columns, 128);
}

TEST(Warpgroups, SpillNothingInTilesOfEverySize) {
  if (cuda::find_nvcc().empty()) GTEST_SKIP() << "no nvcc here";
  cuda::Source all{.file_name = "all.cu"};
  for (const int share : {1, 2, 8})
    for (const int rows : {64, 128, 192, 256})
      for (const int columns : {64, 128, 192, 256}) {
        const bool across = (rows + columns) / 64 % 2 == 0;
        if (share == 8 && across) continue;
        const std::string steps = "k/64 ( L.A L.B C.C )";
        const Case c = make_case(
            formatted("name: drawn\ndtype: f16\nloops: {{m: 1000, \"n\": 1000, k: 1024}}\n"
                      "dtypes: {{C: {}}}\noperators:\n  - C[m,n] += A[{}] * B[{}]\n",
                      across ? "f32" : "f16", across ? "k,m" : "m,k", across ? "n,k" : "k,n"),
            formatted("m/{}@grid n/{}@grid ( {} S.C )", rows, columns,
                      share == 1 ? steps : formatted("k/{}@cluster ( {} )", 1024 / share, steps)),
            132);
        const auto product = lowering::warpgroup_product(c.schedule, 0);
        if (!product) {
          EXPECT_GT(rows * columns, 192 * 192) << product.reason();
          continue;
        }
        const cuda::Source one = testing::emitted(
            c.schedule,
            {.warpgroups = true, .prefix = formatted("tile_{}_{}_{}", rows, columns, share)});
        testing::add_kernel(all, one);
      }
  EXPECT_EQ(all.launches.size(), 13u + 13u + 6u);
  // Turned: the largest tiles of each number of warpgroups.
  for (const auto& [rows, columns, wide, share] :
       {std::tuple(240, 64, false, 1), std::tuple(240, 128, true, 1),
        std::tuple(176, 256, false, 1), std::tuple(176, 256, true, 1),
        std::tuple(112, 256, false, 2), std::tuple(176, 192, false, 1),
        std::tuple(80, 192, true, 2)}) {
    const Case c = make_case(
        formatted("name: drawn\ndtype: f16\nloops: {{m: 1000, \"n\": 1000, k: 1024}}\n"
                  "dtypes: {{C: {}}}\noperators:\n  - C[m,n] += A[m,k] * B[k,n]\n",
                  wide ? "f32" : "f16"),
        formatted("m/{}@grid n/{}@grid ( {} S.C )", rows, columns,
                  share == 1 ? "k/64 ( L.A L.B C.C )" : "k/512@cluster ( k/64 ( L.A L.B C.C ) )"),
        132);
    const cuda::Source one = testing::emitted(
        c.schedule,
        {.warpgroups = true, .prefix = formatted("turned_{}_{}_{}", rows, columns, wide)});
    ASSERT_EQ(one.micro_kernel, "wgmma") << c.text;
    testing::add_kernel(all, one);
  }
  // Followed by operators: the largest tiles, both ways.
  for (const auto& [rows, columns, after, whole] :
       {std::tuple(128, 256, 1, true), std::tuple(256, 128, 1, true), std::tuple(128, 192, 2, true),
        std::tuple(128, 128, 2, false), std::tuple(112, 128, 3, false)}) {
    static constexpr const char* kText[] = {
        "  - D[m,n] = C[m,n] + b[n]\n  - E[m,n] = gelu(D[m,n])\n", "  - F[m,n] = E[m,n] + r[m,n]\n",
        "  - G[m,n] = F[m,n] * s[m]\n"};
    static constexpr const char* kTree[] = {"C.D C.E S.E", "C.D C.E C.F S.F",
                                            "C.D C.E C.F C.G S.G"};
    std::string text = formatted(
        "name: drawn\ndtype: f16\nloops: {{m: {}, \"n\": {}, k: 1024}}\noperators:\n"
        "  - C[m,n] += A[m,k] * B[k,n]\n",
        whole ? 4 * rows : 1000, whole ? 4 * columns : 1000);
    for (int i = 0; i < after; ++i) text += kText[i];
    const Case c = make_case(text,
                             formatted("m/{}@grid n/{}@grid ( k/64 ( L.A L.B C.C ) {} )", rows,
                                       columns, kTree[after - 1]),
                             132);
    const cuda::Source one = testing::emitted(
        c.schedule, {.warpgroups = true, .prefix = formatted("followed_{}_{}", rows, columns)});
    ASSERT_EQ(one.micro_kernel, "wgmma") << c.text;
    testing::add_kernel(all, one);
  }
  testing::expect_no_spills(all);
}

}  // namespace
}  // namespace tilewright
