#include "harness/layers.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/format.h"
#include "core/plan/names.h"
#include "core/workload/cut.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/parallel.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/split.h"
#include "harness/statistics.h"
#include "models/bounds/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

/// What a plan of a layer costs; nothing but a reason where a model has none.
struct Cost {
  std::string reason = {};
  std::optional<std::int64_t> bytes = {}, own_bytes = {};
  std::optional<double> seconds = {};
  std::size_t kernels = 0;
};

/// Parts that differ in names alone.
struct Layer {
  Part first;  ///< operators of the first one
  std::size_t count = 0;
  std::shared_ptr<const Workload> workload = {};
  Cost unfused = {};       ///< every operator in a kernel of its own
  std::int64_t bound = 0;  ///< proven, of one
  std::map<const Model*, Cost> plans = {};
};

ordered_json or_null(const std::optional<std::int64_t>& n) {
  return n ? ordered_json(*n) : ordered_json(nullptr);
}

ordered_json to_json(const Cost& cost) {
  if (!cost.reason.empty()) return {{"reason", cost.reason}};
  return {{"bytes", or_null(cost.bytes)},
          {"seconds", number_or_null(cost.seconds)},
          {"kernels", cost.kernels},
          {"own_bytes", or_null(cost.own_bytes)}};
}

template <class T>
void add(std::optional<T>& sum, const std::optional<T>& one, std::size_t count) {
  if (sum && one)
    *sum += *one * static_cast<T>(count);
  else
    sum.reset();
}

void add(Cost& sum, const Cost& one, std::size_t count) {
  add(sum.bytes, one.bytes, count);
  add(sum.seconds, one.seconds, count);
  sum.kernels += one.kernels * count;
}

class Layers {
 public:
  Layers(const Request& request, const Setting& setting) : request_(request), setting_(setting) {
    request_.progress = {};
  }

  void cut(const std::string& how) {
    const Workload& w = *setting_.workload;
    const std::vector<bool> constant = constant_operators(w);
    std::map<std::string, std::size_t> known;
    auto parts = parts_named(how, w);
    if (!parts)
      throw InputError({.where = "--split",
                        .value = how,
                        .problem = "names no layers",
                        .accepted = "each, contractions, followed"});
    for (Part& part : *parts) {
      if (std::ranges::all_of(part, [&](OpId op) { return constant[op.index()]; })) {
        prepared += part.size();
        continue;
      }
      auto alone = std::make_shared<const Workload>(subgraph(w, part));
      const auto [at, fresh] = known.emplace(to_yaml(without_names(*alone)), layers.size());
      if (fresh) layers.push_back({.first = std::move(part), .workload = std::move(alone)});
      ++layers[at->second].count;
    }
  }

  /// Of the whole in one kernel: what operators of weights alone make is read like a weight.
  Bytes compulsory() const {
    const Workload& w = *setting_.workload;
    const std::vector<bool> constant = constant_operators(w);
    Part each_run;
    for (std::size_t i = 0; i < constant.size(); ++i)
      if (!constant[i]) each_run.emplace_back(i);
    return each_run.empty() ? Bytes(0) : subgraph(w, each_run).compulsory_bytes();
  }

  /// Asks all models about all layers.
  void ask(const std::vector<const Model*>& models, const Progress& progress) {
    const Model& ours = planning_model();
    // Operators alone first: what models refuse is counted as these.
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const std::size_t each = models.size() + 1;
    std::mutex mutex;
    parallel_for(
        layers.size() * each, cores,
        [&](std::size_t i) {
          Layer& layer = layers[i / each];
          if (i % each == 0) {
            layer.unfused = alone(*layer.workload, ours);
            layer.bound = bound_of(*layer.workload);
            return;
          }
          const Model* m = models[i % each - 1];
          Cost cost = cost_of(*m, layer.workload);
          const std::lock_guard lock(mutex);
          layer.plans[m] = std::move(cost);
        },
        progress, "layers");
  }

  std::vector<Layer> layers;
  std::size_t prepared = 0;  ///< operators of weights alone

 private:
  Setting setting_for(std::shared_ptr<const Workload> w) const {
    Setting part = setting_;
    part.workload_name = w->name();
    part.workload = std::move(w);
    part.original.reset(), part.rewrites.clear();
    return part;
  }

  Cost cost_of(const Model& model, const std::shared_ptr<const Workload>& w) const {
    try {
      Setting part = setting_for(w);
      Request request = request_;
      request.model = model.name;
      const Result<Proposal> best = propose(model, request, part);
      if (!best) return {.reason = best.reason()};
      rewrite(part, best->rewrites, "--model " + model.name);
      if (const auto schedule = resolve(best->plan, part.workload, part.machine); !schedule)
        return {.reason = schedule.reason()};
      Cost cost{.kernels = best->plan.kernels.size()};
      if (const Result<Alone> alone = alone_at(part, best->plan, best->level))
        if (const Result<MovedAt> moved = moved_at(request_, part, best->plan, best->level, *alone))
          cost.bytes = moved->bytes.value;
      std::int64_t own = 0;
      for (const TrafficEntry& e : best->price.traffic.entries) own += (e.read + e.written).value;
      if (!best->price.traffic.entries.empty()) cost.own_bytes = own;
      const Model& ours = planning_model();
      if (&model == &ours)
        cost.seconds = best->price.traffic.seconds;
      else if (const Result<Price> price = harness::price(ours, request_, part, best->plan))
        cost.seconds = price->traffic.seconds;
      return cost;
    } catch (const InputError& e) {  // what a model cannot read of this layer
      return {.reason = e.what()};
    }
  }

