// From a network to a plan of it, whole or in parts, and to kernels of which each is emitted once.
#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "core/plan/names.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/program.h"
#include "harness/split.h"

namespace tilewright::harness {
namespace {

/// Whether the request says a plan itself.
bool says_plan(const Request& request, const Setting& setting) {
  return setting.has_plan() || request.tree || notation_of(request) != nullptr;
}

Result<ProgramPlan> in_parts(const Request& request, const std::string& how, Setting setting) {
  Request of = request;
  if (!of.model) of.model = planning_model().name;
  Result<SplitPlan> split = split_plan(of, how, setting);
  if (!split) return Reason{split.reason()};
  rewrite(setting, split->rewrites, "--split");
  return ProgramPlan{.setting = std::move(setting),
                     .plan = std::move(split->plan),
                     .parts = std::move(split->parts)};
}

void computes_of(const Node& node, std::vector<std::string>& names) {
  if (node.kind == Node::Kind::compute) names.push_back(node.name);
  for (const Node& child : node.children) computes_of(child, names);
}

/// Makes kernels and launches of a plan's kernels.
class Maker {
 public:
  Maker(const Request& request, const Setting& setting)
      : request_(request),
        setting_(setting),
        target_(target_named(request.target)),
        constant_(constant_operators(*setting.workload)),
        threads_(request.threads.value_or(1)) {
    program.workload = setting.workload;
  }

  std::optional<Reason> add(const Kernel& kernel, bool again = true) {
    const Workload& w = *setting_.workload;
    std::vector<std::string> names;
    computes_of(kernel.tree, names);
    std::ranges::sort(names);
    names.erase(std::ranges::unique(names).begin(), names.end());
    const std::vector<OpId> ops = operators_named(w, names, "plan");
    const Workload part = subgraph(w, ops);
    Launch launch{.name = kernel.name, .by = kernel.by, .operators = ops};
    for (const Tensor& t : part.tensors()) launch.tensors.push_back(*w.find_tensor(t.name));
    std::vector<std::string> weights;
    for (std::size_t t = 0; t < part.tensors().size(); ++t)
      if (part.is_input(TensorId(t)) && is_weight(launch.tensors[t]))
        weights.push_back(part.tensors()[t].name);
    const Result<std::size_t> made = kernel_of(part, kernel, weights);
    if (made) {
      launch.kernel = *made;
      program.launches.push_back(std::move(launch));
      return std::nullopt;
    }
    if (!again) return made.why();
    return add_apart(part, kernel, made.reason());
  }

  Program program;

 private:
  /// The kernel without names: one that is there already, or a new one.
  /// `weights`: inputs of it that no run changes.
  Result<std::size_t> kernel_of(const Workload& part, const Kernel& kernel,
                                const std::vector<std::string>& weights) {
    auto w = std::make_shared<const Workload>(without_names(part));
    const Names names(part, *w);
    Kernel plan = names.rename(kernel);
    plan.name = "kernel";
    plan.by.clear();
    std::vector<std::string> constant;
    for (const std::string& name : weights)
      constant.push_back(w->tensor(*part.find_tensor(name)).name);
    const std::string key = to_json(Plan{{plan}}).dump() + to_yaml(*w) + join(constant);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    Result<ProgramKernel> made = emitted(std::move(w), std::move(plan), constant);
    if (!made) return made.why();
    program.kernels.push_back(std::move(made).value());
    return known_[key] = program.kernels.size() - 1;
  }

  /// What a file holds or depends on that alone.
  bool is_weight(TensorId t) const {
    const Workload& w = *setting_.workload;
    const OpId producer = w.producer(t);
    return producer.valid() ? constant_[producer.index()] : static_cast<bool>(w.tensor(t).values);
  }

