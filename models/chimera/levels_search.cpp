// The search over several levels: each level in turn gets what it would like best, the others what
// that leaves them, and then level by level is improved while that helps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "core/base/error.h"
#include "core/base/progress.h"
#include "core/plan/schedule.h"
#include "models/chimera/levels_detail.h"
#include "models/chimera/nest.h"
#include "models/chimera/solver.h"

namespace tilewright::chimera {
namespace {

using detail::Chain;
using detail::Flat;

/// What the plan's schedule needs at each level; a Reason where it is more than there is.
Result<std::map<std::string, Bytes>> true_memory(const Plan& plan, const Workload& w,
                                                 const Machine& m, const LevelsOptions& options) {
  const std::vector<LevelId> levels = chip_levels(m);
  const auto machine = std::make_shared<const Machine>(as_scratchpads(m, levels));
  const auto schedule = resolve(plan, std::make_shared<const Workload>(w), machine);
  if (!schedule) return Reason{schedule.reason()};
  std::map<std::string, Bytes> used = memory_use(*schedule);
  for (LevelId id : levels) {
    const Bytes most = bytes_of(detail::room(w, m, id, options), w.dtype());
    const Bytes needs = used[m.level(id).name];
    if (needs > most)
      return Reason{m.level(id).name + " needs " + std::to_string(needs.value) + " bytes of " +
                    std::to_string(most.value)};
  }
  return used;
}

std::pair<double, double> rank(const LevelsPrice& p, const LevelsOptions& options) {
  return options.objective == Objective::largest ? std::pair(p.largest, p.sum)
                                                 : std::pair(p.sum, p.largest);
}

class LevelsSearch {
 public:
  /// `true_room`: the capacities that a plan's schedule must stay within.
  LevelsSearch(const Workload& w, const Machine& m, const LevelsOptions& options,
               const LevelsOptions& true_room, std::vector<Order> orders)
      : w_(w),
        m_(m),
        chain_(w),
        options_(options),
        true_room_(true_room),
        levels_(chip_levels(m)),
        bandwidth_(bandwidths(m, levels_)),
        orders_(std::move(orders)) {
    for (const Loop& l : w.loops()) whole_.push_back(l.extent);
    const Flat f(w, orders_.front(), options.model);
    const detail::Mask uncut = f.loops_at(detail::left_whole(f));
    for (LoopId l : chain_.order_loops()) {
      if (!detail::has(uncut, l.index())) cuttable_.push_back(l);
      bool everywhere = true;
      for (std::size_t p = 0; p < chain_.size(); ++p)
        everywhere = everywhere && detail::has(chain_.loops_of(p), l.index());
      if (!everywhere && !detail::has(uncut, l.index())) private_.push_back(l);
    }
  }

  /// Nothing where no combination fits.
  std::optional<LevelsPrice> run() {
    Steps steps(static_cast<double>(levels_.size()) * 2 + kRounds + 2);
    for (std::size_t d = 0; d < levels_.size(); ++d)
      for (bool pinned : {false, true}) {
        steps.done();
        const Tiles least = least_private();
        const auto liked = solve(d, nullptr, nullptr, {}, false, pinned ? &least : nullptr);
        std::vector<LevelTiling> t(levels_.size());
        if (liked.empty()) continue;
        t[d] = liked.front();
        build_outward(std::move(t), d, d);
      }
    try_every_outer_tiling();
    steps.done();
    for (int round = 0; best_ && round < kRounds && improve(); ++round) steps.done();
    if (best_) move_tiles();
    return best_;
  }
  const std::map<std::string, Bytes>& memory() const { return memory_; }
  /// Why a plan that the model says fits does not; empty where none was turned down.
  const std::string& turned_down() const { return turned_down_; }

  /// By level: the least cost it could have alone; infinite where nothing fits.
  std::vector<double> alone() {
    std::vector<double> costs;
    for (std::size_t d = 0; d < levels_.size(); ++d) {
      const auto at = liked_.find(d);
      costs.push_back(at == liked_.end() ? INFINITY : at->second);
    }
    return costs;
  }
  detail::Effort effort;
  std::int64_t solves = 0, priced = 0;

 private:
  static constexpr std::size_t kKept = 2, kFew = 256;
  static constexpr int kRounds = 6;

