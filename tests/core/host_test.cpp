// The machine "host": every way to find it out, and what happens when there is none.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/format.h"
#include "core/machine/assumed_speed.h"
#include "core/machine/host_facts.h"
#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "tests/support/temporary_folder.h"

namespace tilewright {
namespace {

LevelId id(const Machine& m, std::string_view name) {
  const auto found = m.find(name);
  EXPECT_TRUE(found) << name;
  return found.value_or(LevelId(0));
}

TEST(Host, IsAValidMachine) {
  const auto start = std::chrono::steady_clock::now();
  const Machine m = named_machine("host");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("host: %s, %zu levels, from %s, in %.1f ms\n", m.summary.c_str(), m.levels.size(),
              m.levels[1].sources.at("capacity").c_str(), took.count() * 1e3);
  EXPECT_NO_THROW(check(m));
  EXPECT_EQ(m.name, "host");
  EXPECT_EQ(machine_from_yaml(to_yaml(m), "again"), m) << to_yaml(m);
  for (const Level& l : m.levels) EXPECT_EQ(l.bandwidth.value, 0);
}

TEST(Host, SourcesAgreeWhereTheyAreThere) {
  const auto sysfs = topology_from_sysfs();
  if (!sysfs) GTEST_SKIP() << "no caches in /sys here";
  for (const auto& other : {topology_from_hwloc(), topology_from_cpuid()}) {
    if (!other) continue;
    SCOPED_TRACE(other->source);
    EXPECT_EQ(other->caches.front().size, sysfs->caches.front().size);
    EXPECT_EQ(other->caches.front().ways, sysfs->caches.front().ways);
    EXPECT_EQ(other->caches.front().line, sysfs->caches.front().line);
  }
}

TEST(Host, ReadsSysfsAndCpuinfo) {
  const TemporaryFolder folder;
  const auto cache = [&](int cpu, int index, const char* level, const char* type, const char* size,
                         const char* ways, const char* shared) {
    const std::string at = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" +
                           std::to_string(index) + "/";
    folder.write(at + "level", std::string(level) + "\n");
    folder.write(at + "type", std::string(type) + "\n");
    folder.write(at + "size", std::string(size) + "\n");
    folder.write(at + "ways_of_associativity", std::string(ways) + "\n");
    folder.write(at + "coherency_line_size", "64\n");
    folder.write(at + "shared_cpu_list", std::string(shared) + "\n");
  };
  for (int cpu = 0; cpu < 4; ++cpu) {
    const char* pair = cpu < 2 ? "0-1" : "2-3";
    cache(cpu, 0, "1", "Data", "48K", "12", pair);
    cache(cpu, 1, "1", "Instruction", "32K", "8", pair);
    cache(cpu, 2, "2", "Unified", "1024K", "16", pair);
    cache(cpu, 3, "3", "Unified", "30976K", "11", "0-3");
  }
  folder.write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3900000\n");
  folder.write("proc/cpuinfo",
               "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
               "model name\t: Test CPU\nphysical id\t: 0\ncore id\t: 0\n"
               "flags\t\t: fpu sse2 avx2 avx512f\n\nprocessor\t: 1\nphysical id\t: 0\n"
               "core id\t: 0\n\nprocessor\t: 2\nphysical id\t: 0\ncore id\t: 1\n\n"
               "processor\t: 3\nphysical id\t: 0\ncore id\t: 1\n");
  const auto topology = topology_from_sysfs(folder.path() + "/sys");
  ASSERT_TRUE(topology);
  const HostProcessor p = processor_from_files(folder.path() + "/proc", folder.path() + "/sys");
  const Machine m = machine_of_host(topology, p);
  EXPECT_NO_THROW(check(m));
  EXPECT_EQ(m.summary, "Test CPU");
  ASSERT_EQ(m.levels.size(), 5U);
  const Level& l1 = m.level(id(m, "L1"));
  EXPECT_EQ(l1.capacity, Bytes(48 << 10));
  EXPECT_EQ(l1.ways, 12);
  EXPECT_EQ(l1.instances, 2);
  EXPECT_EQ(l1.private_to, Unit::grid);
  const Level& l3 = m.level(id(m, "L3"));
  EXPECT_EQ(l3.ways, 11);
  EXPECT_EQ(l3.instances, 1);
  EXPECT_EQ(l3.private_to, Unit::machine);
  EXPECT_EQ(m.units[0].count, 2);
  EXPECT_EQ(m.units[0].clock_hz, 3.9e9);
  EXPECT_EQ(m.units[0].vector_width, Bytes(64));
  EXPECT_EQ(m.units[0].cycles.at("fma"), 0.5) << m.units[0].sources.at("cycles.fma");
  EXPECT_EQ(m.level(id(m, "registers")).capacity, Bytes(2048));
}

TEST(Host, MultiplyAddsOfACycleGoByTheFamily) {
  struct Case {
    const char *vendor, *family, *model, *flags;
    double cycles;  // 0: not known
  };
  for (const Case& c : {Case{"GenuineIntel", "6", "207", "avx2 avx512f", 0.5},  // Emerald Rapids
                        Case{"GenuineIntel", "6", "126", "avx2 avx512f", 1},    // Ice Lake, laptops
                        Case{"GenuineIntel", "6", "151", "avx2", 0.5},          // Alder Lake
                        Case{"AuthenticAMD", "25", "17", "avx2 avx512f", 1},    // Zen 4
                        Case{"AuthenticAMD", "26", "2", "avx2 avx512f", 0.5},   // Zen 5
                        Case{"AuthenticAMD", "23", "1", "avx2", 1},             // Zen
                        Case{"AuthenticAMD", "23", "49", "avx2", 0.5},          // Zen 2
                        Case{"GenuineIntel", "15", "4", "sse2", 0},
                        Case{"another", "6", "207", "avx2 avx512f", 0}}) {
    const TemporaryFolder folder;
    folder.write("cpuinfo",
                 formatted("vendor_id\t: {}\ncpu family\t: {}\nmodel\t: {}\nflags\t: {}\n",
                           c.vendor, c.family, c.model, c.flags));
    const HostProcessor p = processor_from_files(folder.path(), folder.path());
    EXPECT_EQ(p.fma_cycles, c.cycles) << c.vendor << " " << c.family << " " << c.model;
    EXPECT_EQ(p.fma_source.empty(), c.cycles == 0);
  }
}

TEST(Host, WithoutAnythingSizesAreAssumedAndSaySo) {
  const TemporaryFolder folder;
  EXPECT_FALSE(topology_from_sysfs(folder.path()));
  const HostProcessor p = processor_from_files(folder.path(), folder.path());
  const Machine m = machine_of_host(std::nullopt, p);
  EXPECT_NO_THROW(check(m));
  EXPECT_EQ(m.level(id(m, "L1")).capacity, Bytes(32 << 10));
  EXPECT_EQ(m.level(id(m, "L1")).sources.at("capacity").find("assumed"), 0U);
}

TEST(Host, AssumedSpeedFillsWhatIsUnknownAndNothingElse) {
  const Machine m = machine_of_host(std::nullopt, HostProcessor{.clock_hz = 2e9});
  const auto filled = with_assumed_speed(std::make_shared<Machine>(m));
  double inner = 1e30;
  for (std::size_t i = filled->levels.size(); i-- > 1;) {
    const Level& l = filled->levels[i];
    if (l.kind != LevelKind::cache) continue;
    EXPECT_GT(l.bandwidth.value, 0) << l.name;
    EXPECT_LE(l.bandwidth.value, inner) << l.name << " is no faster than the cache within it";
    inner = l.bandwidth.value;
    EXPECT_TRUE(l.sources.at("bandwidth").starts_with(kAssumedSource));
  }
  EXPECT_GT(filled->units.front().cycles.at("stream"), 0);
  EXPECT_EQ(with_assumed_speed(filled), filled) << "nothing is left to assume";

  Machine known = m;
  known.levels[1].bandwidth.value = 5e9, known.levels[1].sources["bandwidth"] = "measured";
  const auto kept = with_assumed_speed(std::make_shared<Machine>(known));
  EXPECT_EQ(kept->levels[1].bandwidth.value, 5e9);
  EXPECT_EQ(kept->levels[1].sources.at("bandwidth"), "measured");
}

TEST(Host, OddTopologiesStillMakeAMachine) {
  // A hypervisor that invents 20 ways for 48 KiB, and one that gives no line size.
  const HostTopology odd = {.caches = {{.level = 1, .size = 48 << 10, .line = 64, .ways = 20},
                                       {.level = 2, .size = 1000'000, .line = 0, .ways = 0}},
                            .cores = 1,
                            .source = "test"};
  const Machine m = machine_of_host(odd, HostProcessor{});
  EXPECT_NO_THROW(check(m));
  EXPECT_EQ(m.level(id(m, "L1")).ways, 0);
}

}  // namespace
}  // namespace tilewright
