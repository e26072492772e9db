// Workloads that are equal but for their names, and their plans.
#pragma once

#include <map>
#include <string>

#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright {

/// The workload with its loops, tensors and operators named by position (l0, t0, o0), and without
/// the values of its inputs: equal where two workloads compute the same under other names.
Workload without_names(const Workload& w);

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

}  // namespace tilewright
