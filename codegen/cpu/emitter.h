// The parts of `emit`: a kernel's walk (emit_kernel.cpp), what it
// refuses (emit_check.cpp), ranges and boxes
// (codegen/common/range_emitter.h), where tiles live (emit_tiles.cpp),
// which of them are packed (emit_place.cpp),
// computes (emit_compute.cpp, emit_product.cpp, emit_points.cpp).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/common/range_emitter.h"
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/prelude.h"
#include "core/lowering/hidden_columns.h"
#include "core/lowering/past_caches.h"
#include "core/lowering/window_points.h"
#include "core/lowering/window_transform.h"
#include "core/workload/access.h"

namespace tilewright::cpu {

using namespace codegen;  // internal header: the parts that every target shares

/// How large one buffer's array is, and how it lies in memory.
struct TileLayout {
  std::vector<std::int64_t> most;    ///< largest tile, by dimension
  std::vector<std::int64_t> stride;  ///< elements; the last is 1, rows a whole odd number of lines
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< in its thread's workspace
};

/// Where a buffer's tile is declared (rule 7).
struct TileScope {
  enum class Kind { root, block, all_blocks };
  Kind kind = Kind::root;
  NodeId loop;  ///< Kind::block: the grid loop whose every iteration has its own
};

/// What the whole program needs to know of a kernel.
struct KernelText {
  std::string text;
  std::int64_t workspace = 0;  ///< bytes a thread
  bool parallel = false;
  bool shared = false;  ///< it takes the part of a run that it does, and how many there are
  std::vector<std::string> notes;
  std::vector<TileUse> tiles;
  std::string prepare;  ///< statements that pack what is packed once; empty: nothing is
};

/// What kernels share.
struct Program {
  const Schedule& schedule;
  const EmitOptions& options;
  std::optional<MicroKernel> micro_kernel;  ///< the one asked for; none: each product's own
  std::int64_t element_bytes = 4;
  int vector_bytes = 0;                 ///< of every vector in the program; 0: it has none
  std::vector<std::string> boundaries;  ///< in the order that `counts` has them
  PreludeOptions prelude;               ///< filled in by the kernels
  std::vector<bool> needed;             ///< by TensorId
  std::vector<bool> constant;           ///< by TensorId: the same in every run
  std::int64_t kept = 0;                ///< elements that are packed once for all runs
  bool pairs = false;                   ///< products take pairs of bfloat16
  int whole = 0;                       ///< steps at once of products of i8 that are summed in whole
                                       ///< numbers: 4 or 2 (steps_of_bytes); 0: in reals
  bool tiles = false;                  ///< of these, tiles of quads for several rows
  std::vector<std::string> used = {};  ///< micro-kernels, as they are met
  const Workload& workload() const { return *schedule.workload; }
  const Machine& machine() const { return *schedule.machine; }
  int boundary(LevelId from, LevelId to) const;
};

class KernelEmitter : private RangeEmitter {
 public:
  KernelEmitter(Program& program, int index);
  /// The kernel as a function `kernel_INDEX`, or why not.
  Result<KernelText> emit();

 private:
  // emit_kernel.cpp
  void pass();
  void enter_body(NodeId body, SymRanges& ranges);
  void visit_all(const std::vector<NodeId>& children, const SymRanges& ranges);
  void visit(NodeId id, const SymRanges& ranges);
  void visit_loop(NodeId id, const SymRanges& ranges);
  void visit_load(NodeId id, const SymRanges& ranges);
  void emit_load(NodeId id, const SymRanges& ranges);
  std::string only_first(NodeId load, const std::string& box) const;
  void visit_store(NodeId id, const SymRanges& ranges);
  void visit_drop(NodeId id);
  void flush_spilled(BufferId f, NodeId load);
  void leave_scope(const std::vector<BufferId>& buffers);

  // emit_tiles.cpp
  void place_tiles();
  void lay_out();
  void record(BufferId b, const SymBox& tile);
  std::vector<std::int64_t> home_strides(TensorId t) const;

