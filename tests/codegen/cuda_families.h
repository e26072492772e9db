// Plans of every family of emitted CUDA kernels, at small sizes and odd ones among them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/cuda/cuda.h"
#include "core/plan/schedule.h"

namespace tilewright::testing {

struct FamilyCase {
  std::string name, workload;
  std::vector<std::string> trees;  ///< one a kernel
  std::string tiles;
  cuda::EmitOptions options = {};
  std::map<std::string, Pin> pins = {};
};

/// A case of each. With TILEWRIGHT_LONG set every row of the papers' tables as well, one of its
/// batch.
std::vector<FamilyCase> family_cases();

/// Products of one row: sums of the second are in a tile, whose kernel was wrong on an H200 and
/// nowhere else (CompileForBothArchitecturesAndStepNoAddress).
const FamilyCase& products_of_a_row();

/// On a machine of as many multiprocessors as an H200 has, their shared memory filled from DRAM:
/// nothing that blocks share, so that `exact` counts. Throws where it is no plan.
Schedule schedule_of(const FamilyCase& c);

}  // namespace tilewright::testing
