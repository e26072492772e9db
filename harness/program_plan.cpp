// From a network to a plan of it, whole or in parts, and to kernels of which each is emitted once.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/base/format.h"
#include "core/plan/file.h"
#include "core/plan/names.h"
#include "core/workload/cut.h"
#include "core/workload/joins.h"
#include "core/workload/merge_loops.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/in_runs.h"
#include "harness/program.h"
#include "harness/split.h"
#include "harness/taken.h"

namespace tilewright::harness {
namespace {

/// Whether the request says a plan itself.
bool says_plan(const Request& request, const Setting& setting) {
  return setting.has_plan() || request.tree || notation_of(request) != nullptr;
}

Result<ProgramPlan> in_parts(const Request& request, const std::string& how, Setting setting) {
  Request of = request;
  if (!of.model) of.model = planning_model().name;
  Setting warm = setting;
  warm.machine = in_runs(*setting.workload, setting.machine);
  Result<SplitPlan> split = split_plan(of, how, warm);
  if (!split) return Reason{split.reason()};
  rewrite(setting, split->rewrites, "--split");
  return ProgramPlan{.setting = std::move(setting),
                     .plan = std::move(split->plan),
                     .parts = std::move(split->parts)};
}

/// The whole's plan, with the model's next choice for each kernel that the target refuses. Where a
/// kernel has none, the plan as it is: what is refused is planned again when it is emitted.
ProgramPlan taken(const Request& request, Scheduled on) {
  const codegen::Target& target = target_named(request.target);
  std::vector<std::string> notes;
  if (const Result<Taken> what = emit_taken(
          on, target, settings_for(target, request.target_options), request.threads.value_or(1)))
    notes = what->notes();
  return {.setting = std::move(on.setting), .plan = std::move(on.plan), .notes = std::move(notes)};
}

/// Makes kernels and launches of a plan's kernels.
class Maker {
 public:
  Maker(const Request& request, const Setting& setting, std::size_t tune)
      : request_(request),
        tune_(tune),
        setting_(setting),
        target_(target_named(request.target)),
        constant_(constant_operators(*setting.workload)),
        threads_(request.threads.value_or(1)),
        planner_(planner_for(request)),
        merges_(&planner_ == &planning_model() && !says_plan(request, setting)),
        warm_(in_runs(*setting.workload, setting.machine)) {
    program.workload = setting.workload;
    if (target_.threads) program.threads = threads_;
    program.joins_in_place = target_.threads;
  }

  std::optional<Reason> add(const Kernel& kernel, bool again = true) {
    const NamelessKernel alone = nameless(kernel, *setting_.workload);
    const Workload& part = alone.part;
    Launch launch{.name = kernel.name,
                  .by = kernel.by,
                  .operators = alone.operators,
                  .tensors = alone.tensors};
    std::vector<bool> weights;
    for (std::size_t t = 0; t < part.tensors().size(); ++t)
      weights.push_back(part.is_input(TensorId(t)) && is_weight(launch.tensors[t]));
    const Result<std::size_t> made = kernel_of(alone, weights);
    if (again && merges_)
      if (const Whole* better =
              with_merged_loops(part, weights, made ? &program.kernels[*made] : nullptr)) {
        add_planned(*better, launch);
        return std::nullopt;
      }
    if (made) {
      launch.kernel = *made;
      program.launches.push_back(std::move(launch));
      return std::nullopt;
    }
    if (!again) return made.why();
    return add_apart(part, kernel, made.reason());
  }

