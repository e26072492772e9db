// A machine as JSON: what `machines` prints of each, and what models written in Python are given.
#pragma once

#include "core/machine/machine.h"
#include "harness/answer.h"

namespace tilewright::harness {

/// {"name", "kind", "summary", "levels": [outermost first], "units": [{"name", "count",
/// "peak_flops_per_second": {dtype: of the whole machine}}]}. Unknown numbers are null.
nlohmann::ordered_json machine_json(const Machine& m);

}  // namespace tilewright::harness
