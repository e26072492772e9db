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

  void read(std::size_t boundary, TensorId t, std::int64_t bytes) {
    values_[slot(boundary, t)] += bytes;
  }
  void written(std::size_t boundary, TensorId t, std::int64_t bytes) {
    values_[slot(boundary, t) + 1] += bytes;
  }
  void computed(OpId op, std::int64_t points) { values_[ops_ + op.index()] += points; }

  std::int64_t bytes_read(std::size_t boundary, TensorId t) const {
    return values_[slot(boundary, t)];
  }
  std::int64_t bytes_written(std::size_t boundary, TensorId t) const {
    return values_[slot(boundary, t) + 1];
  }
  std::int64_t operations(OpId op) const { return values_[ops_ + op.index()]; }

  using Values = std::vector<std::int64_t>;
  const Values& values() const { return values_; }
  void restore(Values v) { values_ = std::move(v); }
  /// Adds `times` what was counted between `before` and `after`.
  void repeat(const Values& before, const Values& after, std::int64_t times);

 private:
  std::size_t slot(std::size_t boundary, TensorId t) const {
    return 2 * (boundary * tensors_ + t.index());
  }

  const Machine& machine_;
  std::size_t tensors_;
  std::vector<std::pair<LevelId, LevelId>> boundaries_;
  std::size_t ops_;
  Values values_;
};

}  // namespace tilewright::exact_model
