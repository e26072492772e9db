// FusionStitching out of a request: its options, its plans, its prices, what explain draws of it.
#pragma once

#include <optional>
#include <set>

#include "harness/registry.h"
#include "models/fusionstitching/options.h"

namespace tilewright::harness {

/// Which plan is made: the explorer's, XLA's rule, or a kernel an operator.
enum class Stitcher : std::uint8_t { explorer, xla_rule, unfused };

/// The model's options. Throws InputError naming the option and what is accepted.
Settings stitch_settings(const Request& request);
fusionstitching::Options stitch_options(const Request& request);

/// A graph on a device with its fusion plans and the one that is chosen.
struct StitchedPlan {
  fusionstitching::Graph graph;
  fusionstitching::Device device;
  fusionstitching::Options options;
  std::vector<fusionstitching::FusionPlan> plans;  ///< what was chosen from, best score first
  std::vector<fusionstitching::PlanPrice> prices;  ///< theirs, by the latency-evaluator
  std::size_t chosen = 0;
  std::vector<std::string> rewrites = {};      ///< of the workload that the graph is of, by the model
  std::int64_t candidates = 0, evaluated = 0;  ///< explorer's
  double seconds = 0;                          ///< of the search

  const fusionstitching::FusionPlan& plan() const { return plans[chosen]; }
  const fusionstitching::PlanPrice& price() const { return prices[chosen]; }
};
/// The best plan of the workload and, by the explorer with Options::compose, of its compositions. A
/// Reason where the machine is no GPU with known instructions, or nothing fits.
Result<StitchedPlan> stitched(const Setting& setting, const fusionstitching::Options& options,
                              Stitcher stitcher = Stitcher::explorer);

/// Which stitcher makes a model's plans; none of other models.
std::optional<Stitcher> stitcher_of(const std::string& model);
/// The setting with the workload that the plan is of.
Setting setting_of(const Setting& asked, const StitchedPlan& plan);

/// Bytes of tensors that a plan's kernels read and write from and to home, each once a kernel.
Traffic stitched_traffic(const Setting& setting, const fusionstitching::Graph& graph,
                         std::span<const fusionstitching::Pattern> kernels);

/// --samples N of the schedules of the kernel that takes longest, one drawn (--seed) from each of N equal
/// parts of their ranking, best first: [{"schedule": "3 of 57: ...", "rank", "seconds" of the whole plan,
/// "latency_seconds" (L) and "terms" (of Overlap) of the kernel, "tree", "request": {"stitch": ["schedule=3", ...]}}]; `request` is what a line of --batch needs beside
/// the workload and the model.
nlohmann::ordered_json drawn_schedules(const Request& request, const StitchedPlan& found);

/// Kernels with their groups, schemes and launch dimensions; where every tensor lives; the plans
/// that were chosen from. "dot": the drawing in Graphviz's language.
Answer stitch_explain(const Request& request, const Setting& asked);
std::vector<ModelRecord> stitch_records();

}  // namespace tilewright::harness
