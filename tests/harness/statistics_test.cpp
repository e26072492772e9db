// Do the figures of merit mean what their names say? Hand-computed cases, and the trap that a refitted
// line falls into.
#include "harness/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewright::harness {
namespace {

TEST(Statistics, ByHand) {
  const std::vector<double> predicted = {1, 2, 3}, truth = {1, 2, 4};
  const Agreement a = agreement(predicted, truth);
  // mean y 7/3; spread 42/9; residual 1.
  EXPECT_NEAR(a.r2_identity, 1 - 9.0 / 42, 1e-12);
  // correlation: 3 / sqrt(2 * 42/9), squared.
  EXPECT_NEAR(a.r2_fit, 9.0 / (2 * 42.0 / 9), 1e-12);
  EXPECT_NEAR(a.mape, 0.25 / 3, 1e-12);
  EXPECT_NEAR(a.worst, 0.25, 1e-12);
  EXPECT_NEAR(a.bias, -0.25 / 3, 1e-12);
}

TEST(Statistics, AFittedLineHidesWhatTheIdentityShows) {
  const std::vector<double> predicted = {1, 2, 3, 4}, truth = {2, 4, 6, 8};
  const Agreement a = agreement(predicted, truth);
  EXPECT_NEAR(a.r2_fit, 1, 1e-12);
  EXPECT_LT(a.r2_identity, 0);
  EXPECT_NEAR(a.mape, 0.5, 1e-12);
  EXPECT_NEAR(a.bias, -0.5, 1e-12);
}

TEST(Statistics, Degenerate) {
  const std::vector<double> none, one = {3}, off = {4}, zero = {0};
  EXPECT_EQ(agreement(none, none).r2_identity, 1);
  EXPECT_EQ(agreement(one, one).r2_identity, 1);
  EXPECT_EQ(agreement(off, one).r2_identity, 0);
  EXPECT_EQ(agreement(one, zero).worst, 1);
  EXPECT_EQ(agreement(zero, zero).worst, 0);
}

}  // namespace
}  // namespace tilewright::harness
