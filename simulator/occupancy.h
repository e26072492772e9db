// Who holds how much of each cache as a walk goes on.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/cache.h"

namespace tilewright {

/// Samples of the lines that each tensor holds at each level: whoever wrote a line last, or brought
/// it in if nobody did.
class Occupancy {
 public:
  struct Sample {
    std::int64_t accesses = 0;                     ///< line touches of the entry level until then
    std::vector<std::vector<std::int64_t>> lines;  ///< by level (innermost first), tensor
  };
  static constexpr std::int64_t kMostSamples = 1024;  ///< where no stride is asked for

  /// A sample every `stride` accesses. 0: as many as make 512 to 1024 samples; every second one
  /// goes and the stride doubles when there are more.
  explicit Occupancy(std::int64_t stride = 0)
      : stride_(stride == 0 ? 1 : stride), thins_(stride == 0) {}

  /// So many more line touches have been made. A range is one step: it is sampled after it.
  /// Cost: of a sample, one look at each line of each level.
  void touched(std::int64_t accesses, const CacheHierarchy& caches) {
    accesses_ += accesses;
    if (accesses_ >= next_) sample(caches);
  }
  void finish(const CacheHierarchy& caches);  ///< the last sample, if that is not there yet

  std::int64_t stride() const { return stride_; }
  std::int64_t accesses() const { return accesses_; }
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  void sample(const CacheHierarchy& caches);

  std::int64_t stride_;
  bool thins_;
  std::int64_t accesses_ = 0, next_ = 0;
  std::vector<Sample> samples_;
};

}  // namespace tilewright
