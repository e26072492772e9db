// Attention with a mask, in kernels that walk tiles of rows: columns that add nothing to any row of
// a tile need not be computed.
#pragma once

#include <vector>

#include "core/lowering/mask.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// Two products of a kernel, and operators between them that hide some of the columns of the first
/// one's results from the second, which adds up over columns. Within `body`, every compute has the
/// same rows and columns, so that columns hidden from all of these rows can be left out of each.
struct HiddenColumns {
  NodeId body;  ///< a loop or the root: the innermost around all computes
  LoopId rows, columns;
  std::vector<MaskEdge> edges;   ///< each moves by one column a column
  std::vector<NodeId> computes;  ///< the first product, operators in their order, the second
};

/// All such pairs of a kernel of f32 or f64. A pair is left out where an intermediate with columns
/// leaves the kernel, is read by anything else, or at other indices than its producer's, and where
/// an operator is computed in more than one place or only once for several places.
/// Cost: the expressions of the operators between two products, some times.
std::vector<HiddenColumns> hidden_columns(const Workload& w, const ScheduledKernel& k);

/// The columns that a tile of rows needs, as whole vectors of so many lanes, in 0 to `all`.
Interval visible_columns(const HiddenColumns& h, Interval rows, std::int64_t all,
                         std::int64_t lanes);

/// Whether a compute begins with the first visible column. One whose tile has only some of all
/// columns begins with its first, so that sums which begin with it do; the first product always
/// does: its operands may be packed so.
bool begins_visible(const HiddenColumns& h, NodeId compute, bool has_all_columns);

}  // namespace tilewright::lowering
