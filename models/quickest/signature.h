// What two parts of workloads have alike but their names. Internal header of the folder.
#pragma once

#include <string>

#include "core/workload/workload.h"

namespace tilewright::quickest {

/// Names replaced by their first appearance: parts of one signature have the same plans.
/// `anywhere`: also where slices of its inputs lie elsewhere (a step's of a sequence): these move
/// as many elements, though other lines of a cache.
std::string signature(const Workload& part, bool anywhere = false);

}  // namespace tilewright::quickest
