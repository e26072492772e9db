// How a loop's iterations touch memory alike: each what the one before touched, some bytes further.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/stream.h"

namespace tilewright {

/// From iteration `first` on up to the last but one, an iteration of a loop makes the touches of
/// the one before it, in the same order and in the same way, those of each region of the address
/// map moved by so many bytes.
struct LoopTranslation {
  std::int64_t first = 0;
  std::vector<std::int64_t> bytes;  ///< by AddressMap::regions()
  std::vector<bool> touched;        ///< by region: whether the loop touches it at all
};

/// What operators read and write at home or in packed arrays, of the loop that a walk stands before
/// (`point.next` is not asked for). None where iterations are not so alike, or are not known to be:
///   - in a kernel that skips (`!once`), slides or adds atomically: what it does depends on the
///   past;
///   - where the loop moves an index that is not a plain loop (a convolution's window, which the
///     tensor's edge clips), or moves two accesses to one tensor differently;
///   - where tiles of a tensor that the loop moves lie unevenly (AddressMap::translation).
/// `first` is 1 where the loop is a reduction, whose first iteration writes without reading.
/// Cost: the kernel's nodes and the loops of its operators.
std::optional<LoopTranslation> translation_of(const Schedule& s, const AddressMap& map,
                                              const LoopPoint& point);

/// What decides which touches a loop makes when it is run, beside its kernel: if two runs of it
/// agree in this, they make the same touches in the same order.
struct LoopRun {
  std::int64_t count = 0;
  std::vector<Interval> ranges;  ///< of the loops of the operators within
  std::vector<Box> tiles;        ///< of the packed arrays that they touch, where fixed outside
  friend bool operator==(const LoopRun&, const LoopRun&) = default;
};
/// None in kernels that depend on the past (see translation_of). Cost: the kernel's nodes.
std::optional<LoopRun> run_of(const Schedule& s, const AddressMap& map, const LoopPoint& point);

}  // namespace tilewright
