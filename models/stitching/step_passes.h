// Which steps of a thread program belong together: those of operators that share their loops.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/lowering/gpu/thread_program.h"

namespace tilewright::stitching {

/// Steps of operators that share their loops, each with how often a thread comes to it.
struct StepPass {
  std::vector<std::pair<const lowering::Step*, double>> steps;
  std::vector<int> loops;  ///< indices of the program's loops
  NodeId root;             ///< of the schedule
  double turns = 1;        ///< of a thread, over all loops
  double waits = 1;        ///< so often all loads that are under way are waited for
  double joins = 1;        ///< so often lanes join their parts, one time after the other
};

class StepPasses {
 public:
  explicit StepPasses(const lowering::ThreadProgram& p) : p_(p), k_(*p.kernel) {}

  /// The outermost node of the pass that a step belongs to; none: it is between passes.
  NodeId root_of(const lowering::Step& s) const;
  /// Adds a step and those in it, which a thread comes to `times` times.
  void collect(const lowering::Step& s, double times, StepPass& pass) const {
    collect(s, times, 1, 1, pass);
  }
  /// How many loops of the schedule the pass goes over.
  std::size_t loops_of(const StepPass& pass) const;
  /// Whether a sum goes on over several turns of the pass; `anchor`: of its value.
  bool beyond(NodeId anchor, const StepPass& pass) const;
  /// Whether a step does nothing at run time.
  static bool costless(const lowering::Step& s);

 private:
  /// `waits`: of the loops around; `together`: of their turns, those that are unrolled.
  void collect(const lowering::Step& s, double times, double waits, double together,
               StepPass& pass) const;
  bool beside_readers(NodeId load) const;
  bool is_leaf(NodeId id) const;

  const lowering::ThreadProgram& p_;
  const ScheduledKernel& k_;
  mutable std::map<NodeId, NodeId> roots_;
};

}  // namespace tilewright::stitching
