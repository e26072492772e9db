// The methods `graph-times` and `graph-counters`: stitched graphs on a GPU beside other compilers,
// and their predicted bytes beside counted ones, as experiments/gpu/graphs recorded them.
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/recorded.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

struct Contestant {
  const char* key;
  const char* name;
};
constexpr Contestant kPeers[] = {{"xla", "XLA"},
                                 {"compile", "torch.compile"},
                                 {"autotune", "torch.compile, max-autotune"},
                                 {"eager", "eager"}};
/// Ours by measurement, where a recording has it: information, and in no ratio.
constexpr Contestant kTuned = {"tuned", "ours, tuned"};

std::string us(std::optional<double> seconds) {
  return seconds ? formatted("{:.2f}", 1e6 * *seconds) : "-";
}
std::string times(std::optional<double> ratio) { return ratio ? formatted("{:.2f}", *ratio) : "-"; }

std::optional<double> over(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional(*a / *b) : std::nullopt;
}

/// Seconds of one contestant in one row; none where it has none, with its reason.
struct Timed {
  std::optional<double> wall, kernels;
};

Timed timed(const Field& contestants, const char* key) {
  const auto found = contestants.get(key);
  if (!found || found->get("reason")) return {};
  const auto number = [&](const char* name) {
    const auto value = found->get(name);
    return value ? std::optional(value->real()) : std::nullopt;
  };
  return {number("seconds_median"), number("kernel_seconds")};
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// What the issue of the comparison asks of the geometric means: others' times over ours.
struct Ratios {
  GeometricMean kernels_over_xla, wall_over_xla, kernels_over_best, wall_over_best;
  void add(const Timed& ours, const std::map<std::string, Timed>& peers) {
    Timed best;
    for (const auto& [name, t] : peers) {
      best.wall = smaller(best.wall, t.wall);
      best.kernels = smaller(best.kernels, t.kernels);
    }
    const Timed& xla = peers.at("xla");
    const auto add = [](GeometricMean& mean, std::optional<double> x) {
      if (x) mean.add(*x);
    };
    add(kernels_over_xla, over(xla.kernels, ours.kernels));
    add(wall_over_xla, over(xla.wall, ours.wall));
    add(kernels_over_best, over(best.kernels, ours.kernels));
    add(wall_over_best, over(best.wall, ours.wall));
  }
  std::array<std::pair<const char*, const GeometricMean*>, 4> all() const {
    return {{{"kernels_over_xla", &kernels_over_xla},
             {"wall_over_xla", &wall_over_xla},
             {"kernels_over_best", &kernels_over_best},
             {"wall_over_best", &wall_over_best}}};
  }
};

ordered_json to_json(const Ratios& ratios) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, mean] : ratios.all())
    if (const auto value = mean->value())
      json[name] = {{"geometric_mean", *value}, {"rows", mean->count()}};
  return json;
}

void add_row(Sheet& sheet, const Field& row, const Timed& ours,
             const std::map<std::string, Timed>& peers, bool tuned) {
  std::vector<std::string> cells = {row.at("workload").text(), row.at("size").text(),
                                    us(ours.wall)};
  Timed best;
  for (const auto& [key, name] : kPeers) {
    cells.push_back(us(peers.at(key).wall));
    best.wall = smaller(best.wall, peers.at(key).wall);
  }
  cells.push_back(us(ours.kernels));
  for (const auto& [key, name] : kPeers) cells.push_back(us(peers.at(key).kernels));
  cells.push_back(times(over(peers.at("xla").kernels, ours.kernels)));
  cells.push_back(times(over(peers.at("xla").wall, ours.wall)));
  cells.push_back(times(over(best.wall, ours.wall)));
  if (tuned) {
    const Field contestants = row.at("contestants");
    const Timed measured = timed(contestants, kTuned.key);
    cells.insert(cells.end(), {us(measured.wall), us(measured.kernels)});
    const auto number = [&](const char* name, int digits) {
      const auto found = contestants.get(kTuned.key);
      const auto value = found ? found->get(name) : std::nullopt;
      return value ? formatted("{:.{}f}", value->real(), digits) : std::string("-");
    };
    cells.insert(cells.end(), {number("schedule", 0), number("tuning_seconds", 1)});
  }
  sheet.add(std::move(cells));
}

