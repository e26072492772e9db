// An explanation of plans in clusters of thread blocks as text.
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::flashfuser {
namespace {

using nlohmann::ordered_json;
using namespace shown;

std::string scientific(const ordered_json& number) {
  return number.is_number() ? formatted("{:.3g}", number.get<double>()) : "-";
}

std::string funnel_text(const ordered_json& rows) {
  Table table({"after", "candidates", "counted as in the paper", "the paper, its largest chain"});
  for (const ordered_json& r : rows)
    table.add({cell(r["after"]), scientific(r["candidates"]), scientific(r["as_counted"]),
               scientific(r["paper"])});
  return table.text();
}

std::string candidate_text(const char* title, const ordered_json& c) {
  std::string out = formatted("\n{}: loops | spatial {}; clusters {}; tiles {}; {} blocks, {} us\n",
                              title, cell(c["schedule"]), pairs(c["cluster"]), pairs(c["tiles"]),
                              cell(c["blocks"]), microseconds(get(c, "seconds")));
  Table levels({"level", "bytes", "us"});
  for (const ordered_json& l : c["by_level"])
    levels.add({cell(l["level"]), scientific(l["bytes"]), microseconds(get(l, "seconds"))});
  Table placed({"tensor", "held in", "bytes a block"});
  for (const ordered_json& p : c["placed"])
    placed.add({cell(p["tensor"]), cell(p["at"]), cell(p["block_bytes"])});
  out += levels.text() + placed.text();
  return out + formatted("shuffle groups of {}, reduce groups of {}; DSM bytes {}\n",
                         cell(c["shuffle_group"]), cell(c["reduce_group"]), pairs(c["dsm"]));
}

std::string explained(const ordered_json& j) {
  if (!j.contains("funnel")) return "";
  std::string out = formatted("{} on {}, level {}\n\n", cell(j["workload"]), cell(j["machine"]),
                              cell(j["level"])) +
                    funnel_text(j["funnel"]);
  out += formatted("\ncluster shapes by reading of rule 2: {}\n", pairs(j["cluster_shapes"]));
  if (!j.contains("chosen")) return out;
  out += candidate_text("chosen", j["chosen"]);
  if (j.contains("without_clusters"))
    out += candidate_text("without clusters", j["without_clusters"]) + "\nplan: " + cell(j["tree"]);
  return out + "\n" + cell(j["note"]) + "\n";
}

}  // namespace

ModelTable table() { return {.explained = explained}; }

}  // namespace tilewright::flashfuser
