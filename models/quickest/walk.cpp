// A kernel's seconds: a walk over its tree that visits a loop's middle and last iteration and
// multiplies. What of a tile stays in a cache from one iteration to the next is decided by what the
// body touches.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/lowering/window_points.h"
#include "core/plan/shares.h"
#include "core/workload/expr.h"
#include "models/quickest/followers.h"
#include "models/quickest/quickest.h"

namespace tilewright::quickest {
namespace {

/// Bytes by object: tensors where they lie at home, then buffers in their own arrays.
using Objects = std::vector<double>;

double sum(const Objects& o) { return std::accumulate(o.begin(), o.end(), 0.0); }

/// What a subtree does in one run of it, one thread.
struct Work {
  double arithmetic = 0, packing = 0;
  Objects foot;                 ///< bytes that it touches, whole lines
  std::vector<Objects> moved;   ///< by cache: bytes that come in
  std::vector<Objects> copied;  ///< by cache: bytes that loads bring in, beside `moved`
};

/// A load that is repeated only where its tile changes.
struct Pending {
  NodeId load;
  double lines = 0;  ///< that are copied, in one run of the subtree
  double bytes = 0;
  bool changes = false;  ///< its buffer holds another tile at the end of an iteration
};

struct Visit {
  Work part;
  std::vector<Pending> loads;
};

/// Cycles: a step of a window's depth listed.
constexpr double kList = 8;

/// How much of what is needed again stays, where so many bytes are touched between: all below the
/// capacity, nothing well above it. Real caches have no edge either: sets fill unevenly.
double kept(double needed, double capacity) {
  return std::clamp((1.15 * capacity - needed) / (0.4 * capacity), 0.0, 1.0);
}

class Walk {
 public:
  Walk(const Schedule& s, const ScheduledKernel& k, const Rates& r)
      : s_(s),
        k_(k),
        w_(*s.workload),
        r_(r),
        tensors_(w_.tensors().size()),
        registers_(in_registers(s, k, r.lanes)) {
    objects_ = tensors_ + k.buffers.size();
    tile_.assign(k.buffers.size(), 0);
    written_.assign(objects_, false);
    find_joined_loops();
    find_shared_loop();
    whole_.assign(objects_, false);
    sums_.assign(objects_, false);
    for (const ScheduleNode& n : k.nodes)
      if (n.kind == NodeKind::compute)
        for (const OutputUse& use : n.writes) {
          const auto product = product_of(w_, n.op);
          written_[object_of(use.buffer)] = true;
          sums_[object_of(use.buffer)] = product && !product->window;
        }
  }

  KernelTime run() {
    Visit all = visit_body(NodeId(0), whole_ranges(s_, k_));
    for (const Pending& p : all.loads) finish_load(p, all.part);
    return total(all.part);
  }

 private:
  // ---- objects ----------------------------------------------------------------------------------

  bool in_place(BufferId id) const {
    const Buffer& b = k_.buffer(id);
    const Level& level = s_.machine->level(b.level);
    if (b.role == BufferRole::intermediate || b.outer.valid() || b.atomic || b.sliding)
      return false;
    const DType type = w_.tensor(b.tensor).dtype;
    if (type != DType::f32 && type != DType::f64) return false;
    if (level.managed == Managed::software) return false;
    const auto known = packed_.find(id);
    return known == packed_.end() || !known->second;
  }
  std::size_t object_of(BufferId id) const {
    return in_place(id) ? k_.buffer(id).tensor.index() : tensors_ + id.index();
  }
  double line() const { return r_.caches.empty() ? 64 : r_.caches.front().line; }

  /// Bytes of a box where its tensor lies: whole lines of each row.
  double bytes_of_box(TensorId t, const Box& box, bool home) const {
    const Tensor& tensor = w_.tensor(t);
    const double element = static_cast<double>(home ? size_of(tensor.dtype) : r_.element);
    double rows = 1, row = element;
    bool contiguous = true;
    for (int i = box.rank(); i-- > 0;) {
      const auto d = static_cast<std::size_t>(i);
      const double n = static_cast<double>(std::max<std::int64_t>(0, box[i].hi - box[i].lo));
      if (contiguous) {
        row *= n;
        contiguous = !home || n == static_cast<double>(tensor.shape[d]);
      } else {
        rows *= n;
      }
    }
    if (row <= 0 || rows <= 0) return 0;
    return rows * (contiguous || rows == 1 ? row : std::max(row, line()));
  }

  /// Rows that lie a multiple of a cache's sets apart share them: such a tile is packed.
  bool shares_sets(TensorId t, const Box& box, const CacheRate& c, bool whole) const {
    if (c.sets == 0 || box.rank() < 2) return false;
    const Tensor& tensor = w_.tensor(t);
    const std::int64_t element = size_of(tensor.dtype);
    std::int64_t stride = element, rows = 1;
    const auto extent = [&](std::size_t i) {
      return box[static_cast<int>(i)].hi - box[static_cast<int>(i)].lo;
    };
    auto d = static_cast<std::size_t>(box.rank() - 1);
    std::int64_t row = extent(d) * element;
    stride *= tensor.shape[d];
    while (d > 0 && extent(d) == tensor.shape[d]) {
      --d;
      row *= extent(d);
      stride *= tensor.shape[d];
    }
    if (d == 0) return false;
    rows = extent(d - 1);
    const auto line_bytes = static_cast<std::int64_t>(c.line);
    const std::int64_t lines = row / line_bytes + 1;
    const std::int64_t period = c.sets * line_bytes;
    const std::int64_t apart = period / std::gcd(stride, period);  // rows until a set comes again
    const std::int64_t used = std::min(c.sets, std::min(apart, rows) * lines);
    const std::int64_t most = ceil_div(rows * lines, std::max<std::int64_t>(1, used));
    const std::int64_t even = ceil_div(rows * lines, c.sets);
    return most > std::max(c.ways / 2, whole ? even + even / 2 : even);
  }

