// compare: every model's plan, priced by every model, by exact and by the simulator, and why they
// differ.
#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "core/workload/text.h"
#include "harness/ask.h"
#include "harness/parallel.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "models/bounds/model.h"
#include "simulator/simulator.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// Bytes by tensor, both directions.
struct Moved {
  std::int64_t read = 0, written = 0;
  std::int64_t all() const { return read + written; }
};
using ByTensor = std::map<std::string, Moved>;

ByTensor by_tensor(const Traffic& traffic) {
  ByTensor out;
  for (const TrafficEntry& e : traffic.entries) {
    Moved& m = out[e.tensor];
    m.read += e.read.value;
    m.written += e.written.value;
  }
  return out;
}

/// What crosses into the level; all where the model counts nothing there.
ByTensor into_level(Traffic traffic, const Machine& m, LevelId level) {
  const std::string boundary = boundary_into(m, level);
  const auto there = [&](const TrafficEntry& e) { return e.boundary == boundary; };
  if (std::ranges::any_of(traffic.entries, there))
    std::erase_if(traffic.entries, [&](const TrafficEntry& e) { return !there(e); });
  return by_tensor(traffic);
}

std::int64_t total(const ByTensor& moved) {
  std::int64_t sum = 0;
  for (const auto& [name, m] : moved) sum += m.all();
  return sum;
}

/// Whether the bytes of all entries together are a number that is kept.
bool is_counted(const Traffic& traffic) {
  double sum = 0;
  for (const TrafficEntry& e : traffic.entries) {
    if (e.read.value < 0 || e.written.value < 0) return false;
    sum += static_cast<double>(e.read.value) + static_cast<double>(e.written.value);
  }
  return sum < 0x1p62;
}

/// The plan, and what is true of it.
struct Planned {
  Plan plan;
  LevelId level;
  ByTensor exact;
  std::map<std::string, double> again;  ///< operator -> times each point is computed
  std::map<std::string, Operations> operations;
  Bytes memory;
  std::int64_t blocks = 1;
};

/// Whether an operator that reads the tensor is computed more than once.
bool feeds_recomputation(const Workload& w, const std::string& tensor, const Planned& p) {
  const auto id = w.find_tensor(tensor);
  return id && std::ranges::any_of(w.consumers(*id), [&](OpId op) {
           const auto at = p.again.find(w.op(op).name);
           return at != p.again.end() && at->second > 1 + 1e-9;
         });
}

/// Why the rest of an input's difference: the model counts it too low or too high.
std::string why_input(const Workload& w, const std::string& tensor, std::int64_t rest,
                      const Planned& p) {
  if (rest > 0) return "buffers alive: a tile that is still held is not loaded again";
  if (p.blocks > 1) return "blocks: each block loads for itself what the model loads once";
  if (feeds_recomputation(w, tensor, p))
    return "recomputation: what feeds an operator that runs again is loaded again";
  return "buffers alive: the tile was replaced, and is loaded again";
}

/// A window's tile may reach past the tensor's ends.
std::string why_edges(const Workload& w, const std::string& tensor) {
  const auto id = w.find_tensor(tensor);
  const bool halo = id && std::ranges::any_of(w.operators(), [&](const Operator& op) {
                      return std::ranges::any_of(op.inputs, [&](const Access& a) {
                        return a.tensor == *id && std::ranges::any_of(a.index, [](const Affine& i) {
                                 return i.terms.size() > 1;
                               });
                      });
                    });
  return halo ? "edges: partial tiles, and halos in the padding, counted as full ones"
              : "edges: partial tiles counted as full ones";
}

