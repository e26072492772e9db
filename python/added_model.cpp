#include "python/added_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/plan/file.h"
#include "harness/machine_json.h"
#include "harness/registry.h"
#include "harness/schedule_json.h"
#include "harness/schedules.h"

namespace tilewright::python {
namespace {

namespace py = pybind11;
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
Json question_json(const Question& q, LevelId level) {
  const Workload& w = *q.workload;
  const Machine& m = *q.machine;
  Json json;
  json["workload"] = to_json(w);
  json["workload"]["name"] = q.name;
  json["workload"]["operators"] = operators_json(w);
  json["element_bytes"] = Json::object();
  for (const Tensor& t : w.tensors()) json["element_bytes"][t.name] = size_of(t.dtype);
  json["flops"] = w.flops();
  json["machine"] = harness::machine_json(m);
  json["level"] = m.level(level).name;
  json["boundary"] = boundary_into(m, level);
  json["capacity_bytes"] = q.room_at(level).value;
  json["seed"] = q.seed;
  return json;
}

Result<Price> price(const py::object& function, const std::string& name, const Question& q,
                    const Plan& plan) {
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  Json question = question_json(q, schedule->kernels.front().level);
  question["kernels"] = asked_kernels_json(plan, *schedule);
  Json said = ask(function, question);
  if (said.contains("reason")) return Reason{said["reason"].get<std::string>()};
  Price out;
  out.traffic = traffic_from_json(said, "model " + name);
  out.detail = std::move(said);
  return out;
}

/// The model's plan, and its own price of it. A Reason where the plan does not fit the level.
Result<Proposal> optimise(const py::object& function, const py::object& by, const std::string& name,
                          const Question& q) {
  const LevelId level = q.planned_level();
  Json said = ask(function, question_json(q, level));
  if (said.contains("reason")) return Reason{said["reason"].get<std::string>()};
  Proposal out;
  out.plan = plan_from_json(said["plan"], "model " + name + ": plan");
  out.level = level;
  if (out.plan.kernels.empty())
    throw InputError({.where = "model " + name,
                      .field = "optimise",
                      .value = "a plan of no kernel",
                      .problem = "is not accepted",
                      .accepted = "at least one kernel"});
  for (Kernel& k : out.plan.kernels)
    if (k.level.empty()) k.level = q.machine->level(level).name;
  const harness::Setting setting{
      .workload_name = q.name, .workload = q.workload, .machine = q.machine, .file = {}};
  const auto alone = harness::alone_at(setting, out.plan, level);
  if (!alone) return Reason{alone.reason()};
  Bytes needed;
  const auto& memory = alone->exact.memory;
  for (const auto& [at, bytes] : memory) needed = std::max(needed, bytes);
  if (needed > q.room_at(level))
    return Reason{"its plan holds " + std::to_string(needed.value) + " bytes, and " +
                  q.machine->level(level).name + " has " + std::to_string(q.room_at(level).value)};
  Result<Price> own = price(by, name, q, out.plan);
  out.detail["volume_bytes"] =
      own ? own->detail.value("volume_bytes", Json(nullptr)) : Json(nullptr);
  out.detail["memory"] = memory_json(memory);
  out.detail["seconds"] = own ? or_null(own->traffic.seconds) : Json(nullptr);
  if (own) out.price = std::move(own).value();
  return out;
}

}  // namespace

void add_model(const std::string& record, py::object optimise_function, py::object price_function) {
  const Json said = Json::parse(record);
  Model model{.name = said["name"].get<std::string>(),
              .summary = said["summary"].get<std::string>(),
              .source = said["source"].get<std::string>(),
              .assumptions = said["assumptions"].get<std::vector<std::string>>()};
  const std::string name = model.name;
  // std::function may copy what it holds where the GIL is not held, so the objects sit behind
  // pointers. They are never freed, as the records that hold them (harness/added_models.cpp).
  const auto kept = [](py::object o) { return new py::object(std::move(o)); };
  const py::object* by = kept(std::move(price_function));
  if (!optimise_function.is_none())
    model.propose = [name, by, f = kept(std::move(optimise_function))](
                        const Question& q, const Settings&) { return optimise(*f, *by, name, q); };
  model.price = [name, by](const Question& q, const Plan& plan, const Settings&) {
    return price(*by, name, q, plan);
  };
  harness::add_model(std::move(model));
}

}  // namespace tilewright::python
