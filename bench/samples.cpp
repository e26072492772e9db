#include "bench/samples.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "harness/statistics.h"

namespace tilewright::bench {

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("the median of no values");
  return harness::median(std::move(values));
}

double geometric_mean(const std::vector<double>& values) {
  if (values.empty()) throw std::invalid_argument("the geometric mean of no values");
  double sum = 0;
  for (double v : values) {
    if (!(v > 0)) throw std::invalid_argument("a geometric mean of what is not above zero");
    sum += std::log(v);
  }
  return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace tilewright::bench
