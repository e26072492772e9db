// Which table a verb's document has.
#include <nlohmann/json.hpp>

#include "cli/tables.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

struct Record {
  std::string_view verb;
  std::string (*table)(const ordered_json&);
};

constexpr Record kTables[] = {
    {"models", models_table},
    {"machines", machines_table},
    {"workloads", workloads_table},
    {"targets", availability_table},
    {"meters", availability_table},
    {"doctor", doctor_table},
    {"experiments", experiments_table},
    {"import", import_table},
    {"explain", explain_table},
    {"plan", plan_table},
    {"predict", traffic_table},
    {"compare", compare_table},
    {"simulate", simulate_table},
    {"emit", emit_table},
    {"run", run_table},
    {"measure", measure_table},
    {"validate", validate_table},
    {"reproduce", reproduce_table},
};

}  // namespace

std::string document_text(const ordered_json& j) {
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string table_of(std::string_view verb, const ordered_json& j) {
  for (const Record& r : kTables)
    if (r.verb == verb) return r.table(j);
  return document_text(j);
}

}  // namespace tilewright::cli
