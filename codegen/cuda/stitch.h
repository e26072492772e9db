// Kernels whose trees bind loops to warps, lanes or threads: every value at an index that is known
// when the source is written, up to which thread it is. A walk gives each node the ranges and
// indices that it has there (stitch_walk.cpp, stitch_units.cpp); what is loaded or computed becomes
// a value with a key, its indices, and lies in a register of the thread that makes it where all who
// use it have the same key there, in shared memory otherwise (stitch_values.cpp); then the text is
// written (stitch_emit.cpp, stitch_moves.cpp, stitch_reads.cpp, stitch_compute.cpp).
//
// Control flow is the same for all threads of a block: what lies outside its range is computed for
// nothing, and neither loaded, stored nor added. So shuffles and barriers may stand anywhere.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {

inline constexpr std::int64_t kVectorBytes = 16;  ///< the widest access of a thread

/// Whether some loop of the kernel is bound to warps, lanes or threads.
bool is_stitched(const ScheduledKernel& k);
/// `x` with some indices for others.
Linear renamed(const Linear& x, const std::map<int, int>& names);

class StitchEmitter {
 public:
  StitchEmitter(Program& program, int index);
  Result<KernelText> emit();

 private:
  /// What an index is made of. `count` values from 0 on.
  struct Index {
    enum class Kind : std::uint8_t { block, unit, loop, element };
    Kind kind = Kind::loop;
    std::string text;
    std::int64_t count = 1;
    NodeId node;  ///< loop: whose turns it counts; element: the compute whose point it is
    Binding unit = Binding::seq;  ///< unit: warp, lane or thread; (unit / stride) % size
    std::int64_t stride = 1, size = 1;
    bool unrolled = false;  ///< loop, element: known to the compiler in every turn
  };
  /// A range [lo, lo + most), and less where it is past one of `ends` or, `from_zero`, below zero.
  struct Span {
    Linear lo;
    std::int64_t most = 1;
    std::vector<Linear> ends;
    bool from_zero = false;
  };
  using Key = std::vector<Linear>;  ///< an index for each dimension
  /// Ranges at a place; what holds there, each positive; the loops around it, outermost first.
  struct Point {
    std::vector<Span> ranges;
    std::vector<Linear> inside;
    std::vector<NodeId> loops;
  };
  struct Facts {
    Point at;                    ///< before the node
    int unit = -1, turn = -1;    ///< loop: its indices, as far as it has them
    bool cut_short = false;      ///< loop: some blocks or units have fewer iterations of it
    bool uneven = false;         ///< loop: the last iteration is smaller
    std::vector<Linear> point;   ///< compute: every loop's value
    std::vector<int> elements;   ///< compute: its element indices
    std::vector<Linear> inside;  ///< compute: what holds at the point
    std::vector<Span> tile;      ///< load
  };
  enum class Storage : std::uint8_t {
    registers,
    shared,
    direct,  ///< loaded where it is used, or stored where it is computed, element by element
  };
  struct Use {
    NodeId node;
    int input = 0;
  };
  /// What one load brings, or one compute makes.
  struct Value {
    TensorId tensor;
    BufferId buffer;
    NodeId producer;
    int output = -1;  ///< position in the compute's writes; -1: loaded
    NodeId anchor;    ///< stands before this node; of a sum: around all of its loops
    Key key;
    std::vector<Linear> inside;  ///< where it is defined
    std::vector<Span> tile;      ///< loads; shared memory: what one instance holds
    std::vector<NodeId> around;  ///< loops whose units load it, or have it in shared memory, each
    std::vector<Use> uses;
    NodeId scope;  ///< the innermost node around its maker and all uses
    std::vector<int>
        dims;  ///< the indices of its array in registers; of sums in shared memory, too
    Storage storage = Storage::registers;
    std::string name, reason;
    std::vector<std::int64_t> pitch;  ///< shared memory: elements between neighbours, by dimension
    std::int64_t elements = 0, offset = 0;
    bool alike = false;  ///< loaded: few values, the same for all threads of a block, each of which
                         ///< loads them
    bool loaded() const { return output < 0; }
  };
  /// Neighbours at home that a thread moves at once, along an element index (-1: one by one), which
  /// may be all of that index.
  struct Strip {
    int element = -1;
    std::int64_t width = 1;
    bool whole = false;
  };
  /// Threads that have the same key: by which parts of their number they differ.
  struct Copies {
    std::string lane;  ///< the lane that is the first of its copies; empty: it has none
    std::string warp;
  };

  // stitch_units.cpp
  void shape_block();
  std::int64_t units_below(NodeId node, Binding unit) const;
  void bind(NodeId loop);
  int unit_index(Binding unit, std::int64_t stride, std::int64_t size);
  bool is_around(NodeId outer, NodeId inner) const;
  bool below(NodeId node, Binding unit) const;
  Copies copies(const Key& key, const std::vector<NodeId>& around) const;

