#include "harness/path_differences.h"

#include <algorithm>

namespace tilewright::harness {

std::vector<PathDifference> path_differences(const Traffic& exact, const Traffic& emulated) {
  std::vector<PathDifference> all;
  const auto look = [&](const TrafficEntry& e) {
    if (exact.unavailable.contains(e.boundary)) return;
    const TrafficEntry a = exact.at(e.tensor, e.boundary), b = emulated.at(e.tensor, e.boundary);
    // UB and L1 fill one another: what exact calls read there, a load, may go outward.
    if (a.read + a.written == b.read + b.written) return;
    if (std::ranges::any_of(all, [&](const PathDifference& d) {
          return d.tensor == e.tensor && d.boundary == e.boundary;
        }))
      return;
    all.push_back({e.tensor, e.boundary, a.read + a.written, b.read + b.written});
  };
  for (const TrafficEntry& e : exact.entries) look(e);
  for (const TrafficEntry& e : emulated.entries) look(e);
  return all;
}

}  // namespace tilewright::harness
