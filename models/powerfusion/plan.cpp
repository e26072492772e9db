// From a workload to its kernels: library kernels, convex parts between them, merging, schedules.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>

#include "core/base/format.h"
#include "core/lowering/gpu/thread_program.h"
#include "core/plan/names.h"
#include "core/plan/schedule.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/powerfusion/cores.h"
#include "models/powerfusion/model.h"
#include "models/stitching/alike.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::powerfusion {
namespace {

constexpr double kNoKernel = std::numeric_limits<double>::infinity();
constexpr double kAllProducts = 0, kNoProducts = 1e30;  // ridges
constexpr double kThreadsToFill = 512;  // of a multiprocessor, that keep DRAM busy (assumed)
constexpr double kWasteful = 1.5;  // of a kernel's least time: whether it should be two is asked
constexpr int kMostSplits = 40, kMostPacks = 60;
constexpr std::int64_t kMostExactGraph = 12;

Kernel kernel_with(const Graph& g, const Device& d, const StitchedKernel& k,
                   const std::string& name) {
  Kernel out{.name = name, .level = "registers"};
  std::vector<Node> parts;
  for (const stitching::Stitched& s : k.parts) {
    auto tree = stitching::bound_tree(g, d, s, k.threads);
    parts.push_back(tree && k.without_units.empty() ? std::move(tree).value().tree
                                                    : stitching::tree_without_units(g, s));
  }
  if (parts.size() == 1) {
    out.tree = std::move(parts.front());
  } else {
    out.tree.kind = Node::Kind::pack;
    out.tree.children = std::move(parts);
  }
  return out;
}

std::int64_t warps_of(const StitchedKernel& k) {
  double warps = 1;
  for (const stitching::Stitched& s : k.parts) warps = std::max(warps, s.demand.warps);
  return static_cast<std::int64_t>(warps);
}

using stitching::Alike;

class Planner {
 public:
  Planner(const Graph& g, const Device& d, const Options& o, Alike& alike)
      : g_(g), d_(d), o_(o), kernels_(o.kernels()), alike_(alike) {}

  Result<PlanPrice> run(Planned& out) {
    std::vector<Operators> all;
    const std::vector<Operators> parts = components();
    for (const Operators& part : parts) {
      Result<Merging> merged = merge(part);
      if (!merged) return Reason{merged.reason()};
      out.states += merged->states;
      for (Operators& k : merged.value().kernels) all.push_back(std::move(k));
    }
    out.components = parts.size();
    split(all);
    Result<PlanPrice> price = priced(all);
    if (!price) return price;
    if (is_cores(d_)) {
      out.priced = made_;
      return price;
    }
    if (const auto joined = stitching::joined(g_, d_, kernels_, *price, known_,
                                              [this](const Operators& p) { return alike(p); })) {
      Result<PlanPrice> better = priced(*joined);
      if (better && seconds_of(*better) < seconds_of(*price)) price = std::move(better);
    }
    if (o_.pack) pack(price);
    out.priced = made_;
    return price;
  }

  /// Of memory-intensive kernels.
  static double seconds_of(const PlanPrice& p) { return p.seconds; }

 private:
  // ---- Kernels and their prices -----------------------------------------------------------------

  double cost(const Operators& p) {
    const auto& k = kernel(p);
    return k ? k->seconds : kNoKernel;
  }

  /// Of operators that differ from others in names alone, those' kernel.
  const Result<StitchedKernel>& kernel(const Operators& p) {
    auto at = known_.find(p);
    if (at == known_.end()) at = known_.emplace(p, alike(p)).first;
    return at->second;
  }

  Result<StitchedKernel> alike(const Operators& p) {
    return alike_.kernel(g_, p, [this](const Graph&, const Operators& of) {
      ++made_;
      return made(of);
    });
  }