  /// The best tiles of one level, a few, best first: inside the tiles `around`, no smaller than those
  /// `within`, or where `multiples`, multiples of them; below the loops of the levels `outer`, where
  /// those are known; private loops as `pinned` has them.
  std::vector<LevelTiling> solve(std::size_t depth, const Tiles* around, const Tiles* within,
                                 std::span<const LevelTiling> outer, bool multiples,
                                 const Tiles* pinned = nullptr) {
    const Workload block = around != nullptr ? block_of(w_, *around) : w_;
    Options o = outer.empty() ? options_.model
                              : detail::at_level(options_.model, chain_,
                                                 detail::nest_of(chain_, outer), depth);
    if (pinned != nullptr)
      for (LoopId l : private_)
        o.pinned[l] = std::min(block.loop(l).extent, (*pinned)[l.index()]);
    if (within != nullptr)
      for (LoopId l : chain_.order_loops()) {
        const std::int64_t inner = (*within)[l.index()];
        o.min_tiles[l] = std::max(o.min_tile, inner);
        if (multiples) o.multiples[l] = inner;
      }
    const std::int64_t capacity = detail::room(w_, m_, levels_[depth], options_).value;
    std::vector<Solution> found;
    detail::OrdersSolver solver(block, orders_.front(), o, capacity);
    for (const Order& order : orders_) {
      ++solves;
      auto s = solver.solve(order, effort);
      if (s && s->feasible) found.push_back(std::move(s).value());
    }
    std::stable_sort(found.begin(), found.end(), [](const Solution& a, const Solution& b) {
      return std::tuple(a.price.volume, !a.fits, a.price.recomputed, a.price.memory) <
             std::tuple(b.price.volume, !b.fits, b.price.recomputed, b.price.memory);
    });
    if (around == nullptr && within == nullptr && pinned == nullptr && !found.empty())
      liked_[depth] = static_cast<double>(bytes_of(found[0].price.volume, w_.dtype()).value) /
                      bandwidth_[depth];
    std::vector<LevelTiling> kept;
    for (const Solution& s : found) {
      const bool again = std::any_of(kept.begin(), kept.end(),
                                     [&](const LevelTiling& k) { return k.tiles == s.tiles; });
      if (again) continue;
      kept.push_back({levels_[depth], s.order, s.tiles});
      if (kept.size() == kKept) break;
    }
    if (depth + 1 < levels_.size())
      for (LevelTiling& t : kept) t.tiles = detail::grown(Flat(block, t.order, o), t.tiles, capacity, cuttable_);
    return kept;
  }

  /// The levels inside `depth`, one after the other, as blocks of those outside them.
  bool fill_inward(std::vector<LevelTiling>& t, std::size_t depth) {
    for (std::size_t d = depth + 1; d < t.size(); ++d) {
      const auto outer = std::span<const LevelTiling>(t).first(d);
      const auto found = solve(d, &t[d - 1].tiles, nullptr, outer, false);
      if (found.empty()) return false;
      t[d] = found.front();
    }
    return true;
  }

  /// The levels outside `done`, innermost first, each with its private loops free, pinned to the inner
  /// blocks' or, next to the pivot, whole (an intermediate then stays in one place while they turn);
  /// then those inside `pivot`.
  void build_outward(std::vector<LevelTiling> t, std::size_t done, std::size_t pivot) {
    if (done == 0) {
      if (fill_inward(t, pivot)) offer(std::move(t));
      return;
    }
    const Tiles inner = t[done].tiles;
    std::vector<const Tiles*> pins{nullptr, &inner};
    if (done == pivot) pins.push_back(&whole_);
    for (const Tiles* pinned : pins)
      for (bool multiples : {true, false}) {
        const auto found = solve(done - 1, nullptr, &inner, {}, multiples, pinned);
        if (found.empty()) continue;
        t[done - 1] = found.front();
        build_outward(t, done - 1, pivot);
        break;
      }
  }

  /// Where they are few, every tiling of the outermost level, with the best blocks inside it.
  void try_every_outer_tiling() {
    const Flat f(w_, orders_.front(), options_.model);
    const detail::Mask uncut = detail::left_whole(f) | f.implicit();
    std::vector<std::pair<LoopId, std::vector<detail::Candidate>>> loops;
    std::size_t tilings = 1;
    for (std::size_t i = 0; i < f.size() && tilings <= kFew; ++i) {
      if (detail::has(uncut, i)) continue;
      const std::int64_t least = detail::least_tile(options_.model, f.loop(i), f.extent(i));
      loops.emplace_back(f.loop(i), detail::candidates(f.extent(i), least));
      tilings *= loops.back().second.size();
    }
    if (tilings > kFew) return;
    for (std::size_t n = 0; n < tilings; ++n) {
      Tiles tiles = whole_;
      std::size_t rest = n;
      for (const auto& [loop, candidates] : loops) {
        tiles[loop.index()] = candidates[rest % candidates.size()].tile;
        rest /= candidates.size();
      }
      std::vector<LevelTiling> t{
          {levels_[0], orders_.front(), detail::tiles_of(f, f.point(tiles))}};
      if (!detail::choose_orders(w_, m_, t, orders_, options_)) continue;
      t.resize(levels_.size());
      if (fill_inward(t, 0)) offer(std::move(t));
    }
  }