/// Where the difference between a model's bytes and exact's comes from; the parts sum to it.
ordered_json causes_of(const Workload& w, const ByTensor& model, const ByTensor& no_edges,
                       const Planned& p) {
  ordered_json causes = ordered_json::array();
  const auto add = [&](const std::string& cause, const std::string& tensor, std::int64_t bytes) {
    if (bytes != 0) causes.push_back({{"cause", cause}, {"tensor", tensor}, {"bytes", bytes}});
  };
  std::map<std::string, int> names;
  for (const auto* side : {&model, &p.exact})
    for (const auto& [name, moved] : *side) names[name];
  const auto at = [](const ByTensor& side, const std::string& name) {
    const auto found = side.find(name);
    return found == side.end() ? Moved{} : found->second;
  };
  for (const auto& [name, unused] : names) {
    const Moved said = at(model, name), cut = at(no_edges, name), is = at(p.exact, name);
    add(why_edges(w, name), name, said.all() - cut.all());
    const auto id = w.find_tensor(name);
    if (id && w.is_input(*id)) {
      add(why_input(w, name, cut.all() - is.all(), p), name, cut.all() - is.all());
      continue;
    }
    // Models that count a tensor once put it all on one side.
    add("write counting: partial results are read back", name, cut.read - is.read);
    add("write counting: what is written again or kept", name, cut.written - is.written);
  }
  return causes;
}

/// One model's price of a plan.
ordered_json priced(const Model& by, const Request& request, const Setting& setting,
                    const Planned& p) {
  ordered_json json = {{"by", by.name}};
  const Result<Price> said = price(by, request, setting, p.plan);
  if (!said) {
    json["reason"] = said.reason();
    return json;
  }
  if (!is_counted(said->traffic)) {
    json["reason"] = "more bytes than are counted";
    return json;
  }
  const ByTensor model = into_level(said->traffic, *setting.machine, p.level);
  ByTensor no_edges = model;
  if (find_option(by.options, "edges") != nullptr &&
      settings_of(request, by).text("edges") != "exact") {
    const Result<Price> cut = by.price(question_of(request, setting, by), p.plan,
                                       settings_with(request, by, "edges", "exact", true));
    if (cut) no_edges = into_level(cut->traffic, *setting.machine, p.level);
  }
  json["seconds"] = or_null(said->traffic.seconds);
  if (model.empty()) {  // a model of time alone
    json["volume_bytes"] = nullptr;
    return json;
  }
  json["volume_bytes"] = total(model);
  json["difference_bytes"] = total(model) - total(p.exact);
  json["causes"] = causes_of(*setting.workload, model, no_edges, p);
  const auto memory = said->traffic.memory.find(setting.machine->level(p.level).name);
  if (memory != said->traffic.memory.end()) {
    json["memory_bytes"] = memory->second.value;
    json["memory_difference_bytes"] = memory->second.value - p.memory.value;
  }
  return json;
}

/// Most nodes that exact evaluates of a plan here: about a second.
constexpr std::int64_t kMostNodes = 1'000'000;
/// Most operators of a workload whose plans every model prices; above, a plan's own model alone.
constexpr std::size_t kMostPriced = 64;

/// How often a walk comes to a node, over all nodes; at most, since trips at edges are fewer.
double steps_of(const ScheduledKernel& k) {
  double steps = 0;
  std::vector<double> times(k.nodes.size(), 1);  // parents stand before their children
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    const ScheduleNode& node = k.nodes[n];
    steps += times[n];
    const double each = node.kind == NodeKind::loop ? static_cast<double>(node.max_trips) : 1.0;
    for (NodeId child : node.children) times[child.index()] = times[n] * each;
  }
  return steps;
}

/// Walks over kernels, those of all plans together: what differs in names alone is walked once,
/// while who asks for it again waits.
class Walks {
 public:
  std::int64_t bytes(const Schedule& s) {
    std::shared_ptr<Walk> walk;
    {
      const std::lock_guard hold(lock_);
      std::shared_ptr<Walk>& at = known_[key_of(s)];
      if (at == nullptr) at = std::make_shared<Walk>();
      walk = at;
    }
    const std::lock_guard hold(walk->lock);
    if (!walk->bytes)
      walk->bytes = total(by_tensor(from_home(tilewright::simulate(s, {}), *s.machine)));
    return *walk->bytes;
  }

