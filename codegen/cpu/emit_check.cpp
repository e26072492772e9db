// What the cpu target cannot emit, and why.
#include <algorithm>
#include <set>
#include <span>

#include "codegen/cpu/emitter.h"
#include "core/workload/expr.h"

namespace tilewright::cpu {
namespace {

/// The loops around a compute that walk one of these, each in several steps.
std::set<NodeId> walks(const ScheduledKernel& k, const ScheduleNode& compute,
                       std::span<const LoopId> loops) {
  std::set<NodeId> found;
  for (NodeId p = compute.parent; p.valid(); p = k.node(p).parent)
    if (k.node(p).kind == NodeKind::loop && k.node(p).max_trips > 1 &&
        std::ranges::find(loops, k.node(p).loop) != loops.end())
      found.insert(p);
  return found;
}

/// A factor says what changed with one block of the reduction: it must be new for every block that
/// is rescaled by it, and used for each once. Follows what it is made from, up to what runs.
void check_factor(const Workload& w, const ScheduledKernel& k, const ScheduleNode& rescaled,
                  TensorId factor) {
  const OpId maker = w.producer(factor);
  const std::span<const LoopId> over = w.reduction_loops(rescaled.op);
  for (const ScheduleNode& n : k.nodes) {
    if (n.kind != NodeKind::compute || n.op != maker) continue;
    if (walks(k, n, over) != walks(k, rescaled, over))
      throw Refused{"operator " + w.op(rescaled.op).name + " is rescaled by " +
                    w.tensor(factor).name + ", which " + w.op(maker).name +
                    " makes for other blocks of the reduction"};
    if (w.op(maker).running) continue;
    for (const Access& a : w.op(maker).inputs)
      if (w.producer(a.tensor).valid()) check_factor(w, k, rescaled, a.tensor);
  }
}

void check_rescaling(const Workload& w, const ScheduledKernel& k, const ScheduleNode& compute) {
  const Operator& op = w.op(compute.op);
  for (const Output& out : op.outputs)
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (out.rescale && reads_input(*out.rescale, static_cast<int>(i)) &&
          w.producer(op.inputs[i].tensor).valid())
        check_factor(w, k, compute, op.inputs[i].tensor);
}

}  // namespace

void check_emittable(const Workload& w, const ScheduledKernel& k) {
  for (const ScheduleNode& n : k.nodes)
    if (n.kind == NodeKind::compute) check_rescaling(w, k, n);
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    if (n.kind == NodeKind::sync && n.scope == Unit::grid)
      for (NodeId p = n.parent; p.valid(); p = k.node(p).parent)
        if (k.node(p).kind == NodeKind::loop && k.node(p).binding == Binding::grid)
          throw Refused{"Y.grid stands inside loop " + w.loop(k.node(p).loop).name +
                        "@grid: the cpu target runs each block to its end"};
  }
  check_sums(w, k, "cpu");
}

}  // namespace tilewright::cpu
