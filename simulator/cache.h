// Caches, any number of levels, with traffic by tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/machine/cache_behaviour.h"
#include "core/machine/machine.h"
#include "simulator/cache_entry.h"

namespace tilewright {

/// One level: capacity / (line * ways) sets, of which there may be any number; a line's set is its
/// number modulo the sets unless `behaviour` says otherwise. ways 0: fully associative. A line is a
/// power of two; so is a sector, the part of a line that is fetched and written back on its own.
struct CacheGeometry {
  std::string name = {};
  Bytes capacity;
  std::int64_t ways = 0;
  Bytes line{64};
  Bytes sector{0};             ///< 0: the line; else at most 64 a line
  std::string policy = "lru";  ///< see Replacement
  CacheBehaviour behaviour = {};
  bool shared = false;  ///< one instance for all cores; else one each
  friend bool operator==(const CacheGeometry&, const CacheGeometry&) = default;
};
/// Of a level that hardware manages; shared where the machine has one for all.
CacheGeometry geometry_of(const Level& level);

/// What one tensor did at one level, across the boundary to the next outer one.
struct CacheCount {
  std::int64_t hits = 0;        ///< touches from within that found their line (and sectors)
  std::int64_t misses = 0;      ///< and that did not
  Bytes read;                   ///< fills, write-allocate and prefetches included
  Bytes written;                ///< dirty lines or sectors evicted, writes passed through or around
  Bytes resident_dirty;         ///< dirty there now
  Bytes handed;                 ///< clean victims that an exclusive or victim level took
  std::int64_t prefetches = 0;  ///< lines that a prefetcher of this level asked for
  std::int64_t useful_prefetches = 0;  ///< of those, that a touch from within then found
  std::int64_t invalidations = 0;      ///< lines taken out by an inclusive level or another core
  CacheCount& operator+=(const CacheCount& more);
  friend bool operator==(const CacheCount&, const CacheCount&) = default;
};

/// One line of a level: its number (address / line size), who wrote it last (who brought it in, if
/// nobody wrote it), and whether any of it is to be written back.
struct CacheLine {
  std::int64_t line = 0;
  int tensor = 0;
  bool dirty = false;
  friend bool operator==(const CacheLine&, const CacheLine&) = default;
};

/// Requests that reach home, in units of a line or less, by what the DRAM's open rows made of them.
struct DramCount {
  std::int64_t reads = 0, writes = 0;
  std::int64_t row_hits = 0;       ///< to the open row of the bank
  std::int64_t row_misses = 0;     ///< the bank had no row open
  std::int64_t row_conflicts = 0;  ///< it had another one open
  friend bool operator==(const DramCount&, const DramCount&) = default;
};

struct CacheOptions {
  int tensors = 1;  ///< how many are told apart, at most 32767
  int cores = 1;    ///< 1 to 1024
  DramRows dram = {};
  std::uint64_t seed = 1;  ///< of policies that draw, and of clean victims
  /// Counts by the engine that knows every behaviour even where the fast one would do.
  bool general = false;
  /// Also says whose fault misses are: see blame(). One core only; slow.
  bool attribute = false;
};

namespace cache {

/// A line that was not there, and what it pushed out; see cache_sets.h. Left uninitialised: buffers
/// of these are on the hottest path.
struct Miss {
  std::uint64_t line;
  std::uint64_t victim;
};

/// Of one tensor; lines, or bytes where it says so.
struct Tally {
  std::int64_t hits = 0, misses = 0;
  std::int64_t read_bytes = 0, written_bytes = 0, handed_bytes = 0;
  std::int64_t prefetches = 0, useful_prefetches = 0, invalidations = 0;
};

/// The line of a set that was touched last, if touching it again changes nothing but a count: for
/// reads whoever's it is, for writes where they would leave the same `meta` (tensor << 1 | dirty).
struct Front {
  static constexpr std::uint64_t kNowhere = std::uint64_t{1} << 63;  ///< next to no address
  std::uint64_t address = kNowhere;                                  ///< of its first byte
  std::uint64_t meta = 0;
};

struct Walk;

/// Where the innermost level can be asked without a call. Without fronts, one that no address
/// matches.
struct Quick {
  Front* fronts = nullptr;  ///< by set
  Tally* tally = nullptr;
  // Not of the type that is counted in, so that a compiler may keep them in registers.
  std::uint32_t rows = 0;  ///< of an address shifted: which byte of `fronts` its front begins with
  std::uint32_t in_line = 0;  ///< bits of an address within a line
  int row_shift = 0;
  // Of rows in order of use, whose second word is next: see CacheHierarchy::touch.
  std::uint32_t* words = nullptr;
  int row_words = 0, word_shift = 0;  ///< log2 of a row's length; what of an address is no tag
  std::uint32_t meta = 0;             ///< bits of a word that are no tag
  bool settles = false;  ///< a line just touched is settled, whatever the policy's state
  /// Touches `n` lines, at most kMost and below `limit`, `touches` times in all, and counts them.
  /// Where lines settle.
  void (*walk)(Walk& through, std::uint64_t first, std::size_t n, std::int64_t touches) = nullptr;
  Walk* through = nullptr;
  /// Where there is no walk. See RunSets; where lines settle, it is once for all times.
  std::size_t (*run)(void* sets, std::uint64_t first, std::size_t n, Miss* misses,
                     std::int64_t times) = nullptr;
  void* sets = nullptr;
  std::uint64_t limit = 0;
  static constexpr std::size_t kMost = 64;
};

class Engine;
class Attribution;
struct Image;

}  // namespace cache

struct LevelBlame;  // attribution.h

/// A core's loads and stores in step: iteration i touches [address + i * stride, + bytes).
struct Stream {
  std::int64_t address = 0;
  std::int64_t stride = 0;  ///< bytes; may be negative
  std::int64_t bytes = 4;
  bool write = false;
  int tensor = 0;
};

/// Caches of one or more cores, innermost first. Home lies beyond the last one. By default each is
/// LRU, write-back, write-allocate, neither inclusive nor exclusive:
///
/// A touch that misses in a level asks the next one for the line (a read there, whatever it is
/// here) and fills it on the way back, so every level on the way holds it; the line it replaces, if
/// dirty, is then written to the next level. There a write-back finds the line, or allocates it:
/// without a fill where it covers whole sectors (always, unless outer sectors are longer), and may
/// push out a dirty line in turn. Either way the line becomes dirty and is touched. Write-backs
/// count as neither hit nor miss in the level that receives them (but where it has to fetch);
/// evicting from an outer level leaves inner ones alone. Nothing is written back at the end: see
/// resident_dirty.
///
/// CacheBehaviour says what else a level may do. In the order in which it happens: a level that
/// misses fetches first, then makes room. Lines that an inclusive level evicts leave all levels
/// within it, dirty data on the way out. A touch of an exclusive or victim level that misses passes
/// on to the next one without leaving anything behind; what the level within evicts is put there
/// afterwards. Prefetchers act after the touch that triggers them, and their requests count as
/// `prefetches` here and as neither hit nor miss further out. Cores keep lines coherent: a write
/// takes the line out of the private levels of all other cores, and a touch that leaves the private
/// levels first gets what another core has dirty written back to the first shared one.
///
/// Addresses are not negative and below 2^48 - 1 lines. Cost: a nanosecond or two a line touched;
/// LRU levels of more than 32 ways keep a hash table instead of rows and cost some ten; behaviours
/// other than replacement some twenty to a hundred.
class CacheHierarchy {
 public:
  /// `inner_to_outer` at least one; tensors is how many are told apart. Throws InputError unless
  /// each capacity is a positive multiple of line * ways, and for behaviours that do not go
  /// together.
  explicit CacheHierarchy(std::vector<CacheGeometry> inner_to_outer, int tensors = 1)
      : CacheHierarchy(std::move(inner_to_outer), CacheOptions{.tensors = tensors}) {}
  CacheHierarchy(std::vector<CacheGeometry> inner_to_outer, const CacheOptions& options);
  ~CacheHierarchy();
  CacheHierarchy(CacheHierarchy&&) noexcept;
  CacheHierarchy& operator=(CacheHierarchy&&) noexcept;

