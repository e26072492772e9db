// What `cached` says of one plan beside a walk that tells every touch's kind, and how long it
// takes.
//
//   build/cached-kinds kinds MACHINE LAYOUT PLAN   a line for each kind of touches that is off
//   build/cached-kinds times < LIST                a line for each "MACHINE LAYOUT PLAN":
//   milliseconds, and
//                                                  the traffic, as JSON
//
// A kind is an access of a compute and the loop that carries the reuse of its lines. LAYOUT is
// tiled or row-major. Times are the processor's, of the count alone, the schedule being there: the
// least of three runs.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/lowering/inside_tiles.h"
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/plan/schedule.h"
#include "models/cached/cached.h"
#include "models/cached/nest.h"
#include "models/cached/outcome.h"
#include "models/cached/window.h"

namespace tilewright {
namespace {

/// Plain LRU levels, as the simulator's, which say of each touch where it was found.
class Caches {
 public:
  explicit Caches(const Machine& m) {
    for (std::size_t l = m.levels.size(); l-- > 1;) {
      const Level& level = m.levels[l];
      if (level.managed != Managed::hardware) continue;
      const std::int64_t lines = level.capacity.value / level.line.value;
      const std::int64_t ways = level.ways == 0 ? lines : level.ways;
      levels_.push_back(
          {ways, std::vector<std::vector<Line>>(static_cast<std::size_t>(lines / ways))});
      line_ = level.line.value;
    }
  }
  std::int64_t line() const { return line_; }
  std::size_t size() const { return levels_.size(); }
  std::vector<cached::CacheLevel> levels() const {
    std::vector<cached::CacheLevel> all;
    for (const Sets& l : levels_)
      all.push_back(
          {.line = line_, .sets = static_cast<std::int64_t>(l.sets.size()), .ways = l.ways});
    return all;
  }
  /// Levels that missed.
  std::size_t touch(std::int64_t line, bool write) { return touch(0, line, write, true); }

 private:
  struct Line {
    std::int64_t number;
    bool dirty;
  };
  struct Sets {
    std::int64_t ways;
    std::vector<std::vector<Line>> sets;
  };

  std::size_t touch(std::size_t at, std::int64_t number, bool write, bool fills) {
    if (at == levels_.size()) return 0;
    auto& set = levels_[at].sets[static_cast<std::size_t>(number) % levels_[at].sets.size()];
    const auto found = std::ranges::find(set, number, &Line::number);
    if (found != set.end()) {
      found->dirty = found->dirty || write;
      std::rotate(set.begin(), found, found + 1);
      return 0;
    }
    const std::size_t further = fills ? touch(at + 1, number, false, true) : 0;
    set.insert(set.begin(), {number, write});
    if (static_cast<std::int64_t>(set.size()) > levels_[at].ways) {
      const Line victim = set.back();
      set.pop_back();
      if (victim.dirty) touch(at + 1, victim.number, true, false);
    }
    return further + 1;
  }

  std::vector<Sets> levels_;
  std::int64_t line_ = 64;
};

struct Kind {
  int leaf = 0;
  std::size_t use = 0, depth = 0;
  auto operator<=>(const Kind&) const = default;
};
struct Seen {
  double touches = 0;
  std::vector<double> misses = {};
  double judged = 0;  ///< misses in the innermost cache, each touch looked into as samples are
};

class Walk {
 public:
  Walk(const Schedule& s, Layout layout)
      : inside_(with_loops_inside(s)),
        s_(inside_ ? *inside_ : s),
        nest_(s_, AddressMap(s, layout)),
        map_(s, layout),
        caches_(*s.machine),
        judge_(nest_, caches_.levels()) {}

  std::map<Kind, Seen> run() {
    cached::Path path;
    nest_.begin(path);
    for (const int c : nest_.node(0).children) go(path, c);
    return std::move(seen_);
  }
  const cached::Nest& nest() const { return nest_; }
  std::int64_t unseen() const { return unseen_; }

 private:
  void go(cached::Path& path, int node) {
    const bool loop = nest_.node(node).kind == NodeKind::loop;
    const std::int64_t count = loop ? nest_.trips_of(node, path.back()) : 1;
    for (std::int64_t i = 0; i < count; ++i) {
      nest_.enter(path, node, i);
      if (loop) at_.push_back(i);
      if (nest_.node(node).kind == NodeKind::compute)
        for (std::size_t u = 0; u < nest_.node(node).uses.size(); ++u) use(path, node, u);
      for (const int c : nest_.node(node).children) go(path, c);
      if (loop) at_.pop_back();
      path.cut(path.size() - 1);
    }
  }