  // emit_place.cpp
  void choose_places();
  std::string why_packed(BufferId b) const;
  std::vector<TileUse> tile_uses() const;
  /// Whether a buffer's addresses are known from the loops alone, so that nothing of it has to be
  /// kept while the program runs: a plain pointer, no record of what it holds.
  bool is_plain(BufferId b) const { return plain_[b.index()]; }
  bool can_be_plain(BufferId b) const;
  bool needs_no_record(BufferId b) const;
  /// Whether vectors convert elements of 8 bits as they load and store them, if nobody asks for
  /// more.
  bool may_lie_in_bytes(BufferId b) const;
  const Level* innermost_cache() const;
  bool lies_in_bytes(BufferId b) const { return packed_[b.index()].empty() && is_bytes(b); }
  bool is_bytes(BufferId b) const {
    return p_.workload().tensor(buffer(b).tensor).dtype == DType::i8;
  }
  void take_reals(NodeId id, const std::vector<int>& inputs);
  /// Whether whole numbers of 32 bits are read as they are: nothing but places of what is gathered.
  bool lies_in_places(BufferId b) const { return packed_[b.index()].empty() && is_places(b); }
  bool is_places(BufferId b) const {
    return p_.workload().tensor(buffer(b).tensor).dtype == DType::i32;
  }
  bool may_lie_in_places(BufferId b) const;
  /// The type of the elements of a tile that is used where its tensor lies.
  std::string type_at_home(BufferId b) const {
    return lies_in_bytes(b) ? "std::int8_t" : lies_in_places(b) ? "std::int32_t" : "Real";
  }
  /// Whether vectors of an output are written past the caches.
  bool past_caches(BufferId b) const {
    return p_.vector_bytes > 0 && is_plain(b) && !lies_in_bytes(b) &&
           stored_past_caches(p_.schedule, k_, b);
  }
  /// Others may read what this thread has written past the caches.
  void order_stores();
  /// Where a tensor's element lies, from its index by dimension, as C++ text.
  std::string element_address(BufferId b, const std::vector<std::string>& index) const;
  void fix(BufferId b, const SymBox& box);
  void prefetch(BufferId b, const SymBox& box);
  bool spreads(const Level& cache, BufferId b, const std::vector<std::int64_t>& extents,
               bool whole_tile) const;
  void declare(const std::vector<BufferId>& buffers);
  std::vector<BufferId> outer_first(std::vector<BufferId> buffers) const;
  void declare_one(BufferId b);
  void describe(BufferId b, const std::string& ref);
  void select(BufferId b);  ///< at the place that fixes it: this block's tile
  std::vector<BufferId> scoped(const TileScope& scope) const;
  std::string ref(BufferId b) const override;
  std::string type(BufferId b) const;
  std::string home_type(TensorId t) const;  ///< of an element where the tensor lies
  void choose_parallel_loop();
  std::string why_not_split(NodeId loop) const;
  NodeId loop_to_split() const;
  bool is_parallel(NodeId loop) const;

  // emit_hidden.cpp
  void see_columns(NodeId body, const SymRanges& ranges);
  void leave_out_columns(NodeId id, const SymRanges& ranges);
  bool leaves_out_columns(NodeId id) const;
  bool sees_columns(NodeId loop) const;
  /// What is computed of an operator's loop: its range, or of it what is not hidden.
  const SymRange& computed_range(const SymRanges& ranges, OpId op, int local) const;

  // emit_compute.cpp
  void visit_compute(NodeId id, const SymRanges& ranges);
  void compute_box(NodeId id, const SymRanges& ranges);
  void count_gathers(NodeId id, const SymRanges& ranges);
  std::string count_inside(OpId id, const Access& a, const std::vector<int>& loops,
                           const SymRanges& ranges);

  std::vector<SymBox> prepare_outputs(NodeId id, const SymRanges& ranges);

  // emit_points.cpp
  class PointText;
  class Points;
  class Planes;  // emit_planes.cpp
  bool by_planes(NodeId id, const SymRanges& ranges);
  void point_loops(NodeId id, const SymRanges& ranges);
  void rescale(NodeId id, const SymRanges& ranges);

  // emit_followers.cpp
  class Follower;
  class Followers;
  void look_for_followers(const std::vector<NodeId>& children, std::size_t i,
                          const SymRanges& ranges);
  std::string lambda_of(Followers& followers, const std::string& row, const std::string& column,
                        const std::string& first_row, const std::string& first_column, bool whole);

