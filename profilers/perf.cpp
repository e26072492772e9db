#include "profilers/perf.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/format.h"
#include "core/base/toolchain.h"

namespace tilewright::profilers {

namespace {

/// Every figure is the median of so many runs.
constexpr int kPerfRuns = 5;

ProcessorId this_processor() { return processor_id(text_of("/proc/cpuinfo")); }

std::string name_of(const ProcessorId& id) {
  return formatted("{} family {} model {}", id.vendor.empty() ? "an unknown vendor" : id.vendor,
                   id.family, id.model);
}

/// A counter of this thread and of those that it starts; closed at the end.
class Counter {
 public:
  explicit Counter(const Event& event) : name_(event.name) {
    perf_event_attr attr{};
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_RAW;
    attr.config = event.config();
    attr.disabled = 1;
    attr.inherit = 1;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
    error_ = file_ < 0 ? errno : 0;
  }
  ~Counter() {
    if (file_ >= 0) close(file_);
  }
  Counter(Counter&& o) noexcept
      : name_(std::move(o.name_)), file_(std::exchange(o.file_, -1)), error_(o.error_) {}
  Counter& operator=(Counter&&) = delete;

  const std::string& name() const { return name_; }
  int error() const { return error_; }
  void start() const {
    ioctl(file_, PERF_EVENT_IOC_RESET, 0);
    ioctl(file_, PERF_EVENT_IOC_ENABLE, 0);
  }
  void stop() const { ioctl(file_, PERF_EVENT_IOC_DISABLE, 0); }
  Reading read() const {
    std::uint64_t words[3] = {};
    if (::read(file_, words, sizeof words) != sizeof words) return {};
    return {.count = static_cast<double>(words[0]),
            .enabled = static_cast<double>(words[1]),
            .running = static_cast<double>(words[2])};
  }

