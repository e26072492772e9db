// The methods `levels` and `fusion`: Chimera's Fig. 8 a to c and Fig. 5, a chain fused against its
// operators one kernel each, both planned over every level of the hierarchy.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/subgraph.h"
#include "experiments/report/sheet.h"
#include "harness/ask.h"
#include "harness/parallel.h"
#include "harness/statistics.h"
#include "models/chimera/model.h"
#include "simulator/simulator.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

Setting setting_for(const std::string& workload, const std::string& machine) {
  return setting_of(request_for(workload, machine));
}

struct Plans {
  Result<chimera::LevelsPlan> fused = Reason{""};
  Plan unfused;             ///< a kernel an operator, each the model's best
  double unfused_cost = 0;  ///< sum of their largest costs
  std::string why;          ///< why there is no unfused one
};

Plans plans_of(const Setting& s) {
  Plans p;
  const chimera::LevelsOptions options;
  p.fused = chimera::best_levels(*s.workload, *s.machine, options);
  for (OpId op : s.workload->topological_order()) {
    const Workload one = subgraph(*s.workload, std::array{op});
    const auto best = chimera::best_levels(one, *s.machine, options);
    if (!best) {
      p.why = one.name() + ": " + best.reason();
      return p;
    }
    Kernel kernel = best->plan.kernels.front();
    kernel.name = one.name();
    p.unfused.kernels.push_back(std::move(kernel));
    p.unfused_cost += best->price.largest;
  }
  return p;
}

/// A level's requests from within and what came through its outer boundary.
struct LevelCount {
  std::string level, boundary;
  std::int64_t hits = 0, misses = 0, moved = 0;
  double hit_rate() const {
    return hits + misses > 0 ? static_cast<double>(hits) / static_cast<double>(hits + misses) : 0;
  }
};

Result<std::vector<LevelCount>> simulated(const Setting& s, const Plan& plan) {
  const auto schedule = resolve(plan, s.workload, s.machine);
  if (!schedule) return Reason{schedule.reason()};
  const Traffic traffic = simulate(*schedule);
  std::vector<LevelCount> counts;  // outermost first
  LevelId outer = s.machine->home();
  for (LevelId id : chimera::chip_levels(*s.machine)) {
    LevelCount c{s.machine->level(id).name, s.machine->boundary(outer, id)};
    for (const TrafficEntry& e : traffic.entries) {
      if (e.boundary != c.boundary) continue;
      c.hits += e.hits;
      c.misses += e.misses;
      // Lines left dirty are written sooner or later.
      c.moved += e.read.value + e.written.value + e.resident_dirty.value;
    }
    counts.push_back(std::move(c));
    outer = id;
  }
  return counts;
}

std::string percent(double x) { return formatted("{:.2f}", 100 * x); }

ordered_json counts_json(const std::vector<LevelCount>& counts) {
  ordered_json rows = ordered_json::array();
  for (const LevelCount& c : counts)
    rows.push_back({{"level", c.level},
                    {"boundary", c.boundary},
                    {"hits", c.hits},
                    {"misses", c.misses},
                    {"moved_bytes", c.moved}});
  return rows;
}

std::vector<LevelCount> counts_from(const ordered_json& rows) {
  std::vector<LevelCount> counts;
  for (const ordered_json& r : rows)
    counts.push_back({r["level"], r["boundary"], r["hits"], r["misses"], r["moved_bytes"]});
  return counts;
}

/// The innermost cache's misses by kind, and what exact counts into it, which knows no sets.
Result<ordered_json> innermost(const Setting& s, const Plan& plan) {
  const auto schedule = resolve(plan, s.workload, s.machine);
  if (!schedule) return Reason{schedule.reason()};
  const Simulated walked = simulate_in_detail(*schedule, {.attribute = true});
  const auto exactly = chimera::exact_over_levels(*s.workload, *s.machine, plan);
  if (!exactly) return Reason{exactly.reason()};
  const auto levels = chimera::chip_levels(*s.machine);
  const std::string boundary = s.machine->boundary(levels[levels.size() - 2], levels.back());
  MissKinds sum;
  for (const Blame& b : walked.blame)
    if (b.boundary == boundary)
      for (const MissKinds& m : b.level.misses) {
        sum.compulsory += m.compulsory;
        sum.capacity += m.capacity;
        sum.conflict += m.conflict;
      }
  return ordered_json{{"compulsory", sum.compulsory},
                      {"capacity", sum.capacity},
                      {"conflict", sum.conflict},
                      {"exact_bytes", exactly->moved.at(boundary).value}};
}

/// The same of one element of a workload's batch, fused and not.
ordered_json innermost_of(const std::string& workload, const std::string& machine) {
  const char* const more = workload.find(':') == std::string::npos ? ":" : ",";
  const Setting s = setting_for(workload + more + "batch=1", machine);
  const Plans plans = plans_of(s);
  if (!plans.fused || !plans.why.empty()) return nullptr;
  const auto fused = innermost(s, plans.fused->plan), apart = innermost(s, plans.unfused);
  if (!fused || !apart) return nullptr;
  return {{"fused", *fused}, {"unfused", *apart}};
}

