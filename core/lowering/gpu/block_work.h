// What one block of a kernel without units does, counted on the resolved schedule: products, points
// of other operators, copies. Internal to block_time.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
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
  bool covers = true;        ///< it makes all of the result's tile at once
  std::int64_t points = 0;   ///< of the result
  std::int64_t deep = 1;     ///< points of the depth
  BufferId left, right, result;
  /// A contraction (block_program.h): operands are read element by element.
  struct Contraction {
    std::int64_t rows = 1, columns = 1, products = 1, depth = 1, turns = 1;  ///< points
    int row_loops = 1, column_loops = 1, depth_loops = 1;
    int edges = 0;  ///< operands that lie outside of their tensor for some points
  };
  std::optional<Contraction> contraction;
  // Found by block_forms.
  bool left_sums = false, left_tile = false, right_tile = false, result_tile = false;
};
/// Point by point, by any thread (codegen/cuda/emit_points.cpp).
struct PointsRun {
  double runs = 1, points = 1;               ///< points: of sums too
  double sum = 1;                            ///< points that each result adds up
  double light = 0, expensive = 0;           ///< instructions of a point
  double reads = 0, narrow = 0, writes = 1;  ///< of a point; of its reads, those of 16 bits
  int loops = 0, sum_loops = 0;              ///< of more than one iteration
  bool wide = false;                         ///< f64
  bool edges = false;                        ///< boxes are cut off: which points exist is looked at
  bool gathers = false;
  bool strip = false;              ///< neighbours are taken together: of the sum, or of results
  double in_strips = 0;            ///< of `reads`, those whose neighbours lie side by side
  std::vector<PointBlock> blocks;  ///< points that a thread may have at once
  bool reduces = false;
  std::vector<BufferId> touched;
  std::vector<std::int64_t> volumes;  ///< elements of each that it touches
  int loaded = 0;                     ///< of these, tiles that come from home
  bool in_registers = false;          ///< found by block_forms
};
struct CopyRun {
  double runs = 1, bytes = 0;
  double piece = 16;      ///< bytes that a thread copies at once: rows begin at multiples of them
  bool elements = false;  ///< copied one by one: wider in its tile
  bool shifted = false;   ///< through registers: rows that do not begin at 8 bytes
  bool whole = false;     ///< fills its tile: no row is looked at
  bool gathered = false;  ///< by the reader, no tile
  int dims = 1, row_dims = 0;  ///< of its box; of its rows, those of more than one
  bool sectors = true;         ///< rows begin at multiples of a sector, 32 bytes
  double partial = 0;          ///< of its boxes, the part that is smaller than the largest
  std::size_t buffer = 0;
  double stages = 1;  ///< found by block_forms
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
struct BlockPhase {
  std::int64_t blocks = 1;
  double turns = 0;  ///< of loops
  double stored = 0, added = 0;
  double returns = 0, returned = 0;  ///< sums that come back before they are complete, and bytes
  double stored_in_pieces = 0;       ///< of `stored`, where rows begin elsewhere
  double compulsory = 0;             ///< bytes of all blocks, each once
  std::vector<ProductRun> products;
  std::vector<PointsRun> points;
  std::vector<CopyRun> copies;
  std::vector<StoreRun> stores;
};
struct BlockWork {
  std::vector<BlockPhase> phases;
  int barriers = 0;
  /// By buffer: its largest tile. Rows are all dimensions but the last.
  struct Tile {
    std::vector<std::int64_t> extents = {};  ///< by dimension
    std::int64_t rows = 1, columns = 1, element = 4;
    bool ring = false, again = false, made = false;
    bool operand = false;  ///< of a product: whole blocks of 16
    bool in_sums = false;  ///< its place is in registers: found by block_forms
    int copies = 1;
    std::string name;
  };
  std::vector<Tile> tiles;
};
/// A Reason where a loop is bound below blocks.
Result<BlockWork> block_work(const Schedule& s, const ScheduledKernel& k);
/// Adds the calls of an expression: of one arithmetic instruction, and of more.
void count_operations(const Expr& e, double& light, double& expensive);
/// An SM's special units, 16 a cycle, have an expensive instruction each (CUDA C++ Programming
/// Guide, throughput of arithmetic instructions).
inline constexpr double kSpecialUnits = 16;
/// Assumed: instructions for what an operator after a product reads at home, of an element.
inline constexpr double kOfRead = 2;
/// Cycles of an SM for a warp's instruction that copies pieces of less than 16 bytes: chosen by
/// products in f32 (h100-products-f32.json), and as good for products of odd sizes in 16 bits.
inline constexpr double kOfPieces = 7;
/// Bytes a cycle that an SM reads of other blocks of a cluster, chosen with block_time.cpp's
/// numbers of products by warpgroups.
inline constexpr double kBytesFromBlocks = 16.6;

/// How warps share the products, what stays in registers, and what a block needs of an SM, about as
/// blocks' lowering chooses (block_lowering.h), by the same rules (block_rules.h).
struct BlockForms {
  int warp_rows = 1, warp_columns = 1;
  std::int64_t most_rows = 1;  ///< in blocks of 16
  std::int64_t threads = 0, registers = 0, shared = 0, resident = 0;
  std::int64_t crowded = 0;  ///< resident, were it a fifth more registers
  std::vector<std::string> tiles;
  int warps() const { return warp_rows * warp_columns; }
  double rows_of_thread() const { return 2.0 * static_cast<double>(most_rows) / warp_rows; }
};
/// Fills in what it finds in `work`. A Reason where a block has no room.
Result<BlockForms> block_forms(BlockWork& work, const BlockRates& r, int warps, int stages,
                               bool has_room);

}  // namespace tilewright::lowering
