// Which models and targets there are: one record each feeds the lists, the help, the docs and the
// contract tests.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/target.h"
#include "core/base/error.h"
#include "core/base/option.h"
#include "core/plan/plan.h"
#include "harness/answer.h"
#include "harness/request.h"
#include "models/registry.h"

namespace tilewright::harness {

/// Those and the added ones, which stay valid for good. Safe while others are added.
std::vector<std::reference_wrapper<const Model>> models();
/// The model that chooses among the plans of all others, and its own: the last of the registry.
const Model& planning_model();
/// The model whose plans are drawn and written in loop orders where none is named: the first whose
/// plans can be drawn. `validate` and orders are about it.
const Model& standard_model();
/// The model that makes the request's plan: the one that --model names; else, where model options
/// are given, the only one that has them all; else planning_model(). Throws InputError where
/// several have them.
const Model& planner_for(const Request& request);
/// --models: those that make plans, of "all" or of names with commas between. Throws InputError.
std::vector<const Model*> planners_of(const std::string& models);
/// From now on a model like the built-in ones; one that was added under this name is replaced.
/// Throws InputError for a built-in model's name, "all", and what is no name.
void add_model(Model record);
/// Throws InputError where no model was added under this name.
void remove_model(std::string_view name);
/// Checks the request's options: each must be of a model that has a part in the answer, which are
/// the model that --model or, without it, `standard` names, and those in whose notation the request
/// says a plan; every model where nothing is said. Throws InputError naming the model and what it
/// accepts.
void check_model_options(const Request& request, std::string_view standard = {});
/// The same of these models.
void check_options_of(const Request& request, std::span<const Model* const> models);
/// Whether a model that has a part in the answer (as above) has an option of this name.
bool takes_option(const Request& request, std::string_view name);
/// Throws InputError with the names, nearest first.
const Model& find_model(std::string_view name);

/// The target of that name; none: the first of the registry. Throws InputError.
const codegen::Target& target_named(const std::optional<std::string>& name);
/// The request's options of that target over its defaults. Throws InputError for an option that the
/// target does not have, and for a value that it does not take.
Settings settings_for(const codegen::Target& target, const OptionValues& options);
/// What the request's target asks of plans; nothing particular where the request names none.
TargetNeeds target_needs(const Request& request, DType type);

/// The plan of proposal_of (harness/ask.h).
Result<Plan> plan_of(const Request& request, Setting& setting);

}  // namespace tilewright::harness
