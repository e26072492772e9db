// A workload planned in parts, each by a model that takes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/workload/cut.h"
#include "harness/answer.h"
#include "harness/request.h"

namespace tilewright::harness {

/// A plan of the whole, joined of plans of its parts.
struct SplitPlan {
  Plan plan;
  std::vector<std::string> rewrites;  ///< of the setting's workload, that the plan is of
  nlohmann::ordered_json parts;       ///< [{"operators", "model", "kernels", "refused", ...}]
};

/// The parts that "each", "contractions" or "followed" name (core/workload/cut.h); none of other
/// names. `in_place`: joins that need copy nothing (joins_of_nothing) are parts of their own, of
/// those that are followed.
std::optional<std::vector<Part>> parts_named(const std::string& how, const Workload& w,
                                             bool in_place = false);

/// Cuts the setting's workload as `how` says (parts_named, 'OP OP=MODEL; OP=MODEL', or a file that
/// lists parts), asks models for a plan of every part and joins the plans. Of each part those
/// models are asked that --model names, with commas, or that its entry names, and the first that
/// does not refuse plans it; none named: all that make plans, and the plan that moves the fewest
/// bytes is taken. Where all refuse, the part is cut further, at last into single operators. For
/// these every model is asked, and where all refuse, the operator gets its loops as they are
/// written, tiles halved until they fit ("model" null). A Reason where that does not fit; throws
/// InputError for a file, an operator, a model or an option that is wrong. Cost: the models', once
/// a part and model asked.
Result<SplitPlan> split_plan(const Request& request, const std::string& how,
                             const Setting& setting);

/// What `plan --split` answers; writes the plan file to `out` where given.
Answer plan_in_parts(const Request& request, const std::string& how,
                     const std::optional<std::string>& out);

/// The request about these operators of its workload alone (subgraph), names with spaces or commas.
/// Throws InputError where they are no part, or the subject is a plan.
Request of_part(const Request& request, const std::string& operators);

}  // namespace tilewright::harness
