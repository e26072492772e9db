// What one block of a kernel without units does, counted on the resolved schedule: products, points
// of other operators, copies. Where tiles lie, what stays in registers and what is a product is
// what blocks' lowering (block_lowering.h) decides, of what one iteration of each loop tells it.
// Internal to block_time.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

struct BlockRates;

/// `runs`: how often in one block. Rows in blocks of 16, columns in blocks of 8, depth in blocks of
/// 16.
struct ProductRun {
  double runs = 1;
  double joins = 1;  ///< how often all of its sum is complete
  std::int64_t rows = 1, columns = 1, depth = 1;
  bool left_across = false;  ///< the left operand's rows run across the depth
  std::int64_t deep = 1;     ///< points of the depth
  BufferId left, right, result;
  /// A contraction (block_program.h): operands are read element by element.
  struct Contraction {
    std::int64_t rows = 1, columns = 1, products = 1, depth = 1, turns = 1;  ///< points
    int row_loops = 1, column_loops = 1, depth_loops = 1;
    std::int64_t high = 1, wide = 1;  ///< blocks of 16 x 8 that a warp makes at once
    int edges = 0;                    ///< operands that lie outside of their tensor for some points
  };
  std::optional<Contraction> contraction;
  bool left_sums = false;    ///< its left operand is sums in registers
  bool left_tile = false;    ///< or floats in shared memory, which are rounded
  bool right_tile = false;   ///< its right operand is
  bool result_tile = false;  ///< its sums are in shared memory,
  std::int64_t at_once = 2;  ///< of which a warp makes so many columns at a time
};
/// Point by point, by any thread (codegen/cuda/emit_points.cpp), or on sums in registers.
struct PointsRun {
  double runs = 1, points = 1;               ///< points: of sums too
  double sum = 1;                            ///< points that each result adds up
  double light = 0, expensive = 0;           ///< instructions of a point
  double reads = 0, narrow = 0, writes = 1;  ///< of a point; of its reads, those of 16 bits
  double outside = 0;                        ///< of its reads, those that may leave their tensor
  int loops = 0, sum_loops = 0;              ///< of more than one iteration
  bool wide = false;                         ///< f64
  bool edges = false;                        ///< boxes are cut off: which points exist is looked at
  bool sum_edges = false;                    ///< the same of a sum's points
  bool gathers = false;
  BlockPoints way;
  bool reduces = false;
  bool in_registers = false;
  /// There: of the largest of its tiles in registers, in whole blocks of 16 x 16; and how many of
  /// its tiles lie in shared memory, by whether neighbours of a row share what is read there.
  double elements = 0, of_elements = 0, of_rows = 0;
};
struct CopyRun {
  double runs = 1, bytes = 0;
  BlockStep::Way way = BlockStep::Way::elements;
  bool one_size = false;  ///< by pieces of 16 bytes, all rows of one dimension exist in every box
  bool gathered = false;  ///< by the reader, no tile
  bool waits = false;     ///< the computing threads copy it, and compute when it is there
  int dims = 1, row_dims = 0;  ///< of its box; of its rows, those of more than one
  bool sectors = true;         ///< rows begin at multiples of a sector, 32 bytes
  double partial = 0;          ///< of its boxes, the part that is smaller than the largest
  std::size_t buffer = 0;
  double stages = 1;
  bool is(BlockStep::Way w) const { return way == w; }
  /// Bytes that a thread copies at once: rows begin at multiples of them.
  double piece() const { return is(BlockStep::Way::pieces) ? of_piece : 16; }
  double of_piece = 8;
};
/// A tile's elements to home, by the computing threads.
struct StoreRun {
  double runs = 1;
  BufferId buffer;
  int dims = 1, row_dims = 0;
  bool added = false, aligned = true;  ///< rows begin where threads store several elements together
  /// Where it is added, all blocks' additions to one word of memory; whether they are no sum, or of
  /// 8 bits, and so compared and swapped.
  double to_word = 1;
  bool swapped = false;
};
/// Of one block, in all.
struct BlockTotals {
  std::int64_t blocks = 1;  ///< that have as much
  double turns = 0;         ///< of loops
  double stored = 0, added = 0;
  double returns = 0, returned = 0;  ///< sums that come back before they are complete, and bytes
  /// Of `stored` and `added`, where rows begin elsewhere.
  double stored_in_pieces = 0, added_in_pieces = 0;
};
struct BlockPhase : BlockTotals {
  double compulsory = 0;  ///< bytes of all blocks, each once
  std::vector<ProductRun> products;
  std::vector<PointsRun> points;
  std::vector<CopyRun> copies;
  std::vector<StoreRun> stores;
  /// Whether it is one product of whole tiles, with no operators on points.
  bool multiplies_alone() const {
    return products.size() == 1 && points.empty() && !products.front().contraction;
  }
};
struct BlockWork {
  std::vector<BlockPhase> phases;
  int barriers = 0;
  BlockProgram program;   ///< tiles, warps and shared memory; no roles
  std::int64_t sums = 0;  ///< floats of a thread that are alive at the same time
  const BlockTile& tile(BufferId b) const { return program.tiles[b.index()]; }
  /// Bytes of an element at home.
  std::int64_t element(BufferId b) const;
};
/// A Reason where a loop is bound below blocks, or where tiles have no room in shared memory.
Result<BlockWork> block_work(const Schedule& s, int kernel, const BlockChoices& choices);
/// An SM's special units, 16 a cycle, have an expensive instruction each (CUDA C++ Programming
/// Guide, throughput of arithmetic instructions).
inline constexpr double kSpecialUnits = 16;
/// Assumed: instructions for what an operator after a product reads at home, of an element.
inline constexpr double kOfRead = 2;
/// Cycles of an SM for a warp's instruction that copies pieces of less than 16 bytes: chosen by
/// products in f32 (h100-products-f32.json), and as good for products of odd sizes in 16 bits.
inline constexpr double kOfPieces = 7;
/// Bytes a cycle that an SM reads of other blocks of a cluster, chosen with warpgroup_time.cpp's
/// numbers of products by warpgroups.
inline constexpr double kBytesFromBlocks = 16.6;

/// What a block needs of an SM.
struct BlockForms {
  int warp_rows = 1, warp_columns = 1;
  std::int64_t most_rows = 1;  ///< in blocks of 16
  std::int64_t threads = 0, registers = 0, resident = 0;
  std::int64_t crowded = 0;  ///< resident, were it a fifth more registers
  int warps() const { return warp_rows * warp_columns; }
  double rows_of_thread() const { return 2.0 * static_cast<double>(most_rows) / warp_rows; }
};
/// A Reason where no block has room.
Result<BlockForms> block_forms(const BlockWork& work, const BlockRates& r);

}  // namespace tilewright::lowering
