// The planner on a GPU.
#pragma once

#include "models/model.h"
#include "models/stitching/gpu_time.h"

namespace tilewright::quickest {

/// What a kernel takes, by what; for display.
nlohmann::ordered_json gpu_time_json(const stitching::GpuTime& t, double clock);
/// Of any plan: the seconds of its kernels. Bytes are what `exact` says.
Result<Price> price_on_gpu(const Question& q, const Plan& plan);

}  // namespace tilewright::quickest
