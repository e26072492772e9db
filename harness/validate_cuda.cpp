#include "harness/validate_cuda.h"

#include <algorithm>

#include "core/base/format.h"
#include "harness/ask.h"
#include "harness/measure_ncu.h"
#include "harness/meters.h"
#include "harness/recorded.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/validate_command.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// The first model that prices time and draws plans: what is timed and counted on a GPU.
const Model& timed_model() {
  for (const Model& m : builtin_models())
    if (m.times && m.draw != nullptr) return m;
  return standard_model();
}

/// Plans of the model's notation that fit, as jobs.
Result<std::vector<Job>> drawn_jobs(const Request& request, const ValidateOptions& options,
                                    const Model& model, const Setting& setting) {
  DrawSpace space{.count = options.samples, .texts = options.orders};
  const auto drawn =
      model.draw(question_of(request, setting, model), space, settings_of(request, model));
  if (!drawn) return Reason{drawn.reason()};
  std::vector<Job> jobs;
  for (const DrawnPlan& one : *drawn) {
    std::vector<std::string> tiles;
    for (const Loop& l : setting.workload->loops())
      if (const auto at = one.words.tiles->find(l.name); at != one.words.tiles->end())
        tiles.push_back(l.name + "=" + std::to_string(at->second));
    Job job =
        job_of(request, {.target = std::string(target_of(find_meter("ncu", "--truth")).name)});
    job.request.progress = {};
    job.request.model = model.name;
    job.request.options[model.notation] = {*one.words.text};
    job.request.tiles = join(tiles, ",");
    job.json["name"] = *one.words.text + " " + *job.request.tiles;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

/// Counts them, as the blocks of a recording have them.
Result<ordered_json> counted_block(std::vector<Job>& jobs, const Request& request) {
  const Counted counted = count_by_ncu(jobs, request);
  if (counted.refusal) return Reason{*counted.refusal};
  ordered_json block = {{"points", ordered_json::array()}, {"failed", ordered_json::array()}};
  for (const Job& job : jobs) {
    ordered_json point = {
        {"name", job.json["name"]},
        {"workload", job.json["workload"]},
        {timed_model().notation, job.request.options.at(timed_model().notation).front()},
        {"tiles", *job.request.tiles}};
    if (job.refusal) {
      point["reason"] = *job.refusal;
      block["failed"].push_back(std::move(point));
      continue;
    }
    point["predicted"] = job.json["predicted"];
    point["counted"] = job.json["counted"];
    block["points"].push_back(std::move(point));
  }
  return block;
}

void add_points(ordered_json& json, const ordered_json& block, const std::string& where) {
  const DocumentValue value = read_json(nlohmann::json(block), where);
  const std::vector<CountedPoint> points = counted_points(Field(value, where), "all");
  const std::size_t failed = block["failed"].size() + block["points"].size() - points.size();
  json["asked"] = points.size() + failed;
  json["valid"] = points.size();
  json["failed"] = failed;
  json["agreement"] = traffic_agreement_json(points);
  const std::string standard = standard_model().name;
  const ordered_json& said = json["agreement"].value(standard, ordered_json(nullptr));
  for (const char* figure : {"r2_identity", "r2_fit", "mape", "worst", "bias"})
    json[figure] = said.is_object() ? said[figure] : ordered_json(nullptr);
  json["points"] = ordered_json::array();
  const auto number = [](const std::optional<double>& x) {
    return x ? ordered_json(static_cast<std::int64_t>(*x)) : ordered_json(nullptr);
  };
  for (const CountedPoint& p : points) {
    json["points"].push_back(
        {{"name", p.name},
         {"order", p.group},
         {"predicted_bytes", number(p.by(standard))},
         {"predicted_full_edges_bytes", number(p.by(standard + "_full_edges"))},
         {"exact_bytes", number(p.exact)},
         {"true_bytes", number(p.truth)}});
    for (const auto& [model, bytes] : p.models)
      if (!model.starts_with(standard)) json["points"].back()[model + "_bytes"] = number(bytes);
  }
  json["failures"] = ordered_json::array();
  for (const ordered_json& f : block["failed"])
    json["failures"].push_back({{"name", f["name"]}, {"reason", f["reason"]}});
}

std::string csv_of(const ordered_json& points) {
  // What is true comes last, after every prediction.
  std::vector<std::string> columns;
  if (!points.empty())
    for (const auto& [key, value] : points.front().items())
      if (key.ends_with("_bytes") && key != "true_bytes") columns.push_back(key);
  columns.emplace_back("true_bytes");
  std::string csv = "order,name," + join(columns, ",") + "\n";
  for (const ordered_json& p : points) {
    csv += "\"" + p["order"].get<std::string>() + "\",\"" + p["name"].get<std::string>() + "\"";
    for (const std::string& key : columns) csv += "," + (p[key].is_null() ? "" : p[key].dump());
    csv += "\n";
  }
  return csv;
}

}  // namespace

bool on_gpu(std::string_view truth) { return truth == "ncu" || truth == "cuda-events"; }

namespace {

/// Bytes are held against ncu, whose points have all models; times are the timed model's.
void check_model(const Request& request, const ValidateOptions& options) {
  const std::string standard = options.truth == "ncu" ? standard_model().name : timed_model().name;
  if (request.model.value_or(standard) == standard) return;
  find_model(*request.model);
  throw InputError({.where = "--model",
                    .value = *request.model,
                    .problem = "is not a model whose predictions " + options.truth + " can check",
                    .accepted = standard});
}

/// Predicted against the measured times of a recording's candidates.
Answer validate_times(const Request& request, const ValidateOptions& options) {
  const Setting setting = setting_of(request);
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["model"] = timed_model().name;
  json["truth"] = options.truth;
  json["command"] = command_of(request, options);
  if (!options.recorded)
    return refuse(std::move(json),
                  "candidates are timed by experiments/gpu/counters: --recorded FILE names what it "
                  "has written");
  const DocumentValue value =
      read_json(nlohmann::json(recorded_block(*options.recorded, setting.workload_name,
                                              "seconds_median", "timed candidates")),
                *options.recorded);
  const Field block(value, *options.recorded);
  const std::vector<TimedPoint> points = timed_points(block);
  json["recorded"] = *options.recorded;
  json["valid"] = points.size();
  json["failed"] = block.at("failed").items().size();
  json["asked"] = points.size() + block.at("failed").items().size();
  json["times"] = time_agreement_json(points);
  json["points"] = ordered_json::array();
  for (const TimedPoint& p : points)
    json["points"].push_back({{"predicted_seconds", p.predicted}, {"true_seconds", p.measured}});
  if (points.empty()) return refuse(std::move(json), "no candidate has been timed");
  return {std::move(json), Status::done};
}

}  // namespace

Answer validate_cuda(const Request& request, const ValidateOptions& options) {
  check_model(request, options);
  if (options.truth == "cuda-events") return validate_times(request, options);
  const Setting setting = setting_of(request);
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["model"] = standard_model().name;
  json["truth"] = options.truth;
  json["command"] = command_of(request, options);
  if (!options.recorded)
    if (const auto why = absent(find_meter(options.truth, "--truth", "simulator")))
      return refuse(std::move(json), why->text);
  json["boundary"] = boundary_into(*setting.machine, level_of(request, *setting.machine));
  json["seed"] = request.seed;
  json["sampler"] = {
      {"law", "uniform over the tilings in multiples of 16 up to 256 that fit the level"},
      {"min_tile", 16}};
  ordered_json block;
  if (options.recorded) {
    block = recorded_block(*options.recorded, setting.workload_name, "counted", "counters");
    json["recorded"] = *options.recorded;
  } else {
    auto drawn = drawn_jobs(request, options, timed_model(), setting);
    if (!drawn) return refuse(std::move(json), drawn.reason());
    std::vector<Job> jobs = std::move(drawn).value();
    if (jobs.empty()) return refuse(std::move(json), "no tiling fits the level");
    Result<ordered_json> counted = counted_block(jobs, request);
    if (!counted) return refuse(std::move(json), counted.reason());
    block = std::move(counted).value();
  }
  add_points(json, block, options.recorded.value_or("counted"));
  if (options.csv) write_file(*options.csv, csv_of(json["points"]), "--csv");
  if (json["valid"] == 0) return refuse(std::move(json), "no tiling could be counted");
  if (options.min_r2 &&
      !(json["r2_identity"].is_number() && json["r2_identity"] >= *options.min_r2))
    return refuse(std::move(json), formatted("R² about y = x is {}, below {}",
                                             json["r2_identity"].dump(), *options.min_r2));
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
