// The methods `levels` and `fusion`: Chimera's Fig. 8 a to c and Fig. 5, a chain fused against its
// operators one kernel each, both planned over every level of the hierarchy.
#include <algorithm>
#include <cmath>

#include "core/ir/format.h"
#include "harness/chimera_levels.h"
#include "harness/sheet.h"
#include "simulator/simulator.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

Setting setting_for(const std::string& workload, const std::string& machine) {
  return setting_of(request_for(workload, machine));
}

/// One operator of a workload as a workload: what it reads is input, what it writes output.
Workload alone(const Workload& w, OpId id) {
  WorkloadSpec spec{.name = w.op(id).name, .dtype = w.dtype()};
  Operator op = w.op(id);
  std::map<LoopId, LoopId> loops;
  std::map<TensorId, TensorId> tensors;
  for (LoopId& l : op.loops) {
    loops[l] = LoopId(spec.loops.size());
    spec.loops.push_back(w.loop(l));
    l = loops[l];
  }
  const auto rename = [&](Access& a) {
    const auto [at, fresh] = tensors.emplace(a.tensor, TensorId(spec.tensors.size()));
    if (fresh) spec.tensors.push_back(w.tensor(a.tensor));
    a.tensor = at->second;
    for (Affine& index : a.index)
      for (Term& t : index.terms) t.loop = loops.at(t.loop);
  };
  for (Access& a : op.inputs) rename(a);
  for (Output& o : op.outputs) {
    rename(o.target);
    spec.outputs.push_back(o.target.tensor);
  }
  spec.operators = {std::move(op)};
  return Workload::create(std::move(spec));
}

struct Plans {
  Result<chimera::LevelsPlan> fused = Reason{""};
  Plan unfused;               ///< a kernel an operator, each the model's best
  double unfused_cost = 0;    ///< sum of their largest costs
  std::string why;            ///< why there is no unfused one
};

Plans plans_of(const Setting& s) {
  Plans p;
  const chimera::LevelsOptions options;
  p.fused = chimera::best_levels(*s.workload, *s.machine, options);
  for (OpId op : s.workload->topological_order()) {
    const Workload one = alone(*s.workload, op);
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

/// The innermost cache's misses by kind, and what exact counts into it, which knows no sets.
struct Innermost {
  MissKinds misses;
  std::int64_t exact = 0;
};

Result<Innermost> innermost(const Setting& s, const Plan& plan) {
  const auto schedule = resolve(plan, s.workload, s.machine);
  if (!schedule) return Reason{schedule.reason()};
  const Simulated walked = simulate_in_detail(*schedule, {.attribute = true});
  const auto exactly = exact_over_levels(*s.workload, *s.machine, plan);
  if (!exactly) return Reason{exactly.reason()};
  const auto levels = chimera::chip_levels(*s.machine);
  const std::string boundary = s.machine->boundary(levels[levels.size() - 2], levels.back());
  Innermost in{.exact = exactly->moved.at(boundary).value};
  for (const Blame& b : walked.blame)
    if (b.boundary == boundary)
      for (const MissKinds& m : b.level.misses) {
        in.misses.compulsory += m.compulsory;
        in.misses.capacity += m.capacity;
        in.misses.conflict += m.conflict;
      }
  return in;
}

/// Why the innermost boundary's traffic changes: one element of each row's batch, both ways.
void add_causes(Reproduced& done, const std::vector<std::string>& workloads,
                const std::string& machine) {
  Sheet sheet({"workload, one batch element", "misses fused: compulsory", "capacity", "conflict",
               "unfused: compulsory", "capacity", "conflict", "exact bytes fused",
               "exact bytes unfused", "reduced by %"});
  MissKinds sums[2];
  double less = 0;
  int rows = 0;
  for (const std::string& name : workloads) {
    const std::string one = name + (name.find(':') == std::string::npos ? ":" : ",") + "batch=1";
    const Setting s = setting_for(one, machine);
    const Plans plans = plans_of(s);
    if (!plans.fused || !plans.why.empty()) continue;  // the row itself has said so
    const Result<Innermost> both[2] = {innermost(s, plans.fused->plan), innermost(s, plans.unfused)};
    if (!both[0] || !both[1]) continue;
    std::vector<std::string> row{name};
    for (int i = 0; i < 2; ++i) {
      const MissKinds& m = both[i]->misses;
      row.insert(row.end(), {std::to_string(m.compulsory), std::to_string(m.capacity),
                             std::to_string(m.conflict)});
      sums[i].compulsory += m.compulsory;
      sums[i].capacity += m.capacity;
      sums[i].conflict += m.conflict;
    }
    const double change = 1 - double(both[0]->exact) / double(both[1]->exact);
    less += change;
    ++rows;
    row.insert(row.end(), {std::to_string(both[0]->exact), std::to_string(both[1]->exact),
                           percent(change)});
    sheet.add(std::move(row));
  }
  if (rows == 0) return;
  Reproduced causes;
  sheet.into(causes);
  const auto conflicts = [&](int i) {
    return double(sums[i].conflict) / double(std::max<std::int64_t>(1, sums[i].total()));
  };
  done.report += "\nThe innermost cache's misses by kind (simulated, lines), and its boundary's bytes "
                 "by exact (predicted), as of scratchpads of the caches' sizes:\n\n" + causes.report +
                 formatted("\nConflict misses are {} % of the fused kernels' and {} % of the unfused "
                           "ones'; by exact, fusion reduces the boundary's traffic by {} % on "
                           "average.\n",
                           percent(conflicts(0)), percent(conflicts(1)), percent(less / rows));
  done.result["innermost"] = {{"columns", causes.result["columns"]},
                              {"table", causes.result["table"]},
                              {"conflict_share_fused", conflicts(0)},
                              {"conflict_share_unfused", conflicts(1)},
                              {"reduced_percent_exact", 100 * less / rows}};
}

}  // namespace

Reproduced reproduce_levels(const Experiment& e, const Request& request) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "machine", "workloads", "paper", "must_hold"});
  std::vector<std::string> header{"workload"};
  const auto levels_of = [](const Machine& m) {
    std::vector<std::string> names;
    for (LevelId id : chimera::chip_levels(m)) names.push_back(m.level(id).name);
    return names;
  };
  Reproduced done;
  done.holds = true;
  std::optional<Sheet> sheet;
  std::map<std::string, double> changed;  // by boundary: sum of 1 - fused / unfused
  std::vector<std::string> boundaries, names;
  const auto workloads = top.at("workloads").items();
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const std::string& name = names.emplace_back(workloads[i].text());
    if (request.progress) request.progress(name, double(i) / double(workloads.size()));
    const Setting s = setting_for(name, top.at("machine").text());
    if (!sheet) {
      for (const std::string& level : levels_of(*s.machine))
        for (const char* what : {"hit % fused", "hit % unfused", "bytes fused", "bytes unfused",
                                 "reduced by %"})
          header.push_back(formatted("{} {} (simulated)", level, what));
      sheet.emplace(header);
    }
    const Plans plans = plans_of(s);
    if (!plans.fused || !plans.why.empty()) {
      fail(done, name + ": " + (plans.fused ? plans.why : plans.fused.reason()));
      continue;
    }
    const auto fused = simulated(s, plans.fused->plan), apart = simulated(s, plans.unfused);
    if (!fused || !apart) {
      fail(done, name + ": " + (fused ? apart.reason() : fused.reason()));
      continue;
    }
    std::vector<std::string> row{name};
    for (std::size_t d = 0; d < fused->size(); ++d) {
      const LevelCount &a = (*fused)[d], &b = (*apart)[d];
      const double less = 1 - static_cast<double>(a.moved) / static_cast<double>(b.moved);
      if (changed.emplace(a.boundary, 0).second) boundaries.push_back(a.boundary);
      changed[a.boundary] += less;
      row.insert(row.end(), {percent(a.hit_rate()), percent(b.hit_rate()), std::to_string(a.moved),
                             std::to_string(b.moved), percent(less)});
    }
    sheet->add(std::move(row));
  }
  sheet->into(done);
  done.report += "\n| boundary | reduced by % on average (paper) | reduced by % on average "
                 "(simulated) |\n|---|---|---|\n";
  for (const std::string& boundary : boundaries) {
    const double mean = 100 * changed[boundary] / double(workloads.size());
    std::string paper = "-";
    for (const Field& p : top.at("paper").items())
      if (p.at("boundary").text() == boundary) paper = p.at("reduced_percent").text();
    done.report += formatted("| {} | {} | {:.2f} |\n", boundary, paper, mean);
    done.result["reduced_percent"][boundary] = mean;
    for (const Field& must : top.at("must_hold").at("reduced").items())
      if (must.at("boundary").text() == boundary && mean < must.at("at_least_percent").real())
        fail(done, formatted("traffic at {} falls by {:.2f} % only", boundary, mean));
  }
  add_causes(done, names, top.at("machine").text());
  return done;
}

