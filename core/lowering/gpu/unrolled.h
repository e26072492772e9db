// Loops of a thread program that a compiler unrolls in part: the printer's pragma, and what a time
// model takes to be under way together.
#pragma once

#include <cstdint>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::lowering {

/// Turns that are unrolled together of a loop that is short (Step::few): four, or a number near it
/// that divides all of them. Else nvcc ends the loop in the midst of the unrolled turns, and loads
/// behind that end wait for those before it.
constexpr std::int64_t turns_unrolled(std::int64_t count) {
  if (count % 4 == 0) return 4;
  for (const std::int64_t each : {5, 6, 7, 3})
    if (count % each == 0) return each;
  return 4;
}
/// How often loads wait, going through such a loop.
constexpr std::int64_t waits_of(std::int64_t count) {
  const std::int64_t each = turns_unrolled(count);
  return count % each == 0 || count < each ? ceil_div(count, each)
                                           : ceil_div(count, each) + count / each;
}

}  // namespace tilewright::lowering
