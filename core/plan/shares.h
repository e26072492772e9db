// How threads share a loop: stretches of its steps that follow one another, one for each thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/units.h"

namespace tilewright {

/// How much of the time of all threads is used. The last step may be a shorter one, so the last
/// threads have the steps that are left over.
inline double used_of_threads(std::int64_t extent, std::int64_t step, int threads) {
  const std::int64_t steps = ceil_div(extent, step), each = steps / threads, more = steps % threads,
                     last = extent - (steps - 1) * step;
  if (extent <= 0) return 1;
  const std::int64_t longest = more == 0   ? std::min(extent, each * step)
                               : more == 1 ? each * step + last
                                           : (each + 1) * step;
  return static_cast<double>(extent) / (static_cast<double>(longest) * threads);
}

}  // namespace tilewright
