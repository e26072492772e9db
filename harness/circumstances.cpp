#include "harness/circumstances.h"

#include <sys/utsname.h>
#include <time.h>

#include <cstdlib>
#include <thread>

#include "core/base/format.h"
#include "core/machine/host_facts.h"

namespace tilewright::harness {
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

nlohmann::ordered_json circumstances(const std::string& command) {
  const HostProcessor processor = processor_from_files();
  utsname system{};
  uname(&system);
  return {{"machine", "host"},
          {"cpu", processor.model.empty() ? "unknown" : processor.model},
          {"cpus_online", std::thread::hardware_concurrency()},
          {"system", std::string(system.sysname) + " " + system.release},
          {"compiler", compiler()},
          {"load_average", load_average()},
          {"date", utc_now()},
          {"command", command}};
}

}  // namespace tilewright::harness
