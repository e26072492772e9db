#include <nlohmann/json.hpp>
#include <set>

#include "core/base/document.h"
#include "core/base/error.h"
#include "core/plan/file.h"

namespace tilewright {
namespace {

using Json = nlohmann::ordered_json;

Json entry_json(const TrafficEntry& e, bool cache) {
  Json r = {{"tensor", e.tensor},
            {"boundary", e.boundary},
            {"read_bytes", e.read.value},
            {"written_bytes", e.written.value}};
  if (cache) {
    r["hits"] = e.hits;
    r["misses"] = e.misses;
    r["resident_dirty_bytes"] = e.resident_dirty.value;
  }
  return r;
}

std::int64_t count(const Field& f) { return f.integer(INT64_MIN, INT64_MAX); }
std::int64_t count_or_zero(const Field& f, const char* key) {
  const auto field = f.get(key);
  return field ? count(*field) : 0;
}

TrafficEntry read_entry(const Field& f) {
  return {.tensor = f.at("tensor").text(),
          .boundary = f.at("boundary").text(),
          .read = Bytes(count(f.at("read_bytes"))),
          .written = Bytes(count(f.at("written_bytes"))),
          .hits = count_or_zero(f, "hits"),
          .misses = count_or_zero(f, "misses"),
          .resident_dirty = Bytes(count_or_zero(f, "resident_dirty_bytes"))};
}

Counts read_counts(const Field& f) {
  Counts c;
  const auto read = [&](const char* key, bool& to) {
    if (const auto field = f.get(key)) to = field->boolean();
  };
  read("write_allocate", c.write_allocate);
  read("write_back", c.write_back);
  read("prefetch", c.prefetch);
  return c;
}

template <class T>
Json values(const std::map<std::string, T>& map) {
  Json r = Json::object();
  for (const auto& [key, v] : map) r[key] = v.value;
  return r;
}

}  // namespace

Json to_json(const Traffic& t) {
  std::set<std::string> caches;
  for (const TrafficEntry& e : t.entries) {
    if (e.hits != 0 || e.misses != 0 || e.resident_dirty != Bytes(0)) caches.insert(e.boundary);
  }
  Json entries = Json::array();
  for (const TrafficEntry& e : t.entries) {
    entries.push_back(entry_json(e, caches.contains(e.boundary)));
  }
  Json r = {{"schema", 1},
            {"source", name_of(t.source)},
            {"by", t.by},
            {"machine", t.machine},
            {"traffic", std::move(entries)},
            {"counts",
             {{"write_allocate", t.counts.write_allocate},
              {"write_back", t.counts.write_back},
              {"prefetch", t.counts.prefetch}}},
            {"memory", values(t.memory)},
            {"operations", values(t.operations)},
            {"seconds", t.seconds ? Json(*t.seconds) : Json(nullptr)}};
  if (!t.unavailable.empty()) r["unavailable"] = t.unavailable;
  return r;
}

Traffic traffic_from_json(const nlohmann::json& j, std::string_view where) {
  const DocumentValue document = read_json(j, where);
  const Field f(document, std::string(where));
  if (const auto schema = f.get("schema")) schema->integer(1, 1);
  Traffic t;
  const Field source = f.at("source");
  const auto known = source_from_name(source.text());
  if (!known) source.fail("is not a source", "predicted, simulated, measured, paper");
  t.source = *known;
  if (const auto by = f.get("by")) t.by = by->text();
  if (const auto machine = f.get("machine")) t.machine = machine->text();
  for (const Field& entry : f.at("traffic").items()) t.entries.push_back(read_entry(entry));
  if (const auto counts = f.get("counts")) t.counts = read_counts(*counts);
  if (const auto memory = f.get("memory")) {
    for (const auto& [level, v] : memory->entries()) t.memory[level] = Bytes(count(v));
  }
  if (const auto operations = f.get("operations")) {
    for (const auto& [op, v] : operations->entries()) t.operations[op] = Operations(count(v));
  }
  if (const auto seconds = f.get("seconds")) t.seconds = seconds->real();
  if (const auto unavailable = f.get("unavailable")) {
    for (const auto& [boundary, why] : unavailable->entries()) {
      t.unavailable[boundary] = why.text();
    }
  }
  return t;
}

}  // namespace tilewright
