// Which element-wise operators other kernels had better compute again than read.
#include <algorithm>
#include <set>

#include "models/quickest/gpu.h"
#include "models/stitching/own_copies.h"

namespace tilewright::quickest {
namespace {

constexpr int kDeep = 3;              // operators behind one another that are computed again
constexpr double kWorthAPlan = 0.03;  // of all bytes: less is not planned once more
constexpr std::size_t kMostPlanned = 4;

using Ops = std::set<OpId>;

/// Kernels by operators; an operator may be in several, its first one is its home.
class Kernels {
 public:
  Kernels(const Workload& w, const std::vector<Part>& groups) : w_(&w) {
    home_.resize(w.operators().size());
    for (const Part& g : groups) {
      for (OpId op : g) home_[op.index()] = ops_.size();
      ops_.emplace_back(g.begin(), g.end());
    }
  }

  /// What all kernels together read and write, each tensor once a kernel.
  double bytes() const {
    double all = 0;
    for (const Ops& kernel : ops_) {
      std::set<TensorId> read;
      for (OpId op : kernel)
        for (const Access& a : w_->op(op).inputs) {
          const OpId producer = w_->producer(a.tensor);
          if (!producer.valid() || !kernel.contains(producer)) read.insert(a.tensor);
        }
      for (TensorId t : read) all += size(t);
    }
    for (std::size_t op = 0; op < home_.size(); ++op)
      if (leaves(OpId(op)))
        for (const Output& o : w_->op(OpId(op)).outputs) all += size(o.target.tensor);
    return all;
  }

  /// In every kernel that reads what the operator makes it is computed again, and so is what it
  /// reads in turn, as many deep: elsewhere they stay only where they are read.
  void compute_again(OpId op, int deep) {
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      if (ops_[k].contains(op) || !reads(k, op)) continue;
      Ops found{op}, last{op};
      for (int d = 1; d < deep; ++d) {
        Ops next;
        for (OpId behind : last)
          for (const Access& a : w_->op(behind).inputs)
            if (const OpId p = w_->producer(a.tensor); p.valid() && may_be_again(p)) next.insert(p);
        found.insert(next.begin(), next.end());
        last = std::move(next);
      }
      ops_[k].insert(found.begin(), found.end());
    }
    // Consumers first: what nobody reads any more is not computed.
    const auto order = w_->topological_order();
    for (auto o = order.rbegin(); o != order.rend(); ++o)
      if (Ops& home = ops_[home_[o->index()]]; !leaves(*o) && !reads(home_[o->index()], *o)) {
        home.erase(*o);
        for (std::size_t k = 0; k < ops_.size(); ++k)
          if (ops_[k].contains(*o)) {
            home_[o->index()] = k;
            break;
          }
      }
    for (std::size_t k = ops_.size(); k-- > 0;)
      if (ops_[k].empty()) {
        ops_.erase(ops_.begin() + static_cast<long>(k));
        for (std::size_t& home : home_) home -= home > k ? 1 : 0;
      }
  }

  /// Of elements, each from others at the same point, so that a kernel may have a copy of it.
  bool may_be_again(OpId op) const {
    const Operator& o = w_->op(op);
    return !o.running && !w_->is_contraction(op) && w_->reduction_loops(op).empty() &&
           std::ranges::all_of(o.outputs, [&](const Output& out) {
             return out.combine == Combine::assign && !out.rescale;
           });
  }
  bool read_elsewhere(OpId op) const {
    for (std::size_t k = 0; k < ops_.size(); ++k)
      if (!ops_[k].contains(op) && reads(k, op)) return true;
    return false;
  }

  std::vector<stitching::SharedKernel> shared() const {
    std::vector<stitching::SharedKernel> kernels;
    for (std::size_t k = 0; k < ops_.size(); ++k) {
      stitching::SharedKernel one;
      for (OpId op : w_->topological_order()) {
        if (!ops_[k].contains(op)) continue;
        one.ops.push_back(op);
        if (home_[op.index()] == k && leaves(op)) one.gives.push_back(op);
      }
      kernels.push_back(std::move(one));
    }
    return kernels;
  }

 private:
  double size(TensorId t) const { return static_cast<double>(w_->tensor(t).bytes().value); }
  /// Whether the kernel has a reader of what the operator makes.
  bool reads(std::size_t kernel, OpId op) const {
    return std::ranges::any_of(w_->op(op).outputs, [&](const Output& o) {
      return std::ranges::any_of(w_->consumers(o.target.tensor),
                                 [&](OpId reader) { return ops_[kernel].contains(reader); });
    });
  }
  bool leaves(OpId op) const {
    return read_elsewhere(op) || std::ranges::any_of(w_->op(op).outputs, [&](const Output& o) {
             return w_->is_output(o.target.tensor);
           });
  }

  const Workload* w_;
  std::vector<Ops> ops_;
  std::vector<std::size_t> home_;  ///< by operator
};

}  // namespace

std::vector<stitching::Composition> recomputed(const std::shared_ptr<const Workload>& w,
                                               const std::vector<Part>& groups) {
  const Kernels known(*w, groups);
  const double all = known.bytes();
  std::vector<std::pair<double, Kernels>> better;
  for (std::size_t i = 0; i < w->operators().size(); ++i) {
    if (!known.may_be_again(OpId(i)) || !known.read_elsewhere(OpId(i))) continue;
    double least = (1 - kWorthAPlan) * all;
    std::optional<Kernels> best;
    for (int deep = 1; deep <= kDeep; ++deep) {
      Kernels again = known;
      again.compute_again(OpId(i), deep);
      if (const double bytes = again.bytes(); bytes < least) least = bytes, best = std::move(again);
    }
    if (best) better.emplace_back(least, std::move(*best));
  }
  std::ranges::stable_sort(better, {}, [](const auto& x) { return x.first; });
  std::vector<stitching::Composition> out;
  for (const auto& [bytes, kernels] : better) {
    if (out.size() == kMostPlanned) break;
    stitching::OwnCopies own = stitching::own_copies(w, kernels.shared());
    if (own.rewrites.empty()) continue;
    out.push_back({.rewrites = std::move(own.rewrites), .workload = std::move(own.workload)});
  }
  return out;
}

}  // namespace tilewright::quickest
