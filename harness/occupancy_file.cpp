// simulate --occupancy: samples as CSV, or as counter events in the Trace Event Format of Chrome.
#include "harness/simulate_json.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

std::string csv_of(const Occupancy& o, const std::vector<CacheGeometry>& levels,
                   const std::vector<std::string>& tensors) {
  std::string text = "accesses,level";
  for (const std::string& t : tensors) text += "," + t;
  text += "\n";
  for (const Occupancy::Sample& s : o.samples())
    for (std::size_t l = 0; l < levels.size(); ++l) {
      text += std::to_string(s.accesses) + "," + levels[l].name;
      for (const std::int64_t n : s.lines[l]) text += "," + std::to_string(n);
      text += "\n";
    }
  return text;
}

/// Time is counted in accesses: one access a microsecond, the format's unit.
ordered_json events_of(const Occupancy& o, const std::vector<CacheGeometry>& levels,
                       const std::vector<std::string>& tensors) {
  ordered_json events = ordered_json::array();
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"args", {{"name", "cache lines by tensor; 1 us is 1 access"}}}});
  for (const Occupancy::Sample& s : o.samples())
    for (std::size_t l = 0; l < levels.size(); ++l) {
      ordered_json lines = ordered_json::object();
      for (std::size_t t = 0; t < tensors.size(); ++t) lines[tensors[t]] = s.lines[l][t];
      events.push_back({{"name", levels[l].name},
                        {"ph", "C"},
                        {"pid", 1},
                        {"ts", s.accesses},
                        {"args", std::move(lines)}});
    }
  return events;
}

}  // namespace

OccupancyFile::OccupancyFile(std::string path, std::optional<std::int64_t> stride)
    : path_(std::move(path)), samples_(stride.value_or(0)) {}

void OccupancyFile::write(const std::string& workload, const std::string& machine,
                          const std::vector<CacheGeometry>& levels,
                          const std::vector<std::string>& tensors) const {
  if (path_.ends_with(".csv"))
    return write_file(path_, csv_of(samples_, levels, tensors), "--occupancy");
  auto json = document();
  json["kind"] = "occupancy";
  json["workload"] = workload;
  json["machine"] = machine;
  json["accesses"] = samples_.accesses();
  json["stride_accesses"] = samples_.stride();
  json["levels"] = ordered_json::array();
  for (const CacheGeometry& g : levels)
    json["levels"].push_back({{"level", g.name},
                              {"lines", g.capacity.value / g.line.value},
                              {"line_bytes", g.line.value}});
  json["tensors"] = tensors;
  json["traceEvents"] = events_of(samples_, levels, tensors);
  write_file(path_, json.dump() + "\n", "--occupancy");
}

ordered_json OccupancyFile::summary() const {
  return {{"file", path_},
          {"samples", samples_.samples().size()},
          {"stride_accesses", samples_.stride()},
          {"accesses", samples_.accesses()}};
}

}  // namespace tilewright::harness
