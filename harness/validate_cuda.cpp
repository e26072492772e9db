#include "harness/validate_cuda.h"

#include <algorithm>
#include <random>
#include <set>

#include "core/base/format.h"
#include "harness/mcfuser_request.h"
#include "harness/measure_ncu.h"
#include "harness/meters.h"
#include "harness/recorded.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/validate_command.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kStep = 16, kMostTile = 256;

/// --orders, else the first expression of every class that rules 1 and 2 leave.
std::vector<std::string> expressions_of(const Request& request, const ValidateOptions& options,
                                        const Fused& on) {
  std::vector<std::string> expressions;
  for (const std::string& text : options.orders)
    expressions.push_back(
        mcfuser::to_text(on.chain, mcfuser::parse_expression(on.chain, text, "--orders")));
  if (!expressions.empty()) return expressions;
  const mcfuser::Options o = mcfuser_options(request);
  std::set<std::string> seen;
  for (const mcfuser::Expression& e : mcfuser::all_expressions(on.chain)) {
    const auto sub = mcfuser::sub_expression(on.chain, e, o.blocks);
    if (!mcfuser::overwhelms(on.chain, sub) && seen.insert(to_text(on.chain, sub.rest)).second)
      expressions.push_back(mcfuser::to_text(on.chain, e));
  }
  return expressions;
}

