#include "python/added_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/machine_json.h"
#include "harness/registry.h"
#include "harness/schedule_json.h"
#include "harness/schedules.h"

namespace tilewright::python {
namespace {

namespace py = pybind11;
using harness::Answer;
using harness::Optimum;
using harness::Request;
using harness::Setting;
using Json = nlohmann::ordered_json;

Json ask(const py::object& function, const Json& question) {
  const std::string text = question.dump(-1, ' ', false, Json::error_handler_t::replace);
  const py::gil_scoped_acquire hold;
  return Json::parse(py::cast<std::string>(function(py::str(text))));
}

/// The kernels as the user wrote them, each with its schedule.
Json asked_kernels_json(const Plan& plan, const Schedule& schedule) {
  Json kernels = to_json(plan)["kernels"];
  const Json scheduled = harness::kernels_json(schedule);
  for (std::size_t i = 0; i < kernels.size(); ++i)
    for (const char* key : {"blocks", "nodes", "buffers"}) kernels[i][key] = scheduled[i][key];
  return kernels;
}

/// Per dimension of the tensor the coefficients by loop, and the constant.
Json access_json(const Workload& w, const Access& a) {
  Json json = {{"tensor", w.tensor(a.tensor).name}, {"index", Json::array()}};
  for (const Affine& form : a.index) {
    Json terms = Json::object();
    for (const Term& t : form.terms) terms[w.loop(t.loop).name] = t.coefficient;
    json["index"].push_back(Json::array({terms, form.offset}));
  }
  return json;
}

Json operators_json(const Workload& w) {
  Json operators = Json::array();
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    const Operator& op = w.operators()[i];
    Json json = {{"name", op.name}, {"notation", to_text(w, OpId(i))}};
    json["reads"] = json["writes"] = Json::array();
    for (const Access& a : op.inputs) json["reads"].push_back(access_json(w, a));
    for (const Output& o : op.outputs) json["writes"].push_back(access_json(w, o.target));
    operators.push_back(std::move(json));
  }
  return operators;
}

/// What every question says.
Json question_of(const Request& request, const Setting& setting, LevelId level) {
  const Workload& w = *setting.workload;
  const Machine& m = *setting.machine;
  Json json;
  json["workload"] = to_json(w);
  json["workload"]["name"] = setting.workload_name;
  json["workload"]["operators"] = operators_json(w);
  json["element_bytes"] = Json::object();
  for (const Tensor& t : w.tensors()) json["element_bytes"][t.name] = size_of(t.dtype);
  json["flops"] = w.flops();
  json["machine"] = harness::machine_json(m);
  json["level"] = m.level(level).name;
  json["boundary"] = harness::boundary_into(m, level);
  json["capacity_bytes"] = harness::capacity_of(request, setting, level).value;
  json["seed"] = request.seed;
  return json;
}

Answer price(const py::object& function, const std::string& name, const Request& asked,
             const Setting& given) {
  Request request = asked;
  Setting setting = given;
  request.model = name;
  const auto no = [&](const std::string& reason) {
    Json json = harness::document();
    harness::name_workload(json, setting);
    json["source"] = "predicted";
    json["by"] = name;
    json["machine"] = setting.machine->name;
    return harness::refuse(std::move(json), reason);
  };
  const Result<Plan> plan = harness::plan_of(request, setting);
  if (!plan) return no(plan.reason());
  const Result<Schedule> schedule = resolve(*plan, setting.workload, setting.machine);
  if (!schedule) return no(schedule.reason());
  const LevelId level = schedule->kernels.front().level;
  Json question = question_of(request, setting, level);
  question["kernels"] = asked_kernels_json(*plan, *schedule);
  Json said = ask(function, question);
  if (said.contains("reason")) return no(said["reason"].get<std::string>());
  Json json = harness::document();
  harness::name_workload(json, setting);
  harness::merge(json, said);
  return {std::move(json), harness::Status::done};
}

/// What the plan needs of the level, with the level as a scratchpad; a Reason where it does not
/// fit.
Result<Optimum> checked(Plan plan, LevelId level, const Request& request, const Setting& setting) {
  const auto alone = harness::alone_at(setting, plan, level);
  if (!alone) return Reason{alone.reason()};
  const Bytes room = harness::capacity_of(request, setting, level);
  Bytes needed;
  for (const auto& [name, bytes] : memory_use(alone->schedule)) needed = std::max(needed, bytes);
  if (needed > room)
    return Reason{"its plan holds " + std::to_string(needed.value) + " bytes, and " +
                  setting.machine->level(level).name + " has " + std::to_string(room.value)};
  Json document = {{"volume_bytes", nullptr}};
  document["memory"] = harness::memory_json(memory_use(alone->schedule));
  return Optimum{std::move(plan), level, std::move(document)};
}

/// The model's plan, and its own price of it.
Result<Optimum> optimise(const py::object& function, const py::object& by, const std::string& name,
                         const Request& request, const Setting& setting) {
  const LevelId level = harness::level_of(request, *setting.machine);
  Json said = ask(function, question_of(request, setting, level));
  if (said.contains("reason")) return Reason{said["reason"].get<std::string>()};
  Plan plan = plan_from_json(said["plan"], "model " + name + ": plan");
  if (plan.kernels.empty())
    throw InputError({.where = "model " + name,
                      .field = "optimise",
                      .value = "a plan of no kernel",
                      .problem = "is not accepted",
                      .accepted = "at least one kernel"});
  for (Kernel& k : plan.kernels)
    if (k.level.empty()) k.level = setting.machine->level(level).name;
  Result<Optimum> best = checked(std::move(plan), level, request, setting);
  if (!best) return best;
  Setting with_plan = setting;
  with_plan.file = PlanFile{.workload = *setting.workload,
                            .workload_name = setting.workload_name,
                            .machine = request.machine,
                            .model = name,
                            .plan = best->plan};
  Optimum done = std::move(best).value();
  const Answer answer = price(by, name, request, with_plan);
  for (const char* key : {"volume_bytes", "seconds"})
    done.document[key] = answer.json.value(key, Json(nullptr));
  return done;
}

}  // namespace

void add_model(const std::string& record, py::object optimise_function, py::object price_function) {
  const Json said = Json::parse(record);
  harness::ModelRecord model{.name = said["name"].get<std::string>(),
                             .summary = said["summary"].get<std::string>(),
                             .source = said["source"].get<std::string>(),
                             .assumptions = said["assumptions"].get<std::vector<std::string>>(),
                             .options = {},
                             .optimise = nullptr,
                             .price = nullptr};
  const std::string name = model.name;
  // std::function may copy what it holds where the GIL is not held, so the objects sit behind
  // pointers. They are never freed, as the records that hold them (harness/added_models.cpp).
  const auto kept = [](py::object o) { return new py::object(std::move(o)); };
  const py::object* by = kept(std::move(price_function));
  if (!optimise_function.is_none())
    model.optimise = [name, by, f = kept(std::move(optimise_function))](const Request& r,
                                                                        const Setting& s) {
      return optimise(*f, *by, name, r, s);
    };
  model.price = [name, by](const Request& r, const Setting& s) { return price(*by, name, r, s); };
  harness::add_model(std::move(model));
}

}  // namespace tilewright::python