 private:
  std::string name_;
  int file_ = -1, error_ = 0;
};

/// Why the kernel gives no counter, and what would help.
Availability refusal(int error) {
  std::string level = text_of("/proc/sys/kernel/perf_event_paranoid");
  level.erase(std::remove(level.begin(), level.end(), '\n'), level.end());
  if (error == EACCES || error == EPERM)
    return {.reason = "this process may not count (kernel.perf_event_paranoid is " + level + ")",
            .help = "sudo sysctl kernel.perf_event_paranoid=1"};
  if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
    return {.reason = "the processor's counters are not there (a virtual machine without them?)"};
  return {.reason = std::string("perf_event_open: ") + std::strerror(error)};
}

/// Leaves nothing of the kernel's in the caches: reads a few times as much as they hold.
void empty_caches(const Machine& machine) {
  std::int64_t most = 1 << 20;
  for (const Level& l : machine.levels)
    if (l.kind == LevelKind::cache) most = std::max(most, l.capacity.value);
  std::vector<char> other(static_cast<std::size_t>(2 * most), 1);
  volatile char sum = 0;
  for (std::size_t i = 0; i < other.size(); i += 64) sum = static_cast<char>(sum + other[i]);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Perf : public Meter {
 public:
  Result<Measurement> measure(const BuiltKernel& kernel, const Machine& machine) override {
    const EventTable* const table = table_for(this_processor());
    if (table == nullptr) return Reason{"no event table for " + name_of(this_processor())};
    std::map<std::string, Reading> readings;
    // A boundary at a time, so that the counters suffice.
    for (const BoundaryFormulas& b : table->boundaries) {
      std::vector<std::string> names;
      for (const auto* f : {&b.read, &b.written})
        if (*f) names.insert(names.end(), (*f)->names().begin(), (*f)->names().end());
      if (auto why = count(kernel, machine, *table, names, readings)) return *why;
    }
    Measurement m = measurement_of(*table, machine, readings);
    m.notes.push_back(formatted("median of {} runs on {}, caches emptied before each", kPerfRuns,
                                name_of(this_processor())));
    return m;
  }

 private:
  static std::optional<Reason> count(const BuiltKernel& kernel, const Machine& machine,
                                     const EventTable& table, const std::vector<std::string>& names,
                                     std::map<std::string, Reading>& readings) {
    std::vector<Counter> counters;
    for (const std::string& name : names) {
      counters.emplace_back(table.event(name));
      if (const int error = counters.back().error())
        return Reason{"event " + name + ": " + refusal(error).reason};
    }
    std::map<std::string, std::vector<double>> counts, enabled, running;
    for (int run = 0; run < kPerfRuns; ++run) {
      empty_caches(machine);
      for (const Counter& c : counters) c.start();
      kernel.run();
      for (const Counter& c : counters) c.stop();
      for (const Counter& c : counters) {
        const Reading r = c.read();
        counts[c.name()].push_back(r.count);
        enabled[c.name()].push_back(r.enabled);
        running[c.name()].push_back(r.running);
      }
    }
    for (const Counter& c : counters)
      readings[c.name()] = {.count = median(counts[c.name()]),
                            .enabled = median(enabled[c.name()]),
                            .running = median(running[c.name()])};
    return std::nullopt;
  }
};

/// The machine's hardware caches, innermost first.
std::vector<LevelId> caches_of(const Machine& m) {
  std::vector<LevelId> caches;
  for (std::size_t l = m.levels.size(); l-- > 1;)
    if (m.levels[l].kind == LevelKind::cache && m.levels[l].managed == Managed::hardware)
      caches.push_back(LevelId(l));
  return caches;
}

/// A formula's bytes; nothing, and why in `missing`, where an event of it was never counted.
std::optional<Bytes> bytes_of(const Formula& f, const std::map<std::string, Reading>& readings,
                              std::string& missing) {
  for (const std::string& name : f.names()) {
    const auto at = readings.find(name);
    if (at == readings.end() || std::isnan(at->second.value())) {
      missing = name + " was never on a counter";
      return std::nullopt;
    }
  }
  const double bytes = f.value([&](const std::string& name) { return readings.at(name).value(); });
  if (!(std::abs(bytes) < 1e18)) {
    missing = f.text() + " is not a number of bytes";
    return std::nullopt;
  }
  return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
}

}  // namespace

double Reading::value() const {
  if (running <= 0) return std::numeric_limits<double>::quiet_NaN();
  return multiplexed() ? count * enabled / running : count;
}

Measurement measurement_of(const EventTable& table, const Machine& machine,
                           const std::map<std::string, Reading>& readings) {
  Measurement m;
  m.traffic = {.source = Source::measured,
               .by = "perf",
               .machine = machine.name,
               .counts = {.write_allocate = true, .write_back = true, .prefetch = true}};
  const std::vector<LevelId> caches = caches_of(machine);
  for (std::size_t c = caches.size(); c-- > 0;) {
    const auto [outer, inner] = machine.path(machine.home(), caches[c]).back();
    const std::string boundary = machine.boundary(outer, inner);
    const auto at =
        std::ranges::find(table.boundaries, static_cast<int>(c) + 1, &BoundaryFormulas::cache);
    if (at == table.boundaries.end() || !at->read) {
      m.traffic.unavailable[boundary] = "the table for " + table.name + " has no formula for it";
      continue;
    }
    std::string missing;
    const auto read = bytes_of(*at->read, readings, missing);
    const auto written =
        at->written && read ? bytes_of(*at->written, readings, missing) : std::nullopt;
    if (!read || (at->written && !written)) {
      m.traffic.unavailable[boundary] = missing;
      continue;
    }
    m.traffic.entries.push_back({.tensor = "total",
                                 .boundary = boundary,
                                 .read = *read,
                                 .written = written.value_or(Bytes(0))});
    if (!written) m.traffic.counts.write_back = false;
    if (!at->note.empty()) m.notes.push_back(boundary + ": " + at->note);
  }
  for (const auto& [name, r] : readings) {
    m.counters.emplace_back(name, r.value());
    if (r.running > 0 && r.multiplexed())
      m.notes.push_back(
          formatted("{} was on a counter for {:.1f} % of the time and is scaled: others "
                    "took turns with it",
                    name, 100 * r.running / r.enabled));
  }
  return m;
}

Availability perf_here() {
  const ProcessorId id = this_processor();
  const EventTable* const table = table_for(id);
  if (::access("/sys/bus/event_source/devices/cpu", F_OK) != 0)
    return {.reason =
                "this machine has no processor counters (no cpu in "
                "/sys/bus/event_source/devices: a virtual machine without them)"};
  if (table == nullptr)
    return {.reason = "no event table for " + name_of(id) + " (profilers/events has none)"};
  const Counter probe(table->events.front());
  if (probe.error() != 0) return refusal(probe.error());
  return {.usable = true, .detail = table->name + "; checked on: " + table->checked};
}
std::unique_ptr<Meter> make_perf() { return std::make_unique<Perf>(); }

}  // namespace tilewright::profilers