  void use(const cached::Path& path, int node, std::size_t u) {
    const cached::Use& use = nest_.node(node).uses[u];
    const cached::Array& array = nest_.array(use.array);
    const Box box = use.reach.box(path.back().ranges);
    if (box.empty()) return;
    list_spots(path, u);
    const auto run = [&](std::int64_t address, std::int64_t bytes) {
      const std::int64_t first = address / caches_.line();
      const std::int64_t last = (address + bytes - 1) / caches_.line();
      for (std::int64_t line = first; line <= last; ++line) touch(path, u, line);
    };
    if (array.packed)
      map_.packed_runs(nest_.node(node).kernel, use.tile, nest_.tile(path, use), box, run);
    else
      map_.runs(array.tensor, box, run);
  }

  /// The lines of the use as the model sees them.
  void list_spots(const cached::Path& path, std::size_t u) {
    spots_.clear();
    nest_.once(path, u, [&](const cached::Use& use, const cached::Piece& piece) {
      const cached::Array& array = nest_.array(use.array);
      const std::int64_t line = caches_.line();
      std::vector<std::pair<std::int64_t, std::int64_t>> rows;
      const cached::Rows all = cached::rows_of(array, piece, line);
      list_rows(all, line, rows);
      std::array<double, kMaxRank> where{};
      const cached::Piece merged = cached::merged(array, piece, line);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        auto rest = static_cast<std::int64_t>(r);
        for (int d = merged.dims - 2; d >= 0; --d) {
          const std::int64_t n = merged.count(d);
          where[static_cast<std::size_t>(d)] =
              (static_cast<double>(rest % n) + 0.5) / static_cast<double>(n);
          rest /= n;
        }
        const auto [first, last] = rows[r];
        for (std::int64_t l = first; l < last; ++l) {
          where[static_cast<std::size_t>(merged.dims - 1)] =
              (static_cast<double>(l - first) + 0.5) / static_cast<double>(last - first);
          spots_.emplace(l, spot(array, use.array, piece, line, where));
        }
      }
      return false;
    });
  }

  void touch(const cached::Path& path, std::size_t u, std::int64_t line) {
    const int node = path.back().node;
    const bool write = nest_.node(node).uses[u].write;
    auto& before = last_[{node, u}][line];
    std::size_t depth = 0;
    if (!before.empty()) {
      while (depth < at_.size() && before[depth] == at_[depth]) ++depth;
      ++depth;  // of the loop that differs; one past all: the same execution
    }
    const bool again = !before.empty() && depth > at_.size();
    before = at_;
    if (before.empty()) before = {-1};  // no loop around
    const std::size_t missed = caches_.touch(line, write);
    Seen& s = seen_[{node, u, again ? at_.size() : depth}];
    s.misses.resize(caches_.size());
    if (!again) {
      ++s.touches;
      const auto x = spots_.find(line);
      now_ = path;
      now_.use = u;
      if (x == spots_.end() || x->second.address != line * caches_.line())
        ++unseen_;
      else if (judge_.of(now_, x->second).miss[0])
        ++s.judged;
    }
    for (std::size_t v = 0; v < missed; ++v) ++s.misses[v];
  }

