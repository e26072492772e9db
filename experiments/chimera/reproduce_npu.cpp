// The method `npu-fusion`: chains on an emulated NPU, fused against a kernel an operator.
#include <cmath>

#include "codegen/npu/emulated/loaded.h"
#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "experiments/report/sheet.h"
#include "harness/path_differences.h"
#include "harness/statistics.h"
#include "harness/verified_kernel.h"
#include "models/chimera/paths.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

/// One plan, emulated and verified.
struct Emulated {
  chimera::PathPlan plan;
  double seconds = 0;  ///< simulated
  double relative_error = 0;
  std::size_t differing = 0;  ///< paths on which exact counts other bytes
  std::int64_t l2_bytes = 0;  ///< between L2 and the cores
};

Result<Emulated> emulated(const Setting& s, bool fused, const Reference& reference) {
  Result<chimera::PathPlan> plan = chimera::best_paths(*s.workload, s.machine, {.fused = fused});
  if (!plan) return Reason{plan.reason()};
  Emulated e{.plan = std::move(plan).value()};
  const Result<Schedule> schedule = resolve(e.plan.plan, s.workload, s.machine);
  if (!schedule) return Reason{schedule.reason()};
  const Result<npu::Source> source = npu::emit(*schedule);
  if (!source) return Reason{source.reason()};
  auto made = std::make_unique<npu::LoadedKernel>(*source, *schedule);
  npu::LoadedKernel& kernel = *made;
  std::vector<npu::Report> reports;  // the kernel itself ends where it is wrong
  const VerifyResult checked = verify(
      std::move(made), *s.workload, reference, [&] { reports = kernel.reports(); }, &*schedule);
  if (checked.failure) return *checked.failure;
  for (const npu::Report& r : reports) {
    if (!r.ok()) return Reason{r.findings.front().text};
    e.seconds += r.seconds;
  }
  e.relative_error = checked.verification.relative_error;
  if (!checked.kernel)
    return Reason{formatted("verification failed: relative error {:.3g}", e.relative_error)};
  const Traffic counted = npu::emulated_traffic(reports, *s.workload, *s.machine);
  e.differing = path_differences(exact(*schedule), counted).size();
  for (const TrafficEntry& t : counted.entries)
    if (t.boundary.starts_with("L2/")) e.l2_bytes += (t.read + t.written).value;
  return e;
}

/// Geometric means of one panel.
struct Means {
  GeometricMean simulated, predicted;
  double error = 0;
};

void add_row(Sheet& sheet, Reproduced& done, Means& means, const std::string& name,
             const std::string& machine, const std::string& panel) {
  const Setting s = setting_of(request_for(name, machine));
  const Reference reference = reference_of(*s.workload, 1);
  const Result<Emulated> fused = emulated(s, true, reference);
  const Result<Emulated> apart = emulated(s, false, reference);
  for (const Result<Emulated>* one : {&fused, &apart}) {
    if (!*one) return fail(done, name + ": " + one->reason());
    if ((*one)->differing > 0)
      fail(done, formatted("{}: exact counts other bytes than the emulator on {} paths", name,
                           (*one)->differing));
  }
  const double gain = apart->seconds / fused->seconds;
  const double expected = apart->plan.largest / fused->plan.largest;
  means.simulated.add(gain);
  means.predicted.add(expected);
  means.error = std::max({means.error, fused->relative_error, apart->relative_error});
  sheet.add({panel, name, formatted("{:.2f}", 1e6 * fused->seconds),
             formatted("{:.2f}", 1e6 * apart->seconds), formatted("{:.2f}", gain),
             formatted("{:.2f}", 1e6 * fused->plan.largest),
             formatted("{:.2f}", 1e6 * apart->plan.largest), formatted("{:.2f}", expected),
             formatted("{}", fused->l2_bytes / 1024), formatted("{}", apart->l2_bytes / 1024),
             formatted("{:.1e}", std::max(fused->relative_error, apart->relative_error)),
             to_text(fused->plan.plan.kernels.front().tree)});
}

}  // namespace

Reproduced reproduce_npu_fusion(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "panels", "paper"});
  Reproduced done;
  done.holds = true;
  const std::string machine = top.at("machine").text();
  Sheet sheet({"panel", "workload", "fused us (simulated)", "unfused us (simulated)",
               "speed-up (simulated)", "fused us (predicted)", "unfused us (predicted)",
               "speed-up (predicted)", "fused KiB of L2 (simulated)",
               "unfused KiB of L2 (simulated)", "worst relative error", "fused plan"});
  std::string averages;
  done.result["means"] = nlohmann::ordered_json::array();
  for (const Field& panel : Rows(run, top.at("panels").items())) {
    panel.only({"name", "workloads", "must_hold"});
    Means means;
    const auto workloads = panel.at("workloads").items();
    Steps steps(static_cast<double>(workloads.size()));
    for (const Field& f : workloads) {
      add_row(sheet, done, means, f.text(), machine, panel.at("name").text());
      steps.done();
    }
    if (means.simulated.count() == 0) continue;
    const double simulated = *means.simulated.value();
    const double predicted = *means.predicted.value();
    averages +=
        formatted("| {} | {:.2f} | {:.2f} |", panel.at("name").text(), simulated, predicted);
    for (const auto& entry : top.at("paper").entries()) {
      averages += formatted(" {} over {};", entry.second.text(), entry.first);
      done.compared.push_back(
          {.what = formatted("{}: unfused over fused; the paper's: {} over Chimera",
                             panel.at("name").text(), entry.first),
           .unit = "times",
           .ours = simulated,
           .ours_source = "simulated (emulator)",
           .paper = entry.second.real()});
    }
    averages += " |\n";
    done.result["means"].push_back({{"panel", panel.at("name").text()},
                                    {"simulated", simulated},
                                    {"predicted", predicted},
                                    {"worst_relative_error", means.error}});
    if (const auto must = panel.get("must_hold"))
      if (const double least = must->at("mean_speedup").real(); simulated < least)
        fail(done, formatted("{}: fusing gains {:.2f} on average, less than {:.2f}",
                             panel.at("name").text(), simulated, least));
  }
  sheet.into(done);
  done.report +=
      "\n| panel | by fusion, geometric mean (simulated) | (predicted) | Chimera, mean "
      "(paper) |\n|---|---|---|---|\n" +
      averages;
  return done;
}

}  // namespace tilewright::harness
