// The addresses that a built kernel really loads from and stores to, through simulated caches: what
// lies between the simulation of a plan and what a meter counts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/traffic.h"
#include "profilers/meter.h"
#include "simulator/cache.h"

namespace tilewright::harness {

/// Misses of one cache over the executed addresses, in lines.
struct ExecutedMisses {
  std::string boundary;
  std::int64_t lines = 0;  ///< as our caches count, with write-backs: of all owners
  std::int64_t clean =
      0;  ///< with no line ever dirty, after what ran before the kernel, as cachegrind
  std::int64_t accesses = 0;  ///< accesses with a miss: across two lines that both miss, one
};

/// A trace of a kernel, walked through caches.
struct Executed {
  /// By TensorId, then "workspace" (packed tiles) and "stack" (spilled registers, frames,
  /// constants).
  std::vector<std::string> owners;
  std::vector<std::vector<CacheCount>> counts;  ///< by cache, innermost first, then by owner
  std::vector<std::string> boundaries;          ///< by cache
  std::int64_t loads = 0, stores = 0;
  ExecutedMisses first, last;  ///< of the innermost and the outermost cache, with nothing between
};

/// Executes the kernel once under Valgrind and walks its data accesses through the machine's
/// caches, cold. A Reason where it cannot be executed so, or has no caches. Cost: about a
/// microsecond an instruction, and 20 bytes of temporary file.
Result<Executed> execute(const profilers::BuiltKernel& kernel, const Machine& machine);

/// Where a meter's misses differ from those of the plan's simulation, by cause; in lines.
struct Cause {
  std::string what;
  std::int64_t lines = 0;
};
/// From `plan` (the simulation of the same plan, row-major) to `counted` misses at the boundary of
/// one of Executed's two caches; the causes add up to the difference.
std::vector<Cause> causes(const Executed& executed, const ExecutedMisses& at, const Traffic& plan,
                          std::int64_t counted);

nlohmann::ordered_json executed_json(const Executed& executed);

}  // namespace tilewright::harness
