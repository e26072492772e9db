#include "models/stitching/kept.h"

#include <algorithm>
#include <cmath>

namespace tilewright::stitching {
namespace {

constexpr double kMostBlocks = 32;     // of an SM: CUDA C++ Programming Guide
constexpr double kMostOfThread = 255;  // registers: CUDA C++ Programming Guide
constexpr double kGranule = 8;         // registers are given out in eights
constexpr double kOwn = 8;             // of a thread, beside the values that it keeps and loads
constexpr double kOwnOfLoop = 4;       // for each loop more than one that a pass goes over

}  // namespace

void KeptValues::read(int value) {
  if (const auto v = values_.find(value); v != values_.end()) v->second.last = pass_;
}

void KeptValues::stay_from(std::size_t pass) {
  for (auto& [t, v] : values_)
    if (v.made <= pass && v.last > pass) v.last = pass_;
}

Kept KeptValues::registers() const {
  Kept out;
  const double own = kOwn + kOwnOfLoop * static_cast<double>(std::max<std::size_t>(1, loops_) - 1);
  double always = own;
  for (const auto& [value, registers] : throughout_) always += registers;
  for (std::size_t p = 0; p <= pass_; ++p) {
    double before = always, between = before;
    for (const auto& [t, v] : values_) {
      if (v.made < p && p <= v.last) before += v.count;
      // What a pass reads for the last time makes room for what it makes.
      if (v.made <= p && p < v.last) between += v.count;
    }
    out.before.push_back(before);
    out.most = std::max(out.most, between);
  }
  return out;
}

double registers_allowed(const Device& d, double threads, double kept) {
  const auto all = static_cast<double>(d.registers_per_sm);
  const double most = std::min(kMostBlocks, static_cast<double>(d.threads_per_sm) / threads);
  const double taken = kGranule * std::ceil(std::max(1.0, kept) / kGranule);
  const double blocks = std::clamp(std::floor(all / (taken * threads)), 1.0, most);
  return std::min(kMostOfThread, kGranule * std::floor(all / (blocks * threads) / kGranule));
}

}  // namespace tilewright::stitching
