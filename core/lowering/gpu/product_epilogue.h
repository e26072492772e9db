// Operators after a product, of its elements alone: a bias, a residual, an activation. Threads
// compute them on the sums that they have in registers; what else they read, they read at home.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// The loops of a product's results.
struct ProductLoops {
  LoopId rows, columns;
  std::vector<LoopId> products;  ///< outermost first
};

/// What an operator reads at home, for an element of the product: the element at `offset`, and
/// further by so many elements for each row, column and product.
struct EpilogueRead {
  TensorId tensor;
  std::int64_t offset = 0, by_row = 0, by_column = 0;
  std::vector<std::int64_t> by_product;  ///< as ProductLoops::products
  /// Of columns in chunks, which of `products` counts these (the rewrite split-running), and how
  /// many the tensor has of all where the last chunk has fewer; what lies behind them is zero.
  std::optional<std::size_t> chunk;
  std::int64_t end = 0;
  /// One index is the difference of row and column, as a relative bias has it (`i - j`): elements
  /// along a diagonal are one.
  bool diagonal = false;
  /// Two neighbours of a row of the product, the first of them of even number, are one word.
  bool pairs = false;
};

/// How operator `op` finds the elements of an access at home. Throws Refused where a thread cannot:
/// of other types than floats, outside of the tensor, indexed by more than the loops.
EpilogueRead home_read(const Workload& w, const Operator& op, const Access& a,
                       const ProductLoops& loops);
/// Whether both find the same element.
bool same_place(const EpilogueRead& a, const EpilogueRead& b);

struct ProductEpilogue {
  std::vector<OpId> operators;  ///< in the order in which they run
  std::vector<EpilogueRead> reads;
  /// By operator and input: which read it is; -1: the kernel has made it.
  std::vector<std::vector<int>> read_of;
};

/// Of the kernel's computes after its first `products`. Throws Refused where one of them is no
/// operator of elements, or reads what a thread cannot find at home.
ProductEpilogue product_epilogue(const Workload& w, const ScheduledKernel& k,
                                 const std::vector<NodeId>& computes, const ProductLoops& loops,
                                 std::size_t products = 1);

}  // namespace tilewright::lowering
