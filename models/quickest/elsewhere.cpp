// The plan where the machine is no processor, nor a GPU whose file has the numbers of gpu_time.h:
// the fastest of what others propose of the whole and of its parts, each at the longest of the
// times that models give it: what one leaves out, another has. Where no model knows how long the
// whole takes, the one of fewest bytes into the planned level, of others' plans and of trees of our
// own (fewest.h), as those count who count any plan's bytes and make none. Where the target itself
// knows its programs' time, that counts alone. Tiles are searched by the time that counts.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>

#include "core/base/format.h"
#include "core/base/progress.h"
#include "core/plan/join.h"
#include "core/plan/names.h"
#include "core/workload/cut.h"
#include "core/workload/subgraph.h"
#include "models/quickest/fewest.h"
#include "models/quickest/gpu.h"
#include "models/quickest/model.h"
#include "models/quickest/partition.h"
#include "models/quickest/refine.h"

namespace tilewright::quickest {
namespace {

using nlohmann::ordered_json;

/// What decides between plans: seconds, or bytes into the planned level.
enum Cost { kSeconds, kBytes };

struct Candidate {
  Part ops;  ///< of the whole
  PartPlan part;
  std::shared_ptr<const Workload> workload;     ///< of `part`
  std::array<std::optional<double>, 2> most{};  ///< by Cost: what a model gives it at most
  std::array<bool, 2> priced{};                 ///< by Cost
  bool refined = false;                         ///< its tiles have been searched
  bool fits = true;                             ///< what it holds
};

Question question_of(const Question& q, std::shared_ptr<const Workload> w) {
  Question of = q.to_other();
  of.workload = std::move(w);
  return of;
}

/// Models of bytes rank orders of loops. They are not asked about a part of more than kMostExact
/// operators with more loops than this, 8! orders, and as many products: that takes seconds.
constexpr std::size_t kMostLoops = 8;
constexpr std::ptrdiff_t kMostProducts = 3;
/// Of each part, by time: proposals whose tiles are searched, and plans tried for each
/// of their kernels; fewer of each where there are many operators.
constexpr std::size_t kRefined = 3;
constexpr int kTries = 96, kTriesOfAll = 2000;
/// Of fewest bytes: trees of our own that are counted for all parts together, of a part at least
/// and at most, and of each part of the plan that is taken.
constexpr int kTrees = 4000, kLeastTrees = 40, kMostTrees = 600, kTreesOfTaken = 1600;
constexpr double kNever = std::numeric_limits<double>::infinity();
/// Operators up to which every partition is considered.
constexpr std::size_t kEveryPartition = 6;
/// Operators up to which the other choice of each edge is tried: by bytes more, as no tiles are
/// searched.
constexpr std::size_t kTakenApart = 12, kTakenApartByBytes = 40;

class Chooser {
 public:
  explicit Chooser(const Question& q) : q_(q), clock_(target_time(q)) {}

