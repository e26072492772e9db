// Plans whose blocks would get in one another's way.
#include <algorithm>
#include <set>

#include "core/lowering/checks.h"

namespace tilewright::lowering {

namespace {

/// The innermost grid loop around a node.
NodeId grid_loop_around(const ScheduledKernel& k, NodeId n) {
  for (NodeId p = k.node(n).parent; p.valid(); p = k.node(p).parent)
    if (k.node(p).kind == NodeKind::loop && k.node(p).binding == Binding::grid) return p;
  return {};
}

/// How many blocks come to a node: those within an iteration of its innermost grid loop, or those
/// of its part of a pack.
std::int64_t blocks_coming(const ScheduledKernel& k, NodeId n) {
  for (NodeId p = n; k.node(p).parent.valid(); p = k.node(p).parent) {
    const NodeId around = k.node(p).parent;
    if (k.node(around).kind == NodeKind::pack) return blocks_of(k, p);
    if (k.node(around).kind == NodeKind::loop && k.node(around).binding == Binding::grid)
      return blocks_below(k, around);
  }
  return k.blocks;
}

/// Whether a pack gives `inside` to other blocks than `outside`, which stands beside the pack and
/// is the first block's.
bool told_apart(const ScheduledKernel& k, NodeId inside, NodeId outside) {
  const auto holds = [&](NodeId pack) {
    for (NodeId p = outside; p.valid(); p = k.node(p).parent)
      if (p == pack) return true;
    return false;
  };
  for (NodeId n = inside; k.node(n).parent.valid(); n = k.node(n).parent) {
    const NodeId around = k.node(n).parent;
    if (k.node(around).kind != NodeKind::pack) continue;
    if (holds(around)) return false;
    if (k.node(n).first_block != 0) return true;
  }
  return false;
}

/// A tile of this node's that a node in other grid loops touches; none: it is alone with its tiles.
BufferId shared_with_blocks(const ScheduledKernel& k, NodeId node) {
  const auto tiles = [&](NodeId id) {
    const ScheduleNode& n = k.node(id);
    std::set<BufferId> all;
    if (n.buffer.valid()) all.insert(n.buffer);
    for (const InputUse& use : n.reads)
      if (use.buffer.valid()) all.insert(use.buffer);
    for (const OutputUse& use : n.writes) all.insert(use.buffer);
    // A tile is filled from that of the level outside and written to it.
    std::set<BufferId> with_outer;
    for (BufferId b : all)
      for (; b.valid(); b = k.buffer(b).outer) with_outer.insert(b);
    return with_outer;
  };
  const std::set<BufferId> own = tiles(node);
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    if (grid_loop_around(k, NodeId(i)) == grid_loop_around(k, node) &&
        !told_apart(k, NodeId(i), node) && !told_apart(k, node, NodeId(i)))
      continue;
    for (BufferId b : tiles(NodeId(i)))
      if (own.contains(b)) return b;
  }
  return {};
}

/// As a plan has it: "L.A".
std::string text_of(const Workload& w, const ScheduleNode& n) {
  if (n.kind == NodeKind::compute) return "C." + w.op(n.op).name;
  return (n.kind == NodeKind::load ? "L." : "S.") + w.tensor(n.tensor).name;
}

}  // namespace

void check_blocks(const Workload& w, const ScheduledKernel& k, bool first_block_alone) {
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    const bool acts =
        n.kind == NodeKind::load || n.kind == NodeKind::compute || n.kind == NodeKind::store;
    if (!acts || blocks_coming(k, NodeId(i)) <= 1) continue;
    const BufferId tile = shared_with_blocks(k, NodeId(i));
    if (first_block_alone && !tile.valid()) continue;
    throw Refused{text_of(w, n) +
                  " stands outside a grid loop beside it, which only one of its blocks would run" +
                  (tile.valid()
                       ? ": others use its tile of " + w.tensor(k.buffer(tile).tensor).name +
                             ", and no block sees another's shared memory"
                       : "")};
  }
}

bool can_leave(const Workload& w, const Operator& op, const Access& a) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (!contains(Interval{0, w.tensor(a.tensor).shape[d]}, footprint(op, a.index[d], whole)))
      return true;
  return false;
}

BufferId buffer_of_input(const ScheduleNode& n, int input) {
  for (const InputUse& use : n.reads)
    if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
  return {};
}

void refuse_once(const Workload& w, const ScheduledKernel& k, const std::string& target) {
  for (const ScheduleNode& n : k.nodes)
    if (n.kind == NodeKind::compute && n.once)
      throw Refused{"C." + w.op(n.op).name + "!once: the " + target +
                    " target keeps no record of what is complete"};
}

NodeId only_compute(const ScheduledKernel& k, NodeId id, std::int64_t most_trips) {
  while (k.node(id).kind != NodeKind::compute) {
    const ScheduleNode& n = k.node(id);
    if (n.kind == NodeKind::loop ? n.max_trips > most_trips : n.kind != NodeKind::sequence)
      return {};
    NodeId next;
    for (NodeId c : n.children) {
      if (k.node(c).kind == NodeKind::load) continue;
      if (next.valid()) return {};
      next = c;
    }
    if (!next.valid()) return {};
    id = next;
  }
  return id;
}

}  // namespace tilewright::lowering
