// The parts of `emit`: where tiles lie (emit_places.cpp), what moves (emit_moves.cpp), products
// (emit_product.cpp), the vector unit (emit_vector.cpp), and a kernel's blocks as one program
// (emit_kernel.cpp). What that takes: kernel_time.cpp.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/common/range_emitter.h"
#include "codegen/npu/alike_blocks.h"
#include "codegen/npu/block_walk.h"
#include "codegen/npu/merged.h"
#include "codegen/npu/npu.h"
#include "codegen/npu/reroll.h"
#include "codegen/npu/trace.h"

namespace tilewright::npu {

using codegen::Refused;

/// Of a box, its last dimension as columns and the last but one as rows, or another (`rows`), and
/// how many such matrices there are.
struct Matrices {
  std::int64_t count = 1, rows = 1, columns = 1;
};
Matrices matrices_of(const Box& box, int rows);
inline Matrices matrices_of(const Box& box) { return matrices_of(box, box.rank() - 2); }
/// The box of one of them: a single index in every other dimension.
Box matrix_of(const Box& box, std::int64_t index, int rows);
inline Box matrix_of(const Box& box, std::int64_t index) {
  return matrix_of(box, index, box.rank() - 2);
}

/// A buffer of the schedule, as the program has it.
struct TilePlace {
  Memory memory = Memory::ub;
  Layout layout = Layout::nd;
  DType type = DType::f16;  ///< as stored: running sums, and what never leaves UB, in f32
  bool transposed = false;  ///< operand in L0: columns are the tensor's last but one dimension
  std::string name;
  int copies = 1;
  std::int64_t elements = 0;  ///< of one copy: the largest tile
  std::int64_t address = 0;
};

/// A part of a tile of sums, as one matrix instruction writes it: packed.
struct SumBlock {
  Box box;
  std::int64_t offset = 0;  ///< elements from the tile's beginning
};

/// What of a tile is where, now.
struct Tile {
  int copy = 0;
  Box box;
  std::vector<SumBlock> blocks;  ///< sums
};

/// A matrix somewhere, as an end of a copy.
struct Piece {
  Memory memory = Memory::gm;
  DType type = DType::f16;
  MatrixPlace at;
  std::vector<TraceTouch> touches;  ///< reads; a destination's become writes
};

/// Working memory that several tensors' tiles pass through: places that are filled in turn.
struct Transit {
  Memory memory = Memory::ub;
  std::int64_t bytes = 0;  ///< of one of its two places, which lie first in the memory
  int next = 0;            ///< the place to fill next
};

/// A copy of a block from home.
struct HomeRead {
  std::int64_t number = 0;  ///< in the order of the walk
  std::string tensor;
  Box box;
  double moved = 0;
};

/// An affine form over a slab: its value at the slab's first element, and from row to row and from
/// column to column.
struct Form {
  std::int64_t base = 0, row = 0, column = 0;
  std::int64_t at(std::int64_t r, std::int64_t c) const { return base + r * row + c * column; }
};

/// An access's elements over a slab: where they lie, and which of them are in the tensor at all.
struct Walked {
  Form offset = {};  ///< elements from `object`'s beginning
  /// Of dimensions that the slab goes beyond: values, and what they are below.
  std::vector<std::pair<Form, std::int64_t>> inside = {};
  std::vector<std::int64_t> by = {};  ///< elements from index to index, by dimension
  std::string object = {};
  DType type = DType::f32;               ///< as the elements lie there
  std::vector<TraceTouch> touches = {};  ///< none: no element is in the tensor
};
struct Shape;
/// The first and last of `n` elements, one `step` of the form after another from `begin` on, whose
/// values are in 0 to `below` - 1.
Interval clipped(std::int64_t begin, std::int64_t step, std::int64_t below, std::int64_t n);
/// Whether every element of a slab is in the tensor.
bool whole(const Walked& x, const Shape& shape);
/// Rows and columns of a slab.
struct SlabPart {
  Interval rows, columns;
  bool empty() const { return rows.empty() || columns.empty(); }
};
/// Those whose elements are in the tensor. Nothing where they are no rectangle.
std::optional<SlabPart> inside_of(const Walked& x, const Shape& shape);
/// Whether no other dimension of the access goes by the loop.
bool is_in_last_two(const Access& a, LoopId loop);

enum class Spread : std::uint8_t;
struct Value;
class VectorUnit;

class KernelEmitter : private BlockWalk {
 public:
  KernelEmitter(const Schedule& schedule, int index, const EmitOptions& options);
  Result<KernelSource> emit();
  /// Whether emit() gives one, or why not, found by walking the blocks alone.
  Result<bool> taken();
  struct Taken {
    double cycles = 0;       ///< of the whole kernel, predicted (predicted_seconds)
    std::int64_t steps = 0;  ///< instructions that were walked through for it
  };
  Result<Taken> cycles();
  /// Why cycles() gives none, as far as that is found without following a block.
  Result<bool> timeable();

