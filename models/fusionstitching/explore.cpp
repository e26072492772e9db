// The fusion explorer: PatternReduction, remote fusion, XLA's rule, the beam.
#include <algorithm>
#include <queue>
#include <set>

#include "core/base/progress.h"
#include "models/fusionstitching/fusionstitching.h"

namespace tilewright::fusionstitching {
namespace {

using Candidates = std::vector<Scored>;

Pattern unite(const Pattern& a, const Pattern& b) {
  Pattern out;
  out.reserve(a.size() + b.size());
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

/// Higher scores first; of equal ones the smaller pattern, then the earlier: the same on every run.
bool better(const Scored& a, const Scored& b) {
  if (a.score != b.score) return a.score > b.score;
  if (a.pattern.size() != b.pattern.size()) return a.pattern.size() < b.pattern.size();
  return a.pattern < b.pattern;
}

void keep_best(Candidates& all, int k) {
  std::ranges::sort(all, better);
  const auto same = [](const Scored& a, const Scored& b) { return a.pattern == b.pattern; };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  if (all.size() > static_cast<std::size_t>(k)) all.resize(static_cast<std::size_t>(k));
}

/// Equation 2, with everything that it has found so far.
class Reduction {
 public:
  explicit Reduction(Evaluator& e)
      : e_(e), o_(e.options()), found_(static_cast<std::size_t>(e.graph().size())) {}

  /// Candidates by their first vertex.
  std::vector<Candidates> run() {
    const Graph& g = e_.graph();
    Steps steps(g.size());
    for (int v = g.size() - 1; v >= 0; --v) {
      steps.done();
      if (g.vertex(v).kind == Kind::product) continue;
      of_[v] = reduce({v}, g.vertex(v).consumers);
      if (o_.alone) of_[v].push_back({{v}, 0});
      keep_best(of_[v], o_.top_k);
    }
    for (const auto& [v, candidates] : of_) note(candidates);
    if (o_.remote) {
      collecting_ = true;
      std::vector<int> all;
      for (const auto& [v, candidates] : of_) all.push_back(v);
      reduce({}, all);
    }
    for (Candidates& c : found_) keep_best(c, static_cast<int>(c.size()));
    return std::move(found_);
  }

 private:
  /// Patterns of `base` and one candidate or none of each consumer.
  Candidates reduce(const Pattern& base, std::span<const int> consumers) {
    Candidates out;
    if (consumers.size() <= static_cast<std::size_t>(o_.group)) {
      combine(base, consumers, out);
    } else {
      const std::size_t half = consumers.size() / 2;
      const Candidates left = reduce(base, consumers.first(half));
      const Candidates right = reduce(base, consumers.subspan(half));
      out = left;
      out.insert(out.end(), right.begin(), right.end());
      if (o_.last_step == LastStep::unite)
        for (const Scored& a : left)
          for (const Scored& b : right) add(unite(a.pattern, b.pattern), out);
    }
    keep_best(out, o_.top_k);
    if (collecting_) note(out);
    return out;
  }

  void combine(const Pattern& so_far, std::span<const int> consumers, Candidates& out) {
    if (consumers.empty()) return add(so_far, out);
    combine(so_far, consumers.subspan(1), out);
    const auto it = of_.find(consumers.front());
    if (it == of_.end()) return;  // a product
    for (const Scored& s : it->second) combine(unite(so_far, s.pattern), consumers.subspan(1), out);
  }

  void add(Pattern p, Candidates& out) {
    if (p.empty() || p.size() > static_cast<std::size_t>(o_.most_operators)) return;
    const auto score = e_.score(p);
    if (score) out.push_back({std::move(p), *score});
  }

  void note(const Candidates& candidates) {
    for (const Scored& s : candidates)
      if (s.pattern.size() > 1) found_[static_cast<std::size_t>(s.pattern.front())].push_back(s);
  }

  Evaluator& e_;
  const Options& o_;
  std::map<int, Candidates> of_;
  std::vector<Candidates> found_;
  bool collecting_ = false;
};

/// What a buffer set holds, shared with the sets that it came from.
struct Picked {
  const Scored* pattern = nullptr;
  std::shared_ptr<const Picked> before;
};

/// A vertex and the pattern that has taken it.
using Taken = std::pair<int, const Scored*>;

const Scored* taker(const std::vector<Taken>& taken, int v) {
  const auto it = std::ranges::lower_bound(taken, v, {}, &Taken::first);
  return it != taken.end() && it->first == v ? it->second : nullptr;
}

struct BufferSet {
  double score = 0;
  std::shared_ptr<const Picked> last;
  int end = 0;               ///< beyond the last vertex of any of its patterns
  std::vector<Taken> taken;  ///< ascending; those that what is still to come can meet
  std::vector<Scored> patterns() const {
    std::vector<Scored> all;
    for (const Picked* p = last.get(); p != nullptr; p = p->before.get())
      all.push_back(*p->pattern);
    std::ranges::reverse(all);
    return all;
  }
};

/// Searches the graph of kernels for a path from a pattern back to itself.
class Waits {
 public:
  Waits(const Graph& g, const BufferSet& s, const Pattern& of)
      : g_(g), s_(s), of_(of), end_(std::max(s.end, of.back())) {}

  bool found() {
    for (int v : of_)
      for (int c : g_.vertex(v).consumers)
        if (!own(c)) visit(c);
    while (!stack_.empty()) {
      const int v = stack_.back();
      stack_.pop_back();
      for (int c : g_.vertex(v).consumers) {
        if (own(c)) return true;
        visit(c);
      }
    }
    return false;
  }

 private:
  bool own(int v) const { return std::ranges::binary_search(of_, v); }
  void visit(int v) {
    // From beyond every pattern's last vertex nothing leads back.
    if (v >= end_ || !seen_.insert(v).second) return;
    stack_.push_back(v);
    if (const Scored* kernel = taker(s_.taken, v))
      for (int other : kernel->pattern)
        if (seen_.insert(other).second) stack_.push_back(other);
  }

  const Graph& g_;
  const BufferSet& s_;
  const Pattern& of_;
  int end_;
  std::set<int> seen_;
  std::vector<int> stack_;
};

/// Section 5.3.
class Beam {
 public:
  Beam(const Graph& g, const Options& o, const std::vector<Candidates>& candidates)
      : g_(g), o_(o), candidates_(candidates), sets_(1) {}

  std::vector<FusionPlan> run() {
    Steps steps(g_.size());
    for (int v = 0; v < g_.size(); ++v) {
      if (!candidates_[static_cast<std::size_t>(v)].empty()) step(v);
      steps.done();
    }
    std::vector<FusionPlan> plans;
    for (const BufferSet& s : sets_) plans.push_back({s.patterns(), s.score});
    return plans;
  }

 private:
  /// A buffer set with a pattern more, or without.
  struct Choice {
    double score = 0;
    std::size_t set = 0;
    const Scored* pattern = nullptr;
  };

  void step(int v) {
    std::vector<Choice> next;
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      forget(sets_[i], v);
      const std::size_t before = next.size();
      for (const Scored& c : candidates_[static_cast<std::size_t>(v)])
        if (fits(sets_[i], c)) next.push_back({sets_[i].score + c.score, i, &c});
      if (o_.skip || next.size() == before) next.push_back({sets_[i].score, i, nullptr});
    }
    std::ranges::stable_sort(next, std::ranges::greater{}, &Choice::score);
    if (next.size() > static_cast<std::size_t>(o_.beam))
      next.resize(static_cast<std::size_t>(o_.beam));
    std::vector<BufferSet> sets;
    for (const Choice& c : next)
      sets.push_back(c.pattern != nullptr ? with(sets_[c.set], *c.pattern) : sets_[c.set]);
    sets_ = std::move(sets);
  }

  /// Drops what no pattern that begins at `v` or later can meet, not even through the others.
  static void forget(BufferSet& s, int v) {
    int first = v;
    for (auto it = s.taken.rbegin(); it != s.taken.rend(); ++it)
      if (it->first >= first) first = std::min(first, it->second->pattern.front());
    std::erase_if(s.taken, [first](const Taken& t) { return t.first < first; });
  }

  bool fits(const BufferSet& s, const Scored& c) const {
    if (c.score <= 0) return false;
    for (int v : c.pattern)
      if (taker(s.taken, v) != nullptr) return false;
    if (c.pattern.front() >= s.end) return true;  // all else lies before it
    return !Waits(g_, s, c.pattern).found();
  }

  static BufferSet with(const BufferSet& s, const Scored& c) {
    BufferSet out{.score = s.score + c.score,
                  .last = std::make_shared<const Picked>(Picked{&c, s.last}),
                  .end = std::max(s.end, c.pattern.back() + 1)};
    std::vector<Taken> own;
    for (int v : c.pattern) own.emplace_back(v, &c);
    std::ranges::merge(s.taken, own, std::back_inserter(out.taken), {}, &Taken::first,
                       &Taken::first);
    return out;
  }

  const Graph& g_;
  const Options& o_;
  const std::vector<Candidates>& candidates_;
  std::vector<BufferSet> sets_;
};

}  // namespace

std::int64_t kernels_of(const Graph& g, const FusionPlan& p) {
  std::int64_t n = g.size();
  for (const Scored& s : p.patterns) n -= static_cast<std::int64_t>(s.pattern.size()) - 1;
  return n;
}

bool orderable(const Graph& g, std::span<const Scored> patterns) {
  std::vector<Pattern> kernels;
  std::vector<bool> taken(static_cast<std::size_t>(g.size()));
  for (const Scored& s : patterns) {
    kernels.push_back(s.pattern);
    for (int v : s.pattern) taken[static_cast<std::size_t>(v)] = true;
  }
  for (int v = 0; v < g.size(); ++v)
    if (!taken[static_cast<std::size_t>(v)]) kernels.push_back({v});
  const std::size_t all = kernels.size();
  return launch_order(g, std::move(kernels)).size() == all;
}

FusionPlan xla_rule(Evaluator& e) {
  const Graph& g = e.graph();
  std::vector<int> kernel(static_cast<std::size_t>(g.size()));
  std::vector<Pattern> members(kernel.size());
  for (int v = g.size() - 1; v >= 0; --v) {
    const auto at = static_cast<std::size_t>(v);
    kernel[at] = v;
    members[at] = {v};
    const Vertex& x = g.vertex(v);
    if (x.kind != Kind::light || x.leaves || x.consumers.empty()) continue;
    const int to = kernel[static_cast<std::size_t>(x.consumers.front())];
    const bool one = std::ranges::all_of(
        x.consumers, [&](int c) { return kernel[static_cast<std::size_t>(c)] == to; });
    Pattern& joined = members[static_cast<std::size_t>(to)];
    if (!one) continue;
    const Pattern with = unite({v}, joined);
    if (!e.score(with)) continue;
    kernel[at] = to;
    joined = with;
  }
  FusionPlan plan;
  for (const Pattern& p : members) {
    if (p.size() < 2 || kernel[static_cast<std::size_t>(p.back())] != p.back()) continue;
    if (members[static_cast<std::size_t>(p.back())] != p) continue;
    plan.patterns.push_back({p, *e.score(p)});
    plan.score += plan.patterns.back().score;
  }
  std::ranges::sort(plan.patterns, {}, &Scored::pattern);
  return plan;
}

std::vector<Pattern> xla_kernels(const Graph& g, int most_operators) {
  std::vector<Pattern> members(static_cast<std::size_t>(g.size()));
  for (int v = g.size() - 1; v >= 0; --v) {
    const Vertex& x = g.vertex(v);
    std::vector<std::size_t> of_consumers;
    bool joins = x.kind == Kind::light && !x.leaves && !x.consumers.empty();
    for (std::size_t k = 0; joins && k < members.size(); ++k) {
      const bool reads = std::ranges::any_of(
          x.consumers, [&](int c) { return std::ranges::binary_search(members[k], c); });
      if (!reads) continue;
      of_consumers.push_back(k);
      joins = members[k].size() < static_cast<std::size_t>(most_operators) &&
              g.vertex(static_cast<int>(k)).kind != Kind::product;
    }
    if (!joins) of_consumers = {static_cast<std::size_t>(v)};
    for (std::size_t k : of_consumers) members[k] = unite({v}, members[k]);
  }
  std::erase_if(members, [](const Pattern& p) { return p.empty(); });
  return members;
}

Exploration explore(Evaluator& e) {
  const Graph& g = e.graph();
  std::vector<Candidates> candidates = Reduction(e).run();
  const FusionPlan xla = e.options().seed ? xla_rule(e) : FusionPlan{};
  for (const Scored& s : xla.patterns) {
    Candidates& at = candidates[static_cast<std::size_t>(s.pattern.front())];
    if (std::ranges::find(at, s) == at.end()) at.push_back(s);
  }
  Exploration out;
  for (const Candidates& c : candidates) out.candidates += static_cast<std::int64_t>(c.size());
  out.plans = Beam(g, e.options(), candidates).run();
  if (e.options().seed) out.plans.push_back(xla);
  std::ranges::stable_sort(out.plans, std::ranges::greater{}, &FusionPlan::score);
  out.evaluated = e.evaluated();
  for (const FusionPlan& p : out.plans)
    TW_CHECK(orderable(g, p.patterns), "a plan's kernels wait for each other");
  return out;
}

Result<FusionPlan> exhaustive(Evaluator& e) {
  const Graph& g = e.graph();
  constexpr int kMost = 12;
  if (g.size() > kMost)
    return Reason{"all fusion plans of at most 12 operators are tried; the graph has " +
                  std::to_string(g.size())};
  const std::size_t sets = std::size_t{1} << g.size();
  std::vector<std::optional<Scored>> all(sets);
  for (std::size_t set = 1; set < sets; ++set) {
    Pattern p;
    for (int v = 0; v < g.size(); ++v)
      if ((set >> v & 1) != 0) p.push_back(v);
    if (const auto score = e.score(p)) all[set] = Scored{p, *score};
  }
  FusionPlan best;
  std::vector<Scored> now;
  const auto part = [&](auto&& self, std::size_t left, double score) -> void {
    if (left == 0) {
      if (score > best.score && orderable(g, now)) best = {now, score};
      return;
    }
    const std::size_t first = left & (~left + 1), others = left ^ first;
    for (std::size_t rest = others;; rest = (rest - 1) & others) {
      const auto& s = all[first | rest];
      if (s && (rest == 0 || s->score > 0)) {
        if (rest != 0) now.push_back(*s);
        self(self, others ^ rest, score + s->score);
        if (rest != 0) now.pop_back();
      }
      if (rest == 0) return;
    }
  };
  part(part, sets - 1, 0);
  std::ranges::sort(best.patterns, {}, &Scored::pattern);
  return best;
}

}  // namespace tilewright::fusionstitching
