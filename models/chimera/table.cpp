// Orders, levels and paths, and what decides each tensor's bytes, as text.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::chimera {
namespace {

using nlohmann::ordered_json;
using namespace shown;

constexpr std::size_t kRows = 12;    ///< orders that a screen has room for
constexpr std::size_t kReasons = 4;  ///< why others are not legal

std::string orders_table(const ordered_json& j) {
  // What the paper does not price: only a column where some order recomputes.
  const bool again = std::ranges::any_of(j["orders"], [](const ordered_json& o) {
    return o.value("recomputed_operations", std::int64_t(0)) > 0;
  });
  std::vector<std::string> header{"order", "elements moved", "held", "legal"};
  if (again) header.emplace_back("recomputed ops");
  header.insert(
      header.end(),
      {"tiles", "of each tensor: elements of a tile->elements moved (the loop that decides)"});
  Table table(header);
  for (std::size_t i = 0; i < std::min(j["orders"].size(), kRows); ++i) {
    const ordered_json& o = j["orders"][i];
    std::string tensors;
    for (const auto& [name, t] : get(o, "tensors").items())
      tensors += formatted("{}{} {}->{} ({})", tensors.empty() ? "" : ", ", name,
                           t["footprint_elements"].dump(), t["movement_elements"].dump(),
                           text(t, "decided_by"));
    std::vector<std::string> row{text(o, "order"), text(o, "volume_elements"),
                                 text(o, "memory_elements"), text(o, "legal")};
    if (again) row.push_back(text(o, "recomputed_operations"));
    row.insert(row.end(), {pairs(o["tiles"]), tensors});
    table.add(row);
  }
  const std::size_t count = j["orders"].size();
  return table.text(true) +
         (count > kRows ? formatted("the first {} of {} orders; --json has all\n", kRows, count)
                        : "");
}

std::string reasons(const ordered_json& j) {
  std::string out;
  std::size_t shown = 0, more = 0;
  for (const ordered_json& o : j["orders"]) {
    const bool illegal = !get(o, "reason").is_null();
    if (!illegal && get(o, "infeasible_reason").is_null()) continue;
    if (shown == kReasons) {
      ++more;
      continue;
    }
    ++shown;
    out += folded(
        illegal ? formatted("{} is not legal: {}", text(o, "order"), text(o, "reason"))
                : formatted("{} has no tiles: {}", text(o, "order"), text(o, "infeasible_reason")));
  }
  if (more > 0) out += formatted("{} other orders are not legal or have no tiles either\n", more);
  return out.empty() ? out : "\n" + out;
}

std::string closed_form(const ordered_json& c) {
  if (c.is_null()) return "";
  return "\n" +
         folded(formatted(
             "closed form of {}: T* = {:.1f}, DV* = {:.0f} elements; tiles {} move {} elements{}",
             text(c, "order"), c["tile_real"].get<double>(),
             c["volume_real_elements"].get<double>(), pairs(c["tiles"]), text(c, "volume_elements"),
             c.contains("gap")
                 ? formatted(", {:.4f} times the integer optimum's {}", c["gap"].get<double>(),
                             text(c, "optimum_volume_elements"))
                 : ""));
}

/// Blocks over several levels, outermost first.
std::string levels_text(const ordered_json& j) {
  const bool timed = text(j, "cost_is") == "seconds";
  const auto cost = [&](const ordered_json& c) { return timed ? seconds(c) : cell(c); };
  Table table({"level", "order", "tiles", "volume B", "exact B", "bound B", "cost", "alone",
               "needs B", "of B"});
  Table tensors({"boundary", "tensor", "tile", "moved elements", "decided by"});
  for (const ordered_json& l : j["levels"]) {
    table.add({text(l, "level"), text(l, "order"), pairs(l["tiles"]), text(l, "volume_bytes"),
               text(l, "exact_bytes"), text(l, "bound_bytes"), cost(l["cost"]),
               cost(get(l, "cost_alone")),
               text(l, l.contains("needs_bytes") ? "needs_bytes" : "memory_bytes"),
               text(l, "capacity_bytes")});
    for (const auto& [name, t] : l["tensors"].items())
      tensors.add({text(l, "boundary"), name, text(t, "footprint_elements"),
                   text(t, "movement_elements"), text(t, "decided_by")});
  }
  Lines lines;
  lines.add("cost", cost(get(j, "cost")) + " (the " + text(j, "objective") + ")");
  if (j.contains("cost_bound"))
    lines.add("proven", formatted("{} at least; by exact's bytes {}, gap {}", cost(j["cost_bound"]),
                                  cost(get(j, "cost_exact")), fixed(get(j, "cost_gap"), 4)));
  lines.add("recomputed", text(j, "recomputed_operations") + " operations");
  lines.add("search", seconds(get(j, "search_seconds")));
  lines.add("candidates", cell(get(j, "candidates")));
  lines.add("written", text(j, "written"));
  return table.text() + "\n" + tensors.text() + "\n" + lines.str();
}

/// What an NPU's paths cost.
std::string paths_text(const ordered_json& j) {
  Table table({"kernel", "path", "bytes", "GB/s", "us"});
  for (const ordered_json& p : j["paths"]) {
    const ordered_json& bandwidth = get(p, "bandwidth_bytes_per_second");
    table.add({text(p, "kernel"), text(p, "path"),
               p.contains("bytes") ? text(p, "bytes") : text(p, "operations") + " operations",
               bandwidth.is_number() ? formatted("{:.1f}", bandwidth.get<double>() * 1e-9) : "-",
               microseconds(p["seconds"], 3)});
  }
  return table.text() +
         formatted("slowest path of each kernel: {} us (predicted); {} blocks; memory {} bytes\n",
                   microseconds(j["seconds"], 3), text(j, "blocks"), pairs(j["memory"]));
}

/// A plan for several levels.
std::string several_levels(const ordered_json& j) {
  if (j.contains("paths")) return paths_text(j);
  // Another model may well say something else of its own under this name.
  return j.contains("levels") && text(j, "level") == "all" ? levels_text(j) : "";
}

std::string explained(const ordered_json& j) {
  if (j.contains("orders"))
    return formatted("{} on {}, level {}, {} elements\n\n", text(j, "workload"), text(j, "machine"),
                     text(j, "level"), text(j, "capacity_elements")) +
           orders_table(j) + closed_form(get(j, "closed_form")) + reasons(j);
  if (!j.contains("trees") || !(j.contains("paths") || j.contains("levels"))) return "";
  return formatted("{} on {}\n\n{}\n\n", text(j, "workload"), text(j, "machine"),
                   cell(j["trees"].front())) +
         (j.contains("paths") ? paths_text(j) : levels_text(j));
}

std::string planned(const ordered_json& j, const std::string& figures) {
  const std::string levels = several_levels(j);
  return levels.empty() ? figures : figures + "\n" + levels;
}

}  // namespace

ModelTable table() { return {.explained = explained, .planned = planned}; }

}  // namespace tilewright::chimera