 private:
  /// What of a block is kept: its trace, or reads_, or nothing.
  enum class Kept { all, reads, none };

  // kernel_time.cpp
  class BlocksReads;
  std::vector<TraceNode>& traced(std::int64_t block, Kept kept);
  const std::vector<HomeRead>& reads_of_block(std::int64_t block);
  // emit_kernel.cpp
  void check() const;
  Program program();
  void begin_block();
  std::vector<NodeId> grid_loops() const;
  std::vector<Rolled> block_program(std::int64_t block);
  std::vector<Rolled> by_coordinate(const std::vector<NodeId>& loops, std::size_t depth,
                                    std::int64_t first);
  void declare(Program& program) const;
  void begin_iteration(NodeId loop, std::int64_t i) override;
  void end_iteration(NodeId loop) override;
  void begin_part(NodeId node) override;
  void charge(std::int64_t instructions);
  Refused too_long() const;
  /// The kernel's blocks, of those that do the same elsewhere one. Asked once.
  const BlockKinds& alike();
  /// Calls `walk_one` for one of each, and counts in `so_far` what all of them come to.
  void walk_alike(std::int64_t& so_far, const std::function<void(std::int64_t block)>& walk_one);
  void emit_step(TraceStep step);
  const NpuCore& core() const { return *s_.machine->npu_core; }
  std::int64_t capacity(Memory m) const;
  std::string tensor_name(TensorId t) const { return w_.tensor(t).name; }

  // emit_places.cpp
  void choose_places();
  void measure();
  void lay_out();
  using Room = std::array<std::int64_t, kMemories>;  ///< bytes used, by memory
  void place_transits(Room& used);
  void add_copies(Room& used);
  void place_operands();
  void widen_tiles(const ScheduleNode& n);
  std::int64_t copy_bytes(BufferId b) const;
  /// The dimension that is a tensor's rows where it moves as matrices.
  int rows_of(TensorId t) const { return rows_[t.index()]; }
  /// Of a part of a buffer: of fractals those of its rows, of others of its last two dimensions.
  Matrices matrices_in(BufferId b, const Box& box) const;
  std::int64_t pitch(BufferId b, const Matrices& m) const;
  std::int64_t matrix_elements(BufferId b, const Matrices& m) const;
  bool moves(BufferId b) const;
  bool in_turns(const ScheduleNode& n) const;
  bool widened(BufferId b) const;

