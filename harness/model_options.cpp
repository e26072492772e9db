// Which of a request's options are of which model.
#include <algorithm>

#include "harness/registry.h"

namespace tilewright::harness {
namespace {

using Records = std::vector<std::reference_wrapper<const Model>>;

bool has(const Model& model, std::string_view option) {
  return find_option(model.options, option) != nullptr;
}

Records asked_models(const Request& request, std::string_view standard) {
  Records asked;
  // Which models read what the request says in a notation: --order, or a model's own option.
  const auto reads = [&](const Model& m) {
    return !m.notation.empty() && (m.notation == "order" ? request.order.has_value()
                                                         : request.options.contains(m.notation));
  };
  const auto own_option = [&](const Model& m) { return reads(m) && m.notation != "order"; };
  if (request.model)
    asked.emplace_back(find_model(*request.model));
  else if (!standard.empty() && std::ranges::none_of(builtin_models(), own_option))
    asked.emplace_back(find_model(standard));
  for (const Model& m : builtin_models())
    if (reads(m)) asked.emplace_back(m);
  return asked.empty() ? models() : asked;
}

void check(const Request& request, const Records& asked) {
  for (const auto& [name, texts] : request.options) {
    if (find_option(defaults_options(), name) != nullptr) continue;
    if (std::ranges::any_of(asked, [&, &option = name](const Model& m) { return has(m, option); }))
      continue;
    std::vector<std::string> whose, known;
    for (const Model& m : asked) {
      whose.push_back(m.name);
      for (const OptionSpec& spec : m.options)
        if (std::ranges::find(known, as_argument(spec)) == known.end())
          known.push_back(as_argument(spec));
    }
    const std::string near = nearest("--" + name, known);
    throw InputError(
        {.where = "model " + join(whose),
         .value = "--" + name,
         .problem = "is not one of its options",
         .accepted = known.empty()
                         ? "none: it has no options"
                         : join(known) + (near.empty() ? "" : " (nearest: " + near + ")")});
  }
  for (const Model& m : asked) settings_among(request, m.options, "model " + m.name);
}

}  // namespace

void check_model_options(const Request& request, std::string_view standard) {
  if (!request.options.empty()) check(request, asked_models(request, standard));
}

void check_options_of(const Request& request, std::span<const Model* const> models) {
  Records asked;
  for (const Model* m : models) asked.emplace_back(*m);
  if (!request.options.empty()) check(request, asked);
}

const Model& planner_for(const Request& request) {
  if (request.model) return find_model(*request.model);
  std::vector<std::string> given;
  for (const auto& [name, texts] : request.options)
    if (find_option(defaults_options(), name) == nullptr) given.push_back(name);
  const auto has_all = [&](const Model& m) {
    return std::ranges::all_of(given, [&m](const std::string& name) { return has(m, name); });
  };
  if (has_all(planning_model())) return planning_model();
  std::vector<const Model*> owners;
  std::vector<std::string> names;
  for (const Model& m : models())
    if (m.propose != nullptr && has_all(m)) owners.push_back(&m), names.push_back(m.name);
  if (owners.size() == 1) return *owners.front();
  for (std::string& name : given) name = "--" + name;
  if (owners.empty()) return planning_model();  // which refuses what it has not
  throw InputError({.where = "--model",
                    .problem = join(given) +
                               (given.size() == 1 ? " is an option" : " are options") +
                               " of several models, and none is named",
                    .accepted = "--model " + join(names, " or --model ")});
}

bool takes_option(const Request& request, std::string_view name) {
  return std::ranges::any_of(asked_models(request, {}),
                             [&](const Model& m) { return has(m, name); });
}

}  // namespace tilewright::harness
