// A schedule that touches few lines, touch by touch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/cached/nest.h"
#include "models/cached/outcome.h"

namespace tilewright::cached {

/// Of one tensor at one level, in lines.
struct LineCount {
  double touches = 0;  ///< that reach the level
  double misses = 0;
  double written = 0;  ///< written back to the next level outwards
  double dirty = 0;    ///< left dirty at the end
};
/// By level, innermost first, and tensor.
using LineCounts = std::vector<std::vector<LineCount>>;

/// Follows every touch through the levels, as the simulator does. None where that takes more than
/// about `most` steps: lines touched, and kStepsOfCompute for each run of a compute. Cost: a few
/// nanoseconds a step.
inline constexpr std::int64_t kStepsOfCompute = 16;
std::optional<LineCounts> walked(const Nest& nest, const std::vector<CacheLevel>& levels,
                                 std::int64_t most);

}  // namespace tilewright::cached
