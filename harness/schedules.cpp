#include "harness/schedules.h"

#include "harness/registry.h"

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

nlohmann::ordered_json memory_json(const std::map<std::string, Bytes>& memory) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [level, bytes] : memory) json[level] = bytes.value;
  return json;
}

}  // namespace tilewright::harness
