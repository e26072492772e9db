// The methods `cluster-rules` and `cluster-plans`: FlashFuser's pruned space, and its chains'
// plans.
#include <cmath>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "models/flashfuser/model.h"

namespace tilewright::harness {
namespace {

flashfuser::Asked clusters_asked(const std::string& workload, const std::string& machine) {
  const Question q{.name = workload,
                   .workload = std::make_shared<const Workload>(named_workload(workload)),
                   .machine = std::make_shared<const Machine>(named_machine(machine))};
  auto asked = flashfuser::asked_of(q, Settings(flashfuser::option_specs(), {}, "flashfuser"));
  if (!asked)
    throw InputError({.where = "workload",
                      .value = workload,
                      .problem = asked.reason(),
                      .accepted = "workloads and machines that the model takes"});
  return std::move(asked).value();
}

/// Every tensor once a kernel, a kernel an operator: bytes.
double bytes_apart(const Workload& w) {
  double bytes = 0;
  for (OpId id : w.topological_order()) {
    for (const Access& a : w.op(id).inputs)
      bytes += static_cast<double>(w.tensor(a.tensor).bytes().value);
    for (const Output& o : w.op(id).outputs)
      bytes += static_cast<double>(w.tensor(o.target.tensor).bytes().value);
  }
  return bytes;
}

}  // namespace

/// Candidates after each rule, beside the paper's.
Reproduced reproduce_cluster_rules(const Experiment& e) {
  const Field top = document_of(e, {"workload", "machine", "must_hold", "paper"});
  const flashfuser::Asked on = clusters_asked(top.at("workload").text(), top.at("machine").text());
  Reproduced done;
  done.holds = true;
  Sheet sheet({"after", "candidates of the search", "as counted in the paper", "the paper"});
  constexpr std::array kKeys = {"original", "rule1", "rule2", "rule3", "rule4", "rule5"};
  const auto funnel = flashfuser::funnel_of(on.chain, on.device, on.options);
  for (std::size_t i = 0; i < funnel.size(); ++i) {
    const flashfuser::Count& c = funnel[i];
    const double paper = top.at("paper").at(kKeys[i]).real();
    const double shown = c.as_counted.value_or(c.ours);
    sheet.add({c.rule, formatted("{:.0f}", c.ours),
               c.as_counted ? formatted("{:.0f}", *c.as_counted) : "-",
               formatted("{:.4g}", paper)});
    done.compared.push_back({.what = c.rule,
                             .unit = "candidates",
                             .ours = shown,
                             .ours_source = "predicted (flashfuser)",
                             .paper = paper});
    done.result["funnel"][kKeys[i]] = {{"search", c.ours}, {"as_counted", shown}};
    // The paper prints three digits.
    if (const auto must = top.at("must_hold").get(kKeys[i]))
      if (std::abs(shown / must->real() - 1) > 0.002)
        fail(done, formatted("{}: {:.4g}, not {:.4g}", c.rule, shown, must->real()));
  }
  sheet.into(done);
  done.report += "\nCluster shapes of 625 by reading of rule 2:\n\n";
  for (flashfuser::ClusterRule r : flashfuser::kClusterRules)
    done.report += formatted("- {}: {}\n", flashfuser::name_of(r),
                             flashfuser::clusters(r, on.options.cluster).size());
  return done;
}

/// Rows' best candidates: bytes by level beside a kernel an operator, time of the search.
Reproduced reproduce_cluster_plans(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "rows", "paper_means"});
  Reproduced done;
  done.holds = true;
  Sheet sheet({"workload", "loops | spatial", "blocks a cluster", "global bytes", "DSM bytes",
               "compulsory bytes", "bytes, a kernel each", "us (predicted)", "priced",
               "search ms"});
  double logs = 0, least_logs = 0;
  std::int64_t rows = 0;
  for (const Field& row : Rows(run, top.at("rows").items())) {
    const std::string name = row.at("name").text();
    const flashfuser::Asked on =
        clusters_asked(row.at("workload").text(), top.at("machine").text());
    const flashfuser::Found found = flashfuser::search(on.chain, on.device, on.options, 1);
    if (found.best.empty()) {
      fail(done, name + ": nothing fits");
      continue;
    }
    const flashfuser::Candidate& best = found.best.front().candidate;
    const auto p = flashfuser::price(on.chain, on.device, on.options, best);
    const Workload& w = *on.chain.workload;
    const double apart = bytes_apart(w), least = static_cast<double>(w.compulsory_bytes().value);
    const flashfuser::Cluster& c = best.cluster;
    sheet.add({name, flashfuser::to_text(on.chain, best.schedule),
               std::to_string(c[flashfuser::kM] * c[flashfuser::kJ] * c[flashfuser::kK]),
               formatted("{:.0f}", p->global), formatted("{:.0f}", p->dsm_bytes()),
               formatted("{:.0f}", least), formatted("{:.0f}", apart),
               formatted("{:.2f}", 1e6 * p->seconds), std::to_string(found.priced),
               formatted("{:.0f}", 1e3 * found.seconds)});
    done.result["rows"][name] = {{"bytes", p->global},
                                 {"dsm_bytes", p->dsm_bytes()},
                                 {"apart_bytes", apart},
                                 {"seconds", p->seconds}};
    if (p->global < least) fail(done, name + ": fewer bytes than compulsory");
    logs += std::log(p->global / apart);
    least_logs += std::log(least / apart);
    ++rows;
    if (const auto paper = row.get("paper_seconds"))
      done.compared.push_back({.what = name + ": search",
                               .unit = "seconds",
                               .ours = found.seconds,
                               .ours_source = "measured (clock)",
                               .paper = paper->real()});
  }
  sheet.into(done);
  if (const auto means = top.get("paper_means"); means && rows > 0) {
    const auto fewer = [rows](double sum) { return 1 - std::exp(sum / static_cast<double>(rows)); };
    for (const auto& [name, value] : means->entries()) {
      done.compared.push_back(
          {.what = name,
           .ours = fewer(least_logs),
           .ours_source = "the most that any fusion can save (compulsory bytes)",
           .paper = value.real()});
      done.compared.push_back({.what = name + ", blocks' own loads",
                               .ours = fewer(logs),
                               .ours_source = "predicted (flashfuser)"});
    }
    if (fewer(logs) > fewer(least_logs)) fail(done, "saves more than all that can be saved");
  }
  return done;
}

}  // namespace tilewright::harness
