// The method `validate`: predicted against simulated bytes, with the paper's R² beside ours.
#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

std::string figures(const char* name, const ordered_json& block) {
  return formatted("| {} | {} | {} | {:.2f} % | {:.2f} % | {:+.2f} % |\n", name,
                   fixed_or_dash(block["r2_identity"], 4), fixed_or_dash(block["r2_fit"], 4),
                   100 * block["mape"].get<double>(), 100 * block["worst"].get<double>(),
                   100 * block["bias"].get<double>());
}

std::string optimum_line(const char* name, const ordered_json& point) {
  if (point.is_null()) return "";
  std::string tiles;
  for (const auto& [loop, size] : point["tiles"].items())
    tiles += formatted("{}{}={}", tiles.empty() ? "" : " ", loop, size.get<std::int64_t>());
  return formatted("- {}: {}, predicted {} bytes, true {} bytes\n", name, tiles,
                   point["predicted_bytes"].get<std::int64_t>(),
                   point["true_bytes"].get<std::int64_t>());
}

std::string report_of(const Field& top, const ordered_json& v) {
  std::string text = formatted(
      "{} on {}, boundary {}, order {}, {} tilings asked, {} valid, {} failed; seed {}, layout {}; "
      "sampler: {}.\n\n",
      v["workload"].get<std::string>(), v["machine"].get<std::string>(),
      v["boundary"].get<std::string>(), top.at("orders").items().front().text(),
      v["asked"].get<std::int64_t>(), v["valid"].get<std::int64_t>(),
      v["failed"].get<std::int64_t>(), v["seed"].get<std::uint64_t>(),
      v["layout"].get<std::string>(),
      formatted("{} ({})", v["sampler"]["law"].get<std::string>(),
                v["sampler"]["min_tile"].get<std::int64_t>()));
  text +=
      "| | R² about y = x | R² of a fitted line | mean error | worst | bias "
      "|\n|---|---|---|---|---|---|\n";
  text += figures("exact edges, at most half the capacity", v);
  text += figures("full edges", v["full_edges"]);
  if (v.contains("beyond") && v["beyond"]["valid"] != 0)
    text += figures("exact edges, past half the capacity", v["beyond"]);
  if (v.contains("small_tiles") && v["small_tiles"]["valid"] != 0)
    text += figures("exact edges, some tile smaller", v["small_tiles"]);
  const Field paper = top.at("paper");
  const auto r2 = paper.get("r2");
  text += formatted("| the paper (M=N=K=L={}, hardware counters) | {} | | | | |\n\n",
                    paper.at("extent").integer(1, INT32_MAX),
                    r2 ? formatted("{:.2f}", r2->real()) : "not given");
  text += formatted("The paper's R²: {}.\n\n", paper.at("r2_source").text());
  text += optimum_line("the model's optimum at half the capacity", v["optimum"]);
  if (v.contains("beyond"))
    text += optimum_line("the model's optimum at the whole capacity", v["beyond"]["optimum"]);
  if (!v["points"].empty())
    text +=
        formatted("- laying tensors out by tile and back costs {} bytes once, in no figure above\n",
                  v["points"].front()["packing_bytes"].get<std::int64_t>());
  return text;
}

/// The points of a validation's document as CSV.
std::string csv_of(const ordered_json& v) {
  if (v["points"].empty()) return "";
  std::string csv = "block,order";
  const ordered_json& first = v["points"].front();
  for (const auto& [loop, size] : first["tiles"].items()) csv += ",tile_" + loop;
  for (const auto& [key, value] : first.items())
    if (key.ends_with("_bytes")) csv += "," + key;
  csv += "\n";
  const auto rows = [&csv](const ordered_json& points, const char* block) {
    for (const ordered_json& p : points) {
      csv += std::string(block) + "," + p["order"].get<std::string>();
      for (const auto& [loop, size] : p["tiles"].items()) csv += "," + size.dump();
      for (const auto& [key, value] : p.items())
        if (key.ends_with("_bytes")) csv += "," + value.dump();
      csv += "\n";
    }
  };
  rows(v["points"], "half");
  for (const char* block : {"beyond", "small_tiles"})
    if (v.contains(block)) rows(v[block]["points"], block);
  return csv;
}

