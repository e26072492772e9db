// The method `graph-ranking`: how the latency-evaluator ranks schedules of one graph, beside their
// times on a GPU, as experiments/gpu/graphs recorded them. Judged are the predictions of the
// recording, which were made before the times.
#include <algorithm>
#include <array>
#include <map>

#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/recorded.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kAll = 1'000'000;  // schedules: no kernel has so many
constexpr std::size_t kFew = 10;          // schedules of which a correlation says little

/// Of L alone, without what --stitch options add to it; "-" where the recording does not say.
std::string of_latency(const Field& graph) {
  std::vector<double> latency, measured;
  for (const Field& p : graph.at("points").items()) {
    const auto said = p.get("latency_seconds");
    if (!said) return "-";
    latency.push_back(said->real());
    measured.push_back(p.at("seconds_median").real());
  }
  return fixed_or_dash(rank_correlation(latency, measured), 3);
}

/// A schedule, whatever its rank is.
std::string identity(const std::string& schedule, const std::string& tree) {
  const std::size_t at = schedule.find(": ");
  return tree + (at == std::string::npos ? "" : schedule.substr(at));
}

/// The correlation of what this version predicts, and of how many schedules where it does not have
/// all of them; "-" where it has few, or the recording does not say which they are.
std::string as_predicted_now(const Field& recording, const Field& graph) {
  const auto workload = graph.get("workload");
  if (!workload || !recording.get("model")) return "-";
  Request request = recorded_request(recording, workload->text());
  request.samples = kAll;
  const Answer answer = explain(request);
  if (!answer.ok() || !answer.json.contains("drawn")) return "-";
  std::map<std::string, double> now;
  for (const ordered_json& s : answer.json["drawn"])
    now[identity(s["schedule"].get<std::string>(), s["tree"].get<std::string>())] =
        s["seconds"].get<double>();
  std::vector<double> predicted, measured;
  const std::vector<Field> points = graph.at("points").items();
  for (const Field& p : points) {
    const auto tree = p.get("tree");
    const auto found = tree ? now.find(identity(p.at("schedule").text(), tree->text())) : now.end();
    if (found == now.end()) continue;
    predicted.push_back(found->second);
    measured.push_back(p.at("seconds_median").real());
  }
  if (predicted.size() < kFew) return "-";
  const std::string rho = fixed_or_dash(rank_correlation(predicted, measured), 3);
  return predicted.size() == points.size() ? rho : formatted("{} ({})", rho, predicted.size());
}

/// How the same schedules rank by their times on two allocations of the tensors: no model is
/// expected to do better.
std::string timed_twice(const Field& graph) {
  std::vector<double> first, second;
  for (const Field& p : graph.at("points").items()) {
    const auto layouts = p.get("seconds_layouts");
    if (!layouts || layouts->items().size() != 2) return "-";
    first.push_back(layouts->items()[0].real());
    second.push_back(layouts->items()[1].real());
  }
  return fixed_or_dash(rank_correlation(first, second), 3);
}

/// Whether the experiment is about graphs of this size; one that names none is about all.
bool is_asked(const Field& top, const Field& graph) {
  const auto sizes = top.get("sizes");
  if (!sizes) return true;
  const auto said = graph.get("size");
  return said && std::ranges::any_of(sizes->items(), [&](const Field& size) {
           return size.text() == said->text();
         });
}

void add_graph(Reproduced& done, Sheet& sheet, const std::string& name,
               const std::vector<TimedPoint>& points, const ordered_json& a,
               const std::array<std::string, 3>& beside) {
  double slowest = 0;
  done.chart.series.push_back({.name = name});
  for (const TimedPoint& p : points) {
    slowest = std::max(slowest, p.measured);
    done.chart.series.back().x.push_back(p.predicted);
    done.chart.series.back().y.push_back(p.measured);
  }
  const auto number = [&](const char* key) { return a[key].get<double>(); };
  sheet.add({name, std::to_string(points.size()), fixed_or_dash(a["spearman"], 3), beside[0],
             beside[1], beside[2], fixed_or_dash(a["pearson"], 3),
             formatted("{:.2f}", 1e6 * number("best_seconds")), formatted("{:.2f}", 1e6 * slowest),
             formatted("{:.2f}", number("first_choice_over_best")),
             formatted("{:.2f}", number("best_of_first_eight_over_best"))});
  done.result["graphs"][name] = a;
}

}  // namespace

Reproduced reproduce_graph_ranking(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"recording", "sizes", "must_hold"});
  const std::string path = recording_path(e, run.options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  const std::string device = done.result["recording"]["device"];
  const double least = top.at("must_hold").at("min_rank_correlation").real();
  const std::int64_t fewest = top.at("must_hold").at("min_points").integer(2, 1'000'000);
  Sheet sheet({"graph", "schedules", "rank correlation", "predicted now", "of L alone",
               "timed twice", "linear correlation", "best us", "slowest us",
               "first choice over best", "best of first 8 over best"});
  done.chart = {.title = e.id + ": " + e.title,
                .x_label = "predicted, seconds",
                .y_label = "measured, seconds",
                .caption = "Recorded on " + device + "; a point a schedule.",
                .series = {}};
  done.holds = true;
  double lowest = 2;
  if (const auto block = recording.get("ranking"))
    for (const auto& [name, graph] : Rows(run, block->entries())) {
      if (!is_asked(top, graph)) continue;
      const std::vector<TimedPoint> points = timed_points(graph);
      if (std::cmp_less(points.size(), fewest))
        fail(done, formatted("{}: {} schedules timed, fewer than {}", name, points.size(), fewest));
      if (points.size() < 2) continue;
      const ordered_json a = time_agreement_json(points);
      add_graph(done, sheet, name, points, a,
                {as_predicted_now(recording, graph), of_latency(graph), timed_twice(graph)});
      if (!a["spearman"].is_number()) {
        fail(done,
             name + ": all schedules are predicted, or were timed, alike: no rank correlation");
        continue;
      }
      const double ranks = a["spearman"];
      lowest = std::min(lowest, ranks);
      if (ranks < least)
        fail(done, formatted("{}: rank correlation {:.3f}, below {}", name, ranks, least));
    }
  sheet.into(done);
  if (lowest > 1) {
    fail(done, "the recording has no timed schedules that can be ranked");
    return done;
  }
  done.compared.push_back(
      {.what = "lowest rank correlation of a graph's schedules",
       .unit = "",
       .ours = lowest,
       .ours_source = formatted("predicted before the times against measured ({})", device)});
  return done;
}

}  // namespace tilewright::harness
