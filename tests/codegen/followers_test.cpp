// Operators that take a product's sums, or each other's values, from registers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "tests/codegen/kernel_support.h"
#include "tests/support/worked.h"

namespace tilewright {
namespace {

std::string chain(const std::string& between) {
  return "name: f\nloops: {m: 37, n: 21, k: 19, l: 45}\noperators:\n"
         "  - \"C[m,l] += A[m,k] * B[k,l]\"\n" +
         between + "  - \"E[m,n] += X[m,l] * D[l,n]\"\n";
}

Schedule schedule_of(const std::string& workload, const std::string& tree,
                     const std::string& tiles) {
  const auto w = std::make_shared<const Workload>(workload_from_yaml(workload, "test"));
  const Kernel k{.tree = parse_tree(tree), .tiles = parse_tiles(tiles)};
  auto s = resolve(Plan{.kernels = {k}}, w, testing::worked_machine("cache:1M/16"));
  if (!s.ok()) throw std::runtime_error(s.reason());
  return std::move(s).value();
}

/// The source for this machine's widest vectors; nothing where it has none.
std::optional<cpu::Source> source_of(const Schedule& s) {
  if (cpu::host_isa() == cpu::Isa::generic) return std::nullopt;
  auto source = cpu::emit(s);
  if (!source.ok()) throw std::runtime_error(source.reason());
  return std::move(source).value();
}

/// What the source says, for a failure's message to be short.
bool says(const cpu::Source& source, const std::string& text) {
  return source.text.find(text) != std::string::npos;
}

/// Runs the schedule on every instruction set here and compares every output with the reference.
void check(const Schedule& s) {
  std::vector<cpu::Source> sources;
  for (cpu::Isa isa : testing::isas_here()) {
    auto source = cpu::emit(s, {.isa = isa, .prefix = "k" + std::to_string(sources.size())});
    ASSERT_TRUE(source.ok()) << source.reason();
    sources.push_back(std::move(source).value());
  }
  auto kernels = cpu::build_all(sources, {.optimisation = "-O0"});
  ASSERT_TRUE(kernels.ok()) << kernels.reason();
  const Workload& w = *s.workload;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TensorValues inputs = random_inputs(w, 5);
    testing::Arrays<float> arrays(w, inputs);
    kernels.value()[i].run(arrays.pointers());
    EXPECT_LT(testing::worst_error(w, arrays, evaluate(w, inputs)), 1e-5)
        << cpu::name_of(sources[i].isa) << " " << to_text(s.resolved.kernels.front().tree);
  }
}

constexpr const char* kTree = "m l ( k ( C.C ) C.X n ( C.E ) )";

TEST(Followers, AMaskStandsInItsProductsEpilogue) {
  const Schedule s = schedule_of(chain("  - \"X[m,l] = select(lt(m + 3, l), -0.5, C[m,l])\"\n"),
                                 kTree, "m=10,l=17,k=19,n=21");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.X: X[m,l] = select(lt(m + 3, l), -0.5, C[m,l]), from registers"));
  EXPECT_TRUE(says(*source, "then<false>(after, fetch)"));
}

TEST(Followers, WhatLeavesIsStoredOnceAndReadWhereItLies) {
  // The sums in one step of the depth and in several, and what follows them.
  for (const char* const tensor : {"C", "X"})
    for (const int depth : {19, 7}) {
      const Schedule s = schedule_of(
          chain("  - \"X[m,l] = relu(C[m,l])\"\n") + fmt::format("outputs: [{}, E]\n", tensor),
          kTree, fmt::format("m=10,l=17,k={},n=21", depth));
      check(s);
      const auto source = source_of(s);
      if (!source) GTEST_SKIP() << "no vectors on this machine";
      EXPECT_TRUE(says(*source, fmt::format("// {} at L1, used where it lies", tensor)));
      EXPECT_FALSE(says(*source, "flush(t_"));
      EXPECT_EQ(says(*source, "// C.X: X[m,l] = relu(C[m,l]), from registers"), depth == 19);
    }
}

TEST(Followers, AReluStandsInItsProductsEpilogueAndNobodyStoresTheSums) {
  const Schedule s =
      schedule_of(chain("  - \"X[m,l] = relu(C[m,l])\"\n"), kTree, "m=10,l=17,k=19,n=21");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.X: X[m,l] = relu(C[m,l]), from registers"));
  EXPECT_TRUE(says(*source, "then<false>(after, fetch)"));
}

/// Rows of B more than 1 KiB apart and a depth of more than two kept panels: sums go to memory in
/// between, and what follows takes them once, when they are whole.
TEST(Followers, TakeTheSumsOfADepthThatIsCut) {
  const std::string sizes =
      "name: t\nloops: {m: 15, l: 270, k: 1109}\noperators:\n"
      "  - \"C[m,l] += A[m,k] * B[k,l]\"\n";
  const std::string relu = "  - \"Y[m,l] = relu(C[m,l]) + b[l]\"\n";
  const Schedule followed = schedule_of(sizes + relu, "m l ( k ( C.C ) C.Y )", "m=15,l=270,k=1109");
  check(followed);
  check(schedule_of(sizes + relu, "m l ( k ( C.C ) C.Y )", "m=8,l=131,k=1109"));
  check(schedule_of(sizes, "k m l ( C.C )", "m=15,l=270,k=600"));
  const auto source = source_of(followed);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "then<false>(after, fetch), kept"));
}

