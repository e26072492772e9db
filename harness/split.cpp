#include "harness/split.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "core/base/document.h"
#include "core/base/format.h"
#include "core/plan/join.h"
#include "core/plan/names.h"
#include "core/workload/cut.h"
#include "core/workload/joins.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/files.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/taken.h"
#include "harness/verbs.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using Models = std::vector<const Model*>;

/// A part to plan: whom to ask, with what options.
struct Task {
  Part ops;
  Models models;         ///< empty: every one that makes plans
  OptionValues options;  ///< over the request's
};

struct Planned {
  PartPlan part;
  ordered_json json;
};

Models planners() {
  Models all;
  // The one that chooses among the others has its own cut.
  for (const Model& m : models())
    if (m.propose != nullptr && &m != &planning_model()) all.push_back(&m);
  return all;
}

const Model* planner(const std::string& name, const std::string& where) {
  const Model& m = find_model(name);
  if (m.propose != nullptr) return &m;
  std::vector<std::string> names;
  for (const Model* p : planners()) names.push_back(p->name);
  throw InputError(
      {.where = where, .value = name, .problem = "makes no plans", .accepted = join(names)});
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> found;
  std::string word;
  for (char c : text + " ") {
    if (c != ' ' && c != ',') {
      word += c;
    } else if (!word.empty()) {
      found.push_back(std::move(word));
      word.clear();
    }
  }
  return found;
}

Models planners_named(const std::vector<std::string>& names, const std::string& where) {
  Models named;
  for (const std::string& name : names) named.push_back(planner(name, where));
  return named;
}

// ---- the file -----------------------------------------------------------------------------------

/// A scalar of names, or a list of them.
std::vector<std::string> names_in(const Field& f) {
  if (!f.is_list()) return words_of(f.text());
  std::vector<std::string> names;
  for (const Field& item : f.items()) names.push_back(item.text());
  return names;
}

Task read_task(const Field& f, const Workload& w, const Models& standard) {
  f.only({"operators", "model", "options"});
  const std::string where = f.where() + ": " + f.path();
  Task task{.models = standard};
  task.ops = operators_named(w, names_in(f.at("operators")), where);
  if (const auto model = f.get("model")) task.models = planners_named(names_in(*model), where);
  if (const auto options = f.get("options"))
    for (const auto& [key, value] : options->entries()) {
      const OptionSpec* spec = nullptr;
      std::string name = key;
      std::ranges::replace(name, '-', '_');
      for (const Model* m : task.models.empty() ? planners() : task.models) {
        if (spec == nullptr) spec = find_option_by_key(m->options, name);
        if (spec == nullptr) spec = find_option_by_key(defaults_options(), name);
      }
      if (spec == nullptr) value.fail("is of no option of the part's models", "their options");
      const std::string text =
          spec->kind == OptionKind::flag ? (value.boolean() ? "on" : "off") : value.text();
      check_option(*spec, text, where + "." + key);
      task.options[spec->name] = {text};
    }
  return task;
}

/// Parts as somebody named them, each operator at most once, and every other operator alone.
class NamedParts {
 public:
  NamedParts(const Workload& w, const Models& standard)
      : w_(w), standard_(standard), taken_(w.operators().size(), false) {}

  void add(Task task, const std::string& where) {
    for (OpId op : task.ops) {
      if (taken_[op.index()])
        throw InputError({.where = where,
                          .value = w_.op(op).name,
                          .problem = "is in another part, too",
                          .accepted = "each operator once"});
      taken_[op.index()] = true;
    }
    (void)subgraph(w_, task.ops, where);
    tasks_.push_back(std::move(task));
  }

  std::vector<Task> with_the_rest(const std::string& where) {
    for (Part& part : cut_each(w_)) {
      const auto is_taken = [&](OpId op) { return taken_[op.index()]; };
      if (std::ranges::all_of(part, is_taken)) continue;
      if (std::ranges::any_of(part, is_taken))
        throw InputError(
            {.where = where,
             .value = w_.op(part.front()).name,
             .problem = "is in another part than the operators that it rescales or that rescale it",
             .accepted = "such operators in one part"});
      tasks_.push_back({.ops = std::move(part), .models = standard_});
    }
    return std::move(tasks_);
  }

 private:
  const Workload& w_;
  const Models& standard_;
  std::vector<Task> tasks_;
  std::vector<bool> taken_;
};

