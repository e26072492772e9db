// The methods `formulas` and `reuse`: what the model says, beside what the paper prints.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "models/chimera/chimera.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

chimera::Reading reading_of(const Field& field) {
  if (const auto reading = chimera::reading_from_name(field.text())) return *reading;
  field.fail("is not a reading", "observed, literal, trip-one");
}

LoopId loop_of(const Workload& w, const Field& field) {
  if (const auto id = w.find_loop(field.text())) return *id;
  field.fail("is not a loop of the workload", "a loop's name");
}

/// A product of extents and of ceil(extent / tile), as the experiment's file spells a formula.
std::int64_t movement(const Field& formula, const Workload& w, const chimera::Tiles& tiles) {
  const auto extents = formula.get("extents");
  if (!extents) return 0;
  std::int64_t product = 1;
  for (const Field& f : extents->items()) product *= w.loop(loop_of(w, f)).extent;
  for (const Field& f : formula.at("trips").items()) {
    const LoopId l = loop_of(w, f);
    product *= ceil_div(w.loop(l).extent, tiles[l.index()]);
  }
  return product;
}

std::int64_t footprint(const Field& loops, const Workload& w, const chimera::Tiles& tiles) {
  std::int64_t product = 1;
  for (const Field& f : loops.items()) product *= tiles[loop_of(w, f).index()];
  return product;
}

std::map<std::string, std::int64_t> named_tiles(const Field& field) {
  std::map<std::string, std::int64_t> tiles;
  for (const auto& [name, size] : field.entries()) tiles[name] = size.integer(1, INT64_MAX);
  return tiles;
}

}  // namespace

Reproduced reproduce_formulas(const Experiment& e) {
  const Field top = document_of(e, {"order", "readings", "edges", "cases", "tensors"});
  const auto edges = chimera::edges_from_name(top.at("edges").text());
  if (!edges) top.at("edges").fail("is not a way to count edges", "full, exact");
  Reproduced done;
  done.holds = true;
  done.result["rows"] = ordered_json::array();
  done.csv = "workload,tiles,reading,tensor,movement,paper_movement,footprint,paper_footprint\n";
  done.report =
      "| workload, tiles | reading | tensor | the paper's formula | its value | ours | "
      "footprint, paper | ours |\n|---|---|---|---|---|---|---|---|\n";
  for (const Field& c : top.at("cases").items()) {
    const std::string name = c.at("workload").text();
    const Workload w = named_workload(name);
    const auto table = named_tiles(c.at("tiles"));
    const chimera::Tiles tiles = chimera::tiles_from(w, table, c.at("tiles").where());
    const chimera::Order order = chimera::parse_order(w, top.at("order").text());
    std::string tiles_text;
    for (const auto& [loop, size] : table)
      tiles_text += formatted("{}{}={}", tiles_text.empty() ? "" : " ", loop, size);
    for (const Field& r : top.at("readings").items()) {
      const chimera::Price price =
          chimera::price(w, order, tiles, {.reading = reading_of(r), .edges = *edges});
      for (const auto& entry : top.at("tensors").entries()) {
        const std::string& tensor = entry.first;  // clang 14's lambdas cannot capture a binding
        const Field& formula = entry.second;
        const auto at =
            std::find_if(price.tensors.begin(), price.tensors.end(),
                         [&](const auto& t) { return w.tensor(t.tensor).name == tensor; });
        if (at == price.tensors.end()) formula.fail("is not a tensor of the workload", "a tensor");
        const std::int64_t paper = movement(formula.at("movement"), w, tiles);
        const std::int64_t paper_tile = footprint(formula.at("footprint"), w, tiles);
        const std::int64_t ours = at->movement.value, tile = at->footprint.value;
        if (ours != paper || tile != paper_tile) {
          done.holds = false;
          done.reason = formatted("{} of {} ({}): {} and {}, the paper {} and {}", tensor, name,
                                  r.text(), ours, tile, paper, paper_tile);
        }
        if (done.compared.size() < 2 * top.at("tensors").entries().size()) {  // the first case's
          const auto add = [&](const char* what, std::int64_t mine, std::int64_t theirs) {
            done.compared.push_back(
                {.what = formatted("{} of {}, {} ({})", what, tensor, name, tiles_text),
                 .unit = "elements",
                 .ours = static_cast<double>(mine),
                 .ours_source = "predicted (chimera)",
                 .paper = static_cast<double>(theirs)});
          };
          add("movement", ours, paper);
          add("footprint", tile, paper_tile);
        }
        done.result["rows"].push_back({{"workload", name},
                                       {"tiles", table},
                                       {"reading", r.text()},
                                       {"tensor", tensor},
                                       {"formula", formula.at("paper").text()},
                                       {"movement_elements", ours},
                                       {"paper_movement_elements", paper},
                                       {"footprint_elements", tile},
                                       {"paper_footprint_elements", paper_tile}});
        done.csv += formatted("\"{}\",{},{},{},{},{},{},{}\n", name, tiles_text, r.text(), tensor,
                              ours, paper, tile, paper_tile);
        done.report +=
            formatted("| {}, {} | {} | {} | {} | {} | {} | {} | {} |\n", name, tiles_text, r.text(),
                      tensor, formula.at("paper").text(), paper, ours, paper_tile, tile);
      }
    }
  }
  return done;
}

