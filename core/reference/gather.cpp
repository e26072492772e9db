#include "core/reference/gather.h"

#include <algorithm>
#include <optional>

namespace tilewright::reference {
namespace {

/// The element that an access touches with the loops at `point`; none outside the tensor.
std::optional<std::size_t> offset_of(const Workload& w, const Operator& op, const Access& a,
                                     std::span<const std::int64_t> point,
                                     const TensorValues& values);

/// The value of one dimension's index.
std::int64_t index_of(const Workload& w, const Operator& op, const Affine& index,
                      std::span<const std::int64_t> point, const TensorValues& values) {
  if (index.gathered >= 0) {
    const Access& by = op.inputs[static_cast<std::size_t>(index.gathered)];
    const auto at = offset_of(w, op, by, point, values);
    return at ? static_cast<std::int64_t>(values[by.tensor.index()][*at]) : 0;
  }
  std::int64_t i = index.offset;
  for (const Term& t : index.terms) {
    const auto l = std::find(op.loops.begin(), op.loops.end(), t.loop) - op.loops.begin();
    i += t.coefficient * point[static_cast<std::size_t>(l)];
  }
  return i;
}

std::optional<std::size_t> offset_of(const Workload& w, const Operator& op, const Access& a,
                                     std::span<const std::int64_t> point,
                                     const TensorValues& values) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const std::int64_t extent = w.tensor(a.tensor).shape[d];
    const std::int64_t i = index_of(w, op, a.index[d], point, values);
    if (i < 0 || i >= extent) return std::nullopt;
    offset = offset * extent + i;
  }
  return static_cast<std::size_t>(offset);
}

}  // namespace

Gathered gather(const Workload& w, const Operator& op, int input, std::span<const Interval> ranges,
                const TensorValues& values) {
  const Access& access = op.inputs[static_cast<std::size_t>(input)];
  Gathered g{.access = {.tensor = access.tensor}};
  std::vector<std::size_t> loops;
  std::vector<std::int64_t> point;
  std::size_t points = 1;
  for (const Interval& range : ranges) point.push_back(range.lo);
  for (int local : gather_loops(op, access)) {
    const auto l = static_cast<std::size_t>(local);
    loops.push_back(l);
    g.access.index.push_back({.terms = {{op.loops[l], 1}}, .offset = -ranges[l].lo});
    g.shape.push_back(ranges[l].size());
    points *= static_cast<std::size_t>(ranges[l].size());
  }
  g.data.resize(points);
  const std::vector<double>& from = values[access.tensor.index()];
  for (double& x : g.data) {
    const auto at = offset_of(w, op, access, point, values);
    x = at ? from[*at] : 0.0;
    for (std::size_t d = loops.size(); d-- > 0;) {
      if (++point[loops[d]] < ranges[loops[d]].hi) break;
      point[loops[d]] = ranges[loops[d]].lo;
    }
  }
  return g;
}

}  // namespace tilewright::reference
