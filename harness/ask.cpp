#include "harness/ask.h"

#include <algorithm>
#include <map>

#include "codegen/target.h"
#include "harness/heard.h"
#include "harness/registry.h"

namespace tilewright::harness {
namespace {

/// The text of the option that says a plan in a notation: --order is of every verb that takes a
/// plan, others are among the models' options.
std::optional<std::string> text_of_notation(const Request& request, std::string_view notation) {
  if (notation.empty()) return std::nullopt;
  if (notation == "order") return request.order;
  const auto given = request.options.find(notation);
  if (given == request.options.end() || given->second.empty()) return std::nullopt;
  return given->second.front();
}

/// The target's own time model, as a model of the target's name that prices plans. Null: it has
/// none.
const Model* time_model_of(const codegen::Target& target) {
  static const std::map<std::string, Model> all = [] {
    std::map<std::string, Model> made;
    for (const codegen::Target* t : codegen::targets()) {
      const auto seconds = t->predicted_seconds;
      if (seconds == nullptr) continue;
      const std::string name(t->name);
      made[name] = {.name = name,
                    .times = true,
                    .price = [seconds, name](const Question& q, const Plan& plan,
                                             const Settings&) -> Result<Price> {
                      const Result<Schedule> s = resolve(plan, q.workload, q.machine);
                      if (!s) return Reason{s.reason()};
                      const auto its = seconds(*s, q.most_steps);
                      if (!its) return Reason{its.reason()};
                      Price price;
                      price.traffic.by = name;
                      price.traffic.machine = q.machine->name;
                      price.traffic.seconds = its->seconds;
                      price.steps = its->steps;
                      return price;
                    }};
    }
    return made;
  }();
  const auto own = all.find(std::string(target.name));
  return own == all.end() ? nullptr : &own->second;
}

/// What the target takes is found by emitting, so that no second set of rules can disagree.
std::function<std::optional<Reason>(const Schedule&)> refusals_of(const codegen::Target& target,
                                                                  const Settings& settings,
                                                                  int threads) {
  return [&target, settings, threads](const Schedule& s) -> std::optional<Reason> {
    if (target.refuses != nullptr) return target.refuses(s, settings, threads);
    const auto emitted = target.emit(s, settings, threads);
    return emitted ? (*emitted)->makeshift() : std::optional(emitted.why());
  };
}

}  // namespace

bool several_levels(const Machine& machine) {
  return machine.path(machine.home(), machine.default_level()).size() > 1;
}

Question question_of(const Request& request, const Setting& setting, const Model& model) {
  Question q{.name = setting.workload_name,
             .workload = setting.workload,
             .machine = setting.machine,
             .target = request.target.value_or(""),
             .needs = target_needs(request, setting.workload->dtype()),
             .seed = request.seed,
             .layout = layout_of(request),
             .threads = request.threads.value_or(1)};
  for (const Model& other : models())
    if (other.name != model.name && (other.propose != nullptr || other.price != nullptr))
      q.others.push_back(&other);
  if (request.target) {
    const codegen::Target& target = target_named(request.target);
    q.refuses = refusals_of(target, settings_for(target, request.target_options), q.threads);
    if (const Model* own = time_model_of(target)) q.others.push_back(own);
  }
  const bool all = request.level == "all";
  q.all_levels = all && model.every_level && several_levels(*q.machine);
  if (request.level && !(all && (q.all_levels || !several_levels(*q.machine))))
    q.level = level_of(request, *q.machine);
  if (request.capacity) q.room = capacity_of(request, setting, q.planned_level());
  return q;
}

Settings settings_of(const Request& request, const Model& model) {
  return settings_among(request, model.options, "model " + model.name);
}

Settings settings_with(const Request& request, const Model& model, const std::string& option,
                       const std::string& value, bool over_given) {
  if (find_option(model.options, option) == nullptr ||
      (request.options.contains(option) && !over_given))
    return settings_of(request, model);
  OptionValues values = options_among(request.options, model.options);
  values[option] = {value};
  return {model.options, values, "model " + model.name};
}

Words words_of(const Request& request, const Model& model, const Workload& w) {
  Words words{.text = text_of_notation(request, model.notation)};
  if (request.tiles) words.tiles = tiles_of(request, w);
  return words;
}

const Model* notation_of(const Request& request) {
  // The model that is asked for first: several may share a notation.
  if (request.model)
    if (const Model& own = find_model(*request.model); text_of_notation(request, own.notation))
      return &own;
  const Model* found = nullptr;
  for (const Model& m : models())
    if (text_of_notation(request, m.notation))
      if (found == nullptr || m.notation != "order") {
        found = &m;
        if (m.notation != "order") break;
      }
  return found;
}

void refuse_words(const Request& request, bool tiles) {
  if (!request.pins.empty() || !request.flags.empty())
    throw InputError({.where = "--pin, --flag",
                      .value = "a pin or flag",
                      .problem = "needs a loop tree",
                      .accepted = "--tree beside it"});
  if (tiles && request.tiles)
    throw InputError({.where = "--tiles",
                      .value = *request.tiles,
                      .problem = "needs a loop tree or a loop order",
                      .accepted = "--tree, --order or --expression beside it"});
}

/// The target of the machine's kind, where our own planner is asked and no target is named.
const codegen::Target* own_target_of(const Model& model, const Request& request,
                                     const Setting& setting) {
  if (request.target || &model != &planning_model()) return nullptr;
  return codegen::own_target(setting.machine->kind);
}

Result<Proposal> propose(const Model& model, const Request& request, const Setting& setting) {
  if (model.propose == nullptr) return Reason{"the model " + model.name + " makes no plans"};
  const ProgressListener listener(heard(request, "searching"));
  const Question q = question_of(request, setting, model);
  const Settings settings = settings_of(request, model);
  // Our own planner gives what its machine can run, wherever there is such a plan.
  if (const codegen::Target* own = own_target_of(model, request, setting)) {
    Question runs = q;
    runs.refuses = refusals_of(*own, settings_for(*own, {}), q.threads);
    if (Result<Proposal> found = model.propose(runs, settings)) return found;
  }
  return model.propose(q, settings);
}

Result<Price> price(const Model& model, const Request& request, const Setting& setting,
                    const Plan& plan) {
  if (model.price == nullptr) return Reason{model.no_price};
  Question q = question_of(request, setting, model);
  if (const codegen::Target* own = own_target_of(model, request, setting))
    q.refuses = refusals_of(*own, settings_for(*own, {}), q.threads);
  return model.price(q, plan, settings_of(request, model));
}

Result<Proposal> proposal_of(const Request& request, Setting& setting) {
  if (auto plan = plan_in_place(request, setting)) {
    Proposal given;
    given.plan = std::move(*plan);
    given.level = setting.machine->default_level();
    return given;
  }
  if (const Model* reader = notation_of(request)) {
    refuse_words(request, false);
    return reader->written(question_of(request, setting, *reader),
                           words_of(request, *reader, *setting.workload),
                           settings_of(request, *reader));
  }
  refuse_words(request, true);
  const Model& model = planner_for(request);
  if (model.propose == nullptr) {
    std::vector<std::string> makers;
    for (const Model& m : models())
      if (m.propose != nullptr) makers.push_back(m.name);
    throw InputError(
        {.where = "PLAN",
         .value = request.subject,
         .problem = "is not a plan, and the model " + model.name + " makes none",
         .accepted = "a plan file, or beside a workload --tree, --order, --expression, or "
                     "--model " +
                     join(makers, " or --model ")});
  }
  Result<Proposal> best = propose(model, request, setting);
  if (best) rewrite(setting, best->rewrites, "--model " + model.name);
  return best;
}

Result<Plan> plan_of(const Request& request, Setting& setting) {
  Result<Proposal> said = proposal_of(request, setting);
  if (!said) return Reason{said.reason()};
  return std::move(said).value().plan;
}

}  // namespace tilewright::harness