  /// The smallest tiles of loops that some operator has not: what Lagrange's method calls free
  /// variables (section IV-B).
  Tiles least_private() const {
    Tiles t = whole_;
    for (LoopId l : private_)
      t[l.index()] = detail::least_tile(options_.model, l, t[l.index()]);
    return t;
  }

  bool offer(std::vector<LevelTiling> t) {
    return detail::choose_orders(w_, m_, t, orders_, options_) && consider(t);
  }
  /// With these orders: the best so far where its plan truly fits.
  bool consider(const std::vector<LevelTiling>& t) {
    ++priced;
    LevelsPrice p = price_levels(w_, m_, t, options_);
    if (!p.fits || !p.legal || (best_ && rank(p, options_) >= rank(*best_, options_))) return false;
    auto memory = true_memory(plan_of(w_, t, m_, options_.model), w_, m_, true_room_);
    if (!memory) {
      turned_down_ = memory.reason();
      return false;
    }
    memory_ = std::move(memory).value();
    best_ = std::move(p);
    return true;
  }

  /// One tile at a time, of any level, while that is better: what each level's own best tiles leave
  /// the others may be far from what they need. Where the slowest level then is still far from its
  /// best, one of its tiles is halved for another to double.
  void move_tiles() {
    for (bool better = true; better;) {
      better = false;
      for (std::size_t d = levels_.size(); d-- > 0;)
        for (LoopId l : cuttable_) better |= move_tile(d, l);
      if (better) offer(current());
      if (!better && far()) better = trade_tiles(slowest());
    }
  }
  bool move_tile(std::size_t depth, LoopId l) {
    bool better = false;
    for (bool moved = true; moved;) {
      moved = false;
      const std::int64_t now = best_->levels[depth].at.tiles[l.index()];
      const std::int64_t whole = whole_[l.index()], trips = ceil_div(whole, now);
      for (std::int64_t tile : {2 * now, ceil_div(whole, std::max<std::int64_t>(1, trips - 1)), whole,
                                ceil_div(now, 2), ceil_div(whole, trips + 1)}) {
        std::vector<LevelTiling> t = current();
        if (!set_tile(t, depth, l, tile)) continue;
        moved = consider(t) || (far() && offer(t));
        better |= moved;
        if (moved) break;
      }
    }
    return better;
  }
  bool trade_tiles(std::size_t depth) {
    bool better = false;
    for (LoopId up : cuttable_)
      for (LoopId down : cuttable_)
        for (std::int64_t times : {2, 8}) {
          std::vector<LevelTiling> t = current();
          const Tiles now = t[depth].tiles;
          if (up == down ||
              !set_tile(t, depth, down, std::max<std::int64_t>(1, now[down.index()] / times)) ||
              !set_tile(t, depth, up, std::min(whole_[up.index()], times * now[up.index()])))
            continue;
          better |= offer(std::move(t));
        }
    return better;
  }
  /// The levels outside are made to hold it, and those inside to fit in it. False where it is the tile
  /// that there is, or none that may be taken.
  bool set_tile(std::vector<LevelTiling>& t, std::size_t depth, LoopId l, std::int64_t tile) const {
    if (tile == t[depth].tiles[l.index()] || !allowed(l, tile)) return false;
    for (std::size_t d = 0; d < t.size(); ++d) {
      std::int64_t& its = t[d].tiles[l.index()];
      its = d == depth ? tile : d < depth ? std::max(its, tile) : std::min(its, tile);
      t[d].tiles = with_inferred(w_, std::move(t[d].tiles));
    }
    return true;
  }
  std::size_t slowest() const {
    std::size_t most = 0;
    for (std::size_t d = 1; d < best_->levels.size(); ++d)
      if (best_->levels[d].cost > best_->levels[most].cost) most = d;
    return most;
  }
  /// Whether the slowest level is slower than any would be alone: then orders are chosen anew as well.
  bool far() {
    const std::vector<double> each = alone();
    return best_->largest > 1.01 * *std::max_element(each.begin(), each.end());
  }
  bool allowed(LoopId l, std::int64_t tile) const {
    const auto multiple = options_.model.multiples.find(l);
    return tile <= whole_[l.index()] &&
           tile >= detail::least_tile(options_.model, l, whole_[l.index()]) &&
           !options_.model.pinned.contains(l) &&
           (multiple == options_.model.multiples.end() || tile == whole_[l.index()] ||
            tile % multiple->second == 0);
  }

