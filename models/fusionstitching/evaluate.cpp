// The delta-evaluator: seconds that a pattern saves.
#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "models/fusionstitching/fusionstitching.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/loops.h"

namespace tilewright::fusionstitching {
namespace {

constexpr double kBlockThreads = 256;  // a block's, in the simplified latency-evaluator
constexpr double kBlocksThatAdd = 2;   // an SM, to partial sums
constexpr double kBlockRow = 1024;  // from this many points on a row is a block's, below a warp's

/// How often each of the part's operators is computed: in the group of each reduction that it
/// feeds, and once in that of the roots, which share a loop.
std::vector<int> groups_with(const Graph& g, const Component& part) {
  std::vector<std::uint64_t> feeds(part.vertices.size());
  std::vector<int> counts(part.vertices.size());
  constexpr std::uint64_t kRoots = 1;
  const auto place = [&part](int v) {
    return static_cast<std::size_t>(
        std::lower_bound(part.vertices.begin(), part.vertices.end(), v) - part.vertices.begin());
  };
  for (std::size_t i = part.vertices.size(); i-- > 0;) {
    const Vertex& v = g.vertex(part.vertices[i]);
    if (v.kind == Kind::reduction) {
      counts[i] = 1;
      continue;
    }
    for (int c : v.consumers) {
      if (!in(part.vertices, c)) continue;
      const std::size_t at = place(c);
      feeds[i] |=
          g.vertex(c).kind == Kind::reduction ? std::uint64_t{1} << (at % 63 + 1) : feeds[at];
    }
    const bool leaves =
        v.leaves || std::ranges::any_of(v.consumers, [&](int c) { return !in(part.vertices, c); });
    if (leaves || feeds[i] == 0) feeds[i] |= kRoots;
    counts[i] = std::popcount(feeds[i]);
  }
  return counts;
}

}  // namespace

struct Evaluator::Memory {
  struct Hash {
    std::size_t operator()(const Pattern& p) const {
      std::uint64_t h = 1469598103934665603ULL;
      for (int v : p) h = (h ^ static_cast<std::uint64_t>(v)) * 1099511628211ULL;
      return static_cast<std::size_t>(h ^ (h >> 29));
    }
  };
  std::unordered_map<Pattern, std::optional<double>, Hash> scores;
  std::vector<double>
      alone;  ///< by vertex: simplified latency of it alone, negative: not yet known
};

namespace {

/// The simplified latency-evaluator: cycles of the pattern without global memory's instructions.
class Simplified {
 public:
  Simplified(const Graph& g, const Device& d, int registers)
      : g_(g), d_(d), registers_(registers) {}

  double cycles(std::span<const Component> parts) const {
    double shared = 0;
    for (const Component& p : parts) shared = std::max(shared, largest_request(p));
    const double resident = resident_warps(shared);
    double total = 0;
    for (const Component& p : parts) total += std::ceil(warps(p) / resident) * of_warp(p);
    return total;
  }

 private:
  enum class Row : std::uint8_t { thread, warp, block };

  double longest(const Component& p) const {
    double n = 1;
    for (int v : p.vertices) n = std::max(n, g_.points(g_.vertex(v).loops & ~p.rows));
    return n;
  }
  Row row(const Component& p) const {
    const double n = longest(p);
    return n <= 1 ? Row::thread : n < kBlockRow ? Row::warp : Row::block;
  }
  bool hands_on(const Component& p, int v) const {
    const Vertex& x = g_.vertex(v);
    return x.kind == Kind::reduction &&
           std::ranges::any_of(x.consumers, [&](int c) { return in(p.vertices, c); });
  }
  /// "The maximal shared memory usage in and between any ops" (section 5.4).
  double largest_request(const Component& p) const {
    double most = 0;
    for (int v : p.vertices) {
      const Vertex& x = g_.vertex(v);
      const double tile = g_.points(x.loops & ~x.reduced & ~p.rows);
      if (hands_on(p, v) && (row(p) == Row::block || tile > 1))
        most = std::max(most, tile * static_cast<double>(x.row_bytes));
    }
    return most;
  }
  double resident_warps(double shared) const {
    double blocks = std::min(static_cast<double>(d_.blocks_per_sm),
                             static_cast<double>(d_.threads_per_sm) / kBlockThreads);
    blocks =
        std::min(blocks, static_cast<double>(d_.registers_per_sm) / (registers_ * kBlockThreads));
    if (shared > 0) blocks = std::min(blocks, static_cast<double>(d_.shared_per_sm) / shared);
    return std::max(1.0, std::floor(blocks)) * (kBlockThreads / kWarp) *
           static_cast<double>(d_.sms);
  }
  double warps(const Component& p) const {
    switch (row(p)) {
      case Row::thread:
        return std::ceil(p.row_count / kWarp);
      case Row::warp:
        return p.row_count;
      case Row::block:
        return p.row_count * (kBlockThreads / kWarp);
    }
    return 1;
  }
  double of_warp(const Component& p) const {
    const Row r = row(p);
    const double wide = r == Row::thread ? 1 : r == Row::warp ? kWarp : kBlockThreads;
    const std::vector<int> times = groups_with(g_, p);
    double cycles = 0;
    for (std::size_t i = 0; i < p.vertices.size(); ++i) {
      const Vertex& v = g_.vertex(p.vertices[i]);
      const double rounds = std::ceil(g_.points(v.loops & ~p.rows) / wide) * times[i];
      cycles += rounds * (static_cast<double>(v.light) * d_.light +
                          static_cast<double>(v.expensive) * d_.expensive);
      if (v.kind != Kind::reduction || r == Row::thread || in(p.partial, p.vertices[i])) continue;
      cycles += 5 * (d_.shuffle + d_.light);
      if (r == Row::block) cycles += 5 * (d_.shuffle + d_.light) + 2 * d_.barrier + 2 * d_.shared;
    }
    return cycles;
  }