  Cost alone(const Workload& w, const Model& by) const {
    Cost sum{.bytes = 0, .seconds = 0.0};
    for (const Part& part : cut_each(w)) {
      const auto op = std::make_shared<const Workload>(subgraph(w, part));
      const Cost one = known(op, by);
      if (one.reason.empty()) {
        add(sum, one, 1);
        continue;
      }
      add(sum, {.bytes = op->compulsory_bytes().value, .kernels = 1}, 1);
    }
    return sum;
  }

  /// Most operators alone are equal to others.
  Cost known(const std::shared_ptr<const Workload>& op, const Model& by) const {
    const std::string shape = to_yaml(without_names(*op));
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = alone_.find(shape); at != alone_.end()) return at->second;
    }
    Cost cost = cost_of(by, op);
    const std::lock_guard lock(mutex_);
    return alone_[shape] = std::move(cost);
  }

  std::int64_t bound_of(const Workload& w) const {
    const Setting part = setting_for(std::make_shared<const Workload>(w));
    const LevelId level = level_of(request_, *setting_.machine);
    return bounds::bounds_json(w, capacity_of(request_, part, level), {})
        .at("proven")
        .at("bytes")
        .get<std::int64_t>();
  }

  Request request_;
  const Setting& setting_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Cost> alone_;
};

ordered_json operators_json(const Workload& w, const Part& part) {
  ordered_json names = ordered_json::array();
  for (OpId op : part) names.push_back(w.op(op).name);
  return names;
}

ordered_json layer_json(const Layer& layer, const Workload& w,
                        const std::vector<const Model*>& models) {
  ordered_json json = {{"layer", w.op(layer.first.front()).name},
                       {"count", layer.count},
                       {"operators", operators_json(w, layer.first)},
                       {"flops", layer.workload->flops()},
                       {"bound_bytes", layer.bound},
                       {"unfused", to_json(layer.unfused)},
                       {"plans", ordered_json::object()}};
  for (const Model* m : models) json["plans"][m->name] = to_json(layer.plans.at(m));
  return json;
}

/// The whole network by one model.
ordered_json model_json(const Model& model, const std::vector<Layer>& layers) {
  Cost sum{.bytes = 0, .seconds = 0.0};
  std::size_t planned = 0, refused = 0;
  std::map<std::string, std::size_t> reasons;
  for (const Layer& layer : layers) {
    const Cost& cost = layer.plans.at(&model);
    add(sum, cost.reason.empty() ? cost : layer.unfused, layer.count);
    (cost.reason.empty() ? planned : refused) += layer.count;
    if (!cost.reason.empty()) reasons[cost.reason] += layer.count;
  }
  std::vector<std::pair<std::size_t, std::string>> most;
  for (const auto& [reason, count] : reasons) most.emplace_back(count, reason);
  std::ranges::stable_sort(most, std::ranges::greater{}, [](const auto& r) { return r.first; });
  ordered_json why = ordered_json::array();
  for (const auto& [count, reason] : most) why.push_back({{"layers", count}, {"reason", reason}});
  ordered_json json = to_json(sum);
  json.erase("own_bytes");
  json["model"] = model.name;
  json["layers"] = planned;
  json["refused"] = refused;
  json["reasons"] = std::move(why);
  return json;
}

}  // namespace

Answer explain_layers(const Request& request, const std::string& how, const std::string& models) {
  const Setting setting = setting_of(request);
  if (setting.file || request.tree)
    throw InputError({.where = "--split",
                      .value = setting.file ? request.subject : "--tree",
                      .problem = "is a plan already",
                      .accepted = "a workload"});
  const std::vector<const Model*> chosen = planners_of(models);
  check_options_of(request, chosen);
  Layers all(request, setting);
  all.cut(how);
  all.ask(chosen, request.progress);
  auto json = document();
  name_workload(json, setting);
  json["machine"] = setting.machine->name;
  json["level"] = setting.machine->level(level_of(request, *setting.machine)).name;
  if (setting.machine->level(level_of(request, *setting.machine)).managed == Managed::hardware)
    json["counted"] =
        "bytes into the level of each plan, between that and home; of plans whose tiles are larger "
        "than the cache, as kernels for processors walk them";
  json["split"] = how;
  json["operators"] = setting.workload->operators().size();
  json["prepared_operators"] = all.prepared;
  json["compulsory_bytes"] = all.compulsory().value;
  Cost unfused{.bytes = 0, .seconds = 0.0};
  std::int64_t bound = 0;
  json["layers"] = ordered_json::array();
  for (const Layer& layer : all.layers) {
    add(unfused, layer.unfused, layer.count);
    bound += layer.bound * static_cast<std::int64_t>(layer.count);
    json["layers"].push_back(layer_json(layer, *setting.workload, chosen));
  }
  json["unfused"] = to_json(unfused);
  json["bound_bytes"] = bound;
  json["models"] = ordered_json::array();
  for (const Model* m : chosen) json["models"].push_back(model_json(*m, all.layers));
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
