// simulate's document as text: the traffic, then what was asked for beside it.

#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

std::string blame(const ordered_json& all) {
  Table misses({"boundary", "tensor", "compulsory", "capacity", "conflict", "the loop that pays"});
  Table evictions({"boundary", "who missed", "whose line went", "lines"});
  for (const ordered_json& b : all) {
    for (const ordered_json& t : b["tensors"])
      misses.add({cell(b["boundary"]), cell(t["tensor"]), cell(t["compulsory"]),
                  cell(t["capacity"]), cell(t["conflict"]), pairs(t["by_loop"])});
    for (const auto& [who, whose] : b["evictions"].items())
      for (const auto& [victim, lines] : whose.items())
        evictions.add({cell(b["boundary"]), who, victim, cell(lines)});
  }
  return "\n" + misses.text() + (evictions.empty() ? "" : "\n" + evictions.text());
}

std::string curve(const ordered_json& c) {
  std::vector<std::string> header{"LRU capacity B"};
  for (const auto& [tensor, n] : c["touches"].items()) header.push_back("misses of " + tensor);
  const auto add = [&](Table& table, const ordered_json& p, std::vector<std::string> row) {
    row.push_back(cell(p["capacity_bytes"]));
    for (const auto& [tensor, n] : c["touches"].items()) row.push_back(cell(p["misses"][tensor]));
    table.add(std::move(row));
  };
  Table any(header);
  for (const ordered_json& p : c["fully_associative"]) add(any, p, {});
  header.insert(header.begin(), "ways");
  Table ways(header);
  for (const ordered_json& p : c["by_ways"]) add(ways, p, {cell(p["ways"])});
  return formatted("\nfully associative, lines of {} B\n\n{}\n{} sets\n\n{}", cell(c["line_bytes"]),
                   any.text(), cell(c["sets"]), ways.text());
}

std::string rows_of(const ordered_json& records) {
  std::string text;
  for (const ordered_json& r : records)
    for (const auto& [key, value] : r.items())
      if (key != "boundary" && value != 0)
        text += formatted("{:<16} {} {}\n", cell(r["boundary"]), key, cell(value));
  return text;
}

std::string gpu_lines(const ordered_json& gpu) {
  std::string text =
      formatted("{:<16} {} SMs, L2 in {} partition{}, blocks {}\n", "GPU", cell(gpu["sms"]),
                cell(gpu["partitions"]), gpu["partitions"] == 1 ? "" : "s",
                gpu["schedule"] == "timed"
                    ? formatted("timed, paces within {:.0f} %", 100 * gpu["jitter"].get<double>())
                    : gpu["schedule"].get<std::string>());
  for (const ordered_json& k : gpu["kernels"]) {
    text += formatted("{:<16} {} blocks, {} resident, {} an SM", "kernel", cell(k["blocks"]),
                      cell(k["resident_blocks"]), cell(k["blocks_per_sm"]));
    text += k["simulated_blocks"] == k["blocks"]
                ? "\n"
                : formatted("; approximate: {} blocks simulated\n", cell(k["simulated_blocks"]));
  }
  return text;
}

}  // namespace

std::string simulate_table(const ordered_json& j) {
  std::string text = traffic_table(j);
  if (j.contains("gpu")) text += gpu_lines(j["gpu"]);
  if (j.contains("trace"))
    text += formatted("{:<16} {}, {} reads, {} writes; {} instruction fetches left out\n", "trace",
                      cell(j["trace"]["format"]), cell(j["trace"]["reads"]),
                      cell(j["trace"]["writes"]), cell(j["trace"]["instruction_fetches_left_out"]));
  if (j.contains("skipped") && j["skipped"].contains("computes") && j["skipped"]["computes"] != 0)
    text += formatted("{:<16} {} of {} computes repeat what was walked: counted, not walked\n",
                      "skipped", cell(j["skipped"]["computes"]), cell(j["skipped"]["of_computes"]));
  if (j.contains("why_serial"))
    text += formatted("{:<16} {}: {}\n", "threads", cell(j["threads"]), cell(j["why_serial"]));
  if (j.contains("occupancy"))
    text += formatted("{:<16} {} samples, one in {} accesses\n", "occupancy",
                      cell(j["occupancy"]["samples"]), cell(j["occupancy"]["stride_accesses"]));
  if (j.contains("cores"))
    text += formatted("{:<16} {}, blocks dealt in turn, one after the other\n", "cores",
                      cell(j["cores"]));
  if (j.contains("behaviour")) text += rows_of(j["behaviour"]);
  if (j.contains("dram")) text += formatted("{:<16} {}\n", "DRAM rows", pairs(j["dram"]));
  if (j.contains("attribution")) text += blame(j["attribution"]);
  if (j.contains("curve")) text += curve(j["curve"]);
  return text;
}

}  // namespace tilewright::cli
