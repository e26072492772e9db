// The parts of `emit`: a kernel's two walks (emit_kernel.cpp), where its tiles live
// (emit_forms.cpp, emit_layout.cpp), what is loaded and written (emit_moves.cpp), between levels
// too (emit_levels.cpp), and its computes (emit_compute.cpp, emit_points.cpp, emit_product.cpp,
// emit_product_tiles.cpp, emit_contraction.cpp, emit_rows.cpp).
//
// A block's warps walk the plan's tree twice over: some meet only the loads and copy tiles into
// rings in shared memory, the others wait for the same tiles and compute. Every load is
// ahead of its use by as many tiles as the ring has stages, whatever the tree's shape.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen/common/range_emitter.h"
#include "codegen/cuda/cuda.h"
#include "core/lowering/gpu/block_program.h"

namespace tilewright::cuda {

using namespace codegen;  // internal header: the parts that every target shares

/// Where a buffer's tile lives.
enum class Form : std::uint8_t {
  ring,    ///< loaded by the copying warp: stages in shared memory, elements as at home (i8: i32)
  loaded,  ///< loaded by the computing warps, because this kernel writes the tensor: likewise
  tile,    ///< computed: floats (doubles) in shared memory
  sums,    ///< computed: floats in registers, as the matrix instructions leave them
  rows,    ///< computed: one float a row, in registers
};

inline bool in_registers(Form f) { return f == Form::sums || f == Form::rows; }
inline std::int64_t round_up(std::int64_t value, std::int64_t to) {
  return ceil_div(value, to) * to;
}

/// Which part of a tile of sums a warp has, beside its rows.
enum class Split : std::uint8_t {
  whole,    ///< all columns: a single column of warps
  columns,  ///< its own columns
  partial,  ///< all columns of a part of the sum
};

/// One buffer, and how it lies. A tile's rows are all of its dimensions but the last, its columns
/// the last.
struct TilePlace {
  Form form = Form::tile;
  Split split = Split::whole;
  std::string reason;
  std::vector<std::int64_t> most;      ///< largest tile, by dimension
  std::vector<std::int64_t> stride;    ///< rows of the tile, by dimension but the last
  int row_dim = -1, column_dim = -1;   ///< sums, rows: the tensor's dimensions that they run along
  std::int64_t rows = 1, columns = 1;  ///< of the largest tile
  std::int64_t need_rows = 1, need_columns = 1;  ///< products read and write whole blocks
  std::int64_t pitch = 0;                        ///< elements between rows
  /// How chunks of its rows are exchanged: as Tile has it.
  enum class Swizzle : std::uint8_t { none, rows, fours };
  Swizzle swizzle = Swizzle::rows;
  /// A product reads it as its left or right operand, whose rows run along the depth.
  bool left_along = false, right_along = false;
  std::int64_t element_bytes = 4;
  int stages = 1;
  std::int64_t bytes = 0, offset = 0;  ///< of all stages, in the block's shared memory
  bool covered = true;                 ///< every compute uses the whole tile
  bool at_once = true;                 ///< computed: every element by one compute, never added to
  bool narrow = false;                 ///< computed: elements as the tensor's type has them
  bool plain = false;                  ///< written: stored by its node each time, never read back
  bool own = false;  ///< each unit of a loop within the block has a buffer of its own (rule 7)
  std::int64_t units = 1;  ///< of them in shared memory: one that changes hands, or one a unit
};

/// How an operator is a matrix product C[i,j] += A[i,k] * B[k,j]; loops by position in op.loops.
struct Product {
  int write = 0;            ///< position in the compute's writes
  int left = 0, right = 1;  ///< positions in op.inputs
  int rows = -1, columns = -1, depth = -1;
};

/// The same where rows, columns and depth are several loops each, and other loops tell products
/// apart: a convolution, say. Loops by position in op.loops, the last of a list innermost.
struct Contraction {
  int write = 0;            ///< position in the compute's writes
  int left = 0, right = 1;  ///< positions in op.inputs
  std::vector<int> rows, columns, depth;
  std::vector<int> products;  ///< loops of both operands and the result
  std::vector<int> turns;     ///< of the sum, outside of the depth: by loops of their own
};

/// A loop of which a thread takes kStrip neighbours at once, because they lie side by side in the
/// tiles.
struct Neighbours {
  int loop = -1;             ///< position in op.loops
  std::vector<bool> inputs;  ///< those that lie so
};
inline constexpr int kStrip = 4;

struct Program {
  const Schedule& schedule;
  const EmitOptions& options;
  std::vector<bool> needed;            ///< by TensorId
  std::vector<std::string> used = {};  ///< micro-kernels, as they are met
  bool f64 = false;
  const Workload& workload() const { return *schedule.workload; }
  const Machine& machine() const { return *schedule.machine; }
};

/// The name that the device headers have for it.
std::string element_type(DType type);

/// What the whole program needs to know of a kernel.
struct KernelText {
  std::string text;
  std::vector<Launch> launches;  ///< zeroing first
  std::vector<TileUse> tiles;
  std::vector<std::string> notes;
  std::string program = {};  ///< for people
  bool cold = false;         ///< instructions are fetched for a few turns of them each
};

class KernelEmitter : private RangeEmitter {
 public:
  KernelEmitter(Program& program, int index);
  Result<KernelText> emit();

