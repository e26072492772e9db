// measure's document as text: what the meter counted, then how it comes about.

#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string line(std::string_view name, const std::string& value) {
  return formatted("{:<16} {}\n", name, value);
}

std::string traffic(const ordered_json& j) {
  Table table({"boundary", "read B", "written B", "hits", "misses"});
  for (const ordered_json& e : j["traffic"])
    table.add({cell(e["boundary"]), cell(e["read_bytes"]), cell(e["written_bytes"]),
               e.contains("hits") ? cell(e["hits"]) : "-",
               e.contains("misses") ? cell(e["misses"]) : "-"});
  return formatted("{} by {} on {}\n\n{}\n", cell(j["source"]), cell(j["by"]), cell(j["machine"]),
                   table.text());
}

std::string comparison(const ordered_json& j) {
  std::string text;
  for (const ordered_json& c : j["comparison"]) {
    Table table({"misses at " + cell(c["boundary"]), "lines"});
    table.add({"the plan, simulated tile by tile (row-major)", cell(c["plan_misses"])});
    for (const ordered_json& cause : c["causes"])
      table.add({"  " + cell(cause["cause"]), cell(cause["lines"])});
    table.add({cell(j["by"]), cell(c["meter_misses"])});
    text += "\n" + table.text() +
            line("executed", formatted("{} misses of the addresses executed, {} times {}'s",
                                       cell(c["executed_clean_accesses"]),
                                       cell(c["executed_over_meter"]), cell(j["by"])));
  }
  return text;
}

const ordered_json& at(const ordered_json& j, std::initializer_list<std::string_view> keys) {
  static const ordered_json none;
  const ordered_json* found = &j;
  for (const std::string_view key : keys) {
    if (!found->is_object() || !found->contains(key)) return none;
    found = &(*found)[std::string(key)];
  }
  return *found;
}

/// What the first model says that prices the plan; beside exact, the order is the registry's.
ordered_json model_bytes(const ordered_json& plan) {
  for (const auto& [name, said] : at(plan, {"predicted"}).items())
    if (said.is_object() && name != "exact" && name != "each_kernel_once")
      return said.value("read_bytes", ordered_json(nullptr));
  return nullptr;
}

/// Of plans under ncu, a row each: what models say goes into the kernel's level, and what did.
std::string counted_table(const std::vector<const ordered_json*>& plans) {
  Table table(
      {"plan", "exact B", "model B", "into SMs B", "from DRAM B", "cold or warm", "why not"});
  for (const ordered_json* plan : plans) {
    const std::string boundary =
        plan->contains("predicted") ? cell((*plan)["predicted"]["boundary"]) : std::string();
    bool any = false;
    for (const auto& [control, name] : {std::pair("all", "cold"), std::pair("none", "warm")}) {
      const ordered_json& counted = at(*plan, {"counted", control});
      if (!counted.is_object()) continue;
      ordered_json into, from;
      for (const ordered_json& e : counted["traffic"])
        (e["boundary"] == boundary ? into : from) = e["read_bytes"];
      table.add({cell(at(*plan, {"name"})), cell(at(*plan, {"predicted", "exact", "read_bytes"})),
                 cell(model_bytes(*plan)), cell(into), cell(from), name, "-"});
      any = true;
    }
    if (!any)
      table.add({cell(at(*plan, {"name"})), cell(at(*plan, {"predicted", "exact", "read_bytes"})),
                 cell(model_bytes(*plan)), "-", "-", "-", cell(at(*plan, {"reason"}))});
  }
  return table.text();
}

}  // namespace

std::string measure_table(const ordered_json& j) {
  if (j.contains("differences")) return traffic(j) + npu_kernels_table(j);
  std::vector<const ordered_json*> plans;
  if (j.contains("results"))
    for (const ordered_json& plan : j["results"]) plans.push_back(&plan);
  if (j.contains("predicted")) plans.push_back(&j);
  if (!plans.empty()) return counted_table(plans);
  if (!j.contains("traffic")) return "";
  std::string text = traffic(j);
  text += line("kernel",
               formatted("{}, {} thread(s), {}; verified, relative error {}", cell(j["isa"]),
                         cell(j["threads"]), cell(j["micro_kernel"]), cell(j["relative_error"])));
  std::string places;
  for (const ordered_json& a : j["addresses"])
    places += formatted("{}{} {:#x}", places.empty() ? "" : ", ", cell(a["tensor"]),
                        a["address"].get<std::int64_t>());
  text += line("addresses", places);
  text += line("counters", pairs(j["counters"]));
  if (j.contains("unavailable"))
    for (const auto& [boundary, why] : j["unavailable"].items())
      text += line(boundary, "not available: " + cell(why));
  for (const ordered_json& note : j["notes"]) text += line("note", cell(note));
  return j.contains("comparison") ? text + comparison(j) : text;
}

}  // namespace tilewright::cli
