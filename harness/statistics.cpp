#include "harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/error.h"
#include "core/base/format.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

double mean(std::span<const double> values) {
  double sum = 0;
  for (double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double relative(double x, double y) {
  if (y != 0) return (x - y) / y;
  return x == 0 ? 0 : 1;
}

/// From 1; equal values share the mean of their ranks.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i)
      out[order[i]] = static_cast<double>(begin + end + 1) / 2;
    begin = end;
  }
  return out;
}

}  // namespace

Agreement agreement(std::span<const double> predicted, std::span<const double> truth) {
  TW_CHECK(predicted.size() == truth.size(), "one prediction a point");
  Agreement a{.points = truth.size()};
  if (truth.empty()) {
    a.undefined = "there are no points";
    return a;
  }
  const double n = static_cast<double>(truth.size());
  const double mean_x = mean(predicted), mean_y = mean(truth);
  double residual = 0, spread_x = 0, spread_y = 0, together = 0, mape = 0, worst = 0, bias = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double x = predicted[i], y = truth[i];
    residual += (y - x) * (y - x);
    spread_x += (x - mean_x) * (x - mean_x);
    spread_y += (y - mean_y) * (y - mean_y);
    together += (x - mean_x) * (y - mean_y);
    const double error = relative(x, y);
    mape += std::abs(error) / n;
    bias += error / n;
    worst = std::max(worst, std::abs(error));
  }
  a.mape = mape, a.worst = worst, a.bias = bias;
  if (spread_y > 0) {
    a.r2_identity = 1 - residual / spread_y;
    a.r2_fit = spread_x > 0 ? together * together / (spread_x * spread_y) : 0;
  } else {
    a.undefined = "R² needs points whose true values differ";
  }
  return a;
}

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::string fixed_or_dash(const std::optional<double>& value, int decimals) {
  return value ? formatted("{:.{}f}", *value, decimals) : "-";
}

std::string fixed_or_dash(const ordered_json& value, int decimals, double times) {
  return value.is_number() ? formatted("{:.{}f}", times * value.get<double>(), decimals) : "-";
}

ordered_json to_json(const Agreement& a) {
  ordered_json json = {{"r2_identity", number_or_null(a.r2_identity)},
                       {"r2_fit", number_or_null(a.r2_fit)},
                       {"mape", number_or_null(a.mape)},
                       {"worst", number_or_null(a.worst)},
                       {"bias", number_or_null(a.bias)}};
  if (!a.undefined.empty()) json["undefined"] = a.undefined;
  return json;
}

std::optional<std::string> below(const Agreement& a, double least_r2) {
  if (!a.r2_identity)
    return formatted("R² about y = x is not defined, and must be at least {}: {}", least_r2,
                     a.undefined);
  if (*a.r2_identity >= least_r2) return std::nullopt;
  return formatted("R² about y = x is {:f}, below {:f}", *a.r2_identity, least_r2);
}

std::optional<double> correlation(std::span<const double> x, std::span<const double> y) {
  TW_CHECK(x.size() == y.size(), "pairs");
  const double mean_x = mean(x), mean_y = mean(y);
  double spread_x = 0, spread_y = 0, together = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    spread_x += (x[i] - mean_x) * (x[i] - mean_x);
    spread_y += (y[i] - mean_y) * (y[i] - mean_y);
    together += (x[i] - mean_x) * (y[i] - mean_y);
  }
  if (!(spread_x > 0) || !(spread_y > 0)) return std::nullopt;
  return together / std::sqrt(spread_x * spread_y);
}

std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y) {
  return correlation(ranks(x), ranks(y));
}

double median(std::vector<double> values) {
  TW_CHECK(!values.empty(), "a median of no values");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void GeometricMean::add(double x) {
  TW_CHECK(x > 0, "a geometric mean is of values above zero");
  logs_ += std::log(x);
  ++count_;
}

std::optional<double> GeometricMean::value() const {
  if (count_ == 0) return std::nullopt;
  return std::exp(logs_ / count_);
}

}  // namespace tilewright::harness