  Result<Proposal> run(bool why) {
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
        if (std::ranges::none_of(cuts, [&](const auto& parts) { return has_plan(parts); }))
          continue;
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

 private:
  bool has_plan(const std::vector<Part>& parts) {
    std::vector<const Candidate*> chosen;
    return std::ranges::all_of(parts,
                               [&](const Part& p) { return std::isfinite(cheapest(p, chosen)); });
  }

  /// The part as one, or as its contractions apart from the rest.
  double cheapest(const Part& p, std::vector<const Candidate*>& chosen) {
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

  const std::vector<Part>& pieces_of(const Part& p) {
    const auto known = pieces_.find(p);
    if (known != pieces_.end()) return known->second;
    const Workload part = subgraph(*q_.workload, p);
    std::vector<Part> pieces = cut_contractions(part, false);
    for (Part& piece : pieces) {
      for (OpId& op : piece) op = *q_.workload->find_op(part.op(op).name);
      std::ranges::sort(piece);
    }
    return pieces_[p] = std::move(pieces);
  }

  /// Bytes that must move, however the part is planned.
  double compulsory(const Part& p) {
    const auto [at, is_new] = compulsory_.try_emplace(p, 0.0);
    if (is_new)
      at->second = static_cast<double>(subgraph(*q_.workload, p).compulsory_bytes().value);
    return at->second;
  }

  /// `asked`: other models are asked about the part, where bytes decide and a tree of our own moves
  /// more than must be moved.
  const Candidate* best_of(const Part& p, bool asked = true) {
    const Candidate* best = nullptr;
    if (cost_ == kBytes) {
      search_trees(p, trees_of_each());
      for (Candidate& c : known_[p].all)
        if (cost(c) && c.fits && *c.most[cost_] <= compulsory(p)) asked = false;
    }
    for (Candidate& c : asked || cost_ == kSeconds ? candidates(p) : known_[p].all) {
      const auto its = cost(c);
      if (!its) continue;
      if (best == nullptr || (c.fits && !best->fits) ||
          (c.fits == best->fits && *its < *best->most[cost_]))
        best = &c;
    }
    if (best != nullptr && cost_ == kSeconds && refines_ && !best->refined) {
      std::vector<Candidate*> order;
      for (Candidate& c : candidates(p))
        if (c.most[cost_]) order.push_back(&c);
      std::ranges::stable_sort(order, {}, [](const Candidate* c) { return *c->most[kSeconds]; });
      if (order.size() > kRefined) order.resize(kRefined);
      for (Candidate* c : order) search_tiles(*c);
      return best_of(p);
    }
    return best;
  }

  // ---- bytes ------------------------------------------------------------------------------------

  /// Trees that are counted for each part: fewer where more parts may be looked at.
  int trees_of_each() {
    if (atoms_ == 0) atoms_ = cut_each(*q_.workload).size();
    const std::size_t parts =
        atoms_ <= kEveryPartition ? std::size_t{1} << atoms_ : 2 * q_.workload->operators().size();
    return std::clamp(kTrees / static_cast<int>(parts), kLeastTrees, kMostTrees);
  }

  /// A tree of our own becomes one of the part's candidates.
  void search_trees(const Part& p, int effort) {
    Known& known = known_[p];
    if (known.trees >= effort) return;
    known.trees = effort;
    const auto w = std::make_shared<const Workload>(subgraph(*q_.workload, p));
    auto& [like, kernel] = own_[{signature(*w), effort}];
    if (like == nullptr) like = w, kernel = fewest_bytes(q_, *w, effort, seen_);
    if (!kernel) return;
    Plan plan{.kernels = {Names(*like, *w).rename(*kernel)}};
    const auto s = resolved(plan, w, q_);
    if (!s || (q_.refuses && q_.refuses(*s))) return;
    known.all.push_back({.ops = p,
                         .part = {.part = *w, .plan = std::move(plan), .by = "tilewright"},
                         .workload = w});
  }

  /// In a small workload, the parts of least cost of all there are, where they cost less than
  /// the cuts that are tried in any.
  void with_own_partition(double& least, std::vector<const Candidate*>& best) {
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

  /// More trees of each part that is taken.
  void polish(double& least, std::vector<const Candidate*>& best) {
    if (best.empty()) return;
    const int effort = kTreesOfTaken / static_cast<int>(best.size());
    least = 0;
    for (const Candidate*& c : best) {
      if (*c->most[cost_] > static_cast<double>(c->workload->compulsory_bytes().value))
        search_trees(c->ops, effort);
      c = best_of(c->ops, false);
      least += *c->most[cost_];
    }
  }

  static Part as_one(Part a, const Part& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::ranges::sort(a);
    return a;
  }

  /// The parts with an edge's other choice: two in the place of one, or one in the place of two.
  /// Empty where there is no such plan.
  std::vector<const Candidate*> otherwise(const std::vector<const Candidate*>& best,
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

  static double sum(const std::vector<const Candidate*>& parts, Cost by) {
    double all = 0;
    for (const Candidate* c : parts) all += *c->most[by];
    return all;
  }

  /// The other choice of each edge that costs less: of halves, and of two as one, other models have
  /// been asked, too. False where none does.
  bool changes_edges(double& least, std::vector<const Candidate*>& best) {
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

  /// Other models' plans of the parts that are taken. False: none moves less.
  bool asks_others(double& least, std::vector<const Candidate*>& best) {
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

  /// Seconds of a plan; nothing where it is illegal or does not fit. Searches of tiles meet the
  /// same plans from several beginnings, and a target may walk all of a plan to time it.
  std::optional<double> timed(Plan plan, const std::shared_ptr<const Workload>& w) {
    for (Kernel& k : plan.kernels) k.name.clear(), k.by.clear();
    auto& known = timed_[w];
    const auto at = std::ranges::find(known, plan, &std::pair<Plan, std::optional<double>>::first);
    if (at != known.end()) return at->second;
    std::optional<double> seconds;
    if (resolved(plan, w, q_))
      seconds = clock_ != nullptr ? cost(*clock_, w, plan) : most(plan, w, false);
    known.emplace_back(std::move(plan), seconds);
    return seconds;
  }

  void search_tiles(Candidate& c) {
    c.refined = true;
    const int all = static_cast<int>(q_.workload->operators().size());
    const int tries = std::clamp(kTriesOfAll / std::max(all, 1) / 8, 4, kTries);
    Plan plan = c.part.plan;
    double seconds = *c.most[kSeconds];
    for (std::size_t k = 0; k < plan.kernels.size(); ++k)
      refine(plan, k, seconds, *c.workload, tries,
             [&](const Plan& p) { return seen_.seen(timed(p, c.workload)); });
    if (seconds >= *c.most[kSeconds]) return;
    const auto s = resolved(plan, c.workload, q_);
    if (!s || (q_.refuses && q_.refuses(*s))) return;
    c.part.plan = std::move(plan);
    c.most[kSeconds] = seconds;
  }

  /// What each model proposes of the part. Parts that differ in names alone are asked about once.
  std::deque<Candidate>& candidates(const Part& p) {
    Known& known = known_[p];
    std::deque<Candidate>& all = known.all;
    if (std::exchange(known.asked, true)) return all;
    const auto w = std::make_shared<const Workload>(subgraph(*q_.workload, p));
    const auto [like, first] = shapes_.try_emplace(signature(*w), p);
    const std::deque<Candidate>* others = first ? nullptr : &known_.at(like->second).all;
    Steps asked(static_cast<double>(q_.others.size()));
    for (const Model* m : q_.others) {
      asked.done();
      if (m->propose == nullptr || !worth_asking(*m, *w)) continue;
      if (others == nullptr) {
        ask(*m, p, w, all);
        continue;
      }
      const auto same =
          std::ranges::find(*others, m->name, [](const Candidate& c) { return c.part.by; });
      if (same == others->end()) continue;
      const auto own = rewritten(w, same->part.rewrites);
      const auto names =
          own == nullptr ? std::nullopt : names_alike(same->part.part, *own, same->part.rewrites);
      if (!names) {
        ask(*m, p, w, all);
        continue;
      }
      Candidate c = *same;
      c.ops = p;
      c.workload = own;
      c.part.part = *own;
      for (Kernel& k : c.part.plan.kernels) k = names->rename(std::move(k));
      all.push_back(std::move(c));
    }
    return all;
  }

  static bool worth_asking(const Model& m, const Workload& w) {
    if (m.times || w.operators().size() <= kMostExact || w.loops().size() <= kMostLoops)
      return true;
    std::ptrdiff_t products = 0;
    for (std::size_t i = 0; i < w.operators().size(); ++i) products += w.is_contraction(OpId(i));
    return products < kMostProducts;
  }

  void ask(const Model& m, const Part& p, const std::shared_ptr<const Workload>& w,
           std::deque<Candidate>& all) {
    try {
      const Result<Proposal> proposal = m.propose(question_of(q_, w), standard(m));
      if (!proposal) {
        refused_[m.name] = proposal.reason();
        return;
      }
      ++seen_.generated;
      auto own = rewritten(w, proposal->rewrites);
      if (own == nullptr) return;
      const Result<Schedule> s = resolve(proposal->plan, own, q_.machine);
      if (!s) return;
      if (q_.refuses)
        if (const auto why = q_.refuses(*s)) {
          refused_[m.name] = why->text;
          return;
        }
      ++seen_.priced;
      all.push_back({.ops = p,
                     .part = {.part = *own,
                              .plan = proposal->plan,
                              .rewrites = proposal->rewrites,
                              .by = m.name},
                     .workload = std::move(own)});
    } catch (const InputError& e) {
      refused_[m.name] = e.what();
    }
  }

  std::optional<double> cost(Candidate& c) {
    if (!c.priced[cost_]) {
      c.priced[cost_] = true;
      if (cost_ == kSeconds && clock_ != nullptr)
        return c.most[cost_] = timed(c.part.plan, c.workload);
      if (cost_ == kBytes) c.fits = resolved(c.part.plan, c.workload, q_).has_value();
      // Who makes no plans counts those of anybody: what it says is taken, where there is such a
      // one.
      if (cost_ == kBytes) c.most[cost_] = most(c.part.plan, c.workload, true);
      if (!c.most[cost_]) c.most[cost_] = most(c.part.plan, c.workload, false);
    }
    return c.most[cost_];
  }

  /// Whether plans of few operators differ in how tensors between parts lie: in caches as one of
  /// the parts has them, so that as one they move what no part alone says.
  bool lie_together() const {
    return q_.machine->level(q_.planned_level()).managed == Managed::hardware &&
           q_.workload->operators().size() <= kTakenApart;
  }

  /// What the parts' plans move as one; nothing where they are none.
  std::optional<double> together(const std::vector<const Candidate*>& those) const {
    if (those.size() == 1) return those.front()->most[cost_];
    std::vector<PartPlan> parts;
    for (const Candidate* c : those) parts.push_back(c->part);
    const Result<JoinedPlan> all = join_plans(*q_.workload, parts);
    if (!all) return std::nullopt;
    const auto w = rewritten(q_.workload, all->rewrites);
    if (w == nullptr) return std::nullopt;
    return most(all->plan, w, true);
  }

  /// On caches the plan that moves least as one: of those in `others`, of each model's own of the
  /// whole, and of those that differ from the best in one part or one edge.
  void as_a_whole(double& least, std::vector<const Candidate*>& best,
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

  /// What models say of a plan at most; `counting`: those that make no plans.
  std::optional<double> most(const Plan& plan, const std::shared_ptr<const Workload>& w,
                             bool counting) const {
    std::optional<double> most;
    for (const Model* e : q_.others)
      if (e->times == (cost_ == kSeconds) && e->price != nullptr &&
          (!counting || e->propose == nullptr))
        if (const auto its = cost(*e, w, plan)) most = std::max(most.value_or(0), *its);
    return most;
  }

  std::optional<double> cost(const Model& e, std::shared_ptr<const Workload> w,
                             const Plan& plan) const {
    try {
      const Result<Price> price = e.price(question_of(q_, std::move(w)), plan, standard(e));
      if (!price) return std::nullopt;
      if (cost_ == kSeconds) return price->traffic.seconds;
      const std::string boundary = boundary_into(*q_.machine, q_.planned_level());
      const TrafficEntry all = price->traffic.total(boundary);
      if (std::ranges::none_of(price->traffic.entries,
                               [&](const TrafficEntry& e) { return e.boundary == boundary; }))
        return std::nullopt;
      return static_cast<double>(all.read.value + all.written.value);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  Result<Proposal> joined(const std::vector<const Candidate*>& best, double cost, bool why) {
    std::vector<PartPlan> parts;
    for (const Candidate* c : best) parts.push_back(c->part);
    Result<JoinedPlan> all = join_plans(*q_.workload, parts);
    if (!all) return Reason{all.reason()};
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
                    {"seconds_are",
                     clock_ != nullptr ? "of each part, what the target's time model gives its plan"
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

  /// What the whole moves with either choice of each edge, where parts' sums do not say it.
  void of_the_whole(std::vector<Edge>& edges, const std::vector<const Candidate*>& best,
                    double cost) {
    for (Edge& e : edges) {
      if (!e.note.empty()) continue;
      if (e.fused && e.apart && e.halves.empty()) e.note = "one kernel of a plan of several";
      const std::vector<const Candidate*> those = otherwise(best, e);
      (e.fused ? e.together : e.apart) = cost;
      (e.fused ? e.apart : e.together) = those.empty() ? std::nullopt : together(those);
    }
  }

  /// What a part's plan and the plans of its neighbours as one, or of its halves, cost.
  std::vector<Edge> edges(const std::vector<const Candidate*>& best) {
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

  /// Each reason once. What many models say is of the machine, and comes last.
  std::string refusals() const {
    std::map<std::string, std::vector<std::string>> models;
    for (const auto& [name, reason] : refused_) models[reason].push_back(name);
    std::vector<std::pair<std::string, std::vector<std::string>>> all(models.begin(), models.end());
    std::ranges::stable_sort(
        all, {}, [](const auto& x) { return std::pair(x.second.size(), x.second.front()); });
    std::string text = "no model plans all operators here";
    for (const auto& [reason, names] : all) text += "; " + join(names, ", ") + ": " + reason;
    return text;
  }

  const Question& q_;
  const Model* clock_;     ///< whose seconds alone count; null: nobody's
  bool refines_ = true;    ///< tiles are searched
  std::size_t atoms_ = 0;  ///< what no cut parts; 0: not counted yet
  Cost cost_ = kSeconds;
  Candidates seen_ = {};
  struct Known {
    std::deque<Candidate> all;
    bool asked = false;  ///< others were
    int trees = 0;       ///< of our own, that were counted
  };
  std::map<Part, Known> known_;
  /// By signature and effort: the first such part, and our own kernel of it.
  std::map<std::pair<std::string, int>,
           std::pair<std::shared_ptr<const Workload>, std::optional<Kernel>>>
      own_;
  std::map<Part, std::vector<Part>> pieces_;
  std::map<Part, double> compulsory_;
  /// What plans of a workload take, without names.
  std::map<std::shared_ptr<const Workload>, std::vector<std::pair<Plan, std::optional<double>>>>
      timed_;
  std::map<std::string, Part> shapes_;  ///< the first part of each
  std::map<std::string, std::string> refused_;
};

}  // namespace

Result<Proposal> propose_of_others(const Question& q, const Settings& settings) {
  const auto begun = std::chrono::steady_clock::now();
  Result<Proposal> best = Chooser(q).run(settings.flag("why"));
  if (best) {
    Proposal& p = best.value();
    p.search_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    p.detail["search_seconds"] = *p.search_seconds;
  }
  return best;
}

Result<Proposal> propose_elsewhere(const Question& q, const Settings& settings) {
  if (!has_own_time(q)) return propose_of_others(q, settings);
  Result<Proposal> own = propose_on_gpu(q, settings);
  if (own) return own;
  Result<Proposal> others = propose_of_others(q, settings);
  return others ? others : own;
}

}  // namespace tilewright::quickest