  // ---- the tree ---------------------------------------------------------------------------------

  Work nothing() const {
    return {.foot = Objects(objects_, 0.0),
            .moved = std::vector<Objects>(r_.caches.size(), Objects(objects_, 0.0)),
            .copied = std::vector<Objects>(r_.caches.size(), Objects(objects_, 0.0))};
  }

  Visit visit_body(NodeId body, Ranges ranges) {
    const ScheduleNode& n = k_.node(body);
    for (const Inference& i : n.infer) infer(s_, k_, i, ranges);
    for (BufferId b : n.fixes) note_tile(b, tile_of(s_, k_, k_.buffer(b), ranges));
    return in_sequence(n.children, ranges);
  }

  void note_tile(BufferId b, const Box& box) {
    tile_[b.index()] = std::max(tile_[b.index()], bytes_of_box(k_.buffer(b).tensor, box, false));
  }

  Visit in_sequence(const std::vector<NodeId>& children, const Ranges& ranges) {
    Visit all{.part = nothing()};
    std::vector<Work> parts;
    for (NodeId c : children) {
      Visit v = visit(c, ranges);
      all.loads.insert(all.loads.end(), v.loads.begin(), v.loads.end());
      parts.push_back(std::move(v.part));
    }
    if (parts.size() == 1) {
      all.part = std::move(parts.front());
      return all;
    }
    Work& sum_of = all.part;
    for (const Work& p : parts) {
      sum_of.arithmetic += p.arithmetic;
      sum_of.packing += p.packing;
      for (std::size_t o = 0; o < objects_; ++o)
        sum_of.foot[o] = std::max(sum_of.foot[o], p.foot[o]);
      for (std::size_t c = 0; c < r_.caches.size(); ++c)
        for (std::size_t o = 0; o < objects_; ++o) sum_of.moved[c][o] += p.moved[c][o];
    }
    const double needed = sum(sum_of.foot);
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      const double stays = kept(needed, r_.caches[c].capacity);
      for (std::size_t o = 0; o < objects_; ++o)
        sum_of.moved[c][o] =
            stays * std::min(sum_of.foot[o], sum_of.moved[c][o]) + (1 - stays) * sum_of.moved[c][o];
    }
    return all;
  }

  Visit visit(NodeId id, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(id);
    switch (n.kind) {
      case NodeKind::loop:
        return visit_loop(id, ranges);
      case NodeKind::sequence:
      case NodeKind::pack:
        return in_sequence(n.children, ranges);
      case NodeKind::load:
        return visit_load(id, ranges);
      case NodeKind::compute:
        return {.part = visit_compute(id, ranges)};
      case NodeKind::store:
        if (k_.buffer(n.buffer).atomic) return {.part = visit_merge(n)};
        break;
      case NodeKind::sync:
      case NodeKind::drop:  // hardware caches keep what they keep
        break;
    }
    return {.part = nothing()};
  }

  /// What adds a tile to what others have added: element by element.
  Work visit_merge(const ScheduleNode& n) const {
    constexpr double kMerge = 10;  // cycles an element
    Work p = nothing();
    const double bytes = tile_[n.buffer.index()];
    p.arithmetic = bytes / static_cast<double>(r_.element) * kMerge * r_.cycle;
    return p;
  }

  static bool same_sizes(const Ranges& a, const Ranges& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (a[i].hi - a[i].lo != b[i].hi - b[i].lo) return false;
    return true;
  }

  Visit visit_loop(NodeId id, const Ranges& ranges) {
    const std::int64_t trips_now = trips(k_, id, ranges);
    if (trips_now <= 0) return {.part = nothing()};
    Ranges middle = ranges, last = ranges;
    cut(k_, id, std::min<std::int64_t>(trips_now > 2 ? 1 : 0, trips_now - 1), ranges, middle);
    cut(k_, id, trips_now - 1, ranges, last);
    const double n = static_cast<double>(trips_now);
    Visit body = visit_body(id, middle);
    if (trips_now == 1) return body;
    if (id == shared_loop_ && !looked_) look_at_shares(id, ranges, trips_now);
    if (joined_.contains(k_.node(id).loop) && trips_now > 3) {
      sample(id, ranges, trips_now, body);
    } else if (!same_sizes(middle, last)) {
      const Visit edge = visit_body(id, last);
      average(body.part, edge.part, n);
    }
    Visit all{.part = repeated(std::move(body.part), n, entry_foot(id, ranges))};
    for (Pending& p : body.loads) {
      // One buffer holds one tile: what a loop further in has replaced is loaded again.
      p.changes = p.changes || depends(p.load, id);
      if (p.changes) p.lines *= n, p.bytes *= n;
      all.loads.push_back(p);
    }
    return all;
  }