 private:
  struct Walk {
    std::mutex lock;
    std::optional<std::int64_t> bytes;
  };
  static std::string key_of(const Schedule& s) {
    Plan unnamed = s.resolved;
    for (Kernel& k : unnamed.kernels) k.name = "kernel";
    return to_yaml(*s.workload) + to_yaml(*s.machine) + to_json(unnamed).dump();
  }

  std::mutex lock_;
  std::map<std::string, std::shared_ptr<Walk>> known_;
};

/// Bytes of a walk over the plan.
void add_simulated(ordered_json& row, const Alone& alone, double most_steps, Walks& walks) {
  double steps = 0;
  for (const SameKernels& same : alone.kernels)
    for (const ScheduledKernel& k : same.schedule.kernels) steps += steps_of(k);
  if (steps > most_steps) {
    row["simulated_bytes"] = nullptr;
    row["simulated_reason"] =
        formatted("a walk of {:.2g} steps: more than {:.0g} are left to tilewright simulate", steps,
                  most_steps);
    return;
  }
  std::int64_t bytes = 0;
  for (const SameKernels& same : alone.kernels)
    bytes += static_cast<std::int64_t>(same.count) * walks.bytes(same.schedule);
  row["simulated_bytes"] = bytes;
}

void add_truth(ordered_json& row, const Setting& setting, const Alone& alone, Bytes bound,
               double most_steps, Walks& walks, Planned& p) {
  const Workload& w = *setting.workload;
  p.exact = by_tensor(alone.exact);
  p.operations = alone.exact.operations;
  const auto& memory = alone.exact.memory;
  p.memory = memory.empty() ? Bytes(0) : memory.begin()->second;
  for (const ScheduledKernel& k : alone.schedule.kernels) p.blocks = std::max(p.blocks, k.blocks);
  row["exact_bytes"] = total(p.exact);
  row["memory_bytes"] = p.memory.value;
  row["recomputed"] = ordered_json::object();
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    const std::string& name = w.operators()[o].name;
    const auto at = p.operations.find(name);
    if (at == p.operations.end()) continue;
    const double times =
        static_cast<double>(at->second.value) / static_cast<double>(w.operations(OpId(o)).value);
    p.again[name] = times;
    if (times > 1 + 1e-9) row["recomputed"][name] = times;
  }
  std::optional<Reason> why;
  for (const SameKernels& same : alone.kernels)
    if (!why) why = misfit(same.schedule);
  row["fits"] = !why;
  if (why) {
    row["simulated_bytes"] = nullptr;
    row["simulated_reason"] = why->text;
  } else {
    add_simulated(row, alone, most_steps, walks);
  }
  row["gap"] =
      bound.value > 0
          ? ordered_json(static_cast<double>(total(p.exact)) / static_cast<double>(bound.value))
          : ordered_json(nullptr);
}

