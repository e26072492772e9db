#include "models/exact/exact.h"

#include <algorithm>
#include <set>

#include "core/lowering/gpu/warpgroup_product.h"
#include "core/lowering/gpu/window_product.h"
#include "models/exact/evaluation.h"

namespace tilewright {

namespace {

bool is_cache(const Machine& m, LevelId l) { return m.level(l).managed == Managed::hardware; }

/// Boundaries that hardware decides, with the reason.
std::map<std::size_t, std::string> decided_by_hardware(const Schedule& s,
                                                       const exact_model::Tally& tally) {
  const Machine& m = *s.machine;
  std::map<std::size_t, std::string> reasons;
  const auto& boundaries = tally.boundaries();
  for (std::size_t i = 0; i < boundaries.size(); ++i)
    if (is_cache(m, boundaries[i].second))
      reasons[i] = m.level(boundaries[i].second).name +
                   " is a hardware cache: what crosses depends on its lines, ways and replacement";
  for (const ScheduledKernel& k : s.kernels) {
    if (is_cache(m, k.level)) {
      for (std::size_t i = 0; i < boundaries.size(); ++i)
        reasons.try_emplace(i, k.name + " computes from " + m.level(k.level).name +
                                   ", a hardware cache: its misses decide what crosses");
      continue;
    }
    for (const Buffer& b : k.buffers) {
      if (!is_cache(m, b.level)) continue;
      for (std::size_t i : tally.crossed(b.outer_level, b.level))
        reasons.try_emplace(i, "what crosses for " + s.workload->tensor(b.tensor).name +
                                   " is decided by " + m.level(b.level).name +
                                   ", a hardware cache");
    }
  }
  return reasons;
}

/// Whether the blocks of the kernel's clusters run together, each with a part of a sum. Of every
/// other kernel one block runs what a cluster's blocks have, in turn, and nothing moves between
/// blocks.
bool sums_over_blocks(const Schedule& s, int kernel) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(kernel)];
  if (s.machine->kind != "gpu" || std::ranges::none_of(k.nodes, [](const ScheduleNode& n) {
        return n.kind == NodeKind::loop && n.binding == Binding::cluster && n.max_trips > 1;
      }))
    return false;
  // Clusters that share sums are of 9.x (PTX ISA, wgmma).
  for (const ComputeUnit& u : s.machine->units)
    if (u.capability != 0 && static_cast<int>(u.capability) != 9) return false;
  if (const auto p = lowering::warpgroup_product(s, kernel)) return p->share > 1;
  const auto p = lowering::window_product(s, kernel);
  return p && p->share > 1;
}

/// What the blocks of clusters read of one another: of a sum that they share, in floats or more
/// than that, the parts of all but one.
void add_between_blocks(const Schedule& s, Traffic& t) {
  const Workload& w = *s.workload;
  const Machine& m = *s.machine;
  for (std::size_t i = 0; i < s.kernels.size(); ++i) {
    if (!sums_over_blocks(s, static_cast<int>(i))) continue;
    const ScheduledKernel& k = s.kernels[i];
    for (const ScheduleNode& compute : k.nodes) {
      if (compute.kind != NodeKind::compute) continue;
      const Operator& op = w.op(compute.op);
      for (NodeId n = compute.parent; n.valid(); n = k.node(n).parent) {
        const ScheduleNode& loop = k.node(n);
        if (loop.kind != NodeKind::loop || loop.binding != Binding::cluster) continue;
        for (const Output& o : op.outputs) {
          if (std::ranges::any_of(o.target.index, [&](const Affine& i) {
                return std::ranges::any_of(i.terms,
                                           [&](const Term& x) { return x.loop == loop.loop; });
              }))
            continue;
          const Tensor& sum = w.tensor(o.target.tensor);
          const std::int64_t each = std::max<std::int64_t>(4, size_of(sum.dtype));
          const Bytes read((loop.max_trips - 1) * sum.elements().value * each);
          if (read.value > 0)
            t.entries.push_back({.tensor = sum.name,
                                 .boundary = "cluster/" + m.level(k.level).name,
                                 .read = read,
                                 .written = Bytes(0)});
        }
      }
    }
  }
}

}  // namespace

Traffic exact(const Schedule& schedule, ExactCost* cost, std::int64_t most_nodes) {
  Traffic t = exact_moved(schedule, cost, most_nodes);
  t.memory = memory_use(schedule);
  return t;
}

Traffic exact_moved(const Schedule& schedule, ExactCost* cost, std::int64_t most_nodes) {
  const Workload& w = *schedule.workload;
  const Machine& m = *schedule.machine;
  exact_model::Tally tally(schedule);
  ExactCost spent;
  bool given_up = false;
  try {
    for (const ScheduledKernel& k : schedule.kernels)
      exact_model::Evaluation(schedule, k, tally, spent, most_nodes).run();
  } catch (const exact_model::GivenUp&) {
    given_up = true;
  }
  if (cost) *cost = spent;

  Traffic t{.source = Source::predicted, .by = "exact", .machine = m.name};
  t.counts = {.write_allocate = false, .write_back = true, .prefetch = false};
  if (given_up) {
    for (const auto& [outer, inner] : tally.boundaries())
      t.unavailable[m.boundary(outer, inner)] =
          "counting would evaluate more than " + std::to_string(most_nodes) +
          " nodes of the trees, because iterations do not repeat";
    return t;
  }
  const auto hardware = decided_by_hardware(schedule, tally);
  for (std::size_t i = 0; i < tally.boundaries().size(); ++i) {
    const std::string name = m.boundary(tally.boundaries()[i].first, tally.boundaries()[i].second);
    if (const auto found = hardware.find(i); found != hardware.end()) {
      t.unavailable[name] = found->second;
      continue;
    }
    for (std::size_t j = 0; j < w.tensors().size(); ++j) {
      const Bytes read(tally.bytes_read(i, TensorId(j)));
      const Bytes written(tally.bytes_written(i, TensorId(j)));
      if (read.value == 0 && written.value == 0) continue;
      t.entries.push_back(
          {.tensor = w.tensors()[j].name, .boundary = name, .read = read, .written = written});
    }
  }
  add_between_blocks(schedule, t);
  for (const ScheduledKernel& k : schedule.kernels)
    for (OpId op : k.ops) t.operations[w.op(op).name] = Operations(tally.operations(op));
  return t;
}

}  // namespace tilewright
