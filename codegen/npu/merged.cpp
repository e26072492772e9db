#include "codegen/npu/merged.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/workload/merge_loops.h"
#include "core/workload/subgraph.h"

namespace tilewright::npu {
namespace {

/// Whether no node of the tree cuts the loop.
bool whole(const Node& n, const tilewright::Loop& loop) {
  if (n.kind == Node::Kind::loop && n.name == loop.name && n.step < loop.extent) return false;
  return std::ranges::all_of(n.children, [&](const Node& c) { return whole(c, loop); });
}

/// The tree without the inner loop, and with longer steps of the outer one.
Node merged(Node n, const tilewright::Loop& outer, const tilewright::Loop& inner) {
  std::vector<Node> children;
  for (Node& c : n.children) {
    Node one = merged(std::move(c), outer, inner);
    if (n.kind == Node::Kind::sequence && one.kind == Node::Kind::sequence)
      std::ranges::move(one.children, std::back_inserter(children));
    else
      children.push_back(std::move(one));
  }
  n.children = std::move(children);
  if (n.kind != Node::Kind::loop) return n;
  if (n.name == inner.name) return std::move(n.children.front());
  if (n.name == outer.name) n.step *= inner.extent;
  return n;
}

}  // namespace

std::optional<Schedule> merged_kernel(const Schedule& schedule, std::size_t kernel) {
  const ScheduledKernel& k = schedule.kernels[kernel];
  if (no_subgraph(*schedule.workload, k.ops)) return std::nullopt;
  WorkloadSpec spec = subgraph(*schedule.workload, k.ops).spec();
  for (tilewright::Tensor& t : spec.tensors) t.values = {};
  Kernel plan = schedule.resolved.kernels[kernel];
  const auto may = [&](const tilewright::Loop& outer, const tilewright::Loop& inner) {
    const auto is_home = [&](const auto& pin) { return pin.second.at == inner.name; };
    if (!whole(plan.tree, inner) || std::ranges::any_of(plan.pins, is_home)) return false;
    plan.tree = merged(std::move(plan.tree), outer, inner);
    return true;
  };
  std::optional<Workload> w = merged_loops(Workload::create(std::move(spec)), may);
  if (!w) return std::nullopt;
  Result<Schedule> s = resolve({.kernels = {std::move(plan)}},
                               std::make_shared<const Workload>(std::move(*w)), schedule.machine);
  return s ? std::optional(std::move(s).value()) : std::nullopt;
}

}  // namespace tilewright::npu