ordered_json plan_row(const Model& maker, const std::vector<const Model*>& pricers, Request request,
                      Setting setting, Bytes bound, double most_steps, Walks& walks) {
  ordered_json row = {{"model", maker.name}};
  request.model = maker.name;
  const Result<Proposal> best = propose(maker, request, setting);
  if (!best) {
    row["reason"] = best.reason();
    return row;
  }
  if (!best->rewrites.empty()) {
    rewrite(setting, best->rewrites, "--model " + maker.name);
    row["rewrites"] = setting.rewrites;
    // What a composed workload does not read, it need not move.
    bound = std::min(
        bound,
        Bytes(bounds::bounds_json(*setting.workload, capacity_of(request, setting, best->level), {})
                  .at("proven")
                  .at("bytes")
                  .get<std::int64_t>()));
  }
  const Kernel& kernel = best->plan.kernels.front();
  row["tree"] = to_text(kernel.tree);
  row["tiles"] = kernel.tiles;
  row["plan"] = to_json(best->plan);
  row["kernels"] = best->plan.kernels.size();
  row["search_seconds"] = or_null(best->search_seconds);
  Planned planned{.plan = best->plan, .level = best->level};
  const auto once = each_kernel_once(best->plan, *setting.workload);
  row["each_kernel_once_bytes"] = once ? ordered_json(once->value) : ordered_json(nullptr);
  // Every plan by one model of time, so that seconds can be set beside each other.
  const Result<Price> time = price(planning_model(), request, setting, best->plan);
  row["seconds"] = or_null(time ? time->traffic.seconds : std::nullopt);
  if (!time) row["seconds_reason"] = time.reason();
  const Result<Alone> alone = alone_at(setting, planned.plan, planned.level, kMostNodes);
  if (!alone) {
    row["exact_bytes"] = nullptr;
    row["exact_reason"] = alone.reason();
    row["own_seconds"] = or_null(best->price.traffic.seconds);
    return row;
  }
  add_truth(row, setting, *alone, bound, most_steps, walks, planned);
  if (row["fits"] == false && setting.machine->level(best->level).managed == Managed::hardware) {
    const Result<MovedAt> moved = moved_at(request, setting, planned.plan, planned.level, *alone);
    row["exact_bytes"] = moved ? ordered_json(moved->bytes.value) : ordered_json(nullptr);
    if (!moved) row["exact_reason"] = moved.reason();
    row["gap"] = moved && bound.value > 0 ? ordered_json(static_cast<double>(moved->bytes.value) /
                                                         static_cast<double>(bound.value))
                                          : ordered_json(nullptr);
  }
  // A model may block for another level than is asked for: the bound is not that one's.
  row["level"] = setting.machine->level(best->level).name;
  if (best->level != level_of(request, *setting.machine)) row["gap"] = nullptr;
  row["own_seconds"] = or_null(best->price.traffic.seconds);
  row["prices"] = ordered_json::array();
  const bool network = setting.workload->operators().size() > kMostPriced;
  for (const Model* by : pricers)
    if (!network || by->name == maker.name)
      row["prices"].push_back(priced(*by, request, setting, planned));
  return row;
}

}  // namespace

Answer compare(const Request& request, const std::string& models, double most_steps) {
  const Setting setting = setting_of(request);
  if (setting.file || request.tree)
    throw InputError({.where = "compare",
                      .value = setting.file ? request.subject : "--tree",
                      .problem = "is a plan already",
                      .accepted = "a workload; predict prices a plan"});
  const auto chosen = planners_of(models);
  check_options_of(request, chosen);
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  const LevelId level = level_of(request, *setting.machine);
  json["level"] = setting.machine->level(level).name;
  json["seconds_by"] = planning_model().name;
  json["counted"] = "bytes between home and the level, taken as a scratchpad of each block's own";
  // Blocks load for themselves, so one after the other they never hold more than the level.
  json["bounds"] = bounds::bounds_json(*setting.workload, capacity_of(request, setting, level), {});
  const ordered_json proven = json["bounds"]["proven"];  // a copy: the document grows
  const Bytes bound(proven["bytes"].get<std::int64_t>());
  json["bound_bytes"] = bound.value;
  json["bound"] = "proven";
  json["bound_is"] = proven["is"];
  json["models"] = ordered_json::array();
  for (const Model* m : chosen) json["models"].push_back(m->name);
  std::vector<ordered_json> rows(chosen.size());
  Request each = request;
  each.progress = {};
  Walks walks;
  parallel_for(
      chosen.size(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
      [&](std::size_t i) {
        rows[i] = plan_row(*chosen[i], chosen, each, setting, bound, most_steps, walks);
      },
      request.progress, "models");
  json["plans"] = std::move(rows);
  const bool any = std::ranges::any_of(
      json["plans"], [](const ordered_json& row) { return row.contains("prices"); });
  if (!any) {
    const std::string reason = json["plans"].front().value("reason", std::string());
    return refuse(std::move(json), "no model has a plan: " + reason);
  }
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
