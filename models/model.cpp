#include "models/model.h"

namespace tilewright {

LevelId Question::level_of(const Plan& plan) const {
  if (!plan.kernels.empty() && !plan.kernels.front().level.empty())
    if (const auto named = machine->find(plan.kernels.front().level)) return *named;
  return planned_level();
}

std::string boundary_into(const Machine& m, LevelId level) {
  const auto steps = m.path(m.home(), level);
  return steps.empty() ? "" : m.boundary(steps.back().first, steps.back().second);
}

nlohmann::ordered_json memory_json(const std::map<std::string, Bytes>& memory) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [level, bytes] : memory) json[level] = bytes.value;
  return json;
}

std::optional<double> seconds_into(const Machine& m, LevelId level, Bytes bytes) {
  const BytesPerSecond bandwidth = m.level(level).bandwidth;
  if (bandwidth.value <= 0) return std::nullopt;
  return seconds_for(bytes, bandwidth);
}

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace tilewright
