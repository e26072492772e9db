#include "core/workload/bytes_read.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tilewright {
namespace {

/// Elements that are in one box at least. Cost: exponential in dimensions, polynomial in boxes; a
/// kernel reads a tensor by a handful of them.
std::int64_t union_of(std::vector<Box> boxes, int d) {
  std::erase_if(boxes, [](const Box& b) { return b.empty(); });
  if (boxes.empty()) return 0;
  if (d == boxes.front().rank()) return 1;
  std::vector<std::int64_t> ends;
  for (const Box& b : boxes) ends.insert(ends.end(), {b[d].lo, b[d].hi});
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::int64_t n = 0;
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    std::vector<Box> here;
    for (const Box& b : boxes)
      if (contains(b[d], {ends[i], ends[i + 1]})) here.push_back(b);
    if (!here.empty()) n += (ends[i + 1] - ends[i]) * union_of(std::move(here), d + 1);
  }
  return n;
}

}  // namespace

Bytes bytes_read(const Workload& w, const Operator& op, const Access& a) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  const Box box = footprint(w, op, a, whole);
  Elements touched(1), points(1);
  double rows = 1, others = 1;
  for (int d = 0; d < static_cast<int>(a.index.size()); ++d) {
    touched = touched * box[d].size();
    const bool gathered = a.index[static_cast<std::size_t>(d)].gathered >= 0;
    (gathered ? rows : others) *= static_cast<double>(box[d].size());
  }
  for (int l : gather_loops(op, a))
    points = points * w.loop(op.loops[static_cast<std::size_t>(l)]).extent;
  if (!is_gather(a)) return bytes_of(touched, w.tensor(a.tensor).dtype);
  Access by = a;  // its gathered dimensions alone
  std::erase_if(by.index, [](const Affine& f) { return f.gathered < 0; });
  double lookups = 1;
  for (int l : gather_loops(op, by))
    lookups *= static_cast<double>(w.loop(op.loops[static_cast<std::size_t>(l)]).extent);
  // Of `rows` rows a lookup leaves out each with 1 - 1 / rows.
  const double met = rows > 1 ? -rows * std::expm1(lookups * std::log1p(-1 / rows)) : 1;
  const Elements expected(static_cast<std::int64_t>(std::ceil(met * others)));
  return bytes_of(std::min({expected, touched, points}), w.tensor(a.tensor).dtype);
}

Bytes bytes_read(const Workload& w, TensorId t, std::span<const OpId> ops) {
  std::vector<Box> boxes;
  Bytes gathered;
  for (OpId id : ops) {
    const Operator& op = w.op(id);
    std::vector<Interval> whole;
    for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
    for (const Access& a : op.inputs) {
      if (a.tensor != t) continue;
      if (is_gather(a)) {
        gathered = std::max(gathered, bytes_read(w, op, a));
        continue;
      }
      const Box box = footprint(w, op, a, whole);
      if (std::ranges::find(boxes, box) == boxes.end()) boxes.push_back(box);
    }
  }
  return std::max(gathered, bytes_of(Elements(union_of(std::move(boxes), 0)), w.tensor(t).dtype));
}

}  // namespace tilewright
