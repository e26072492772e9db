// The machine "host": what the processor says of itself, put together. Nothing is measured, so
// bandwidths and peaks stay unknown.
#include <algorithm>

#include "core/base/error.h"
#include "core/machine/host_facts.h"

namespace tilewright {
namespace {

constexpr const char* kAssumed = "assumed: the host does not say";

HostTopology assumed_topology() {
  return {.caches = {{.level = 1, .size = 32 << 10, .line = 64, .ways = 8},
                     {.level = 2, .size = 1 << 20, .line = 64, .ways = 16},
                     {.level = 3, .size = 32 << 20, .line = 64, .ways = 16}},
          .source = kAssumed};
}

Level level_of(const HostCache& cache, std::int64_t cores, const std::string& source) {
  Level level;
  level.name = "L" + std::to_string(cache.level);
  level.kind = LevelKind::cache;
  level.managed = Managed::hardware;
  level.line = level.sector = Bytes(cache.line > 0 ? cache.line : 64);
  level.sources["line"] = cache.line > 0 ? source : kAssumed;
  level.capacity = Bytes(cache.size - cache.size % level.line.value);
  level.sources["capacity"] = source;
  level.ways = cache.ways;
  level.sources["ways"] = source;
  if (level.ways > 0 && level.capacity.value % (level.line.value * level.ways) != 0) {
    level.sources["ways"] = "assumed: " + source + " says " + std::to_string(level.ways) +
                            ", which makes no whole number of sets";
    level.ways = 0;
  }
  level.instances = std::max<std::int64_t>(cache.instances, 1);
  level.sources["instances"] = source;
  const bool is_private = cache.level < 3 && level.instances >= cores;
  level.private_to = is_private ? Unit::grid : Unit::machine;
  return level;
}

/// Instances as the cores imply, where the source of the sizes does not count them.
void fill_instances(HostTopology& t, std::int64_t cores) {
  if (t.source != kAssumed && t.source != "CPUID") return;
  for (HostCache& cache : t.caches) cache.instances = cache.level < 3 ? cores : 1;
}

Level registers_of(const HostProcessor& p, std::int64_t cores, const std::string& outer) {
  Level level;
  level.name = "registers";
  level.kind = LevelKind::registers;
  level.managed = Managed::software;
  level.capacity = Bytes(p.registers * p.vector_bytes);
  level.private_to = Unit::thread;
  level.instances = cores;
  level.filled_by = {outer};
  const std::string source = "/proc/cpuinfo: " + p.vector_name;
  level.sources["capacity"] = source + ", " + std::to_string(p.registers) + " registers of " +
                              std::to_string(p.vector_bytes) + " bytes";
  level.sources["instances"] = "assumed: one for each core, one thread a core";
  return level;
}

}  // namespace

Machine machine_of_host(const std::optional<HostTopology>& found, const HostProcessor& p) {
  HostTopology t = found.value_or(assumed_topology());
  std::erase_if(t.caches, [](const HostCache& c) { return c.size < 1024; });
  if (t.caches.empty()) t = assumed_topology();
  const std::int64_t known = t.cores > 0 ? t.cores : p.cores;
  const std::int64_t cores = std::max<std::int64_t>(known, 1);
  fill_instances(t, cores);

  Machine m;
  m.name = "host";
  m.kind = "cpu";
  m.summary = p.model.empty() ? "the machine that runs this" : p.model;
  m.levels.push_back({.name = "DRAM",
                      .kind = LevelKind::home,
                      .managed = Managed::software,
                      .private_to = Unit::machine,
                      .note = "its bandwidth is unknown: nothing is measured here"});
  for (auto cache = t.caches.rbegin(); cache != t.caches.rend(); ++cache) {
    m.levels.push_back(level_of(*cache, cores, t.source));
    m.levels.back().filled_by = {m.levels[m.levels.size() - 2].name};
  }
  if (p.registers > 0) {
    m.levels.push_back(registers_of(p, cores, std::string(m.levels.back().name)));
  }
  ComputeUnit core;
  core.name = "core";
  core.count = cores;
  core.sources["count"] = t.cores > 0 ? t.source : known > 0 ? "/proc/cpuinfo" : kAssumed;
  core.clock_hz = p.clock_hz;
  if (p.clock_hz > 0) core.sources["clock"] = p.clock_source;
  core.vector_width = Bytes(p.vector_bytes);
  core.registers = p.registers;
  if (p.registers > 0) {
    core.sources["vector_width"] = core.sources["registers"] = "/proc/cpuinfo: " + p.vector_name;
  }
  if (p.fma_cycles > 0)
    core.cycles["fma"] = p.fma_cycles, core.sources["cycles.fma"] = p.fma_source;
  m.units.push_back(std::move(core));
  return m;
}

Machine detect_host() {
  const HostProcessor processor = processor_from_files();
  for (auto* find : {+[] { return topology_from_hwloc(); }, +[] { return topology_from_sysfs(); },
                     +[] { return topology_from_cpuid(); }}) {
    const std::optional<HostTopology> topology = find();
    if (!topology) continue;
    try {
      Machine m = machine_of_host(topology, processor);
      check(m);
      return m;
    } catch (const InputError&) {
      // What it says makes no machine (a hypervisor's invention): ask the next.
    }
  }
  return machine_of_host(std::nullopt, processor);
}

}  // namespace tilewright
