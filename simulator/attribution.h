// Whose fault a miss is: its kind, who drove the line out, which loop came round in between.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/cache_sets.h"

namespace tilewright {

/// Misses of one tensor at one level, by the classes of Hill and Smith ("Evaluating associativity
/// in CPU caches", IEEE Transactions on Computers 38 (12), 1989): the first touch of a line there;
/// a miss that a fully associative LRU cache of the same lines would have had too; the others. Of
/// caches with sectors, a sector's first touch is compulsory, and what a fully associative cache
/// would have is told by lines.
struct MissKinds {
  std::int64_t compulsory = 0, capacity = 0, conflict = 0;
  std::int64_t total() const { return compulsory + capacity + conflict; }
  friend bool operator==(const MissKinds&, const MissKinds&) = default;
};

/// What Attribution knows of one level.
struct LevelBlame {
  std::vector<MissKinds> misses;  ///< by tensor
  /// [who missed][whose line had to go], lines; lines that nobody had to make room for are in
  /// neither. Write-backs that allocate count for their tensor.
  std::vector<std::vector<std::int64_t>> evictions;
  /// [loop][tensor]: misses of lines seen before, by the outermost loop that has advanced since the
  /// line was touched last: the loop whose next iteration wanted the line back. The last row: none
  /// has.
  std::vector<std::vector<std::int64_t>> by_loop;
};

namespace cache {

/// Listens to the touches of every level. Cost: some 50 ns a touch, and at each level 16 bytes a
/// line ever seen and 48 a line of its capacity.
class Attribution {
 public:
  struct LevelSize {
    std::int64_t lines = 0;
  };
  Attribution(std::span<const LevelSize> levels, int tensors);

  /// `loops` that advance() may name, outermost first.
  void expect_loops(std::size_t loops);
  /// A loop goes on to its next iteration, or begins anew after others have run.
  void advance(std::size_t loop) { advanced_[loop] = ++clock_; }

  /// A touch from within. `piece`: what is fetched on its own, the line or the number of a sector.
  void touched(std::size_t level, std::uint64_t line, std::uint64_t piece, int tensor, bool missed);
  /// A line from within, which is found or allocated.
  void put(std::size_t level, std::uint64_t line);
  /// To make room for a line of `by`, one of `whose` had to go.
  void evicted(std::size_t level, int by, int whose) {
    ++levels_[level].blame.evictions[static_cast<std::size_t>(by)][static_cast<std::size_t>(whose)];
  }

  const LevelBlame& level(std::size_t i) const { return levels_[i].blame; }

 private:
  /// When each line was touched last; open addressing, linear probing, at most half full.
  class LastTouch {
   public:
    LastTouch() : slots_(1024) {}
    std::uint64_t& operator[](std::uint64_t line);  ///< 0: never

   private:
    struct Slot {
      std::uint64_t line = 0, when = 0;
    };
    std::size_t find(std::uint64_t line) const;
    std::vector<Slot> slots_;
    std::size_t used_ = 0;
  };
  struct PerLevel {
    Lists associative;
    LastTouch last;
    LevelBlame blame;
  };
  static bool in_associative(PerLevel& l, std::uint64_t line);  ///< and touches it there

  std::vector<PerLevel> levels_;
  std::vector<std::uint64_t> advanced_;  // by loop: clock
  std::uint64_t clock_ = 1;
  std::size_t tensors_;
};

}  // namespace cache

}  // namespace tilewright
