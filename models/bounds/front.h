// The choices that no other beats: less memory or less traffic.
#pragma once

#include <array>
#include <limits>
#include <vector>

#include "models/bounds/bounds.h"

namespace tilewright::bounds {

/// Takes candidates in any order; what is beaten by one with an eighth-octave less memory is
/// refused at once, the rest by finish(). Cost: nanoseconds a candidate refused.
class Front {
 public:
  Front() { best_.fill(std::numeric_limits<std::int64_t>::max()); }

  /// Whether a choice with that much memory might move as little as `traffic` without being beaten
  /// already. Conservative.
  bool open(std::int64_t buffer, std::int64_t traffic) const {
    const std::size_t at = bucket(buffer);
    return at == 0 || traffic < best_[at - 1];
  }
  void add(const Choice& c);
  /// By growing buffer, falling traffic.
  std::vector<Choice> finish();

 private:
  static constexpr std::size_t kPerOctave = 32;
  static std::size_t bucket(std::int64_t words);

  std::array<std::int64_t, 64 * kPerOctave>
      best_{};  ///< least traffic with that bucket's memory or less
  std::vector<Choice> choices_;
};

/// The steps that cut `extent` into a number of parts that no smaller step cuts it into: 1 ..=
/// extent. Any other step needs more memory for as many parts. About 2 sqrt(extent) of them,
/// growing.
std::vector<std::int64_t> least_steps(std::int64_t extent);
/// They, or the divisors of the extent.
std::vector<std::int64_t> steps_of(std::int64_t extent, Steps steps);

}  // namespace tilewright::bounds
