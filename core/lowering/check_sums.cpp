// Sums that no target can build up in the order of a plan.
#include <algorithm>

#include "core/lowering/checks.h"

namespace tilewright::lowering {
namespace {

bool is_inside(const ScheduledKernel& k, NodeId n, NodeId ancestor) {
  for (; n.valid(); n = k.node(n).parent)
    if (n == ancestor) return true;
  return false;
}

/// Partial results may be added up only if each is a different part of the sum, added once, and
/// nobody may read it before all are.
void check_atomic(const Workload& w, const ScheduledKernel& k, NodeId compute,
                  const OutputUse& out) {
  const std::string what = "S." + w.tensor(out.tensor).name + "!atomic: ";
  const OpId op = k.node(compute).op;
  BufferId combined = out.buffer;  // the level whose tile goes home
  while (!k.buffer(combined).atomic) combined = k.buffer(combined).outer;
  const NodeId store = k.buffer(combined).store;
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& l = k.nodes[i];
    if (l.kind != NodeKind::loop || l.max_trips <= 1) continue;
    const bool around_compute = is_inside(k, compute, NodeId(i));
    const bool around_store = is_inside(k, store, NodeId(i));
    if (l.binding == Binding::grid && around_compute && !around_store && w.is_reduction(op, l.loop))
      throw Refused{what + "it stands outside loop " + w.loop(l.loop).name +
                    "@grid, whose blocks have the partial results"};
    if (std::ranges::any_of(l.cuts, [&](const OpLoop& c) { return c.op == op; })) continue;
    if (around_store || (l.binding == Binding::grid && around_compute))
      throw Refused{what + "every iteration of loop " + w.loop(l.loop).name +
                    " would add the same result"};
  }
  // (A barrier stands between the blocks' stores and a load: resolve sees to it.)
  for (std::size_t i = 0; i < k.nodes.size(); ++i)
    if (k.nodes[i].flush.valid() && k.nodes[i].tensor == out.tensor && NodeId(i) < store)
      throw Refused{what + "it is read before its partial results are added up"};
}

}  // namespace

void check_sums(const Workload& w, const ScheduledKernel& k, const std::string& target,
                bool through_levels) {
  for (std::size_t i = 0; i < k.nodes.size(); ++i)
    for (const OutputUse& out : k.nodes[i].writes)
      if (out.atomic) check_atomic(w, k, NodeId(i), out);
  if (through_levels) return;
  for (const Buffer& b : k.buffers)
    if (b.outer.valid() && k.buffer(b.outer).atomic)
      throw Refused{"S." + w.tensor(b.tensor).name +
                    "!atomic goes through several levels, which the " + target +
                    " target does not combine"};
}

}  // namespace tilewright::lowering
