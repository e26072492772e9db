// The method `memory`: simulated bytes out of a GPU's memory against those that were counted.
#include <algorithm>

#include "core/ir/format.h"
#include "harness/experiment.h"
#include "harness/parallel.h"
#include "harness/recorded.h"
#include "harness/sheet.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFromMemory = "dram__bytes_read.sum";

/// A recorded plan, what was counted of it, and what its simulation says.
struct MemoryPoint {
  std::string name;
  Request request;
  double into_sms = 0, compulsory = 0;
  std::optional<double> cold = {}, warm = {};  ///< counted, caches flushed before, and not
  std::optional<double> simulated = {};
  std::string reason = {};
};

std::optional<double> counted(const Field& point, const char* control) {
  const auto said = point.at("counted").get(control);
  const auto value = said ? said->at("metrics").get(kFromMemory) : std::nullopt;
  return value ? std::optional(value->real()) : std::nullopt;
}

MemoryPoint point_of(const Field& p, const std::string& machine) {
  MemoryPoint point{.name = p.at("name").text(),
                    .into_sms = p.at("predicted").at("exact").at("read_bytes").real(),
                    .compulsory = p.at("predicted").at("compulsory_bytes").real(),
                    .cold = counted(p, "all"),
                    .warm = counted(p, "none")};
  Request& r = point.request;
  r.subject = p.at("workload").text();
  r.machine = machine;
  r.layout = "row-major";  // as kernels have their tensors
  if (const auto tree = p.get("tree")) r.tree = tree->text();
  if (const auto tiles = p.get("tiles")) r.tiles = tiles->text();
  if (const auto expression = p.get("expression")) r.fuser.expression = expression->text();
  if (r.fuser.expression) r.model = "mcfuser";
  return point;
}

void simulate_point(MemoryPoint& p, double most) {
  if (p.into_sms > most) {
    p.reason = formatted("its walk of {:.0f} GB is longer than asked for", p.into_sms * 1e-9);
    return;
  }
  const Answer answer = simulate(p.request);
  if (!answer.ok()) {
    p.reason = answer.json.value("reason", std::string());
    return;
  }
  for (const ordered_json& e : answer.json["traffic"])
    if (e["boundary"] == "DRAM/L2")
      p.simulated = p.simulated.value_or(0) + e["read_bytes"].get<double>();
  if (!p.simulated) p.reason = "the simulation has no boundary DRAM/L2";
}

std::string megabytes(const std::optional<double>& bytes) {
  return bytes ? formatted("{:.2f}", *bytes * 1e-6) : "-";
}

ordered_json agreement_json(const std::vector<MemoryPoint>& points,
                            std::optional<double> MemoryPoint::*truth) {
  std::vector<double> x, y;
  for (const MemoryPoint& p : points)
    if (p.simulated && p.*truth) x.push_back(*p.simulated), y.push_back(*(p.*truth));
  if (x.empty()) return nullptr;
  const Agreement a = agreement(x, y);
  return {{"points", x.size()}, {"r2_identity", a.r2_identity},
          {"r2_fit", a.r2_fit}, {"mape", a.mape},
          {"worst", a.worst},   {"bias", a.bias}};
}

Chart chart_of(const Experiment& e, const std::vector<MemoryPoint>& points,
               const std::string& device) {
  Chart chart{.title = e.id + ": " + e.title,
              .x_label = "simulated, bytes read from memory",
              .y_label = "measured (ncu), bytes",
              .caption = formatted("Recorded plans on {}; caches flushed before each kernel (cold) "
                                   "and not (warm).",
                                   device),
              .identity = true};
  for (const auto& [name, truth] :
       {std::pair("counted cold", &MemoryPoint::cold), std::pair("counted warm", &MemoryPoint::warm)}) {
    Series s{.name = name};
    for (const MemoryPoint& p : points)
      if (p.simulated && p.*truth) s.x.push_back(*p.simulated), s.y.push_back(*(p.*truth));
    chart.series.push_back(std::move(s));
  }
  return chart;
}

}  // namespace

Reproduced reproduce_memory(const Experiment& e, const Run& run) {
  const ReproduceOptions& options = run.options;
  const Field top = document_of(e, {"recording", "block", "most_bytes"});
  const std::string path = recording_path(e, options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  std::vector<MemoryPoint> points;
  for (const Field& p : recording.at(top.at("block").text()).at("points").items())
    points.push_back(point_of(p, recording.at("machine").text()));
  if (options.samples && static_cast<std::size_t>(*options.samples) < points.size())
    points.resize(static_cast<std::size_t>(*options.samples));
  const double most = top.at("most_bytes").real();
  parallel_for(
      points.size(), threads_of(run.request),
      [&](std::size_t i) {
        MemoryPoint& p = points[i];
        const ordered_json found = run.points.once(e.id, formatted("{} {}", i, p.name), [&] {
          simulate_point(p, most);
          return ordered_json{{"read_bytes", p.simulated ? ordered_json(*p.simulated) : nullptr},
                              {"reason", p.reason}};
        });
        if (!found["read_bytes"].is_null()) p.simulated = found["read_bytes"].get<double>();
        p.reason = found["reason"];
      },
      run.request.progress, "simulating");
  Sheet sheet({"plan", "inputs and outputs MB", "simulated MB", "counted MB, cold", "counted MB, warm",
               "simulated/cold", "why not"});
  for (const MemoryPoint& p : points)
    sheet.add(
        {p.name, megabytes(p.compulsory), megabytes(p.simulated), megabytes(p.cold),
         megabytes(p.warm),
         p.simulated && p.cold && *p.cold > 0 ? formatted("{:.3f}", *p.simulated / *p.cold) : "-",
         p.reason.empty() ? "-" : p.reason});
  sheet.into(done);
  done.result["cold"] = agreement_json(points, &MemoryPoint::cold);
  done.result["warm"] = agreement_json(points, &MemoryPoint::warm);
  for (const auto& [name, a] :
       {std::pair("cold", done.result["cold"]), std::pair("warm", done.result["warm"])})
    if (a.is_object())
      done.report += formatted(
          "\n- counted {}: {} plans, R² about y = x {:.4f}, mean error {:.2f} %, bias {:+.2f} %",
          name, a["points"].dump(), a["r2_identity"].get<double>(), 100 * a["mape"].get<double>(),
          100 * a["bias"].get<double>());
  done.report += "\n";
  done.chart = chart_of(e, points, done.result["recording"]["device"].get<std::string>());
  done.holds = done.result["cold"].is_object();
  if (!done.holds) done.reason = "no recorded plan could be simulated";
  return done;
}

}  // namespace tilewright::harness
