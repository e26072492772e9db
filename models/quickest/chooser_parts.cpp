// The plans of a part: those that others propose, and trees of our own, with what each costs.
#include <algorithm>
#include <cmath>

#include "core/base/progress.h"
#include "core/plan/names.h"
#include "core/workload/cut.h"
#include "core/workload/subgraph.h"
#include "models/quickest/chooser.h"
#include "models/quickest/fewest.h"
#include "models/quickest/refine.h"

namespace tilewright::quickest {
namespace {

/// Models of bytes rank orders of loops. They are not asked about a part of more than kMostExact
/// operators with more loops than this, 8! orders, and as many products: that takes seconds.
constexpr std::size_t kMostLoops = 8;
constexpr std::ptrdiff_t kMostProducts = 3;
/// Of each part, by time: proposals whose tiles are searched, and plans tried for each
/// of their kernels; fewer of each where there are many operators.
constexpr std::size_t kRefined = 3;
constexpr int kTries = 96, kTriesOfAll = 2000;
/// Of what is left of the steps (Price::steps) for searches of tiles, one kernel may take this
/// part.
constexpr std::int64_t kShare = 8;
/// Where a plan of a part has no more steps than this, plans that have more are not timed.
constexpr std::int64_t kFewSteps = 100'000;
/// Where none has so few, blocks of one operator's result have at most so many.
constexpr std::int64_t kManySteps = 400'000;
/// Of fewest bytes: trees of our own that are counted for all parts together, of a part at least
/// and at most.
constexpr int kTrees = 4000, kLeastTrees = 40, kMostTrees = 600;

Question question_of(const Question& q, std::shared_ptr<const Workload> w) {
  Question of = q.to_other();
  of.workload = std::move(w);
  return of;
}

}  // namespace

const std::vector<Part>& Chooser::pieces_of(const Part& p) {
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

double Chooser::compulsory(const Part& p) {
  const auto [at, is_new] = compulsory_.try_emplace(p, 0.0);
  if (is_new) at->second = static_cast<double>(subgraph(*q_.workload, p).compulsory_bytes().value);
  return at->second;
}

const Candidate* Chooser::best_of(const Part& p, bool asked) {
  Candidate* best = nullptr;
  if (cost_ == kBytes) {
    search_trees(p, trees_of_each());
    for (Candidate& c : known_[p].all)
      if (cost(c) && c.fits && *c.most[cost_] <= compulsory(p)) asked = false;
  }
  if (cost_ == kSeconds && clock_ != nullptr) candidates(p), time_all(known_[p]);
  for (Candidate& c : asked || cost_ == kSeconds ? candidates(p) : known_[p].all) {
    const auto its = cost(c);
    if (!its) continue;
    if (best == nullptr || (c.fits && !best->fits) ||
        (c.fits == best->fits && *its < *best->most[cost_]))
      best = &c;
  }
  if (best != nullptr && refused(*best)) return best_of(p, asked);
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

int Chooser::trees_of_each() {
  if (atoms_ == 0) atoms_ = cut_each(*q_.workload).size();
  const std::size_t parts =
      atoms_ <= kEveryPartition ? std::size_t{1} << atoms_ : 2 * q_.workload->operators().size();
  return std::clamp(kTrees / static_cast<int>(parts), kLeastTrees, kMostTrees);
}

void Chooser::search_trees(const Part& p, int effort) {
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
  known.all.push_back(
      {.ops = p, .part = {.part = *w, .plan = std::move(plan), .by = "tilewright"}, .workload = w});
}

void Chooser::polish(double& least, std::vector<const Candidate*>& best) {
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

const Timed& Chooser::timed(Plan plan, const std::shared_ptr<const Workload>& w,
                            std::int64_t most_steps) {
  for (Kernel& k : plan.kernels) k.name.clear(), k.by.clear();
  auto& known = timed_[w];
  auto at = std::ranges::find(known, plan, &Timed::plan);
  if (at == known.end()) at = known.insert(at, {.plan = std::move(plan)});
  if (at->seconds || at->most_steps >= most_steps) return *at;
  at->most_steps = most_steps;
  const std::int64_t before = walked_;
  if (resolved(at->plan, w, q_))
    at->seconds = clock_ != nullptr ? by_clock(w, at->plan, most_steps) : most(at->plan, w, false);
  at->steps = walked_ - before;
  return *at;
}

std::optional<double> Chooser::by_clock(const std::shared_ptr<const Workload>& w, const Plan& plan,
                                        std::int64_t most_steps) {
  Timed& known = times_.of(*w, plan);
  if (known.most_steps == most_steps) {
    walked_ += known.steps;
    return known.seconds;
  }
  const std::int64_t before = walked_;
  known.seconds = cost(*clock_, w, plan, most_steps);
  known.steps = walked_ - before;
  known.most_steps = most_steps;
  return known.seconds;
}

void Chooser::time_all(Known& known) {
  if (std::exchange(known.timed, true)) return;
  const auto any = [&] {
    return std::ranges::any_of(known.all,
                               [](const Candidate& c) { return c.most[kSeconds].has_value(); });
  };
  for (Candidate& c : known.all)
    c.most[kSeconds] = timed(c.part.plan, c.workload, kFewSteps).seconds;
  add_blocks(known, kFewSteps);
  if (!any()) add_blocks(known, kManySteps);
  if (any()) return;
  for (const auto& others : {coarser, finer})
    for (Candidate& c : known.all) {
      if (others == finer && any()) return;
      for (const Plan& other : others(c.part.plan, *c.workload)) {
        std::int64_t& left = others == coarser ? larger_ : smaller_;
        if (left <= 0) break;
        const std::int64_t before = walked_;
        const std::optional<double> its = timed(other, c.workload, kFewSteps).seconds;
        left -= its ? walked_ - before : kFewSteps;
        if (!its || (c.most[kSeconds] && *its >= *c.most[kSeconds])) {
          if (c.most[kSeconds]) break;
          continue;
        }
        c.part.plan = other, c.most[kSeconds] = its, c.asked = false;
      }
    }
  if (any()) return;
  for (Candidate& c : known.all)
    if (!refused(c)) c.most[kSeconds] = timed(c.part.plan, c.workload).seconds;
}

void Chooser::add_blocks(Known& known, std::int64_t most_steps) {
  constexpr std::size_t kMany = 3;
  if (known.all.empty() || known.all.front().workload->operators().size() != 1 ||
      (known.all.front().workload->loops().size() <= kMany && most_steps <= kFewSteps))
    return;
  Candidate blocks = known.all.front();
  blocks.merged = nullptr, blocks.asked = false, blocks.refined = false;
  blocks.part.by = "tilewright";
  blocks.most[kSeconds].reset();
  for (Plan& plan : blocks_of_result(known.all.front().part.plan, *blocks.workload)) {
    const auto its = timed(plan, blocks.workload, most_steps).seconds;
    if (its && (!blocks.most[kSeconds] || *its < *blocks.most[kSeconds]))
      blocks.part.plan = std::move(plan), blocks.most[kSeconds] = its;
    if (its && most_steps > kFewSteps) break;
  }
  if (blocks.most[kSeconds]) known.all.push_back(std::move(blocks));
}

/// To find out may take a target as long as to emit the plan: of larger tiles it is asked where
/// they are taken.
bool Chooser::refused(Candidate& c) {
  if (clock_ == nullptr || std::exchange(c.asked, true) || !q_.refuses) return false;
  const auto s = resolved(c.part.plan, c.workload, q_);
  const auto why = s ? q_.refuses(*s) : std::nullopt;
  if (!why) return false;
  refused_[c.part.by] = why->text;
  c.most = {}, c.priced = {true, true};
  return true;
}

std::optional<Kernel> Chooser::with_tiles(const Kernel& kernel,
                                          const std::shared_ptr<const Workload>& w,
                                          const Tiles& search) {
  if (no_subgraph(*w, operators_of(kernel, *w))) return std::nullopt;
  const NamelessKernel own = nameless(kernel, *w);
  const auto named = [&](Kernel k, const Workload& from, const Workload& to) {
    k = Names(from, to).rename(std::move(k));
    k.name = kernel.name, k.by = kernel.by;
    return k;
  };
  auto [at, is_new] = searched_.try_emplace(own.key);
  if (is_new) {
    // What is timed already stays as it is.
    const bool whole = own.operators.size() == w->operators().size();
    const auto known =
        std::ranges::find_if(alone_, [&](const auto& other) { return *other == *own.workload; });
    const auto one = whole ? w : known != alone_.end() ? *known : alone_.emplace_back(own.workload);
    Plan plan{.kernels = {whole ? kernel : own.kernel}};
    if (auto seconds = timed(plan, one).seconds) {
      search(plan, 0, *seconds, one);
      Kernel& found = plan.kernels.front();
      at->second = whole ? named(std::move(found), own.part, *own.workload) : std::move(found);
    }
  }
  if (!at->second) return std::nullopt;
  return named(*at->second, *own.workload, own.part);
}

void Chooser::search_tiles(Candidate& c) {
  c.refined = true;
  if (!resolved(c.part.plan, c.workload, q_)) return;
  const int all = static_cast<int>(q_.workload->operators().size());
  const int tries = std::clamp(kTriesOfAll / std::max(all, 1) / 8, 4, kTries);
  const Tiles search = [&](Plan& plan, std::size_t k, double& seconds,
                           const std::shared_ptr<const Workload>& w) {
    // Longer programs are seldom faster.
    std::int64_t most = std::max(kFewSteps / 4, 2 * timed(plan, w, kFewSteps).steps);
    std::int64_t left = left_ / kShare;
    refine(plan, k, seconds, *w, tries, [&](const Plan& p) -> std::optional<double> {
      if (left <= 0) return std::nullopt;
      const std::int64_t before = walked_;
      const Timed& its = timed(p, w, most);
      const std::int64_t took = its.seconds ? walked_ - before : most;
      left -= took, left_ -= took;
      if (its.seconds && *its.seconds < seconds) most = std::max(kFewSteps / 4, 2 * its.steps);
      return seen_.seen(its.seconds);
    });
  };
  const auto searched = [&](Plan plan, const std::shared_ptr<const Workload>& w, double& seconds) {
    for (std::size_t k = 0; k < plan.kernels.size(); ++k)
      if (auto found = with_tiles(plan.kernels[k], w, search)) {
        plan.kernels[k] = std::move(*found);
      } else {
        seconds = timed(plan, w).seconds.value_or(seconds);
        search(plan, k, seconds, w);
      }
    return plan;
  };
  double seconds = *c.most[kSeconds];
  Plan plan = c.part.plan;
  if (c.merged != nullptr) {
    const Plan over = searched(c.over_merged, c.merged->workload(), seconds);
    plan = c.merged->split(over).value_or(plan);
    // Tiles of a merged loop may be no run of the part's own loops, and others are no run of it.
    seconds = timed(plan, c.workload).seconds.value_or(HUGE_VAL);
  }
  plan = searched(plan, c.workload, seconds);
  if (plan == c.part.plan) return;
  const auto its = timed(plan, c.workload).seconds;
  if (!its || *its >= *c.most[kSeconds]) return;
  const auto s = resolved(plan, c.workload, q_);
  if (!s || (q_.refuses && q_.refuses(*s))) return;
  c.part.plan = std::move(plan);
  c.most[kSeconds] = its;
  c.asked = true;
}

std::deque<Candidate>& Chooser::candidates(const Part& p) {
  Known& known = known_[p];
  std::deque<Candidate>& all = known.all;
  if (std::exchange(known.asked, true)) return all;
  const auto w = std::make_shared<const Workload>(subgraph(*q_.workload, p));
  const auto [like, first] = shapes_.try_emplace(signature(*w), p);
  const Known* const alike = first ? nullptr : &known_.at(like->second);
  const std::deque<Candidate>* others = first ? nullptr : &alike->all;
  bool copied = !first;
  Steps asked(static_cast<double>(q_.others.size()));
  std::shared_ptr<const MergedPart> merged;
  if (clock_ != nullptr)
    if (auto found = MergedPart::of(*w))
      merged = std::make_shared<const MergedPart>(std::move(*found));
  const auto copy_of = [&](std::string_view by) {
    const auto same = std::ranges::find(*others, by, [](const Candidate& c) { return c.part.by; });
    if (same == others->end()) return true;
    const auto own = rewritten(w, same->part.rewrites);
    const auto names =
        own == nullptr ? std::nullopt : names_alike(same->part.part, *own, same->part.rewrites);
    if (!names) return false;
    Candidate c = *same;
    c.ops = p;
    c.workload = own;
    c.part.part = *own;
    for (Kernel& k : c.part.plan.kernels) k = names->rename(std::move(k));
    if (c.merged != nullptr) {
      const Names over(*c.merged->workload(), *merged->workload());
      for (Kernel& k : c.over_merged.kernels) k = over.rename(std::move(k));
      c.merged = merged;
    }
    all.push_back(std::move(c));
    return true;
  };
  for (const Model* m : q_.others) {
    asked.done();
    if (m->propose == nullptr || !worth_asking(*m, *w)) continue;
    if (others == nullptr) {
      if (merged == nullptr || !ask_merged(*m, p, w, merged, all)) ask(*m, p, w, all);
    } else if (!copy_of(m->name)) {
      copied = false;
      ask(*m, p, w, all);
    }
  }
  if (others != nullptr && clock_ != nullptr) copied = copy_of("tilewright") && copied;
  known.timed = copied && alike->timed;
  return all;
}

bool Chooser::worth_asking(const Model& m, const Workload& w) {
  if (m.times || w.operators().size() <= kMostExact || w.loops().size() <= kMostLoops) return true;
  std::ptrdiff_t products = 0;
  for (std::size_t i = 0; i < w.operators().size(); ++i) products += w.is_contraction(OpId(i));
  return products < kMostProducts;
}

void Chooser::ask(const Model& m, const Part& p, const std::shared_ptr<const Workload>& w,
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
    // Where the target itself times plans, one operator's may be taken with larger tiles: then the
    // target is asked by refused().
    const bool later = clock_ != nullptr && p.size() == 1;
    if (q_.refuses && !later)
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
                   .workload = std::move(own),
                   .asked = !later});
  } catch (const InputError& e) {
    refused_[m.name] = e.what();
  }
}

bool Chooser::ask_merged(const Model& m, const Part& p, const std::shared_ptr<const Workload>& w,
                         const std::shared_ptr<const MergedPart>& merged,
                         std::deque<Candidate>& all) {
  try {
    if (!worth_asking(m, *merged->workload())) return false;
    Result<Proposal> proposal = m.propose(question_of(q_, merged->workload()), standard(m));
    if (!proposal || !proposal->rewrites.empty()) return false;
    std::optional<Plan> plan = merged->split(proposal->plan);
    if (!plan) return false;
    const auto s = resolved(*plan, w, q_);
    if (!s || (q_.refuses && q_.refuses(*s))) return false;
    ++seen_.generated, ++seen_.priced;
    all.push_back({.ops = p,
                   .part = {.part = *w, .plan = std::move(*plan), .by = m.name},
                   .workload = w,
                   .asked = true,
                   .merged = merged,
                   .over_merged = std::move(proposal.value().plan)});
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::optional<double> Chooser::cost(Candidate& c) {
  if (cost_ == kSeconds && clock_ != nullptr) return c.most[cost_];  // by time_all()
  if (!c.priced[cost_]) {
    c.priced[cost_] = true;
    if (cost_ == kBytes) c.fits = resolved(c.part.plan, c.workload, q_).has_value();
    // Who makes no plans counts those of anybody: what it says is taken, where there is such a
    // one.
    if (cost_ == kBytes) c.most[cost_] = most(c.part.plan, c.workload, true);
    if (!c.most[cost_]) c.most[cost_] = most(c.part.plan, c.workload, false);
  }
  return c.most[cost_];
}

std::optional<double> Chooser::most(const Plan& plan, const std::shared_ptr<const Workload>& w,
                                    bool counting) {
  std::optional<double> most;
  for (const Model* e : q_.others)
    if (e->times == (cost_ == kSeconds) && e->price != nullptr &&
        (!counting || e->propose == nullptr))
      if (const auto its = cost(*e, w, plan)) most = std::max(most.value_or(0), *its);
  return most;
}

std::optional<double> Chooser::cost(const Model& e, std::shared_ptr<const Workload> w,
                                    const Plan& plan, std::int64_t most_steps) {
  try {
    Question q = question_of(q_, std::move(w));
    q.most_steps = most_steps;
    const Result<Price> price = e.price(q, plan, standard(e));
    if (!price) return std::nullopt;
    walked_ += price->steps;
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

}  // namespace tilewright::quickest
