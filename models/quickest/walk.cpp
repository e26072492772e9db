// A kernel's seconds: a walk over its tree that visits a loop's middle and last iteration and
// multiplies. What of a tile stays in a cache from one iteration to the next is decided by what the
// body touches.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/lowering/byte_products.h"
#include "core/lowering/hidden_columns.h"
#include "core/lowering/past_caches.h"
#include "core/plan/shares.h"
#include "models/quickest/computes.h"
#include "models/quickest/quickest.h"
#include "models/quickest/work.h"

namespace tilewright::quickest {
namespace {

/// A load that is repeated only where its tile changes.
struct Pending {
  NodeId load;
  double lines = 0;              ///< that are copied, in one run of the subtree
  double vectors = 0, rows = 0;  ///< what is converted; of lines, or of vectors
  double bytes = 0;
  bool changes = false;  ///< its buffer holds another tile at the end of an iteration
  /// The product that it is turned for: once for all iterations of a loop that does not move it and
  /// around which it is one matrix (codegen/cpu/emit_operand.cpp).
  const ReadRef* turned_for = nullptr;
};

struct Visit {
  Work part;
  std::vector<Pending> loads;
};

class Walk {
 public:
  Walk(const Schedule& s, const ScheduledKernel& k, const Rates& r)
      : s_(s),
        k_(k),
        w_(*s.workload),
        r_(r),
        places_(s, k, r),
        used_(used_by(w_, k)),
        tensors_(used_.size()),
        registers_(in_registers(s, k, r.lanes)),
        joined_(joined_loops(s, k)),
        hidden_(lowering::hidden_columns(w_, k)),
        visible_(hidden_.size()) {
    objects_ = tensors_ + k.buffers.size();
    tile_.assign(k.buffers.size(), 0);
    written_.assign(objects_, false);
    past_.assign(objects_, false);
    find_shared_loop();
    whole_.assign(objects_, false);
    sums_.assign(objects_, false);
    panels_.assign(objects_, false);
    packed_once_.assign(objects_, false);
    std::vector<bool> others(objects_, false), apart(objects_, false);
    for (const ScheduleNode& n : k.nodes) {
      if (n.kind != NodeKind::compute) continue;
      const auto product = product_of(w_, n.op);
      const bool plain = product && !product->window;
      // Loads of tiles wait for the second cache.
      const bool tiles = r_.tiles && multiplies_bytes(w_, n.op);
      for (const OutputUse& use : n.writes) {
        written_[object_of(use.buffer)] = true;
        past_[object_of(use.buffer)] = stored_past_caches(s, k, use.buffer);
        sums_[object_of(use.buffer)] = plain;
      }
      for (const InputUse& use : n.reads) {
        if (!use.buffer.valid()) continue;
        const std::size_t o = object_of(use.buffer);
        (plain && !tiles ? panels_ : others)[o] = true;
        for (int input : use.inputs)
          (places_.packed_once({n.op, input}) ? packed_once_ : apart)[o] = true;
      }
    }
    for (std::size_t o = 0; o < objects_; ++o) {
      panels_[o] = panels_[o] && !others[o] && !written_[o];
      packed_once_[o] = packed_once_[o] && !apart[o];
    }
  }

  KernelTime run() {
    Visit all = visit_body(NodeId(0), whole_ranges(s_, k_));
    for (const Pending& p : all.loads) finish_load(p, all.part);
    for (const auto& [buffer, row] : stored_rows_) {
      const TensorId t = k_.buffer(buffer).tensor;
      all.part.packing += places_.seconds_of_stores(t, row);
      for (Objects& copied : all.part.copied)
        copied[of_tensor(t)] += static_cast<double>(w_.tensor(t).bytes().value);
    }
    return total(all.part);
  }

 private:
  // ---- objects ----------------------------------------------------------------------------------

  /// Tensors that the kernel touches, ascending. A network has far more.
  static std::vector<TensorId> used_by(const Workload& w, const ScheduledKernel& k) {
    std::set<TensorId> used;
    for (const Buffer& b : k.buffers) used.insert(b.tensor);
    for (const OpId op : k.ops) {
      for (const Access& a : w.op(op).inputs) used.insert(a.tensor);
      for (const Output& o : w.op(op).outputs) used.insert(o.target.tensor);
    }
    return {used.begin(), used.end()};
  }

  /// Where it lies at home.
  std::size_t of_tensor(TensorId t) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(used_, t) - used_.begin());
  }

