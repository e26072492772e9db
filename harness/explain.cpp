// explain: how a model comes to its answer, or a plan with its defaults made visible.
#include <algorithm>

#include "core/base/toolchain.h"
#include "harness/ask.h"
#include "harness/heard.h"
#include "harness/schedule_json.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "models/bounds/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

Answer explain_plan(const Request& request) {
  Scheduled on = schedule_of(request);
  if (!on.schedule) return on.refusal;
  const Schedule& schedule = *on.schedule;
  auto json = document();
  name_workload(json, on.setting);
  json["machine"] = on.setting.machine->name;
  json["legal"] = true;
  const auto held = memory_use(schedule);
  auto why = misfit(schedule);
  if (!why && request.capacity) {
    const LevelId level = level_of(request, *on.setting.machine);
    const std::string& name = on.setting.machine->level(level).name;
    const Bytes room = capacity_of(request, on.setting, level);
    if (const auto at = held.find(name); at != held.end() && at->second > room)
      why = Reason{"the plan needs " + std::to_string(at->second.value) + " bytes of " + name +
                   ", and --capacity is " + std::to_string(room.value)};
  }
  json["fits"] = !why.has_value();
  json["fits_reason"] = why ? ordered_json(why->text) : ordered_json(nullptr);
  json["memory"] = memory_json(held);
  json["resolved"] = to_json(schedule.resolved);
  json["trees"] = ordered_json::array();
  for (const Kernel& k : schedule.resolved.kernels) json["trees"].push_back(to_text(k.tree));
  json["kernels"] = kernels_json(schedule);
  return {std::move(json), Status::done};
}

}  // namespace

Answer explain_curve(const Request& request) {
  const bool machine = request.machine || request.machine_text;
  const Setting setting = machine ? setting_of(request) : workload_of(request);
  if (setting.file || request.tree)
    throw InputError({.where = "--curve",
                      .value = setting.file ? request.subject : "--tree",
                      .problem = "is a plan already",
                      .accepted = "a workload"});
  auto json = document();
  name_workload(json, setting);
  json["dtype"] = name_of(setting.workload->dtype());
  json["machine"] = machine ? ordered_json(setting.machine->name) : ordered_json(nullptr);
  merge(json, bounds::curve_json(*setting.workload, setting.machine.get()));
  json["command"] = "tilewright explain " + setting.workload_name + " --curve" +
                    (request.machine ? " -m " + *request.machine : "");
  return {std::move(json), Status::done};
}

namespace {

/// `dot` as it is, or drawn by Graphviz where the path ends in .svg. A Reason where that is not
/// here.
std::optional<Reason> write_drawing(const std::string& dot, const std::string& path) {
  if (!path.ends_with(".svg")) {
    write_file(path, dot, "-o");
    return std::nullopt;
  }
  if (!on_path("dot")) return Reason{"Graphviz's dot is not on the PATH; -o FILE.dot needs none"};
  const TemporaryDirectory folder;
  const std::string from = (folder.path() / "plan.dot").string();
  const std::string to = (folder.path() / "plan.svg").string();
  write_file(from, dot, "-o");
  if (auto why = run_program({"dot", "-Tsvg", from, "-o", to}, folder.path() / "log")) return why;
  write_file(path, text_of(to), "-o");
  return std::nullopt;
}

}  // namespace

Answer explain(const Request& request, bool resolved, const std::optional<std::string>& out) {
  Answer answer = explain(request, resolved);
  if (!out || !answer.ok()) return answer;
  if (!answer.json.contains("dot"))
    throw InputError({.where = "-o",
                      .value = *out,
                      .problem = "is for a drawing of a graph",
                      .accepted = "a model that draws its plans beside a workload"});
  if (const auto why = write_drawing(answer.json["dot"], *out))
    return refuse(std::move(answer.json), why->text);
  answer.json["written"] = *out;
  return answer;
}

Answer explain(const Request& request, bool resolved) {
  if (resolved) return explain_plan(request);
  const Setting setting = setting_of(request);
  if (setting.file || request.tree) return explain_plan(request);
  // The one that is named, else the one in whose notation something is said, else the one that
  // plans.
  const Model* reader = notation_of(request);
  const Model& model = reader != nullptr && !request.model ? *reader : planner_for(request);
  check_model_options(request, model.name);
  if (model.explain == nullptr) {
    std::vector<std::string> able;
    for (const Model& m : models())
      if (m.explain != nullptr) able.push_back(m.name);
    throw InputError({.where = "--model",
                      .value = model.name,
                      .problem = "explains no choices",
                      .accepted = "a model that does: " + join(able)});
  }
  if (reader != nullptr && reader->notation != model.notation)
    throw InputError({.where = "--" + reader->notation,
                      .value = *words_of(request, *reader, *setting.workload).text,
                      .problem = "is not a notation of the model " + model.name,
                      .accepted = "--model " + reader->name});
  refuse_words(request, model.notation.empty());
  const ProgressListener listener(heard(request, "searching"));
  Explained said = model.explain(question_of(request, setting, model),
                                 {.words = words_of(request, model, *setting.workload),
                                  .samples = request.samples,
                                  .rewrites = request.rewrites,
                                  .given = options_among(request.options, model.options)},
                                 settings_of(request, model));
  Setting of = setting;
  rewrite(of, said.rewrites, "--model " + model.name);
  auto json = document();
  name_workload(json, of);
  json["machine"] = setting.machine->name;
  json["model"] = model.name;
  // Moved: a ranking of many orders is long.
  for (auto it = said.detail.begin(); it != said.detail.end(); ++it)
    json[it.key()] = std::move(it.value());
  if (said.refused) return refuse(std::move(json), *said.refused);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
