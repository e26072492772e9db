#include "core/lowering/inside_tiles.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/lowering/register_blocks.h"
#include "core/plan/stream.h"
#include "core/workload/access.h"

namespace tilewright {
namespace {

using Sizes = std::vector<std::int64_t>;  ///< by position in op.loops

/// One compute: how large its operands' boxes are, and how its tile is cut.
class InsideTile {
 public:
  InsideTile(const Schedule& s, OpId id, const Level& cache)
      : s_(s), w_(*s.workload), id_(id), op_(w_.op(id)), cache_(cache) {}

  /// Bytes of the boxes that it touches while its loops have these sizes.
  std::int64_t bytes(const Sizes& sizes) const {
    std::int64_t sum = 0;
    each_access([&](const Access& a) { sum += elements(a, sizes) * element(a); });
    return sum;
  }

  /// Sizes of its steps, where the largest tile has these; equal ones where a loop is not cut.
  Sizes steps(const Sizes& full) {
    full_ = full;
    step_.assign(full.size(), 1);
    const int along = vector_loop();
    if (along >= 0 && is_product(along))
      cut_product(along);
    else
      cut_points(along);
    return step_;
  }
  /// Its loops, outermost first, after steps().
  const std::vector<int>& order() const { return order_; }

 private:
  template <class F>
  void each_access(F&& f) const {
    for (const Access& a : op_.inputs) f(a);
    for (const Output& o : op_.outputs) f(o.target);
  }
  std::int64_t element(const Access& a) const { return size_of(w_.tensor(a.tensor).dtype); }
  bool is_reduction(int l) const {
    return w_.is_reduction(id_, op_.loops[static_cast<std::size_t>(l)]);
  }
  bool indexed_by(const Access& a, int l) const {
    return std::ranges::any_of(a.index, [&](const Affine& index) {
      return indexes(index, op_.loops[static_cast<std::size_t>(l)]);
    });
  }
  /// Elements of a dimension.
  std::int64_t extent(const Access& a, std::size_t d, const Sizes& sizes) const {
    std::int64_t size = 1;
    for (const Term& t : a.index[d].terms)
      size += std::abs(t.coefficient) *
              (sizes[static_cast<std::size_t>(w_.local_index(id_, t.loop))] - 1);
    return std::min(size, w_.tensor(a.tensor).shape[d]);
  }
  std::int64_t elements(const Access& a, const Sizes& sizes) const {
    std::int64_t all = 1;
    if (is_gather(a)) {
      for (const int l : gather_loops(op_, a)) all *= sizes[static_cast<std::size_t>(l)];
      return std::min(all, w_.tensor(a.tensor).elements().value);
    }
    for (std::size_t d = 0; d < a.index.size(); ++d) all *= extent(a, d, sizes);
    return all;
  }
  /// Lines: as many as whole lines take where all rows begin and end with one, else as where they
  /// begin anywhere.
  std::int64_t lines(const Access& a, const Sizes& sizes) const {
    if (is_gather(a)) return elements(a, sizes);
    std::int64_t rows = 1, row = element(a);
    bool whole = true;  // so far, from the last dimension on
    for (std::size_t d = a.index.size(); d-- > 0;) {
      const std::int64_t size = extent(a, d, sizes);
      (whole ? row : rows) *= size;
      whole = whole && size == w_.tensor(a.tensor).shape[d];
    }
    const std::int64_t line = cache_.line.value;
    const std::int64_t pitch = a.index.empty() ? 0 : w_.tensor(a.tensor).shape.back() * element(a);
    if (row % line == 0 && pitch % line == 0) return rows * (row / line);
    return rows * ((row + line - 2) / line + 1);
  }
  bool fits(const Sizes& sizes) const {
    std::int64_t sum = 0;
    each_access([&](const Access& a) { sum += lines(a, sizes); });
    return sum <= cache_.capacity.value / cache_.line.value;
  }

  /// The loop along the last dimension of its output that is longer than one; -1: none is.
  int vector_loop() const {
    const Access& target = op_.outputs.front().target;
    for (auto index = target.index.rbegin(); index != target.index.rend(); ++index)
      for (auto t = index->terms.rbegin(); t != index->terms.rend(); ++t)
        if (const int l = w_.local_index(id_, t->loop); full(l) > 1) return l;
    return -1;
  }
  /// A product of matrices, of which one has rows alone.
  bool is_product(int along) const {
    return w_.is_contraction(id_) &&
           std::ranges::any_of(op_.inputs, [&](const Access& a) { return !indexed_by(a, along); });
  }