  const Graph& g_;
  const Device& d_;
  int registers_;
};

/// Seconds of global memory that no longer pass between the part's operators.
double memory_saved(const Graph& g, const Device& d, const Component& part) {
  double seconds = 0;
  for (int i : part.vertices) {
    const Vertex& v = g.vertex(i);
    double kept = 0;
    bool outside = v.leaves;
    for (int e : v.out) {
      if (in(part.vertices, g.edge(e).to))
        kept += static_cast<double>(g.edge(e).bytes);
      else
        outside = true;
    }
    if (kept == 0) continue;
    const double written =
        outside ? 0 : g.points(v.loops & ~v.reduced) * static_cast<double>(v.row_bytes);
    seconds += (kept + written) / d.dram_bytes_per_second;
    if (v.kind == Kind::reduction) seconds -= (kept + written) / d.shared_bytes_per_second;
  }
  return seconds;
}

/// Seconds that blocks take to add their parts of sums, and the kernel before them to zero those.
double adding_seconds(const Graph& g, const Device& d, const Component& part, double call) {
  if (part.partial.empty()) return 0;
  const double blocks = std::min(part.row_count, kBlocksThatAdd * static_cast<double>(d.sms));
  const Bytes added(static_cast<std::int64_t>(blocks) * added_bytes(g, part));
  return call + added_seconds(d, added);
}

}  // namespace

Evaluator::Evaluator(const Graph& g, const Device& d, const Options& o)
    : graph_(g), device_(d), options_(o), memory_(std::make_unique<Memory>()) {
  memory_->alone.assign(static_cast<std::size_t>(g.size()), -1);
}
Evaluator::~Evaluator() = default;
std::int64_t Evaluator::evaluated() const {
  return static_cast<std::int64_t>(memory_->scores.size());
}

std::optional<double> Evaluator::score(const Pattern& p) {
  if (p.size() == 1) return 0.0;
  const auto [it, fresh] = memory_->scores.try_emplace(p);
  if (!fresh) return it->second;
  const auto parts = components_of(graph_, p, options_.most_operators);
  if (!parts) return std::nullopt;
  const Simplified simplified(graph_, device_, options_.registers);
  double saved = 0, penalty = simplified.cycles(*parts);
  for (const Component& part : *parts)
    saved += memory_saved(graph_, device_, part) -
             adding_seconds(graph_, device_, part, options_.call_seconds);
  if (options_.penalty == Penalty::difference) {
    for (int v : p) {
      double& alone = memory_->alone[static_cast<std::size_t>(v)];
      if (alone < 0) alone = simplified.cycles(*components_of(graph_, {&v, 1}, 1));
      penalty -= alone;
    }
    penalty = std::max(0.0, penalty);
  }
  saved += static_cast<double>(p.size() - 1) * options_.call_seconds;
  return it->second = saved - penalty / device_.clock_hz;
}

std::optional<FusionPlan> joined(Evaluator& e, const Device& d, const PlanPrice& p, Known& known) {
  const auto kernels = stitching::joined(e.graph(), d, e.options(), p, known);
  if (!kernels) return std::nullopt;
  FusionPlan out;
  for (const Pattern& k : *kernels)
    if (k.size() > 1) out.patterns.push_back({k, e.score(k).value_or(0)});
  for (const Scored& s : out.patterns) out.score += s.score;
  return out;
}

}  // namespace tilewright::fusionstitching
