// Which operators share a kernel: the partition of least predicted seconds.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/plan/join.h"
#include "core/plan/names.h"
#include "models/quickest/quickest.h"
#include "models/quickest/signature.h"
#include "models/stitching/stitching.h"

namespace tilewright::quickest {

/// Parts of a workload of which every partition is considered.
constexpr std::size_t kMostExact = 7;
/// What no plan costs.
constexpr double kNever = std::numeric_limits<double>::infinity();

/// What is known of a group: the best plan of it, and others behind it.
struct Best {
  double seconds = 0;
  std::string by = {};  ///< the model that proposed it; empty: our own search
  Plan plan = {};       ///< of the group's workload, after `rewrites`
  std::vector<std::string> rewrites = {};
  std::vector<KernelTime> times = {};  ///< by kernel, where the machine is a processor
  /// `seconds` are of the one kernel where loops that always go together are one, as programs have
  /// them; the plan is of the loops as they are.
  bool merged = false;
  std::vector<Choice> others = {};  ///< single kernels that may stand in its place, best first
};

/// Finds the best plan of a group; nothing where it has none.
using Finder = std::function<std::optional<Best>(const Group&)>;
/// About what a group takes, infinity where it is no kernel; nothing where the Finder alone knows.
using Rough = std::function<std::optional<double>(const Part&)>;
/// Whether an operator is a product that has a kernel's form of its own. Contractions that are none
/// are joined as other operators are.
using IsProduct = std::function<bool(OpId)>;

struct Edge {
  TensorId tensor;
  OpId from, to;
  bool fused = false;
  std::optional<double> together = {};  ///< seconds of the two kernels' operators as one
  std::optional<double> apart = {};     ///< as two
  std::string note = {};          ///< instead of these, where the plan is of more than a kernel
  std::vector<Part> halves = {};  ///< of a group that is one kernel: what `apart` is of
};

struct Partition {
  std::vector<Group> groups;
  std::vector<Best> best;  ///< by group
  double seconds = 0;
  bool exact = false;      ///< every partition was considered
  std::size_t priced = 0;  ///< groups that a plan was looked for
};

/// Of what the rewrites have made of two parts of one signature; nothing where that differs.
std::optional<Names> names_alike(const Workload& from, const Workload& to,
                                 const std::vector<std::string>& rewrites);

/// Groups of equal structure are looked up once.
class Partitioner {
 public:
  /// `product`: by default, every contraction is one. `once`: by OpId, what is computed before all
  /// runs where a part has nothing else: such a part takes no time; empty: nothing is.
  Partitioner(std::shared_ptr<const Workload> w, Finder find, Rough rough = {},
              IsProduct product = {}, std::vector<bool> once = {});

  /// A Reason where an operator has no plan at all. Every partition into connected parts where
  /// there are few operators, with what reads inputs alone together or not; else parts are joined
  /// along the edge that gains most, as long as one gains, and what contractions and what lies
  /// between them would be together is tried. Where there is a Rough, it says what gains, and what
  /// it was wrong about is taken apart again; parts that read the same tensor count as connected
  /// then, contractions aside. `pair`: two operators, one after the other, that begin as one part
  /// with what lies between them.
  Result<Partition> run(const Question& q, const Part& pair = {});
  /// Of every tensor between operators: whether they share a kernel, and what the other choice
  /// would cost; in large workloads not of all.
  std::vector<Edge> edges(const Partition& p);
  const Workload& workload() const { return *w_; }

 private:
  const Best* best_of(const Part& ops);
  double seconds(const Part& ops);  ///< infinity where there is no plan
  double about(const Part& ops);    ///< the same, by Rough where it knows
  bool runs_once(const Part& ops) const;
  bool small(const Part& ops) const;
  bool may_join(const Part& ops) const;
  bool connected(const Part& ops) const;
  bool share_launch(const Part& ops) const;
  bool acyclic(const std::vector<Part>& parts) const;
  Part joined(const Part& a, const Part& b) const;
  std::vector<Part> all_partitions_best(const std::vector<Part>& atoms);
  std::vector<Part> grown(std::vector<Part> parts, const std::set<Part>* loose = nullptr);
  void with_pairs(std::vector<Part>& parts);
  void begin_with(const Part& pair, std::vector<Part>& parts) const;
  std::vector<Part> settled(const Part& part);
  std::vector<Part> polished(std::vector<Part> parts);
  bool replaces(std::vector<Part>& parts, std::size_t a, std::size_t b, std::vector<Part> by);
  std::size_t most_rejoined() const;
  Part needed(const Part& part, OpId op) const;
  std::optional<Best> renamed(const Best& known, const std::shared_ptr<const Workload>& like,
                              const std::shared_ptr<const Workload>& now) const;

