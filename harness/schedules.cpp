#include "harness/schedules.h"

#include <algorithm>

#include "core/ir/files.h"
#include "harness/registry.h"
#include "models/exact/exact.h"

namespace tilewright::harness {

Scheduled schedule_of(const Request& request) {
  Scheduled out{.setting = setting_of(request)};
  const auto refused = [&out](const std::string& reason) {
    auto json = document();
    json["workload"] = out.setting.workload_name;
    json["machine"] = out.setting.machine->name;
    json["legal"] = false;
    out.refusal = refuse(std::move(json), reason);
  };
  Result<Plan> plan = plan_of(request, out.setting);
  if (!plan) {
    refused(plan.reason());
    return out;
  }
  out.plan = *plan;
  Result<Schedule> schedule = resolve(out.plan, out.setting.workload, out.setting.machine);
  if (schedule)
    out.schedule = std::move(schedule).value();
  else
    refused(schedule.reason());
  return out;
}

namespace {

/// How much of the time of all threads is used where they share so many equal pieces of work.
double share_of(std::int64_t pieces, int threads) {
  return static_cast<double>(pieces) / static_cast<double>(ceil_div(pieces, threads) * threads);
}

/// A loop around everything that is computed, over a dimension of the outputs that is not their last:
/// vectors run along that one.
struct Shared {
  Node* loop;
  std::int64_t extent, step;
};

/// Those of a tree, outermost first.
std::vector<Shared> shared_loops(Kernel& kernel, const Workload& w) {
  std::vector<Shared> found;
  for (Node* at = &kernel.tree; at != nullptr;) {
    if (at->kind == Node::Kind::loop) {
      const auto id = w.find_loop(at->name);
      const auto in_output = [&](TensorId t) {
        const OpId op = w.producer(t);
        return op.valid() && !w.is_reduction(op, *id) && w.local_index(op, *id) >= 0 &&
               w.op(op).outputs[0].target.index.back().plain_loop() != *id;
      };
      const auto tile = kernel.tiles.find(at->name);
      const std::int64_t step =
          at->step > 0 ? at->step : tile == kernel.tiles.end() ? 0 : tile->second;
      if (at->binding != Binding::seq) return {};
      if (id && step > 0 && std::ranges::all_of(w.outputs(), in_output))
        found.push_back({at, w.loop(*id).extent, step});
    }
    Node* next = nullptr;
    int inside = 0;
    for (Node& child : at->children) {
      if (child.kind == Node::Kind::load) continue;
      ++inside;
      if (child.kind == Node::Kind::loop || child.kind == Node::Kind::sequence) next = &child;
    }
    at = inside == 1 ? next : nullptr;
  }
  return found;
}

}  // namespace

Plan shared_by_threads(const Plan& plan, const Workload& workload, int threads) {
  constexpr double kEnough = 0.9;
  if (plan.kernels.size() != 1 || threads < 2) return plan;
  Plan out = plan;
  Kernel& kernel = out.kernels.front();
  const Shared* best = nullptr;
  double most = 0;
  std::int64_t step = 0;
  const std::vector<Shared> loops = shared_loops(kernel, workload);
  for (const Shared& l : loops) {
    const std::int64_t pieces = ceil_div(l.extent, l.step);
    if (share_of(pieces, threads) >= kEnough) return plan;
    const std::int64_t smaller = ceil_div(l.extent, ceil_div(pieces, threads) * threads);
    const double share = share_of(ceil_div(l.extent, smaller), threads);
    if (share > most) best = &l, most = share, step = smaller;
  }
  if (best == nullptr) return plan;
  if (best->loop->step > 0)
    best->loop->step = step;
  else
    kernel.tiles[best->loop->name] = step;
  return out;
}

Scheduled schedule_for_threads(const Request& request) {
  Scheduled on = schedule_of(request);
  if (!on.schedule || !request.model || plan_in_place(request, on.setting)) return on;
  Plan shared = shared_by_threads(on.plan, *on.setting.workload, request.threads.value_or(1));
  if (shared == on.plan) return on;
  Result<Schedule> schedule = resolve(shared, on.setting.workload, on.setting.machine);
  if (!schedule) return on;
  on.plan = std::move(shared);
  on.schedule = std::move(schedule).value();
  return on;
}

std::string boundary_into(const Machine& m, LevelId level) {
  const auto steps = m.path(m.home(), level);
  return steps.empty() ? "" : m.boundary(steps.back().first, steps.back().second);
}

Bytes Alone::total() const {
  Bytes sum;
  for (const TrafficEntry& e : exact.entries) sum += e.read + e.written;
  return sum;
}

namespace {

bool names_a_level(const Node& tree, const Machine& m, LevelId but) {
  if (!tree.level.empty() && tree.level != m.level(but).name &&
      tree.level != m.level(m.home()).name)
    return true;
  return std::ranges::any_of(tree.children,
                             [&](const Node& c) { return names_a_level(c, m, but); });
}

/// Whether a plan speaks of a level on chip other than `level`.
bool names_another(const Plan& plan, const Machine& m, LevelId level) {
  const auto other = [&](const std::string& name) {
    return !name.empty() && name != m.level(level).name && name != m.level(m.home()).name;
  };
  return std::ranges::any_of(plan.kernels, [&](const Kernel& k) {
    return other(k.level) || names_a_level(k.tree, m, level) ||
           std::ranges::any_of(k.pins, [&](const auto& pin) { return other(pin.second.level); });
  });
}

/// The machine without its hardware caches: what they fill is filled from home.
Machine without_caches(const Machine& m) {
  Machine r = m;
  r.levels.clear();
  const std::string home = m.level(m.home()).name;
  for (Level level : m.levels) {
    if (level.managed == Managed::hardware && level.kind != LevelKind::home) continue;
    for (std::string& from : level.filled_by)
      if (const auto source = m.find(from); source && m.level(*source).managed == Managed::hardware)
        from = home;
    r.levels.push_back(std::move(level));
  }
  return r;
}

}  // namespace

Traffic from_home(Traffic traffic, const Machine& m) {
  const std::string outer = m.level(m.home()).name + "/";
  std::erase_if(traffic.entries,
                [&](const TrafficEntry& e) { return !e.boundary.starts_with(outer); });
  return traffic;
}

Result<Alone> alone_at(const Setting& setting, const Plan& plan, LevelId level) {
  const bool several = names_another(plan, *setting.machine, level);
  const auto machine = std::make_shared<const Machine>(
      several ? without_caches(*setting.machine) : as_scratchpad(*setting.machine, level));
  Result<Schedule> schedule = resolve(plan, setting.workload, machine);
  if (!schedule) return Reason{schedule.reason()};
  Traffic traffic = exact(*schedule);
  if (!traffic.unavailable.empty()) return Reason{traffic.unavailable.begin()->second};
  return Alone{from_home(std::move(traffic), *machine), std::move(schedule).value()};
}

nlohmann::ordered_json memory_json(const std::map<std::string, Bytes>& memory) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [level, bytes] : memory) json[level] = bytes.value;
  return json;
}

}  // namespace tilewright::harness
