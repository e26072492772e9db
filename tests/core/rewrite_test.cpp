// Do rewrites keep what a workload computes, and refuse what they would break?
#include "core/workload/rewrite/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "core/plan/file.h"
#include "core/workload/reference/evaluate.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

std::vector<std::string> running_of(const Workload& w) {
  std::vector<std::string> names;
  for (const Operator& op : w.operators())
    if (op.running) names.push_back(op.name);
  return names;
}

const std::string kLoops = "m: 7, l: 13, k: 5, n: 3";
const std::string kQk = "  - 'qk: S[m,l] += Q[m,k] * K[l,k]'\n";
const std::string kMax = "  - 'rowmax: mx[m] max= S[m,l]'\n";
const std::string kExp = "  - 'exp: P[m,l] = exp(S[m,l] - mx[m])'\n";
const std::string kSum = "  - 'rowsum: sum[m] += P[m,l]'\n";
const std::string kPv = "  - 'pv: O[m,n] += P[m,l] * V[l,n]'\n";
const std::string kDivide = "  - 'divide: E[m,n] = O[m,n] / sum[m]'\n";

void expect_rewritten(const Workload& w) {
  const Result<Workload> r = apply("online-softmax", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  const RewriteCheck check = check_rewrite(w, *r, 17);
  EXPECT_LT(check.relative_error, 1e-12) << check.where;
  EXPECT_FALSE(check.where.empty());
}
void expect_refused(const Workload& w, const std::string& part) {
  const Result<Workload> r = apply("online-softmax", w);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.reason().find(part), std::string::npos) << r.reason();
}

TEST(OnlineSoftmax, IsTheFormOfThePlan) {
  const Workload w = make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide);
  const Result<Workload> r = apply("online-softmax", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(operators_of(*r),
            (std::vector<std::string>{
                "qk: S[m,l] += Q[m,k] * K[l,k]",
                "rowmax: mx[m] max= S[m,l]; shift[m] = before(mx) - after(mx) running",
                "exp: P[m,l] = exp(S[m,l] - mx[m])",
                "rowsum: sum[m] += P[m,l] rescale(exp(shift[m])) running",
                "rescale: alpha[m] = exp(shift[m])",
                "pv: O[m,n] += P[m,l] * V[l,n] rescale(alpha[m]) running",
                "divide: E[m,n] = O[m,n] / sum[m]"}));
  expect_rewritten(w);
  // Already running: nothing is left to rewrite.
  expect_refused(*r, "maximum");
  // And it prints and parses back.
  EXPECT_EQ(workload_from_yaml(to_yaml(*r), "again"), *r);
}

TEST(OnlineSoftmax, BuiltInAttention) {
  for (const char* name :
       {"attention:heads=1,m=5,l=11,k=4,n=3", "attention:heads=3,m=6,l=10,k=4,n=7",
        "attention:heads=2,m=4,l=9,k=5,n=2,scale=1",
        "attention:heads=4,groups=2,m=3,l=7,k=5,n=2,scale=1",
        "attention:heads=2,m=4,l=9,k=5,n=2,scale=1,causal=1"}) {
    const Workload w = named_workload(name);
    const Result<Workload> r = apply("online-softmax", w);
    ASSERT_TRUE(r.ok()) << name << ": " << r.reason();
    EXPECT_EQ(running_of(*r), (std::vector<std::string>{"rowmax", "rowsum", "pv"}));
    EXPECT_TRUE(r->find_op("rescale"));
    const RewriteCheck check = check_rewrite(w, *r, 3);
    EXPECT_LT(check.relative_error, 1e-12) << name << ": " << check.where;
    // online=1 is the rewrite's result, operator by operator.
    const Workload built_in = named_workload(std::string(name) + ",online=1");
    EXPECT_EQ(built_in.spec().operators, r->spec().operators) << name;
    EXPECT_EQ(built_in.spec().tensors, r->spec().tensors) << name;
  }
}

