#include "cli/tables.h"

#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "core/base/error.h"
#include "core/base/format.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string bytes(const ordered_json& value) {
  if (!value.is_number_integer()) return "-";
  const auto n = value.get<std::int64_t>();
  return n < 1024 ? grouped(n) + " B" : formatted("{} B ({})", grouped(n), human_bytes(n));
}

std::string percent(const ordered_json& value) {
  return value.is_number() ? formatted("{:.2f} %", 100 * value.get<double>()) : "-";
}

std::string fixed(const ordered_json& value, int digits) {
  return value.is_number() ? formatted("{:.{}f}", value.get<double>(), digits) : "-";
}

/// "name   value" lines, keys of the document that are there.
class Lines {
 public:
  void add(const std::string& name, const std::string& value) {
    if (!value.empty() && value != "-") out_ += formatted("{:<16} {}", name, folded(value, 17, 17));
  }
  const std::string& str() const { return out_; }

 private:
  std::string out_;
};

std::string trees(const ordered_json& plan) {
  std::string out;
  for (const ordered_json& k : get(plan, "kernels")) {
    out += formatted("{:<16} {}", "tree", folded(text(k, "tree"), 17, 17));
    if (get(k, "tiles").is_object() && !k["tiles"].empty())
      out += formatted("{:<16} {}\n", "tiles", pairs(k["tiles"]));
  }
  return out;
}

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

/// Chimera's blocks over several levels, outermost first.
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

void agreement_row(Table& table, const std::string& name, const ordered_json& b) {
  table.add({name, fixed(get(b, "r2_identity"), 4), fixed(get(b, "r2_fit"), 4),
             percent(get(b, "mape")), percent(get(b, "worst")), percent(get(b, "bias"))});
}

std::string point_line(const char* name, const ordered_json& p) {
  if (p.is_null()) return "";
  return formatted("{:<24} {} {}: predicted {} B, true {} B\n", name, text(p, "order"),
                   pairs(p["tiles"]), text(p, "predicted_bytes"), text(p, "true_bytes"));
}

}  // namespace