/// Both plans of a workload, walked; or why not.
ordered_json walked(const std::string& workload, const std::string& machine) {
  const Setting s = setting_for(workload, machine);
  const Plans plans = plans_of(s);
  if (!plans.fused || !plans.why.empty())
    return {{"reason", plans.fused ? plans.why : plans.fused.reason()}};
  const auto fused = simulated(s, plans.fused->plan), apart = simulated(s, plans.unfused);
  if (!fused || !apart) return {{"reason", fused ? apart.reason() : fused.reason()}};
  return {{"fused", counts_json(*fused)},
          {"unfused", counts_json(*apart)},
          {"innermost", innermost_of(workload, machine)}};
}

/// Each workload's point, on several threads, in their order.
std::vector<ordered_json> points_of(
    const Experiment& e, const std::vector<Field>& workloads, const Run& run,
    const std::function<ordered_json(const std::string&)>& compute) {
  std::vector<ordered_json> points(workloads.size());
  parallel_for(
      workloads.size(), threads_of(run.request),
      [&](std::size_t i) {
        const std::string name = workloads[i].text();
        points[i] = run.points.once(e.id, name, [&] { return compute(name); });
      },
      run.request.progress, "workloads");
  return points;
}

/// Why the innermost boundary's traffic changes: each point's `innermost`.
void add_causes(Reproduced& done, const std::vector<Field>& workloads,
                const std::vector<ordered_json>& points) {
  Sheet sheet({"workload, one batch element", "misses fused: compulsory", "capacity", "conflict",
               "unfused: compulsory", "capacity", "conflict", "exact bytes fused",
               "exact bytes unfused", "reduced by %"});
  double conflicts[2] = {0, 0}, misses[2] = {0, 0}, less = 0;
  int rows = 0;
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const ordered_json both = points[i].value("innermost", ordered_json(nullptr));
    if (both.is_null()) continue;
    std::vector<std::string> row{workloads[i].text()};
    double exact[2] = {0, 0};
    for (int side = 0; side < 2; ++side) {
      const ordered_json& one = both[side == 0 ? "fused" : "unfused"];
      for (const char* kind : {"compulsory", "capacity", "conflict"}) {
        misses[side] += one[kind].get<double>();
        row.push_back(one[kind].dump());
      }
      conflicts[side] += one["conflict"].get<double>();
      exact[side] = one["exact_bytes"].get<double>();
    }
    less += 1 - exact[0] / exact[1];
    ++rows;
    row.insert(row.end(),
               {both["fused"]["exact_bytes"].dump(), both["unfused"]["exact_bytes"].dump(),
                percent(1 - exact[0] / exact[1])});
    sheet.add(std::move(row));
  }
  if (rows == 0) return;
  Reproduced causes;
  sheet.into(causes);
  const double share[2] = {conflicts[0] / misses[0], conflicts[1] / misses[1]};
  done.report +=
      "\nThe innermost cache's misses by kind (simulated, lines), and its boundary's bytes "
      "by exact (predicted), as of scratchpads of the caches' sizes:\n\n" +
      causes.report +
      formatted(
          "\nConflict misses are {} % of the fused kernels' and {} % of the unfused "
          "ones'; by exact, fusion reduces the boundary's traffic by {} % on "
          "average.\n",
          percent(share[0]), percent(share[1]), percent(less / rows));
  done.result["innermost"] = {{"columns", causes.result["columns"]},
                              {"table", causes.result["table"]},
                              {"conflict_share_fused", share[0]},
                              {"conflict_share_unfused", share[1]},
                              {"reduced_percent_exact", 100 * less / rows}};
}

}  // namespace

