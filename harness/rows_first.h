// Networks whose products read operands in patches.
#pragma once

#include "harness/program.h"

namespace tilewright::harness {

/// The plan, or one of the same network where what products read in patches is written row by row
/// first (the rewrite materialise-patches), each copy in kernels of its own. A product of rows has
/// loops that go together, which a program's kernels have as one (merged_loops): no plan of the
/// patches has that. It is taken where the kernels of these operators are predicted to take clearly
/// less than the plan's. Only where software manages what is on the chip. Cost: nothing where no
/// product reads patches, else two searches for each kernel that has one, and emitting both.
ProgramPlan with_rows_first(const Request& request, ProgramPlan made);

}  // namespace tilewright::harness