namespace {

using Reuse = std::map<std::string, std::set<std::string>>;  // tensor -> loops

std::int64_t moved(const chimera::Price& p, TensorId t) {
  for (const chimera::TensorPrice& one : p.tensors)
    if (one.tensor == t) return one.movement.value;
  return 0;
}

bool indexes(const Workload& w, TensorId t, LoopId l) {
  const auto has = [l](const Access& a) {
    for (const Affine& i : a.index)
      for (const Term& term : i.terms)
        if (term.loop == l) return true;
    return false;
  };
  for (const Operator& op : w.operators()) {
    for (const Access& a : op.inputs)
      if (a.tensor == t && has(a)) return true;
    for (const Output& o : op.outputs)
      if (o.target.tensor == t && has(o.target)) return true;
  }
  return false;
}

/// A loop that does not index a tensor reuses it where twice as many trips move no more of it.
Reuse reuse_under(const Workload& w, const chimera::Order& order, chimera::Reading reading) {
  Reuse reuse;
  chimera::Tiles base(w.loops().size(), 1);
  for (LoopId l : order) base[l.index()] = std::max<std::int64_t>(1, w.loop(l).extent / 4);
  const chimera::Options options{.reading = reading};
  const chimera::Price before = chimera::price(w, order, base, options);
  for (LoopId l : order) {
    chimera::Tiles finer = base;
    finer[l.index()] = std::max<std::int64_t>(1, base[l.index()] / 2);
    const chimera::Price after = chimera::price(w, order, finer, options);
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      const TensorId id(t);
      if (w.is_intermediate(id) || indexes(w, id, l)) continue;
      if (moved(after, id) == moved(before, id)) reuse[w.tensor(id).name].insert(w.loop(l).name);
    }
  }
  return reuse;
}

std::string list(const std::set<std::string>& loops) {
  std::string text;
  for (const std::string& l : loops) text += (text.empty() ? "" : " ") + l;
  return text.empty() ? "-" : text;
}

}  // namespace

Reproduced reproduce_reuse(const Experiment& e) {
  const Field top = document_of(e, {"workload", "reading", "paper", "paper_every_order"});
  const Workload w = named_workload(top.at("workload").text());
  const chimera::Reading reading = reading_of(top.at("reading"));
  Reproduced done;
  done.holds = true;
  std::vector<std::string> tensors;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (!w.is_intermediate(TensorId(t))) tensors.push_back(w.tensors()[t].name);
  done.csv = "order," + join(tensors, ",") + "\n";
  done.report = "| order | " + join(tensors, " | ") + " |\n|---|";
  for (std::size_t t = 0; t < tensors.size(); ++t) done.report += "---|";
  done.report += "\n";
  std::map<std::string, Reuse> table;
  done.result["rows"] = ordered_json::array();
  for (const chimera::Order& order : chimera::all_orders(w)) {
    const std::string name = chimera::to_text(w, order);
    Reuse& reuse = table[name] = reuse_under(w, order, reading);
    ordered_json along = ordered_json::object();
    done.report += "| " + name + " |";
    done.csv += name;
    for (const std::string& t : tensors) {
      along[t] = reuse[t];
      done.report += " " + list(reuse[t]) + " |";
      done.csv += "," + list(reuse[t]);
    }
    done.report += "\n";
    done.csv += "\n";
    done.result["rows"].push_back({{"order", name}, {"reused_along", along}});
  }
  done.report += "\nWhat the paper's text says:\n\n";
  done.result["checked"] = ordered_json::array();
  const auto check = [&](const std::string& order, const std::string& tensor, bool same,
                         const std::string& claim, const std::string& source) {
    done.result["checked"].push_back({{"order", order},
                                      {"tensor", tensor},
                                      {"paper", claim},
                                      {"source", source},
                                      {"same", same}});
    done.report += formatted("- {}, {}: {} ({}): {}\n", order, tensor, claim, source,
                             same ? "the same here" : "not so here");
    if (same) return;
    done.holds = false;
    done.reason = formatted("{} under {} is not {}", tensor, order, claim);
  };
  for (const Field& row : top.at("paper").items()) {
    std::set<std::string> along;
    for (const Field& l : row.at("along").items()) along.insert(l.text());
    const std::string order = row.at("order").text(), tensor = row.at("tensor").text();
    check(order, tensor, table[order][tensor] == along, "reused along " + list(along),
          row.at("source").text());
  }
  for (const Field& row : top.at("paper_every_order").items()) {
    const std::string tensor = row.at("tensor").text(), loop = row.at("along").text();
    const bool same = std::all_of(table.begin(), table.end(),
                                  [&](auto& entry) { return entry.second[tensor].contains(loop); });
    check("every order", tensor, same, "reused along " + loop, row.at("source").text());
  }
  return done;
}

}  // namespace tilewright::harness
