// What readers of kernels that are products have alike (window_product.h, warpgroup_product.h,
// warpgroup_pair.h): a kernel's loops, and whether it is one product of two tensors with operators
// of its elements behind it, in a chain of loops of blocks around loops within a block.
#pragma once

#include <string>
#include <vector>

#include "core/lowering/gpu/product_epilogue.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// A kernel's loops and names. Members that check throw Refused.
class KernelReader {
 public:
  KernelReader(const Schedule& s, int kernel)
      : s_(s), w_(*s.workload), k_(s.kernels[static_cast<std::size_t>(kernel)]) {}

 protected:
  [[noreturn]] static void refuse(const std::string& text);
  std::string loop_name(LoopId l) const { return w_.loop(l).name; }
  std::string name(TensorId t) const { return w_.tensor(t).name; }
  std::int64_t extent(LoopId l) const { return w_.loop(l).extent; }
  bool around(NodeId outer, NodeId inner) const;
  /// The step of the innermost of these loops that goes over it, else all of it.
  std::int64_t part(LoopId loop, const std::vector<NodeId>& of) const;
  /// A tile's extent of a loop of which a block has `part`: a whole extent is rounded up.
  int tile_of(LoopId loop, std::int64_t part, std::int64_t multiple, std::int64_t most) const;
  /// No blocks that share results, and tiles of one level alone.
  void check_kernel() const;
  /// Both of f16 or both of bf16.
  void check_operand_types(TensorId left, TensorId right) const;
  void check_result_type(TensorId result) const;

  const Schedule& s_;
  const Workload& w_;
  const ScheduledKernel& k_;
  std::vector<NodeId> grid_, serial_, computes_;  ///< outermost first; in their order
};

class ProductChain : protected KernelReader {
 public:
  using KernelReader::KernelReader;

 protected:
  /// A chain of grid loops around loops of one block, a product and what is computed of its
  /// results, and what these load and store. `clusters`: a loop of a cluster may stand between.
  void walk(bool clusters);
  /// The first operator, or another, which must be a sum of products of its two inputs.
  const Operator& product(std::size_t compute = 0) const;
  /// What leaves the kernel: of the last operator.
  void find_result();
  /// Operators after the product: within the same blocks, after all of its sum, and of other
  /// tensors than its operands.
  ProductEpilogue following(const ProductLoops& loops) const;
  void check_block(NodeId n, const std::string& what) const;
  /// Every block loads its own tiles, each operand's in one place, and stores once.
  void check_moves(const ProductEpilogue& epilogue) const;
  std::int64_t part(LoopId loop) const { return KernelReader::part(loop, grid_); }

  NodeId shared_;  ///< the loop over the sum of which a cluster's blocks have parts
  const Access *left_ = nullptr, *right_ = nullptr, *result_ = nullptr;
  /// The right operand of a second product side by side with the first, or none.
  const Access* twin_ = nullptr;
};

}  // namespace tilewright::lowering
