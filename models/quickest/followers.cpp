// Operators that take another's values from its registers, as kernels for processors do
// (codegen/cpu/emit_followers.cpp): what they do not read again, what is made beside, and what is
// nowhere stored.
#include "models/quickest/followers.h"

#include <algorithm>

#include "core/lowering/byte_products.h"
#include "core/lowering/checks.h"
#include "core/lowering/window_planes.h"
#include "core/workload/access.h"
#include "models/quickest/quickest.h"

namespace tilewright::quickest {
namespace {

class Finder {
 public:
  Finder(const Schedule& s, const ScheduledKernel& k, std::int64_t lanes)
      : k_(k), w_(*s.workload), lanes_(lanes) {}

  InRegisters run() {
    visit(NodeId(0));
    return std::move(found_);
  }

 private:
  void visit(NodeId id) {
    const ScheduleNode& n = k_.node(id);
    open_.push_back(id);
    for (std::size_t i = 0; i < n.children.size(); ++i) {
      look_behind(n.children, i);
      visit(n.children[i]);
    }
    open_.pop_back();
  }

  void look_behind(const std::vector<NodeId>& children, std::size_t i) {
    const NodeId producer = lowering::only_compute(k_, children[i], 1);
    if (!producer.valid() || followers_.contains(producer)) return;
    const ScheduleNode& n = k_.node(producer);
    if (n.once || n.writes.size() != 1 || n.writes[0].atomic || !complete(producer) ||
        (by_points(n.op) && !by_planes(producer)) || leaves_loops_over(producer))
      return;
    std::set<BufferId> made = {n.writes[0].buffer}, left;
    std::vector<Next> all;
    std::size_t last = 0;
    for (std::size_t j = i + 1; j < children.size(); ++j) {
      if (k_.node(children[j]).kind == NodeKind::load) continue;
      const NodeId id = lowering::only_compute(k_, children[j], 0);
      if (!id.valid()) break;
      const ScheduleNode& next = k_.node(id);
      const auto reads = [&](const std::set<BufferId>& of) {
        return std::ranges::any_of(next.reads,
                                   [&](const InputUse& use) { return of.contains(use.buffer); });
      };
      if (const bool follows = reads(made); !reads(left) && fits(producer, id, made, follows)) {
        all.push_back({id, !follows});
        if (follows && w_.reduction_loops(next.op).empty()) made.insert(next.writes[0].buffer);
        if (follows) last = all.size();
      } else if (follows) {
        break;
      } else {
        for (const OutputUse& use : next.writes) left.insert(use.buffer);
      }
    }
    all.resize(last);
    keep_asked(all);
    std::set<NodeId> taken;
    made = {n.writes[0].buffer};
    for (const Next& next : all) {
      const ScheduleNode& follower = k_.node(next.id);
      for (const InputUse& use : follower.reads)
        if (made.contains(use.buffer)) found_.reads.insert({follower.op, use.buffer});
      if (w_.reduction_loops(follower.op).empty()) made.insert(follower.writes[0].buffer);
      if (next.beside) found_.beside.insert(follower.op);
      taken.insert(next.id);
    }
    followers_.insert(taken.begin(), taken.end());
    for (BufferId b : made)
      if (!leaves(b, taken)) found_.unstored.insert(b);
  }

  /// A compute that takes values from registers, or is made beside for one that does.
  struct Next {
    NodeId id;
    bool beside = false;
  };

  /// Without those beside whose values no other one behind them asks for.
  void keep_asked(std::vector<Next>& all) const {
    std::set<BufferId> asked;
    for (std::size_t j = all.size(); j-- > 0;) {
      const ScheduleNode& n = k_.node(all[j].id);
      if (all[j].beside && !asked.contains(n.writes[0].buffer)) {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(j));
        continue;
      }
      for (const InputUse& use : n.reads)
        if (use.buffer.valid()) asked.insert(use.buffer);
    }
  }

  /// Whether the next compute is element-wise, or joins rows, on the producer's own points. One
  /// that does not follow has the producer's loops.
  bool fits(NodeId producer, NodeId next, const std::set<BufferId>& made, bool follows) const {
    const ScheduleNode& n = k_.node(next);
    const Operator& op = w_.op(n.op);
    if (n.once || op.running || w_.gathers(n.op) || n.writes.size() != 1 || n.writes[0].atomic)
      return false;
    const auto reductions = w_.reduction_loops(n.op);
    if (op.loops.size() != w_.op(k_.node(producer).op).outputs[0].target.index.size() ||
        reductions.size() > 1 || op.outputs[0].rescale)
      return false;
    for (const InputUse& use : n.reads) {
      if (!use.buffer.valid()) return false;
      if (!made.contains(use.buffer)) continue;
      for (int input : use.inputs)
        for (const Affine& index : op.inputs[static_cast<std::size_t>(input)].index)
          if (!index.plain_loop()) return false;
    }
    if (!follows) return reductions.empty() && has_points_of(producer, op);
    // Rows are joined into a tile that stays on chip.
    const Buffer& to = k_.buffer(n.writes[0].buffer);
    if (!reductions.empty() && (to.role != BufferRole::intermediate || !to.fixed_at.valid()))
      return false;
    return true;
  }
  /// Whether an operator's loops are those of the producer's result.
  bool has_points_of(NodeId producer, const Operator& op) const {
    return std::ranges::all_of(
        w_.op(k_.node(producer).op).outputs[0].target.index, [&](const Affine& index) {
          const auto loop = index.plain_loop();
          return loop && std::ranges::find(op.loops, *loop) != op.loops.end();
        });
  }

