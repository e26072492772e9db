// From a schedule to a ThreadProgram: every value at an index that is known when the source is
// written, up to which thread it is. A walk gives each node the ranges and indices that it has
// there (walk.cpp, units.cpp); what is loaded or computed becomes a value with a key, its indices,
// and lies in a register of the thread that makes it where all who use it have the same key there,
// in shared memory otherwise (loads.cpp, values.cpp, layout.cpp, padded.cpp); then the steps are
// put down (steps.cpp, step_compute.cpp, reads.cpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/lowering/checks.h"
#include "core/lowering/gpu/thread_program.h"

namespace tilewright::lowering {

/// `x` with some indices for others.
Linear renamed(const Linear& x, const std::map<int, int>& names);

class Lowering {
 public:
  Lowering(const Schedule& schedule, int kernel, const LowerOptions& options);
  /// Throws Refused.
  ThreadProgram lower();

 private:
  /// Ranges at a place; what holds there, each positive; the loops around it, outermost first.
  struct Point {
    std::vector<Span> ranges;
    std::vector<Linear> inside;
    std::vector<NodeId> loops;
  };
  struct Facts {
    std::shared_ptr<const Point> at;  ///< before the node
    int unit = -1, turn = -1;         ///< loop: its indices, as far as it has them
    bool cut_short = false;           ///< loop: some blocks or units have fewer iterations of it
    bool uneven = false;              ///< loop: the last iteration is smaller
    std::vector<Linear> point;        ///< compute: every loop's value
    std::vector<int> elements;        ///< compute: its element indices
    std::vector<Linear> inside;       ///< compute: what holds at the point
    std::vector<Span> tile;           ///< load
  };

  // units.cpp
  void shape_block();
  std::int64_t units_below(NodeId node, Binding unit) const;
  void bind(NodeId loop);
  int unit_index(Binding unit, std::int64_t stride, std::int64_t size);
  int block_index(NodeId loop);
  bool is_around(NodeId outer, NodeId inner) const;
  bool below(NodeId node, Binding unit) const;
  Copies copies(const Key& key, const std::vector<NodeId>& around) const;

  // walk.cpp
  void check() const;
  int phase_of(NodeId node) const;
  NodeId producer_node(TensorId tensor) const;
  void walk(NodeId node, const std::shared_ptr<const Point>& at);
  void enter_body(NodeId body, Point& at);
  void check_window(TensorId t, const std::vector<Span>& tile) const;
  void walk_loop(NodeId node, const Point& around);
  void walk_compute(NodeId node, const Point& at);
  void infer(const Inference& inference, Point& at) const;
  Span access_span(OpId op, const Affine& index, std::int64_t extent, const Point& at,
                   bool clipped = true) const;
  std::vector<Span> access_box(OpId op, const Access& access, const Point& at) const;
  std::vector<Span> reads_box(const std::vector<ReadRef>& reads, const Point& at) const;
  std::vector<Span> reads_ahead(const std::vector<ReadRef>& reads,
                                const std::vector<Inference>& lookahead, const Point& at) const;
  void fix_tiles(NodeId body, const Point& at);
  Span hull(const Span& a, const Span& b) const;
  Key key_of(const Operator& op, const Access& access, const std::vector<Linear>& point) const;
  void require(std::vector<Linear>& inside, Linear positive) const;
  int add_index(ProgramIndex index);
  std::size_t slot(OpId op, std::size_t local) const { return k_.range_base[op.index()] + local; }

  // loads.cpp
  void place_load(NodeId load);
  void add_load(NodeId load);
  void check_same_units() const;
  void check_last_tiles(NodeId load) const;
  bool is_private(NodeId loop, BufferId b) const;
  std::size_t depth_of_units(NodeId place) const;
  bool tile_moves(NodeId load, NodeId loop) const;
  std::vector<NodeId> loading_loops(NodeId load) const;
  bool same_tile(NodeId a, NodeId b) const;
  bool in_other_blocks(NodeId a, NodeId b) const;
  std::vector<Value> slices_of(const Value& v);
  void split_slices();