std::vector<Task> read_tasks(const std::string& path, const Workload& w, const Models& standard) {
  const DocumentValue document = read_yaml(read_file(path, "--split"), path);
  const Field f(document, path);
  f.only({"parts"});
  NamedParts parts(w, standard);
  for (const Field& item : f.at("parts").items())
    parts.add(read_task(item, w, standard), item.where() + ": " + item.path());
  return parts.with_the_rest(path);
}

/// "qk exp pv=MODEL; fc1 gelu=MODEL,MODEL"
std::vector<Task> tasks_in(std::string_view text, const Workload& w, const Models& standard) {
  NamedParts parts(w, standard);
  while (!text.empty()) {
    const std::string one(text.substr(0, text.find(';')));
    text.remove_prefix(std::min(text.size(), one.size() + 1));
    const std::size_t equals = one.find('=');
    Task task;
    if (equals != std::string::npos)
      task = {.ops = operators_named(w, words_of(one.substr(0, equals)), "--split"),
              .models = planners_named(words_of(one.substr(equals + 1)), "--split")};
    if (task.ops.empty() || task.models.empty())
      throw InputError({.where = "--split",
                        .value = one,
                        .problem = "is not a part with its model",
                        .accepted = "'OP OP=MODEL; OP=MODEL,MODEL'"});
    parts.add(std::move(task), "--split");
  }
  return parts.with_the_rest("--split");
}

std::vector<Task> tasks_of(const Request& request, const std::string& how, const Workload& w) {
  const Models standard =
      request.model ? planners_named(words_of(*request.model), "--model") : Models();
  check_options_of(request, standard.empty() ? planners() : standard);
  const bool in_place = request.target && target_named(request.target).threads;
  const auto parts = parts_named(how, w, in_place);
  if (!parts && how.find('=') != std::string::npos) return tasks_in(how, w, standard);
  if (!parts && !std::filesystem::exists(how))
    throw InputError({.where = "--split",
                      .value = how,
                      .problem = "is no way to cut, and no file of that name is there",
                      .accepted = "each, contractions, followed, 'OP OP=MODEL; OP=MODEL', "
                                  "a YAML file of parts"});
  if (!parts) return read_tasks(how, w, standard);
  std::vector<Task> tasks;
  for (const Part& part : *parts) tasks.push_back({.ops = part, .models = standard});
  return tasks;
}

// ---- asking -------------------------------------------------------------------------------------

class Planner {
 public:
  /// `rewrites`: whether plans of rewritten parts are taken.
  Planner(const Request& request, const Setting& setting, bool rewrites)
      : request_(request), setting_(setting), w_(*setting.workload), rewrites_(rewrites) {}

  /// Plans of the part, or of what it had to be cut into.
  std::optional<Reason> plan(const Task& task) {
    ordered_json refused = ordered_json::array();
    const Workload part = subgraph(w_, task.ops);
    const bool single = cut_each(part).size() == 1;
    const std::string shape = shape_of(part, task);
    std::optional<Planned> found = like(shape, part, task, refused);
    const bool known = known_.contains(shape);
    if (!known) {
      if (!task.models.empty()) found = first_of(task, refused);
      if (!found && (task.models.empty() || single)) found = best_of_all(task, refused);
      known_[shape] = {part, found, refused};
    }
    if (!found && single) {
      Result<Planned> plain = plainly(task.ops);
      if (!plain) return Reason{plain.reason()};
      found = std::move(plain).value();
    }
    if (found) {
      found->json["refused"] = refused;
      planned.push_back(std::move(*found));
      return std::nullopt;
    }
    for (Part& part : cut_further(task.ops)) {
      const std::size_t first = planned.size();
      Task smaller = task;
      smaller.ops = std::move(part);
      if (auto reason = plan(smaller)) return reason;
      for (std::size_t i = first; i < planned.size(); ++i)
        planned[i].json["cut_from"] = {{"operators", names(task.ops)}, {"refused", refused}};
    }
    return std::nullopt;
  }

  std::vector<Planned> planned;

 private:
  double wanted() const {
    return static_cast<double>(std::max<std::size_t>(1, w_.operators().size()));
  }

  std::vector<std::string> names(const Part& ops) const {
    std::vector<std::string> all;
    for (OpId op : ops) all.push_back(w_.op(op).name);
    return all;
  }

