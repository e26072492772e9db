// The best plans where there are too many orders for each to be solved: sets of loops that are cut,
// each in all its orders.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "core/base/effort.h"
#include "core/base/progress.h"
#include "models/chimera/descent.h"
#include "models/chimera/solver.h"
#include "models/chimera/tables.h"

namespace tilewright::chimera::detail {
namespace {

constexpr std::int64_t kBudget = 200'000;  // boxes a case, before proof is given up
// Units of the effort that whoever asks may limit: of a case that is bounded, of one that is held
// against those bounded before, and boxes of one unit.
constexpr std::int64_t kOfBound = 8, kOfAlike = 2, kBoxes = 8;
constexpr std::size_t kSolved = 50;  // cases of least bounds, each solved to its own best
constexpr double kLower =
    1 - 1e-9;  // of a bound: other cases multiply its factors in another order

class CutSearch {
 public:
  CutSearch(const Workload& w, Elements capacity, const Options& options)
      : base_(w, order_loops(w), options), capacity_(capacity.value), t_(make_tables(base_)) {
    for (std::size_t i = 0; i < base_.size(); ++i) {
      if (has(base_.implicit(), i)) continue;
      const LoopId loop = base_.loop(i);
      const bool pinned = options.pinned.contains(loop) && t_.candidates[i].size() > 1;
      (pinned ? must_ : t_.candidates[i].size() > 1 ? free_ : whole_).push_back(loop);
    }
  }

  /// `counted`: all cases are bounded, so that the answer says how many are illegal or do not fit.
  Result<Search> run(bool counted) {
    if (must_.size() > kMostCut)
      return Reason{"more than " + std::to_string(kMostCut) + " loops may be cut"};
    most_ = most_cut();
    Steps halves(2);
    list(!counted);
    halves.done();
    if (counted)
      std::stable_sort(cases_.begin(), cases_.end(),
                       [](const Case& a, const Case& b) { return a.bound < b.bound; });
    Steps solved(kSolved);
    std::size_t i = 0;
    const auto solve_next = [&](const Case& c) {
      solve(c.order, c.cut, i++ < kSolved ? INFINITY : best_);
      solved.done();
    };
    if (counted)
      for (const Case& c : cases_) {
        if (c.bound > best_) break;
        solve_next(c);
      }
    else
      while (const auto next = by_bound(best_)) solve_next(cases_[next->at]);
    if (r_.ranked.empty()) {  // why not
      Effort effort;
      Result<Solution> s = solve_order(base_, capacity_, effort);
      if (!s) return Reason{s.reason()};
      r_.ranked.push_back(std::move(s).value());
    }
    count();
    return std::move(r_);
  }

  /// The solution that comes first of run()'s; none where none is found. A case is bounded below
  /// without its tree first, in common with all that multiply alike, then in common with those that
  /// hold alike, too, then by itself: each when the bound before is the least that is left. It is
  /// solved when its own bound is.
  std::optional<BestOfCuts> best() {
    if (must_.size() > kMostCut) return std::nullopt;
    most_ = most_cut();
    list(true);
    std::optional<std::pair<Next, Solution>> first;
    std::vector<std::size_t>
        cases;  // that may move no more than the best: their own bounds are as low
    while (const auto next = by_bound(best_ * (1 + 1e-9))) {
      const Case& c = cases_[next->at];
      cases.push_back(next->at);
      solve(c.order, c.cut, best_);
      if (r_.ranked.empty()) continue;
      Solution s = std::move(r_.ranked.back());
      r_.ranked.clear();
      if (!first || std::tuple(rank(s), next->bound, next->at) <
                        std::tuple(rank(first->second), first->first.bound, first->first.at))
        first.emplace(*next, std::move(s));
    }
    if (!first) return std::nullopt;
    BestOfCuts found{.solution = std::move(first->second), .cuts = {}};
    for (std::size_t at : cases)
      found.cuts.emplace_back(cases_[at].order.end() - static_cast<std::ptrdiff_t>(cases_[at].cut),
                              cases_[at].order.end());
    return found;
  }

 private:
  struct Case {
    double bound = 0;
    Order order;
    std::size_t cut = 0;  ///< of the order's last loops
  };

  enum Known { kFloor, kAlike, kOwn };
  /// A case that waits, by what its bound is known from.
  struct Next {
    double bound;
    Known known;
    std::size_t at;
    bool operator>(const Next& o) const {
      return std::tie(bound, known, at) > std::tie(o.bound, o.known, o.at);
    }
  };

  /// All cases, bounded each by itself or, for by_bound(), by their floors.
  void list(bool by_floor) {
    Steps listed(listed_);
    Order chosen;
    by_floor_ = by_floor;
    list_cases(0, chosen, listed);
    if (!by_floor) return;
    for (std::size_t i = 0; i < cases_.size(); ++i) heap_.push_back({cases_[i].bound, kFloor, i});
    std::ranges::make_heap(heap_, std::greater{});
  }

