// Local search over the tiles of a kernel.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::quickest {

/// Changes the steps of one of the plan's kernels, one loop at a time to the next size that changes
/// its number of trips, or to about half or twice, where that takes fewer seconds; ends where none
/// does, or after `tries`. `timed`: seconds of the kernel; nothing where the plan is illegal, does
/// not fit or is refused. Returns how many were tried; the plan and its seconds are the best then.
int refine(Plan& plan, std::size_t kernel, double& seconds, const Workload& w, int tries,
           const std::function<std::optional<double>(const Plan&)>& timed);

/// The plan with tiles of all loops 2, 4, .. 64 times as large, in turn, and then with those of one
/// loop so; none larger than its loop. For plans of more tiles than anybody wants to walk.
std::vector<Plan> coarser(const Plan& plan, const Workload& w);
/// The same with smaller ones: for plans whose tiles leave no room to work in.
std::vector<Plan> finer(const Plan& plan, const Workload& w);

/// Of a plan of one operator: for each dimension of its result, blocks that have the dimensions
/// from there on whole, the largest first, with sums whole, with long ones in steps, and one tap of
/// a window at a time.
std::vector<Plan> blocks_of_result(const Plan& plan, const Workload& w);

}  // namespace tilewright::quickest
