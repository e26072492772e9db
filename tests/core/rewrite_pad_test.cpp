// Padding: do rewrites that make rows longer keep what a workload computes, and leave alone what
// gains nothing?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/workload/rewrite/rewrite.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

/// Chains of products of odd sizes, of either operand's order, with what lies between: the same
/// results, and no product reads a row along a padded loop that is no whole pieces of 16 bytes.
TEST(Pad, ProductsOfOddSizesComputeTheSame) {
  const std::string first[] = {"A[m,k] * B[k,l]", "A[k,m] * B[l,k]", "A[m,k] * B[k,l] * g[k]"};
  const std::string between[] = {"",
                                 "relu(C[m,l])",
                                 "exp(C[m,l])",
                                 "C[m,l] * u[l] + h[m,l]",
                                 "C[m,l] * v[m]",
                                 "C[m,l] / 2 + C[m,l]"};
  for (const std::string& a : first)
    for (const std::string& f : between)
      for (const char* names : {"k", "l", "n", "k;l", "l;n", "k;l;n"}) {
        const std::string from = f.empty() ? "C" : "P";
        const Workload w =
            make("m: 6, k: 7, l: 5, n: 3", "  - 'C: C[m,l] += " + a + "'\n" +
                                               (f.empty() ? "" : "  - 'P: P[m,l] = " + f + "'\n") +
                                               "  - 'E: E[m,n] += " + from + "[m,l] * D[l,n]'\n");
        const Result<Workload> padded = tilewright::apply(std::string("pad:") + names, w);
        // Of A[k,m] * B[l,k] the rows of both are along k and m.
        if (!padded) continue;
        EXPECT_LT(check_rewrite(w, *padded, 7).relative_error, 1e-12) << a << f << names;
        for (std::size_t i = 0; i < padded->operators().size(); ++i) {
          if (!padded->is_contraction(OpId(i))) continue;
          for (const Access& x : padded->op(OpId(i)).inputs) {
            if (std::string(names) != "k;l;n" || x.index.size() < 2) continue;
            EXPECT_EQ(padded->tensor(x.tensor).shape.back() % 2, 0)
                << padded->tensor(x.tensor).name << ": " << a << f;
          }
        }
      }
}

/// One tensor that products read along several loops, as a power of a matrix, has several copies.
TEST(Pad, SeveralCopiesOfATensor) {
  const Workload w = make("m: 7, k: 7, j: 7",
                          "  - 'pad_A: B[m,k] += A[m,j] * A[j,k]'\n"
                          "  - 'C: C[m,j] += B[m,k] * A[k,j]'\n");
  const Result<Workload> padded = apply("pad:k;j", w);
  ASSERT_TRUE(padded.ok()) << padded.reason();
  EXPECT_LT(check_rewrite(w, *padded, 7).relative_error, 1e-12);
  std::set<std::string> names;
  for (const Operator& op : padded->operators()) EXPECT_TRUE(names.insert(op.name).second);
}

TEST(Pad, ResultsBetweenGetLongerRowsWithoutACopy) {
  const Workload w = make("m: 6, k: 7, l: 5, n: 4",
                          "  - 'C: C[m,l] += A[m,k] * B[k,l]'\n"
                          "  - 'E: E[m,n] += C[m,l] * D[l,n]'\n");
  const Result<Workload> padded = apply("pad:l", w);
  ASSERT_TRUE(padded.ok()) << padded.reason();
  EXPECT_THAT(operators_of(*padded),
              testing::ElementsAre("pad_B: B_padded[k,l_padded] = B[k,l_padded]",
                                   "C: C[m,l_padded] += A[m,k] * B_padded[k,l_padded]",
                                   "E: E[m,n] += C[m,l] * D[l,n]"));
  EXPECT_EQ(padded->tensor(*padded->find_tensor("C")).shape.back(), 6);
  // Both operands are copies: the sum goes on over their zeros, in whole pieces.
  EXPECT_THAT(
      operators_of(apply("pad:k;l", w).value()),
      testing::Contains("C: C[m,l_padded] += A_padded[m,k_padded] * B_padded[k_padded,l_padded]"));
  EXPECT_EQ(loops_of_odd_rows(w), (std::vector<LoopId>{*w.find_loop("k"), *w.find_loop("l")}));
}

/// A reader that looks behind a row's end reads zero there, not what padding computed.
TEST(Pad, WhatIsReadOutsideIsNotPadded) {
  const Workload w = workload_from_yaml(
      "name: test\ndtype: f64\nloops: {m: 6, k: 4, l: 5}\ntensors: {A: [m, k], B: [k, l], "
      "C: [m, l], P: [m, l], E: [m, l]}\noperators:\n  - 'C: C[m,l] += A[m,k] * B[k,l]'\n"
      "  - 'P: P[m,l] = exp(C[m,l])'\n  - 'E: E[m,l] = P[m,l+1] + 1'\noutputs: [E]\n",
      "test");
  const Result<Workload> padded = apply("pad:l", w);
  ASSERT_TRUE(padded.ok()) << padded.reason();
  EXPECT_EQ(padded->tensor(*padded->find_tensor("P")).shape.back(), 5);
  EXPECT_LT(check_rewrite(w, *padded, 9).relative_error, 1e-12);
}

