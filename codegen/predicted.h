// Seconds that a target's kernels take, by a time model of the target's own.
#pragma once

#include "codegen/target.h"

namespace tilewright::codegen {

/// Predicted seconds of a schedule's kernels, one after the other, as the target emits them; nothing
/// runs. A Reason where the target would refuse the schedule.
using PredictedSeconds = Result<double> (*)(const Schedule&);

/// The target's model; null: it has none.
PredictedSeconds predicted_seconds_of(const Target& target);

// ---- The models, each in its target's folder ----------------------------------------------------
extern const PredictedSeconds kNpuSeconds;

}  // namespace tilewright::codegen
