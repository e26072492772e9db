// Steps of a model that fuses kernels pair by pair, and its kernels, as text.
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::stitching {
namespace {

using nlohmann::ordered_json;
using namespace shown;

/// Steps and kernels of a model that fuses pair by pair: by seconds, or by bytes that both share.
std::string steps_text(const ordered_json& j) {
  const bool timed = j["fused_kernels"].empty() || j["fused_kernels"].front().contains("seconds");
  Table kernels(
      timed ? std::vector<std::string>{"kernel", "operators", "written as", "blocks", "us"}
            : std::vector<std::string>{"kernel", "operators", "written as", "parts", "writes"});
  std::size_t n = 0;
  for (const ordered_json& k : j["fused_kernels"]) {
    std::vector<std::string> row = {std::to_string(++n), shown::joined(k["operators"]),
                                    text(k, "emitter")};
    if (timed)
      row.insert(row.end(), {cell(get(k, "blocks")), microseconds(k["seconds"])});
    else
      row.insert(row.end(), {text(k, "parts"), shown::joined(k["written"])});
    kernels.add(std::move(row));
  }
  if (!j.contains("fusion_steps") || j["fusion_steps"].empty()) return kernels.text();
  Table steps(timed ? std::vector<std::string>{"step", "producer", "into", "unfused us", "fused us",
                                               "decision"}
                    : std::vector<std::string>{"step", "first", "second", "shared bytes",
                                               "distance", "decision"});
  n = 0;
  for (const ordered_json& s : j["fusion_steps"])
    steps.add({std::to_string(++n), text(s, "producer"), shown::joined(s["consumers"]),
               timed ? microseconds(s["unfused_seconds"]) : text(s, "shared_bytes"),
               timed ? microseconds(s["fused_seconds"]) : text(s, "distance"),
               text(s, "decision")});
  return steps.text() + "\n" + kernels.text();
}

std::string explained(const ordered_json& j) {
  return j.contains("fusion_steps") ? heading(j) + "\n" + steps_text(j) : "";
}

std::string planned(const ordered_json& j, const std::string& figures) {
  return j.contains("fused_kernels") ? "\n" + steps_text(j) + "\n" + figures : figures;
}

}  // namespace

ModelTable table() { return {.explained = explained, .planned = planned}; }

}  // namespace tilewright::stitching