Reproduced reproduce_fusion(const Experiment& e, const Request& request) {
  const Field top(*e.document, e.where);
  top.only({"id", "title", "source", "method", "about", "machine", "panels"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"panel", "workload", "computing us (predicted)", "fused, slowest level us (predicted)",
               "unfused, slowest levels us (predicted)", "speed-up by fusion (predicted)"});
  std::string averages;
  for (const Field& panel : top.at("panels").items()) {
    panel.only({"name", "workloads", "paper"});
    double product = 0;
    const auto workloads = panel.at("workloads").items();
    for (const Field& f : workloads) {
      if (request.progress) request.progress(f.text(), 0);
      const Setting s = setting_for(f.text(), top.at("machine").text());
      const Plans plans = plans_of(s);
      if (!plans.fused || !plans.why.empty()) {
        fail(done, f.text() + ": " + (plans.fused ? plans.why : plans.fused.reason()));
        continue;
      }
      double peak = 0;
      for (const ComputeUnit& u : s.machine->units)
        if (const auto at = u.peak.find(std::string(name_of(s.workload->dtype()))); at != u.peak.end())
          peak = std::max(peak, at->second.value);
      const double compute = s.workload->flops() / peak;
      const double fused = std::max(compute, plans.fused->price.largest);
      const double apart = std::max(compute, plans.unfused_cost);
      product += std::log(apart / fused);
      sheet.add({panel.at("name").text(), f.text(), formatted("{:.2f}", 1e6 * compute),
                 formatted("{:.2f}", 1e6 * plans.fused->price.largest),
                 formatted("{:.2f}", 1e6 * plans.unfused_cost), formatted("{:.2f}", apart / fused)});
    }
    averages += formatted("| {} | {:.2f} |", panel.at("name").text(),
                          std::exp(product / double(workloads.size())));
    for (const auto& [system, times] : panel.at("paper").entries())
      averages += formatted(" {} {};", system, times.text());
    averages += " |\n";
  }
  sheet.into(done);
  done.report += "\n| panel | by fusion, geometric mean (predicted) | Chimera over others (paper) "
                 "|\n|---|---|---|\n" + averages;
  return done;
}

}  // namespace tilewright::harness