TEST(OnlineSoftmax, FindsTheMeaningUnderOtherNamesAndForms) {
  const std::string head = kQk + kMax;
  for (const std::string exp :
       {"exp((S[m,l] - mx[m]) * 0.125)", "exp(S[m,l] / 4 - 0.25 * mx[m])", "exp(-(mx[m] - S[m,l]))",
        "exp(S[m,l] + bias[l] - mx[m]) * keep[m,l]",
        "2 * exp(S[m,l] - mx[m]) / (1 + abs(keep[m,l]))",
        "select(lt(keep[m,l], 0), exp(S[m,l] - mx[m]), 0)",
        "exp(3 * (S[m,l] - mx[m])) / exp(S[m,l] - mx[m])",
        "sqrt(exp(S[m,l] - mx[m])) * square(exp(S[m,l] - mx[m]))",
        "relu(exp(S[m,l] - mx[m])) + exp(keep[m,l] - mx[m])", "recip(exp(mx[m] - S[m,l]))",
        "rsqrt(exp(2 * mx[m] - S[m,l]))", "pow(exp(S[m,l] - mx[m]), 1.5)",
        "max(exp(S[m,l] - mx[m]), exp(keep[m,l] - mx[m]))"})
    expect_rewritten(make(kLoops, head + "  - 'a: P[m,l] = " + exp + "'\n" + kSum + kPv + kDivide));
  // No operator of its own for the exponential; a mask between it and the product.
  expect_rewritten(make(kLoops, head + "  - 'b: sum[m] += exp(S[m,l] - mx[m])'\n" +
                                    "  - 'c: O[m,n] += exp(S[m,l] - mx[m]) * V[l,n]'\n" + kDivide));
  expect_rewritten(make(kLoops, head + kExp + "  - 'mask: R[m,l] = P[m,l] * keep[m,l]'\n" + kSum +
                                    "  - 'pv: O[m,n] += R[m,l] * V[l,n]'\n" + kDivide));
  // Large enough for the blocks' sums to be matrix products.
  expect_rewritten(make("m: 30, l: 37, k: 9, n: 16", kQk + kMax + kExp + kSum + kPv + kDivide));
  // Several batch and row loops, and a maximum over two loops.
  expect_rewritten(make("b: 2, h: 2, m: 3, l: 5, j: 4, n: 3",
                        "  - 'x1: t[b,h,m] max= S[b,h,m,l,j]'\n"
                        "  - 'x2: u[b,h,m,l,j] = exp(S[b,h,m,l,j] - t[b,h,m])'\n"
                        "  - 'x3: v[b,h,m] += u[b,h,m,l,j]'\n"
                        "  - 'x4: w[b,m,h,n] += u[b,h,m,l,j] * V[b,l,j,n]'\n"
                        "  - 'x5: y[b,h,m,n] = w[b,m,h,n] / v[b,h,m]'\n"));
  // One row only: the maximum is a scalar.
  expect_rewritten(make("l: 13, n: 3",
                        "  - 'x1: t[] max= S[l]'\n  - 'x2: u[l] = exp(S[l] - t[])'\n"
                        "  - 'x3: v[] += u[l]'\n  - 'x4: w[n] += u[l] * V[l,n]'\n"
                        "  - 'x5: y[n] = w[n] / v[]'\n"));
}

/// A running maximum of rows that may begin without a score is a number; of others it is as it was.
TEST(OnlineSoftmax, RowsThatBeginWithoutAScore) {
  const auto maximum = [&](const std::string& mask) {
    const Workload w = make(kLoops, kQk + "  - 'masked: T[m,l] = " + mask + "'\n" +
                                        "  - 'rowmax: mx[m] max= T[m,l]'\n"
                                        "  - 'exp: P[m,l] = exp(T[m,l] - mx[m])'\n" +
                                        kSum + kPv + kDivide);
    expect_rewritten(w);
    return to_text(*apply("online-softmax", w), *apply("online-softmax", w)->find_op("rowmax"));
  };
  for (const char* with :
       {"select(lt(l, m - 2), -inf, S[m,l])", "S[m,l] + B[m,l]", "select(lt(l, m), -inf, S[m,l])"})
    EXPECT_THAT(maximum(with), testing::HasSubstr("max(T[m,l]")) << with;
  for (const char* without : {"S[m,l] * 0.5", "select(lt(m, l), -inf, S[m,l])",
                              "select(lt(m + 3, l), -inf, S[m,l] * 0.25)"})
    EXPECT_THAT(maximum(without), testing::Not(testing::HasSubstr("max(T[m,l]"))) << without;
}

TEST(OnlineSoftmax, RewritesEveryLayer) {
  const Workload w = make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide +
                                      "  - 'qk2: S2[m,l] += E[m,n] * K2[l,n]'\n"
                                      "  - 'max2: mx2[m] max= S2[m,l]'\n"
                                      "  - 'exp2: P2[m,l] = exp((S2[m,l] - mx2[m]) * 0.5)'\n"
                                      "  - 'sum2: t2[m] += P2[m,l]'\n"
                                      "  - 'pv2: O2[m,n] += P2[m,l] * V2[l,n]'\n"
                                      "  - 'div2: E2[m,n] = O2[m,n] / t2[m]'\n");
  const Result<Workload> r = apply("online-softmax", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(running_of(*r),
            (std::vector<std::string>{"rowmax", "rowsum", "pv", "max2", "sum2", "pv2"}));
  EXPECT_TRUE(r->find_tensor("shift_2"));
  EXPECT_TRUE(r->find_op("rescale_2"));
  expect_rewritten(w);
}

