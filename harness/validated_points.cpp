#include "harness/validated_points.h"

#include <algorithm>

#include "core/base/format.h"
#include "harness/iteration.h"
#include "harness/parallel.h"
#include "simulator/simulator.h"

namespace tilewright::harness::validation {
namespace {

using nlohmann::ordered_json;

/// Walks that take more work than this (SimulateOptions::most_work; about ten seconds) are given
/// up.
constexpr std::int64_t kMostWork = 8'000'000'000;
/// Walks are not begun if two iterations of their outermost loop touch more lines than this: those
/// are walked at least, though what a loop within them repeats may be passed over, mostly all but a
/// twentieth.
constexpr double kMostTouches = 20.0 * kMostWork;

std::int64_t sum_of(const std::map<std::string, std::int64_t>& by) {
  std::int64_t sum = 0;
  for (const auto& [tensor, bytes] : by) sum += bytes;
  return sum;
}

/// The truth by a meter, of the plan's kernel on the whole machine. A Reason where there is none.
std::optional<Reason> metered(const Subject& s, Point& p) {
  const Machine& m = *s.setting.machine;
  const Result<Schedule> schedule = resolve(p.plan, s.setting.workload, s.setting.machine);
  if (!schedule) return Reason{schedule.reason()};
  const auto kernel = MeteredKernel::make(*schedule, *s.meter, *s.reference);
  if (!kernel) return Reason{kernel.reason()};
  const auto measured = s.meter->make()->measure((*kernel)->built(), m);
  if (!measured) return Reason{measured.reason()};
  const Traffic& t = measured->traffic;
  if (const auto why = t.unavailable.find(s.boundary); why != t.unavailable.end())
    return Reason{why->second};
  p.truth = t.total(s.boundary).read.value;
  if (t.counts.write_back) p.written = t.total(s.boundary).written.value;
  return std::nullopt;
}

/// The bytes of a tensor towards the level. A cache that allocates on writes fills the line of an
/// output whether it is read or written next, and memory that software manages holds it for both:
/// the larger of the two. An intermediate that goes home is filled when it is written and again
/// when it is read.
std::int64_t towards_level(const Subject& s, const TrafficEntry& e) {
  const auto id = workload(s).find_tensor(e.tensor);
  return id && workload(s).is_intermediate(*id) ? e.read.value + e.written.value
                                                : std::max(e.read.value, e.written.value);
}

/// The truth by the simulator: of a cache the lines that were filled.
void simulated(const Subject& s, const Schedule& schedule, Point& p) {
  Simulated done{.finished = false};
  if (sure_touches(schedule) <= kMostTouches)
    done = simulate_in_detail(schedule, {.layout = s.layout, .most_work = kMostWork});
  if (!done.finished) {
    p.failure = "its walk would take more than " + std::to_string(kMostWork / 1'000'000'000) +
                " billion steps";
    return;
  }
  const Traffic& traffic = done.traffic;
  const TrafficEntry total = traffic.total(s.walked_boundary);
  const bool fills = s.walked->level(s.walked_level).managed == Managed::hardware;
  for (const TrafficEntry& e : traffic.entries)
    if (e.boundary == s.walked_boundary)
      p.truth_by[e.tensor] += fills ? e.read.value : towards_level(s, e);
  p.truth = fills ? total.read.value : sum_of(p.truth_by);
  p.written = total.written.value;
  p.resident_dirty = total.resident_dirty.value;
  p.packing = AddressMap(schedule, s.layout).packing_bytes().value;
}

/// What the model predicts towards the level, by tensor. A model that counts fills has them among
/// what is read.
std::map<std::string, std::int64_t> towards_level(const Subject& s, const Price& price) {
  std::map<std::string, std::int64_t> by;
  for (const TrafficEntry& e : price.traffic.entries) {
    if (e.boundary != s.boundary) continue;
    const std::int64_t bytes =
        price.traffic.counts.write_allocate ? e.read.value : towards_level(s, e);
    if (bytes != 0) by[e.tensor] += bytes;
  }
  return by;
}

/// The model's price of a point's plan, in its own words where it has drawn them.
Result<Price> price_of(const Subject& s, const Point& p, const Settings& settings) {
  if (s.drawer != s.model) return s.model->price(s.question, p.plan, settings);
  Result<Proposal> said = s.model->written(s.question, p.words, settings);
  if (!said) return Reason{said.reason()};
  return std::move(said->price);
}

/// Makes the plan of a drawer's words. A Reason where there is none.
std::optional<Reason> make_plan(const Subject& s, Point& p) {
  if (s.drawer == nullptr) return std::nullopt;
  Result<Proposal> said = s.drawer->written(s.drawn_for, p.words, s.drawer_settings);
  if (!said) return Reason{said.reason()};
  p.plan = std::move(said->plan);
  // As the model shows them: in the order of its notation.
  if (said->price.detail.contains("tiles")) p.tiles = said->price.detail["tiles"];
  return std::nullopt;
}

/// Fills in everything but words, or the plan.
void evaluate_now(const Subject& s, Point& p) {
  if (!p.failure.empty()) return;
  if (const auto why = make_plan(s, p)) {
    p.failure = why->text;
    return;
  }
  const Result<Schedule> schedule = resolve(p.plan, s.setting.workload, s.walked);
  if (!schedule) {
    p.failure = schedule.reason();
    return;
  }
  const auto memory = memory_use(*schedule);
  const auto used = memory.find(s.walked->level(s.walked_level).name);
  p.memory = used == memory.end() ? 0 : used->second.value;
  if (const auto why = misfit(*schedule)) {
    p.failure = why->text;
    return;
  }
  if (const auto bytes = iteration_bytes(*schedule)) p.iteration = bytes->value;
  const Result<Price> price = price_of(s, p, s.settings);
  if (!price) {
    p.failure = price.reason();
    return;
  }
  p.predicted_by = towards_level(s, *price);
  p.predicted_full = p.predicted = sum_of(p.predicted_by);
  if (s.has_edges())
    if (const Result<Price> full = price_of(s, p, s.full_edges))
      p.predicted_full = sum_of(towards_level(s, *full));
  if (s.meter == nullptr) return simulated(s, *schedule, p);
  if (const auto why = metered(s, p)) p.failure = why->text;
}

ordered_json number_json(const std::optional<std::int64_t>& n) {
  return n ? ordered_json(*n) : ordered_json(nullptr);
}

std::optional<std::int64_t> number_from(const ordered_json& j) {
  return j.is_null() ? std::nullopt : std::optional(j.get<std::int64_t>());
}

/// evaluate_now, but for a tiling that was finished before.
void evaluate_once(const Subject& s, Point& p, const std::string& block, const Once& once) {
  const std::string key = formatted("{} {} {}", block, p.words.text.value_or(""), p.tiles.dump());
  const ordered_json found = once(key, [&] {
    evaluate_now(s, p);
    ordered_json json = point_json(s, p);
    json["predicted_full"] = p.predicted_full;
    json["predicted_by"] = p.predicted_by;
    json["truth_by"] = p.truth_by;
    json["failure"] = p.failure;
    return json;
  });
  p.tiles = found["tiles"];
  p.predicted = found["predicted_bytes"];
  p.predicted_full = found["predicted_full"];
  p.truth = found["true_bytes"];
  p.written = number_from(found["written_bytes"]);
  p.resident_dirty = number_from(found["resident_dirty_bytes"]);
  p.memory = found["memory_bytes"];
  p.packing = found["packing_bytes"];
  p.iteration = number_from(found["iteration_bytes"]);
  p.predicted_by = found["predicted_by"].get<std::map<std::string, std::int64_t>>();
  p.truth_by = found["truth_by"].get<std::map<std::string, std::int64_t>>();
  p.failure = found["failure"];
}

}  // namespace

const Workload& workload(const Subject& s) { return *s.setting.workload; }

std::string text_key(const Subject& s) { return s.drawer ? s.drawer->notation : "tree"; }

ordered_json point_json(const Subject& s, const Point& p) {
  ordered_json json;
  json[text_key(s)] = p.words.text.value_or("");
  json["tiles"] = p.tiles;
  json["predicted_bytes"] = p.predicted;
  json["true_bytes"] = p.truth;
  if (s.has_edges()) json["predicted_full_edges_bytes"] = p.predicted_full;
  json["written_bytes"] = number_json(p.written);
  json["resident_dirty_bytes"] = number_json(p.resident_dirty);
  json["memory_bytes"] = p.memory;
  json["packing_bytes"] = p.packing;
  json["iteration_bytes"] = number_json(p.iteration);
  json["iteration_over_capacity"] =
      p.iteration && s.capacity.value > 0
          ? ordered_json(static_cast<double>(*p.iteration) / static_cast<double>(s.capacity.value))
          : ordered_json(nullptr);
  if (p.truth_by.empty()) return json;
  json["tensors"] = ordered_json::object();
  for (const Tensor& t : workload(s).tensors()) {
    const auto of = [&t](const auto& by) { return by.contains(t.name) ? by.at(t.name) : 0; };
    if (of(p.predicted_by) != 0 || of(p.truth_by) != 0)
      json["tensors"][t.name] = {{"predicted_bytes", of(p.predicted_by)},
                                 {"true_bytes", of(p.truth_by)}};
  }
  return json;
}

void evaluate(const Subject& s, Point& p, const std::string& block, const Once& once) {
  if (once)
    evaluate_once(s, p, block, once);
  else
    evaluate_now(s, p);
}

std::vector<Point> evaluated(const Subject& s, std::vector<Point> points, const Request& request,
                             const Once& once, const std::string& block) {
  // Hardware counters see what else the machine does: then one kernel at a time.
  const bool alone = s.meter != nullptr && !s.meter->valgrind;
  const auto work = [&](std::size_t i) { evaluate(s, points[i], block, once); };
  parallel_for(points.size(), alone ? 1 : threads_of(request), work, request.progress, block);
  return points;
}

}  // namespace tilewright::harness::validation