  /// One access of a few bytes: touches each line it overlaps once.
  void read(std::int64_t address, std::int64_t bytes = 1, int tensor = 0) {
    access(address, bytes, false, tensor);
  }
  void write(std::int64_t address, std::int64_t bytes = 1, int tensor = 0) {
    access(address, bytes, true, tensor);
  }
  void access(std::int64_t address, std::int64_t bytes, bool write, int tensor = 0) {
    if (bytes > 0 && !quick(address, bytes, write, tensor)) touch(address, bytes, write, tensor);
  }
  /// Touches each line of [address, address + bytes) once, in ascending order. `entry` is the level
  /// that is asked first: software that fills a scratchpad from the second level passes 1.
  void range(std::int64_t address, std::int64_t bytes, bool write, int tensor = 0,
             std::size_t entry = 0) {
    if (entry != 0 || !walk(address, bytes, write, tensor, 1, 0))
      long_range(address, bytes, write, tensor, entry);
  }
  /// Reads each line of the range once and writes it at once: y += x, line by line.
  void update(std::int64_t address, std::int64_t bytes, int tensor = 0, std::size_t entry = 0) {
    if (entry != 0 || !walk(address, bytes, true, tensor, 2, 0))
      long_update(address, bytes, tensor, entry);
  }
  /// The same counts and state as `count` single accesses of `element` bytes each, one after the
  /// other from `address` on.
  void elements(std::int64_t address, std::int64_t count, std::int64_t element, bool write,
                int tensor = 0) {
    if (!apart(address, element) || !walk(address, count * element, write, tensor, 0, count))
      all_elements(address, count, element, write, tensor);
  }
  /// The same counts and state as that many times a read and a write of an element: y += x.
  void update_elements(std::int64_t address, std::int64_t count, std::int64_t element,
                       int tensor = 0) {
    if (!apart(address, element) || !walk(address, count * element, true, tensor, 0, 2 * count))
      update_all_elements(address, count, element, tensor);
  }
  /// The same counts and state as `rows` times elements(), `pitch` bytes apart.
  void tile(std::int64_t address, std::int64_t rows, std::int64_t pitch, std::int64_t count,
            std::int64_t element, bool write, int tensor = 0);
  /// The same counts and state as, for i from 0 to count - 1, one access of each stream in order: a
  /// loop nest's innermost loop. Cost: where an iteration only repeats lines, nothing for it.
  void streams(std::span<const Stream> streams, std::int64_t count);
  /// A store that bypasses the caches: what they hold of its lines leaves them (dirty lines that it
  /// does not cover are written back), and its bytes are written across every boundary.
  void store_around(std::int64_t address, std::int64_t bytes, int tensor = 0);

