// Evaluating one operator of a workload over given ranges of its loops. Internal to the evaluator.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "core/workload/reference/evaluate.h"

namespace tilewright::reference {

/// Runs `op` over `ranges` (by position in op.loops) and combines into its outputs' values, which
/// must have been allocated. `initialise` says that this is the first block of its reduction: the
/// parts of the outputs that it writes start from the identity, and nothing is rescaled. On up to
/// `threads` threads (0: all cores).
void run_operator(const Workload& w, OpId op, std::span<const Interval> ranges, bool initialise,
                  TensorValues& values, int threads);

/// The same for a sum of products of two inputs, by matrix products; false, with nothing done,
/// where `op` is none, or is not worth it. Every loop must be a batch, row, column or summed loop.
bool run_contraction(const Workload& w, OpId op, std::span<const Interval> ranges,
                     TensorValues& values, int threads);

/// The two inputs that `op` sums products of; nothing where it does something else.
std::optional<std::array<int, 2>> factors_of(const Workload& w, OpId op);
/// run_contraction of an operator that has factors_of, on other arrays of its tensors' shapes; adds
/// to `to`.
bool multiply(const Workload& w, OpId op, std::span<const Interval> ranges, const double* left,
              const double* right, double* to, int threads);

/// Whether another element is read for each iteration of the loop.
bool indexed_along(const Operator& op, const Access& a, LoopId loop);
/// Whether a value may be another one for each iteration of the loop.
bool depends_on(const Operator& op, const Expr& e, LoopId loop);
/// How often a sum of such values may add the same number: of a summand that some summed loops do
/// not index, its values come once for each of their iterations. Each time the rounding is the same
/// one as long as the sum is of one size, so that these errors add up.
double repeats(const Workload& w, OpId op, const Expr& value);

/// Operators in an order in which they can be evaluated, each group with the loops that it is to be
/// evaluated over block by block.
struct Group {
  std::vector<OpId> ops;  ///< in topological order
  LoopId running;         ///< none: a single operator, evaluated whole
};
/// Throws InputError where running operators cannot be evaluated block by block.
std::vector<Group> running_groups(const Workload& w);

}  // namespace tilewright::reference
