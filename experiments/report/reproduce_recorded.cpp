// The methods `speedups`, `times` and `traffic`: what was recorded on a GPU, beside a paper's
// numbers.
#include <dlfcn.h>

#include <cmath>
#include <filesystem>

#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "experiments/report/sheet.h"
#include "harness/recorded.h"
#include "harness/statistics.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

/// The recordings that came with this program: of the checkout that it was built in, or installed
/// beside it (PREFIX/bin/tilewright; PREFIX/lib/pythonX/site-packages/tilewright/_tilewright.so).
std::optional<std::string> folder_beside_the_program() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&recording_path), &here) == 0 ||
      here.dli_fname == nullptr)
    return std::nullopt;
  // Of a command found on the PATH, the name is the word that it was called by.
  const std::string_view name = here.dli_fname;
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(
      name.find('/') == std::string_view::npos ? "/proc/self/exe" : name, error);
  if (error) return std::nullopt;
  for (const char* from : {"../experiments/results", "../share/tilewright/results",
                           "../../../../share/tilewright/results"}) {
    const auto folder = (file.parent_path() / from).lexically_normal();
    if (std::filesystem::is_directory(folder, error)) return folder.string();
  }
  return std::nullopt;
}

std::string path_of_recording(const std::string& file, const ReproduceOptions& options) {
  const std::string name = "/" + file;
  if (options.data) return *options.data + name;
  const std::string here = "experiments/results" + name;
  std::error_code error;
  if (std::filesystem::exists(here, error)) return here;
  const auto beside = folder_beside_the_program();
  return beside ? *beside + name : here;
}

}  // namespace

std::string recording_path(const Experiment& e, const ReproduceOptions& options) {
  return path_of_recording(Field(*e.document, e.where).at("recording").text(), options);
}

void add_provenance(Reproduced& done, const Field& recording, const std::string& path) {
  const auto device = recording.at("device").get("name");
  const std::string name = device ? device->text() : "not said";
  done.result["recording"] = {{"file", path},
                              {"device", name},
                              {"date", recording.at("date").text()},
                              {"command", recording.at("command").text()}};
  done.report += formatted("Recorded on {}, {}, by `{}` ({}).\n\n", name,
                           recording.at("date").text(), recording.at("command").text(), path);
}

namespace {

std::string ratio(double x) { return formatted("{:.2f}", x); }
std::string microseconds(double seconds) { return formatted("{:.2f}", 1e6 * seconds); }

std::optional<double> number_at(const ordered_json& j, const char* model, const char* key) {
  if (!j.contains(model) || !j[model].is_object() || !j[model][key].is_number())
    return std::nullopt;
  return j[model][key].get<double>();
}

}  // namespace

std::vector<std::string> recording_files(const Experiment& e, const ReproduceOptions& options) {
  const auto several = Field(*e.document, e.where).get("recordings");
  if (!several) return {recording_path(e, options)};
  std::vector<std::string> paths;
  for (const Field& name : several->items())
    paths.push_back(path_of_recording(name.text(), options));
  return paths;
}

std::optional<std::string> recording_missing(const Experiment& e, const ReproduceOptions& options) {
  std::error_code error;
  for (const std::string& path : recording_files(e, options))
    if (!std::filesystem::exists(path, error))
      return "it needs a recording of a GPU, and there is none here (no " + path +
             "); --data DIR names a folder with one, and experiments/gpu makes it";
  return std::nullopt;
}

