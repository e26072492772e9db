// Kernels of a plan made one where that takes less time.
#include <algorithm>
#include <set>

#include "models/stitching/stitching.h"

namespace tilewright::stitching {
namespace {

constexpr int kMostUnions = 200;  // that are stitched for a plan

using Make = std::function<Result<StitchedKernel>(const Pattern&)>;

class Joiner {
 public:
  Joiner(const Graph& g, const Device& d, const Options& o, const PlanPrice& p, Known& known,
         const Make& make)
      : g_(g), d_(d), o_(o), known_(known), make_(make), all_(p.patterns) {
    for (std::size_t k = 0; k < all_.size(); ++k) {
      products_.push_back(p.kernels[k].parts.empty());
      seconds_.push_back(products_[k] ? 0 : seconds(all_[k], p.kernels[k]));
      tensors_.push_back(tensors_of(all_[k]));
      parts_.push_back(parts_of(p.kernels[k]));
    }
  }

  /// Whether any were joined.
  bool run() {
    for (std::size_t a = 0; a < all_.size(); ++a)
      for (std::size_t b = a + 1; b < all_.size(); ++b) consider_all(a, b);
    bool any = false;
    while (!gains_.empty()) {
      const Gain best = *gains_.begin();
      gains_.erase(gains_.begin());
      if (!may_join(best)) continue;
      join(best);
      any = true;
    }
    return any;
  }

  std::vector<Pattern> kernels() const {
    std::vector<Pattern> out;
    for (const Pattern& p : all_)
      if (!p.empty()) out.push_back(p);
    std::ranges::sort(out);
    return out;
  }

 private:
  struct Gain {
    double seconds;  ///< that both take now less those that their union takes
    std::size_t a, b;
    Pattern both, rest;  ///< what of them is joined, and a part of a pack that is left
    bool operator<(const Gain& o) const {
      return seconds != o.seconds ? seconds > o.seconds : both < o.both;
    }
  };

  double seconds(const Pattern& p, const StitchedKernel& k) const {
    return compared_seconds({g_, d_, {.seconds = k.seconds, .kernels = {k}, .patterns = {p}}});
  }

  std::set<TensorId> tensors_of(const Pattern& p) const {
    std::set<TensorId> all;
    for (int v : p) {
      const Operator& op = g_.workload().op(g_.vertex(v).op);
      for (const Access& a : op.inputs) all.insert(a.tensor);
      for (const Output& o : op.outputs) all.insert(o.target.tensor);
    }
    return all;
  }

  static std::vector<Pattern> parts_of(const StitchedKernel& k) {
    std::vector<Pattern> parts;
    for (const Stitched& s : k.parts) parts.push_back(s.component.vertices);
    return parts;
  }

  /// Two kernels, and one of them with each part of the other, where that is a pack.
  void consider_all(std::size_t a, std::size_t b) {
    if (products_[a] || products_[b] || all_[a].empty() || all_[b].empty()) return;
    if (std::ranges::none_of(tensors_[a], [&](TensorId t) { return tensors_[b].contains(t); }))
      return;
    Pattern all;
    std::ranges::merge(all_[a], all_[b], std::back_inserter(all));
    consider(a, b, all, {});
    for (const auto& [whole, pack] : {std::pair{a, b}, std::pair{b, a}})
      for (const Pattern& part : parts_[pack]) {
        if (parts_[pack].size() == 1) break;
        Pattern both, rest;
        std::ranges::merge(all_[whole], part, std::back_inserter(both));
        std::ranges::set_difference(all, both, std::back_inserter(rest));
        consider(a, b, both, std::move(rest));
      }
  }

  /// The kernel of a pattern; null: there is none, or too many have been asked for.
  const StitchedKernel* kernel(const Pattern& p) {
    auto at = known_.find(p);
    if (at == known_.end()) {
      if (++stitched_ > kMostUnions) return nullptr;
      at = known_.emplace(p, make_ ? make_(p) : stitch(g_, d_, p, o_)).first;
    }
    return at->second ? &*at->second : nullptr;
  }

  void consider(std::size_t a, std::size_t b, const Pattern& both, Pattern rest) {
    const double now = seconds_[a] + seconds_[b];
    if (static_cast<double>(compulsory_of(g_, both).value) / d_.dram_bytes_per_second >= now)
      return;
    const StitchedKernel* const k = kernel(both);
    const StitchedKernel* const left = rest.empty() ? nullptr : kernel(rest);
    if (k == nullptr || (left == nullptr && !rest.empty())) return;
    const double gain = now - seconds(both, *k) - (left == nullptr ? 0 : seconds(rest, *left));
    if (gain > 1e-9 * now) gains_.insert({gain, a, b, both, std::move(rest)});
  }

  /// Whether both are still there, and no kernel would wait for itself.
  bool may_join(const Gain& gain) const {
    Pattern now, then;
    std::ranges::merge(all_[gain.a], all_[gain.b], std::back_inserter(now));
    std::ranges::merge(gain.both, gain.rest, std::back_inserter(then));
    if (now != then) return false;
    std::vector<Pattern> kernels{gain.both};
    if (!gain.rest.empty()) kernels.push_back(gain.rest);
    for (std::size_t k = 0; k < all_.size(); ++k)
      if (k != gain.a && k != gain.b && !all_[k].empty()) kernels.push_back(all_[k]);
    const std::size_t count = kernels.size();
    return launch_order(g_, std::move(kernels)).size() == count;
  }

  void join(const Gain& gain) {
    const std::size_t before = all_.size();
    for (const Pattern* p : {&gain.both, &gain.rest}) {
      if (p->empty()) continue;
      const StitchedKernel& k = *known_.at(*p);
      all_.push_back(*p);
      products_.push_back(false);
      seconds_.push_back(seconds(*p, k));
      tensors_.push_back(tensors_of(*p));
      parts_.push_back(parts_of(k));
    }
    all_[gain.a].clear();
    all_[gain.b].clear();
    for (std::size_t n = before; n < all_.size(); ++n)
      for (std::size_t k = 0; k < n; ++k) consider_all(k, n);
  }

  const Graph& g_;
  const Device& d_;
  const Options& o_;
  Known& known_;
  const Make& make_;
  std::vector<Pattern> all_;  ///< empty: joined to others
  std::vector<bool> products_;
  std::vector<double> seconds_;
  std::vector<std::set<TensorId>> tensors_;
  std::vector<std::vector<Pattern>> parts_;  ///< of packs, several
  std::set<Gain> gains_;
  int stitched_ = 0;
};

}  // namespace

std::optional<std::vector<Pattern>> joined(const Graph& g, const Device& d, const Options& o,
                                           const PlanPrice& p, Known& known, const Make& make) {
  Joiner joiner(g, d, o, p, known, make);
  if (!joiner.run()) return std::nullopt;
  return joiner.kernels();
}

}  // namespace tilewright::stitching
