// Cells of an LSTM one after the other, each a product and four operators: a workload and its plan
// as long as one likes.
#pragma once

#include <string>

#include "core/plan/plan.h"
#include "core/workload/text.h"

namespace tilewright::bench {

struct LstmChain {
  Workload workload;
  Plan plan;  ///< one kernel over blocks of the batch
};

/// `own_loops`: every cell has loops of its own, three more each.
inline LstmChain lstm_chain(int cells, int hidden = 64, bool own_loops = false) {
  const auto number = [](const std::string& name, int i) { return name + std::to_string(i); };
  const auto loop_of = [&](const std::string& name, int cell) {
    return own_loops ? number(name, cell) : name;
  };
  std::string loops = "b: 32", operators, tree;
  std::map<std::string, std::int64_t> tiles{{"b", 8}};
  for (int i = 1; i <= cells; ++i) {
    const std::string g = loop_of("g", i), k = loop_of("k", i), j = loop_of("j", i);
    const auto at = [&](const std::string& name, int cell, const std::string& loop, int from = 0) {
      return number(name, cell) + "[b," + loop +
             (from == 0 ? "" : "+" + std::to_string(from * hidden)) + "]";
    };
    if (i == 1 || own_loops) {
      loops += ", " + g + ": " + std::to_string(4 * hidden) + ", " + k + ": " +
               std::to_string(hidden) + ", " + j + ": " + std::to_string(hidden);
      tiles[g] = 2 * hidden, tiles[k] = tiles[j] = hidden / 2;
    }
    for (const std::string& op :
         {at("P", i, g) + " += " + at("H", i - 1, k) + " * W[" + k + "," + g + "]",
          at("C", i, j) + " = sigmoid(" + at("P", i, j, 1) + ") * " + at("C", i - 1, j) +
              " + sigmoid(" + at("P", i, j) + ") * tanh(" + at("P", i, j, 2) + ")",
          at("O", i, j) + " = sigmoid(" + at("P", i, j, 3) + ")",
          at("T", i, j) + " = tanh(" + at("C", i, j) + ")",
          at("H", i, j) + " = " + at("O", i, j) + " * " + at("T", i, j)})
      operators += "  - \"" + op + "\"\n";
    tree += g + " ( " + k + " ( C." + number("P", i) + " ) ) " + j;
    tree += " ( C." + number("C", i) + " C." + number("O", i) + " C." + number("T", i) + " C." +
            number("H", i) + " ) ";
  }
  return {workload_from_yaml("name: lstm-chain\nloops: {" + loops + "}\noperators:\n" + operators,
                             "lstm-chain"),
          {.kernels = {{.tree = parse_tree("b ( " + tree + ")"), .tiles = tiles}}}};
}

}  // namespace tilewright::bench
