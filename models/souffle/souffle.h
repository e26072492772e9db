// Souffle (Xia et al., Optimizing Deep Learning Inference via Global Analysis and Tensor
// Expressions, ASPLOS 2024): tensor expressions are classified (section 5), partitioned into
// subprograms by what can wait at a grid-wide barrier (5.4), transformed (6.1 to 6.3), and each
// subprogram is one kernel whose phases a barrier of all blocks separates (6.4), with tiles kept on
// chip across it (6.5). Predictions only: nothing here runs or counts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/lowering/gpu/product_tiles.h"
#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::souffle {

enum class Criterion : std::uint8_t { per_sm, total };
enum class Bound : std::uint8_t { inclusive, strict };
enum class Order : std::uint8_t { topological, bfs };
enum class Intensive : std::uint8_t { contraction, ratio };
enum class Sync : std::uint8_t { needed, literal };
enum class Reduction : std::uint8_t { split, atomic, local };
enum class Split : std::uint8_t { criterion, none, contractions };
std::optional<Criterion> criterion_from_name(std::string_view name);
std::optional<Bound> bound_from_name(std::string_view name);
std::optional<Order> order_from_name(std::string_view name);
std::optional<Intensive> intensive_from_name(std::string_view name);
std::optional<Sync> sync_from_name(std::string_view name);
std::optional<Reduction> reduction_from_name(std::string_view name);
std::optional<Split> split_from_name(std::string_view name);

/// What the criterion asks of a compute-intensive operator's kernel.
struct Resources {
  std::int64_t blocks = 1;
  std::int64_t threads = 256, registers = 64;  ///< of a block, a thread
  Bytes shared;                                ///< of a block
};

/// Every open point of the paper, the default first (design/powerfusion-souffle.md, section 1).
struct Options {
  Criterion criterion = Criterion::per_sm;
  Bound bound = Bound::inclusive;
  Order order = Order::topological;
  Intensive intensive = Intensive::contraction;
  double threshold = 3;  ///< operations an element, of Intensive::ratio
  Split split = Split::criterion;
  /// By operator, or for all that differ in a number at their name's end: instead of our own tiles.
  std::map<std::string, Resources, std::less<>> schedules = {};
  bool horizontal = true;   ///< independent products of the same loops in one nest
  bool concat = true;       ///< products of one tensor in tiles of one wider product
  bool pack = true;         ///< independent nests on blocks of their own
  bool vertical = true;     ///< others in the nest of what they read
  bool global_sync = true;  ///< a subprogram is one kernel
  bool reuse = true;        ///< tiles are kept across a barrier
  bool units = true;        ///< kernels without products in loops bound to warps and lanes
  bool pipeline = true;     ///< loads of a phase's inputs begin before the barrier that it follows
  Sync sync = Sync::needed;
  Reduction reduction = Reduction::split;
  double launch_us = 2;  ///< section 8.3
  double sync_us = 0;    ///< 0: the machine's
};

/// What of a machine decides.
struct Device {
  std::int64_t sms = 1;
  std::int64_t registers = 65536;  ///< of an SM
  Bytes shared;                    ///< of an SM, for blocks
  std::int64_t blocks = 32;        ///< of an SM
  double flops = 1e12;             ///< a second, of the workload's type
  double fill = 1e11;       ///< bytes a second from the outer level into one SM's shared memory
  double memory = 1e12;     ///< bytes a second from home
  double barrier = 1.5e-6;  ///< seconds of a barrier of all blocks: an H200's where nothing is said
  double barrier_block = 0;       ///< and of each of them
  lowering::ProductUnit product;  ///< the same, for the tiles of products
};
/// Of a barrier of so many blocks.
inline double barrier_seconds(const Device& d, const Options& o, std::int64_t blocks) {
  return o.sync_us > 0 ? 1e-6 * o.sync_us
                       : d.barrier + d.barrier_block * static_cast<double>(blocks);
}
/// A Reason where the machine is no GPU. `room`: of shared memory, if less than there is.
Result<Device> device_of(const Machine& m, DType type, std::optional<Bytes> room);

// ---- Analysis (section 5)
// ------------------------------------------------------------------------

/// One tensor expression: one output of an operator.
struct Expression {
  bool many = false;       ///< relies on many elements: it sums
  bool intensive = false;  ///< compute-intensive
  double operations = 0;   ///< arithmetic, 2 a point of a product's sum
  double elements = 0;     ///< distinct ones, read and written
};
/// A tensor with several readers. Pairs with a path between them reuse it in time, others in space.
struct Reused {
  TensorId tensor;
  std::vector<OpId> readers;
  std::int64_t in_space = 0, in_time = 0;  ///< pairs
};
struct Analysis {
  std::vector<Expression> of;             ///< by operator; an operator's outputs are alike
  std::vector<Reused> reused;             ///< in the workload's order of tensors
  std::vector<std::pair<int, int>> live;  ///< by tensor: positions in the topological order of its
                                          ///< definition (-1: input) and last use
};
/// Cost: the square of the operators over 64, for paths.
Analysis analyse(const Workload& w, const Options& o);

