// The parts of `emit`: a kernel's two walks (emit_kernel.cpp), what is loaded and written
// (emit_moves.cpp), between levels too (emit_levels.cpp), and its computes (emit_compute.cpp,
// emit_points.cpp, emit_product.cpp, emit_product_tiles.cpp, emit_contraction.cpp, emit_rows.cpp).
// Where tiles lie, what stays in registers, which computes are products, what warps do and how they
// share it has been decided before (core/lowering/gpu/block_lowering.h).
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
#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/block_rules.h"

namespace tilewright::cuda {

using namespace codegen;  // internal header: the parts that every target shares

using lowering::BlockAct;
using lowering::BlockContraction;
using lowering::BlockProduct;
using lowering::BlockProgram;
using lowering::BlockRole;
using lowering::BlockStep;
using lowering::BlockTile;
using Form = BlockTile::Form;
using Split = BlockTile::Split;

inline constexpr int kStrip = static_cast<int>(lowering::kStripOfPoints);

struct Program {
  const Schedule& schedule;
  const EmitOptions& options;
  std::vector<bool> needed;            ///< by TensorId
  std::vector<std::string> used = {};  ///< micro-kernels, as they are met
  bool f64 = false;
  bool by_fma = false;  ///< products of floats, where other micro-kernels have no room
  const Workload& workload() const { return *schedule.workload; }
  const Machine& machine() const { return *schedule.machine; }
  /// Whether the kernel's launch may begin before the one before it has ended: on Hopper, but for
  /// those whose blocks wait for one another, which begin together, and for one behind an unknown
  /// launch whose loops are bound to warps, lanes or threads. False behind the last.
  bool begins_early(int kernel) const;
  /// Whether the launch before this kernel's writes the tensor, or may: before the first kernel
  /// that is EmitOptions::before, or another program's.
  bool launch_before_writes(int kernel, TensorId tensor) const;
  /// The kernel whose launch is before this one's. Of the first it is EmitOptions::before, or the
  /// last, since runs follow one another; nothing where it is the only one.
  struct Before {
    const Schedule& schedule;
    int kernel;
  };
  std::optional<Before> before(int kernel) const;
};

/// The name that the device headers have for it.
std::string element_type(DType type);
/// A number as the text of that type, "float" or "double".
std::string number_text(double value, const std::string& real);
/// The name of a tensor's address at home.
std::string home_of(const Workload& w, TensorId t);

/// What the whole program needs to know of a kernel.
struct KernelText {
  std::string text;
  std::vector<Launch> launches;  ///< zeroing first
  std::vector<TileUse> tiles;
  std::vector<std::string> notes;
  std::string program = {};      ///< for people
  bool gives_registers = false;  ///< warpgroups to others
  bool cold = false;             ///< instructions are fetched for a few turns of them each
};

class KernelEmitter : private RangeEmitter {
 public:
  /// `tight`: lowering::BlockChoices has it.
  KernelEmitter(Program& program, int index, bool tight = false);
  Result<KernelText> emit();

 private:
  // emit_kernel.cpp
  void check() const;
  std::int64_t shared_before() const;
  std::int64_t shared_bytes() const;
  std::int64_t resident() const;
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
  bool has_copies(NodeId id) const { return block_.copies(id, ahead_); }
  std::string ref(BufferId b) const override;
  std::string tensor_name(TensorId t) const { return workload_.tensor(t).name; }
  std::string home(TensorId t) const { return home_of(workload_, t); }
  std::string name(BufferId b) const { return names_of_[b.index()]; }
  std::string element_type(TensorId t) const {
    return cuda::element_type(workload_.tensor(t).dtype);
  }
  /// Whether its tiles have wider elements than it has at home: threads write no single bytes.
  bool widened(TensorId t) const { return workload_.tensor(t).dtype == DType::i8; }
  std::string real() const { return p_.f64 ? "double" : "float"; }
  std::string literal_text(double value) const { return number_text(value, real()); }
  /// `loops`: the operator's, by position, as text.
  std::string expression_text(const Expr& e, OpId op, const std::vector<std::string>& loops,
                              const std::function<std::string(int, bool)>& of_output = {}) const;
  std::string made_text(const Output& out, OpId op, const std::vector<std::string>& loops,
                        const std::function<std::string(int, bool)>& of_output = {}) const;