  /// Of the loop that threads share: what its iterations all touch, which every thread brings for
  /// itself; and whether one thread has more to do, where its iterations are not alike.
  void look_at_shares(NodeId id, const Ranges& ranges, std::int64_t trips_now) {
    constexpr std::int64_t kSamples = 3, kMostThreads = 16;
    looked_ = true;
    Ranges at = ranges;
    cut(k_, id, 0, ranges, at);
    const Objects one = entry_foot(id, at), all = entry_foot(id, ranges);
    for (std::size_t o = 0; o < objects_; ++o) whole_[o] = one[o] >= all[o];
    const std::int64_t threads = std::min<std::int64_t>({r_.threads, trips_now, kMostThreads});
    if (!joined_.contains(k_.node(id).loop)) return;
    double most = 0, every = 0;
    for (std::int64_t t = 0; t < threads; ++t) {
      double busy = 0;
      for (std::int64_t i = 0; i < kSamples; ++i) {
        const std::int64_t sample = 2 * (kSamples * t + i) + 1;
        cut(k_, id, sample * trips_now / (2 * kSamples * threads), ranges, at);
        const Work part = visit_body(id, at).part;
        busy += part.arithmetic + part.packing;
        for (std::size_t c = 0; c < r_.caches.size(); ++c)
          busy += sum(part.moved[c]) * r_.caches[c].core;
      }
      every += busy / static_cast<double>(threads);
      most = std::max(most, busy);
    }
    if (most > 0) share_ *= every / most;
  }

  /// Iterations of a loop over a joined tensor are not alike: each has the producer of its own
  /// part, which may be a few of many. The mean of some of them instead.
  void sample(NodeId id, const Ranges& ranges, std::int64_t trips_now, Visit& body) {
    constexpr std::int64_t kSamples = 24;
    const std::int64_t count = std::min(kSamples, trips_now);
    for (std::int64_t i = 0; i < count; ++i) {
      Ranges at = ranges;
      cut(k_, id, (2 * i + 1) * trips_now / (2 * count), ranges, at);
      const Visit one = visit_body(id, at);
      if (i == 0)
        body.part = one.part;
      else
        average(body.part, one.part, static_cast<double>(i + 1));
    }
  }

  /// Loops of which some operator reads an input well outside of it, without summing there, as one
  /// that joins several tensors along a dimension does.
  void find_joined_loops() {
    for (const ScheduleNode& n : k_.nodes) {
      if (n.kind != NodeKind::compute) continue;
      const Operator& op = w_.op(n.op);
      std::vector<Interval> whole;
      for (LoopId l : op.loops) whole.push_back({0, w_.loop(l).extent});
      for (const Access& a : op.inputs)
        for (std::size_t d = 0; d < a.index.size(); ++d) {
          const auto extent = w_.tensor(a.tensor).shape[d];
          const Interval reach = footprint(op, a.index[d], whole);
          if (a.index[d].gathered < 0 && std::max(-reach.lo, reach.hi - extent) > extent / 4 + 8)
            for (const Term& t : a.index[d].terms) joined_.insert(t.loop);
        }
    }
  }

  static void average(Work& middle, const Work& last, double n) {
    const auto mean = [n](double& m, double l) { m = (m * (n - 1) + l) / n; };
    mean(middle.arithmetic, last.arithmetic);
    mean(middle.packing, last.packing);
    for (std::size_t c = 0; c < middle.moved.size(); ++c)
      for (std::size_t o = 0; o < middle.foot.size(); ++o)
        mean(middle.moved[c][o], last.moved[c][o]);
  }

  /// `n` runs of a body that together touch `foot`.
  Work repeated(Work body, double n, Objects foot) const {
    for (std::size_t o = 0; o < foot.size(); ++o) foot[o] = std::max(foot[o], body.foot[o]);
    Work all = std::move(body);
    const double one = sum(all.foot), whole = sum(foot);
    double changing = 0;
    for (std::size_t o = 0; o < foot.size(); ++o)
      if (foot[o] > all.foot[o]) changing += all.foot[o];
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      const double capacity = r_.caches[c].capacity;
      // All of it stays, or what one iteration leaves for the next.
      const double stays = std::max(kept(whole, capacity), kept(one + changing, capacity));
      for (std::size_t o = 0; o < foot.size(); ++o)
        all.moved[c][o] =
            stays * std::min(foot[o], n * all.moved[c][o]) + (1 - stays) * n * all.moved[c][o];
    }
    all.arithmetic *= n;
    all.packing *= n;
    all.foot = std::move(foot);
    return all;
  }

  /// What the loop touches in all its iterations: every compute's boxes with the ranges around it.
  Objects entry_foot(NodeId id, const Ranges& ranges) const {
    Objects foot(objects_, 0.0);
    entry_foot(id, ranges, foot);
    return foot;
  }
  void entry_foot(NodeId id, const Ranges& ranges, Objects& foot) const {
    const ScheduleNode& n = k_.node(id);
    for (NodeId c : n.children) entry_foot(c, ranges, foot);
    if (n.kind != NodeKind::compute) return;
    for (const InputUse& use : n.reads) {
      if (!use.buffer.valid()) continue;
      add_foot(use.buffer, read_box(s_, k_, n.op, use, ranges), foot);
    }
    for (const OutputUse& use : n.writes)
      add_foot(use.buffer, write_box(s_, k_, n.op, use.output, ranges), foot);
  }
  void add_foot(BufferId b, const Box& box, Objects& foot) const {
    if (registers_.unstored.contains(b)) return;
    const std::size_t o = object_of(b);
    double bytes = bytes_of_box(k_.buffer(b).tensor, box, o < tensors_);
    if (o >= tensors_ && tile_[b.index()] > 0) bytes = std::min(bytes, tile_[b.index()]);
    foot[o] = std::max(foot[o], bytes);
  }

