// What verbs print of programs for the NPU.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"
#include "harness/statistics.h"

namespace tilewright::cli {
namespace {

using harness::fixed_or_dash;
using nlohmann::ordered_json;

std::string pipes_table(const ordered_json& kernel) {
  Table table({"pipe", "instructions", "busy", "of cycles", "waits for flags of", "barriers",
               "not issued", "idle", "shared bandwidth", "banks"});
  const double cycles = kernel["cycles"].get<double>();
  for (const ordered_json& p : get(kernel, "pipes"))
    table.add({text(p, "pipe"), text(p, "instructions"), text(p, "busy_cycles"),
               formatted("{:.1f} %", 100 * p["busy_cycles"].get<double>() / cycles),
               p["flag_cycles"].empty() ? "-" : pairs(p["flag_cycles"]), text(p, "barrier_cycles"),
               text(p, "unissued_cycles"), text(p, "idle_cycles"), text(p, "bandwidth_cycles"),
               text(p, "bank_cycles")});
  return table.text();
}

}  // namespace

std::string npu_kernels_table(const ordered_json& j) {
  std::string out;
  for (const ordered_json& k : get(j, "kernels")) {
    out += formatted("\n{}: {} blocks, {} statements, {} instructions, {} flags\n", text(k, "name"),
                     text(k, "blocks"), text(k, "statements"), text(k, "instructions"),
                     text(k, "flags"));
    Table tiles({"tensor", "level", "layout", "type", "copies", "bytes"});
    for (const ordered_json& t : k["tiles"])
      tiles.add({text(t, "tensor"), text(t, "level"), text(t, "layout"), text(t, "type"),
                 text(t, "copies"), text(t, "bytes")});
    out += tiles.text();
    if (!k.contains("cycles")) continue;
    out += formatted(
        "{} cycles on {} cores (simulated), cube {:.1f} % busy with its multiplications\n",
        text(k, "cycles"), text(k, "cores"), 100 * k["cube_utilisation"].get<double>());
    out += pipes_table(k);
  }
  for (const ordered_json& f : get(j, "findings"))
    out += formatted("  {} ({} times)\n", text(f, "text"), text(f, "count"));
  if (j.contains("cycles"))
    for (const ordered_json& file : get(j, "files"))
      out += formatted("timeline in {}\n", file.get<std::string>());
  if (j.contains("differences"))
    out += j["differences"].empty()
               ? "\nexact counts the same bytes on every path\n"
               : formatted("\nexact counts other bytes on {} paths\n", j["differences"].size());
  return out;
}

std::string validate_npu_table(const ordered_json& j) {
  std::string out = formatted(
      "{} on {}, truth {} (simulated): {} plans asked, {} valid, {} failed; seed {}\n"
      "Algorithm 1 at {}: R2 about y=x {}, R2 of a fit {}, mean error {} %, worst {} %\n"
      "exact: {} tensors at boundaries, {} of other bytes\n",
      text(j, "workload"), text(j, "machine"), text(j, "truth"), text(j, "asked"), text(j, "valid"),
      text(j, "failed"), text(j, "seed"), text(j, "boundary"), fixed_or_dash(j["r2_identity"], 4),
      fixed_or_dash(j["r2_fit"], 4), fixed_or_dash(j["mape"], 2, 100),
      fixed_or_dash(j["worst"], 2, 100), text(j["exact"], "paths"), text(j["exact"], "differing"));
  for (const ordered_json& f : j["failures"])
    out += formatted("failed: {}: {}\n", text(f, "tree"), text(f, "reason"));
  return out;
}

}  // namespace tilewright::cli