  /// Whether a producer's sums are whole when they are made: no loop around it cuts them.
  bool complete(NodeId producer) const {
    const OpId op = k_.node(producer).op;
    std::vector<NodeId> around = open_;
    add_path(open_.back(), producer, around);
    for (NodeId id : around) {
      const ScheduleNode& n = k_.node(id);
      if (n.kind != NodeKind::loop || n.max_trips <= 1) continue;
      for (const OpLoop& cut : n.cuts)
        if (cut.op == op &&
            w_.is_reduction(op, w_.op(op).loops[static_cast<std::size_t>(cut.local)]))
          return false;
    }
    return true;
  }
  /// Whether a plain product has loops beside rows, columns and depth that its tile has several
  /// iterations of and that move both operands, as heads: they stand around it alone. Of 8-bit
  /// numbers any such loops do; of others one that moves the right operand alone is an image's
  /// rows.
  bool leaves_loops_over(NodeId producer) const {
    const OpId op = k_.node(producer).op;
    const auto product = product_of(w_, op);
    if (!product || product->window) return false;
    const Operator& o = w_.op(op);
    const Access& left = o.inputs[static_cast<std::size_t>(product->left)];
    const bool bytes = multiplies_bytes(w_, op);
    if (bytes && w_.tensor(left.tensor).values) return false;
    const std::vector<std::int64_t> extents = extents_at(producer);
    for (int l = 0; l < static_cast<int>(o.loops.size()); ++l) {
      const LoopId loop = o.loops[static_cast<std::size_t>(l)];
      if (l == product->rows || l == product->columns || l == product->depth) continue;
      if (!bytes && !(indexes(left, loop) &&
                      indexes(o.inputs[static_cast<std::size_t>(product->right)], loop)))
        continue;
      if (extents[static_cast<std::size_t>(l)] > 1) return true;
    }
    return false;
  }
  /// Of a tile of the compute, as long as steps of the loops around it are.
  std::vector<std::int64_t> extents_at(NodeId compute) const {
    const OpId op = k_.node(compute).op;
    std::vector<std::int64_t> extents;
    for (LoopId l : w_.op(op).loops) extents.push_back(w_.loop(l).extent);
    std::vector<NodeId> around = open_;
    add_path(open_.back(), compute, around);
    for (NodeId id : around)
      for (const OpLoop& cut : k_.node(id).cuts)
        if (cut.op == op) {
          std::int64_t& extent = extents[static_cast<std::size_t>(cut.local)];
          extent = std::min(extent, k_.node(id).step);
        }
    return extents;
  }
  /// A window over each channel alone: what follows takes its points as they are stored
  /// (codegen/cpu/emit_planes.cpp).
  bool by_planes(NodeId producer) const {
    constexpr std::int64_t kFewRows = 3;  // as Compute::taps has it
    const OpId op = k_.node(producer).op;
    const std::vector<std::int64_t> extents = extents_at(producer);
    const auto product = product_of(w_, op, extents);
    if (product && product->rows >= 0 &&
        extents[static_cast<std::size_t>(product->rows)] > kFewRows)
      return false;
    return window_plane(w_, op, extents, {.lanes = lanes_}).has_value();
  }
  bool add_path(NodeId from, NodeId to, std::vector<NodeId>& path) const {
    if (from == to) return true;
    for (NodeId c : k_.node(from).children)
      if (add_path(c, to, path)) {
        path.push_back(c);
        return true;
      }
    return false;
  }

  /// A convolution of few steps, or of so few points that they are broadcast, and vectors run along
  /// its rows.
  bool by_points(OpId id) const {
    constexpr double kEdges = 1.6;
    constexpr std::int64_t kFewSteps = 48;
    const auto product = product_of(w_, id);
    if (!product) return false;
    const Operator& op = w_.op(id);
    std::int64_t steps = 1;
    for (LoopId l : w_.reduction_loops(id)) steps *= w_.loop(l).extent;
    const auto& image = op.inputs[static_cast<std::size_t>(product->right)].index;
    if (image.size() > 2 && steps < kFewSteps) return true;
    if (!product->window) return false;
    const auto& shape = w_.tensor(op.outputs[0].target.tensor).shape;
    const std::size_t rank = shape.size();
    const std::int64_t points = rank < 2 ? shape.back() : shape[rank - 1] * shape[rank - 2];
    return static_cast<double>(round_up(points, lanes_)) > kEdges * static_cast<double>(points);
  }

  bool leaves(BufferId id, const std::set<NodeId>& taken) const {
    const Buffer& b = k_.buffer(id);
    if (b.role != BufferRole::intermediate || b.leaves) return true;
    for (std::size_t i = 0; i < k_.nodes.size(); ++i)
      for (const InputUse& use : k_.nodes[i].reads)
        if (use.buffer == id && !taken.contains(NodeId(i))) return true;
    return false;
  }

  const ScheduledKernel& k_;
  const Workload& w_;
  std::int64_t lanes_;
  std::vector<NodeId> open_;
  std::set<NodeId> followers_;
  InRegisters found_;
};

}  // namespace

InRegisters in_registers(const Schedule& s, const ScheduledKernel& k, std::int64_t lanes) {
  return Finder(s, k, lanes).run();
}

}  // namespace tilewright::quickest
