// The planner: which operators share a kernel, and which kernels, for the least predicted seconds.
#include "models/quickest/model.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/base/format.h"
#include "core/plan/names.h"
#include "core/workload/merge_loops.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"
#include "core/workload/text.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {

Model model();

namespace {

std::span<const OptionSpec> options();

using nlohmann::ordered_json;

constexpr std::size_t kChoices = 12;       // of a kernel that are kept
constexpr std::size_t kMostOfOthers = 24;  // operators of a workload that others are asked about,
                                           // and of which kernels are priced with merged loops
constexpr int kMostRefused = 8;            // kernels that a target is asked about
constexpr double kNearLeast = 1.05;        // of least_seconds: nobody else is asked
constexpr std::size_t kMostFewer = 12;  // operators of a workload of which some products alone are
                                        // tried as matrices

bool has_product(const Workload& w, const Part& ops) {
  return std::ranges::any_of(ops, [&](OpId op) { return w.is_contraction(op); });
}

bool small(const Workload& w) { return w.operators().size() <= kMostOfOthers; }

struct Known : KnownGroups {
  std::map<std::string, std::optional<KernelTime>> merged = {};  ///< by part
};

class Planner {
 public:
  /// `merges`: parts with products whose loops go together are priced with these as one, as
  /// programs have them. `rewrites`: whether others' plans may have some.
  Planner(const Question& q, const Rates& r, Known& known, bool merges, bool rewrites = true)
      : q_(q), r_(r), known_(known), merges_(merges), rewrites_(rewrites) {
    // Fewer kernels for each group where there are more groups.
    const auto operators =
        static_cast<int>(std::max<std::size_t>(1, q.workload->operators().size()));
    others_ = cut_each(*q.workload).size() <= kMostExact;
    effort_ = std::clamp((others_ ? 840 : 320) / operators, 16, 240);
  }

  std::optional<Best> find(const Group& group) {
    std::optional<Best> best =
        known_.find(std::to_string(effort_), group, [&] { return own(group); });
    if (merges_ && best && has_product(*q_.workload, group.ops))
      if (const auto& merged = merged_time(group.workload);
          merged && merged->seconds < best->seconds)
        best->seconds = merged->seconds, best->times = {*merged};
    if (asks(group, best))
      for (const Model* m : q_.others) try_model(*m, group, best);
    return best;
  }

  /// Of a kernel of a plan of the workload.
  KernelTime time_of(const Schedule& s, const ScheduledKernel& k) {
    KernelTime plain = kernel_time(s, k, r_);
    if (!merges_ || !has_product(*s.workload, k.ops)) return plain;
    const auto part = std::make_shared<const Workload>(subgraph(*s.workload, k.ops));
    const std::optional<KernelTime>& merged = merged_time(part);
    return merged && merged->seconds < plain.seconds ? *merged : plain;
  }

  /// What others propose of the whole, connected or not, where that is faster.
  void ask_others(Partition& found) {
    if (!small(*q_.workload)) return;
    if (found.seconds < kNearLeast * least_seconds(*q_.workload, r_)) return;
    Group whole{.ops = {}, .workload = q_.workload};
    for (std::size_t i = 0; i < q_.workload->operators().size(); ++i) whole.ops.emplace_back(i);
    std::optional<Best> best = Best{.seconds = found.seconds};
    for (const Model* m : q_.others) try_model(*m, whole, best);
    if (best->plan.kernels.empty()) return;
    found.groups = {std::move(whole)};
    found.seconds = best->seconds;
    found.best = {std::move(*best)};
  }

 private:
  std::optional<Best> own(const Group& group) {
    const auto priced = [&](Kernel k) -> std::optional<Choice> {
      const auto s = resolved({.kernels = {k}}, group.workload, q_);
      if (!s) return std::nullopt;
      const KernelTime time = kernel_time(*s, s->kernels.front(), r_);
      return Choice{.kernel = std::move(k), .seconds = time.seconds, .time = time};
    };
    std::vector<Choice> all = kernels_for(
        q_, group, r_, [&](Kernel k) { return known_.seen.seen(priced(std::move(k))); }, effort_);
    int refused = 0;
    while (!all.empty() && q_.refuses && refused < kMostRefused) {
      const auto s = resolved({.kernels = {all.front().kernel}}, group.workload, q_);
      if (s && !q_.refuses(*s)) break;
      all.erase(all.begin());
      ++refused;
    }
    if (all.empty() || refused == kMostRefused) return std::nullopt;
    if (all.size() > kChoices) all.resize(kChoices);
    Best best{.seconds = all.front().seconds,
              .plan = {.kernels = {all.front().kernel}},
              .times = {all.front().time}};
    best.others = std::move(all);
    return best;
  }