  // emit_product.cpp
  /// How an operator is a matrix product C[i,j] += A[i,k] * B[k,j]: which input is which, and which
  /// loop runs over rows, columns and depth (positions in op.loops; -1: none, of size one).
  struct Product {
    int left = 0, right = 1;  ///< positions in op.inputs
    int rows = -1, columns = -1, depth = -1;
    bool packs = false;  ///< the right operand's columns are not contiguous
  };
  std::optional<Product> as_product(NodeId id, const SymRanges& ranges) const;
  void outer_products(NodeId id, const Product& p, const SymRanges& ranges);
  /// A product's operands, as text: where each begins, its strides, and the steps of the depth.
  struct Operands {
    std::string left, left_row, left_depth, right, right_depth, depth;
  };
  /// Steps of the depth that an element of a product's operands has: 1, 2 (pairs) or 4 (quads).
  int steps_at_once(OpId op) const;
  /// Whether it is a product of i8 that is summed in whole numbers.
  bool sums_whole(OpId op) const;
  /// What such elements are called in the program: "pairs" or "quads".
  std::string together_name(OpId op) const;
  /// Rows of quads of a right operand are a multiple of so many: tiles take 16.
  std::int64_t multiple_of_quads() const { return p_.tiles ? 16 : 1; }
  void take_together(NodeId id, const Product& p, const SymRanges& ranges, bool prepared,
                     Operands& operands);
  bool is_read_once(BufferId b) const;
  std::unique_ptr<Followers> followers_of_product(NodeId id, const Product& p,
                                                  const SymRanges& ranges,
                                                  const std::vector<std::string>& first, bool whole,
                                                  std::string& argument);
  /// `filled`: columns_filled, where the right operand may be packed once.
  MicroKernel kernel_of(OpId op, int rows, std::int64_t columns, int depth, const SymRanges& ranges,
                        const std::function<std::int64_t(std::int64_t)>& filled = {});
  void record_panels(NodeId id, const Product& p, const MicroKernel& m, const SymRanges& ranges);
  /// Loops around a product, and where each of its loops begins.
  struct Surroundings {
    std::vector<std::string> at;  ///< by op.loops: an index, as text
    std::string fresh;            ///< whether the sums start from zero
    int opened = 0;
  };
  Surroundings surround(NodeId id, const std::vector<int>& inner, const SymRanges& ranges);
  /// Where an access's element lies with the loops at these indices.
  std::string corner(const Operator& op, const Access& access, BufferId buffer,
                     const std::vector<std::string>& at) const;
  std::int64_t stride_of(const Operator& op, const Access& access, BufferId buffer,
                         int local) const;
  std::string size_of_loop(OpId op, int local, const SymRanges& ranges) const;
  std::string known_size(OpId op, int local, const SymRanges& ranges) const;
  /// Room for `bytes` at `offset` of the scratch memory of one compute, as a pointer.
  std::string scratch(std::int64_t bytes, std::int64_t& offset, const std::string& type);

  // emit_window.cpp
  /// How an operator is a matrix product whose right operand is read through a window: positions in
  /// op.inputs and op.loops (-1: none) and dimensions of the right operand's tensor.
  struct Window {
    int left = 0, right = 1;
    int rows = -1, columns = -1;
    int outer = -1;               ///< a second loop of columns, whose rows follow one another in C
    std::vector<int> depth = {};  ///< as the left operand has them, innermost last
    int column_dim = -1, row_dim = -1;  ///< that columns, and outer ones or padding, move
    std::int64_t step = 1;              ///< elements from one column to the next
    bool left_dense = true;             ///< the left operand's steps are all left_step apart
    std::int64_t left_step = 1;
    bool direct = false;             ///< the right operand lies as a plain product needs it
    bool taps_are_channels = false;  ///< nothing is padding: what moves the window is like the rest
    bool channels_first = false;     ///< of the depth, what moves the window comes last
    int bytes = -1;                  ///< the loop of bytes, several at once; -1: none is
  };
  std::optional<Window> as_window(NodeId id, const SymRanges& ranges);
  bool finish_window(NodeId id, Window& x, const SymRanges& ranges);
  bool dense(BufferId b, std::int64_t stride, std::int64_t width);
  std::string index_without_depth(NodeId id, const Window& x, int dim,
                                  const std::vector<std::string>& at) const;
  std::string pack_left(NodeId id, const Window& x, std::vector<std::string> at,
                        const SymRanges& ranges, std::int64_t& offset);
  void multiply_through(NodeId id, const Window& x, const Surroundings& s, const SymRanges& ranges);
  void read_through(NodeId id, const Window& x, const Surroundings& s, const SymRanges& ranges);
  std::pair<int, int> point_shape(NodeId id, const Window& x, const SymRanges& ranges);
  WindowPoints points_of(NodeId id, const Window& x, const SymRanges& ranges) const;
  bool prepares_points(NodeId id, const Window& x, const SymRanges& ranges) const;
  bool wastes_lanes(NodeId id, const Window& x, const SymRanges& ranges) const;
  std::string kept_for(NodeId id, const Window& x, std::int64_t bytes);
  std::string emit_window(NodeId id, const Window& x, const std::vector<std::string>& at,
                          const SymRanges& ranges, const std::string& source = {});
  void convolve(NodeId id, const Window& x, const SymRanges& ranges);
  bool slides(NodeId id, const Window& x, const SymRanges& ranges);  // emit_points.cpp

