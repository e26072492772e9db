#include "models/quickest/fewest.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <numeric>
#include <random>
#include <set>

#include "core/plan/names.h"
#include "models/exact/exact.h"
#include "models/quickest/nests.h"
#include "models/quickest/signature.h"

namespace tilewright::quickest {
namespace {

constexpr std::int64_t kMostNodes = 20'000;  ///< of a count: no tree is worth more
constexpr std::int64_t kNodesOfTree = 2000;  ///< a tree of more counts as several
constexpr std::size_t kMostOuter = 5;        ///< loops around all operators
constexpr int kChanged = 4;                  ///< random changes at most from which a descent begins

/// Of a tree that does not fit what it holds, else what it moves: less is better.
struct Worth {
  bool fits = false;
  std::int64_t bytes = 0, held = 0;
  bool better_than(const Worth& other) const {
    if (fits != other.fits) return fits;
    if (fits && bytes != other.bytes) return bytes < other.bytes;
    return held < other.held;
  }
};

class Search {
 public:
  Search(const Question& q, const Workload& w, int effort, Candidates& seen)
      : candidates_(seen),
        w_(std::make_shared<const Workload>(w)),
        level_(q.machine->level(q.planned_level()).name),
        room_(q.room_at(q.planned_level())),
        left_(effort),
        bounds_(*w_) {
    alone_ = std::make_shared<const Machine>(as_scratchpad(*q.machine, q.planned_level()));
    boundary_ = boundary_into(*alone_, *alone_->find(level_));
    for (std::size_t l = 0; l < w.loops().size(); ++l)
      if (w.loops()[l].extent > 1) loops_.emplace_back(l);
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      const TensorId id(t);
      if (!w.producer(id).valid() || w.is_output(id)) edges_.push_back(id);
    }
    least_ = w.compulsory_bytes().value;
  }

  std::optional<Kernel> run() {
    std::vector<Nests> begun = beginnings();
    for (const Nests& t : begun) descend(t);
    std::minstd_rand draw(1);
    const auto pick = [&draw](std::size_t n) { return static_cast<std::size_t>(draw() % n); };
    while (!done() && best_) {
      // From the best tree, or now and then from where the search began.
      Nests t = pick(4) == 0 ? begun[pick(begun.size())] : best_->first;
      for (std::size_t n = 1 + pick(kChanged); n > 0; --n) {
        std::vector<Nests> all = neighbours(t);
        if (!all.empty()) t = std::move(all[pick(all.size())]);
      }
      if (!descend(t)) --left_;  // it may be known already
    }
    if (!best_ || !best_->second.fits) return std::nullopt;
    return kernel_of(best_->first, *w_, level_);
  }

 private:
  bool done() const {
    return left_ <= 0 || (best_ && best_->second.fits && best_->second.bytes <= least_);
  }
  std::int64_t extent(LoopId l) const { return w_->loop(l).extent; }
  bool has(const Cuts& cuts, LoopId l) const {
    return std::ranges::any_of(cuts, [&](const Cut& c) { return c.loop == l; });
  }
  bool iterates(const Run& run, LoopId l) const {
    return std::ranges::any_of(run.ops, [&](OpId op) {
      return std::ranges::find(w_->op(op).loops, l) != w_->op(op).loops.end();
    });
  }

  // ---- trees
  // --------------------------------------------------------------------------------------

  /// Loops of the last operator's output, then all loops that any operator does not sum over.
  std::vector<Nests> beginnings() const {
    Nests bare;
    for (OpId op : w_->topological_order()) {
      Run run{{op}, {}};
      for (LoopId l : w_->op(op).loops)
        if (extent(l) > 1) run.nest.push_back({l, 1});
      bare.runs.push_back(std::move(run));
    }
    std::vector<LoopId> common;
    for (LoopId l : loops_)
      if (std::ranges::none_of(w_->topological_order(),
                               [&](OpId op) { return w_->is_reduction(op, l); }))
        common.push_back(l);
    std::vector<Nests> all;
    // Whole tensors, rows of them, and points.
    for (const std::size_t count :
         {common.size(), common.empty() ? 0 : common.size() - 1, std::size_t{1}, std::size_t{0}}) {
      if (count > std::min(common.size(), kMostOuter)) continue;
      Nests t = bare;
      for (std::size_t i = 0; i < count; ++i) t.outer.push_back({common[i], 1});
      for (Run& run : t.runs)
        std::erase_if(run.nest, [&](const Cut& c) { return has(t.outer, c.loop); });
      all.push_back(std::move(t));
    }
    Nests joined = bare;
    for (std::size_t i = 1; i < bare.runs.size(); ++i) {
      joined.runs[0].ops.push_back(bare.runs[i].ops[0]);
      for (const Cut& c : bare.runs[i].nest)
        if (!has(joined.runs[0].nest, c.loop)) joined.runs[0].nest.push_back(c);
    }
    joined.runs.resize(1);
    if (bare.runs.size() > 1) all.push_back(std::move(joined));
    Nests whole = bare;
    for (Run& run : whole.runs) run.nest.clear();
    all.push_back(std::move(whole));
    return all;
  }

