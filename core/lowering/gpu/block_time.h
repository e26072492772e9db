// How long a kernel takes whose blocks have tiles in shared memory and whose warps share them: what
// codegen/cuda prints of a plan that binds no loop below blocks. From the resolved schedule alone.
//
// A block's copying warps fill rings of loaded tiles, its computing warps wait for each, multiply
// by mma.sync (f16, bf16) or by fused multiply-adds, and keep sums in registers as long as there
// is room. A block takes the longest of: its warps' work, one after the other where one waits for
// the other; the copies; the latency of copies over the stages of a ring. Blocks of one SM overlap
// until one of its resources is busy all the time. A kernel that is one product of 16-bit operands
// is priced as warpgroup_product.h arranges it where the machine has wgmma. Where tiles lie
// and in which form is what blocks' lowering decides, for the price as for the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/machine/machine.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// What a GPU gives, in cycles of an SM. All numbers are the machine file's but those that
/// block_time.cpp marks.
struct BlockRates {
  double clock = 1e9;  ///< cycles a second
  std::int64_t sms = 1, registers = 65536, threads = 2048, blocks = 32;
  std::int64_t shared = 0;  ///< bytes of an SM
  double mma = 0;           ///< multiply-adds a cycle of an SM, by mma.sync; 0: none
  double tf32 = 0;          ///< the same of floats, each product three of TF32
  double wgmma = 0;         ///< the same by wgmma, which sm_90a has
  bool clusters = false;    ///< as it has clusters of blocks, and launches that begin early
  double fma = 0;           ///< the same by fused multiply-adds
  double fill = 0;          ///< bytes a cycle from L2 into an SM
  double memory = 0;        ///< bytes a cycle from memory, all SMs together
  double l2_bytes = 0;      ///< that L2 keeps
  double l2 = 0, dram = 0;  ///< latencies
  double near = 0;          ///< latency of shared memory
  double light = 0, expensive = 0, shuffle = 0, barrier = 0;
  double launch_unit = 0;        ///< of a launch, for each SM that has blocks
  bool gives_registers = false;  ///< warpgroups to others, which sm_90a has
  bool adds_bf16 = true;         ///< in memory; else they are compared and swapped
  double launch = 0, dispatch = 0, block = 0, grid_barrier = 0, grid_barrier_block = 0;
  double launch_together = 0;  ///< more of a launch whose blocks wait for one another
};
/// A Reason where the machine is no GPU, or its file lacks a number (named).
Result<BlockRates> block_rates(const Machine& m, DType type);

/// How much of what is used again stays in a cache: all below three quarters of it, nothing above.
double stays(double bytes, double capacity);

/// One phase of a kernel: what lies between two barriers of all blocks.
struct PhaseTime {
  std::int64_t blocks = 1;
  double rounds = 0;  ///< of blocks that are resident together
  // Cycles of one block alone.
  double work = 0;    ///< of its warps
  double copies = 0;  ///< at the rate from L2
  double waits = 0;   ///< of the slowest ring: latency over stages
  double ends = 0;    ///< the first tile comes, the last results leave
  // Cycles that one block keeps a resource of the SM busy.
  double tensor = 0, near = 0, issue = 0, fill = 0;
  double seconds = 0;
};

struct BlockTime {
  double seconds = 0;
  double memory = 0;  ///< seconds of the bytes that L2 does not keep
  std::int64_t warps = 0, threads = 0, registers = 0, shared = 0, resident = 0;
  int barriers = 0;                ///< of all blocks
  bool warpgroups = false;         ///< a product by wgmma: see warpgroup_product.h
  std::string micro_kernel = {};   ///< of floats, where there are two: the quicker one
  std::vector<std::string> tiles;  ///< results that do not stay in registers
  std::vector<PhaseTime> phases;
};

struct BlockOptions {
  int warps = 0, stages = 0;  ///< 0: the kernel's launch, else the emitter's choice
  /// Bytes that are used again and again, which L2 keeps where they fit: the whole program's. 0:
  /// the workload's tensors.
  double working_set = 0;
};

/// A Reason where a loop is bound below blocks, where blocks have no room on an SM, or where more
/// blocks wait for one another than run at the same time. Cost: nodes times loops around them.
Result<BlockTime> block_time(const Schedule& s, int kernel, const BlockRates& r,
                             const BlockOptions& o = {});

}  // namespace tilewright::lowering
