#include "simulator/gpu/grid.h"

#include <algorithm>
#include <map>

namespace tilewright::gpu {

namespace {

constexpr std::int64_t kFirst = 3, kLast = 3;

bool is_grid(const ScheduleNode& n) {
  return n.kind == NodeKind::loop && n.binding == Binding::grid;
}

bool inside(const ScheduledKernel& k, NodeId node, NodeId loop) {
  for (; node.valid(); node = k.node(node).parent)
    if (node == loop) return true;
  return false;
}

using Place = std::vector<std::int64_t>;  ///< iterations, outermost loop first

/// What the walked blocks say of the others.
class Others {
 public:
  Others(const BlockList& walked, const std::vector<Place>& where, const Place& counts)
      : walked_(walked), counts_(counts) {
    for (std::size_t b = 0; b < where.size(); ++b) block_[where[b]] = static_cast<std::int64_t>(b);
  }

  bool skipped(std::size_t d) const { return counts_[d] > Grid::kWalked; }

  /// Every third iteration of a loop moves on from the second as the third but last says.
  bool even() {
    steps_.assign(counts_.size(), {});
    for (const auto& [place, block] : block_)
      for (std::size_t d = 0; d < counts_.size(); ++d)
        if (skipped(d) && place[d] == kFirst - 1 && !even_along(d, place, block)) return false;
    return true;
  }

  bool put(BlockList& all, const Place& place) const {
    Place walked = place;
    for (std::size_t d = 0; d < place.size(); ++d)
      if (between(d, place[d])) walked[d] = kFirst - 1;
    const auto found = block_.find(walked);
    if (found == block_.end()) return false;
    std::vector<std::int64_t> at = addresses(found->second);
    for (std::size_t d = 0; d < place.size(); ++d)
      if (between(d, place[d])) {
        const auto& step = steps_[d].at(walked_.shape_index(found->second));
        for (std::size_t s = 0; s < at.size(); ++s) at[s] += (place[d] - walked[d]) * step[s];
      }
    all.add(walked_.shape_index(found->second), at);
    return true;
  }

 private:
  bool between(std::size_t d, std::int64_t i) const {
    return skipped(d) && i >= kFirst && i < counts_[d] - kLast;
  }
  std::vector<std::int64_t> addresses(std::int64_t block) const {
    const std::int64_t* at = walked_.at(block);
    return {at, at + walked_.shape(block).streams.size()};
  }

  bool even_along(std::size_t d, const Place& place, std::int64_t block) {
    Place before = place, last = place;
    before[d] -= 1;
    last[d] = counts_[d] - kLast;
    const auto b = block_.find(before), l = block_.find(last);
    if (b == block_.end() || l == block_.end()) return false;
    const int shape = walked_.shape_index(block);
    if (walked_.shape_index(b->second) != shape || walked_.shape_index(l->second) != shape)
      return false;
    const auto here = addresses(block), from = addresses(b->second), to = addresses(l->second);
    std::vector<std::int64_t> step(here.size());
    for (std::size_t s = 0; s < here.size(); ++s) {
      step[s] = here[s] - from[s];
      if (to[s] - here[s] != (last[d] - place[d]) * step[s]) return false;
    }
    return steps_[d].try_emplace(shape, step).first->second == step;
  }

  const BlockList& walked_;
  const Place& counts_;
  std::map<Place, std::int64_t> block_;
  std::vector<std::map<int, std::vector<std::int64_t>>> steps_;  // by loop, shape: a step's bytes
};

}  // namespace

std::optional<Grid> Grid::of(const Machine& m, const ScheduledKernel& k) {
  Grid g;
  for (const Buffer& b : k.buffers)  // what blocks share outlives them
    if (m.level(b.level).managed == Managed::software && m.level(b.level).private_to < Unit::grid)
      return std::nullopt;
  std::vector<LoopId> dimensions;
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    if (k.nodes[n].kind == NodeKind::pack) return std::nullopt;
    if (!is_grid(k.nodes[n])) continue;
    const LoopId l = k.nodes[n].loop;
    if (std::find(dimensions.begin(), dimensions.end(), l) != dimensions.end())
      return std::nullopt;  // its iterations depend on where the other one is
    if (!g.loops_.empty() && !inside(k, NodeId(n), g.loops_.back())) return std::nullopt;
    dimensions.push_back(l);
    g.loops_.push_back(NodeId(n));
    g.counts_.push_back(k.nodes[n].max_trips);
  }
  if (g.loops_.empty() || k.co_resident) return std::nullopt;
  const NodeId innermost = g.loops_.back();
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    const ScheduleNode& node = k.nodes[n];
    const bool within = inside(k, NodeId(n), innermost);
    const bool plain = (node.kind == NodeKind::sequence || is_grid(node)) && node.fixes.empty();
    if (!within && !plain) return std::nullopt;
  }
  g.at_.assign(g.loops_.size(), 0);
  return g;
}

bool Grid::skips() const {
  return std::any_of(counts_.begin(), counts_.end(), [](std::int64_t n) { return n > kWalked; });
}

std::int64_t Grid::steer(const LoopPoint& p, bool skip) {
  const auto found = std::find(loops_.begin(), loops_.end(), p.loop);
  if (found == loops_.end()) return p.next;
  const auto d = static_cast<std::size_t>(found - loops_.begin());
  const bool between = skip && p.count > kWalked && p.next >= kFirst && p.next < p.count - kLast;
  return at_[d] = between ? p.count - kLast : p.next;
}

std::optional<BlockList> Grid::all(const BlockList& walked,
                                   const std::vector<std::vector<std::int64_t>>& where) const {
  Others others(walked, where, counts_);
  if (!others.even()) return std::nullopt;
  BlockList all = walked;
  all.clear_blocks();
  Place place(counts_.size(), 0);
  for (;;) {
    if (!others.put(all, place)) return std::nullopt;
    std::size_t d = place.size();
    while (d > 0 && ++place[d - 1] == counts_[d - 1]) place[--d] = 0;
    if (d == 0) return all;
  }
}

}  // namespace tilewright::gpu