TEST(OnlineSoftmax, RefusesWhatItWouldBreak) {
  expect_refused(make("m: 4, l: 5, k: 3, n: 2", kQk + "  - 'pv: O[m,n] += S[m,l] * V[l,n]'\n"),
                 "maximum");
  // A maximum without exponentials after it.
  expect_refused(make(kLoops, kQk + kMax + "  - 'e: E[m,n] += mx[m] * V[n]'\n"), "nothing sums");
  // The probabilities are divided before the product, so the sum is wanted inside the loop.
  expect_refused(make(kLoops, kQk + kMax + kExp + kSum + "  - 'norm: N[m,l] = P[m,l] / sum[m]'\n" +
                                  "  - 'pv: O[m,n] += N[m,l] * V[l,n]'\n"),
                 "norm");
  // The probabilities themselves are wanted, or an element of them.
  expect_refused(make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide, "E, P"), "exp");
  expect_refused(
      make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide + "  - 'first: F[m] = P[m,0]'\n"),
      "first");
  // Not a factor: exp(S - mx) + 1, the maximum itself, a shifted read, sums over rows.
  expect_refused(make(kLoops, kQk + kMax + "  - 'exp: P[m,l] = exp(S[m,l] - mx[m]) + 1'\n" + kSum +
                                  kPv + kDivide),
                 "exp");
  expect_refused(
      make(kLoops, kQk + kMax + "  - 'sub: P[m,l] = S[m,l] - mx[m]'\n" + kSum + kPv + kDivide),
      "sub");
  expect_refused(
      make(kLoops, kQk + kMax + kExp + kSum + "  - 'pv: O[m,n] += P[m,l-1] * V[l,n]'\n" + kDivide),
      "pv");
  expect_refused(make(kLoops, kQk + kMax + kExp + kSum + "  - 'pv: O[n] += P[m,l] * V[l,n]'\n" +
                                  "  - 'div: E[m,n] = O[n] / sum[m]'\n"),
                 "pv");
  // The largest probability is rescalable too, but not by what a sum starts from.
  expect_refused(
      make(kLoops, kQk + kMax + kExp + "  - 'top: T[m] max= P[m,l]'\n" + kSum + kPv + kDivide),
      "top");
}

TEST(Rewrites, EachRecordIsComplete) {
  for (const Rewrite& r : rewrites()) {
    EXPECT_FALSE(r.name.empty());
    EXPECT_FALSE(r.summary.empty());
    EXPECT_FALSE(r.source.empty());
    EXPECT_EQ(r.argument.empty(), r.function != nullptr) << r.name;
    EXPECT_EQ(r.argument.empty(), r.with == nullptr) << r.name;
  }
  EXPECT_THROW(apply("online-softmx", make("i: 2", "  - 'Y[i] = X[i]'\n")), InputError);
}

// ---- copies and inline

/// Of several results the copy has what its readers take, and the operator itself the others.
TEST(Rewrites, CopiesOfSeveralResultsKeepWhatIsRead) {
  const Workload w = make("r: 6, c: 10",
                          "  - 'two: a[r,c] = relu(x[r,c]); b[r,c] = x[r,c] * y[r,c]'\n"
                          "  - 'low: u[r] max= a[r,c]'\n  - 'high: v[r] += b[r,c]'\n");
  const Result<Workload> copied = apply("copies:two=low", w);
  ASSERT_TRUE(copied.ok()) << copied.reason();
  const auto results = [&](const char* name) {
    const Operator& op = copied->op(*copied->find_op(name));
    return std::pair(op.outputs.size(), op.inputs.size());
  };
  EXPECT_EQ(results("two"), std::pair(std::size_t{1}, std::size_t{2}));
  EXPECT_EQ(results("two_2"), std::pair(std::size_t{1}, std::size_t{1}));
  EXPECT_LT(check_rewrite(w, *copied, 5).relative_error, 1e-12);
}

TEST(Rewrites, CopiesAndInliningComputeTheSame) {
  const Workload w =
      make("r: 6, c: 10, h: 5",
           "  - 'd: d[r,c] = x[r,c] - m[r]'\n  - 'v: v[r] += square(d[r,c])'\n"
           "  - 'low: a[r,h] = d[r,h] * v[r]'\n  - 'high: b[r,h] = exp(d[r,h+5])'\n");
  const Result<Workload> copied = apply("copies:d=low/high", w);
  ASSERT_TRUE(copied.ok()) << copied.reason();
  ASSERT_EQ(copied->operators().size(), 6u);
  EXPECT_TRUE(copied->find_op("d_2") && copied->find_op("d_3"));
  EXPECT_LT(check_rewrite(w, *copied, 3).relative_error, 1e-12);
  const Result<Workload> less = apply("inline:d_2;d_3", *copied);
  ASSERT_TRUE(less.ok()) << less.reason();
  EXPECT_EQ(less->operators().size(), 4u);
  EXPECT_LT(check_rewrite(w, *less, 4).relative_error, 1e-12);
  EXPECT_NE(apply("inline:v", w).reason().find("is a reduction"), std::string::npos);
  EXPECT_NE(apply("inline:low", w).reason().find("writes an output"), std::string::npos);
  for (const char* bad : {"copies", "copies:", "copies:d", "copies:e=low", "copies:d=v+d",
                          "inline:", "inline:e", "compose:d", "copies:d=low/"})
    EXPECT_THROW(apply(bad, w), InputError) << bad;
}