  std::vector<LevelTiling> current() const {
    std::vector<LevelTiling> t;
    for (const LevelPrice& p : best_->levels) t.push_back(p.at);
    return t;
  }

  /// Each level once more between its neighbours, alone and with the levels inside it anew.
  bool improve() {
    bool better = false;
    for (std::size_t d = 0; d < levels_.size(); ++d) {
      const std::vector<LevelTiling> t = current();
      const Tiles* around = d > 0 ? &t[d - 1].tiles : nullptr;
      const Tiles* within = d + 1 < t.size() ? &t[d + 1].tiles : nullptr;
      const auto outer = std::span<const LevelTiling>(t).first(d);
      for (bool multiples : {true, false}) {
        if (multiples && within == nullptr) continue;
        for (const LevelTiling& one : solve(d, around, within, outer, multiples)) {
          std::vector<LevelTiling> changed = t;
          changed[d] = one;
          better |= offer(changed);
        }
      }
      if (within == nullptr || around == nullptr) continue;
      for (const LevelTiling& one : solve(d, around, nullptr, outer, false)) {
        std::vector<LevelTiling> changed = t;
        changed[d] = one;
        if (fill_inward(changed, d)) better |= offer(changed);
      }
    }
    return better;
  }

  const Workload& w_;
  const Machine& m_;
  Chain chain_;
  const LevelsOptions &options_, &true_room_;
  std::vector<LevelId> levels_;
  std::vector<double> bandwidth_;
  std::vector<Order> orders_;
  Tiles whole_;
  std::vector<LoopId> cuttable_;
  std::vector<LoopId> private_;  ///< loops that may be cut and that some operator has not
  std::map<std::size_t, double> liked_;
  std::optional<LevelsPrice> best_;
  std::map<std::string, Bytes> memory_;  ///< of best_'s plan
  std::string turned_down_;
};

struct Attempt {
  std::optional<LevelsPlan> found;
  std::string why;           ///< not found
  bool turned_down = false;  ///< a plan that the model says fits does not
};

/// `truly`: as the user asked.
Attempt attempt(const Workload& w, const Machine& m, const LevelsOptions& options,
                const std::vector<Order>& orders, const LevelsOptions& truly) {
  LevelsSearch search(w, m, options, truly, orders);
  const auto price = search.run();
  Attempt a{.turned_down = !search.turned_down().empty()};
  if (!price) {
    a.why = a.turned_down ? search.turned_down() : "no tiles fit every level";
    return a;
  }
  std::vector<LevelTiling> tilings;
  for (const LevelPrice& p : price->levels) tilings.push_back(p.at);
  a.found = LevelsPlan{.plan = plan_of(w, tilings, m, options.model),
                       .price = price_levels(w, m, tilings, truly),
                       .memory = search.memory(),
                       .alone = search.alone()};
  a.found->counted = {{"solves", search.solves},
                      {"priced", search.priced},
                      {"evaluated", search.effort.evaluated},
                      {"pruned", search.effort.pruned}};
  return a;
}

}  // namespace

Result<LevelsPlan> best_levels(const Workload& w, const Machine& m, const LevelsOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Result<detail::Orders> all = detail::orders_to_try(w, options.model);
  const Result<std::vector<Order>> orders = distinct_orders(w, options.model, true);
  if (!orders) return Reason{orders.reason()};
  Attempt asked = attempt(w, m, options, *orders, options);
  std::optional<LevelsPlan> found = std::move(asked.found);
  if (asked.turned_down) {
    LevelsOptions held = options;
    held.model.memory = Memory::held;
    std::optional<LevelsPlan> other = attempt(w, m, held, *orders, options).found;
    if (other && (!found || rank(other->price, options) < rank(found->price, options))) {
      found = std::move(other);
      found->tightened = true;
    }
  }
  // What the asked-for memory prices too low does not fit; all tiles at once, of a little less than
  // the capacity, do.
  LevelsOptions tight = options;
  tight.model.memory = Memory::sum;
  for (int percent = 100; !found && percent >= 70; percent -= 15) {
    for (LevelId id : chip_levels(m))
      tight.capacities[id] = Elements(detail::room(w, m, id, options).value * percent / 100);
    found = attempt(w, m, tight, *orders, options).found;
    if (found) found->tightened = true;
  }
  if (!found) return Reason{asked.why};
  found->counted["orders"] = static_cast<std::int64_t>(all->orders.size());
  found->counted["distinct_orders"] = static_cast<std::int64_t>(orders->size());
  found->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::move(*found);
}

}  // namespace tilewright::chimera
