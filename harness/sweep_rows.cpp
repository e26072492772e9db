// The rows of a sweep: each point's answer, flat.
#include <memory>

#include "core/base/format.h"
#include "harness/points.h"
#include "harness/ask.h"
#include "harness/sweep.h"
#include "harness/verbs.h"

namespace tilewright::harness {
using nlohmann::ordered_json;

namespace {

/// What is read once for many points.
class Settings {
 public:
  const Setting& of(const Request& request) {
    const std::string key = request.subject + "|" + *request.machine;
    auto& kept = kept_[key];
    if (!kept) kept = std::make_unique<Setting>(setting_of(request));
    return *kept;
  }

 private:
  std::map<std::string, std::unique_ptr<Setting>> kept_;
};

Answer answer_of(const SweepPoint& p, const Request& request, Settings& settings) {
  if (p.verb != "predict") return ask(sweep_verb(p.verb), asked_of(p));
  check_model_options(request);
  return predicted(find_model(p.model), request, settings.of(request));
}

/// The sums over tensors at each boundary: those of the outermost without its name, then, where
/// there are more, those of all with it.
void add_traffic(ordered_json& row, const ordered_json& traffic, const std::string& home) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sums;
  for (const ordered_json& t : traffic) {
    auto& [read, written] = sums[t["boundary"].get<std::string>()];
    read += t["read_bytes"].get<std::int64_t>();
    written += t["written_bytes"].get<std::int64_t>();
  }
  std::int64_t read = 0, written = 0;
  for (const auto& [boundary, bytes] : sums)
    if (boundary.starts_with(home + "/")) read += bytes.first, written += bytes.second;
  row["read_bytes"] = read;
  row["written_bytes"] = written;
  if (sums.size() < 2) return;
  for (const auto& [boundary, bytes] : sums) {
    row["read_bytes " + boundary] = bytes.first;
    row["written_bytes " + boundary] = bytes.second;
  }
}

void add_answer(ordered_json& row, const Answer& answer, const std::string& home) {
  const ordered_json& j = answer.json;
  row["status"] = answer.ok() ? "done" : "refused";
  row["reason"] = answer.ok() ? ordered_json(nullptr) : j["reason"];
  row["source"] = j.value("source", std::string("predicted"));
  for (const char* key : {"volume_bytes", "exact_bytes", "bound_bytes", "gap", "seconds",
                          "search_seconds", "recomputed_operations"})
    if (j.contains(key) && !j[key].is_structured()) row[key] = j[key];
  if (j.contains("order") && !row.contains("order")) row["order"] = j["order"];
  if (j.contains("tiles") && j["tiles"].is_object())
    for (const auto& [loop, size] : j["tiles"].items()) row["tile_" + loop] = size;
  if (j.contains("memory") && j["memory"].is_object())
    for (const auto& [level, bytes] : j["memory"].items()) row["memory_bytes " + level] = bytes;
  if (j.contains("traffic") && !j["traffic"].empty()) add_traffic(row, j["traffic"], home);
}

ordered_json row_of(const SweepPoint& p, Settings& settings) {
  ordered_json row = {{"point", id_of(p)},
                      {"verb", p.verb},
                      {"workload", p.workload},
                      {"machine", p.machine},
                      {"model", p.model}};
  if (!p.order.empty()) row["order"] = p.order;
  for (const auto& [loop, size] : p.tiles) row["tile_" + loop] = size;
  for (const auto& [name, value] : p.options) row[name] = value;
  try {
    const Request request = request_of(sweep_verb(p.verb), asked_of(p));
    const Machine& machine = *settings.of(request).machine;
    add_answer(row, answer_of(p, request, settings), machine.level(machine.home()).name);
  } catch (const InputError& e) {
    row["status"] = "bad input";
    row["reason"] = e.what();
  }
  row["build"] = build_hash();
  return row;
}

}  // namespace

std::vector<ordered_json> sweep_rows(const std::vector<SweepPoint>& points) {
  Settings settings;
  std::vector<ordered_json> rows;
  rows.reserve(points.size());
  for (const SweepPoint& p : points) rows.push_back(row_of(p, settings));
  return rows;
}

}  // namespace tilewright::harness
