// Holding what a kernel has computed against the reference.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/workload/reference/elements.h"
#include "core/workload/reference/evaluate.h"
#include "core/workload/reference/threads.h"

namespace tilewright {
namespace {

/// Of all elements, those that may be NaN in both: of more, nothing is known.
constexpr double kMostUndefined = 0.05;

/// Over some of the elements.
struct Extremes {
  double error = 0, largest = 0;
  double infinite = 0;   ///< NaN where one is no finite number
  double undefined = 0;  ///< how often both are NaN

  void add(const Extremes& other) {
    error = std::max(error, other.error);
    largest = std::max(largest, other.largest);
    infinite += other.infinite;
    undefined += other.undefined;
  }
};

// Without branches, and in lanes, so that it is as fast as memory.
template <class Value>
Extremes extremes_of(std::int64_t begin, std::int64_t end, const double* reference, double most,
                     Value value) {
  constexpr std::int64_t kLanes = 4;
  constexpr double kLargest = std::numeric_limits<double>::max();
  std::array<Extremes, kLanes> lanes;
  const auto add = [&](Extremes& lane, std::int64_t i) {
    const double as_is = value(i), of_reference = reference[i];
    const bool same = as_is == of_reference;
    const double x = same ? as_is : std::clamp(as_is, -most, most),
                 r = same ? of_reference : std::clamp(of_reference, -most, most),
                 error = same ? 0 : std::abs(x - r),
                 size = std::abs(r) <= kLargest ? std::abs(r) : 0;
    lane.error = lane.error < error ? error : lane.error;
    lane.largest = lane.largest < size ? size : lane.largest;
    const bool both = x != x && r != r;
    lane.infinite += same || both ? 0 : (x - x) + (r - r);  // 0 of finite numbers
    lane.undefined += both ? 1 : 0;
  };
  std::int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) add(lanes[static_cast<std::size_t>(l)], i + l);
  for (; i < end; ++i) add(lanes[0], i);
  Extremes all;
  for (const Extremes& lane : lanes) all.add(lane);
  return all;
}

/// What elements are held against.
struct Held {
  std::span<const double> reference, bounds;
  double root_mean_square = 0;
};

/// Over some of the elements; value(i) is the i-th.
template <class Value>
void hold(Comparison& c, std::int64_t begin, std::int64_t end, const Held& against, Value value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (std::int64_t i = begin; i < end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double x = value(i), r = against.reference[at], bound = against.bounds[at];
    const double error = x == r ? 0 : std::abs(x - r);  // infinite ones, too
    const bool undefined = std::isnan(x) && std::isnan(r);
    const double ratio = std::isinf(bound) || undefined ? 0  // nobody can say: it counts as unseen
                         : !std::isfinite(error)        ? kInfinity
                         : error == 0                   ? 0
                                                        : error / bound;
    if (ratio > c.worst)
      c.worst = ratio, c.element = i, c.got = x, c.reference = r, c.bound = bound;
    const double size = std::max(std::abs(r), against.root_mean_square);
    if (undefined) ++c.undefined;
    if (undefined || !std::isfinite(bound) || (size > 0 && bound > kUnseen * size)) ++c.unseen;
    c.tolerance = std::max(c.tolerance, bound);
  }
}

template <class Value>
Comparison compare_over(std::span<const double> reference, std::span<const double> bounds,
                        Value value) {
  const auto n = static_cast<std::int64_t>(reference.size());
  std::mutex mutex;
  double squares = 0, largest = 0;
  reference::for_each_range(n, 0, [&](std::int64_t begin, std::int64_t end) {
    double some = 0, most = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const double r = reference[static_cast<std::size_t>(i)];
      if (!std::isfinite(r)) continue;
      some += r * r;
      most = std::max(most, std::abs(r));
    }
    const std::lock_guard lock(mutex);
    squares += some;
    largest = std::max(largest, most);
  });
  const Held against{reference, bounds, n == 0 ? 0 : std::sqrt(squares / static_cast<double>(n))};
  Comparison all;
  reference::for_each_range(n, 0, [&](std::int64_t begin, std::int64_t end) {
    Comparison some;
    hold(some, begin, end, against, value);
    const std::lock_guard lock(mutex);
    if (some.worst > all.worst || (some.worst == all.worst && some.element < all.element)) {
      all.worst = some.worst, all.element = some.element;
      all.got = some.got, all.reference = some.reference, all.bound = some.bound;
    }
    all.unseen += some.unseen;
    all.undefined += some.undefined;
    all.tolerance = std::max(all.tolerance, some.tolerance);
  });
  if (largest > 0) all.tolerance /= largest;
  return all;
}

/// value(i) is the i-th of `n` elements. Where two differ, none counts as more than `most`.
template <class Value>
double error_over(std::int64_t n, const double* reference, double most, Value value) {
  Extremes all;
  std::mutex mutex;
  reference::for_each_range(n, 0, [&](std::int64_t begin, std::int64_t end) {
    const Extremes some = extremes_of(begin, end, reference, most, value);
    const std::lock_guard lock(mutex);
    all.add(some);
  });
  if (all.infinite != 0 || all.undefined > kMostUndefined * static_cast<double>(n))
    return std::numeric_limits<double>::infinity();
  return all.error == 0.0 ? 0.0 : all.error / all.largest;
}

template <class T>
double error_of(std::span<const T> got, std::span<const double> reference,
                double most = std::numeric_limits<double>::infinity()) {
  TW_CHECK(got.size() == reference.size(), "values of different shapes are compared");
  return error_over(static_cast<std::int64_t>(got.size()), reference.data(), most,
                    [data = got.data()](std::int64_t i) { return static_cast<double>(data[i]); });
}

/// `of` given the first of `count` elements, in their own type or, of 16 bits, decoded.
template <class F>
auto with_elements(DType type, const void* got, std::size_t count, F of) {
  switch (type) {
    case DType::f32:
      return of(static_cast<const float*>(got));
    case DType::f64:
      return of(static_cast<const double*>(got));
    case DType::i8:
      return of(static_cast<const std::int8_t*>(got));
    case DType::i32:
      return of(static_cast<const std::int32_t*>(got));
    case DType::f16:
    case DType::bf16:
      break;
  }
  return of(decode_elements(type, got, count).data());
}

/// What an infinity of the type counts as beside another value.
double counts_as_most(DType type) {
  const bool small = type == DType::f16 || type == DType::bf16;
  return small ? largest_of(type) : std::numeric_limits<double>::infinity();
}

}  // namespace

double relative_error(std::span<const float> got, std::span<const double> reference) {
  return error_of(got, reference);
}
double relative_error(std::span<const double> got, std::span<const double> reference) {
  return error_of(got, reference);
}

double relative_error(DType type, const void* got, std::span<const double> reference) {
  const double most = counts_as_most(type);
  return with_elements(type, got, reference.size(), [&](const auto* first) {
    return error_of(std::span(first, reference.size()), reference, most);
  });
}

Comparison compare(DType type, const void* got, std::span<const double> reference,
                   std::span<const double> bounds) {
  TW_CHECK(reference.size() == bounds.size(), "bounds of another tensor");
  return with_elements(type, got, reference.size(), [&](const auto* first) {
    Comparison c = compare_over(reference, bounds,
                                [first](std::int64_t i) { return static_cast<double>(first[i]); });
    c.relative_error = relative_error(type, got, reference);
    return c;
  });
}

}  // namespace tilewright
