// The best integer tiles for one order: branch and bound over trip counts. For each set of loops
// that make several trips the tree, and so the memory, is fixed; what is left is a sum of products
// of one factor a loop, under sums of such products.
#include "models/chimera/solver.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "core/base/error.h"
#include "models/chimera/descent.h"
#include "models/chimera/tables.h"

namespace tilewright::chimera::detail {
namespace {

constexpr std::int64_t kBudget = 1'000'000;  // boxes an order, before proof is given up

/// What a search of a set of cut loops came to. The point that it finds first of those of least
/// volume does not depend on the limit, as long as that is no less than this volume.
struct Searched {
  bool found = false;
  double volume = 0;        ///< the least, or where nothing was found, there is nothing up to this
  std::vector<int> choice;  ///< indices into Tables::candidates, by loop
};

/// What orders of the same loops have in common, each by all that it depends on, as masks of loops
/// and tensors. All of the same tables and capacity.
struct Common {
  /// Lower bounds of subproblems without the order's tree: by the loops that are cut, and of each
  /// use the cut loops that multiply it.
  std::map<std::vector<Mask>, double> floors;
  /// The same with the tree: by the cut loops of each tensor that lie around its home, and the
  /// tensors that are alive together, too.
  std::map<std::vector<Mask>, double> bounds;
  /// By position in the tables; nothing where there is none.
  std::map<std::vector<Mask>, std::optional<RealOptimum>> optima;
  /// What was found for a set of loops that are cut, as `bounds` has them, and the loops that are
  /// left to choose, by position in the tables, in the order in which they are searched.
  std::map<std::vector<Mask>, Searched> searched;
};

class OrderSolver {
 public:
  /// `t` is of `base`, which has the same loops; `common` is of the same tables and capacity.
  OrderSolver(const Flat& f, const Flat& base, const Tables& t, Common& common,
              std::int64_t capacity, Effort& effort)
      : f_(f),
        capacity_(capacity),
        effort_(effort),
        t_(t),
        rows_(rows_in(base, f)),
        common_(common) {
    for (std::size_t i = 0; i < f.size(); ++i)
      if (of(i).size() > 1) {
        cuttable_ |= bit(i);
        if (f.options().pinned.contains(f.loop(i))) must_cut_ |= bit(i);
      }
  }

  Result<Solution> solve() {
    if (std::popcount(cuttable_) > static_cast<int>(kMostCut))
      return Reason{"more than " + std::to_string(kMostCut) + " loops may be cut"};
    if (must_cut_ == 0) seed();
    search(true);
    if (!best_) search(false);
    if (!best_) return Reason{why_nothing()};
    return finish();
  }

  bool reaches(double limit) {
    if (std::popcount(cuttable_) > static_cast<int>(kMostCut)) return true;
    limit_ = limit;
    search(true);
    return best_.has_value() || !proven_;
  }

 private:
  struct Found {
    Point point;
    double volume = 0;
    std::int64_t memory = 0;
    bool legal = true, fits = true;
  };
  /// Of a set of loops that are cut.
  struct Sub {
    double bound = 0;    ///< the floor, or the tree's
    std::size_t at = 0;  ///< among sets of equal bounds the first is tried first
    Mask multi = 0;
    bool of_tree = false;
    std::optional<Problem> problem = {};
    friend bool operator>(const Sub& a, const Sub& b) {
      return std::tie(a.bound, a.at) > std::tie(b.bound, b.at);
    }
  };

  const std::vector<Candidate>& of(std::size_t position) const {
    return t_.candidates[rows_[position]];
  }
  bool legal(Mask multi) const {
    return conflicts_of(f_.chain(), f_.loops(), f_.loops_at(multi)).empty();
  }
  /// Valid until the next call.
  std::span<const std::int64_t> footprints(const Point& p) {
    feet_.resize(f_.foots().size());
    f_.footprints(p, feet_);
    return feet_;
  }
  double volume_of(const Point& p) {
    const auto df = footprints(p);
    double v = 0;
    for (const Use& u : f_.uses()) v += u.weight * static_cast<double>(f_.movement(u, p, df));
    return v;
  }