Reproduced reproduce_levels(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "workloads", "paper", "must_hold"});
  std::vector<std::string> header{"workload"};
  const auto levels_of = [](const Machine& m) {
    std::vector<std::string> names;
    for (LevelId id : chimera::chip_levels(m)) names.push_back(m.level(id).name);
    return names;
  };
  Reproduced done;
  done.holds = true;
  std::map<std::string, std::vector<double>>
      changed;  // by boundary: 1 - fused / unfused, a workload
  std::vector<std::string> boundaries;
  const auto workloads = top.at("workloads").items();
  const std::string machine = top.at("machine").text();
  for (const std::string& level : levels_of(named_machine(machine)))
    for (const char* what :
         {"hit % fused", "hit % unfused", "bytes fused", "bytes unfused", "reduced by %"})
      header.push_back(formatted("{} {} (simulated)", level, what));
  Sheet sheet(header);
  const auto points =
      points_of(e, workloads, run, [&](const std::string& name) { return walked(name, machine); });
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const std::string name = workloads[i].text();
    if (points[i].contains("reason")) {
      fail(done, name + ": " + points[i]["reason"].get<std::string>());
      continue;
    }
    const auto fused = counts_from(points[i]["fused"]), apart = counts_from(points[i]["unfused"]);
    std::vector<std::string> row{name};
    for (std::size_t d = 0; d < fused.size(); ++d) {
      const LevelCount &a = fused[d], &b = apart[d];
      const double less = 1 - static_cast<double>(a.moved) / static_cast<double>(b.moved);
      if (changed[a.boundary].empty()) boundaries.push_back(a.boundary);
      changed[a.boundary].push_back(less);
      row.insert(row.end(), {percent(a.hit_rate()), percent(b.hit_rate()), std::to_string(a.moved),
                             std::to_string(b.moved), percent(less)});
    }
    sheet.add(std::move(row));
  }
  sheet.into(done);
  done.report +=
      "\n| boundary | reduced by % on average (paper) | reduced by % on average "
      "(simulated) |\n|---|---|---|\n";
  for (const std::string& boundary : boundaries) {
    const std::vector<double>& less = changed[boundary];
    const double mean =
        100 * std::accumulate(less.begin(), less.end(), 0.0) / static_cast<double>(less.size());
    std::string paper = "-";
    for (const Field& p : top.at("paper").items()) {
      if (p.at("boundary").text() != boundary) continue;
      paper = p.at("reduced_percent").text();
      done.compared.push_back({.what = boundary + " traffic: saved by fusion, mean",
                               .unit = "%",
                               .ours = mean,
                               .ours_source = "simulated (cache)",
                               .paper = p.at("reduced_percent").real()});
    }
    done.report += formatted("| {} | {} | {:.2f} |\n", boundary, paper, mean);
    done.result["reduced_percent"][boundary] = mean;
    for (const Field& must : top.at("must_hold").at("reduced").items())
      if (must.at("boundary").text() == boundary && mean < must.at("at_least_percent").real())
        fail(done, formatted("traffic at {} falls by {:.2f} % only", boundary, mean));
  }
  add_causes(done, workloads, points);
  return done;
}

namespace {

/// What computing a workload takes at the machine's peak, and the slowest levels of both plans.
ordered_json times_of(const std::string& workload, const std::string& machine) {
  const Setting s = setting_for(workload, machine);
  const Plans plans = plans_of(s);
  if (!plans.fused || !plans.why.empty())
    return {{"reason", plans.fused ? plans.why : plans.fused.reason()}};
  double peak = 0;
  for (const ComputeUnit& u : s.machine->units)
    if (const auto at = u.peak.find(std::string(name_of(s.workload->dtype()))); at != u.peak.end())
      peak = std::max(peak, at->second.value);
  return {{"compute_seconds", s.workload->flops() / peak},
          {"fused_seconds", plans.fused->price.largest},
          {"unfused_seconds", plans.unfused_cost}};
}

}  // namespace

Reproduced reproduce_fusion(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "panels"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"panel", "workload", "computing us (predicted)",
               "fused, slowest level us (predicted)", "unfused, slowest levels us (predicted)",
               "speed-up by fusion (predicted)"});
  std::string averages;
  const std::string machine = top.at("machine").text();
  for (const Field& panel : top.at("panels").items()) {
    panel.only({"name", "workloads", "paper"});
    GeometricMean mean;
    const auto workloads = panel.at("workloads").items();
    const auto points = points_of(e, workloads, run,
                                  [&](const std::string& name) { return times_of(name, machine); });
    for (std::size_t i = 0; i < workloads.size(); ++i) {
      const ordered_json& p = points[i];
      if (p.contains("reason")) {
        fail(done, workloads[i].text() + ": " + p["reason"].get<std::string>());
        continue;
      }
      const double compute = p["compute_seconds"];
      const double slowest = p["fused_seconds"], slowest_apart = p["unfused_seconds"];
      const double gain = std::max(compute, slowest_apart) / std::max(compute, slowest);
      mean.add(gain);
      sheet.add({panel.at("name").text(), workloads[i].text(), formatted("{:.2f}", 1e6 * compute),
                 formatted("{:.2f}", 1e6 * slowest), formatted("{:.2f}", 1e6 * slowest_apart),
                 formatted("{:.2f}", gain)});
    }
    averages += formatted("| {} | {} |", panel.at("name").text(), fixed_or_dash(mean.value(), 2));
    for (const auto& entry : panel.at("paper").entries()) {
      averages += formatted(" {} {};", entry.first, entry.second.text());
      done.compared.push_back({.what = formatted("{}: ours over unfused, the paper's over {}",
                                                 panel.at("name").text(), entry.first),
                               .unit = "times",
                               .ours = mean.value(),
                               .ours_source = "predicted (chimera)",
                               .paper = entry.second.real()});
    }
    averages += " |\n";
  }
  sheet.into(done);
  done.report +=
      "\n| panel | by fusion, geometric mean (predicted) | Chimera over others (paper) "
      "|\n|---|---|---|\n" +
      averages;
  return done;
}

}  // namespace tilewright::harness
