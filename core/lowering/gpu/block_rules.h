// What blocks' lowering and its price (block_time.h) decide alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tilewright::lowering {

inline constexpr int kCopyWarps = 4;  ///< of the copying role, where none are asked for
inline constexpr std::int64_t kSharedReserved = 1024;  ///< bytes of an SM that a block cannot have

/// Pieces of 16 bytes that a copying thread has in registers at the same time, where rows begin
/// anywhere, of so many blocks on a multiprocessor.
constexpr int pieces_at_once(std::int64_t blocks) { return blocks <= 2 ? 8 : 4; }
/// Into how many groups copying threads then part, each with stages of its own: by a ring's stages,
/// where so many rings are copied like that.
constexpr int copying_groups(std::int64_t stages, std::int64_t rings) {
  return stages >= 4 ? 4 : stages >= 2 || rings >= 2 ? 2 : 1;
}

/// Elements of a tile that a thread copies at a time, one by one: TW_ELEMENTS_AT_ONCE.
inline constexpr int kElementsAtOnce = 4;
/// Lanes that take a row of so many pieces: each_chunk (device/tilewright_tiles.h).
constexpr std::int64_t lanes_of_row(std::int64_t pieces) {
  std::int64_t lanes = 1;
  while (lanes < pieces && lanes < 32) lanes *= 2;
  return lanes;
}
/// Turns of a sum over points that are unrolled together, of single points and of strips.
inline constexpr int kPointsUnrolled = 4, kStripsUnrolled = 2;

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
/// How threads go through an operator's points.
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

/// Of the rate from L2 that a machine's file has for all SMs, what threads that load and store what
/// L2 keeps reach: 2 to 34 MB copied (experiments/gpu/unit_costs --from
/// experiments/results/h100-unit-costs.json).
inline constexpr double kFilled = 0.6;

/// Assumed: cycles of L2 for a word that is compared and swapped.
inline constexpr double kSwapping = 1;

/// Registers that a thread of such a block can have; ptxas hands them to four warps at a time.
constexpr std::int64_t most_registers(std::int64_t threads, std::int64_t of_sm) {
  constexpr std::int64_t kMost = 255, kTogether = 128;
  return std::min(kMost, of_sm / ((threads + kTogether - 1) / kTogether * kTogether) / 8 * 8);
}

/// Blocks on a multiprocessor that has so many registers: whole fours of warps have room, and a
/// warp gets registers in eights a thread (CUDA occupancy calculator).
constexpr std::int64_t blocks_by_registers(std::int64_t threads, std::int64_t registers,
                                           std::int64_t of_sm) {
  const std::int64_t each = (registers + 7) / 8 * 8, warps = of_sm / (32 * each) / 4 * 4;
  return warps / ((threads + 31) / 32);
}

/// Registers that a thread has at least of a launch whose text asks ptxas to leave them
/// (`__launch_bounds__`): of stitched kernels, and of kernels whose blocks have tiles. With fewer
/// they take longer where ptxas gave a thread more (h200-registers-asked-turns.json).
inline constexpr std::int64_t kLeastOfStitched = 64, kLeastOfTiled = 128;
/// Blocks for which it asks: as many as each multiprocessor has where all are under way together;
/// 0, for nothing, where they have no room. Not asked, ptxas gives a thread few registers, so that
/// each of its loads waits for the one before; of many blocks others hide that.
constexpr std::int64_t blocks_asked(std::int64_t blocks, std::int64_t threads, std::int64_t sms,
                                    std::int64_t of_sm, std::int64_t least) {
  const std::int64_t each = (blocks + sms - 1) / sms;
  return each * threads * least <= of_sm ? each : 0;
}

/// Cycles of a scheduler for the two parts of a float: three instructions, of which two have half
/// of the units.
inline constexpr double kOfParts = 5;
/// Registers of a thread with so many sums of floats by tensor cores, of `rows` blocks of 16: the
/// two parts of the left operand's, two columns of the right one's, and sums of 16 of the depth.
/// More than a thread can have: ptxas spills, and 64 x 64 by a warp take 1.1 to 1.8 times their
/// price.
constexpr std::int64_t tf32_registers(std::int64_t sums, std::int64_t rows) {
  return 48 + sums + 20 * rows;
}
inline constexpr std::int64_t kRegistersOfThread = 255;

/// Registers of a thread where the copying warps give some of theirs to the computing ones (PTX
/// ISA, setmaxnreg: of whole warpgroups, in eights), and blocks on a multiprocessor that the launch
/// then leaves room for; 0: they do not.
struct RegisterShares {
  std::int64_t copying = 0, computing = 0, blocks = 0;
};
constexpr RegisterShares register_shares(std::int64_t computing, std::int64_t copying,
                                         std::int64_t each_copying, std::int64_t blocks,
                                         std::int64_t of_sm) {
  constexpr std::int64_t kMost = 240;
  const std::int64_t each = of_sm / ((computing + copying) * blocks) / 8 * 8;
  const std::int64_t left = each * (computing + copying) - each_copying * copying;
  return {each_copying, std::min(kMost, left / computing / 8 * 8), blocks};
}

}  // namespace tilewright::lowering
