// materialise-windows and materialise-borders: do operators that read through windows compute the
// same from copies?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Workload workload(const std::string& yaml) {
  return workload_from_yaml("name: test\ndtype: f64\n" + yaml, "test");
}

Workload convolution(const std::string& operation, const std::string& image) {
  return workload("loops: {b: 2, o: 5, c: 3, y: 4, x: 6, r: 3, s: 3}\ntensors: {X: " + image +
                  "}\noperators:\n  - p: " + operation + "\n");
}

TEST(Windows, OfImagesWithChannelsFirstCopiesEndInTheRowsOfTheResult) {
  const Workload w =
      convolution("Y[b,o,y,x] += X[b,c,y + r - 1,x + s - 1] * W[o,c,r,s]", "[b, c, 4, 6]");
  ASSERT_EQ(products_of_windows(w).size(), 1);
  const Result<Workload> r = tilewright::apply("materialise-windows:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  EXPECT_THAT(operators_of(*r), ElementsAre("X_rows: X_rows[b,c,r,s,y,x] = X[b,c,r+y-1,s+x-1]",
                                            "p: Y[b,o,y,x] += X_rows[b,c,r,s,y,x] * W[o,c,r,s]"));
  EXPECT_TRUE(products_of_windows(*r).empty());
}

TEST(Windows, OfImagesWithChannelsLastCopiesEndInTheChannels) {
  const std::string image = "[b, 4, 6, c]", read = "X[b,y + r - 1,x + s - 1,c]";
  const Workload w = convolution("Y[b,y,x,o] += " + read + " * W[r,s,c,o]", image);
  const Result<Workload> r = tilewright::apply("materialise-windows:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  EXPECT_THAT(operators_of(*r), ElementsAre("X_rows: X_rows[b,y,x,r,s,c] = X[b,y+r-1,x+s-1,c]",
                                            "p: Y[b,y,x,o] += X_rows[b,y,x,r,s,c] * W[r,s,c,o]"));
  // Weights in another order are copied, too.
  const Workload other = convolution("Y[b,y,x,o] += " + read + " * W[o,c,r,s]", image);
  const Result<Workload> both = tilewright::apply("materialise-windows:p", other);
  ASSERT_TRUE(both.ok()) << both.reason();
  EXPECT_LT(check_rewrite(other, *both, 5).relative_error, 1e-12);
  EXPECT_EQ(operators_of(*both).back(), "p: Y[b,y,x,o] += X_rows[b,y,x,r,s,c] * W_rows[o,r,s,c]");
}

TEST(Windows, BordersOfRowsAreAWholeNumberOfBlocks) {
  const Workload w = workload(
      "loops: {c: 3, x: 7, s: 3}\ntensors: {X: [c, 7]}\noperators:\n"
      "  - p: Y[c,x] max= X[c,x + s - 1]\n");
  ASSERT_EQ(readers_beyond_rows(w).size(), 1);
  const Result<Workload> r = tilewright::apply("materialise-borders:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  EXPECT_THAT(operators_of(*r).back(), HasSubstr("X_wide[c,x+s+15]"));
  EXPECT_EQ(r->tensor(*r->find_tensor("X_wide")).shape, (std::vector<std::int64_t>{3, 24}));
  // Nothing is before its tensor any more but the copy itself.
  EXPECT_EQ(readers_beyond_rows(*r).size(), 1);
}

TEST(Windows, RowsThatStepsPassOverAreWrittenByTaps) {
  const Workload w = workload(
      "loops: {c: 3, y: 4, x: 7, r: 2, s: 3}\ntensors: {X: [c, 8, 14]}\noperators:\n"
      "  - p: Y[c,y,x] += X[c,2*y + r,2*x + s - 1]\n");
  const Result<Workload> r = tilewright::apply("materialise-borders:p", w);
  ASSERT_TRUE(r.ok()) << r.reason();
  EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12);
  EXPECT_THAT(operators_of(*r).back(), HasSubstr("X_wide[c,2*y+r,s,x]"));
}

/// Groups, strides, distances, padding and orders.
TEST(Windows, DrawnConvolutionsComputeTheSame) {
  std::mt19937_64 random(40127);
  const auto number = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int wide = 0;
  for (int i = 0; i < 60; ++i) {
    const int taps = number(1, 4), step = number(1, 3), apart = number(1, 2), before = number(0, 2);
    const bool last = number(0, 1) == 1, grouped = number(0, 1) == 1;
    const std::string g = grouped ? "g," : "";
    const auto at = [&](const char* l, const char* tap) {
      return formatted("{}*{} + {}*{} - {}", step, l, apart, tap, before);
    };
    const std::string places = at("y", "r") + "," + at("x", "s");
    const char* const weights[] = {"o,c,r,s", "r,s,c,o", "c,s,o,r"};
    const Workload w = workload(formatted(
        "loops: {{b: 2,{} o: 3, c: 4, y: 3, x: 5, r: {}, s: {}}}\ntensors: {{X: [b,{}]}}\n"
        "operators:\n  - p: {} += {} * W[{}{}]\n",
        grouped ? " g: 2," : "", taps, number(1, 3), last ? "7,9," + g + "c" : g + "c,7,9",
        last ? "Y[b,y,x," + g + "o]" : "Y[b," + g + "o,y,x]",
        last ? "X[b," + places + "," + g + "c]" : "X[b," + g + "c," + places + "]", g,
        weights[number(0, 2)]));
    const Result<Workload> r = tilewright::apply("materialise-windows:p", w);
    ASSERT_TRUE(r.ok()) << r.reason() << to_yaml(w);
    EXPECT_LT(check_rewrite(w, *r, 5).relative_error, 1e-12) << to_yaml(w) << to_yaml(*r);
    for (const OpId op : readers_beyond_rows(*r)) {
      ++wide;
      const Result<Workload> both = tilewright::apply("materialise-borders:" + r->op(op).name, *r);
      ASSERT_TRUE(both.ok()) << both.reason();
      EXPECT_LT(check_rewrite(w, *both, 5).relative_error, 1e-12) << to_yaml(w) << to_yaml(*both);
    }
  }
  EXPECT_GT(wide, 10);
}

TEST(Windows, RefusesWhatReadsThroughNone) {
  const Workload product =
      workload("loops: {m: 4, n: 5, k: 6}\noperators:\n  - p: C[m,n] += A[m,k] * B[k,n]\n");
  EXPECT_THAT(tilewright::apply("materialise-windows:p", product).reason(),
              HasSubstr("is no product of two"));
  EXPECT_THAT(tilewright::apply("materialise-borders:p", product).reason(),
              HasSubstr("neither reads before"));
  // Over each channel there is no matrix.
  const Workload channels = workload(
      "loops: {c: 4, x: 5, s: 3}\ntensors: {X: [c, 7]}\noperators:\n"
      "  - p: Y[c,x] += X[c,x + s] * W[c,s]\n");
  EXPECT_TRUE(products_of_windows(channels).empty());
}

}  // namespace
}  // namespace tilewright