TEST(Followers, ReadWhatTheyNeedBesideTheSums) {
  // A vector of biases, one value a row, and a whole tile, each by its own strides.
  const Schedule s = schedule_of(
      chain(
          "  - \"Y[m,l] = max(C[m,l] + b[l], s[m])\"\n  - \"X[m,l] = Y[m,l] * C[m,l] - R[m,l]\"\n"),
      "m l ( k ( C.C ) C.Y C.X n ( C.E ) )", "m=10,l=17,k=19,n=21");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.X: X[m,l] = Y[m,l] * C[m,l] - R[m,l], from registers"));
}

/// Rows of one element, which nothing but a product walks by vectors.
TEST(Followers, BringTheVectorsThatTheyNeed) {
  check(
      schedule_of("name: t\nloops: {m: 5, l: 1, k: 7}\noperators:\n"
                  "  - \"C[m,l] += A[m,k] * B[k,l]\"\n  - \"Y[m,l] = 0.2 * C[m,l]\"\n",
                  "m ( k ( C.C ) C.Y )", "m=1,k=7"));
}

TEST(Followers, JoinRowsOfProductsAndOfWhatFollowsThem) {
  const Schedule s = schedule_of(
      chain("  - \"X[m,l] = neg(C[m,l])\"\n  - \"h[m] max= C[m,l]\"\n  - \"g[m] min= X[m,l]\"\n"
            "  - \"p[m] += X[m,l] * b[l]\"\n") +
          "  - \"q[m] = h[m] - g[m] * p[m]\"\noutputs: [E, q]\n",
      "m ( l ( k ( C.C ) C.X C.h C.g n ( C.E ) C.p ) C.q )", "m=10,l=17,k=19,n=21");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  for (const char* line :
       {"// C.h: h[m] max= C[m,l], from registers", "// C.g: g[m] min= X[m,l], from registers",
        "// C.p: p[m] += X[m,l] * b[l], from registers"})
    EXPECT_TRUE(says(*source, line));
}

/// Each addition of a row waited for the one before it: a cosine loss of 4133 x 832 took 1.3 times
/// as long. What takes more than an addition, and short rows, have one sum.
TEST(Followers, SumLongRowsInSeveralChains) {
  struct Case {
    std::string value, combine;
    std::int64_t columns;
    bool chains;
  };
  for (const Case& c : {Case{"square(x[i,j])", "+=", 301, true},
                        {"x[i,j] + y[i,j]", "max=", 301, true},
                        {"exp(x[i,j])", "+=", 301, false},
                        {"x[i,j] * y[i,j]", "+=", 63, false}}) {
    const std::string text = fmt::format(
        "name: f\nloops: {{i: 7, j: {}}}\noperators:\n  - \"P[i,j] = {}\"\n"
        "  - \"S[i] {} P[i,j]\"\n  - \"Z[i] = S[i] * 2\"\n",
        c.columns, c.value, c.combine);
    const bool cut = c.combine == "max=";
    const Schedule s = schedule_of(text, cut ? "i ( j ( C.P C.S ) C.Z )" : "i ( C.P C.S C.Z )",
                                   cut ? "i=3,j=160" : "i=3");
    if (c.chains) check(s);
    const auto source = source_of(s);
    if (!source) GTEST_SKIP() << "no vectors on this machine";
    EXPECT_TRUE(says(*source, "P[i,j], from registers")) << text;
    EXPECT_EQ(says(*source, "v1_3"), c.chains) << text;
  }
}

