// The method `bounds`: curves by buffer size, with a paper's minima and measurements beside them.

#include <cmath>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "models/bounds/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr double kMiB = 1 << 20;

std::string mib(const ordered_json& bytes) {
  return bytes.is_null() ? "-" : formatted("{:.2f}", bytes.get<double>() / kMiB);
}

std::int64_t bytes_of_mib(const Field& field) {
  return static_cast<std::int64_t>(std::llround(field.real() * kMiB));
}

/// Each measurement beside the bounds at its buffer's size. It has to stay above what is proven.
void add_measured(Reproduced& done, const Workload& w, const bounds::Slopes& slopes,
                  const Field& measured) {
  measured.only({"source", "points"});
  done.result["measured_source"] = measured.at("source").text();
  done.result["measured"] = ordered_json::array();
  const auto perfect = bounds::attainable_unfused(w, bounds::Steps::dividing);
  done.report +=
      "\n| measured | buffer MiB | MiB | proven | times | attainable | times | paper's bound |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const Field& p : measured.at("points").items()) {
    p.only({"name", "buffer_mib", "traffic_mib", "paper_bound_mib"});
    const Bytes buffer(bytes_of_mib(p.at("buffer_mib")));
    const std::int64_t moved = bytes_of_mib(p.at("traffic_mib"));
    const std::int64_t proven = bounds::proven(w, buffer).bytes.value;
    const auto attainable = slopes.unfused ? slopes.unfused->at(buffer) : std::nullopt;
    ordered_json row = {{"name", p.at("name").text()},
                        {"buffer_bytes", buffer.value},
                        {"measured_bytes", moved},
                        {"proven_bytes", proven},
                        {"attainable_bytes", nullptr},
                        {"paper_bound_bytes", bytes_of_mib(p.at("paper_bound_mib"))}};
    std::string times = "-";
    // What the paper's tool searches: steps that divide the extents.
    if (const auto dividing = perfect ? perfect->at(buffer) : std::nullopt) {
      row["attainable_dividing_bytes"] = dividing->value;
      if (dividing->value != row["paper_bound_bytes"].get<std::int64_t>()) {
        done.holds = false;
        done.reason = p.at("name").text() + ": the paper's bound is not ours over perfect factors";
      }
    }
    if (attainable) {
      row["attainable_bytes"] = attainable->value;
      row["over_attainable"] = double(moved) / double(attainable->value);
      times = formatted("{:.3f}", double(moved) / double(attainable->value));
    }
    row["over_proven"] = double(moved) / double(proven);
    done.report +=
        formatted("| {} | {} | {} | {} | {:.3f} | {} | {} | {} |\n", p.at("name").text(),
                  mib(buffer.value), mib(moved), mib(proven), double(moved) / double(proven),
                  mib(row["attainable_bytes"]), times, mib(row["paper_bound_bytes"]));
    if (moved < proven) {
      done.holds = false;
      done.reason = p.at("name").text() + " is measured below what is proven";
    }
    done.result["measured"].push_back(std::move(row));
  }
  done.report += formatted("\nMeasured and paper's bound: {}.\n", measured.at("source").text());
}

/// The figure of the curve's document that a key of must_hold names.
ordered_json figure(const ordered_json& curve, const std::string& key, const Field& where) {
  if (key == "minimum_unfused_bytes") return curve["minimum"]["unfused"]["traffic_bytes"];
  if (key == "minimum_fused_bytes") return curve["minimum"]["fused"]["traffic_bytes"];
  if (key == "minimum_fused_buffer_bytes") return curve["minimum"]["fused"]["buffer_bytes"];
  if (key == "crossover_bytes") return curve["crossover_bytes"];
  if (key == "crossover_dividing_bytes") return curve.value(key, ordered_json());
  where.fail(
      "is not a figure of the curves",
      "minimum_unfused_bytes, minimum_fused_bytes, minimum_fused_buffer_bytes, crossover_bytes, "
      "crossover_dividing_bytes");
}

void check_figures(Reproduced& done, const Field& must_hold) {
  done.result["checked"] = ordered_json::array();
  done.report += "\n| figure | paper | ours | must be |\n|---|---|---|---|\n";
  for (const auto& [key, wanted] : must_hold.entries()) {
    wanted.only({"value", "within", "at_least"});
    const ordered_json ours = figure(done.result, key, wanted);
    const double got = ours.is_null() ? 0 : ours.get<double>();
    const auto least = wanted.get("at_least");
    const double value = (least ? *least : wanted.at("value")).real();
    const double within = least ? 0 : wanted.at("within").real();
    const bool same =
        !ours.is_null() && (least ? got >= value : std::abs(got - value) <= within * value);
    const std::string how = least ? "at least that" : formatted("within {:.1f} %", 100 * within);
    done.result["checked"].push_back(
        {{"figure", key}, {"paper_bytes", value}, {"bytes", ours}, {"how", how}, {"same", same}});
    done.report += formatted("| {} | {} MiB | {} MiB | {} |\n", key, mib(value), mib(ours), how);
    if (!least)
      done.compared.push_back({.what = key,
                               .unit = "bytes",
                               .ours = got,
                               .ours_source = "predicted (bounds)",
                               .paper = value});
    if (same) continue;
    done.holds = false;
    done.reason = formatted("{} is {} bytes", key, ours.dump());
  }
}