 private:
  // emit_kernel.cpp
  void check() const;
  void pass();
  void walk();
  void enter_body(NodeId body, SymRanges& ranges);
  void visit(NodeId id, const SymRanges& ranges);
  void visit_loop(NodeId id, const SymRanges& ranges);
  void visit_children(NodeId parent, const SymRanges& ranges);
  void visit_drop(NodeId id);
  void load_ahead(NodeId barrier, const SymRanges& ranges);
  void visit_by_blocks(std::span<const NodeId> ids, const SymRanges& ranges);
  bool shares_out(NodeId id) const;
  bool waits(NodeId id) const;
  void visit_grid_loop(NodeId id, const SymRanges& ranges);
  void visit_body(NodeId id, const Cut& cut, const SymRanges& around);
  bool has_copies(NodeId id) const;
  std::string ref(BufferId b) const override;
  std::string tensor_name(TensorId t) const { return workload_.tensor(t).name; }
  std::string home(TensorId t) const { return identifier("", tensor_name(t)) + "_home"; }
  std::string name(BufferId b) const { return names_of_[b.index()]; }
  std::string element_type(TensorId t) const {
    return cuda::element_type(workload_.tensor(t).dtype);
  }
  /// Whether its tiles have wider elements than it has at home: threads write no single bytes.
  bool widened(TensorId t) const { return workload_.tensor(t).dtype == DType::i8; }
  std::string real() const { return p_.f64 ? "double" : "float"; }
  std::string literal_text(double value) const;
  /// `loops`: the operator's, by position, as text.
  std::string expression_text(const Expr& e, OpId op, const std::vector<std::string>& loops,
                              const std::function<std::string(int, bool)>& of_output = {}) const;

  // emit_forms.cpp
  void choose_forms();
  std::vector<BufferId> most_sums_alive() const;
  bool rows_are_neighbours(NodeId product) const;
  bool made_before_all_wait(BufferId b) const;
  void assign_forms(const std::set<BufferId>& banned);
  std::optional<BufferId> misused() const;
  void choose_warps();
  void arrange_warps(const std::vector<std::int64_t>& rows,
                     const std::vector<std::int64_t>& columns);
  bool is_operand(BufferId b) const;
  int phase_of(NodeId node) const;
  bool zero_filled(BufferId b) const;
  std::pair<int, int> alive(BufferId b) const;
  void lay_out();
  void choose_ahead();
  bool can_be_narrow(BufferId b) const;
  bool fragment_op(NodeId compute) const;
  std::vector<TileUse> tile_uses() const;
  std::int64_t sums_columns(BufferId b) const;  ///< blocks of eight a warp has
  std::int64_t sums_rows(BufferId b) const;     ///< blocks of 16
  std::string first_column(BufferId b) const;
  std::string sums_type(BufferId b) const;

