#include "core/workload/reference/cursor.h"

#include <algorithm>

namespace tilewright::reference {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {  // b > 0
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}
std::int64_t ceiling_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

}  // namespace

Interval inside(std::int64_t base, std::int64_t c, std::int64_t extent, Interval range) {
  // Nearly always all of it is, and divisions are slow.
  const std::int64_t first = base + c * range.lo, last = base + c * (range.hi - 1);
  if (std::min(first, last) >= 0 && std::max(first, last) < extent) return range;
  if (c == 0) return {range.lo, range.lo};
  const Interval hit =
      c > 0 ? Interval{ceiling_div(-base, c), floor_div(extent - 1 - base, c) + 1}
            : Interval{ceiling_div(base - (extent - 1), -c), floor_div(base, -c) + 1};
  return intersect(hit, range);
}

std::int64_t stride_along(const Access& access, std::span<const std::int64_t> shape, LoopId loop) {
  std::int64_t along = 0, stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d])
    for (const Term& t : access.index[d].terms)
      if (t.loop == loop) along += t.coefficient * stride;
  return along;
}

Cursor::Cursor(const Access& access, std::span<const std::int64_t> shape,
               std::span<const LoopId> loops, std::size_t inner) {
  std::int64_t stride = 1;
  dims_.resize(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    Dim& dim = dims_[d];
    dim.extent = shape[d];
    dim.stride = stride;
    stride *= shape[d];
    dim.offset = access.index[d].offset;
    for (const Term& t : access.index[d].terms) {
      const auto at = std::find(loops.begin(), loops.end(), t.loop);
      TW_CHECK(at != loops.end(), "an access names a loop outside the domain");
      const auto position = static_cast<std::size_t>(at - loops.begin());
      if (position == inner)
        dim.inner += t.coefficient;
      else
        dim.outer.push_back({position, t.coefficient});
    }
    inner_stride_ += dim.inner * dim.stride;
  }
}

void Cursor::move(std::span<const std::int64_t> point, Interval range) {
  base_ = 0;
  valid_ = range;
  for (const Dim& dim : dims_) {
    std::int64_t at = dim.offset;
    for (const auto& [position, coefficient] : dim.outer) at += coefficient * point[position];
    valid_ = inside(at, dim.inner, dim.extent, valid_);
    base_ += at * dim.stride;
  }
}

}  // namespace tilewright::reference
