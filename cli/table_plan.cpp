// A plan and its traffic as text.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/error.h"
#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string trees(const ordered_json& plan) {
  std::string out;
  for (const ordered_json& k : get(plan, "kernels")) {
    out += formatted("{:<16} {}", "tree", folded(text(k, "tree"), 17, 17));
    if (get(k, "tiles").is_object() && !k["tiles"].empty())
      out += formatted("{:<16} {}\n", "tiles", pairs(k["tiles"]));
  }
  return out;
}

std::string parts_table(const ordered_json& j) {
  Table table({"part", "model", "level", "exact B", "predicted B", "seconds", "refused by"});
  for (const ordered_json& p : j["parts"]) {
    std::vector<std::string> operators, refused;
    for (const ordered_json& op : p["operators"]) operators.push_back(op.get<std::string>());
    for (const ordered_json& r : p["refused"]) refused.push_back(r["model"].get<std::string>());
    table.add({join(operators, " "), text(p, "model"), text(p, "level"), text(p, "exact_bytes"),
               text(p, "predicted_bytes"), seconds(get(p, "seconds")), join(refused)});
  }
  Lines lines;
  if (j["plan"].contains("rewrites")) lines.add("rewrites", cell(j["plan"]["rewrites"]));
  lines.add("exact", bytes(get(j, "exact_bytes")));
  lines.add("compulsory", bytes(get(j, "compulsory_bytes")));
  lines.add("time", seconds(get(j, "seconds")));
  lines.add("written", text(j, "written"));
  return trees(j["plan"]) + table.text() + "\n" + lines.str();
}

/// Of the first run, and of runs that follow one another where that is something else.
std::string times(const ordered_json& j) {
  const ordered_json& again = get(j, "seconds_in_runs");
  return seconds(get(j, "seconds")) +
         (again.is_number()
              ? formatted(" from memory; {} in runs that follow one another, as run times them",
                          seconds(again))
              : "");
}

/// The figures, and around them what models say of their own.
std::string with_own(const ordered_json& j, std::string figures) {
  for (const ModelTable& of : model_tables())
    if (of.planned != nullptr) figures = of.planned(j, figures);
  return figures;
}

}  // namespace

std::string plan_table(const ordered_json& j) {
  if (!j.contains("plan")) return "";
  if (j.contains("parts")) return parts_table(j);
  Lines lines;
  lines.add("model", text(j, "model"));
  if (j["plan"].contains("rewrites")) lines.add("rewrites", cell(j["plan"]["rewrites"]));
  lines.add("level", text(j, "level"));
  // A model may well say something else of its own as "levels".
  if (j.contains("paths") || (j.contains("levels") && text(j, "level") == "all"))
    return trees(j["plan"]) + with_own(j, lines.str());
  lines.add("order", text(j, "order"));
  if (j.contains("expression"))
    lines.add("expression", formatted("{} (the paper's letters: {})", text(j, "expression"),
                                      text(j, "expression_paper")));
  lines.add("volume", bytes(get(j, "volume_bytes")));
  if (j.contains("memory"))
    for (const auto& [level, n] : j["memory"].items())
      lines.add("memory",
                formatted("{} of {} in {}", bytes(n), bytes(get(j, "capacity_bytes")), level) +
                    (j.contains("memory_paper_bytes")
                         ? formatted(" (the paper's figure: {} B)", text(j, "memory_paper_bytes"))
                         : ""));
  lines.add(j.contains("exact_bytes_of") ? "walked" : "exact",
            bytes(get(j, "exact_bytes")) +
                (j.contains("exact_is") ? ", " + text(j, "exact_is") : std::string()));
  lines.add("bytes", text(j, "exact_bytes_of"));
  lines.add("proven", formatted("{}; gap {} ({})", bytes(get(j, "bound_bytes")),
                                fixed(get(j, "gap"), 4), text(j, "bound_is")));
  const ordered_json& least = j["bounds"]["attainable"];
  lines.add("attainable", get(least, "bytes").is_null()
                              ? "not available: " + text(least, "reason")
                              : formatted("{}; gap {} (kernels: {})", bytes(least["bytes"]),
                                          fixed(least["gap"], 4), text(least, "kernels")));
  if (get(j, "gap").is_null()) lines.add("no gap", text(j, "gap_reason"));
  const ordered_json &unfused = get(least, "unfused_bytes"), &exact = get(j, "exact_bytes");
  if (unfused.is_number() && exact.is_number() && exact.get<double>() > 0)
    lines.add("unfused", formatted("{} with a kernel for each operator, {:.2f} times the plan's",
                                   bytes(unfused), unfused.get<double>() / exact.get<double>()));
  lines.add("time", times(j));
  lines.add("search", seconds(get(j, "search_seconds")));
  lines.add("candidates", cell(get(j, "candidates")));
  lines.add("written", text(j, "written"));
  return trees(j["plan"]) + with_own(j, lines.str());
}

std::string traffic_table(const ordered_json& j) {
  std::string out;
  if (j.contains("traffic")) {
    Table table({"boundary", "tensor", "read B", "written B", "hits", "misses", "dirty at end B"});
    for (const ordered_json& e : j["traffic"])
      table.add({text(e, "boundary"), text(e, "tensor"), text(e, "read_bytes"),
                 text(e, "written_bytes"), text(e, "hits"), text(e, "misses"),
                 text(e, "resident_dirty_bytes")});
    out = formatted("{} by {} on {}\n\n{}\n", text(j, "source"), text(j, "by"), text(j, "machine"),
                    table.text());
  }
  Lines lines;
  if (get(j, "memory").is_object())
    for (const auto& [level, n] : j["memory"].items()) lines.add("memory in " + level, bytes(n));
  if (get(j, "operations").is_object())
    for (const auto& [op, n] : j["operations"].items()) lines.add("operations", op + " " + cell(n));
  lines.add("order", text(j, "order"));
  lines.add("seconds", times(j));
  lines.add("fits", text(j, "fits"));
  if (j.contains("layout"))
    lines.add("layout", formatted("{}; packing, in no figure above: {}", text(j, "layout"),
                                  bytes(get(j, "packing_bytes"))));
  if (get(j, "unavailable").is_object())
    for (const auto& [boundary, why] : j["unavailable"].items())
      lines.add(boundary, "not available: " + cell(why));
  return out + lines.str();
}

}  // namespace tilewright::cli
