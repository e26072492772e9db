// Souffle as a model: what the registry holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/souffle/options.h"

namespace tilewright::souffle {

Model model();

/// A workload's subprograms and their kernels.
struct Planned {
  std::shared_ptr<const Workload> workload;  ///< rewritten
  std::vector<std::string> rewrites;
  Device device;
  Analysis analysis;
  std::vector<Subprogram> subprograms;
  std::vector<Program> programs;        ///< a kernel each
  std::vector<std::size_t> subprogram;  ///< by program
  std::vector<std::string> cut;  ///< by subprogram: why it is several kernels; "" where it is one
  Plan plan;
  PlanCount counts;
  double seconds = 0;  ///< of all this
};
/// A Reason where the machine is no GPU, or an operator has no nest.
Result<Planned> planned(const Question& q, const Options& o);

}  // namespace tilewright::souffle
