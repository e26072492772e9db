// exact as a model: what is true of any plan on levels that software manages.
#include "models/model.h"

#include <algorithm>

#include "core/plan/file.h"
#include "models/exact/exact.h"

namespace tilewright::exact_count {
namespace {

using nlohmann::ordered_json;

/// Exact's count of the plan with its level as a scratchpad over home, where that can be said.
std::optional<ordered_json> as_one_scratchpad(const Schedule& schedule) {
  if (schedule.kernels.empty()) return std::nullopt;
  const LevelId level = schedule.kernels.front().level;
  for (const ScheduledKernel& k : schedule.kernels)
    if (k.level != level) return std::nullopt;
  const auto machine = std::make_shared<const Machine>(as_scratchpad(*schedule.machine, level));
  try {
    const Result<Schedule> alone = resolve(schedule.resolved, schedule.workload, machine);
    if (!alone) return std::nullopt;
    return to_json(tilewright::exact(*alone));
  } catch (const InputError&) {
    return std::nullopt;  // the plan names levels that one scratchpad does not have
  }
}

Result<Price> price(const Question& q, const Plan& plan, const Settings&) {
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  Price out;
  if (q.of_model) {
    const Machine& m = *schedule->machine;
    const bool in_caches = std::ranges::any_of(schedule->kernels, [&m](const ScheduledKernel& k) {
      return m.level(k.level).managed == Managed::hardware;
    });
    if (!in_caches) out.traffic = exact_moved(*schedule);  // else no boundary can be said
    return out;
  }
  out.traffic = tilewright::exact(*schedule);
  out.detail["fits"] = !misfit(*schedule).has_value();
  if (out.traffic.entries.empty() && !out.traffic.unavailable.empty())
    if (auto alone = as_one_scratchpad(*schedule)) out.detail["as_scratchpad"] = std::move(*alone);
  return out;
}

}  // namespace

Model model() {
  return {.name = "exact",
          .summary = "bytes of any plan on software-managed levels, counted without walking it",
          .source = "the rules of the plan notation (movement, rules 8 to 12)",
          .assumptions =
              {"software manages the levels and no two blocks share a cache; elsewhere it is "
               "not available"},
          .price = price};
}

}  // namespace tilewright::exact_count
