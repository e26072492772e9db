// What a plan costs on an NPU's paths, and the plans that paths_search.cpp prices.
#include "models/chimera/paths.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/plan/schedule.h"
#include "models/exact/exact.h"

namespace tilewright::chimera {
namespace {

/// The cores: what has a cube.
const ComputeUnit* cube_of(const Machine& m) {
  const auto cube = std::ranges::find(m.units, "cube", &ComputeUnit::name);
  return cube == m.units.end() ? nullptr : &*cube;
}

/// Bytes of a tally that one path carries.
struct Carried {
  std::string from, to, boundary;
  std::int64_t bytes = 0;
};

std::vector<Carried> carried(const Traffic& traffic) {
  std::vector<Carried> all;
  const auto add = [&](std::string from, std::string to, const std::string& boundary, Bytes n) {
    if (n.value == 0) return;
    for (Carried& c : all)
      if (c.from == from && c.to == to) {
        c.bytes += n.value;
        return;
      }
    all.push_back({std::move(from), std::move(to), boundary, n.value});
  };
  for (const TrafficEntry& e : traffic.entries) {
    const std::size_t slash = e.boundary.find('/');
    const std::string outer = e.boundary.substr(0, slash), inner = e.boundary.substr(slash + 1);
    add(outer, inner, e.boundary, e.read);
    add(inner, outer, e.boundary, e.written);
  }
  return all;
}

/// Seconds of one path: of the core with the most blocks, and of what all cores share.
Result<PathCost> cost_of(const Carried& c, const Machine& m, double clock, double share) {
  const auto path = std::ranges::find_if(m.npu_core->paths, [&](const DataPath& p) {
    return p.from == c.from && p.to == c.to;
  });
  if (path == m.npu_core->paths.end())
    return Reason{"machine " + m.name + " has no path from " + c.from + " to " + c.to};
  const double bytes = static_cast<double>(c.bytes);
  const double width = static_cast<double>(path->width.value) * clock;
  PathCost cost{.boundary = c.boundary, .bytes = Bytes(c.bytes), .seconds = bytes * share / width};
  const bool shared = [&] {
    for (const std::string& end : {c.from, c.to})
      if (m.level(*m.find(end)).managed == Managed::hardware) return true;
    return false;
  }();
  if (shared) cost.seconds = std::max(cost.seconds, bytes / m.npu_core->shared_bandwidth.value);
  cost.bandwidth = bytes / cost.seconds;
  return cost;
}

}  // namespace

Result<CubeLevels> cube_levels(const Machine& m) {
  CubeLevels levels;
  for (const auto& [name, to] :
       {std::pair{"L1", &levels.l1}, {"UB", &levels.ub}, {"L0A", &levels.l0a},
        {"L0B", &levels.l0b}, {"L0C", &levels.l0c}}) {
    const auto level = m.find(name);
    if (!level) return Reason{"machine " + m.name + " has no level " + name};
    *to = *level;
  }
  return levels;
}

CubeTile mad_tile(const CubeTile& block, Bytes left, Bytes right, Bytes sums, std::int64_t lanes) {
  constexpr std::int64_t kOperand = 2, kSum = 4;  // bytes of an element
  CubeTile best;
  double most = 0;
  const auto up = [&](std::int64_t n) { return ceil_div(n, lanes) * lanes; };
  for (std::int64_t r = lanes; r <= up(block.rows); r += lanes) {
    for (std::int64_t c = lanes; c <= up(block.columns); c += lanes) {
      if (r * c * kSum > sums.value) break;
      const std::int64_t deepest = std::min(left.value / (kOperand * r), right.value / (kOperand * c));
      const std::int64_t d = std::min(deepest / lanes * lanes, up(block.depth));
      if (d < lanes) break;
      // Loads of what the whole block comes to, so that a tile that leaves a small rest is no gain.
      const auto trips = [](std::int64_t n, std::int64_t t) { return double(ceil_div(n, t)); };
      const double loads = trips(block.columns, c) * double(block.rows) +
                           trips(block.rows, r) * double(block.columns);
      const double worth = 1 / loads;
      if (worth < most || (worth == most && d <= best.depth)) continue;
      most = worth;
      best = {.rows = r, .columns = c, .depth = d};
    }
  }
  best.rows = std::min(best.rows, block.rows);
  best.columns = std::min(best.columns, block.columns);
  best.depth = std::min(best.depth, block.depth);
  return best;
}

Result<PathPlan> price_paths(const Plan& plan, std::shared_ptr<const Workload> w,
                             std::shared_ptr<const Machine> m, const PathOptions& options) {
  const ComputeUnit* cube = cube_of(*m);
  if (!m->npu_core || cube == nullptr || cube->clock_hz <= 0)
    return Reason{"machine " + m->name + " has no npu_core with paths, or no cube with a clock"};
  const auto schedule = resolve(plan, w, m);
  if (!schedule) return Reason{schedule.reason()};
  if (const auto why = misfit(*schedule)) return *why;
  PathPlan priced{.plan = plan, .traffic = exact(*schedule)};
  for (const ScheduledKernel& k : schedule->kernels) {
    const bool whole = schedule->kernels.size() == 1;
    const Traffic traffic =
        whole ? priced.traffic : exact(Schedule{.workload = w, .machine = m, .kernels = {k}});
    const double rounds = double(ceil_div(k.blocks, cube->count));
    const double share = rounds / double(k.blocks);
    std::vector<PathCost> costs;
    for (const Carried& c : carried(traffic)) {
      Result<PathCost> cost = cost_of(c, *m, cube->clock_hz, share);
      if (!cost) return Reason{cost.reason()};
      costs.push_back(std::move(cost).value());
    }
    std::int64_t products = 0;
    for (OpId op : k.ops)
      if (w->is_contraction(op)) products += traffic.operations.at(w->op(op).name).value;
    const double rate = double(options.lanes * options.lanes * options.lanes) * cube->clock_hz;
    if (options.cube && products > 0)
      costs.push_back({.boundary = "cube",
                       .bytes = Bytes(products),
                       .bandwidth = rate / share,
                       .seconds = double(products) * share / rate});
    double slowest = 0;
    for (PathCost& c : costs) {
      c.kernel = k.name;
      slowest = std::max(slowest, c.seconds);
      priced.sum += c.seconds;
    }
    priced.largest += slowest;
    priced.blocks = k.blocks;
    priced.costs.insert(priced.costs.end(), costs.begin(), costs.end());
    for (const auto& [level, bytes] : traffic.memory)
      priced.memory[level] = std::max(priced.memory[level], bytes);
  }
  return priced;
}

}  // namespace tilewright::chimera
