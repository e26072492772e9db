// Every candidate of the pruned space, and how many there are.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/progress.h"
#include "models/flashfuser/flashfuser.h"

namespace tilewright::flashfuser {
namespace {

std::vector<LoopSchedule> legal_schedules() {
  std::vector<LoopSchedule> out = all_schedules();
  std::erase_if(out, [](const auto& s) { return !reduces_first(s) || !loops_over_n(s); });
  return out;
}

/// Tile sizes in every combination, m slowest, whose accumulators fit the registers.
std::vector<Tiles> tile_tuples(const Chain& c, const Device& d, const Options& o) {
  std::vector<Tiles> out;
  const double room = static_cast<double>(d.registers.value) * o.registers;
  ByRole<std::vector<std::int64_t>> sizes;
  for (Role r : {kM, kJ, kK, kN}) sizes[r] = tiles_of(c.extent(r), o);
  const auto firsts = static_cast<std::int64_t>(c.first.size());
  for (std::int64_t m : sizes[kM])
    for (std::int64_t j : sizes[kJ])
      for (auto k = sizes[kK].rbegin(); k != sizes[kK].rend(); ++k)  // on ties fewer steps
        for (std::int64_t n : sizes[kN])
          if (room == 0 || static_cast<double>(4 * m * (firsts * j + n)) <= room)
            out.push_back({m, j, *k, n});
  return out;
}

bool better(const Ranked& a, const Ranked& b) {
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  return a.sum < b.sum;
}

/// The best so far, in order; an equal one comes after those that were there.
class Best {
 public:
  explicit Best(std::size_t keep) : keep_(keep) {}
  void offer(const Candidate& one, const Price& p) {
    const double sum = p.global_s + p.dsm_s + p.shared_s;
    Ranked ranked{{}, p.seconds, sum};
    if (list_.size() == keep_ && !better(ranked, list_.back())) return;
    ranked.candidate = one;
    list_.insert(std::ranges::upper_bound(list_, ranked, better), std::move(ranked));
    if (list_.size() > keep_) list_.pop_back();
  }
  std::vector<Ranked> take() { return std::move(list_); }

 private:
  std::size_t keep_;
  std::vector<Ranked> list_;
};

bool spills(const Price& p) { return p.joint == Place::global || p.partial == Place::global; }

template <class F>
void for_each_candidate(const Chain& c, const Device& d, const Options& o, ClusterRule rule,
                        F&& f) {
  const std::vector<Tiles> tuples = tile_tuples(c, d, o);
  const std::vector<Cluster> shapes = clusters(rule, o.cluster);
  const std::vector<LoopSchedule> schedules = legal_schedules();
  Steps steps(static_cast<double>(schedules.size() * shapes.size()));
  Candidate one;
  for (const LoopSchedule& s : schedules) {
    one.schedule = s;
    for (const Cluster& shape : shapes) {
      one.cluster = shape;
      for (const Tiles& tiles : tuples) {
        one.tiles = tiles;
        f(one);
      }
      steps.done();
    }
  }
}

}  // namespace

Found search(const Chain& c, const Device& d, const Options& o, std::size_t keep) {
  const auto start = std::chrono::steady_clock::now();
  Found out;
  Best held(keep), spilled(keep);
  for_each_candidate(c, d, o, ClusterRule::whole, [&](const Candidate& one) {
    ++out.priced;
    const auto p = price(c, d, o, one);
    if (!p) return;
    if (spills(*p)) return spilled.offer(one, *p);
    ++out.feasible;
    held.offer(one, *p);
  });
  out.best = held.take();
  if (out.best.empty()) {
    out.best = spilled.take();
    out.spills = true;
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::vector<Count> funnel_of(const Chain& c, const Device& d, const Options& o) {
  double original = 1, tiles = 1;
  for (Role r : {kM, kJ, kK, kN}) {
    original *= std::ceil(static_cast<double>(c.extent(r)) / static_cast<double>(o.tile_step));
    tiles *= static_cast<double>(tiles_of(c.extent(r), o).size());
  }
  double sizes = 0;
  for (std::int64_t size = 1; size <= o.cluster; size *= 2) ++sizes;
  const auto schedules = all_schedules();
  const auto third = static_cast<double>(std::ranges::count_if(schedules, reduces_first));
  const auto all = static_cast<double>(schedules.size());
  const auto fourth = static_cast<double>(legal_schedules().size());
  const auto shapes = [&](ClusterRule r) {
    return static_cast<double>(clusters(r, o.cluster).size());
  };
  const double whole = shapes(ClusterRule::whole), counted = shapes(ClusterRule::counted);
  double fifth = 0;
  for_each_candidate(c, d, o, ClusterRule::whole, [&](const Candidate& one) {
    const auto p = price(c, d, o, one);
    fifth += p && !spills(*p) ? 1 : 0;
  });
  const double shape4 = std::pow(sizes, 4);
  return {{"original", all * shape4 * original, 2.75e13, all * shape4 * original},
          {"rule 1: tiles divide", all * shape4 * tiles, 1.14e8, all * shape4 * tiles},
          {"rule 2: cluster", all * whole * tiles, 2.47e7, all * counted * tiles},
          {"rule 3: k innermost", third * whole * tiles, 1.44e7, third * counted * tiles},
          {"rule 4: n not spatial", fourth * whole * tiles, 9.62e6, fourth * counted * tiles},
          {"rule 5: memory", fifth, 1.15e6, {}}};
}

}  // namespace tilewright::flashfuser
