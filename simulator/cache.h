// Set-associative LRU caches, any number of levels, with traffic by tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ir/machine.h"
#include "core/ir/units.h"

namespace tilewright {

/// One level: capacity / (line * ways) sets, of which there may be any number; a line's set is its
/// number modulo the sets. ways 0: fully associative. A line is a power of two.
struct CacheGeometry {
  std::string name = {};
  Bytes capacity;
  std::int64_t ways = 0;
  Bytes line{64};
  friend bool operator==(const CacheGeometry&, const CacheGeometry&) = default;
};
/// Of a level that hardware manages. Sectors are not modelled: a level moves whole lines.
CacheGeometry geometry_of(const Level& level);

/// What one tensor did at one level, across the boundary to the next outer one.
struct CacheCount {
  std::int64_t hits = 0;    ///< touches from within that found their line
  std::int64_t misses = 0;  ///< and that did not; each fills one line
  Bytes read;               ///< fills, write-allocate included
  Bytes written;            ///< dirty lines evicted
  Bytes resident_dirty;     ///< dirty lines there now
  friend bool operator==(const CacheCount&, const CacheCount&) = default;
};

/// One line of a level: its number (address / line size), who wrote it last (who brought it in, if
/// nobody wrote it), and whether it is to be written back.
struct CacheLine {
  std::int64_t line = 0;
  int tensor = 0;
  bool dirty = false;
  friend bool operator==(const CacheLine&, const CacheLine&) = default;
};

/// Caches of one core, innermost first: LRU, write-back, write-allocate, neither inclusive nor
/// exclusive. Home lies beyond the last one.
///
/// A touch that misses in a level asks the next one for the line (a read there, whatever it is
/// here) and fills it on the way back, so every level on the way holds it; the line it replaces, if
/// dirty, is then written to the next level. There a write-back finds the line, or allocates it:
/// without a fill where it covers whole lines (always, unless outer lines are longer), and may push
/// out a dirty line in turn. Either way the line becomes dirty and most recently used. Write-backs
/// count as neither hit nor miss in the level that receives them; evicting from an outer level
/// leaves inner ones alone. Nothing is written back at the end: see resident_dirty.
///
/// Addresses are not negative and below 2^48 lines. Cost: a few nanoseconds a line touched; levels
/// of more than 32 ways keep a hash table instead of rows and cost some ten.
class CacheHierarchy {
 public:
  /// `inner_to_outer` at least one; tensors is how many are told apart (at most 32768). Throws
  /// InputError unless each capacity is a positive multiple of line * ways.
  explicit CacheHierarchy(std::vector<CacheGeometry> inner_to_outer, int tensors = 1);
  ~CacheHierarchy();
  CacheHierarchy(CacheHierarchy&&) noexcept;
  CacheHierarchy& operator=(CacheHierarchy&&) noexcept;

  /// One access of a few bytes: touches each line it overlaps once.
  void read(std::int64_t address, std::int64_t bytes = 1, int tensor = 0) {
    range(address, bytes, false, tensor);
  }
  void write(std::int64_t address, std::int64_t bytes = 1, int tensor = 0) {
    range(address, bytes, true, tensor);
  }
  /// Touches each line of [address, address + bytes) once, in ascending order. `entry` is the level
  /// that is asked first: software that fills a scratchpad from the second level passes 1.
  void range(std::int64_t address, std::int64_t bytes, bool write, int tensor = 0,
             std::size_t entry = 0);
  /// Reads each line of the range once and writes it at once: y += x, line by line.
  void update(std::int64_t address, std::int64_t bytes, int tensor = 0, std::size_t entry = 0);
  /// The same counts and state as `count` single accesses of `element` bytes each, one after the
  /// other from `address` on: every further element of a line is a hit.
  void elements(std::int64_t address, std::int64_t count, std::int64_t element, bool write,
                int tensor = 0);

  std::span<const CacheGeometry> levels() const { return geometry_; }
  int tensors() const { return tensors_; }
  /// By tensor. Cost: linear in the level's lines (for resident_dirty).
  std::vector<CacheCount> counts(std::size_t level) const;
  /// Sum over tensors.
  CacheCount total(std::size_t level) const;
  /// What each set of a level holds, most recently used first.
  std::vector<std::vector<CacheLine>> contents(std::size_t level) const;

 private:
  class Impl;
  std::vector<CacheGeometry> geometry_;
  int tensors_ = 1;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
