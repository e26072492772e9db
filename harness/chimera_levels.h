// Chimera over several levels, as plan, predict and explain answer with --level all.
#pragma once

#include "harness/registry.h"
#include "harness/request.h"
#include "models/chimera/levels.h"

namespace tilewright::harness {

/// Whether the request asks for every on-chip level of a machine that has several.
bool over_levels(const Request& request, const Machine& machine);

/// chimera_options and --objective. Throws InputError for --capacity, which is of one level.
chimera::LevelsOptions levels_options(const Request& request);

/// What a plan over several levels truly moves: `exact` with every level a scratchpad.
struct OverLevels {
  std::map<std::string, Bytes> moved;  ///< by boundary, read and written
  std::map<std::string, Operations> operations;
  std::int64_t recomputed = 0;  ///< operations beyond each point once
};
/// A Reason where the plan is illegal there.
Result<OverLevels> exact_over_levels(const Workload& w, const Machine& m, const Plan& plan);

/// The best plan: Optimum's document has "levels", outermost first, and the figures of home's boundary
/// as `plan` has them for one level.
Result<Optimum> levels_optimise(const Request& request, const Setting& setting);

/// `predict`'s answer: the model's price of its own plan, or of one that is read back into blocks.
Answer levels_price(const Request& request, const Setting& setting,
                    const std::optional<Plan>& plan);

}  // namespace tilewright::harness