  // emit_moves.cpp
  bool fills_tile(BufferId b, const SymBox& box) const;
  void declare();
  void visit_load(NodeId id, const SymRanges& ranges);
  void visit_store(NodeId id, const SymRanges& ranges);
  void write_out(BufferId b, const SymBox* box);
  std::string row_lambda(BufferId b, const SymBox* box, bool to_write) const;
  std::string columns_text(BufferId b, const SymBox* box) const;
  bool aligned(BufferId b, const SymBox& box, std::int64_t elements) const;
  std::int64_t piece_of(BufferId b, const SymBox& box) const;
  std::int64_t divisor(const Linear& x) const;
  void hold(const OutputUse& w, const SymBox& box, const std::string& fresh);
  void record(BufferId b, const SymBox& tile);
  std::vector<std::int64_t> home_strides(TensorId t) const;
  bool is_written(BufferId b) const;

  // emit_levels.cpp
  void place_units();
  std::vector<NodeId> units_around(BufferId b, NodeId place) const;
  std::string unit_text(BufferId b, NodeId place) const;
  void settle(BufferId b, NodeId place);
  bool has_record(BufferId b) const;
  bool keeps(BufferId b) const;
  std::string held(BufferId b) const;
  std::string finished(BufferId b) const;
  std::string sliding_place(BufferId b) const;
  bool chained(BufferId b) const;
  int levels_outside(BufferId b) const;
  std::vector<BufferId> innermost_first() const;
  BufferId buffer_of_input(const ScheduleNode& compute, int input) const;
  void choose_views();
  bool views_outer(BufferId b) const;
  std::string box_of_tile(BufferId b) const;
  std::string strides_text(BufferId b) const;
  void copy_part(BufferId to, const std::string& to_box, BufferId from, const std::string& from_box,
                 const std::string& part);
  void load_inner(NodeId id, const std::string& box);
  void touch(BufferId b, const std::string& box, const std::string& fresh);
  void read_home(BufferId b, const std::string& box);
  void write_inner(BufferId b, const std::optional<std::string>& fresh);

  // emit_compute.cpp
  void visit_compute(NodeId id, const SymRanges& ranges);
  std::int64_t finished_boxes(BufferId b) const;
  void begin_finished(BufferId b);
  std::string skipped(NodeId id, const SymRanges& ranges);
  void finish(NodeId id, const SymRanges& ranges);
  void compute(NodeId id, const SymRanges& ranges);
  void make_addresses(const ScheduleNode& n);
  std::string point(OpId op, const Access& a, BufferId b,
                    const std::vector<std::string>& loops) const;
  std::string inside(OpId op, const Access& a, const std::vector<std::string>& loops) const;
  void declare_input(NodeId id, std::size_t input, const std::vector<std::string>& loops,
                     const SymRanges& ranges);
  void declare_gathered(NodeId id, std::size_t input, const std::vector<std::string>& loops,
                        const SymRanges& ranges);
  std::string index_text(OpId op, const Affine& a, const std::vector<std::string>& loops) const;
  std::string size_text(const SymRange& r) const { return variables_.text(r.hi - r.lo); }

  // emit_points.cpp
  std::optional<Neighbours> strip_of(NodeId id, const SymRanges& ranges) const;
  bool runs_along_rows(NodeId id, const Access& a, BufferId b, int loop,
                       const SymRanges& ranges) const;
  struct Points;
  bool cold() const;
  void share_out(Points& p) const;
  std::string some_points(Points& p, const std::vector<std::size_t>& group) const;
  void number_points(const Points& p, const std::vector<std::size_t>& group,
                     const std::string& rest);
  void load_strips(const Points& p, bool alike);
  void open_strip(const Points& p);
  std::string in_block(const Points& p) const;
  void open_block(const Points& p, bool all);
  void point_inputs(const Points& p, const std::vector<std::string>& at, bool in_strip,
                    const Expr* of = nullptr);
  void exchange_parts(const Points& p, bool again);
  void strips_of_results(const Points& p);
  void begin_results(const Points& p, const std::string& fresh);
  void add_up(Points& p, std::int64_t total);
  void points(NodeId id, const SymRanges& ranges, const std::string& fresh);