  /// Steps of a loop that differ in their number of trips; of long ones some.
  const std::vector<std::int64_t>& steps_of(LoopId l) {
    std::vector<std::int64_t>& steps = steps_[l];
    if (!steps.empty()) return steps;
    constexpr std::int64_t kAll = 48;
    std::set<std::int64_t> all;
    const std::int64_t n = extent(l);
    for (std::int64_t pieces = 1; pieces <= std::min(n, kAll); ++pieces)
      all.insert(ceil_div(n, pieces));
    for (std::int64_t step = 1; step < n; step = std::max(step + 1, step * 5 / 4))
      all.insert(ceil_div(n, ceil_div(n, step)));
    return steps = {all.begin(), all.end()};
  }

  /// The same cuts with one changed, added, left out, or changed for the next; as long as they are
  /// taken. False: no more are.
  bool change(const Cuts& cuts, const std::vector<LoopId>& loops, std::size_t most,
              const std::function<bool(Cuts)>& take) {
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const auto& steps = steps_of(cuts[i].loop);
      const auto at =
          static_cast<std::size_t>(std::ranges::lower_bound(steps, cuts[i].step) - steps.begin());
      std::set<std::size_t> near = {0, steps.size() - 1, at + 1, at + 2, at + 4, at + 8};
      for (const std::size_t less : {1, 2, 4, 8})
        if (at >= less) near.insert(at - less);
      if (steps.size() <= 8)
        for (std::size_t n = 0; n < steps.size(); ++n) near.insert(n);
      for (const std::size_t n : near) {
        if (n >= steps.size() || n == at) continue;
        Cuts other = cuts;
        other[i].step = steps[n];
        if (!take(std::move(other))) return false;
      }
      Cuts less = cuts;
      less.erase(less.begin() + static_cast<long>(i));
      if (!take(std::move(less))) return false;
      for (std::size_t j = i + 1; j < cuts.size(); ++j) {
        Cuts turned = cuts;
        std::swap(turned[i], turned[j]);
        if (!take(std::move(turned))) return false;
      }
    }
    if (cuts.size() >= most) return true;
    for (LoopId l : loops) {
      if (has(cuts, l)) continue;
      for (std::size_t at = 0; at <= cuts.size(); ++at)
        for (const std::int64_t step : std::set<std::int64_t>{1, ceil_div(extent(l), 2)}) {
          Cuts more = cuts;
          more.insert(more.begin() + static_cast<long>(at), {l, step});
          if (!take(std::move(more))) return false;
        }
    }
    return true;
  }

  std::vector<Nests> neighbours(const Nests& t) {
    std::vector<Nests> all;
    each_neighbour(t, [&](Nests other) {
      all.push_back(std::move(other));
      return true;
    });
    return all;
  }

