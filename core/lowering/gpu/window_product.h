// Kernels that are one convolution in 16 bits or f32, as a product of matrices that are nowhere
// made: whether a plan's kernel is one, and how its block is arranged
// (device/tilewright_windows.h). Rows of the product are one loop of the results that the left
// operand has, columns are points of the image, the depth is channels and the window. Where the
// launch has clusters, the blocks of one have parts of the channels of one tile. Operators of
// elements may follow (product_epilogue.h). A product whose columns are two loops, as a 1 x 1
// convolution's, is one with a window of one. So is a product of matrices some of whose rows begin
// at no multiples of 16 bytes: its points are one line. Channels may lie before an image's lines or
// side by side in each point (`beside`), and so may rows among the results (`turned`).
#pragma once

#include <string>
#include <vector>

#include "core/lowering/gpu/product_epilogue.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

struct WindowProduct {
  TensorId left, right, result;  ///< result: of the last operator
  OpId product;
  ProductLoops loops;  ///< columns: the last loop of the points; products: all others but the rows
  ProductEpilogue epilogue;
  DType operand = DType::f16;
  bool tf32 = false;                 ///< floats on tensor cores, each product three of TF32
  std::int64_t rows = 1, tile = 16;  ///< of the product, and of a tile: a multiple of 16
  /// Points of a tile and of the results; lines that follow one another at home may be one.
  std::int64_t tile_y = 1, tile_x = 1, out_y = 1, out_x = 1;
  std::int64_t wide = 1, of_line = 0;  ///< the last loop, and how `products` count the one before
  std::int64_t channels = 1, step = 1, part = 1, share = 1;  ///< all, a stage's, a block's; blocks
  std::int64_t taps_y = 1, taps_x = 1, stride_y = 1, stride_x = 1, dilate_y = 1, dilate_x = 1;
  std::int64_t pad_y = 0, pad_x = 0;
  std::int64_t in_y = 1, in_x = 1, in_row = 0, in_channel = 0, left_row = 0;  ///< elements between
  /// The image has its channels side by side, in shared memory as well: elements between points of
  /// a line, and between taps of the left operand, which has channels side by side, too.
  bool beside = false;
  std::int64_t in_column = 1, left_tap_y = 0, left_tap_x = 0;
  bool turned = false;                           ///< results have rows side by side
  std::int64_t left_piece = 1, right_piece = 1;  ///< elements of a copy: 16, 8, 4 or 2 bytes
  std::int64_t lead = 0,
               pitch = 1;  ///< columns before the first that is needed; of a row, in shared memory
  /// A block's points are all of the image, one line: channels follow one another at home, and a
  /// stage's are copied as one run, as they lie there.
  bool flat = false;
  std::int64_t blocks_m = 1, blocks_n = 1, warps_m = 1, warps_n = 1, warps_k = 1, stages = 1;
  /// Stages whose copies are under way at the same time.
  std::int64_t ahead = 1;
  std::int64_t out_row = 0, out_line = 0, out_column = 1, vector = 1;
  /// A loop of which a block has one iteration: elements that it moves operands and results by, and
  /// what it counts in `products`.
  struct Outer {
    LoopId loop;
    std::int64_t extent = 1, left = 0, right = 0, result = 0, product = 0;
  };
  std::vector<Outer> outer;
  std::int64_t tiles = 1, grid = 1, shared_bytes = 0;

