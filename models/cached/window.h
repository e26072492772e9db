// What is touched between two touches of a line.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "models/cached/nest.h"

namespace tilewright::cached {

/// Boxes of arrays, added one by one; counted as their union.
class Window {
 public:
  explicit Window(const Nest& nest)
      : nest_(nest), by_array_(nest.arrays().size()), boxes_(nest.arrays().size()) {}

  void clear();
  void add(int array, const Piece& p);
  /// Of a tensor at home, that is touched without strides.
  void add(int array, const Box& box);
  /// Lists the lines where they are `few` or less, else makes the pieces of each array disjoint.
  /// Nothing is added after. `x` is what in_set() is asked of.
  void settle(const Spot& x, std::int64_t line, std::int64_t few);
  /// Lines, all sets together; an upper bound where rows share lines and they are not listed.
  std::int64_t lines() const { return lines_; }
  /// Whether each line is known, so that all counts are exact.
  bool listed() const { return listed_; }
  /// Lines in the set of that line, it itself not counted; where they are `enough`, some number
  /// from there on.
  double in_set(const Spot& x, std::int64_t line, std::int64_t sets, double enough) const;
  /// Of a level that is asked by those in `within`, innermost first: of the lines that in_set()
  /// counts those that all of them ask for again and again, since each has more lines in that
  /// line's set than ways. What an inner level keeps takes no place further out. `within`: sets and
  /// ways. Where lines are listed. Cost: the lines and the sets.
  double asked_in_set(const Spot& x, std::int64_t line, std::int64_t sets,
                      std::span<const std::pair<std::int64_t, std::int64_t>> within);
  /// Where lines are listed: those in the set that has most. Cost: the lines and the sets.
  std::int64_t fullest(std::int64_t sets);
  /// After fullest(): of the lines of pieces that are touched alike, the share that has lost its
  /// place among `ways` by then: those listed here, as if each stood where `x` stands. `misses`:
  /// what of x itself.
  double lost(const Spot& x, bool misses, const std::vector<Piece>& alike, std::int64_t line,
              std::int64_t sets, std::int64_t ways);

 private:
  bool list(std::int64_t line, std::int64_t few);
  bool has(std::int64_t line) const;
  std::size_t place_of(std::int64_t word) const;
  void insert(std::int64_t first, std::int64_t last);

  const Nest& nest_;
  std::vector<std::vector<Piece>> by_array_;
  std::vector<std::vector<Box>> boxes_;
  std::vector<int> used_;
  std::int64_t lines_ = 0;
  std::vector<Rows> settled_ = {};
  bool has_spot_ = false;  ///< the line that it is settled for
  std::vector<Piece> disjoint_ = {}, rest_ = {}, next_ = {};
  std::vector<std::pair<double, std::size_t>> order_ = {};
  std::vector<std::pair<std::int64_t, std::int64_t>> rows_ = {};
  std::vector<std::int64_t> counts_ = {};  ///< lines by set
  std::vector<std::int64_t> asked_ = {}, inner_ = {};
  std::int64_t most_ = 0;  ///< of them
  // Lines by number, each a bit of a word of 64, and a table to find words: an entry is of use only
  // where its stamp is now's.
  struct Word {
    std::int64_t number = 0;
    std::int64_t stamp = 0;
    std::uint64_t lines = 0;
  };
  bool listed_ = false;
  std::vector<std::size_t> list_ = {};  ///< places of words in the table
  std::vector<Word> table_ = {};
  std::int64_t counted_ = 0;  ///< the sets that counts_ is of, as listed now; 0: none
  std::int64_t now_ = 0;
};

/// Looks back from a touch of a line to the one before it.
class Lookback {
 public:
  explicit Lookback(const Nest& nest) : nest_(nest) {}

  /// The last touch of the line before `now`, put into `before`, and what is touched after it and
  /// before `now`, added to the window; false where there is none. A path of the root alone is the
  /// end of the schedule. Cost: the depth of the tree times its accesses, and a logarithm of the
  /// trips. `writes`: the last write; reads of the line after it are among what is touched since.
  bool last(const Path& now, const Spot& x, Path& before, Window& window,
            bool writes = false) const;
  /// From a path that ends at some node around the compute, goes down to the first iteration in
  /// which that use touches the line. False where it does not.
  bool first(Path& path, int leaf, std::size_t use, const Spot& x) const;
  /// Whether the use touches the line in these iterations of a loop.
  bool touched(const Path& path, const Frame& around, int loop, Interval iterations, int leaf,
               std::size_t use, const Spot& x) const;

 private:
  bool holds(const Path& path, const Frame& around, int node, Interval iterations, const Spot& x,
             bool writes) const;
  /// What a kernel touches as a whole, which is the same wherever it is passed.
  struct Touched {
    int array = 0;
    bool written = false;
    std::vector<Box> boxes = {};
    std::vector<Piece> pieces = {};
  };
  const std::vector<Touched>& touched_by(const Frame& around, int kernel) const;
  bool may_hold(const Frame& around, int kernel, const Spot& x, bool writes) const;
  void pass(const Path& path, const Frame& around, int node, Interval iterations,
            Window& window) const;
  bool into(Path& before, int node, const Spot& x, Window& window, bool writes) const;
  bool into_children(Path& before, std::size_t end, const Spot& x, Window& window,
                     bool writes) const;
  bool into_iterations(Path& before, int loop, std::int64_t end, const Spot& x, Window& window,
                       bool writes) const;
  bool into_uses(Path& before, std::size_t end, const Spot& x, Window& window, bool writes) const;

  const Nest& nest_;
  /// By node, of the root's children: found when they are first passed.
  mutable std::vector<std::vector<Touched>> by_kernel_ = {};
};

}  // namespace tilewright::cached
