// Intervals and boxes of integers: ranges of loops and tiles of tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
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
  constexpr Box() = default;
  constexpr explicit Box(int rank) : rank_(rank) {}
  constexpr Box(std::initializer_list<Interval> dims) {
    for (Interval d : dims) dims_[static_cast<std::size_t>(rank_++)] = d;
  }
  constexpr int rank() const { return rank_; }
  constexpr Interval& operator[](int d) { return dims_[static_cast<std::size_t>(d)]; }
  constexpr const Interval& operator[](int d) const { return dims_[static_cast<std::size_t>(d)]; }
  constexpr const Interval* begin() const { return dims_.data(); }
  constexpr const Interval* end() const { return dims_.data() + rank_; }
  /// Number of elements.
  constexpr std::int64_t size() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank_; ++d) n *= (*this)[d].size();
    return n;
  }
  constexpr bool empty() const { return size() == 0; }
  friend constexpr bool operator==(const Box& a, const Box& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::array<Interval, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Smallest box that holds both; ranks must agree; an empty one adds nothing.
constexpr Box hull(const Box& a, const Box& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Box r(a.rank());
  for (int d = 0; d < a.rank(); ++d) r[d] = hull(a[d], b[d]);
  return r;
}
constexpr Box intersect(const Box& a, const Box& b) {
  Box r(a.rank());
  for (int d = 0; d < a.rank(); ++d) r[d] = intersect(a[d], b[d]);
  return r;
}
constexpr bool contains(const Box& outer, const Box& inner) {
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
