// Every order with its best tiles, and the plan that comes of the best.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/error.h"
#include "core/base/progress.h"
#include "core/plan/schedule.h"
#include "models/chimera/solver.h"

namespace tilewright::chimera {
namespace detail {
namespace {

double factorial(std::size_t n) {
  double f = 1;
  for (std::size_t i = 2; i <= n; ++i) f *= static_cast<double>(i);
  return f;
}

}  // namespace

Result<Orders> orders_to_try(const Workload& w, const Options& options) {
  Orders r{all_orders(w)};
  if (!r.orders.empty()) return r;
  const std::vector<LoopId> loops = order_loops(w);
  const Flat f(w, loops, options);
  const Mask whole = f.loops_at(left_whole(f));
  Order fixed, free;
  for (LoopId l : loops) {
    const bool one = has(whole, l.index()) || w.loop(l).extent == 1;
    (one ? fixed : free).push_back(l);
  }
  if (factorial(free.size()) > static_cast<double>(kMostOrders))
    return Reason{std::to_string(free.size()) + " loops may be cut: more than " +
                  std::to_string(kMostOrders) + " orders; name one"};
  do {
    r.orders.push_back(fixed);
    r.orders.back().insert(r.orders.back().end(), free.begin(), free.end());
  } while (std::next_permutation(free.begin(), free.end()));
  r.left_out = factorial(loops.size()) - static_cast<double>(r.orders.size());
  return r;
}

}  // namespace detail

namespace {

using detail::rank;

constexpr std::size_t kFewOrders = 120;  // up to which each order has its own best tiles

}  // namespace

Result<Search> try_search(const Workload& w, Elements capacity, const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto orders = detail::orders_to_try(w, options);
  if (!orders || orders->orders.size() > kFewOrders) {
    Result<Search> found = detail::search_cut_loops(w, capacity, options);
    if (!found) return found;
    Search r = std::move(found).value();
    std::stable_sort(r.ranked.begin(), r.ranked.end(),
                     [](const Solution& a, const Solution& b) { return rank(a) < rank(b); });
    r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return r;
  }
  Search r;
  detail::Effort effort;
  detail::OrdersSolver solver(w, order_loops(w), options, capacity.value);
  Steps steps(static_cast<double>(orders->orders.size()));
  for (const Order& order : orders->orders) {
    Result<Solution> s = solver.solve(order, effort);
    if (!s) {
      s = Solution{.order = order,
                   .order_legality = legality(w, order, {}),
                   .feasible = false,
                   .fits = false,
                   .reason = s.reason()};
    }
    r.counted["illegal_orders"] += s->order_legality.legal ? 0 : 1;
    r.counted["infeasible"] += s->feasible ? 0 : 1;
    r.counted["unproven"] += s->proven ? 0 : 1;
    r.ranked.push_back(std::move(s).value());
    steps.done();
  }
  std::stable_sort(r.ranked.begin(), r.ranked.end(),
                   [](const Solution& a, const Solution& b) { return rank(a) < rank(b); });
  r.counted["orders"] = static_cast<std::int64_t>(r.ranked.size());
  r.counted["evaluated"] = effort.evaluated;
  r.counted["pruned"] = effort.pruned;
  r.counted["not_enumerated"] = static_cast<std::int64_t>(orders->left_out);
  if (orders->left_out > 0)
    r.notes.push_back("only loops that may be cut are permuted; the others are outermost");
  if (r.counted["unproven"] > 0)
    r.notes.push_back("branch and bound stopped at its budget for some orders");
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

namespace {

bool has_in_order(const Order& order, const Order& cut) {
  auto at = order.begin();
  for (LoopId l : cut) {
    at = std::find(at, order.end(), l);
    if (at == order.end()) return false;
  }
  return true;
}

/// Those that have one of the sequences of cut loops.
std::vector<Order> with_cuts(const std::vector<Order>& orders, const std::vector<Order>& cuts) {
  std::vector<Order> some;
  for (const Order& order : orders)
    if (std::ranges::any_of(cuts, [&](const Order& c) { return has_in_order(order, c); }))
      some.push_back(order);
  return some;
}

/// Of a workload with few orders those that may move as little as the best one; else empty.
struct FirstOrder {
  Result<Solution> solution = Reason{""};
  std::vector<Order> as_good = {};
};

/// `why`: where nothing fits all orders are tried for the reason that the ranking gives.
FirstOrder first_order(const Workload& w, Elements capacity, const Options& options,
                       bool why = true) {
  std::optional<detail::BestOfCuts> cuts = detail::best_of_cut_loops(w, capacity, options);
  if (!cuts && !why)
    return {Reason{"does not fit: no order has tiles that " + std::to_string(capacity.value) +
                   " elements hold"}};
  if (!cuts) {
    Result<Search> search = try_search(w, capacity, options);
    if (!search) return {Reason{search.reason()}};
    if (search->ranked.empty()) return {Reason{"no order could be tried"}};
    return {std::move(search->ranked.front())};
  }
  const auto orders = detail::orders_to_try(w, options);
  if (!orders || orders->orders.size() > kFewOrders) return {std::move(cuts->solution)};
  // Orders that differ in loops that are not cut move as much: the ranking has them all.
  FirstOrder first{Reason{""}, with_cuts(orders->orders, cuts->cuts)};
  std::optional<Solution> best;
  double limit = static_cast<double>(cuts->solution.price.volume.value) * (1 + 1e-9);
  detail::Effort effort;
  detail::OrdersSolver solver(w, order_loops(w), options, capacity.value);
  for (const Order& order : first.as_good) {
    if (!solver.reaches(order, limit, effort)) continue;
    Result<Solution> s = solver.solve(order, effort);
    if (!s || !s->feasible || (best && rank(*best) <= rank(*s))) continue;
    best = std::move(s).value();
    limit = static_cast<double>(best->price.volume.value) * (1 + 1e-9);
  }
  first.solution = best ? std::move(*best) : std::move(cuts->solution);
  return first;
}

}  // namespace

Result<Solution> best_order(const Workload& w, Elements capacity, const Options& options) {
  return first_order(w, capacity, options).solution;
}

Search search(const Workload& w, Elements capacity, const Options& options) {
  Result<Search> r = try_search(w, capacity, options);
  if (r) return std::move(r).value();
  Search none;
  none.notes.push_back(r.reason());
  return none;
}

namespace {

/// The level that plans are for, and what of it they may hold.
class Room {
 public:
  Room(const Workload& w, const Machine& m, LevelId level, std::optional<Elements> capacity)
      : workload_(std::make_shared<const Workload>(w)),
        machine_(std::make_shared<const Machine>(m)),
        level_(level),
        capacity_(capacity.value_or(Elements(m.level(level).capacity.value / size_of(w.dtype())))) {
  }

  Elements capacity() const { return capacity_; }
  /// A solution's plan, if its schedule stays within the capacity.
  std::optional<Plan> plan_that_fits(const Options& options, const Solution& s) const {
    Plan plan = plan_of(*workload_, s, *machine_, level_, options);
    const Result<Schedule> schedule = resolve(plan, workload_, machine_);
    if (!schedule) return std::nullopt;
    const auto used = memory_use(*schedule);
    const auto at = used.find(machine_->level(level_).name);
    if (at != used.end() && at->second > bytes_of(capacity_, workload_->dtype()))
      return std::nullopt;
    return plan;
  }
  /// The best of a search whose schedule stays within the capacity.
  std::optional<BestPlan> first_that_fits(const Options& options, Search search) const {
    for (const Solution& s : search.ranked) {
      if (!s.feasible) break;
      std::optional<Plan> plan = plan_that_fits(options, s);
      if (!plan) continue;
      BestPlan best{.plan = std::move(*plan), .solution = s, .capacity = capacity_};
      best.search = std::move(search);
      return best;
    }
    return std::nullopt;
  }
  /// Whether the plans' outer loops are shared among thread blocks.
  bool shared_by_blocks(const Options& options) const {
    return detail::shared_by_blocks(*machine_, level_, options);
  }
  /// Tiles that fill one instance of the level leave few blocks for the others. So the capacity is
  /// halved as long as that may pay. Of all orders' best tiles for these capacities the plan is
  /// taken whose blocks cost least.
  std::optional<BestPlan> best_of_blocks(const Options& options, const Search& all) const {
    const Workload& w = *workload_;
    const std::int64_t instances = machine_->level(level_).instances;
    std::optional<BestPlan> best;
    double least = 0;
    Search search = all;
    for (Elements capacity = capacity_;;) {
      for (const Solution& s : search.ranked) {
        // Ranked by volume, and blocks move no less.
        if (!s.feasible || (best && static_cast<double>(s.price.volume.value) >= least)) break;
        Kernel k{.tree = tree_of(w, s.order, s.tiles), .tiles = tile_table(w, s.order, s.tiles)};
        const detail::Blocks blocks = detail::share(w, s.order, s.tiles, options, instances, k);
        if (best && blocks.cost(instances) >= least) continue;
        std::optional<Plan> plan = plan_that_fits(options, s);
        if (!plan) continue;
        best = {.plan = std::move(*plan), .solution = s, .search = {}, .capacity = capacity_};
        best->blocks = blocks.count;
        best->moved = Elements(std::llround(blocks.elements));
        least = blocks.cost(instances);
      }
      capacity = Elements(capacity.value / 2);
      if (capacity.value < 1) break;
      Result<Search> next = try_search(w, capacity, options);
      if (!next || next->ranked.empty() || !next->ranked.front().feasible) break;
      search = std::move(next).value();
      // Smaller tiles move no less.
      if (best && static_cast<double>(search.ranked.front().price.volume.value) >= least) break;
    }
    if (best) best->search = all;
    return best;
  }

 private:
  // Schedules share both.
  std::shared_ptr<const Workload> workload_;
  std::shared_ptr<const Machine> machine_;
  LevelId level_;
  Elements capacity_;
};

}  // namespace

Result<BestPlan> best_plan(const Workload& w, const Machine& m, LevelId level,
                           const Options& options, std::optional<Elements> capacity) {
  const Room room(w, m, level, capacity);
  const bool blocks = room.shared_by_blocks(options);
  const auto attempt = [&](Memory mode) -> std::optional<BestPlan> {
    Options o = options;
    o.memory = mode;
    Result<Search> s = try_search(w, room.capacity(), o);
    if (!s) return std::nullopt;
    if (blocks) return room.best_of_blocks(o, *s);
    return room.first_that_fits(o, std::move(s).value());
  };
  Result<Search> s = try_search(w, room.capacity(), options);
  if (!s) return Reason{s.reason()};
  const Search as_asked = *s;
  auto best = blocks ? room.best_of_blocks(options, as_asked)
                     : room.first_that_fits(options, std::move(s).value());
  // Orders that the asked-for memory prices too low fall out above, and with them their second-best
  // tiles; those are found with the memory that a schedule truly needs.
  const bool first = best && (blocks || best->solution.order == as_asked.ranked.front().order);
  if (!first && options.memory != Memory::held) {
    for (Memory mode : {Memory::held, Memory::sum}) {
      auto other = attempt(mode);
      if (!other) continue;
      other->tightened = true;
      if (!best || other->solution.price.volume < best->solution.price.volume)
        best = std::move(other);
      break;
    }
  }
  if (best) return std::move(*best);
  if (as_asked.ranked.empty()) return Reason{"no order could be tried"};
  const Solution& top = as_asked.ranked.front();
  return Reason{top.reason.empty()
                    ? "no plan fits " + std::to_string(room.capacity().value) + " elements"
                    : top.reason};
}

namespace {

/// Of few orders those whose best tiles move so many elements, ranked.
std::vector<Solution> solutions_of(Elements volume, const Workload& w, Elements capacity,
                                   const Options& options, const std::vector<Order>& orders) {
  std::vector<Solution> found;
  detail::Effort effort;
  detail::OrdersSolver solver(w, order_loops(w), options, capacity.value);
  const auto exactly = static_cast<double>(volume.value);
  for (const Order& order : orders) {
    if (!solver.reaches(order, exactly * (1 + 1e-9), effort)) continue;
    if (solver.reaches(order, exactly - 0.5, effort)) continue;
    Result<Solution> s = solver.solve(order, effort);
    if (s && s->feasible && s->price.volume == volume) found.push_back(std::move(s).value());
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Solution& a, const Solution& b) { return rank(a) < rank(b); });
  return found;
}

}  // namespace

Result<Solution> best_fit(const Workload& w, const Machine& m, LevelId level,
                          const Options& options, std::optional<Elements> capacity) {
  const Room room(w, m, level, capacity);
  if (room.shared_by_blocks(options)) {
    Result<BestPlan> plan = best_plan(w, m, level, options, room.capacity());
    if (plan) return std::move(plan).value().solution;
    return best_order(w, room.capacity(), options);
  }
  const auto fits = [&](const Solution& s, const Options& o) {
    return room.plan_that_fits(o, s).has_value();
  };
  Result<Solution> first = best_order(w, room.capacity(), options);
  if (!first || !first->feasible || fits(*first, options)) return first;
  Options held = options;
  held.memory = Memory::held;
  FirstOrder other = first_order(w, room.capacity(), held);
  // As best_plan() does it. What is ranked as asked and fits moves no less than `other`, which is
  // the best of what fits: if it moves as much it comes first.
  if (!other.as_good.empty() && options.memory != Memory::held && other.solution->feasible &&
      fits(*other.solution, held)) {
    for (Solution& s :
         solutions_of(other.solution->price.volume, w, room.capacity(), options, other.as_good))
      if (fits(s, options)) return std::move(s);
    return std::move(other.solution);
  }
  Result<BestPlan> plan = best_plan(w, m, level, options, capacity);
  if (!plan) return first;
  return std::move(plan).value().solution;
}

Result<BestPlan> best_plan_alone(const Workload& w, const Machine& m, LevelId level,
                                 const Options& options, std::optional<Elements> capacity) {
  const Room room(w, m, level, capacity);
  // Few orders take no longer to rank.
  const auto orders = detail::orders_to_try(w, options);
  if (room.shared_by_blocks(options) || (orders && orders->orders.size() <= kFewOrders))
    return best_plan(w, m, level, options, capacity);
  Options o = options;
  std::optional<Reason> none;  // no tiles fit, by either count of memory
  for (const Memory mode : {options.memory, Memory::held}) {
    o.memory = mode;
    Result<Solution> s = first_order(w, room.capacity(), o, false).solution;
    if (!s) {
      if (mode == options.memory || none) none = Reason{s.reason()};
      continue;
    }
    none.reset();
    std::optional<Plan> plan = s->feasible ? room.plan_that_fits(o, *s) : std::optional<Plan>();
    if (!plan) continue;
    return BestPlan{.plan = std::move(*plan),
                    .solution = std::move(s).value(),
                    .search = {},
                    .capacity = room.capacity(),
                    .tightened = mode != options.memory};
  }
  // All tiles at once, which best_plan() counts last, hold no less.
  if (none) return *none;
  return best_plan(w, m, level, options, capacity);
}

}  // namespace tilewright::chimera
