#include "core/lowering/hidden_columns.h"

#include <algorithm>
#include <set>

#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

class Finder {
 public:
  Finder(const Workload& w, const ScheduledKernel& k)
      : w_(w), k_(k), compute_(w.operators().size()) {
    for (std::size_t i = 0; i < k.nodes.size(); ++i) {
      const ScheduleNode& n = k.nodes[i];
      if (n.kind != NodeKind::compute) continue;
      NodeId& at = compute_[n.op.index()];
      if (at.valid() || n.once) twice_.insert(n.op);
      at = NodeId(i);
    }
  }

  std::vector<HiddenColumns> run() const {
    std::vector<HiddenColumns> all;
    if (std::ranges::none_of(k_.ops, [this](OpId id) { return compares(id); })) return all;
    for (const OpId second : k_.ops) {
      if (!is_product(second)) continue;
      for (const OpId first : k_.ops) {
        if (first == second || !is_product(first)) continue;
        if (w_.reduction_loops(second).size() != 1) continue;
        std::optional<HiddenColumns> best;  // of the rows that say most
        for (const LoopId rows : w_.op(second).loops)
          if (auto found = pair(first, second, rows, w_.reduction_loops(second).front());
              found && (!best || found->edges.size() > best->edges.size()))
            best = std::move(found);
        if (best) all.push_back(std::move(*best));
      }
    }
    return all;
  }

 private:
  /// Whether its values depend on how indices compare.
  bool compares(OpId id) const {
    return std::ranges::any_of(w_.op(id).outputs,
                               [](const Output& o) { return compares(o.value); });
  }
  static bool compares(const Expr& e) {
    if (e.kind == Expr::Kind::call && e.function == "lt") {
      bool of_indices = false;
      each_index(e, [&](LoopId) { of_indices = true; });
      if (of_indices) return true;
    }
    return std::ranges::any_of(e.args, [](const Expr& a) { return compares(a); });
  }

  bool is_product(OpId id) const {
    const Operator& op = w_.op(id);
    return op.outputs.size() == 1 && !w_.gathers(id) &&
           factors_of(op.outputs.front()).has_value() &&
           std::ranges::all_of(op.inputs, [&](const Access& a) { return floats(a.tensor); });
  }

  bool floats(TensorId t) const {
    return w_.tensor(t).dtype == DType::f32 || w_.tensor(t).dtype == DType::f64;
  }

  /// Whether an element of the tensor is told by rows and columns, each alone in its dimension.
  static bool has_both(const Access& a, LoopId rows, LoopId columns) {
    const auto alone = [&](LoopId loop) {
      return std::ranges::count_if(a.index, [&](const Affine& i) { return indexes(i, loop); }) ==
                 1 &&
             std::ranges::any_of(a.index, [&](const Affine& i) { return i.plain_loop() == loop; });
    };
    return alone(rows) && alone(columns);
  }

  std::optional<HiddenColumns> pair(OpId first, OpId second, LoopId rows, LoopId columns) const {
    const Operator& f = w_.op(first);
    if (w_.is_reduction(second, rows) || w_.local_index(first, columns) < 0 ||
        w_.is_reduction(first, columns) || !has_both(f.outputs.front().target, rows, columns))
      return std::nullopt;
    // Everything that reads the elements, down to the second product.
    std::set<TensorId> elements{f.outputs.front().target.tensor};
    std::vector<OpId> between;
    bool reaches = false;
    for (const OpId id : k_.ops) {
      if (id == first) continue;
      const Operator& op = w_.op(id);
      bool reads = false;
      for (const Access& a : op.inputs) {
        if (!elements.contains(a.tensor)) continue;
        if (!has_both(a, rows, columns)) return std::nullopt;
        reads = true;
      }
      if (!reads) continue;
      if (id == second) {
        reaches = true;
        continue;
      }
      if (reaches || w_.gathers(id)) return std::nullopt;
      between.push_back(id);
      const auto reductions = w_.reduction_loops(id);
      for (const Output& o : op.outputs) {
        if (reductions.empty() && has_both(o.target, rows, columns))
          elements.insert(o.target.tensor);
        else if (reductions.size() != 1 || reductions.front() != columns)
          return std::nullopt;
      }
    }
    if (!reaches || between.empty()) return std::nullopt;

    HiddenColumns h{
        .body = NodeId(), .rows = rows, .columns = columns, .edges = {}, .computes = {}};
    std::vector<OpId> ops{first};
    ops.insert(ops.end(), between.begin(), between.end());
    ops.push_back(second);
    for (const OpId id : ops) {
      if (twice_.contains(id)) return std::nullopt;
      h.computes.push_back(compute_[id.index()]);
    }
    if (!stay(elements, ops)) return std::nullopt;
    h.body = around(h.computes);
    h.edges = mask_edges(w_, {first, second, between, rows, columns, depth_of(first), DType::f32});
    if (h.edges.empty() || !std::ranges::all_of(h.edges, [](const MaskEdge& e) {
          return e.by_column == 1 || e.by_column == -1;
        }))
      return std::nullopt;
    return h;
  }

  std::int64_t depth_of(OpId id) const {
    std::int64_t depth = 1;
    for (const LoopId l : w_.reduction_loops(id)) depth *= w_.loop(l).extent;
    return depth;
  }

  /// Whether the elements are nobody else's.
  bool stay(const std::set<TensorId>& elements, const std::vector<OpId>& ops) const {
    for (const Buffer& b : k_.buffers)
      if (elements.contains(b.tensor) &&
          (b.role != BufferRole::intermediate || b.leaves || b.atomic || b.sliding))
        return false;
    for (const TensorId t : elements) {
      if (!floats(t)) return false;
      for (const OpId reader : w_.consumers(t))
        if (std::ranges::find(ops, reader) == ops.end()) return false;
    }
    return true;
  }

  NodeId around(const std::vector<NodeId>& computes) const {
    const auto holds = [&](NodeId body, NodeId at) {
      for (; at.valid(); at = k_.node(at).parent)
        if (at == body) return true;
      return false;
    };
    for (NodeId at = k_.node(computes.front()).parent; at.valid(); at = k_.node(at).parent)
      if ((k_.node(at).kind == NodeKind::loop || at == NodeId(0)) &&
          std::ranges::all_of(computes, [&](NodeId c) { return holds(at, c); }))
        return at;
    return NodeId(0);
  }

  const Workload& w_;
  const ScheduledKernel& k_;
  std::vector<NodeId> compute_;  ///< by OpId
  std::set<OpId> twice_;
};

std::int64_t rounded_down(std::int64_t x, std::int64_t lanes) { return x / lanes * lanes; }

}  // namespace

std::vector<HiddenColumns> hidden_columns(const Workload& w, const ScheduledKernel& k) {
  return Finder(w, k).run();
}

bool begins_visible(const HiddenColumns& h, NodeId compute, bool has_all_columns) {
  return has_all_columns && compute != h.computes.front();
}

Interval visible_columns(const HiddenColumns& h, Interval rows, std::int64_t all,
                         std::int64_t lanes) {
  const MaskColumns needed = columns_needed(h.edges, rows.lo, rows.hi - 1, all);
  const std::int64_t from = std::clamp<std::int64_t>(needed.from, 0, all);
  const std::int64_t to = std::clamp<std::int64_t>(needed.to, from, all);
  return {rounded_down(from, lanes), std::min(all, rounded_down(to + lanes - 1, lanes))};
}

}  // namespace tilewright::lowering