namespace {

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

/// About two rows an octave of the curve, and every level and measurement.
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

namespace {

/// A file that a verb answers, or where it was written.
std::string file_table(const ordered_json& j) {
  if (j.contains("out")) return formatted("wrote {}\n", j["out"].get<std::string>());
  return j["file"].get<std::string>();
}

}  // namespace

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

namespace {

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

namespace {

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

}  // namespace

std::string plan_table(const ordered_json& j) {
  if (!j.contains("plan")) return "";
  if (j.contains("parts")) return parts_table(j);
  Lines lines;
  lines.add("model", text(j, "model"));
  if (j["plan"].contains("rewrites")) lines.add("rewrites", cell(j["plan"]["rewrites"]));
  lines.add("level", text(j, "level"));
  if (j.contains("paths")) return trees(j["plan"]) + lines.str() + "\n" + paths_table(j);
  // A model may well say something else of its own under this name.
  if (j.contains("levels") && text(j, "level") == "all")
    return trees(j["plan"]) + lines.str() + "\n" + levels_table(j);
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
  lines.add("exact", bytes(get(j, "exact_bytes")));
  lines.add("proven", formatted("{}; gap {} ({})", bytes(get(j, "bound_bytes")),
                                fixed(get(j, "gap"), 4), text(j, "bound_is")));
  const ordered_json& least = j["bounds"]["attainable"];
  lines.add("attainable", get(least, "bytes").is_null()
                              ? "not available: " + text(least, "reason")
                              : formatted("{}; gap {} (kernels: {})", bytes(least["bytes"]),
                                          fixed(least["gap"], 4), text(least, "kernels")));
  const ordered_json &unfused = get(least, "unfused_bytes"), &exact = get(j, "exact_bytes");
  if (unfused.is_number() && exact.is_number() && exact.get<double>() > 0)
    lines.add("unfused", formatted("{} with a kernel for each operator, {:.2f} times the plan's",
                                   bytes(unfused), unfused.get<double>() / exact.get<double>()));
  lines.add("time", seconds(get(j, "seconds")));
  lines.add("search", seconds(get(j, "search_seconds")));
  lines.add("candidates", cell(get(j, "candidates")));
  lines.add("written", text(j, "written"));
  return trees(j["plan"]) + (j.contains("stitched") ? "\n" + stitched_table(j) + "\n" : "") +
         (j.contains("fused_kernels") ? "\n" + fusion_table(j) + "\n" : "") + lines.str() +
         planned_table(j);
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
  lines.add("seconds", seconds(get(j, "seconds")));
  lines.add("fits", text(j, "fits"));
  if (j.contains("layout"))
    lines.add("layout", formatted("{}; packing, in no figure above: {}", text(j, "layout"),
                                  bytes(get(j, "packing_bytes"))));
  if (get(j, "unavailable").is_object())
    for (const auto& [boundary, why] : j["unavailable"].items())
      lines.add(boundary, "not available: " + cell(why));
  return out + lines.str();
}

/// "B copied (1,048,576 B more), the others where they lie"
std::string packing_text(const ordered_json& packing) {
  std::string packed, in_place;
  for (const ordered_json& t : get(packing, "tiles"))
    (t["packed"].get<bool>() ? packed : in_place) += " " + cell(t["tensor"]);
  std::string text = packed.empty() ? "nothing is copied" : "copied:" + packed;
  if (!packing["copied_bytes"].is_null())
    text += formatted(" ({})", bytes(packing["copied_bytes"]));
  return text + (in_place.empty() ? "" : "; in place:" + in_place);
}

std::string emit_table(const ordered_json& j) {
  Lines lines;
  for (const char* key : {"isa", "micro_kernel", "threads", "files", "build", "symbols", "notes"})
    lines.add(key, text(j, key));
  std::string program;
  if (j.contains("program"))
    for (const ordered_json& line : j["program"]) program += line.get<std::string>() + "\n";
  return lines.str() + cuda_builds_table(j) + npu_kernels_table(j) + program;
}

std::string run_table(const ordered_json& j) {
  if (j.contains("results")) return batch_table(j);
  if (j.contains("launches") && j.contains("compiled")) return network_table(j);
  Lines lines;
  if (j.contains("verified"))
    lines.add("verified", formatted("{}: relative error {} (tolerance {})", text(j, "verified"),
                                    text(j, "relative_error"), text(j, "tolerance")));
  if (j.contains("simulated_seconds"))
    lines.add("time", formatted("{} us, {} GFLOP/s (simulated)",
                                fixed(j["simulated_seconds"].get<double>() * 1e6, 3),
                                fixed(j["simulated_gflops"], 1)));
  if (j.contains("gflops")) {
    lines.add("time", formatted("median {}, least {}, of {} {}", seconds(get(j, "seconds_median")),
                                seconds(get(j, "seconds_min")),
                                text(j, j.contains("batches") ? "batches" : "runs"),
                                j.contains("batches") ? "batches" : "runs"));
    lines.add("timed by", text(j, "timed_by"));
    lines.add("L2", text(j, "l2"));
    const ordered_json& peak = get(j, "peak_gflops");
    lines.add("speed", fixed(j["gflops"], 1) + " GFLOP/s" +
                           (peak.is_null()
                                ? ""
                                : formatted(", {} of a peak of {} ({})",
                                            percent(j["gflops"].get<double>() / peak.get<double>()),
                                            fixed(peak, 1), text(j, "peak_source"))));
  }
  if (j.contains("packing")) lines.add("packing", packing_text(j["packing"]));
  for (const char* key : {"isa", "micro_kernel", "threads", "notes"}) lines.add(key, text(j, key));
  return lines.str() + cuda_launches_table(j) + npu_kernels_table(j);
}

namespace {

/// Of counted kernels: every model, over all tilings and by expression; what parts the difference
/// has.
std::string validate_gpu_table(const ordered_json& j) {
  std::string out = formatted(
      "{} on {}, boundary {}, truth {}\n{} tilings asked, {} valid, {} failed; seed {}\n\n",
      text(j, "workload"), text(j, "machine"), text(j, "boundary"), text(j, "truth"),
      text(j, "asked"), text(j, "valid"), text(j, "failed"), text(j, "seed"));
  Table table({"prediction", "R2 about y=x", "R2 of a fit", "mean error", "worst", "bias"});
  const auto rows = [&table](const std::string& name, const ordered_json& models) {
    for (const auto& [model, agreement] : models.items())
      if (agreement.is_object() && agreement.contains("r2_identity"))
        agreement_row(table, formatted("{}: {}", name, model), agreement);
  };
  rows("all", j["agreement"]);
  for (const auto& [name, models] : j["agreement"]["groups"].items()) rows(name, models);
  out += table.text() + "\n";
  const ordered_json& residuals = j["agreement"]["residuals"];
  if (residuals.is_object()) out += "bias by cause: " + pairs(residuals) + "\n";
  for (const ordered_json& f : j["failures"])
    out += formatted("failed: {}: {}\n", text(f, "name"), text(f, "reason"));
  return out;
}

/// Errors by what one iteration touches, and where those are the large ones why.
std::string iterations_table(const ordered_json& rows) {
  Table table({"touched in one iteration, of the capacity", "tilings", "mean error"});
  double fitting = 0, others = 0;
  bool any = false;
  for (const ordered_json& row : rows) {
    if (row["points"] == 0) continue;
    any = true;
    const bool known = !row["mape"].is_null();
    table.add({text(row, "iteration_over_capacity"), text(row, "points"),
               known ? percent(row["mape"]) : "-"});
    double& worst = &row == &rows.back() ? fitting : others;
    if (known) worst = std::max(worst, row["mape"].get<double>());
  }
  if (!any) return "";
  std::string out = table.text();
  if (fitting > std::max(0.1, others))
    out +=
        "Where that is below 1 the cache keeps it from one iteration to the next, and a model "
        "that\n"
        "has one tile of each tensor kept predicts too much.\n";
  return out + "\n";
}

}  // namespace

std::string validate_table(const ordered_json& j) {
  if (!j.contains("points")) return "";
  if (text(j, "truth") == "emulator") return validate_npu_table(j);
  if (j.contains("agreement")) return validate_gpu_table(j);
  if (j.contains("times"))
    return formatted("{} on {}: {} candidates timed, {} failed\n{}\n", text(j, "workload"),
                     text(j, "machine"), text(j, "valid"), text(j, "failed"), pairs(j["times"]));
  std::string out = formatted(
      "{} on {}, boundary {}, truth {}\n{}layout {}\n\n", text(j, "workload"), text(j, "machine"),
      text(j, "boundary"), text(j, "truth"),
      folded(formatted("{} tilings asked, {} valid, {} failed; seed {}; {} ({})", text(j, "asked"),
                       text(j, "valid"), text(j, "failed"), text(j, "seed"),
                       text(j["sampler"], "law"), text(j["sampler"], "min_tile"))),
      text(j, "layout"));
  Table table({"prediction", "R2 about y=x", "R2 of a fit", "mean error", "worst", "bias"});
  agreement_row(table, j.contains("full_edges") ? "exact edges" : text(j, "model"), j);
  if (j.contains("full_edges")) agreement_row(table, "full edges", j["full_edges"]);
  const ordered_json& beyond = get(j, "beyond");
  if (!beyond.is_null() && beyond["valid"] != 0)
    agreement_row(table, "past half the capacity", beyond);
  const ordered_json& small = get(j, "small_tiles");
  if (!small.is_null() && small["valid"] != 0) agreement_row(table, "some tile smaller", small);
  out += table.text() + "\n";
  out += iterations_table(j["by_iteration"]);
  if (j.contains("undefined")) out += formatted("not defined: {}\n", text(j, "undefined"));
  std::int64_t written = 0, dirty = 0, read = 0;
  for (const ordered_json& p : j["points"]) {
    read += p["true_bytes"].get<std::int64_t>();
    if (p["resident_dirty_bytes"].is_null()) continue;  // not every truth counts these
    written += p["written_bytes"].get<std::int64_t>();
    dirty += p["resident_dirty_bytes"].get<std::int64_t>();
  }
  if (!j["points"].empty() && !j["points"].front()["resident_dirty_bytes"].is_null())
    out += formatted(
        "apart from the truth: written back {} a byte read, dirty at the end {} a point; packing "
        "{}\n",
        fixed(static_cast<double>(written) / static_cast<double>(std::max<std::int64_t>(read, 1)),
              3),
        human_bytes(dirty / static_cast<std::int64_t>(j["points"].size())),
        bytes(j["points"].front()["packing_bytes"]));
  out += point_line("optimum", get(j, "optimum"));
  if (!beyond.is_null()) out += point_line("optimum, whole capacity", get(beyond, "optimum"));
  for (const ordered_json& f : j["failures"])
    out += formatted("failed: {} {}: {}\n",
                     text(f, f.contains("order")  ? "order"
                             : f.contains("tree") ? "tree"
                                                  : "expression"),
                     pairs(f["tiles"]), text(f, "reason"));
  return out;
}

namespace {

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

}  // namespace

namespace {

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