  Result<StitchedKernel> made(const Operators& p) const {
    if (o_.price == PriceBy::overlap) return stitching::stitch(g_, d_, p, kernels_);
    const auto bytes = static_cast<double>(stitching::compulsory_of(g_, p).value);
    if (is_cores(d_)) return made_on_cores(p, bytes);
    std::optional<StitchedKernel> best;
    for (StitchedKernel& k : stitching::ranked(g_, d_, p, kernels_)) {
      std::vector<Gir> girs;
      if (o_.price == PriceBy::parallel)
        for (Gir& gir :
             powerfusion::gir_of(g_.workload(), kernel_with(g_, d_, k, "k"), warps_of(k)))
          girs.push_back(optimised(std::move(gir), o_.rewriting));
      k.seconds = gir_seconds(girs, d_, o_, bytes);
      if (!best || k.seconds < best->seconds) best = std::move(k);
    }
    if (best) return *std::move(best);
    Result<StitchedKernel> last = stitching::stitch(g_, d_, p, kernels_);
    return last;
  }

  Result<StitchedKernel> made_on_cores(const Operators& p, double bytes) const {
    Result<StitchedKernel> k = on_cores(g_, d_, p, kernels_.most_operators);
    if (!k) return k;
    std::vector<Gir> girs;
    if (o_.price == PriceBy::parallel)
      for (Gir& gir : powerfusion::gir_of(g_.workload(), core_kernel(g_, d_, *k, "k"), 1))
        girs.push_back(optimised(std::move(gir), o_.rewriting));
    k.value().seconds = gir_seconds(girs, d_, o_, bytes);
    return k;
  }

  Result<PlanPrice> priced(const std::vector<Operators>& all) {
    for (const Operators& p : all)
      if (g_.vertex(p.front()).kind != stitching::Kind::product) kernel(p);
    return stitching::price(g_, d_, all, kernels_, &known_);
  }

  // ---- Merging ----------------------------------------------------------------------------------

  /// Operators that no library has, connected by what they hand on or read alike; all of them where
  /// they are so few that independent ones are searched exactly, too.
  std::vector<Operators> components() const {
    std::vector<int> leader(static_cast<std::size_t>(g_.size()));
    std::iota(leader.begin(), leader.end(), 0);
    const auto find = [&](int v) {
      while (leader[static_cast<std::size_t>(v)] != v) v = leader[static_cast<std::size_t>(v)];
      return v;
    };
    const auto memory = [&](int v) { return g_.vertex(v).kind != stitching::Kind::product; };
    const auto join = [&](int a, int b) {
      if (!memory(a) || !memory(b)) return;
      a = find(a), b = find(b);
      leader[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
    };
    for (const stitching::Edge& e : g_.edges()) join(e.from, e.to);
    const Workload& w = g_.workload();
    std::map<TensorId, int> reader;
    for (int v = 0; v < g_.size(); ++v) {
      if (!memory(v)) continue;
      for (const Access& a : w.op(g_.vertex(v).op).inputs)
        if (const auto [at, fresh] = reader.emplace(a.tensor, v); !fresh) join(at->second, v);
    }
    std::map<int, Operators> parts;
    Operators all;
    for (int v = 0; v < g_.size(); ++v) {
      if (!memory(v)) continue;
      parts[find(v)].push_back(v);
      all.push_back(v);
    }
    if (o_.pack && !is_cores(d_) && std::cmp_less_equal(all.size(), o_.exact) && !all.empty())
      return {all};
    std::vector<Operators> out;
    for (auto& [first, part] : parts) out.push_back(std::move(part));
    return out;
  }

  Result<Merging> merge(const Operators& part) {
    const KernelCost cost = [this](const Operators& p) { return this->cost(p); };
    const KernelCost least = [this](const Operators& p) { return bound(p); };
    const KernelCost guess = [this](const Operators& p) { return guessed(p); };
    const auto size = static_cast<std::int64_t>(part.size());
    if (o_.search == Search::exhaustive || o_.search == Search::bound) {
      if (size > kMostExactGraph)
        return Reason{
            formatted("{} operators are merged: at most {} exactly (--merges beam takes more)",
                      size, kMostExactGraph)};
    }
    if (o_.search == Search::exhaustive) return exhaustive_merging(g_, part, cost);
    Merging beam = beam_merging(g_, part, cost, guess, o_.beam, kernels_.most_operators, least);
    if (o_.search == Search::beam || (o_.search == Search::automatic && size > o_.exact))
      return beam;
    const std::int64_t states = beam.states;
    Merging exact = bounded_merging(g_, part, cost, least, std::move(beam));
    exact.states += states;
    return exact;
  }

  double bound(const Operators& p) {
    const auto [at, fresh] = bounds_.try_emplace(p);
    if (fresh) at->second = bound_seconds(g_, d_, o_, p);
    return at->second;
  }
  /// Its cost where that is known.
  double at_least(const Operators& p) { return known_.contains(p) ? cost(p) : bound(p); }
  /// Whether both take `most` together, or more. A kernel is priced where bounds do not say it.
  bool take(const Operators& a, const Operators& b, double most) {
    if (at_least(a) + at_least(b) >= most) return true;
    cost(a);
    return at_least(a) + at_least(b) >= most || cost(a) + cost(b) >= most;
  }

  /// Bytes at the rate that so many rows can be read at; infinite where one kernel cannot be.
  double guessed(const Operators& p) {
    const auto [at, fresh] = guesses_.try_emplace(p, kNoKernel);
    if (!fresh) return at->second;
    const auto parts = stitching::components_of(g_, p, kernels_.most_operators);
    if (!parts) return at->second;
    double threads = 0;
    for (const stitching::Component& c : *parts) {
      double row = 1;
      for (int v : c.vertices) row = std::max(row, g_.points(g_.vertex(v).loops & ~c.rows));
      threads += c.row_count * std::min(row, 1024.0);
    }
    const double full = kThreadsToFill * static_cast<double>(d_.sms);
    const double least = least_seconds(g_, d_, o_, p);
    const double launch = launch_seconds(d_, o_);
    return at->second = launch + (least - std::min(least, launch)) / std::min(1.0, threads / full);
  }

  // ---- Improving --------------------------------------------------------------------------------

  /// Kernels that take much longer than their bytes, cut in two where that takes less.
  void split(std::vector<Operators>& all) {
    int tries = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Operators whole = all[k];
      const double now = cost(whole);
      if (whole.size() < 2 || now < kWasteful * least_seconds(g_, d_, o_, whole)) continue;
      const std::size_t at = best_cut(whole, now, tries);
      if (at == 0) continue;
      all[k].resize(at);
      all.emplace_back(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end());
    }
  }