// ---- split-variance
// -------------------------------------------------------------------------------

const std::string kMoments =
    "  - 'sum: s[c] += x[r,c]'\n  - 'mean: mu[c] = s[c] * 0.0078125'\n"
    "  - 'apart: d[r,c] = x[r,c] - mu[c]'\n  - 'sq: q[r,c] = square(d[r,c])'\n"
    "  - 'var: v[c] += q[r,c]'\n  - 'y: y[r,c] = d[r,c] * rsqrt(v[c] + 1)'\n";

void expect_split(const Workload& w) {
  const Result<Workload> r = apply("split-variance", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  const RewriteCheck check = check_rewrite(w, *r, 5);
  EXPECT_LT(check.relative_error, 1e-12) << check.where;
}

TEST(SplitVariance, HasAMeanForEachChunk) {
  const Workload w = make("r: 128, c: 3", kMoments);
  const Result<Workload> r = apply("split-variance", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(operators_of(*r),
            (std::vector<std::string>{
                "sum: s[c] += s_part[ro,c]", "mean: mu[c] = s[c] * 0.0078125",
                "apart: d[r,c] = x[r,c] - mu[c]",
                "var: v[c] += v_part[ro,c] + 64 * square(s_mean[ro,c] - s[c] * 0.0078125)",
                "y: y[r,c] = d[r,c] * rsqrt(v[c] + 1)", "sum_part: s_part[ro,c] += x[64*ro+ri,c]",
                "sum_mean: s_mean[ro,c] = s_part[ro,c] * 0.015625",
                "var_part: v_part[ro,c] += square(x[64*ro+ri,c] - s_mean[ro,c])"}));
  expect_split(w);
}

/// No length from 64 to 1,024 divides these: the last chunk has fewer points.
TEST(SplitVariance, LastChunkMayHaveFewerPoints) {
  for (const int rows : {129, 131, 389, 1031, 2213, 6639})
    // Neither exp(0) nor an index is zero behind the last point.
    for (const std::string point : {"x[r,c]", "exp(x[r,c]) + r"}) {
      SCOPED_TRACE(std::to_string(rows) + " of " + point);
      expect_split(make("r: " + std::to_string(rows) + ", c: 3",
                        "  - 's[c] += " + point + "'\n  - 'v[c] += square(" + point + " - s[c] / " +
                            std::to_string(rows) + ")'\n"));
    }
}

/// Values far from zero, whose squares would cancel: distances do not.
TEST(SplitVariance, LosesNothingFarFromZero) {
  const Workload w = make("r: 256, c: 3",
                          "  - 'far: x[r,c] = a[r,c] + 1000000'\n  - 's[c] += x[r,c]'\n"
                          "  - 'v[c] += square(x[r,c] - s[c] * 0.00390625)'\n");
  const Result<Workload> r = apply("split-variance", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-9);
}

TEST(SplitVariance, TakesEveryWayToSayIt) {
  // A product of a distance with itself; a division; the mean first; any value; several loops.
  expect_split(make("r: 128, c: 3",
                    "  - 's[c] += x[r,c]'\n  - 'd[r,c] = s[c] / 128 - x[r,c]'\n"
                    "  - 'v[c] += d[r,c] * d[r,c]'\n"));
  expect_split(make("r: 128, c: 3",
                    "  - 's[c] += exp(x[r,c]) * w[c]'\n"
                    "  - 'v[c] += square(exp(x[r,c]) * w[c] - 0.0078125 * s[c])'\n"));
  const Workload several = make("b: 4, r: 8, c: 3",
                                "  - 's[c] += x[b,c,r]'\n"
                                "  - 'v[c] += square(x[b,c,r] - s[c] * 0.03125)'\n");
  expect_split(several);
  EXPECT_EQ(apply("split-variance", several)->loops().size(), 3u);  // b's iterations are chunks
  // Two of them, one of a scalar.
  expect_split(make("r: 128, c: 64",
                    "  - 's[c] += x[r,c]'\n  - 'v[c] += square(x[r,c] - s[c] * 0.0078125)'\n"
                    "  - 't[] += x[r,c]'\n  - 'u[] += square(x[r,c] - t[] / 8192)'\n"));
}

TEST(SplitVariance, RefusesWhatIsNone) {
  const auto refused = [](const std::string& operators, const std::string& part,
                          const std::string& loops = "r: 128, c: 3") {
    const Result<Workload> r = apply("split-variance", make(loops, operators));
    ASSERT_FALSE(r.ok()) << operators;
    EXPECT_NE(r.reason().find(part), std::string::npos) << r.reason();
  };
  const std::string none = "no operator sums squares";
  const std::string sum = "  - 's[c] += x[r,c]'\n";
  refused(sum + "  - 'v[c] += square(x[r,c] - s[c] * 0.01)'\n", none);  // of no mean
  refused(sum + "  - 'v[c] += square(x[r,c] - 0.0078125)'\n", none);
  refused(sum + "  - 'v[c] += square(z[r,c] - s[c] * 0.0078125)'\n", none);  // of other values
  refused(sum + "  - 'v[c] += square(x[r,c])'\n", none);
  refused(sum + "  - 'v[c] max= square(x[r,c] - s[c] * 0.0078125)'\n", none);
  refused("  - 's[r] += x[r,c]'\n  - 'v[c] += square(x[r,c] - s[r] / 3)'\n", none);
  refused(sum + "  - 'v[c] += square(x[r,c] - s[c] / 127)'\n", "no two chunks of 64 to 1024",
          "r: 127, c: 3");
  const Result<Workload> narrow =
      apply("split-variance",
            workload_from_yaml(
                "name: t\ndtype: f16\nloops: {r: 128, c: 3}\noperators:\n" + kMoments, "test"));
  ASSERT_FALSE(narrow.ok());
  EXPECT_NE(narrow.reason().find("16 bits"), std::string::npos) << narrow.reason();
}

// The check itself must be able to fail.
TEST(CheckRewrite, SeesAWrongRewrite) {
  const Workload w = make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide);
  Result<Workload> r = apply("online-softmax", w);
  ASSERT_TRUE(r.ok());
  WorkloadSpec broken = r->spec();
  for (Operator& op : broken.operators)
    if (op.name == "rowsum") {
      op.outputs[0].rescale = Expr{.kind = Expr::Kind::constant, .constant = 1.0};
      op.inputs.pop_back();
    }
  const RewriteCheck check = check_rewrite(w, Workload::create(broken), 17);
  EXPECT_GT(check.relative_error, 1e-3);
  EXPECT_NE(check.where.find("blocks"), std::string::npos) << check.where;

  const Workload other = make("m: 7, l: 13, k: 6, n: 3", kQk + kMax + kExp + kSum + kPv + kDivide);
  EXPECT_EQ(check_rewrite(w, other, 1).relative_error, std::numeric_limits<double>::infinity());
}

void expect_scaled_late(const Workload& w, const std::vector<std::string>& operators) {
  const Result<Workload> r = apply("scale-late", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(operators_of(*r), operators);
  const RewriteCheck check = check_rewrite(w, *r, 23);
  EXPECT_LT(check.relative_error, 1e-12) << check.where;
}
void expect_stays(const Workload& w, const std::string& part) {
  const Result<Workload> r = apply("scale-late", w);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.reason().find(part), std::string::npos) << r.reason();
}

const std::string kShort = "m: 7, l: 13, n: 3";
const std::string kDivideFirst = "  - 'share: W[m,l] = P[m,l] / sum[m]'\n";
const std::string kShared = "  - 'pv: O[m,n] += W[m,l] * V[l,n]'\n";

TEST(ScaleLate, TextbookSoftmaxIsSummedOnline) {
  const Workload w = make(kLoops, kQk + kMax + kExp + kSum + kDivideFirst + kShared);
  expect_scaled_late(
      w, {"qk: S[m,l] += Q[m,k] * K[l,k]", "rowmax: mx[m] max= S[m,l]",
          "exp: P[m,l] = exp(S[m,l] - mx[m])", "rowsum: sum[m] += P[m,l]",
          "pv: O_unscaled[m,n] += P[m,l] * V[l,n]", "pv_scale: O[m,n] = O_unscaled[m,n] / sum[m]"});
  expect_refused(w, "put the rewrite scale-late first");
  expect_rewritten(*apply("scale-late", w));
}

TEST(ScaleLate, LinearOperatorsInBetweenStay) {
  expect_scaled_late(
      make(kShort,
           "  - 'e: P[m,l] = exp(S[m,l]) * r[m]'\n"
           "  - 'drop: D[m,l] = 2 * P[m,l] * mask[m,l]'\n"
           "  - 'pv: O[m,n] += D[m,l] * V[l,n]'\n"
           "  - 'all: t[m] += -D[m,l]'\n"),
      {"e: P[m,l] = exp(S[m,l])", "drop: D[m,l] = 2 * P[m,l] * mask[m,l]",
       "pv: O_unscaled[m,n] += D[m,l] * V[l,n]", "all: t_unscaled[m] += -D[m,l]",
       "pv_scale: O[m,n] = O_unscaled[m,n] * r[m]", "all_scale: t[m] = t_unscaled[m] * r[m]"});
}

TEST(ScaleLate, IndicesAreComposed) {
  // A strided slice lies between the factor and its sum.
  expect_scaled_late(make("a: 4, b: 6, i: 2, j: 6, n: 3",
                          "  - 'e: P[a,b] = x[a,b] / (1 + square(s[a]))'\n"
                          "  - 'sum: O[i,n] += P[2*i+1,j] * V[j,n]'\n"),
                     {"sum: O_unscaled[i,n] += x[2*i+1,j] * V[j,n]",
                      "sum_scale: O[i,n] = O_unscaled[i,n] / (1 + square(s[2*i+1]))"});
}

TEST(ScaleLate, WhatASumRunsOverStays) {
  expect_stays(make(kShort, "  - 'e: P[m,l] = S[m,l] * g[l]'\n" + kPv), "depends on");
  expect_stays(make(kShort, kDivideFirst + kShared, "O, W"), "is an output");
  expect_stays(make(kShort, kDivideFirst + "  - 'pv: O[m,n] += W[m,l] * W[m,l] * V[l,n]'\n"),
               "not linear");
  expect_stays(make(kShort, kDivideFirst + "  - 'bias: B[m,l] = W[m,l] + b[l]'\n"
                                           "  - 'pv: O[m,n] += B[m,l] * V[l,n]'\n"),
               "not linear");
  expect_stays(make("m: 7, l: 13", kDivideFirst + "  - 'most: t[m] max= W[m,l]'\n"),
               "not by a sum");
  expect_stays(make(kShort, kDivideFirst + "  - 'shift: O[m,n] += W[m-1,l] * V[l,n]'\n"),
               "outside");
  expect_stays(make("m: 7, l: 13, k: 5", kQk), "no operator divides");
}

// ---- split-running

/// Online softmax in chunks; `more`: what stands between the product and the maximum of T.
Workload chunked(const std::string& loops, const std::string& more, const std::string& scores,
                 int chunk, Workload& before) {
  before =
      make(loops, kQk + more + "  - 'rowmax: mx[m] max= " + scores + "'\n  - 'exp: P[m,l] = exp(" +
                      scores + " - mx[m])'\n" + kSum + kPv + kDivide);
  const Result<Workload> online = apply("online-softmax", before);
  EXPECT_TRUE(online.ok()) << online.reason();
  const Result<Workload> r =
      apply(std::string_view("split-running:" + std::to_string(chunk)), *online);
  EXPECT_TRUE(r.ok()) << r.reason();
  return r.ok() ? *r : before;
}

TEST(SplitRunning, ChunksBeginAnewAndAreJoinedAsBlocksAre) {
  Workload w = make("i: 2", "  - 'y[i] = x[i]'\n");
  const Workload r = chunked("m: 7, l: 12, k: 5, n: 3", "", "S[m,l]", 4, w);
  EXPECT_EQ(operators_of(r),
            (std::vector<std::string>{
                "qk: S[lo,m,li] += Q[m,k] * K[4*lo+li,k]",
                "rowmax: mx_part[lo,m] max= S[lo,m,li]; shift[lo,m] = before(mx_part) - "
                "after(mx_part) running",
                "exp: P[lo,m,li] = exp(S[lo,m,li] - mx_part[lo,m])",
                "rowsum: sum_part[lo,m] += P[lo,m,li] rescale(exp(shift[lo,m])) running",
                "rescale: alpha[lo,m] = exp(shift[lo,m])",
                "pv: O_part[lo,m,n] += P[lo,m,li] * V[4*lo+li,n] rescale(alpha[lo,m]) running",
                "divide: E[m,n] = O[m,n] / sum[m]", "rowmax_join: mx[m] max= mx_part[lo,m]",
                "rowsum_join: sum[m] += sum_part[lo,m] * exp(mx_part[lo,m] - mx[m])",
                "pv_join: O[m,n] += O_part[lo,m,n] * exp(mx_part[lo,m] - mx[m])"}));
  EXPECT_LT(check_rewrite(w, r, 17).relative_error, 1e-12);
}

/// Any length, chunks of any length, scores as they are, scaled, under a causal mask of -inf that
/// leaves rows of chunks with nothing, and with a given bias.
TEST(SplitRunning, RaggedChunksAndMasks) {
  std::mt19937 random(27112);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  for (int i = 0; i < 30; ++i) {
    const int l = draw(2, 40), chunk = draw(1, l - 1), m = draw(1, 9);
    const std::string loops =
        "m: " + std::to_string(m) + ", l: " + std::to_string(l) + ", k: 5, n: 3";
    for (const auto& [more, scores] : std::vector<std::pair<std::string, std::string>>{
             {"", "S[m,l]"},
             {"  - 'T[m,l] = S[m,l] * 0.5'\n", "T[m,l]"},
             {"  - 'T[m,l] = select(lt(m, l), -inf, S[m,l])'\n", "T[m,l]"},
             {"  - 'T[m,l] = S[m,l] + B[m,l]'\n", "T[m,l]"}}) {
      Workload w = make("i: 2", "  - 'y[i] = x[i]'\n");
      const Workload r = chunked(loops, more, scores, chunk, w);
      const RewriteCheck check = check_rewrite(w, r, 17);
      EXPECT_LT(check.relative_error, 1e-12)
          << loops << " in chunks of " << chunk << ": " << scores << " " << check.where;
    }
  }
}

TEST(SplitRunning, WhatIsReadBeyondTheChunksStays) {
  const auto refused = [](const Workload& w, const std::string& chunk, const std::string& part) {
    const Result<Workload> r = apply(std::string_view("split-running:" + chunk), w);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.reason().find(part), std::string::npos) << r.reason();
  };
  const Workload plain = make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide);
  refused(plain, "4", "looks back");
  const Workload online = *apply("online-softmax", plain);
  refused(online, "13", "no two chunks");
  refused(*apply("online-softmax", make(kLoops, kQk + kMax + kExp + kSum + kPv + kDivide +
                                                    "  - 'other: Y[m,l] = S[m,l] * 2'\n")),
          "4", "outside of the chunks");
  EXPECT_THROW(apply("split-running:0", online), InputError);
  EXPECT_THROW(apply("split-running:4x", online), InputError);
}