  std::int64_t full(int l) const { return full_[static_cast<std::size_t>(l)]; }
  std::int64_t& step(int l) { return step_[static_cast<std::size_t>(l)]; }

  /// The largest step for which `holds`, no smaller than it is, as even as steps can be. Whether
  /// that is the whole loop.
  template <class F>
  bool grow(int l, F&& holds) {
    std::int64_t least = step(l), most = full(l);
    while (least < most) {
      const std::int64_t middle = least + (most - least + 1) / 2;
      Sizes tried = step_;
      tried[static_cast<std::size_t>(l)] = middle;
      if (holds(tried))
        least = middle;
      else
        most = middle - 1;
    }
    step(l) = ceil_div(full(l), ceil_div(full(l), least));
    return step(l) == full(l);
  }
  /// The same of these loops, the last one first, up to one that stays cut.
  template <class F>
  bool grow_all(const std::vector<int>& loops, F&& holds) {
    return std::all_of(loops.rbegin(), loops.rend(), [&](int l) { return grow(l, holds); });
  }
  /// Begins with so many points of these loops, the last one first.
  void begin(const std::vector<int>& loops, std::int64_t points) {
    for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
      step(*l) = std::clamp<std::int64_t>(points, 1, full(*l));
      points = ceil_div(points, step(*l));
    }
  }
  /// Smaller steps of these, the first one first, until they fit.
  void shrink(const std::vector<int>& loops) {
    for (const int l : loops)
      while (step(l) > 1 && !fits(step_)) step(l) = ceil_div(step(l), 2);
  }

  void cut_product(int along) {
    std::vector<int> outer, columns, depth, rows;
    const auto right = [&](const Access& a) { return indexed_by(a, along); };
    for (int l = 0; l < static_cast<int>(full_.size()); ++l) {
      if (l == along) continue;
      std::size_t of_right = 0, of_left = 0;
      for (const Access& a : op_.inputs) (right(a) ? of_right : of_left) += indexed_by(a, l);
      (is_reduction(l)                 ? depth
       : of_right != 0 && of_left != 0 ? outer
       : of_right != 0                 ? columns
                                       : rows)
          .push_back(l);
    }
    columns.push_back(along);
    std::int64_t vector = 32, registers = 16;
    for (const ComputeUnit& unit : s_.machine->units)
      if (unit.vector_width.value > 0) {
        vector = unit.vector_width.value;
        registers = unit.registers > 0 ? unit.registers : registers;
        break;
      }
    const RegisterBlock block = register_blocks(registers).front();
    begin(columns,
          std::max<std::int64_t>(block.vectors * vector / element(op_.outputs.front().target), 1));
    grow_all(depth, [&](const Sizes& sizes) {
      std::int64_t panel = 0;
      for (const Access& a : op_.inputs)
        if (right(a)) panel += lines(a, sizes);
      return panel <= cache_.capacity.value / cache_.line.value / 2;
    });
    begin(rows, block.rows);
    for (const auto* loops : {&rows, &depth, &columns}) shrink(*loops);
    order_ = outer;
    for (const auto* loops : {&columns, &depth, &rows})
      order_.insert(order_.end(), loops->begin(), loops->end());
    grow_as_ordered();
  }

  void cut_points(int along) {
    for (int l = 0; l < static_cast<int>(full_.size()); ++l)
      if (l != along && !is_reduction(l)) order_.push_back(l);
    if (along >= 0) {
      order_.push_back(along);
      begin({along},
            std::max<std::int64_t>(cache_.line.value / element(op_.outputs.front().target), 1));
    }
    for (int l = 0; l < static_cast<int>(full_.size()); ++l)
      if (is_reduction(l)) order_.push_back(l);
    shrink(order_);
    grow_as_ordered();
  }

  void grow_as_ordered() {
    grow_all(order_, [&](const Sizes& sizes) { return fits(sizes); });
  }

