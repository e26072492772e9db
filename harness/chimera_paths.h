// Chimera over an NPU's paths, as the verbs ask it.
#pragma once

#include "harness/registry.h"
#include "models/chimera/paths.h"

namespace tilewright::harness {

/// Whether Chimera plans for the paths of an NPU's core: --level all, or a plan for target npu.
bool over_paths(const Request& request, const Machine& machine);

/// The best plan; the document has "paths" with every Cost_d, its largest and what was priced.
Result<Optimum> paths_optimise(const Request& request, const Setting& setting);

/// `predict`: Cost_d of every path of the request's plan, or of the best.
Answer paths_price(const Request& request, const Setting& setting, const std::optional<Plan>& plan);

}  // namespace tilewright::harness