  std::size_t object_of(BufferId id) const {
    return places_.in_place(id) ? of_tensor(k_.buffer(id).tensor) : tensors_ + id.index();
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
    for (std::size_t i = 0; i < hidden_.size(); ++i) {
      const lowering::HiddenColumns& h = hidden_[i];
      if (h.body != body) continue;
      const OpId first = k_.node(h.computes.front()).op;
      const auto rows = static_cast<std::size_t>(w_.local_index(first, h.rows));
      visible_[i] = visible_columns(h, ranges_of(s_, k_, ranges, first)[rows],
                                    w_.loop(h.columns).extent, r_.lanes);
    }
    return in_sequence(n.children, ranges);
  }

  void note_tile(BufferId b, const Box& box) {
    tile_[b.index()] =
        std::max(tile_[b.index()], places_.bytes_of_box(k_.buffer(b).tensor, box, false));
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
      sum_of.arithmetic += p.arithmetic, sum_of.packing += p.packing, sum_of.begun += p.begun;
      for (std::size_t o = 0; o < objects_; ++o)
        sum_of.foot[o] = std::max(sum_of.foot[o], p.foot[o]);
      for (std::size_t c = 0; c < r_.caches.size(); ++c)
        for (std::size_t o = 0; o < objects_; ++o) sum_of.moved[c][o] += p.moved[c][o];
    }
    for (std::size_t o = 0; o < objects_; ++o) keep_between(parts, o, sum_of);
    return all;
  }

  /// What a part of a sequence touches of an object stays for the next part that does, where the
  /// cache has room for all that is touched from the one to the other.
  void keep_between(const std::vector<Work>& parts, std::size_t o, Work& all) const {
    Objects between(objects_, 0.0);
    double seen = 0;
    bool touched = false;
    for (const Work& p : parts) {
      if (!touched && p.foot[o] <= 0) continue;
      for (std::size_t other = 0; other < objects_; ++other)
        between[other] = std::max(between[other], p.foot[other]);
      if (p.foot[o] <= 0) continue;
      const double needed = sum(between);
      for (std::size_t c = 0; c < r_.caches.size(); ++c)
        all.moved[c][o] -= kept(needed, r_.caches[c].capacity) * std::min(seen, p.moved[c][o]);
      seen = std::max(seen, p.foot[o]);
      between = p.foot;
      touched = true;
    }
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
    if (joined_.contains(k_.node(id).loop)) {
      sample(id, ranges, trips_now, 24, body);
    } else if (std::ranges::find(hidden_, k_.node(id).loop, &lowering::HiddenColumns::rows) !=
               hidden_.end()) {
      sample(id, ranges, trips_now, 4, body);  // what is hidden grows evenly
    } else if (!same_sizes(middle, last)) {
      const Visit edge = visit_body(id, last);
      average(body.part, edge.part, n);
    }
    Visit all{.part = repeated(std::move(body.part), n, entry_foot(id, ranges))};
    for (Pending& p : body.loads) {
      // One buffer holds one tile: what a loop further in has replaced is loaded again.
      // In what threads share, each iteration has buffers of its own.
      const bool moves = id == shared_loop_ || depends(p.load, id);
      // Several matrices are turned each time that they are multiplied.
      p.changes = moves || (p.turned_for != nullptr ? !places_.is_one_matrix(*p.turned_for, ranges)
                                                    : p.changes);
      if (p.changes) p.lines *= n, p.vectors *= n, p.rows *= n, p.bytes *= n;
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
  void sample(NodeId id, const Ranges& ranges, std::int64_t trips_now, std::int64_t samples,
              Visit& body) {
    const std::int64_t count = std::min(samples, trips_now);
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

  /// `n` runs of a body that together touch `foot`.
  Work repeated(Work body, double n, Objects foot) const {
    for (std::size_t o = 0; o < foot.size(); ++o) foot[o] = std::max(foot[o], body.foot[o]);
    Work all = std::move(body);
    const double one = sum(all.foot), whole = sum(foot);
    double changing = 0;
    for (std::size_t o = 0; o < foot.size(); ++o)
      if (foot[o] > all.foot[o] && n > 1)
        changing += std::min(all.foot[o], (foot[o] - all.foot[o]) / (n - 1));
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      const double capacity = r_.caches[c].capacity;
      // All of it stays, or what one iteration leaves for the next.
      const double stays = std::max(kept(whole, capacity), kept(one + changing, capacity));
      for (std::size_t o = 0; o < foot.size(); ++o)
        all.moved[c][o] =
            stays * std::min(foot[o], n * all.moved[c][o]) + (1 - stays) * n * all.moved[c][o];
    }
    all.arithmetic *= n, all.packing *= n, all.begun *= n;
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
    const TensorId t = k_.buffer(b).tensor;
    double bytes = packed_once_[o] ? static_cast<double>(box.size() * size_of(w_.tensor(t).dtype))
                                   : places_.bytes_of_box(t, box, o < tensors_);
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
    places_.decide(id, box, ranges);
    if (places_.in_place(n.buffer)) {
      const auto turned =
          std::ranges::find_if(n.reads_below, [&](const ReadRef& r) { return places_.turns(r); });
      if (turned != n.reads_below.end())
        v.loads.push_back({.load = id,
                           .lines = r_.turn / r_.copy * places_.bytes_of_box(n.tensor, box, true) /
                                    places_.line(),
                           .turned_for = &*turned});
      return v;
    }
    note_tile(n.buffer, box);
    const double bytes = places_.bytes_of_box(n.tensor, box, true);
    Pending load{.load = id,
                 .lines = bytes / places_.line(),
                 .rows = places_.rows_of_box(n.tensor, box),
                 .bytes = bytes};
    if (places_.converted(n.tensor)) {
      const ConvertedRows rows = places_.converted_rows(box);
      load.lines = 0, load.rows = rows.rows, load.vectors = rows.vectors;
    }
    v.loads.push_back(load);
    v.part.foot[object_of(n.buffer)] = places_.bytes_of_box(n.tensor, box, false);
    return v;
  }

  /// What a load copies, in all its runs: from home, however often, into the tile's own array.
  void finish_load(const Pending& p, Work& all) const {
    const ScheduleNode& n = k_.node(p.load);
    const double widen = w_.tensor(n.tensor).dtype == DType::f16 ? r_.widen_f16 : r_.widen_bf16;
    all.packing += p.lines * r_.copy + p.vectors * widen + p.rows * r_.copy_row;
    const double tensor = static_cast<double>(w_.tensor(n.tensor).bytes().value);
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      const double stays = kept(tensor * 2, r_.caches[c].capacity);
      all.copied[c][of_tensor(n.tensor)] +=
          stays * std::min(p.bytes, tensor) + (1 - stays) * p.bytes;
    }
  }

  // ---- computes ---------------------------------------------------------------------------------

  Work visit_compute(NodeId id, const Ranges& whole) {
    const ScheduleNode& n = k_.node(id);
    const Ranges ranges = computed(id, whole);
    const std::vector<std::int64_t> extents = extents_of(s_, k_, ranges, n.op);
    if (std::ranges::find(extents, 0) != extents.end()) return nothing();
    for (const OutputUse& use : n.writes) {
      const Buffer& b = k_.buffer(use.buffer);
      // Bytes that lie in place are rounded by the vectors that store them.
      if (!Places::leaves(b) || !places_.converted(b.tensor) || places_.in_place(use.buffer))
        continue;
      std::int64_t& row = stored_rows_[use.buffer];
      row = std::max(row, Places::row_of(write_box(s_, k_, n.op, use.output, ranges)));
      written_[of_tensor(b.tensor)] = true;
    }
    return computed(n, ranges, extents);
  }
  /// The ranges without columns that a mask hides, which kernels leave out.
  Ranges computed(NodeId id, Ranges ranges) const {
    for (std::size_t i = 0; i < hidden_.size(); ++i) {
      const lowering::HiddenColumns& h = hidden_[i];
      if (std::ranges::find(h.computes, id) == h.computes.end()) continue;
      const OpId op = k_.node(id).op;
      Interval& columns = ranges[k_.range_base[op.index()] +
                                 static_cast<std::size_t>(w_.local_index(op, h.columns))];
      const bool has_all = columns == Interval{0, w_.loop(h.columns).extent};
      if (begins_visible(h, id, has_all)) columns.lo = visible_[i].lo;
      columns.hi = std::max(columns.lo, std::min(columns.hi, visible_[i].hi));
    }
    return ranges;
  }
  Work computed(const ScheduleNode& n, const Ranges& ranges,
                const std::vector<std::int64_t>& extents) const {
    constexpr double kVisit = 8;  // cycles: addresses and sizes of a product's tile
    const Compute compute(s_, k_, r_, places_, n, extents);
    const auto product = product_of(w_, n.op, extents);
    std::optional<double> seconds;
    if (product && product->window) seconds = compute.taps(*product);
    if (seconds || !product) {
      if (const auto plane = compute.plane()) seconds = plane;
    }
    if (!seconds && !product) seconds = compute.points(registers_);
    if (!seconds) {
      Work p = product_part(n, ranges, *product, compute);
      const ProductBox box = compute.box_of(*product);
      p.arithmetic += kVisit * r_.cycle *
                      (product->window || !compute.has_one_size()
                           ? 1
                           : seen_of_block(r_, box.rows, box.columns, box.depth));
      return p;
    }
    Work p = nothing();
    touch_all(n, ranges, p);
    stream(p);
    p.arithmetic = *seconds;
    if (!product) read_apart(n, compute, p);
    return p;
  }

  /// Lines of which one element is read at a time come again where others have taken their place;
  /// so do pages that the processor has forgotten.
  void read_apart(const ScheduleNode& n, const Compute& compute, Work& p) const {
    constexpr double kPages = 1536, kPage = 20;  // that are remembered; cycles to look one up
    for (const InputUse& use : n.reads) {
      if (!use.buffer.valid() || registers_.reads.contains({n.op, use.buffer})) continue;
      const Compute::Apart apart = compute.between_neighbours(use.inputs.front());
      if (apart.lines <= 1) continue;
      const std::size_t o = object_of(use.buffer);
      for (std::size_t c = 0; c < r_.caches.size(); ++c) {
        // Lines some sets apart have room in these alone.
        const CacheRate& cache = r_.caches[c];
        const auto shared =
            static_cast<double>(std::gcd(apart.step, std::max<std::int64_t>(1, cache.sets)));
        const double room =
            apart.step > 0 && cache.sets > 0 ? cache.capacity / shared : cache.capacity;
        const double stays = kept(apart.lines * places_.line(), room);
        p.moved[c][o] *= stays + (1 - stays) * apart.elements;
      }
      p.arithmetic += p.foot[o] / places_.line() * apart.elements * kPage * r_.cycle *
                      (1 - kept(apart.pages, kPages));
    }
  }

  void touch_all(const ScheduleNode& n, const Ranges& ranges, Work& p) const {
    for (const InputUse& use : n.reads) {
      if (use.buffer.valid()) {
        if (!registers_.reads.contains({n.op, use.buffer}))
          add_foot(use.buffer, read_box(s_, k_, n.op, use, ranges), p.foot);
        continue;
      }
      const auto elements = gathered_elements(s_, k_, n.op, use.inputs.front(), ranges);
      p.foot[of_tensor(use.tensor)] =
          std::min(static_cast<double>(w_.tensor(use.tensor).bytes().value),
                   static_cast<double>(elements) * places_.line());
    }
    for (const OutputUse& use : n.writes)
      add_foot(use.buffer, write_box(s_, k_, n.op, use.output, ranges), p.foot);
  }

  /// Once through everything.
  void stream(Work& p) const {
    for (auto& moved : p.moved) moved = p.foot;
  }

  /// Panels of columns around groups of rows around the depth, as micro-kernels go.
  Work product_part(const ScheduleNode& n, const Ranges& ranges, const Product& x,
                    const Compute& compute) const {
    Work whole = nothing();
    touch_all(n, ranges, whole);
    const ProductBox box = compute.box_of(x);
    auto [height, width] = block_of(r_, box.rows, box.columns, box.depth);
    if (compute.by_tiles(x)) height = 32, width = x.window ? 2 : 4;
    const double groups = std::ceil(box.rows / static_cast<double>(height));
    const double panels = std::ceil(box.columns / static_cast<double>(width * r_.lanes));
    const std::size_t a = object_of(compute.buffer_read(x.left));
    const std::size_t b = object_of(compute.buffer_read(x.right));
    const std::size_t c = object_of(n.writes.front().buffer);
    const double times = box.times, blocks = box.blocks;
    // Of a window groups of rows find panels that the first of them has packed, a line a step.
    const double of_panel =
        x.window ? box.depth / (compute.takes_bytes(x) ? r_.bytes_steps : 1) / blocks *
                       static_cast<double>(width * r_.lanes * static_cast<std::int64_t>(r_.element))
                 : whole.foot[b] / times / panels / blocks;
    // Lines of a step, each time: two where its columns begin within one.
    const double brought =
        x.window ? of_panel : of_panel * places_.share_of_lines({n.op, x.right}, ranges);
    Work block = nothing();
    block.foot[a] += whole.foot[a] / times / groups / blocks;
    block.foot[b] += brought;
    block.foot[c] += whole.foot[c] / times / (groups * panels);
    stream(block);
    Objects panel(objects_, 0.0), part(objects_, 0.0), all(objects_, 0.0);
    panel[a] += whole.foot[a] / times / blocks, panel[b] += brought;
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
    // The first group of rows stores panels for the others; of a window its lines begin anywhere.
    const double stored = x.window ? 2 : places_.keeps_panels({n.op, x.right}, ranges) ? 1 : 0;
    const ProductSeconds took = compute.product(x, box, stored);
    if (took.passes > 0) p = in_passes(whole, box, a, took);
    p.arithmetic = took.seconds, p.begun = took.begun;
    return p;
  }

  /// Everything once; a group of rows again for every block of points where it does not stay.
  Work in_passes(Work all, const ProductBox& box, std::size_t rows,
                 const ProductSeconds& took) const {
    stream(all);
    const double group = std::min(box.rows, static_cast<double>(2 * r_.lanes)) * box.depth *
                         static_cast<double>(r_.element);
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      const double stays = kept(group, r_.caches[c].capacity);
      all.moved[c][rows] *= (stays + (1 - stays) * took.passes) * took.larger;
    }
    return all;
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
    constexpr double kBurst = 1.5;  // cycles: a vector loaded and stored
    constexpr double kBeside = 4;
    double bursts = 0;
    for (std::size_t o = 0; o < objects_ && !r_.caches.empty(); ++o)
      if (sums_[o])
        bursts += p.moved[0][o] / static_cast<double>(r_.lanes * r_.element) * kBurst * r_.cycle;
    KernelTime t;
    t.share = share_;
    const double workers = t.share * r_.threads;
    t.arithmetic = (p.arithmetic + bursts) / workers;
    t.packing = p.packing / workers;
    double longest = t.arithmetic + t.packing, others = 0;
    for (std::size_t c = 0; c < r_.caches.size(); ++c) {
      double bytes = 0, of_thread = 0, of_all = 0, ahead = 0, panels = 0;
      auto& tensors = t.tensors.emplace_back(w_.tensors().size());
      for (std::size_t o = 0; o < objects_; ++o) {
        const double in = p.moved[c][o] + p.copied[c][o], out = written_[o] ? in : 0;
        const std::size_t tensor =
            (o < tensors_ ? used_[o] : k_.buffers[o - tensors_].tensor).index();
        tensors[tensor].first += in, tensors[tensor].second += out;
        bytes += in + out;
        // What all iterations touch every thread brings into its own cache once, at least.
        const bool shared = r_.caches[c].all > 0;
        const double own = whole_[o] && !shared ? std::min(in, p.foot[o]) : 0;
        const double write = !past_[o]                   ? r_.caches[c].write
                             : c + 1 == r_.caches.size() ? r_.write_past
                                                         : 0;
        const double times = written_[o] ? write / r_.caches[c].core : 1;
        of_thread += times * std::max(in / workers, own);
        if (c == 0 && (sums_[o] || panels_[o])) ahead += times * std::max(in / workers, own);
        if (c == 0 && panels_[o]) panels += std::max(in / workers, own);
        of_all += times * std::max(in, own * r_.threads);
      }
      const double alone = of_thread * r_.caches[c].core;
      const double together = of_all * r_.caches[c].all;
      t.bytes.push_back(bytes);
      const double begun = c + 1 == r_.caches.size() ? p.begun / workers : 0;
      // A product's steps find what they read from the second cache there in time while that is
      // little of what could be read meanwhile.
      longest = std::pow(std::pow(longest, kBeside) + std::pow(panels * r_.caches[c].core, kBeside),
                         1 / kBeside);
      t.waiting.push_back(std::max(alone, together) + begun);
      if (t.waiting.back() > longest)
        others += longest, longest = t.waiting.back();
      else
        others += std::max(alone - ahead * r_.caches[c].core, together);
    }
    // Hardware brings lines ahead while others are worked on: most of the shorter waits is hidden.
    // A product's sums are in `bursts`.
    constexpr double kSeen = 0.25;
    t.seconds = longest + kSeen * others + (r_.threads > 1 ? r_.region : 0);
    return t;
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  const Rates& r_;
  Places places_;
  std::vector<TensorId> used_;
  std::size_t tensors_, objects_;  ///< of used_, and with the buffers
  InRegisters registers_;
  std::set<LoopId> joined_;  ///< whose iterations are not alike
  std::vector<lowering::HiddenColumns> hidden_;
  std::vector<Interval> visible_;  ///< by hidden_: of the rows at hand
  std::vector<double> tile_;       ///< by buffer: bytes of its largest tile so far
  std::map<BufferId, std::int64_t>
      stored_rows_;                ///< of another type at home: elements of a tile's row
  std::vector<bool> written_;      ///< by object
  std::vector<bool> past_;         ///< by object: written past the caches
  std::vector<bool> sums_;         ///< by object: of a product that is no convolution
  std::vector<bool> panels_;       ///< by object: such products read it, and nothing else
  std::vector<bool> packed_once_;  ///< by object: those who read it find it packed
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
