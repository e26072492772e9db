// FusionStitching (Zheng et al., arXiv:2009.10924): which memory-intensive operators of a graph to
// fuse into one kernel (the fusion explorer, section 5), and how to stitch them (the code
// generator's search, section 4). Predictions only: nothing here runs or counts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/stitching/stitching.h"

namespace tilewright::fusionstitching {

using namespace stitching;
using stitching::name_of;  // beside those below

/// Where section 5 and 4.3 leave something open, an option; each with its default.
enum class LastStep : std::uint8_t { unite, select };     ///< PatternReduction's: see explore()
enum class Penalty : std::uint8_t { difference, whole };  ///< T_penalty: see Evaluator
enum class Pick : std::uint8_t { latency, score };        ///< what decides between the beam's plans
std::string_view name_of(LastStep s);
std::string_view name_of(Penalty p);
std::string_view name_of(Pick p);
std::optional<LastStep> last_step_from_name(std::string_view name);
std::optional<Penalty> penalty_from_name(std::string_view name);
std::optional<Pick> pick_from_name(std::string_view name);

struct Options : stitching::Options {
  int top_k = 3;  ///< candidate patterns kept a vertex (section 5.2)
  int group = 2;  ///< consumers whose combinations are enumerated (section 5.2)
  int beam = 8;   ///< buffer sets (section 5.3 has three; what is picked from them is by time)
  LastStep last_step = LastStep::unite;
  bool alone = true;   ///< the vertex alone competes with its patterns
  bool remote = true;  ///< packing of patterns that are not adjacent, through the virtual vertex
  bool skip = true;    ///< a buffer set may leave a vertex's patterns out though they fit
  bool seed = true;    ///< XLA's fusions are candidates too, and its plan is one (section 6)
  double call_seconds =
      6e-6;            ///< a kernel call less: the least that table 2 implies of five models
  int registers = 16;  ///< a thread's, in the delta-evaluator (section 5.4)
  Penalty penalty = Penalty::difference;
  Pick pick = Pick::latency;
  bool compose = true;     ///< the workload's compositions are planned too (compositions())
  friend bool operator==(const Options&, const Options&) = default;
};

/// A fusion pattern with its score.
struct Scored {
  Pattern pattern;
  double score = 0;  ///< seconds saved: f, equation 3
  friend bool operator==(const Scored&, const Scored&) = default;
};

/// The delta-evaluator (section 5.4): f = T_reduced_mem + T_reduced_calls - T_penalty, in seconds.
///  - T_reduced_mem: bytes between the pattern's operators that no longer cross global memory, over
///  its
///    bandwidth; less the same bytes over shared memory's where a reduction hands them on. (The
///    paper's regression is not published; bandwidths of the machine file stand in for it.)
///  - T_reduced_calls: (operators - 1) * call_seconds. (The text says "the number of fused
///  kernels".)
///  - T_penalty: the simplified latency-evaluator without global memory's instructions, which the
///  first
///    term has counted: by `difference`, what the pattern takes more than its operators alone, at
///    least 0; by `whole`, all of it.
/// Scores are remembered. Cost: linear in the pattern's operators and edges. Not thread-safe.
class Evaluator {
 public:
  Evaluator(const Graph& g, const Device& d, const Options& o);
  ~Evaluator();
  /// Nothing where the pattern cannot be generated. A single vertex scores 0.
  std::optional<double> score(const Pattern& p);
  std::int64_t evaluated() const;  ///< patterns scored, each once
  const Graph& graph() const { return graph_; }
  const Options& options() const { return options_; }

 private:
  struct Memory;
  const Graph& graph_;
  Device device_;
  Options options_;
  std::unique_ptr<Memory> memory_;
};

/// Disjoint patterns of two operators or more; every other operator is a kernel of its own.
struct FusionPlan {
  std::vector<Scored> patterns;  ///< by first vertex
  double score = 0;              ///< sum of theirs
};
/// Kernels that a plan launches.
std::int64_t kernels_of(const Graph& g, const FusionPlan& p);
/// Whether its kernels can be put in an order: disjoint convex patterns may still wait for each
/// other.
bool orderable(const Graph& g, std::span<const Scored> patterns);

struct Exploration {
  std::vector<FusionPlan> plans;  ///< the beam's, best score first; XLA's among them with `seed`
  std::int64_t candidates = 0;    ///< patterns that the beam chose from
  std::int64_t evaluated = 0;
};
/// Sections 5.2 and 5.3. Vertices from last to first: a vertex's candidates are the best top_k of
/// it joined to one candidate or none of each consumer, over groups of consumers, recursively
/// halved; the last step joins both halves' lists by `select` (literally: the best of either) or
/// `unite` (also each of one with each of the other). Remote fusion: the same with a virtual vertex
/// before all others; every list on the way counts as candidates of its first vertex. Then the
/// beam, from producers on. Cost: linear in vertices and edges times constants of the options.
Exploration explore(Evaluator& e);

/// XLA's rule (sections 1 and 2): thread composition only. A light operator joins its consumers'
/// kernel where all of them are in one; reductions and expensive operators only end a kernel.
FusionPlan xla_rule(Evaluator& e);
/// The same as XLA itself does it, with duplication: a light operator is computed in each of its
/// consumers' kernels. The patterns overlap, so this is no fusion plan; every kernel is one of
/// them.
std::vector<Pattern> xla_kernels(const Graph& g, int most_operators);

/// The best of all plans, by trying every way to part the graph into patterns that can be
/// generated; a Reason for more than 12 vertices. The oracle of tests. Cost: exponential.
Result<FusionPlan> exhaustive(Evaluator& e);

/// The plan's price: stitching's, of its patterns.
using stitching::price;
inline Result<PlanPrice> price(const Graph& g, const Device& d, const FusionPlan& p,
                               const Options& o, Known* known = nullptr) {
  std::vector<Pattern> patterns;
  for (const Scored& s : p.patterns) patterns.push_back(s.pattern);
  return stitching::price(g, d, patterns, o, known);
}
/// Beyond the paper, for Pick::latency: stitching::joined() as a plan.
std::optional<FusionPlan> joined(Evaluator& e, const Device& d, const PlanPrice& p, Known& known);

}  // namespace tilewright::fusionstitching
