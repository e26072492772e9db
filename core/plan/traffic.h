// Bytes moved, by tensor, level boundary and direction: the one type of predictions, simulations
// and measurements.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"

namespace tilewright {

enum class Source : std::uint8_t { predicted, simulated, measured, paper };
std::string_view name_of(Source s);
std::optional<Source> source_from_name(std::string_view name);

/// What a Traffic counts. Two that differ here are not subtracted without a named conversion.
struct Counts {
  bool write_allocate = false;  ///< fills of written lines are in read_bytes
  bool write_back = true;       ///< written data reaches the outer level within the count
  bool prefetch = false;
  friend bool operator==(const Counts&, const Counts&) = default;
};

struct TrafficEntry {
  std::string tensor;
  std::string boundary;     ///< "DRAM/L1": outer/inner
  Bytes read;               ///< towards the inner level
  Bytes written;            ///< towards the outer level
  std::int64_t hits = 0;    ///< hardware caches: touches of the inner level's lines that hit
  std::int64_t misses = 0;  ///< and that missed
  Bytes resident_dirty;  ///< hardware caches: dirty in the inner level at the end, not written back
  friend bool operator==(const TrafficEntry&, const TrafficEntry&) = default;
};

struct Traffic {
  Source source = Source::predicted;
  std::string by;  ///< "exact" and other models, "cache", "scratchpad", "ncu", ...
  std::string machine;
  std::vector<TrafficEntry> entries;  ///< sorted by boundary (outer first), then tensor as declared
  Counts counts;
  std::map<std::string, Bytes> memory;           ///< most bytes alive, by level name
  std::map<std::string, Operations> operations;  ///< by operator, recomputation included
  std::optional<double> seconds;
  std::map<std::string, std::string> unavailable;  ///< boundary -> why it was not counted

  /// Sum over tensors at one boundary; its tensor is "total".
  TrafficEntry total(const std::string& boundary) const;
  /// The entry, or zeros.
  TrafficEntry at(const std::string& tensor, const std::string& boundary) const;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// Entry by entry a - b, source and counts of a; a boundary that either says is unavailable is
/// unavailable and has no entries. A reason where they count different things, or name no tensor in
/// common at a boundary (a meter's one aggregate tensor against tensors apart).
Result<Traffic> subtract(const Traffic& a, const Traffic& b);

}  // namespace tilewright
