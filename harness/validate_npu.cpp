#include "harness/validate_npu.h"

#include <algorithm>
#include <mutex>
#include <random>

#include "harness/parallel.h"
#include "harness/registry.h"
#include "codegen/npu/emulated/loaded.h"
#include "codegen/npu/npu.h"
#include "harness/path_differences.h"
#include "harness/schedules.h"
#include "harness/statistics.h"
#include "harness/validate_command.h"
#include "harness/verified_kernel.h"
#include "models/chimera/chimera.h"
#include "models/chimera/paths.h"
#include "models/exact/exact.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kLanes = 16;
constexpr int kTries = 1000;  // of blocks that do not fit, for each point

struct Point {
  chimera::PathBlocks blocks;
  Plan plan;
  std::string tree;
  std::int64_t predicted = 0, truth = 0;
  std::int64_t paths = 0, differing = 0;  ///< of tensors at boundaries
  double relative_error = 0;
  std::string failure;
};

class Drawer {
 public:
  Drawer(const Setting& s, const chimera::CubeChain& chain, std::uint64_t seed)
      : w_(*s.workload), s_(s), chain_(chain), random_(seed) {}

  /// A plan that fits, or nothing after many tries.
  std::optional<Point> draw() {
    for (int i = 0; i < kTries; ++i) {
      Point p{.blocks = blocks()};
      const Result<Plan> plan = chimera::plan_of(w_, p.blocks);
      if (!plan) return std::nullopt;
      p.plan = *plan;
      const Result<Schedule> schedule = resolve(p.plan, s_.workload, s_.machine);
      if (!schedule || misfit(*schedule) || !npu::emit(*schedule)) continue;
      p.tree = to_text(p.plan.kernels.front().tree);
      return p;
    }
    return std::nullopt;
  }

 private:
  std::int64_t extent(LoopId l) const { return w_.loop(l).extent; }
  std::int64_t up_to(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random_);
  }
  /// A multiple of 16 no larger than what covers `whole`; clipped to it.
  std::int64_t part_of(std::int64_t whole, std::int64_t most = 256) {
    return std::min(whole, kLanes * up_to(ceil_div(std::min(whole, most), kLanes)));
  }
  chimera::CubeTile tile(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return {.rows = part_of(rows, 128), .columns = part_of(columns, 128), .depth = part_of(depth, 64)};
  }
  chimera::PathBlocks blocks() {
    chimera::PathBlocks b;
    b.rows = part_of(extent(chain_.first.rows));
    b.columns = part_of(extent(chain_.first.columns));
    b.depth = part_of(extent(chain_.first.depth));
    b.first = tile(b.rows, b.columns, b.depth);
    if (!chain_.second) return b;
    b.second_columns = part_of(extent(chain_.second->columns));
    b.second = tile(b.rows, b.second_columns, b.columns);
    return b;
  }

  const Workload& w_;
  const Setting& s_;
  const chimera::CubeChain& chain_;
  std::mt19937_64 random_;
};

/// Algorithm 1's volume: the order in which the plan's blocks come.
std::int64_t predicted(const Workload& w, const chimera::CubeChain& c,
                       const chimera::PathBlocks& b) {
  chimera::Order order = {c.first.rows};
  chimera::Tiles tiles;
  for (const Loop& l : w.loops()) tiles.push_back(l.extent);
  for (LoopId l : c.first.batch) tiles[l.index()] = 1;
  tiles[c.first.rows.index()] = b.rows;
  tiles[c.first.columns.index()] = b.columns;
  tiles[c.first.depth.index()] = b.depth;
  if (c.second) tiles[c.second->columns.index()] = b.second_columns;
  const bool again = c.second && b.second_columns < w.loop(c.second->columns).extent;
  if (again) order.push_back(c.second->columns);
  order.push_back(c.first.columns);
  order.push_back(c.first.depth);
  if (c.second && !again) order.push_back(c.second->columns);
  const chimera::Options options{.reading = chimera::Reading::trip_one,
                                 .edges = chimera::Edges::exact};
  return bytes_of(chimera::price(w, order, tiles, options).volume, w.dtype()).value;
}

void evaluate(const Setting& s, const chimera::CubeChain& chain, const Reference& reference,
              Point& p) {
  const Workload& w = *s.workload;
  p.predicted = predicted(w, chain, p.blocks);
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
  auto json = document();
  name_workload(json, s);
  json["machine"] = s.machine->name;
  json["model"] = "chimera";
  json["truth"] = "emulator";
  json["command"] = command_of(request, options);
  json["boundary"] = "L2/L1 and L2/UB";
  json["seed"] = request.seed;
  const Result<chimera::CubeChain> chain = chimera::cube_chain(*s.workload);
  if (!s.machine->npu_core)
    return refuse(std::move(json), "machine " + s.machine->name + " has no npu_core");
  if (!chain) return refuse(std::move(json), chain.reason());
  Drawer drawer(s, *chain, request.seed);
  std::vector<Point> points;
  for (std::int64_t i = 0; i < options.samples; ++i)
    if (auto p = drawer.draw()) points.push_back(std::move(*p));
  if (points.empty()) return refuse(std::move(json), "no plan of such blocks fits the machine");
  const Reference reference = reference_of(s, request.seed);
  parallel_for(points.size(), threads_of(request),
               [&](std::size_t i) { evaluate(s, *chain, reference, points[i]); }, request.progress,
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
