// What a plan takes where the machine is no processor.
#include <algorithm>

#include "models/quickest/gpu.h"
#include "models/quickest/model.h"
#include "models/quickest/quickest.h"
#include "models/stitching/gpu_time.h"

namespace tilewright::quickest {

const Model* target_time(const Question& q) {
  for (const Model* m : q.others)
    if (m->times && !q.target.empty() && m->name == q.target) return m;
  return nullptr;
}

Settings standard(const Model& m) { return {m.options, {}, "model " + m.name}; }

bool has_own_time(const Question& q) {
  return q.machine->kind == "gpu" && stitching::GpuPricer::of(q.workload, *priced_machine(q)).ok();
}

Result<Price> price_elsewhere(const Question& q, const Plan& plan, const Settings&) {
  Question asked = q;
  asked.others.clear();
  if (const Model* clock = target_time(q)) {
    Result<Price> its = clock->price(q, plan, standard(*clock));
    if (its) its.value().traffic.by = "tilewright";
    return its;
  }
  if (has_own_time(q)) return price_on_gpu(q, plan);
  std::optional<Price> longest;
  for (const Model* m : q.others) {
    if (!m->times || m->price == nullptr) continue;
    Result<Price> price = m->price(asked, plan, standard(*m));
    if (price && price->traffic.seconds &&
        (!longest || *price->traffic.seconds > *longest->traffic.seconds))
      longest = std::move(price).value();
  }
  if (longest) {
    longest->traffic.entries.clear();  // the bytes are another model's
    longest->traffic.by = "tilewright";
    return *longest;
  }
  // Where nobody knows time, plans are chosen by their bytes.
  const std::string boundary = boundary_into(*q.machine, q.level_of(plan));
  for (const Model* m : q.others) {
    if (m->times || m->propose != nullptr || m->price == nullptr) continue;
    Result<Price> price = m->price(asked, plan, standard(*m));
    if (!price || std::ranges::none_of(price->traffic.entries, [&](const TrafficEntry& e) {
          return e.boundary == boundary;
        }))
      continue;
    price.value().traffic.by = "tilewright";
    return price;
  }
  return Reason{"no model here knows how long the plan takes"};
}

}  // namespace tilewright::quickest
