// Where an access is while one loop runs and the others stand still. Internal to the evaluator.
#pragma once

#include <span>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::reference {

/// Values of `i` for which 0 <= base + c*i < extent, within `range`.
Interval inside(std::int64_t base, std::int64_t c, std::int64_t extent, Interval range);

/// How far apart in a row-major array of that shape the elements are that an access touches at
/// successive values of `loop`.
std::int64_t stride_along(const Access& access, std::span<const std::int64_t> shape, LoopId loop);

/// An access with its loops as positions in `loops`, the innermost of them apart.
class Cursor {
 public:
  Cursor(const Access& access, std::span<const std::int64_t> shape, std::span<const LoopId> loops,
         std::size_t inner);

  /// At a new row: where i = 0 lies, and which i of `range` fall inside the array.
  void move(std::span<const std::int64_t> point, Interval range);
  std::int64_t offset(std::int64_t i) const { return base_ + i * inner_stride_; }
  std::int64_t stride() const { return inner_stride_; }
  Interval valid() const { return valid_; }

 private:
  struct Dim {
    std::int64_t extent = 0;
    std::int64_t stride = 0;
    std::int64_t offset = 0;
    std::int64_t inner = 0;
    std::vector<std::pair<std::size_t, std::int64_t>> outer;
  };
  std::vector<Dim> dims_;
  std::int64_t inner_stride_ = 0;
  std::int64_t base_ = 0;
  Interval valid_;
};

}  // namespace tilewright::reference
