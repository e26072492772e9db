// How good a prediction is, with each figure's meaning written down.
#pragma once

#include <span>
#include <vector>

namespace tilewright::harness {

/// Of predictions x against true values y, point by point. Errors are fractions of the true value.
struct Agreement {
  double r2_identity = 0;  ///< 1 - sum (y - x)^2 / sum (y - mean y)^2: about the line y = x
  double r2_fit = 0;       ///< squared correlation: about the best line through the points
  double mape = 0;         ///< mean |x - y| / y
  double worst = 0;        ///< largest |x - y| / y
  double bias = 0;         ///< mean (x - y) / y; above zero: predicts too much
};

/// Both spans of the same length. Without spread in y (or without points) no R² is defined: it is then
/// 1 where every prediction is exact, else 0. Points with y = 0 count as an error of 1 unless x = 0.
Agreement agreement(std::span<const double> predicted, std::span<const double> truth);

/// Pearson's correlation of two spans of the same length, from -1 to 1; 0 where either has no spread.
double correlation(std::span<const double> x, std::span<const double> y);
/// Spearman's: Pearson's of the ranks, equal values sharing the mean of theirs.
double rank_correlation(std::span<const double> x, std::span<const double> y);

/// The middle value, or the mean of the two; of at least one.
double median(std::vector<double> values);

}  // namespace tilewright::harness