  /// Where launches may overlap, each kernel for the launch that it follows.
  void overlap() {
    if (target_.emit_behind == nullptr) return;
    const Workload& w = *program.workload;
    const RunOrder order = run_order(program);
    std::map<std::string, std::size_t> known, described;
    for (std::size_t i = 0; i < program.kernels.size(); ++i)
      described[text_of(program.kernels[i], i)] = i;
    if (order.launches.size() < order.prepared + 2) return;
    // Runs follow one another. Between them anything may be written.
    std::size_t before_it = order.launches.back();
    std::size_t last = program.launches[before_it].kernel;  // as it was
    for (std::size_t i = order.prepared; i < order.launches.size(); ++i) {
      Launch& launch = program.launches[order.launches[i]];
      const std::size_t kernel = launch.kernel, follows = std::exchange(last, kernel);
      const std::vector<OpId>& wrote =
          program.launches[std::exchange(before_it, order.launches[i])].operators;
      LaunchBefore before{.schedule = &program.kernels[follows].schedule, .writes = {}};
      std::string key = formatted("{} {} ", follows, kernel);
      if (i > order.prepared)
        for (const TensorId t : launch.tensors) {
          const OpId producer = w.producer(t);
          before.writes.push_back(producer.valid() &&
                                  std::ranges::find(wrote, producer) != wrote.end());
          key += before.writes.back() ? '1' : '0';
        }
      const auto [at, fresh] = known.try_emplace(key, kernel);
      if (fresh)
        if (std::optional<ProgramKernel> made = behind(program.kernels[kernel], before)) {
          at->second =
              described.try_emplace(text_of(*made, kernel), program.kernels.size()).first->second;
          if (at->second == program.kernels.size()) program.kernels.push_back(std::move(*made));
        }
      launch.kernel = at->second;
    }
  }

