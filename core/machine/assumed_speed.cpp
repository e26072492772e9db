#include "core/machine/assumed_speed.h"

#include <algorithm>
#include <utility>

#include "core/base/format.h"

namespace tilewright {
namespace {

constexpr double kFirst = 32, kFurther = 12, kHomeOneCore = 6, kHomeAll = 12;  // bytes a cycle

bool has_bandwidth(const Level& l) {
  return l.kind == LevelKind::cache || l.kind == LevelKind::scratchpad;
}

}  // namespace

std::shared_ptr<const Machine> with_assumed_speed(std::shared_ptr<const Machine> machine) {
  if (std::ranges::none_of(machine->levels, [](const Level& l) {
        return has_bandwidth(l) && l.bandwidth.value <= 0;
      }))
    return machine;
  auto m = std::make_shared<Machine>(*machine);
  const double known = m->units.empty() ? 0 : m->units.front().clock_hz;
  const double clock = known > 0 ? known : kAssumedClock;
  bool first = true;
  for (std::size_t i = m->levels.size(); i-- > 1;) {
    Level& l = m->levels[i];
    if (!has_bandwidth(l)) continue;
    const auto path = m->path(m->home(), LevelId(i));
    const bool from_home = !path.empty() && path.back().first == m->home();
    double bytes = std::exchange(first, false) ? kFirst : kFurther;
    if (from_home) bytes = m->units.empty() ? kHomeOneCore : kHomeAll;
    if (l.bandwidth.value > 0) continue;
    l.bandwidth.value = bytes * clock;
    l.sources["bandwidth"] = formatted("{}{} bytes a cycle", kAssumedSource, bytes);
    if (!from_home || m->units.empty()) continue;
    ComputeUnit& u = m->units.front();
    const double line = static_cast<double>(l.line.value > 0 ? l.line.value : 64);
    if (u.cycles.emplace("stream", line / kHomeOneCore).second)
      u.sources["cycles.stream"] = formatted("{}{} bytes a cycle", kAssumedSource, kHomeOneCore);
  }
  return m;
}

}  // namespace tilewright
