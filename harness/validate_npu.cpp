#include "harness/validate_npu.h"

#include <algorithm>
#include <mutex>

#include "harness/ask.h"
#include "harness/parallel.h"
#include "codegen/npu/emulated/loaded.h"
#include "codegen/npu/npu.h"
#include "harness/path_differences.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/statistics.h"
#include "harness/validate_command.h"
#include "harness/verified_kernel.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

struct Point {
  Plan plan;
  std::string tree;
  std::int64_t predicted = 0, truth = 0;
  std::int64_t paths = 0, differing = 0;  ///< of tensors at boundaries
  double relative_error = 0;
  std::string failure;
};

void evaluate(const Setting& s, const Reference& reference, Point& p) {
  const Workload& w = *s.workload;
  const Result<Schedule> schedule = resolve(p.plan, s.workload, s.machine);
  const Result<npu::Source> source = npu::emit(*schedule);
  auto made = std::make_unique<npu::LoadedKernel>(*source, *schedule);
  npu::LoadedKernel& kernel = *made;
  std::vector<npu::Report> reports;  // the kernel itself ends where it is wrong
  const VerifyResult checked = verify(
      std::move(made), w, reference, [&] { reports = kernel.reports(); }, &*schedule);
  p.relative_error = checked.verification.relative_error;
  for (const npu::Report& r : reports)
    if (!r.ok()) {
      p.failure = r.findings.front().text;
      return;
    }
  if (!checked.kernel) {
    p.failure = "verification failed: " + reason_of(checked.verification, w);
    return;
  }
  const Traffic counted = npu::emulated_traffic(reports, w, *s.machine);
  p.paths = std::ssize(counted.entries);
  p.differing = std::ssize(path_differences(exact(*schedule), counted));
  for (const TrafficEntry& e : counted.entries)
    if (e.boundary.starts_with("L2/")) p.truth += (e.read + e.written).value;
}

ordered_json point_json(const Point& p) {
  return {{"tree", p.tree},
          {"predicted_bytes", p.predicted},
          {"true_bytes", p.truth},
          {"paths", p.paths},
          {"differing", p.differing},
          {"relative_error", p.relative_error}};
}

}  // namespace

Answer validate_npu(const Request& request, const ValidateOptions& options) {
  const auto refuse_option = [](const char* name, const std::string& value) {
    throw InputError({.where = name,
                      .value = value,
                      .problem = "is not for --truth emulator, which draws plans of its own",
                      .accepted = "--truth simulator"});
  };
  if (!options.orders.empty()) refuse_option("--orders", options.orders.front());
  if (options.spill) refuse_option("--spill", *options.spill);
  if (request.tree) refuse_option("--tree", *request.tree);
  Request asked = request;
  asked.target = "npu";
  const Setting s = setting_of(asked);
  const Model& model = request.model ? find_model(*request.model) : standard_model();
  auto json = document();
  name_workload(json, s);
  json["machine"] = s.machine->name;
  json["model"] = model.name;
  json["truth"] = "emulator";
  json["command"] = command_of(request, options);
  json["boundary"] = "L2/L1 and L2/UB";
  json["seed"] = request.seed;
  if (!s.machine->npu_core)
    return refuse(std::move(json), "machine " + s.machine->name + " has no npu_core");
  if (model.draw == nullptr)
    return refuse(std::move(json), model.name + " draws no plans for the machine's paths");
  DrawSpace space{.count = options.samples};
  space.accepts = [](const Schedule& schedule) { return npu::emit(schedule).ok(); };
  auto drawn = model.draw(question_of(asked, s, model), space, settings_of(asked, model));
  if (!drawn) return refuse(std::move(json), drawn.reason());
  std::vector<Point> points;
  for (DrawnPlan& one : drawn.value()) {
    if (!one.plan || !one.price) continue;
    Point& p = points.emplace_back();
    p.plan = std::move(*one.plan);
    p.tree = to_text(p.plan.kernels.front().tree);
    for (const TrafficEntry& e : one.price->traffic.entries) p.predicted += (e.read + e.written).value;
  }
  if (points.empty()) return refuse(std::move(json), "no plan of such blocks fits the machine");
  const Reference reference = reference_of(s, request.seed);
  parallel_for(points.size(), threads_of(request),
               [&](std::size_t i) { evaluate(s, reference, points[i]); }, request.progress,
               "emulating");
  std::vector<double> x, y;
  std::int64_t paths = 0, differing = 0;
  json["asked"] = points.size();
  json["points"] = ordered_json::array();
  json["failures"] = ordered_json::array();
  for (const Point& p : points) {
    if (!p.failure.empty()) {
      json["failures"].push_back({{"tree", p.tree}, {"reason", p.failure}});
      continue;
    }
    x.push_back(static_cast<double>(p.predicted));
    y.push_back(static_cast<double>(p.truth));
    paths += p.paths;
    differing += p.differing;
    json["points"].push_back(point_json(p));
  }
  json["valid"] = x.size();
  json["failed"] = points.size() - x.size();
  const Agreement a = agreement(x, y);
  merge(json, to_json(a));
  json["exact"] = {{"paths", paths}, {"differing", differing}};
  if (options.csv) {
    std::string csv = "tree,predicted_bytes,true_bytes,paths,differing\n";
    for (const Point& p : points)
      if (p.failure.empty())
        csv += "\"" + p.tree + "\"," + std::to_string(p.predicted) + "," +
               std::to_string(p.truth) + "," + std::to_string(p.paths) + "," +
               std::to_string(p.differing) + "\n";
    write_file(*options.csv, csv, "--csv");
  }
  if (x.empty()) return refuse(std::move(json), "no plan could be verified: " + points[0].failure);
  if (differing > 0)
    return refuse(std::move(json), "exact counts other bytes than the emulator on " +
                                       std::to_string(differing) + " paths");
  if (options.min_r2)
    if (const auto why = below(a, *options.min_r2)) return refuse(std::move(json), *why);
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
