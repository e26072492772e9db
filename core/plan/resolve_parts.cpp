// Tiles that the blocks of one nest make and the same blocks of a later one read: each block keeps
// its own part (plan.md rule 5).
#include <algorithm>

#include "core/plan/resolver.h"

namespace tilewright::resolving {

namespace {

/// A node that touches a tile, and how its operators access it.
struct Toucher {
  explicit Toucher(NodeId n) : node(n) {}
  NodeId node;
  std::vector<std::pair<OpId, const Access*>> accesses = {};
};

/// By buffer.
std::vector<std::vector<Toucher>> touchers(const Draft& d) {
  std::vector<std::vector<Toucher>> all(d.k.buffers.size());
  const auto read = [&](BufferId b, NodeId node, std::span<const ReadRef> refs) {
    Toucher& t = all[b.index()].emplace_back(node);
    for (const ReadRef& r : refs)
      t.accesses.emplace_back(r.op, &d.w.op(r.op).inputs[static_cast<std::size_t>(r.input)]);
  };
  for (std::size_t i = 0; i < d.k.nodes.size(); ++i) {
    const ScheduleNode& n = d.k.nodes[i];
    if (n.kind == NodeKind::load)
      if (const BufferId from = d.k.buffer(n.buffer).outer; from.valid())
        read(from, NodeId(i), n.reads_below);
    for (const InputUse& use : n.reads) {
      std::vector<ReadRef> refs;
      for (int input : use.inputs) refs.push_back({n.op, input});
      if (use.buffer.valid()) read(use.buffer, NodeId(i), refs);
    }
    for (const OutputUse& use : n.writes)
      all[use.buffer.index()].emplace_back(NodeId(i)).accesses.emplace_back(
          n.op, &d.w.op(n.op).outputs[static_cast<std::size_t>(use.output)].target);
  }
  return all;
}

/// The dimension that a loop alone cuts in every access; -1: none is cut; -2: otherwise.
int dimension_cut(const Toucher& t, LoopId loop) {
  int found = -1;
  for (const auto& [op, a] : t.accesses)
    for (std::size_t dim = 0; dim < a->index.size(); ++dim) {
      if (std::ranges::none_of(a->index[dim].terms, [&](const Term& x) { return x.loop == loop; }))
        continue;
      if (a->index[dim].plain_loop() != loop || (found >= 0 && found != static_cast<int>(dim)))
        return -2;
      found = static_cast<int>(dim);
    }
  return found;
}

/// None: there is no nest of blocks below `outside`, or the part is another one in each iteration
/// of a loop around it.
std::optional<BlockPart> part_at(const Draft& d, const Toucher& t, NodeId outside,
                                 const std::vector<std::int64_t>& shape) {
  std::vector<NodeId> loops;  // innermost first, from the innermost grid loop on
  for (NodeId n = d.node(t.node).parent; n.valid() && n != outside; n = d.node(n).parent) {
    const ScheduleNode& l = d.node(n);
    if (l.kind != NodeKind::loop || l.max_trips <= 1) continue;
    if (l.binding == Binding::grid || !loops.empty()) loops.push_back(n);
  }
  if (loops.empty()) return std::nullopt;
  BlockPart part{.body = loops.front(),
                 .op = t.accesses.front().first,
                 .loops = std::vector<int>(shape.size(), -1),
                 .most = shape};
  for (NodeId n : loops) {
    const ScheduleNode& l = d.node(n);
    const int dim = dimension_cut(t, l.loop);
    if (dim == -2 || (dim >= 0) != (l.binding == Binding::grid)) return std::nullopt;
    if (dim < 0 || part.loops[static_cast<std::size_t>(dim)] >= 0) continue;
    part.loops[static_cast<std::size_t>(dim)] = d.w.local_index(part.op, l.loop);
    part.most[static_cast<std::size_t>(dim)] =
        std::min(l.step, shape[static_cast<std::size_t>(dim)]);
  }
  return part;
}

}  // namespace

void place_parts(Draft& d) {
  if (d.k.blocks == 1) return;
  const std::vector<std::vector<Toucher>> all = touchers(d);
  for (std::size_t i = 0; i < d.k.buffers.size(); ++i) {
    Buffer& b = d.k.buffers[i];
    if (b.role != BufferRole::intermediate || b.leaves || b.sliding || !b.fixed_at.valid() ||
        d.m.level(b.level).private_to == Unit::machine)
      continue;
    for (const Toucher& t : all[i]) {
      auto part = part_at(d, t, b.fixed_at, d.w.tensor(b.tensor).shape);
      const auto same = std::ranges::find(b.parts, part ? part->body : NodeId(), &BlockPart::body);
      if (!part || (same != b.parts.end() && same->most != part->most)) {
        b.parts.clear();
        break;
      }
      if (same == b.parts.end()) b.parts.push_back(std::move(*part));
    }
  }
}

}  // namespace tilewright::resolving
