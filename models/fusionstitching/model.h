// FusionStitching as a model: what the registry holds, and what its parts share. The paper's
// experiments ask here for what the record does not say.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/fusionstitching/options.h"
#include "models/model.h"

namespace tilewright::fusionstitching {

/// The records: the explorer's plans, XLA's rule, and a kernel an operator.
Model model();
Model xla_model();
Model unfused_model();

/// Which plan is made: the explorer's, XLA's rule, or a kernel an operator.
enum class Stitcher : std::uint8_t { explorer, xla_rule, unfused };

/// A graph on a device with its fusion plans and the one that is chosen.
struct StitchedPlan {
  Graph graph;
  Device device;
  Options options;
  std::vector<FusionPlan> plans;  ///< what was chosen from, best score first
  std::vector<PlanPrice> prices;  ///< theirs, by the latency-evaluator
  std::size_t chosen = 0;
  std::vector<std::string> rewrites = {};      ///< of the workload that the graph is of, by the model
  std::int64_t candidates = 0, evaluated = 0;  ///< explorer's
  double seconds = 0;                          ///< of the search

  const FusionPlan& plan() const { return plans[chosen]; }
  const PlanPrice& price() const { return prices[chosen]; }
};
/// The best plan of the workload and, by the explorer with Options::compose, of its compositions. A
/// Reason where the machine is no GPU with known instructions, or nothing fits.
Result<StitchedPlan> stitched(const std::shared_ptr<const Workload>& workload, const Machine& machine,
                              const Options& options, Stitcher stitcher = Stitcher::explorer);

/// Bytes of tensors that a plan's kernels read and write from and to home, each once a kernel.
Traffic stitched_traffic(const Machine& machine, const Graph& graph,
                         std::span<const Pattern> kernels);

/// `samples` of the schedules of the kernel that takes longest, one drawn (by the seed) from each of as
/// many equal parts of their ranking, best first: [{"schedule": "3 of 57: ...", "rank", "seconds" of the
/// whole plan, "latency_seconds" (L) and "terms" (of Overlap) of the kernel, "tree", "request":
/// {"stitch": ["schedule=3", ...]}}]; `request` is what a line of --batch needs beside the workload and
/// the model.
nlohmann::ordered_json drawn_schedules(const ExplainAsked& asked, std::uint64_t seed,
                                       const StitchedPlan& found);

}  // namespace tilewright::fusionstitching
