// Simulated traffic of a schedule on a GPU: blocks run side by side on the SMs and meet in L2.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/plan/schedule.h"
#include "core/plan/stream.h"
#include "core/plan/traffic.h"
#include "simulator/gpu/l2.h"

namespace tilewright::gpu {

/// In which order the pieces of resident blocks reach L2.
enum class BlockOrder : std::uint8_t {
  timed,  ///< each block goes at its own pace, and the next one takes the first place that is free
  lockstep,  ///< waves: all blocks of a wave advance together, the next wave begins when all are
             ///< done
  serial,    ///< one block after the other
};
std::string_view name_of(BlockOrder o);
std::optional<BlockOrder> block_order_from_name(std::string_view name);

struct Options {
  Layout layout = Layout::row_major;  ///< kernels take tensors as they are declared
  BlockOrder order = BlockOrder::timed;
  /// None: as many as the plan's memory use leaves room for in an SM's shared memory, each block
  /// with 1 KiB reserved by the system, at most kMostBlocks.
  std::optional<std::int64_t> blocks_per_sm;
  int partitions = 1;  ///< of L2, 1 or 2: see L2Geometry. One until a measurement says otherwise
  /// timed: a block's pace is drawn from 1 - jitter to 1 + jitter. SMs differ in their distance to
  /// L2 and in what they contend for; without any difference whole waves would stay in lockstep.
  double jitter = 0.1;
  std::uint64_t seed = 1;  ///< also of the values that gathers are indexed by
  SetIndex index = SetIndex::hashed;
  int threads = 1;  ///< each simulates a share of L2's sets: the same counts
  /// Approximate: of each kernel only so many waves of resident blocks run, and what crosses to
  /// DRAM in the second half of them stands for all blocks that do not run. 0: all run. Blocks start
  /// in step and leave it over tens of waves: a few waves are too much in step.
  std::int64_t sample_waves = 0;
  bool walk_all = false;  ///< also blocks that repeat their neighbours: the same counts

  /// An SM of 2048 threads takes so many blocks of 256 (assumed), whatever their memory.
  static constexpr std::int64_t kMostBlocks = 8;
};

struct KernelRun {
  std::int64_t blocks = 1;
  std::int64_t blocks_per_sm = 1;
  std::int64_t resident = 1;   ///< blocks that run side by side
  std::int64_t walked = 1;     ///< blocks whose accesses were walked; the others repeat them
  std::int64_t simulated = 1;  ///< blocks that ran; less than all where sampled
};

struct Simulated {
  Traffic traffic;
  std::int64_t sms = 1;
  int partitions = 1;
  std::vector<KernelRun> kernels;
};

/// Whether simulate_blocks() is for a machine: a GPU on which one cache, which all share, lies
/// between home and what software manages.
bool simulates(const Machine& m);

/// Bytes at every boundary, per tensor, by "gpu". Kernels run one after the other; L2 keeps what it
/// holds from one to the next. Inside a kernel
///
/// - blocks are dispatched in linear order, the first ones dealt to the SMs in turn; at most
///   min(SMs x blocks an SM, blocks) are resident;
/// - a block's accesses are what its software-managed buffers move to and from L2 (rules 8 to 12 of
///   the plan), in order, in pieces of some rows of a tile (Piece::kChunk bytes at most); operands
///   that no buffer holds are touched by each compute;
/// - timed: a piece takes its bytes at the SM's share of L2's bandwidth; the pieces between two
///   computes together take at least the computes at the SM's peak. Both are shared by the blocks
///   of an SM. Whether L2 has the data does not matter for the time, so that the order is the same
///   whatever L2 does; time advances in ticks of a piece's mean time, and in a tick places are
///   asked in turn;
/// - a barrier of the whole grid ends for all blocks at once.
///
/// Stores that add to what is there (atomic) read and write at L2. Cost: ten nanoseconds or so for
/// each line of each piece, and a walk over at most six iterations of each grid loop where the grid
/// is a plain nest. Throws InputError where simulates() is false, for an L2 that gpu::check
/// refuses, for tensors beyond 2^32 lines, and for lists of accesses that would not fit in memory.
Simulated simulate_blocks(const Schedule& schedule, const Options& options = {});

}  // namespace tilewright::gpu
