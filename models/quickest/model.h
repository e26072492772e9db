// What the parts of the planner's record share.
#pragma once

#include "models/model.h"

namespace tilewright::quickest {

/// The best that others propose of the whole and of its parts: in seconds, at the longest of the
/// times that models give it, or, where none knows the time of the whole, in bytes into the planned
/// level. A Reason where no model plans some operator.
Result<Proposal> propose_of_others(const Question& q, const Settings& settings);
/// The target's own time model: it has the target's name. Null: there is none.
const Model* target_time(const Question& q);
/// A model as it is where nobody sets its options.
Settings standard(const Model& m);
/// GPUs whose machine file has the numbers of models/stitching/gpu_time.h, but for assumed ones.
bool has_own_time(const Question& q);
/// The plan where the machine is no processor. On a GPU: gpu.h. Elsewhere the fastest of what
/// others propose, at the longest of the times that models give it.
Result<Proposal> propose_elsewhere(const Question& q, const Settings& settings);
Result<Price> price_elsewhere(const Question& q, const Plan& plan, const Settings& settings);

}  // namespace tilewright::quickest
