// Plans whose kernels compute some operators again: what a plan cannot say of one workload, it says
// of another one in which each kernel has operators of its own (the rewrites `copies` and
// `inline`).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {

/// A kernel by operators of a workload. Several kernels may have the same one; only one of them
/// gives its result to the others.
struct SharedKernel {
  std::vector<OpId> ops;    ///< each once, in the workload's topological order
  std::vector<OpId> gives;  ///< those of them whose results leave the kernel, in the same order
};

/// The workload with an operator of its own for each kernel, so that no two share one. Of an
/// operator that only its own kernel reads at another index than it is written at (a slice, a
/// shift, a transpose), the expression is computed there instead, where substitute() can.
struct OwnCopies {
  std::vector<std::string> rewrites;  ///< that made it, in order; empty: nothing had to be done
  std::shared_ptr<const Workload> workload;
  std::vector<std::vector<std::string>> kernels;  ///< the operators of each, by name
};
/// Every operator is in a kernel, and one that is read in kernels that lack it is given by exactly
/// one. Cost: linear in the workload for every operator that is copied or inlined.
OwnCopies own_copies(const std::shared_ptr<const Workload>& w,
                     std::span<const SharedKernel> kernels);

/// Why one kernel cannot hold these operators, by themselves and with what own_copies() would
/// inline: components_of(), asked of a workload of them alone. None where it can. `ridge`:
/// ridge_of(). Cost: linear in the workload.
std::optional<Reason> not_one_kernel(const Workload& w, const SharedKernel& kernel, double ridge,
                                     int most_operators);

/// The kernels as a plan of the question's workload: each the schedule that takes the least time by
/// stitch(), written by write_plan(), with what may stand in its place. Level, plan, rewrites and
/// choices are filled in; price and detail are the model's. `kernels_of` gets the patterns in
/// launch order, which are of `graph`. A Reason where nothing fits the machine.
struct KernelsPlanned {
  Proposal proposal;
  std::shared_ptr<const Graph> graph;  ///< of the rewritten workload
  std::vector<Pattern> patterns;       ///< in launch order
  int taken_apart = 0;                 ///< kernels that fit the machine only as several
};
Result<KernelsPlanned> planned(const Question& q, const Device& d,
                               std::span<const SharedKernel> kernels, const Options& o);

}  // namespace tilewright::stitching
