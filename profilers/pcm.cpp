#include "profilers/pcm.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "profilers/driver.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

namespace {

/// A measurement lasts about as long, so that what else the machine does weighs little.
constexpr double kPcmSeconds = 2;

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find_first_of(",;", at), line.size());
    std::string_view field = line.substr(at, end - at);
    while (!field.empty() && (field.front() == ' ' || field.front() == '\t'))
      field.remove_prefix(1);
    while (!field.empty() && (field.back() == ' ' || field.back() == '\r')) field.remove_suffix(1);
    fields.push_back(field);
    at = end + 1;
  }
  return fields;
}

bool is_system(std::string_view group) { return group == "System" || group == "SYSTEM"; }

std::string pcm_program() {
  for (const char* name : {"pcm", "pcm.x", "/usr/sbin/pcm"})
    if (const std::string found = find_program(name); !found.empty()) return found;
  return "";
}

class Pcm : public Meter {
 public:
  Result<Measurement> measure(const BuiltKernel& kernel, const Machine& machine) override {
    const std::string program = pcm_program();
    if (program.empty()) return Reason{pcm_here().reason};
    auto driver = KernelDriver::prepare(kernel);
    if (!driver) return Reason{driver.reason()};
    const double seconds = std::max(kernel.run(), 1e-7);
    const auto runs = static_cast<std::int64_t>(std::clamp(kPcmSeconds / seconds, 1.0, 1e7));
    const auto without = columns(**driver, program, 0);
    if (!without) return Reason{without.reason()};
    const auto with = columns(**driver, program, runs);
    if (!with) return Reason{with.reason()};
    Measurement m = measured(*without, *with, runs, machine);
    m.command = (*driver)->command();
    return m;
  }

 private:
  static Result<std::map<std::string, double>> columns(KernelDriver& driver,
                                                       const std::string& program,
                                                       std::int64_t runs) {
    const auto file = driver.directory() / "pcm.csv";
    if (auto why = driver.run({program, "-nc", "-silent", "-csv=" + file.string(), "--"}, runs))
      return *why;
    return pcm_system_columns(text_of(file));
  }

  static Measurement measured(const std::map<std::string, double>& without,
                              const std::map<std::string, double>& with, std::int64_t runs,
                              const Machine& machine) {
    Measurement m;
    m.traffic = {.source = Source::measured,
                 .by = "pcm",
                 .machine = machine.name,
                 .counts = {.write_allocate = true, .write_back = true, .prefetch = true}};
    const auto one_run = [&](const char* column, double unit) -> std::optional<Bytes> {
      const auto a = with.find(column), b = without.find(column);
      if (a == with.end() || b == without.end()) return std::nullopt;
      const double bytes = (a->second - b->second) * unit / static_cast<double>(runs);
      return Bytes(static_cast<std::int64_t>(std::llround(std::max(bytes, 0.0))));
    };
    std::vector<LevelId> caches;  // innermost first
    for (std::size_t l = machine.levels.size(); l-- > 1;)
      if (machine.levels[l].kind == LevelKind::cache &&
          machine.levels[l].managed == Managed::hardware)
        caches.push_back(LevelId(l));
    for (std::size_t c = caches.size(); c-- > 0;) {
      const auto [outer, inner] = machine.path(machine.home(), caches[c]).back();
      const std::string boundary = machine.boundary(outer, inner);
      const auto read = c == 2   ? one_run("READ", 1e9)
                        : c == 1 ? one_run("L2MISS", 64e6)
                                 : std::nullopt;
      const auto written = c == 2 ? one_run("WRITE", 1e9) : std::nullopt;
      if (!read) {
        m.traffic.unavailable[boundary] = c == 0 ? "pcm does not count the first cache"
                                                 : "pcm does not count it on this processor";
        continue;
      }
      if (!written) m.traffic.counts.write_back = false;
      m.traffic.entries.push_back({.tensor = "total",
                                   .boundary = boundary,
                                   .read = *read,
                                   .written = written.value_or(Bytes(0))});
    }
    for (const auto& [name, value] : with) m.counters.emplace_back(name, value);
    m.notes.push_back(
        formatted("a mean of {} runs one after the other, less the same without the kernel; "
                  "PCM counts the whole machine; READ and WRITE are taken as units of 10^9 "
                  "bytes (versions before 2018 print GiB)",
                  runs));
    return m;
  }
};

}  // namespace

Result<std::map<std::string, double>> pcm_system_columns(std::string_view csv) {
  const auto lines = lines_of(csv);
  if (lines.size() < 3)
    return Reason{"pcm's table has not two lines of headers and one of numbers"};
  const auto groups = fields_of(lines[0]), names = fields_of(lines[1]),
             values = fields_of(lines.back());
  std::map<std::string, double> columns;
  std::string_view group;
  for (std::size_t i = 0; i < names.size() && i < values.size(); ++i) {
    if (i < groups.size() && !groups[i].empty()) group = groups[i];
    if (!is_system(group) || names[i].empty()) continue;
    double value = 0;
    const auto [stop, error] = std::from_chars(values[i].begin(), values[i].end(), value);
    if (error != std::errc() || stop != values[i].end() || !std::isfinite(value)) continue;
    columns.emplace(names[i], value);  // the first of a name
  }
  if (columns.empty()) return Reason{"pcm's table has no columns of the whole system"};
  return columns;
}

Availability pcm_here() {
  if (text_of("/proc/cpuinfo").find("GenuineIntel") == std::string::npos)
    return {.reason = "PCM counts on Intel's processors only"};
  const std::string found = pcm_program();
  if (found.empty())
    return {.reason = "Intel PCM's program pcm is not on the PATH",
            .help = "sudo apt-get install pcm"};
  std::error_code error;
  if (!std::filesystem::exists("/dev/cpu/0/msr", error))
    return {.reason = "the processor's registers are not there (/dev/cpu/0/msr)",
            .help = "sudo modprobe msr"};
  if (std::ifstream("/dev/cpu/0/msr").fail())
    return {.reason = "this process may not read /dev/cpu/0/msr", .help = "run as root"};
  return {.usable = true, .detail = found};
}
std::unique_ptr<Meter> make_pcm() { return std::make_unique<Pcm>(); }

}  // namespace tilewright::profilers
