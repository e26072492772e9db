#include "models/bounds/front.h"

#include <algorithm>
#include <bit>

namespace tilewright::bounds {

std::size_t Front::bucket(std::int64_t words) {
  const auto v = static_cast<std::uint64_t>(words);
  const int top = std::bit_width(v) - 1;
  const std::uint64_t below = top >= 5 ? v >> (top - 5) : v << (5 - top);
  return static_cast<std::size_t>(top) * kPerOctave + (below & (kPerOctave - 1));
}

void Front::add(const Choice& c) {
  if (!open(c.buffer, c.traffic)) return;
  for (std::size_t at = bucket(c.buffer); at < best_.size() && best_[at] > c.traffic; ++at)
    best_[at] = c.traffic;
  choices_.push_back(c);
}

std::vector<Choice> Front::finish() {
  std::erase_if(choices_, [this](const Choice& c) { return !open(c.buffer, c.traffic); });
  std::ranges::sort(choices_, [](const Choice& a, const Choice& b) {
    return a.buffer != b.buffer ? a.buffer < b.buffer : a.traffic < b.traffic;
  });
  std::vector<Choice> kept;
  for (const Choice& c : choices_)
    if (kept.empty() || c.traffic < kept.back().traffic) kept.push_back(c);
  choices_.clear();
  return kept;
}

std::vector<std::int64_t> least_steps(std::int64_t extent) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= extent;) {
    steps.push_back(step);
    const std::int64_t parts = ceil_div(extent, step);
    if (parts == 1) break;
    step = ceil_div(extent, parts - 1);
  }
  return steps;
}

std::vector<std::int64_t> steps_of(std::int64_t extent, Steps steps) {
  std::vector<std::int64_t> all = least_steps(extent);
  // A divisor is the least step for its number of pieces.
  if (steps == Steps::dividing) std::erase_if(all, [&](std::int64_t s) { return extent % s != 0; });
  return all;
}

}  // namespace tilewright::bounds