  /// Of the best kernel of the part after merging loops; nothing where none go together.
  const std::optional<KernelTime>& merged_time(const std::shared_ptr<const Workload>& part) {
    std::vector<bool> constant;
    for (const Tensor& t : part->tensors()) constant.push_back(bool(t.values));
    const Workload named = with_constants(without_names(*part), constant);
    const auto [at, fresh] = known_.merged.emplace(to_yaml(named), std::nullopt);
    if (!fresh) return at->second;
    const std::optional<Workload> merged = merged_loops_of_parts(without_names(named));
    if (!merged) return at->second;
    Question q = q_;
    q.workload = std::make_shared<const Workload>(with_constants(*merged, constant));
    Group whole{.ops = {}, .workload = q.workload};
    for (std::size_t i = 0; i < q.workload->operators().size(); ++i) whole.ops.emplace_back(i);
    Planner planner(q, r_, known_, false);
    planner.effort_ = effort_;  // as for other groups of the workload
    if (const auto best = planner.own(whole)) at->second = best->times.front();
    return at->second;
  }

  /// Of a part others are asked about what their papers plan: products with something around
  /// them. Their searches take up to seconds a group, so that they are asked in small workloads
  /// only, and not where no kernel can be much faster than the one that is known.
  bool asks(const Group& group, const std::optional<Best>& best) const {
    if (!others_ || (best && best->seconds < kNearLeast * least_seconds(*group.workload, r_)))
      return false;
    if (group.ops.size() == q_.workload->operators().size()) return false;  // ask_others()
    const auto products =
        std::ranges::count_if(group.ops, [&](OpId op) { return q_.workload->is_contraction(op); });
    return products == 2 || (products == 1 && product_window(group));
  }
  bool product_window(const Group& group) const {
    for (OpId op : group.ops)
      if (const auto p = product_of(*q_.workload, op); p && p->window) return true;
    return false;
  }

  void try_model(const Model& m, const Group& group, std::optional<Best>& best) {
    if (m.propose == nullptr) return;
    std::vector<std::optional<LevelId>> levels{std::nullopt};
    for (std::size_t i = q_.machine->levels.size(); i-- > 1;)
      if (const Level& l = q_.machine->levels[i]; l.kind == LevelKind::cache &&
                                                  l.private_to >= Unit::grid &&
                                                  LevelId(i) != q_.machine->default_level())
        levels.emplace_back(LevelId(i));
    for (const auto& level : levels) {
      Question asked = q_.to_other();
      asked.workload = group.workload;
      asked.level = level;
      asked.all_levels = false;
      try {
        const Result<Proposal> p = m.propose(asked, Settings(m.options, {}, "model " + m.name));
        if (!p || (!rewrites_ && !p->rewrites.empty())) continue;
        ++known_.seen.generated;
        const auto w = rewritten(group.workload, p->rewrites);
        if (w == nullptr || no_workloads(p->plan, *w)) continue;
        const auto s = resolved(p->plan, w, q_);
        if (!s) continue;
        ++known_.seen.priced;
        Best its{.by = m.name, .plan = p->plan, .rewrites = p->rewrites};
        for (const ScheduledKernel& k : s->kernels) {
          its.times.push_back(kernel_time(*s, k, r_));
          its.seconds += its.times.back().seconds;
        }
        if ((!best || its.seconds < best->seconds) && (!q_.refuses || !q_.refuses(*s)))
          best = std::move(its);
      } catch (const InputError&) {
        continue;  // what the model cannot read
      }
    }
  }