  /// Leaves out kernels that nothing launches in the end.
  Program finished() && {
    std::vector<std::size_t> to(program.kernels.size(), 0);
    for (const Launch& l : program.launches) to[l.kernel] = 1;
    std::vector<ProgramKernel> kept;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i] == 0) continue;
      to[i] = kept.size();
      kept.push_back(std::move(program.kernels[i]));
    }
    program.kernels = std::move(kept);
    for (Launch& l : program.launches) l.kernel = to[l.kernel];
    return std::move(program);
  }

  Program program;

 private:
  /// Another plan of a part: kernels over a workload that has the part's operators and tensors in
  /// the part's order.
  struct Whole {
    std::shared_ptr<const Workload> workload;
    std::vector<std::size_t> kernels;          ///< positions in Program::kernels
    std::vector<std::vector<OpId>> operators;  ///< of each kernel
    std::vector<std::vector<TensorId>> tensors;
  };

  /// The planner's kernels for the part where loops that always go together are one, where they
  /// are predicted to be faster than the kernel that there is; null: they are not. Rows and columns
  /// of an image that no window moves over are the case: a tile of the network's own loops is a
  /// rectangle of them.
  const Whole* with_merged_loops(const Workload& part, const std::vector<bool>& weights,
                                 const ProgramKernel* plain) {
    const Machine& m = *setting_.machine;
    const bool software = m.level(m.default_level()).managed == Managed::software;
    if (plain != nullptr && !plain->least()) return nullptr;
    const Workload named = without_names(part);
    std::string key = to_yaml(named);
    for (const bool weight : weights) key += weight ? '1' : '0';
    if (plain != nullptr) key += to_json(Plan{{plain->plan}}).dump();
    const auto known = merged_.find(key);
    if (known != merged_.end()) return known->second ? &*known->second : nullptr;
    std::optional<Whole>& found = merged_[key];
    std::optional<Workload> w = merged_loops_of_parts(named);
    if (!w) return nullptr;
    // Where caches are the hardware's, a longer row has fewer parts of vectors and fewer ends, and
    // steps of one loop follow one another in memory: the price has less than that.
    const double faster = software ? 0.95 : 1.02;  // of the predicted seconds
    found = planned_whole(std::make_shared<const Workload>(with_constants(*w, weights)), weights,
                          plain == nullptr ? HUGE_VAL : faster * *plain->least());
    return found ? &*found : nullptr;
  }

  /// What the planner makes of it and the target takes, in less than so many predicted seconds.
  std::optional<Whole> planned_whole(const std::shared_ptr<const Workload>& w,
                                     const std::vector<bool>& weights, double most) {
    Request of = request_;
    of.model.reset(), of.rewrites.clear(), of.progress = {};
    Setting setting{.workload_name = w->name(), .workload = w, .machine = warm_};
    const Setting before = setting;
    const Model& planner = planning_model();
    Result<Proposal> best = propose(planner, of, setting);
    // Kernels of other operators are none of the part's.
    if (best && !best->rewrites.empty()) {
      of.options["as-written"] = {"on"};
      best = propose(planner, of, setting);
    }
    if (!best || !best->rewrites.empty()) return std::nullopt;
    if (!best->price.traffic.seconds || *best->price.traffic.seconds >= most) return std::nullopt;
    const Result<Taken> taken =
        take(best.value(), setting, target_, of, asked_again(planner, of, before, best->level));
    if (!taken || !best->price.traffic.seconds || *best->price.traffic.seconds >= most)
      return std::nullopt;
    Whole whole{.workload = w};
    double seconds = 0;
    for (const Kernel& kernel : best->plan.kernels) {
      NamelessKernel alone = nameless(kernel, *w);
      std::vector<bool> constant;
      for (const TensorId t : alone.tensors) constant.push_back(weights[t.index()]);
      const Result<std::size_t> made = kernel_of(alone, constant);
      if (!made) return std::nullopt;
      seconds += program.kernels[*made].least().value_or(HUGE_VAL);
      whole.kernels.push_back(*made);
      whole.operators.push_back(std::move(alone.operators));
      whole.tensors.push_back(std::move(alone.tensors));
    }
    if (seconds >= most) return std::nullopt;
    return whole;
  }

  /// Launches of that plan, for the part that `of` is a launch of.
  void add_planned(const Whole& plan, const Launch& of) {
    for (std::size_t k = 0; k < plan.kernels.size(); ++k) {
      Launch launch{.kernel = plan.kernels[k], .name = of.name, .by = planning_model().name};
      if (k > 0) launch.name += formatted("_{}", k + 1);
      for (OpId op : plan.operators[k]) launch.operators.push_back(of.operators[op.index()]);
      for (TensorId t : plan.tensors[k]) launch.tensors.push_back(of.tensors[t.index()]);
      program.launches.push_back(std::move(launch));
    }
  }

  /// The kernel without names: one that is there already, or a new one.
  /// `weights`: by tensor of it, whether it is an input that no run changes.
  Result<std::size_t> kernel_of(const NamelessKernel& kernel, const std::vector<bool>& weights) {
    const std::string key = kernel.key + join(names_of(*kernel.workload, weights));
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    Result<ProgramKernel> made = emitted(kernel.workload, kernel.kernel, weights);
    if (!made) return made.why();
    add_others(*kernel.workload, kernel.kernel, weights, made.value());
    program.kernels.push_back(std::move(made).value());
    return known_[key] = program.kernels.size() - 1;
  }

  static std::vector<std::string> names_of(const Workload& w, const std::vector<bool>& chosen) {
    std::vector<std::string> names;
    for (std::size_t t = 0; t < chosen.size(); ++t)
      if (chosen[t]) names.push_back(w.tensors()[t].name);
    return names;
  }

  /// What a file holds or depends on that alone.
  bool is_weight(TensorId t) const {
    const Workload& w = *setting_.workload;
    const OpId producer = w.producer(t);
    return producer.valid() ? constant_[producer.index()] : static_cast<bool>(w.tensor(t).values);
  }

  Result<ProgramKernel> emitted(std::shared_ptr<const Workload> w, Kernel kernel,
                                const std::vector<bool>& weights) {
    const std::vector<std::string> constant = names_of(*w, weights);
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
    Setting later = alone;
    later.workload = std::make_shared<const Workload>(with_constants(*w, weights));
    const auto predicted = [&](int threads) {
      ProgramKernel::Seconds seconds;
      if (planner.price == nullptr) return seconds;
      Request of = request_;
      if (target_.threads) of.threads = threads;
      const auto at = [&](std::shared_ptr<const Machine> machine) -> std::optional<double> {
        later.machine = std::move(machine);
        const Result<Price> price = harness::price(planner, of, later, plan);
        return price ? price->traffic.seconds : std::nullopt;
      };
      seconds.predicted = at(as_part_of(*setting_.workload, *w, warm_));
      seconds.again = at(in_runs(*w, setting_.machine));
      return seconds;
    };
    made.shared = predicted(threads_);
    if (target_.threads && threads_ > 1) made.alone = predicted(1);
    if (const Result<Alone> moved = alone_at(alone, plan, made.schedule.kernels.front().level))
      made.bytes = moved->total().value;
    return made;
  }

  /// The kernel and its others, emitted to follow that launch; none where the target refuses.
  std::optional<ProgramKernel> behind(const ProgramKernel& kernel, const LaunchBefore& before) {
    OptionValues options = request_.target_options;
    options.erase("constant");
    auto source = target_.emit_behind(kernel.schedule, settings_for(target_, options), before);
    if (!source) return std::nullopt;
    ProgramKernel made{.workload = kernel.workload,
                       .plan = kernel.plan,
                       .schedule = kernel.schedule,
                       .emitted = std::move(source).value(),
                       .shared = kernel.shared,
                       .alone = kernel.alone,
                       .bytes = kernel.bytes};
    for (const ProgramKernel& other : kernel.others)
      if (std::optional<ProgramKernel> one = behind(other, before))
        made.others.push_back(std::move(*one));
    return made;
  }

  /// Equal where kernels of this plan were emitted alike.
  static std::string text_of(const ProgramKernel& kernel, std::size_t plan) {
    nlohmann::ordered_json json = {{"plan", plan}};
    kernel.emitted->describe(json);
    return json.dump();
  }

  /// What the model would choose of this kernel's operators in one kernel, and the target takes.
  void add_others(const Workload& part, const Kernel& plan, const std::vector<bool>& weights,
                  ProgramKernel& made) {
    if (tune_ == 0) return;
    Request of = request_;
    of.rewrites.clear(), of.progress = {};
    const auto w = std::make_shared<const Workload>(part);
    Setting setting{.workload_name = w->name(),
                    .workload = std::make_shared<const Workload>(with_constants(part, weights)),
                    .machine = setting_.machine};
    const Result<Proposal> best = propose(planner_, of, setting);
    if (!best || !best->rewrites.empty() || best->plan.kernels.size() != 1) return;
    std::vector<Kernel> all = best->plan.kernels;
    if (best->choices)
      for (KernelChoice& choice : best->choices(0)) all.push_back(std::move(choice.kernel));
    std::vector<Kernel> tried = {plan};
    for (Kernel& kernel : all) {
      if (made.others.size() == tune_) return;
      kernel.name = plan.name;
      kernel.by.clear();
      if (std::ranges::find(tried, kernel) != tried.end()) continue;
      tried.push_back(kernel);
      Result<ProgramKernel> other = emitted(w, kernel, weights);
      if (other && !other->emitted->makeshift()) made.others.push_back(std::move(other).value());
    }
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
  std::size_t tune_;
  const Setting& setting_;
  const codegen::Target& target_;
  std::vector<bool> constant_;  ///< by operator: it depends on weights alone
  int threads_;
  const Model& planner_;
  bool merges_;  ///< loops; a plan that is given, and one of another model, runs as it is
  std::shared_ptr<const Machine> warm_;  ///< that kernels are priced on
  std::map<std::string, std::size_t> known_;
  std::map<std::string, std::optional<Whole>> merged_;
};

}  // namespace

