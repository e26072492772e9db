#include "harness/schedules.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/plan/names.h"
#include "core/plan/shares.h"
#include "core/workload/access.h"
#include "core/workload/subgraph.h"
#include "harness/ask.h"
#include "harness/registry.h"
#include "harness/shares.h"
#include "models/model.h"
#include "simulator/simulator.h"

namespace tilewright::harness {

Again asked_again(const Model& model, const Request& request, const Setting& before,
                  LevelId level) {
  return [&model, request, before, level](Bytes room, Setting& setting) {
    Request again = request;
    if (!model.every_level) again.level = before.machine->level(level).name;
    again.capacity = std::to_string(room.value) + "B";
    setting = before;
    Result<Proposal> best = propose(model, again, setting);
    if (best) rewrite(setting, best->rewrites, "--model " + model.name);
    return best;
  };
}

Scheduled schedule_of(const Request& request) {
  Scheduled out{.setting = setting_of(request)};
  const auto refused = [&out](const std::string& reason) {
    auto json = document();
    name_workload(json, out.setting);
    json["machine"] = out.setting.machine->name;
    json["legal"] = false;
    out.refusal = refuse(std::move(json), reason);
  };
  check_model_options(request);
  const Setting before = out.setting;
  Result<Proposal> said = proposal_of(request, out.setting);
  if (!said) {
    refused(said.reason());
    return out;
  }
  out.plan = std::move(said->plan);
  out.choices = std::move(said->choices);
  if (!said->all_levels && !plan_in_place(request, before) && notation_of(request) == nullptr) {
    out.again = asked_again(planner_for(request), request, before, said->level);
    out.room = capacity_of(request, before, said->level);
  }
  Result<Schedule> schedule = resolve(out.plan, out.setting.workload, out.setting.machine);
  if (schedule)
    out.schedule = std::move(schedule).value();
  else
    refused(schedule.reason());
  return out;
}

namespace {

bool has_bound_loop(const Node& node) {
  return (node.kind == Node::Kind::loop && node.binding != Binding::seq) ||
         std::ranges::any_of(node.children, has_bound_loop);
}

/// Whether the loop walks a dimension of every output, that is its last, or not.
bool in_all_outputs(const Workload& w, LoopId loop, bool last = false) {
  return std::ranges::all_of(w.outputs(), [&](TensorId t) {
    const OpId op = w.producer(t);
    return op.valid() && !w.is_reduction(op, loop) && w.local_index(op, loop) >= 0 &&
           (w.op(op).outputs[0].target.index.back().plain_loop() == loop) == last;
  });
}

/// Whether threads that share the loop, the outputs' columns, in steps of so many read no window
/// together, and write no line together but where a row begins within one.
bool shares_columns(const Workload& w, LoopId loop, std::int64_t step) {
  constexpr std::int64_t kLine = 64;  // bytes
  if (!in_all_outputs(w, loop, true)) return false;
  for (std::size_t o = 0; o < w.operators().size(); ++o)
    for (const Access& a : w.op(OpId(o)).inputs)
      for (const Affine& index : a.index)
        if (indexes(index, loop) && index.plain_loop() != loop) return false;
  return std::ranges::all_of(
      w.outputs(), [&](TensorId t) { return step * size_of(w.tensor(t).dtype) % kLine == 0; });
}

/// A loop around everything that is computed, over a dimension of the outputs.
struct Shared {
  Node* loop;
  std::int64_t extent, step;
};

/// Those of a tree over a dimension that is not the last, along which vectors run, outermost first.
/// `columns`: over the last, too, where its steps can be shared as they are.
std::vector<Shared> shared_loops(Kernel& kernel, const Workload& w, bool columns = false) {
  std::vector<Shared> found;
  for (Node* at = &kernel.tree; at != nullptr;) {
    if (at->kind == Node::Kind::loop) {
      const auto id = w.find_loop(at->name);
      const auto tile = kernel.tiles.find(at->name);
      const std::int64_t step = at->step > 0                 ? at->step
                                : tile == kernel.tiles.end() ? 0
                                                             : tile->second;
      if (at->binding != Binding::seq) return {};
      if (id && step > 0 && (in_all_outputs(w, *id) || (columns && shares_columns(w, *id, step))))
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

namespace {

/// The operations of a plan and the bytes that it moves, on one thread; nothing where it is
/// illegal.
struct Work {
  double operations = 0;
  std::int64_t bytes = 0;
};

std::optional<Work> work_of(const Plan& plan, const Setting& setting) {
  const Machine& m = *setting.machine;
  const auto named = m.find(plan.kernels.front().level);
  const Result<Alone> alone = alone_at(setting, plan, named ? *named : m.default_level());
  if (!alone) return std::nullopt;
  Work work{.bytes = alone->total().value};
  for (const auto& [name, operations] : alone->exact.operations)
    work.operations += static_cast<double>(operations.value);
  return work;
}

/// Takes the loop out of the tree, wherever it stands; whether it was there once, in sequence.
bool take_out(Node& node, const std::string& name, Node& taken) {
  for (Node& child : node.children) {
    if (child.kind == Node::Kind::loop && child.name == name) {
      if (child.binding != Binding::seq) return false;
      taken = child;
      Node body = std::move(child.children.front());
      child = std::move(body);
      return true;
    }
    if (take_out(child, name, taken)) return true;
  }
  return false;
}

bool has_loop_of(const Node& node, const std::string& name) {
  return (node.kind == Node::Kind::loop && node.name == name) ||
         std::ranges::any_of(node.children, [&](const Node& c) { return has_loop_of(c, name); });
}

/// The plan with a loop of its outputs around everything else, where one is not.
std::vector<Plan> with_loop_outside(const Plan& plan, const Workload& w) {
  std::vector<Plan> plans;
  for (std::size_t l = 0; l < w.loops().size(); ++l) {
    Plan other = plan;
    Kernel& kernel = other.kernels.front();
    const std::string& name = w.loops()[l].name;
    Node taken, body = std::move(kernel.tree);
    if (!in_all_outputs(w, LoopId(l)) || !take_out(body, name, taken)) continue;
    if (has_loop_of(body, name)) continue;  // no loop without a step stands in one of its own name
    taken.children = {std::move(body)};
    kernel.tree = std::move(taken);
    plans.push_back(std::move(other));
  }
  return plans;
}

/// Its loops whose tiles can be dealt out, each with tiles small enough for that.
std::vector<std::pair<Plan, double>> dealt_out(const Plan& plan, const Workload& w, int threads) {
  std::vector<std::pair<Plan, double>> found;
  Plan copy = plan;
  for (const Shared& l : shared_loops(copy.kernels.front(), w)) {
    const std::int64_t pieces = ceil_div(l.extent, l.step);
    std::int64_t step = ceil_div(l.extent, ceil_div(pieces, threads) * threads);
    // Whole panels of a product's columns, whose weights are packed by them, where that stays even.
    constexpr std::int64_t kPanels[] = {64, 16};
    constexpr double kEven = 0.94;
    for (const std::int64_t panel : kPanels)
      if (const std::int64_t whole = ceil_div(step, panel) * panel;
          static_cast<double>(step) >= kEven * static_cast<double>(whole)) {
        step = whole;
        break;
      }
    Plan smaller = plan;
    Kernel& kernel = smaller.kernels.front();
    for (const Shared& own : shared_loops(kernel, w))
      if (own.loop->name == l.loop->name && own.loop->step > 0) own.loop->step = step;
    if (l.loop->step == 0) kernel.tiles[l.loop->name] = step;
    found.emplace_back(std::move(smaller), used_of_threads(l.extent, step, threads));
  }
  return found;
}

}  // namespace

Plan shared_by_threads(const Plan& plan, const Setting& setting, int threads) {
  constexpr double kEnough = 0.9;
  if (plan.kernels.size() != 1 || threads < 2) return plan;
  const Workload& w = *setting.workload;
  Plan given = plan;
  double share = 1.0 / threads;
  const std::vector<Shared> loops = shared_loops(given.kernels.front(), w, true);
  for (const Shared& l : loops) share = std::max(share, used_of_threads(l.extent, l.step, threads));
  const auto work = work_of(plan, setting);
  if (share >= kEnough || !work || has_bound_loop(plan.kernels.front().tree)) return plan;
  // Of shares that are nearly as even, the one that moves least.
  constexpr double kNearly = 1.03;
  struct Candidate {
    Plan plan;
    double time;
    std::int64_t bytes;
  };
  std::vector<Candidate> all = {{plan, work->operations / share, work->bytes}};
  std::vector<Plan> starts = with_loop_outside(plan, w);
  starts.insert(starts.begin(), plan);
  for (const Plan& start : starts)
    for (auto& [other, even] : dealt_out(start, w, threads))
      if (const auto its = work_of(other, setting))
        all.push_back({std::move(other), its->operations / even, its->bytes});
  const double least = std::ranges::min_element(all, {}, &Candidate::time)->time;
  std::erase_if(all, [&](const Candidate& c) { return c.time > kNearly * least; });
  Plan best = std::ranges::min_element(all, {}, [](const Candidate& c) {
                return std::pair(c.bytes, c.time);
              })->plan;
  return best;
}

LoopId loop_of_threads(const Kernel& kernel, const Workload& w, int threads) {
  Kernel copy = kernel;
  LoopId best;
  double most = 1.0 / threads;
  for (const Shared& l : shared_loops(copy, w, true))
    if (const double used = used_of_threads(l.extent, l.step, threads); used > most)
      most = used, best = *w.find_loop(l.loop->name);
  return best;
}

Scheduled schedule_for_threads(const Request& request) {
  Scheduled on = schedule_of(request);
  const bool given =
      plan_in_place(request, on.setting) || (!request.model && notation_of(request) != nullptr);
  if (!on.schedule || given) return on;
  const int threads = request.threads.value_or(1);
  if (on.again)
    on.again = [again = on.again, threads](Bytes room, Setting& setting) {
      Result<Proposal> best = again(room, setting);
      if (best) best.value().plan = shared_by_threads(best->plan, setting, threads);
      return best;
    };
  Plan shared = shared_by_threads(on.plan, on.setting, threads);
  if (shared == on.plan) return on;
  Result<Schedule> schedule = resolve(shared, on.setting.workload, on.setting.machine);
  if (!schedule) return on;
  on.plan = std::move(shared);
  on.schedule = std::move(schedule).value();
  return on;
}

std::optional<double> over_least(const Traffic& traffic, const Workload& w) {
  double done = 0, least = 0;
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    const auto at = traffic.operations.find(w.operators()[i].name);
    if (at == traffic.operations.end()) return std::nullopt;
    done += static_cast<double>(at->second.value);
    least += static_cast<double>(w.operations(OpId(i)).value);
  }
  if (!(least > 0)) return std::nullopt;
  return done / least;
}

std::optional<Bytes> each_kernel_once(const Plan& plan, const Workload& w) {
  Bytes sum;
  for (const Kernel& kernel : plan.kernels) {
    const std::vector<OpId> operators = operators_of(kernel, w);
    if (no_subgraph(w, operators)) return std::nullopt;
    sum += subgraph(w, operators).compulsory_bytes();
  }
  return sum;
}

Bytes Alone::total() const {
  Bytes sum;
  for (const TrafficEntry& e : exact.entries) sum += e.read + e.written;
  return sum;
}

namespace {

void names_in(const Node& tree, std::set<std::string>& names) {
  names.insert(tree.level);
  for (const Node& child : tree.children) names_in(child, names);
}

/// The levels that a plan names.
std::set<std::string> levels_named(const Plan& plan) {
  std::set<std::string> names;
  for (const Kernel& k : plan.kernels) {
    names.insert(k.level);
    names_in(k.tree, names);
    for (const auto& [tensor, pin] : k.pins) names.insert(pin.level);
  }
  return names;
}

/// The machine with hardware caches only where they are named, as scratchpads: what the others fill
/// is filled from the next level outside of them.
Machine with_named_caches(const Machine& m, const std::set<std::string>& named) {
  Machine r = m;
  r.levels.clear();
  std::map<std::string, std::string> instead;  // of those left out
  for (std::size_t i = 0; i < m.levels.size(); ++i) {
    Level level = m.levels[i];
    const bool cache = level.managed == Managed::hardware && level.kind != LevelKind::home;
    if (level.filled_by.empty() && i > 0) level.filled_by = {m.levels[i - 1].name};
    std::vector<std::string> from;
    for (const std::string& f : level.filled_by) {
      const auto other = instead.find(f);
      const std::string& outer = other == instead.end() ? f : other->second;
      if (std::ranges::find(from, outer) == from.end()) from.push_back(outer);
    }
    if (cache && !named.contains(level.name)) {
      instead[level.name] = from.front();
      continue;
    }
    if (cache) level = as_scratchpad(m, LevelId(i)).levels[1];
    level.filled_by = std::move(from);
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

namespace {

/// A plan's kernels, those that differ in names alone counted once.
class Count {
 public:
  Count(const Plan& plan, const Schedule& schedule, std::int64_t most_nodes)
      : whole_(schedule), most_nodes_(most_nodes) {
    if (plan.kernels.size() == 1 || !folded(plan)) one_by_one();
  }

  Result<Alone> alone() && {
    if (!out_.exact.unavailable.empty()) return Reason{out_.exact.unavailable.begin()->second};
    out_.exact = from_home(std::move(out_.exact), *whole_.machine);
    return std::move(out_);
  }

 private:
  /// False where a kernel's operators are no workload of their own.
  bool folded(const Plan& plan) {
    const Workload& w = *whole_.workload;
    std::int64_t left = most_nodes_;
    std::map<std::string, std::size_t> known;
    std::vector<Traffic> moved;
    std::map<std::string, std::map<TensorId, TrafficEntry>> entries;  // by boundary
    std::vector<std::string> boundaries;
    try {
      for (const Kernel& kernel : plan.kernels) {
        const NamelessKernel alone = nameless(kernel, w);
        const auto [at, fresh] = known.emplace(alone.key, moved.size());
        if (fresh) {
          Result<Schedule> schedule = resolve({{alone.kernel}}, alone.workload, whole_.machine);
          if (!schedule) return false;
          ExactCost cost;
          moved.push_back(exact(*schedule, &cost, left));
          left = std::max<std::int64_t>(0, left - cost.nodes);
          out_.kernels.push_back({std::move(schedule).value(), 0});
          if (!moved.back().unavailable.empty()) {
            out_.exact.unavailable = moved.back().unavailable;
            return true;
          }
        }
        ++out_.kernels[at->second].count;
        add(moved[at->second], alone, entries, boundaries);
      }
    } catch (const InputError&) {  // of operators that cannot be taken apart
      return false;
    }
    out_.exact.source = moved.front().source;
    out_.exact.by = moved.front().by;
    out_.exact.machine = moved.front().machine;
    out_.exact.counts = moved.front().counts;
    for (const std::string& boundary : boundaries)
      for (auto& [tensor, entry] : entries[boundary]) out_.exact.entries.push_back(entry);
    return true;
  }

  void add(const Traffic& t, const NamelessKernel& of,
           std::map<std::string, std::map<TensorId, TrafficEntry>>& entries,
           std::vector<std::string>& boundaries) {
    const Workload& w = *whole_.workload;
    for (const TrafficEntry& e : t.entries) {
      const TensorId id = of.tensors[of.workload->find_tensor(e.tensor)->index()];
      if (!entries.contains(e.boundary)) boundaries.push_back(e.boundary);
      TrafficEntry& sum = entries[e.boundary][id];
      sum.tensor = w.tensor(id).name;
      sum.boundary = e.boundary;
      sum.read += e.read;
      sum.written += e.written;
    }
    for (std::size_t o = 0; o < of.operators.size(); ++o)
      if (const auto at = t.operations.find(of.workload->operators()[o].name);
          at != t.operations.end())
        out_.exact.operations[w.op(of.operators[o]).name] += at->second;
    for (const auto& [level, bytes] : t.memory) {
      Bytes& most = out_.exact.memory[level];
      most = std::max(most, bytes);
    }
  }

  void one_by_one() {
    out_ = {};
    out_.exact = exact(whole_, nullptr, most_nodes_);
    out_.kernels.push_back({whole_, 1});
  }

  const Schedule& whole_;
  std::int64_t most_nodes_;
  Alone out_;
};

}  // namespace

Result<Alone> alone_at(const Setting& setting, const Plan& plan, LevelId level,
                       std::int64_t most_nodes) {
  const Machine& m = *setting.machine;
  std::set<std::string> named = levels_named(plan);
  for (const std::string& unsaid : {std::string(), m.level(m.home()).name}) named.erase(unsaid);
  named.insert(m.level(level).name);
  const auto machine = std::make_shared<const Machine>(
      named.size() > 1 ? with_named_caches(m, named) : as_scratchpad(m, level));
  Result<Schedule> schedule = resolve(plan, setting.workload, machine);
  if (!schedule) return Reason{schedule.reason()};
  Result<Alone> alone = Count(plan, *schedule, most_nodes).alone();
  if (alone) alone.value().schedule = std::move(schedule).value();
  return alone;
}

Bytes held_at(const Traffic& exact, const Machine& m, LevelId level) {
  const auto at = exact.memory.find(m.level(level).name);
  return at == exact.memory.end() ? Bytes(0) : at->second;
}

Result<MovedAt> moved_at(const Request& request, const Setting& setting, const Plan& plan,
                         LevelId level, const Alone& alone) {
  constexpr std::int64_t kMostWork = 2'000'000'000;  // seconds
  const Machine& m = *setting.machine;
  const Bytes room = capacity_of(request, setting, level);
  if (m.level(level).managed != Managed::hardware || held_at(alone.exact, m, level) <= room)
    return MovedAt{.bytes = alone.total()};
  Setting on = setting;
  if (room != m.level(level).capacity) {
    // Of another size than the machine's, it has no ways to speak of.
    auto other = std::make_shared<Machine>(m);
    Level& cache = other->levels[level.index()];
    cache.ways = 0;
    cache.capacity =
        Bytes(std::max(room.value / cache.line.value, std::int64_t{1}) * cache.line.value);
    on.machine = std::move(other);
  }
  const std::string boundary = boundary_into(m, level);
  const auto all_of = [&](const Traffic& t) {
    const TrafficEntry all = t.total(boundary);
    return MovedAt{.bytes = all.read + all.written + all.resident_dirty, .walked = true};
  };
  // Who makes no plans counts those of anybody.
  for (const Model& by : models()) {
    if (by.price == nullptr || by.propose != nullptr || by.times) continue;
    if (const Result<Price> counted = price(by, request, on, plan))
      if (const MovedAt moved = all_of(counted->traffic); moved.bytes > Bytes(0)) return moved;
  }
  const Result<Schedule> schedule = resolve(plan, on.workload, on.machine);
  if (!schedule) return Reason{schedule.reason()};
  const Simulated walked =
      simulate_in_detail(*schedule, {.layout = layout_of(request), .most_work = kMostWork});
  if (walked.finished) return all_of(walked.traffic);
  return Reason{"its tiles are larger than the cache, and simulating it takes too long"};
}

}  // namespace tilewright::harness
