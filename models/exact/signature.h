// What an evaluation decided. Two evaluations of a loop's body with the same signature took the
// same branches, clipped the same sides and met boxes of the same sizes, so that everything they
// computed is an affine function of the iteration number along the way from one to the other.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/workload/box.h"

namespace tilewright::exact_model {

class Signature {
 public:
  /// One evaluation of a loop's body.
  struct Part {
    std::uint64_t hash = 0;
    std::vector<std::int64_t> whole = {};  ///< see must_stay_whole
    /// Both decided the same; `apart` iterations lie between them.
    friend bool alike(const Part& a, const Part& b, std::int64_t apart) {
      if (a.hash != b.hash || a.whole.size() != b.whole.size()) return false;
      for (std::size_t i = 0; i < a.whole.size(); ++i)
        if ((b.whole[i] - a.whole[i]) % apart != 0) return false;
      return true;
    }
  };
  /// Starts a part and returns the one around it, to be handed to `end`.
  Part begin() { return std::exchange(now_, {}); }
  /// Goes on with the part around, which takes in the inner one; returns that.
  Part end(Part outer) {
    Part inner = std::exchange(now_, std::move(outer));
    now_.whole.insert(now_.whole.end(), inner.whole.begin(), inner.whole.end());
    note(static_cast<std::int64_t>(inner.hash));
    return inner;
  }
  /// For an attempt that came to nothing: as it was.
  const Part& now() const { return now_; }
  void restore(Part part) { now_ = std::move(part); }

  void note(std::int64_t v) {
    now_.hash ^=
        static_cast<std::uint64_t>(v) + 0x9e3779b97f4a7c15ULL + (now_.hash << 6) + (now_.hash >> 2);
    now_.hash *= 0xff51afd7ed558ccdULL;
    now_.hash ^= now_.hash >> 32;
  }
  /// Which of two is larger, or that they are equal: affine functions that compare the same way at
  /// both ends of a stretch do so all along it.
  void compare(std::int64_t a, std::int64_t b) { note(order(a, b)); }
  /// Both sides, with what else was decided: walks compare intervals most of the time.
  void compare(Interval a, Interval b, std::int64_t also = 0) {
    note(also << 4 | order(a.lo, b.lo) << 2 | order(a.hi, b.hi));
  }
  void sizes(const Box& box) {
    note(box.rank());
    for (Interval d : box) note(d.size());
  }
  /// a == b, noted.
  bool equal(const Box& a, const Box& b) {
    if (a.rank() != b.rank()) return note(4), false;
    for (int d = 0; d < a.rank(); ++d) compare(a[d], b[d]);
    return a == b;
  }
  /// An affine function that was found to be whole here and matters only as such: it is whole all
  /// along a stretch if its step an iteration is.
  void must_stay_whole(std::int64_t v) { now_.whole.push_back(v); }
  /// Makes this evaluation unlike every other: what it decided is no comparison of affine
  /// functions.
  void poison() { note(static_cast<std::int64_t>(0x5bd1e995ULL + ++poisons_)); }

 private:
  static std::int64_t order(std::int64_t a, std::int64_t b) { return 1 + (a > b) + 2 * (a == b); }

  Part now_;
  std::uint64_t poisons_ = 0;
};

}  // namespace tilewright::exact_model
