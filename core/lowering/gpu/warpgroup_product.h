// Kernels that are one matrix product, by Hopper's warpgroups: whether a plan's kernel is one, and
// how its block is arranged. One warpgroup copies boxes of both operands into a ring of stages by
// the TMA unit, the others multiply by wgmma (PTX ISA, asynchronous warpgroup level matrix
// instructions). Blocks are persistent: each has several of the plan's tiles in turn. Where a loop
// over the sum is bound to `cluster`, the blocks of a cluster have parts of one tile's sum and then
// add them up, each some of the rows, through distributed shared memory. Else the blocks of a
// cluster may have tiles side by side: of an operand that several need, each copies a part, to all
// of them. A sum may be over two loops. Operators of elements may follow the product
// (product_epilogue.h). Lines of results that follow one another at home, and in the right operand,
// are one: a 1 x 1 convolution of an image. Or the right operand is images whose points have their
// channels side by side: columns are points, and for each tap of a window the TMA unit copies the
// points that it needs, zero outside of the image (warpgroup_points.cpp).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/lowering/gpu/box_map.h"
#include "core/lowering/gpu/product_epilogue.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// Blocks of a cluster on any device that has them: CUDA C++ Programming Guide.
inline constexpr std::int64_t kMostShare = 8;

/// Bytes of shared memory that a block has beside its own: CUDA C++ Programming Guide.
inline constexpr std::int64_t kReservedShared = 1024;

/// A right operand that is images: points, whose channels are the depth for each tap of a window.
struct ImagePoints {
  /// A loop of the points, which reads line point * stride + tap * dilate - pad of the image.
  struct Along {
    std::int64_t extent = 1, taps = 1, stride = 1, dilate = 1, pad = 0;
    std::int64_t tile = 1;  ///< of its points
  };
  std::array<Along, 4> along;  ///< the innermost loop first; groups last
  std::int64_t channels = 1;
  /// Products of a group, all of which have its weights and its rows of the results; 0: one group.
  std::int64_t of_group = 0;

  std::int64_t taps() const;
  std::int64_t points() const;  ///< of a tile
};

struct WarpgroupProduct {
  TensorId left, right, result;  ///< result: of the last operator
  OpId product;
  /// Of a second product of the same left operand, whose sums operators join with the first's: a
  /// gated layer's. Its right operand lies as the first one's does.
  TensorId twin;
  OpId twin_product;
  ProductLoops loops;
  ProductEpilogue epilogue;
  DType operand = DType::f16;
  // The product: extents, and how many there are.
  std::int64_t rows = 1, columns = 1, depth = 1, count = 1;
  /// The left operand's rows run along the rows of the product, the right one's along its columns:
  /// else along the depth.
  bool left_across = false, right_across = false;
  bool left_all = false, right_all = false;  ///< all products have the same
  /// Of the depth, what lies in one matrix; the rest in those that follow: of a sum over two loops
  /// between which the rows lie, as of attention's heads. 0: all.
  std::int64_t left_fold = 0, right_fold = 0;
  /// The right operand is no matrix; each tap of its window is one of the left operand's, as
  /// `left_fold` has them.
  std::optional<ImagePoints> images;
  /// Rows of the product are what results have side by side at home: tiles have any 16 of the
  /// others.
  bool turned = false;
  // A block: warpgroups that multiply, each with `blocks` times 64 rows of the tile.
  int groups = 1, blocks = 1, tile_columns = 64;
  /// Columns from one tile to the next: fewer than a tile computes where it has whole lines.
  std::int64_t columns_apart = 64;
  int stages = 2, steps = 1;  ///< of the ring; of 64 of the depth, a stage
  int order = 4;              ///< tiles down that follow one another, so that they share L2
  int resident = 1;           ///< blocks that an SM has at the same time
  int share = 1;              ///< blocks of a cluster, which share the sum of a tile
  int down = 1, across = 1;   ///< or tiles of a cluster's blocks, which share their operands
  std::int64_t part = 1;      ///< of the depth, a block's
  bool boxed = true;          ///< results leave in boxes, else in pieces of `vector` elements
  int vector = 8;
  std::int64_t pitch = 1, apart = 0;  ///< elements between rows of results, and between products
  std::int64_t tiles = 1, grid = 1, shared_bytes = 0;
  std::vector<BoxMap> maps;  ///< left, right, the twin if there is one and, where boxed, result