  // values.cpp
  void make_values();
  void visit_values(NodeId node);
  void add_compute(NodeId compute);
  NodeId anchor_of(NodeId compute) const;
  bool read_within(OpId op, NodeId loop) const;
  void check_sum(const Value& v) const;
  void check_leaving(const Value& v) const;
  NodeId scope_of(const Value& v) const;
  void choose_storage(Value& v);
  bool fits_registers(Value& v);
  bool adopt_key(Value& v);
  std::vector<Linear> inside_before(const Value& v, const std::vector<Linear>& inside,
                                    const std::set<int>& known) const;
  bool follows(const Linear& x, const std::vector<Linear>& positive) const;
  bool covers(const Value& v, const Use& use) const;
  void choose_names();
  bool reads_window(const Value& v) const;
  void put_shared(Value& v, const std::string& reason);
  void choose_unrolling();
  NodeId common(NodeId a, NodeId b) const;
  NodeId child_towards(NodeId ancestor, NodeId node) const;
  std::vector<int> own(const Key& key, NodeId scope) const;
  std::vector<int> own(const Value& v) const;
  std::vector<int> equal_turns(const Value& v) const;
  std::optional<std::map<int, int>> match(const Key& made, const Key& used, NodeId scope) const;
  std::set<int> reduced(const Value& v) const;
  std::int64_t size_of_dims(const std::vector<int>& dims) const;
  Key use_key(const Use& use) const;
  std::vector<Linear> there(const Use& use) const;
  bool encloses(NodeId scope, int id) const;
  bool leaves(const Value& v) const;
  // layout.cpp
  void lay_out();
  int contiguous(TensorId t, const Key& key, const std::vector<int>& ids) const;
  std::int64_t vector_width(TensorId t, const Linear& at, int element,
                            const std::vector<Linear>& inside) const;
  std::vector<Linear> moved_inside(const Value& v) const;
  Strip strip_of(const Value& v) const;
  bool of_block(const std::vector<Linear>& inside) const;
  std::vector<int> turns_ahead(const Value& v) const;
  Linear shared_at(const Value& v, const Key& key) const;
  Linear flat(TensorId t, const Key& key) const;
  std::vector<int> reduced_units(const Value& v) const;
  std::int64_t scratch_lanes(const Value& v) const;
  std::int64_t scratch_elements(const Value& v) const;
  bool shared_out(const Value& v) const;

  // steps.cpp
  void visit(NodeId node, std::vector<Step>& out);
  void visit_children(NodeId node, std::vector<Step>& out);
  void visit_child(NodeId parent, NodeId child, std::vector<Step>& out);
  void before(NodeId parent, NodeId child, std::vector<Step>& out);
  void visit_loop(NodeId node, std::vector<Step>& out);
  void visit_grid(NodeId node, std::vector<Step>& out);
  void visit_pack(NodeId node, std::vector<Step>& out);
  void synchronise(const std::vector<std::size_t>& values, bool reused, std::vector<Step>& out);
  bool within_warp(const Value& v) const;
  bool is_short(NodeId loop) const;
  Step of_value(Step::Kind kind, std::size_t value) const;
  void count_units(Step& step, const std::vector<NodeId>& loops) const;
  void load(std::size_t value, std::vector<Step>& out);
  Step moved(Step::Kind kind, std::size_t value) const;
  void stage(std::size_t value, std::vector<Step>& out);
  void load_first(std::vector<Step>& steps);
  bool is_fetched(const Step& step) const;
  static bool waits_for(const Step& step, const std::vector<Step>& pending);
  static void look_up_ahead(Step& step);
  static bool uses(const Step& step, int value);
  static void load_ahead(std::vector<Step>& steps);
  void load_at_once(std::vector<Step>& steps, bool unrolled) const;
  void store(std::size_t value, std::vector<Step>& out);
  void finish_sums(NodeId anchor, std::vector<Step>& out);
  void join_lanes(std::size_t value, std::vector<Step>& out);
  Step exchange(const std::vector<std::size_t>& sums) const;
  void keep_sum(std::size_t value, std::vector<Step>& out);

