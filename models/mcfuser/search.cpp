// The exhaustive search and the paper's evolutionary one (section IV-B, Algorithm 1).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "core/base/format.h"
#include "core/base/progress.h"
#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<Pricer> pricers_of(const Chain& c, const std::vector<const Class*>& classes,
                               const Device& d, const Options& o) {
  std::vector<Pricer> out;
  for (const Class* k : classes) out.emplace_back(c, k->sub, d, o);
  return out;
}

/// The `keep` best so far, by time, then the larger tiles (the more shared memory), then the order
/// of their coming.
class Best {
 public:
  explicit Best(std::size_t keep) : keep_(keep) {}
  bool wants(double seconds) const {
    return heap_.size() < keep_ || seconds <= heap_.front().seconds;
  }
  void offer(const Class* group, const Tiles& tiles, double seconds, std::int64_t memory) {
    if (!wants(seconds)) return;
    heap_.push_back({seconds, memory, next_++, group, tiles});
    std::ranges::push_heap(heap_, before);
    if (heap_.size() <= keep_) return;
    std::ranges::pop_heap(heap_, before);
    heap_.pop_back();
  }
  std::vector<Candidate> take() {
    std::ranges::sort(heap_, before);
    std::vector<Candidate> out;
    for (Entry& e : heap_) out.push_back({e.group, std::move(e.tiles), e.seconds});
    return out;
  }

 private:
  struct Entry {
    double seconds;
    std::int64_t memory, order;
    const Class* group;
    Tiles tiles;
  };
  static bool before(const Entry& a, const Entry& b) {
    return std::tie(a.seconds, b.memory, a.order) < std::tie(b.seconds, a.memory, b.order);
  }
  std::size_t keep_;
  std::int64_t next_ = 0;
  std::vector<Entry> heap_;
};

Reason nothing_left(const Device& d) {
  return Reason{
      formatted("the rules leave no candidate: no tiles whose estimate is within the slack "
                "of {} bytes of shared memory",
                d.shared.value)};
}

/// Algorithm 1's population.
class Population {
 public:
  Population(const Chain& c, const Space& s, const Device& d, const Options& o, std::uint64_t seed)
      : c_(c),
        s_(s),
        d_(d),
        o_(o),
        rng_(seed),
        classes_(s.kept()),
        pricers_(pricers_of(c, classes_, d, o)) {}

  struct Member {
    std::size_t group = 0;
    Tiles tiles;
    double seconds = 0;
    std::int64_t memory = 0;  ///< of all its tiles
  };

  /// Random candidates that rule 4 lets through; false where none were met.
  bool start(std::int64_t n) {
    constexpr std::int64_t kTries = 4096;
    for (std::int64_t i = 0; i < n; ++i) {
      Member m{.group = draw(classes_.size()), .tiles = Tiles(c_.workload->loops().size(), 1)};
      bool fits = false;
      for (std::int64_t t = 0; t < kTries && !fits; ++t) {
        for (std::size_t k = 0; k < c_.dims.size(); ++k) redraw(m.tiles, k);
        fits = detail::fits_roughly(c_, d_, o_, m.tiles);
      }
      if (!fits) smallest(m.tiles);
      if (!fits && !detail::fits_roughly(c_, d_, o_, m.tiles)) return false;
      members_.push_back(std::move(m));
    }
    return true;
  }

  /// Estimates and sorts, the larger tiles first where times are the same.
  std::int64_t estimate() {
    for (Member& m : members_) {
      m.seconds = pricers_[m.group].quick(m.tiles).seconds;
      m.memory = shared_memory(c_, d_, Shared::all, m.tiles);
    }
    std::ranges::stable_sort(members_, [](const Member& a, const Member& b) {
      return std::tie(a.seconds, b.memory) < std::tie(b.seconds, a.memory);
    });
    return static_cast<std::int64_t>(members_.size());
  }

