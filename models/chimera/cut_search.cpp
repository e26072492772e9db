// The best plans where there are too many orders for each to be solved: sets of loops that are cut,
// each in all its orders.
#include <algorithm>
#include <cmath>

#include "core/base/progress.h"
#include "models/chimera/descent.h"
#include "models/chimera/solver.h"
#include "models/chimera/tables.h"

namespace tilewright::chimera::detail {
namespace {

constexpr std::int64_t kBudget = 200'000;  // boxes a case, before proof is given up
constexpr std::size_t kSolved = 50;        // cases of least bounds, each solved to its own best

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

  Result<Search> run() {
    if (must_.size() > kMostCut)
      return Reason{"more than " + std::to_string(kMostCut) + " loops may be cut"};
    most_ = most_cut();
    Steps halves(2);
    {
      Steps listed(listed_);
      Order chosen;
      list_cases(0, chosen, listed);
    }
    halves.done();
    std::stable_sort(cases_.begin(), cases_.end(),
                     [](const Case& a, const Case& b) { return a.bound < b.bound; });
    Steps solved(kSolved);
    for (std::size_t i = 0; i < cases_.size() && cases_[i].bound <= best_; ++i) {
      solve(cases_[i].order, cases_[i].cut, i < kSolved ? INFINITY : best_);
      solved.done();
    }
    if (r_.ranked.empty()) {  // why not
      Effort effort;
      Result<Solution> s = solve_order(base_, capacity_, effort);
      if (!s) return Reason{s.reason()};
      r_.ranked.push_back(std::move(s).value());
    }
    count();
    return std::move(r_);
  }

 private:
  struct Case {
    double bound = 0;
    Order order;
    std::size_t cut = 0;  ///< of the order's last loops
  };

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
    const Flat f(base_, order);
    const Mask multi = cut_of(f, cut);
    if (!conflicts_of(f.chain(), f.loops(), f.loops_at(multi)).empty()) {
      ++r_.counted["illegal_orders"];
      return;
    }
    const Problem p = make_problem(f, t_, rows_in(base_, f), multi);
    const double bound = Descent(p, capacity_, INFINITY, false).bound();
    if (bound < INFINITY)
      cases_.push_back({bound, order, cut});
    else
      ++r_.counted["infeasible"];
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
  double best_ = INFINITY;
  Effort effort_;
  Search r_;
};

}  // namespace

Result<Search> search_cut_loops(const Workload& w, Elements capacity, const Options& options) {
  return CutSearch(w, capacity, options).run();
}

}  // namespace tilewright::chimera::detail