  std::optional<Schedule> inside_;
  const Schedule& s_;
  cached::Nest nest_;
  AddressMap map_;
  Caches caches_;
  cached::Judge judge_;
  cached::Path now_;
  std::unordered_map<std::int64_t, cached::Spot> spots_;
  std::int64_t unseen_ = 0;  ///< touches that the model knows nothing of
  std::vector<std::int64_t> at_;
  std::map<std::pair<int, std::size_t>, std::unordered_map<std::int64_t, std::vector<std::int64_t>>>
      last_;
  std::map<Kind, Seen> seen_;
};

struct Asked {
  std::unique_ptr<Schedule> schedule;
  Layout layout;
};

Asked asked(const std::string& machine, const std::string& layout, const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  PlanFile file = plan_file_from_yaml(text.str(), path);
  auto s = resolve(file.plan, std::make_shared<const Workload>(std::move(file.workload)),
                   std::make_shared<const Machine>(named_machine(machine)));
  if (!s) throw InputError({.field = path, .problem = s.reason(), .accepted = "a legal plan"});
  return {std::make_unique<Schedule>(std::move(*s)),
          layout == "tiled" ? Layout::tiled : Layout::row_major};
}

double processor_milliseconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

void times(std::int64_t most_steps) {
  std::string machine, layout, path;
  while (std::cin >> machine >> layout >> path) {
    const Asked a = asked(machine, layout, path);
    double least = 1e9;
    CachedCost cost;
    nlohmann::ordered_json said;
    for (int i = 0; i < 3; ++i) {
      const double begin = processor_milliseconds();
      const auto traffic = cached_traffic(*a.schedule, a.layout, &cost, most_steps);
      least = std::min(least, processor_milliseconds() - begin);
      if (traffic) said = to_json(*traffic);
    }
    said["ms"] = least;
    said["kinds"] = cost.strata;
    said["samples"] = cost.samples;
    said["walked"] = cost.walked;
    std::printf("%s\n", said.dump().c_str());
  }
}

void kinds(const std::string& machine, const std::string& layout, const std::string& path) {
  const Asked a = asked(machine, layout, path);
  CachedCost cost;
  const auto traffic = cached_traffic(*a.schedule, a.layout, &cost, 0);
  if (!traffic)
    throw InputError({.field = path, .problem = traffic.reason(), .accepted = "a plan"});
  Walk walk(*a.schedule, a.layout);
  std::map<Kind, Seen> truth = walk.run();
  struct Row {
    Kind kind;
    Seen truth, said;
    std::int64_t samples = 0;
    double off = 0;
  };
  std::vector<Row> rows;
  double all = 0;
  const std::size_t levels = truth.begin()->second.misses.size();
  for (const CachedKind& k : cost.kinds) {
    Row& r = rows.emplace_back(Row{.kind = {k.compute, k.use, k.depth}, .samples = k.samples});
    r.said.touches = k.touches;
    for (const double share : k.misses) r.said.misses.push_back(k.touches * share);
    r.said.misses.resize(levels);
  }
  for (const auto& [kind, seen] : truth) {
    all += seen.misses[0];
    auto at = std::ranges::find(rows, kind, &Row::kind);
    if (at == rows.end()) {
      rows.push_back({.kind = kind});
      at = rows.end() - 1;
      at->said.misses.resize(levels);
    }
    at->truth = seen;
  }
  for (Row& r : rows) {
    r.truth.misses.resize(levels);
    r.off = r.said.misses[0] - r.truth.misses[0];
  }
  std::ranges::sort(rows,
                    [](const Row& x, const Row& y) { return std::abs(x.off) > std::abs(y.off); });
  std::printf("%lld touches of lines that the model does not have\n",
              static_cast<long long>(walk.unseen()));
  std::printf(
      "%-10s %-8s use depth | touches said, true | L1 misses said, judged, true | off | next level "
      "said, "
      "true | samples\n",
      "operator", "tensor");
  for (const Row& r : rows) {
    const cached::NestNode& n = walk.nest().node(r.kind.leaf);
    const std::string op =
        n.id.valid()
            ? a.schedule->workload
                  ->op(a.schedule->kernels[static_cast<std::size_t>(n.kernel)].node(n.id).op)
                  .name
            : "zero";
    const std::size_t outer = levels > 1 ? 1 : 0;
    std::printf(
        "%-10s %-8s %3zu%s %4zu | %10.0f %10.0f | %10.1f %8.0f %8.0f | %+6.2f%% | %9.1f %9.0f | "
        "%lld\n",
        op.c_str(),
        a.schedule->workload->tensor(walk.nest().array(n.uses[r.kind.use].array).tensor)
            .name.c_str(),
        r.kind.use, n.uses[r.kind.use].write ? "w" : " ", r.kind.depth, r.said.touches,
        r.truth.touches, r.said.misses[0], r.truth.judged, r.truth.misses[0], 100 * r.off / all,
        r.said.misses[outer], r.truth.misses[outer], static_cast<long long>(r.samples));
  }
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "kinds")
      return tilewright::kinds(words[1], words[2], words[3]), 0;
    if (!words.empty() && words.size() <= 2 && words[0] == "times")
      return tilewright::times(words.size() == 2 ? std::stoll(words[1]) : tilewright::kCachedSteps),
             0;
    std::fprintf(stderr, "accepted: kinds MACHINE LAYOUT PLAN, or times\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  return 2;
}
