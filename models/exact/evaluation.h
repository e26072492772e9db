// Evaluates one kernel's tree: what each node moves, given what the buffers hold, with stretches of
// iterations that do the same multiplied (exact.h says how).
#pragma once

#include <map>
#include <vector>

#include "models/exact/contents.h"
#include "models/exact/exact.h"
#include "models/exact/regimes.h"
#include "models/exact/signature.h"
#include "models/exact/tally.h"

namespace tilewright::exact_model {

/// Thrown where a count evaluates more nodes than it may.
struct GivenUp {};

class Evaluation {
 public:
  Evaluation(const Schedule& s, const ScheduledKernel& k, Tally& tally, ExactCost& cost,
             std::int64_t most_nodes);
  /// Counts the whole kernel into the tally. Throws GivenUp, the tally then being of no use.
  void run();

 private:
  /// What tells a buffer's instances apart at a place that fixes its tile.
  struct Home {
    std::vector<NodeId> units;     ///< loops to whose iterations its level is private
    std::int64_t first_block = 0;  ///< of the part of a pack that it is in
  };
  struct Crossing {
    std::vector<std::size_t> in;   ///< boundaries from outer to the buffer
    std::vector<std::size_t> out;  ///< and back
    bool tracked = false;          ///< its contents can decide what moves
    bool complete = false;         ///< a !once compute asks which tiles are complete
  };
  struct Iteration {
    Signature::Part decided;
    Tally::Mark before = 0;
  };
  /// Ranges that a loop's iterations change, with what they are around it.
  using Around = std::vector<std::pair<std::size_t, Interval>>;

  // evaluation.cpp: nodes
  void zero();
  void node(NodeId id);
  void children(NodeId id);
  void enter(NodeId body);
  void load(NodeId id);
  void store(NodeId id);
  void drop(NodeId id);
  void compute(NodeId id);
  void gather(const ScheduleNode& compute);
  void note_edges(OpId op, int input);
  void retire(std::span<const BufferId> buffers);
  bool skipped(NodeId compute);
  bool at_low_end(OpId op, bool atomic);
  bool combined_over_blocks(TensorId t) const;

  // loops.cpp
  void loop(NodeId id);
  void count(NodeId id, std::int64_t all, std::int64_t full, const Around& around);
  Around around(NodeId id) const;
  void put_back(const Around& around);
  Iteration iterate(NodeId id, std::int64_t i, const Around& around);
  std::int64_t jump(NodeId id, std::int64_t i, std::int64_t most, const Around& around,
                    const Contents& before, const Iteration& done);
  Contents contents_in(NodeId loop) const;
  void set_contents(NodeId loop, const Contents& contents);

  // buffers.cpp: contents and movement
  void place_buffers();
  std::vector<std::vector<NodeId>> places() const;
  std::vector<std::vector<BufferId>> find_touched() const;
  void place_units(BufferId b, const std::vector<NodeId>& places);
  void settle(BufferId b, NodeId place);
  Content* find(BufferId b);
  Content& put(BufferId b, Content content);
  void move_in(BufferId b, const Box& box);
  void move_out(BufferId b, const Box& box);  ///< counts it, touches nothing
  bool holds(const Box& outer, const Box& inner);
  void write_out(BufferId b, const Box& box, bool initialises);
  void touch(BufferId b, const Box& tile, bool initialises);
  void touch_to_read(BufferId b, const Box& tile);
  void write_if_changed(BufferId b);

  Place at() const { return {s_, k_}; }
  const Buffer& buffer(BufferId b) const { return k_.buffer(b); }
  /// An intermediate that stays on chip: it never moves.
  bool stays(const Buffer& b) const { return b.role == BufferRole::intermediate && !b.leaves; }

  const Schedule& s_;
  const ScheduledKernel& k_;
  Tally& tally_;
  ExactCost& cost_;
  std::int64_t most_nodes_;
  Signature sig_;

  std::vector<std::map<BufferId, Home>> homes_;  // by node: the buffers whose tiles it fixes
  std::vector<Crossing> crossings_;              // by buffer
  std::vector<std::int64_t> blocks_;             // by node: within one of its iterations
  std::vector<std::vector<BufferId>> retired_;   // by node: emptied after each of its iterations
  std::vector<std::vector<BufferId>> touched_;   // by loop: whose contents it may change
  int depth_ = 0;                                // of loops being evaluated
  std::vector<bool> jumps_;  // by node: stretches of its iterations may be multiplied

  Contents contents_;
  std::vector<Instance> instance_;   // by buffer: the current one
  std::vector<std::int64_t> index_;  // by node: a unit loop's current iteration
  Ranges ranges_;
  std::vector<std::int64_t> block_low_;  // by range: where the block's part of it begins
};

}  // namespace tilewright::exact_model