  // emit_moves.cpp
  void open(BufferId b) override;
  void move_in(BufferId b, const Box& box) override;
  void move_out(BufferId b, const Box& box) override;
  void sums_out(BufferId b, BufferId to);
  void sums_in(BufferId b, const Box& box);
  void copy(Piece to, const Piece& from, std::int64_t rows, std::int64_t columns,
            bool transpose = false);
  void cast(const Piece& to, const Piece& from, std::int64_t rows, std::int64_t columns);
  struct Way {
    const DataPath* path = nullptr;
    Pipe pipe = Pipe::scalar;
  };
  /// Refuses memories between which no path is.
  const Way& way(Memory from, Memory to);
  /// Whether a copy's step stays in the trace; else copies may be counted, as count_copy() does.
  bool keeps_copies_from(Memory from) const;
  /// Refuses what copy() would of the same, and makes no step.
  void count_copy(BufferId b, const Box& part, bool inward);
  bool in_strips(BufferId b) const;
  void move_strips(BufferId b, const Box& box, bool inward);
  /// Elements from one index of a dimension to the next.
  std::vector<std::int64_t> steps_at_home(TensorId t) const;
  std::vector<std::int64_t> steps_in(BufferId b) const;  ///< its tile of now, in nd
  std::vector<Box> slices(TensorId t, const Box& matrix, bool whole);
  void matrix_in(BufferId b, const Box& matrix);
  void matrix_out(BufferId b, const Box& matrix);
  Piece home(TensorId t, const Box& matrix) const;
  /// Where in the tile of now a matrix begins, in elements from the buffer's beginning.
  struct Within {
    std::int64_t offset = 0, pitch = 0, length = 0;
  };
  Within within_tile(BufferId b, const Box& matrix) const;
  Piece tile(BufferId b, const Box& matrix) const;
  Piece sums(BufferId b, const SumBlock& block, std::int64_t row) const;
  Piece outer_of(BufferId b, const Box& matrix) const;
  Piece transit(Transit& t, TensorId tensor, Layout layout, DType type, std::int64_t rows,
                std::int64_t columns);

  // emit_product.cpp
  struct Product {
    int left = 0, right = 1;  ///< positions in op.inputs
    LoopId rows, columns, depth;
    bool left_transposed = false, right_transposed = false;
  };
  Product product_of(const ScheduleNode& n) const;
  /// Iterations of an operator's loop that a compute has at most.
  std::int64_t tile_size(OpId op, LoopId l) const;
  void place_product(const ScheduleNode& n);
  void multiply(NodeId node, const Ranges& ranges, const SumStep& step);
  const SumBlock& sum_block(BufferId b, const Box& box, bool initialises);
  Piece operand(BufferId b, const Box& read) const;

  // emit_vector.cpp
  struct SlabLoops {
    LoopId rows, columns;
    /// Loops around the rows that go on in every tile where the rows end, outermost first: a slab
    /// has the rows of all their iterations. Of slab_loops(): those that may.
    std::vector<LoopId> outer = {};
  };
  void compute(NodeId node, const Ranges& ranges, const std::vector<SumStep>& steps) override;
  void vector_compute(NodeId node, const Ranges& ranges, const std::vector<SumStep>& steps);
  /// A slab of an operator: its ranges, and where its instructions go.
  struct SlabAt {
    const Workload& w;
    OpId op;
    const std::vector<Interval>& at;
    SlabLoops loops;
    const Shape& shape;
    std::int64_t low(LoopId l) const {
      return at[static_cast<std::size_t>(w.local_index(op, l))].lo;
    }
  };
  struct SlabEmit {
    std::function<void(TraceStep)> step;
    bool kept = true;  ///< false: only counted
  };
  /// Where in its sums a slab is: the first step of the plan's, and the first and last of the slabs
  /// that add up, one after another, what this step has; sums are kept in f32 between these.
  /// `last`: the plan's last step.
  struct SlabSums {
    bool first = false, kept = false, begins = true, ends = true, last = true;
  };
  SlabLoops slab_loops(OpId op) const;
  SlabLoops usual_loops(OpId op) const;
  double slabs_take(OpId op, const SlabLoops& loops) const;
  Shape shape_of(OpId op, const std::vector<Interval>& at, const SlabLoops& loops) const;
  std::vector<LoopId> around_rows(OpId op, const SlabLoops& loops) const;
  std::vector<LoopId> outer_rows(const ScheduleNode& n, const std::vector<Interval>& around,
                                 const std::vector<LoopId>& candidates,
                                 const SlabLoops& loops) const;
  bool on_cube(const ScheduleNode& n) const;
  std::int64_t slab_room(const ScheduleNode& n, std::vector<Interval> at, const SlabLoops& loops,
                         std::int64_t most, bool kept);
  std::int64_t slab(const ScheduleNode& n, const std::vector<Interval>& at, const SlabLoops& loops,
                    const SlabSums& sums, bool dry);
  std::int64_t make_slab(const ScheduleNode& n, const std::vector<Interval>& at,
                         const SlabLoops& loops, const SlabSums& sums,
                         const std::vector<bool>& moved, const SlabEmit& emit);
  /// What slabs of one shape come to, wherever they lie.
  struct SlabWork {
    std::int64_t elements = 0;      ///< of scratch
    std::int64_t instructions = 0;  ///< 0: not known
  };
  SlabWork* slab_work(const ScheduleNode& n, const std::vector<Interval>& at,
                      const SlabLoops& loops, const SlabSums& sums, bool dry,
                      const std::vector<bool>& moved);
  /// `kept`: with the cycles that its accesses wait for one another.
  TraceStep vector_step(Vector v, std::vector<TraceTouch> touches, const std::string& comment,
                        bool kept) const;
  std::vector<bool> moved_by_elements(const ScheduleNode& n, const std::vector<Interval>& at,
                                      const SlabLoops& loops) const;

