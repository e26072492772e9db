// Workloads that are equal but for their names, and their plans.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright {

/// The workload with its loops, tensors and operators named by position (l0, t0, o0), and without
/// the values of its inputs: equal where two workloads compute the same under other names.
Workload without_names(const Workload& w);

/// The same workload with inputs that no run changes marked as such, by tensor: these have values,
/// which say nothing else. For prices: what is the same in every run may be packed once.
Workload with_constants(const Workload& w, const std::vector<bool>& constant);

/// Names of one workload to those of another of the same structure.
class Names {
 public:
  /// Both must be equal but for names.
  Names(const Workload& from, const Workload& to);
  Kernel rename(Kernel k) const;

 private:
  std::string of(char kind, const std::string& name) const;
  /// A compute is named by its operator, or by the tensor that only it writes.
  std::string compute(const std::string& name) const;
  void rename(Node& n) const;

  std::map<std::string, std::string> names_;  ///< each behind the letter of its kind
};

/// Operators that the kernel computes, ascending. Throws InputError for a name that is none.
std::vector<OpId> operators_of(const Kernel& kernel, const Workload& w);

/// A kernel's operators as a workload of their own, and both without names.
struct NamelessKernel {
  std::vector<OpId> operators;               ///< of the whole, in the part's order
  std::vector<TensorId> tensors;             ///< of the whole, by the part's TensorId
  Workload part;                             ///< with names: a subgraph of the whole
  std::shared_ptr<const Workload> workload;  ///< the part without them
  Kernel kernel;                             ///< over that
  std::string key;                           ///< equal where kernels differ in names alone
};
/// Throws InputError where the operators are no part of the workload (core/workload/subgraph.h).
NamelessKernel nameless(const Kernel& kernel, const Workload& w);
/// Why a kernel of the plan cannot be a workload of its own, as every kernel of a program is; none
/// where each can.
std::optional<Reason> no_workloads(const Plan& plan, const Workload& w);

}  // namespace tilewright
