// Sets of loops and of vertices, and the sizes of warps and blocks that trees are written and
// priced for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/lowering/gpu/thread_program.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {

inline constexpr std::int64_t kWarp = lowering::kLanes;
inline constexpr std::int64_t kMostWarps = lowering::kBlockWarps;
/// Threads of a block, at most, that a loop's trips ask for.
inline constexpr std::int64_t kThreadsOfTrips = lowering::kTripWarps * kWarp;

inline LoopSet bit(int l) { return LoopSet(static_cast<std::size_t>(l)); }
inline LoopSet bit(LoopId l) { return LoopSet(l); }
/// `vertices` are in order.
inline bool in(std::span<const int> vertices, int v) {
  return std::ranges::binary_search(vertices, v);
}
/// Loops that an index, or any index of an access, has.
inline LoopSet loops_of(const Affine& index) {
  LoopSet m;
  for (const Term& t : index.terms) m |= bit(t.loop);
  return m;
}
inline LoopSet loops_of(const Access& a) {
  LoopSet m;
  for (const Affine& index : a.index) m |= loops_of(index);
  return m;
}

}  // namespace tilewright::stitching
