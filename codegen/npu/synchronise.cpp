#include "codegen/npu/synchronise.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace tilewright::npu {
namespace {

/// By pipe: the last of its steps that is known to be done.
using Clock = std::array<std::int64_t, kPipes>;

Clock nothing_done() {
  Clock c;
  c.fill(-1);
  return c;
}

void join_into(Clock& c, const Clock& other) {
  for (std::size_t p = 0; p < c.size(); ++p) c[p] = std::max(c[p], other[p]);
}

using PipePair = std::pair<Pipe, Pipe>;

/// What one walk over the steps finds: flags by step, before and after it.
class Synchroniser {
 public:
  explicit Synchroniser(std::int64_t events) : events_(static_cast<std::size_t>(events)) {
    known_.fill(nothing_done());
  }

  void collect(std::vector<TraceNode>& nodes) {
    for (TraceNode& n : nodes) {
      if (!n.is_loop()) {
        visit(n.step);
        continue;
      }
      for (auto& iteration : n.iterations) collect(iteration);
    }
  }

  /// The same steps with their flags.
  void insert(std::vector<TraceNode>& nodes) {
    std::vector<TraceNode> all;
    all.reserve(nodes.size());
    for (TraceNode& n : nodes) {
      if (n.is_loop()) {
        for (auto& iteration : n.iterations) insert(iteration);
        all.push_back(std::move(n));
        continue;
      }
      const std::size_t at = next_++;
      for (Instruction& i : before_[at]) all.push_back({.step = {.instruction = std::move(i)}});
      all.push_back(std::move(n));
      for (Instruction& i : after_[at]) all.push_back({.step = {.instruction = std::move(i)}});
    }
    nodes = std::move(all);
  }

  SyncCounts counts;

 private:
  void visit(const TraceStep& step) {
    const auto at = static_cast<std::int64_t>(clocks_.size());
    before_.emplace_back();
    after_.emplace_back();
    wait_for(step, at);
    Clock now = known_[index(step.pipe)];
    now[index(step.pipe)] = at;
    known_[index(step.pipe)] = now;
    clocks_.push_back(now);
    last_[index(step.pipe)] = at;
    for (const TraceTouch& t : step.touches) accesses_.add(at, step.pipe, t);
  }

  static std::size_t index(Pipe p) { return static_cast<std::size_t>(p); }

  /// By pipe: the latest step that `step` must come after and its pipe does not know to be done.
  Clock needs(const TraceStep& step) const {
    Clock needed = nothing_done();
    for (const TraceTouch& t : step.touches)
      accesses_.conflicts(t, [&](const Accesses::Access& a) {
        if (a.pipe != step.pipe) needed[index(a.pipe)] = std::max(needed[index(a.pipe)], a.step);
      });
    return needed;
  }

  void wait_for(const TraceStep& step, std::int64_t at) {
    Clock& known = known_[index(step.pipe)];
    std::vector<std::pair<std::int64_t, std::size_t>>
        waits;  // the latest first: it may imply others
    const Clock needed = needs(step);
    for (std::size_t p = 0; p < needed.size(); ++p)
      if (needed[p] > known[p]) waits.emplace_back(needed[p], p);
    std::ranges::sort(waits, std::greater<>());
    for (const auto& [source, p] : waits) {
      if (source <= known[p]) continue;
      const Pipe from = static_cast<Pipe>(p);
      const auto event = free_event({from, step.pipe}, source);
      if (event < 0) return meet(at);
      const IntExpr e(event);
      after_[static_cast<std::size_t>(source)].push_back(
          SetFlag{.from = from, .to = step.pipe, .event = e});
      before_[static_cast<std::size_t>(at)].push_back(
          WaitFlag{.from = from, .to = step.pipe, .event = e});
      waited_[{from, step.pipe}][static_cast<std::size_t>(event)] = at;
      join_into(known, clocks_[static_cast<std::size_t>(source)]);
      ++counts.flags;
    }
  }

  /// The first flag that is certain to be clear when step `source` is done, or -1.
  std::int64_t free_event(PipePair pair, std::int64_t source) {
    auto& waited = waited_[pair];
    waited.resize(events_, -1);
    const std::int64_t done = clocks_[static_cast<std::size_t>(source)][index(pair.second)];
    const auto clear =
        std::ranges::find_if(waited, [&](std::int64_t wait) { return wait <= done; });
    return clear == waited.end() ? -1 : clear - waited.begin();
  }

  /// All pipes wait for all.
  void meet(std::int64_t at) {
    before_[static_cast<std::size_t>(at)].push_back(Barrier{.scope = Barrier::Scope::all});
    for (Clock& c : known_) c = last_;
    ++counts.barriers;
  }

  std::size_t events_;
  std::array<Clock, kPipes> known_;  ///< by pipe: what its next step may take as done
  Clock last_ = nothing_done();
  std::vector<Clock> clocks_;  ///< by step: what is done once it is
  Accesses accesses_;
  std::map<PipePair, std::vector<std::int64_t>> waited_;  ///< by event: the step that last waited
  std::vector<std::vector<Instruction>> before_, after_;  ///< by step
  std::size_t next_ = 0;
};

}  // namespace

SyncCounts synchronise(std::vector<TraceNode>& trace, std::int64_t events) {
  Synchroniser s(events);
  s.collect(trace);
  s.insert(trace);
  return s.counts;
}

}  // namespace tilewright::npu
