// Which edges between parts are fused: the other choice of each is tried.
#include <algorithm>

#include "core/plan/join.h"
#include "core/workload/subgraph.h"
#include "models/quickest/chooser.h"

namespace tilewright::quickest {
std::vector<const Candidate*> Chooser::otherwise(const std::vector<const Candidate*>& best,
                                                 const Edge& e) {
  const auto part_with = [&best](OpId op) {
    return std::ranges::find_if(
        best, [op](const Candidate* c) { return std::ranges::find(c->ops, op) != c->ops.end(); });
  };
  const auto first = part_with(e.from), second = part_with(e.to);
  if (first == best.end() || second == best.end() || e.fused != (first == second)) return {};
  std::vector<Part> instead = e.halves;
  if (e.fused) {
    if (instead.size() != 2 || as_one(instead[0], instead[1]) != as_one((*first)->ops, {}))
      return {};  // the part is another by now
  } else {
    instead = {as_one((*first)->ops, (*second)->ops)};
  }
  std::vector<const Candidate*> others;
  for (const Part& p : instead) {
    if (no_subgraph(*q_.workload, p)) return {};
    const Candidate* c = best_of(p);
    if (c == nullptr || !c->fits) return {};
    others.push_back(c);
  }
  std::vector<const Candidate*> next;
  for (auto at = best.begin(); at != best.end(); ++at)
    if (at == first)
      next.push_back(others.front());
    else if (at != second)
      next.push_back(*at);
  next.insert(next.end(), others.begin() + 1, others.end());
  std::vector<PartPlan> parts;
  for (const Candidate* c : next) parts.push_back(c->part);
  if (!join_plans(*q_.workload, parts)) return {};  // others would wait for one another
  return next;
}

bool Chooser::changes_edges(double& least, std::vector<const Candidate*>& best) {
  bool better = false;
  for (const Edge& e : edges(best)) {
    if (!e.together || !e.apart) continue;
    if (e.fused ? *e.apart >= *e.together : *e.together >= *e.apart) continue;
    std::vector<const Candidate*> next = otherwise(best, e);
    if (next.empty() || sum(next, cost_) >= sum(best, cost_)) continue;
    best = std::move(next);
    least = sum(best, cost_);
    better = true;
  }
  return better;
}

bool Chooser::asks_others(double& least, std::vector<const Candidate*>& best) {
  bool better = false;
  for (const Candidate*& c : best) {
    const Candidate* its = best_of(c->ops);
    if (its == nullptr || !its->fits || *its->most[cost_] >= *c->most[cost_]) continue;
    least -= *c->most[cost_] - *its->most[cost_];
    c = its;
    better = true;
  }
  return better;
}

bool Chooser::lie_together() const {
  return q_.machine->level(q_.planned_level()).managed == Managed::hardware &&
         q_.workload->operators().size() <= kTakenApart;
}

std::optional<double> Chooser::together(const std::vector<const Candidate*>& those) {
  if (those.size() == 1) return those.front()->most[cost_];
  std::vector<PartPlan> parts;
  for (const Candidate* c : those) parts.push_back(c->part);
  const Result<JoinedPlan> all = join_plans(*q_.workload, parts);
  if (!all) return std::nullopt;
  const auto w = rewritten(q_.workload, all->rewrites);
  if (w == nullptr) return std::nullopt;
  return most(all->plan, w, true);
}

void Chooser::as_a_whole(double& least, std::vector<const Candidate*>& best,
                         std::vector<std::vector<const Candidate*>>& others, const Part& whole) {
  if (!lie_together()) return;
  for (Candidate& c : known_[whole].all)
    if (cost(c)) others.push_back({&c});
  const auto fit = [](const auto& those) { return std::ranges::all_of(those, &Candidate::fits); };
  least = together(best).value_or(kNever);
  const auto take = [&](const std::vector<const Candidate*>& those) {
    if (fit(best) && !fit(those)) return false;
    const auto its = together(those);
    if (!its || (*its >= least && (fit(best) || !fit(those)))) return false;
    least = *its, best = those;
    return true;
  };
  for (const auto& those : others) take(those);
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; best.size() > 1 && i < best.size(); ++i)
      for (Candidate& c : known_[best[i]->ops].all) {
        std::vector<const Candidate*> those = best;
        those[i] = &c;
        if (&c != best[i] && cost(c) && take(those)) better = true;
      }
    for (const Edge& e : edges(best)) {
      const std::vector<const Candidate*> those = otherwise(best, e);
      if (!those.empty() && take(those)) better = true;
    }
  }
}

void Chooser::of_the_whole(std::vector<Edge>& edges, const std::vector<const Candidate*>& best,
                           double cost) {
  for (Edge& e : edges) {
    if (!e.note.empty()) continue;
    if (e.fused && e.apart && e.halves.empty()) e.note = "one kernel of a plan of several";
    const std::vector<const Candidate*> those = otherwise(best, e);
    (e.fused ? e.together : e.apart) = cost;
    (e.fused ? e.apart : e.together) = those.empty() ? std::nullopt : together(those);
  }
}

std::vector<Edge> Chooser::edges(const std::vector<const Candidate*>& best) {
  Partitioner partitioner(q_.workload, [this](const Group& g) -> std::optional<Best> {
    const Candidate* c = best_of(g.ops);
    if (c == nullptr) return std::nullopt;
    return Best{.seconds = *c->most[cost_], .by = c->part.by, .rewrites = c->part.rewrites};
  });
  Partition found;
  for (const Candidate* c : best) {
    found.groups.push_back({c->ops, c->workload});  // as rewrites left it
    found.best.push_back({.seconds = *c->most[cost_], .by = c->part.by, .plan = c->part.plan});
  }
  return partitioner.edges(found);
}

}  // namespace tilewright::quickest