  /// The case that comes next by its own bound, of those as listed the first; none where no bound
  /// is at most the limit. A case whose other bound is higher waits without its own.
  std::optional<Next> by_bound(double limit) {
    while (!heap_.empty() && heap_.front().bound <= limit) {
      std::ranges::pop_heap(heap_, std::greater{});
      const Next next = heap_.back();
      heap_.pop_back();
      if (next.known == kOwn) return next;
      const Case& c = cases_[next.at];
      const bool alike = next.known == kFloor;
      const auto bound = alike ? bound_alike(c.order, c.cut) : bound_of(c.order, c.cut);
      if (!bound || *bound == INFINITY) continue;
      heap_.push_back({*bound, alike ? kAlike : kOwn, next.at});
      std::ranges::push_heap(heap_, std::greater{});
    }
    return std::nullopt;
  }

  /// As many of the free loops as let all sets and orders be tried.
  std::size_t most_cut() {
    double all = 0, some = 1;
    for (std::size_t k = 0;; ++k) {
      // Sets of k free loops, times the orders of those and the pinned ones.
      double orders = some;
      for (std::size_t i = 0; i < must_.size(); ++i) orders *= static_cast<double>(k + i + 1);
      all += orders;
      if (k > 0 && (all > static_cast<double>(kMostCases) || k + must_.size() > kMostCut))
        return k - 1;
      listed_ = all;
      if (k == free_.size()) return k;
      some *= static_cast<double>(free_.size() - k);
    }
  }

  /// The sets that have `chosen`, and beside it some of the free loops from `first` on.
  void list_cases(std::size_t first, Order& chosen, Steps& listed) {
    Order order = whole_, cut = must_;
    for (LoopId l : free_)
      (std::ranges::find(chosen, l) != chosen.end() ? cut : order).push_back(l);
    std::ranges::sort(cut);
    const auto outer = static_cast<std::ptrdiff_t>(order.size());
    order.insert(order.end(), cut.begin(), cut.end());
    do add_case(order, cut.size()), listed.done();
    while (std::next_permutation(order.begin() + outer, order.end()));
    for (std::size_t i = first; i < free_.size() && chosen.size() < most_; ++i) {
      chosen.push_back(free_[i]);
      list_cases(i + 1, chosen, listed);
      chosen.pop_back();
    }
  }

  void add_case(const Order& order, std::size_t cut) {
    ++tried_;
    if (by_floor_) {
      if (const double floor = floor_of(order, cut); floor < INFINITY)
        cases_.push_back({floor, order, cut});
      return;
    }
    const std::optional<double> bound = bound_of(order, cut);
    if (!bound)
      ++r_.counted["illegal_orders"];
    else if (*bound < INFINITY)
      cases_.push_back({*bound, order, cut});
    else
      ++r_.counted["infeasible"];
  }

  /// None of an illegal case; infinite where nothing fits.
  std::optional<double> bound_of(const Order& order, std::size_t cut) const {
    tilewright::Effort::spend(kOfBound);
    const Flat f(base_, order);
    const Mask multi = cut_of(f, cut);
    if (!conflicts_of(f.chain(), f.loops(), f.loops_at(multi)).empty()) return std::nullopt;
    const Problem p = make_problem(f, t_, rows_in(base_, f), multi);
    return Descent(p, capacity_, INFINITY, false).bound();
  }

  /// bound_of(), but for the order that its factors are multiplied in: in common with cases that
  /// multiply alike and whose trees hold alike.
  std::optional<double> bound_alike(const Order& order, std::size_t cut) {
    tilewright::Effort::spend(kOfAlike);
    const Mask chosen = set_key(order, cut), loops = chosen | always_;
    std::vector<LoopId> all;
    for (std::size_t i = 0; i < base_.size(); ++i)
      if (has(base_.implicit(), i)) all.push_back(base_.loop(i));
    all.insert(all.end(), order.begin(), order.end());
    if (!conflicts_of(base_.chain(), all, loops).empty()) return std::nullopt;
    const Structure s =
        structure_of(base_.chain(), skeleton_of(base_.chain(), all, loops), loops, base_.on_chip());
    for (const auto* masks : {&s.cut, &s.held, &s.live}) {
      key_.push_back(masks->size());
      key_.insert(key_.end(), masks->begin(), masks->end());
    }
    const auto [it, added] = alike_.try_emplace(key_, INFINITY);
    if (added) it->second = bound_of(order, cut).value_or(INFINITY) * kLower;
    return it->second;
  }

  /// The bound of the case without its tree.
  double floor_of(const Order& order, std::size_t cut) {
    set_key(order, cut);
    const auto [it, added] = floors_.try_emplace(key_);
    if (added) {
      const Flat f(base_, order);
      const Problem p = make_relaxed_problem(f, t_, rows_in(base_, f), cut_of(f, cut));
      it->second = Descent(p, capacity_, INFINITY, false).bound() * kLower;
    }
    return it->second;
  }

