// Branch and bound over one subproblem of the solver. Private to models/chimera.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "models/chimera/tables.h"

namespace tilewright::chimera::detail {

/// Looks for the choices of least volume that fit. A box of choices, from `lo` to `hi` in each
/// loop, is bounded below by each factor's least over the choices that fit with the other loops at
/// `lo`, and is halved until it is one loop wide.
class Descent {
 public:
  using Choices = std::array<int, kMostCut>;

  /// Looks for less than `limit`, or where not `strict`, for no more.
  Descent(const Problem& p, std::int64_t capacity, double limit, bool strict)
      : p_(p),
        n_(p.loops.size()),
        room_(static_cast<double>(capacity) * (1 + 1e-12)),
        limit_(limit),
        strict_(strict),
        size_(p.sizes.size()),
        other_(p.sizes.size()) {}

  /// A lower bound of the whole problem; infinite where nothing fits.
  double bound() {
    Box all = everything();
    return shrink(all) ? bound_of(all) : INFINITY;
  }

  /// Searches until proven or `budget` boxes and points are looked at; true if it found something.
  bool run(std::int64_t budget) {
    budget_ = budget;
    Box all = everything();
    if (shrink(all)) split(all, bound_of(all));
    return found_;
  }
  const Choices& choices() const { return best_; }
  double volume() const { return limit_; }
  bool exhausted() const { return budget_ <= 0; }
  std::int64_t evaluated = 0, pruned = 0;

 private:
  struct Box {
    Choices lo{}, hi{};
  };

  Box everything() const {
    Box b;
    for (std::size_t j = 0; j < n_; ++j) b.hi[j] = static_cast<int>(p_.loops[j].choice.size()) - 1;
    return b;
  }
  bool cut_off(double v) const { return strict_ ? v >= limit_ : v > limit_; }
  static double at(const Product& m, std::size_t j, int choice) {
    return m.factor[j] == nullptr ? 1.0 : m.factor[j][choice];
  }
  double sum_at(const std::vector<Product>& products, const Choices& c) const {
    double sum = 0;
    for (const Product& m : products) {
      double v = m.base;
      for (std::size_t j = 0; j < n_; ++j) v *= at(m, j, c[j]);
      sum += v;
    }
    return sum;
  }
  double bound_of(const Box& b) const { return sum_at(p_.least, b.hi); }

  /// Lowers `hi` to what fits with the other loops at `lo`; false where `lo` itself does not fit.
  bool shrink(Box& b) {
    for (std::size_t i = 0; i < size_.size(); ++i) {
      size_[i] = p_.sizes[i].base;
      for (std::size_t j = 0; j < n_; ++j) size_[i] *= at(p_.sizes[i], j, b.lo[j]);
    }
    for (const std::vector<std::size_t>& row : p_.rows) {
      double sum = 0;
      for (std::size_t i : row) sum += size_[i];
      if (sum > room_) return false;
    }
    for (std::size_t j = 0; j < n_; ++j) {
      if (b.lo[j] == b.hi[j]) continue;
      for (std::size_t i = 0; i < size_.size(); ++i)
        other_[i] = size_[i] / at(p_.sizes[i], j, b.lo[j]);
      if (fits(j, b.hi[j])) continue;
      int lo = b.lo[j], hi = b.hi[j];  // lo fits, hi does not
      while (hi - lo > 1) {
        const int mid = lo + (hi - lo) / 2;
        (fits(j, mid) ? lo : hi) = mid;
      }
      b.hi[j] = lo;
    }
    return true;
  }
  bool fits(std::size_t j, int choice) const {
    for (const std::vector<std::size_t>& row : p_.rows) {
      double sum = 0;
      for (std::size_t i : row) sum += other_[i] * at(p_.sizes[i], j, choice);
      if (sum > room_) return false;
    }
    return true;
  }

  /// `b` is shrunk and has this bound.
  void split(const Box& b, double bound) {
    --budget_;
    if (cut_off(bound) || budget_ <= 0) {
      ++pruned;
      return;
    }
    std::size_t widest = 0, open = 0;
    for (std::size_t j = 0; j < n_; ++j) {
      open += b.lo[j] < b.hi[j] ? 1 : 0;
      if (b.hi[j] - b.lo[j] > b.hi[widest] - b.lo[widest]) widest = j;
    }
    if (open <= 1) return scan(b, widest);
    const int mid = b.lo[widest] + (b.hi[widest] - b.lo[widest]) / 2;
    std::array<Box, 2> half{b, b};
    half[0].hi[widest] = mid;
    half[1].lo[widest] = mid + 1;
    std::array<double, 2> bounds{INFINITY, INFINITY};
    for (std::size_t h = 0; h < 2; ++h)
      if (shrink(half[h])) bounds[h] = bound_of(half[h]);
    const std::size_t first = bounds[0] < bounds[1] ? 0 : 1;
    for (std::size_t h : {first, 1 - first})
      if (bounds[h] < INFINITY) split(half[h], bounds[h]);
  }

  /// One loop left open: largest tile first, until no smaller one can be better.
  void scan(const Box& b, std::size_t open) {
    Choices c = b.lo;
    if (n_ > 0) c[open] = b.hi[open];
    do {
      if (cut_off(sum_at(p_.least, c))) break;
      ++evaluated;
      --budget_;
      const double v = sum_at(p_.volume, c);
      if (cut_off(v)) continue;
      limit_ = v;
      strict_ = found_ = true;
      best_ = c;
    } while (n_ > 0 && --c[open] >= b.lo[open]);
  }

  const Problem& p_;
  std::size_t n_;
  double room_, limit_;
  bool strict_, found_ = false;
  std::int64_t budget_ = 0;
  std::vector<double> size_, other_;  // at a box's lo; the same without one loop's factor
  Choices best_{};
};

}  // namespace tilewright::chimera::detail
