// What import has made of a file.
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

void add_ends(Table& table, const ordered_json& ends, const char* what) {
  for (const ordered_json& e : ends) {
    std::string shape;
    for (const ordered_json& n : e["shape"]) shape += (shape.empty() ? "" : " x ") + cell(n);
    table.add(
        {what, text(e, "name"), text(e, "tensor"), shape.empty() ? "1" : shape, text(e, "dtype")});
  }
}

std::string lines(const ordered_json& j, const char* key, const std::string& title) {
  std::string out;
  for (const ordered_json& line : j[key]) out += "  " + line.get<std::string>() + "\n";
  return out.empty() ? out : title + "\n" + out;
}

}  // namespace

std::string import_table(const ordered_json& j) {
  std::string nodes;
  std::int64_t count = 0;
  for (const auto& [op, n] : j["nodes"].items()) {
    nodes += (nodes.empty() ? "" : ", ") + op + " " + cell(n);
    count += n.get<std::int64_t>();
  }
  std::string out = text(j, "file") + ": opset " + text(j, "opset") + ", " + grouped(count) +
                    " nodes (" + nodes + ")\n";
  out += "workload " + text(j, "workload") + ": " + text(j, "operators") + " operators, " +
         text(j, "tensors") + " tensors, weights " +
         human_bytes(j["weight_bytes"].get<std::int64_t>()) + "\n\n";
  Table table({"", "name", "tensor", "shape", "type"});
  add_ends(table, j["inputs"], "input");
  add_ends(table, j["outputs"], "output");
  out += table.text();
  std::string drawn;
  for (const ordered_json& name : j["drawn"])
    drawn += (drawn.empty() ? "" : ", ") + name.get<std::string>();
  if (!drawn.empty()) out += "drawn by seed when it is run: " + drawn + "\n";
  out += lines(j, "notes", "notes:") + lines(j, "unused", "inputs that nothing reads:") +
         lines(j, "skipped", "skipped:");
  if (j.contains("out")) out += "written: " + text(j, "out") + "\n";
  return out;
}

}  // namespace tilewright::cli
