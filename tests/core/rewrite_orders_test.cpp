// split-sums and materialise-orders: do they compute the same, and what do they leave alone?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

Workload of(const std::string& loops, const std::string& op) {
  return make(loops, "  - p: " + op + "\n");
}

void expect_parts(const Workload& w, std::initializer_list<const char*> operators) {
  const Result<Workload> r = apply("split-sums:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12) << to_yaml(*r);
  for (const char* op : operators) EXPECT_THAT(to_yaml(*r), testing::HasSubstr(op));
  EXPECT_TRUE(sums_to_split(*r).empty());
}

TEST(SplitSums, OuterLoopsTellPartsApart) {
  expect_parts(of("m: 600, n: 50", "s[] += square(x[m,n])"),
               {"s_part[m] += square(x[m,n])", "s[] += s_part[m]"});
  expect_parts(of("c: 3, m: 30, h: 20, n: 40", "s[c] max= abs(x[m,c,h,n])"),
               {"s_part[m,h,c] max= abs(x[m,c,h,n])", "s[c] max= s_part[m,h,c]"});
}

TEST(SplitSums, LongLoopsAreCut) {
  // By a length that divides them, where one is near.
  expect_parts(of("n: 25600", "s[] += x[n]"), {"x[128*no+ni]", "s[] += s_part[no]"});
  // Behind the end of the others all is zero, or is not chosen.
  expect_parts(of("n: 20011", "s[] += x[n] * tanh(y[n])"),
               {"s_part[no] += x[128*no+ni] * tanh(y[128*no+ni])"});
  for (const char* op : {"s[] max= x[n]", "s[] *= 1 + 0.001 * x[n]", "s[] += exp(x[n])",
                         "s[] += x[n] * log(x[n] + 2)", "s[] += x[n] / (y[n] + 2)",
                         "s[] += select(lt(n, 9), 1, 0)  * x[n]"})
    expect_parts(of("n: 20011", op), {"select(lt(128 * no + ni, 20011)"});
}

TEST(SplitSums, OthersStay) {
  for (const auto& [loops, op] : {std::pair("m: 600, n: 64", "s[n] += x[m,n]"),
                                  {"m: 20, n: 64", "s[] += x[m,n]"},
                                  {"m: 600, n: 64", "y[m,n] = x[m,n]"}}) {
    const Workload w = of(loops, op);
    EXPECT_TRUE(sums_to_split(w).empty()) << op;
    EXPECT_THAT(apply("split-sums:p", w).reason(), testing::StartsWith("operator p is no sum"));
  }
  for (const char* bad : {"split-sums", "split-sums:", "split-sums:q", "split-sums:p;"})
    EXPECT_THROW(apply(bad, of("m: 600, n: 64", "s[] += x[m,n]")), InputError) << bad;
}

TEST(SplitSums, DrawnSumsComputeTheSame) {
  std::mt19937_64 random(7123);
  for (int i = 0; i < 10; ++i) {
    const auto any = [&](std::initializer_list<const char*> of) {
      return std::string(of.begin()[random() % of.size()]);
    };
    std::function<std::string(int)> drawn = [&](int depth) -> std::string {
      if (depth == 0) return any({"x[m,n]", "y[n]", "z[n,m]", "b[m]", "0.5", "x[m,n]"});
      if (random() % 3 == 0)
        return "(" + drawn(depth - 1) + any({" + ", " * ", " - "}) + drawn(depth - 1) + ")";
      return any({"tanh", "sin", "relu", "cos", "exp"}) + "(" + drawn(depth - 1) + ")";
    };
    const Workload w = of(formatted("m: {}, n: {}", 1 + random() % 40, 16400 + random() % 3000),
                          "s[] " + any({"+=", "max=", "min="}) + " x[m,n] * " + drawn(2));
    const Result<Workload> r = apply("split-sums:p", w);
    ASSERT_TRUE(r.ok()) << r.reason();
    EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-11) << to_yaml(*r);
  }
}

TEST(MaterialiseOrders, OneOfTwoOrdersIsACopy) {
  const Workload w = of("i: 9, j: 9", "s[i,j] = 0.5 * (a[i,j] + a[j,i]) + a[j,i]");
  const Result<Workload> r = apply("materialise-orders:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(check_rewrite(w, *r, 5).relative_error, 0);
  for (const char* op :
       {"a_rows[i,j] = a[j,i]", "s[i,j] = 0.5 * (a[i,j] + a_rows[i,j]) + a_rows[i,j]"})
    EXPECT_THAT(to_yaml(*r), testing::HasSubstr(op));
  EXPECT_TRUE(readers_in_orders(*r).empty());
}

TEST(MaterialiseOrders, ThreeOrdersAndSums) {
  const Workload w =
      of("i: 5, j: 5, k: 5", "s[i,j] += a[i,j,k] * a[k,i,j] + a[j,k,i] * b[i,j] * b[j,i]");
  const Result<Workload> r = apply("materialise-orders:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-14);
  EXPECT_EQ(r->operators().size(), 4U);
}

/// Weights of a window whose channels are last; each factor of an element-wise operator, too.
TEST(MaterialiseAcross, SmallOperandsLieAlongTheRows) {
  const Workload w = of("t: 12, c: 9, r: 3", "y[t,c] += x[t+r-1,c] * k[c,r]");
  const Result<Workload> r = apply("materialise-across:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_EQ(check_rewrite(w, *r, 5).relative_error, 0);
  for (const char* op : {"k_rows[r,c] = k[c,r]", "y[t,c] += x[t+r-1,c] * k_rows[r,c]"})
    EXPECT_THAT(to_yaml(*r), testing::HasSubstr(op));
  EXPECT_TRUE(readers_across(*r).empty());
  // Products of matrices, what is read once, and what nobody reads along the rows.
  const std::string loops = "t: 12, c: 9";
  EXPECT_TRUE(readers_across(of(loops, "y[t,c] = x[t,c] * k[c,t]")).empty());
  for (const char* op :
       {"y[t,c] += x[t,r] * k[c,r]", "y[t,c] += x[c,t] * k[c,r]", "y[t,c] += x[t+r-1,c] * k[r,c]"})
    EXPECT_TRUE(readers_across(of(loops + ", r: 3", op)).empty()) << op;
}

/// An image whose channels are last, where those of the result are first; with padding and steps.
TEST(MaterialiseAcross, ImagesLieAlongTheRowsOfTheResult) {
  const Workload w =
      of("o: 4, y: 6, t: 7, c: 5, r: 3, q: 3", "s[o,y,t] += x[2*y+q-1,2*t+r-1,c] * k[o,c,q,r]");
  const Result<Workload> r = apply("materialise-across:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-14);
  for (const char* op : {"x_rows[x_0,x_2,x_1] = x[x_0,x_1,x_2]",
                         "s[o,y,t] += x_rows[2*y+q-1,c,2*t+r-1] * k[o,c,q,r]"})
    EXPECT_THAT(to_yaml(*r), testing::HasSubstr(op));
  EXPECT_TRUE(readers_across(*r).empty());
}

TEST(MaterialiseOrders, OthersStay) {
  for (const char* op : {"s[i,j] = a[i,j] + b[j,i]", "s[i,j] = a[i,j] + a[i,i]", "s[i,j] = a[j,i]"})
    EXPECT_THAT(apply("materialise-orders:p", of("i: 9, j: 9", op)).reason(),
                testing::StartsWith("operator p reads no tensor twice"))
        << op;
}

}  // namespace
}  // namespace tilewright
