// Nsight Compute (ncu): which counters it is asked for, how it is started, what it prints, and what
// that means in bytes between a GPU's levels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/machine/machine.h"
#include "core/plan/traffic.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

/// One kernel launch as ncu lists it.
struct NcuLaunch {
  std::string kernel;                     ///< its name without parameters
  std::int64_t blocks = 0;                ///< 0: not printed
  std::map<std::string, double> metrics;  ///< in bytes, seconds, or as counted
  std::vector<std::string> missing;       ///< asked for, and printed as n/a
};
/// What `ncu --csv --page raw` prints, launches in order: a line of names, one of units, one a
/// launch. Lines before the names, and the tool's own ("==PROF== ..."), are passed over. Numbers
/// may have commas between thousands; units with a prefix (Kbyte, usecond) are converted. A Reason:
/// the tool's own error, or why it is no such table.
Result<std::vector<NcuLaunch>> ncu_launches(std::string_view text);

/// The metrics, without rollups, that `ncu --query-metrics` lists.
std::set<std::string> ncu_listed(std::string_view text);

/// ncu by the PATH, $CUDA_HOME/bin, /usr/local/cuda/bin; empty where there is none.
std::filesystem::path find_ncu();

/// What the tool does to caches before each pass: all flushed and invalidated, or nothing.
enum class CacheControl : std::uint8_t { all, none };
std::string_view name_of(CacheControl c);

/// The metrics that the tool on this machine knows, and those of ours that it does not.
struct NcuMetrics {
  std::vector<std::string> known;
  std::vector<std::string> refused;
};
/// Asks the tool. A Reason where it does not answer or knows none of ours.
Result<NcuMetrics> ncu_available(const std::filesystem::path& ncu);

/// The tool's arguments, then the child's words. It counts between cuProfilerStart and Stop.
std::vector<std::string> ncu_command(const std::filesystem::path& ncu, const NcuMetrics& metrics,
                                     CacheControl control, const std::filesystem::path& log,
                                     const std::vector<std::string>& child);

/// Starts `child` under the tool and returns every launch that it counted. A Reason where there is
/// none, with what the tool or the child said.
Result<std::vector<NcuLaunch>> ncu_count(const std::filesystem::path& ncu,
                                         const NcuMetrics& metrics, CacheControl control,
                                         const std::vector<std::string>& child);

/// The launches of one plan, told by the prefix of their names: those with `symbols` in that order.
/// A Reason where they are others, or as many as not.
Result<std::vector<NcuLaunch>> ncu_launches_of(std::span<const NcuLaunch> all,
                                               std::span<const std::string> symbols);

/// One run's bytes between the machine's levels: "DRAM/L2" from the memory's own counters,
/// "L2/shared" between L2 and the SMs. All tensors together: "total". A boundary without a counter
/// is unavailable.
Traffic ncu_traffic(std::span<const NcuLaunch> launches, const Machine& machine);

}  // namespace tilewright::profilers
