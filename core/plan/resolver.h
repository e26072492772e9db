// The parts of `resolve`, one idea a file: binding names (resolve_tree.cpp), ranges and home points
// (resolve_ranges.cpp), slices (resolve_slices.cpp), buffers (resolve_buffers.cpp), legality (resolve_legal.cpp; of running
// operators, resolve_running.cpp).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::resolving {

/// What every kernel of a plan needs of the whole, found once.
struct Placement {
  explicit Placement(const Workload& w);
  std::vector<std::vector<int>> kernels_of;  ///< by OpId: what kernels compute it, ascending
  /// By TensorId: the kernel that writes it home, for the kernels that read it and do not compute
  /// it, or as an output; -1: none.
  std::vector<int> written_by;
  std::vector<std::size_t> rank;  ///< by OpId: position in topological_order()
  bool computes(int kernel, OpId op) const;
  // Workload::find_loop and so on, without a search: a tree names every operator that there is.
  std::optional<LoopId> find_loop(std::string_view name) const;
  std::optional<TensorId> find_tensor(std::string_view name) const;
  std::optional<OpId> find_op(std::string_view name) const;

 private:
  const Workload& w_;
  std::unordered_map<std::string_view, LoopId> loops_;
  std::unordered_map<std::string_view, TensorId> tensors_;
  std::unordered_map<std::string_view, OpId> ops_;
};

/// Tables as long as the workload. One kernel after the other uses them: it leaves them as they
/// were (Draft::clear), so that many small kernels cost no more than a large one.
struct Tables {
  explicit Tables(const Workload& w);
  std::vector<NodeId> compute_of;   ///< by OpId; invalid: not computed here
  std::vector<NodeId> inferred_at;  ///< by OpId: the body that infers its ranges, if any
  std::vector<std::vector<BufferId>> input_buffers;  ///< by TensorId: filled by loads
  std::vector<std::vector<BufferId>> chain;          ///< by TensorId: written buffers, inner first
  std::vector<NodeId> home_body;  ///< by TensorId: LCA body of producer and consumers
};

/// Tensors whose loads bring several slices with gaps between them.
struct Slices {
  std::map<TensorId, std::vector<std::vector<ReadRef>>> reads;  ///< of each slice
  std::vector<std::vector<int>> at;  ///< by load in the order of the tree: the slices that it brings
  bool empty() const { return reads.empty(); }
  int slice_of(TensorId t, const ReadRef& read) const;
};

/// One kernel on its way from a plan to a schedule.
struct Draft {
  const Workload& w;
  const Machine& m;
  const Schedule& schedule;  ///< workload and machine only, for the Ranges API
  const Kernel& plan;
  int index = 0;
  std::string where;  ///< "kernel 1", for errors
  const Placement& placement;
  Tables& tables;
  Slices slices = {};  ///< each has loads and buffers of its own
  ScheduledKernel k = {};

  std::vector<NodeId>& compute_of = tables.compute_of;
  std::vector<NodeId>& inferred_at = tables.inferred_at;
  std::vector<std::vector<BufferId>>& input_buffers = tables.input_buffers;
  std::vector<std::vector<BufferId>>& chain = tables.chain;
  std::vector<NodeId>& home_body = tables.home_body;

  std::map<NodeId, std::int64_t> first_blocks;  ///< of packs' parts, where the plan says them
  std::map<TensorId, LevelId> pinned;       ///< to a level that the plan names
  std::map<TensorId, std::string> home_at;  ///< pins' `at`
  std::map<TensorId, bool> sliding;
  std::vector<NodeId> implicit;  ///< loads that rule 9 put
  std::map<BufferId, int> slice_of_buffer;  ///< position in slices.reads
  std::vector<NodeId> further;   ///< loads of a further slice: the one before stands for them in text
  bool has_once = false;         ///< some of them are a !once compute's
  std::vector<NodeId> last;      ///< by node: the last one below it, or itself
  std::vector<OpId> in_tree;     ///< operators in the order of their computes
  std::map<TensorId, std::vector<NodeId>> loads_of, stores_of;  ///< in the order of the tree

  /// Numbers what bind_tree has made: `last`, `in_tree`, the kernel's operators and their ranges.
  void number();
  /// Leaves the tables empty for the next kernel.
  void clear();
  /// Where the kernel has a tensor: pinned, or the kernel's level.
  LevelId level_of(TensorId t) const;
  /// Operators computed inside a node, in topological order.
  std::vector<OpId> ops_inside(NodeId scope) const;
  bool has_loop(OpId op, NodeId loop) const {
    return inside(compute_of[op.index()], loop) && w.local_index(op, node(loop).loop) >= 0;
  }
  ScheduleNode& node(NodeId id) { return k.nodes[id.index()]; }
  const ScheduleNode& node(NodeId id) const { return k.nodes[id.index()]; }
  bool computed_here(OpId op) const { return op.valid() && compute_of[op.index()].valid(); }
  /// Written here and read here, and kept on chip (not spilled).
  bool on_chip(TensorId t) const;
  bool consumed_here(TensorId t) const;
  /// Written home by this kernel: an output of the workload or read by another kernel.
  bool leaves(TensorId t) const;
  /// Made here as a further output of an operator, read by other kernels only, and not written:
  /// they have it from elsewhere.
  bool dropped(TensorId t) const;
  bool spilled(TensorId t) const;
  /// Depth-first order of nodes equals their ids: parents before children, left to right.
  bool inside(NodeId n, NodeId ancestor) const {
    return n >= ancestor && n <= last[ancestor.index()];
  }
  /// The innermost loop around `n` or the root; `n` itself where it is a loop or the root.
  NodeId body_of(NodeId n) const;
  NodeId common_body(NodeId a, NodeId b) const;
  /// Every access of `t` by the operators computed inside `scope`; not those that read it by value.
  std::vector<ReadRef> reads_inside(TensorId t, NodeId scope) const;
  /// The inferences below `scope` (a body's own excluded) on which the ranges of `ops` depend,
  /// consumers first.
  std::vector<Inference> lookahead(NodeId scope, std::vector<OpId> ops) const;
  /// What inferred_at of an operator infers of it, an output each.
  std::span<const Inference> inferences_of(OpId op) const;
  int slice_of(BufferId b) const;
  [[noreturn]] void bad(std::string field, std::string value, std::string problem,
                        std::string accepted = {}) const;
};

void bind_tree(Draft& d);  // throws InputError
void bind_pins(Draft& d);  // throws InputError
std::optional<Reason> check_gathers(const Draft& d);
std::optional<Reason> place_cuts(Draft& d);  // cuts, steps, inferences, rule 3's ranges
/// How long the range of an operator's loop can be in a body, before the body's node cuts it.
std::int64_t longest_range(const Draft& d, const OpLoop& c, NodeId body);
/// Of a draft that has none yet, with its cuts placed: what it is to be made again with.
Slices slices_of(const Draft& d);
std::optional<Reason> place_buffers(Draft& d);
std::optional<Reason> check_running(const Draft& d);
std::optional<Reason> check_legal(const Draft& d);
void place_parts(Draft& d);  // of a legal kernel
Kernel resolved_kernel(const Draft& d);

}  // namespace tilewright::resolving
