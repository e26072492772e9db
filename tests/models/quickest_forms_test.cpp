// The planner's time model on processors: does the price follow the forms that the CPU target
// emits?
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/lowering/cache_sets.h"
#include "core/lowering/window_points.h"
#include "core/lowering/window_transform.h"
#include "core/machine/written.h"
#include "core/plan/names.h"
#include "core/workload/text.h"
#include "models/quickest/quickest.h"

namespace tilewright {
namespace {

using quickest::KernelTime;

Machine machine() { return named_machine("epyc-zen5"); }

KernelTime time_of(const std::string& loops, const std::string& operators, const char* tree,
                   Machine of = machine(), int threads = 1) {
  Question q{.workload = std::make_shared<const Workload>(workload_from_yaml(
                 "name: t\nloops: {" + loops + "}\noperators: [" + operators + "]\n", "test"))};
  q.machine = std::make_shared<const Machine>(std::move(of));
  q.threads = threads;
  Kernel k{.name = "k", .level = "L1", .tree = parse_tree(tree)};
  const auto s = resolve({.kernels = {k}}, q.workload, q.machine);
  EXPECT_TRUE(s.ok()) << tree << (s.ok() ? "" : ": " + s.reason());
  return quickest::kernel_time(*s, s->kernels[0], quickest::rates_of(q).value());
}

Machine with_small_l1() {
  Machine m = machine();
  for (Level& l : m.levels)
    if (l.name == "L1") l.capacity = Bytes(32 << 10), l.ways = 8;
  return m;
}

/// Rows of 640 bytes: of a cache of 32 KiB and 8 ways, 24 of them take half of each set at most, 49
/// take more of some, and are packed. Their distance alone would say that both spread.
TEST(PriceOfForms, WhatSharesSetsIsPacked) {
  const auto spreads = [](std::int64_t rows) {
    return spreads_over_sets({.shape = {871, 160}, .extents = {rows, 80}}, false);
  };
  EXPECT_TRUE(spreads(24));
  EXPECT_FALSE(spreads(49));
  const Machine m = with_small_l1();
  const auto packing = [&](const char* tree) {
    return time_of("m: 16, \"n\": 160, k: 871", "\"C[m,n] += A[m,k] * B[k,n]\"", tree, m).packing;
  };
  EXPECT_EQ(packing("m/4 n/80 k/24 ( C.C )"), 0);
  EXPECT_GT(packing("m/4 n/80 k/49 ( C.C )"), 0);
}

/// A panel that is larger than the cache does not stay however it lies: that a set has a few lines
/// more than others is no reason to pack it. Rows that all share a few sets are one.
TEST(PriceOfForms, WhatDoesNotStayNeedNotSpreadEvenly) {
  const auto spreads = [](std::int64_t row) {
    return spreads_over_sets({.shape = {1264, row}, .extents = {1264, 64}, .ways = 12}, false);
  };
  EXPECT_TRUE(spreads(96));
  EXPECT_FALSE(spreads(1024));
}

/// A right operand whose columns are no neighbours is turned before it is read: once for all that
/// it does not depend on, but not beyond what threads share.
TEST(PriceOfForms, TurnedOperandsArePackedOnceAShare) {
  const auto packing = [](const char* tree, int threads) {
    return time_of("b: 3, m: 96, \"n\": 160, k: 64", "\"C[b,m,n] += A[b,m,k] * B[b,n,k]\"", tree,
                   machine(), threads)
        .packing;
  };
  EXPECT_EQ(
      time_of("m: 96, \"n\": 160, k: 64", "\"C[m,n] += A[m,k] * B[k,n]\"", "m/96 ( C.C )").packing,
      0);
  const double once = packing("b/1 m/96 ( C.C )", 1);
  EXPECT_GT(once, 0);
  EXPECT_NEAR(packing("b/1 m/12 ( C.C )", 1) / once, 1, 0.01);
  EXPECT_NEAR(packing("m/12 b/1 ( C.C )", 1) / once, 8, 0.01);
  // Two threads have half of the blocks each, and pack for each of them; or once for a share.
  EXPECT_NEAR(packing("m/12@grid b/1 ( C.C )", 2) / once, 4, 0.01);
  EXPECT_NEAR(packing("m/48@grid b/1 m/12 ( C.C )", 2) / once, 1, 0.01);
}

/// A row is begun besides its lines: 8 tiles of columns and rows, 871 rows of five lines each.
TEST(PriceOfForms, RowsThatArePackedBegin) {
  Machine m = with_small_l1();
  m.units.front().cycles["copy"] = 4, m.units.front().cycles["copy_row"] = 8;
  const KernelTime t = time_of("m: 16, \"n\": 160, k: 871", "\"C[m,n] += A[m,k] * B[k,n]\"",
                               "m/4 n/80 k/49 ( C.C )", m);
  EXPECT_NEAR(t.packing * m.units.front().clock_hz / (8 * 871 * (5 * 4 + 8)), 1, 0.02);
}

/// Panels of a right operand that does not stay in a cache are begun in memory by each tile whose
/// depth is cut, unless the next tile goes on in the same panel. On a Zen 4 4096 x 4096 weights
/// took 2.1 ms in one piece and 4.9 ms in tiles of 64 x 32.
TEST(PriceOfForms, PanelsOfACutDepthBegin) {
  std::mt19937 random(4071);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 8; ++i) {
    const int n = 512 * draw(10, 16), k = 256 * draw(48, 64), step = 32 * draw(1, 4);
    const auto seconds = [&](int columns, int depth, const std::string& tree) {
      return time_of(formatted("\"n\": {}, k: {}", columns, depth), "\"C[n] += A[k] * B[k,n]\"",
                     tree.c_str())
          .seconds;
    };
    const std::string in_columns = formatted("n/32 k/{} ( C.C )", step),
                      in_depth = formatted("k/{} n/32 ( C.C )", step);
    const double goes_on = seconds(n, k, in_columns), begins = seconds(n, k, in_depth);
    EXPECT_GT(begins, 1.15 * goes_on) << n << " x " << k << ": " << in_depth;
    EXPECT_GT(begins, seconds(n, k, formatted("k/{} n/32 ( C.C )", 4 * step)));
    // What the caches keep begins nowhere.
    EXPECT_NEAR(seconds(128, 256, in_depth) / seconds(128, 256, in_columns), 1, 0.1);
  }
}

/// What is written comes in and goes back at the rate that the machine's file has.
TEST(PriceOfForms, WritingHasARateOfItsOwn) {
  Machine m = machine();
  ASSERT_EQ(key_of_writing(m, m.home()), "write_dram");
  const auto waiting = [&](double cycles) {
    m.units.front().cycles["write_l2"] = cycles;
    return time_of("i: 4096, j: 16", "\"Y[i,j] = X[i,j] + 1\"", "i/4096 ( C.Y )", m)
        .waiting.front();
  };
  const double once = waiting(2), twice = waiting(4);
  const double lines = 4096 * 16 * 4 / 64.0;
  EXPECT_NEAR((twice - once) * m.units.front().clock_hz, 2 * lines, 0.02 * lines);
}

/// Where points are broadcast, rows of them are one tile even where these lie apart in the output:
/// narrower tiles cost little more.
TEST(PriceOfForms, RowsOfBroadcastPointsNeedNotFollowOneAnother) {
  const auto seconds = [](const std::string& channels, const char* tree) {
    return time_of("o: " + channels + ", h: 16, w: 18, c: 16, r: 3, s: 3",
                   "\"Y[o,h,w] += X[c,h+r,w+s] * K[o,c,r,s]\"", tree)
        .seconds;
  };
  // Of two vectors of channels nine points are a block; one vector takes up to 28 at once.
  EXPECT_LT(seconds("32", "h/4 w/9 ( C.Y )"), 1.2 * seconds("32", "h/4 w/18 ( C.Y )"));
  for (const char* channels : {"16", "32"})
    EXPECT_GT(seconds(channels, "h/4 w/1 ( C.Y )"), 2 * seconds(channels, "h/4 w/18 ( C.Y )"));
}

/// Vectors cannot run along a loop whose elements lie apart: points are computed one by one.
TEST(PriceOfForms, PointsThatLieApartAreNoVectors) {
  const auto arithmetic = [](const char* tree) {
    return time_of("c: 96, s: 132", "\"S[c] += X[c,s]\"", tree).arithmetic;
  };
  EXPECT_GT(arithmetic("s/1 c/96 ( C.S )"), 4 * arithmetic("s/132 c/96 ( C.S )"));
}

/// Sums of several rows are stored one by one and read as a vector, once a tile: tiles of two rows
/// take longer than tiles of sixteen.
TEST(PriceOfForms, SumsThatAreReadTogetherWait) {
  Machine m = machine();
  m.units.front().cycles["reread"] = 60;
  const auto cycles = [&](const char* tree) {
    return time_of("i: 512, j: 64",
                   "\"S[i] += X[i,j]\", \"R[i] = 1 / S[i]\", \"Y[i,j] = X[i,j] * R[i]\"", tree, m)
               .arithmetic *
           m.units.front().clock_hz;
  };
  const double two = cycles("i/2 ( C.S C.R C.Y )"), sixteen = cycles("i/16 ( C.S C.R C.Y )");
  EXPECT_GT(two - sixteen, 0.8 * 60 * (256 - 32));
}

/// Whether a pixel is in the padding is the same for all lanes of a vector along a row: a branch,
/// and no work of vectors.
TEST(PriceOfForms, WhatAllLanesShareIsNoWorkOfVectors) {
  const auto arithmetic = [](const std::string& value) {
    return time_of("i: 64, j: 256", "\"Y[i,j] = " + value + "\"", "i/64 ( C.Y )").arithmetic;
  };
  const double plain = arithmetic("X[i,j]");
  EXPECT_NEAR(arithmetic("select(lt(i, 60), X[i,j], 0)"), plain, 1e-3 * plain);
  EXPECT_GT(arithmetic("select(lt(j, 60), X[i,j], 0)"), 1.2 * plain);
}

/// Columns that a mask hides from all rows of a tile are not computed: of long rows about half are
/// left, of a window what it has. Heads that lie around products keep what follows out of
/// registers.
TEST(PriceOfForms, ColumnsThatAMaskHidesTakeNoTime) {
  const auto seconds = [](const std::string& masked, const std::string& heads = "1") {
    return time_of(
               "b: 4, m: 1024, l: 1024, k: 64, \"n\": 64",
               "\"qk: S[b,m,l] += Q[b,m,k] * K[b,l,k]\", \"masked: U[b,m,l] = " + masked +
                   "\", \"top: R[b,m] max= U[b,m,l]\", \"exp: P[b,m,l] = exp(U[b,m,l] - R[b,m])\", "
                   "\"sum: Z[b,m] += P[b,m,l]\", \"pv: O[b,m,n] += P[b,m,l] * V[b,l,n]\"",
               ("b/" + heads +
                " m/12 n/64 ( l/1024 k/64 ( C.qk ) C.masked C.top C.exp C.sum l/1024 ( C.pv ) )")
                   .c_str())
        .seconds;
  };
  const std::string causal = "select(lt(m, l), -inf, S[b,m,l])";
  const double all = seconds("select(lt(m, l), -1000, S[b,m,l])"), some = seconds(causal);
  EXPECT_GT(some, 0.48 * all);
  EXPECT_LT(some, 0.6 * all);
  const double window = seconds("select(lt(m, l), -inf, select(lt(l, m - 127), -inf, S[b,m,l]))");
  EXPECT_LT(window, 0.7 * some);
  EXPECT_GT(seconds(causal, "2"), 1.02 * some);
}

/// Points that are broadcast to vectors of rows, 3 x 3 and padded, on one core of a Zen 3 with AVX2
/// at 3.244 GHz: its steps are listed once for all groups of rows. They were priced at 1.10 to 1.14
/// of what they took (29 November 2026; microseconds of a file of the one convolution).
TEST(PriceOfForms, PointsThatAreBroadcastTakeWhatAZen3Takes) {
  struct Case {
    double rows, channels, side, microseconds;
  };
  for (const Case& c : {Case{512, 512, 7, 2370}, Case{64, 300, 10, 384.1},
                        Case{128, 129, 20, 1288.3}, Case{64, 129, 5, 36.6}}) {
    const double inside = (3 * c.side - 2) / (3 * c.side);
    const double cycles = cycles_of_points({.rows = c.rows,
                                            .width = c.side,
                                            .height = c.side,
                                            .steps = 9 * c.channels,
                                            .inside = inside * inside,
                                            .lanes = 8,
                                            .registers = 16,
                                            .multiply_add = 0.535,
                                            .near = kRowsNear * (32 << 10)});
    EXPECT_NEAR(cycles / (c.microseconds * 3244), 1, 0.06) << c.rows << " " << c.side;
  }
}

/// Taps of 3 x 3 that are transformed, on the same processor at 3.228 GHz (30 November 2026, least
/// times of one thread, other work stopped).
TEST(PriceOfForms, TransformedTapsTakeWhatAZen3Takes) {
  struct Case {
    double rows, channels, side, microseconds;
  };
  for (const Case& c : {Case{64, 16, 55, 485}, Case{160, 128, 14, 494}, Case{512, 512, 7, 1630}}) {
    const double cycles = bands_of_transformed({.rows = c.rows,
                                                .width = c.side,
                                                .height = c.side,
                                                .channels = c.channels,
                                                .lanes = 8,
                                                .registers = 16,
                                                .multiply_add = 0.521})
                              .cycles;
    EXPECT_NEAR(cycles / (c.microseconds * 3228), 1, 0.12) << c.rows << " " << c.side;
  }
}

/// Weights that change are not transformed, nor is a tile of some of the channels, or 7 x 7 taps.
TEST(PriceOfForms, TapsAreTransformedWhereTheirWeightsStay) {
  const auto arithmetic = [](bool constant, const char* tree, int taps = 3) {
    Workload w = workload_from_yaml("name: t\nloops: {o: 64, y: 28, x: 28, c: 64, r: " +
                                        std::to_string(taps) + ", s: " + std::to_string(taps) +
                                        "}\ntensors: {X: [c, 28, 28]}\noperators: [\"Y[o,y,x] += "
                                        "X[c,y+r-1,x+s-1] * W[o,c,r,s]\"]\n",
                                    "test");
    std::vector<bool> constants(w.tensors().size());
    constants[w.find_tensor("W")->index()] = constant;
    Question q{.workload = std::make_shared<const Workload>(with_constants(w, constants)),
               .machine = std::make_shared<const Machine>(machine())};
    const auto s = resolve({.kernels = {{.name = "k", .level = "L2", .tree = parse_tree(tree)}}},
                           q.workload, q.machine);
    EXPECT_TRUE(s.ok()) << tree << (s.ok() ? "" : ": " + s.reason());
    return quickest::kernel_time(*s, s->kernels[0], quickest::rates_of(q).value()).arithmetic;
  };
  const std::string whole = "o/64 y/28 x/28 ( C.Y )", part = "o/64 y/28 x/28 ( c/32 ( C.Y ) )";
  EXPECT_LT(arithmetic(true, whole.c_str()), 0.75 * arithmetic(false, whole.c_str()));
  EXPECT_DOUBLE_EQ(arithmetic(true, part.c_str()), arithmetic(false, part.c_str()));
  EXPECT_LT(arithmetic(true, whole.c_str(), 5), 0.75 * arithmetic(false, whole.c_str(), 5));
  EXPECT_DOUBLE_EQ(arithmetic(true, whole.c_str(), 7), arithmetic(false, whole.c_str(), 7));
}

/// Keys are turned before the outermost loop that does not move them, once, also where loops within
/// it cut them into parts. A tile of several heads is no one matrix, and is turned where it is
/// read.
TEST(PriceOfForms, TurnedOperandsAreTurnedOnceForLoopsThatDoNotMoveThem) {
  const auto packing = [](const char* tree) {
    return time_of("h: 4, m: 48, l: 32, k: 48", "\"S[h,m,l] += Q[h,m,k] * K[h,l,k]\"", tree)
        .packing;
  };
  const double once = packing("h/1 m/48 l/32 k/48 ( C.S )");
  EXPECT_GT(once, 0);
  for (const char* tree : {"h/1 m/6 l/32 k/48 ( C.S )", "h/1 m/6 l/8 k/48 ( C.S )",
                           "h/1 m/6 l/16 k/24 ( C.S )", "h/1 l/8 m/6 k/24 ( C.S )"})
    EXPECT_NEAR(packing(tree) / once, 1, 0.01) << tree;
  EXPECT_NEAR(packing("h/4 m/6 l/16 k/24 ( C.S )") / once, 8, 0.1);
  EXPECT_NEAR(packing("h/4 m/6 l/32 k/48 ( C.S )") / once, 8, 0.1);
}

/// As long as the file says; without its number twice as long as lines that are packed.
TEST(PriceOfForms, TurningALineHasANumberOfItsOwn) {
  Machine m = machine();
  const auto cycles = [&] {
    return time_of("m: 48, l: 32, k: 48", "\"S[m,l] += Q[m,k] * K[l,k]\"", "m/48 ( C.S )", m)
               .packing *
           m.units.front().clock_hz / (32 * 48 / 16);
  };
  m.units.front().cycles["copy"] = 5;
  m.units.front().cycles.erase("turn");
  EXPECT_NEAR(cycles(), 10, 0.01);
  m.units.front().cycles["turn"] = 3;
  EXPECT_NEAR(cycles(), 3, 0.01);
}

/// Heads that are multiplied together are turned once for each time, and as fast as one by one.
TEST(PriceOfForms, SeveralMatricesAreTurnedAsOneIs) {
  const auto whole = [](const char* tree) {
    const KernelTime t =
        time_of("h: 4, m: 48, l: 32, k: 48", "\"S[h,m,l] += Q[h,m,k] * K[h,l,k]\"", tree);
    return t.arithmetic + t.packing;
  };
  EXPECT_NEAR(whole("h/4 m/48 l/32 k/48 ( C.S )") / whole("h/1 m/48 l/32 k/48 ( C.S )"), 1, 0.05);
}

/// Sums that go on in the next tile pass beside the tile's others, and wait where there are none.
TEST(PriceOfForms, SumsOfOtherRowsPassBesideThoseOfOneStep) {
  const auto cycles_of_point = [](const char* tree) {
    return time_of("r: 64, c: 512", "\"S[r] += X[r,c]\"", tree).arithmetic *
           machine().units.front().clock_hz / (64 * 512);
  };
  EXPECT_GT(cycles_of_point("r/1 c/1 ( C.S )"), 3.9);
  EXPECT_LT(cycles_of_point("r/64 c/1 ( C.S )"), 3);
}

/// Rows of a left operand that a loop over the depth cuts wait for the last cache once for each
/// block of registers: as long as that cache takes.
TEST(PriceOfForms, RowsOfACutDepthWaitForTheLastCache) {
  Machine m = machine();
  const auto cycles = [&](double of_last_cache) {
    m.units.front().cycles["l3"] = of_last_cache;
    return time_of("m: 4096, \"n\": 64, k: 544", "\"C[m,n] += A[m,k] * B[k,n]\"",
                   "k/32 m/96 ( C.C )", m)
               .arithmetic *
           m.units.front().clock_hz;
  };
  EXPECT_NEAR(cycles(160) - cycles(60), 100.0 * (544 / 32) * (4096 / 6.0), 5e4);
}

/// Taps that a loop cuts are met point by point, and sums are loaded and stored each time.
TEST(PriceOfForms, AWindowOfSomeTapsTakesNoLess) {
  const auto whole = [](const char* tree) {
    return time_of("c: 16, y: 24, x: 48, r: 9, s: 5", "\"Y[c,y,x] += X[c,y+r,2*x+2*s] * W[c,r,s]\"",
                   tree)
        .arithmetic;
  };
  EXPECT_GT(whole("c/1 s/2 ( C.Y )"), whole("c/1 ( C.Y )"));
}

/// Operators that read nothing of one another stand in one loop where a third reads both, as in
/// kernels: nothing between them is loaded.
TEST(PriceOfForms, WhatIsMadeBesideIsInRegisters) {
  const auto arithmetic = [](const char* tree) {
    return time_of("r: 64, c: 512",
                   "\"P[r,c] = 3 * X[r,c]\", \"Q[r,c] = Y[r,c] + 1\", \"S[r,c] = P[r,c] * Q[r,c]\"",
                   tree)
        .arithmetic;
  };
  EXPECT_LT(arithmetic("r/1 ( C.P C.Q C.S )"), 0.93 * arithmetic("r/1 ( C.P ) r/1 ( C.Q C.S )"));
}

/// A depthwise convolution hands its points on from registers: an activation behind it costs no
/// more than its operations, not a walk over the image.
TEST(PriceOfForms, WhatFollowsAWindowOverEachChannelTakesItsPoints) {
  const std::string loops = "c: 64, y: 28, x: 28, r: 3, s: 3",
                    window = "\"Y[c,y,x] += X[c,y+r,x+s] * W[c,r,s]\"";
  const double alone = time_of(loops, window, "c/1 ( C.Y )").arithmetic;
  const double followed =
      time_of(loops, window + ", \"Z[c,y,x] = relu(Y[c,y,x])\"", "c/1 ( C.Y C.Z )").arithmetic;
  const double behind =
      time_of("c: 64, y: 28, x: 28", "\"Z[c,y,x] = relu(Y[c,y,x])\"", "c/1 ( C.Z )").arithmetic;
  EXPECT_GT(followed, alone);
  EXPECT_LT(followed - alone, 0.85 * behind);
}

/// Vectors that a processor computes in one pass are copied, loaded and stored in one, too:
/// recorded windows over each channel take a Zen 5 half of a Zen 4's cycles.
TEST(PriceOfForms, WindowsOverEachChannelTakeAsManyPassesAsVectors) {
  Machine zen5 = machine(), zen4 = machine();
  zen5.units.front().clock_hz = zen4.units.front().clock_hz = 4e9;
  const auto count = static_cast<double>(zen5.units.front().count);
  zen5.units.front().peak["f32"] = FlopsPerSecond(4e9 * 64 * count);
  zen4.units.front().peak["f32"] = FlopsPerSecond(4e9 * 32 * count);
  const auto cycles = [](const Machine& on) {
    return 4e9 * time_of("c: 64, y: 28, x: 28, r: 3, s: 3",
                         "\"Y[c,y,x] += X[c,y+r,x+s] * W[c,r,s]\"", "c/1 ( C.Y )", on)
                     .arithmetic;
  };
  EXPECT_LT(cycles(zen5), 0.6 * cycles(zen4));
}

/// Columns of an image whose channels are last are copied one by one; it is not walked as if they
/// lay side by side, nor point by point.
TEST(PriceOfForms, AnImageWhoseChannelsAreLastIsCopiedElementByElement) {
  const std::string loops = "c: 64, y: 28, x: 28, r: 3, s: 3";
  const auto arithmetic = [&](const char* image) {
    return time_of(loops, formatted("\"Y[c,y,x] += X[{}] * W[c,r,s]\"", image), "c/64 ( C.Y )")
        .arithmetic;
  };
  const double apart = arithmetic("y+r-1,x+s-1,c"), beside = arithmetic("c,y+r-1,x+s-1");
  EXPECT_GT(apart, 2 * beside);
  EXPECT_LT(apart, 10 * beside);
}

/// A pointwise convolution of a padded image is a window of one tap, as it is emitted: no sum of
/// single points.
TEST(PriceOfForms, PaddedImagesAreWindowsOfOneTap) {
  const auto seconds = [](const std::string& index) {
    return time_of("i: 64, y: 15, x: 15, c: 64", "\"Y[i,y,x] += X[c," + index + "] * W[i,c]\"",
                   "i/64 ( C.Y )")
        .seconds;
  };
  EXPECT_LT(seconds("y-1,x-1"), 2 * seconds("y,x"));
}

/// Rows that are normalised one at a time wait for their sum and their root; of several in a tile
/// only the last one does.
TEST(PriceOfForms, ATileWaitsOnceForItsRows) {
  const std::string
      loops = "i: 512, j: 64",
      operators =
          "\"S[i] += X[i,j]\", \"R[i] = rsqrt(S[i] * 0.01 + 1)\", \"Y[i,j] = X[i,j] * R[i]\"";
  const double one = time_of(loops, operators, "i/1 ( C.S C.R C.Y )").arithmetic;
  const double eight = time_of(loops, operators, "i/8 ( C.S C.R C.Y )").arithmetic;
  EXPECT_GT(one, 1.1 * eight);
}

/// A tile of one row of points reads its columns where they lie: further apart they are more loads.
TEST(PriceOfForms, PointsFurtherApartTakeMoreLoads) {
  const auto arithmetic = [](int step, const char* tree) {
    return time_of("c: 32, y: 18, x: 32, r: 5, s: 5",
                   formatted("\"A[c,y,x] += X[c,{0}*y + r,{0}*x + s] * W[c,r,s]\"", step), tree)
        .arithmetic;
  };
  const char* const row = "c/1 y/1 ( C.A )";
  EXPECT_NEAR(arithmetic(4, row) / arithmetic(2, row), 2, 0.2);
}

/// Steps of a sum that no vector walks wait for one another: a few pass beside other sums, a
/// thousand do not. Sums are stored once, not at each step.
TEST(PriceOfForms, LongSumsOfColumnsWait) {
  const Machine m = machine();
  const auto cycles_of_step = [&](int steps) {
    const double seconds =
        time_of(formatted("i: {}, j: 64", steps), "\"S[j] += X[i,j]\"", "j/64 ( C.S )").arithmetic;
    return seconds * m.units.front().clock_hz * 16 / (64.0 * steps);
  };
  EXPECT_LT(cycles_of_step(9), 3);
  EXPECT_GT(cycles_of_step(1000), 3.9);
}

/// What the next operator takes from registers is not stored. A file without a number for stores
/// says of an operation and of a store the same.
TEST(PriceOfForms, VectorsThatAreStoredHaveARateOfTheirOwn) {
  Machine m = machine();
  const auto cycles = [&] {
    return time_of("i: 64, j: 64", "\"T[i,j] = X[i,j] + 1\", \"Y[i,j] = relu(T[i,j])\"",
                   "i/64 ( C.T C.Y )", m)
               .arithmetic *
           m.units.front().clock_hz;
  };
  m.units.front().cycles["light"] = 0.5;
  m.units.front().cycles.erase("store");
  const double without = cycles();
  m.units.front().cycles["store"] = 0.5;
  EXPECT_NEAR(cycles(), without, 1e-3);
  m.units.front().cycles["store"] = 1.5;
  EXPECT_NEAR(cycles() - without, 64 * 64 / 16, 1e-3);
}

/// A sum of one vector waits for each of its steps; of eight steps other sums pass beside.
TEST(PriceOfForms, ShortSumsOfProductsPassBesideOneAnother) {
  const Machine m = machine();
  const auto cycles_of_step = [&](int steps) {
    return time_of(formatted("m: 64, \"n\": 16, k: {}", steps), "\"C[m,n] += A[m,k] * B[k,n]\"",
                   "m/1 ( C.C )")
               .arithmetic *
           m.units.front().clock_hz / (64.0 * steps);
  };
  EXPECT_LT(cycles_of_step(8), 3.5);
  EXPECT_GT(cycles_of_step(512), 3.9);
}

/// Rows are joined from registers where their sums stay on chip. What leaves it is summed by a pass
/// over the tile, which is written and read: 17 MB.
TEST(PriceOfForms, SumsOfRowsThatLeavePassOverTheirTile) {
  const KernelTime t =
      time_of("m: 928, \"n\": 576, k: 8", "\"D[m,n,k] = A[m,k] - B[n,k]\", \"C[m,n] += D[m,n,k]\"",
              "n/576 ( C.D C.C )");
  EXPECT_GT(t.bytes.front(), 2.0 * 928 * 576 * 8 * 4);
}

/// Rows of the left operand that a loop cuts within a line: one of the line's blocks begins it.
TEST(PriceOfForms, ARowIsBegunOnceALine) {
  const auto arithmetic = [](const char* tree) {
    return time_of("m: 4096, \"n\": 16, k: 512", "\"C[m,n] += A[m,k] * B[k,n]\"", tree).arithmetic;
  };
  EXPECT_LT(arithmetic("k/4 m/8 ( C.C )"), 2 * arithmetic("k/16 m/8 ( C.C )"));
}

/// A Zen 3, as `calibrate` measured one.
Machine zen3() {
  Machine m = with_small_l1();
  ComputeUnit& u = m.units.front();
  u.count = 1, u.registers = 16, u.vector_width = Bytes(32);
  u.clock_hz = 3.07e9, u.peak["f32"].value = 92.4e9;
  u.cycles["light"] = 0.35, u.cycles["store"] = 1.35;
  for (Level& l : m.levels) {
    if (l.name == "L1") l.bandwidth.value = 97e9;
    if (l.name == "L2") l.bandwidth.value = 69e9, l.capacity = Bytes(512 << 10);
  }
  return m;
}

/// Two groups of rows each read all of the right operand from the second cache, two lines a step,
/// which takes four fifths of their arithmetic. On a Zen 3 such tiles take 1.18 times as long as
/// those whose many groups find panels that the first of them has kept.
TEST(PriceOfForms, FewGroupsWaitForTheSecondCache) {
  const auto seconds = [](const char* tree) {
    return time_of("m: 1000, \"n\": 169, k: 512", "\"C[m,n] += A[m,k] * B[k,n]\"", tree, zen3())
        .seconds;
  };
  const double ratio = seconds("m/12 n/169 ( C.C )") / seconds("m/132 n/169 ( C.C )");
  EXPECT_GT(ratio, 1.02);
  EXPECT_LT(ratio, 1.25);
}

/// The same rows of points by vectors of every second element and by whole images, whose copies
/// have them apart: 184 and 110 us on a Zen 3.
TEST(PriceOfForms, EverySecondElementTakesShuffles) {
  const auto seconds = [](const char* tree) {
    return time_of("c: 128, y: 27, x: 27, r: 3, s: 3", "\"A[c,y,x] max= X[c,2*y + r,2*x + s]\"",
                   tree, zen3())
        .seconds;
  };
  EXPECT_GT(seconds("c/16 y/1 ( C.A )"), 1.2 * seconds("c/1 y/27 ( C.A )"));
}

}  // namespace
}  // namespace tilewright