  std::vector<TileUse> tile_uses() const;
  std::string first_column(BufferId b) const;
  std::string sums_type(BufferId b) const;

  // emit_moves.cpp
  void declare();
  void visit_load(NodeId id, const SymRanges& ranges);
  bool copy_box(const BlockStep& move, const SymBox& box, const std::string& at,
                const std::string& copier, const std::string& copiers);
  void visit_store(NodeId id, const SymRanges& ranges);
  void write_out(BufferId b, const SymBox* box);
  std::string row_lambda(BufferId b, const SymBox* box, bool to_write) const;
  std::string columns_text(BufferId b, const SymBox* box) const;
  lowering::BoxAtHome at_home(const SymBox& box) const;
  bool aligned(BufferId b, const SymBox& box, std::int64_t elements) const;
  int pieces_at_once() const;
  std::int64_t rows_apart(BufferId b) const;
  int copying_groups(BufferId b) const;
  std::int64_t divisor(const Linear& x) const;
  void hold(const OutputUse& w, const SymBox& box, const std::string& fresh);
  void record(BufferId b, const SymBox& tile);

  // emit_levels.cpp
  std::string unit_text(BufferId b, NodeId place) const;
  void settle(BufferId b, NodeId place);
  bool has_record(BufferId b) const;
  std::string held(BufferId b) const;
  std::string finished(BufferId b) const;
  std::string sliding_place(BufferId b) const;
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
  void begin_finished(BufferId b);
  std::string skipped(NodeId id, const SymRanges& ranges);
  void finish(NodeId id, const SymRanges& ranges);
  void compute(NodeId id, const SymRanges& ranges);
  void make_addresses(const ScheduleNode& n);
  std::string point(OpId op, const Access& a, BufferId b,
                    const std::vector<std::string>& loops) const;
  std::string place(OpId op, const Access& a, BufferId b,
                    const std::vector<std::string>& loops) const;
  std::string value_at(OpId op, const Access& a, BufferId b,
                       const std::vector<std::string>& loops) const;
  std::string inside(OpId op, const Access& a, const std::vector<std::string>& loops) const;
  void declare_input(NodeId id, std::size_t input, const std::vector<std::string>& loops,
                     const SymRanges& ranges);
  void declare_gathered(NodeId id, std::size_t input, const std::vector<std::string>& loops,
                        const SymRanges& ranges);
  std::string index_text(OpId op, const Affine& a, const std::vector<std::string>& loops) const;
  std::string size_text(const SymRange& r) const { return variables_.text(r.hi - r.lo); }

  // emit_points.cpp
  struct Points;
  bool cold() const;
  /// The pragma of a loop of which so many turns are unrolled together, where that pays.
  std::string unrolled(int turns) const;
  lowering::BlockPoints share_out(NodeId id, const SymRanges& ranges);
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
  /// A compute's loops, by position: their largest ranges.
  std::vector<std::int64_t> mosts(OpId op, const SymRanges& ranges) const;
  bool product_fits(NodeId id, const BlockProduct& p, const SymRanges& ranges);
  const Output& output_of(NodeId compute, int write) const {
    const ScheduleNode& n = k_.node(compute);
    return workload_.op(n.op)
        .outputs[static_cast<std::size_t>(n.writes[static_cast<std::size_t>(write)].output)];
  }
  BufferId written_by(NodeId compute, int write) const {
    return k_.node(compute).writes[static_cast<std::size_t>(write)].buffer;
  }
  void multiply(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                const std::string& fresh);
  std::string operand(NodeId id, int input, int outer, int depth, const SymRanges& ranges,
                      const std::string& tile = "") const;
  std::string place_type() const { return block_.micro_kernel().fours ? "PlaceOfFours" : "Place"; }
  /// Elements of a row that a thread moves between its sums and home at once.
  std::int64_t at_once(const std::string& type) const {
    return type == "float" && !block_.micro_kernel().fours ? 2 : 4;
  }
  std::string kernel_text(DType type);
  /// Sums whose columns are a warp's own: their name, the first block of columns, how many.
  struct Joined {
    std::string name, first;
    std::int64_t columns = 0;
  };
  Joined joined(BufferId b);
  void call_product(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                    const std::string& sums, const std::string& first);

