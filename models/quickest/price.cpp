// What a plan takes where the machine is no processor.
#include <algorithm>

#include "core/plan/names.h"
#include "core/workload/subgraph.h"
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

namespace {

/// The bytes of the first model that counts anybody's plans, or the most that any model says.
std::optional<Price> counted(const Question& asked, const std::vector<const Model*>& models,
                             const Plan& plan) {
  const std::string boundary = boundary_into(*asked.machine, asked.level_of(plan));
  const auto bytes = [&](const Price& p) {
    const TrafficEntry all = p.traffic.total(boundary);
    return all.read.value + all.written.value;
  };
  for (const bool by_anyone : {false, true}) {
    std::optional<Price> most;
    for (const Model* m : models) {
      if (m->times || m->price == nullptr || (!by_anyone && m->propose != nullptr)) continue;
      Result<Price> price = m->price(asked, plan, standard(*m));
      if (price &&
          std::ranges::any_of(price->traffic.entries,
                              [&](const TrafficEntry& e) { return e.boundary == boundary; }) &&
          (!most || bytes(*price) > bytes(*most)))
        most = std::move(price).value();
      if (most && !by_anyone) break;
    }
    if (!most) continue;
    most->traffic.by = "tilewright";
    return most;
  }
  return std::nullopt;
}

/// Adds a later kernel's bytes and operations; of memory, the most that one holds.
void add(Price& all, const Price& one, const Workload& w) {
  for (const TrafficEntry& e : one.traffic.entries) {
    auto at = std::ranges::find_if(all.traffic.entries, [&](const TrafficEntry& x) {
      return x.boundary == e.boundary && x.tensor == e.tensor;
    });
    if (at == all.traffic.entries.end()) {
      all.traffic.entries.push_back(e);
      continue;
    }
    at->read += e.read, at->written += e.written;
    at->hits += e.hits, at->misses += e.misses;
  }
  std::ranges::stable_sort(all.traffic.entries, {}, [&](const TrafficEntry& e) {
    return std::pair(e.boundary, w.find_tensor(e.tensor)->index());
  });
  for (const auto& [level, bytes] : one.traffic.memory)
    all.traffic.memory[level] = std::max(all.traffic.memory[level], bytes);
  for (const auto& [op, its] : one.traffic.operations) all.traffic.operations[op] += its;
  all.detail = nlohmann::ordered_json::object();
}

}  // namespace

Result<Price> price_elsewhere(const Question& q, const Plan& plan, const Settings&) {
  const Reason unknown{"no model here knows how long the plan takes, or what it moves"};
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
  // Where nobody knows time, plans are chosen by their bytes, as a whole or kernel by kernel.
  if (auto whole = counted(asked, q.others, plan)) return *whole;
  if (plan.kernels.size() > 1 && !no_workloads(plan, *q.workload)) {
    std::optional<Price> all;
    for (const Kernel& k : plan.kernels) {
      asked.workload =
          std::make_shared<const Workload>(subgraph(*q.workload, operators_of(k, *q.workload)));
      auto one = counted(asked, q.others, {.kernels = {k}});
      if (!one) return unknown;
      if (all)
        add(*all, *one, *q.workload);
      else
        all = std::move(one);
    }
    return *all;
  }
  return unknown;
}

}  // namespace tilewright::quickest
