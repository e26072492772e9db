// What the warps of one GPU kernel do where a block shares all work of a tile: which warps copy and
// which compute, where tiles lie, and what each role does, in order, with every barrier. The
// emitter that prints CUDA text makes it as it goes; `emit --explain` shows it. Its sibling, for
// kernels in which each thread has its own iterations, is ThreadProgram.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/lowering/gpu/block_rules.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// Where one buffer's tile lies, and how. A tile's rows are all of its dimensions but the last, its
/// columns the last.
struct BlockTile {
  enum class Form : std::uint8_t {
    ring,      ///< shared memory, filled ahead by the copying role, `stages` deep; elements as at
               ///< home (i8: i32)
    loaded,    ///< shared memory, filled by the computing role, because this kernel writes the
               ///< tensor: likewise
    computed,  ///< shared memory: floats (doubles), or as the tensor has them where `narrow`
    sums,      ///< registers: floats, as matrix instructions leave them; a warp's rows and columns
    rows,      ///< registers: a float a row
  };
  /// Which part of a tile of sums a warp has, beside its rows.
  enum class Split : std::uint8_t {
    whole,    ///< all columns: a single column of warps
    columns,  ///< its own columns
    partial,  ///< all columns of a part of the sum
  };
  /// How pieces of 16 bytes of its rows are exchanged: as Tile (tilewright_tiles.h) has it.
  enum class Swizzle : std::uint8_t { none, rows, fours };

  BufferId buffer;
  Form form = Form::computed;
  Split split = Split::whole;
  std::string reason = {};
  /// Read by each use where it lies in this one's tile, at another level; none: it has its own.
  BufferId view = {};
  DType element = DType::f32;                    ///< as it lies there
  std::vector<std::int64_t> most = {};           ///< largest tile, by dimension
  std::vector<std::int64_t> stride = {};         ///< rows of the tile, by dimension but the last
  int row_dim = -1, column_dim = -1;             ///< sums, rows: the dimensions that they run along
  std::int64_t rows = 1, columns = 1;            ///< of the largest tile
  std::int64_t need_rows = 1, need_columns = 1;  ///< products read and write whole blocks
  std::int64_t pitch = 0;                        ///< elements between rows
  Swizzle swizzle = Swizzle::rows;
  /// A product reads it as its left or right operand, whose rows run along the depth.
  bool left_along = false, right_along = false;
  std::int64_t element_bytes = 4;
  int stages = 1;
  std::int64_t offset = 0, bytes = 0;  ///< shared memory of the block, all stages and units
  bool covered = true;                 ///< every compute uses the whole tile
  bool at_once = true;                 ///< computed: every element by one compute, never added to
  bool narrow = false;                 ///< computed: elements as the tensor's type has them
  bool plain = false;                  ///< written: stored by its node each time, never read back
  bool own = false;  ///< each unit of a loop within the block has a buffer of its own (rule 7)
  std::int64_t units = 1;    ///< of them in shared memory: one that changes hands, or one a unit
  bool takes_turns = false;  ///< with tiles of other uses, in one place
  int first_phase = 0,
      last_phase = 0;  ///< between barriers of all blocks: when its place is its own

  bool in_registers() const { return form == Form::sums || form == Form::rows; }
  bool in_shared() const { return !in_registers() && !view.valid(); }
};

/// How an operator is a matrix product C[i,j] += A[i,k] * B[k,j]; loops by position in op.loops.
struct BlockProduct {
  int write = 0;            ///< position in the compute's writes
  int left = 0, right = 1;  ///< positions in op.inputs
  int rows = -1, columns = -1, depth = -1;
};

/// The same where rows, columns and depth are several loops each, and other loops tell products
/// apart: a convolution, say. Loops by position in op.loops, the last of a list innermost.
struct BlockContraction {
  int write = 0;            ///< position in the compute's writes
  int left = 0, right = 1;  ///< positions in op.inputs
  std::vector<int> rows = {}, columns = {}, depth = {};
  std::vector<int> products = {};  ///< loops of both operands and the result
  std::vector<int> turns = {};     ///< of the sum, outside of the depth: by loops of their own
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
  /// How a tile comes from home. All but the last two are asynchronous: no thread waits for them.
  enum class Way : std::uint8_t {
    whole,     ///< pieces of 16 bytes, of a box that fills its tile: no row is looked at
    rows,      ///< pieces of 16 bytes, of rows that exist
    pieces,    ///< pieces of `piece` bytes, 8 or 4: rows begin at no multiple of 16
    shifted,   ///< pieces of 16 bytes, moved together in registers: rows begin anywhere
    elements,  ///< one by one, through registers
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
           other = {};      ///< what is moved, and the tile of another level on the other side
  Way way = Way::elements;  ///< copy, load
  std::int64_t piece = 0;   ///< bytes
  bool atomic = false;      ///< store
  bool kept = false;        ///< copy, load, store: only where the record says that it is needed
  Method method = Method::points;
  std::string micro_kernel = {};
  Unit unit = Unit::warp;  ///< product, contraction: who issues one matrix instruction together
  std::int64_t rows = 0, columns = 0, depth = 0;  ///< of the largest product
};

/// What computing warps do together to tiles in shared memory, as far as barriers tell it apart.
enum class BlockAct : std::uint8_t {
  fill,       ///< zeros before anything else
  load,       ///< a tile from home, or of another level's tile
  load_new,   ///< what a tile that slid has not yet
  clear,      ///< before a part comes in: products read whole blocks
  slide,      ///< what two tiles share, to where it lies in the next one
  read_back,  ///< an output's tile from where it goes, for what is added to it
  resume,     ///< the same for a compute that begins with a barrier itself
  hand_over,  ///< an inner level's tile to the outer one
  product,    ///< on tiles: also a contraction
  begin,      ///< of a product's sums in their tile, where another act of it reads them
  points,     ///< an operator point by point
  exchange,   ///< parts of sums between warps
};
/// Whether all computing warps come together before an act, and after it.
struct BlockBarriers {
  bool before = false, after = false;
};
BlockBarriers barriers_of(BlockAct act);

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
  int warp_rows = 1, warp_columns = 1;  ///< how computing warps share a tile's rows and columns
  int copy_warps = 0;                   ///< that fill rings; 0: there are none
  RegisterShares registers = {};        ///< between the roles; none: a thread has what it needs
  std::int64_t barrier_bytes = 0;       ///< of rings, at the beginning of shared memory
  std::int64_t scratch_offset = 0;      ///< where warps exchange parts of sums and rows
  std::int64_t shared_bytes = 0;        ///< of a block
  std::vector<BlockTile> tiles;         ///< by BufferId
  /// Computes that are products: one for each output, of the same rows, columns and depth.
  std::map<NodeId, std::vector<BlockProduct>> products;
  std::set<NodeId> loads_ahead;  ///< that begin before their phase does (launch's `ahead`)
  std::vector<BlockRole> roles;

  int threads() const { return 32 * warp_rows * warp_columns; }  ///< of the computing role
  int copying_threads() const { return 32 * copy_warps; }
};

/// The program for people: a line a tile and a step, indented as they nest.
std::string describe(const BlockProgram& p);

}  // namespace tilewright::lowering