  /// Whether a load's tile changes from one iteration of the loop to the next.
  bool depends(NodeId load, NodeId loop) const {
    const ScheduleNode& l = k_.node(loop);
    for (const ReadRef& read : k_.node(load).reads_below) {
      const Operator& op = w_.op(read.op);
      const auto cut_here = std::ranges::find(l.cuts, read.op, &OpLoop::op);
      if (cut_here == l.cuts.end()) {
        // Its ranges follow from others' (rule 2): they may change.
        if (w_.local_index(read.op, l.loop) < 0) return true;
        continue;
      }
      const LoopId id = op.loops[static_cast<std::size_t>(cut_here->local)];
      for (const Affine& index : op.inputs[static_cast<std::size_t>(read.input)].index)
        for (const Term& t : index.terms)
          if (t.loop == id) return true;
    }
    return false;
  }

  Visit visit_load(NodeId id, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(id);
    Visit v{.part = nothing()};
    const Box box = load_box(s_, k_, id, ranges);
    decide(id, box, ranges);
    if (in_place(n.buffer)) return v;
    note_tile(n.buffer, box);
    const double bytes = bytes_of_box(n.tensor, box, true);
    v.loads.push_back({.load = id, .lines = bytes / line(), .bytes = bytes});
    v.part.foot[object_of(n.buffer)] = bytes_of_box(n.tensor, box, false);
    return v;
  }

  /// The first tile that is met says whether a buffer is packed, as its largest one would: where
  /// its rows, or those that a micro-kernel walks together, share sets.
  void decide(NodeId load, const Box& box, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(load);
    if (packed_.contains(n.buffer)) return;
    const CacheRate* level = nullptr;
    for (const CacheRate& c : r_.caches)
      if (c.boundary.ends_with("/" + s_.machine->level(k_.buffer(n.buffer).level).name)) level = &c;
    const bool kept = std::ranges::any_of(
        n.reads_below, [&](const ReadRef& read) { return keeps_panels(read, ranges); });
    bool packed = !kept && level != nullptr && shares_sets(n.tensor, box, *level, true);
    for (const ReadRef& read : n.reads_below) {
      if (packed || r_.caches.empty()) break;
      packed = !keeps_panels(read, ranges) &&
               shares_sets(n.tensor, panel(read, ranges), r_.caches.front(), false);
    }
    packed_[n.buffer] = packed;
  }

  /// Whether a micro-kernel keeps panels of a right operand's rows as it reads them: where they lie
  /// far apart (codegen/cpu/emit_product.cpp).
  bool keeps_panels(const ReadRef& read, const Ranges& ranges) const {
    constexpr std::int64_t kApart = 1024, kLeastKept = 16;
    const Operator& op = w_.op(read.op);
    std::vector<std::int64_t> extents;
    for (const Interval& i : ranges_of(s_, k_, ranges, read.op)) extents.push_back(i.hi - i.lo);
    const auto p = product_of(w_, read.op, extents);
    if (!p || p->window || read.input != p->right ||
        extents[static_cast<std::size_t>(p->depth)] < kLeastKept)
      return false;
    const Access& b = op.inputs[static_cast<std::size_t>(p->right)];
    const Tensor& tensor = w_.tensor(b.tensor);
    const auto stride_of = [&](int local) {
      std::int64_t sum = 0, stride = 1;
      for (std::size_t d = b.index.size(); d-- > 0; stride *= tensor.shape[d])
        for (const Term& t : b.index[d].terms)
          if (t.loop == op.loops[static_cast<std::size_t>(local)]) sum += t.coefficient * stride;
      return sum;
    };
    return stride_of(p->columns) == 1 && stride_of(p->depth) * size_of(tensor.dtype) >= kApart;
  }

