#include "harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/ir/error.h"

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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace tilewright::harness
