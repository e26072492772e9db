#include "simulator/gather_walk.h"

#include <algorithm>
#include <vector>

namespace tilewright {

namespace {

/// One gathered input of an operator, followed from point to point.
class Follower {
 public:
  Follower(const Workload& w, const TensorValues& values, const ScheduledKernel& k,
           const AccessEvent& e)
      : w_(w),
        values_(values),
        op_(w.op(e.op)),
        access_(op_.inputs[static_cast<std::size_t>(e.input)]),
        loops_(gather_loops(op_, access_)),
        box_(static_cast<int>(access_.index.size())) {
    const auto first = e.ranges->begin() + static_cast<std::ptrdiff_t>(k.range_base[e.op.index()]);
    ranges_.assign(first, first + static_cast<std::ptrdiff_t>(op_.loops.size()));
    for (const Interval& r : ranges_) point_.push_back(r.lo);
    take_row();
  }

  void run(const std::function<void(const Box&)>& f) {
    for (;;) {
      if (find() && !box_.empty()) f(box_);
      std::size_t l = loops_.size();
      while (l-- > 0) {
        const auto at = static_cast<std::size_t>(loops_[l]);
        if (++point_[at] < ranges_[at].hi) break;
        point_[at] = ranges_[at].lo;
      }
      if (l == std::size_t(-1)) return;
    }
  }

 private:
  /// The last dimension's loop is taken at once where it moves along the row, and nothing else of
  /// the access depends on it.
  void take_row() {
    const Affine& last = access_.index.back();
    if (last.gathered >= 0 || last.terms.size() != 1 || last.terms[0].coefficient != 1) return;
    const LoopId loop = last.terms[0].loop;
    Access rest = access_;
    rest.index.pop_back();
    const std::vector<int> others = gather_loops(op_, rest);
    const auto local = static_cast<int>(std::ranges::find(op_.loops, loop) - op_.loops.begin());
    if (std::ranges::find(others, local) != others.end()) return;
    std::erase(loops_, local);
    const Interval range = ranges_[static_cast<std::size_t>(local)];
    row_ = intersect(Interval{range.lo + last.offset, range.hi + last.offset},
                     Interval{0, w_.tensor(access_.tensor).shape.back()});
  }

  std::int64_t index_of(const Affine& index) const {
    std::int64_t i = index.offset;
    for (const Term& t : index.terms)
      i += t.coefficient * point_[static_cast<std::size_t>(std::ranges::find(op_.loops, t.loop) -
                                                           op_.loops.begin())];
    return i;
  }

  /// The value of an input that indexes; what lies outside its tensor reads as zero.
  std::int64_t value_of(const Access& by) const {
    const std::vector<std::int64_t>& shape = w_.tensor(by.tensor).shape;
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::int64_t i = index_of(by.index[d]);
      if (i < 0 || i >= shape[d]) return 0;
      offset = offset * shape[d] + i;
    }
    return static_cast<std::int64_t>(values_[by.tensor.index()][static_cast<std::size_t>(offset)]);
  }

  /// The box of this point; false where an index names no element.
  bool find() {
    const std::vector<std::int64_t>& shape = w_.tensor(access_.tensor).shape;
    for (int d = 0; d < box_.rank(); ++d) {
      const auto dim = static_cast<std::size_t>(d);
      if (row_ && d + 1 == box_.rank()) {
        box_[d] = *row_;
        continue;
      }
      const Affine& index = access_.index[dim];
      const std::int64_t i = index.gathered < 0
                                 ? index_of(index)
                                 : value_of(op_.inputs[static_cast<std::size_t>(index.gathered)]);
      if (i < 0 || i >= shape[dim]) return false;
      box_[d] = {i, i + 1};
    }
    return true;
  }

  const Workload& w_;
  const TensorValues& values_;
  const Operator& op_;
  const Access& access_;
  std::vector<int> loops_;  ///< walked, outermost first
  std::vector<Interval> ranges_;
  std::vector<std::int64_t> point_;  ///< by op.loops
  std::optional<Interval> row_;      ///< of the last dimension
  Box box_;
};

}  // namespace

void GatherWalk::each(const ScheduledKernel& k, const AccessEvent& e,
                      const std::function<void(const Box&)>& f) {
  if (!values_) values_ = gather_indices(w_, seed_);
  Follower(w_, *values_, k, e).run(f);
}

bool has_gathers(const Workload& w, const ScheduledKernel& k) {
  return std::ranges::any_of(k.ops, [&](OpId op) { return w.gathers(op); });
}

}  // namespace tilewright
