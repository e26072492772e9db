#include "harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/error.h"

namespace tilewright::harness {
namespace {

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
  const double n = static_cast<double>(truth.size());
  const double mean_x = mean(predicted);
  const double mean_y = mean(truth);
  double residual = 0, spread_x = 0, spread_y = 0, together = 0;
  Agreement a;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double x = predicted[i], y = truth[i];
    residual += (y - x) * (y - x);
    spread_x += (x - mean_x) * (x - mean_x);
    spread_y += (y - mean_y) * (y - mean_y);
    together += (x - mean_x) * (y - mean_y);
    const double error = relative(x, y);
    a.mape += std::abs(error) / n;
    a.bias += error / n;
    a.worst = std::max(a.worst, std::abs(error));
  }
  if (spread_y > 0) {
    a.r2_identity = 1 - residual / spread_y;
    a.r2_fit = spread_x > 0 ? together * together / (spread_x * spread_y) : 0;
  } else {
    a.r2_identity = a.r2_fit = residual == 0 ? 1 : 0;
  }
  return a;
}

double correlation(std::span<const double> x, std::span<const double> y) {
  TW_CHECK(x.size() == y.size(), "pairs");
  const double mean_x = mean(x), mean_y = mean(y);
  double spread_x = 0, spread_y = 0, together = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    spread_x += (x[i] - mean_x) * (x[i] - mean_x);
    spread_y += (y[i] - mean_y) * (y[i] - mean_y);
    together += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return spread_x > 0 && spread_y > 0 ? together / std::sqrt(spread_x * spread_y) : 0;
}

double rank_correlation(std::span<const double> x, std::span<const double> y) {
  return correlation(ranks(x), ranks(y));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace tilewright::harness
