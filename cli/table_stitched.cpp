// Kernels of a graph that a model fuses, as text: with their groups and schemes, or step by step.
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "cli/tables.h"
#include "core/base/format.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

std::string stitched_table(const ordered_json& j) {
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

/// Steps and kernels of a model that fuses pair by pair: by seconds, or by bytes that both share.
std::string fusion_table(const ordered_json& j) {
  const bool timed = j["fused_kernels"].empty() || j["fused_kernels"].front().contains("seconds");
  Table kernels(
      timed ? std::vector<std::string>{"kernel", "operators", "written as", "blocks", "us"}
            : std::vector<std::string>{"kernel", "operators", "written as", "parts", "writes"});
  std::size_t n = 0;
  for (const ordered_json& k : j["fused_kernels"]) {
    std::vector<std::string> row = {std::to_string(++n), joined(k["operators"]),
                                    text(k, "emitter")};
    if (timed)
      row.insert(row.end(), {cell(get(k, "blocks")), microseconds(k["seconds"])});
    else
      row.insert(row.end(), {text(k, "parts"), joined(k["written"])});
    kernels.add(std::move(row));
  }
  if (!j.contains("fusion_steps") || j["fusion_steps"].empty()) return kernels.text();
  Table steps(timed ? std::vector<std::string>{"step", "producer", "into", "unfused us", "fused us",
                                               "decision"}
                    : std::vector<std::string>{"step", "first", "second", "shared bytes",
                                               "distance", "decision"});
  n = 0;
  for (const ordered_json& s : j["fusion_steps"])
    steps.add({std::to_string(++n), text(s, "producer"), joined(s["consumers"]),
               timed ? microseconds(s["unfused_seconds"]) : text(s, "shared_bytes"),
               timed ? microseconds(s["fused_seconds"]) : text(s, "distance"),
               text(s, "decision")});
  return steps.text() + "\n" + kernels.text();
}

}  // namespace tilewright::cli
