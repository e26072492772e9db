// Machines that are no GPU (section 7): a unit is a core, its lanes those of a vector loop, and a
// kernel is loops over the cores' parts of the rows. A CPU's cores have caches, an NPU's and an
// MLU's a scratchpad, in which a part's tiles must find room.
#include "models/powerfusion/cores.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/format.h"
#include "core/plan/names.h"
#include "core/plan/schedule.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/part.h"

namespace tilewright::powerfusion {
namespace {

constexpr std::int64_t kBlocksOfCore = 2;  // so that one that ends early finds another
constexpr std::int64_t kShortest = 256;    // points of a block, where operators have no rows
constexpr double kAssumedOfCore = 12e9;    // bytes a second from DRAM, where a CPU's are unknown

/// DRAM's: what goes into all instances of the first level that is filled from it and says so; 0:
/// none does.
double known_bandwidth(const Machine& m) {
  for (std::size_t l = 1; l < m.levels.size(); ++l)
    if (m.levels[l].bandwidth.value > 0 && m.path(m.home(), LevelId(l)).size() == 1)
      return m.levels[l].bandwidth.value * static_cast<double>(m.levels[l].instances);
  return 0;
}

std::int64_t rows_of_block(const Graph& g, const Device& d, const stitching::Component& c) {
  const bool rows = std::ranges::any_of(
      c.vertices, [&](int v) { return g.points(g.vertex(v).loops & ~c.split()) > 1; });
  const auto each = static_cast<std::int64_t>(c.row_count) / (kBlocksOfCore * d.sms);
  return std::max<std::int64_t>(each, rows ? 1 : kShortest);
}

/// Why the kernel has no room on the machine, or is no plan; none where it is one.
std::optional<Reason> no_kernel(const Graph& g, const Device& d, const Operators& p,
                                const Kernel& k) {
  std::vector<OpId> ops;
  for (int v : p) ops.push_back(g.vertex(v).op);
  if (auto why = no_subgraph(g.workload(), ops)) return why;
  const auto part = std::make_shared<const Workload>(subgraph(g.workload(), ops));
  Plan plan;
  plan.kernels.push_back(k);
  const auto schedule = resolve(plan, part, d.machine);
  if (!schedule) return Reason{schedule.reason()};
  return misfit(*schedule);
}

/// Library kernels: of the kernels that the question's others make of a product alone and its
/// target takes, the one that takes least time. Products that differ in names alone are asked for
/// once.
class Products {
 public:
  explicit Products(const Question& q) : q_(q) {}

  std::optional<Kernel> kernel(const Workload& w, OpId product) {
    const OpId one[] = {product};
    if (no_subgraph(w, one)) return {};
    const auto part = std::make_shared<const Workload>(subgraph(w, one));
    const auto [at, fresh] = known_.try_emplace(to_yaml(without_names(*part)));
    if (fresh) at->second = {part, asked(part)};
    const auto& [of, kernel] = at->second;
    if (!kernel) return {};
    return Names(*of, *part).rename(*kernel);
  }

 private:
  std::optional<Kernel> asked(std::shared_ptr<const Workload> part) const {
    Question q = q_;
    q.workload = std::move(part);
    q.level = {};
    q.room = {};
    double least = std::numeric_limits<double>::infinity();
    std::optional<Kernel> best;
    for (const Model* m : q_.others) {
      if (!m->times || m->propose == nullptr) continue;
      q.others = q_.others;
      std::erase(q.others, m);  // who chooses among others would ask itself
      const Result<Proposal> p = m->propose(q, standard(*m));
      if (!p || p->plan.kernels.size() != 1 || !p->rewrites.empty()) continue;
      const Result<Schedule> s = resolve(p->plan, q.workload, q.machine);
      if (!s || (q.refuses && q.refuses(*s))) continue;
      const std::optional<double> seconds = seconds_of(q, *p);
      if (!seconds || *seconds >= least) continue;
      least = *seconds;
      best = p->plan.kernels.front();
      // Caches hold what they hold: the level that software plans for is one of the whole plan.
      const LevelId own = vector_level(*q.machine);
      if (q.machine->level(own).managed == Managed::hardware)
        best->level = q.machine->level(own).name;
    }
    return best;
  }

  static Settings standard(const Model& m) { return {m.options, {}, "model " + m.name}; }

  /// By one model for all candidates: the last that knows time and prices the plan, which is the
  /// one that chooses among the others (models/registry.cpp); else by its maker's.
  std::optional<double> seconds_of(const Question& q, const Proposal& p) const {
    for (auto m = q_.others.rbegin(); m != q_.others.rend(); ++m) {
      if (!(*m)->times || (*m)->price == nullptr) continue;
      const Result<Price> price = (*m)->price(q, p.plan, standard(**m));
      if (price && price->traffic.seconds) return price->traffic.seconds;
    }
    return p.price.traffic.seconds;
  }

