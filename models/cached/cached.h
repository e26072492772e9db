// What a schedule moves at every level of a hierarchy of LRU caches, without walking it unless it
// touches few lines.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/schedule.h"
#include "core/plan/stream.h"
#include "core/plan/traffic.h"

namespace tilewright {

/// Touches of one kind: an access of a compute, and the loop that carries the reuse of its lines.
struct CachedKind {
  int compute = 0;        ///< node of cached::Nest
  std::size_t use = 0;    ///< which of its accesses
  std::size_t depth = 0;  ///< of the loop, among those around the compute; 0: none in the kernel
  double touches = 0;
  std::vector<double> misses = {};  ///< share of them, by level, innermost first
  int samples = 0;                  ///< that were looked into
};

/// What an estimate took, and how sure it is.
struct CachedCost {
  std::int64_t strata = 0;   ///< kinds of touches: an access, and the loop that carries its reuse
  std::int64_t samples = 0;  ///< touches that were looked into
  double doubt = 0;  ///< how far its samples may put the misses of a level off, as a share of them
  std::int64_t counted = 0;  ///< runs of computes that stand for all
  bool walked = false;       ///< instead: see kCachedSteps
  std::vector<CachedKind> kinds = {};
};

/// A schedule that touches no more lines than this, a run of a compute counted as some, is followed
/// touch by touch, exactly: that takes less time than the estimate.
inline constexpr std::int64_t kCachedSteps = 800'000;

/// Bytes moved at every boundary between hardware caches and from home, by tensor: fills (those of
/// written lines included) as read, dirty lines evicted as written, and dirty lines that are left
/// as resident_dirty; touches that hit and miss. Source predicted, by "cached", write_allocate
/// counted.
///
/// Caches are as the simulator has them by default: set-associative, LRU, write-back,
/// write-allocate, non-inclusive, filled on the way in; blocks run one after the other. A Reason
/// where a level is something else, where software manages a level that the plan uses, and for
/// plans with gathers, `sliding` or `!once`, whose touches depend on what was touched before.
///
/// Method: the touches of lines by one access are split by the loop that carries their reuse, and
/// counted in closed form as differences of footprints. Of each part a few touches are looked into:
/// from the touch back to the one before it of that line, through the loop tree, a chunk (siblings,
/// or earlier iterations of a loop) at a time. The union of the boxes that the chunks touch is what
/// lies between. It is counted in the line's own set, with the addresses that tensors have: line by
/// line where they are few, else in closed form (sums of floors). The touch hits where that is
/// fewer lines than there are ways. Where lines are listed, all that the access touches alike is
/// judged.
///
/// Cost: three samples of each kind of touch, and up to about five hundred where these differ: some
/// milliseconds at most for a kernel. Each takes as long as the depth of the tree and a logarithm
/// of the trips, and a step for each tensor of the kernels that are passed: seconds where these are
/// thousands. Traffic::memory is left empty.
Result<Traffic> cached_traffic(const Schedule& schedule, Layout layout, CachedCost* cost = nullptr,
                               std::int64_t most_steps = kCachedSteps);

}  // namespace tilewright