/// The composition of two one-on-one index maps: what the reader's element needs of the producer's
/// input. `printed`: in the order that the paper prints (equation 2), which is another map.
struct IndexMap {
  std::vector<std::vector<std::int64_t>>
      matrix;  ///< a row a dimension of what is read, a column a loop
  std::vector<std::int64_t> offset;
  friend bool operator==(const IndexMap&, const IndexMap&) = default;
};
/// How an operator reads: rows by dimension of the input, columns by dimension of its first output.
/// None where an index is a gather's, or a loop is no dimension of the output.
std::optional<IndexMap> index_map(const Operator& op, const Access& input);
/// inner after outer: M = M_inner M_outer, c = M_inner c_outer + c_inner. None where they do not
/// fit.
std::optional<IndexMap> composed(const IndexMap& inner, const IndexMap& outer);
std::string to_text(const IndexMap& map);

// ---- Schedules of products
// -----------------------------------------------------------------------

/// A loop and how far one iteration of it goes.
struct Cut {
  LoopId loop;
  std::int64_t step = 0;
  friend bool operator==(const Cut&, const Cut&) = default;
};
struct Tile {
  std::vector<Cut> grid;   ///< loops shared out to blocks; others are whole in a block
  std::vector<Cut> inner;  ///< loops of the sum that a block walks
  std::int64_t blocks = 1;
  std::int64_t threads = 256, registers = 64;  ///< estimates: of a block, a thread
  Bytes shared;                                ///< estimate: of a block
  double seconds = 0;
  int warps = 8, stages = 2;  ///< that compute; copies of the operands' tiles
};
struct TileAsked {
  std::int64_t most_blocks = 0;  ///< met by larger tiles where there are any; 0: any
  int warps = 0;                 ///< that all products of the kernel share; 0: the best
  std::int64_t parts = 1;        ///< of the sum, in blocks of their own that add up what they have
};
/// One of the products that make up a wider one.
struct Slice {
  OpId op;
  std::set<LoopId> whole = {};  ///< loops that no block may cut
  std::int64_t together = 1;    ///< products of the same loops in the same blocks
};
/// The tiles of contractions side by side with the least seconds
/// (core/lowering/gpu/product_tiles.h) among powers of two and multiples of 16, under the device's
/// shared memory and registers: tiles of one size, a block having columns of one of them. Each has
/// the seconds of all. Empty where no size suits all.
std::vector<Tile> product_tiles(const Device& d, const Workload& w, std::span<const Slice> slices,
                                const TileAsked& asked = {});
/// product_tiles() of one machine, each product asked for once: networks repeat their layers.
class TileTable {
 public:
  std::vector<Tile> of(const Device& d, const Workload& w, std::span<const Slice> slices,
                       const TileAsked& asked);

 private:
  std::map<std::string, std::vector<Tile>> known_;  ///< loops by their places in the operators
};
/// A contraction as a product of matrices, `sizes` by its loops being a block's part in one step of
/// the sum. Blocks and steps are left at 1.
lowering::ProductTile product_in_tiles(const Workload& w, OpId op,
                                       std::span<const std::int64_t> sizes);
bool on_matrix_units(const Workload& w, OpId op);

// ---- Partition (section 5.4)
// ---------------------------------------------------------------------

struct Subprogram {
  std::vector<OpId> ops;  ///< in the order of the partition
  std::string opened_by;  ///< why it begins: "" for the first
};
/// Blocks of a contraction at most, 0 for any. In a kernel that waits more than multiprocessors
/// would share their memory in every phase, and rings of fragments are large.
std::int64_t blocks_that_wait(const Device& d, const Workload& w, OpId op, const Options& o);
/// Of a contraction, in a kernel with others or alone; the given one where there is one.
Tile schedule_of(const Device& d, const Workload& w, OpId op, const Options& o, TileTable& tiles);
/// Whether blocks of all these schedules can wait for one another: the grid and resources of the
/// largest.
bool feasible(const Device& d, const Options& o, std::span<const Tile> schedules);
/// Algorithm 1, lines 2 to 9, its tail kept: an operator whose schedule is not feasible together
/// with those before opens the next subprogram; the others go with the last.
std::vector<Subprogram> partition(const Workload& w, const Analysis& a, const Device& d,
                                  const Options& o);

// ---- Nests and phases (sections 6.1 to 6.4)
// -------------------------------------------------------

/// Of a kernel of several phases: as many as a tile of 64 x 64 keeps busy. Measured on an H200
/// (docs/souffle.md): a BERT layer's kernels take 124 us with eight warps each, and 136 with what
/// each alone would have.
inline constexpr int kWarps = 8;
/// How a product stands beside the others of its phase (section 6.1).
struct Beside {
  int group = -1;      ///< products of a group may share a nest
  int wide = -1;       ///< groups that are one wider product; -1: none
  bool alone = false;  ///< its kernel has nothing else, and the warps of its tile
  Tile tile;           ///< of the group's blocks
};
/// By operator: of the products among `ops`, by the phases (`level`) that they could have.
std::vector<Beside> side_by_side(const Workload& w, const Device& d, const Options& o,
                                 std::span<const OpId> ops, std::span<const int> level,
                                 TileTable& table);
