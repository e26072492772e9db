// explain as text: orders, levels, and the least bytes by buffer size.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "cli/tables.h"
#include "core/base/format.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

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

std::string levels_table(const ordered_json& j) {
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
  if (j.contains("products")) return expressions_table(j);
  if (j.contains("stitched"))
    return formatted("{} on {} by {}\n\n", text(j, "workload"), text(j, "machine"),
                     text(j, "model")) +
           stitched_table(j);
  if (j.contains("fusion_steps"))
    return formatted("{} on {} by {}\n\n", text(j, "workload"), text(j, "machine"),
                     text(j, "model")) +
           fusion_table(j);
  if (j.contains("compositions") && j.contains("kernels"))
    return formatted("{} on {} by {}\n\n", text(j, "workload"), text(j, "machine"),
                     text(j, "model")) +
           subprograms_table(j);
  if (j.contains("kernels_by_class"))
    return formatted("{} on {} by {}\n\n", text(j, "workload"), text(j, "machine"),
                     text(j, "model")) +
           gir_table(j);
  if (j.contains("funnel")) return clusters_table(j);
  if (j.contains("edges"))
    return formatted("{} on {} by {}\n", text(j, "workload"), text(j, "machine"),
                     text(j, "model")) +
           planned_table(j);
  if (j.contains("orders"))
    return formatted("{} on {}, level {}, {} elements\n\n", text(j, "workload"), text(j, "machine"),
                     text(j, "level"), text(j, "capacity_elements")) +
           orders_table(j) + closed_form(get(j, "closed_form")) + reasons(j);
  if (!j.contains("trees")) return "";
  if (j.contains("paths"))
    return formatted("{} on {}\n\n{}\n\n", text(j, "workload"), text(j, "machine"),
                     cell(j["trees"].front())) +
           paths_table(j);
  if (j.contains("levels"))
    return formatted("{} on {}\n\n{}\n\n", text(j, "workload"), text(j, "machine"),
                     cell(j["trees"].front())) +
           levels_table(j);
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
