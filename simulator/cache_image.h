// What a hierarchy holds and has counted, in a form that can be compared, moved and put back.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/cache.h"
#include "simulator/cache_sets.h"

namespace tilewright::cache {

/// One level. A set's entries stand in their canonical order: with an order of use or of arrival
/// the newest first, empty ones (kEmpty) last; else by way.
struct LevelImage {
  int line_shift = 6;
  std::uint64_t sets = 1;
  std::size_t ways = 1;
  std::vector<Entry> entries;       ///< sets * ways
  std::vector<PolicyState> states;  ///< by set; none with an order. The generator is left out.
  std::vector<Tally> tally;         ///< by tensor, in the engine's own units
};

struct Image {
  std::vector<LevelImage> levels;  ///< innermost first
  std::size_t lines() const {
    std::size_t sum = 0;
    for (const LevelImage& l : levels) sum += l.sets * l.ways;
    return sum;
  }
};

}  // namespace tilewright::cache
