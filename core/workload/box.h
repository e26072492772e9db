// Intervals and boxes of integers: ranges of loops and tiles of tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "core/base/error.h"

namespace tilewright {

/// Half-open range [lo, hi); empty when hi <= lo.
struct Interval {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  constexpr std::int64_t size() const { return hi > lo ? hi - lo : 0; }
  constexpr bool empty() const { return hi <= lo; }
  friend constexpr bool operator==(const Interval&, const Interval&) = default;
};

constexpr Interval intersect(Interval a, Interval b) {
  return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}
/// Smallest interval that holds both; an empty one adds nothing.
constexpr Interval hull(Interval a, Interval b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}
constexpr bool contains(Interval outer, Interval inner) {
  return inner.empty() || (outer.lo <= inner.lo && inner.hi <= outer.hi);
}

inline constexpr int kMaxRank = 8;  ///< most dimensions of a tensor; more is refused as bad input

/// A box in a tensor, one interval a dimension, outermost first. Rank 0 is a scalar of one element.
class Box {
 public:
  Box() {}
  explicit Box(int rank) : rank_(rank) { std::uninitialized_fill_n(dims_, rank, Interval{}); }
  Box(std::initializer_list<Interval> dims) : rank_(static_cast<int>(dims.size())) {
    std::uninitialized_copy(dims.begin(), dims.end(), dims_);
  }
  Box(const Box& other) : rank_(other.rank_) {
    std::uninitialized_copy(other.begin(), other.end(), dims_);
  }
  Box& operator=(const Box& other) {
    if (this == &other) return *this;
    rank_ = other.rank_;
    std::uninitialized_copy(other.begin(), other.end(), dims_);
    return *this;
  }
  ~Box() = default;
  int rank() const { return rank_; }
  Interval& operator[](int d) { return dims_[d]; }
  const Interval& operator[](int d) const { return dims_[d]; }
  const Interval* begin() const { return dims_; }
  const Interval* end() const { return dims_ + rank_; }
  /// Number of elements.
  std::int64_t size() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank_; ++d) n *= (*this)[d].size();
    return n;
  }
  bool empty() const { return size() == 0; }
  friend bool operator==(const Box& a, const Box& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  // The first `rank_` are there. Walks copy boxes all the time, mostly of two or three dimensions.
  union {
    Interval dims_[kMaxRank];
  };
  int rank_ = 0;
};

/// Smallest box that holds both; ranks must agree; an empty one adds nothing.
inline Box hull(const Box& a, const Box& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Box r(a.rank());
  for (int d = 0; d < a.rank(); ++d) r[d] = hull(a[d], b[d]);
  return r;
}
inline Box intersect(const Box& a, const Box& b) {
  Box r(a.rank());
  for (int d = 0; d < a.rank(); ++d) r[d] = intersect(a[d], b[d]);
  return r;
}
inline bool contains(const Box& outer, const Box& inner) {
  if (inner.empty()) return true;
  for (int d = 0; d < inner.rank(); ++d)
    if (!contains(outer[d], inner[d])) return false;
  return true;
}

/// What of `now` is new when `held` is already there and the two differ in one dimension only, as
/// one interval of that dimension: the rule of `sliding` (plan.md, rules 8 and 13). Returns `now`
/// itself when nothing can be kept: several dimensions differ, no overlap, or the new part would
/// not be one interval (held strictly inside now). Empty when `now` lies within `held`.
Box new_part(const Box& held, const Box& now);

/// "[0,4)x[0,5)"
std::string to_text(const Box& box);

}  // namespace tilewright