  // emit_product.cpp
  std::optional<LoopId> runs_along(OpId op, const Affine& index, const SymRanges& ranges) const;
  std::optional<Product> as_product(NodeId id, int write, const SymRanges& ranges) const;
  std::vector<Product> as_products(NodeId id, const SymRanges& ranges) const;
  bool product_fits(NodeId id, const Product& p, const SymRanges& ranges);
  /// One operand or, with no input, the result.
  bool operand_fits(NodeId id, const Product& p, std::optional<int> input, bool exact_depth,
                    const SymRanges& ranges);
  const Output& output_of(NodeId compute, int write) const {
    const ScheduleNode& n = k_.node(compute);
    return workload_.op(n.op)
        .outputs[static_cast<std::size_t>(n.writes[static_cast<std::size_t>(write)].output)];
  }
  BufferId written_by(NodeId compute, int write) const {
    return k_.node(compute).writes[static_cast<std::size_t>(write)].buffer;
  }
  void multiply(NodeId id, const Product& p, const SymRanges& ranges, const std::string& fresh);
  std::string operand(NodeId id, int input, int outer, int depth, const SymRanges& ranges,
                      const std::string& tile = "") const;
  const MicroKernel& micro_kernel() const;
  std::string place_type() const { return micro_kernel().fours ? "PlaceOfFours" : "Place"; }
  /// Elements of a row that a thread moves between its sums and home at once.
  std::int64_t at_once(const std::string& type) const {
    return type == "float" && !micro_kernel().fours ? 2 : 4;
  }
  std::string kernel_text(DType type);
  /// Sums whose columns are a warp's own: their name, the first block of columns, how many.
  struct Joined {
    std::string name, first;
    std::int64_t columns = 0;
  };
  Joined joined(BufferId b);
  void call_product(NodeId id, const Product& p, const SymRanges& ranges, const std::string& sums,
                    const std::string& first);

  // emit_product_tiles.cpp
  /// Where a box begins in its tile.
  struct Corner {
    std::string row = "0", column = "0";
  };
  void multiply_tiles(NodeId id, const Product& p, const SymRanges& ranges,
                      const std::string& fresh);
  void multiply_parts(NodeId id, const Product& p, const SymRanges& ranges,
                      const std::string& fresh, const Corner& at);
  void multiply_whole(NodeId id, const Product& p, const SymRanges& ranges,
                      const std::string& fresh, const Corner& at);

  // emit_contraction.cpp
  std::optional<Contraction> as_contraction(NodeId id, int write, const SymRanges& ranges) const;
  std::vector<Contraction> contractions(NodeId id, const SymRanges& ranges) const;
  void contract(NodeId id, const Contraction& c, const SymRanges& ranges, const std::string& fresh);
  std::string at_text(NodeId id, const Access& a, BufferId b, const std::vector<std::string>& loops,
                      bool whole, const SymRanges& ranges, const std::vector<int>& depth,
                      const std::string& there = "") const;
  std::string loops_of(NodeId id, const std::vector<int>& group, const std::string& from,
                       const SymRanges& ranges, std::vector<std::string>& loops) const;

  // emit_rows.cpp
  void row_computes(NodeId id, const SymRanges& ranges, const std::string& fresh);
  void rescale(NodeId id, const Product& p, const SymRanges& ranges, const std::string& fresh,
               const std::string& sums, std::int64_t rows, std::int64_t columns);