  // step_compute.cpp
  void compute(NodeId node, std::vector<Step>& out);
  Step reads_of(NodeId node, std::optional<Run> run);
  std::set<int> elements_named(NodeId compute, int input) const;
  void read_once(Step& step) const;
  static bool order_elements(Step& step);
  Read read(const Use& use);
  Write write(std::size_t value) const;

  // reads.cpp
  std::optional<Run> run_of(NodeId compute) const;
  std::set<int> named_by(NodeId compute, int gather) const;
  Gather gather(const Use& use) const;
  void hold_reads(NodeId loop, std::vector<Step>& out);
  bool holds_over(NodeId loop, const Use& use, const Value& v) const;
  std::string held_signature(const Use& use, std::vector<int>& dims) const;
  std::vector<Linear> guards(const Use& use) const;
  Read read_shared(const Use& use) const;

  // padded.cpp
  std::vector<NodeId> below_tile(const Value& v, const Use& use) const;
  std::optional<std::vector<Span>> reach(const Value& v, const Use& use) const;
  std::int64_t neighbours_of(const Value& v, const std::vector<Span>& tile) const;
  bool pad(Value& v);
  void bring_rows_whole(Value& v, Span& row) const;
  Read read_padded(const Use& use) const;
  void unroll_windows();
  void hold_windows(NodeId loop, std::vector<Step>& out);

  Linear linear(int id) const { return {.terms = {{id, 1}}, .constant = 0}; }
  const ProgramIndex& index(int id) const { return p_.index(id); }
  ProgramIndex& index(int id) { return p_.indices[static_cast<std::size_t>(id)]; }
  const std::vector<NodeId>& loops_around(NodeId n) const { return facts_[n.index()].at->loops; }
  const Output& output_of(const Value& v) const { return p_.output_of(v); }
  std::string name_of_tensor(TensorId t) const { return workload_.tensor(t).name; }

  ThreadProgram p_;
  const Machine& machine_;
  const Workload& workload_;
  const ScheduledKernel& k_;
  const LowerOptions options_;
  Variables& variables_ = p_.variables;
  std::vector<Facts> facts_;
  std::map<std::pair<int, std::pair<std::int64_t, std::int64_t>>, int> unit_indices_;
  std::map<std::vector<std::int64_t>, int> block_indices_;  ///< by place among the blocks
  std::int64_t& warps_ = p_.warps;

  std::map<NodeId, std::vector<NodeId>> hoisted_;  ///< loads by the loop that they stand before
  std::map<NodeId, NodeId> place_;  ///< of every load: the node that it stands before
  std::vector<Value>& values_ = p_.values;
  std::vector<int> held_;  ///< by BufferId: the value that is read of it
  /// The value that an instance holds, told apart by how many loops over units are around it.
  std::map<std::pair<BufferId, std::size_t>, int> held_by_units_;
  std::vector<int> made_;  ///< by TensorId
  std::map<NodeId, std::vector<std::size_t>> made_by_;
  std::map<std::pair<NodeId, int>, std::size_t> used_by_;
  std::map<BufferId, std::vector<Span>> tiles_;  ///< of buffers fixed at a body
  std::map<BufferId, std::vector<NodeId>> tile_loops_;
  std::map<std::size_t, std::int64_t> scratch_;  ///< of sums over warps: offset in bytes
  std::set<std::size_t> long_sums_;              ///< sums that use one place in turn
  std::map<NodeId, std::string> flips_;          ///< of sums in a loop: which of two places is next

  std::map<std::pair<NodeId, int>, std::pair<std::string, std::vector<int>>> held_reads_;
  std::map<std::pair<NodeId, int>, Read> held_windows_;
  std::vector<std::size_t> written_;  ///< in shared memory, and not yet seen by all who read it
  bool long_place_taken_ = false;
  std::vector<NodeId> open_;  ///< loops of the program around the current place
  std::int64_t blocks_here_ = 1;
};

}  // namespace tilewright::lowering
