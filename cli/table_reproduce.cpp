// A reproduced table or figure as text.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

/// Errors by kernel against counted misses; medians last.
std::string counters_table(const ordered_json& j) {
  std::string out = formatted("{}, machine {}: errors against counted misses\n\n", text(j, "size"),
                              text(j, "machine"));
  for (const auto& [level, errors] : j["errors"].items()) {
    std::vector<std::string> header{level + ": kernel", "counted"};
    for (const auto& [name, figures] : errors.items()) header.push_back(name);
    Table table(header);
    for (const ordered_json& row : j["kernels"]) {
      std::vector<std::string> cells{text(row, "kernel"), text(row[level], "measured")};
      for (const auto& [name, error] : row[level]["error"].items()) cells.push_back(percent(error));
      table.add(cells);
    }
    std::vector<std::string> medians{"median of the absolute", ""};
    for (const auto& [name, figures] : errors.items())
      medians.push_back(percent(figures["median"]));
    table.add(medians);
    out += table.text() + "\n";
  }
  if (get(j, "plans").empty()) return out;
  Table plans({"as a plan", "tree", "level", "misses", "recorded", "difference"});
  for (const ordered_json& p : j["plans"])
    for (const auto& [level, errors] : j["errors"].items())
      plans.add({text(p, "kernel"), text(p, "tree"), level, text(p[level], "misses"),
                 text(p[level], "recorded"), percent(p[level]["difference"])});
  return out + plans.text() + "\n";
}

std::string one_panel(const ordered_json& j) {
  if (j.contains("curve")) return curve_table(j);
  if (j.contains("kernels") && j.contains("errors")) return counters_table(j);
  if (j.contains("validation"))
    return validate_table(j["validation"]) +
           formatted("the paper's R2: {}; must hold: R2 about y=x at least {}\n",
                     text(j["paper_numbers"], "r2"), text(j["must_hold"], "min_r2"));
  if (j.contains("table")) {
    Table table(j["columns"].get<std::vector<std::string>>());
    for (const ordered_json& row : j["table"]) table.add(row.get<std::vector<std::string>>());
    return table.text();
  }
  if (!j.contains("rows") || j["rows"].empty()) return "";
  if (j["rows"].front().contains("reused_along")) {
    std::vector<std::string> header{"order"};
    for (const auto& [name, loops] : j["rows"].front()["reused_along"].items())
      header.push_back(name);
    Table table(header);
    for (const ordered_json& r : j["rows"]) {
      std::vector<std::string> row{text(r, "order")};
      for (const auto& [name, loops] : r["reused_along"].items())
        row.push_back(loops.empty() ? "-" : cell(loops));
      table.add(row);
    }
    return table.text();
  }
  Table table(
      {"workload", "reading", "tensor", "formula", "paper", "ours", "footprint paper", "ours"});
  for (const ordered_json& r : j["rows"])
    table.add({text(r, "workload"), text(r, "reading"), text(r, "tensor"), text(r, "formula"),
               text(r, "paper_movement_elements"), text(r, "movement_elements"),
               text(r, "paper_footprint_elements"), text(r, "footprint_elements")});
  return table.text();
}

/// Of several: a row an experiment.
std::string index_table(const ordered_json& j) {
  Table table({"experiment", "by", "outcome", "s", "why"});
  for (const ordered_json& e : j["experiments"])
    table.add({text(e, "id"), text(e, "status"), text(e, "outcome"),
               e["already_there"].get<bool>() ? "there"
               : e["seconds"].is_null()       ? "-"
                                              : fixed(e["seconds"].get<double>(), 1),
               e["reason"].is_null() ? "-" : text(e, "reason")});
  return table.text() + formatted(
                            "\n{} hold, {} do not, {} are not available; {} were there; {} s; "
                            "written to {}\n",
                            text(j, "hold"), text(j, "do_not_hold"), text(j, "not_available"),
                            text(j, "already_there"), fixed(j["seconds"].get<double>(), 1),
                            text(j, "folder"));
}

std::string number(const ordered_json& n) {
  return n.is_null() ? "-" : formatted("{:.5g}", n.get<double>());
}

std::string compared_table(const ordered_json& compared) {
  if (compared.empty()) return "";
  Table table({"compared", "unit", "ours", "the paper's", "difference", "ours is"});
  for (const ordered_json& c : compared)
    table.add({text(c, "what"), text(c, "unit"), number(c["ours"]), number(c["paper"]),
               c["relative_difference"].is_null() ? "-" : percent(c["relative_difference"]),
               text(c, "ours_source")});
  return table.text() + "\n";
}

}  // namespace

std::string reproduce_table(const ordered_json& j) {
  if (j.contains("experiments")) return index_table(j);
  if (!j.contains("holds")) return "";  // not available: the reason says all
  std::string out = formatted("{}: {}\n{}\n\n", text(j, "id"), text(j, "title"), text(j, "paper"));
  if (j.contains("panels"))
    for (const ordered_json& p : j["panels"]) out += text(p, "id") + "\n" + one_panel(p) + "\n";
  else
    out += one_panel(j) + "\n";
  out += compared_table(j["compared"]);
  if (!j["compared"].empty() && !get(j, "difference").is_null())
    out += "Why they differ: " + text(j, "difference") + "\n";
  if (!get(j, "needs").is_null()) out += "Not reproduced: it would need " + text(j, "needs") + "\n";
  return out + formatted("{}; written to {}\n",
                         j["holds"].get<bool>() ? "all checks hold" : "a check does not hold",
                         text(j, "folder"));
}

}  // namespace tilewright::cli