  int tile_rows() const { return groups * blocks * 64; }
  int threads() const { return 128 * (groups + 1); }
  int products() const { return twin.valid() ? 2 : 1; }
  /// Of the right operands that a stage has, and of sums.
  int right_columns() const { return products() * tile_columns; }
  /// Of the right operands, in shared memory: boxes have 64 where rows run along the columns.
  int held_columns() const {
    return products() * static_cast<int>(right_across ? round_up(tile_columns, 64) : tile_columns);
  }
  int cluster() const { return share * down * across; }
  /// Of images in groups.
  std::int64_t groups_of_rows() const {
    return images && images->of_group > 0 ? count / images->of_group : 1;
  }
  std::int64_t tiles_across() const { return ceil_div(columns, columns_apart); }
  /// No tile computes what is not its own.
  bool whole() const {
    return rows % tile_rows() == 0 && columns % tile_columns == 0 && columns_apart == tile_columns;
  }
  /// Rows at home of a box of results that are turned.
  int tall() const { return tile_columns % 64 == 0 ? 64 : tile_columns % 32 == 0 ? 32 : 16; }
  /// Of one block's sums, where the others of its cluster read them: rows of floats as at home,
  /// eight apart, or four where they are turned.
  std::int64_t partial_bytes() const {
    if (share == 1) return 0;
    return std::int64_t{4} *
           (turned ? tile_columns * (tile_rows() + 4) : tile_rows() * (tile_columns + 8));
  }
  /// That the blocks of clusters read of one another, all together: sums of 16 bytes at a time.
  std::int64_t cluster_bytes() const;
  /// Where a matrix operand's boxes lie at `at` of the depth of one of the products: of its tensor
  /// map.
  struct BoxPlace {
    std::int64_t depth, matrix;
  };
  BoxPlace box_place(bool of_left, std::int64_t at, std::int64_t product) const;
  std::int64_t stage_bytes() const {
    return std::int64_t{steps} * (tile_rows() + held_columns()) * 128;
  }
};

/// Clusters of `share` blocks that run at the same time. SMs come in pairs (TPCs) in eight groups
/// (GPCs), and a cluster lies within one: NVIDIA H100 Tensor Core GPU Architecture whitepaper.
/// Groups differ: cudaOccupancyMaxActiveClusters on an H100 says 66, 39, 30, 22, 17, 15 and 15
/// clusters of 2 to 8 blocks, one an SM, and 132, 79, 62, 47, 39, 32 and 30 with two. Of more than
/// two, that many or slightly fewer is what seven and a half full groups have.
std::int64_t clusters_at_once(std::int64_t sms, std::int64_t resident, std::int64_t share);
/// Shared memory of a launch's blocks: all of an SM's, if each of so many can have one. The blocks
/// of a launch that begins before the one before has ended would else find several places on the
/// SMs that this has left, and none on the others. `of_sms`: as many SMs, for clusters of `share`.
std::int64_t shared_alone(std::int64_t bytes, std::int64_t most, std::int64_t blocks,
                          std::int64_t of_sms, std::int64_t share);

/// A Reason: what of the kernel is no such product, or which tile none is made of. `warps`: that
/// multiply, `stages`: of the ring; 0: as the kernel's launch says, else as suits. Cost: a walk
/// over the kernel's nodes.
Result<WarpgroupProduct> warpgroup_product(const Schedule& s, int kernel, int warps = 0,
                                           int stages = 0);

/// Roles, ring, barriers and copies for people, a line each.
std::string describe(const WarpgroupProduct& p, const Schedule& s, int kernel);

}  // namespace tilewright::lowering
