// What emit and run print of CUDA kernels.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string launches_table(const ordered_json& launches) {
  Table table({"kernel", "blocks", "threads", "shared B", "registers", "spill stores B",
               "spill loads B", "static shared B"});
  for (const ordered_json& l : launches)
    table.add({text(l, "kernel"), text(l, "blocks"), text(l, "threads"), text(l, "shared_bytes"),
               text(l, "registers"), text(l, "spill_store_bytes"), text(l, "spill_load_bytes"),
               text(l, "static_shared_bytes")});
  return table.text();
}

}  // namespace

namespace {

/// What executing the kernels on the CPU found and counted.
std::string emulation_table(const ordered_json& j) {
  Table table(
      {"tensor", "read B", "written B", "added B", "read through L1 B", "written through L1 B"});
  for (const ordered_json& t : j["traffic"])
    table.add({text(t, "tensor"), text(t, "read_bytes"), text(t, "written_bytes"),
               text(t, "atomic_bytes"), text(t, "read_through_l1_bytes"),
               text(t, "written_through_l1_bytes")});
  std::string out = "\n" + table.text() + formatted("\nfaults           {}\n", text(j, "faults"));
  for (const ordered_json& f : get(j, "findings"))
    out += formatted("  {} ({} times)\n", text(f, "text"), text(f, "count"));
  return out;
}

}  // namespace

std::string cuda_launches_table(const ordered_json& j) {
  if (!get(j, "launches").is_array()) return "";
  if (j.contains("traffic")) return "\n" + launches_table(j["launches"]) + emulation_table(j);
  std::string out = "\n" + launches_table(j["launches"]);
  if (j.contains("device"))
    out +=
        formatted("{}, driver for CUDA {}, {} by {}\n", text(j["device"], "name"),
                  text(j["device"], "driver_version"), text(j, "architecture"), text(j, "builder"));
  return out;
}

std::string cuda_builds_table(const ordered_json& j) {
  std::string out;
  for (const ordered_json& b : get(j, "builds")) {
    out += formatted("\n{}", text(b, "architecture"));
    if (b.contains("reason"))
      out += formatted(": {}\n", text(b, "reason"));
    else
      out += formatted(" by {}\n{}", text(b, "builder"), launches_table(b["launches"]));
  }
  return out;
}

std::string batch_table(const ordered_json& j) {
  Table table({"name", "workload", "us", "GFLOP/s", "relative error", "registers", "why not"});
  for (const ordered_json& r : j["results"]) {
    std::string registers;
    for (const ordered_json& l : get(r, "launches"))
      registers += (registers.empty() ? "" : " ") + text(l, "registers");
    const ordered_json& gflops = get(r, "gflops");
    table.add({text(r, "name"), text(r, "workload"), microseconds(get(r, "seconds_median")),
               gflops.is_number() ? formatted("{:.1f}", gflops.get<double>()) : "-",
               text(r, "relative_error"), registers, text(r, "reason")});
  }
  return table.text();
}

}  // namespace tilewright::cli
