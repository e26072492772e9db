// PowerFusion as a model: what the registry holds, and what the paper's experiments ask beside it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/powerfusion/options.h"

namespace tilewright::powerfusion {

Model model();

/// A workload's kernels.
struct Planned {
  std::shared_ptr<const Workload> workload;  ///< rewritten
  std::vector<std::string> rewrites;
  Device device;
  Options options;
  std::shared_ptr<const Graph> graph;
  PlanPrice price;  ///< a library kernel's is empty
  stitching::WrittenPlan written;
  std::vector<double> seconds;          ///< by kernel
  std::int64_t states = 0, priced = 0;  ///< of the search: partial plans, kernels
  std::size_t components = 0;           ///< convex parts between library kernels
  double search_seconds = 0;

  std::size_t kernels() const { return price.patterns.size(); }
  bool library(std::size_t kernel) const { return price.kernels[kernel].parts.empty(); }
  double total_seconds() const;
};
/// What the machine's units are, and the options with the price that is made of what its file says.
/// A Reason naming the field where that lacks what the price needs.
Result<std::pair<Device, Options>> units_of(const Machine& m, Options o);
/// A Reason where units_of() has one, or an operator has no kernel.
Result<Planned> planned(const Question& q, const Options& o);

/// The kernel's GIR, one a part, before rewriting.
std::vector<Gir> gir_of(const Planned& p, std::size_t kernel);
/// A kernel's loop tree in the units of one schedule, and its GIR before rewriting.
struct Template {
  Kernel kernel;
  std::int64_t warps = 1;  ///< of a block
  Gir gir;
};
/// Templates of a kernel of these operators on a GPU (section 6), no two with the same GIR, the
/// fastest first. Cost: every schedule.
std::vector<Template> templates_of(const Graph& g, const Device& d, const Options& o,
                                   const Operators& kernel);
/// Both operators' graphs as one, as section 6 merges them before rewriting: a sync of the device
/// between moves of the same tensor. None where blocks or warps a block are not as many.
std::optional<Gir> merged(const Graph& g, const Template& a, const Template& b);

/// Seconds of a kernel as its tree stands, by `o.price`; a Reason where the tree does not say them.
Result<double> tree_seconds(const Graph& g, const Device& d, const Options& o,
                            const Schedule& schedule, std::size_t kernel, const Kernel& written);
/// Seconds of each kernel of the plan, whoever made it: products as a library's, of other kernels
/// the tree; of a pack, and of a tree that says no units, the fastest stitched kernel of its
/// operators. A Reason where one has no price.
Result<std::vector<double>> plan_seconds(const Graph& g, const Device& d, const Options& o,
                                         const Schedule& schedule, const Plan& plan);

}  // namespace tilewright::powerfusion
