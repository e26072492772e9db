// What a written schedule's blocks ask of a GPU, and the time of a kernel from it: resources that
// work at the same time, the busiest of which decides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tilewright::lowering {
struct ThreadProgram;
}

namespace tilewright::stitching {

constexpr double kSectorBytes = 32;  ///< between L2 and an SM

/// What the blocks of one part ask for, by its tree: numbers of a block are sums over its warps.
struct Demand {
  double blocks = 0;
  double warps = 0;         ///< of a block, as the CUDA emitter shapes it
  bool meets = false;       ///< whether they wait for one another
  double instructions = 0;  ///< of a block: warp instructions
  double special = 0;       ///< of a block: of the special function units
  double wavefronts =
      0;                 ///< of a block: 128-byte passes of the load-store units, shuffles included
  double sectors = 0;    ///< of a block: of 32 bytes, between L2 and the SM
  double chain = 0;      ///< cycles from a block's start to its end, alone on its SM
  double awaited = 0;    ///< cycles, at the SM's share of DRAM's rate: what all warps wait for
  double turns = 1;      ///< of a thread over what it reads from home, a block's width apart
  double added = 0;      ///< of a block: bytes that it adds atomically
  double swapped = 0;    ///< of all blocks: additions to one word that are compared and swapped
  std::int64_t shared_bytes = 0;  ///< of a block
  double warp_cycles = 0;         ///< L_warp: of a warp whose instructions wait for one another
  double registers = 0;  ///< of a thread: values kept at the same time, and those on their way
  friend bool operator==(const Demand&, const Demand&) = default;
};

/// Seconds that each resource needs by itself, and of the kernel.
struct Overlap {
  double launch = 0;    ///< before the first block starts and after the last one ends
  double dispatch = 0;  ///< giving out blocks, one after the other
  double dram = 0;      ///< compulsory bytes at DRAM's rate
  double fill = 0;      ///< sectors at an SM's rate from and to L2
  double issue = 0;     ///< instructions, four schedulers an SM
  double special = 0;   ///< special functions
  double local = 0;     ///< wavefronts
  double added = 0;     ///< zeroing, before it, and adding what blocks add atomically, as they end
  double latency = 0;   ///< rounds of resident blocks, each as long as its chain
  double seconds = 0;
  double turns = 1;      ///< of a thread over what it reads
  double blocks = 0;     ///< in all
  double resident = 0;   ///< of an SM at once
  double chain = 0;      ///< cycles of the longest
  double registers = 0;  ///< of a thread, at most
  friend bool operator==(const Overlap&, const Overlap&) = default;
};

struct Device;
struct Component;
class Graph;

/// The work of a block of each part of a pack, or of the one kernel, from what its threads do.
/// Loads before a loop are under way together; of those in a loop, a few turns; a sum over lanes is
/// five shuffles, over warps a barrier more. `vertices` of `g` are the program's operators, by
/// name. Cost: the program's steps times 32 lanes.
std::vector<Demand> demands_of(const Graph& g, std::span<const int> vertices, const Device& d,
                               const lowering::ThreadProgram& program);

/// The kernel's time: launch + (sum of t^p)^(1/p) over the resources' seconds t, p = kSharpness:
/// nearly the longest of them, more where several are about as long; and what blocks add.
/// `resident`: blocks an SM has at once. After Little's law and Hong and Kim (ISCA 2009): where few
/// warps are resident, their latencies are the time, where many are, the busiest resource is.
Overlap overlap(const Device& d, std::span<const Demand> parts, double resident, double dram_bytes);
/// No more than overlap() gives for any kernel of so many blocks (0: any number) that asks for at
/// least as much: a block's instructions, sectors, warps and chain, DRAM's bytes. What a search
/// need not look at any closer.
double least_overlap(const Device& d, const Demand& part, double dram_bytes);

}  // namespace tilewright::stitching
