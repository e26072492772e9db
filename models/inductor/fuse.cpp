// The scheduler's rounds over pairs of nests.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "core/base/format.h"
#include "models/inductor/inductor.h"

namespace tilewright::inductor {
namespace {

constexpr int kRounds = 10;           // Scheduler.fuse_nodes
constexpr std::size_t kWindow = 64;   // config.max_fusion_buffer_group_pairwise_attempts
constexpr int kFar = 64;              // Scheduler.are_long_distant_nodes
constexpr std::int64_t kMemory = 32;  // can_fusion_increase_peak_memory
constexpr double kOverlap = 0.5;      // config.min_overlap_ratio

bool has(std::span<const Touched> all, const Touched& t) {
  return std::ranges::any_of(all, [&](const Touched& o) { return o.same(t); });
}

std::int64_t product(std::span<const std::int64_t> extents) {
  std::int64_t p = 1;
  for (std::int64_t e : extents) p *= e;
  return p;
}

/// Whether loops of these extents, one after the other, fill the groups, a loop cut in two where it
/// goes over a group's end (SIMDKernel._split_iteration_ranges).
bool fill(std::vector<std::int64_t> groups, std::span<const std::int64_t> extents) {
  std::size_t at = 0;
  for (std::int64_t size : extents) {
    while (size > 1) {
      while (at < groups.size() && groups[at] == 1) ++at;
      if (at == groups.size()) return false;
      if (size > groups[at]) {
        if (size % groups[at] != 0) return false;
        size /= groups[at];
        groups[at] = 1;
      } else {
        if (groups[at] % size != 0) return false;
        groups[at] /= size;
        size = 1;
      }
    }
  }
  return true;
}

/// Bytes of tensors that both read, where they are at least half of what either reads.
std::int64_t overlap_of(const Nest& a, const Nest& b) {
  const auto names = [](const Nest& n) {
    std::set<TensorId> out;
    for (const Touched& t : n.reads) out.insert(t.tensor);
    return out;
  };
  const std::set<TensorId> of_a = names(a), of_b = names(b);
  const auto bytes = [](const Nest& n, const auto& counted) {
    std::int64_t sum = 0;
    for (const Touched& t : n.reads) sum += counted(t) ? t.bytes : 0;
    return sum;
  };
  const auto all = [](const Touched&) { return true; };
  const std::int64_t most = std::max(bytes(a, all), bytes(b, all));
  const std::int64_t common =
      std::max(bytes(a, [&](const Touched& t) { return of_b.contains(t.tensor); }),
               bytes(b, [&](const Touched& t) { return of_a.contains(t.tensor); }));
  return static_cast<double>(common) >= kOverlap * static_cast<double>(most) ? common : 0;
}

Nest merged(const Nest& a, const Nest& b) {
  Nest out = a.reduces() || !b.reduces() ? a : b;
  const Nest& other = a.reduces() || !b.reduces() ? b : a;
  const auto join = [](std::vector<int>& to, const std::vector<int>& from) {
    to.insert(to.end(), from.begin(), from.end());
    std::ranges::sort(to);
    to.erase(std::unique(to.begin(), to.end()), to.end());
  };
  join(out.ops, other.ops);
  join(out.gives, other.gives);
  out.kept.insert(out.kept.end(), other.kept.begin(), other.kept.end());
  for (const Touched& t : other.reads)
    if (!has(out.reads, t)) out.reads.push_back(t);
  for (const Touched& t : other.writes)
    if (!has(out.writes, t)) out.writes.push_back(t);
  std::erase_if(out.reads, [&](const Touched& t) { return has(out.writes, t); });
  out.first = std::min(a.first, b.first);
  out.last = std::max(a.last, b.last);
  out.values = a.values + b.values;
  return out;
}

class Scheduler {
 public:
  Scheduler(const Graph& g, const Device& d, const Options& o) : g_(g), o_(o) {
    for (Nest& n : nests_of(g, d, o)) {
      for (const Touched& t : n.reads) ++users_[t.tensor];
      alive_.push_back(static_cast<int>(all_.size()));
      add({.nest = n, .values = {std::move(n)}, .before = {}});
    }
    words_ = alive_.size() / 64 + 1;
    for (std::size_t k = 0; k < all_.size(); ++k) {
      Kernel& x = all_[k];
      x.self.assign(words_, 0);
      x.self[k / 64] |= std::uint64_t{1} << (k % 64);
      x.before.assign(words_, 0);
      for (const Touched& t : x.nest.reads)
        if (const int from = maker(t.tensor); from >= 0) {
          join(x.before, all_[static_cast<std::size_t>(from)].before);
          join(x.before, all_[static_cast<std::size_t>(from)].self);
        }
    }
  }