  Program& p_;
  int index_;
  std::vector<TilePlace> places_;
  std::map<BufferId, BufferId> views_;  ///< read where they lie in another level's tile
  std::map<BufferId, std::map<std::size_t, std::int64_t>>
      first_unit_;  ///< by loops of units around
  std::vector<std::string> names_of_;
  /// As the first pass found them: one for each output, of the same rows, columns and depth.
  std::map<NodeId, std::vector<Product>> products_;
  std::map<NodeId, std::vector<std::int64_t>> mosts_;  ///< by compute: its loops' largest ranges
  std::map<NodeId, std::int64_t>
      contracted_;  ///< by compute: blocks of 16 x 16 of its contractions
  int warp_rows_ = 1, warp_columns_ = 1;
  std::int64_t barrier_bytes_ = 0, scratch_offset_ = 0, shared_bytes_ = 0;
  std::int64_t join_floats_ = 0, row_floats_ = 0;
  std::int64_t half_bytes_ = 0;   ///< room for a rounded left operand (wmma)
  std::int64_t part_floats_ = 0;  ///< sums a thread can have beside those that stay
  bool forms_chosen_ = false;
  bool measuring_ = true;  ///< the first passes: what is as large as what
  std::vector<std::string> notes_;
  std::set<NodeId> loads_ahead_;  ///< that begin before their phase does (launch's `ahead`)

  // of one pass
  std::vector<BlockRole> roles_;
  std::vector<BlockStep> steps_;  ///< of the role so far, within the body that it is in
  BlockStep way_;                 ///< how the last compute is carried out
  bool copying_ = false;
  bool ahead_ = false;            ///< what is loaded before a barrier for the phase after it
  std::int64_t blocks_here_ = 1;  ///< that come to this place
  std::size_t met_at_ = 0;        ///< the text's size after the last meeting
  std::string rest_ = "0";        ///< of the block's number, within the grid loops so far
  std::map<BufferId, std::string> here_;  ///< where a compute's tiles are, by names that it made
  std::vector<std::optional<SymBox>> fixed_;
  std::vector<std::string> fresh_at_fix_;  ///< of written buffers: initialises() on entering
  std::map<int, std::int64_t> divisors_;   ///< of variables
  int copying_threads() const { return has_copies(NodeId(0)) ? 32 * p_.options.copy_warps : 0; }
  /// A tile that keeps what the next one shares with it, in two places in turn.
  bool slides(BufferId b) const {
    return buffer(b).sliding &&
           (places_[b.index()].form == Form::tile || places_[b.index()].form == Form::loaded);
  }
  /// Of the elements of a tile in shared memory.
  std::string tile_type(BufferId b) const;
  /// A statement that puts a value where `at` points, in a tile.
  std::string put_text(BufferId b, const std::string& at, const std::string& value) const;
  std::string tile_text(
      BufferId b) const;  ///< the tile in shared memory that holds what is current
  void slide(BufferId b, const std::string& box);
  /// All computing threads of the block come together.
  std::string meet() {
    steps_.push_back({.kind = BlockStep::Kind::barrier, .node = {}, .count = threads()});
    return "barrier(1, " + std::to_string(threads()) + ");";
  }
  /// What `emit` puts down is the step's body.
  template <class Emit>
  void nest(BlockStep step, const Emit& emit) {
    std::vector<BlockStep> around = std::exchange(steps_, {});
    emit();
    step.body = std::exchange(steps_, std::move(around));
    steps_.push_back(std::move(step));
  }
  BlockProgram program() const;
  /// The same, but for a place that follows such a meeting at once.
  void meet_once();
  /// `emit` puts down what touches no tile and no thread passes by.
  template <class Emit>
  void still_met(const Emit& emit) {
    const bool met = met_at_ == out_.text().size();
    emit();
    if (met) met_at_ = out_.text().size();
  }
  int threads() const { return warp_rows_ * warp_columns_ * 32; }
};

}  // namespace tilewright::cuda
