// Where two counts of a plan's traffic differ, by tensor and boundary.
#pragma once

#include <string>
#include <vector>

#include "core/plan/traffic.h"

namespace tilewright::harness {

/// A tensor at a boundary of which two counts differ.
struct PathDifference {
  std::string tensor, boundary;
  Bytes exact, emulated;  ///< read and written
};
/// At every boundary that exact counts, and every one that the emulator saw; read and written
/// together.
std::vector<PathDifference> path_differences(const Traffic& exact, const Traffic& emulated);

}  // namespace tilewright::harness