  // emit_lines.cpp
  void move_lines(VectorUnit& unit, const Walked& x, const SlabAt& slab, const Value& scratch,
                  bool inward, const SlabEmit& emit);
  /// Blocks of a result that are collected at once.
  std::int64_t blocks_at_once(DType t, std::int64_t step, std::int64_t blocks) const;
  bool collects(const Walked& x, const Value& to, std::int64_t rows, std::int64_t columns,
                bool kept) const;
  void collect(VectorUnit& unit, const Walked& x, const Value& to, std::int64_t rows,
               std::int64_t columns, const SlabEmit& emit);
  Value lanes_of_blocks(VectorUnit& unit, DType t);

  // emit_elements.cpp
  bool depends(const Operator& op, const Access& a, LoopId loop) const;
  std::optional<Spread> spread_of(const Access& a, const SlabLoops& at) const;
  /// Whether an access to columns lies as vector instructions walk it, in slabs that begin at
  /// multiples of a block.
  bool may_lie(OpId op, const Access& a, const SlabLoops& loops) const;
  /// Of a buffer's tile, or of the tensor at home where there is none.
  Walked walked(OpId op, const Access& a, BufferId b, const std::vector<Interval>& at,
                const SlabLoops& loops) const;
  /// As an operand of vector instructions, where they can begin and go on there.
  std::optional<Value> as_it_lies(const Operator& op, const Access& a, const Walked& x,
                                  const SlabLoops& loops, const Shape& shape) const;
  /// The part of a slab that is in the tensor, where vector instructions can begin and go on there
  /// in the tile and in `to`, which is of the whole slab.
  std::optional<SlabPart> part_as_it_lies(const Operator& op, const Access& a, const Walked& x,
                                          const SlabAt& slab, const Value& to) const;
  /// Zeros in `to`, then what there is of the access, copied or cast.
  void fill(VectorUnit& unit, const Walked& x, const SlabPart& part, const SlabAt& slab,
            const Value& to) const;
  /// Whether columns follow one another in the tile's rows, wherever these begin.
  bool along_rows(const Access& a, const SlabLoops& loops) const;
  /// Whether the vector unit itself brings elements from anywhere in the tile, and there: floats.
  bool in_lines(BufferId b) const;
  /// Whether the scalar unit is needed for some access or index, as far as tiles are not known.
  bool by_elements(const ScheduleNode& n) const;
  void looped(const std::string& counter, std::int64_t n, bool kept,
              const std::function<void(std::int64_t)>& body);
  void move_elements(VectorUnit& unit, const Operator& op, const Access& a, BufferId b,
                     const ScheduleNode& n, const SlabAt& slab, const Value& scratch, bool inward,
                     const SlabEmit& emit);
  Value packed(VectorUnit& unit, const Operator& op, const Access& a, BufferId b,
               const ScheduleNode& n, const SlabAt& slab, std::optional<Spread> as,
               const SlabEmit& emit);
  Value narrow_scratch();
  Value index_value(VectorUnit& unit, const Operator& op, LoopId loop, const SlabAt& slab,
                    const SlabEmit& emit);
  TraceTouch scratch_touch() const;
  /// Of an instruction with literal operands: cycles that its accesses wait for one another.
  std::int64_t bank_cycles(const Vector& v) const;
  /// A tile that vector instructions only cast, and cannot begin at, was met: the kernel is emitted
  /// again with such tiles in f32, and, where these are results that stay as they are, with scratch
  /// that the scalar unit works in, too.
  struct NeedsMoves {};
  KernelEmitter with_moves() const;

