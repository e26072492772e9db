// Which operators are one kernel: every way, branch and bound, a beam (section 6, merging).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/base/progress.h"
#include "models/powerfusion/powerfusion.h"

namespace tilewright::powerfusion {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kFinalists = 4;  // of the beam, that are priced
constexpr double kBelow = 1 - 1e-9;    // a bound, whatever the order that numbers are added in

class Merger {
 public:
  Merger(const Graph& g, const Operators& vertices, const KernelCost& cost, const KernelCost* least,
         const KernelCost* bound)
      : g_(g), all_(vertices), cost_(cost), least_(least), bound_(bound) {}

  /// Every way, or with `least` those that can be better than the best so far.
  Merging exact(std::optional<Merging> start) {
    best_.cost = kNever;
    if (start) best_ = *std::move(start);
    best_.states = 0;
    place(0);
    return std::move(best_);
  }

  Merging beam(int width, int most_operators) {
    // States share the kernels that no step made longer.
    using Kernel = std::shared_ptr<const Operators>;
    struct State {
      std::vector<Kernel> kernels;
      std::vector<double> least;
      std::vector<int> of;  ///< a vertex's kernel; -1: none yet
      double sum = 0;
    };
    /// The next operator in a kernel of a state.
    struct Step {
      std::size_t state, kernel;
      double least, sum;
    };
    std::vector<State> states = {{.of = std::vector<int>(static_cast<std::size_t>(g_.size()), -1)}};
    std::int64_t seen = 0;
    const std::vector<std::vector<int>> related = relations();
    Steps progress(static_cast<double>(all_.size()));
    for (int v : all_) {
      progress.done();
      std::vector<Step> steps;
      for (std::size_t i = 0; i < states.size(); ++i) {
        const State& s = states[i];
        const auto add = [&](std::size_t k) {
          const bool fresh = k == s.kernels.size();
          Operators longer = fresh ? Operators() : *s.kernels[k];
          longer.push_back(v);
          const double now = least(longer);
          if (now == kNever) return;
          ++seen;
          steps.push_back({i, k, now, s.sum + (now - (fresh ? 0 : s.least[k]))});
        };
        std::set<std::size_t> joinable;
        for (int u : related[static_cast<std::size_t>(v)])
          if (const int k = s.of[static_cast<std::size_t>(u)]; k >= 0)
            joinable.insert(static_cast<std::size_t>(k));
        for (std::size_t k : joinable)
          if (s.kernels[k]->size() < static_cast<std::size_t>(most_operators)) add(k);
        add(s.kernels.size());
      }
      std::ranges::stable_sort(steps, {}, &Step::sum);
      // The first ones that no kernel waits for itself in, and how many are of each state.
      std::vector<const Step*> taken;
      std::vector<int> left(states.size(), 0);
      std::vector<std::optional<std::vector<bool>>> waits(states.size());
      for (const Step& step : steps) {
        if (std::cmp_greater_equal(taken.size(), width)) break;
        const State& from = states[step.state];
        std::optional<std::vector<bool>>& known = waits[step.state];
        if (!known) known = waiting(from.kernels, from.of, v);
        if (step.kernel < known->size() && (*known)[step.kernel]) continue;
        taken.push_back(&step);
        ++left[step.state];
      }
      std::vector<State> next;
      next.reserve(taken.size());
      for (const Step* const step : taken) {
        State& from = states[step->state];
        State& s =
            --left[step->state] > 0 ? next.emplace_back(from) : next.emplace_back(std::move(from));
        if (step->kernel == s.kernels.size()) {
          s.kernels.emplace_back();
          s.least.push_back(0);
        }
        Kernel& kernel = s.kernels[step->kernel];
        Operators longer = kernel == nullptr ? Operators() : *kernel;
        longer.push_back(v);
        kernel = std::make_shared<const Operators>(std::move(longer));
        s.least[step->kernel] = step->least;
        s.of[static_cast<std::size_t>(v)] = static_cast<int>(step->kernel);
        s.sum = step->sum;
      }
      states = std::move(next);
    }
    Merging out{.cost = kNever, .states = seen};
    std::size_t tried = 0;
    for (State& s : states) {
      std::vector<Operators> kernels;
      for (const Kernel& k : s.kernels) kernels.push_back(*k);
      if (!ordered(kernels) || tried++ == kFinalists) continue;
      const double sum = sum_of(kernels, out.cost);
      if (sum < out.cost) {
        out.cost = sum;
        out.kernels = std::move(kernels);
      }
    }
    if (out.kernels.empty()) {  // none can be put in an order, or is a kernel
      out.cost = 0;
      for (int v : all_) {
        out.kernels.push_back({v});
        out.cost += cost_({v});
      }
    }
    return out;
  }