  /// What a bound without a tree depends on: the loops that are cut, which are returned, and which
  /// of them multiply each use: Flat::multipliers(), here of loops.
  Mask set_key(const Order& order, std::size_t cut) {
    Mask loops = 0;
    for (std::size_t i = order.size() - cut; i < order.size(); ++i) loops |= bit(order[i].index());
    key_.assign(1, loops);
    for (const UseOfLoops& u : uses()) {
      const Mask ends = u.counted & (u.accessed | (u.windows & loops));
      Mask outside = loops;  // cut loops from the outermost to the one that ends reuse
      for (std::size_t i = order.size(); outside != 0 && !has(ends, order[i - 1].index()); --i)
        outside &= ~bit(order[i - 1].index());
      key_.push_back(outside != 0 ? u.counted & (outside | always_) : u.uncut);
    }
    return loops;
  }

  /// A use as masks of loops; `uncut`: what multiplies it where no loop is cut.
  struct UseOfLoops {
    Mask counted, accessed, windows, uncut;
  };
  const std::vector<UseOfLoops>& uses() {
    if (!uses_.empty()) return uses_;
    const Mask multi = base_.implicit() & whole_point(base_).multi;
    always_ = base_.loops_at(multi);
    for (const Use& u : base_.uses()) {
      const Foot& foot = base_.foots()[u.foot];
      uses_.push_back({base_.loops_at(u.counted), base_.loops_at(foot.accessed),
                       base_.loops_at(foot.windows),
                       base_.loops_at(base_.multipliers(u, multi)) & always_});
    }
    return uses_;
  }

  /// The positions of the order's last loops, and of those that always make several trips.
  Mask cut_of(const Flat& f, std::size_t cut) const {
    Mask multi = f.implicit() & whole_point(f).multi;
    for (std::size_t i = f.size() - cut; i < f.size(); ++i) multi |= bit(i);
    return multi;
  }

  void solve(const Order& order, std::size_t cut, double limit) {
    const Flat f(base_, order);
    const std::vector<std::size_t> rows = rows_in(base_, f);
    const Problem p = make_problem(f, t_, rows, cut_of(f, cut));
    Descent descent(p, capacity_, limit, false);
    const bool found = descent.run(kBudget);
    effort_.evaluated += descent.evaluated;
    effort_.pruned += descent.pruned;
    tilewright::Effort::spend(descent.evaluated / kBoxes);
    r_.counted["unproven"] += descent.exhausted() ? 1 : 0;
    if (!found) return;
    Point at = whole_point(f);
    for (std::size_t j = 0; j < p.loops.size(); ++j) {
      const auto choice = static_cast<std::size_t>(descent.choices()[j]);
      const Free& loop = p.loops[j];
      set_choice(at, loop.position,
                 t_.candidates[rows[loop.position]][static_cast<std::size_t>(loop.choice[choice])]);
    }
    std::vector<std::int64_t> df(f.foots().size());
    f.footprints(at, df);
    if (f.memory(f.options().memory, at, df) > capacity_) return;  // a sum of doubles that rounds
    Solution s{.order = order,
               .tiles = tiles_of(f, at),
               .price = price_of(f, at),
               .fits = f.memory(Memory::held, at, df) <= capacity_,
               .proven = !descent.exhausted()};
    s.legality = legality_of(f, at.multi);
    s.order_legality = s.legality;
    best_ = std::min(best_, static_cast<double>(s.price.volume.value));
    r_.ranked.push_back(std::move(s));
  }

  void count() {
    r_.counted["orders"] = tried_;
    r_.counted["evaluated"] = effort_.evaluated;
    r_.counted["pruned"] = effort_.pruned;
    r_.counted["not_enumerated"] = 0;
    r_.counted["illegal_orders"] += 0;
    r_.counted["infeasible"] += 0;
    r_.counted["unproven"] += 0;
    r_.notes.push_back("orders of the loops that are cut; the others are outermost");
    if (most_ < free_.size())
      r_.notes.push_back("at most " + std::to_string(most_ + must_.size()) + " of " +
                         std::to_string(free_.size() + must_.size()) +
                         " loops are cut: with more there are over " + std::to_string(kMostCases) +
                         " orders");
    if (r_.counted["unproven"] > 0)
      r_.notes.push_back("branch and bound stopped at its budget for some orders");
  }

  const Flat base_;
  std::int64_t capacity_;
  Tables t_;
  Order must_, free_, whole_;
  std::size_t most_ = 0;
  double listed_ = 1;  ///< cases of up to most_ loops
  std::int64_t tried_ = 0;
  std::vector<Case> cases_;
  std::vector<Next> heap_;  ///< the cases that by_bound() has not given yet
  bool by_floor_ = false;   ///< list_cases bounds cases by floor_of()
  std::map<std::vector<Mask>, double> floors_, alike_;  ///< what cases have in common
  std::vector<Mask> key_;
  std::vector<UseOfLoops> uses_;
  Mask always_ = 0;  ///< batch loops with several trips, which no order names
  double best_ = INFINITY;
  Effort effort_;
  Search r_;
};

}  // namespace

Result<Search> search_cut_loops(const Workload& w, Elements capacity, const Options& options) {
  return CutSearch(w, capacity, options).run(options.counts);
}

std::optional<BestOfCuts> best_of_cut_loops(const Workload& w, Elements capacity,
                                            const Options& options) {
  return CutSearch(w, capacity, options).best();
}

}  // namespace tilewright::chimera::detail
