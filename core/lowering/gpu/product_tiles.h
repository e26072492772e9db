// How long a product takes in tiles of some size, and what a block of it needs, as the kernel
// language lays it out (codegen/cuda): operands in rings of shared memory that copying warps fill,
// sums in the registers of the computing ones. Estimates; docs/souffle.md shows them beside ptxas'
// figures.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/machine/machine.h"

namespace tilewright::lowering {

/// What of a GPU decides.
struct ProductUnit {
  std::int64_t sms = 1, registers = 65536, threads = 2048, blocks = 32;
  Bytes shared;               ///< of an SM
  double flops = 1e12;        ///< a second, of all SMs, by mma.sync or fused multiply-adds
  double fill = 1e11;         ///< bytes a second into one SM's shared memory
  double shared_rate = 1e11;  ///< bytes a second between an SM's shared memory and its warps
  bool matrix = false;        ///< 16-bit operands: fragments of 16 x 16
};
/// None where the machine is no GPU, or does not say what is needed.
std::optional<ProductUnit> product_unit(const Machine& m, DType type);

/// One operand's tile: rows are all dimensions but the last. `element`: bytes.
struct OperandTile {
  std::int64_t rows = 1, columns = 1, element = 2;
};
struct ProductTile {
  // Asked: a block's part of each result, of each step of the sum, and how many there are.
  std::int64_t rows = 1, columns = 1, depth = 1;
  std::int64_t results = 1;  ///< products of the same shape that a block makes together
  std::vector<OperandTile> operands;
  std::int64_t steps = 1, blocks = 1;
  /// Rows, columns and depth are one loop each: operands come by ldmatrix, not element by element.
  bool plain = true;
  int warps = 0, stages = 0;  ///< 0: the best
  // Found.
  std::int64_t threads = 0, registers = 0;  ///< of a block, of a thread
  Bytes shared;
  double seconds = 0;
};
/// Fills in what is found: the warps (up to 8) and stages (2 to 6) of least seconds, of equals (2
/// %) the most warps and the least stages. False where none has room. Cost: a hundred evaluations
/// of a formula.
bool estimate(const ProductUnit& unit, ProductTile& tile);

/// A product of matrices, [rows][depth] by [depth][columns], and how many of them there are.
struct ProductShape {
  std::int64_t rows = 1, columns = 1, depth = 1, batch = 1;
  std::int64_t element = 2;  ///< bytes, of the operands
};
/// The tile of least seconds among multiples of 16 up to 128 and depths of 16 to 128, no larger
/// than the product. None where none has room.
std::optional<ProductTile> best_tile(const ProductUnit& unit, const ProductShape& shape);

/// What one warp issues, and shared memory serves (128 bytes a cycle), for 16 of the depth of a product
/// by fused multiply-adds (Simt of codegen/cuda) of `rows` blocks of 16 and `columns` blocks of 8: of an
/// operand whose rows run along the depth a thread reads four points at once, of a right one whose rows
/// run across it four columns, of a left one each element.
struct FmaStep {
  double multiply_adds = 0, issued = 0, served = 0;  ///< instructions of a warp, and cycles
};
FmaStep fma_step(double rows, double columns, bool left_across);
/// Registers of such a thread with so many sums, as ptxas was seen to give it.
std::int64_t fma_registers(std::int64_t sums, std::int64_t rows);

/// Blocks of 16 x 16 that all warps of a grid of warps read of both operands, for 16 of the depth.
inline std::int64_t fragments_read(std::int64_t rows, std::int64_t columns, int warp_rows,
                                   int warp_columns) {
  return warp_columns * rows + warp_rows * columns;
}

}  // namespace tilewright::lowering