 private:
  double least(const Operators& k) const { return least_ == nullptr ? 0 : (*least_)(k); }

  /// By vertex: those that make what it reads, or read the same.
  std::vector<std::vector<int>> relations() const {
    const Workload& w = g_.workload();
    std::map<TensorId, std::vector<int>> touched;
    for (int u : all_) {
      const Operator& op = w.op(g_.vertex(u).op);
      std::set<TensorId> its;
      for (const Output& o : op.outputs) its.insert(o.target.tensor);
      for (const Access& b : op.inputs) its.insert(b.tensor);
      for (TensorId t : its) touched[t].push_back(u);
    }
    std::vector<std::vector<int>> all(static_cast<std::size_t>(g_.size()));
    for (int v : all_)
      for (const Access& a : w.op(g_.vertex(v).op).inputs) {
        const std::vector<int>& others = touched.at(a.tensor);
        all[static_cast<std::size_t>(v)].insert(all[static_cast<std::size_t>(v)].end(),
                                                others.begin(), others.end());
      }
    return all;
  }

  /// By kernel: whether it would wait for itself with an operator whose producers have all been
  /// placed, as another that it waits for does. Kernels do not wait for one another before.
  /// `of`: each vertex's kernel, -1: one of its own.
  std::vector<bool> waiting(const std::vector<std::shared_ptr<const Operators>>& kernels,
                            const std::vector<int>& of, int v) const {
    std::vector<bool> seen(of.size()), waits(kernels.size()), entered(kernels.size());
    std::vector<int> open = {v};
    const auto visit = [&](int u) {
      if (!seen[static_cast<std::size_t>(u)]) open.push_back(u);
      seen[static_cast<std::size_t>(u)] = true;
    };
    while (!open.empty()) {
      const int u = open.back();
      open.pop_back();
      for (int e : g_.vertex(u).in) {
        const int from = g_.edge(e).from;
        const int its = of[static_cast<std::size_t>(from)];
        if (its < 0) {
          visit(from);
          continue;
        }
        const auto k = static_cast<std::size_t>(its);
        if (u != v && its != of[static_cast<std::size_t>(u)]) waits[k] = true;
        if (entered[k]) continue;
        entered[k] = true;
        std::ranges::for_each(*kernels[k], visit);
      }
    }
    return waits;
  }

  bool ordered(const std::vector<Operators>& kernels) const {
    std::vector<Operators> all = kernels;
    std::set<int> own;
    for (const Operators& k : kernels) own.insert(k.begin(), k.end());
    for (int v = 0; v < g_.size(); ++v)
      if (!own.contains(v)) all.push_back({v});
    const std::size_t count = all.size();
    return stitching::launch_order(g_, std::move(all)).size() == count;
  }

  void place(std::size_t i) {
    if (i == all_.size()) {
      ++best_.states;
      const double sum = sum_of(kernels_, best_.cost);
      if (sum >= best_.cost || !ordered(kernels_)) return;
      best_.cost = sum;
      best_.kernels = kernels_;
      std::ranges::sort(best_.kernels);
      return;
    }
    const int v = all_[i];
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      kernels_[k].push_back(v);
      if (may_be_best()) place(i + 1);
      kernels_[k].pop_back();
    }
    kernels_.push_back({v});
    if (may_be_best()) place(i + 1);
    kernels_.pop_back();
  }