  const Question& q_;
  std::map<std::string, std::pair<std::shared_ptr<const Workload>, std::optional<Kernel>>> known_;
};

}  // namespace

LevelId vector_level(const Machine& m) {
  const auto vector = m.npu_core ? m.find("UB") : std::nullopt;
  return vector.value_or(m.default_level());
}

std::optional<std::string> assumed_of(const Machine& m) {
  if (m.kind != "cpu" || known_bandwidth(m) > 0) return {};
  return formatted(
      "DRAM's bandwidth is assumed: {:.0f} GB/s a core ({} gives none; the verb calibrate measures "
      "it)",
      kAssumedOfCore * 1e-9, m.name);
}

Result<Device> cores_of(const Machine& m) {
  const auto steps = m.path(m.home(), vector_level(m));
  if (m.kind == "gpu" || m.units.empty() || steps.empty())
    return Reason{formatted(
        "powerfusion plans for machines with units and a level on the chip: {} has none", m.name)};
  double bandwidth = known_bandwidth(m);
  if (bandwidth <= 0 && m.kind == "cpu")
    bandwidth = kAssumedOfCore * static_cast<double>(m.units.front().count);
  if (bandwidth <= 0)
    return Reason{
        formatted("levels.{}.bandwidth: {} does not say it, and prices are made of it; accepted: "
                  "bytes a second "
                  "from {} into one of them",
                  m.level(steps.front().second).name, m.name, m.level(m.home()).name)};
  Device d{.sms = std::max<std::int64_t>(1, m.units.front().count),
           .threads_per_sm = kLanes,
           .blocks_per_sm = 1,
           .dram_bytes_per_second = bandwidth,
           .machine = std::make_shared<const Machine>(m)};
  for (const ComputeUnit& u : m.units)
    if (const auto peak = u.peak.find("f32"); peak != u.peak.end() && d.f32_flops_per_second == 0)
      d.f32_flops_per_second = peak->second.value;
  return d;
}

Kernel core_kernel(const Graph& g, const Device& d, const StitchedKernel& k,
                   const std::string& name) {
  Kernel out{.name = name, .level = d.machine->level(vector_level(*d.machine)).name};
  out.tree = stitching::tree_without_units(g, k.parts.front());
  return out;
}

Result<StitchedKernel> on_cores(const Graph& g, const Device& d, const Operators& p,
                                int most_operators) {
  Reason last{"its operators need one another's blocks"};
  auto packings = stitching::packings_of(g, p, most_operators);
  std::erase_if(packings, [](const auto& parts) { return parts.size() != 1; });
  if (p.size() == 1)  // a core does it alone
    packings.push_back({stitching::Component{.vertices = p}});
  for (const std::vector<stitching::Component>& parts : packings) {
    const stitching::Component& c = parts.front();
    for (std::int64_t rows = rows_of_block(g, d, c);; rows /= 2) {
      StitchedKernel k{.threads = kLanes};
      k.parts.push_back({.component = c,
                         .rows_per_block = rows,
                         .blocks = ceil_div(static_cast<std::int64_t>(c.row_count), rows)});
      auto why = no_kernel(g, d, p, core_kernel(g, d, k, "k"));
      if (!why) return k;
      last = *why;
      if (rows == 1) break;
    }
  }
  return last;
}

double cores_seconds(const Gir& g, const Device& d) {
  const double parallelism =
      std::min(1.0, static_cast<double>(g.blocks) / static_cast<double>(d.sms));
  const auto line = static_cast<double>(d.machine->levels[1].line.value);
  double sum = 0;
  for (const GOp& op : g.ops) {
    if (op.kind != GKind::move) continue;
    for (int at : {op.in.front(), op.out}) {
      const Slice& s = g.slices[static_cast<std::size_t>(at)];
      if (s.tier != Tier::dram) continue;
      const auto size =
          static_cast<double>(size_of(g.tensors[static_cast<std::size_t>(s.tensor)].dtype));
      const double segment = static_cast<double>(pattern_of(g, s).width) * size;
      const double coalescing = std::min(1.0, segment / line);
      sum += elements_of(g, s) * size / (d.dram_bytes_per_second * coalescing * parallelism);
    }
  }
  return sum;
}

Plan cores_plan(const Question& q, const Graph& g, const Device& d, const PlanPrice& p) {
  const Plan plain = stitching::plan_of(g, p);
  Plan plan = plain;
  Products products(q);
  for (std::size_t k = 0; k < p.patterns.size(); ++k) {
    const std::string& name = plain.kernels[k].name;
    if (!p.kernels[k].parts.empty()) {
      plan.kernels[k] = core_kernel(g, d, p.kernels[k], name);
      continue;
    }
    std::optional<Kernel> product =
        products.kernel(g.workload(), g.vertex(p.patterns[k].front()).op);
    if (!product) {  // no unit for products takes it
      if (d.machine->npu_core)
        plan.kernels[k].level = d.machine->level(vector_level(*d.machine)).name;
      continue;
    }
    product->name = name;
    plan.kernels[k] = *std::move(product);
  }
  return plan;
}

}  // namespace tilewright::powerfusion
