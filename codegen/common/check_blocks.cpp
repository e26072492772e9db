// Plans whose blocks would get in one another's way.
#include <algorithm>

#include "codegen/common/range_emitter.h"

namespace tilewright::codegen {
void check_blocks(const Workload& w, const ScheduledKernel& k, const std::string& target) {
  for (const ScheduleNode& n : k.nodes) {
    NodeId grid;
    for (NodeId p = n.parent; p.valid(); p = k.node(p).parent)
      if (!grid.valid() && k.node(p).kind == NodeKind::loop && k.node(p).binding == Binding::grid)
        grid = p;
    const bool acts =
        n.kind == NodeKind::load || n.kind == NodeKind::compute || n.kind == NodeKind::store;
    const std::int64_t blocks = grid.valid() ? blocks_below(k, grid) : k.blocks;
    if (acts && blocks > 1)
      throw Refused{
          "a node stands outside a grid loop beside it, which only one of its blocks would run"};
    if (n.kind == NodeKind::compute && n.once)
      throw Refused{"C." + w.op(n.op).name + "!once: the " + target +
                    " target keeps no record of what is complete"};
  }
}

}  // namespace tilewright::codegen
