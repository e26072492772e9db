// What the warps of one GPU kernel do where a block shares all work of a tile: which warps copy and
// which compute, where tiles lie, and what each role does, in order, with every barrier. The
// emitter that prints CUDA text makes it as it goes; `emit --explain` shows it. Its sibling, for
// kernels in which each thread has its own iterations, is ThreadProgram.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// Where one buffer's tile lies.
struct BlockTile {
  enum class Where : std::uint8_t {
    ring,       ///< shared memory, filled ahead by the copying role, `stages` deep
    shared,     ///< shared memory
    fragments,  ///< registers, as matrix instructions leave sums; each warp its rows and columns
    rows,       ///< registers, a value a row
    uses,       ///< registers of each use: read where it lies in another level's tile
  };
  BufferId buffer;
  Where where = Where::shared;
  std::string element;  ///< "float", "f16": as it lies there
  int stages = 1;
  std::int64_t units = 1;              ///< places, one for each unit that keeps a tile of its own
  std::int64_t offset = 0, bytes = 0;  ///< shared memory of the block, all stages and units
  int first_phase = 0,
      last_phase = 0;  ///< between barriers of all blocks: when its place is its own
  std::string reason;
};

struct BlockStep {
  enum class Kind : std::uint8_t {
    loop,     ///< `body`, `count` turns at most
    blocks,   ///< `body`, in those of the blocks here that have an iteration of a grid loop
    part,     ///< `body`, in `count` blocks from `first` on
    ahead,    ///< `body`, of the phase after the next barrier of all blocks
    copy,     ///< copying role: the next stage of a ring, once it is free
    take,     ///< computing role: gives the last stage back and waits for the next to be full
    load,     ///< by the computing role together: from home, or from another level's tile
    compute,  ///< `body`: the barriers that it needs
    store,    ///< to home, or to another level's tile
    drop,     ///< what a tile holds is given up: the next load brings it again
    barrier,  ///< `count` threads of the block; 0: all threads of all blocks
  };
  /// How a compute is carried out.
  enum class Method : std::uint8_t {
    product,      ///< operands as matrices of shared memory, through a micro-kernel
    contraction,  ///< the same, operands read element by element
    fragments,    ///< on sums and rows that lie in registers
    points,       ///< point by point, by any thread
  };
  Kind kind = Kind::loop;
  NodeId node;
  std::vector<BlockStep> body = {};
  std::string index = {};  ///< loop, blocks: its name in the text
  std::int64_t first = 0, count = 0;
  BufferId tile = {},
           other = {};        ///< what is moved, and the tile of another level on the other side
  bool asynchronous = false;  ///< copy: pieces of 16 bytes that no thread waits for
  bool atomic = false;        ///< store
  bool kept = false;          ///< copy, load, store: only where the record says that it is needed
  Method method = Method::points;
  std::string micro_kernel = {};
  Unit unit = Unit::warp;  ///< product, contraction: who issues one matrix instruction together
  std::int64_t rows = 0, columns = 0, depth = 0;  ///< of the largest product
};

/// Warps of a block that do the same thing all along.
struct BlockRole {
  std::string name;  ///< "copy", "compute"
  int first_warp = 0, warps = 0;
  std::vector<BlockStep> steps = {};
};

/// The schedule's workload and kernel must outlive it.
struct BlockProgram {
  const Workload* workload = nullptr;
  const ScheduledKernel* kernel = nullptr;
  int cluster = 1;                      ///< blocks that share their shared memory
  int warp_rows = 1, warp_columns = 1;  ///< how computing warps share a tile's rows and columns
  std::int64_t shared_bytes = 0;        ///< of a block
  std::vector<BlockTile> tiles;
  std::vector<BlockRole> roles;
};

/// The program for people: a line a tile and a step, indented as they nest.
std::string describe(const BlockProgram& p);

}  // namespace tilewright::lowering