  // emit_product_tiles.cpp
  /// Where a box begins in its tile.
  struct Corner {
    std::string row = "0", column = "0";
  };
  void multiply_tiles(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                      const std::string& fresh);
  void multiply_parts(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                      const std::string& fresh, const Corner& at);
  void multiply_whole(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                      const std::string& fresh, const Corner& at);

  // emit_contraction.cpp
  void contract(NodeId id, const BlockContraction& c, const SymRanges& ranges,
                const std::string& fresh);
  std::string at_text(NodeId id, const Access& a, BufferId b, const std::vector<std::string>& loops,
                      bool whole, const SymRanges& ranges, const std::vector<int>& depth,
                      const std::string& there = "") const;
  std::string loops_of(NodeId id, const std::vector<int>& group, const std::string& from,
                       const SymRanges& ranges, std::vector<std::string>& loops) const;

  // emit_rows.cpp
  void row_computes(NodeId id, const SymRanges& ranges, const std::string& fresh);
  void rescale(NodeId id, const BlockProduct& p, const SymRanges& ranges, const std::string& fresh,
               const std::string& sums, std::int64_t rows, std::int64_t columns,
               const std::string& first);

  Program& p_;
  int index_;
  bool tight_;
  lowering::BlockChoices choices_;
  lowering::BlockLowering block_;
  std::vector<std::string> names_of_;
  bool forms_chosen_ = false;
  bool measuring_ = true;  ///< the first passes: what is as large as what
  std::vector<std::string> notes_;

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
  std::set<BufferId> shifted_;            ///< rings with a load through registers
  std::map<int, std::int64_t> divisors_;  ///< of variables
  int copying_threads() const { return block_.program().copying_threads(); }
  const std::vector<BlockTile>& tiles() const { return block_.program().tiles; }
  /// Of the elements of a tile in shared memory.
  std::string tile_type(BufferId b) const;
  /// A statement that puts a value where `at` points, in a tile.
  std::string put_text(BufferId b, const std::string& at, const std::string& value) const;
  std::string tile_text(
      BufferId b) const;  ///< the tile in shared memory that holds what is current
  void slide(BufferId b, const std::string& box);
  /// All computing threads of the block come together.
  void meet() {
    steps_.push_back({.kind = BlockStep::Kind::barrier, .node = {}, .count = threads()});
    out_.line("barrier(1, " + std::to_string(threads()) + ");");
  }
  /// `emit` puts down what computing warps do together, between the barriers that it needs.
  template <class Emit>
  void act(BlockAct what, const Emit& emit) {
    const lowering::BlockBarriers barriers = lowering::barriers_of(what);
    // Points that follow points meet once.
    const bool met = what == BlockAct::points && met_at_ == out_.text().size();
    if (barriers.before && !met) meet();
    emit();
    if (barriers.after) meet();
    if (what == BlockAct::points) met_at_ = out_.text().size();
  }
  /// What `emit` puts down is the step's body.
  template <class Emit>
  void nest(BlockStep step, const Emit& emit) {
    std::vector<BlockStep> around = std::exchange(steps_, {});
    emit();
    step.body = std::exchange(steps_, std::move(around));
    steps_.push_back(std::move(step));
  }
  /// `emit` puts down what touches no tile and no thread passes by.
  template <class Emit>
  void still_met(const Emit& emit) {
    const bool met = met_at_ == out_.text().size();
    emit();
    if (met) met_at_ = out_.text().size();
  }
  int threads() const { return block_.program().threads(); }
};

}  // namespace tilewright::cuda
