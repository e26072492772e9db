#include "harness/in_runs.h"

#include <algorithm>
#include <utility>

#include "core/machine/assumed_speed.h"
#include "core/machine/written.h"
#include "harness/ask.h"

namespace tilewright::harness {

namespace {

/// Bytes that each run uses again.
double used_again(const Workload& w) {
  double touched = 0, largest = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const auto bytes = static_cast<double>(w.tensors()[t].bytes().value);
    if (w.is_input(TensorId(t)) || w.is_output(TensorId(t)))
      touched += bytes;
    else
      largest = std::max(largest, bytes);
  }
  return touched + 2 * largest;
}

}  // namespace

std::shared_ptr<const Machine> in_runs(const Workload& w, std::shared_ptr<const Machine> machine) {
  if (machine->level(machine->default_level()).managed == Managed::software) return machine;
  if (!machine->units.empty() && machine->units.front().clock_hz > 0)
    machine = with_assumed_speed(std::move(machine));
  const double touched = used_again(w);
  std::shared_ptr<Machine> warm;
  for (std::size_t i = 1; i < machine->levels.size(); ++i) {
    const Level& cache = machine->levels[i];
    if (cache.kind != LevelKind::cache || cache.bandwidth.value <= 0) continue;
    // All of it below the capacity, nothing well above it: sets fill unevenly.
    const auto capacity = static_cast<double>(cache.capacity.value);
    const double stays = std::clamp((1.15 * capacity - touched) / (0.4 * capacity), 0.0, 1.0);
    if (stays <= 0) continue;
    if (warm == nullptr) warm = std::make_shared<Machine>(*machine);
    const double comes = std::max(1 - stays, 1e-3);
    warm->levels[i].bandwidth.value /= comes;
    const std::string written = key_of_writing(*machine, LevelId(i - 1));
    for (ComputeUnit& u : warm->units)
      for (const std::string& key : {written, std::string(i == 1 ? "stream" : "")})
        if (const auto cycles = u.cycles.find(key); cycles != u.cycles.end())
          cycles->second *= comes;
  }
  return warm != nullptr ? warm : machine;
}

void add_seconds_in_runs(nlohmann::ordered_json& json, const Model& model, const Request& request,
                         const Setting& setting, const Plan& plan) {
  if (&model != &planning_model() || !json.contains("seconds") || json["seconds"].is_null()) return;
  Setting warm = setting;
  warm.machine = in_runs(*warm.workload, warm.machine);
  if (warm.machine == setting.machine) return;
  const Result<Price> again = price(model, request, warm, plan);
  if (again && again->traffic.seconds) json["seconds_in_runs"] = *again->traffic.seconds;
}

std::shared_ptr<const Machine> as_part_of(const Workload& whole, const Workload& part,
                                          std::shared_ptr<const Machine> machine) {
  if (machine->level(machine->default_level()).managed != Managed::software) return machine;
  double own = 0;
  for (const Tensor& t : part.tensors()) own += static_cast<double>(t.bytes().value);
  const double all = used_again(whole);
  if (own >= all) return machine;
  auto shared = std::make_shared<Machine>(*machine);
  for (Level& cache : shared->levels)
    if (cache.kind == LevelKind::cache)
      cache.capacity =
          Bytes(static_cast<std::int64_t>(static_cast<double>(cache.capacity.value) * own / all));
  return shared;
}

}  // namespace tilewright::harness
