#include "core/lowering/gpu/block_work.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/base/format.h"
#include "core/lowering/gpu/block_computes.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

std::int64_t extent(const Interval& i) { return std::max<std::int64_t>(0, i.hi - i.lo); }
std::int64_t volume(const Box& b) {
  std::int64_t n = 1;
  for (int d = 0; d < b.rank(); ++d) n *= extent(b[d]);
  return n;
}
bool same(const Box& a, const Box& b) {
  for (int d = 0; d < a.rank(); ++d)
    if (a[d].lo != b[d].lo || a[d].hi != b[d].hi) return false;
  return true;
}
/// One block's work, by a walk of the tree in which one iteration of every loop stands for all, the
/// first where nothing else is said: tiles have one size as emitted, the last one is computed
/// whole.
class BlockWalk {
 public:
  /// `at`: which iteration, by node.
  BlockWalk(const Schedule& s, const ScheduledKernel& k, std::vector<std::int64_t> at)
      : s_(s), k_(k), w_(*s.workload), at_(std::move(at)), computes_(w_, k, out_.tiles) {}

  Result<BlockWork> run() {
    for (const ScheduleNode& n : k_.nodes)
      if (n.kind == NodeKind::loop && n.binding != Binding::grid && unit_of(n.binding))
        return Reason{formatted("{}: loop {} is bound to {}", k_.name, w_.loop(n.loop).name,
                                name_of(n.binding))};
    out_.tiles.resize(k_.buffers.size());
    for (std::size_t i = 0; i < k_.buffers.size(); ++i) {
      BlockWork::Tile& t = out_.tiles[i];
      const Tensor& tensor = w_.tensor(k_.buffers[i].tensor);
      t.name = tensor.name;
      t.element = size_of(tensor.dtype);
      t.copies = k_.buffers[i].copies;
    }
    out_.phases.emplace_back();
    body(NodeId(0), whole_ranges(s_, k_), 1);
    finish_phase();
    return std::move(out_);
  }
  /// Whether an operator has nothing to do in these iterations: a part of a concatenation that lies
  /// elsewhere.
  bool idle() const { return idle_; }

 private:
  struct Frame {
    NodeId loop;
    double trips;
  };

  void body(NodeId id, Ranges ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    for (const Inference& i : n.infer) infer(s_, k_, i, ranges);
    for (BufferId b : n.fixes) note(b, tile_of(s_, k_, k_.buffer(b), ranges));
    for (NodeId c : n.children) visit(c, ranges, runs);
  }

  void visit(NodeId id, const Ranges& ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    switch (n.kind) {
      case NodeKind::loop:
        return visit_loop(id, ranges, runs);
      case NodeKind::sequence:
      case NodeKind::pack:
        for (NodeId c : n.children) visit(c, ranges, runs);
        return;
      case NodeKind::load:
        return visit_load(id, ranges);
      case NodeKind::compute:
        return visit_compute(id, ranges, runs);
      case NodeKind::store:
        return visit_store(id, runs);
      case NodeKind::sync:
        if (n.scope != Unit::machine) return;
        out_.barriers += static_cast<int>(runs);
        finish_phase();
        out_.phases.emplace_back();
        return;
      case NodeKind::drop:
        return;
    }
  }

  void visit_loop(NodeId id, const Ranges& ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    const std::int64_t count = trips(k_, id, ranges);
    if (count <= 0) return;
    Ranges inner = ranges;
    cut(k_, id, iteration(id, count), ranges, inner);
    const bool grid = n.binding == Binding::grid;
    if (grid) phase().blocks = std::max(phase().blocks, blocks_with(id));
    const double more = grid ? 1 : static_cast<double>(count);
    if (!grid) phase().turns += runs * more;
    path_.push_back({id, static_cast<double>(count)});
    body(id, std::move(inner), runs * more);
    path_.pop_back();
  }

  std::int64_t iteration(NodeId loop, std::int64_t count) const {
    return std::min(at_[loop.index()], count - 1);
  }

  /// Blocks of the loop's nest: with those of the grid loops around it.
  std::int64_t blocks_with(NodeId id) const {
    std::int64_t all = blocks_of(k_, id);
    for (const Frame& f : path_)
      if (k_.node(f.loop).binding == Binding::grid) all *= k_.node(f.loop).max_trips;
    return all;
  }