Reproduced reproduce_speedups(const Experiment& e, const Run& run) {
  const ReproduceOptions& options = run.options;
  const Field top = document_of(e, {"recording", "groups"});
  const std::string path = recording_path(e, options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  Sheet sheet({"row", "ours us (measured)", "PyTorch us (measured)", "PyTorch/ours (measured)",
               "best peer/ours (measured)", "paper: mean over PyTorch"});
  done.result["means"] = ordered_json::object();
  bool any = false;
  for (const Field& group : top.at("groups").items()) {
    const std::string prefix = group.at("rows").text(), paper = ratio(group.at("paper").real());
    GeometricMean mean;
    for (const Field& row : recording.at("rows").items()) {
      const auto ours = row.get("ours_seconds");
      if (!row.at("row").text().starts_with(prefix) || !ours) continue;
      const auto eager = row.at("peers").get("eager");
      const auto seconds = eager ? eager->get("seconds") : std::nullopt;
      const auto best = row.get("best_peer_over_ours");
      if (seconds) mean.add(seconds->real() / ours->real());
      sheet.add({row.at("row").text(), microseconds(ours->real()),
                 seconds ? microseconds(seconds->real()) : "-",
                 seconds ? ratio(seconds->real() / ours->real()) : "-",
                 best ? ratio(best->real()) : "-", paper});
      any = true;
    }
    if (const auto times = mean.value()) {
      done.result["means"][prefix] = {{"geometric_mean", *times},
                                      {"rows", static_cast<double>(mean.count())},
                                      {"paper", group.at("paper").real()}};
      done.compared.push_back(
          {.what = prefix + "*, over PyTorch",
           .unit = "times",
           .ours = *times,
           .ours_source = formatted("measured (CUDA events, {})",
                                    done.result["recording"]["device"].get<std::string>()),
           .paper = group.at("paper").real()});
      sheet.add({prefix + "*, geometric mean", "", "", ratio(*times), "", paper});
    }
  }
  sheet.into(done);
  // Another GPU and other versions of the peers: what is compared has no number that must be met.
  done.holds = any;
  if (!any) done.reason = "the recording has none of its rows";
  return done;
}

Reproduced reproduce_times(const Experiment& e, const Run& run) {
  const ReproduceOptions& options = run.options;
  const Field top = document_of(e, {"recording", "block", "model", "rows"});
  const std::string model = top.at("model").text();
  const std::string path = recording_path(e, options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  Sheet sheet({"chain", "candidates", "failed", "Pearson (measured)", "Pearson (paper, A100)",
               "Spearman", "first choice/fastest", "best of first 8/fastest"});
  const Field block = recording.at(top.at("block").text());
  done.result["rows"] = ordered_json::object();
  for (const Field& row : top.at("rows").items()) {
    const std::string name = row.at("row").text();
    const auto found = block.get(name);
    const ordered_json said = found ? time_agreement_json(timed_points(*found)) : ordered_json();
    done.result["rows"][name] = said;
    if (!said.is_object()) {
      done.reason += (done.reason.empty() ? "" : "; ") + name + " has no timed candidate";
      continue;
    }
    done.result["rows"][name]["paper_pearson"] = row.at("paper").real();
    done.compared.push_back(
        {.what = name + ", correlation of predicted with measured time",
         .unit = "",
         .ours = number_at(done.result["rows"], name.c_str(), "pearson"),
         .ours_source = formatted("predicted ({}) against measured (CUDA events, {})", model,
                                  done.result["recording"]["device"].get<std::string>()),
         .paper = row.at("paper").real()});
    Series timed{.name = name};
    for (const TimedPoint& p : timed_points(*found)) {
      timed.x.push_back(p.predicted);
      timed.y.push_back(p.measured);
    }
    done.chart.series.push_back(std::move(timed));
    sheet.add({name, said["points"].dump(), std::to_string(found->at("failed").items().size()),
               fixed_or_dash(said["pearson"], 2), ratio(row.at("paper").real()),
               fixed_or_dash(said["spearman"], 2),
               ratio(said["first_choice_over_best"].get<double>()),
               ratio(said["best_of_first_eight_over_best"].get<double>())});
  }
  sheet.into(done);
  done.chart.title = e.id + ": " + e.title;
  done.chart.x_label = formatted("predicted ({}), seconds", model);
  done.chart.y_label = "measured (CUDA events), seconds";
  done.chart.caption = "Recorded on " + done.result["recording"]["device"].get<std::string>() +
                       "; a point a candidate.";
  done.chart.identity = true;
  done.holds = done.reason.empty();
  return done;
}

Reproduced reproduce_traffic(const Experiment& e, const Run& run) {
  const ReproduceOptions& options = run.options;
  const Field top = document_of(e, {"recording", "block", "models", "paper", "must_hold"});
  const std::string path = recording_path(e, options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  const Field block = recording.at(top.at("block").text());
  const ordered_json said = traffic_agreement_json(counted_points(block, "all"));
  done.result["agreement"] = said;
  done.result["failed"] = block.at("failed").items().size();
  Sheet sheet({"expression", "model", "tilings", "R² about y = x", "R² of a fitted line",
               "mean error", "worst", "bias"});
  std::vector<std::string> models, rows_of = {"exact"};
  for (const Field& model : top.at("models").items()) {
    models.push_back(model.text());
    rows_of.insert(rows_of.end(), {models.back(), models.back() + "_full_edges"});
  }
  const auto rows = [&](const std::string& name, const ordered_json& said_by) {
    for (const std::string& model : rows_of) {
      const ordered_json a = said_by.value(model, ordered_json());
      if (!a.is_object()) continue;
      const auto percent = [&a](const char* key) {
        return formatted("{:+.2f} %", 100 * a[key].get<double>());
      };
      sheet.add({name, model, a["points"].dump(), fixed_or_dash(a["r2_identity"], 4),
                 fixed_or_dash(a["r2_fit"], 4), percent("mape"), percent("worst"),
                 percent("bias")});
    }
  };
  rows("all", said);
  for (const auto& [name, of_group] : said["groups"].items()) rows(name, of_group);
  sheet.into(done);
  if (said["residuals"].is_object())
    for (const auto& [cause, part] : said["residuals"].items())
      done.report +=
          formatted("\n- {}: {:+.2f} % of the true bytes", cause, 100 * part.get<double>());
  done.report += formatted("\n\nThe paper, on another machine and another boundary: R² {}.\n",
                           ratio(top.at("paper").at("r2").real()));
  const std::string device = done.result["recording"]["device"];
  for (const std::string& model : models)
    if (said.contains(model) && said[model].is_object())
      done.compared.push_back(
          {.what = formatted("R² about y = x of {}", model),
           .unit = "",
           .ours = number_at(said, model.c_str(), "r2_identity"),
           .ours_source = formatted("predicted ({}) against measured (ncu, {})", model, device),
           .paper = top.at("paper").at("r2").real()});
  done.chart = {.title = e.id + ": " + e.title,
                .x_label = "predicted, bytes into the SMs",
                .y_label = "measured (ncu), bytes",
                .caption = "Recorded on " + device + "; a point a tiling.",
                .identity = true,
                .series = {{.name = "exact"}}};
  for (const std::string& model : models) done.chart.series.push_back({.name = model});
  for (const CountedPoint& p : counted_points(block, "all")) {
    const auto put = [&p](Series& s, const std::optional<double>& predicted) {
      if (predicted) s.x.push_back(*predicted), s.y.push_back(p.truth);
    };
    put(done.chart.series[0], p.exact);
    for (std::size_t i = 0; i < models.size(); ++i) put(done.chart.series[i + 1], p.by(models[i]));
  }
  const double least = top.at("must_hold").at("min_r2_exact").real();
  // Groups whose name goes on after ", " have a known cause beside the model.
  done.holds = !said["groups"].empty();
  for (const auto& [name, of_group] : said["groups"].items()) {
    if (name.find(", ") != std::string::npos) continue;
    const auto got = number_at(of_group, "exact", "r2_identity");
    if (got && *got >= least) continue;
    done.holds = false;
    done.reason =
        name + ": exact's R² about y = x is " +
        (got ? formatted("{:.4f}, below {}", *got, least)
             : "not defined: " + (of_group["exact"].is_object()
                                      ? of_group["exact"].value("undefined", std::string())
                                      : "nothing was counted"));
  }
  if (said["groups"].empty()) done.reason = "the recording has no counted tiling";
  return done;
}

}  // namespace tilewright::harness
