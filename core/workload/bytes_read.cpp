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

/// Intervals a dimension, and boxes a tensor, up to which gaps between them are left out.
constexpr std::size_t kMostIntervals = 8;

std::vector<Interval> joined(std::vector<Interval> all) {
  std::ranges::sort(all, {}, &Interval::lo);
  std::vector<Interval> out;
  for (const Interval& i : all) {
    if (!out.empty() && i.lo <= out.back().hi)
      out.back().hi = std::max(out.back().hi, i.hi);
    else
      out.push_back(i);
  }
  return out;
}

/// Boxes without an element in common: everything that the access names.
std::vector<Box> boxes_of(const Workload& w, const Operator& op, const Access& a) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  std::vector<Box> boxes = {footprint(w, op, a, whole)};
  // Where steps pass over all of a dimension nothing is read, and no box is left.
  for (int d = 0; d < static_cast<int>(a.index.size()); ++d) {
    const Affine& index = a.index[static_cast<std::size_t>(d)];
    if (index.gathered >= 0 || index.terms.size() < 2) continue;
    std::vector<std::pair<std::int64_t, std::int64_t>> terms;
    for (const Term& t : index.terms) terms.emplace_back(t.coefficient, w.loop(t.loop).extent);
    const std::int64_t size = w.tensor(a.tensor).shape[static_cast<std::size_t>(d)];
    const auto parts = intervals_read(index.offset, std::move(terms), size);
    std::vector<Box> cut;
    for (const Box& b : boxes)
      for (const Interval& i : parts) {
        cut.push_back(b);
        cut.back()[d] = i;
      }
    if (cut.size() > kMostIntervals) continue;
    boxes = std::move(cut);
  }
  return boxes;
}

/// Whether the box of an access is its whole tensor, each dimension a loop as it is.
bool is_whole(const Workload& w, const Access& a) {
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const Affine& index = a.index[d];
    if (index.gathered >= 0 || index.terms.size() != 1 || index.terms[0].coefficient != 1 ||
        index.offset != 0 || w.loop(index.terms[0].loop).extent != w.tensor(a.tensor).shape[d])
      return false;
  }
  return true;
}

}  // namespace

std::vector<Interval> intervals_read(std::int64_t offset,
                                     std::vector<std::pair<std::int64_t, std::int64_t>> terms,
                                     std::int64_t size) {
  const auto clipped = [size](Interval i) {
    return Interval{std::clamp<std::int64_t>(i.lo, 0, size),
                    std::clamp<std::int64_t>(i.hi, 0, size)};
  };
  Interval around{offset, offset + 1};
  for (auto& [step, extent] : terms) {
    if (step < 0) {  // backwards is forwards from the other end
      offset += step * (extent - 1);
      around.lo += step * (extent - 1);
      step = -step;
    } else {
      around.hi += step * (extent - 1);
    }
  }
  std::ranges::sort(terms);
  std::vector<Interval> all = {{offset, offset + 1}};
  for (const auto& [step, extent] : terms) {
    std::vector<Interval> next;
    for (const Interval& i : all) {
      if (step <= i.hi - i.lo) {
        next.push_back({i.lo, i.hi + step * (extent - 1)});
        continue;
      }
      if (extent > static_cast<std::int64_t>(kMostIntervals)) return {clipped(around)};
      for (std::int64_t n = 0; n < extent; ++n) next.push_back({i.lo + step * n, i.hi + step * n});
    }
    all = joined(std::move(next));
    if (all.size() > kMostIntervals) return {clipped(around)};
  }
  for (Interval& i : all) i = clipped(i);
  std::erase_if(all, [](const Interval& i) { return i.empty(); });
  return all;
}

Bytes bytes_read(const Workload& w, const Operator& op, const Access& a) {
  if (!is_gather(a)) {
    Elements touched;
    for (const Box& b : boxes_of(w, op, a)) {
      Elements n(1);
      for (int d = 0; d < b.rank(); ++d) n = n * b[d].size();
      touched += n;
    }
    return bytes_of(touched, w.tensor(a.tensor).dtype);
  }
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
    for (const Access& a : op.inputs) {
      if (a.tensor != t) continue;
      if (is_whole(w, a)) return w.tensor(t).bytes();
      if (is_gather(a)) {
        gathered = std::max(gathered, bytes_read(w, op, a));
        continue;
      }
      for (const Box& box : boxes_of(w, op, a))
        if (std::ranges::find(boxes, box) == boxes.end()) boxes.push_back(box);
    }
  }
  return std::max(gathered, bytes_of(Elements(union_of(std::move(boxes), 0)), w.tensor(t).dtype));
}

}  // namespace tilewright