  /// The ranges at the innermost body of the path where one loop is in another iteration.
  Ranges other(std::size_t changed) const {
    Ranges r = whole_ranges(s_, k_);
    for (const Inference& i : k_.node(NodeId(0)).infer) infer(s_, k_, i, r);
    for (std::size_t d = 0; d < path_.size(); ++d) {
      Ranges inner = r;
      const std::int64_t at = iteration(path_[d].loop, static_cast<std::int64_t>(path_[d].trips));
      cut(k_, path_[d].loop, d != changed ? at : at > 0 ? at - 1 : 1, r, inner);
      for (const Inference& i : k_.node(path_[d].loop).infer) infer(s_, k_, i, inner);
      r = std::move(inner);
    }
    return r;
  }

  /// How often what `box` says changes in one block, by rule 8: each turn of the innermost loop
  /// that changes it and of all around that.
  template <class BoxOf>
  double changes(const BoxOf& box, const Ranges& ranges) const {
    const Box first = box(ranges);
    double runs = 1;
    bool counts = false;
    for (std::size_t d = path_.size(); d-- > 0;) {
      if (k_.node(path_[d].loop).binding == Binding::grid || path_[d].trips <= 1) continue;
      counts = counts || !same(first, box(other(d)));
      if (counts) runs *= path_[d].trips;
    }
    return runs;
  }

  /// How many such boxes there are in one block.
  template <class BoxOf>
  double boxes(const BoxOf& box, const Ranges& ranges) const {
    const Box first = box(ranges);
    double all = 1;
    for (std::size_t d = 0; d < path_.size(); ++d)
      if (k_.node(path_[d].loop).binding != Binding::grid && path_[d].trips > 1 &&
          !same(first, box(other(d))))
        all *= path_[d].trips;
    return all;
  }

  void visit_load(NodeId id, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(id);
    const auto of = [&](const Ranges& r) { return load_box(s_, k_, id, r); };
    const Box box = of(ranges);
    note(n.buffer, box);
    BlockWork::Tile& t = out_.tiles[n.buffer.index()];
    t.ring = true;
    for (const Frame& f : path_)
      t.again = t.again || (f.trips > 1 && k_.node(f.loop).binding != Binding::grid);
    const auto points = static_cast<double>(volume(box));
    double piece = 0;
    for (const std::int64_t bytes : {8, 16})
      if (aligned(n.tensor, box, bytes)) piece = static_cast<double>(bytes);
    const int rows = row_dims(box);
    phase().copies.push_back({.runs = changes(of, ranges),
                              .bytes = points * static_cast<double>(t.element),
                              .piece = std::max(8.0, piece),
                              .elements = w_.tensor(n.tensor).dtype == DType::i8,
                              .shifted = piece == 0 && w_.tensor(n.tensor).dtype != DType::i8,
                              .whole = piece == 16 && rows <= 1 && divides(n.tensor, box),
                              .dims = box.rank(),
                              .row_dims = rows,
                              .sectors = aligned(n.tensor, box, 32),
                              .partial = partial(n.tensor, box),
                              .buffer = n.buffer.index()});
    needs(n.tensor);
  }

  /// Dimensions of more than one element, but for the last.
  static int row_dims(const Box& box) {
    int rows = 0;
    for (int d = 0; d + 1 < box.rank(); ++d) rows += extent(box[d]) > 1 ? 1 : 0;
    return rows;
  }
  /// Whether no such box of the tensor is smaller.
  bool divides(TensorId id, const Box& box) const {
    for (int d = 0; d < box.rank(); ++d)
      if (extent(box[d]) > 0 &&
          w_.tensor(id).shape[static_cast<std::size_t>(d)] % extent(box[d]) != 0)
        return false;
    return true;
  }

  /// Of all such boxes of the tensor, the part that is smaller.
  double partial(TensorId id, const Box& box) const {
    double whole = 1;
    for (int d = 0; d < box.rank(); ++d) {
      const std::int64_t all = w_.tensor(id).shape[static_cast<std::size_t>(d)];
      if (extent(box[d]) > 0 && all % extent(box[d]) != 0)
        whole *= 1 - 1 / static_cast<double>(ceil_div(all, extent(box[d])));
    }
    return 1 - whole;
  }

  /// Whether rows of the box begin at multiples of so many bytes at home.
  bool aligned(TensorId id, const Box& box, std::int64_t bytes) const {
    const Tensor& t = w_.tensor(id);
    std::int64_t stride = size_of(t.dtype);
    for (int d = box.rank(); d-- > 0;) {
      // The last dimension's tiles, and the distance of what other dimensions tell apart.
      const std::int64_t moves = d + 1 == box.rank() ? extent(box[d]) * stride : stride;
      if (extent(box[d]) < t.shape[static_cast<std::size_t>(d)] && moves % bytes != 0) return false;
      if (d + 1 < box.rank() && extent(box[d]) > 1 && stride % bytes != 0) return false;
      stride *= t.shape[static_cast<std::size_t>(d)];
    }
    return true;
  }

