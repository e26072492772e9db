#include "core/lowering/gpu/block_order.h"

#include <algorithm>
#include <vector>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::lowering {
namespace {

/// Bytes that the outermost cache holds; 0: there is none.
std::int64_t cache_bytes(const Machine& m) {
  const auto cache = std::ranges::find_if(
      m.levels, [](const Level& l) { return l.kind == LevelKind::cache && l.bandwidth.value > 0; });
  return cache == m.levels.end() ? 0 : cache->capacity.value;
}

bool at_home(const Buffer& b) { return !b.outer.valid(); }
bool loads(const Buffer& b) { return at_home(b) && b.role == BufferRole::input; }
bool moves(const ScheduledKernel& k, TensorId t) {
  return std::ranges::any_of(k.buffers, [&](const Buffer& b) {
    return b.tensor == t && at_home(b) && (b.role != BufferRole::intermediate || b.leaves);
  });
}

}  // namespace

bool from_last_block(const Schedule& s, int kernel) {
  const std::int64_t kept = cache_bytes(*s.machine);
  if (kept <= 0) return false;
  std::vector<bool> from_last;
  for (std::size_t i = 0; i <= static_cast<std::size_t>(kernel); ++i) {
    const ScheduledKernel& k = s.kernels[i];
    from_last.push_back(false);
    if (k.co_resident || !binds_units(k)) continue;
    std::int64_t longest = kept / 2;
    for (const Buffer& b : k.buffers) {
      const std::int64_t bytes = s.workload->tensor(b.tensor).bytes().value;
      if (!loads(b) || bytes <= longest) continue;
      for (std::size_t before = i; before-- > 0;)
        if (moves(s.kernels[before], b.tensor)) {
          from_last.back() = !from_last[before];
          longest = bytes;
          break;
        }
    }
  }
  return from_last.back();
}

}  // namespace tilewright::lowering
