// Plans of parts of a workload, joined to a plan of the whole.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright {

/// A plan of a part that subgraph() took out of the whole.
struct PartPlan {
  Workload part;  ///< rewritten: what the plan is of
  Plan plan;
  std::vector<std::string> rewrites = {};  ///< that made `part` of what subgraph() gave
  std::string by = {};                     ///< who proposed the plan
};

struct JoinedPlan {
  Plan plan;
  std::vector<std::string> rewrites;  ///< of the whole: every part's, each once
  std::vector<std::size_t> part_of;   ///< by kernel: the place of its part
};

/// The kernels of all parts in an order in which each comes after those that it reads from; among
/// those that may come next, the first part's. Kernels of equal names are numbered.
///
/// A part's rewrites become the whole's. They must make of the whole's operators what they made of
/// the part's, and of no other operator anything else; else the parts are refused, with the part
/// that is not as it was planned. Refused as well: parts that together are not every operator,
/// kernels that would have to wait for one another. Cost: the rewrites', and linear in kernels and
/// reads.
Result<JoinedPlan> join_plans(const Workload& whole, std::span<const PartPlan> parts);

/// Whether join_plans would refuse these parts, were they all: why a part is not as it was planned.
std::optional<Reason> no_join(const Workload& whole, std::span<const PartPlan> parts);

}  // namespace tilewright
