// explain as text: the least bytes by buffer size, and whose kernels fit.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string size_cell(const ordered_json& value) {
  return value.is_number_integer() ? human_bytes(value.get<std::int64_t>()) : "-";
}

std::vector<std::string> bound_cells(const ordered_json& row) {
  std::vector<std::string> cells{size_cell(get(row, "buffer_bytes")),
                                 size_cell(row["unfused"]["attainable_bytes"]),
                                 size_cell(row["unfused"]["proven_bytes"])};
  if (row.contains("fused"))
    for (const char* key :
         {"attainable_bytes", "proven_without_recomputation_bytes", "proven_bytes"})
      cells.push_back(size_cell(row["fused"][key]));
  return cells;
}

std::vector<std::string> bound_header(const ordered_json& row) {
  std::vector<std::string> header{"buffer", "unfused attainable", "proven"};
  if (row.contains("fused"))
    for (const char* name : {"fused attainable", "proven, nothing recomputed", "proven, any plan"})
      header.emplace_back(name);
  return header;
}

}  // namespace

std::string curve_table(const ordered_json& j) {
  Table table(bound_header(j["curve"].front()));
  double last = 0;
  for (const ordered_json& row : j["curve"]) {
    const double size = row["buffer_bytes"].get<double>();
    if (size < 1.4 * last && &row != &j["curve"].back()) continue;
    table.add(bound_cells(row));
    last = size;
  }
  std::string out = table.text();
  if (j.contains("levels") && !j["levels"].empty()) {
    auto header = bound_header(j["levels"].front());
    header.insert(header.begin(), "level");
    Table levels(header);
    for (const ordered_json& row : j["levels"]) {
      auto cells = bound_cells(row);
      cells.insert(cells.begin(), text(row, "level"));
      levels.add(cells);
    }
    out += "\n" + levels.text();
  }
  if (j.contains("measured")) {
    Table measured(
        {"measured", "buffer", "moved", "proven", "times", "attainable", "times", "paper's bound"});
    for (const ordered_json& row : j["measured"])
      measured.add({text(row, "name"), size_cell(row["buffer_bytes"]),
                    size_cell(row["measured_bytes"]), size_cell(row["proven_bytes"]),
                    fixed(row["over_proven"], 3), size_cell(row["attainable_bytes"]),
                    fixed(get(row, "over_attainable"), 3), size_cell(row["paper_bound_bytes"])});
    out += "\n" + measured.text();
  }
  out += "\n";
  for (const char* kind : {"unfused", "fused"}) {
    const ordered_json& least = j["minimum"][kind];
    if (least["traffic_bytes"].is_null())
      out += formatted("{:<9} not available: {}\n", kind, text(least, "reason"));
    else
      out += formatted("{:<9} at least {} from {} on; {} breakpoints\n", kind,
                       bytes(least["traffic_bytes"]), bytes(least["buffer_bytes"]),
                       text(least, "breakpoints"));
  }
  if (!get(j, "crossover_bytes").is_null())
    out += formatted("fusion    first moves less with {}; never more from {} on\n",
                     bytes(j["crossover_bytes"]), bytes(get(j, "never_loses_from_bytes")));
  return out + "search    " + seconds(j["search_seconds"]) + "\n";
}

std::string explain_table(const ordered_json& j) {
  if (j.contains("prepared_operators")) return layers_table(j, true);
  if (j.contains("curve"))
    return formatted("{}, {}: least bytes moved by buffer size\n\n", text(j, "workload"),
                     text(j, "dtype")) +
           curve_table(j);
  for (const ModelTable& of : model_tables())
    if (std::string text = of.explained == nullptr ? "" : of.explained(j); !text.empty())
      return text;
  if (!j.contains("trees")) return "";
  Lines lines;
  lines.add("workload", text(j, "workload"));
  lines.add("machine", text(j, "machine"));
  lines.add("memory", pairs(j["memory"]) + " bytes");
  lines.add("fits", text(j, "fits"));
  lines.add("", text(j, "fits_reason"));
  std::string out = lines.str();
  for (const ordered_json& t : j["trees"]) out += t.get<std::string>() + "\n";
  return out;
}

}  // namespace tilewright::cli