  /// Draws as many as there are, each with weight 1 / t, and changes one loop's tile in each.
  void mutate() {
    std::vector<double> weights;
    for (const Member& m : members_) weights.push_back(1 / m.seconds);
    std::discrete_distribution<std::size_t> by_weight(weights.begin(), weights.end());
    std::vector<Member> next;
    constexpr int kTries = 32;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Member& parent = members_[by_weight(rng_)];
      Member child = parent;
      for (int t = 0; t < kTries; ++t) {
        child.tiles = parent.tiles;
        redraw(child.tiles, draw(c_.dims.size()));
        if (detail::fits_roughly(c_, d_, o_, child.tiles)) break;
        child.tiles = parent.tiles;
      }
      next.push_back(std::move(child));
    }
    members_ = std::move(next);
  }

  const std::vector<Member>& members() const { return members_; }
  Candidate candidate(const Member& m) const { return {classes_[m.group], m.tiles, m.seconds}; }

 private:
  std::size_t draw(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(rng_);
  }
  void redraw(Tiles& tiles, std::size_t dim) {
    const auto& sizes = s_.kept_sizes[dim];
    tiles[c_.dims[dim].index()] = sizes[draw(sizes.size())];
  }
  void smallest(Tiles& tiles) const {
    for (std::size_t k = 0; k < c_.dims.size(); ++k)
      tiles[c_.dims[k].index()] = s_.kept_sizes[k].front();
  }

  const Chain& c_;
  const Space& s_;
  const Device& d_;
  const Options& o_;
  std::mt19937_64 rng_;
  std::vector<const Class*> classes_;
  std::vector<Pricer> pricers_;
  std::vector<Member> members_;
};

}  // namespace

Result<Found> search_all(const Chain& c, const Space& s, const Device& d, const Options& o,
                         std::size_t keep) {
  const auto start = Clock::now();
  const std::vector<const Class*> classes = s.kept();
  constexpr std::int64_t kMostCandidates = std::int64_t{1} << 30;
  if (s.counts.back().candidates > kMostCandidates)
    return Reason{
        formatted("{} candidates are too many to try all; --search evolutionary samples "
                  "them",
                  s.counts.back().candidates)};
  std::vector<Pricer> pricers = pricers_of(c, classes, d, o);
  Best best(keep);
  Found found;
  detail::for_each_tuple(c, s, [&](const Tiles& tiles) {
    if (!detail::fits_roughly(c, d, o, tiles)) return;
    for (std::size_t i = 0; i < classes.size(); ++i) {
      const double seconds = pricers[i].quick(tiles).seconds;
      ++found.evaluated;
      if (best.wants(seconds))
        best.offer(classes[i], tiles, seconds, shared_memory(c, d, Shared::all, tiles));
    }
  });
  found.best = best.take();
  found.seconds = since(start);
  if (found.best.empty()) return nothing_left(d);
  return found;
}

Result<Found> evolve(const Chain& c, const Space& s, const Device& d, const Options& o,
                     const Evolution& e) {
  const auto start = Clock::now();
  Population population(c, s, d, o, e.seed);
  if (s.kept().empty() || !population.start(e.population)) return nothing_left(d);
  Found found;
  Candidate answer;  // what the algorithm returns
  double best = std::numeric_limits<double>::infinity();
  std::int64_t close = 0;
  using Key = std::pair<const Class*, Tiles>;
  std::map<Key, double> measured;
  Steps steps(static_cast<double>(e.generations));
  for (; found.generations < e.generations; steps.done()) {
    ++found.generations;
    found.evaluated += population.estimate();
    // The n best of the population, none twice.
    std::set<Key> round;
    Candidate top1;
    double top1_seconds = std::numeric_limits<double>::infinity();
    for (const Population::Member& m : population.members()) {
      if (static_cast<std::int64_t>(round.size()) == e.top) break;
      Candidate candidate = population.candidate(m);
      const Key key(candidate.group, candidate.tiles);
      if (!round.insert(key).second) continue;
      const auto [at, fresh] = measured.emplace(key, 0);
      if (fresh) {
        at->second = e.measure ? e.measure(candidate) : candidate.seconds;
        ++found.measured;
      }
      candidate.seconds = at->second;
      if (candidate.seconds < 0 || candidate.seconds >= top1_seconds) continue;
      top1_seconds = candidate.seconds;
      top1 = std::move(candidate);
    }
    found.rounds.push_back({found.evaluated, top1_seconds, std::min(best, top1_seconds)});
    if (top1.group != nullptr) {
      close = std::abs(top1_seconds - best) < e.epsilon * best ? close + 1 : 0;
      if (close >= e.patience) {
        if (!e.guard || top1_seconds < best) answer = top1;
        break;
      }
      if (top1_seconds < best) {
        answer = top1;
        best = top1_seconds;
      }
    }
    population.mutate();
  }
  if (answer.group == nullptr) return Reason{"no candidate that was measured runs"};
  // The answer first, then the others that were measured, best first.
  for (const auto& [key, seconds] : measured)
    if (seconds >= 0 && key != Key(answer.group, answer.tiles))
      found.best.push_back({key.first, key.second, seconds});
  std::ranges::stable_sort(found.best, {}, &Candidate::seconds);
  found.best.insert(found.best.begin(), answer);
  found.seconds = since(start);
  return found;
}

}  // namespace tilewright::mcfuser