  std::int64_t element() const { return size_of(operand); }
  bool floats() const { return operand == DType::f32; }
  /// Fused multiply-adds in place of tensor cores.
  bool fma() const { return floats() && !tf32; }
  std::int64_t taps() const { return taps_y * taps_x; }
  std::int64_t threads() const { return 32 * warps_m * warps_n * warps_k; }
  /// Of the depth, what a stage has for one tap. Channels side by side are rounded up to what is
  /// read of them at once, zeros behind.
  std::int64_t of_tap() const { return beside ? round_up(step, floats() ? 4 : 16) : step; }
  /// Elements from one point to the next where channels lie side by side, such that neighbours are
  /// read from different banks.
  std::int64_t point() const {
    return !floats() ? of_tap() + 8 : of_tap() / 4 % 2 == 1 ? of_tap() : of_tap() + 4;
  }
  std::int64_t steps() const { return ceil_div(of_tap() * taps(), std::int64_t{16}); }
  /// Bytes of the table of where taps are in a stage.
  std::int64_t table_bytes() const { return taps() == 1 ? 0 : (beside ? 16 : 64) * steps(); }
  /// Elements from one row of sums in shared memory to the next, and how many rows.
  std::int64_t sum_pitch() const {
    return turned ? tile + 4 : columns() + (40 - columns() % 32) % 32;
  }
  std::int64_t sum_rows() const { return turned ? columns() : tile; }
  std::int64_t turns() const { return ceil_div(part, step); }
  std::int64_t in_rows() const { return (tile_y - 1) * stride_y + (taps_y - 1) * dilate_y + 1; }
  std::int64_t columns() const { return 8 * blocks_n * warps_n; }
  std::int64_t left_bytes() const { return element() * tile * 16 * steps() + 16 * tile; }
  std::int64_t right_bytes() const;
  /// Whether eight points of a column block lie side by side in shared memory, from a multiple of
  /// 16 bytes, so that a matrix instruction's operand is read at once: as
  /// device/tilewright_windows.h has it.
  bool aligned() const {
    return !floats() && !beside && taps() == 1 && stride_x == 1 && lead == 0 && pitch % 8 == 0 &&
           (tile_y == 1 || tile_x % 8 == 0);
  }
  std::int64_t down() const { return ceil_div(rows, tile); }
  std::int64_t lines() const { return ceil_div(out_y, tile_y); }
  std::int64_t across() const { return ceil_div(out_x, tile_x); }
  /// Copies of a thread for a stage.
  std::int64_t left_copies() const { return ceil_div(tile * 16 * steps() / left_piece, threads()); }
  std::int64_t right_copies() const {
    return ceil_div(of_tap() * in_rows() * pitch / right_piece, threads());
  }
  std::int64_t copies() const { return left_copies() + right_copies(); }
  /// No copy is of less than 4 bytes but by a register.
  bool alone(std::int64_t piece) const { return piece * element() < 4; }
  /// Those of one element each, which waits in a register.
  std::int64_t elements() const {
    return (alone(left_piece) ? left_copies() : 0) + (alone(right_piece) ? right_copies() : 0);
  }
  /// Whether a thread knows the places of its copies once for all stages: as
  /// device/tilewright_windows.h has it.
  bool held() const {
    // Floats are read four of the depth at a time, or 16, in two parts.
    const std::int64_t beside = fma()      ? 8 * blocks_m + 4 * blocks_n
                                : floats() ? 16 * blocks_m + 64
                                           : 0,
                       most = floats() ? 190 : 168;
    return turns() > 1 && 2 * copies() + elements() + 4 * blocks_m * blocks_n + beside <= most;
  }
  /// That the blocks of clusters read of one another, all together.
  std::int64_t cluster_bytes() const;
  /// What a warp does for 16 of the depth, copies left out; `rate`: multiply-adds a cycle of an SM.
  struct Step {
    double tensor = 0;  ///< cycles of a scheduler's units that multiply
    double issue = 0;   ///< instructions, its products among them
    double near = 0;    ///< cycles of shared memory
  };
  Step step_work(double rate) const;
  /// Cycles of 16 of the depth in which a warp is alone.
  double step_alone(const Step& step) const;
};

/// A Reason: what of the kernel is no such convolution, or which tile none is made of. `warps`,
/// `stages`: 0: as the kernel's launch says, else as suits. Cost: a walk over the kernel's nodes.
Result<WindowProduct> window_product(const Schedule& s, int kernel, int warps = 0, int stages = 0);

/// Whether results of a product have the rows side by side, those of the operand that is no image:
/// the other one is read through a window, or is in groups and has points in several loops.
bool rows_are_last(const Workload& w, const Operator& op, const Access& result);

/// Tiles, copies and products for people, a line each.
std::string describe(const WindowProduct& p, const Schedule& s, int kernel);

}  // namespace tilewright::lowering
