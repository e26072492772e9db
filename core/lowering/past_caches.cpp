#include "core/lowering/past_caches.h"

#include <algorithm>
#include <set>

namespace tilewright {
namespace {

/// Whether an element is complete as it is stored: its operator sums nothing up.
bool complete_as_stored(const Workload& w, const Buffer& b) {
  const OpId op = w.producer(b.tensor);
  return op.valid() && w.reduction_loops(op).empty();
}

}  // namespace

bool stored_past_caches(const Schedule& s, const ScheduledKernel& k, BufferId id) {
  const Workload& w = *s.workload;
  const Buffer& b = k.buffer(id);
  if (b.role != BufferRole::output || b.outer.valid() || b.atomic || !complete_as_stored(w, b))
    return false;
  const auto& levels = s.machine->levels;
  const auto last = std::ranges::find(levels, LevelKind::cache, &Level::kind);
  if (last == levels.end() || last->managed == Managed::software) return false;
  const auto capacity = static_cast<double>(last->capacity.value);
  const auto bytes = [&](TensorId t) { return static_cast<double>(w.tensor(t).bytes().value); };
  if (bytes(b.tensor) < capacity / 2) return false;
  std::set<TensorId> seen;
  double touched = 0;
  for (const Buffer& other : k.buffers)
    if ((other.role != BufferRole::intermediate || other.leaves) && !other.outer.valid() &&
        seen.insert(other.tensor).second)
      touched += bytes(other.tensor);
  return touched > capacity;
}

}  // namespace tilewright
