// An operator as matrix products, one for each iteration of its other loops.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/error.h"
#include "core/workload/workload.h"

namespace tilewright {

/// Z[..r..c] += X[..r..d..] * Y[..d..c..], in whatever order each tensor has its dimensions.
struct MatrixProduct {
  OpId op;
  int left = 0, right = 1;  ///< positions in op.inputs
  LoopId rows, columns, depth;
  std::vector<LoopId> batch;  ///< the result's other loops
  std::vector<LoopId> sums;   ///< other loops that it sums over
  bool in_rows = false;  ///< the last dimension of each tensor is one of its matrices' two loops,
                         ///< of the result its columns: rows of elements that follow one another
};

/// Which product an operator is. Of several loops that may be its rows, columns or depth those are
/// taken where rows of all matrices lie in one piece, and then the most that one product has by
/// `size`, the extents where empty. A Reason where it is none.
Result<MatrixProduct> matrix_product(const Workload& w, OpId op,
                                     const std::function<std::int64_t(LoopId)>& size = {});

}  // namespace tilewright