  const Schedule& s_;
  const Workload& w_;
  OpId id_;
  const Operator& op_;
  const Level& cache_;
  Sizes full_ = {}, step_ = {};
  std::vector<int> order_ = {};
};

const Level* innermost_cache(const Machine& m) {
  for (std::size_t l = m.levels.size(); l-- > 1;)
    if (m.levels[l].managed == Managed::hardware && m.levels[l].line.value > 0) return &m.levels[l];
  return nullptr;
}

/// Whether caches alone have what the compute touches, each in its place.
bool in_caches(const Schedule& s, const ScheduledKernel& k, const ScheduleNode& n) {
  const auto by_hardware = [&](BufferId b) {
    return !b.valid() || s.machine->level(k.buffer(b).level).managed == Managed::hardware;
  };
  return !n.once && std::ranges::all_of(n.reads, by_hardware, &InputUse::buffer) &&
         std::ranges::all_of(n.writes, [&](const OutputUse& use) {
           const Buffer& b = k.buffer(use.buffer);
           const bool unread = b.role == BufferRole::intermediate && !b.leaves;
           return by_hardware(use.buffer) && (b.fixed_at.valid() || !unread);
         });
}

/// What its loops are cut to at most by those around it. What consumers ask for has any size.
Sizes most_sizes(const Workload& w, const ScheduledKernel& k, const ScheduleNode& n) {
  const Operator& op = w.op(n.op);
  Sizes sizes;
  for (const LoopId l : op.loops) sizes.push_back(w.loop(l).extent);
  for (NodeId at = n.parent; at.valid(); at = k.node(at).parent) {
    const ScheduleNode& around = k.node(at);
    if (std::ranges::find(around.infer, n.op, &Inference::producer) != around.infer.end()) break;
    for (const OpLoop& c : around.cuts)
      if (c.op == n.op) {
        std::int64_t& size = sizes[static_cast<std::size_t>(c.local)];
        size = std::min(size, around.step);
      }
  }
  return sizes;
}

/// By node: the largest sizes of a compute's loops.
std::map<NodeId, Sizes> largest_sizes(const Schedule& s, int kernel) {
  const ScheduledKernel& k = s.kernels[static_cast<std::size_t>(kernel)];
  std::map<NodeId, Sizes> all;
  walk_representatives(s, kernel, [&](const AccessEvent& e) {
    if (e.kind != AccessKind::compute) return;
    const auto ranges = ranges_of(s, k, *e.ranges, e.op);
    Sizes& most = all[e.node];
    most.resize(ranges.size(), 1);
    for (std::size_t l = 0; l < ranges.size(); ++l) most[l] = std::max(most[l], ranges[l].size());
  });
  return all;
}

/// Puts loops around a compute, where they are shorter than the tile.
void put_loops(const Workload& w, ScheduledKernel& k, NodeId id, const std::vector<int>& order,
               const Sizes& full, const Sizes& steps) {
  const ScheduleNode compute = k.node(id);
  NodeId at = id;
  for (const int local : order) {
    const auto l = static_cast<std::size_t>(local);
    if (steps[l] >= full[l]) continue;
    const LoopId loop = w.op(compute.op).loops[l];
    ScheduleNode node{.kind = NodeKind::loop};
    node.loop = loop;
    node.step = steps[l];
    node.max_trips = ceil_div(w.loop(loop).extent, steps[l]);
    node.cuts = {{compute.op, local}};
    const NodeId inner(k.nodes.size());
    node.children = {inner};
    node.parent = k.node(at).parent;
    node.first_block = k.node(at).first_block;
    k.nodes[at.index()] = node;
    k.nodes.push_back(compute);
    k.nodes.back().parent = at;
    k.nodes.back().first_block = 0;
    at = inner;
  }
}

}  // namespace

std::optional<Schedule> with_loops_inside(const Schedule& s) {
  const Level* cache = innermost_cache(*s.machine);
  if (cache == nullptr) return std::nullopt;
  const Workload& w = *s.workload;
  std::optional<Schedule> out;
  for (std::size_t i = 0; i < s.kernels.size(); ++i) {
    const ScheduledKernel& k = s.kernels[i];
    std::optional<std::map<NodeId, Sizes>> sizes;
    for (std::size_t n = 0; n < k.nodes.size(); ++n) {
      const ScheduleNode& node = k.nodes[n];
      if (node.kind != NodeKind::compute || !in_caches(s, k, node)) continue;
      InsideTile inside(s, node.op, *cache);
      if (inside.bytes(most_sizes(w, k, node)) <= cache->capacity.value) continue;
      if (!sizes) sizes = largest_sizes(s, static_cast<int>(i));
      const auto full = sizes->find(NodeId(n));
      if (full == sizes->end() || inside.bytes(full->second) <= cache->capacity.value) continue;
      const Sizes steps = inside.steps(full->second);
      if (!out) out = s;
      put_loops(w, out->kernels[i], NodeId(n), inside.order(), full->second, steps);
    }
  }
  return out;
}

}  // namespace tilewright
