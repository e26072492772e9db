#include "simulator/occupancy.h"

#include <utility>

namespace tilewright {

void Occupancy::finish(const CacheHierarchy& caches) {
  if (samples_.empty() || samples_.back().accesses != accesses_) sample(caches);
}

void Occupancy::sample(const CacheHierarchy& caches) {
  Sample now{.accesses = accesses_};
  for (std::size_t l = 0; l < caches.levels().size(); ++l) now.lines.push_back(caches.held(l));
  samples_.push_back(std::move(now));
  if (thins_ && static_cast<std::int64_t>(samples_.size()) > kMostSamples) {
    stride_ *= 2;
    std::vector<Sample> kept;
    std::int64_t due = 0;  // as if the stride had been this one from the beginning
    for (Sample& s : samples_) {
      if (s.accesses < due) continue;
      due = (s.accesses / stride_ + 1) * stride_;
      kept.push_back(std::move(s));
    }
    samples_ = std::move(kept);
  }
  next_ = (accesses_ / stride_ + 1) * stride_;
}

}  // namespace tilewright