  Result<ProgramKernel> emitted(std::shared_ptr<const Workload> w, Kernel kernel,
                                const std::vector<std::string>& constant) {
    Setting alone{.workload_name = w->name(), .workload = w, .machine = setting_.machine};
    if (target_.threads && threads_ > 1)
      kernel = shared_by_threads({{kernel}}, alone, threads_).kernels.front();
    const Plan plan{{kernel}};
    Result<Schedule> schedule = resolve(plan, w, setting_.machine);
    if (!schedule) return schedule.why();
    OptionValues options = request_.target_options;
    options.erase("constant");
    if (!constant.empty() && find_option(target_.options(), "constant") != nullptr)
      options["constant"] = {join(constant, ",")};
    auto source = target_.emit(*schedule, settings_for(target_, options), threads_);
    if (!source) return source.why();
    ProgramKernel made{.workload = w,
                       .plan = kernel,
                       .schedule = std::move(schedule).value(),
                       .emitted = std::move(source).value()};
    const Model& planner = planning_model();
    if (planner.price != nullptr)
      if (const Result<Price> price = harness::price(planner, request_, alone, plan))
        made.predicted = price->traffic.seconds;
    if (const Result<Alone> moved = alone_at(alone, plan, made.schedule.kernels.front().level))
      made.bytes = moved->total().value;
    return made;
  }

  /// The kernel's operators, each planned by whoever takes it.
  std::optional<Reason> add_apart(const Workload& part, const Kernel& kernel,
                                  const std::string& why) {
    Request of = request_;
    of.model.reset(), of.rewrites.clear(), of.subject_text = to_yaml(part);
    Setting setting{.workload_name = part.name(),
                    .workload = std::make_shared<const Workload>(part),
                    .machine = setting_.machine};
    const Result<SplitPlan> split = split_plan(of, "each", setting);
    if (!split || !split->rewrites.empty())
      return Reason{formatted("kernel {}: {}", kernel.name, why)};
    program.notes.push_back(formatted("kernel {} runs operator by operator: {}", kernel.name, why));
    for (const Kernel& k : split->plan.kernels)
      if (auto reason = add(k, false)) return reason;
    return std::nullopt;
  }

  const Request& request_;
  const Setting& setting_;
  const codegen::Target& target_;
  std::vector<bool> constant_;  ///< by operator: it depends on weights alone
  int threads_;
  std::map<std::string, std::size_t> known_;
};

}  // namespace

Result<ProgramPlan> program_plan(const Request& request, const std::optional<std::string>& split) {
  Setting setting = setting_of(request);
  if (split) return in_parts(request, *split, std::move(setting));
  std::vector<std::string> notes;
  if (request.model || says_plan(request, setting)) {
    std::string refused;
    try {
      Scheduled on = schedule_of(request);
      if (on.schedule)
        return ProgramPlan{.setting = std::move(on.setting), .plan = std::move(on.plan)};
      refused = on.refusal.json.value("reason", "no plan");
    } catch (const InputError& e) {
      if (says_plan(request, setting)) throw;
      refused = e.what();
    }
    if (says_plan(request, setting)) return Reason{refused};
    notes.push_back(formatted("the network is planned in parts: {} does not plan it whole: {}",
                              *request.model, refused));
  }
  Result<ProgramPlan> made = in_parts(request, "followed", std::move(setting));
  if (made) made.value().notes = std::move(notes);
  return made;
}

Result<Program> program_of(const Request& request, const ProgramPlan& made) {
  Maker maker(request, made.setting);
  maker.program.notes = made.notes;
  for (const Kernel& kernel : made.plan.kernels)
    if (auto reason = maker.add(kernel)) return *reason;
  return std::move(maker.program);
}

std::vector<Lifetime> lifetimes(const Program& program, std::vector<TensorId>& tensors) {
  const Workload& w = *program.workload;
  std::map<TensorId, Lifetime> lives;
  for (std::size_t i = 0; i < program.launches.size(); ++i) {
    const Launch& launch = program.launches[i];
    const codegen::TargetKernel& kernel = program.kernels[launch.kernel].verified->kernel();
    for (std::size_t t = 0; t < launch.tensors.size(); ++t) {
      const TensorId id = launch.tensors[t];
      if (!kernel.needs(TensorId(t)) || w.is_input(id) || w.is_output(id)) continue;
      const auto [at, fresh] = lives.try_emplace(id, Lifetime{w.tensor(id).bytes().value, i, i});
      at->second.last = i;
    }
  }
  tensors.clear();
  std::vector<Lifetime> all;
  for (const auto& [id, life] : lives) tensors.push_back(id), all.push_back(life);
  return all;
}

}  // namespace tilewright::harness
