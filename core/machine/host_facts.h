// What a running CPU says of itself, without measuring anything. For machine_host.cpp and its
// tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine/machine.h"

namespace tilewright {

/// A data or unified cache.
struct HostCache {
  int level = 0;
  std::int64_t size = 0;
  std::int64_t line = 0;       ///< 0: unknown
  std::int64_t ways = 0;       ///< 0: unknown, or fully associative
  std::int64_t instances = 1;  ///< in the machine
};

struct HostTopology {
  std::vector<HostCache> caches;  ///< one a level, innermost first
  std::int64_t cores = 0;         ///< physical ones; 0: unknown
  std::string source;             ///< "hwloc", "sysfs", ...
};

struct HostProcessor {
  std::string model;       ///< empty: unknown
  std::int64_t cores = 0;  ///< physical ones; 0: unknown
  double clock_hz = 0;     ///< 0: unknown
  std::string clock_source;
  std::int64_t vector_bytes = 0;  ///< widest vector register; 0: unknown
  std::int64_t registers = 0;     ///< vector registers of that width
  std::string vector_name;        ///< "AVX-512", "AVX2", ...
  double fma_cycles = 0;          ///< of a multiply-add of such vectors; 0: unknown
  std::string fma_source;
};

/// From libhwloc.so.15, opened at run time; nothing where it is not there or says no cache.
std::optional<HostTopology> topology_from_hwloc();
/// From SYS/devices/system/cpu/cpu*/cache.
std::optional<HostTopology> topology_from_sysfs(const std::string& sys = "/sys");
/// From the processor's own CPUID leaves (x86 only).
std::optional<HostTopology> topology_from_cpuid();
/// From the text of PROC/cpuinfo and SYS/devices/system/cpu/cpu0/cpufreq.
HostProcessor processor_from_files(const std::string& proc = "/proc",
                                   const std::string& sys = "/sys");
/// The machine "host" of these. Without a topology, sizes are assumed and say so.
Machine machine_of_host(const std::optional<HostTopology>& topology,
                        const HostProcessor& processor);

/// The machine that runs this: hwloc, else sysfs, else CPUID, else assumed.
Machine detect_host();

}  // namespace tilewright
