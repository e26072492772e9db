// Kernels of a plan made one where that takes less time.
#include <algorithm>
#include <set>

#include "models/stitching/alike.h"

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
    consider_from(0);
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
    double seconds;  ///< that they take now less those that their union takes
    std::vector<std::size_t> of;
    Pattern joined, rest;  ///< what of them is joined, and a part of a pack that is left
    bool operator<(const Gain& o) const {
      return seconds != o.seconds ? seconds > o.seconds : joined < o.joined;
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

  bool share_a_tensor(std::size_t a, std::size_t b) const {
    return std::ranges::any_of(tensors_[a], [&](TensorId t) { return tensors_[b].contains(t); });
  }

  /// The pairs of which one is kernel `first` or a later one. Pairs that wait for one another
  /// through others come last, with these others.
  void consider_from(std::size_t first) {
    std::vector<std::pair<std::size_t, std::size_t>> apart;
    for (std::size_t b = first; b < all_.size(); ++b)
      for (std::size_t a = 0; a < b; ++a) {
        if (products_[a] || products_[b] || all_[a].empty() || all_[b].empty()) continue;
        if (!share_a_tensor(a, b)) continue;
        consider_all(a, b);
        apart.emplace_back(a, b);
      }
    const std::vector<std::vector<std::size_t>> after = readers();
    for (const auto& [a, b] : apart) {
      std::vector<std::size_t> all = between(after, a, b);
      if (all.empty() || std::ranges::any_of(all, [&](std::size_t k) { return products_[k]; }))
        continue;
      all.push_back(a);
      all.push_back(b);
      consider(all, united(all), {});
    }
  }

  /// By kernel: the kernels that read what it makes.
  std::vector<std::vector<std::size_t>> readers() const {
    std::vector<std::size_t> kernel(static_cast<std::size_t>(g_.size()));
    for (std::size_t k = 0; k < all_.size(); ++k)
      for (int v : all_[k]) kernel[static_cast<std::size_t>(v)] = k;
    std::vector<std::vector<std::size_t>> after(all_.size());
    for (const Edge& e : g_.edges()) {
      const std::size_t from = kernel[static_cast<std::size_t>(e.from)];
      const std::size_t to = kernel[static_cast<std::size_t>(e.to)];
      if (from != to) after[from].push_back(to);
    }
    return after;
  }

  /// The kernels on the ways from one of two to the other.
  static std::vector<std::size_t> between(const std::vector<std::vector<std::size_t>>& after,
                                          std::size_t a, std::size_t b) {
    std::vector<std::size_t> found;
    for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
      std::vector<Way> ways(after.size());
      leads(after, from, to, ways);
      for (std::size_t k = 0; k < ways.size(); ++k)
        if (ways[k] == Way::there && k != from) found.push_back(k);
    }
    return found;
  }

  enum class Way : std::uint8_t { unknown, nowhere, there };

  /// Whether a way leads from a kernel to another; `ways`: of each kernel that was met.
  static bool leads(const std::vector<std::vector<std::size_t>>& after, std::size_t from,
                    std::size_t to, std::vector<Way>& ways) {
    if (ways[from] != Way::unknown) return ways[from] == Way::there;
    ways[from] = Way::nowhere;
    for (std::size_t k : after[from])
      if (k == to || leads(after, k, to, ways)) ways[from] = Way::there;
    return ways[from] == Way::there;
  }

  Pattern united(std::span<const std::size_t> kernels) const {
    Pattern all;
    for (std::size_t k : kernels) all.insert(all.end(), all_[k].begin(), all_[k].end());
    std::ranges::sort(all);
    return all;
  }

  /// Two kernels, and one of them with each part of the other, where that is a pack.
  void consider_all(std::size_t a, std::size_t b) {
    const std::vector<std::size_t> two{a, b};
    const Pattern all = united(two);
    consider(two, all, {});
    for (const auto& [whole, pack] : {std::pair{a, b}, std::pair{b, a}})
      for (const Pattern& part : parts_[pack]) {
        if (parts_[pack].size() == 1) break;
        Pattern joined, rest;
        std::ranges::merge(all_[whole], part, std::back_inserter(joined));
        std::ranges::set_difference(all, joined, std::back_inserter(rest));
        consider(two, joined, std::move(rest));
      }
  }

  Result<StitchedKernel> alike(const Pattern& p) {
    return alike_.kernel(
        g_, p, [this](const Graph& of, const Pattern& its) { return stitch(of, d_, its, o_); });
  }

  /// The kernel of a pattern; null: there is none, or too many have been asked for.
  const StitchedKernel* kernel(const Pattern& p) {
    auto at = known_.find(p);
    if (at == known_.end()) {
      if (++stitched_ > kMostUnions) return nullptr;
      at = known_.emplace(p, make_ ? make_(p) : alike(p)).first;
    }
    return at->second ? &*at->second : nullptr;
  }

  void consider(const std::vector<std::size_t>& of, const Pattern& joined, Pattern rest) {
    double now = 0;
    for (std::size_t k : of) now += seconds_[k];
    if (static_cast<double>(compulsory_of(g_, joined).value) / d_.dram_bytes_per_second >= now)
      return;
    const StitchedKernel* const k = kernel(joined);
    const StitchedKernel* const left = rest.empty() ? nullptr : kernel(rest);
    if (k == nullptr || (left == nullptr && !rest.empty())) return;
    const double gain = now - seconds(joined, *k) - (left == nullptr ? 0 : seconds(rest, *left));
    if (gain > 1e-9 * now) gains_.insert({gain, of, joined, std::move(rest)});
  }

  /// Whether all are still there, and no kernel would wait for itself.
  bool may_join(const Gain& gain) const {
    Pattern then;
    std::ranges::merge(gain.joined, gain.rest, std::back_inserter(then));
    if (united(gain.of) != then) return false;
    std::vector<Pattern> kernels{gain.joined};
    if (!gain.rest.empty()) kernels.push_back(gain.rest);
    for (std::size_t k = 0; k < all_.size(); ++k)
      if (!all_[k].empty() && std::ranges::find(gain.of, k) == gain.of.end())
        kernels.push_back(all_[k]);
    const std::size_t count = kernels.size();
    return launch_order(g_, std::move(kernels)).size() == count;
  }

  void join(const Gain& gain) {
    const std::size_t before = all_.size();
    for (const Pattern* p : {&gain.joined, &gain.rest}) {
      if (p->empty()) continue;
      const StitchedKernel& k = *known_.at(*p);
      all_.push_back(*p);
      products_.push_back(false);
      seconds_.push_back(seconds(*p, k));
      tensors_.push_back(tensors_of(*p));
      parts_.push_back(parts_of(k));
    }
    for (std::size_t k : gain.of) all_[k].clear();
    consider_from(before);
  }

  const Graph& g_;
  const Device& d_;
  const Options& o_;
  Known& known_;
  const Make& make_;
  Alike alike_;
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