TEST(Pad, RefusesWhatGainsNothing) {
  const Workload w = make("m: 6, k: 8, l: 5", "  - 'C: C[m,l] += A[m,k] * B[k,l]'\n");
  EXPECT_NE(apply("pad:k", w).reason().find("whole pieces of 16 bytes"), std::string::npos);
  for (const char* bad : {"pad", "pad:", "pad:q", "pad:l;"})
    EXPECT_THROW(apply(bad, w), InputError);
}

// ---- pad-results

/// The shape that the rewrite gives a tensor, or why it does not apply.
std::string longer(const std::string& yaml, const std::string& tensor) {
  const Workload w = workload_from_yaml("name: test\ndtype: f16\n" + yaml, "test");
  const Result<Workload> r = apply("pad-results", w);
  if (!r) return r.reason();
  const RewriteCheck check = check_rewrite(w, *r, 5);
  EXPECT_EQ(check.relative_error, 0) << check.where;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    EXPECT_EQ(r->operators()[i], w.operators()[i]);
  std::string text;
  for (const std::int64_t n : r->tensor(*r->find_tensor(tensor)).shape)
    text += (text.empty() ? "" : " ") + std::to_string(n);
  return text;
}

TEST(PadResults, RowsAndChannelsAreLonger) {
  EXPECT_EQ(longer("loops: {m: 6, k: 8, l: 21, n: 8}\noperators:\n"
                   "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n",
                   "C"),
            "6 24");
  EXPECT_EQ(longer("loops: {b: 2, m: 6, k: 8, l: 21, n: 8}\noperators:\n"
                   "  - C[b,m,l] += A[b,m,k] * B[b,k,l]\n  - R[b,m,l] = relu(C[b,m,l])\n"
                   "  - E[b,m,n] += R[b,m,l] * D[b,l,n]\n",
                   "R"),
            "2 6 24");
  // Lines of 7 points are one row of 49, which is padded by a line.
  EXPECT_EQ(longer("loops: {c: 3, d: 8, e: 4, y: 7, x: 7}\noperators:\n"
                   "  - M[d,y,x] += W[d,c] * X[c,y,x]\n  - O[e,y,x] += V[e,d] * M[d,y,x]\n",
                   "M"),
            "8 8 7");
}

TEST(PadResults, WhatIsReadOutsideOrLeavesStays) {
  const std::string none = "no result that a product reads has rows to be made longer";
  EXPECT_EQ(longer("loops: {m: 6, k: 8, l: 24, n: 8}\noperators:\n"
                   "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n",
                   "C"),
            none);
  // No boxes of the other operand can be copied.
  EXPECT_EQ(longer("loops: {m: 6, k: 8, l: 21, n: 4}\noperators:\n"
                   "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n",
                   "C"),
            none);
  // A window reads zeros behind the image.
  EXPECT_EQ(longer("loops: {c: 3, d: 8, e: 4, y: 7, x: 7, r: 3}\noperators:\n"
                   "  - M[d,y,x] += W[d,c] * X[c,y,x]\n  - O[e,y,x] += V[r,e,d] * M[d,y+r-1,x]\n",
                   "M"),
            none);
  EXPECT_EQ(longer("loops: {m: 6, k: 8, l: 21, n: 8}\noperators:\n"
                   "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,l] * D[l,n]\n"
                   "outputs: [C, E]\n",
                   "C"),
            none);
}

/// Rows may be longer than what is written of them; nobody may read the rest.
TEST(PadResults, NobodyReadsWhatIsNotWritten) {
  const auto read = [](const std::string& last, const std::string& outputs) {
    return workload_from_yaml(
        "name: test\ndtype: f16\nloops: {m: 6, k: 8, l: 21, n: 4, " + last +
            "}\ntensors: {A: [m, k], B: [k, l], C: [m, 24], D: [24, n], E: [m, n]}\noperators:\n"
            "  - C[m,l] += A[m,k] * B[k,l]\n  - E[m,n] += C[m,r] * D[r,n]\n" +
            outputs,
        "test");
  };
  EXPECT_NO_THROW(read("r: 21", ""));
  EXPECT_THROW(read("r: 22", ""), InputError);
  EXPECT_THROW(read("r: 21", "outputs: [C, E]\n"), InputError);
}

}  // namespace
}  // namespace tilewright