  // emit_bytes.cpp
  int loop_of_bytes(NodeId id, const Window& x, const SymRanges& ranges) const;
  void read_bytes(NodeId id, Window x, const Surroundings& s, const SymRanges& ranges);
  std::string prepared_bytes(NodeId id, const Window& x, std::int64_t group, const Surroundings& s);

  // emit_lines.cpp
  std::int64_t lines_of_channel(NodeId id, const Window& x, const SymRanges& ranges,
                                std::int64_t height);
  class Depth;
  std::int64_t band_of(NodeId id, const Window& x, const SymRanges& ranges, const Depth& depth);
  std::int64_t band_set_apart(NodeId id, const Window& x, const SymRanges& ranges,
                              const Depth& depth);
  bool prepares_left(NodeId id, const Window& x, std::int64_t group, const SymRanges& ranges) const;
  int registers() const { return p_.vector_bytes == 64 ? 32 : 16; }
  /// Sums of fewer steps pass through a tile: rows of many channels at once would wait for memory.
  static constexpr std::int64_t kFewSteps = 48;
  double multiply_add_cycles() const;
  double band_cycles(NodeId id, const Window& x, const SymRanges& ranges, const Depth& depth,
                     std::int64_t band);
  double lines_cycles(NodeId id, const Window& x, const SymRanges& ranges, const Depth& depth);
  double points_cycles(NodeId id, const Window& x, const SymRanges& ranges);
  bool goes_by_lines(NodeId id, const Window& x, const SymRanges& ranges);
  std::int64_t begins_of_tiles(OpId op, int local) const;
  void read_lines(NodeId id, const Window& x, const Surroundings& s, const SymRanges& ranges);
  std::unique_ptr<Followers> followers_of_window(NodeId id, const Window& x,
                                                 const SymRanges& ranges,
                                                 const std::vector<std::string>& first, bool whole,
                                                 std::int64_t width, std::string& argument);

  // emit_transformed.cpp
  /// Loops of the depth.
  struct Taps {
    int row = -1, column = -1;  ///< -1: the dimension has one tap
    std::int64_t down = 1, across = 1;
  };
  std::optional<Taps> neighbours(NodeId id, const Window& x, const SymRanges& ranges) const;
  TransformedWindow transformed_of(NodeId id, const Window& x, const Taps& taps,
                                   const SymRanges& ranges) const;
  bool goes_transformed(NodeId id, const Window& x, const SymRanges& ranges);
  void read_transformed(NodeId id, const Window& x, const Surroundings& s, const SymRanges& ranges);
  std::string prepared_transformed(NodeId id, const Window& x, std::int64_t group,
                                   const Surroundings& s, const SymRanges& ranges);

  // emit_prepared.cpp
  /// An operand that never changes, packed once for all runs.
  struct Prepared {
    std::int64_t offset = 0, elements = 0;  ///< in the memory that is kept
    std::string text;                       ///< that packs it
  };
  std::string begin_packing(Lines& text, const std::string& type, TensorId of,
                            const std::string& how, const Prepared& made) const;
  bool can_prepare(NodeId id, const Window& x, const SymRanges& ranges) const;
  std::string prepared_left(NodeId id, const Window& x, std::int64_t group, const Surroundings& s,
                            const SymRanges& ranges);