  // stitch_reads.cpp
  NodeId scope_of(const Value& v) const;
  std::vector<Value> slices_of(const Value& v);
  void split_slices();

  // stitch_walk.cpp
  void check() const;
  void walk(NodeId node, Point at);
  void enter_body(NodeId body, Point& at);
  void walk_loop(NodeId node, const Point& at);
  void walk_compute(NodeId node, const Point& at);
  void infer(const Inference& inference, Point& at) const;
  Span access_span(OpId op, const Affine& index, std::int64_t extent, const Point& at) const;
  std::vector<Span> access_box(OpId op, const Access& access, const Point& at) const;
  std::vector<Span> reads_box(const std::vector<ReadRef>& reads, const Point& at) const;
  void fix_tiles(NodeId body, const Point& at);
  Span hull(const Span& a, const Span& b) const;
  Key key_of(const Operator& op, const Access& access, const std::vector<Linear>& point) const;
  void require(std::vector<Linear>& inside, Linear positive) const;
  Linear index(int id) const { return {.terms = {{id, 1}}, .constant = 0}; }
  int add_index(Index index);
  std::size_t slot(OpId op, std::size_t local) const { return k_.range_base[op.index()] + local; }

  // stitch_loads.cpp
  void place_load(NodeId load);
  void add_load(NodeId load);
  void check_same_units() const;
  void check_last_tiles(NodeId load) const;
  bool is_private(NodeId loop, BufferId b) const;
  bool tile_moves(NodeId load, NodeId loop) const;
  std::vector<NodeId> loading_loops(NodeId load) const;
  bool same_tile(NodeId a, NodeId b) const;
  bool in_other_blocks(NodeId a, NodeId b) const;

  // stitch_values.cpp
  void make_values();
  void visit_values(NodeId node);
  void add_compute(NodeId compute);
  NodeId anchor_of(NodeId compute) const;
  void check_sum(const Value& v) const;
  void check_leaving(const Value& v) const;
  void choose_storage(Value& v);
  bool fits_registers(Value& v);
  bool adopt_key(Value& v);
  bool covers(const Value& v, const Use& use) const;
  void choose_names();
  bool reads_window(const Value& v) const;
  void put_shared(Value& v, const std::string& reason);
  NodeId common(NodeId a, NodeId b) const;
  NodeId child_towards(NodeId ancestor, NodeId node) const;
  std::vector<int> own(const Key& key, NodeId scope) const;
  std::optional<std::map<int, int>> match(const Key& made, const Key& used, NodeId scope) const;
  std::set<int> reduced(const Value& v) const;
  std::int64_t size_of_dims(const std::vector<int>& dims) const;
  const std::vector<NodeId>& loops_around(NodeId n) const { return facts_[n.index()].at.loops; }
  bool is_sum(const Value& v) const {
    return !v.loaded() && !workload_.reduction_loops(k_.node(v.producer).op).empty();
  }
  const Output& output_of(const Value& v) const {
    const ScheduleNode& n = k_.node(v.producer);
    return workload_.op(n.op)
        .outputs[static_cast<std::size_t>(n.writes[static_cast<std::size_t>(v.output)].output)];
  }
  Key use_key(const Use& use) const;
  std::vector<Linear> there(const Use& use) const;
  bool encloses(NodeId scope, int id) const;
  bool leaves(const Value& v) const;
  void lay_out();
  void choose_unrolling();

  // stitch_emit.cpp
  void write();
  void define_units();
  void visit(NodeId node);
  void visit_children(NodeId node);
  void before(NodeId parent, NodeId child);
  void visit_loop(NodeId node);
  void visit_grid(NodeId node);
  void visit_pack(NodeId node);
  void synchronise(const std::vector<std::size_t>& values);
  bool within_warp(const Value& v) const;
  bool is_short(NodeId loop) const;
  void declare(const Value& v);
  void open_loop(int id, std::int64_t step = 1, const std::string& how = "");
  void close_loop();
  std::string named(const std::string& type, const std::string& base, const std::string& text);
  std::string condition(const std::vector<Linear>& inside);
  std::string offset_text(TensorId t, const Linear& flat);
  std::string array(const Value& v, const std::map<int, int>& of_use = {}, int without = -1) const;
  Linear flat(TensorId t, const Key& key) const;
  std::string real() const { return p_.f64 ? "double" : "float"; }
  std::string home(TensorId t) const { return identifier("", workload_.tensor(t).name) + "_home"; }