/// Tiles of one expression whose schedule is legal and fits.
std::vector<Job> drawn_jobs(const Request& request, const Fused& on,
                                const std::string& expression, std::int64_t samples,
                                std::mt19937_64& random) {
  const Workload& w = *on.chain.workload;
  std::vector<Job> jobs;
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < 1000 * samples && std::ssize(jobs) < samples; ++i) {
    std::vector<std::string> tiles;
    for (const LoopId l : on.chain.dims) {
      const std::int64_t most = std::min(w.loop(l).extent, kMostTile);
      const auto steps = static_cast<std::uint64_t>(ceil_div(most, kStep));
      const auto chosen = static_cast<std::int64_t>(random() % steps + 1) * kStep;
      tiles.push_back(w.loop(l).name + "=" + std::to_string(std::min(chosen, most)));
    }
    if (!seen.insert(join(tiles, ",")).second) continue;
    Job job = job_of(request, {.target = std::string(target_of(find_meter("ncu", "--truth")).name)});
    job.request.progress = {};
    job.request.model = "mcfuser";
    job.request.options["expression"] = {expression};
    job.request.tiles = join(tiles, ",");
    const Scheduled scheduled = schedule_of(job.request);
    if (!scheduled.schedule || misfit(*scheduled.schedule)) continue;
    job.json["name"] = expression + " " + *job.request.tiles;
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
    ordered_json point = {{"name", job.json["name"]},
                          {"workload", job.json["workload"]},
                          {"expression", job.request.options.at("expression").front()},
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

/// The block of a recording's file that is of this workload.
ordered_json recorded_block(const std::string& path, const std::string& workload) {
  const DocumentValue value = read_recording(path, "--recorded");
  std::vector<std::string> there;
  const Field recording(value, path);
  const auto chain = recording.get("chimera/fig8-gpu");
  if (chain) there.push_back(chain->at("workload").text());
  if (there != std::vector<std::string>{workload})
    throw InputError({.where = path,
                      .value = workload,
                      .problem = "is not what it has counted tilings of",
                      .accepted = there.empty() ? "a recording of counters" : there.front()});
  return nlohmann::ordered_json::parse(read_file(path, "--recorded"))["chimera/fig8-gpu"];
}

void add_points(ordered_json& json, const ordered_json& block, const std::string& where) {
  const DocumentValue value = read_json(nlohmann::json(block), where);
  const std::vector<CountedPoint> points = counted_points(Field(value, where), "all");
  const std::size_t failed = block["failed"].size() + block["points"].size() - points.size();
  json["asked"] = points.size() + failed;
  json["valid"] = points.size();
  json["failed"] = failed;
  json["agreement"] = traffic_agreement_json(points);
  const ordered_json& chimera = json["agreement"]["chimera"];
  for (const char* figure : {"r2_identity", "r2_fit", "mape", "worst", "bias"})
    json[figure] = chimera.is_object() ? chimera[figure] : ordered_json(nullptr);
  json["points"] = ordered_json::array();
  const auto number = [](const std::optional<double>& x) {
    return x ? ordered_json(static_cast<std::int64_t>(*x)) : ordered_json(nullptr);
  };
  for (const CountedPoint& p : points)
    json["points"].push_back({{"name", p.name},
                              {"order", p.group},
                              {"predicted_bytes", number(p.chimera)},
                              {"predicted_full_edges_bytes", number(p.chimera_full)},
                              {"exact_bytes", number(p.exact)},
                              {"mcfuser_bytes", number(p.mcfuser)},
                              {"true_bytes", number(p.truth)}});
  json["failures"] = ordered_json::array();
  for (const ordered_json& f : block["failed"])
    json["failures"].push_back({{"name", f["name"]}, {"reason", f["reason"]}});
}

std::string csv_of(const ordered_json& points) {
  std::string csv =
      "order,name,predicted_bytes,predicted_full_edges_bytes,exact_bytes,mcfuser_bytes,true_"
      "bytes\n";
  for (const ordered_json& p : points) {
    csv += "\"" + p["order"].get<std::string>() + "\",\"" + p["name"].get<std::string>() + "\"";
    for (const char* key : {"predicted_bytes", "predicted_full_edges_bytes", "exact_bytes",
                            "mcfuser_bytes", "true_bytes"})
      csv += "," + (p[key].is_null() ? "" : p[key].dump());
    csv += "\n";
  }
  return csv;
}

}  // namespace

bool on_gpu(std::string_view truth) { return truth == "ncu" || truth == "cuda-events"; }

namespace {

/// Bytes are held against ncu, whose points have all models; times are MCFuser's.
void check_model(const Request& request, const ValidateOptions& options) {
  const std::string standard = options.truth == "ncu" ? "chimera" : "mcfuser";
  if (request.model.value_or(standard) == standard) return;
  find_model(*request.model);
  throw InputError({.where = "--model",
                    .value = *request.model,
                    .problem = "is not what " + options.truth + " is the truth of",
                    .accepted = standard});
}

/// MCFuser's predicted against the measured times of a recording's candidates.
Answer validate_times(const Request& request, const ValidateOptions& options) {
  const Setting setting = setting_of(request);
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["model"] = "mcfuser";
  json["truth"] = options.truth;
  json["command"] = command_of(request, options);
  if (!options.recorded)
    return refuse(std::move(json),
                  "candidates are timed by experiments/gpu/counters: --recorded FILE names what it "
                  "has written");
  const DocumentValue value = read_recording(*options.recorded, "--recorded");
  const auto chains = Field(value, *options.recorded).get("mcfuser/fig11");
  const auto block = chains ? chains->get(setting.workload_name) : std::nullopt;
  if (!block)
    throw InputError({.where = *options.recorded,
                      .value = setting.workload_name,
                      .problem = "is not what it has timed candidates of",
                      .accepted = "mcfuser/G1 to mcfuser/G4"});
  const std::vector<TimedPoint> points = timed_points(*block);
  json["recorded"] = *options.recorded;
  json["valid"] = points.size();
  json["failed"] = block->at("failed").items().size();
  json["asked"] = points.size() + block->at("failed").items().size();
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
  json["model"] = "chimera";
  json["truth"] = options.truth;
  json["command"] = command_of(request, options);
  if (!options.recorded)
    if (const auto why = absent(find_meter(options.truth, "--truth", "simulator")))
      return refuse(std::move(json), why->text);
  const Result<Fused> on = fused_of(request, setting);
  if (!on) return refuse(std::move(json), on.reason());
  json["boundary"] = boundary_into(*setting.machine, on->level);
  json["seed"] = request.seed;
  json["sampler"] = {
      {"law", "uniform over the tilings in multiples of 16 up to 256 that fit the level"},
      {"min_tile", kStep}};
  ordered_json block;
  if (options.recorded) {
    block = recorded_block(*options.recorded, setting.workload_name);
    json["recorded"] = *options.recorded;
  } else {
    std::mt19937_64 random(request.seed);
    std::vector<Job> jobs;
    for (const std::string& expression : expressions_of(request, options, *on))
      for (Job& job : drawn_jobs(request, *on, expression, options.samples, random))
        jobs.push_back(std::move(job));
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
