// A plain multi-level LRU, as short as it can be, to hold CacheHierarchy against. Equal lines only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simulator/cache.h"

namespace tilewright::testing {

struct ReferenceLru {
  struct Level {
    std::int64_t sets, ways;
    std::vector<std::vector<CacheLine>> rows{static_cast<std::size_t>(sets)};
    std::vector<std::int64_t> hits, misses, written;  // by tensor
  };
  std::vector<Level> levels;

  explicit ReferenceLru(const std::vector<CacheGeometry>& geometry, std::size_t tensors) {
    for (const CacheGeometry& g : geometry) {
      const std::int64_t lines = g.capacity.value / g.line.value, ways = g.ways ? g.ways : lines;
      levels.push_back({.sets = lines / ways, .ways = ways});
      levels.back().hits = levels.back().misses = levels.back().written =
          std::vector<std::int64_t>(tensors, 0);
    }
  }
  void touch(std::size_t i, CacheLine now, bool write_back = false) {
    if (i == levels.size()) return;
    Level& l = levels[i];
    auto& row = l.rows[static_cast<std::size_t>(now.line % l.sets)];
    const auto at = std::find_if(row.begin(), row.end(),
                                 [&](const CacheLine& c) { return c.line == now.line; });
    const auto tensor = static_cast<std::size_t>(now.tensor);
    if (at != row.end()) {
      const CacheLine held = now.dirty ? now : *at;
      row.erase(at);
      row.insert(row.begin(), held);
      if (!write_back) ++l.hits[tensor];
      return;
    }
    if (!write_back) ++l.misses[tensor], touch(i + 1, {now.line, now.tensor, false});
    row.insert(row.begin(), now);
    if (static_cast<std::int64_t>(row.size()) <= l.ways) return;
    const CacheLine victim = row.back();
    row.pop_back();
    if (victim.dirty)
      ++l.written[static_cast<std::size_t>(victim.tensor)], touch(i + 1, victim, true);
  }
};

}  // namespace tilewright::testing