  /// What a micro-kernel walks of an operand while a block of the output stays in registers.
  Box panel(const ReadRef& read, Ranges ranges) const {
    const Operator& op = w_.op(read.op);
    std::vector<std::int64_t> extents;
    for (const Interval& i : ranges_of(s_, k_, ranges, read.op)) extents.push_back(i.hi - i.lo);
    const auto p = product_of(w_, read.op, extents);
    if (!p || p->window) return Box(0);
    const auto most = [&](int l) {
      return l < 0 ? 1.0 : static_cast<double>(extents[static_cast<std::size_t>(l)]);
    };
    const auto [height, width] = block_of(r_, most(p->rows), most(p->columns));
    const std::size_t base = k_.range_base[read.op.index()];
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const int local = static_cast<int>(l);
      const std::int64_t walked = local == p->rows      ? height
                                  : local == p->columns ? width * r_.lanes
                                  : local == p->depth   ? extents[l]
                                                        : 1;
      Interval& i = ranges[base + l];
      i.hi = std::min(i.hi, i.lo + walked);
    }
    return footprint(w_, op, op.inputs[static_cast<std::size_t>(read.input)],
                     ranges_of(s_, k_, ranges, read.op));
  }

  /// What a load copies, in all its runs: from home, however often, into the tile's own array.
  void finish_load(const Pending& p, Work& all) const {
    const ScheduleNode& n = k_.node(p.load);
    all.packing += p.lines * r_.copy;
    const double tensor = static_cast<double>(w_.tensor(n.tensor).bytes().value);
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      const double stays = kept(tensor * 2, r_.caches[c].capacity);
      all.copied[c][n.tensor.index()] += stays * std::min(p.bytes, tensor) + (1 - stays) * p.bytes;
    }
  }

  // ---- computes ---------------------------------------------------------------------------------

  Work visit_compute(NodeId id, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(id);
    const auto own = ranges_of(s_, k_, ranges, n.op);
    std::vector<std::int64_t> extents;
    double points = 1;
    for (const Interval& i : own) {
      extents.push_back(std::max<std::int64_t>(0, i.hi - i.lo));
      points *= static_cast<double>(extents.back());
    }
    if (points == 0) return nothing();
    Work p = computed(n, ranges, extents, points);
    constexpr double kVisit = 8;  // cycles: addresses and sizes of a tile
    p.arithmetic += kVisit * r_.cycle;
    return p;
  }
  Work computed(const ScheduleNode& n, const Ranges& ranges,
                const std::vector<std::int64_t>& extents, double points) const {
    if (const auto product = product_of(w_, n.op, extents)) {
      if (product->window)
        if (auto few = taps(n, ranges, *product, extents, points)) return std::move(*few);
      return product_part(n, ranges, *product, extents);
    }
    return points_part(n, ranges, extents, points);
  }

  void touch_all(const ScheduleNode& n, const Ranges& ranges, Work& p) const {
    for (const InputUse& use : n.reads) {
      if (use.buffer.valid()) {
        if (!registers_.reads.contains({n.op, use.buffer}))
          add_foot(use.buffer, read_box(s_, k_, n.op, use, ranges), p.foot);
        continue;
      }
      const auto elements = gathered_elements(s_, k_, n.op, use.inputs.front(), ranges);
      p.foot[use.tensor.index()] =
          std::min(static_cast<double>(w_.tensor(use.tensor).bytes().value),
                   static_cast<double>(elements) * line());
    }
    for (const OutputUse& use : n.writes)
      add_foot(use.buffer, write_box(s_, k_, n.op, use.output, ranges), p.foot);
  }

  /// Once through everything.
  void stream(Work& p) const {
    for (auto& moved : p.moved) moved = p.foot;
  }

  /// A product's box as micro-kernels see it.
  struct Box3 {
    double rows = 1, columns = 1, depth = 1;
    double times = 1;  ///< such products, of loops that are left over
    double outer = 1;  ///< of the columns, rows of points that follow one another
  };
  Box3 box_of(const ScheduleNode& n, const Product& x,
              const std::vector<std::int64_t>& extents) const {
    const Operator& op = w_.op(n.op);
    const auto most = [&](int l) {
      return l < 0 ? 1.0 : static_cast<double>(extents[static_cast<std::size_t>(l)]);
    };
    const int outer = rows_of_points(n, x, extents);
    Box3 box{.rows = most(x.rows), .columns = most(x.columns), .outer = most(outer)};
    box.columns *= box.outer;
    for (int l = 0; l < static_cast<int>(extents.size()); ++l) {
      const bool reduced = w_.is_reduction(n.op, op.loops[static_cast<std::size_t>(l)]);
      if (l == x.depth || (x.window && reduced))
        box.depth *= most(l);
      else if (l != x.rows && l != x.columns && l != outer)
        box.times *= most(l);
    }
    return box;
  }

  /// The loop of rows of points that are columns of one product, as they follow one another in the
  /// output, or in a tile of its own; -1: none.
  int rows_of_points(const ScheduleNode& n, const Product& x,
                     const std::vector<std::int64_t>& extents) const {
    const Operator& op = w_.op(n.op);
    const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
    const Access& c = op.outputs.front().target;
    const std::size_t in_b = b.index.size(), in_c = c.index.size();
    if (in_b < 2 || in_c < 2 || x.columns < 0) return -1;
    const auto outer = c.index[in_c - 2].plain_loop();
    if (!outer || !moves(b, *outer)) return -1;
    const int local = w_.local_index(n.op, *outer);
    if (local == x.rows || local == x.columns || local == x.depth) return -1;
    const auto width = extents[static_cast<std::size_t>(x.columns)];
    const bool flat = object_of(n.writes.front().buffer) >= tensors_ ||
                      w_.tensor(c.tensor).shape[in_c - 1] == width;
    // Without a window the input is read where it lies.
    const bool lies = x.window || (b.index[in_b - 1] == c.index[in_c - 1] &&
                                   b.index[in_b - 2] == c.index[in_c - 2] &&
                                   w_.tensor(b.tensor).shape[in_b - 1] == width);
    return flat && lies ? local : -1;
  }

  /// Where points of an image are columns, kernels go by so many channels at a time
  /// (codegen/cpu/emit_lines.cpp), panels of which stay in the first cache.
  double blocks_of_depth(const Box3& box, bool window) const {
    constexpr double kCopyBytes = 192 << 10, kMostSteps = 1024;
    if (window) return std::max(1.0, std::ceil(box.depth / kMostSteps));
    if (box.outer <= 1) return 1;
    const double line =
        (box.columns + static_cast<double>(r_.lanes)) * static_cast<double>(r_.element);
    const double most = std::clamp(std::floor(kCopyBytes / line), 1.0, kMostSteps);
    return std::max(1.0, std::ceil(box.depth / most));
  }

  /// Panels of columns around groups of rows around the depth, as micro-kernels go.
  Work product_part(const ScheduleNode& n, const Ranges& ranges, const Product& x,
                    const std::vector<std::int64_t>& extents) const {
    Work whole = nothing();
    touch_all(n, ranges, whole);
    const Box3 box = box_of(n, x, extents);
    const auto [height, width] = block_of(r_, box.rows, box.columns);
    const double groups = std::ceil(box.rows / static_cast<double>(height));
    const double panels = std::ceil(box.columns / static_cast<double>(width * r_.lanes));
    const std::size_t a = object_of(buffer_read(n, x.left)), b = object_of(buffer_read(n, x.right));
    const std::size_t c = object_of(n.writes.front().buffer);
    const double times = box.times, blocks = blocks_of_depth(box, x.window);
    // Of a window groups of rows find panels that the first of them has packed, a line a step.
    const double of_panel =
        x.window ? box.depth / blocks *
                       static_cast<double>(width * r_.lanes * static_cast<std::int64_t>(r_.element))
                 : whole.foot[b] / times / panels / blocks;
    Work block = nothing();
    block.foot[a] += whole.foot[a] / times / groups / blocks;
    block.foot[b] += of_panel;
    block.foot[c] += whole.foot[c] / times / (groups * panels);
    stream(block);
    Objects panel(objects_, 0.0), part(objects_, 0.0), all(objects_, 0.0);
    panel[a] += whole.foot[a] / times / blocks, panel[b] += of_panel;
    panel[c] += whole.foot[c] / times / panels;
    part[a] += whole.foot[a] / times / blocks, part[b] += of_panel * panels;
    part[c] += whole.foot[c] / times;
    all[a] += whole.foot[a] / times, all[b] += whole.foot[b] / times;
    all[c] += whole.foot[c] / times;
    Work p = groups > 1 ? repeated(std::move(block), groups, panel) : std::move(block);
    if (panels > 1) p = repeated(std::move(p), panels, part);
    if (blocks > 1) p = repeated(std::move(p), blocks, all);
    if (x.window) {  // packed panels stay where they have room: what comes from further is the
                     // source
      p.foot[b] = whole.foot[b] / times;
      for (std::size_t i = 0; i < r_.caches.size(); ++i)
        if (const double stays = kept(of_panel, r_.caches[i].capacity); i > 0)
          p.moved[i][b] = stays * p.foot[b] + (1 - stays) * p.moved[i][b];
    }
    if (times > 1) p = repeated(std::move(p), times, whole.foot);
    p.arithmetic = times * blocks * product_seconds(r_, box.rows, box.columns, box.depth / blocks);
    if (!x.window) p.arithmetic += times * rows_begun(n, x, extents, box);
    // The first group of rows stores panels for the others; of a window its lines begin anywhere.
    const double stored = x.window ? 2 : keeps_panels({n.op, x.right}, ranges) ? 1 : 0;
    if (groups > 1)
      p.arithmetic += times * box.depth * std::ceil(box.columns / static_cast<double>(r_.lanes)) *
                      stored * r_.cycle;
    if (x.window || box.outer > 1) {
      const double by_lines = p.arithmetic + times * copies(n, x, extents, box);
      p.arithmetic = std::min(by_lines, times * by_points(n, x, box));
    }
    return p;
  }

  /// Seconds of rows of the left operand that a loop over the depth cuts: each begins anew in each
  /// of its blocks, before hardware brings it ahead.
  double rows_begun(const ScheduleNode& n, const Product& x,
                    const std::vector<std::int64_t>& extents, const Box3& box) const {
    constexpr double kBegins = 40;  // cycles
    if (r_.caches.size() < 2 || x.depth < 0) return 0;
    const LoopId depth = w_.op(n.op).loops[static_cast<std::size_t>(x.depth)];
    const BufferId left = buffer_read(n, x.left);
    if (extents[static_cast<std::size_t>(x.depth)] == w_.loop(depth).extent || !in_place(left))
      return 0;
    const auto all = static_cast<double>(w_.tensor(k_.buffer(left).tensor).bytes().value);
    return box.rows * kBegins * (1 - kept(2 * all, r_.caches[1].capacity)) * r_.cycle;
  }

  /// Seconds of the copies of lines that a window's taps read, and of listing its steps.
  double copies(const ScheduleNode& n, const Product& x, const std::vector<std::int64_t>& extents,
                const Box3& box) const {
    constexpr double kLine = 2;   // cycles: a vector of a line that others follow
    constexpr double kApart = 5;  // cycles: a vector of one whose elements or ends lie apart
    const Operator& op = w_.op(n.op);
    const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
    const double list = box.depth * kList * r_.cycle;
    if (!x.window) return list;
    const LoopId columns = op.loops[static_cast<std::size_t>(x.columns)];
    double copied = 1, height = box.outer, step = 1;
    for (const Affine& index : b.index) {
      const auto of_columns = std::ranges::find(index.terms, columns, &Term::loop);
      const bool across = of_columns != index.terms.end();
      const bool down = !across && index.terms.size() > 1;
      if (across) step = static_cast<double>(of_columns->coefficient);
      for (const Term& t : index.terms) {
        if (!w_.is_reduction(n.op, t.loop)) continue;
        const int local = w_.local_index(n.op, t.loop);
        const auto extent = static_cast<double>(extents[static_cast<std::size_t>(local)]);
        if (down)
          height += extent - 1;
        else
          copied *= extent;
      }
    }
    const double width = box.columns / box.outer, lanes = static_cast<double>(r_.lanes);
    const bool flat = step == 1 && width == static_cast<double>(w_.tensor(b.tensor).shape.back());
    const double vectors =
        flat ? std::ceil(height * width / lanes) : height * std::ceil(width / lanes);
    return list + copied * vectors * (flat ? kLine : kApart) * r_.cycle;
  }

  /// Seconds of the form that broadcasts points: nothing is copied, padding is left out.
  double by_points(const ScheduleNode& n, const Product& x, const Box3& box) const {
    const Access& b = w_.op(n.op).inputs[static_cast<std::size_t>(x.right)];
    double inside = 1;
    for (std::size_t d = 0; d < b.index.size(); ++d)
      if (b.index[d].terms.size() > 1 && b.index[d].gathered < 0) inside *= inside_share(w_, b, d);
    return r_.cycle * (box.depth * kList +
                       cycles_of_points({.rows = box.rows,
                                         .width = box.columns / box.outer,
                                         .height = box.outer,
                                         .steps = box.depth,
                                         .inside = inside,
                                         .lanes = r_.lanes,
                                         .registers = r_.micro_kernels.front()[1] == 4 ? 32 : 16,
                                         .multiply_add = r_.fma / r_.cycle}));
  }

  BufferId buffer_read(const ScheduleNode& n, int input) const {
    for (const InputUse& use : n.reads)
      if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
    return n.reads.front().buffer;
  }

  /// A convolution of few channels a group, as a depthwise one: vectors of points, tap by tap. None
  /// where there are more: it is a product.
  std::optional<Work> taps(const ScheduleNode& n, const Ranges& ranges, const Product& x,
                           const std::vector<std::int64_t>& extents, double points) const {
    constexpr double kFewRows = 3;
    const Operator& op = w_.op(n.op);
    const Access& left = op.inputs[static_cast<std::size_t>(x.left)];
    const Access& right = op.inputs[static_cast<std::size_t>(x.right)];
    double rows = 1, along = 1;
    bool apart = false;
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const auto extent = static_cast<double>(extents[l]);
      if (w_.is_reduction(n.op, op.loops[l])) continue;
      if (moves(left, op.loops[l]) && !moves(right, op.loops[l])) rows = std::max(rows, extent);
      if (op.outputs.front().target.index.back().plain_loop() != op.loops[l]) continue;
      along = extent;
      for (const Affine& index : right.index)
        for (const Term& t : index.terms)
          apart = apart || (t.loop == op.loops[l] && t.coefficient > 1);
    }
    if (rows > kFewRows) return std::nullopt;
    Work p = nothing();
    touch_all(n, ranges, p);
    stream(p);
    // Cycles: a load that begins anywhere in a line and a multiply-add a tap; elements that lie
    // apart are two loads and put together.
    const double tap = apart ? 3.1 : 1.9;
    p.arithmetic =
        points / along * std::ceil(along / static_cast<double>(r_.lanes)) * tap * r_.cycle;
    return p;
  }

  static bool moves(const Access& a, LoopId loop) {
    return std::ranges::any_of(a.index, [&](const Affine& index) {
      return std::ranges::any_of(index.terms, [&](const Term& t) { return t.loop == loop; });
    });
  }

  /// What a point of an expression costs.
  void count(const Expr& e, double& light, double& expensive, double& library) const {
    for (const Expr& a : e.args) count(a, light, expensive, library);
    if (e.kind != Expr::Kind::call) return;
    static constexpr std::array kLibrary = {"log", "tanh", "erf", "gelu", "pow", "sin", "cos"};
    // Roots and squares have instructions.
    const bool short_power =
        e.function == "pow" && e.args[1].kind == Expr::Kind::constant &&
        (e.args[1].constant == 0.5 || e.args[1].constant == 0.75 || e.args[1].constant == 2);
    if (short_power)
      expensive += 1;
    else if (std::ranges::find(kLibrary, e.function) != kLibrary.end())
      library += 1;
    else if (const ExprFunction* f = find_expr_function(e.function); f != nullptr && f->light == 1)
      light += 1;
    else
      expensive += 1;
  }

  Work points_part(const ScheduleNode& n, const Ranges& ranges,
                   const std::vector<std::int64_t>& extents, double points) const {
    Work p = nothing();
    touch_all(n, ranges, p);
    stream(p);
    const Operator& op = w_.op(n.op);
    double light = 0, expensive = 0, library = 0;
    for (const Output& out : op.outputs) {
      count(out.value, light, expensive, library);
      light += 1;  // combined, or stored
      if (out.rescale) light += 1;
    }
    bool follows = false;
    for (const InputUse& use : n.reads)
      if (use.buffer.valid() && registers_.reads.contains({n.op, use.buffer}))
        follows = true;
      else
        light += 0.5 * static_cast<double>(use.inputs.size());
    if (registers_.unstored.contains(n.writes.front().buffer)) light -= 0.5;
    const double lanes = static_cast<double>(r_.lanes);
    // Vectors run along the last dimension; what it leaves over costs a vector, too.
    double along = 1;
    const Access& target = op.outputs.front().target;
    for (std::size_t l = 0; l < op.loops.size(); ++l)
      if (const bool reduced = w_.is_reduction(n.op, op.loops[l]);
          reduced || (!target.index.empty() && target.index.back().plain_loop() == op.loops[l]))
        along = std::max(along, static_cast<double>(extents[l]));
    const double vectors = points / along * std::ceil(along / lanes);
    p.arithmetic =
        vectors * (light * r_.light + expensive * r_.expensive) + points * library * r_.library;
    if (!follows) p.arithmetic += points / along * r_.call / 2;
    return p;
  }

  // ---- the whole --------------------------------------------------------------------------------

  /// The loop around everything that threads share, and how much of their time it uses.
  void find_shared_loop() {
    if (r_.threads <= 1) return;
    share_ = 1.0 / r_.threads;
    for (NodeId at(0); at.valid();) {
      NodeId next;
      int inside = 0;
      for (NodeId c : k_.node(at).children) {
        if (k_.node(c).kind == NodeKind::load) continue;
        ++inside;
        if (k_.node(c).kind == NodeKind::loop || k_.node(c).kind == NodeKind::sequence) next = c;
      }
      if (inside != 1 || !next.valid()) break;
      at = next;
      const ScheduleNode& l = k_.node(at);
      if (l.kind != NodeKind::loop) continue;
      bool reduces = false;
      for (const OpLoop& c : l.cuts)
        reduces =
            reduces || w_.is_reduction(c.op, w_.op(c.op).loops[static_cast<std::size_t>(c.local)]);
      if (reduces) continue;
      const std::int64_t extent = std::min(w_.loop(l.loop).extent, l.step * l.max_trips);
      const double even = used_of_threads(extent, l.step, r_.threads);
      const bool blocks = l.binding == Binding::grid;  // these are what threads share
      if (blocks || even > share_) share_ = even, shared_loop_ = at;
      if (blocks) return;
    }
  }

  KernelTime total(const Work& p) const {
    // Sums that do not stay in the first cache come and go in bursts, between blocks in registers.
    constexpr double kBurst = 3;  // cycles: a vector loaded and stored
    double bursts = 0;
    for (std::size_t o = 0; o < objects_ && !r_.caches.empty(); ++o)
      if (sums_[o])
        bursts += p.moved[0][o] / static_cast<double>(r_.lanes * r_.element) * kBurst * r_.cycle;
    KernelTime t;
    t.share = share_;
    const double workers = t.share * r_.threads;
    t.arithmetic = (p.arithmetic + bursts) / workers;
    t.packing = p.packing / workers;
    const double busy = t.arithmetic + t.packing;
    double longest = busy, others = 0;
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      double bytes = 0, of_thread = 0, of_all = 0;
      auto& tensors = t.tensors.emplace_back(tensors_);
      for (std::size_t o = 0; o < objects_; ++o) {
        const double in = p.moved[c][o] + p.copied[c][o], out = written_[o] ? in : 0;
        const std::size_t tensor = o < tensors_ ? o : k_.buffers[o - tensors_].tensor.index();
        tensors[tensor].first += in, tensors[tensor].second += out;
        bytes += in + out;
        // What all iterations touch every thread brings into its own cache once, at least.
        const bool shared = r_.caches[c].all > 0;
        const double own = whole_[o] && !shared ? std::min(in, p.foot[o]) : 0;
        const double times = written_[o] ? 2 : 1;
        of_thread += times * std::max(in / workers, own);
        of_all += times * std::max(in, own * r_.threads);
      }
      const double alone = of_thread * r_.caches[c].core;
      const double together = of_all * r_.caches[c].all;
      t.bytes.push_back(bytes);
      t.waiting.push_back(std::max(alone, together));
      if (t.waiting.back() > longest)
        others += longest, longest = t.waiting.back();
      else
        others += t.waiting.back();
    }
    // Hardware brings lines ahead while others are worked on: most of the shorter waits is hidden.
    constexpr double kSeen = 0.25;
    t.seconds = longest + kSeen * others + (r_.threads > 1 ? r_.region : 0);
    return t;
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  const Rates& r_;
  std::size_t tensors_, objects_;
  InRegisters registers_;
  std::vector<double> tile_;   ///< by buffer: bytes of its largest tile so far
  std::vector<bool> written_;  ///< by object
  std::vector<bool> sums_;     ///< by object: of a product that is no convolution
  std::set<LoopId> joined_;    ///< whose iterations are not alike
  std::map<BufferId, bool> packed_;
  NodeId shared_loop_;
  bool looked_ = false;      ///< at that loop
  double share_ = 1;         ///< of its threads' time, that is used
  std::vector<bool> whole_;  ///< by object: every iteration of that loop touches all of it
};

}  // namespace

KernelTime kernel_time(const Schedule& s, const ScheduledKernel& k, const Rates& r) {
  return Walk(s, k, r).run();
}

}  // namespace tilewright::quickest
