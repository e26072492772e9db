// Plans and traffic as text. Everything printed here parses back to the same value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/traffic.h"
#include "core/workload/text.h"

namespace tilewright {

/// A plan with what it is for, as `plan -o` writes it and every verb that takes a PLAN reads it.
struct PlanFile {
  Workload workload;                   ///< as the user named it, before the rewrites
  std::string workload_name;           ///< as the user gave it; informative
  std::optional<std::string> machine;  ///< a name for -m; the command line overrides it
  std::optional<std::string> model;
  Plan plan;
  /// Rewrites (core/workload/rewrite) that are applied to the workload, in this order, before the plan's names
  /// mean anything. Only their form is checked here: rewrites() has the names.
  std::vector<std::string> rewrites = {};
};
PlanFile plan_file_from_yaml(std::string_view text, std::string_view where);
std::string to_yaml(const PlanFile& f);
nlohmann::ordered_json to_json(const Plan& p);
nlohmann::ordered_json to_json(const PlanFile& f);
Plan plan_from_json(const nlohmann::json& j, std::string_view where);

nlohmann::ordered_json to_json(const Traffic& t);
Traffic traffic_from_json(const nlohmann::json& j, std::string_view where);

}  // namespace tilewright
