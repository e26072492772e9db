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

/// How many lines of a box a set may have, where an even spread gives it so many: a panel may take
/// half of its ways. A panel that would not stay however it lies, and a tile that is to stay in the
/// cache (`whole_tile`), may have half as many again as an even spread.
std::int64_t room_of_set(std::int64_t even, std::int64_t ways, bool whole_tile);
/// Whether no set has more of the box than that. False, too, where the box has more
/// than `most_lines` lines. Cost: a step a row and a set.
bool spreads_over_sets(const SetsBox& b, bool whole_tile,
                       std::int64_t most_lines = std::int64_t{1} << 18);
/// Lines of the box, about: each row's, and one more where it begins within one.
std::int64_t lines_of_box(const SetsBox& b);

}  // namespace tilewright
