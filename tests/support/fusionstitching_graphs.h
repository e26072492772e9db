// Graphs and the machine that tests of FusionStitching share.
#pragma once

#include <memory>
#include <string>

#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "models/fusionstitching/fusionstitching.h"

namespace tilewright::fusionstitching {

inline const std::shared_ptr<const Machine>& h200() {
  static const auto m = std::make_shared<const Machine>(named_machine("h200"));
  return m;
}
inline const Device& device() {
  static const Device d = *device_of(*h200());
  return d;
}
inline Graph graph_of(const std::string& name) {
  return *Graph::create(std::make_shared<const Workload>(named_workload(name)));
}
inline Graph graph_from(const std::string& text) {
  return *Graph::create(
      std::make_shared<const Workload>(workload_from_yaml("name: test\n" + text, "test")));
}
inline Pattern whole(const Graph& g) {
  Pattern p;
  for (int v = 0; v < g.size(); ++v) p.push_back(v);
  return p;
}

}  // namespace tilewright::fusionstitching
