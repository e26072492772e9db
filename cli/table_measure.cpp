// measure's document as text: what the meter counted, then how it comes about.

#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "cli/tables.h"
#include "core/ir/format.h"

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

}  // namespace

std::string measure_table(const ordered_json& j) {
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
