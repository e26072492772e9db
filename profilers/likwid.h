// LIKWID's groups: which of their metrics say how many bytes cross a boundary.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/machine/machine.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

/// A metric as a group names it ("L2D load data volume [GBytes]") and its value over a run.
struct LikwidMetric {
  std::string group, name;
  double value = 0;
};

/// "[GBytes]" and the like at the end of a name, in bytes (decimal, as LIKWID counts them); nothing
/// for other units.
std::optional<double> likwid_unit(std::string_view metric);

/// Bytes at each of the machine's caches: the data volumes of groups L2 (outwards of L1), L3
/// (outwards of L2) and MEM (outwards of L3). A boundary whose group is not among them is
/// unavailable.
Measurement likwid_measurement(const std::vector<LikwidMetric>& metrics, const Machine& machine);

}  // namespace tilewright::profilers