Result<ProgramPlan> program_plan(const Request& request, const std::optional<std::string>& split) {
  Setting setting = setting_of(request);
  if (split) return in_parts(request, *split, std::move(setting));
  std::vector<std::string> notes;
  const bool said = says_plan(request, setting);
  // Where software manages what is on the chip the planner groups over all operators. Where caches
  // do, it does so for few: of many, parts are found much sooner and are as fast. Parts keep what
  // depends on weights alone, and runs once, from the rest.
  constexpr std::size_t kFew = 24;  // operators
  const Machine& m = *setting.machine;
  Request of = request;
  const bool ours = !said && &planner_for(request) == &planning_model();
  const bool whole = !ours || m.level(m.default_level()).managed == Managed::software ||
                     (setting.workload->operators().size() <= kFew &&
                      std::ranges::none_of(constant_operators(*setting.workload), std::identity()));
  if (ours) of.model = planning_model().name;
  if (whole) {
    std::string refused;
    try {
      Scheduled on = schedule_of(of);
      if (on.schedule) {
        ProgramPlan made = taken(request, std::move(on));
        const std::optional<Reason> why = no_workloads(made.plan, *made.setting.workload);
        if (!why) return made;
        refused = why->text;
      } else {
        refused = on.refusal.json.value("reason", "no plan");
      }
    } catch (const InputError& e) {
      if (said) throw;
      refused = e.what();
    }
    if (said) return Reason{refused};
    notes.push_back(formatted("the network is planned in parts: {} does not plan it whole: {}",
                              *of.model, refused));
  }
  Result<ProgramPlan> made = in_parts(request, "followed", std::move(setting));
  if (made) made.value().notes = std::move(notes);
  return made;
}

