// simulate: what a plan moves, by a walk over its access stream.
#include "simulator/simulator.h"

#include "harness/schedules.h"
#include "harness/verbs.h"

namespace tilewright::harness {

Answer simulate(const Request& request) {
  const Layout layout = layout_of(request);
  Scheduled on = schedule_of(request);
  if (!on.schedule) return on.refusal;
  const Schedule& schedule = *on.schedule;

  auto json = document();
  json["workload"] = on.setting.workload_name;
  json["legal"] = true;
  if (const auto why = misfit(schedule)) {
    json["machine"] = on.setting.machine->name;
    json["fits"] = false;
    json["memory"] = memory_json(memory_use(schedule));
    return refuse(std::move(json), why->text);
  }
  json["fits"] = true;
  if (request.progress) request.progress("simulating", 0);
  const Traffic traffic = tilewright::simulate(schedule, {.layout = layout});
  merge(json, to_json(traffic));
  json["layout"] = name_of(layout);
  json["packing_bytes"] = AddressMap(schedule, layout).packing_bytes().value;
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