Series series_of(const char* name, const ordered_json& points) {
  Series s{.name = name};
  for (const ordered_json& p : points) {
    s.x.push_back(p["predicted_bytes"].get<double>());
    s.y.push_back(p["true_bytes"].get<double>());
  }
  return s;
}

Chart chart_of(const Experiment& e, const ordered_json& v) {
  Chart chart{
      .title = e.id + ": " + e.title,
      .x_label = formatted("predicted ({}), bytes", v["model"].get<std::string>()),
      .y_label = "simulated, bytes",
      .caption = formatted("{} on {}, boundary {}; {} tilings.", v["workload"].get<std::string>(),
                           v["machine"].get<std::string>(), v["boundary"].get<std::string>(),
                           v["valid"].dump()),
      .identity = true};
  chart.series.push_back(series_of("memory use of at most half the capacity", v["points"]));
  if (v.contains("beyond"))
    chart.series.push_back(series_of("past half the capacity", v["beyond"]["points"]));
  if (v.contains("small_tiles"))
    chart.series.push_back(
        series_of("some tile smaller than the sampler's least", v["small_tiles"]["points"]));
  return chart;
}

}  // namespace

Reproduced reproduce_validation(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"workload", "machine", "orders", "samples", "seed", "beyond",
                                    "spill", "paper", "must_hold"});
  Request asked;
  asked.subject = top.at("workload").text();
  asked.machine = top.at("machine").text();
  asked.seed = static_cast<std::uint64_t>(top.at("seed").integer(0, INT64_MAX));
  asked.threads = run.request.threads;
  asked.progress = run.request.progress;
  ValidateOptions how;
  for (const Field& order : top.at("orders").items()) how.orders.push_back(order.text());
  how.samples = run.options.samples.value_or(top.at("samples").integer(1, 1'000'000));
  how.beyond = top.at("beyond").boolean();
  if (const auto spill = top.get("spill")) how.spill = spill->text();
  how.once = [&](const std::string& key, const std::function<ordered_json()>& compute) {
    return run.points.once(e.id, key, compute);
  };
  const double least = top.at("must_hold").at("min_r2").real();

  const Answer answer = validate(asked, how);
  Reproduced done;
  done.result["must_hold"] = {{"min_r2", least}};
  const Field paper = top.at("paper");
  const auto r2 = paper.get("r2");
  done.result["paper_numbers"] = {{"r2", r2 ? ordered_json(r2->real()) : ordered_json(nullptr)},
                                  {"r2_source", paper.at("r2_source").text()},
                                  {"extent", paper.at("extent").integer(1, INT32_MAX)}};
  done.result["validation"] = answer.json;
  if (!answer.ok()) {
    done.reason = answer.json.value("reason", std::string());
    done.report = done.reason + "\n";
    return done;
  }
  done.csv = csv_of(answer.json);
  done.report = report_of(top, answer.json);
  const ordered_json& r2_ours = answer.json["r2_identity"];
  const std::optional<double> got =
      r2_ours.is_number() ? std::optional(r2_ours.get<double>()) : std::nullopt;
  const std::string by = formatted("predicted ({}) against simulated ({})",
                                   answer.json["model"].get<std::string>(), *asked.machine);
  done.compared.push_back({.what = "R² about y = x",
                           .unit = "",
                           .ours = got,
                           .ours_source = by,
                           .paper = r2 ? std::optional(r2->real()) : std::nullopt});
  done.chart = chart_of(e, answer.json);
  done.holds = got && *got >= least;
  if (!done.holds)
    done.reason = got ? formatted("R² about y = x is {:.4f}, below {}", *got, least)
                      : "R² about y = x is not defined: " + answer.json.value("undefined", "");
  return done;
}

}  // namespace tilewright::harness