  /// Trees that differ in one thing, as long as they are taken.
  void each_neighbour(const Nests& t, const std::function<bool(Nests)>& take) {
    const bool outer = change(t.outer, loops_, kMostOuter, [&](Cuts cuts) {
      Nests other = t;
      other.outer = std::move(cuts);
      return take(std::move(other));
    });
    if (!outer) return;
    for (std::size_t r = 0; r < t.runs.size(); ++r) {
      std::vector<LoopId> own;
      for (LoopId l : loops_)
        if (iterates(t.runs[r], l)) own.push_back(l);
      const bool nest = change(t.runs[r].nest, own, own.size(), [&](Cuts cuts) {
        Nests other = t;
        other.runs[r].nest = std::move(cuts);
        return take(std::move(other));
      });
      if (!nest) return;
    }
    for (TensorId id : edges_) {
      Nests other = t;
      if (other.kept.erase(id) == 0) other.kept.insert(id);
      if (!take(std::move(other))) return;
    }
    for (std::size_t r = 0; r + 1 < t.runs.size(); ++r)
      for (const bool first : {true, false}) {  // whose nest both get
        Nests joined = t;
        Run& run = joined.runs[r];
        if (!first) run.nest = joined.runs[r + 1].nest;
        run.ops.insert(run.ops.end(), t.runs[r + 1].ops.begin(), t.runs[r + 1].ops.end());
        joined.runs.erase(joined.runs.begin() + static_cast<long>(r) + 1);
        if (!take(std::move(joined))) return;
      }
    for (std::size_t r = 0; r < t.runs.size(); ++r)
      for (std::size_t cut = 1; cut < t.runs[r].ops.size(); ++cut) {
        Nests parted = t;
        Run rest = t.runs[r];
        parted.runs[r].ops.resize(cut);
        rest.ops.erase(rest.ops.begin(), rest.ops.begin() + static_cast<long>(cut));
        for (Run* run : {&parted.runs[r], &rest})
          std::erase_if(run->nest, [&](const Cut& c) { return !iterates(*run, c.loop); });
        parted.runs.insert(parted.runs.begin() + static_cast<long>(r) + 1, std::move(rest));
        if (!take(std::move(parted))) return;
      }
    // A loop of every nest goes around all of them.
    for (LoopId l : loops_) {
      if (has(t.outer, l) || t.outer.size() >= kMostOuter) continue;
      if (std::ranges::none_of(t.runs, [&](const Run& run) { return has(run.nest, l); })) continue;
      Nests moved = t;
      for (Run& run : moved.runs)
        std::erase_if(run.nest, [&](const Cut& c) { return c.loop == l; });
      moved.outer.push_back({l, 1});
      if (!take(std::move(moved))) return;
    }
  }

  // ---- search
  // -------------------------------------------------------------------------------------

  /// A tree, and what it is worth at most: what it moves and holds at least.
  struct Fresh {
    Nests tree;
    Kernel kernel;
    Worth most;
    bool moves_it = false, holds_it = false;  ///< exactly, where it is legal
  };
  /// Nothing where the tree was seen before.
  std::optional<Fresh> fresh(Nests t) {
    Kernel k = kernel_of(t, *w_, level_);
    if (!seen_.insert(to_text(k.tree)).second) return std::nullopt;
    --left_;
    ++candidates_.generated;
    const Bounds::Least moved = bounds_.moved(t), held = bounds_.held(t);
    const Worth most{.fits = held.bytes <= room_.value, .bytes = moved.bytes, .held = held.bytes};
    return Fresh{std::move(t), std::move(k), most, moved.exact, held.exact};
  }

  /// What the tree is worth; nothing where it is illegal or takes too long to count. Nothing is
  /// said of what it holds where it moves more than one that fits.
  std::optional<Worth> worth(Fresh& tree, const Worth& than = {}) {
    const std::optional<Worth> its = counted(tree, than);
    candidates_.priced += its ? 1 : 0;
    return its;
  }

  std::optional<Worth> counted(Fresh& tree, const Worth& than) {
    try {
      const Result<Schedule> s = resolve({.kernels = {std::move(tree.kernel)}}, w_, alone_);
      if (!s) return std::nullopt;
      Worth its = tree.most;
      if (!tree.moves_it) {
        ExactCost spent;
        const Traffic traffic = exact_moved(*s, &spent, kMostNodes);
        left_ -= static_cast<int>(spent.nodes / kNodesOfTree);
        if (traffic.entries.empty()) return std::nullopt;
        const TrafficEntry all = traffic.total(boundary_);
        its.bytes = (all.read + all.written).value;
      }
      if ((than.fits && its.bytes > than.bytes) || tree.holds_it) return its;
      const auto memory = memory_use(*s);
      const auto held = memory.find(level_);
      if (held == memory.end()) return std::nullopt;
      its.fits = held->second <= room_;
      its.held = held->second.value;
      return its;
    } catch (const InputError&) {
      return std::nullopt;  // no tree of this workload
    }
  }

