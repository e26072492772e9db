// Bytes and operations counted so far, as one array, so that a stretch of iterations is added by
// multiplying.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::exact_model {

class Tally {
 public:
  explicit Tally(const Schedule& s);

  /// Every boundary between a level and one that fills it, (outer, inner), outer first.
  const std::vector<std::pair<LevelId, LevelId>>& boundaries() const { return boundaries_; }
  /// The boundaries that data crosses on its way between two levels.
  std::vector<std::size_t> crossed(LevelId from, LevelId to) const;

  void read(std::size_t boundary, TensorId t, std::int64_t bytes) { add(slot(boundary, t), bytes); }
  void written(std::size_t boundary, TensorId t, std::int64_t bytes) {
    add(slot(boundary, t) + 1, bytes);
  }
  void computed(OpId op, std::int64_t points) { add(ops_ + op.index(), points); }

  std::int64_t bytes_read(std::size_t boundary, TensorId t) const {
    return values_[slot(boundary, t)];
  }
  std::int64_t bytes_written(std::size_t boundary, TensorId t) const {
    return values_[slot(boundary, t) + 1];
  }
  std::int64_t operations(OpId op) const { return values_[ops_ + op.index()]; }

  /// A moment of the counting. Only what is counted after it has a price, not what there is in all.
  using Mark = std::size_t;
  Mark mark() const { return added_.size(); }
  /// Takes back what was counted since.
  void undo(Mark to);
  /// Adds `times` what was counted between two marks.
  void repeat(Mark from, Mark to, std::int64_t times);
  /// Joins what was counted since; no mark after `from` is used any more.
  void join(Mark from);
  /// Nobody holds a mark.
  void forget() { added_.clear(); }

 private:
  void add(std::size_t slot, std::int64_t value) {
    values_[slot] += value;
    added_.emplace_back(slot, value);
  }
  std::size_t slot(std::size_t boundary, TensorId t) const {
    return 2 * (boundary * tensors_ + t.index());
  }

  const Machine& machine_;
  std::size_t tensors_;
  std::vector<std::pair<LevelId, LevelId>> boundaries_;
  std::size_t ops_;
  std::vector<std::int64_t> values_;
  std::vector<std::pair<std::size_t, std::int64_t>> added_;  // in order, since the last forget()
};

}  // namespace tilewright::exact_model
