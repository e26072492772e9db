// The rows of an experiment, with progress.
#pragma once

#include <cstddef>
#include <iterator>

#include "experiments/report/experiment.h"
#include "harness/heard.h"

namespace tilewright::harness {

/// For a range-for over items each of which may take long: the run's progress hears how many are
/// done, and what the search of the one under way says of itself. `Items`: a vector, its own, or a
/// reference to one.
template <class Items>
class Rows {
 public:
  Rows(const Run& run, Items&& items)
      : items_(std::forward<Items>(items)),
        listener_(heard(run.request, "rows")),
        steps_(static_cast<double>(std::size(items_))) {}

  class Iterator {
   public:
    Iterator(Rows& rows, std::size_t at) : rows_(&rows), at_(at) {}
    auto& operator*() const { return rows_->items_[at_]; }
    Iterator& operator++() {
      rows_->steps_.done();
      ++at_;
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& b) { return a.at_ != b.at_; }

   private:
    Rows* rows_;
    std::size_t at_;
  };
  Iterator begin() { return {*this, 0}; }
  Iterator end() { return {*this, std::size(items_)}; }

 private:
  Items items_;
  ProgressListener listener_;
  Steps steps_;
};
template <class Items>
Rows(const Run&, Items&&) -> Rows<Items>;

}  // namespace tilewright::harness