  /// Equal for parts that differ in names alone, and are to be planned by the same models.
  static std::string shape_of(const Workload& part, const Task& task) {
    std::string shape = to_yaml(without_names(part));
    for (const Tensor& t : part.tensors()) shape += t.values ? '1' : '0';
    for (const Model* m : task.models) shape += "\n" + m->name;
    for (const auto& [name, texts] : task.options) shape += "\n" + name + "=" + join(texts);
    return shape;
  }

  /// The plan of a part that is the same but for names.
  std::optional<Planned> like(const std::string& shape, const Workload& part, const Task& task,
                              ordered_json& refused) {
    const auto at = known_.find(shape);
    if (at == known_.end()) return std::nullopt;
    const Known& known = at->second;
    if (known.planned && !known.planned->part.rewrites.empty()) {
      known_.erase(at);  // what a rewrite adds has names of its own
      return std::nullopt;
    }
    refused = known.refused;
    if (!known.planned) return std::nullopt;
    Planned planned = *known.planned;
    const Names renamed(known.part, part);
    planned.part.part = part;
    for (Kernel& k : planned.part.plan.kernels) k = renamed.rename(std::move(k));
    planned.json["operators"] = names(task.ops);
    return planned;
  }

  std::optional<Planned> first_of(const Task& task, ordered_json& refused) const {
    for (const Model* m : task.models)
      if (auto found = ask(*m, task, refused)) return found;
    return std::nullopt;
  }

  /// The plan of the fewest bytes; of equals the first.
  std::optional<Planned> best_of_all(const Task& task, ordered_json& refused) const {
    const auto bytes = [](const Planned& p) {
      const ordered_json& exact = p.json["exact_bytes"];
      return exact.is_null() ? INT64_MAX : exact.get<std::int64_t>();
    };
    std::optional<Planned> best;
    for (const Model* m : planners()) {
      if (std::ranges::find(task.models, m) != task.models.end()) continue;
      auto found = ask(*m, task, refused);
      if (found && (!best || bytes(*found) < bytes(*best))) best = std::move(found);
    }
    return best;
  }

