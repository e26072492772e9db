// Subprograms, their kernels and what of an analysis decided them, as text.
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::souffle {
namespace {

using nlohmann::ordered_json;
using namespace shown;

constexpr std::size_t kMostRows = 60;  // more of them are counted, and in --json

std::string grid_text(const ordered_json& grid) {
  std::string out;
  for (const auto& [loop, step] : grid.items())
    out += (out.empty() ? "" : " ") + loop + "/" + cell(step);
  return out;
}

std::string more(std::size_t rows, const std::string& what) {
  return rows <= kMostRows
             ? ""
             : formatted("and {} more {} (--json has them)\n", rows - kMostRows, what);
}

std::string analysis_text(const ordered_json& a) {
  std::string out =
      formatted("{} expressions: {} rely on many elements, {} on one; {} compute-intensive\n",
                text(a, "expressions"), text(a, "rely_on_many"), text(a, "rely_on_one"),
                text(a, "compute_intensive"));
  if (a["reused"].empty()) return out;
  Table table({"tensor", "readers", "pairs in space", "pairs in time"});
  std::size_t rows = 0;
  for (const ordered_json& r : a["reused"]) {
    if (++rows > kMostRows) break;
    table.add({text(r, "tensor"), text(r, "readers"), text(r, "pairs_in_space"),
               text(r, "pairs_in_time")});
  }
  return out + "\nread by several operators\n" + table.text() + more(a["reused"].size(), "tensors");
}

std::string compositions_text(const ordered_json& all) {
  std::size_t wrong = 0;
  Table table({"operator", "reads", "through", "composed", "in the printed order"});
  for (const ordered_json& c : all) {
    if (!c["printed_is_wrong"].get<bool>()) continue;
    if (++wrong <= kMostRows)
      table.add({text(c, "reader"), text(c, "reads"), text(c, "through"), text(c, "map"),
                 c["printed_order"].is_null() ? "does not fit" : text(c, "printed_order")});
  }
  if (wrong == 0)
    return formatted("\n{} compositions of index maps, alike in either order\n", all.size());
  return formatted("\n{} compositions of index maps, {} of them wrong in the printed order\n{}",
                   all.size(), wrong, table.text()) +
         more(wrong, "compositions");
}

std::string explained(const ordered_json& j) {
  if (!j.contains("compositions") || !j.contains("kernels")) return "";
  std::string out =
      heading(j) + "\n" + analysis_text(j["analysis"]) + compositions_text(j["compositions"]);
  Table table({"kernel", "phase", "blocks", "from", "tiles", "operators"});
  std::size_t rows = 0, n = 0;
  std::string facts;
  for (const ordered_json& k : j["kernels"]) {
    ++n;
    for (const ordered_json& nest : k["nests"])
      if (++rows <= kMostRows)
        table.add({std::to_string(n), text(nest, "phase"), text(nest, "blocks"),
                   text(nest, "first_block"), grid_text(nest["grid"]), joined(nest["operators"])});
    if (n <= kMostRows)
      facts += formatted("kernel {}: {} B read, {} B written, {} barriers, {} us{}\n", n,
                         text(k, "read_bytes"), text(k, "written_bytes"), text(k, "syncs"),
                         microseconds(k["seconds"]),
                         k["kept"].empty() ? "" : "; kept on chip: " + joined(k["kept"]));
  }
  out += formatted("\n{} kernels, {} phases, {} barriers of all blocks{}\n", j["kernels"].size(),
                   text(j, "phases"), text(j, "syncs"),
                   j.contains("rewrites") ? "; rewritten: " + joined(j["rewrites"]) : "");
  out += table.text() + more(rows, "nests") + "\n" + facts + more(n, "kernels");
  for (const ordered_json& s : j["subprograms"]) {
    if (!s["opened_by"].is_null())
      out += formatted("a subprogram begins at {}: {}\n", text(s, "first"), text(s, "opened_by"));
    if (!s["cut_because"].is_null())
      out += formatted("the subprogram of {} is several kernels: {}\n", text(s, "first"),
                       text(s, "cut_because"));
  }
  return out;
}

}  // namespace

ModelTable table() { return {.explained = explained}; }

}  // namespace tilewright::souffle
