#include "core/reference/gather.h"

#include <algorithm>
#include <optional>

#include "core/reference/cursor.h"
#include "core/reference/threads.h"

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
    std::int64_t offset = 0;
    for (const Dim& dim : dims_) {
      const std::int64_t i = dim.index(point);
      if (i < 0 || i >= dim.extent) return 0;
      offset += i * dim.stride;
    }
    return data_[offset];
  }

  /// to[i - range.lo] is the element with point[loop] = i, for a loop that indexed_along denies.
  void row(std::vector<std::int64_t>& point, std::size_t loop, Interval range, double* to) const {
    point[loop] = 0;
    Interval valid = range;
    std::int64_t base = 0, along = 0;
    for (const Dim& dim : dims_) {
      const std::int64_t first = dim.index(point), c = dim.along(loop);
      valid = inside(first, c, dim.extent, valid);
      base += first * dim.stride;
      along += c * dim.stride;
    }
    if (valid != range) std::fill_n(to, range.size(), 0.0);
    for (std::int64_t i = valid.lo; i < valid.hi; ++i) to[i - range.lo] = data_[base + i * along];
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

}  // namespace

Gathered gather(const Workload& w, const Operator& op, int input, std::span<const Interval> ranges,
                const TensorValues& values, int threads) {
  const Access& access = op.inputs[static_cast<std::size_t>(input)];
  Gathered g{.access = {.tensor = access.tensor}};
  std::vector<std::size_t> loops;
  std::int64_t points = 1;
  for (int local : gather_loops(op, access)) {
    const auto l = static_cast<std::size_t>(local);
    loops.push_back(l);
    g.access.index.push_back({.terms = {{op.loops[l], 1}}, .offset = -ranges[l].lo});
    g.shape.push_back(ranges[l].size());
    points *= ranges[l].size();
  }
  g.data.resize(static_cast<std::size_t>(points));
  if (points == 0) return g;
  const Lookup lookup(w, op, access, values);
  if (loops.empty()) {
    g.data[0] = lookup.at({});
    return g;
  }
  const std::size_t inner = loops.back();
  const Interval along = ranges[inner];
  const bool by_row = !lookup.indexed_along(inner);
  const std::int64_t rows = points / along.size();
  const std::int64_t rows_a_piece = std::max<std::int64_t>(1, kPiece / along.size());
  for_each_piece((rows + rows_a_piece - 1) / rows_a_piece, threads, [&](std::int64_t piece) {
    std::vector<std::int64_t> point(op.loops.size());
    for (std::int64_t r = piece * rows_a_piece; r < std::min(rows, (piece + 1) * rows_a_piece);
         ++r) {
      std::int64_t rest = r;
      for (std::size_t d = loops.size() - 1; d-- > 0; rest /= g.shape[d])
        point[loops[d]] = ranges[loops[d]].lo + rest % g.shape[d];
      double* const to = g.data.data() + r * along.size();
      if (by_row) {
        lookup.row(point, inner, along, to);
        continue;
      }
      for (std::int64_t i = along.lo; i < along.hi; ++i) {
        point[inner] = i;
        to[i - along.lo] = lookup.at(point);
      }
    }
  });
  return g;
}

}  // namespace tilewright::reference