  /// The operators one after the other, whatever is read and written at home, tiles halved until
  /// they fit.
  Result<Planned> plainly(const Part& ops) const {
    Setting part = part_of(ops);
    const Workload& w = *part.workload;
    const LevelId level = level_of(request_, *setting_.machine);
    const auto room = std::make_shared<const Machine>(as_scratchpad(*setting_.machine, level));
    Proposal best;
    best.level = level;
    for (OpId op : w.topological_order()) {
      Kernel kernel{.name = w.op(op).name, .level = room->level(room->default_level()).name};
      kernel.tree = compute(w.op(op).name);
      std::vector<LoopId> loops = w.op(op).loops;  // those of outputs come first
      for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
        kernel.tree = loop(w.loop(*l).name, std::move(kernel.tree));
        kernel.tiles[w.loop(*l).name] = w.loop(*l).extent;
      }
      best.plan.kernels.push_back(std::move(kernel));
    }
    for (;;) {
      const Result<Schedule> schedule = resolve(best.plan, part.workload, room);
      if (!schedule) return Reason{formatted("{}: {}", w.name(), schedule.reason())};
      auto why = misfit(*schedule);
      if (!why && request_.target)
        if (const auto taken = take(best, part, target_named(request_.target), request_, {});
            !taken)
          why = Reason{taken.reason()};
      if (!why) break;
      if (!halve(best.plan)) return Reason{formatted("{}: {}", w.name(), why->text)};
    }
    return planned_by("", ops, part, best);
  }

  /// Halves the largest tile of every kernel; false where all are 1.
  static bool halve(Plan& plan) {
    bool smaller = false;
    for (Kernel& kernel : plan.kernels) {
      const auto largest =
          std::ranges::max_element(kernel.tiles, {}, [](const auto& tile) { return tile.second; });
      if (largest == kernel.tiles.end() || largest->second == 1) continue;
      largest->second = ceil_div(largest->second, std::int64_t{2});
      smaller = true;
    }
    return smaller;
  }

  Setting part_of(const Part& ops) const {
    Setting part = setting_;
    part.workload = std::make_shared<const Workload>(subgraph(w_, ops));
    part.original.reset();
    part.rewrites.clear();
    part.workload_name = part.workload->name();
    return part;
  }

  /// Its contractions apart from the rest; where that is no cut, every operator alone.
  std::vector<Part> cut_further(const Part& ops) const {
    const Workload part = subgraph(w_, ops);
    std::vector<Part> cut = cut_contractions(part, false);
    if (cut.size() == 1) cut = cut_each(part);
    for (Part& smaller : cut)
      for (OpId& op : smaller) op = *w_.find_op(part.op(op).name);
    return cut;
  }

  std::optional<Planned> ask(const Model& model, const Task& task, ordered_json& refused) const {
    if (request_.progress)
      request_.progress(model.name, static_cast<double>(planned.size()) /
                                        static_cast<double>(w_.operators().size()));
    Result<Planned> found = asked(model, task);
    if (found) return std::move(found).value();
    refused.push_back({{"model", model.name}, {"reason", found.reason()}});
    return std::nullopt;
  }

  Result<Planned> asked(const Model& model, const Task& task) const {
    Request request = request_;
    request.model = model.name;
    for (const auto& [name, texts] : task.options) request.options[name] = texts;
    Setting part = part_of(task.ops);
    const Setting before = part;
    try {
      Result<Proposal> best = propose(model, request, part);
      if (!best) return Reason{best.reason()};
      if (!rewrites_ && !best->rewrites.empty())
        return Reason{"it rewrites the part, and with that the whole does not have every part"};
      rewrite(part, best->rewrites, "--model " + model.name);
      const Result<Schedule> schedule = resolve(best->plan, part.workload, part.machine);
      if (!schedule) return Reason{schedule.reason()};
      ordered_json changed = ordered_json::object();
      if (request.target) {
        const Result<Taken> taken = take(best.value(), part, target_named(request.target), request,
                                         asked_again(model, request, before, best->level));
        if (!taken) return Reason{taken.reason()};
        changed = taken->json();
      }
      Planned found = planned_by(model.name, task.ops, part, *best);
      merge(found.json, changed);
      if (auto reason = unjoinable(found)) return *reason;
      return found;
    } catch (const InputError& e) {  // what a model cannot read of this part
      return Reason{e.what()};
    }
  }

  Planned planned_by(const std::string& model, const Part& ops, const Setting& part,
                     const Proposal& best) const {
    ordered_json json = {{"operators", names(ops)},
                         {"model", model.empty() ? ordered_json(nullptr) : ordered_json(model)},
                         {"kernels", ordered_json::array()},
                         {"level", setting_.machine->level(best.level).name}};
    std::int64_t bytes = 0;
    for (const TrafficEntry& e : best.price.traffic.entries) bytes += (e.read + e.written).value;
    json["predicted_bytes"] =
        best.price.traffic.entries.empty() ? ordered_json(nullptr) : ordered_json(bytes);
    json["seconds"] = or_null(best.price.traffic.seconds);
    const Result<Alone> alone = alone_at(part, best.plan, best.level);
    const Result<MovedAt> moved =
        alone ? moved_at(request_, part, best.plan, best.level, *alone) : Reason{alone.reason()};
    json["exact_bytes"] = moved ? ordered_json(moved->bytes.value) : ordered_json(nullptr);
    if (!moved) json["exact_reason"] = moved.reason();
    std::int64_t again = 0;
    if (alone)
      for (std::size_t i = 0; i < part.workload->operators().size(); ++i) {
        const auto at = alone->exact.operations.find(part.workload->operators()[i].name);
        if (at != alone->exact.operations.end())
          again += std::max<std::int64_t>(
              0, at->second.value - part.workload->operations(OpId(i)).value);
      }
    json["recomputed_operations"] = alone ? ordered_json(again) : ordered_json(nullptr);
    return {{.part = *part.workload, .plan = best.plan, .rewrites = best.rewrites, .by = model},
            std::move(json)};
  }

  /// Whether the whole, with every rewrite so far, would not have every part so far.
  std::optional<Reason> unjoinable(const Planned& next) const {
    std::vector<PartPlan> parts{next.part};
    for (const Planned& p : planned) parts.push_back(p.part);
    const bool rewritten =
        std::ranges::any_of(parts, [](const PartPlan& p) { return !p.rewrites.empty(); });
    if (!rewritten) return std::nullopt;
    return no_join(w_, parts);
  }

  struct Known {
    Workload part;
    std::optional<Planned> planned;  ///< none: all refuse
    ordered_json refused;
  };

  Request request_;
  const Setting& setting_;
  const Workload& w_;
  bool rewrites_;
  std::map<std::string, Known> known_;  ///< by shape_of
};

