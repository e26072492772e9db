// What one block of a kernel does, in order: which tiles it opens, what moves between its buffers
// and which computes run, decided by the rules of design/plan.md on concrete ranges. An emitter
// derives from it and says with what instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright::npu {

/// What a buffer of the block holds now.
struct TileState {
  Box tile;
  bool valid = false;
  bool changed = false;  ///< written since it was last brought outward
};

class BlockWalk {
 public:
  BlockWalk(const Schedule& schedule, const ScheduledKernel& kernel)
      : s_(schedule), k_(kernel), w_(*schedule.workload) {}
  virtual ~BlockWalk() = default;

  /// Walks block `block` of the kernel from empty buffers to the last write (rule 10). A block
  /// number without iterations of its own does nothing. Throws Refused from the emitter's calls.
  void walk(std::int64_t block);

 protected:
  /// One output of a compute: whether this step of its sum is the first, and whether it is the last.
  struct SumStep {
    bool initialises = false;
    bool completes = false;
  };

  virtual void begin_iteration(NodeId loop, std::int64_t i) = 0;
  virtual void end_iteration(NodeId loop) = 0;
  /// What follows belongs to this node of a body.
  virtual void begin_part(NodeId node) = 0;
  /// `b` now stands for another tile, state(b).tile; what it held is gone.
  virtual void open(BufferId b) = 0;
  /// `box` of b's tensor comes from b's outer buffer or home, or goes there.
  virtual void move_in(BufferId b, const Box& box) = 0;
  virtual void move_out(BufferId b, const Box& box) = 0;
  /// A compute runs on these ranges; `steps` by n.writes.
  virtual void compute(NodeId node, const Ranges& ranges, const std::vector<SumStep>& steps) = 0;

  const TileState& state(BufferId b) const { return states_[b.index()]; }
  const tilewright::Buffer& buffer(BufferId b) const { return k_.buffer(b); }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;

 private:
  struct OpenLoop {
    NodeId id;
    std::int64_t i = 0;
    const Ranges* around = nullptr;
  };

  void enter_body(NodeId body, Ranges& ranges);
  void visit(NodeId id, const Ranges& ranges);
  void visit_loop(NodeId id, const Ranges& ranges);
  void visit_iteration(NodeId id, std::int64_t i, const Ranges& around);
  void visit_load(NodeId id, const Ranges& ranges);
  void visit_compute(NodeId id, const Ranges& ranges);
  void visit_store(NodeId id, const Ranges& ranges);
  bool initialises(OpId op, const Ranges& ranges) const;
  bool completes(OpId op, const Ranges& ranges) const;
  bool added_already(OpId op) const;
  void update(BufferId b, bool first);
  void replace(BufferId b, const Box& tile);
  void read_back(BufferId b);
  void write(BufferId b);
  void finish();

  std::int64_t rest_ = 0;            ///< of the block's number, within the grid loops so far
  std::vector<TileState> states_;    ///< by BufferId
  std::vector<Box> tiles_;           ///< by BufferId: where its tile is now, held or not
  std::vector<OpenLoop> open_;
};

}  // namespace tilewright::npu
