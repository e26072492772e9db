// One instance of one cache level for the general engine: every replacement policy, index and
// sector, one line at a time. Simple before fast.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "simulator/cache.h"
#include "simulator/cache_sets.h"
#include "simulator/replacement.h"

namespace tilewright::cache {

/// A way: sectors of a line, as bits.
struct Held {
  std::uint64_t line = 0;
  std::uint64_t valid = 0;  ///< none: the way is empty
  std::uint64_t dirty = 0;
  int tensor = 0;
  bool prefetched = false;  ///< and not touched since
};

/// Steps between touches of a page, for prefetchers: the 32 pages touched last.
class Strides {
 public:
  /// The step that two touches in a row of a page have made, if any; lines count from the page's
  /// first.
  std::optional<std::int64_t> train(std::uint64_t page, std::int64_t line);

 private:
  struct Page {
    std::uint64_t page = 0;
    std::int64_t last = 0, step = 0;
    std::uint64_t used = 0;  ///< 0: empty
  };
  static constexpr std::size_t kPages = 32;
  std::vector<Page> pages_ = std::vector<Page>(kPages);
  std::uint64_t clock_ = 0;
};

class Bank {
 public:
  Bank(const CacheGeometry& g, std::uint64_t seed);

  Held* find(std::uint64_t line);
  void touch(const Held& held);  ///< a hit
  /// Makes room for a line that is not there and puts it in, empty of sectors; what had to go is in
  /// `victim` (valid 0: nothing).
  Held& insert(std::uint64_t line, int tensor, Held& victim);
  void erase(Held& held);

  std::uint64_t sets() const { return sets_of_.divisor(); }
  /// f(held) for each that is in a set, newest first with lru and fifo, else by way.
  template <class F>
  void each(std::uint64_t set, F&& f) const {
    for (const Held* h : in_order(set)) f(*h);
  }
  Strides strides;

 private:
  std::uint64_t set_of(std::uint64_t line) const;
  std::size_t way_of(const Held& held) const {
    return static_cast<std::size_t>(&held - held_.data()) % ways_;
  }
  std::size_t place(std::uint64_t set);
  void stamp(std::size_t at, std::uint64_t now);
  void link(std::size_t at, std::size_t after);
  std::vector<const Held*> in_order(std::uint64_t set) const;

  Modulus sets_of_;
  std::size_t ways_;
  Index index_;
  std::uint64_t slices_;
  Replacement::Kind kind_;
  std::optional<Policy> policy_;     // with a state
  std::vector<PolicyState> states_;  // by set
  std::vector<Held> held_;
  std::vector<std::uint64_t> stamps_;  // lru, fifo: when touched, when put in
  std::uint64_t clock_ = 0;
  /// lru, fifo, of sets too wide to look through: rings from the oldest way on. Behind those of all
  /// ways, one of each set, between its newest and its oldest.
  struct Neighbours {
    std::size_t older = 0, newer = 0;
  };
  std::vector<Neighbours> order_;
  std::unordered_map<std::uint64_t, std::size_t> where_;  // of sets too wide to look through
};

}  // namespace tilewright::cache
