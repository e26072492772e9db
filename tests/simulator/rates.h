// How fast the caches count: the golden GEMM and random accesses, as functions that a benchmark
// calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/cache.h"

namespace tilewright::rates {

/// How the GEMM is told: access by access; rows of 64 elements as calls of elements() and update();
/// the inner loop as one call of streams().
enum class Telling { singles, ranges, streams };

struct Rate {
  std::string name;
  double accesses = 0;
  double seconds = 0;  ///< of this process's processor time, so that others' load counts less
  std::vector<std::int64_t> misses, written;  ///< by level, lines
  double per_second() const { return accesses / seconds; }
};

/// The hierarchy of the golden rows: 48K/12, 1M/16, 32M/16, of that policy at every level.
/// `tensors` 3 tells the GEMM's matrices apart, 1 does not.
CacheHierarchy golden_hierarchy(int tensors, const std::string& policy = "lru");

/// Tiled GEMM 512^3, fp32, tiles of 64, loops ii jj kk i k j: 404,750,336 accesses.
Rate gemm(std::int64_t leading, Telling telling, int tensors, const std::string& policy = "lru");
/// 30 million reads of 4 bytes over 64 MiB.
Rate random_accesses(int tensors, const std::string& policy = "lru");
/// Stack distances of the same GEMM, fully associative; misses has one entry, those of 48 KiB.
Rate gemm_distances(std::int64_t leading, Telling telling);

}  // namespace tilewright::rates