  void visit_store(NodeId id, double runs) {
    const ScheduleNode& n = k_.node(id);
    const BlockWork::Tile& t = out_.tiles[n.buffer.index()];
    const double bytes =
        static_cast<double>(t.rows * t.columns * size_of(w_.tensor(n.tensor).dtype));
    (n.atomic ? phase().added : phase().stored) += runs * bytes;
    if (!n.atomic && !rows_aligned(n.tensor)) phase().stored_in_pieces += runs * bytes;
    stores(n.buffer, runs, n.atomic);
    needs(n.tensor);
  }

  void stores(BufferId b, double runs, bool added) {
    const std::vector<std::int64_t>& most = out_.tiles[b.index()].extents;
    int rows = 0;
    for (std::size_t d = 0; d + 1 < most.size(); ++d) rows += most[d] > 1 ? 1 : 0;
    phase().stores.push_back({.runs = runs,
                              .buffer = b,
                              .dims = static_cast<int>(most.size()),
                              .row_dims = rows,
                              .added = added,
                              .aligned = rows_aligned(k_.buffer(b).tensor)});
    if (!added) return;
    StoreRun& s = phase().stores.back();
    const BlockWork::Tile& t = out_.tiles[b.index()];
    const Tensor& home = w_.tensor(k_.buffer(b).tensor);
    const double parts = runs * static_cast<double>(t.rows * t.columns * phase().blocks) /
                         static_cast<double>(home.elements().value);
    s.to_word = std::max(1.0, parts) * std::max(1.0, 4.0 / static_cast<double>(t.element));
    for (const Output& o : w_.op(w_.producer(k_.buffer(b).tensor)).outputs)
      if (o.target.tensor == k_.buffer(b).tensor)
        s.swapped = o.combine != Combine::sum || t.element == 1;
  }

  bool rows_aligned(TensorId id) const {
    const Tensor& t = w_.tensor(id);
    const std::int64_t size = size_of(t.dtype), together = size == 2 ? 8 : 16;
    return t.shape.size() < 2 || t.shape.back() * size % together == 0;
  }

  void needs(TensorId t) {
    if (needed_.insert(t).second)
      phase().compulsory += static_cast<double>(w_.tensor(t).bytes().value);
  }

  void note(BufferId b, const Box& box) {
    BlockWork::Tile& t = out_.tiles[b.index()];
    std::int64_t rows = 1;
    t.extents.resize(static_cast<std::size_t>(box.rank()), 1);
    for (int d = 0; d < box.rank(); ++d) {
      std::int64_t& most = t.extents[static_cast<std::size_t>(d)];
      most = std::max(most, extent(box[d]));
      if (d + 1 < box.rank()) rows *= extent(box[d]);
    }
    t.rows = std::max(t.rows, rows);
    if (box.rank() > 0) t.columns = std::max(t.columns, extent(box[box.rank() - 1]));
  }

  void visit_compute(NodeId id, const Ranges& ranges, double runs) {
    const ScheduleNode& n = k_.node(id);
    const auto own = ranges_of(s_, k_, ranges, n.op);
    std::vector<std::int64_t> extents;
    double points = 1;
    for (const Interval& i : own)
      extents.push_back(extent(i)), points *= static_cast<double>(extents.back());
    if (points == 0) {
      idle_ = true;
      return;
    }
    for (const OutputUse& use : n.writes) {
      const auto of = [&](const Ranges& r) { return write_box(s_, k_, n.op, use.output, r); };
      note(use.buffer, of(ranges));
      out_.tiles[use.buffer.index()].made = true;
      // Written where another takes its place, or at the end, without a store node.
      const Buffer& b = k_.buffer(use.buffer);
      if ((b.role != BufferRole::output && !b.leaves) || b.store.valid()) continue;
      const double bytes =
          static_cast<double>(volume(of(ranges)) * size_of(w_.tensor(b.tensor).dtype));
      const double leaves = changes(of, ranges);
      (b.atomic ? phase().added : phase().stored) += leaves * bytes;
      stores(use.buffer, leaves, b.atomic);
      needs(b.tensor);
      // A sum that left before it was complete comes back.
      if (b.atomic || w_.reduction_loops(n.op).empty()) continue;
      const double comes_back = leaves - boxes(of, ranges);
      phase().returns += comes_back;
      phase().returned += comes_back * bytes;
    }
    for (const InputUse& use : n.reads)
      if (!use.buffer.valid()) {
        const auto each = gathered_elements(s_, k_, n.op, use.inputs.front(), ranges);
        phase().copies.push_back({.runs = 1,
                                  .bytes = runs * static_cast<double>(each) * 32,
                                  .gathered = true,
                                  .buffer = k_.buffers.size() + use.tensor.index()});
      }
    const std::size_t before = phase().products.size();
    for (const OutputUse& use : n.writes)
      if (!product(n, use, extents, runs)) {
        phase().products.resize(before);
        break;
      }
    if (phase().products.size() > before) return;
    phase().points.push_back(computes_.points(n, extents, points, runs));
  }

