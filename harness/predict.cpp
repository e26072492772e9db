// predict: one model's price of a plan.
#include "harness/ask.h"
#include "harness/in_runs.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// The plan that is priced, and what the model says of it.
struct Priced {
  std::optional<Plan> plan;
  Result<Price> price = Reason{""};
};

/// Of the plan that the request says, else of the model's own.
Priced priced(const Model& model, const Request& request, Setting& setting) {
  if (model.price == nullptr) return {.plan = {}, .price = Reason{model.no_price}};
  const auto of = [](Result<Proposal> said) -> Priced {
    if (!said) return {.plan = {}, .price = Reason{said.reason()}};
    return {.plan = std::move(said->plan), .price = std::move(said->price)};
  };
  const bool in_place = setting.file || request.tree;
  const Model* reader = in_place ? nullptr : notation_of(request);
  // In its own notation the model prices what is said, not what the plan can be read back as.
  if (reader == &model) return of(proposal_of(request, setting));
  if (!in_place && reader == nullptr && model.propose != nullptr) {
    refuse_words(request, true);
    return of(propose(model, request, setting));
  }
  const Result<Proposal> said = proposal_of(request, setting);
  if (!said) return {.plan = {}, .price = Reason{said.reason()}};
  return {.plan = said->plan, .price = price(model, request, setting, said->plan)};
}

}  // namespace

Answer predict(const Request& request) {
  Setting setting = setting_of(request);
  std::string name = request.model.value_or("");
  if (!request.model && setting.file && setting.file->model) name = *setting.file->model;
  if (name.empty()) {
    std::vector<std::string> names;
    for (const Model& m : models()) names.push_back(m.name);
    throw InputError({.where = "--model",
                      .problem = "no model is given to price the plan",
                      .accepted = join(names)});
  }
  const Model& model = find_model(name);
  check_model_options(request, model.name);
  return predicted(model, request, std::move(setting));
}

Answer predicted(const Model& model, const Request& request, Setting setting) {
  const Priced said = priced(model, request, setting);
  auto json = document();
  name_workload(json, setting);
  const auto refused = [&](const std::string& reason) {
    if (!json.contains("source")) {
      if (said.plan && !resolve(*said.plan, setting.workload, setting.machine))
        json["legal"] = false;
      json["source"] = "predicted";
      json["by"] = model.name;
      json["machine"] = setting.machine->name;
    }
    return refuse(std::move(json), reason);
  };
  if (!said.price) return refused(said.price.reason());
  const Traffic& traffic = said.price->traffic;
  merge(json, to_json(traffic));
  merge(json, said.price->detail);
  if (said.plan) add_seconds_in_runs(json, model, request, setting, *said.plan);
  if (traffic.entries.empty() && !traffic.unavailable.empty())
    return refused(model.name + ": not available: " + traffic.unavailable.begin()->second);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
