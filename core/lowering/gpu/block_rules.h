// What blocks' lowering and its price (block_time.h) decide alike.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace tilewright::lowering {

inline constexpr int kCopyWarps = 4;              ///< of the copying role, where none are asked for
inline constexpr std::int64_t kSharedLine = 128;  ///< bytes; tiles begin at multiples of it
inline constexpr std::int64_t kSharedReserved = 1024;  ///< bytes of an SM that a block cannot have
inline constexpr std::int64_t kOtherRegisters = 72;  ///< that a thread needs beside its sums, about

struct WarpGrid {
  int rows = 1, columns = 1;
  int warps() const { return rows * columns; }
};
/// A product's rows and columns, in blocks of 16.
using ProductBlocks = std::pair<std::int64_t, std::int64_t>;
/// How warps share the rows and columns of tiles that lie in registers and of products, in blocks
/// of
/// 16. The most warps that share all of them evenly; of a number that was asked for (0: none), a
/// divisor. `area`: blocks of the largest product. Unless `rows_stay`, another grid of as many
/// warps where they read fewer fragments of operands: shared memory's rate is what products wait
/// for.
WarpGrid warp_grid(std::span<const std::int64_t> rows, std::span<const std::int64_t> columns,
                   std::span<const ProductBlocks> products, std::int64_t area, int asked,
                   bool rows_stay);
/// Elements between rows of a tile in shared memory. `padded`: else pieces of 16 bytes are
/// swizzled.
std::int64_t row_pitch(std::int64_t columns, std::int64_t element_bytes, bool padded);
/// Of a ring. `again`: a loop comes back to its load; `asked`: 0: none; `copies`: that the plan
/// has.
int ring_stages(bool again, int asked, int copies);
/// Registers that a thread of such a block can have.
std::int64_t most_registers(std::int64_t threads, std::int64_t of_sm);

}  // namespace tilewright::lowering
