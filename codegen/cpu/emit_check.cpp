// What the cpu target cannot emit, and why.
#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {

void check_emittable(const Workload& w, const ScheduledKernel& k) {
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    if (n.kind == NodeKind::sync && n.scope == Unit::machine)
      for (NodeId p = n.parent; p.valid(); p = k.node(p).parent)
        if (k.node(p).kind == NodeKind::loop && k.node(p).binding == Binding::grid)
          throw Refused{"Y.grid stands inside loop " + w.loop(k.node(p).loop).name +
                        "@grid: the cpu target runs each block to its end"};
  }
  check_sums(w, k, "cpu");
}

}  // namespace tilewright::cpu
