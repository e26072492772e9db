// What a compute of a block is counted as, once it is known how it is carried out: as a product, as
// a contraction or point by point.
#pragma once

#include <cstdint>
#include <vector>

#include "core/lowering/gpu/block_work.h"

namespace tilewright::lowering {

/// `most`: by the operator's loops; `runs`: how often the block comes to it, `joins`: how often its
/// sum is complete.
ProductRun product_run(const BlockLowering& block, NodeId compute, const BlockProduct& p,
                       const std::vector<std::int64_t>& most, double runs, double joins);
ProductRun contraction_run(const BlockLowering& block, NodeId compute, const BlockContraction& c,
                           const std::vector<std::int64_t>& most, double runs, double joins);
/// `points`: of sums too.
PointsRun points_run(BlockLowering& block, NodeId compute, const PointRanges& of, double points,
                     double runs, bool in_registers);
/// Adds the calls of an expression: of one arithmetic instruction, and of more.
void count_operations(const Expr& e, double& light, double& expensive);
/// Instructions that nvcc 13.0 makes of a call in f32, beside those of the special function units
/// (experiments/gpu/function_counts); 0 where these are most of them.
double beside_special(const Expr& e);

}  // namespace tilewright::lowering
