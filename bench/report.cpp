#include "bench/report.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/ir/format.h"
#include "core/ir/host_facts.h"

namespace tilewright::bench {
namespace {

std::string compiler() {
#if defined(__clang__)
  return formatted("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return formatted("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

/// Over the last minute; what else is running shows here. Below zero: unknown.
double load_average() {
  double load = -1;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

std::string utc_now() {
  const time_t now = ::time(nullptr);
  tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == widths.size()) widths.push_back(0);
      widths[c] = std::max(widths[c], row[c].size());
    }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += (c == 0 ? "" : "  ") + (c == 0 || c >= left_from_
                                          ? formatted("{:<{}}", row[c], widths[c])
                                          : formatted("{:>{}}", row[c], widths[c]));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Json seconds_json(const Samples& seconds) {
  return {{"seconds_median", seconds.median()},
          {"seconds_min", seconds.least()},
          {"samples", seconds.count()}};
}

Json circumstances(const std::vector<std::string>& command) {
  const HostProcessor processor = processor_from_files();
  utsname system{};
  uname(&system);
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
  return {{"machine", "host"},
          {"cpu", processor.model.empty() ? "unknown" : processor.model},
          {"cpus_online", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.release},
          {"compiler", compiler()},
          {"load_average", load_average()},
          {"date", utc_now()},
          {"command", line}};
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void progress(const std::string& text) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fputs(formatted("\r\033[K{}", text).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace tilewright::bench