  /// Which core's accesses follow, 0 to cores - 1.
  void on_core(int core);

  std::span<const CacheGeometry> levels() const { return geometry_; }
  int tensors() const { return options_.tensors; }
  int cores() const { return options_.cores; }
  /// By tensor, summed over cores. Cost: linear in the level's lines (for resident_dirty).
  std::vector<CacheCount> counts(std::size_t level) const;
  /// Sum over tensors.
  CacheCount total(std::size_t level) const;
  /// What each set of a level holds (a core's instance of it): with lru and fifo the newest first,
  /// else by way.
  std::vector<std::vector<CacheLine>> contents(std::size_t level, int core = 0) const;
  DramCount dram() const;

  /// Lines of a level by tensor, summed over cores. Cost: one look at each.
  std::vector<std::int64_t> held(std::size_t level) const;

  /// Whether what these caches will do depends on no more than an Image says: plain hierarchies
  /// whose policies draw nothing.
  bool has_image() const;
  void image(cache::Image& out) const;     ///< what they hold and have counted, in `out`
  void assign(const cache::Image& image);  ///< in place of what they hold and have counted

  /// With CacheOptions::attribute; see attribution.h.
  const LevelBlame& blame(std::size_t level) const;
  cache::Attribution& attribution() { return *attribution_; }

 private:
  bool quick(std::int64_t address, std::int64_t bytes, bool write, int tensor) {
    const auto a = static_cast<std::uint64_t>(address);
    const std::uint64_t at = (a >> quick_.row_shift) & quick_.rows;
    const cache::Front& front = quick_.fronts[at / sizeof(cache::Front)];
    const std::uint64_t first = a - front.address;
    const std::uint64_t last = first + static_cast<std::uint64_t>(bytes) - 1;
    if ((first | last) > quick_.in_line) return false;
    if (write && front.meta != (static_cast<std::uint64_t>(tensor) << 1 | 1)) return false;
    ++quick_.tally[tensor].hits;
    return true;
  }
  /// Whether no element of an array straddles lines.
  bool apart(std::int64_t address, std::int64_t element) const {
    return ((element | address) & (element - 1)) == 0 &&
           static_cast<std::uint64_t>(element) - 1 <= quick_.in_line;
  }
  /// Touches a range, not too long, of lines that settle, if it can. Counts `each` a line and
  /// `more`.
  bool walk(std::int64_t address, std::int64_t bytes, bool write, int tensor, std::int64_t each,
            std::int64_t more) {
    if (quick_.walk == nullptr || bytes <= 0) return false;
    const std::uint64_t first = static_cast<std::uint64_t>(address) >> line_shift_;
    const std::uint64_t last = static_cast<std::uint64_t>(address + bytes - 1) >> line_shift_;
    if (last - first >= cache::Quick::kMost || last >= quick_.limit) return false;
    const std::uint64_t n = last - first + 1;
    quick_.walk(*quick_.through, cache::entry_of(first, tensor, write), n,
                static_cast<std::int64_t>(n) * each + more);
    return true;
  }
  void touch(std::int64_t address, std::int64_t bytes, bool write, int tensor);
  void long_range(std::int64_t address, std::int64_t bytes, bool write, int tensor,
                  std::size_t entry);
  void long_update(std::int64_t address, std::int64_t bytes, int tensor, std::size_t entry);
  void all_elements(std::int64_t address, std::int64_t count, std::int64_t element, bool write,
                    int tensor);
  void update_all_elements(std::int64_t address, std::int64_t count, std::int64_t element,
                           int tensor);
  void renew_quick();
  const cache::Engine& settled() const;  ///< the engine, when outer levels have answered
  void lines(std::int64_t address, std::int64_t bytes, bool write, int tensor, std::int64_t times,
             std::int64_t touches = 0);
  void run(std::uint64_t first, std::size_t n, std::int64_t times, std::int64_t touches);
  void line_by_line(std::int64_t address, std::int64_t count, std::int64_t element, bool write,
                    int tensor, std::int64_t times);
  void each_element(std::int64_t address, std::int64_t count, std::int64_t element, bool write,
                    int tensor);
  void more_hits(int tensor, std::int64_t n);  ///< see Engine

  std::vector<CacheGeometry> geometry_;
  CacheOptions options_;
  int line_shift_ = 6;  ///< of the innermost level
  cache::Quick quick_;
  std::unique_ptr<cache::Engine> engine_;
  std::unique_ptr<cache::Attribution> attribution_;
};

}  // namespace tilewright