  int index_;
  const EmitOptions& options_;
  bool moves_elements_ = false;  ///< the scalar unit works in scratch, too
  bool widens_ = false;          ///< tiles that are only cast are in f32
  std::string row_counter_, column_counter_;
  std::vector<TilePlace> places_;    ///< by BufferId
  std::vector<Tile> tiles_;          ///< by BufferId
  std::vector<int> rows_;            ///< by TensorId: rows_of()
  std::map<int, Product> products_;  ///< by OpId, of what is on the cube
  std::optional<Transit> ub_transit_, l1_transit_;
  std::string scratch_name_, narrow_name_;  ///< narrow: the same in f16; empty: not used yet
  std::int64_t scratch_bytes_ = 0;
  bool uses_vector_ = false;
  std::array<bool, 2> lanes_made_ = {};  ///< in this block: lanes_of_blocks(), of f32 and f16
  std::map<std::vector<std::int64_t>, SlabWork> slabs_;
  mutable std::map<int, SlabLoops> slab_loops_;                            ///< by OpId
  mutable std::map<std::vector<std::int64_t>, std::int64_t> bank_cycles_;  ///< by repeats, blocks
  std::array<std::array<Way, kMemories>, kMemories> ways_ = {};
  std::vector<Buffer> extra_;                     ///< tensors' names for the transits, and scratch
  std::vector<std::int64_t> opens_, most_opens_;  ///< by BufferId: tiles a block, the most
  std::int64_t slice_bytes_ = 0, widest_slice_ = 0;  ///< of sums on their way through UB
  codegen::Names names_;
  std::map<std::string, std::string> counters_;  ///< by loop
  std::optional<BlockKinds> alike_;
  bool measuring_ = false;
  Kept kept_ = Kept::all;
  std::int64_t measured_ = 0, emitted_ = 0, flags_ = 0;
  std::vector<std::vector<TraceNode>*> into_;  ///< where steps go: innermost last
  std::vector<int> parts_;                     ///< of each loop's body: where the walk is
  std::vector<TraceNode> trace_;
  std::vector<HomeRead> reads_;  ///< of a block: Kept::reads
};

/// What `of` finds of the kernel over merged loops, or of the kernel as it is where there are none,
/// or that form is refused.
template <class Found>
Result<Found> merged_or_plain(const Schedule& s, std::size_t kernel, const EmitOptions& options,
                              Result<Found> (KernelEmitter::*of)()) {
  if (const std::optional<Schedule> merged = merged_kernel(s, kernel))
    if (Result<Found> found = (KernelEmitter(*merged, 0, options).*of)()) return found;
  return (KernelEmitter(s, static_cast<int>(kernel), options).*of)();
}

}  // namespace tilewright::npu
