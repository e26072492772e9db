// Kernels of stitched groups, each with its scheme, as text.
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::fusionstitching {
namespace {

using nlohmann::ordered_json;
using namespace shown;

/// "sum warp, norm warp": what each group's root does.
std::string schemes(const ordered_json& kernel) {
  std::string out;
  if (!kernel.contains("parts")) return kernel["class"].get<std::string>();
  for (const ordered_json& part : kernel["parts"])
    for (const ordered_json& g : part["groups"])
      out += (out.empty() ? "" : ", ") + g["root"].get<std::string>() + " " +
             g["scheme"].get<std::string>();
  return out;
}

/// Schedules drawn over the ranking, and how to ask for each.
std::string drawn_table(const ordered_json& j) {
  if (!j.contains("drawn")) return "";
  Table table({"schedule", "L us", "tree", "asked for by"});
  for (const ordered_json& d : j["drawn"])
    table.add({text(d, "schedule"), microseconds(d["seconds"]), text(d, "tree"),
               "--stitch " + joined(d["request"]["stitch"])});
  return formatted("\nschedules, one of each of {} parts of the ranking (seed {})\n{}",
                   j["drawn"].size(), text(j, "seed"), table.text());
}

std::string kernels_text(const ordered_json& j) {
  Table table({"kernel", "operators", "groups", "threads", "waves", "score us", "L us"});
  std::size_t n = 0;
  for (const ordered_json& k : j["stitched"])
    table.add({std::to_string(++n), joined(k["operators"]), schemes(k), text(k, "threads"),
               text(k, "waves"), microseconds(k["score_seconds"]), microseconds(k["seconds"])});
  std::string out = table.text();
  if (!j.contains("lives")) return out;
  if (j.contains("rewrites")) out = "rewrites  " + joined(j["rewrites"]) + "\n\n" + out;
  Table lives({"tensor", "lives in"});
  for (const auto& [tensor, home] : j["lives"].items()) lives.add({tensor, cell(home)});
  Table plans({"kernels", "score us", "L us", "chosen"});
  for (const ordered_json& p : j["plans"])
    plans.add({text(p, "kernels"), microseconds(p["score_seconds"]), microseconds(p["seconds"]),
               p["chosen"].get<bool>() ? "yes" : ""});
  std::string xla;
  for (const ordered_json& k : j["xla_kernels"]) xla += "  " + joined(k) + "\n";
  return out + "\n" + lives.text() + "\nplans, best score first\n" + plans.text() +
         formatted("\nXLA's rule, light operators computed again: {} kernels\n{}",
                   j["xla_kernels"].size(), xla) +
         drawn_table(j) + (j.contains("written") ? "\nwritten  " + text(j, "written") + "\n" : "");
}

std::string explained(const ordered_json& j) {
  return j.contains("stitched") ? heading(j) + "\n" + kernels_text(j) : "";
}

std::string planned(const ordered_json& j, const std::string& figures) {
  return j.contains("stitched") ? "\n" + kernels_text(j) + "\n" + figures : figures;
}

}  // namespace

ModelTable table() { return {.explained = explained, .planned = planned}; }

}  // namespace tilewright::fusionstitching
