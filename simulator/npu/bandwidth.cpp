#include "simulator/npu/bandwidth.h"

#include <algorithm>
#include <limits>

namespace tilewright::npu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Bytes below which a transfer is over: what rounding leaves of whole bytes.
constexpr double kNothing = 1e-6;

}  // namespace

void SharedBandwidth::advance(double to) {
  for (Transfer& t : transfers_) t.left -= t.rate * (to - now_);
  now_ = to;
}

void SharedBandwidth::add(Transfer t) {
  transfers_.push_back(t);
  share();
}

double SharedBandwidth::next_end() const {
  double first = kInfinity;
  for (const Transfer& t : transfers_) {
    first = std::min(first, now_ + std::max(t.left, 0.0) / t.rate);
  }
  return first;
}

std::vector<SharedBandwidth::Transfer> SharedBandwidth::take_ended() {
  std::vector<Transfer> ended;
  for (const Transfer& t : transfers_) {
    if (t.left <= kNothing) ended.push_back(t);
  }
  std::erase_if(transfers_, [](const Transfer& t) { return t.left <= kNothing; });
  if (!ended.empty()) share();
  return ended;
}

void SharedBandwidth::share() {
  double l2 = l2_ > 0 ? l2_ : kInfinity, dram = dram_ > 0 ? dram_ : kInfinity;
  std::vector<Transfer*> growing;
  for (Transfer& t : transfers_) growing.push_back(&t);
  double level = 0;  // the rate that those which still grow have reached
  while (!growing.empty()) {
    double weight = 0, narrowest = kInfinity;
    for (const Transfer* t : growing) {
      weight += t->dram;
      narrowest = std::min(narrowest, t->width);
    }
    // How much more each may have until something is used up.
    const double by_l2 = l2 / static_cast<double>(growing.size());
    const double by_dram = weight > 0 ? dram / weight : kInfinity;
    const double step = std::min({narrowest - level, by_l2, by_dram});
    level += step;
    l2 -= step * static_cast<double>(growing.size());
    dram -= step * weight;
    const bool l2_full = step == by_l2, dram_full = step == by_dram;
    std::erase_if(growing, [&](Transfer* t) {
      const bool stops = l2_full || (dram_full && t->dram > 0) || t->width <= level;
      if (stops) t->rate = level;
      return stops;
    });
  }
}

}  // namespace tilewright::npu