  /// What the kernels take; where that is `most` or more, no less than that. Those that have been
  /// asked for first: what the others take at least may say enough.
  double sum_of(const std::vector<Operators>& kernels, double most) {
    const auto bound = [this](const Operators& k) { return bound_ == nullptr ? 0 : (*bound_)(k); };
    double known = 0, rest = 0;
    std::vector<const Operators*> open;
    for (const Operators& k : kernels) {
      const auto at = costs_.find(k);
      (at == costs_.end() ? rest : known) += at == costs_.end() ? bound(k) : at->second;
      if (at == costs_.end()) open.push_back(&k);
    }
    for (const Operators* k : open) {
      if (known + rest >= most) return kNever;
      known += costs_[*k] = cost_(*k);
      rest -= bound(*k);
    }
    double sum = 0;  // in this order, that equal plans have equal sums
    for (const Operators& k : kernels) sum += costs_.at(k);
    return sum;
  }

  bool may_be_best() const {
    if (least_ == nullptr) return true;
    double sum = 0;
    for (const Operators& k : kernels_) {
      sum += least(k);
      if (sum >= best_.cost) return false;
    }
    return true;
  }

  const Graph& g_;
  const Operators& all_;
  const KernelCost& cost_;
  const KernelCost* least_;
  const KernelCost* bound_;  ///< of `cost`, from below; null: 0
  std::vector<Operators> kernels_;
  std::map<Operators, double> costs_;
  Merging best_;
};

}  // namespace

Merging exhaustive_merging(const Graph& g, const Operators& vertices, const KernelCost& cost) {
  return Merger(g, vertices, cost, nullptr, nullptr).exact({});
}

Merging bounded_merging(const Graph& g, const Operators& vertices, const KernelCost& cost,
                        const KernelCost& least, std::optional<Merging> start) {
  if (start && !std::isfinite(start->cost)) start.reset();
  return Merger(g, vertices, cost, &least, &least).exact(std::move(start));
}

Merging beam_merging(const Graph& g, const Operators& vertices, const KernelCost& cost,
                     const KernelCost& least, int width, int most_operators,
                     const KernelCost& bound) {
  return Merger(g, vertices, cost, &least, bound ? &bound : nullptr).beam(width, most_operators);
}

double least_seconds(const Graph& g, const Device& d, const Options& o, const Operators& kernel) {
  // What leaves the kernel for readers that are not placed yet may still come into it.
  const Workload& w = g.workload();
  if (kernel.size() > 1 && !g.convex(kernel)) return kNever;
  std::set<TensorId> reads;
  std::vector<OpId> ops;
  double bytes = 0;
  const auto own = [&](OpId id) { return id.valid() && std::ranges::find(ops, id) != ops.end(); };
  for (int v : kernel) ops.push_back(g.vertex(v).op);
  for (OpId id : ops) {
    for (const Access& a : w.op(id).inputs)
      if (!own(w.producer(a.tensor)) && !is_gather(a)) reads.insert(a.tensor);
    for (const Output& out : w.op(id).outputs)
      if (w.is_output(out.target.tensor))
        bytes += static_cast<double>(w.tensor(out.target.tensor).bytes().value);
  }
  for (TensorId t : reads) bytes += static_cast<double>(bytes_read(w, t, ops).value);
  return launch_seconds(d, o) + bytes / d.dram_bytes_per_second;
}

double bound_seconds(const Graph& g, const Device& d, const Options& o, const Operators& kernel) {
  const double least = least_seconds(g, d, o, kernel);
  if (o.price != PriceBy::overlap || !std::isfinite(least)) return least * kBelow;
  const double bytes = (least - launch_seconds(d, o)) * d.dram_bytes_per_second;
  return stitching::least_overlap(d, {.chain = d.block}, bytes) * kBelow;
}

}  // namespace tilewright::powerfusion