  std::int64_t columns_packed_together(NodeId id, const Product& p, std::int64_t width,
                                       const SymRanges& ranges) const;
  bool wants_panels(NodeId id, const Product& p, std::int64_t width, const SymRanges& ranges) const;
  bool keeps_panels(NodeId id, const Product& p, const MicroKernel& m,
                    const SymRanges& ranges) const;
  bool can_prepare_right(NodeId id, const Product& p, std::int64_t width,
                         const SymRanges& ranges) const;
  std::int64_t columns_of_panel(NodeId id, const Product& p, std::int64_t width, std::int64_t lanes,
                                const SymRanges& ranges) const;
  std::int64_t columns_filled(NodeId id, const Product& p, std::int64_t width,
                              const SymRanges& ranges) const;
  std::string prepared_right(NodeId id, const Product& p, std::int64_t width, std::int64_t of_panel,
                             const SymRanges& ranges, const std::vector<std::string>& at,
                             std::string& panel);

  // emit_rows.cpp
  bool lies_along_depth(NodeId id, const Product& p) const;
  bool reads_right_as_it_lies(NodeId id, const Product& p) const;
  void along_depth(NodeId id, const Product& p, const SymRanges& ranges);

  // emit_operand.cpp
  /// A right operand that is packed once for all iterations of a loop that it does not depend on.
  struct Hoist {
    NodeId before;  ///< the loop
    Product product;
    std::int64_t row = 0;  ///< elements from one step of the depth to the next
    std::int64_t bytes = 0, offset = 0;
    std::string name = {};  ///< of its array, where it was declared in this pass
    std::string low_depth = {}, low_columns = {};  ///< what the array begins with
    bool kept = false;  ///< not packed there, but where first used, and named for a `Kept`
  };
  void look_for_hoist(NodeId id, const Product& p, const SymRanges& ranges);
  void emit_hoists(NodeId loop, const SymRanges& around);

  /// A compute that could take another's values from registers, and the ranges where it stands.
  struct Waiting {
    NodeId id;
    SymRanges ranges;
    bool beside = false;  ///< it reads none of them; one behind it reads them and what it makes
  };
  /// Memory of one compute's own that keeps what it has from one run to the next.
  struct Kept {
    std::int64_t bytes = 0, offset = 0;
    std::size_t rank = 0;  ///< of the tensor that it is made from
  };

  Program& p_;
  int index_;
  std::map<NodeId, Prepared> prepared_;   ///< by compute
  std::map<NodeId, Kept> lanes_of_rows_;  ///< lanes of rows that are not joined yet
  std::map<NodeId, Kept> pairs_;          ///< a product's right operand, while its tile is held
  std::map<NodeId, Hoist> hoists_;        ///< by compute
  std::vector<TileLayout> layouts_;
  std::vector<bool> dense_;  ///< by buffer: its last two dimensions lie without a gap
  std::vector<TileScope> scopes_;
  std::vector<bool> once_;  ///< by buffer: some compute !once writes it
  /// By buffer: why it is packed; empty: it is used where its tensor lies.
  static constexpr const char* kUndecided = "not yet decided";
  std::vector<std::string> packed_;
  std::vector<bool> plain_;        ///< by buffer
  std::vector<bool> takes_reals_;  ///< by buffer: somebody walks it as an array of Real
  std::vector<bool> streamed_;     ///< by buffer: written once a block of a product, between depths
  std::vector<SymBox> fixed_;      ///< by buffer: the box that it was last fixed to, of one pass
  /// By buffer: what the micro-kernel walks of it at a time, as extents by dimension.
  std::vector<std::set<std::vector<std::int64_t>>> panels_;
  bool blocks_numbered_ = false;  ///< some tile is chosen by block number
  bool parallel_grid_ = false;    ///< threads share each of several outermost grid loops
  bool split_ = false;            ///< threads share this loop alone
  NodeId split_loop_;
  std::vector<HiddenColumns> hidden_;
  std::vector<std::string> notes_;
  std::int64_t workspace_ = 0;
  std::int64_t scratch_ = 0;  ///< bytes of the packed operand
  std::int64_t scratch_offset_ = 0;

  // of one pass
  std::vector<SymRange> visible_;             ///< by hidden_: columns that a body's rows see
  std::map<std::size_t, SymRange> computed_;  ///< of one compute, by slot: less than its range
  std::vector<std::string> tile_names_;
  std::string block_ = "0";
  std::map<NodeId, std::vector<Waiting>> waiting_;  ///< by compute that they could follow
  std::set<NodeId> followed_;                       ///< computes that did
  std::vector<NodeId> in_scope_;  ///< grid loops whose blocks' tiles are declared here
};

/// Elements between neighbours of a loop in a tensor that lies with these strides.
std::int64_t loop_stride(const Access& a, LoopId loop, const std::vector<std::int64_t>& stride);

}  // namespace tilewright::cpu
