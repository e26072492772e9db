// channels-last: do convolutions compute the same, which tensors change, and which are copied?
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/format.h"
#include "core/workload/rewrite/rewrite.h"
#include "tests/core/rewrite_support.h"

namespace tilewright {
namespace {

Workload workload(const std::string& yaml) {
  return workload_from_yaml("name: test\ndtype: f16\n" + yaml, "test");
}

std::string shape(const Workload& w, const std::string& tensor) {
  const auto t = w.find_tensor(tensor);
  if (!t) return "none";
  std::string text;
  for (const std::int64_t n : w.tensor(*t).shape)
    text += (text.empty() ? "" : " ") + std::to_string(n);
  return text;
}

TEST(ChannelsLast, InputsAreCopiedInWholePieces) {
  const Workload w = workload(
      "loops: {b: 2, o: 5, c: 12, y: 4, x: 5, r: 3, s: 3}\ntensors: {I: [b,c,4,5]}\noperators:\n"
      "  - conv: O[b,o,y,x] += I[b,c,y+r-1,x+s-1] * W[o,c,r,s]\n");
  const Result<Workload> last = apply("channels-last:conv", w);
  ASSERT_TRUE(last.ok()) << last.reason();
  EXPECT_EQ(check_rewrite(w, *last, 5).relative_error, 0);
  EXPECT_EQ(shape(*last, "I_last"), "2 4 5 16");
  EXPECT_EQ(shape(*last, "W_last"), "5 3 3 16");
  EXPECT_EQ(last->operators().size(), 3U);
  EXPECT_TRUE(channels_to_be_last(*last).empty());
}

/// What operators between two convolutions make of a channel is written as the second reads it.
TEST(ChannelsLast, ImagesBetweenAreWrittenSo) {
  const Workload w = workload(
      "loops: {o: 20, c: 8, p: 6, y: 8, x: 8, h: 4, v: 4, r: 3, s: 3, t: 2, u: 2}\n"
      "tensors: {I: [c,8,8]}\noperators:\n"
      "  - one: M[o,y,x] += I[c,y+r-1,x+s-1] * W[o,c,r,s]\n"
      "  - act: R[o,y,x] = relu(M[o,y,x] + g[o])\n"
      "  - pool: P[o,h,v] max= R[o,2*h+t,2*v+u]\n"
      "  - two: O[p,h,v] += P[o,h,v] * V[p,o]\n");
  const Result<Workload> both = apply("channels-last:one;two", w);
  ASSERT_TRUE(both.ok()) << both.reason();
  EXPECT_EQ(check_rewrite(w, *both, 5).relative_error, 0);
  for (const char* t : {"M", "R"}) EXPECT_EQ(shape(*both, t), "8 8 24") << t;
  EXPECT_EQ(shape(*both, "P"), "4 4 24");
  EXPECT_EQ(shape(*both, "P_last"), "none");
  // Of a convolution that does not change, the image is copied.
  const Result<Workload> second = apply("channels-last:two", w);
  ASSERT_TRUE(second.ok()) << second.reason();
  EXPECT_EQ(check_rewrite(w, *second, 5).relative_error, 0);
  EXPECT_EQ(shape(*second, "P"), "20 4 4");
  EXPECT_EQ(shape(*second, "P_last"), "4 4 24");
}

/// Two readers have one copy; a depthwise convolution between leaves channels apart.
TEST(ChannelsLast, ReadersShareACopy) {
  const Workload w = workload(
      "loops: {o: 8, p: 8, c: 16, y: 4, x: 4, r: 3, s: 3, k: 3, j: 3, d: 8}\n"
      "tensors: {I: [c,4,4]}\noperators:\n"
      "  - one: M[o,y,x] += I[c,y+r-1,x+s-1] * W[o,c,r,s]\n"
      "  - other: N[p,y,x] += I[c,y,x] * U[p,c]\n"
      "  - each: D[o,y,x] += M[o,y+k-1,x+j-1] * V[o,k,j]\n"
      "  - last: O[d,y,x] += D[o,y,x] * Q[d,o]\noutputs: [N, O]\n");
  const Result<Workload> all = apply("channels-last:one;other;last", w);
  ASSERT_TRUE(all.ok()) << all.reason();
  EXPECT_EQ(check_rewrite(w, *all, 5).relative_error, 0);
  EXPECT_EQ(shape(*all, "I_last"), "4 4 16");
  EXPECT_EQ(shape(*all, "I_last_2"), "none");
  for (const char* t : {"M", "D"}) EXPECT_EQ(shape(*all, t), "4 4 8") << t;
}

/// What one reads as channels another one reads as points.
TEST(ChannelsLast, ReadersMayHaveOtherChannels) {
  for (const bool between : {false, true}) {
    const std::string image = between ? "R" : "I";
    const Workload w = workload(
        "loops: {o: 8, p: 8, c: 16, d: 8, x: 4, r: 3" + std::string(between ? ", e: 8, z: 6" : "") +
        "}\ntensors: {I: [" + std::string(between ? "e,d,6" : "c,d,6") + "]}\noperators:\n" +
        (between ? "  - made: R[c,d,z] += I[e,d,z] * K[c,e]\n" : "") +
        "  - one: M[o,d,x] += " + image + "[c,d,x+r] * W[o,c,r]\n" +
        "  - other: N[p,c,x] += " + image + "[c,d,x+r] * U[p,d,r]\noutputs: [M, N]\n");
    const Result<Workload> all =
        apply(between ? "channels-last:made;one;other" : "channels-last:one;other", w);
    ASSERT_TRUE(all.ok()) << all.reason();
    EXPECT_EQ(check_rewrite(w, *all, 5).relative_error, 0);
  }
}

TEST(ChannelsLast, DrawnConvolutionsComputeTheSame) {
  std::mt19937_64 random(7101);
  const auto number = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int changed = 0;
  for (int i = 0; i < 40; ++i) {
    const int c = number(8, 20), k = number(1, 3), stride = number(1, 2), pad = number(0, k - 1),
              n = number(1, 5), size = std::max(1, (n - 1) * stride + k - 2 * pad);
    const bool first = number(0, 1) == 0;
    const std::string at = formatted("{0}*y+r-{1},{0}*x+s-{1}", stride, pad);
    const Workload w = workload(formatted(
        "loops: {{b: 2, o: {}, c: {}, y: {}, x: {}, r: {}, s: {}}}\ntensors: {{I: [b,{}]}}\n"
        "operators:\n  - conv: O[b,o,y,x] += W[o,{}] * I[b,{}]\n",
        number(1, 9), c, n, n, k, k,
        first ? formatted("c,{0},{0}", size) : formatted("{0},{0},c", size),
        number(0, 1) == 0 ? "c,r,s" : "s,c,r", first ? "c," + at : at + ",c"));
    if (channels_to_be_last(w).empty()) continue;
    ++changed;
    const Result<Workload> last = apply("channels-last:conv", w);
    ASSERT_TRUE(last.ok()) << last.reason();
    EXPECT_EQ(check_rewrite(w, *last, 5).relative_error, 0) << i;
    EXPECT_TRUE(channels_to_be_last(*last).empty()) << i;
  }
  EXPECT_GT(changed, 25);
}

/// Fewer channels than 16 bytes have lie beside the taps of a row, with zeros around.
TEST(ChannelsLast, FewChannelsLieBesideTapsOfARow) {
  const Workload w = workload(
      "loops: {o: 5, c: 3, y: 4, x: 5, r: 7, s: 7}\ntensors: {I: [8,10,c]}\n"
      "operators:\n  - conv: O[o,y,x] += I[2*y+r-3,2*x+s-3,c] * W[o,c,r,s]\n");
  const Result<Workload> last = apply("channels-last:conv", w);
  ASSERT_TRUE(last.ok()) << last.reason();
  EXPECT_EQ(shape(*last, "I_last"), "8 16 4");  // 2 * 4 + 6 is the last column that is read
  EXPECT_EQ(shape(*last, "W_last"), "5 7 8 4");
  std::mt19937_64 random(7102);
  const auto number = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int changed = 0;
  for (int i = 0; i < 40; ++i) {
    const int c = number(2, 7), k = number(2, 7), stride = number(1, 3), pad = number(0, k - 1),
              n = number(1, 6), size = std::max(1, (n - 1) * stride + k - 2 * pad - number(0, 1));
    const bool first = number(0, 1) == 0;
    const std::string at = formatted("{0}*y+r-{1},{0}*x+s-{1}", stride, pad);
    const Workload drawn = workload(
        formatted("loops: {{b: 2, o: {}, c: {}, y: {}, x: {}, r: {}, s: {}}}\n"
                  "tensors: {{I: [b,{}]}}\noperators:\n  - conv: O[b,o,y,x] += W[o,{}] * I[b,{}]\n",
                  number(2, 9), c, n, n, k, k,
                  first ? formatted("c,{0},{0}", size) : formatted("{0},{0},c", size),
                  number(0, 1) == 0 ? "c,r,s" : "s,c,r", first ? "c," + at : at + ",c"));
    if (channels_to_be_last(drawn).empty()) continue;
    ++changed;
    const Result<Workload> few = apply("channels-last:conv", drawn);
    ASSERT_TRUE(few.ok()) << few.reason();
    EXPECT_EQ(check_rewrite(drawn, *few, 5).relative_error, 0) << i;
    EXPECT_TRUE(channels_to_be_last(*few).empty()) << i;
  }
  EXPECT_GT(changed, 8);
}

TEST(ChannelsLast, RefusesWhatGainsNothing) {
  const auto reason = [](const std::string& yaml) {
    return apply("channels-last:conv", workload(yaml)).reason();
  };
  const std::string none = "operator conv is no convolution of one group";
  for (const char* yaml :
       {// A product of matrices, groups, one channel, channels that are last.
        "loops: {m: 8, k: 8, n: 8}\noperators:\n  - conv: O[m,n] += I[m,k] * W[k,n]\n",
        "loops: {g: 2, o: 8, c: 8, y: 4, r: 3}\ntensors: {I: [g,c,6]}\noperators:\n"
        "  - conv: O[g,o,y] += I[g,c,y+r] * W[g,o,c,r]\n",
        "loops: {o: 8, c: 3, y: 4, x: 4}\noperators:\n  - conv: O[o,y,x] += I[c,y,x] * W[o,c]\n",
        "loops: {o: 8, c: 8, y: 4, r: 3}\ntensors: {I: [6,c]}\noperators:\n"
        "  - conv: O[y,o] += I[y+r,c] * W[o,r,c]\n"})
    EXPECT_THAT(reason(yaml), testing::StartsWith(none)) << yaml;
  const Workload w = workload(
      "loops: {o: 8, c: 8, y: 4, x: 4}\noperators:\n  - conv: O[o,y,x] += I[c,y,x] * W[o,c]\n");
  EXPECT_TRUE(apply("channels-last:conv", w).ok());
  // A result with longer rows than are written, as pad-results leaves it.
  const Workload longer = workload(
      "loops: {o: 16, c: 8, y: 4, x: 7, p: 16}\ntensors: {M: [o,4,8]}\noperators:\n"
      "  - first: M[o,y,x] += I[c,y,x] * W[o,c]\n"
      "  - conv: O[p,y,x] += M[o,y,x] * V[p,o]\n");
  EXPECT_THAT(apply("channels-last:conv", longer).reason(), testing::StartsWith(none));
  for (const char* bad :
       {"channels-last", "channels-last:", "channels-last:q", "channels-last:conv;"})
    EXPECT_THROW(apply(bad, w), InputError) << bad;
}

}  // namespace
}  // namespace tilewright