  void seed();
  void try_neighbours(const RealOptimum& r);
  void try_closed_form();
  std::vector<Mask>& key_of(Mask multi, Mask counted);
  Searched searched(Sub& sub, std::span<const std::size_t> open, double limit,
                    std::int64_t& budget);
  void add_tree(std::vector<Mask>& key, Mask multi) const;
  std::optional<RealOptimum> optimum();
  double floor_of(Mask multi);
  double tree_bound(Sub& sub);
  std::vector<Sub> sets_to_try(bool legal_only);
  void search(bool legal_only);
  bool offer(const Point& p, double volume, bool legal);
  std::string why_nothing();
  Solution finish();

  const Flat& f_;
  std::int64_t capacity_;
  Effort& effort_;
  const Tables& t_;
  std::vector<std::size_t> rows_;
  Common& common_;
  std::vector<Mask> key_;
  std::vector<std::int64_t> feet_;
  Mask cuttable_ = 0, must_cut_ = 0;
  std::optional<Found> best_;
  double real_volume_ = 0;
  bool proven_ = true;
  double closed_volume_ = INFINITY;
  double limit_ = INFINITY;  ///< what moves more is not looked for
};

/// Takes a point that fits, if it is better: less volume, then a plan that fits, then less memory.
bool OrderSolver::offer(const Point& p, double volume, bool legal) {
  if (best_ && best_->volume < volume) return false;
  const auto df = footprints(p);
  const Found now{p, volume, f_.memory(f_.options().memory, p, df), legal,
                  f_.memory(Memory::held, p, df) <= capacity_};
  if (now.memory > capacity_) return false;
  if (best_ && best_->volume == volume &&
      std::pair(!now.fits, now.memory) >= std::pair(!best_->fits, best_->memory))
    return false;
  best_ = now;
  return true;
}

void OrderSolver::seed() {
  if (const auto real = optimum()) {
    real_volume_ = real->volume;
    try_neighbours(*real);
  }
  try_closed_form();
}

void OrderSolver::try_neighbours(const RealOptimum& r) {
  std::vector<std::size_t> open;
  std::vector<std::size_t> below(f_.size(), 0);
  Point p = whole_point(f_);
  for (std::size_t i = 0; i < f_.size(); ++i) {
    const std::vector<Candidate>& c = of(i);
    while (below[i] + 1 < c.size() &&
           static_cast<double>(c[below[i] + 1].tile) <= r.tile[i] * (1 + 1e-6))
      ++below[i];
    set_choice(p, i, c[below[i]]);
    if (below[i] + 1 < c.size() && open.size() < 6) open.push_back(i);
  }
  for (std::size_t up = 0; up < std::size_t{1} << open.size(); ++up) {
    for (std::size_t b = 0; b < open.size(); ++b)
      set_choice(p, open[b], of(open[b])[below[open[b]] + (up >> b & 1)]);
    ++effort_.evaluated;
    const double volume = volume_of(p);
    if ((!best_ || volume < best_->volume) && legal(p.multi)) offer(p, volume, true);
  }
}

void OrderSolver::try_closed_form() {
  if (!f_.options().min_tiles.empty() || !f_.options().multiples.empty()) return;
  const auto closed =
      closed_form(f_.workload(), f_.order(), Elements(capacity_), f_.options().min_tile);
  if (!closed) return;
  const Point p = f_.point(closed->tiles);
  for (std::size_t i = 0; i < f_.size(); ++i)
    if (p.tile[i] < of(i).front().tile) return;
  closed_volume_ = volume_of(p);
  if (legal(p.multi)) offer(p, closed_volume_, true);
}

/// The cut loops, and of each use those of `counted` that multiply it.
std::vector<Mask>& OrderSolver::key_of(Mask multi, Mask counted) {
  key_.assign(1, f_.loops_at(multi));
  for (const Use& u : f_.uses()) key_.push_back(f_.loops_at(f_.multipliers(u, multi) & counted));
  return key_;
}

/// What a tree adds to the memory that a problem has.
void OrderSolver::add_tree(std::vector<Mask>& key, Mask multi) const {
  const Structure& s = f_.structure(multi);
  each(f_.on_chip(), [&](std::size_t t) {
    const Foot& foot = f_.foots()[f_.producer_foot(TensorId(t))];
    key.push_back(f_.loops_at(s.cut[t] & multi & (foot.accessed | foot.windows)));
  });
  const std::vector<Mask>& alive = f_.options().memory == Memory::held ? s.held : s.live;
  key.insert(key.end(), alive.begin(), alive.end());
}

std::optional<RealOptimum> OrderSolver::optimum() {
  Mask all = 0;
  for (std::size_t i = 0; i < f_.size(); ++i) all |= bit(i);
  std::vector<Mask>& key = key_of(all, all);
  add_tree(key, all);
  const auto [it, added] = common_.optima.try_emplace(key);
  std::optional<RealOptimum>& kept = it->second;
  if (added) {
    kept = real_optimum(f_, capacity_);
    if (!kept) return std::nullopt;
    const std::vector<double> tile = kept->tile;
    for (std::size_t i = 0; i < f_.size(); ++i) kept->tile[rows_[i]] = tile[i];
  }
  std::optional<RealOptimum> mine = kept;
  for (std::size_t i = 0; mine && i < f_.size(); ++i) mine->tile[i] = kept->tile[rows_[i]];
  return mine;
}

constexpr double kLower = 1 - 1e-9;  // another order multiplies the same factors in another order

double OrderSolver::floor_of(Mask multi) {
  const auto [it, added] = common_.floors.try_emplace(key_of(multi, multi));
  if (added)
    it->second =
        Descent(make_relaxed_problem(f_, t_, rows_, multi), capacity_, INFINITY, false).bound() *
        kLower;
  return it->second;
}

double OrderSolver::tree_bound(Sub& sub) {
  std::vector<Mask>& key = key_of(sub.multi, sub.multi);
  if (f_.options().memory != Memory::paper) add_tree(key, sub.multi);
  const auto [it, added] = common_.bounds.try_emplace(key);
  if (added) {
    sub.problem = make_problem(f_, t_, rows_, sub.multi);
    it->second = Descent(*sub.problem, capacity_, INFINITY, false).bound() * kLower;
  }
  return it->second;
}

/// The sets that may be tried, by their floors.
std::vector<OrderSolver::Sub> OrderSolver::sets_to_try(bool legal_only) {
  std::vector<Sub> subs;
  const Mask always = f_.implicit() & whole_point(f_).multi;
  for (Mask cut = cuttable_;; cut = (cut - 1) & cuttable_) {
    const Mask multi = cut | always;
    // A floor is known already, mostly, where there is a limit: it costs less than legality.
    const bool may =
        (cut & must_cut_) == must_cut_ && (limit_ == INFINITY || floor_of(multi) <= limit_);
    if (may && (!legal_only || legal(multi)))
      subs.push_back({.bound = floor_of(multi), .at = subs.size(), .multi = multi});
    if (cut == 0) break;
  }
  return subs;
}

/// The best choices of a set of cut loops for no more than `limit`, of this order or of an earlier
/// one with the same problem. `open`: its loops that are left to choose.
Searched OrderSolver::searched(Sub& sub, std::span<const std::size_t> open, double limit,
                               std::int64_t& budget) {
  std::vector<Mask>& key = key_of(sub.multi, sub.multi);
  if (f_.options().memory != Memory::paper) add_tree(key, sub.multi);
  for (std::size_t position : open) key.push_back(rows_[position]);
  const auto [it, added] = common_.searched.try_emplace(key);
  Searched& kept = it->second;
  if (!added && (kept.found || limit <= kept.volume)) return kept;
  if (!sub.problem) sub.problem = make_problem(f_, t_, rows_, sub.multi);
  Descent descent(*sub.problem, capacity_, limit, false);
  kept = {.found = descent.run(budget), .volume = limit};
  budget -= descent.evaluated + descent.pruned;
  effort_.evaluated += descent.evaluated;
  effort_.pruned += descent.pruned;
  proven_ = proven_ && !descent.exhausted();
  if (kept.found) kept.volume = descent.volume();
  for (std::size_t j = 0; kept.found && j < sub.problem->loops.size(); ++j)
    kept.choice.push_back(
        sub.problem->loops[j].choice[static_cast<std::size_t>(descent.choices()[j])]);
  const Searched result = kept;
  if (descent.exhausted()) common_.searched.erase(it);  // another order has a budget of its own
  return result;
}

/// Sets in the order of their bounds. A set's own tree is looked at only when its floor is the
/// least that is left: its bound takes the floor's place then.
void OrderSolver::search(bool legal_only) {
  std::int64_t budget = kBudget;
  std::vector<Sub> subs = sets_to_try(legal_only);
  std::ranges::make_heap(subs, std::greater{});
  while (!subs.empty()) {
    const double limit = best_ ? best_->volume : limit_;
    if (subs.front().bound == INFINITY || subs.front().bound > limit) break;
    std::ranges::pop_heap(subs, std::greater{});
    Sub sub = std::move(subs.back());
    subs.pop_back();
    if (!sub.of_tree) {
      sub.bound = tree_bound(sub);
      sub.of_tree = true;
      subs.push_back(std::move(sub));
      std::ranges::push_heap(subs, std::greater{});
      continue;
    }
    const std::vector<std::size_t> open = free_loops(f_, t_, rows_, sub.multi);
    const Searched s = searched(sub, open, limit, budget);
    if (!s.found || s.volume > limit) continue;
    Point p = whole_point(f_);
    for (std::size_t j = 0; j < open.size(); ++j)
      set_choice(p, open[j], of(open[j])[static_cast<std::size_t>(s.choice[j])]);
    offer(p, s.volume, legal_only);
  }
  effort_.pruned += static_cast<std::int64_t>(subs.size());
}

std::string OrderSolver::why_nothing() {
  Point p = whole_point(f_);
  for (std::size_t i = 0; i < f_.size(); ++i) set_choice(p, i, of(i).front());
  const std::int64_t need = f_.memory(f_.options().memory, p, footprints(p));
  return "does not fit: the smallest tiles need " + std::to_string(need) + " elements, there are " +
         std::to_string(capacity_);
}

Solution OrderSolver::finish() {
  Solution s{.order = f_.order(),
             .tiles = tiles_of(f_, best_->point),
             .price = price_of(f_, best_->point),
             .feasible = best_->legal,
             .fits = best_->fits,
             .closed_form = best_->volume == closed_volume_,
             .proven = proven_,
             .real_volume = real_volume_};
  s.legality = legality_of(f_, best_->point.multi);
  s.order_legality = legality_of(f_, cuttable_);
  if (!s.feasible) s.reason = s.legality.reason;
  return s;
}

}  // namespace

Result<Solution> solve_order(const Flat& f, std::int64_t capacity, Effort& effort) {
  Common common;
  return OrderSolver(f, f, make_tables(f), common, capacity, effort).solve();
}

struct OrdersSolver::Shared {
  Flat base;
  std::int64_t capacity;
  Tables tables = make_tables(base);
  Common common = {};
};

OrdersSolver::OrdersSolver(const Workload& w, const Order& first, const Options& options,
                           std::int64_t capacity)
    : shared_(new Shared{Flat(w, first, options), capacity}) {}
OrdersSolver::~OrdersSolver() = default;

Result<Solution> OrdersSolver::solve(const Order& order, Effort& effort) {
  Shared& s = *shared_;
  return OrderSolver(Flat(s.base, order), s.base, s.tables, s.common, s.capacity, effort).solve();
}

bool OrdersSolver::reaches(const Order& order, double limit, Effort& effort) {
  Shared& s = *shared_;
  return OrderSolver(Flat(s.base, order), s.base, s.tables, s.common, s.capacity, effort)
      .reaches(limit);
}

}  // namespace tilewright::chimera::detail

namespace tilewright::chimera {

Result<Solution> solve(const Workload& w, const Order& order, Elements capacity,
                       const Options& options) {
  detail::Effort effort;
  return detail::solve_order(detail::Flat(w, order, options), capacity.value, effort);
}

}  // namespace tilewright::chimera
