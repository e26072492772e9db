// Which elements of a product's results add nothing to what operators make of them: those that a
// condition on indices, lt(m, l) or lt(l, m - 255), replaces by a value whose exponential is zero
// beside any other of its row, or by zero itself. A causal mask, a window of columns.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::lowering {

/// Elements that add nothing: where row * by_row + column * by_column + offset < 0. by_column is
/// not zero, and f32 has all values exactly.
struct MaskEdge {
  std::int64_t by_row = 0, by_column = 0, offset = 0;
  friend bool operator==(const MaskEdge&, const MaskEdge&) = default;
};

/// Columns from `from` on, before `to`.
struct MaskColumns {
  std::int64_t from = 0, to = 0;
};

/// A product's results, operators on them in their order, and the second product, of which they
/// make an operand.
struct MaskedChain {
  OpId first, second;
  std::span<const OpId> between;
  LoopId rows, columns;
  std::int64_t depth = 1;  ///< multiply-adds of an element
  DType operand = DType::f16;
};

/// The edges of which it is proven, from bounds of every value, that elements beyond them add
/// nothing to any row's sum or maximum and nothing to the second product, given that operands are
/// finite numbers with sums that f32 holds, and that each row has a finite number among what a
/// given tensor adds to it (a row of none but -inf has no results with or without what is left
/// out). Every row has an element that is beyond none of them. Empty where nothing is proven: a
/// masked score of -inf is nothing beside any number, one of -32768 is not, because a sum of
/// products of f16 may be less. Cost: the expressions, some times.
std::vector<MaskEdge> mask_edges(const Workload& w, const MaskedChain& chain);

/// Elements beyond the edge that a condition is true at, lt(m, l): none where it is of another
/// kind.
std::optional<MaskEdge> true_beyond(const Expr& condition, LoopId rows, LoopId columns);
/// Beyond it lie all other elements.
MaskEdge opposite(const MaskEdge& m);

/// Where the condition is one of the edges': its value at elements that are beyond none of them.
std::optional<bool> value_within(std::span<const MaskEdge> edges, const Expr& condition,
                                 LoopId rows, LoopId columns);

/// Of rows `low` to `high` (both included) and columns 0 to `all`: columns outside of which every
/// element is beyond one edge.
MaskColumns columns_needed(std::span<const MaskEdge> edges, std::int64_t low, std::int64_t high,
                           std::int64_t all);
/// The same: columns in which no element is beyond an edge. May end before it begins.
MaskColumns columns_whole(std::span<const MaskEdge> edges, std::int64_t low, std::int64_t high,
                          std::int64_t all);

}  // namespace tilewright::lowering
