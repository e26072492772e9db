#include "codegen/npu/pipeline.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace tilewright::npu {
namespace {

using Body = std::vector<TraceNode>;

/// Iterations that an estimate looks at: the first ones fill the pipes, the others tell.
constexpr std::size_t kLooked = 6;
/// What an overlap must gain to be worth the code before and after the loop.
constexpr double kGain = 0.99;

template <class F>
void each_step(const Body& body, F&& f) {
  for (const TraceNode& n : body) {
    if (!n.is_loop()) {
      f(n.step);
      continue;
    }
    for (const Body& iteration : n.iterations) each_step(iteration, f);
  }
}

class PipeClock {
 public:
  void run(const Body& body) {
    each_step(body, [this](const TraceStep& s) { take(s); });
  }
  std::int64_t end() const { return end_; }

 private:
  void take(const TraceStep& s) {
    auto& pipe = free_[static_cast<std::size_t>(s.pipe)];
    std::int64_t begin = pipe;
    for (const TraceTouch& t : s.touches)
      accesses_.conflicts(t, [&](const Accesses::Access& a) {
        begin = std::max(begin, a.pipe == s.pipe ? pipe : done_[std::size_t(a.step)]);
      });
    pipe = begin + s.cycles;
    done_.push_back(pipe + s.latency);
    end_ = std::max(end_, done_.back());
    const auto at = static_cast<std::int64_t>(done_.size()) - 1;
    for (const TraceTouch& t : s.touches) accesses_.add(at, s.pipe, t);
  }

  std::array<std::int64_t, kPipes> free_{};
  std::vector<std::int64_t> done_;
  std::int64_t end_ = 0;
  Accesses accesses_;
};

/// Whether some step of one writes what the other touches.
bool conflict(const Body& a, const Body& b) {
  Accesses first;
  each_step(a, [&](const TraceStep& s) {
    for (const TraceTouch& t : s.touches) first.add(0, s.pipe, t);
  });
  bool found = false;
  each_step(b, [&](const TraceStep& s) {
    for (const TraceTouch& t : s.touches)
      first.conflicts(t, [&](const Accesses::Access&) { found = true; });
  });
  return found;
}

struct Halves {
  std::vector<Body> first, second;  ///< by iteration
};

Halves split(const std::vector<Body>& iterations, int part) {
  Halves h;
  for (const Body& body : iterations) {
    const auto middle =
        std::ranges::find_if(body, [&](const TraceNode& n) { return n.part >= part; });
    h.first.emplace_back(body.begin(), middle);
    h.second.emplace_back(middle, body.end());
  }
  return h;
}

bool may_overlap(const Halves& h) {
  for (std::size_t i = 0; i + 1 < h.first.size(); ++i)
    if (conflict(h.first[i + 1], h.second[i])) return false;
  return true;
}

std::vector<const Body*> overlapped(const Halves& h, std::size_t count) {
  std::vector<const Body*> order = {&h.first[0]};
  for (std::size_t i = 0; i < count; ++i) {
    if (i + 1 < count) order.push_back(&h.first[i + 1]);
    order.push_back(&h.second[i]);
  }
  return order;
}

void overlap_loop(TraceNode& loop) {
  const std::size_t n = loop.iterations.size(), looked = std::min(n, kLooked);
  std::set<int> parts;
  for (std::size_t i = 0; i < looked; ++i)
    for (const TraceNode& node : loop.iterations[i]) parts.insert(node.part);
  if (n < 2 || parts.size() < 2) return;
  std::vector<const Body*> plain;
  for (std::size_t i = 0; i < looked; ++i) plain.push_back(&loop.iterations[i]);
  double best = kGain * static_cast<double>(estimate(plain));
  std::optional<Halves> chosen;
  for (int part : parts) {
    if (part == *parts.begin()) continue;
    const std::vector<Body> first(loop.iterations.begin(),
                                  loop.iterations.begin() + static_cast<std::ptrdiff_t>(looked));
    const Halves h = split(first, part);
    if (!may_overlap(h)) continue;
    const auto cycles = static_cast<double>(estimate(overlapped(h, looked)));
    if (cycles >= best) continue;
    Halves whole = split(loop.iterations, part);
    if (looked < n && !may_overlap(whole)) continue;
    best = cycles;
    chosen = std::move(whole);
  }
  if (!chosen) return;
  loop.iterations.assign(1, std::move(chosen->first[0]));
  for (std::size_t i = 0; i < n; ++i) {
    Body body = i + 1 < n ? std::move(chosen->first[i + 1]) : Body{};
    std::ranges::move(chosen->second[i], std::back_inserter(body));
    loop.iterations.push_back(std::move(body));
  }
}

}  // namespace

std::int64_t estimate(const std::vector<const std::vector<TraceNode>*>& order) {
  PipeClock clock;
  for (const Body* body : order) clock.run(*body);
  return clock.end();
}

void pipeline(std::vector<TraceNode>& trace) {
  for (TraceNode& n : trace) {
    if (!n.is_loop()) continue;
    for (auto& iteration : n.iterations) pipeline(iteration);
    overlap_loop(n);
  }
}

}  // namespace tilewright::npu
