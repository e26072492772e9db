// Plans whose blocks would get in one another's way.
#include <algorithm>

#include "codegen/common/range_emitter.h"

namespace tilewright::codegen {
namespace {

/// Blocks run in any order: what they write home must be each one's own.
void check_own_results(const Workload& w, const ScheduledKernel& k, const ScheduleNode& compute) {
  for (const OutputUse& out : compute.writes) {
    const Buffer* last = &k.buffer(out.buffer);  // of the levels that it goes through
    bool atomic = last->atomic;
    for (; last->outer.valid(); atomic |= last->atomic) last = &k.buffer(last->outer);
    if ((last->role != BufferRole::output && !last->leaves) || atomic) continue;
    for (NodeId p = compute.parent; p.valid(); p = k.node(p).parent) {
      const ScheduleNode& l = k.node(p);
      if (l.kind != NodeKind::loop || l.binding != Binding::grid || l.max_trips <= 1) continue;
      const bool own = std::ranges::any_of(l.cuts, [&](const OpLoop& c) {
        return c.op == compute.op && !w.is_reduction(compute.op, l.loop);
      });
      if (!own)
        throw Refused{"every block of loop " + w.loop(l.loop).name + "@grid would write " +
                      w.tensor(out.tensor).name + " home"};
    }
  }
}

}  // namespace

void check_blocks(const Workload& w, const ScheduledKernel& k, const std::string& target) {
  for (const ScheduleNode& n : k.nodes) {
    NodeId grid;
    for (NodeId p = n.parent; p.valid(); p = k.node(p).parent)
      if (!grid.valid() && k.node(p).kind == NodeKind::loop && k.node(p).binding == Binding::grid)
        grid = p;
    if (n.kind == NodeKind::sync && n.scope == Unit::machine && grid.valid())
      throw Refused{"Y.grid stands inside loop " + w.loop(k.node(grid).loop).name +
                    "@grid: blocks that have no iteration left would not come to it"};
    const bool acts =
        n.kind == NodeKind::load || n.kind == NodeKind::compute || n.kind == NodeKind::store;
    const std::int64_t blocks = grid.valid() ? blocks_below(k, grid) : k.blocks;
    if (acts && blocks > 1)
      throw Refused{
          "a node stands outside a grid loop beside it, which only one of its blocks would run"};
    if (n.kind == NodeKind::compute && n.once)
      throw Refused{"C." + w.op(n.op).name + "!once: the " + target +
                    " target keeps no record of what is complete"};
    check_own_results(w, k, n);
  }
}

}  // namespace tilewright::codegen