TEST(Followers, StayWhereTheyStandWhereThatIsNotTheSame) {
  const auto stays = [](const Schedule& s, const std::string& what) {
    check(s);
    if (const auto source = source_of(s)) {
      EXPECT_TRUE(says(*source, "// C." + what + "\n")) << what;
      EXPECT_FALSE(says(*source, what + ", from registers")) << what;
    }
  };
  const std::string relu = chain("  - \"X[m,l] = relu(C[m,l])\"\n");
  // Sums are not whole in the first block of k's, whose loop has several iterations.
  stays(schedule_of(relu, kTree, "m=10,l=17,k=8,n=21"), "X: X[m,l] = relu(C[m,l])");
  // What a row is divided by is known at the end of the row only.
  stays(schedule_of(chain("  - \"h[m] max= C[m,l]\"\n  - \"X[m,l] = C[m,l] - h[m]\"\n"),
                    "m ( k ( C.C ) C.h C.X n ( C.E ) )", "m=10,k=19,n=21"),
        "X: X[m,l] = C[m,l] - h[m]");
  // Columns of X are rows of C.
  stays(schedule_of("name: t\nloops: {m: 20, k: 7, l: 33}\noperators:\n"
                    "  - \"C[m,l] += A[m,k] * B[k,l]\"\n  - \"X[l,m] = relu(C[m,l])\"\n",
                    "m l ( k ( C.C ) C.X )", "m=10,l=17,k=7"),
        "X: X[l,m] = relu(C[m,l])");
}

/// P and Q read nothing of each other, and S reads both: one loop makes the three. Nobody who
/// follows reads H, and T is turned: they stay where they stand, and so does U, which reads T.
TEST(Followers, HaveWhatElseTheyReadMadeBeside) {
  const Schedule s = schedule_of(
      "name: f\nloops: {r: 37, c: 41}\noperators:\n"
      "  - \"P[r,c] = 3 * X[r,c]\"\n  - \"Q[r,c] = Y[r,c] + 1\"\n"
      "  - \"H[r,c] = Y[r,c] * Z[r,c]\"\n  - \"T[r,c] = 2 * W[c,r]\"\n"
      "  - \"S[r,c] = P[r,c] * Q[r,c]\"\n  - \"U[r,c] = S[r,c] - T[r,c]\"\n"
      "outputs: [H, U]\n",
      "r ( C.P C.Q C.H C.T C.S C.U )", "r=2");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.Q: Q[r,c] = Y[r,c] + 1, from registers"));
  EXPECT_TRUE(says(*source, "// C.S: S[r,c] = P[r,c] * Q[r,c], from registers"));
  EXPECT_TRUE(says(*source, "// C.H: H[r,c] = Y[r,c] * Z[r,c]\n"));
  EXPECT_TRUE(says(*source, "// C.T: T[r,c] = 2 * W[c,r]\n"));
  EXPECT_TRUE(says(*source, "// C.U: U[r,c] = S[r,c] - T[r,c]\n"));
}

TEST(Followers, StoreNothingThatTheyAloneRead) {
  const Schedule s = schedule_of(
      "name: f\nloops: {r: 5, c: 203}\noperators:\n"
      "  - \"M[r] += X[r,c]\"\n  - \"D[r,c] = X[r,c] - M[r]\"\n"
      "  - \"Q[r,c] = D[r,c] * D[r,c]\"\n  - \"V[r] += Q[r,c]\"\n"
      "  - \"Y[r,c] = D[r,c] / V[r]\"\n",
      "r ( C.M C.D C.Q C.V C.Y )", "r=2");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.Q: Q[r,c] = D[r,c] * D[r,c], from registers"));
  EXPECT_FALSE(says(*source, "store(&out0_1["));
  EXPECT_TRUE(says(*source, "store(&out0[")) << "Y reads D";
  EXPECT_TRUE(says(*source, "part0_3 += x0;")) << "a row's sum in four chains";
}

TEST(Followers, LeaveTheTileToOthersThatReadIt) {
  // C is read by F too, in a loop of its own: it has to be stored.
  const Schedule s = schedule_of(chain("  - \"X[m,l] = relu(C[m,l])\"\n") +
                                     "  - \"F[m,n] += C[m,l] * G[l,n]\"\n"
                                     "outputs: [E, F]\n",
                                 "m l ( k ( C.C ) C.X n ( C.E C.F ) )", "m=10,l=17,k=19,n=21");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "then<true>(after, fetch)"));
}

/// Rows of points that are no whole vectors: tiles of what is nowhere stored need not lie as the
/// window's sums do.
TEST(Followers, TakeAWindowsSumsWhereImagesHaveOddRows) {
  const Schedule s = schedule_of(
      "name: f\nloops: {o: 11, y: 6, x: 21, c: 6, r: 3, s: 3}\n"
      "tensors: {I: [c, 6, 21], b: [o]}\noperators:\n"
      "  - \"C[o,y,x] += I[c,y+r-1,x+s-1] * W[o,c,r,s]\"\n  - \"Y[o,y,x] = C[o,y,x] + b[o]\"\n"
      "  - \"X[o,y,x] = relu(Y[o,y,x])\"\n",
      "o ( C.C C.Y C.X )", "o=11");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.Y: Y[o,y,x] = C[o,y,x] + b[o], from registers"));
  EXPECT_TRUE(says(*source, "// C.X: X[o,y,x] = relu(Y[o,y,x]), from registers"));
  EXPECT_TRUE(says(*source, "then<false>(after, fetch)"));
}

