// What the parts of the planner's record share.
#pragma once

#include "models/model.h"

namespace tilewright::quickest {

/// The plan where the machine is no processor. On a GPU: gpu.h. Elsewhere the fastest of what
/// others propose, at the longest of the times that models give it.
Result<Proposal> propose_elsewhere(const Question& q, const Settings& settings);
Result<Price> price_elsewhere(const Question& q, const Plan& plan, const Settings& settings);

}  // namespace tilewright::quickest