  /// Where a kernel is cut in two that take the least, less than `now`; 0: nowhere. By halves: more
  /// operators rarely take less, so that cuts between two known ones are taken to need at least
  /// what the earlier one's first kernel and the later one's second do.
  std::size_t best_cut(const Operators& whole, double now, int& tries) {
    struct Cut {
      std::size_t at;
      Operators first, rest;
    };
    double best = now;
    std::size_t best_at = 0;
    const auto known = [&](std::size_t at) {
      const auto middle = whole.begin() + static_cast<std::ptrdiff_t>(at);
      ++tries;
      Cut cut{at, {whole.begin(), middle}, {middle, whole.end()}};
      if (!take(cut.first, cut.rest, best)) {
        best = cost(cut.first) + cost(cut.rest);
        best_at = at;
      }
      return cut;
    };
    if (tries >= kMostSplits) return 0;
    std::vector<std::pair<Cut, Cut>> open;
    Cut first = known(1);
    open.emplace_back(std::move(first), known(whole.size() - 1));
    while (!open.empty() && tries < kMostSplits) {
      const auto [lo, hi] = std::move(open.back());
      open.pop_back();
      if (hi.at - lo.at < 2 || take(lo.first, hi.rest, best)) continue;
      const Cut middle = known(lo.at + (hi.at - lo.at) / 2);
      open.emplace_back(lo, middle);
      open.emplace_back(middle, hi);
    }
    return best_at;
  }

  /// Kernels that do not wait for one another side by side in one, where that takes less.
  void pack(Result<PlanPrice>& price) {
    int tries = 0;
    for (std::size_t a = 0; a + 1 < price->patterns.size(); ++a) {
      for (std::size_t b = a + 1; b < std::min(price->patterns.size(), a + 4); ++b) {
        if (price->kernels[a].parts.empty() || price->kernels[b].parts.empty()) continue;
        const double both = price->kernels[a].seconds + price->kernels[b].seconds;
        Operators whole;
        std::ranges::merge(price->patterns[a], price->patterns[b], std::back_inserter(whole));
        if (least_seconds(g_, d_, o_, whole) >= both || tries++ >= kMostPacks) continue;
        if (at_least(whole) >= both * (1 - 1e-9) || cost(whole) >= both * (1 - 1e-9)) continue;
        std::vector<Operators> all;
        for (std::size_t k = 0; k < price->patterns.size(); ++k)
          if (k != a && k != b) all.push_back(price->patterns[k]);
        all.push_back(whole);
        const std::size_t count = all.size();
        if (stitching::launch_order(g_, all).size() != count) continue;
        Result<PlanPrice> better = priced(all);
        if (better && better->seconds < price->seconds) {
          price = std::move(better);
          b = a;
        }
      }
    }
  }

