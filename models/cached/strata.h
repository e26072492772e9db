// The touches of each access, counted by the loop that carries their reuse.
#pragma once

#include <cstdint>
#include <vector>

#include "models/cached/nest.h"

namespace tilewright::cached {

/// Of one compute: touches of lines by each of its accesses.
struct Strata {
  int leaf = 0;
  std::vector<int> way = {};    ///< nodes from the kernel to the compute
  std::vector<int> loops = {};  ///< of those, the loops
  /// By use and depth d: lines touched, each once in every iteration of the first d loops together.
  /// Its rise from d - 1 to d are the touches of lines that the use has touched in an earlier
  /// iteration of loop d, but in no earlier iteration of a loop within.
  std::vector<std::vector<double>> lines = {};
  std::int64_t counted = 0;  ///< runs of the compute that stand for all
};

/// Counts without walking: iterations of a loop that touch boxes of one size are taken together,
/// and the lines of a row are averaged over the places in a line where it may begin. Where
/// iterations differ, the first and the last ones and a few between stand for all. Cost: some
/// hundred combinations of iterations at most.
Strata strata_of(const Nest& nest, int leaf, std::int64_t line);

}  // namespace tilewright::cached