TEST(PlaceResults, AProductWritesWhereAMoveDoes) {
  const Workload w = workload_from_yaml(
      "name: t\nloops: {a: 4, b: 5, c: 6, k: 7}\noperators:\n"
      "  - 'one: t[a,b,c] += x[a,b,k] * w[k,c]'\n  - 'move: y[a,c,b] = t[a,b,c]'\n"
      "  - 'two: u[b,a] += x[a,b,k] * v[k]'\n  - 'sum: z[b] += u[b,a]'\n",
      "t");
  const Result<Workload> r = apply("place-results", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  ASSERT_EQ(r->operators().size(), 3U);
  EXPECT_EQ(to_text(*r, OpId(0)), "one: y[a,c,b] += x[a,b,k] * w[k,c]");
  const RewriteCheck check = check_rewrite(w, *r, 17);
  EXPECT_EQ(check.relative_error, 0) << check.where;
  EXPECT_FALSE(check.where.empty());
}

TEST(PlaceResults, NothingThatOthersReadOrThatIsComputedWith) {
  const auto reason = [](const std::string& operators, const std::string& more = "") {
    const Result<Workload> r = apply(
        "place-results",
        workload_from_yaml("name: t\nloops: {a: 4, b: 5, k: 7}\n" + more +
                               "operators:\n  - 'one: t[a,b] += x[a,k] * w[k,b]'\n" + operators,
                           "t"));
    return r ? std::string("none") : r.reason();
  };
  const std::string no = "no product's results are read by a move alone";
  EXPECT_EQ(reason("  - 'move: y[b,a] = t[a,b]'\n"), "none");
  EXPECT_EQ(reason("  - 'move: y[b,a] = t[a,b]'\n  - 'other: z[a,b] = 2 * t[a,b]'\n"), no);
  EXPECT_EQ(reason("  - 'move: y[b,a] = 2 * t[a,b]'\n"), no);
  EXPECT_EQ(reason("  - 'move: y[b,a] = t[a,b]'\n", "outputs: [t, y]\n"), no);
  EXPECT_EQ(reason("  - 'move: y[b,a] = t[a,b]'\n", "dtypes: {t: f16}\n"),
            no);
}

TEST(MaterialiseGathers, TheProductReadsAPlainMatrix) {
  const Workload w = workload_from_yaml(
      "name: test\ndtype: f64\nloops: {b: 7, d: 5, e: 3}\ntensors: {T: [4, d], ids: [b]}\n"
      "dtypes: {ids: i32}\noperators:\n  - 'y: y[b,e] += T[ids[b],d] * W[d,e]'\n",
      "test");
  const Result<Workload> r = apply("materialise-gathers", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  ASSERT_EQ(r->operators().size(), 2U);
  EXPECT_FALSE(w.is_contraction(OpId(0)));
  EXPECT_TRUE(r->is_contraction(*r->find_op("y")));
  const RewriteCheck check = check_rewrite(w, *r, 17);
  EXPECT_LT(check.relative_error, 1e-15) << check.where;
}

TEST(MaterialiseGathers, NothingThatIsReadOnceOrIsNoProduct) {
  const char* head =
      "name: test\ndtype: f64\nloops: {b: 7, d: 5}\ntensors: {T: [4, d], ids: [b]}\n"
      "dtypes: {ids: i32}\noperators:\n";
  for (const char* op :
       {"  - 'y: y[b] += T[ids[b],d] * W[d]'\n", "  - 'y: y[b,d] = T[ids[b],d] * W[d]'\n"}) {
    const Result<Workload> r =
        apply("materialise-gathers", workload_from_yaml(std::string(head) + op, "test"));
    ASSERT_FALSE(r.ok()) << op;
    EXPECT_NE(r.reason().find("looks up"), std::string::npos) << r.reason();
  }
}

/// Patches of an image, as a reshaped view and as a convolution, become rows of a plain matrix.
TEST(MaterialisePatches, TheProductReadsAPlainMatrix) {
  for (const char* op :
       {"loops: {b: 2, p: 3, q: 4, n: 5, c: 3, r: 2, s: 2}\noperators:\n"
        "  - 'y: y[b,p,q,n] += X[b,c,p,r,q,s] * W[n,c,r,s]'\n",
        "loops: {b: 2, p: 3, q: 4, n: 5, c: 3, r: 2, s: 2}\ntensors: {X: [b, c, 7, 9]}\n"
        "operators:\n  - 'y: y[b,n,p,q] += X[b,c,2*p+r,2*q+s] * W[n,c,r,s]'\n"}) {
    const Workload w = workload_from_yaml(std::string("name: test\ndtype: f64\n") + op, "test");
    const Result<Workload> r = apply("materialise-patches", w);
    ASSERT_TRUE(r.ok()) << r.reason();
    ASSERT_EQ(r->operators().size(), 2U);
    const Operator& product = r->op(*r->find_op("y"));
    const auto rows = std::ranges::find_if(product.inputs,
                                           [&](const Access& a) { return !r->is_input(a.tensor); });
    ASSERT_NE(rows, product.inputs.end());
    EXPECT_EQ(r->tensor(rows->tensor).shape, (std::vector<std::int64_t>{2, 3, 4, 3, 2, 2})) << op;
    const RewriteCheck check = check_rewrite(w, *r, 17);
    EXPECT_LT(check.relative_error, 1e-15) << check.where;
  }
}

/// A transposed convolution reads image and weights through windows: both become rows, and its
/// results are moved to where they belong. With steps of two and of three, and in one dimension.
TEST(MaterialisePatches, BothOperandsOfATransposedConvolution) {
  for (const char* op : {"loops: {n: 6, p: 5, a: 2, q: 4, b: 2, c: 3, k: 2, l: 2}\n"
                         "tensors: {X: [c, 4, 3], W: [c, n, 4, 4]}\noperators:\n"
                         "  - 'y: y[n,p,a,q,b] += X[c,p-k,q-l] * W[c,n,a+2*k,b+2*l]'\n"
                         "  - 'z: z[n,p,a,q,b] = relu(y[n,p,a,q,b])'\n",
                         "loops: {g: 2, n: 3, p: 5, a: 3, c: 3, k: 2}\n"
                         "tensors: {X: [g, c, 4], W: [c, n, 6]}\noperators:\n"
                         "  - 'y: y[g,n,p,a] += X[g,c,p-k] * W[c,n,a+3*k]'\n"}) {
    const Workload w = workload_from_yaml(std::string("name: test\ndtype: f64\n") + op, "test");
    const Result<Workload> r = apply("materialise-patches", w);
    ASSERT_TRUE(r.ok()) << r.reason();
    EXPECT_EQ(r->operators().size(), w.operators().size() + 3);
    for (const Access& a : r->op(*r->find_op("y")).inputs) {
      EXPECT_FALSE(r->is_input(a.tensor)) << op;
      for (const Affine& index : a.index) EXPECT_TRUE(index.plain_loop()) << op;
    }
    const RewriteCheck check = check_rewrite(w, *r, 23);
    EXPECT_LT(check.relative_error, 1e-15) << check.where;
  }
}

/// Windows that overlap, padding, long pieces, plain matrices and what is read once stay.
TEST(MaterialisePatches, NothingElse) {
  for (const char* op :
       {"loops: {p: 5, q: 4, n: 5, c: 3, r: 3, s: 3}\ntensors: {X: [c, 11, 9]}\n"
        "operators:\n  - 'y: y[n,p,q] += X[c,2*p+r,2*q+s] * W[n,c,r,s]'\n",
        "loops: {p: 5, q: 4, n: 5, c: 3, r: 2, s: 2}\ntensors: {X: [c, 9, 7]}\n"
        "operators:\n  - 'y: y[n,p,q] += X[c,2*p+r-1,2*q+s-1] * W[n,c,r,s]'\n",
        "loops: {p: 5, n: 5, c: 3, s: 16}\n"
        "operators:\n  - 'y: y[p,n] += X[c,p,s] * W[n,c,s]'\n",
        "loops: {p: 5, n: 5, c: 3}\noperators:\n  - 'y: y[p,n] += X[c,p] * W[n,c]'\n",
        "loops: {p: 5, c: 3, s: 4}\noperators:\n  - 'y: y[p] += X[c,p,s] * W[c,s]'\n"}) {
    const Result<Workload> r =
        apply("materialise-patches",
              workload_from_yaml(std::string("name: test\ndtype: f64\n") + op, "test"));
    ASSERT_FALSE(r.ok()) << op;
    EXPECT_NE(r.reason().find("patches"), std::string::npos) << r.reason();
  }
}

}  // namespace
}  // namespace tilewright
