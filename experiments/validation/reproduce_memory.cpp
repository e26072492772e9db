// The method `memory`: simulated bytes out of a GPU's memory against those that were counted.
#include <algorithm>

#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "experiments/report/sheet.h"
#include "harness/parallel.h"
#include "harness/recorded.h"
#include "harness/registry.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFromMemory = "dram__bytes_read.sum";
constexpr const char* kToMemory = "dram__bytes_write.sum";
constexpr int kJudged = 30;        // plans; of fewer R² says little
constexpr double kManyCaches = 4;  // what is written is judged where it is so many times the L2

/// A recorded plan, what was counted of it, and what its simulation says.
struct MemoryPoint {
  std::string name;
  Request request;
  WalkOptions options = {};
  double into_sms = 0, compulsory = 0, writes = 0;
  std::optional<double> cold = {}, warm = {};  ///< counted, caches flushed before, and not
  std::optional<double> simulated = {};
  std::optional<double> written = {}, simulated_written = {};  ///< to memory; flushed before
  std::string reason = {};
};

std::optional<double> counted(const Field& point, const char* control, const char* metric) {
  const auto said = point.at("counted").get(control);
  const auto value = said ? said->at("metrics").get(metric) : std::nullopt;
  return value ? std::optional(value->real()) : std::nullopt;
}

/// What the experiment says of the simulation.
struct How {
  double most = 0;           ///< bytes into the SMs; a longer walk is left out
  double sample_beyond = 0;  ///< bytes into the SMs beyond which waves are sampled
  std::int64_t sample_waves = 0;
  int partitions = 1;
  double jitter = 0;
};

MemoryPoint point_of(const Field& p, const std::string& machine, const How& how) {
  MemoryPoint point{.name = p.at("name").text(),
                    .into_sms = p.at("predicted").at("exact").at("read_bytes").real(),
                    .compulsory = p.at("predicted").at("compulsory_bytes").real(),
                    .writes = p.at("predicted").at("exact").at("written_bytes").real(),
                    .cold = counted(p, "all", kFromMemory),
                    .warm = counted(p, "none", kFromMemory),
                    .written = counted(p, "all", kToMemory)};
  Request& r = point.request;
  r.subject = p.at("workload").text();
  r.machine = machine;
  r.layout = "row-major";  // as kernels have their tensors
  if (const auto tree = p.get("tree")) r.tree = tree->text();
  if (const auto tiles = p.get("tiles")) r.tiles = tiles->text();
  if (const Model* const written = notation_of(p)) {
    r.options[written->notation] = {p.at(written->notation).text()};
    r.model = written->name;
  }
  if (const auto blocks = p.get("blocks_per_sm"))
    point.options.blocks_per_sm = blocks->integer(1, 32);
  point.options.partitions = how.partitions;
  point.options.jitter = how.jitter;
  if (point.into_sms > how.sample_beyond) point.options.sample_waves = how.sample_waves;
  return point;
}

void simulate_point(MemoryPoint& p, double most) {
  if (p.into_sms > most) {
    p.reason = formatted("its walk of {:.0f} GB is longer than asked for", p.into_sms * 1e-9);
    return;
  }
  const Answer answer = simulate(p.request, p.options);
  if (!answer.ok()) {
    p.reason = answer.json.value("reason", std::string());
    return;
  }
  for (const ordered_json& e : answer.json["traffic"])
    if (e["boundary"] == "DRAM/L2") {
      p.simulated = p.simulated.value_or(0) + e["read_bytes"].get<double>();
      p.simulated_written = p.simulated_written.value_or(0) + e["written_bytes"].get<double>();
    }
  if (!p.simulated) p.reason = "the simulation has no boundary DRAM/L2";
}

std::string megabytes(const std::optional<double>& bytes) {
  return bytes ? formatted("{:.2f}", *bytes * 1e-6) : "-";
}

