// Workloads of f64 for the tests of rewrites.
#pragma once

#include <string>
#include <vector>

#include "core/workload/text.h"

namespace tilewright {

inline Workload make(const std::string& loops, const std::string& operators,
                     const std::string& outputs = "") {
  return workload_from_yaml("name: test\ndtype: f64\nloops: {" + loops + "}\noperators:\n" +
                                operators + (outputs.empty() ? "" : "outputs: [" + outputs + "]\n"),
                            "test");
}

inline std::vector<std::string> operators_of(const Workload& w) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < w.operators().size(); ++i) lines.push_back(to_text(w, OpId(i)));
  return lines;
}

}  // namespace tilewright
