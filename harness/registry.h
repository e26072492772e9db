// Which models, targets and meters there are: one record each feeds the lists, the help, the docs and
// the contract tests. Hand-written, so that nothing depends on what a linker keeps.
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
#include "harness/schedules.h"

namespace tilewright::harness {

/// A model's best plan and what it says of it.
struct Optimum {
  Plan plan;
  LevelId level;                   ///< that was planned for
  nlohmann::ordered_json document; ///< the model's part of what `plan` prints: volume_bytes, ...
  /// Rewrites of the setting's workload that the plan is of, beyond those it has already.
  std::vector<std::string> rewrites = {};
  /// What may stand in the place of a kernel that a target refuses.
  KernelChoices choices = {};
};

struct ModelRecord {
  std::string name;
  std::string summary;
  std::string source;
  std::vector<std::string> assumptions;
  std::span<const OptionSpec> options;  ///< beside --published and --ours
  /// The model's best plan, for a request that names only a workload. Null: it makes no plans.
  std::function<Result<Optimum>(const Request&, const Setting&)> optimise;
  /// What `predict` answers; the plan is the request's, or the model's own where it says none.
  std::function<Answer(const Request&, const Setting&)> price;
};

/// The models of this package.
std::span<const ModelRecord> builtin_models();
/// Those and the added ones, which stay valid for good. Safe while others are added.
std::vector<std::reference_wrapper<const ModelRecord>> models();
/// From now on a model like the built-in ones; one that was added under this name is replaced. Throws
/// InputError for a built-in model's name, "all", and what is no name.
void add_model(ModelRecord record);
/// Throws InputError where no model was added under this name.
void remove_model(std::string_view name);
/// Checks the request's options: each must be of a model that has a part in the answer, which are the
/// model that --model or, without it, `standard` names, Chimera where --order says the plan, and those
/// that have --expression where it is given; every model where nothing is said. Throws InputError
/// naming the model and what it accepts.
void check_model_options(const Request& request, std::string_view standard = {});
/// The same of these models.
void check_options_of(const Request& request, std::span<const ModelRecord* const> models);
/// Whether a model that has a part in the answer (as above) has an option of this name.
bool takes_option(const Request& request, std::string_view name);
/// Throws InputError with the names, nearest first.
const ModelRecord& find_model(std::string_view name);

/// The target of that name; none: the first of the registry. Throws InputError.
const codegen::Target& target_named(const std::optional<std::string>& name);
/// The request's options of that target over its defaults. Throws InputError for an option that the
/// target does not have, and for a value that it does not take.
Settings settings_for(const codegen::Target& target, const OptionValues& options);
/// What the request's target asks of plans; nothing particular where the request names none.
TargetNeeds target_needs(const Request& request, DType type);

/// The plan that a request says: its file, its tree, its --order (Chimera's tree of it), or the best of
/// its --model. A model may have planned for a rewritten workload: then that is the setting's from now
/// on. A Reason where the order has no tree or the model finds nothing; throws InputError where the
/// request says no plan at all.
Result<Plan> plan_of(const Request& request, Setting& setting);
/// The same, and what may stand in the place of its kernels.
Result<Plan> plan_of(const Request& request, Setting& setting, KernelChoices& choices);

}  // namespace tilewright::harness
