// The plan where the machine is no processor, nor a GPU whose file has the numbers of gpu_time.h:
// the fastest of what others propose of the whole and of its parts, each at the longest of the
// times that models give it: what one leaves out, another has. Where no model knows how long the
// whole takes, the one of fewest bytes into the planned level, of others' plans and of trees of our
// own (fewest.h), as those count who count any plan's bytes and make none. Where the target itself
// knows its programs' time, that counts alone. Tiles are searched by the time that counts.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/progress.h"
#include "core/plan/join.h"
#include "core/workload/cut.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/subgraph.h"
#include "models/quickest/chooser.h"
#include "models/quickest/gpu.h"

namespace tilewright::quickest {
namespace {

using nlohmann::ordered_json;

/// Plans of a whole that is rewritten as its parts were.
constexpr int kTimesRewritten = 4;

}  // namespace

Result<Proposal> Chooser::run(bool why) {
  std::vector<std::vector<Part>> cuts = {{},
                                         cut_contractions(*q_.workload),
                                         cut_contractions(*q_.workload, false),
                                         cut_each(*q_.workload)};
  for (std::size_t i = 0; i < q_.workload->operators().size(); ++i)
    cuts[0].resize(1), cuts[0][0].emplace_back(i);
  double all = 0;
  for (const auto& parts : cuts) all += static_cast<double>(parts.size());
  for (const Cost by : {kSeconds, kBytes}) {
    Steps steps(all);
    cost_ = by;
    if (by == kBytes && cuts[0][0].size() <= kEveryPartition)
      search_trees(cuts[0][0], kTreesOfTaken);
    // Tiles are searched where there is a plan at all.
    if (by == kSeconds) {
      refines_ = false;
      if (std::ranges::none_of(cuts, [&](const auto& parts) { return has_plan(parts); })) continue;
      refines_ = true;
    }
    double least = std::numeric_limits<double>::infinity();
    std::vector<const Candidate*> best;
    std::vector<std::vector<const Candidate*>> others;  // all that were put together
    for (const auto& parts : cuts) {
      double total = 0;
      std::vector<const Candidate*> chosen;
      double rest = 0;  // that the parts to come move at least
      if (by == kBytes)
        for (const Part& p : parts) rest += compulsory(p);
      const double most = by == kBytes && lie_together() ? kNever : least;
      for (const Part& p : parts) {
        if (total + rest >= most) {
          total = kNever;
          break;
        }
        if (by == kBytes) rest -= compulsory(p);
        total += cheapest(p, chosen);
        steps.done();
        if (total >= most) break;
      }
      if (total < kNever) others.push_back(chosen);
      if (total < least) least = total, best = chosen;
    }
    if (by == kBytes || (clock_ == nullptr && !best.empty())) with_own_partition(least, best);
    if (by == kBytes) polish(least, best);
    if (!best.empty() && cuts[0][0].size() <= (by == kBytes ? kTakenApartByBytes : kTakenApart))
      while (asks_others(least, best) || changes_edges(least, best)) {
      }
    if (by == kBytes && !best.empty()) as_a_whole(least, best, others, cuts[0][0]);
    if (!best.empty()) return joined(best, least, why);
  }
  return Reason{refusals()};
}

bool Chooser::has_plan(const std::vector<Part>& parts) {
  std::vector<const Candidate*> chosen;
  return std::ranges::all_of(parts,
                             [&](const Part& p) { return std::isfinite(cheapest(p, chosen)); });
}

double Chooser::cheapest(const Part& p, std::vector<const Candidate*>& chosen) {
  const Candidate* one = best_of(p);
  const double whole = one ? *one->most[cost_] : std::numeric_limits<double>::infinity();
  double apart = 0;
  std::vector<const Candidate*> those;
  const std::vector<Part> pieces = pieces_of(p);
  if (pieces.size() > 1)
    for (const Part& piece : pieces) {
      const Candidate* c = best_of(piece);
      if (c == nullptr) {
        apart = std::numeric_limits<double>::infinity();
        break;
      }
      apart += *c->most[cost_];
      those.push_back(c);
    }
  if (pieces.size() > 1 && apart < whole) {
    chosen.insert(chosen.end(), those.begin(), those.end());
    return apart;
  }
  if (one != nullptr) chosen.push_back(one);
  return whole;
}

void Chooser::with_own_partition(double& least, std::vector<const Candidate*>& best) {
  if (cut_each(*q_.workload).size() > kEveryPartition) return;
  Partitioner partitioner(
      q_.workload,
      [this](const Group& g) -> std::optional<Best> {
        const Candidate* c = best_of(g.ops);
        if (c == nullptr || (cost_ == kBytes && !c->fits)) return std::nullopt;
        return Best{.seconds = *c->most[cost_]};
      },
      [](const Part&) { return std::nullopt; });
  const Result<Partition> found = partitioner.run(q_);
  const bool fits = cost_ == kSeconds || std::ranges::all_of(best, &Candidate::fits);
  if (!found || (fits && found->seconds >= least)) return;
  best.clear();
  least = 0;
  for (const Group& g : found->groups) {
    best.push_back(best_of(g.ops));
    least += *best.back()->most[cost_];
  }
}

Result<Proposal> Chooser::joined(const std::vector<const Candidate*>& best, double cost, bool why) {
  std::vector<PartPlan> parts;
  for (const Candidate* c : best) parts.push_back(c->part);
  Result<JoinedPlan> all = join_plans(*q_.workload, parts);
  if (!all) {
    for (const PartPlan& part : parts)
      for (const std::string& rewrite : part.rewrites)
        if (std::ranges::find(apart_, rewrite) == apart_.end()) apart_.push_back(rewrite);
    return Reason{all.reason()};
  }
  Proposal out;
  out.plan = all->plan;
  out.rewrites = all->rewrites;
  out.level = q_.planned_level();
  out.price.traffic.by = "tilewright";
  out.price.traffic.machine = q_.machine->name;
  const char* unit = cost_ == kSeconds ? "seconds" : "bytes";
  if (cost_ == kSeconds) {
    out.price.traffic.seconds = cost;
    out.detail = {{"seconds", cost},
                  {"seconds_are", clock_ != nullptr
                                      ? "of each part, what the target's time model gives its plan"
                                      : "of each part, the longest that a model gives its plan"}};
  } else {
    out.detail = {
        {"volume_bytes", static_cast<std::int64_t>(cost)},
        {"volume_is", lie_together() ? "of the whole plan: no model here knows time"
                                     : "of each part, what its plan moves: no model here knows "
                                       "time"}};
  }
  out.detail["parts_planned"] = ordered_json::array();
  for (const Candidate* c : best) {
    ordered_json operators = ordered_json::array();
    for (const Operator& op : c->part.part.operators()) operators.push_back(op.name);
    out.detail["parts_planned"].push_back({{"operators", operators},
                                           {"by", c->part.by},
                                           {"kernels", c->part.plan.kernels.size()},
                                           {unit, or_null(c->most[cost_])}});
  }
  out.detail["candidates"] = seen_.json();
  if (why) {
    std::vector<Edge> all = edges(best);
    if (cost_ == kBytes && lie_together()) of_the_whole(all, best, cost);
    out.detail["edges"] = edges_json(*q_.workload, all, unit);
  }
  return out;
}

std::string Chooser::refusals() const {
  std::map<std::string, std::vector<std::string>> models;
  for (const auto& [name, reason] : refused_) models[reason].push_back(name);
  std::vector<std::pair<std::string, std::vector<std::string>>> all(models.begin(), models.end());
  std::ranges::stable_sort(
      all, {}, [](const auto& x) { return std::pair(x.second.size(), x.second.front()); });
  std::string text = "no model plans all operators here";
  for (const auto& [reason, names] : all) text += "; " + join(names, ", ") + ": " + reason;
  return text;
}

namespace {

/// The plan of the composition.
Result<Planned> planned_of_others(const Question& q, const Settings& settings,
                                  const stitching::Composition& c, KnownTimes& times) {
  Question of = q;
  of.workload = c.workload;
  std::vector<std::string> apart;
  Result<Proposal> best = Reason{};
  for (int turn = 0; turn < kTimesRewritten; ++turn) {
    Chooser chooser(of, times);
    best = chooser.run(settings.flag("why"));
    // A rewrite changes other parts, too: then all of the whole is planned as it is with them.
    auto whole =
        best || chooser.apart().empty() ? nullptr : rewritten(of.workload, chooser.apart());
    if (whole == nullptr) break;
    of.workload = std::move(whole);
    apart.insert(apart.end(), chooser.apart().begin(), chooser.apart().end());
  }
  if (!best) return Reason{best.reason()};
  std::vector<std::string>& all = best.value().rewrites;
  all.insert(all.begin(), apart.begin(), apart.end());
  return Planned{.proposal = std::move(best).value()};
}

/// Rewrites for targets that know their programs' time: a sum of few results would be one core's; a
/// matrix beside its transpose is whole in each block; matrix units multiply matrices; and what
/// lies before the first element of a row is in no tile.
constexpr std::array<std::pair<const char*, std::vector<OpId> (*)(const Workload&)>, 4> kOnTimes = {
    {{"materialise-orders:", readers_in_orders},
     {"split-sums:", sums_to_split},
     {"materialise-windows:", products_of_windows},
     {"materialise-borders:", readers_beyond_rows}}};

}  // namespace

Result<Proposal> propose_of_others(const Question& q, const Settings& settings) {
  const bool rewrites = target_time(q) != nullptr && !settings.flag(kAsWritten);
  KnownTimes times;
  Wholes wholes(
      q.workload,
      [&](const stitching::Composition& c) { return planned_of_others(q, settings, c, times); },
      rewrites);
  if (rewrites) {
    // Each on top of those that gained.
    const bool small = q.workload->operators().size() <= kEveryPartition;
    for (const auto& [prefix, found] : kOnTimes) {
      const stitching::Composition from =
          wholes.best() ? wholes.best()->composed : stitching::Composition{{}, q.workload};
      std::vector<std::string> names;
      for (const OpId op : found(*from.workload)) names.push_back(from.workload->op(op).name);
      Wholes::try_names(from, prefix, std::move(names), small,
                        [&](const stitching::Composition& c) { return wholes.tries(c); });
    }
  }
  return std::move(wholes).proposal();
}

Result<Proposal> propose_elsewhere(const Question& q, const Settings& settings) {
  if (!has_own_time(q)) return propose_of_others(q, settings);
  Result<Proposal> own = propose_on_gpu(q, settings);
  if (own) return own;
  Result<Proposal> others = propose_of_others(q, settings);
  return others ? others : own;
}

}  // namespace tilewright::quickest
