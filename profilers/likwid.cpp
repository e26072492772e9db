#include "profilers/likwid.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/format.h"

namespace tilewright::profilers {

namespace {

constexpr int kLikwidRuns = 5;
constexpr const char* kGroups[] = {"L2", "L3", "MEM"};

/// What a metric means: outwards of which cache, in which direction. The first that a group has
/// counts.
struct Meaning {
  int cache;
  std::string_view group, metric;  ///< the name before its unit
  bool written;
};
constexpr Meaning kMeanings[] = {
    {1, "L2", "L2D load data volume", false},
    {1, "L2", "L2 load data volume", false},
    {1, "L2", "L2 data volume", false},  // AMD: requests of the L1, no write-backs
    {1, "L2", "L2D evict data volume", true},
    {1, "L2", "L2 evict data volume", true},
    {2, "L3", "L3 load data volume", false},
    {2, "L3", "L3 data volume", false},  // AMD: loads only
    {2, "L3", "L3|MEM evict data volume", true},
    {2, "L3", "L3 evict data volume", true},
    {3, "MEM", "Memory read data volume", false},
    {3, "MEM", "Memory write data volume", true},
};

std::string_view without_unit(std::string_view name) {
  const std::size_t bracket = name.rfind('[');
  if (bracket == std::string_view::npos) return name;
  const std::size_t end = name.find_last_not_of(' ', bracket == 0 ? 0 : bracket - 1);
  return name.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

std::optional<Bytes> bytes_of(const std::vector<LikwidMetric>& metrics, int cache, bool written) {
  for (const Meaning& m : kMeanings) {
    if (m.cache != cache || m.written != written) continue;
    for (const LikwidMetric& x : metrics) {
      if (x.group != m.group || without_unit(x.name) != m.metric) continue;
      const auto unit = likwid_unit(x.name);
      const double bytes = unit ? x.value * *unit : NAN;
      if (std::abs(bytes) < 1e18) return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
    }
  }
  return std::nullopt;
}

/// liblikwid, opened at run time: its C interface as likwid.h of version 5 declares it.
class Library {
 public:
  Library() {
    for (const char* name : {"liblikwid.so.5.4", "liblikwid.so.5", "liblikwid.so"})
      if (handle_ == nullptr) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) return;
    missing_ = !find(topology_init, "topology_init") || !find(numa_init, "numa_init") ||
               !find(affinity_init, "affinity_init") || !find(init, "perfmon_init") ||
               !find(add, "perfmon_addEventSet") || !find(set_up, "perfmon_setupCounters") ||
               !find(start, "perfmon_startCounters") || !find(stop, "perfmon_stopCounters") ||
               !find(metrics, "perfmon_getNumberOfMetrics") ||
               !find(metric_name, "perfmon_getMetricName") ||
               !find(last_metric, "perfmon_getLastMetric") || !find(finalize, "perfmon_finalize");
  }
  // Never closed: LIKWID keeps state of its own.
  bool there() const { return handle_ != nullptr; }
  bool whole() const { return there() && !missing_; }

  int (*topology_init)() = nullptr;
  int (*numa_init)() = nullptr;
  void (*affinity_init)() = nullptr;
  int (*init)(int, const int*) = nullptr;
  int (*add)(const char*) = nullptr;
  int (*set_up)(int) = nullptr;
  int (*start)() = nullptr;
  int (*stop)() = nullptr;
  int (*metrics)(int) = nullptr;
  char* (*metric_name)(int, int) = nullptr;
  double (*last_metric)(int, int, int) = nullptr;
  void (*finalize)() = nullptr;

 private:
  template <class Function>
  bool find(Function& to, const char* name) {
    to = reinterpret_cast<Function>(dlsym(handle_, name));
    return to != nullptr;
  }
  void* handle_ = nullptr;
  bool missing_ = false;
};

/// The metrics of one group, each the median of the runs. Nothing where LIKWID has no such group
/// here.
std::optional<Reason> measure_group(const Library& likwid, const char* group,
                                    const BuiltKernel& kernel, std::vector<LikwidMetric>& to) {
  const int id = likwid.add(group);
  if (id < 0) return std::nullopt;
  if (likwid.set_up(id) < 0) return Reason{formatted("LIKWID cannot set up its group {}", group)};
  std::vector<std::vector<double>> values(
      static_cast<std::size_t>(std::max(0, likwid.metrics(id))));
  for (int run = 0; run < kLikwidRuns; ++run) {
    if (likwid.start() < 0) return Reason{formatted("LIKWID cannot start its group {}", group)};
    kernel.run();
    if (likwid.stop() < 0) return Reason{formatted("LIKWID cannot stop its group {}", group)};
    for (std::size_t m = 0; m < values.size(); ++m)
      values[m].push_back(likwid.last_metric(id, static_cast<int>(m), 0));
  }
  for (std::size_t m = 0; m < values.size(); ++m) {
    std::sort(values[m].begin(), values[m].end());
    to.push_back(
        {group, likwid.metric_name(id, static_cast<int>(m)), values[m][values[m].size() / 2]});
  }
  return std::nullopt;
}

/// This thread on one processor, as LIKWID counts processors, and where it was before at the end.
class Pinned {
 public:
  Pinned() : cpu_(sched_getcpu()) {
    CPU_ZERO(&before_);
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu_, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~Pinned() { sched_setaffinity(0, sizeof before_, &before_); }
  int cpu() const { return cpu_; }

 private:
  int cpu_;
  cpu_set_t before_;
};

class Likwid : public Meter {
 public:
  Result<Measurement> measure(const BuiltKernel& kernel, const Machine& machine) override {
    static const Library likwid;
    if (!likwid.whole()) return Reason{likwid_here().reason};
    if (kernel.threads != 1) return Reason{"likwid measures one thread here: use --threads 1"};
    const Pinned pinned;
    const int cpu = pinned.cpu();
    if (likwid.topology_init() != 0 || likwid.numa_init() != 0)
      return Reason{"LIKWID does not know this machine"};
    likwid.affinity_init();
    if (likwid.init(1, &cpu) != 0) return Reason{"LIKWID cannot reach the counters"};
    std::vector<LikwidMetric> metrics;
    std::optional<Reason> why;
    for (const char* group : kGroups)
      if (!why) why = measure_group(likwid, group, kernel, metrics);
    likwid.finalize();
    if (why) return *why;
    Measurement m = likwid_measurement(metrics, machine);
    if (m.traffic.entries.empty())
      return Reason{"LIKWID has none of its groups L2, L3 and MEM here"};
    m.notes.push_back(
        formatted("median of {} runs one after the other: caches hold what the run before "
                  "left; group MEM counts the whole socket",
                  kLikwidRuns));
    return m;
  }
};

}  // namespace

std::optional<double> likwid_unit(std::string_view metric) {
  for (const auto& [unit, bytes] : {std::pair<std::string_view, double>("[GBytes]", 1e9),
                                    {"[MBytes]", 1e6},
                                    {"[KBytes]", 1e3},
                                    {"[Bytes]", 1}})
    if (metric.ends_with(unit)) return bytes;
  return std::nullopt;
}

Measurement likwid_measurement(const std::vector<LikwidMetric>& metrics, const Machine& machine) {
  Measurement m;
  m.traffic = {.source = Source::measured,
               .by = "likwid",
               .machine = machine.name,
               .counts = {.write_allocate = true, .write_back = true, .prefetch = true}};
  int cache = 0;
  std::vector<TrafficEntry> inner_first;
  for (std::size_t l = machine.levels.size(); l-- > 1;) {
    if (machine.levels[l].kind != LevelKind::cache ||
        machine.levels[l].managed != Managed::hardware)
      continue;
    ++cache;
    const auto [outer, inner] = machine.path(machine.home(), LevelId(l)).back();
    const std::string boundary = machine.boundary(outer, inner);
    const auto read = bytes_of(metrics, cache, false), written = bytes_of(metrics, cache, true);
    if (!read) {
      m.traffic.unavailable[boundary] = "no group of LIKWID's here counts it";
      continue;
    }
    if (!written) m.traffic.counts.write_back = false;
    inner_first.push_back({.tensor = "total",
                           .boundary = boundary,
                           .read = *read,
                           .written = written.value_or(Bytes(0))});
  }
  m.traffic.entries.assign(inner_first.rbegin(), inner_first.rend());
  for (const LikwidMetric& x : metrics) m.counters.emplace_back(x.group + ": " + x.name, x.value);
  return m;
}

Availability likwid_here() {
  // First, for LIKWID ends a process that asks it for counters that are not there.
  const Availability counters = perf_here();
  if (!counters.usable && counters.reason.find("no processor counters") != std::string::npos)
    return {.reason = counters.reason};
  static const Library likwid;
  if (!likwid.there())
    return {.reason = "liblikwid.so is not installed", .help = "sudo apt-get install likwid"};
  if (!likwid.whole()) return {.reason = "liblikwid.so is not of version 5"};
  return {.usable = true, .detail = "liblikwid, through its perf_event or MSR access"};
}
std::unique_ptr<Meter> make_likwid() { return std::make_unique<Likwid>(); }

}  // namespace tilewright::profilers
