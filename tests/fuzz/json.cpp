// JSON documents: workloads, plans and traffic.
#include <nlohmann/json.hpp>

#include "core/plan/file.h"
#include "core/plan/plan.h"
#include "core/plan/traffic.h"
#include "tests/fuzz/fuzz.h"

namespace tilewright::fuzz {
namespace {

/// As a user of the library would read it back.
nlohmann::json reread(const nlohmann::ordered_json& j) { return nlohmann::json::parse(j.dump()); }

}  // namespace

void one(std::string_view input) {
  const auto j = nlohmann::json::parse(input, nullptr, false);
  if (j.is_discarded()) return;
  refusable([&] {
    const Workload w = workload_from_json(j, "f");
    use(w);
    TW_CHECK(workload_from_json(reread(to_json(w)), "again") == w, to_json(w).dump());
  });
  refusable([&] {
    const Plan p = plan_from_json(j, "f");
    TW_CHECK(plan_from_json(reread(to_json(p)), "again") == p, to_json(p).dump());
  });
  refusable([&] {
    const Traffic t = traffic_from_json(j, "f");
    TW_CHECK(traffic_from_json(reread(to_json(t)), "again") == t, to_json(t).dump());
  });
}

}  // namespace tilewright::fuzz
