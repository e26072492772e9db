// Plans put together of what others propose of parts, and of trees of our own. Internal header of
// the folder.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/quickest/merged_part.h"
#include "models/quickest/model.h"
#include "models/quickest/partition.h"

namespace tilewright::quickest {

/// What decides between plans: seconds, or bytes into the planned level.
enum Cost { kSeconds, kBytes };

struct Candidate {
  Part ops;  ///< of the whole
  PartPlan part;
  std::shared_ptr<const Workload> workload;     ///< of `part`
  std::array<std::optional<double>, 2> most{};  ///< by Cost: what a model gives it at most
  std::array<bool, 2> priced{};                 ///< by Cost
  bool refined = false;                         ///< its tiles have been searched
  bool asked = false;                           ///< the target was, whether it takes the plan
  bool fits = true;                             ///< what it holds
  std::shared_ptr<const MergedPart> merged;     ///< over whose loops it was proposed; else null
  Plan over_merged = {};                        ///< the plan over these
};

/// Operators up to which every partition is considered.
constexpr std::size_t kEveryPartition = 6;
/// Operators up to which the other choice of each edge is tried: by bytes more, as no tiles are
/// searched.
constexpr std::size_t kTakenApart = 12, kTakenApartByBytes = 40;
/// Trees of our own that are counted for the parts of the plan that is taken, together.
constexpr int kTreesOfTaken = 1600;
/// Steps (Price::steps) of all searches of tiles of a question.
constexpr std::int64_t kSteps = 12'000'000;
/// Of all plans with larger tiles than were proposed, where a part has no other plan, and of those
/// with smaller ones.
constexpr std::int64_t kLargerSteps = 3'000'000;

/// What a plan takes.
struct Timed {
  Plan plan = {};                      ///< without names
  std::optional<double> seconds = {};  ///< none: illegal, does not fit, or longer than most_steps
  std::int64_t most_steps = -1;        ///< Question::most_steps that it was timed with
  std::int64_t steps = 0;              ///< that the price took
};

/// What the target's time model has said of plans of equal workloads: a workload and what rewrites
/// make of it have most of their parts in common.
class KnownTimes {
 public:
  /// The plan's, or a new one. Cost: all workloads that are known, and all plans of that.
  Timed& of(const Workload& w, const Plan& plan) {
    auto at = std::ranges::find_if(all_, [&](const auto& known) { return *known.first == w; });
    if (at == all_.end())
      at = all_.insert(at, {std::make_shared<const Workload>(w), std::deque<Timed>()});
    auto known = std::ranges::find(at->second, plan, &Timed::plan);
    if (known == at->second.end()) known = at->second.insert(known, {.plan = plan});
    return *known;
  }

 private:
  std::deque<std::pair<std::shared_ptr<const Workload>, std::deque<Timed>>> all_;
};

/// The plan of one question: run() once.
class Chooser {
 public:
  Chooser(const Question& q, KnownTimes& times) : q_(q), times_(times), clock_(target_time(q)) {}
  Result<Proposal> run(bool why);
  /// Rewrites of the parts that run() took, where the whole with all of them does not have the
  /// parts any more.
  const std::vector<std::string>& apart() const { return apart_; }

 private:
  // ---- elsewhere.cpp: parts put together
  bool has_plan(const std::vector<Part>& parts);
  /// The part as one, or as its contractions apart from the rest.
  double cheapest(const Part& p, std::vector<const Candidate*>& chosen);
  /// In a small workload, the parts of least cost of all there are, where they cost less than
  /// the cuts that are tried in any.
  void with_own_partition(double& least, std::vector<const Candidate*>& best);
  Result<Proposal> joined(const std::vector<const Candidate*>& best, double cost, bool why);
  /// Each reason once. What many models say is of the machine, and comes last.
  std::string refusals() const;

