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

using Place = std::vector<std::int64_t>;  ///< nest, and iterations, outermost loop first

}  // namespace

/// What the walked blocks say of the others.
class Others {
 public:
  Others(const BlockList& walked, const std::vector<Place>& where,
         const std::vector<Grid::Nest>& nests)
      : walked_(walked), nests_(nests) {
    for (std::size_t b = 0; b < where.size(); ++b) block_[where[b]] = static_cast<std::int64_t>(b);
  }

  /// Every third iteration of a loop moves on from the second as the third but last says.
  bool even() {
    std::size_t most = 0;
    for (const Grid::Nest& n : nests_) most = std::max(most, n.loops.size());
    steps_.assign(most + 1, {});
    for (const auto& [place, block] : block_)
      for (std::size_t d = 1; d < place.size(); ++d)
        if (skipped(place, d) && place[d] == kFirst - 1 && !even_along(d, place, block))
          return false;
    return true;
  }

  bool put(BlockList& all, const Place& place) const {
    Place walked = place;
    for (std::size_t d = 1; d < place.size(); ++d)
      if (between(place, d)) walked[d] = kFirst - 1;
    const auto found = block_.find(walked);
    if (found == block_.end()) return false;
    std::vector<std::int64_t> at = addresses(found->second);
    for (std::size_t d = 1; d < place.size(); ++d)
      if (between(place, d)) {
        const auto& step = steps_[d].at(walked_.shape_index(found->second));
        for (std::size_t s = 0; s < at.size(); ++s) at[s] += (place[d] - walked[d]) * step[s];
      }
    all.add(walked_.shape_index(found->second), at);
    return true;
  }

 private:
  std::int64_t count(const Place& place, std::size_t d) const {
    return nests_[static_cast<std::size_t>(place.front())].counts[d - 1];
  }
  bool skipped(const Place& place, std::size_t d) const { return count(place, d) > Grid::kWalked; }
  bool between(const Place& place, std::size_t d) const {
    return skipped(place, d) && place[d] >= kFirst && place[d] < count(place, d) - kLast;
  }
  std::vector<std::int64_t> addresses(std::int64_t block) const {
    const std::int64_t* at = walked_.at(block);
    return {at, at + walked_.shape(block).streams.size()};
  }

  bool even_along(std::size_t d, const Place& place, std::int64_t block) {
    Place before = place, last = place;
    before[d] -= 1;
    last[d] = count(place, d) - kLast;
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
  const std::vector<Grid::Nest>& nests_;
  std::map<Place, std::int64_t> block_;
  std::vector<std::map<int, std::vector<std::int64_t>>> steps_;  // by loop, shape: a step's bytes
};

/// The grid loops in `part`, where they are a nest around all of it; none where they are not, or
/// where there are none.
std::optional<Grid::Nest> Grid::nest_of(const ScheduledKernel& k, NodeId part) {
  Nest g;
  std::vector<LoopId> dimensions;
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    if (!is_grid(k.nodes[n]) || !inside(k, NodeId(n), part)) continue;
    const LoopId l = k.nodes[n].loop;
    if (std::find(dimensions.begin(), dimensions.end(), l) != dimensions.end())
      return std::nullopt;  // its iterations depend on where the other one is
    if (!g.loops.empty() && !inside(k, NodeId(n), g.loops.back())) return std::nullopt;
    dimensions.push_back(l);
    g.loops.push_back(NodeId(n));
    g.counts.push_back(k.nodes[n].max_trips);
  }
  if (g.loops.empty()) return std::nullopt;
  g.at.assign(g.loops.size(), 0);
  return g;
}

std::optional<Grid> Grid::of(const Machine& m, const ScheduledKernel& k) {
  for (const Buffer& b : k.buffers)  // what blocks share outlives them
    if (m.level(b.level).managed == Managed::software && m.level(b.level).private_to < Unit::grid)
      return std::nullopt;
  if (k.co_resident) return std::nullopt;
  NodeId pack;
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    if (k.nodes[n].kind != NodeKind::pack) continue;
    if (pack.valid()) return std::nullopt;
    pack = NodeId(n);
  }
  Grid g;
  std::int64_t blocks = 0;  // of the parts so far
  const std::vector<NodeId> parts = pack.valid() ? k.node(pack).children : std::vector{NodeId(0)};
  for (const NodeId part : parts) {
    std::optional<Nest> nest = nest_of(k, part);
    if (!nest || (pack.valid() && k.node(part).first_block < blocks)) return std::nullopt;
    std::int64_t own = 1;
    for (const std::int64_t count : nest->counts) own *= count;
    blocks = k.node(part).first_block + own;
    g.nests_.push_back(std::move(*nest));
  }
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    const ScheduleNode& node = k.nodes[n];
    const bool within = std::any_of(g.nests_.begin(), g.nests_.end(), [&](const Nest& nest) {
      return inside(k, NodeId(n), nest.loops.back());
    });
    const bool around = !pack.valid() || inside(k, NodeId(n), pack) ||
                        (node.kind == NodeKind::sequence && inside(k, pack, NodeId(n)));
    const bool plain = (node.kind == NodeKind::sequence || is_grid(node) || NodeId(n) == pack) &&
                       node.fixes.empty() && around;
    if (!within && !plain) return std::nullopt;
  }
  return g;
}

bool Grid::skips() const {
  return std::any_of(nests_.begin(), nests_.end(), [](const Nest& nest) {
    return std::any_of(nest.counts.begin(), nest.counts.end(),
                       [](std::int64_t n) { return n > kWalked; });
  });
}

std::vector<std::int64_t> Grid::here() const {
  Place place{static_cast<std::int64_t>(now_)};
  place.insert(place.end(), nests_[now_].at.begin(), nests_[now_].at.end());
  return place;
}

std::int64_t Grid::steer(const LoopPoint& p, bool skip) {
  for (std::size_t i = 0; i < nests_.size(); ++i) {
    Nest& nest = nests_[i];
    const auto found = std::find(nest.loops.begin(), nest.loops.end(), p.loop);
    if (found == nest.loops.end()) continue;
    now_ = i;
    const bool between = skip && p.count > kWalked && p.next >= kFirst && p.next < p.count - kLast;
    return nest.at[static_cast<std::size_t>(found - nest.loops.begin())] =
               between ? p.count - kLast : p.next;
  }
  return p.next;
}

std::optional<BlockList> Grid::all(const BlockList& walked,
                                   const std::vector<std::vector<std::int64_t>>& where) const {
  Others others(walked, where, nests_);
  if (!others.even()) return std::nullopt;
  BlockList all = walked;
  all.clear_blocks();
  for (std::size_t n = 0; n < nests_.size(); ++n) {
    const std::vector<std::int64_t>& counts = nests_[n].counts;
    Place place(counts.size() + 1, 0);
    place.front() = static_cast<std::int64_t>(n);
    for (std::size_t d = 1; d > 0;) {
      if (!others.put(all, place)) return std::nullopt;
      d = counts.size();
      while (d > 0 && ++place[d] == counts[d - 1]) place[d--] = 0;
    }
  }
  return all;
}

}  // namespace tilewright::gpu
