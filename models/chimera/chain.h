// What Chimera's model needs to know of a workload whatever the order: which loops an order
// permutes, which follow from others, and how an order becomes a loop tree. Private to
// models/chimera.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/workload/box.h"
#include "core/workload/workload.h"

namespace tilewright::chimera::detail {

/// A set of loops (by LoopId), operators (by topological position) or tensors (by TensorId).
using Mask = std::uint64_t;
inline constexpr std::size_t kMaxMask = 64;
constexpr Mask bit(std::size_t i) { return Mask{1} << i; }
constexpr bool has(Mask m, std::size_t i) { return (m >> i & 1) != 0; }
template <class F>
void each(Mask m, F&& f) {
  for (; m != 0; m &= m - 1) f(static_cast<std::size_t>(std::countr_zero(m)));
}

/// What a loop of one operator moves with. A producer's loop that indexes an on-chip tensor follows
/// the consumers' loops in that dimension (plan.md, rule 2); every other loop follows itself.
struct Follows {
  bool inferred = false;
  Mask loops = 0;    ///< order loops
  Mask windows = 0;  ///< loops that only slide in the consumer: they count only where they are cut
  LoopId simple;     ///< the one loop whose range it has exactly; none: a halo or several
};

/// The order-independent analysis of a workload.
class Chain {
 public:
  /// Throws InputError for more than 64 loops, tensors or operators, and for gathers.
  explicit Chain(const Workload& w);

  const Workload& workload() const { return *w_; }
  std::size_t size() const { return w_->topological_order().size(); }
  OpId id(std::size_t position) const { return w_->topological_order()[position]; }
  const Operator& op(std::size_t position) const { return w_->op(id(position)); }
  std::size_t position(OpId id) const { return position_[id.index()]; }

  bool batch(LoopId l) const { return has(batch_, l.index()); }
  /// Neither batch nor inferred everywhere, in the workload's order.
  std::span<const LoopId> order_loops() const { return order_loops_; }
  std::span<const LoopId> batch_loops() const { return batch_loops_; }

  const Follows& follows(std::size_t op, std::size_t local) const { return follows_[op][local]; }
  /// Order loops that an index of `op` moves with; cut windows are those in `multi`.
  Mask accessed(std::size_t op, const Affine& index, Mask multi) const;
  Mask accessed(std::size_t op, const Access& access, Mask multi) const;
  /// Loops of an operator as order loops.
  Mask loops_of(std::size_t op) const { return loops_[op]; }
  Mask reductions_of(std::size_t op) const { return reductions_[op]; }
  Mask ancestors_of(std::size_t op) const { return ancestors_[op]; }
  Mask dependents_of(std::size_t op) const { return dependents_[op]; }

  /// Ranges of every operator's loops, by base(op) + local, given ranges of the order loops by
  /// LoopId. `clip`: inferred ranges stay within the tensor, as true tiles at its edges do;
  /// otherwise only their size is limited, as a full tile's is.
  std::vector<Interval> ranges(std::span<const Interval> tiles, bool clip) const;
  /// Whether all ranges only ever move up with the tiles, and none is limited by a tensor: no
  /// coefficient is negative and nothing that is handed on is read beyond it.
  bool moves_up() const { return moves_up_; }
  /// By how much each range's ends move at most where a loop's tile moves by `step`; by base(op) +
  /// local. Where moves_up().
  std::vector<std::int64_t> speeds(LoopId loop, std::int64_t step) const;
  std::size_t base(std::size_t op) const { return base_[op]; }
  /// The loop to cut in place of `loop` where `ops` (a set) do not have it but follow it; none if
  /// they do not.
  LoopId stand_in(LoopId loop, Mask ops) const;

 private:
  void relate_ops();
  template <class See>
  void each_reader(std::size_t op, See&& see) const;
  bool find_moves_up() const;
  void find_follows(std::size_t op);
  void infer(std::size_t op, bool clip, std::vector<Interval>& r) const;

  const Workload* w_;
  std::vector<std::size_t> position_, base_;
  std::vector<std::vector<Follows>> follows_;  // by operator position, local loop
  bool moves_up_ = false;
  Mask batch_ = 0;
  std::vector<LoopId> order_loops_, batch_loops_;
  std::vector<Mask> loops_, reductions_, ancestors_, dependents_;
};

/// A loop tree before it has names: items in depth-first order, each a loop or a compute.
struct Item {
  int loop = -1;    ///< LoopId, or
  int op = -1;      ///< topological position
  int parent = -1;  ///< item; -1: the kernel
  Mask inside = 0;  ///< loops: operators below
};
using Skeleton = std::vector<Item>;

/// The tree of an order, which names batch loops too. `multi`: loops with several trips. The rules
/// are tree_of's.
Skeleton skeleton_of(const Chain& c, std::span<const LoopId> order, Mask multi);
/// The same of some operators (a set by topological position) only.
Skeleton skeleton_of(const Chain& c, std::span<const LoopId> order, Mask multi, Mask ops);

/// What the tree keeps alive.
struct Structure {
  std::vector<Mask> cut;      ///< by TensorId, on chip: loops around its home point
  std::vector<Mask> live;     ///< by operator position: tensors alive while it runs (creq)
  std::vector<Mask> held;     ///< the same, with every tile that a later iteration finds again
  std::vector<Mask> foreign;  ///< by operator position: loops around it that it does not have
};
/// `on_chip`: tensors held between their producer and consumers (a set by TensorId).
Structure structure_of(const Chain& c, const Skeleton& s, Mask multi, Mask on_chip);

/// The loops of which an order is an illegal program (see legality): reduction, private loop within
/// it, producer's output loop within that; of a running producer, whose partial results are read
/// inside its reduction, an output loop within it that its consumers share (no private loop). Empty
/// when legal.
struct Conflict {
  std::size_t producer = 0;
  LoopId reduction, inner, output;
};
std::vector<Conflict> conflicts_of(const Chain& c, std::span<const LoopId> order, Mask multi);

}  // namespace tilewright::chimera::detail
