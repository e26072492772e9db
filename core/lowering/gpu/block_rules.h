// What blocks' lowering and its price (block_time.h) decide alike.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

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
/// Pieces of 16 bytes that a copying thread has in registers at the same time, where rows begin
/// anywhere, of so many blocks on a multiprocessor.
constexpr int pieces_at_once(std::int64_t blocks) { return blocks <= 2 ? 8 : 4; }
/// Into how many groups copying threads then part, each with stages of its own: by a ring's stages,
/// where so many rings are copied like that.
constexpr int copying_groups(std::int64_t stages, std::int64_t rings) {
  return stages >= 4 ? 4 : stages >= 2 || rings >= 2 ? 2 : 1;
}
/// Elements between rows of a tile in shared memory. `padded`: else pieces of 16 bytes are
/// swizzled.
std::int64_t row_pitch(std::int64_t columns, std::int64_t element_bytes, bool padded);
/// Of a ring. `again`: a loop comes back to its load; `asked`: 0: none; `copies`: that the plan
/// has.
int ring_stages(bool again, int asked, int copies);
/// Blocks of 16 rows and of 8 columns that a warp makes at once of a contraction of so many points:
/// as large ones as give every warp one. `fours`: MicroKernel's.
std::pair<std::int64_t, std::int64_t> contraction_blocks(std::int64_t rows, std::int64_t columns,
                                                         std::int64_t products, std::int64_t warps,
                                                         bool fours);

/// Neighbours that a thread takes at once where they lie side by side.
inline constexpr std::int64_t kStripOfPoints = 4;
/// Of an operator that is computed point by point, points that a thread may have at once: `block`
/// of them along a loop (by position; -1: one point), for what they read alike. Reads of a point
/// that they share, and of its own; `some`: how much longer a point takes where not all exist.
struct PointBlock {
  int loop = -1;
  std::int64_t block = 1;
  double some = 1, alike = 0, own = 0;
};
struct BlockPoints {
  int strip = -1;  ///< the loop of which a thread takes neighbours at once; -1: single points
  std::vector<bool> inputs = {};  ///< whose neighbours along it lie side by side
  PointBlock at_once = {};
  std::int64_t members = 1;  ///< threads that share a point's sum
};
/// Assumed, in instructions: of a read, of joining two lanes' parts, of joining warps' parts, of a
/// round of points.
inline constexpr double kOfPointRead = 6, kOfPointJoin = 4, kOfPointExchange = 80,
                        kOfPointRound = 20;

/// Whether atomic additions of bf16 are an instruction: PTX ISA, red. `capability`: 0: unknown,
/// taken as the newest. Else they are compared and swapped (device/tilewright_device.h).
constexpr bool adds_bf16(double capability) { return capability == 0 || capability >= 9; }
/// Assumed: cycles of L2 for a word that is compared and swapped.
inline constexpr double kSwapping = 1;

/// Registers that a thread of such a block can have.
std::int64_t most_registers(std::int64_t threads, std::int64_t of_sm);

}  // namespace tilewright::lowering
