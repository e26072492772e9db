#include "harness/machine_json.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

ordered_json level_json(const Level& l) {
  ordered_json json;
  json["name"] = l.name;
  json["managed"] = name_of(l.managed);
  json["capacity_bytes"] =
      l.capacity.value > 0 ? ordered_json(l.capacity.value) : ordered_json(nullptr);
  json["bandwidth_bytes_per_second"] =
      l.bandwidth.value > 0 ? ordered_json(l.bandwidth.value) : ordered_json(nullptr);
  if (l.kind == LevelKind::cache) {
    json["line_bytes"] = l.line.value;
    json["ways"] = l.ways;
  }
  json["private_to"] = name_of(l.private_to);
  json["instances"] = l.instances;
  if (!l.sources.empty()) json["sources"] = l.sources;
  return json;
}

ordered_json unit_json(const ComputeUnit& u) {
  ordered_json json = {{"name", u.name}, {"count", u.count}};
  json["peak_flops_per_second"] = ordered_json::object();
  for (const auto& [dtype, peak] : u.peak) json["peak_flops_per_second"][dtype] = peak.value;
  if (!u.sources.empty()) json["sources"] = u.sources;
  return json;
}

}  // namespace

ordered_json machine_json(const Machine& m) {
  ordered_json json = {{"name", m.name}, {"kind", m.kind}, {"summary", m.summary}};
  json["levels"] = ordered_json::array();
  for (const Level& l : m.levels) json["levels"].push_back(level_json(l));
  json["units"] = ordered_json::array();
  for (const ComputeUnit& u : m.units) json["units"].push_back(unit_json(u));
  return json;
}

}  // namespace tilewright::harness
