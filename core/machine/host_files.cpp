// What /sys, /proc and CPUID say of the processor.
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/format.h"
#include "core/machine/host_facts.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace tilewright {
namespace {

constexpr int kMaxCpus = 4096;
constexpr int kMaxIndices = 16;

/// The first line of a small file; empty where it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// "48K", "1024" (plain), or 0.
std::int64_t size_of_text(const std::string& text) {
  const auto bytes = parse_bytes(text);
  return bytes ? bytes->value : 0;
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

void sort_and_keep_one_a_level(std::vector<HostCache>& caches) {
  std::stable_sort(caches.begin(), caches.end(),
                   [](const HostCache& a, const HostCache& b) { return a.level < b.level; });
  caches.erase(
      std::unique(caches.begin(), caches.end(),
                  [](const HostCache& a, const HostCache& b) { return a.level == b.level; }),
      caches.end());
}

/// Sets the widest vector registers that the flags name.
void read_vectors(const std::string& flags, HostProcessor& p) {
  const auto has = [&](std::string_view flag) {
    std::istringstream words(flags);
    for (std::string word; words >> word;) {
      if (word == flag) return true;
    }
    return false;
  };
  const auto set = [&](std::int64_t bytes, std::int64_t registers, const char* name) {
    p.vector_bytes = bytes;
    p.registers = registers;
    p.vector_name = name;
  };
  if (has("avx512f")) return set(64, 32, "AVX-512");
  if (has("avx2")) return set(32, 16, "AVX2");
  if (has("sse2")) return set(16, 16, "SSE2");
  if (has("asimd")) return set(16, 32, "Advanced SIMD");
}

/// Sets how many multiply-adds of the widest vectors the processor begins in a cycle, where its
/// family says so: Intel's Optimization Reference Manual (servers since Skylake have two units of
/// 64 bytes, other processors with AVX-512 one), AMD's Software Optimization Guides of families 17h
/// (Zen 2 and later: two of 32 bytes), 19h (Zen 4: 64 bytes as two halves) and 1Ah (Zen 5: two).
void read_multiply_adds(const std::string& vendor, std::int64_t family, std::int64_t model,
                        HostProcessor& p) {
  constexpr std::array<std::int64_t, 7> kServers = {0x55, 0x6a, 0x6c, 0x8f, 0xad, 0xae, 0xcf};
  int units = 0;
  if (vendor == "GenuineIntel" && family == 6)
    units = p.vector_bytes == 64 ? (std::ranges::find(kServers, model) != kServers.end() ? 2 : 1)
                                 : (p.vector_bytes == 32 ? 2 : 0);
  if (vendor == "AuthenticAMD" && family >= 0x17)
    units = p.vector_bytes == 64   ? (family >= 0x1a ? 2 : 1)
            : p.vector_bytes == 32 ? (family == 0x17 && model < 0x30 ? 1 : 2)
                                   : 0;
  if (units == 0) return;
  p.fma_cycles = 1.0 / units;
  p.fma_source = formatted("{}, family {}, model {}: multiply-adds of {} x {} bytes a cycle",
                           vendor, family, model, units, p.vector_bytes);
}

}  // namespace

std::optional<HostTopology> topology_from_sysfs(const std::string& sys) {
  const std::string cpus = sys + "/devices/system/cpu/cpu";
  const auto index_path = [&](int cpu, int index) {
    return cpus + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
  };
  HostTopology r;
  r.source = "sysfs";
  std::vector<int> indices;
  for (int index = 0; index < kMaxIndices; ++index) {
    const std::string path = index_path(0, index);
    const std::string type = first_line(path + "type");
    if (type.empty()) break;
    if (type != "Data" && type != "Unified") continue;
    HostCache cache;
    cache.level = static_cast<int>(size_of_text(first_line(path + "level")));
    cache.size = size_of_text(first_line(path + "size"));
    cache.line = size_of_text(first_line(path + "coherency_line_size"));
    cache.ways = size_of_text(first_line(path + "ways_of_associativity"));
    if (cache.level < 1 || cache.size <= 0) continue;
    std::set<std::string> sharers;
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      const std::string list = first_line(index_path(cpu, index) + "shared_cpu_list");
      if (list.empty()) break;
      sharers.insert(list);
    }
    cache.instances = std::max<std::int64_t>(1, static_cast<std::int64_t>(sharers.size()));
    r.caches.push_back(cache);
  }
  if (r.caches.empty()) return std::nullopt;
  sort_and_keep_one_a_level(r.caches);
  return r;
}

std::optional<HostTopology> topology_from_cpuid() {
#if defined(__x86_64__) || defined(__i386__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return std::nullopt;
  // "AuthenticAMD" and "HygonGenuine" describe their caches at a leaf of their own, in Intel's
  // form.
  const bool amd = b == 0x68747541 || b == 0x6f677948;
  const unsigned leaf = amd ? 0x8000001D : 4;
  HostTopology r;
  r.source = "CPUID";
  for (unsigned index = 0; index < kMaxIndices; ++index) {
    if (__get_cpuid_count(leaf, index, &a, &b, &c, &d) == 0) break;
    const unsigned type = a & 31;
    if (type == 0) break;
    if (type == 2) continue;  // instructions
    const std::int64_t ways = (b >> 22) + 1;
    const std::int64_t partitions = ((b >> 12) & 0x3ff) + 1;
    const std::int64_t line = (b & 0xfff) + 1;
    const std::int64_t sets = std::int64_t{c} + 1;
    r.caches.push_back({.level = static_cast<int>((a >> 5) & 7),
                        .size = ways * partitions * line * sets,
                        .line = line,
                        .ways = ways});
  }
  if (r.caches.empty()) return std::nullopt;
  sort_and_keep_one_a_level(r.caches);
  return r;
#else
  return std::nullopt;
#endif
}

HostProcessor processor_from_files(const std::string& proc, const std::string& sys) {
  HostProcessor p;
  std::ifstream in(proc + "/cpuinfo");
  std::set<std::pair<std::string, std::string>> cores;
  std::string package, flags, mhz, vendor, family, model;
  std::int64_t processors = 0;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trimmed(std::string_view(line).substr(0, colon));
    const std::string value = trimmed(std::string_view(line).substr(colon + 1));
    if (key == "processor") ++processors;
    if (key == "model name" && p.model.empty()) p.model = value;
    if (key == "vendor_id" && vendor.empty()) vendor = value;
    if (key == "cpu family" && family.empty()) family = value;
    if (key == "model" && model.empty()) model = value;
    if ((key == "flags" || key == "Features") && flags.empty()) flags = value;
    if (key == "cpu MHz" && mhz.empty()) mhz = value;
    if (key == "physical id") package = value;
    if (key == "core id") cores.emplace(package, value);
  }
  p.cores = cores.empty() ? processors : static_cast<std::int64_t>(cores.size());
  read_vectors(flags, p);
  const std::string khz = first_line(sys + "/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  const auto number = [](const std::string& text) {
    double v = 0;
    std::from_chars(text.data(), text.data() + text.size(), v);
    return v > 0 && v < 1e12 ? v : 0.0;
  };
  read_multiply_adds(vendor, static_cast<std::int64_t>(number(family)),
                     static_cast<std::int64_t>(number(model)), p);
  if (number(khz) > 0) {
    p.clock_hz = number(khz) * 1e3;
    p.clock_source = "sysfs cpufreq: highest frequency";
  } else if (number(mhz) > 0) {
    p.clock_hz = number(mhz) * 1e6;
    p.clock_source = "/proc/cpuinfo: cpu MHz when it was read";
  }
  return p;
}

}  // namespace tilewright
