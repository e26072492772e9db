// What was emitted, and how it ran, as text.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

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

}  // namespace tilewright::cli
