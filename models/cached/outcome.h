// Whether one touch of a line hits, level by level.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/cached/window.h"

namespace tilewright::cached {

inline constexpr std::size_t kMostLevels = 8;

struct CacheLevel {
  std::int64_t line = 64;
  std::int64_t sets = 1;
  std::int64_t ways = 1;
};

/// Of a touch, by level, innermost first.
struct Outcome {
  std::array<bool, kMostLevels> miss = {};
  /// The share of all lines that are touched alike which misses the innermost level, where what is
  /// touched in between is listed; else as this touch.
  double misses = 0;
  /// Lines touched in between in the line's set, by the ways: the touch misses from 1 on. Where it
  /// hits and lines are few, those of the set that has most. Of levels that are not asked since one
  /// further in has the line, 0; infinite where there is no touch before.
  std::array<double, kMostLevels> fullness = {};
  /// It writes, and the line is dirty neither in that level nor further in.
  std::array<bool, kMostLevels> dirties = {};
};

/// What is left of a line at the end, by level.
struct Left {
  std::array<bool, kMostLevels> dirty = {};       ///< dirty in that level
  std::array<bool, kMostLevels> unwritten = {};   ///< dirty in that level or further in
  std::array<double, kMostLevels> fullness = {};  ///< as of a touch at the end
};

class Judge {
 public:
  Judge(const Nest& nest, std::vector<CacheLevel> levels);

  /// `alike`: what the same access touches as it touches x.
  Outcome of(const Path& touch, const Spot& x, const std::vector<Piece>& alike = {});
  Left at_end(const Spot& x);
  const Lookback& look() const { return look_; }

 private:
  struct Step {
    bool found = false;   ///< an earlier touch; it is in before_
    std::size_t hit = 0;  ///< the innermost level that has the line; the number of levels: none
  };
  /// `from`: levels further in have lost the line already, and are not asked. `writes`: to the last
  /// write, whatever reads the line after it.
  Step back(const Path& now, const Spot& x, std::size_t from = 0,
            std::array<double, kMostLevels>* fullness = nullptr, bool writes = false);
  /// From the touch in before_, up to which `kept` and the levels outside it have held the line,
  /// back to its last write: the innermost level that has held it since. The number of levels: none
  /// has, or nothing writes it. After `most` steps back a write is taken to be met. `last`: the
  /// touch that before_ comes before; null: the end.
  std::size_t since_write(const Path* last, const Spot& x, std::size_t kept, int most);
  void to_run_begin(const Path& now, const Spot& x);

  const Nest& nest_;
  std::vector<CacheLevel> levels_;
  std::vector<std::pair<std::int64_t, std::int64_t>> within_ = {};  ///< sets and ways, by level
  /// By level: whether lines of one of its sets are in several sets of a level within it. Else all
  /// of them are where the line is that is looked for, and where that is lost, they are asked for.
  std::vector<bool> apart_ = {};
  std::int64_t listed_ = 0;  ///< lines of the largest level of those, and of the innermost one
  Lookback look_;
  Window window_;
  Path before_, now_, jump_, end_;
};

}  // namespace tilewright::cached
