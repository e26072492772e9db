// Sets of a workload's loops, however many it has. Those of the first 64 need no memory of their own.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::stitching {

/// A set of loops, by LoopId. The complement of a set is one: it has all loops that are not listed.
class LoopSet {
 public:
  LoopSet() = default;
  explicit LoopSet(std::size_t loop) { add(loop); }
  explicit LoopSet(LoopId loop) { add(loop.index()); }
  static LoopSet all() { return ~LoopSet(); }

  bool has(std::size_t loop) const { return (word(loop / 64) >> (loop % 64) & 1) != 0; }
  bool has(int loop) const { return has(static_cast<std::size_t>(loop)); }
  bool has(LoopId loop) const { return has(loop.index()); }
  bool empty() const {
    for (const std::uint64_t w : more_)
      if (w != 0) return false;
    return first_ == 0 && rest_ == 0;
  }
  /// Calls f(loop) for each. The set has no end where it is a complement: then it is not for this.
  template <class F>
  void each(F&& f) const {
    for (std::size_t i = 0; i <= more_.size(); ++i)
      for (std::uint64_t w = word(i); w != 0; w &= w - 1)
        f(i * 64 + static_cast<std::size_t>(std::countr_zero(w)));
  }

  void add(std::size_t loop) {
    reach(loop / 64);
    at(loop / 64) |= std::uint64_t{1} << (loop % 64);
  }
  LoopSet& operator|=(const LoopSet& o) {
    return join(o, [](std::uint64_t a, std::uint64_t b) { return a | b; });
  }
  LoopSet& operator&=(const LoopSet& o) {
    return join(o, [](std::uint64_t a, std::uint64_t b) { return a & b; });
  }
  friend LoopSet operator|(LoopSet a, const LoopSet& b) { return a |= b; }
  friend LoopSet operator&(LoopSet a, const LoopSet& b) { return a &= b; }
  friend LoopSet operator~(LoopSet a) {
    a.first_ = ~a.first_;
    for (std::uint64_t& w : a.more_) w = ~w;
    a.rest_ = ~a.rest_;
    return a;
  }
  friend bool operator==(const LoopSet& a, const LoopSet& b) {
    for (std::size_t i = 0; i <= a.more_.size() || i <= b.more_.size(); ++i)
      if (a.word(i) != b.word(i)) return false;
    return a.rest_ == b.rest_;
  }

 private:
  std::uint64_t word(std::size_t i) const {
    return i == 0 ? first_ : i <= more_.size() ? more_[i - 1] : rest_;
  }
  std::uint64_t& at(std::size_t i) { return i == 0 ? first_ : more_[i - 1]; }
  void reach(std::size_t i) {
    if (more_.size() < i) more_.resize(i, rest_);
  }
  template <class F>
  LoopSet& join(const LoopSet& o, F&& f) {
    reach(o.more_.size());
    for (std::size_t i = 0; i <= more_.size(); ++i) at(i) = f(word(i), o.word(i));
    rest_ = f(rest_, o.rest_);
    return *this;
  }

  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> more_;  ///< of loops 64 and on
  std::uint64_t rest_ = 0;           ///< of every loop behind those: none or all
};

}  // namespace tilewright::stitching
