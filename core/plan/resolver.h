// The parts of `resolve`, one idea a file: binding names (resolve_tree.cpp), ranges and home points
// (resolve_ranges.cpp), buffers (resolve_buffers.cpp), legality (resolve_legal.cpp; of running operators,
// resolve_running.cpp).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// What kernel computes each operator, before any kernel is resolved.
struct Placement {
  std::vector<int> kernel_of;  ///< by OpId; -1: none yet
};

/// One kernel on its way from a plan to a schedule.
struct Draft {
  const Workload& w;
  const Machine& m;
  const Schedule& schedule;      ///< workload and machine only, for the Ranges API
  const Kernel& plan;
  int index = 0;
  std::string where;             ///< "kernel 1", for errors
  const Placement& placement;
  ScheduledKernel k;

  std::vector<NodeId> compute_of;         ///< by OpId; invalid: not computed here
  std::map<TensorId, LevelId> level_of;   ///< pinned or the kernel's level
  std::map<TensorId, std::string> home_at;  ///< pins' `at`
  std::map<TensorId, bool> sliding;
  std::vector<std::vector<BufferId>> input_buffers;  ///< by TensorId: filled by loads
  std::vector<std::vector<BufferId>> chain;          ///< by TensorId: written buffers, inner first
  std::vector<NodeId> implicit;           ///< loads that rule 9 put
  std::vector<NodeId> home_body;          ///< by TensorId: LCA body of producer and consumers

  ScheduleNode& node(NodeId id) { return k.nodes[id.index()]; }
  const ScheduleNode& node(NodeId id) const { return k.nodes[id.index()]; }
  bool computed_here(OpId op) const { return op.valid() && compute_of[op.index()].valid(); }
  /// Written here and read here, and kept on chip (not spilled).
  bool on_chip(TensorId t) const;
  bool consumed_here(TensorId t) const;
  /// An output of the workload or read by another kernel.
  bool leaves(TensorId t) const;
  bool spilled(TensorId t) const;
  /// Depth-first order of nodes equals their ids: parents before children, left to right.
  bool inside(NodeId n, NodeId ancestor) const;
  /// The innermost loop around `n` or the root; `n` itself where it is a loop or the root.
  NodeId body_of(NodeId n) const;
  NodeId common_body(NodeId a, NodeId b) const;
  /// Every access of `t` by the operators computed inside `scope`; not those that read it by value.
  std::vector<ReadRef> reads_inside(TensorId t, NodeId scope) const;
  /// The inferences below `scope` (a body's own excluded) on which the ranges of `ops` depend,
  /// consumers first.
  std::vector<Inference> lookahead(NodeId scope, std::vector<OpId> ops) const;
  [[noreturn]] void bad(std::string field, std::string value, std::string problem,
                        std::string accepted = {}) const;
};

void bind_tree(Draft& d);                          // throws InputError
void bind_pins(Draft& d);                          // throws InputError
std::optional<Reason> check_gathers(const Draft& d);
std::optional<Reason> place_cuts(Draft& d);        // cuts, steps, inferences, rule 3's ranges
std::optional<Reason> place_buffers(Draft& d);
std::optional<Reason> check_running(const Draft& d);
std::optional<Reason> check_legal(const Draft& d);
Kernel resolved_kernel(const Draft& d);

}  // namespace tilewright::lowering