std::vector<std::string> header(bool tuned) {
  std::vector<std::string> cells = {"graph", "size", "ours us"};
  for (const auto& [key, name] : kPeers) cells.push_back(formatted("{} us", name));
  cells.push_back("kernels: ours us");
  for (const auto& [key, name] : kPeers) cells.push_back(formatted("kernels: {} us", name));
  cells.insert(cells.end(), {"XLA/ours, kernels", "XLA/ours", "best/ours"});
  if (tuned)
    cells.insert(cells.end(), {formatted("{} us", kTuned.name),
                               formatted("kernels: {} us", kTuned.name), "schedule", "tuning s"});
  return cells;
}

void hold(Reproduced& done, const Field& must, const std::string& device, const Field& paper) {
  static const std::map<std::string, const char*> kWhat = {
      {"kernels_over_xla", "summed kernel time, XLA's over ours"},
      {"wall_over_xla", "wall time, XLA's over ours"},
      {"wall_over_best", "wall time, that of the best of the others over ours"}};
  done.holds = true;
  for (const auto& [name, least] : must.entries()) {
    const auto what = kWhat.find(std::string(name));
    if (what == kWhat.end())
      least.fail("is not a mean", "kernels_over_xla, wall_over_xla, wall_over_best");
    const ordered_json& all = done.result["means"]["all"];
    if (!all.contains(what->first)) {
      fail(done, formatted("{}: no row has both", what->second));
      continue;
    }
    const double got = all[what->first]["geometric_mean"];
    if (got < least.real())
      fail(done, formatted("{}: {:.2f}, below {}", what->second, got, least.real()));
    const auto printed = paper.get(name);
    done.compared.push_back({.what = what->second,
                             .unit = "times",
                             .ours = got,
                             .ours_source = formatted("measured ({})", device),
                             .paper = printed ? std::optional(printed->real()) : std::nullopt});
  }
}

// ---- Bytes --------------------------------------------------------------------------------------

struct Counted {
  std::string workload;
  std::int64_t kernels = 0;
  double once = 0, compulsory = 0, exact = 0, memory = 0, written = 0, into_sm = 0;
  bool has_exact = false, has_into_sm = false;
  std::optional<double> simulated = {};  ///< read from memory; of graphs that gather
};

std::vector<Counted> counted_graphs(const Field& block) {
  std::vector<Counted> points;
  for (const Field& p : block.at("points").items()) {
    const Field metrics = p.at("counted").at("all").at("metrics"), said = p.at("predicted");
    const auto number = [](const Field& f, const char* name, bool& there) {
      const auto value = f.get(name);
      there = value.has_value();
      return there ? value->real() : 0;
    };
    Counted c{.workload = p.at("workload").text(),
              .kernels = said.at("kernels").integer(1, 1 << 30),
              .once = said.at("each_kernel_once").at("read_bytes").real(),
              .compulsory = p.at("compulsory_read_bytes").real(),
              .memory = metrics.at("dram__bytes_read.sum").real(),
              .written = metrics.at("dram__bytes_write.sum").real()};
    c.exact = number(said.at("exact"), "read_bytes", c.has_exact);
    c.into_sm = number(metrics, "l1tex__m_xbar2l1tex_read_bytes.sum", c.has_into_sm);
    points.push_back(std::move(c));
  }
  return points;
}