  std::shared_ptr<const Workload> w_;
  Finder find_;
  Rough rough_;
  IsProduct product_;
  std::vector<bool> once_;
  std::map<Part, double> rough_known_;
  struct Halves {
    Part first, second;
    bool handed_on;  ///< from one to the other; else both read the same
  };
  std::map<Part, Halves> halves_;  ///< what a part was joined of
  std::map<Part, std::optional<Best>> known_;
  std::map<std::string, std::pair<std::shared_ptr<const Workload>, std::optional<Best>>> shapes_;
  std::size_t priced_ = 0;
  std::size_t most_priced_ = std::numeric_limits<std::size_t>::max();  ///< no more is looked for
  bool left_out_ = false;  ///< a group was not looked for, as there were too many
};

// ---- joined.cpp -----------------------------------------------------------------------------

/// Why the plainest kernel of the operators, which iterates over their loops one by one, is none:
/// a sentence for a part that no kernel was found for. Empty where it is legal and is taken.
std::string why_none(const std::shared_ptr<const Workload>& part, const Question& q);

/// Nothing where the plan is none of the workload, or illegal.
std::optional<Schedule> legal(const Plan& plan, std::shared_ptr<const Workload> w,
                              const Question& q);
/// The same, and nothing where it does not fit. Cost: a walk of the plan.
std::optional<Schedule> resolved(const Plan& plan, std::shared_ptr<const Workload> w,
                                 const Question& q);
/// The workload after rewrites; nothing where one does not apply.
std::shared_ptr<const Workload> rewritten(std::shared_ptr<const Workload> w,
                                          const std::vector<std::string>& names);
/// The parts' plans as one, without its price. A Reason where they cannot be joined.
Result<Proposal> joined_proposal(const Question& q, const Partition& found);
/// Operators of `whole` in the kernel of the plan, which is of `w`, that has both ends of the edge.
/// Empty: no kernel has both. Nothing where a rewrite has made other operators of them.
std::optional<Part> kernel_with(const Plan& plan, const Workload& w, const Workload& whole,
                                const Edge& e);
/// Of each edge whether it is fused, what either choice costs in the unit ("seconds" or "bytes"),
/// and a sentence of both.
nlohmann::ordered_json edges_json(const Workload& w, const std::vector<Edge>& edges,
                                  const std::string& unit);
/// How the partition was found and, asked why, of each edge what the other choice would cost.
void describe(Partitioner& partitioner, const Partition& found, bool why,
              nlohmann::ordered_json& detail);

// ---- wholes.cpp -----------------------------------------------------------------------------

/// The option by which the workload is planned as it is.
inline constexpr const char* kAsWritten = "as-written";
inline constexpr const char* kMatrices = "materialise-matrices:";

/// What was found for groups, by all that it depends on: rewrites of the whole workload leave most
/// of its groups as they are.
class KnownGroups {
 public:
  /// What `search` found of the group, now or before. `under`: what it depends on beside the group.
  std::optional<Best> find(const std::string& under, const Group& group,
                           const std::function<std::optional<Best>()>& search);
  std::size_t size() const { return groups_.size(); }
  Candidates seen = {};

 private:
  std::map<std::string, std::optional<Best>> groups_ = {};
};

/// A plan of the workload after rewrites of the whole.
struct Planned {
  Proposal proposal;                     ///< its rewrites: of the whole first, then of parts
  stitching::Composition composed = {};  ///< the workload that was planned
  std::vector<Part> groups = {};         ///< of its operators
  std::vector<double> took = {};         ///< seconds, by group
  double seconds() const;                ///< infinity where nobody says
};

/// The quickest plan over rewrites of the whole: as the workload is, with products that read a
/// plain matrix where they look rows up, and what else is tried. `plan`: what it makes of one of
/// them.
class Wholes {
 public:
  using Tried = std::function<bool(const stitching::Composition&)>;
  using Plan = std::function<Result<Planned>(const stitching::Composition&)>;
  /// `rewrites`: false for the workload as it is alone.
  Wholes(std::shared_ptr<const Workload> w, Plan plan, bool rewrites = true);
  /// What `plan` makes of it, with its rewrites.
  Result<Planned> planned(const stitching::Composition& c) const;
  /// Keeps it where it takes less than this part of the seconds of the quickest before, and says
  /// whether it does.
  bool takes(Result<Planned> other, double part = 1);
  /// The same of what `c` changes: its groups alone must take less than this part.
  bool tries(const stitching::Composition& c, double part = 1);
  /// Keeps the quickest that `tries` finds where it takes less than this part of the seconds of the
  /// quickest before. `tries` is given what says whether a plan is quicker than its others.
  void takes_best_of(const std::function<void(const Tried&)>& tries, double part);
  const Result<Planned>& best() const { return best_; }
  /// Products that are none of matrices with copies that are (that rewrite), by try_names: those
  /// that read through windows, convolutions whose patches are no more than their weights, or the
  /// others. `beside`: a rewrite that is tried with these, too, where they alone gain too little.
  void try_matrices(bool windows, bool fewer, const std::string& beside = "");
  /// Of the quickest so far, functions of elements that fewer loops move as operators of their own.
  void try_hoisting();
  /// Of the quickest so far, small operands from copies that lie along results' rows.
  void try_rows();
  /// With the time that the search took.
  Result<Proposal> proposal() &&;
  /// Plans the workload `from` after the rewrite PREFIX:NAME;NAME as well: of all names, and with
  /// `fewer` then of fewer for as long as `tried` says that this gains.
  static void try_names(const stitching::Composition& from, const std::string& prefix,
                        std::vector<std::string> names, bool fewer, const Tried& tried);

 private:
  /// Of the quickest's seconds, the share of those groups that the other plan does not have.
  double changed(const Planned& other) const;

  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::shared_ptr<const Workload> w_;
  Plan plan_;
  Result<Planned> best_;
};

}  // namespace tilewright::quickest