/// A loop over two tensors joined: what stands before has the part of it that is its own.
TEST(Followers, TakeSumsOfBroadcastPointsAsTheyAreTurned) {
  // Much padding, and points that are no whole vectors. With 16 registers lines of the larger image
  // are faster.
  for (const auto& [channels, height, width, window] :
       {std::array{200, 5, 5, 3}, std::array{3, 37, 29, 7}}) {
    const Schedule s = schedule_of(
        fmt::format(
            "name: w\nloops: {{o: 64, c: {}, h: {}, w: {}, r: {}, s: {}}}\n"
            "tensors: {{I: [c, h, w], W: [o, c, r, s], b: [o], T: [o, h, w], U: [o, h, w]}}\n"
            "operators:\n  - \"T[o,h,w] += I[c,h+r-{},w+s-{}] * W[o,c,r,s]\"\n"
            "  - \"U[o,h,w] = relu(T[o,h,w] + b[o])\"\n",
            channels, height, width, window, window, window / 2, window / 2),
        "o ( C.T C.U )", "o=64");
    const auto source = source_of(s);
    if (source && (channels == 200 || cpu::host_runs(cpu::Isa::avx512))) {
      EXPECT_TRUE(says(*source, " convolve<"));
      EXPECT_TRUE(says(*source, "from registers"));
      EXPECT_TRUE(says(*source, "then<false>("));
    }
    check(s);
  }
}

TEST(Followers, TakeThePartOfAProductThatIsJoined) {
  const Schedule s = schedule_of(
      "name: f\nloops: {j: 44, m: 23, l: 45, k: 19}\ntensors: {R: [21, l], b: [m]}\noperators:\n"
      "  - \"C[m,l] += A[m,k] * B[k,l]\"\n  - \"Y[m,l] = C[m,l] + b[m]\"\n"
      "  - \"X[m,l] = relu(Y[m,l])\"\n  - \"Z[j,l] = X[j,l] + R[j-23,l]\"\n",
      "j ( k ( C.C ) C.Y C.X C.Z )", "j=10,k=19");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.Y: Y[m,l] = C[m,l] + b[m], from registers"));
  EXPECT_TRUE(says(*source, "// C.X: X[m,l] = relu(Y[m,l]), from registers"));
}

TEST(Followers, WriteAnOutputInPlace) {
  const Schedule s = schedule_of(
      "name: t\nloops: {m: 37, k: 19, l: 45}\noperators:\n"
      "  - \"C[m,l] += A[m,k] * B[k,l]\"\n  - \"X[m,l] = relu(C[m,l] + R[m,l])\"\n",
      "m l ( k ( C.C ) C.X )", "m=10,l=17,k=19");
  check(s);
  const auto source = source_of(s);
  if (!source) GTEST_SKIP() << "no vectors on this machine";
  EXPECT_TRUE(says(*source, "// C.X: X[m,l] = relu(C[m,l] + R[m,l]), from registers"));
}

/// The logarithm of a row's sum is a library's call, lane by lane: rows compute it once, whether
/// the operator passes over its tile, takes another's values from registers, or sums up.
TEST(Points, ARowsLogarithmIsComputedOnce) {
  const std::string head =
      "name: f\nloops: {i: 19, j: 45}\noperators:\n  - \"S[i] += exp(X[i,j])\"\n";
  for (const std::string& rest :
       {std::string("  - \"Y[i,j] = X[i,j] - log(S[i])\"\n"),
        std::string("  - \"D[i,j] = X[i,j] * 2\"\n  - \"Y[i,j] = D[i,j] - log(S[i] + 1)\"\n"),
        std::string("  - \"Y[i] += X[i,j] * log(S[i])\"\n"),
        std::string("  - \"Y[i,j] = X[i,j] * pow(S[i] + 1, 0.3)\"\n")}) {
    const std::string name = rest.find("pow") == std::string::npos ? "f_log(" : "f_pow(";
    const bool follows = rest.find("D[i,j]") != std::string::npos;
    const Schedule s =
        schedule_of(head + rest, follows ? "i ( C.S C.D C.Y )" : "i ( C.S C.Y )", "i=4");
    check(s);
    const auto source = source_of(s);
    if (!source) GTEST_SKIP() << "no vectors on this machine";
    const std::size_t rows = source->text.find("// C.Y: ");
    ASSERT_NE(rows, std::string::npos);
    const std::size_t once = source->text.find("splat(" + name, rows);
    ASSERT_NE(once, std::string::npos) << rest;
    EXPECT_EQ(source->text.find(name, once + 12), std::string::npos) << rest;
  }
}

}  // namespace
}  // namespace tilewright