/// Where fusion starts to pay with perfect factors only, as the papers' tools search them.
void add_dividing(Reproduced& done, const Workload& w) {
  const auto fused = bounds::attainable_fused(w, bounds::Steps::dividing);
  const auto unfused = bounds::attainable_unfused(w, bounds::Steps::dividing);
  if (!fused || !unfused) return;
  const bounds::Crossover cross = bounds::crossover(*fused, *unfused);
  if (cross.first) done.result["crossover_dividing_bytes"] = cross.first->value;
  if (cross.always) done.result["never_loses_dividing_from_bytes"] = cross.always->value;
}

void add_rows(Reproduced& done) {
  const bool several = done.result["curve"].front().contains("fused");
  done.csv = "buffer_bytes,unfused_attainable_bytes,unfused_proven_bytes";
  done.report += "| buffer MiB | unfused attainable MiB | proven |";
  if (several) {
    done.csv += ",fused_attainable_bytes,fused_proven_without_recomputation_bytes,proven_bytes";
    done.report += " fused attainable | proven without recomputation | proven for any plan |";
  }
  done.csv += "\n";
  done.report += std::string("\n|---|---|---|") + (several ? "---|---|---|" : "") + "\n";
  for (const ordered_json& row : done.result["curve"]) {
    std::vector<ordered_json> cells{row["buffer_bytes"], row["unfused"]["attainable_bytes"],
                                    row["unfused"]["proven_bytes"]};
    if (several)
      for (const char* key :
           {"attainable_bytes", "proven_without_recomputation_bytes", "proven_bytes"})
        cells.push_back(row["fused"][key]);
    std::string line, text = "|";
    for (const ordered_json& cell : cells) {
      line += (line.empty() ? "" : ",") + (cell.is_null() ? std::string() : cell.dump());
      text += " " + mib(cell) + " |";
    }
    done.csv += line + "\n";
    done.report += text + "\n";
  }
}

Chart chart_of(const Experiment& e, const ordered_json& curve) {
  Chart chart{
      .title = e.id + ": " + e.title,
      .x_label = "buffer, bytes",
      .y_label = "bytes moved",
      .caption =
          "Predicted (bounds). Attainable: bytes that the best loop tree found moves. Proven: "
          "bytes that every plan moves at least. Unfused: a kernel for each operator.",
      .lines = true};
  const auto add = [&](const char* name, const char* block, const char* key) {
    Series s{.name = name};
    for (const ordered_json& row : curve) {
      if (!row.contains(block) || row[block][key].is_null()) continue;
      s.x.push_back(row["buffer_bytes"].get<double>());
      s.y.push_back(row[block][key].get<double>());
    }
    if (!s.x.empty()) chart.series.push_back(std::move(s));
  };
  add("unfused, attainable", "unfused", "attainable_bytes");
  add("unfused, proven", "unfused", "proven_bytes");
  add("fused, attainable", "fused", "attainable_bytes");
  add("fused, proven", "fused", "proven_bytes");
  return chart;
}

/// The measurements as points, each of its own name.
void draw_measured(Chart& chart, const ordered_json& result) {
  for (const ordered_json& row : result["measured"])
    chart.series.push_back({.name = row["name"].get<std::string>() + ", measured",
                            .x = {row["buffer_bytes"].get<double>()},
                            .y = {row["measured_bytes"].get<double>()},
                            .points = true});
  chart.caption += " Measured: " + result["measured_source"].get<std::string>() + ".";
}

}  // namespace

Reproduced reproduce_bounds(const Experiment& e) {
  const Field top = document_of(e, {"workload", "measured", "must_hold"});
  const Workload w = named_workload(top.at("workload").text());
  Reproduced done;
  done.holds = true;
  done.result = bounds::curve_json(w, nullptr);
  done.result["workload"] = top.at("workload").text();
  add_dividing(done, w);
  add_rows(done);
  done.chart = chart_of(e, done.result["curve"]);
  if (const auto measured = top.get("measured")) {
    add_measured(done, w, bounds::slopes_of(w), *measured);
    draw_measured(done.chart, done.result);
  }
  check_figures(done, top.at("must_hold"));
  done.report += formatted("\nThe attainable curves took {:.3f} ms to find.\n",
                           1e3 * done.result["search_seconds"].get<double>());
  return done;
}

}  // namespace tilewright::harness