/// A dimension of so many elements that a reader picks from stays whole.
inline constexpr std::int64_t kWhole = 16;
/// Loops of an operator's result that no block should cut: those that an element-wise reader in
/// `inside` (by operator) picks from by another index, or sums over, where they are short.
std::set<LoopId> whole_loops(const Workload& w, const std::vector<bool>& inside, OpId op);

/// Operators that the same blocks compute, tile by tile.
struct Nest {
  std::vector<Cut> grid;
  std::vector<Cut> walk;  ///< loops of a block around everything
  struct Sum {
    OpId op;
    std::vector<Cut> inner;  ///< loops of its sum
    int stages = 2;          ///< copies of its operands' tiles where it has such loops, at most
  };
  std::vector<Sum> sums;     ///< products, and sums of what does not fit as a whole
  std::vector<OpId> others;  ///< in order
  int phase = 0;
  int unit = 0;  ///< nests of a phase and a unit stand side by side, units one after the other
  std::int64_t blocks = 1, first = 0;
  int warps = kWarps;  ///< that compute, in a kernel of its own
  /// Of its product, as the tile chooser estimates them; 0: it has none.
  std::int64_t threads = 0, registers = 0;
  Bytes shared;
  bool has(OpId op) const;
  std::vector<OpId> ops() const;
};
/// The nests of a subprogram, by phase. Cost: operators times readers.
std::vector<Nest> built_nests(const Workload& w, const Device& d, const Options& o,
                              std::span<const OpId> ops, TileTable& table);

/// A tile that stays on chip from one phase to a later one.
struct KeptTile {
  TensorId tensor;
  Bytes bytes;  ///< of a block
  int gap = 1;  ///< phases between two uses, at most
};
/// One kernel: nests by phase, phases from 0 on without gaps.
struct Program {
  std::vector<Nest> nests;
  int phases = 0;
  std::set<TensorId> home;     ///< made here and read from home
  std::vector<KeptTile> kept;  ///< made or read here, and kept across a barrier
  std::set<TensorId> dropped;  ///< read in several phases, and not kept: loaded in each
};
/// The kernel of these nests: where each tensor lives (section 6.5), and which blocks each nest
/// has. Tiles of `spilled` are not kept.
Program program_of(const Workload& w, const Device& d, const Options& o, std::vector<Nest> nests,
                   const std::set<TensorId>& spilled);

/// Whether each block computes what it reads of a tensor itself: the grid cuts of the nest cut the
/// same dimensions as when the tensor was written.
bool reads_own_tile(const Workload& w, std::span<const Cut> grid, const Access& read, OpId writer);
/// Whether blocks may have parts of its sums, and add them up at home.
bool may_sum_over_blocks(const Workload& w, const Options& o, OpId op);
/// Seconds of sums that blocks have a part of each, beside their own: places are zeroed by a launch
/// of its own, every part is added up in memory, and what reads them (`waits`) comes after a
/// barrier.
double seconds_of_parts(const Workload& w, const Device& d, const Options& o,
                        std::span<const OpId> sums, std::int64_t parts, bool waits);
/// Loops that blocks cut (more than one of them).
bool is_cut(const Workload& w, const Cut& c);
/// Bytes of a block's tiles that are alive at the same time, at most: a tile from its first use in
/// the nest to its last. `more`: an operator after the others, if valid.
Bytes most_alive(const Workload& w, const Nest& n, OpId more = OpId());

// ---- Plans
// ---------------------------------------------------------------------------------------

/// The kernel as a plan's. `leaves`: tensors that must be at home at its end; `stages`: copies of a
/// loop's loaded tiles, at most.
Kernel kernel_of(const Workload& w, const Machine& m, const Options& o, const Program& p,
                 const std::set<TensorId>& leaves, const std::string& name, int stages);

/// What a kernel moves: every tensor once a phase, unless its blocks have the tile from a phase
/// before.
struct KernelCount {
  std::vector<std::string> operators;
  std::vector<std::string> kept;  ///< tensors read again without a load
  int phases = 0;
  Bytes read, written;
  double flops = 0;
  double seconds = 0;  ///< ours: a launch, phases at the rate of memory or arithmetic, barriers
};
struct PlanCount {
  std::vector<KernelCount> kernels;
  std::vector<std::pair<Bytes, Bytes>> tensors;  ///< by tensor: read, written
  double seconds() const;
  Bytes read() const;
};
/// Of a plan whose every load is a node; in a kernel at level `registers`, those that it says.
PlanCount count(const Workload& w, const Device& d, const Options& o, const Plan& plan);

}  // namespace tilewright::souffle