  // ---- chooser_parts.cpp: plans of a part, and what they cost
  struct Known {
    std::deque<Candidate> all;
    bool asked = false;  ///< others were
    bool timed = false;  ///< by the target's time model
    int trees = 0;       ///< of our own, that were counted
  };
  const std::vector<Part>& pieces_of(const Part& p);
  /// Bytes that must move, however the part is planned.
  double compulsory(const Part& p);
  /// `asked`: other models are asked about the part, where bytes decide and a tree of our own moves
  /// more than must be moved.
  const Candidate* best_of(const Part& p, bool asked = true);
  /// Trees that are counted for each part: fewer where more parts may be looked at.
  int trees_of_each();
  /// A tree of our own becomes one of the part's candidates.
  void search_trees(const Part& p, int effort);
  /// More trees of each part that is taken.
  void polish(double& least, std::vector<const Candidate*>& best);
  /// All candidates, by the target's time model: where one has a time in few steps, those that take
  /// many are left out.
  void time_all(Known& known);
  /// Of one operator of many loops, of which others have small tiles: the fastest of
  /// blocks_of_result. With more than few steps, of any operator, the first that has a time.
  void add_blocks(Known& known, std::int64_t most_steps);
  /// Whether the target does not take the plan. It costs nothing then, that is, it has no price.
  bool refused(Candidate& c);
  /// Searches of tiles meet the same plans from several beginnings, and a target may walk all of a
  /// plan to time it: each is timed once.
  const Timed& timed(Plan plan, const std::shared_ptr<const Workload>& w,
                     std::int64_t most_steps = std::numeric_limits<std::int64_t>::max());
  /// Searches a kernel's tiles: of a plan, the kernel's number, the plan's seconds.
  using Tiles =
      std::function<void(Plan&, std::size_t, double&, const std::shared_ptr<const Workload>&)>;
  /// The kernel after a search of it alone, once for all kernels that differ in names alone: a
  /// plan's seconds are about the sum of its kernels', and many plans have the same kernel. Nothing
  /// where it is no workload of its own, or has no time alone.
  std::optional<Kernel> with_tiles(const Kernel& kernel, const std::shared_ptr<const Workload>& w,
                                   const Tiles& search);
  void search_tiles(Candidate& c);
  /// What each model proposes of the part. Parts that differ in names alone are asked about once.
  std::deque<Candidate>& candidates(const Part& p);
  static bool worth_asking(const Model& m, const Workload& w);
  void ask(const Model& m, const Part& p, const std::shared_ptr<const Workload>& w,
           std::deque<Candidate>& all);
  /// The same over the part's merged loops, where the target times plans. False: no plan of these
  /// has a time.
  bool ask_merged(const Model& m, const Part& p, const std::shared_ptr<const Workload>& w,
                  const std::shared_ptr<const MergedPart>& merged, std::deque<Candidate>& all);
  std::optional<double> cost(Candidate& c);
  /// What models say of a plan at most; `counting`: those that make no plans.
  std::optional<double> most(const Plan& plan, const std::shared_ptr<const Workload>& w,
                             bool counting);
  /// By the target's time model, which is asked once; the steps count each time.
  std::optional<double> by_clock(const std::shared_ptr<const Workload>& w, const Plan& plan,
                                 std::int64_t most_steps);
  std::optional<double> cost(const Model& e, std::shared_ptr<const Workload> w, const Plan& plan,
                             std::int64_t most_steps = std::numeric_limits<std::int64_t>::max());

  // ---- chooser_edges.cpp: the other choice of each edge
  static Part as_one(Part a, const Part& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::ranges::sort(a);
    return a;
  }
  /// The parts with an edge's other choice: two in the place of one, or one in the place of two.
  /// Empty where there is no such plan.
  std::vector<const Candidate*> otherwise(const std::vector<const Candidate*>& best, const Edge& e);
  static double sum(const std::vector<const Candidate*>& parts, Cost by) {
    double all = 0;
    for (const Candidate* c : parts) all += *c->most[by];
    return all;
  }
  /// The other choice of each edge that costs less: of halves, and of two as one, other models have
  /// been asked, too. False where none does.
  bool changes_edges(double& least, std::vector<const Candidate*>& best);
  /// Other models' plans of the parts that are taken. False: none moves less.
  bool asks_others(double& least, std::vector<const Candidate*>& best);
  /// Whether plans of few operators differ in how tensors between parts lie: in caches as one of
  /// the parts has them, so that as one they move what no part alone says.
  bool lie_together() const;
  /// What the parts' plans move as one; nothing where they are none.
  std::optional<double> together(const std::vector<const Candidate*>& those);
  /// On caches the plan that moves least as one: of those in `others`, of each model's own of the
  /// whole, and of those that differ from the best in one part or one edge.
  void as_a_whole(double& least, std::vector<const Candidate*>& best,
                  std::vector<std::vector<const Candidate*>>& others, const Part& whole);
  /// What the whole moves with either choice of each edge, where parts' sums do not say it.
  void of_the_whole(std::vector<Edge>& edges, const std::vector<const Candidate*>& best,
                    double cost);
  /// What a part's plan and the plans of its neighbours as one, or of its halves, cost.
  std::vector<Edge> edges(const std::vector<const Candidate*>& best);

  const Question& q_;
  KnownTimes& times_;
  const Model* clock_;     ///< whose seconds alone count; null: nobody's
  bool refines_ = true;    ///< tiles are searched
  std::size_t atoms_ = 0;  ///< what no cut parts; 0: not counted yet
  /// Steps of all prices so far, and those that searches of tiles may still take.
  std::int64_t walked_ = 0, left_ = kSteps, larger_ = kLargerSteps, smaller_ = kLargerSteps;
  Cost cost_ = kSeconds;
  Candidates seen_ = {};
  std::map<Part, Known> known_;
  /// By signature and effort: the first such part, and our own kernel of it.
  std::map<std::pair<std::string, int>,
           std::pair<std::shared_ptr<const Workload>, std::optional<Kernel>>>
      own_;
  std::map<Part, std::vector<Part>> pieces_;
  std::map<Part, double> compulsory_;
  /// What plans of a workload take, without names.
  std::map<std::shared_ptr<const Workload>, std::deque<Timed>> timed_;
  /// Kernels' operators without names, and by NamelessKernel::key what searches found of each.
  std::vector<std::shared_ptr<const Workload>> alone_;
  std::map<std::string, std::optional<Kernel>> searched_;
  std::map<std::string, Part> shapes_;  ///< the first part of each
  std::map<std::string, std::string> refused_;
  std::vector<std::string> apart_;
};

}  // namespace tilewright::quickest
