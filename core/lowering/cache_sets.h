// Whether a box of a tensor, where it lies, spreads over a cache's sets: for whoever packs tiles
// that do not, or prices it.
#pragma once

#include <cstdint>
#include <vector>

namespace tilewright {

/// A box of a row-major tensor and the cache that it is to stay in. Sizes are in elements.
struct SetsBox {
  std::vector<std::int64_t> shape;    ///< the tensor's
  std::vector<std::int64_t> extents;  ///< the box's
  std::int64_t element_bytes = 4;
  std::int64_t line = 64, ways = 8, sets = 64;  ///< the cache's; a line in bytes
};

/// A panel may take half of a set's ways; a tile that is to stay in the cache (`whole_tile`) half
/// as many lines of a set again as an even spread would give it. False, too, where the box has more
/// than `most_lines` lines. Cost: a step a row and a set.
bool spreads_over_sets(const SetsBox& b, bool whole_tile,
                       std::int64_t most_lines = std::int64_t{1} << 18);
/// Lines of the box, about: each row's, and one more where it begins within one.
std::int64_t lines_of_box(const SetsBox& b);

}  // namespace tilewright
