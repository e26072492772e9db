// What the caches know, as JSON: shared by plans and traces.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/verbs.h"
#include "simulator/gpu/gpu.h"
#include "simulator/simulator.h"
#include "simulator/stack_distance.h"

namespace tilewright::harness {

/// [{"boundary", "tensors": [{"tensor", "compulsory", "capacity", "conflict", "by_loop": {}}],
/// "evictions": {by: {whose: lines}}}]
nlohmann::ordered_json blame_json(const std::vector<Blame>& blame,
                                  const std::vector<std::string>& loops,
                                  const std::vector<std::string>& tensors);
/// What a plain cache does not have: [{"boundary", "handed_bytes", "prefetches", ...}] of levels
/// where any is not zero.
nlohmann::ordered_json behaviour_json(
    const std::vector<std::pair<std::string, std::vector<CacheCount>>>& caches);
nlohmann::ordered_json dram_json(const DramCount& d);
/// {"sms", "partitions", "schedule", "jitter", "sample_waves", "kernels": [{"blocks", ...}]}
nlohmann::ordered_json gpu_json(const gpu::Simulated& s, const gpu::Options& how);

/// The distances that --curve counts: of fully associative caches, and of the innermost cache's
/// sets.
class Curves {
 public:
  Curves(const CacheGeometry& innermost, int tensors);
  StackDistances& associative() { return associative_; }
  StackDistances& sets() { return sets_; }
  /// {"line_bytes", "fully_associative": [{"capacity_bytes", "misses": {tensor: n}}], "sets",
  /// "by_ways": [{"ways", "capacity_bytes", "misses": {}}]}: powers of two and half way between, up
  /// to where only first touches miss.
  nlohmann::ordered_json json(const std::vector<std::string>& tensors) const;
  /// capacity_bytes and each tensor's misses, for every size at which any changes.
  std::string csv(const std::vector<std::string>& tensors) const;

 private:
  StackDistances associative_, sets_;
};

/// What --occupancy writes.
class OccupancyFile {
 public:
  /// Throws InputError unless the name ends in .csv or .json.
  OccupancyFile(std::string path, std::optional<std::int64_t> stride);
  Occupancy& samples() { return samples_; }
  /// .csv: accesses, level and each tensor's lines. .json: {"kind": "occupancy", "stride_accesses",
  /// "levels", "tensors", "traceEvents"}, which is a Chrome trace too: a counter for each level.
  void write(const std::string& workload, const std::string& machine,
             const std::vector<CacheGeometry>& levels,
             const std::vector<std::string>& tensors) const;
  nlohmann::ordered_json summary() const;

 private:
  std::string path_;
  Occupancy samples_;
};

/// {"computes", "finished", "operator", "touched": [{"tensor", "shape", "box": [[first, end],
/// ...]}], "held": [...]}. Of a cache: {"level", "lines", "by_tensor": {tensor: lines}} and, up to
/// kLinesShown lines, "sets": [[{"tensor", "dirty"}, ...]], newest first where the policy knows. Of
/// a level that software manages: {"level", "buffers": [{"tensor", "box", "dirty"}]}.
nlohmann::ordered_json stop_json(const Simulated& s, const Schedule& schedule);
inline constexpr std::int64_t kLinesShown = 1024;
/// {"computes", "of_computes", "loops": [{"kernel", "loop", "iterations"}]} or, where nothing could
/// be, {"none": reason}.
nlohmann::ordered_json skipped_json(const Skipped& s);

/// The machine's hardware caches, innermost first, and the boundaries outwards. Throws InputError
/// where it has none.
struct CachesOf {
  std::vector<CacheGeometry> levels;
  std::vector<std::string> boundaries;
};
CachesOf caches_of(const Machine& m, std::string_view option);

/// simulate --trace.
Answer simulate_trace(const Request& request, const WalkOptions& options);

}  // namespace tilewright::harness