/// What the recording's model and machine read through the simulated L2, where lookups that repeat
/// may be lost from it: of a graph that gathers. Cost: a walk of all of its accesses.
void simulate_lookups(Counted& c, const Field& recording, const WalkOptions& options) {
  const Request request = recorded_request(recording, c.workload);
  const Setting setting = setting_of(request);
  const bool gathers = std::ranges::any_of(setting.workload->operators(), [](const Operator& op) {
    return std::ranges::any_of(op.inputs, is_gather);
  });
  if (!gathers) return;
  const Answer answer = simulate(request, options);
  if (!answer.ok()) return;
  for (const ordered_json& t : answer.json["traffic"])
    if (t["boundary"] == "DRAM/L2")
      c.simulated = c.simulated.value_or(0) + t["read_bytes"].get<double>();
}

std::string megabytes(double bytes) { return formatted("{:.2f}", 1e-6 * bytes); }
std::string percent(double predicted, double truth) {
  return truth > 0 ? formatted("{:+.1f} %", 100 * (predicted - truth) / truth) : "-";
}

ordered_json agreement_of(const std::vector<double>& predicted, const std::vector<double>& truth) {
  if (predicted.empty()) return nullptr;
  ordered_json json = {{"points", predicted.size()}};
  merge(json, to_json(agreement(predicted, truth)));
  return json;
}

/// Both agreements into the result, and the series of the chart.
void add_agreement(Reproduced& done, const std::vector<Counted>& points) {
  std::vector<double> once, memory, exact, into_sm;
  for (const Counted& c : points) {
    once.push_back(c.once), memory.push_back(c.memory);
    if (c.has_exact && c.has_into_sm) exact.push_back(c.exact), into_sm.push_back(c.into_sm);
  }
  done.result["memory"] = agreement_of(once, memory);
  done.result["into_sms"] = agreement_of(exact, into_sm);
  done.chart.series = {{.name = "from memory", .x = once, .y = memory},
                       {.name = "into the SMs", .x = exact, .y = into_sm}};
}

void hold_counts(Reproduced& done, const Field& must, const std::vector<Counted>& points,
                 const std::string& device) {
  done.holds = !points.empty();
  if (points.empty()) return fail(done, "the recording has no counted graph");
  const double least = must.at("min_r2").real(), most = must.at("max_one_kernel_error").real();
  const ordered_json& r2 = done.result["memory"]["r2_identity"];
  if (!r2.is_number() || r2 < least)
    fail(done, formatted("bytes from memory: R² about y = x is {}, below {}",
                         r2.is_number() ? fixed_or_dash(r2, 4) : "not defined", least));
  for (const Counted& c : points)
    if (c.kernels == 1 && std::abs(c.memory - c.compulsory) > most * c.compulsory)
      fail(done, formatted("{}, one kernel: {} MB from memory, compulsory {} MB", c.workload,
                           megabytes(c.memory), megabytes(c.compulsory)));
  for (const auto& [key, what, by] :
       {std::tuple("memory", "bytes from memory: R² about y = x", "each kernel's inputs once"),
        std::tuple("into_sms", "bytes into the SMs: R² about y = x", "exact")})
    if (done.result[key].is_object() && done.result[key]["r2_identity"].is_number())
      done.compared.push_back(
          {.what = what,
           .unit = "",
           .ours = done.result[key]["r2_identity"].get<double>(),
           .ours_source = formatted("predicted ({}) against measured (ncu, {})", by, device)});
}

}  // namespace

