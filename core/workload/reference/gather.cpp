#include "core/workload/reference/gather.h"

#include <algorithm>

#include "core/workload/reference/cursor.h"
#include "core/workload/reference/threads.h"

namespace tilewright::reference {
namespace {

/// An access of an operator with its loops by position, and where the values that index it lie.
class Lookup {
 public:
  Lookup(const Workload& w, const Operator& op, const Access& access, const TensorValues& values)
      : data_(values[access.tensor.index()].data()) {
    std::int64_t stride = 1;
    dims_.resize(access.index.size());
    for (std::size_t d = dims_.size(); d-- > 0;) {
      Dim& dim = dims_[d];
      dim.extent = w.tensor(access.tensor).shape[d];
      dim.stride = stride;
      stride *= dim.extent;
      const Affine& index = access.index[d];
      dim.offset = index.offset;
      for (const Term& t : index.terms) {
        const auto l = std::find(op.loops.begin(), op.loops.end(), t.loop) - op.loops.begin();
        dim.terms.push_back({static_cast<std::size_t>(l), t.coefficient});
      }
      if (index.gathered >= 0)
        dim.by.emplace_back(w, op, op.inputs[static_cast<std::size_t>(index.gathered)], values);
    }
  }

  /// Whether a value that this is indexed by changes along the loop.
  bool indexed_along(std::size_t loop) const {
    return std::any_of(dims_.begin(), dims_.end(), [loop](const Dim& dim) {
      return !dim.by.empty() && dim.by.front().changes_along(loop);
    });
  }

  /// The element at a point of the loops; zero outside the array.
  double at(std::span<const std::int64_t> point) const {
    const std::int64_t offset = offset_of(point);
    return offset < 0 ? 0 : data_[offset];
  }

  /// Where it lies; -1 outside the array.
  std::int64_t offset_of(std::span<const std::int64_t> point) const {
    std::int64_t offset = 0;
    for (const Dim& dim : dims_) {
      const std::int64_t i = dim.index(point);
      if (i < 0 || i >= dim.extent) return -1;
      offset += i * dim.stride;
    }
    return offset;
  }

  /// The elements with point[loop] in `range`, for a loop that indexed_along denies.
  GatheredRow row(std::vector<std::int64_t>& point, std::size_t loop, Interval range) const {
    point[loop] = 0;
    GatheredRow row{.valid = range};
    for (const Dim& dim : dims_) {
      const std::int64_t first = dim.index(point), c = dim.along(loop);
      row.valid = inside(first, c, dim.extent, row.valid);
      row.base += first * dim.stride;
      row.stride += c * dim.stride;
    }
    return row;
  }

 private:
  struct Dim {
    std::int64_t extent = 0, stride = 0, offset = 0;
    std::vector<std::pair<std::size_t, std::int64_t>> terms;  ///< loop, coefficient
    std::vector<Lookup> by;                                   ///< one where it is gathered

    std::int64_t index(std::span<const std::int64_t> point) const {
      if (!by.empty()) return static_cast<std::int64_t>(by.front().at(point));
      std::int64_t i = offset;
      for (const auto& [loop, coefficient] : terms) i += coefficient * point[loop];
      return i;
    }
    std::int64_t along(std::size_t loop) const {
      std::int64_t c = 0;
      for (const auto& [l, coefficient] : terms) c += l == loop ? coefficient : 0;
      return c;
    }
  };

  bool changes_along(std::size_t loop) const {
    return indexed_along(loop) || std::any_of(dims_.begin(), dims_.end(), [loop](const Dim& dim) {
             return dim.along(loop) != 0;
           });
  }

  const double* data_;
  std::vector<Dim> dims_;
};

/// The points of a gather in rows of the last loop that its indices name.
class Rows {
 public:
  Rows(const Workload& w, const Operator& op, int input, std::span<const Interval> ranges,
       const TensorValues& values)
      : lookup_(w, op, op.inputs[static_cast<std::size_t>(input)], values),
        ranges_(ranges.begin(), ranges.end()) {
    for (int l : gather_loops(op, op.inputs[static_cast<std::size_t>(input)]))
      loops_.push_back(static_cast<std::size_t>(l));
    if (loops_.empty()) return;
    along_ = ranges_[loops_.back()];
    by_row_ = !lookup_.indexed_along(loops_.back());
    for (std::size_t d = 0; d + 1 < loops_.size(); ++d) count_ *= ranges_[loops_[d]].size();
  }

  std::int64_t count() const { return count_; }
  std::int64_t length() const { return along_.size(); }

  /// Calls f for rows [begin, end), each from its first point on: whole where it can be, else an
  /// element at a time.
  template <class F>
  void each(std::int64_t begin, std::int64_t end, F&& f) const {
    std::vector<std::int64_t> point(ranges_.size());
    for (std::int64_t r = begin; r < end; ++r) {
      std::int64_t rest = r;
      for (std::size_t d = loops_.empty() ? 0 : loops_.size() - 1; d-- > 0;) {
        const Interval range = ranges_[loops_[d]];
        point[loops_[d]] = range.lo + rest % range.size();
        rest /= range.size();
      }
      if (by_row_) {
        f(r * length(), along_, lookup_.row(point, loops_.back(), along_));
        continue;
      }
      for (std::int64_t i = along_.lo; i < along_.hi; ++i) {
        if (!loops_.empty()) point[loops_.back()] = i;
        const std::int64_t offset = lookup_.offset_of(point);
        const Interval one{i, i + 1};
        f(r * length() + i - along_.lo, one,
          GatheredRow{.base = offset, .valid = offset < 0 ? Interval{i, i} : one});
      }
    }
  }

 private:
  Lookup lookup_;
  std::vector<Interval> ranges_;
  std::vector<std::size_t> loops_;  ///< positions in op.loops; rows run along the last
  Interval along_{0, 1};
  bool by_row_ = false;
  std::int64_t count_ = 1;
};

}  // namespace

Gathered gather(const Workload& w, const Operator& op, int input, std::span<const Interval> ranges,
                const TensorValues& values, int threads) {
  const Access& access = op.inputs[static_cast<std::size_t>(input)];
  Gathered g{.access = {.tensor = access.tensor}};
  for (int local : gather_loops(op, access)) {
    const auto l = static_cast<std::size_t>(local);
    g.access.index.push_back({.terms = {{op.loops[l], 1}}, .offset = -ranges[l].lo});
    g.shape.push_back(ranges[l].size());
  }
  const Rows rows(w, op, input, ranges, values);
  g.data.resize(static_cast<std::size_t>(rows.count() * rows.length()));
  if (g.data.empty()) return g;
  const double* const from = values[access.tensor.index()].data();
  const std::int64_t together = std::max<std::int64_t>(1, kPiece / rows.length());
  for_each_piece((rows.count() + together - 1) / together, threads, [&](std::int64_t piece) {
    const std::int64_t end = std::min(rows.count(), (piece + 1) * together);
    // What lies outside stays zero.
    rows.each(piece * together, end, [&](std::int64_t at, Interval all, const GatheredRow& row) {
      double* const to = g.data.data() + at;
      for (std::int64_t i = row.valid.lo; i < row.valid.hi; ++i)
        to[i - all.lo] = from[row.base + i * row.stride];
    });
  });
  return g;
}

void each_gathered(const Workload& w, const Operator& op, int input, const TensorValues& values,
                   const std::function<void(const GatheredRow&)>& f) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  const Rows rows(w, op, input, whole, values);
  rows.each(0, rows.count(), [&f](std::int64_t, Interval, const GatheredRow& row) {
    if (!row.valid.empty()) f(row);
  });
}

}  // namespace tilewright::reference
