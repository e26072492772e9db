// How good a prediction is, with each figure's meaning written down.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewright::harness {

/// Of predictions x against true values y, point by point. Errors are fractions of the true value.
/// A figure that the points do not define has no value.
struct Agreement {
  std::size_t points = 0;
  std::optional<double> r2_identity = {};  ///< 1 - sum (y - x)^2 / sum (y - mean y)^2: about y = x
  std::optional<double> r2_fit = {};       ///< squared correlation: about the best line through the points
  std::optional<double> mape = {};         ///< mean |x - y| / y
  std::optional<double> worst = {};        ///< largest |x - y| / y
  std::optional<double> bias = {};         ///< mean (x - y) / y; above zero: predicts too much
  std::string undefined = {};              ///< why a figure has no value; empty where all have one
};

/// Both spans of the same length. Without points no figure is defined; without spread in y, no R².
/// Points with y = 0 count as an error of 1 unless x = 0.
Agreement agreement(std::span<const double> predicted, std::span<const double> truth);
/// {"r2_identity", "r2_fit", "mape", "worst", "bias"}, null where undefined, and then "undefined": why.
nlohmann::ordered_json to_json(const Agreement& a);
/// Why the agreement does not reach an R² about y = x; nothing where it does.
std::optional<std::string> below(const Agreement& a, double least_r2);

/// Pearson's correlation of two spans of the same length, from -1 to 1; none where either has no
/// spread, as without points.
std::optional<double> correlation(std::span<const double> x, std::span<const double> y);
/// Spearman's: Pearson's of the ranks, equal values sharing the mean of theirs.
std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y);

/// The middle value, or the mean of the two; of at least one.
double median(std::vector<double> values);

/// A geometric mean, value by value.
class GeometricMean {
 public:
  /// A value above zero.
  void add(double x);
  /// None where nothing was added.
  std::optional<double> value() const;
  int count() const { return count_; }

 private:
  double logs_ = 0;
  int count_ = 0;
};

/// The value, or null.
nlohmann::ordered_json number_or_null(const std::optional<double>& value);
/// The value with so many decimals, or "-".
std::string fixed_or_dash(const std::optional<double>& value, int decimals);
/// The same of a document's number or null.
std::string fixed_or_dash(const nlohmann::ordered_json& value, int decimals, double times = 1);

}  // namespace tilewright::harness
