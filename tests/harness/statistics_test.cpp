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
  EXPECT_NEAR(a.r2_identity.value(), 1 - 9.0 / 42, 1e-12);
  // correlation: 3 / sqrt(2 * 42/9), squared.
  EXPECT_NEAR(a.r2_fit.value(), 9.0 / (2 * 42.0 / 9), 1e-12);
  EXPECT_NEAR(a.mape.value(), 0.25 / 3, 1e-12);
  EXPECT_NEAR(a.worst.value(), 0.25, 1e-12);
  EXPECT_NEAR(a.bias.value(), -0.25 / 3, 1e-12);
  EXPECT_EQ(a.points, 3U);
  EXPECT_EQ(a.undefined, "");
}

TEST(Statistics, AFittedLineHidesWhatTheIdentityShows) {
  const std::vector<double> predicted = {1, 2, 3, 4}, truth = {2, 4, 6, 8};
  const Agreement a = agreement(predicted, truth);
  EXPECT_NEAR(a.r2_fit.value(), 1, 1e-12);
  EXPECT_LT(a.r2_identity.value(), 0);
  EXPECT_NEAR(a.mape.value(), 0.5, 1e-12);
  EXPECT_NEAR(a.bias.value(), -0.5, 1e-12);
}

TEST(Statistics, OfNoPointsThereIsNone) {
  const std::vector<double> none;
  const Agreement a = agreement(none, none);
  EXPECT_EQ(to_json(a).dump(), R"({"r2_identity":null,"r2_fit":null,"mape":null,"worst":null,)"
                               R"("bias":null,"undefined":"there are no points"})");
  EXPECT_NE(below(a, -10).value().find("there are no points"), std::string::npos);
  EXPECT_FALSE(correlation(none, none).has_value());
  EXPECT_FALSE(rank_correlation(none, none).has_value());
  EXPECT_FALSE(GeometricMean().value().has_value());
}

TEST(Statistics, WithoutSpreadThereIsNoR2) {
  const std::vector<double> one = {3}, off = {4}, zero = {0}, two = {3, 3}, ramp = {1, 2};
  for (const auto& [x, y] : {std::pair(one, one), std::pair(off, one), std::pair(ramp, two)}) {
    const Agreement a = agreement(x, y);
    EXPECT_FALSE(a.r2_identity.has_value());
    EXPECT_FALSE(a.r2_fit.has_value());
    EXPECT_TRUE(a.mape.has_value());
    EXPECT_NE(a.undefined, "");
    EXPECT_TRUE(below(a, 0).has_value());
  }
  EXPECT_FALSE(correlation(ramp, two).has_value());
  EXPECT_EQ(agreement(one, zero).worst, 1);
  EXPECT_EQ(agreement(zero, zero).worst, 0);
}

TEST(Statistics, BelowWhatIsAsked) {
  const std::vector<double> x = {1, 2, 3}, y = {1, 2, 4};
  EXPECT_FALSE(below(agreement(x, y), 0.5).has_value());
  EXPECT_TRUE(below(agreement(x, y), 0.9).has_value());
  GeometricMean mean;
  mean.add(2);
  mean.add(8);
  EXPECT_NEAR(mean.value().value(), 4, 1e-12);
}

}  // namespace
}  // namespace tilewright::harness
