#include "experiments/report/experiment.h"
#include "experiments/report/reproduce.h"

namespace tilewright::harness {
using nlohmann::ordered_json;

Answer list_experiments() {
  auto json = document();
  json["experiments"] = ordered_json::array();
  for (const Experiment& e : experiments()) {
    const auto why = missing(e, {});
    json["experiments"].push_back({{"id", e.id},
                                   {"title", e.title},
                                   {"source", e.source},
                                   {"method", e.method},
                                   {"status", name_of(method_of(e).how)},
                                   {"available", !why.has_value()},
                                   {"reason", why ? ordered_json(*why) : ordered_json(nullptr)},
                                   {"needs", e.needs ? ordered_json(*e.needs) : ordered_json(nullptr)}});
  }
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
