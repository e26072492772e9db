// Which launches of a sequence threads share, by the time that they take.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/error.h"

namespace tilewright::codegen {

/// Into how many parts each launch of a sequence is cut: 1: one thread has all of it; 0: as many as
/// it has threads.
using LaunchParts = std::vector<int>;

/// Launches that run and are timed.
class TimedLaunches {
 public:
  virtual ~TimedLaunches() = default;
  /// One run of each, its seconds added to those that it has.
  virtual std::optional<Reason> clock(const LaunchParts& parts,
                                      std::vector<std::vector<double>>& seconds) = 0;
  /// Seconds of one run of all.
  virtual Result<double> run(const LaunchParts& parts) = 0;
  virtual int threads(std::size_t launch) const = 0;  ///< that may share it
  virtual double now() const = 0;                     ///< seconds since something
};

/// Whether each of `count` launches is shared or left to one thread. First whichever is faster: a
/// small one ends before a helper has begun. By the least of some runs of either kind, in turn.
/// Runs that are shared are not clocked until helpers had time to wake: between runs that follow
/// one another they are awake. A long launch that was never faster when shared is tried more often:
/// something else may have had a helper's processor.
///
/// What a thread has written the others bring from its cache, line by line: launches that are
/// faster when shared, each beside others of its kind, may be slower one behind the other. So the
/// choice is held against all alone and all shared, by runs of everything, and so is every stretch
/// of launches of one kind against the other kind, while there is time. Takes about `budget`
/// seconds for either.
Result<LaunchParts> choose_shared(TimedLaunches& launches, std::size_t count, double budget);

/// Long launches that are shared, each in some parts a thread where that takes no longer: a thread
/// whose core is slow for a while, or others', leaves parts to the rest. Takes about `budget`
/// seconds at most.
Result<LaunchParts> cut_finer(TimedLaunches& launches, LaunchParts chosen, double budget);

}  // namespace tilewright::codegen
