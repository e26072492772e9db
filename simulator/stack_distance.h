// Stack distances (Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage
// hierarchies", IBM Systems Journal 9 (2), 1970): one pass that counts the misses of LRU caches of
// every size.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/units.h"
#include "simulator/cache.h"

namespace tilewright {

/// How often tensors' touches found their line so many lines deep in the stack.
struct DistanceCounts {
  /// [d]: touches of lines that d other lines of the same set have been touched since; as long as
  /// the deepest one needs.
  std::vector<std::int64_t> at;
  std::int64_t first = 0;  ///< touches of lines never touched before
  std::int64_t touches() const;
  /// Of LRU caches of that many ways a set (1 and more).
  std::int64_t misses(std::int64_t ways) const;
  friend bool operator==(const DistanceCounts&, const DistanceCounts&) = default;
};

/// The stacks of `sets` sets (a line's set is its number modulo the sets; one set: fully
/// associative caches). Exact. Cost: about a nanosecond for a line touched just before, some ten
/// for the sixteen last ones of a set, beyond that a logarithm of the lines in the set; 30 bytes a
/// line ever touched.
class StackDistances {
 public:
  /// Throws InputError where line is no power of two, or a number is below 1.
  StackDistances(Bytes line, std::int64_t sets = 1, int tensors = 1);
  ~StackDistances();
  StackDistances(StackDistances&&) noexcept;

  /// As CacheHierarchy's calls of these names; writes and reads are alike to a stack.
  void access(std::int64_t address, std::int64_t bytes, int tensor = 0) {
    const std::int64_t line = address >> line_shift_;
    if (line == last_ && (address + bytes - 1) >> line_shift_ == line) {
      ++again_[static_cast<std::size_t>(tensor)];
      return;
    }
    range(address, bytes, tensor);
  }
  void range(std::int64_t address, std::int64_t bytes, int tensor = 0);
  void update(std::int64_t address, std::int64_t bytes, int tensor = 0);
  void elements(std::int64_t address, std::int64_t count, std::int64_t element, int tensor = 0);
  void streams(std::span<const Stream> streams, std::int64_t count);

  Bytes line() const { return Bytes(std::int64_t{1} << line_shift_); }
  std::int64_t sets() const;
  int tensors() const { return static_cast<int>(again_.size()); }
  DistanceCounts counts(int tensor) const;
  DistanceCounts total() const;

 private:
  class Impl;
  void touch(std::int64_t line, int tensor);
  void repeat(std::span<const Stream> streams, std::int64_t i, std::int64_t more);

  int line_shift_ = 6;
  std::int64_t last_ = -1;           // touched last of all: distance 0
  std::vector<std::int64_t> again_;  // by tensor: touches of it since, not yet in Impl's counts
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