ordered_json agreement_json(const std::vector<MemoryPoint>& points,
                            std::optional<double> MemoryPoint::*simulated,
                            std::optional<double> MemoryPoint::*truth, double least_written = 0) {
  std::vector<double> x, y;
  for (const MemoryPoint& p : points)
    if (p.*simulated && p.*truth && p.writes >= least_written)
      x.push_back(*(p.*simulated)), y.push_back(*(p.*truth));
  if (x.empty()) return nullptr;
  ordered_json json = {{"points", x.size()}};
  merge(json, to_json(agreement(x, y)));
  return json;
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
  for (const auto& [name, truth] : {std::pair("counted cold", &MemoryPoint::cold),
                                    std::pair("counted warm", &MemoryPoint::warm)}) {
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
  const Field top = document_of(e, {"recording", "block", "most_bytes", "sample_beyond",
                                    "sample_waves", "partitions", "jitter", "must_hold"});
  const How how{.most = top.at("most_bytes").real(),
                .sample_beyond = top.at("sample_beyond").real(),
                .sample_waves = top.at("sample_waves").integer(1, 1000),
                .partitions = static_cast<int>(top.at("partitions").integer(1, 2)),
                .jitter = top.at("jitter").real()};
  const std::string path = recording_path(e, options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  std::vector<MemoryPoint> points;
  for (const Field& p : recording.at(top.at("block").text()).at("points").items())
    points.push_back(point_of(p, recording.at("machine").text(), how));
  if (options.samples && static_cast<std::size_t>(*options.samples) < points.size())
    points.resize(static_cast<std::size_t>(*options.samples));
  parallel_for(
      points.size(), threads_of(run.request),
      [&](std::size_t i) {
        MemoryPoint& p = points[i];
        const ordered_json found = run.points.once(e.id, formatted("{} {}", i, p.name), [&] {
          simulate_point(p, how.most);
          return ordered_json{
              {"read_bytes", p.simulated ? ordered_json(*p.simulated) : nullptr},
              {"written_bytes", p.simulated_written ? ordered_json(*p.simulated_written) : nullptr},
              {"reason", p.reason}};
        });
        if (!found["read_bytes"].is_null()) p.simulated = found["read_bytes"].get<double>();
        if (!found["written_bytes"].is_null())
          p.simulated_written = found["written_bytes"].get<double>();
        p.reason = found["reason"];
      },
      run.request.progress, "simulating");
  Sheet sheet({"plan", "inputs and outputs MB", "simulated MB", "counted MB, cold",
               "counted MB, warm", "simulated/cold", "written MB, simulated", "counted",
               "why not"});
  for (const MemoryPoint& p : points)
    sheet.add(
        {p.name, megabytes(p.compulsory), megabytes(p.simulated), megabytes(p.cold),
         megabytes(p.warm),
         p.simulated && p.cold && *p.cold > 0 ? formatted("{:.3f}", *p.simulated / *p.cold) : "-",
         megabytes(p.simulated_written), megabytes(p.written), p.reason.empty() ? "-" : p.reason});
  sheet.into(done);
  const std::shared_ptr<const Machine> machine =
      machine_of({.machine = recording.at("machine").text()});
  const auto l2 = static_cast<double>(machine->level(*machine->find("L2")).capacity.value);
  done.result["cold"] = agreement_json(points, &MemoryPoint::simulated, &MemoryPoint::cold);
  done.result["warm"] = agreement_json(points, &MemoryPoint::simulated, &MemoryPoint::warm);
  done.result["written"] = agreement_json(points, &MemoryPoint::simulated_written,
                                          &MemoryPoint::written, kManyCaches * l2);
  for (const auto& [name, a] :
       {std::pair("read, caches flushed before", done.result["cold"]),
        std::pair("read, caches left as they were", done.result["warm"]),
        std::pair("written, where that is four times the L2", done.result["written"])})
    if (a.is_object())
      done.report +=
          formatted("\n- {}: {} plans, R² about y = x {}, mean error {:.2f} %, bias {:+.2f} %",
                    name, a["points"].dump(), fixed_or_dash(a["r2_identity"], 4),
                    100 * a["mape"].get<double>(), 100 * a["bias"].get<double>());
  done.report += "\n";
  done.chart = chart_of(e, points, done.result["recording"]["device"].get<std::string>());
  const Field must = top.at("must_hold");
  must.only({"min_r2", "mean_error"});
  const ordered_json& cold = done.result["cold"];
  done.holds = cold.is_object();
  if (!done.holds) {
    done.reason = "no recorded plan could be simulated";
  } else if (cold["points"] >= kJudged) {
    const ordered_json& r2 = cold["r2_identity"];
    const double error = cold["mape"];
    done.holds =
        r2.is_number() && r2 >= must.at("min_r2").real() && error <= must.at("mean_error").real();
    done.reason = done.holds
                      ? ""
                      : formatted("R² {} or a mean error of {:.1f} % is worse than asked for",
                                  fixed_or_dash(r2, 3), 100 * error);
  }
  return done;
}

}  // namespace tilewright::harness