  const Question& q_;
  const Rates& r_;
  Known& known_;
  int effort_;
  bool others_ = true;  ///< whether other models are asked
  bool merges_, rewrites_;
};

/// Bytes into the level that is planned for, by tensor; those of other levels are in the detail.
Traffic traffic_of(const Question& q, const Workload& w, const Rates& r, LevelId level,
                   const std::vector<KernelTime>& times) {
  Traffic t;
  t.source = Source::predicted;
  t.by = "tilewright";
  t.machine = q.machine->name;
  t.counts.write_allocate = true;
  double seconds = 0;
  for (const KernelTime& k : times) seconds += k.seconds;
  t.seconds = seconds;
  const std::string boundary = boundary_into(*q.machine, level);
  for (std::size_t c = r.caches.size(); c-- > 0;)
    for (std::size_t i = 0; i < w.tensors().size() && r.caches[c].boundary == boundary; ++i) {
      double in = 0, out = 0;
      for (const KernelTime& k : times)
        if (c < k.tensors.size() && i < k.tensors[c].size())
          in += k.tensors[c][i].first, out += k.tensors[c][i].second;
      if (in + out < 1) continue;
      t.entries.push_back({.tensor = w.tensors()[i].name,
                           .boundary = r.caches[c].boundary,
                           .read = Bytes(static_cast<std::int64_t>(in)),
                           .written = Bytes(static_cast<std::int64_t>(out))});
    }
  return t;
}

ordered_json time_json(const Rates& r, const KernelTime& t) {
  ordered_json json = {{"seconds", t.seconds},
                       {"arithmetic_seconds", t.arithmetic},
                       {"packing_seconds", t.packing},
                       {"threads_used", t.share}};
  json["boundaries"] = ordered_json::array();
  for (std::size_t c = 0; c < t.bytes.size(); ++c)
    json["boundaries"].push_back({{"boundary", r.caches[c].boundary},
                                  {"bytes", static_cast<std::int64_t>(t.bytes[c])},
                                  {"seconds", t.waiting[c]}});
  return json;
}

/// With the room that is asked for as the capacity of its level, so that whoever plans keeps to it.
Question with_room(const Question& q) {
  if (!q.room) return q;
  Question of = q;
  Machine m = *q.machine;
  Level& level = m.levels[q.planned_level().index()];
  level.capacity = *q.room;
  if (level.ways > 0 && level.sets() < 1)
    level.ways = std::max<std::int64_t>(1, level.capacity.value / level.line.value);
  of.machine = std::make_shared<const Machine>(std::move(m));
  return of;
}

/// Whether the machine's file says how fast anything is. Machines made from a word do not.
bool says_speed(const Machine& m) {
  return std::ranges::any_of(m.levels, [](const Level& l) { return l.bandwidth.value > 0; }) ||
         std::ranges::any_of(
             m.units, [](const ComputeUnit& u) { return u.clock_hz > 0 || !u.peak.empty(); });
}

Result<Proposal> propose_on_processor(const Question& q, const Rates& rates,
                                      const Settings& settings);

/// Keeps what the target said of the first kernel that it refused.
struct Refusal {
  std::mutex mutex;
  std::string first;
};

Result<Proposal> propose_heard(const Question& q, const Settings& settings) {
  const Result<Rates> r = rates_of(q);
  if (!r) return propose_elsewhere(q, settings);
  if (says_speed(*q.machine)) return propose_on_processor(q, *r, settings);
  Result<Proposal> others = propose_of_others(q, settings);
  if (others) return others;
  Result<Proposal> own = propose_on_processor(q, *r, settings);
  if (!own) return others;
  // What is assumed of a processor has found the plan, but the machine knows no time.
  const auto w = rewritten(q.workload, own->rewrites);
  Question of = q;
  of.workload = w;
  Result<Price> counted = price_elsewhere(of, own->plan, settings);
  if (!counted) return own;
  own.value().price = std::move(counted).value();
  for (const char* field : {"seconds", "kernels_predicted"}) own.value().detail.erase(field);
  own.value().detail["volume_bytes"] =
      own->price.traffic.total(boundary_into(*q.machine, own->level)).read.value +
      own->price.traffic.total(boundary_into(*q.machine, own->level)).written.value;
  return own;
}

Result<Proposal> propose(const Question& asked, const Settings& settings) {
  Question q = with_room(asked);
  const auto refusal = std::make_shared<Refusal>();
  if (q.refuses)
    q.refuses = [ask = q.refuses, refusal](const Schedule& s) {
      std::optional<Reason> why = ask(s);
      if (!why) return why;
      const std::lock_guard lock(refusal->mutex);
      if (refusal->first.empty()) refusal->first = why->text;
      return why;
    };
  Result<Proposal> best = propose_heard(q, settings);
  if (best && settings.flag(kAsWritten) && !best->rewrites.empty())
    return Reason{"the plan that was found is of another workload (--as-written): " +
                  join(best->rewrites)};
  if (best || refusal->first.empty() || best.reason().find(refusal->first) != std::string::npos)
    return best;
  return Reason{best.reason() + "; of the first that was tried the target says: " + refusal->first};
}

Result<Planned> planned_on_processor(const Question& asked, const stitching::Composition& composed,
                                     const Rates& rates, const Settings& settings, Known& known) {
  Question q = asked;
  q.workload = composed.workload;
  const Rates* const r = &rates;
  Planner planner(q, *r, known, !composed.rewrites.empty(), !settings.flag(kAsWritten));
  Partitioner partitioner(q.workload, [&](const Group& g) { return planner.find(g); });
  Result<Partition> found = partitioner.run(q);
  if (found) {
    planner.ask_others(found.value());
  } else {
    const Result<Proposal> others = propose_elsewhere(q, settings);
    if (others) return Planned{*others};
    return Reason{found.reason()};
  }
  Result<Proposal> joined = joined_proposal(q, *found);
  if (!joined) return Reason{joined.reason()};
  Proposal out = std::move(joined).value();
  if (!q.level && !out.plan.kernels.empty() && !out.plan.kernels.front().level.empty())
    if (const auto named = q.machine->find(out.plan.kernels.front().level)) out.level = *named;
  const auto whole = rewritten(q.workload, out.rewrites);
  const auto schedule = resolved(out.plan, whole, q);
  if (!schedule) return Reason{"the kernels of the parts make no legal plan of the whole"};
  std::vector<KernelTime> times;
  for (const ScheduledKernel& k : schedule->kernels) times.push_back(planner.time_of(*schedule, k));
  out.price.traffic = traffic_of(q, *whole, *r, out.level, times);
  double bytes = 0;
  for (const KernelTime& t : times)
    if (!t.bytes.empty()) bytes += t.bytes.back();
  out.detail = {{"volume_bytes", static_cast<std::int64_t>(bytes)},
                {"seconds", or_null(out.price.traffic.seconds)}};
  out.detail["kernels_predicted"] = ordered_json::array();
  for (std::size_t k = 0; k < times.size(); ++k) {
    ordered_json one = {{"kernel", schedule->kernels[k].name},
                        {"by", out.plan.kernels[k].by},
                        {"operators", ordered_json::array()}};
    for (OpId op : schedule->kernels[k].ops) one["operators"].push_back(whole->op(op).name);
    one.update(time_json(*r, times[k]));
    out.detail["kernels_predicted"].push_back(std::move(one));
  }
  describe(partitioner, *found, settings.flag("why"), out.detail);
  out.detail["assumed"] = r->assumed;
  return Planned{std::move(out)};
}

Result<Proposal> propose_on_processor(const Question& q, const Rates& rates,
                                      const Settings& settings) {
  Known known;
  const bool rewrites = !settings.flag(kAsWritten);
  const auto plan = [&](const stitching::Composition& c) {
    return planned_on_processor(q, c, rates, settings, known);
  };
  Wholes wholes(q.workload, plan, rewrites);
  if (rewrites) {
    wholes.try_matrices(false, q.workload->operators().size() <= kMostFewer);
    wholes.try_hoisting();
    wholes.try_rows();
  }
  Result<Proposal> best = std::move(wholes).proposal();
  if (best) best.value().detail["candidates"] = known.seen.json();
  return best;
}

Explained explain(const Question& q, const ExplainAsked&, const Settings&) {
  Result<Proposal> best = propose(q, {options(), {{"why", {"on"}}}, "model tilewright"});
  if (!best) return {.detail = ordered_json::object(), .refused = best.reason()};
  Explained said{.detail = {{"level", q.machine->level(best->level).name}}};
  said.detail.update(best->detail);
  said.rewrites = best->rewrites;
  return said;
}

Result<Price> price(const Question& q, const Plan& plan, const Settings& settings) {
  const Result<Rates> r = rates_of(q);
  if (!r || !says_speed(*q.machine)) return price_elsewhere(q, plan, settings);
  const Result<Schedule> schedule = resolve(plan, q.workload, q.machine);
  if (!schedule) return Reason{schedule.reason()};
  std::vector<KernelTime> times;
  Known known;
  Planner planner(q, *r, known, schedule->kernels.size() > 1 && small(*q.workload));
  for (const ScheduledKernel& k : schedule->kernels) times.push_back(planner.time_of(*schedule, k));
  Price out;
  out.traffic = traffic_of(q, *q.workload, *r, q.level_of(plan), times);
  out.detail["kernels_predicted"] = ordered_json::array();
  for (std::size_t k = 0; k < times.size(); ++k) {
    ordered_json one = {{"kernel", schedule->kernels[k].name}};
    one.update(time_json(*r, times[k]));
    out.detail["kernels_predicted"].push_back(std::move(one));
  }
  out.detail["assumed"] = r->assumed;
  return out;
}

std::span<const OptionSpec> options() {
  static const std::vector<OptionSpec> all = {
      {.name = "why",
       .kind = OptionKind::flag,
       .help = "of each tensor between operators: whether they share a kernel, and what the other "
               "choice would cost (explain always says it)",
       .in_answers = false},
      {.name = kAsWritten,
       .kind = OptionKind::flag,
       .help = "plan the operators that there are, without rewriting the workload",
       .in_answers = false}};
  return all;
}

}  // namespace

Model model() {
  return {
      .name = "tilewright",
      .summary =
          "the plan of least predicted seconds: kernels of our own search and of every "
          "other model, of any workload",
      .source = "this project (docs/planner.md)",
      .assumptions = {"constants are the machine file's, as `calibrate` measures them; what it "
                      "does not say is assumed and listed in the answer",
                      "what a loop's body touches stays in a cache for the next iteration where "
                      "it fits; of the waits that overlap, a quarter of the shorter ones is seen",
                      "on a GPU: blocks' tiles lie about as the CUDA target lays them out; tensors "
                      "that fit L2 together are there when a kernel begins"},
      .options = options(),
      .times = true,
      .propose = propose,
      .price = price,
      .explain = explain};
}

}  // namespace tilewright::quickest
