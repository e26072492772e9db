// What the method `counters` is made of; see experiment.h.
#pragma once

#include <nlohmann/json.hpp>

#include "core/base/document.h"
#include "harness/request.h"
#include "simulator/polybench/polybench.h"

namespace tilewright::harness {

/// The experiment's `plans` at a size: kernel, tree, and misses by level of the plan's own walk on the
/// experiment's machine, rows in the file's order; none at sizes that the file leaves out. Cost: a
/// visit an element product, some hundred nanoseconds.
nlohmann::ordered_json plans_of(const Field& top, polybench::Size size, const Request& request);

}  // namespace tilewright::harness