  /// To the best neighbour, as long as one is better. Whether the tree was new and legal.
  bool descend(const Nests& from) {
    if (done()) return false;
    std::optional<Fresh> begun = fresh(from);
    if (!begun) return false;
    const auto its = worth(*begun);
    if (!its) return false;
    std::pair<Nests, Worth> now = {std::move(begun->tree), *its};
    note(now);
    while (!done()) {
      auto next = best_neighbour(now.first, now.second);
      if (!next) break;
      now = *std::move(next);
      note(now);
    }
    return true;
  }

  /// The best that is better, of equal ones the first. Those that may be best by their bounds are
  /// counted first, so that most others need not be.
  std::optional<std::pair<Nests, Worth>> best_neighbour(const Nests& t, const Worth& now) {
    std::vector<Fresh> all;
    const int effort = left_;
    each_neighbour(t, [&](Nests other) {
      if (done()) return false;
      if (auto its = fresh(std::move(other)); its && its->most.better_than(now))
        all.push_back(*std::move(its));
      return true;
    });
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(
        order, [&](std::size_t a, std::size_t b) { return all[a].most.better_than(all[b].most); });
    std::optional<std::size_t> best;
    Worth its = now;
    const int then = left_;
    const auto wins = [&](const Worth& other, std::size_t at) {
      return other.better_than(its) || (best && at < *best && !its.better_than(other));
    };
    for (const std::size_t at : order) {
      if (then - left_ >= effort) break;  // counting alone has taken what there was
      if (!wins(all[at].most, at)) continue;
      if (const auto counted = worth(all[at], its); counted && wins(*counted, at))
        best = at, its = *counted;
    }
    if (!best) return std::nullopt;
    return std::pair{std::move(all[*best].tree), its};
  }

  void note(const std::pair<Nests, Worth>& t) {
    if (!best_ || t.second.better_than(best_->second)) best_ = t;
  }

  Candidates& candidates_;
  std::shared_ptr<const Workload> w_;
  std::string level_;
  Bytes room_;
  std::shared_ptr<const Machine> alone_;  ///< the level under home, nothing else
  std::string boundary_;
  std::vector<LoopId> loops_;    ///< of more than one iteration
  std::vector<TensorId> edges_;  ///< inputs and outputs
  std::int64_t least_ = 0;
  int left_;
  std::map<LoopId, std::vector<std::int64_t>> steps_;
  Bounds bounds_;
  std::set<std::string> seen_;
  std::optional<std::pair<Nests, Worth>> best_;
};

/// What a search has found; its mutex is held while it searches.
struct Found {
  std::mutex mutex;
  std::shared_ptr<const Workload> workload;  ///< null: nothing was searched yet
  std::optional<Kernel> kernel;
  Candidates seen;
};

/// Searches of one level of one machine, by signature and effort.
struct Searches {
  Machine machine;
  LevelId level;
  Bytes room;
  std::map<std::pair<std::string, int>, std::shared_ptr<Found>> found;
};

constexpr std::size_t kMachines = 8, kSearches = 4096;

std::shared_ptr<Found> found_of(const Question& q, const Workload& w, int effort) {
  static std::mutex mutex;
  static std::list<Searches> all;
  std::pair key(signature(w, true), effort);
  const LevelId level = q.planned_level();
  const Bytes room = q.room_at(level);
  const std::lock_guard lock(mutex);
  auto at = std::ranges::find_if(all, [&](const Searches& s) {
    return s.level == level && s.room == room && s.machine == *q.machine;
  });
  if (at == all.end()) {
    if (all.size() == kMachines) all.pop_front();
    at = all.insert(all.end(), {.machine = *q.machine, .level = level, .room = room, .found = {}});
  }
  if (at->found.size() == kSearches && !at->found.contains(key)) at->found.clear();
  std::shared_ptr<Found>& found = at->found[std::move(key)];
  if (found == nullptr) found = std::make_shared<Found>();
  return found;
}

}  // namespace

std::optional<Kernel> fewest_bytes(const Question& q, const Workload& w, int effort,
                                   Candidates& seen) {
  const std::shared_ptr<Found> found = found_of(q, w, effort);
  const std::lock_guard lock(found->mutex);
  if (found->workload == nullptr) {
    Candidates own;
    found->kernel = Search(q, w, effort, own).run();
    found->seen = own;
    found->workload = std::make_shared<const Workload>(w);
  }
  seen.generated += found->seen.generated;
  seen.priced += found->seen.priced;
  if (!found->kernel) return std::nullopt;
  return Names(*found->workload, w).rename(*found->kernel);
}

}  // namespace tilewright::quickest