  const Graph& g_;
  const Device& d_;
  const Options& o_;
  stitching::Options kernels_;
  stitching::Known known_;
  /// Of as many operators as a kernel has, most of which begin alike.
  struct Hash {
    std::size_t operator()(const Operators& p) const {
      std::size_t h = p.size();
      for (int v : p) h = (h ^ static_cast<std::size_t>(v)) * 0x9e3779b97f4a7c15u;
      return h ^ h >> 32;
    }
  };
  std::unordered_map<Operators, double, Hash> guesses_, bounds_;
  Alike& alike_;
  std::int64_t made_ = 0;  ///< kernels that none before was like
};

Result<Planned> planned_as_is(std::shared_ptr<const Workload> w, const Device& d, const Options& o,
                              Alike& alike) {
  Result<Graph> graph = Graph::create(w, ridge_of(d, o));
  if (!graph) return Reason{graph.reason()};
  Planned out{.workload = std::move(w),
              .device = d,
              .options = o,
              .graph = std::make_shared<const Graph>(std::move(graph).value())};
  Result<PlanPrice> price = Planner(*out.graph, d, o, alike).run(out);
  if (!price) return Reason{price.reason()};
  out.price = std::move(price).value();
  for (std::size_t k = 0; k < out.kernels(); ++k)
    out.seconds.push_back(out.library(k)
                              ? library_seconds(*out.graph, out.price.patterns[k].front(), d, o)
                              : out.price.kernels[k].seconds);
  return out;
}

}  // namespace

double ridge_of(const Device& d, const Options& o) {
  if (o.library == Library::none) return kNoProducts;
  if (o.library == Library::type) return kAllProducts;
  return o.ridge > 0 ? o.ridge : stitching::ridge_of(d, o.kernels());
}

double Planned::total_seconds() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

Result<std::pair<Device, Options>> units_of(const Machine& m, Options o) {
  const Result<Device> gpu = stitching::device_of(m);
  if (o.price == PriceBy::automatic) o.price = gpu ? PriceBy::overlap : PriceBy::parallel;
  if (gpu) return std::pair(*gpu, o);
  if (m.kind == "gpu") return Reason{gpu.reason()};
  if (o.price == PriceBy::overlap)
    return Reason{formatted(
        "--price-by: overlap needs units.cycles of a GPU's instructions, which {} does not give; "
        "accepted: auto, parallel, bytes",
        m.name)};
  Result<Device> cores = cores_of(m);
  if (!cores) return Reason{cores.reason()};
  return std::pair(std::move(cores).value(), o);
}

Result<Planned> planned(const Question& q, const Options& asked) {
  const auto start = std::chrono::steady_clock::now();
  const auto units = units_of(*q.machine, asked);
  if (!units) return Reason{units.reason()};
  const auto& [device, o] = *units;
  Alike alike;  // of all compositions
  Result<Planned> best = planned_as_is(q.workload, device, o, alike);
  const auto priced = [](const Planned& p) {
    return stitching::Priced{*p.graph, p.device, p.price};
  };
  if (o.duplicate)
    for (stitching::Composition& c : stitching::compositions(*q.workload)) {
      Result<Planned> other = planned_as_is(c.workload, device, o, alike);
      if (!other || (best && !stitching::is_better(priced(*other), priced(*best)))) continue;
      other.value().rewrites = std::move(c.rewrites);
      best = std::move(other);
    }
  if (!best) return best;
  Planned& p = best.value();
  if (is_cores(p.device))
    p.written = {.plan = cores_plan(q, *p.graph, p.device, p.price),
                 .unbound = std::vector<std::string>(p.kernels())};
  else
    p.written = stitching::write_plan(*p.graph, p.device, p.price, q.machine);
  for (std::size_t k = 0; k < p.kernels(); ++k)
    p.written.plan.kernels[k].name = formatted("power{}", k + 1);
  // The search prices what it looks for, and what is written may be another tree: one plan has one
  // price, that of what is written.
  if (const auto s = resolve(p.written.plan, p.workload, q.machine))
    if (auto its = plan_seconds(*p.graph, p.device, p.options, *s, p.written.plan))
      p.seconds = std::move(its).value();
  p.search_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return best;
}

