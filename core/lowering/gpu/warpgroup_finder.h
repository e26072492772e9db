// What finders of products by warpgroups have alike (warpgroup_product.h): how a block is arranged
// once its tile is known, and how results leave.
#pragma once

#include "core/lowering/gpu/matrix_access.h"
#include "core/lowering/gpu/product_chain.h"
#include "core/lowering/gpu/warpgroup_product.h"

namespace tilewright::lowering {

class WarpgroupFinder : protected ProductChain {
 protected:
  using ProductChain::ProductChain;
  /// What of the depth the tree says.
  struct Depth {
    std::int64_t of_one = 1;  ///< points of it for one iteration of the loop that a cluster shares
    std::int64_t step = 0;    ///< of the loop within a block; 0: all
  };
  /// Warpgroups, ring, clusters and blocks of tiles of `rows` rows; sizes, places and the tile's
  /// columns are known.
  void arrange(int rows, int warps, int stages, const Depth& depth);
  /// How results leave, and their boxes where they do in boxes.
  void map_result();

  WarpgroupProduct p_;
  MatrixAccess of_left_, of_right_, of_result_;

 private:
  std::int64_t sums_left_out(std::int64_t tile_rows) const;
  bool alone() const;
  std::int64_t blocks_at_once(std::int64_t tiles) const;
  void share_operands(int blocks);
};

/// Of a right operand that is images whose points have their channels side by side. As
/// warpgroup_product, which asks it where the right operand is no matrix. `images`: there are such
/// images, so that a refusal says what else is wrong.
Result<WarpgroupProduct> warpgroup_points(const Schedule& s, int kernel, int warps, int stages,
                                          bool& images);

}  // namespace tilewright::lowering
