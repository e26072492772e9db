#include "cli/tables.h"

#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

/// A file that a verb answers, or where it was written.
std::string file_table(const ordered_json& j) {
  if (j.contains("out")) return formatted("wrote {}\n", j["out"].get<std::string>());
  return j["file"].get<std::string>();
}

/// Why a target or meter is not usable and what would help, or what was found of it.
std::string why_or_found(const ordered_json& part) {
  if (get(part, "reason").is_null()) return text(part, "detail");
  const std::string reason = text(part, "reason");
  return get(part, "help").is_null() ? reason : reason + "; try: " + text(part, "help");
}

/// A target or meter: whether it is usable here, what it is for, and below that why not or what was
/// found.
std::string part_lines(const std::string& kind, const ordered_json& part) {
  const std::string first =
      (kind.empty() ? "" : formatted("{:<7} ", kind)) +
      formatted("{:<14} {:<8} ", text(part, "name"), part["usable"].get<bool>() ? "ok" : "missing");
  const std::size_t at = first.size();
  return first + folded(text(part, "summary"), at, at) + std::string(at, ' ') +
         folded(why_or_found(part), at, at);
}

}  // namespace

std::string models_table(const ordered_json& j) {
  std::string out;
  for (const ordered_json& m : j["models"]) {
    const auto line = [&out](const std::string& what) { out += "  " + folded(what, 4, 2); };
    out += folded(text(m, "name") + ": " + text(m, "summary"));
    line("source: " + text(m, "source"));
    for (const ordered_json& a : m["assumptions"]) line("assumes: " + a.get<std::string>());
    std::string options;
    for (const ordered_json& o : m["options"])
      options += (options.empty() ? "options: " : ", ") + text(o, "name");
    if (!options.empty()) line(options + " (plan --help " + text(m, "name") + ")");
  }
  return out;
}

std::string machines_table(const ordered_json& j) {
  if (j.contains("file")) return file_table(j);
  Table table({"name", "kind", "summary and levels"});
  for (const ordered_json& m : j["machines"]) {
    std::string levels;
    for (const ordered_json& l : m["levels"]) {
      const ordered_json& capacity = get(l, "capacity_bytes");
      levels += (levels.empty() ? "" : " > ") + text(l, "name") +
                (capacity.is_null() ? "" : " " + human_bytes(capacity.get<std::int64_t>()));
    }
    table.add({text(m, "name"), text(m, "kind"), text(m, "summary") + ": " + levels});
  }
  for (const ordered_json& m : j["made"]) table.add({text(m, "name"), "", text(m, "summary")});
  return table.text(true);
}

std::string workloads_table(const ordered_json& j) {
  if (j.contains("file")) return file_table(j);
  Table table({"name", "summary and parameters"});
  for (const ordered_json& w : j["workloads"])
    table.add(
        {text(w, "name"),
         text(w, "summary") + (text(w, "defaults").empty() ? "" : "; " + text(w, "defaults"))});
  return table.text(true);
}

std::string availability_table(const ordered_json& j) {
  const ordered_json& rows = j.contains("targets") ? j["targets"] : j["meters"];
  std::string out;
  for (const ordered_json& t : rows) out += part_lines("", t);
  if (!j.contains("targets")) return out;
  Table kernels({"target", "--micro-kernel", "usable", "types", "block", "summary"});
  for (const ordered_json& t : rows)
    for (const ordered_json& m : t["micro_kernels"]) {
      std::string types;
      for (const ordered_json& type : m["types"])
        types += (types.empty() ? "" : " ") + type.get<std::string>();
      kernels.add(
          {text(t, "name") + (m["variant"].is_null() ? "" : " " + text(m, "variant")),
           text(m, "name"), text(m, "usable"), types, text(m, "block"),
           text(m, "summary") + (m["needs"].is_null() ? "" : "; needs " + text(m, "needs"))});
    }
  return out + "\n" + kernels.text(true);
}

std::string doctor_table(const ordered_json& j) {
  const ordered_json& host = j["host"];
  std::string out = formatted("this machine: {}, {}\n", text(host, "kind"), text(host, "summary"));
  for (const ordered_json& level : host["levels"])
    if (!level["capacity_bytes"].is_null())
      out += formatted("  {:<9} {}{}\n", level["name"].get<std::string>(),
                       level["instances"] == 1 ? "" : text(level, "instances") + " x ",
                       human_bytes(level["capacity_bytes"].get<std::int64_t>()));
  out += "\n";
  for (const ordered_json& p : j["parts"]) out += part_lines(text(p, "kind"), p);
  out += "\nneed none of these: ";
  for (std::size_t i = 0; i < j["needs_nothing"].size(); ++i)
    out += (i == 0 ? "" : ", ") + j["needs_nothing"][i].get<std::string>();
  out += "\n\ntry next\n";
  for (const ordered_json& command : j["next"]) out += "  " + command.get<std::string>() + "\n";
  return out;
}

std::string experiments_table(const ordered_json& j) {
  Table table({"id", "by", "here", "title"});
  std::string needs, absent;
  for (const ordered_json& e : j["experiments"]) {
    const bool none = text(e, "status") == "needs", here = e["available"].get<bool>();
    table.add({text(e, "id"), none ? "-" : text(e, "status"),
               none                   ? "not reproduced"
               : !here                ? "no"
               : e["needs"].is_null() ? "yes"
                                      : "in part",
               text(e, "title")});
    if (!e["needs"].is_null()) needs += folded(text(e, "id") + ": " + text(e, "needs"));
    if (!none && !here) absent += folded(text(e, "id") + ": " + text(e, "reason"));
  }
  return table.text(true) + "\nWhat is not reproduced, and what it would need:\n" + needs +
         (absent.empty() ? "" : "\nNot here:\n" + absent);
}

}  // namespace tilewright::cli