  bool product(const ScheduleNode& n, const OutputUse& use,
               const std::vector<std::int64_t>& extents, double runs) {
    std::optional<ProductRun> p = computes_.product(n, use, extents, runs);
    if (!p) return false;
    if (!p->contraction)
      for (BufferId t : {p->left, p->right, p->result}) out_.tiles[t.index()].operand = true;
    // Loops of the sum within one result.
    for (const Frame& f : path_)
      for (const OpLoop& c : k_.node(f.loop).cuts)
        if (c.op == n.op && k_.node(f.loop).binding != Binding::grid &&
            w_.is_reduction(n.op, w_.op(n.op).loops[static_cast<std::size_t>(c.local)]))
          p->joins /= f.trips;
    phase().products.push_back(*std::move(p));
    return true;
  }

  BlockPhase& phase() { return out_.phases.back(); }
  void finish_phase() { needed_.clear(); }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  std::vector<std::int64_t> at_;
  BlockWork out_;
  std::vector<Frame> path_;
  std::set<TensorId> needed_;
  BlockComputes computes_;
  bool idle_ = false;
};

/// Multiply-adds and points, to compare a kernel's blocks.
double operations(const BlockWork& work) {
  double all = 0;
  for (const BlockPhase& p : work.phases) {
    for (const ProductRun& x : p.products)
      all += x.runs * 2048 * static_cast<double>(x.rows * x.columns * x.depth);
    for (const PointsRun& x : p.points) all += x.runs * x.points * (1 + x.light + x.expensive);
  }
  return all;
}

/// Whether an operator reads through a window: the first block's is cut off at the tensor's edge.
bool has_windows(const Workload& w, const ScheduledKernel& k) {
  return std::ranges::any_of(k.ops, [&](OpId op) {
    return std::ranges::any_of(w.op(op).inputs, [](const Access& a) {
      return std::ranges::any_of(a.index,
                                 [](const Affine& i) { return i.offset < 0 && !i.terms.empty(); });
    });
  });
}

}  // namespace

Result<BlockWork> block_work(const Schedule& s, const ScheduledKernel& k) {
  std::vector<std::int64_t> at(k.nodes.size(), 0);
  BlockWalk first(s, k, at);
  Result<BlockWork> most = first.run();
  if (!most) return most;
  if (!first.idle() && has_windows(*s.workload, k)) {
    // A block in the middle: tiles are laid out for the largest.
    for (std::size_t n = 0; n < k.nodes.size(); ++n)
      if (k.nodes[n].kind == NodeKind::loop) at[n] = k.nodes[n].max_trips / 2;
    Result<BlockWork> middle = BlockWalk(s, k, at).run();
    if (middle && operations(*middle) > operations(*most)) most = std::move(middle);
  }
  if (!first.idle()) return most;
  // Some blocks do more than the first one: the most that changing one loop after the other finds.
  for (std::size_t n = 0; n < k.nodes.size(); ++n) {
    const ScheduleNode& loop = k.nodes[n];
    if (loop.kind != NodeKind::loop) continue;
    std::vector<std::int64_t> best = at;
    for (const std::int64_t trip : {loop.max_trips / 2, loop.max_trips - 1}) {
      if (trip <= 0) continue;
      at[n] = trip;
      Result<BlockWork> other = BlockWalk(s, k, at).run();
      if (!other || operations(*other) <= operations(*most)) continue;
      most = std::move(other);
      best = at;
    }
    at = std::move(best);
  }
  return most;
}

void count_operations(const Expr& e, double& light, double& expensive) {
  for (const Expr& a : e.args) count_operations(a, light, expensive);
  if (e.kind != Expr::Kind::call) return;
  const ExprFunction* f = find_expr_function(e.function);
  (f != nullptr && f->light == 1 ? light : expensive) += 1;
  // Functions of many instructions: beside the special units', so many that nvcc 13.0 makes of
  // them.
  for (const auto& [name, more] : {std::pair("tanh", 16.0),
                                   {"erf", 22.0},
                                   {"gelu", 26.0},
                                   {"sigmoid", 6.0},
                                   {"log", 20.0},
                                   {"pow", 70.0}})
    if (e.function == name) light += more;
}

}  // namespace tilewright::lowering