  Fused run() {
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t before = alive_.size();
      once(false);
      if (alive_.size() == before) break;
    }
    if (o_.reorder) once(true);
    for (const auto& [a, b] : pairs()) {
      Step s = step(a, b);
      if (const auto why = refusal(a, b, s.score))
        s.refused = *why;
      else if (cycle(a, b))
        s.refused = "what lies between would wait for both";
      else
        s.refused = unheld_.contains({a, b}) ? unheld_.at({a, b}) : "the rounds were over";
      steps_.push_back(std::move(s));
    }
    return {.kernels = kernels(), .steps = std::move(steps_)};
  }

 private:
  struct Kernel {
    Nest nest;
    std::vector<Nest> values;                           ///< of it, each alone
    std::vector<std::uint64_t> self = {}, before = {};  ///< values: its own, and those it waits for
  };

  static void join(std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& from) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] |= from[i];
  }
  static bool meet(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if ((a[i] & b[i]) != 0) return true;
    return false;
  }
  const Kernel& at(int k) const { return all_[static_cast<std::size_t>(k)]; }

  int add(Kernel k) {
    const int id = static_cast<int>(all_.size());
    for (const Touched& t : k.nest.writes) maker_[t.tensor] = id;
    for (const Touched& t : k.nest.reads) readers_[t.tensor].insert(id);
    all_.push_back(std::move(k));
    return id;
  }
  int maker(TensorId t) const {
    const auto found = maker_.find(t);
    return found == maker_.end() ? -1 : found->second;
  }

  Score score(const Nest& a, const Nest& b) const { return score_of(a, b, o_.overlap); }

  std::string name(int k) const {
    std::string text;
    for (int v : at(k).nest.gives)
      text += (text.empty() ? "" : "+") + g_.workload().op(g_.vertex(v).op).name;
    return text;
  }
  Step step(int a, int b) const {
    return {.first = name(a), .second = name(b), .score = score(at(a).nest, at(b).nest)};
  }

  /// Pairs that touch the same tensor, the one that comes first first.
  std::vector<std::pair<int, int>> pairs() const {
    std::vector<std::vector<int>> groups;
    std::map<TensorId, std::size_t> group;
    for (int k : alive_) {
      if (at(k).nest.library) continue;
      std::set<TensorId> seen;
      for (const auto* all : {&at(k).nest.reads, &at(k).nest.writes})
        for (const Touched& t : *all) {
          if (!seen.insert(t.tensor).second) continue;
          const auto [found, fresh] = group.try_emplace(t.tensor, groups.size());
          if (fresh) groups.emplace_back();
          groups[found->second].push_back(k);
        }
    }
    std::vector<std::pair<int, int>> out;
    std::set<std::pair<int, int>> seen;
    for (const std::vector<int>& ks : groups)
      for (std::size_t i = 0; i < ks.size(); ++i)
        for (std::size_t j = i + 1; j < ks.size() && j <= i + kWindow; ++j)
          if (seen.insert({ks[i], ks[j]}).second) out.emplace_back(ks[i], ks[j]);
    return out;
  }

  void once(bool reorder) {
    struct Pair {
      Score score;
      int a, b;
    };
    std::vector<Pair> found;
    for (const auto& [a, b] : pairs()) {
      Score s = score(at(a).nest, at(b).nest);
      if (reorder) s = reordered(a, b, s);
      if (!refusal(a, b, s)) found.push_back({s, a, b});
    }
    std::ranges::stable_sort(found, std::ranges::greater{}, &Pair::score);
    std::unordered_map<int, int> into;  // what a kernel has become part of
    const auto now = [&into](int k) {
      for (auto next = into.find(k); next != into.end(); next = into.find(k)) k = next->second;
      return k;
    };
    for (const Pair& p : found) {
      int a = now(p.a), b = now(p.b);
      if (a == b) continue;
      if (at(b).nest.first < at(a).nest.first && meet(at(a).before, at(b).self)) std::swap(a, b);
      Step s = step(a, b);
      if (reorder) s.score = reordered(a, b, s.score);
      if (refusal(a, b, s.score) || cycle(a, b)) continue;
      Kernel both = {.nest = merged(at(a).nest, at(b).nest), .values = at(a).values};
      if (const auto why = not_held(both.nest)) {
        unheld_[{a, b}] = *why;
        continue;
      }
      both.values.insert(both.values.end(), at(b).values.begin(), at(b).values.end());
      both.self = at(a).self, both.before = at(a).before;
      join(both.self, at(b).self);
      join(both.before, at(b).before);
      steps_.push_back(std::move(s));
      for (int gone : {a, b})
        for (const Touched& t : at(gone).nest.reads) readers_[t.tensor].erase(gone);
      const int made = add(std::move(both));
      into[a] = into[b] = made;
      std::erase(alive_, b);
      std::ranges::replace(alive_, a, made);
    }
    std::ranges::stable_sort(alive_, {}, [this](int k) { return at(k).nest.first; });
    alive_ = launch_order();
  }

  std::vector<int> launch_order() const {
    std::vector<int> order;
    std::set<int> seen;
    const std::function<void(int)> visit = [&](int k) {
      if (!seen.insert(k).second) return;
      for (const Touched& t : at(k).nest.reads)
        if (const int from = maker(t.tensor); from >= 0) visit(from);
      order.push_back(k);
    };
    for (int k : alive_) visit(k);
    return order;
  }

  /// Whether a third kernel is after one of both and before the other.
  bool cycle(int a, int b) const {
    const int last = std::max(at(a).nest.last, at(b).nest.last);
    const auto reaches = [&](int from, int to) {
      std::set<int> seen = {from};
      std::vector<int> next = {from};
      while (!next.empty()) {
        const int k = next.back();
        next.pop_back();
        for (const Touched& t : at(k).nest.writes) {
          const auto users = readers_.find(t.tensor);
          if (users == readers_.end()) continue;
          for (int u : users->second) {
            if (k == from && u == to) continue;
            if (u == to) return true;
            if (at(u).nest.first <= last && seen.insert(u).second) next.push_back(u);
          }
        }
      }
      return false;
    };
    return reaches(a, b) || reaches(b, a);
  }

  /// `b` comes after `a`, or neither waits for the other.
  std::optional<std::string> refusal(int a, int b, const Score& s) const {
    const Nest &x = at(a).nest, &y = at(b).nest;
    const std::int64_t shared = s.bytes + s.overlap;
    if (shared == 0) return "nothing is read or written in the same order";
    if (x.values + y.values > o_.nests) return "too many values";
    if (memory_of(a, b) > kMemory * shared) return "it may take more memory";
    if (meet(at(b).before, at(a).self)) {
      for (const Touched& r : y.reads)
        if (maker(r.tensor) == a && (r.gather != 0 || !has(x.writes, r)))
          return "it reads other elements than it makes";
    } else {
      if (shared < o_.shared_bytes) return "too few bytes are shared";
      if (-s.nearness > kFar) return "too far from each other";
    }
    return sizes(a, b);
  }

  /// Elements that both could leave to be written over, if they were apart.
  std::int64_t memory_of(int a, int b) const {
    const auto left = [&](int k) {
      std::set<std::pair<std::int64_t, DType>> out;
      for (const Touched& t : at(k).nest.reads) {
        const auto users = users_.find(t.tensor);
        if (maker(t.tensor) < 0 || users == users_.end() || users->second != 1) continue;
        const Tensor& x = g_.workload().tensor(t.tensor);
        out.insert({x.elements().value, x.dtype});
      }
      return out;
    };
    std::int64_t sum = 0;
    const auto of_b = left(b);
    for (const auto& size : left(a))
      if (of_b.contains(size)) sum += size.first;
    return sum;
  }

  /// Why one kernel has not room for the loops of both (SIMDScheduling.can_fuse).
  std::optional<std::string> sizes(int a, int b) const {
    const Nest &x = at(a).nest, &y = at(b).nest;
    if (x.reduces() && y.reduces())
      return x.points == y.points && x.reduced == y.reduced && x.parts == y.parts
                 ? std::nullopt
                 : std::optional<std::string>("the reductions have other sizes");
    if (!x.reduces() && !y.reduces()) {
      if (x.points != y.points) return "the loops have other sizes";
      std::vector<const Nest*> of_x = values(a), of_y = values(b), all = of_x;
      all.insert(all.end(), of_y.begin(), of_y.end());
      const auto tx = tiled(of_x, x.points), ty = tiled(of_y, x.points),
                 both = tiled(all, x.points);
      const bool held = tx.size() > 1   ? (ty.size() > 1 ? tx == ty && ty == both : tx == both)
                        : ty.size() > 1 ? ty == both
                                        : true;
      return held ? std::nullopt : std::optional<std::string>("the loops have other tiles");
    }
    const int p = x.reduces() ? b : a;
    const Nest &points = x.reduces() ? y : x, &sum = x.reduces() ? x : y;
    // Of a sum in parts the second kernel has one point for each sum.
    if (points.points == sum.points * sum.reduced && sum.parts == 1) {
      for (const auto& extents : points.kept)
        if (!fill({sum.points, sum.reduced}, extents)) return "the loops have other sizes";
      const auto tiles = tiled(values(p), points.points);
      if (tiles.size() > 1 && tiles != std::vector<std::int64_t>{sum.points, sum.reduced})
        return "the loops have other tiles";
      return std::nullopt;
    }
    return points.points == sum.points ? std::nullopt
                                       : std::optional<std::string>("the loops have other sizes");
  }

  std::vector<const Nest*> values(int k) const {
    std::vector<const Nest*> out;
    for (const Nest& n : at(k).values) out.push_back(&n);
    return out;
  }

  /// The two dimensions that element-wise loops are tiled by, where a tensor is contiguous along
  /// another loop than the last; else all as one (select_tiling, candidate_tilings).
  static std::vector<std::int64_t> tiled(std::span<const Nest* const> values, std::int64_t points) {
    std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>>
        found;  // in order of appearance
    for (const Nest* n : values)
      for (const std::vector<std::int64_t>& extents : n->kept)
        for (const auto* all : {&n->reads, &n->writes})
          for (const Touched& t : *all) {
            const auto split = split_of(t, extents);
            if (!split) continue;
            std::int64_t score = all == &n->writes ? 2 : 1;
            for (std::size_t i = 0; i < extents.size(); ++i)
              if (t.steps[i] != 0) score *= extents[i];
            for (std::int64_t size : *split) score *= size >= 32 && size % 32 == 0 ? 2 : 1;
            if (score < product(extents)) continue;
            const auto same =
                std::ranges::find(found, *split, [](const auto& f) { return f.first; });
            if (same == found.end())
              found.emplace_back(*split, score);
            else
              same->second += score;
          }
    std::ranges::stable_sort(found, std::ranges::greater{}, [](const auto& f) { return f.second; });
    for (const auto& one : found)
      if (std::ranges::all_of(values, [&](const Nest* n) {
            return std::ranges::all_of(n->kept, [&](const auto& e) { return fill(one.first, e); });
          }))
        return one.first;
    return {points};
  }
  static std::optional<std::vector<std::int64_t>> split_of(const Touched& t,
                                                           std::span<const std::int64_t> extents) {
    const std::size_t rank = extents.size();
    if (rank < 2 || t.gather != 0 || t.steps.size() < rank) return std::nullopt;
    const auto one = std::ranges::find(t.steps.begin(), t.steps.begin() + rank, 1);
    const auto split = static_cast<std::size_t>(one - t.steps.begin()) + 1;
    if (split >= rank || std::all_of(t.steps.begin() + static_cast<std::ptrdiff_t>(split),
                                     t.steps.begin() + static_cast<std::ptrdiff_t>(rank),
                                     [](std::int64_t s) { return s == 0; }))
      return std::nullopt;
    return std::vector{product(extents.first(split)), product(extents.subspan(split))};
  }

  /// The score where the loops of one of both, which is element-wise, go in the other's order along
  /// the largest tensor that both touch; they do from then on if that shares enough.
  Score reordered(int a, int b, Score s) {
    if (s.bytes + s.overlap >= o_.shared_bytes) return s;
    for (const auto& [moved, other] : {std::pair{b, a}, std::pair{a, b}}) {
      if (at(moved).nest.reduces() || at(moved).nest.library) continue;
      const std::optional<std::vector<std::size_t>> order = order_like(moved, at(other).nest);
      if (!order) continue;
      Kernel turned = at(moved);
      turn(turned.nest, *order);
      for (Nest& n : turned.values) turn(n, *order);
      const Score better =
          moved == b ? score(at(a).nest, turned.nest) : score(turned.nest, at(b).nest);
      if (better.bytes < o_.shared_bytes) continue;
      all_[static_cast<std::size_t>(moved)] = std::move(turned);
      return better;
    }
    return s;
  }

  /// In which order the loops of the nest would pass a tensor as the other does; none where no
  /// tensor says it of all its loops, where its values have other loops than each other, or
  /// where terms of a sum are written out.
  std::optional<std::vector<std::size_t>> order_like(int k, const Nest& other) const {
    const Nest& n = at(k).nest;
    const std::vector<std::int64_t>& extents = n.kept.front();
    const auto longer = [&](const Touched& t) { return t.steps.size() > extents.size(); };
    if (extents.empty() ||
        std::ranges::any_of(n.kept, [&](const auto& e) { return e != extents; }) ||
        std::ranges::any_of(n.reads, longer))
      return std::nullopt;
    std::int64_t most = 0;
    std::optional<std::vector<std::size_t>> best;
    for (const auto* all : {&n.reads, &n.writes})
      for (const Touched& t : *all)
        for (const auto* theirs : {&other.reads, &other.writes})
          for (const Touched& o : *theirs) {
            if (o.tensor != t.tensor || o.gather + t.gather != 0 || t.bytes <= most) continue;
            std::vector<std::size_t> order;
            for (std::int64_t step : o.steps) {
              const auto at = std::find(t.steps.begin(), t.steps.end(), step);
              if (step != 0 && at != t.steps.end())
                order.push_back(static_cast<std::size_t>(at - t.steps.begin()));
            }
            const std::set<std::size_t> distinct(order.begin(), order.end());
            if (order.size() != extents.size() || distinct.size() != order.size() ||
                *distinct.rbegin() >= extents.size())
              continue;
            most = t.bytes;
            best = order;
          }
    return best;
  }

  static void turn(Nest& n, std::span<const std::size_t> order) {
    const std::vector<std::int64_t> before = n.kept.front();
    for (auto& extents : n.kept)
      for (std::size_t i = 0; i < order.size(); ++i) extents[i] = before[order[i]];
    for (auto* all : {&n.reads, &n.writes})
      for (Touched& t : *all) {
        if (t.gather != 0) continue;
        t.steps.resize(order.size());
        const std::vector<std::int64_t> steps = t.steps;
        for (std::size_t i = 0; i < order.size(); ++i) t.steps[i] = steps[order[i]];
        t.order = in_order(n.kept.front(), t.steps);
      }
  }

  std::optional<std::string> not_held(const Nest& n) const {
    const int most = o_.kernels.most_operators;
    if (n.ops.size() > static_cast<std::size_t>(most))
      return formatted("more than {} operators", most);
    stitching::SharedKernel kernel;
    for (int v : n.ops) kernel.ops.push_back(g_.vertex(v).op);
    for (int v : n.gives) kernel.gives.push_back(g_.vertex(v).op);
    // Products were set apart when the graph was made; what is fused has none.
    const auto reason = stitching::not_one_kernel(g_.workload(), kernel, 0, most);
    return reason ? std::optional(reason->text) : std::nullopt;
  }

  /// Of each kernel only those results leave it that another one reads, or the workload gives.
  std::vector<Nest> kernels() const {
    std::vector<Nest> out;
    for (int k : alive_) {
      out.push_back(at(k).nest);
      std::erase_if(out.back().gives, [&](int v) {
        const Vertex& x = g_.vertex(v);
        if (x.leaves || x.consumers.empty()) return false;
        for (const Output& o : g_.workload().op(x.op).outputs) {
          const auto users = readers_.find(o.target.tensor);
          if (users != readers_.end() &&
              std::ranges::any_of(users->second, [k](int u) { return u != k; }))
            return false;
        }
        return true;
      });
    }
    return out;
  }

  const Graph& g_;
  const Options& o_;
  std::size_t words_ = 0;
  std::vector<Kernel> all_;
  std::vector<int> alive_;
  std::map<TensorId, int> maker_;
  std::map<TensorId, std::set<int>> readers_;
  std::map<TensorId, int> users_;  ///< values that read it
  std::map<std::pair<int, int>, std::string> unheld_;
  std::vector<Step> steps_;
};

}  // namespace

Score score_of(const Nest& a, const Nest& b, bool overlap) {
  Score out;
  const auto add = [&](const Touched& t) {
    if (t.gather == 0 && (has(b.reads, t) || has(b.writes, t))) out.bytes += t.bytes;
  };
  for (const Touched& t : a.reads) add(t);
  for (const Touched& t : a.writes)
    if (!has(a.reads, t)) add(t);
  if (overlap && out.bytes == 0 && !a.reduces() && !b.reduces()) out.overlap = overlap_of(a, b);
  out.alike = a.reduces() == b.reduces() && out.bytes > 0;
  out.nearness = -std::max(std::abs(a.first - b.last), std::abs(b.first - a.last));
  return out;
}

Fused fuse(const Graph& g, const Device& d, const Options& o) { return Scheduler(g, d, o).run(); }

}  // namespace tilewright::inductor
