// validate as text.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

void agreement_row(Table& table, const std::string& name, const ordered_json& b) {
  table.add({name, fixed(get(b, "r2_identity"), 4), fixed(get(b, "r2_fit"), 4),
             percent(get(b, "mape")), percent(get(b, "worst")), percent(get(b, "bias"))});
}

std::string point_line(const char* name, const ordered_json& p) {
  if (p.is_null()) return "";
  return formatted("{:<24} {} {}: predicted {} B, true {} B\n", name, text(p, "order"),
                   pairs(p["tiles"]), text(p, "predicted_bytes"), text(p, "true_bytes"));
}

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

}  // namespace tilewright::cli
