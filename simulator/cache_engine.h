// What counts for a CacheHierarchy: one engine for plain hierarchies, one for all.
#pragma once

#include <memory>
#include <vector>

#include "core/base/error.h"
#include "simulator/attribution.h"
#include "simulator/cache.h"
#include "simulator/cache_image.h"

namespace tilewright::cache {

class Engine {
 public:
  virtual ~Engine() = default;
  /// Touches lines [first byte, last byte] of a level, each once, ascending. Returns whether
  /// quick() is another from now on.
  virtual bool range(std::uint64_t first, std::uint64_t last, bool write, int tensor,
                     std::size_t entry) = 0;
  /// What follows when quick().run has said which lines missed.
  /// Outer levels may be asked later: see settle().
  virtual void missed(int tensor, std::span<const Miss> misses) = 0;
  /// Has outer levels answer all that they were asked, as they must before anybody looks at what
  /// they hold or have counted.
  virtual void settle() {}
  virtual void store_around(std::uint64_t first, std::uint64_t last, int tensor) = 0;
  /// `n` further touches of lines of the innermost level that would all hit and change nothing.
  virtual void more_hits(int tensor, std::int64_t n, std::size_t entry) = 0;
  /// Whether a touch of the line that the innermost level was asked for last, once more and in the
  /// same way, is sure to hit and to change nothing but a count.
  virtual bool settled(std::uint64_t address, bool write, int tensor) const = 0;
  /// Whether that holds of any line of a level that was just touched in the same way.
  virtual bool always_settled(std::size_t level) const = 0;
  /// Whether a sequence of touches of the innermost level that all hit, once more in the same
  /// order, is sure to hit again and to change nothing but counts.
  virtual bool repeats() const = 0;
  /// Of all tensors.
  virtual std::int64_t innermost_misses() const = 0;
  virtual void on_core(int core) = 0;
  virtual Quick quick() = 0;
  /// Sums by tensor, without what is resident.
  virtual std::vector<Tally> tallies(std::size_t level) const = 0;
  /// By tensor, bytes.
  virtual std::vector<std::int64_t> resident_dirty(std::size_t level) const = 0;
  virtual std::vector<std::int64_t> held(std::size_t level) const = 0;  ///< by tensor, lines
  virtual std::vector<std::vector<CacheLine>> contents(std::size_t level, int core) const = 0;
  virtual DramCount dram() const = 0;

  /// Whether image() says all that what is to come depends on, wherever lines lie: no draws, no
  /// prefetchers, sets by number.
  virtual bool has_image() const { return false; }
  virtual void image(Image&) const { TW_CHECK(false, "an engine without images"); }
  /// Puts an image in place of what is held and counted.
  virtual void assign(const Image&) { TW_CHECK(false, "an engine without images"); }

  /// Told of every touch from now on; quick() is then of no use.
  void observe(Attribution* by) { blame_ = by; }

 protected:
  Attribution* blame_ = nullptr;
};

/// Non-inclusive, write-back, fetch on write, modulo, no sectors, no prefetchers, one core, home
/// without rows; any policy.
bool is_plain(const std::vector<CacheGeometry>& levels, const CacheOptions& options);
std::unique_ptr<Engine> plain_engine(const std::vector<CacheGeometry>& levels,
                                     const CacheOptions& options);
std::unique_ptr<Engine> general_engine(const std::vector<CacheGeometry>& levels,
                                       const CacheOptions& options);

}  // namespace tilewright::cache