Reproduced reproduce_graph_times(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"recording", "paper", "must_hold"});
  const std::string path = recording_path(e, run.options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  done.report += formatted("Times are measured: {}. Kernels: the sum of a run's kernel times.\n\n",
                           recording.at("timing").text());
  const std::vector<Field> rows = recording.at("rows").items();
  const bool tuned = std::ranges::any_of(
      rows, [](const Field& row) { return row.at("contestants").get(kTuned.key).has_value(); });
  Sheet sheet(header(tuned));
  std::map<std::string, Ratios> groups;
  for (const Field& row : rows) {
    const Field contestants = row.at("contestants");
    const Timed ours = timed(contestants, "ours");
    std::map<std::string, Timed> peers;
    for (const auto& [key, name] : kPeers) peers[key] = timed(contestants, key);
    add_row(sheet, row, ours, peers, tuned);
    for (const std::string& group : {row.at("size").text(), std::string("all")})
      groups[group].add(ours, peers);
  }
  sheet.into(done);
  done.result["means"] = ordered_json::object();
  for (const auto& [name, ratios] : groups) {
    done.result["means"][name] = to_json(ratios);
    done.report += formatted("\nGeometric means, {}:", name);
    for (const auto& [what, mean] : ratios.all())
      if (mean->value())
        done.report += formatted(" {} {:.2f} ({} rows);", what, *mean->value(), mean->count());
    done.report += "\n";
  }
  if (groups.empty()) done.result["means"]["all"] = ordered_json::object();
  hold(done, top.at("must_hold"), done.result["recording"]["device"], top.at("paper"));
  return done;
}

Reproduced reproduce_graph_counters(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"recording", "partitions", "jitter", "must_hold"});
  const std::string path = recording_path(e, run.options);
  const DocumentValue value = read_recording(path, "--data");
  const Field recording(value, path);
  Reproduced done;
  add_provenance(done, recording, path);
  WalkOptions options;
  options.partitions = static_cast<int>(top.at("partitions").integer(1, 2));
  options.jitter = top.at("jitter").real();
  const auto block = recording.get("counters");
  std::vector<Counted> points = block ? counted_graphs(*block) : std::vector<Counted>{};
  if (run.options.samples && static_cast<std::size_t>(*run.options.samples) < points.size())
    points.resize(static_cast<std::size_t>(*run.options.samples));
  for (Counted& c : Rows(run, points)) {
    const ordered_json found = run.points.once(e.id, c.workload, [&] {
      simulate_lookups(c, recording, options);
      return ordered_json{{"read_bytes", c.simulated ? ordered_json(*c.simulated) : nullptr}};
    });
    if (!found["read_bytes"].is_null()) {
      c.simulated = found["read_bytes"].get<double>();
      done.result["simulated"][c.workload] = *c.simulated;
    }
  }
  Sheet sheet({"graph", "kernels", "compulsory read MB", "predicted read MB", "simulated read MB",
               "counted read MB", "predicted - counted", "counted written MB", "exact into SMs MB",
               "counted into SMs MB", "exact - counted"});
  for (const Counted& c : points)
    sheet.add({c.workload, std::to_string(c.kernels), megabytes(c.compulsory), megabytes(c.once),
               c.simulated ? megabytes(*c.simulated) : "-", megabytes(c.memory),
               percent(c.once, c.memory), megabytes(c.written),
               c.has_exact ? megabytes(c.exact) : "-", c.has_into_sm ? megabytes(c.into_sm) : "-",
               c.has_exact && c.has_into_sm ? percent(c.exact, c.into_sm) : "-"});
  sheet.into(done);
  const std::string device = done.result["recording"]["device"];
  done.chart = {.title = e.id + ": " + e.title,
                .x_label = "predicted, bytes",
                .y_label = "measured (ncu), bytes",
                .caption = "Recorded on " + device + "; a point a graph.",
                .identity = true,
                .series = {}};
  add_agreement(done, points);
  for (const auto& [key, what] :
       {std::pair("memory", "From memory"), std::pair("into_sms", "Into the SMs")})
    if (const ordered_json& a = done.result[key]; a.is_object())
      done.report +=
          formatted("\n{}: R² about y = x {}, mean error {:.2f} %, worst {:.2f} %, {} graphs.\n",
                    what, fixed_or_dash(a["r2_identity"], 4), 100 * a["mape"].get<double>(),
                    100 * a["worst"].get<double>(), a["points"].get<int>());
  hold_counts(done, top.at("must_hold"), points, device);
  return done;
}

}  // namespace tilewright::harness
