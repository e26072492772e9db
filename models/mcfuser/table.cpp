// A space of tiling expressions as text: products, what each rule leaves, and one of them in full.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::mcfuser {
namespace {

using nlohmann::ordered_json;
using namespace shown;

std::string value(const ordered_json& j, const char* key) {
  const auto at = j.find(key);
  return at == j.end() ? "-" : cell(*at);
}

std::string real(const ordered_json& j, const char* key, int digits) {
  const auto at = j.find(key);
  return at == j.end() || !at->is_number() ? "-" : formatted("{:.{}f}", at->get<double>(), digits);
}

std::string whole(const ordered_json& number) {
  return number.is_number() ? grouped(std::llround(number.get<double>())) : "-";
}

std::string products_text(const ordered_json& j) {
  Table table({"product", "phi, FLOP/element", "P/W", "memory-bound"});
  for (const ordered_json& p : j["products"])
    table.add({value(p, "operator"), real(p, "phi_flops_per_element", 1),
               real(p, "threshold_flops_per_element", 1), value(p, "memory_bound")});
  return table.text();
}

std::string space_text(const ordered_json& candidates) {
  Table table({"after", "expressions", "tile tuples", "candidates"});
  for (const auto& [rule, n] : candidates["expressions"].items())
    table.add({rule, cell(n), cell(candidates["tuples"][rule]),
               cell(rule == "generated" ? candidates["generated"] : candidates["after"][rule])});
  return table.text();
}

std::string dag_text(const char* name, const ordered_json& dag) {
  std::string scope, order;
  for (const ordered_json& e : dag["scope"])
    scope += " " + e[0].get<std::string>() + "->" + e[1].get<std::string>();
  for (const ordered_json& e : dag["order"])
    order += " " + e[0].get<std::string>() + "->" + e[1].get<std::string>();
  return formatted("DAG {}: loops {}\n  scope:{}\n  order:{}\n", name, cell(dag["loops"]), scope,
                   order);
}

std::string shown_text(const ordered_json& s) {
  std::string out = formatted("{} (the paper's letters: {}) with {}\n", value(s, "expression"),
                              value(s, "expression_paper"), pairs(s["tiles"]));
  for (const auto& [hoist, text] : s["placed"].items())
    out += formatted("  {:<6} {}\n", hoist, text.get<std::string>());
  out += dag_text("before", s["dag_before"]);
  out += formatted("removed, one trip: {}\n",
                   s["removed_loops"].empty() ? "none" : cell(s["removed_loops"]));
  out += dag_text("after", s["dag_after"]) + "\n";
  Table table({"statement", "in loops", "trips", "tile elements or flops", "bytes", "flops"});
  for (const ordered_json& one : s["statements"]) {
    const bool compute = one.contains("flops");
    table.add({value(one, "statement"), one["loops"].empty() ? "-" : cell(one["loops"]),
               whole(one["trips"]), whole(one[compute ? "tile_flops" : "tile_elements"]),
               compute ? "" : whole(one["bytes"]), compute ? whole(one["flops"]) : ""});
  }
  return out + table.text() +
         formatted(
             "\n({} us memory + {} us computation) x {} for {} blocks = {} us; estimated "
             "shared memory {} B\nplan: {}\n",
             microseconds(get(s, "memory_seconds")), microseconds(get(s, "compute_seconds")),
             real(s, "slowdown", 3), value(s, "blocks"), microseconds(get(s, "seconds")),
             value(s, "memory_bytes"), value(s, "tree"));
}

std::string explained(const ordered_json& j) {
  if (!j.contains("products")) return "";
  std::string out = formatted("{} on {}, level {}, {} B a block\n\n", value(j, "workload"),
                              value(j, "machine"), value(j, "level"), value(j, "shared_bytes")) +
                    products_text(j);
  if (!j.contains("expressions")) return out;
  out += "\n" + space_text(j["candidates"]) + "\n";
  Table table({"expression", "the paper's", "bound", "a block's", "kept", "why not"});
  for (const ordered_json& e : j["expressions"])
    table.add({value(e, "expression"), value(e, "expression_paper"),
               e["bound"].empty() ? "-" : cell(e["bound"]), value(e, "sub_expression"),
               value(e, "kept"), value(e, "reason")});
  out += table.text();
  return j.contains("shown") ? out + "\n" + shown_text(j["shown"]) : out;
}

}  // namespace

ModelTable table() { return {.explained = explained}; }

}  // namespace tilewright::mcfuser
