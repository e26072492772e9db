#include "harness/iteration.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace tilewright::harness {
namespace {

/// How long each loop is in one iteration of the loops around a node.
using Lengths = std::map<LoopId, std::int64_t>;

const ScheduleNode& node(const ScheduledKernel& k, NodeId id) { return k.nodes[id.index()]; }

/// Elements of the box that an access touches.
double box(const Workload& w, const Access& access, const Lengths& lengths) {
  const Tensor& tensor = w.tensor(access.tensor);
  double elements = 1;
  for (std::size_t d = 0; d < access.index.size(); ++d) {
    double reach = 1;
    for (const Term& t : access.index[d].terms) {
      const auto at = lengths.find(t.loop);
      const std::int64_t length = at == lengths.end() ? w.loop(t.loop).extent : at->second;
      reach += static_cast<double>(std::abs(t.coefficient)) * static_cast<double>(length - 1);
    }
    elements *= std::min(reach, static_cast<double>(tensor.shape[d]));
  }
  return elements * static_cast<double>(size_of(tensor.dtype));
}

bool moves_with(const Access& access, LoopId loop) {
  return std::ranges::any_of(access.index, [&](const Affine& form) {
    return std::ranges::any_of(form.terms, [&](const Term& t) { return t.loop == loop; });
  });
}

/// Every access of the computes below a node.
void accesses_below(const Workload& w, const ScheduledKernel& k, NodeId id,
                    std::vector<const Access*>& found) {
  const ScheduleNode& at = node(k, id);
  if (at.kind == NodeKind::compute) {
    for (const Access& a : w.op(at.op).inputs) found.push_back(&a);
    for (const Output& o : w.op(at.op).outputs) found.push_back(&o.target);
  }
  for (NodeId child : at.children) accesses_below(w, k, child, found);
}

void loops_below(const ScheduledKernel& k, NodeId id, std::vector<LoopId>& found) {
  for (NodeId child : node(k, id).children) {
    if (node(k, child).kind == NodeKind::loop && node(k, child).max_trips > 1)
      found.push_back(node(k, child).loop);
    loops_below(k, child, found);
  }
}

/// Whether the loop brings a tensor's blocks again, all of them, in each of its iterations.
bool reuses(const ScheduleNode& loop, const std::vector<const Access*>& accesses,
            const std::vector<LoopId>& inner) {
  if (loop.max_trips < 2) return false;
  return std::ranges::any_of(accesses, [&](const Access* a) {
    return !moves_with(*a, loop.loop) &&
           std::ranges::any_of(inner, [&](LoopId l) { return moves_with(*a, l); });
  });
}

double touched(const Workload& w, const std::vector<const Access*>& accesses,
               const Lengths& lengths) {
  std::map<TensorId, double> by;
  for (const Access* a : accesses) by[a->tensor] = std::max(by[a->tensor], box(w, *a, lengths));
  double bytes = 0;
  for (const auto& [tensor, most] : by) bytes += most;
  return bytes;
}

/// The least of the innermost reusing loops at or below the node; whether there is any.
bool least_below(const Workload& w, const ScheduledKernel& k, NodeId id, Lengths lengths,
                 std::optional<double>& least) {
  const ScheduleNode& at = node(k, id);
  if (at.kind == NodeKind::loop) lengths[at.loop] = std::min(at.step, w.loop(at.loop).extent);
  bool any = false;
  for (NodeId child : at.children) any = least_below(w, k, child, lengths, least) || any;
  if (any || at.kind != NodeKind::loop) return any;
  std::vector<const Access*> accesses;
  std::vector<LoopId> inner;
  accesses_below(w, k, id, accesses);
  loops_below(k, id, inner);
  if (!reuses(at, accesses, inner)) return false;
  const double bytes = touched(w, accesses, lengths);
  least = std::min(least.value_or(bytes), bytes);
  return true;
}

double touches_below(const Workload& w, const ScheduledKernel& k, NodeId id, Lengths lengths,
                     double runs, bool outermost) {
  const ScheduleNode& at = node(k, id);
  if (at.kind == NodeKind::compute) {
    double lines = 0;
    for (const Access& a : w.op(at.op).inputs) lines += 1 + box(w, a, lengths) / 64;
    for (const Output& o : w.op(at.op).outputs) lines += 1 + box(w, o.target, lengths) / 64;
    return runs * lines;
  }
  if (at.kind == NodeKind::loop) {
    lengths[at.loop] = std::min(at.step, w.loop(at.loop).extent);
    const auto trips = static_cast<double>(at.max_trips);
    runs *= outermost ? std::min(2.0, trips) : trips;
    outermost = false;
  }
  double sum = 0;
  for (NodeId child : at.children)
    sum += touches_below(w, k, child, lengths, runs, outermost);
  return sum;
}

}  // namespace

std::optional<Bytes> iteration_bytes(const Schedule& schedule) {
  std::optional<double> least;
  for (const ScheduledKernel& k : schedule.kernels)
    least_below(*schedule.workload, k, NodeId(0), {}, least);
  if (!least || *least > 9e18) return std::nullopt;
  return Bytes(static_cast<std::int64_t>(*least));
}

double sure_touches(const Schedule& schedule) {
  double sum = 0;
  for (const ScheduledKernel& k : schedule.kernels)
    sum += touches_below(*schedule.workload, k, NodeId(0), {}, 1, true);
  return sum;
}

}  // namespace tilewright::harness
