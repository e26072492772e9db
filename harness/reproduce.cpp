// reproduce: an experiment's method, and the folder it leaves behind.
#include <algorithm>

#include "core/ir/format.h"
#include "harness/experiment.h"
#include "simulator/polybench/polybench.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

Reproduced run_method(const Experiment& e, const Request& request, const ReproduceOptions& options);

/// Several experiments as one: their reports one after the other, their points with the panel named.
Reproduced reproduce_panels(const Experiment& e, const Request& request,
                            const ReproduceOptions& options) {
  Reproduced all;
  all.holds = true;
  all.result["panels"] = ordered_json::array();
  for (const Field& panel : Field(*e.document, e.where).at("panels").items()) {
    const Experiment& part = find_experiment(panel.text());
    Reproduced one = run_method(part, request, options);
    one.result["id"] = part.id;
    one.result["holds"] = one.holds;
    all.report += formatted("\n## {}: {}\n\n{}\n\n{}", part.id, part.title, part.about, one.report);
    bool first = true;
    for (std::size_t begin = 0; begin < one.csv.size();) {
      const std::size_t end = std::min(one.csv.find('\n', begin), one.csv.size());
      const std::string line = one.csv.substr(begin, end - begin);
      if (!first) all.csv += part.id + "," + line + "\n";
      else if (all.csv.empty()) all.csv = "panel," + line + "\n";
      first = false;
      begin = end + 1;
    }
    if (!one.holds) {
      all.reason += (all.reason.empty() ? "" : "; ") + part.id + ": " + one.reason;
      all.holds = false;
    }
    all.result["panels"].push_back(std::move(one.result));
  }
  return all;
}

Reproduced run_method(const Experiment& e, const Request& request,
                      const ReproduceOptions& options) {
  if (e.method == "validate") return reproduce_validation(e, request, options);
  if (e.method == "formulas") return reproduce_formulas(e);
  if (e.method == "reuse") return reproduce_reuse(e);
  if (e.method == "intensity") return reproduce_intensity(e);
  if (e.method == "space") return reproduce_space(e);
  if (e.method == "works") return reproduce_works(e);
  if (e.method == "configurations") return reproduce_configurations(e);
  if (e.method == "tuning") return reproduce_tuning(e);
  if (e.method == "shared") return reproduce_shared(e);
  if (e.method == "comparison") return reproduce_comparison(e);
  if (e.method == "devices") return reproduce_devices(e);
  if (e.method == "chains") return reproduce_chains(e);
  if (e.method == "searches") return reproduce_searches(e);
  if (e.method == "levels") return reproduce_levels(e, request);
  if (e.method == "fusion") return reproduce_fusion(e, request);
  if (e.method == "npu-fusion") return reproduce_npu_fusion(e, request);
  if (e.method == "panels") return reproduce_panels(e, request, options);
  if (e.method == "bounds") return reproduce_bounds(e);
  if (e.method == "blocks") return reproduce_blocks(e, request);
  if (e.method == "counters") return reproduce_counters(e, request, options);
  if (e.method == "speedups") return reproduce_speedups(e, options);
  if (e.method == "times") return reproduce_times(e, options);
  if (e.method == "traffic") return reproduce_traffic(e, options);
  if (e.method == "memory") return reproduce_memory(e, request, options);
  Field(*e.document, e.where)
      .at("method")
      .fail("is no method", "validate, formulas, reuse, intensity, space, works, configurations, tuning, comparison, devices, "
            "chains, searches, levels, fusion, npu-fusion, panels, bounds, counters, blocks, speedups, times, traffic, memory");
}

/// --size is for counted misses only, --data for them and for recordings.
void check_options(const Experiment& e, const ReproduceOptions& options) {
  const bool counters = e.method == "counters";
  const auto refuse_option = [&](const char* option, const std::string& value) {
    throw InputError({.where = option,
                      .value = value,
                      .problem = "is not for " + e.id,
                      .accepted = "an experiment on counted misses, as validation/polybench"});
  };
  if (options.size && !counters) refuse_option("--size", *options.size);
  if (options.data && !counters && !is_recorded(e.method)) refuse_option("--data", *options.data);
  if (options.size && !polybench::size_from_name(*options.size))
    throw InputError({.where = "--size",
                      .value = options.size->empty() ? "nothing" : *options.size,
                      .problem = "is no size",
                      .accepted = "small, medium, large"});
}

}  // namespace

Answer reproduce(const Request& request, const ReproduceOptions& options) {
  const Experiment& e = find_experiment(options.id);
  check_options(e, options);
  std::optional<std::string> missing;
  if (e.method == "counters") missing = counters_missing(options);
  if (is_recorded(e.method)) missing = recording_missing(e, options);
  if (missing) {
    auto json = document();
    json["id"] = e.id;
    json["title"] = e.title;
    json["paper"] = e.source;
    return refuse(std::move(json), e.id + " is not available: " + *missing);
  }
  const std::string folder = options.out.value_or("results/" + e.id);
  make_folder(folder, "--out");
  Reproduced done = run_method(e, request, options);
  auto json = document();
  json["id"] = e.id;
  json["title"] = e.title;
  json["paper"] = e.source;
  json["about"] = e.about;
  json["holds"] = done.holds;
  merge(json, done.result);
  const std::string command =
      "tilewright reproduce " + e.id + (options.size ? " --size " + *options.size : "");
  json["command"] = command;
  json["folder"] = folder;
  json["files"] = {folder + "/report.md", folder + "/result.json", folder + "/points.csv"};
  const std::string report = formatted(
      "# {}: {}\n\nSource of the paper's numbers: {}. Ours: `{}`.\n\n{}\n\n{}\n{}\n",
      e.id, e.title, e.source, command, e.about, done.report,
      done.holds ? "What must hold holds." : "Does not hold: " + done.reason + ".");
  write_file(folder + "/report.md", report, "--out");
  write_file(folder + "/result.json", json.dump(2) + "\n", "--out");
  write_file(folder + "/points.csv", done.csv, "--out");
  if (done.holds) return {std::move(json), Status::done};
  return refuse(std::move(json), e.id + " does not hold: " + done.reason);
}

}  // namespace tilewright::harness
