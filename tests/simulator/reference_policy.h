// Replacement policies written down the slow way, a number a way, to hold the bit planes of
// simulator/replacement.h against. Policies that draw take their numbers from the same generator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/machine/cache_behaviour.h"
#include "simulator/replacement.h"

namespace tilewright::testing {

/// One set. `lines` by way; -1: empty.
class ReferenceSet {
 public:
  ReferenceSet(const std::string& name, int ways, std::uint64_t seed, std::uint64_t set)
      : name_(name), r_(*replacement_from_name(name)), lines(ways, -1), ages_(ways, 3) {
    const Replacement drawn{.kind = Replacement::Kind::random};
    generator_ = cache::Policy(drawn, std::min(ways, 64)).start(seed, set).c;
    leaves_ = 1;
    while (leaves_ < ways) leaves_ *= 2;
    points_right_.assign(static_cast<std::size_t>(2 * leaves_), false);
  }

  /// Whether it hit.
  bool touch(std::int64_t line) {
    const int n = static_cast<int>(lines.size());
    ++clock_;
    if (r_.on_miss_only && find(line) < 0) grow(-1);
    if (const int way = find(line); way >= 0) {
      used(way, true);
      return true;
    }
    int way = -1;
    for (int w = 0; w < n; ++w)
      if (lines[w] < 0 && (way < 0 || r_.highest_empty)) way = w;
    if (way < 0) way = victim();
    lines[way] = line;
    used(way, false);
    return false;
  }

 private:
  int find(std::int64_t line) const {
    const auto at = std::find(lines.begin(), lines.end(), line);
    return at == lines.end() ? -1 : static_cast<int>(at - lines.begin());
  }

  int victim() {
    const int n = static_cast<int>(lines.size());
    switch (r_.kind) {
      case Replacement::Kind::lru:
      case Replacement::Kind::fifo:
        return static_cast<int>(std::min_element(times_.begin(), times_.end()) - times_.begin());
      case Replacement::Kind::random:
        return cache::draw_below(generator_, n);
      case Replacement::Kind::tree_plru: {
        int low = 0, size = leaves_, node = 1;
        while (size > 1) {
          size /= 2;
          const bool right = points_right_[static_cast<std::size_t>(node)];
          if (right) low += size;
          node = 2 * node + (right ? 1 : 0);
        }
        return low;
      }
      case Replacement::Kind::bit_plru: {
        const auto at = std::find(marked_.begin(), marked_.end(), false);
        return at == marked_.end() ? 0 : static_cast<int>(at - marked_.begin());
      }
      case Replacement::Kind::ages: {
        const auto at = std::find(ages_.begin(), ages_.end(), 3);
        return at == ages_.end() ? 0 : static_cast<int>(at - ages_.begin());
      }
    }
    return 0;
  }

  void used(int way, bool hit) {
    const auto w = static_cast<std::size_t>(way);
    if (r_.kind == Replacement::Kind::lru || !hit) times_[w] = clock_;
    // The tree: every node on the way to the leaf points to its other side, if ways lie there.
    int low = 0, size = leaves_, node = 1;
    while (size > 1) {
      size /= 2;
      const bool right = way >= low + size;
      points_right_[static_cast<std::size_t>(node)] =
          !right && low + size < static_cast<int>(lines.size());
      if (right) low += size;
      node = 2 * node + (right ? 1 : 0);
    }
    marked_[w] = true;
    if (std::find(marked_.begin(), marked_.end(), false) == marked_.end()) {
      std::fill(marked_.begin(), marked_.end(), false);
      marked_[w] = true;
    }
    if (r_.kind != Replacement::Kind::ages) return;
    if (hit) {
      ages_[w] = r_.hit[static_cast<std::size_t>(ages_[w])];
    } else {
      ages_[w] = r_.fill;
      if (r_.rare != 0 && cache::draw_below(generator_, r_.rare) == 0) ages_[w] = r_.rare_fill;
    }
    if (!r_.on_miss_only) grow(way);
  }

  void grow(int way) {
    std::vector<int*> who;
    int oldest = 0;
    for (std::size_t w = 0; w < ages_.size(); ++w) {
      const bool spared = r_.update % 2 == 1 && static_cast<int>(w) == way;
      if (!spared) who.push_back(&ages_[w]);
      if (!spared || r_.update >= 2) oldest = std::max(oldest, ages_[w]);
    }
    const int by = r_.update >= 2 ? (oldest < 3 ? 1 : 0) : 3 - oldest;
    for (int* age : who) *age += by;
  }

  std::string name_;
  Replacement r_;

 public:
  std::vector<std::int64_t> lines;

 private:
  std::vector<int> ages_;
  std::vector<std::int64_t> times_ = std::vector<std::int64_t>(lines.size(), 0);
  std::vector<bool> marked_ = std::vector<bool>(lines.size(), false);
  std::vector<bool> points_right_;
  int leaves_ = 1;
  std::int64_t clock_ = 0;
  std::uint64_t generator_ = 1;
};

}  // namespace tilewright::testing
