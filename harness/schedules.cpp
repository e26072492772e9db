#include "harness/schedules.h"

#include "harness/registry.h"
#include "models/exact/exact.h"

namespace tilewright::harness {

Scheduled schedule_of(const Request& request) {
  Scheduled out{.setting = setting_of(request)};
  const auto refused = [&out](const std::string& reason) {
    auto json = document();
    json["workload"] = out.setting.workload_name;
    json["machine"] = out.setting.machine->name;
    json["legal"] = false;
    out.refusal = refuse(std::move(json), reason);
  };
  Result<Plan> plan = plan_of(request, out.setting);
  if (!plan) {
    refused(plan.reason());
    return out;
  }
  out.plan = *plan;
  Result<Schedule> schedule = resolve(out.plan, out.setting.workload, out.setting.machine);
  if (schedule)
    out.schedule = std::move(schedule).value();
  else
    refused(schedule.reason());
  return out;
}

std::string boundary_into(const Machine& m, LevelId level) {
  const auto steps = m.path(m.home(), level);
  return steps.empty() ? "" : m.boundary(steps.back().first, steps.back().second);
}

Bytes Alone::total() const {
  Bytes sum;
  for (const TrafficEntry& e : exact.entries) sum += e.read + e.written;
  return sum;
}

Result<Alone> alone_at(const Setting& setting, const Plan& plan, LevelId level) {
  const auto machine = std::make_shared<const Machine>(as_scratchpad(*setting.machine, level));
  Result<Schedule> schedule = resolve(plan, setting.workload, machine);
  if (!schedule) return Reason{schedule.reason()};
  Traffic traffic = exact(*schedule);
  if (!traffic.unavailable.empty()) return Reason{traffic.unavailable.begin()->second};
  return Alone{std::move(traffic), std::move(schedule).value()};
}

nlohmann::ordered_json memory_json(const std::map<std::string, Bytes>& memory) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [level, bytes] : memory) json[level] = bytes.value;
  return json;
}

}  // namespace tilewright::harness
