// A machine's caches as runs that follow one another find them.
#pragma once

#include <memory>

#include "core/machine/machine.h"
#include "core/workload/workload.h"
#include "harness/registry.h"

namespace tilewright::harness {

/// The machine as it is from the second run of the workload on: what of its data a cache holds does
/// not come from further out again. Inputs and results count once, and of what lies between, whose
/// memory all share, twice the largest. Of a program the whole is asked: a part, priced alone,
/// would not know how much the others touch.
std::shared_ptr<const Machine> in_runs(const Workload& w, std::shared_ptr<const Machine> machine);

/// Beside the planner's seconds of a plan, which are of the first run: `seconds_in_runs`, of runs
/// that follow one another as `run` times them, where caches then hold some of the data.
void add_seconds_in_runs(nlohmann::ordered_json& json, const Model& model, const Request& request,
                         const Setting& setting, const Plan& plan);

/// The machine as a part of a program finds it, where a level is filled by software and caches lie
/// behind it: of a cache the part has as much as its tensors are of all that the program uses
/// again.
std::shared_ptr<const Machine> as_part_of(const Workload& whole, const Workload& part,
                                          std::shared_ptr<const Machine> machine);

}  // namespace tilewright::harness