Result<Program> program_of(const Request& request, const ProgramPlan& made, std::size_t tune) {
  Maker maker(request, made.setting, tune);
  maker.program.notes = made.notes;
  for (const Kernel& kernel : made.plan.kernels)
    if (auto reason = maker.add(kernel)) return *reason;
  maker.overlap();
  return std::move(maker).finished();
}

RunOrder run_order(const Program& program) {
  const std::vector<bool> constant = constant_operators(*program.workload);
  RunOrder order;
  std::vector<std::size_t> each_run;
  for (std::size_t i = 0; i < program.launches.size(); ++i) {
    const bool once = std::ranges::all_of(program.launches[i].operators,
                                          [&](OpId op) { return constant[op.index()]; });
    (once ? order.launches : each_run).push_back(i);
  }
  order.prepared = order.launches.size();
  order.launches.insert(order.launches.end(), each_run.begin(), each_run.end());
  return order;
}

std::vector<Lifetime> lifetimes(const Program& program, std::vector<TensorId>& tensors) {
  const Workload& w = *program.workload;
  std::map<TensorId, Lifetime> lives;
  for (std::size_t i = 0; i < program.launches.size(); ++i) {
    const Launch& launch = program.launches[i];
    const codegen::TargetKernel& kernel = program.kernels[launch.kernel].kernel();
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

HandedOn handed_on(const Program& program) {
  const Workload& w = *program.workload;
  const std::vector<bool> constant = constant_operators(w);
  HandedOn on;
  std::vector<TensorId> needed;
  std::vector<Lifetime> all = lifetimes(program, needed), lives;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (constant[w.producer(needed[i]).index()]) {
      on.kept.push_back(needed[i]);
      continue;
    }
    on.bytes_alone += all[i].bytes;
    on.tensors.push_back(needed[i]);
    lives.push_back(all[i]);
  }
  // What lies in another tensor needs that one's memory from its own first step on.
  std::map<TensorId, Inside> inside;
  if (program.joins_in_place) inside = tensors_inside(w);
  const auto in_arena = [&](TensorId t) { return std::ranges::binary_search(on.tensors, t); };
  std::erase_if(inside, [&](const auto& x) { return !in_arena(x.second.whole); });
  std::vector<std::size_t> outermost(on.tensors.size());
  std::vector<std::int64_t> at(on.tensors.size(), 0);
  const auto position = [&](TensorId t) {
    return static_cast<std::size_t>(std::ranges::lower_bound(on.tensors, t) - on.tensors.begin());
  };
  for (std::size_t i = 0; i < on.tensors.size(); ++i) {
    TensorId t = on.tensors[i];
    for (auto in = inside.find(t); in != inside.end(); in = inside.find(t))
      at[i] += in->second.offset, t = in->second.whole;
    outermost[i] = position(t);
    Lifetime& life = lives[outermost[i]];
    life.first = std::min(life.first, lives[i].first);
    life.last = std::max(life.last, lives[i].last);
  }
  std::vector<Lifetime> blocks;
  std::vector<std::size_t> place(on.tensors.size());
  for (std::size_t i = 0; i < on.tensors.size(); ++i)
    if (outermost[i] == i) place[i] = blocks.size(), blocks.push_back(lives[i]);
  const Arena arena = placed(blocks);
  for (std::size_t i = 0; i < on.tensors.size(); ++i)
    on.offsets.push_back(arena.offsets[place[outermost[i]]] + at[i]);
  on.bytes = arena.bytes;
  return on;
}

}  // namespace tilewright::harness