std::vector<Gir> gir_of(const Planned& p, std::size_t kernel) {
  return gir_of(*p.workload, p.written.plan.kernels[kernel], warps_of(p.price.kernels[kernel]));
}

std::vector<Template> templates_of(const Graph& g, const Device& d, const Options& o,
                                   const Operators& kernel) {
  std::vector<Template> out;
  std::set<std::string> seen;
  for (const StitchedKernel& k : stitching::ranked(g, d, kernel, o.kernels())) {
    Template t{.kernel = kernel_with(g, d, k, "k"), .warps = warps_of(k)};
    t.gir = gir_of(g.workload(), t.kernel, t.warps).front();
    if (seen.insert(to_text(t.gir)).second) out.push_back(std::move(t));
  }
  return out;
}

std::optional<Gir> merged(const Graph& g, const Template& a, const Template& b) {
  if (a.gir.blocks != b.gir.blocks || a.warps != b.warps) return {};
  const Kernel both{.name = a.kernel.name, .tree = sequence({a.kernel.tree, b.kernel.tree})};
  return gir_of(g.workload(), both, a.warps).front();
}

Result<double> tree_seconds(const Graph& g, const Device& d, const Options& o,
                            const Schedule& schedule, std::size_t kernel, const Kernel& written) {
  Plan one;
  one.kernels.push_back(written);
  const Operators ops = stitching::patterns_of(g, one).front();
  if (is_cores(d)) {
    std::vector<Gir> girs;
    if (o.price == PriceBy::parallel)
      for (Gir& gir : gir_of(g.workload(), written, 1))
        girs.push_back(optimised(std::move(gir), o.rewriting));
    return gir_seconds(girs, d, o, static_cast<double>(stitching::compulsory_of(g, ops).value));
  }
  const auto program = lowering::lower(schedule, static_cast<int>(kernel));
  if (!program) return Reason{program.reason()};
  const auto parts = stitching::components_of(g, ops, 64);
  if (!parts) return Reason{"its operators need one another's blocks"};
  const auto bytes = static_cast<double>(stitching::compulsory_of(g, ops).value);
  if (o.price == PriceBy::overlap) {
    double moved = 0;
    for (const stitching::Component& c : *parts) moved += stitching::memory_bytes(g, c);
    const std::vector<stitching::Demand> demands = stitching::demands_of(g, ops, d, *program);
    const double resident =
        stitching::resident_blocks(d, stitching::largest_of(demands), program->shared_bytes);
    return stitching::overlap(d, demands, resident, moved).seconds;
  }
  std::vector<Gir> girs;
  if (o.price == PriceBy::parallel)
    for (Gir& gir : gir_of(g.workload(), written, program->warps))
      girs.push_back(optimised(std::move(gir), o.rewriting));
  return gir_seconds(girs, d, o, bytes);
}

Result<std::vector<double>> plan_seconds(const Graph& g, const Device& d, const Options& o,
                                         const Schedule& schedule, const Plan& plan) {
  const std::vector<Operators> kernels = stitching::patterns_of(g, plan);
  std::vector<double> all;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    if (kernels[k].empty()) return Reason{"a kernel computes nothing"};
    const bool products = std::ranges::any_of(
        kernels[k], [&](int v) { return g.vertex(v).kind == stitching::Kind::product; });
    if (products) {
      double seconds = 0;
      for (int v : kernels[k]) seconds += library_seconds(g, v, d, o);
      all.push_back(seconds);
      continue;
    }
    Result<double> tree = Reason{"a pack"};
    if (plan.kernels[k].tree.kind != Node::Kind::pack)
      tree = tree_seconds(g, d, o, schedule, k, plan.kernels[k]);
    if (!tree && is_cores(d)) return Reason{tree.reason()};
    if (!tree) {
      const auto best = stitching::stitch(g, d, kernels[k], o.kernels());
      if (!best) return Reason{best.reason()};
      tree = best->seconds;
    }
    all.push_back(*tree);
  }
  return all;
}

}  // namespace tilewright::powerfusion