  // stitch_moves.cpp
  void load(const Value& v);
  void stage(const Value& v);
  void store(const Value& v);
  bool of_block(const std::vector<Linear>& inside) const;
  void move(const Value& v, const std::string& function, const std::string& only);
  std::vector<Linear> moved_inside(const Value& v) const;
  Strip strip_of(const Value& v) const;
  std::int64_t vector_width(TensorId t, const Linear& at, int element,
                            const std::vector<Linear>& inside) const;
  int contiguous(TensorId t, const Key& key, const std::vector<int>& ids) const;
  std::string shared_at(const Value& v, const Key& key) const;
  std::vector<int> turns_ahead(const Value& v) const;
  std::string owner(const Copies& c) const;
  static std::string both(const std::string& a, const std::string& b) {
    return a.empty() || b.empty() ? a + b : a + " && " + b;
  }

  // stitch_compute.cpp
  void compute(NodeId node);
  std::vector<int> sum_dims(const Value& v) const;
  void open_sums(const Value& v);
  void close_sums(const Value& v);
  void start_sum(const Value& v);
  std::string read(const Use& use);
  // stitch_reads.cpp
  /// Elements of a gather that lie side by side, and are loaded as one.
  struct Run {
    int input = 0, element = -1;
    std::int64_t width = 1;
    std::string name;
  };
  /// Where a gather's element is, whether it is there, and which lane reads it for others.
  struct Gathered {
    std::string there, place, lane;
    bool alike = false;  ///< for all threads, of which one is counted
  };
  std::optional<Run> run_of(NodeId compute) const;
  std::set<int> named_by(NodeId compute, int gather) const;
  Gathered gathered_at(const Use& use);
  std::string read_gathered(const Use& use);
  void load_run(NodeId compute, Run& run);
  /// What a loop's turns read of shared memory at one place, held in registers.
  struct HeldRead {
    std::string name;
    std::vector<int> dims;
  };
  void hold_reads(NodeId loop);
  bool holds_over(NodeId loop, const Use& use, const Value& v) const;
  std::string held_signature(const Use& use, std::vector<int>& dims) const;
  std::vector<Linear> guards(const Use& use) const;
  std::string read_shared(const Use& use);
  void finish_sums(NodeId anchor);
  void join_lanes(const Value& v);
  void join_warps(const std::vector<std::size_t>& sums, const std::string& flip);
  void add_up_parts(const Value& v, const std::string& parts);
  std::string part(const Value& v, const std::string& parts, const std::string& warp) const;
  void keep_sum(std::size_t value);
  std::string place_among(const Value& v) const;
  bool shared_out(const Value& v) const;
  std::string joining_warp(const Value& v) const;
  std::vector<int> reduced_units(const Value& v) const;
  std::int64_t scratch_lanes(const Value& v) const;
  std::int64_t scratch_elements(const Value& v) const {
    return size_of_dims(sum_dims(v)) * warps_ * scratch_lanes(v);
  }
  static std::string functor(Combine c);
  std::string literal_text(double value) const;

  Program& p_;
  int number_;
  const Workload& workload_;
  const ScheduledKernel& k_;
  Variables variables_;
  Names names_;
  std::vector<Index> indices_;
  std::vector<Facts> facts_;
  std::map<std::pair<int, std::pair<std::int64_t, std::int64_t>>, int> unit_indices_;
  std::int64_t warps_ = 1;

  std::map<NodeId, std::vector<NodeId>> hoisted_;  ///< loads by the loop that they stand before
  std::map<NodeId, NodeId> place_;  ///< of every load: the node that it stands before
  std::vector<Value> values_;
  std::vector<int> held_;  ///< by BufferId: the value that it holds
  std::vector<int> made_;  ///< by TensorId
  std::map<NodeId, std::vector<std::size_t>> made_by_;
  std::map<std::pair<NodeId, int>, std::size_t> used_by_;
  std::map<BufferId, std::vector<Span>> tiles_;  ///< of buffers fixed at a body
  std::map<BufferId, std::vector<NodeId>> tile_loops_;
  std::map<std::size_t, std::int64_t> scratch_;  ///< of sums over warps: offset in bytes
  std::set<std::size_t> long_sums_;              ///< sums that use one place in turn
  std::map<NodeId, std::string> flips_;          ///< of sums in a loop: which of two places is next
  std::int64_t shared_bytes_ = 0;

  Lines out_{1};
  std::vector<std::map<std::string, std::string>> defined_;
  std::map<std::pair<NodeId, int>, HeldRead> held_reads_;  ///< by compute and input
  std::vector<std::size_t> written_;  ///< in shared memory, and not yet seen by all who read it
  bool long_place_taken_ = false;
  std::vector<NodeId> open_;  ///< loops of the program around the current place
  std::string rest_ = "block";
  std::int64_t blocks_here_ = 1;
};

}  // namespace tilewright::cuda