/// The sum of a key over the parts; null where a part has none.
ordered_json sum_of(const ordered_json& parts, const char* key) {
  ordered_json sum = 0;
  for (const ordered_json& part : parts) {
    if (part[key].is_null()) return nullptr;
    if (part[key].is_number_float() || sum.is_number_float())
      sum = sum.get<double>() + part[key].get<double>();
    else
      sum = sum.get<std::int64_t>() + part[key].get<std::int64_t>();
  }
  return sum;
}

}  // namespace

std::optional<std::vector<Part>> parts_named(const std::string& how, const Workload& w,
                                             bool in_place) {
  if (how == "each") return cut_each(w);
  if (how == "contractions") return cut_contractions(w);
  if (how == "followed")
    return cut_followed(w, in_place ? joins_of_nothing(w, tensors_inside(w)) : std::vector<bool>());
  return std::nullopt;
}

namespace {

/// Plans every part and joins the plans.
Result<JoinedPlan> joined_of(Planner& planner, const Request& request, const std::string& how,
                             const Workload& w) {
  for (const Task& task : tasks_of(request, how, w))
    if (auto reason = planner.plan(task)) return *reason;
  std::vector<PartPlan> parts;
  for (const Planned& p : planner.planned) parts.push_back(p.part);
  return join_plans(w, parts);
}

}  // namespace

Result<SplitPlan> split_plan(const Request& request, const std::string& how,
                             const Setting& setting) {
  const Workload& w = *setting.workload;
  std::optional<Planner> planner;
  Result<JoinedPlan> joined = joined_of(planner.emplace(request, setting, true), request, how, w);
  const auto rewritten = [](const Planned& p) { return !p.part.rewrites.empty(); };
  // What a part's rewrite does to the whole may take another part's operators away.
  if (!joined && std::ranges::any_of(planner->planned, rewritten))
    joined = joined_of(planner.emplace(request, setting, false), request, how, w);
  if (!joined) return Reason{joined.reason()};
  SplitPlan split{.plan = std::move(joined->plan), .rewrites = std::move(joined->rewrites)};
  split.parts = ordered_json::array();
  for (Planned& p : planner->planned) split.parts.push_back(std::move(p.json));
  for (std::size_t k = 0; k < split.plan.kernels.size(); ++k)
    split.parts[joined->part_of[k]]["kernels"].push_back(split.plan.kernels[k].name);
  return split;
}

Answer plan_in_parts(const Request& request, const std::string& how,
                     const std::optional<std::string>& out) {
  Setting setting = setting_of(request);
  auto json = document();
  const auto refused = [&](const std::string& reason) {
    name_workload(json, setting);
    json["machine"] = setting.machine->name;
    return refuse(std::move(json), reason);
  };
  if (setting.file)
    throw InputError({.where = "plan",
                      .value = request.subject,
                      .problem = "is a plan already",
                      .accepted = "a workload"});
  Result<SplitPlan> split = split_plan(request, how, setting);
  if (!split) return refused(split.reason());
  rewrite(setting, split->rewrites, "--split");
  const Result<Schedule> schedule = resolve(split->plan, setting.workload, setting.machine);
  if (!schedule) return refused(schedule.reason());
  PlanFile file{.workload = setting.as_named(),
                .workload_name = setting.workload_name,
                .machine = request.machine,
                .plan = split->plan,
                .rewrites = setting.rewrites};
  json["plan"] = to_json(file);
  json["split"] = how;
  json["parts"] = split->parts;
  // Kernels meet at home alone, so that what the whole moves is what its parts move.
  for (const char* key : {"predicted_bytes", "seconds", "exact_bytes", "recomputed_operations"})
    json[key] = sum_of(split->parts, key);
  json["compulsory_bytes"] = setting.as_named().compulsory_bytes().value;
  if (out) {
    write_plan_file(*out, file);
    json["written"] = *out;
  }
  return {std::move(json), Status::done};
}

Request of_part(const Request& request, const std::string& operators) {
  const Setting setting = setting_of(request);
  if (setting.file)
    throw InputError({.where = "--part",
                      .value = operators,
                      .problem = "needs a workload, and " + request.subject + " is a plan",
                      .accepted = "a workload"});
  const Workload& w = *setting.workload;
  const Workload part = subgraph(w, operators_named(w, words_of(operators), "--part"), "--part");
  Request of = request;
  of.subject = part.name();
  of.subject_text = to_yaml(part);
  of.rewrites.clear();
  return of;
}

}  // namespace tilewright::harness
