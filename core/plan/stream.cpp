// The walk behind the access stream.
#include "core/plan/stream.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace tilewright {

namespace {

struct BoxHash {
  std::size_t operator()(const Box& b) const noexcept {
    std::uint64_t h = 1469598103934665603ULL;
    for (const Interval& i : b) {
      h = (h ^ static_cast<std::uint64_t>(i.lo)) * 1099511628211ULL;
      h = (h ^ static_cast<std::uint64_t>(i.hi)) * 1099511628211ULL;
    }
    return static_cast<std::size_t>(h);
  }
};

/// What a buffer instance holds, as far as the plan's own decisions depend on it.
struct Held {
  std::optional<Box> tile;
  std::unordered_set<Box, BoxHash> complete;  // for !once
};

class Walker {
 public:
  Walker(const Schedule& s, int kernel, const AccessSink& sink, bool representatives,
         const LoopSteer& steer = {})
      : s_(s),
        k_(s.kernels[static_cast<std::size_t>(kernel)]),
        kernel_(kernel),
        sink_(sink),
        representatives_(representatives),
        steer_(steer) {
    instances_.assign(k_.buffers.size(), 0);
    tiles_.assign(k_.buffers.size(), Box());
    held_.resize(k_.buffers.size());
    const std::size_t ops = s.workload->operators().size();
    low_.resize(ops);
    for (OpId op : k_.ops) low_[op.index()].assign(s.workload->op(op).loops.size(), 0);
    watched_.assign(k_.buffers.size(), false);
    for (const ScheduleNode& n : k_.nodes)
      if (n.kind == NodeKind::compute && n.once)
        for (const OutputUse& w : n.writes) watched_[w.buffer.index()] = true;
    for (OpId op : k_.ops)
      for (const Access& a : s.workload->op(op).inputs)
        for (std::size_t d = 0; representatives && d < a.index.size(); ++d) {
          const Padded p{op, &a.index[d], {0, s.workload->tensor(a.tensor).shape[d]}};
          if (a.index[d].gathered >= 0) continue;
          std::vector<Interval> ranges;
          for (LoopId l : s.workload->op(op).loops)
            ranges.push_back({0, s.workload->loop(l).extent});
          if (!contains(p.whole, footprint(s.workload->op(op), *p.index, ranges)))
            padded_.push_back(p);
        }
    for (const Buffer& b : k_.buffers)
      if (b.sliding && b.role == BufferRole::intermediate)
        watched_[static_cast<std::size_t>(&b - k_.buffers.data())] = true;
  }

  void run() {
    emit({.kind = AccessKind::kernel_begin, .node = NodeId(0)});
    for (TensorId t : k_.zeroed) {
      const Box whole = s_.workload->tensor(t).whole();
      emit({.kind = AccessKind::zero, .node = NodeId(0), .tensor = t, .box = whole, .tile = whole});
    }
    ranges_ = whole_ranges(s_, k_);
    enter_body(NodeId(0), ranges_);
    for (NodeId child : k_.node(NodeId(0)).children) visit(child, ranges_);
    emit({.kind = AccessKind::kernel_end, .node = NodeId(0)});
  }

 private:
  void emit(AccessEvent&& e) {
    e.kernel = kernel_;
    e.block = block_;
    e.instances = instances_.data();
    e.tiles = tiles_.data();
    sink_(e);
  }

  /// The instance that a buffer of `level` has at this point of the walk.
  std::int64_t instance_here(LevelId level) const {
    const Unit owner = s_.machine->level(level).private_to;
    std::int64_t inner = 0, depth = 0;
    for (const auto& [unit, index, count] : units_) {
      if (unit > owner) continue;
      inner = inner * count + index;
      ++depth;  // a unit is not the first of those within it
    }
    const std::int64_t block = owner >= Unit::grid ? block_ : 0;
    return (block * kUnitDepths + depth) * kUnitsOfBlock + inner;
  }

  Held& held(BufferId b) { return held_[b.index()][instances_[b.index()]]; }

  void fix(BufferId b, const Box& tile) {
    tiles_[b.index()] = tile;
    if (!watched_[b.index()]) return;
    Held& h = held(b);
    if (h.tile == tile) return;
    h.tile = tile;
    h.complete.clear();
  }

  void enter_body(NodeId body, Ranges& ranges) {
    const ScheduleNode& n = k_.node(body);
    for (BufferId b : n.fixes) instances_[b.index()] = instance_here(k_.buffer(b).level);
    // Regions come first from whole needs; sliding then narrows the producer to the new part.
    for (const Inference& i : n.infer) {
      const Held* h = i.sliding ? &held(i.buffer) : nullptr;
      infer(s_, k_, i, ranges, h != nullptr && h->tile ? &*h->tile : nullptr);
    }
    for (BufferId b : n.fixes) fix(b, tile_of(s_, k_, k_.buffer(b), ranges));
  }

  void visit(NodeId id, const Ranges& ranges) {
    const ScheduleNode& n = k_.node(id);
    switch (n.kind) {
      case NodeKind::loop:
        return visit_loop(id, n, ranges);
      case NodeKind::sequence:
        for (NodeId c : n.children) visit(c, ranges);
        return;
      case NodeKind::pack:
        return visit_pack(n, ranges);
      case NodeKind::load:
        return visit_load(id, n, ranges);
      case NodeKind::compute:
        return visit_compute(id, n, ranges);
      case NodeKind::store:
        return visit_store(id, n, ranges);
      case NodeKind::sync:
        return emit({.kind = AccessKind::sync, .node = id});
      case NodeKind::drop:
        return emit({.kind = AccessKind::drop,
                     .node = id,
                     .buffer = n.buffer,
                     .tensor = n.tensor,
                     .level = n.level,
                     .instance = n.all_units ? kEveryInstance : instance_here(n.level)});
    }
  }

  void visit_pack(const ScheduleNode& n, const Ranges& ranges) {
    const std::int64_t outer = block_;
    for (NodeId c : n.children) {
      block_ = outer + k_.node(c).first_block;
      visit(c, ranges);
    }
    block_ = outer;
  }

  void visit_loop(NodeId id, const ScheduleNode& n, const Ranges& ranges) {
    const std::int64_t count = trips(k_, id, ranges);
    const std::optional<Unit> unit = unit_of(n.binding);
    const std::int64_t outer_block = block_;
    std::vector<std::int64_t> outer_low;  // of what a grid loop cuts
    const auto low_of = [&](const OpLoop& c) -> std::int64_t& {
      return low_[c.op.index()][static_cast<std::size_t>(c.local)];
    };
    if (n.binding == Binding::grid)
      for (const OpLoop& c : n.cuts) outer_low.push_back(low_of(c));
    // An iteration changes few of the kernel's ranges, in place; what they were is put back.
    std::vector<std::pair<std::size_t, Interval>> outer;
    const auto keep = [&](OpId op, int local) {
      const std::size_t at = k_.range_base[op.index()] + static_cast<std::size_t>(local);
      outer.emplace_back(at, ranges_[at]);
    };
    for (const OpLoop& c : n.cuts) keep(c.op, c.local);
    for (const Inference& i : n.infer)
      for (std::size_t l = 0; l < s_.workload->op(i.producer).loops.size(); ++l)
        keep(i.producer, static_cast<int>(l));
    const auto put_back = [&] {
      for (const auto& [at, range] : outer) ranges_[at] = range;
    };
    Ranges& inside = ranges_;
    std::vector<std::int64_t> more;  // iterations that representatives have besides, ascending
    if (representatives_ && count > 2) more = between(id, count, ranges);
    for (std::int64_t i = 0; i < count; i = next(n, i, count, more)) {
      put_back();
      if (steer_) {
        i = steer_({.kernel = kernel_,
                    .loop = id,
                    .next = i,
                    .count = count,
                    .around = &ranges,
                    .tiles = tiles_.data()});
        TW_CHECK(i < count, "a walk steered past a loop's end");
      }
      cut(k_, id, i, ranges, inside);
      if (n.binding == Binding::grid) {
        block_ = outer_block + i * inner_blocks(id);
        for (const OpLoop& c : n.cuts) low_of(c) = slot(inside, c).lo;
      } else if (unit) {
        units_.push_back({*unit, i, n.max_trips});
      }
      enter_body(id, inside);
      for (NodeId c : n.children) visit(c, inside);
      if (unit && n.binding != Binding::grid) units_.pop_back();
    }
    put_back();
    block_ = outer_block;
    for (std::size_t i = 0; i < outer_low.size(); ++i) low_of(n.cuts[i]) = outer_low[i];
  }

  /// The iterations that stand for those between the second and the last, ascending. Where padding
  /// clips no read that the loop moves, these are alike, and the third follows one like it. Else a
  /// middle one and the next, and the one after that where what slides goes on from what two left.
  /// Where padding clips the middle one, also those that reach beyond the tensor least: what is
  /// left of a read grows from one iteration to the next until its middle is the dimension's, and
  /// shrinks from there on; those beside that one may have other tiles with it. Cost: twice the
  /// logarithm of `count` ranges for each dimension with padding.
  std::vector<std::int64_t> between(NodeId id, std::int64_t count, const Ranges& around) const {
    if (padded_.empty()) return {2};
    bool clipped = false;
    std::set<std::int64_t> found;
    const auto inside = [&](std::int64_t iteration) {
      Ranges r = around;
      cut(k_, id, iteration, around, r);
      for (const Inference& i : k_.node(id).infer) {
        for (const Inference& ahead : i.lookahead) infer(s_, k_, ahead, r);
        infer(s_, k_, i, r);
      }
      return r;
    };
    const auto read = [&](const Padded& p, const Ranges& r) {
      return footprint(s_.workload->op(p.op), *p.index, ranges_of(s_, k_, r, p.op));
    };
    const Ranges middle = inside(count / 2);
    for (const Padded& p : padded_) {
      const auto now = ranges_of(s_, k_, middle, p.op), before = ranges_of(s_, k_, around, p.op);
      const bool moves = std::ranges::any_of(p.index->terms, [&](const Term& x) {
        const auto local = static_cast<std::size_t>(s_.workload->local_index(p.op, x.loop));
        return now[local] != before[local];
      });
      clipped = clipped || moves;
      if (!moves || contains(p.whole, read(p, middle))) continue;
      // Twice as far as the read's middle is from the dimension's.
      const auto beyond = [&](std::int64_t iteration) {
        const Interval r = read(p, inside(iteration));
        return r.lo + r.hi - p.whole.lo - p.whole.hi;
      };
      const bool forwards = beyond(0) <= beyond(count - 1);
      std::int64_t low = 0, high = count - 1;
      while (low < high) {
        const std::int64_t at = low + (high - low) / 2, its = beyond(at);
        if (forwards ? its >= 0 : its <= 0)
          high = at;
        else
          low = at + 1;
      }
      for (std::int64_t i = low - kNear; i <= low + kNear; ++i)
        if (i > 1 && i + 1 < count) found.insert(i);
    }
    if (!clipped) return {2};
    const bool slides = std::ranges::any_of(k_.buffers, &Buffer::sliding);
    for (std::int64_t i = count / 2; i <= count / 2 + (slides ? 2 : 1); ++i)
      if (i + 1 < count) found.insert(i);
    return {found.begin(), found.end()};
  }

  /// The iteration after `i`; of representatives only the first two, those `between` and the last.
  /// Units keep nothing of one another, so of theirs the second is left out.
  std::int64_t next(const ScheduleNode& loop, std::int64_t i, std::int64_t count,
                    const std::vector<std::int64_t>& between) const {
    const bool apart = unit_of(loop.binding).has_value() && count > 2;
    if (!representatives_ || (i == 0 && !apart) || i + 1 >= count) return i + 1;
    const auto at = std::ranges::upper_bound(between, i);
    return at == between.end() ? count - 1 : *at;
  }

  /// Blocks within one iteration of a grid loop.
  std::int64_t inner_blocks(NodeId loop) {
    const auto found = inner_blocks_.find(loop);
    if (found != inner_blocks_.end()) return found->second;
    return inner_blocks_[loop] = blocks_below(k_, loop);
  }

  const Interval& slot(const Ranges& r, const OpLoop& c) const {
    return r[k_.range_base[c.op.index()] + static_cast<std::size_t>(c.local)];
  }

  bool initialises(OpId op, const Ranges& ranges, bool atomic) const {
    const auto r = ranges_of(s_, k_, ranges, op);
    for (LoopId l : s_.workload->reduction_loops(op)) {
      const auto local = static_cast<std::size_t>(s_.workload->local_index(op, l));
      const std::int64_t low = atomic ? low_[op.index()][local] : 0;
      if (r[local].lo != low) return false;
    }
    return true;
  }

  bool complete(OpId op, const Ranges& ranges) const {
    const auto r = ranges_of(s_, k_, ranges, op);
    for (LoopId l : s_.workload->reduction_loops(op)) {
      const auto local = static_cast<std::size_t>(s_.workload->local_index(op, l));
      if (r[local].hi != s_.workload->loop(l).extent) return false;
    }
    return true;
  }

  /// Rule 13: a !once compute whose every output box is complete in its buffer.
  bool skipped(const ScheduleNode& n, const Ranges& ranges) {
    if (!n.once) return false;
    for (const OutputUse& w : n.writes) {
      if (!k_.buffer(w.buffer).fixed_at.valid())
        instances_[w.buffer.index()] = instance_here(k_.buffer(w.buffer).level);
      if (!held(w.buffer).complete.contains(write_box(s_, k_, n.op, w.output, ranges)))
        return false;
    }
    return true;
  }

  void visit_load(NodeId id, const ScheduleNode& n, const Ranges& ranges) {
    const Box box = load_box(s_, k_, id, ranges);
    if (box.empty()) return;
    if (n.only_for.valid() && skipped(k_.node(n.only_for), ranges)) return;
    for (BufferId f = n.flush; f.valid(); f = k_.buffer(f).outer)
      emit({.kind = AccessKind::flush,
            .node = id,
            .buffer = f,
            .tensor = n.tensor,
            .instance = instances_[f.index()],
            .box = tiles_[f.index()],
            .tile = tiles_[f.index()]});
    instances_[n.buffer.index()] = instance_here(n.level);
    tiles_[n.buffer.index()] = box;
    emit({.kind = AccessKind::load,
          .node = id,
          .buffer = n.buffer,
          .tensor = n.tensor,
          .level = n.level,
          .instance = instances_[n.buffer.index()],
          .box = box,
          .tile = box});
  }

  void visit_compute(NodeId id, const ScheduleNode& n, const Ranges& ranges) {
    const std::int64_t count = operations(s_, k_, n.op, ranges).value;
    if (count == 0 || skipped(n, ranges)) return;
    emit({.kind = AccessKind::compute,
          .node = id,
          .op = n.op,
          .operations = count,
          .ranges = &ranges});
    for (const InputUse& use : n.reads)
      for (int input : use.inputs) emit_read(id, n, use, input, ranges);
    for (const OutputUse& w : n.writes) emit_update(id, n, w, ranges);
  }

  void emit_read(NodeId id, const ScheduleNode& n, const InputUse& use, int input,
                 const Ranges& ranges) {
    const Operator& op = s_.workload->op(n.op);
    const Box box = footprint(*s_.workload, op, op.inputs[static_cast<std::size_t>(input)],
                              ranges_of(s_, k_, ranges, n.op));
    if (box.empty()) return;
    if (!use.buffer.valid())
      return emit({.kind = AccessKind::gather,
                   .node = id,
                   .tensor = use.tensor,
                   .level = k_.level,
                   .op = n.op,
                   .box = box,
                   .tile = box,
                   .input = input,
                   .elements = gathered_elements(s_, k_, n.op, input, ranges),
                   .ranges = &ranges});
    emit({.kind = AccessKind::read,
          .node = id,
          .buffer = use.buffer,
          .tensor = use.tensor,
          .op = n.op,
          .instance = instances_[use.buffer.index()],
          .box = box,
          .tile = tiles_[use.buffer.index()],
          .input = input,
          .ranges = &ranges});
  }

  void emit_update(NodeId id, const ScheduleNode& n, const OutputUse& w, const Ranges& ranges) {
    const Buffer& b = k_.buffer(w.buffer);
    const Box box = write_box(s_, k_, n.op, w.output, ranges);
    if (!b.fixed_at.valid()) {
      instances_[w.buffer.index()] = instance_here(b.level);
      fix(w.buffer, box);
    }
    emit({.kind = AccessKind::update,
          .node = id,
          .buffer = w.buffer,
          .tensor = w.tensor,
          .op = n.op,
          .instance = instances_[w.buffer.index()],
          .box = box,
          .tile = tiles_[w.buffer.index()],
          .initialises = initialises(n.op, ranges, w.atomic),
          .atomic = w.atomic,
          .output = w.output,
          .ranges = &ranges});
    if (n.once && complete(n.op, ranges)) held(w.buffer).complete.insert(box);
  }

  void visit_store(NodeId id, const ScheduleNode& n, const Ranges& ranges) {
    const Buffer& b = k_.buffer(n.buffer);
    const OpId producer = s_.workload->producer(n.tensor);
    emit({.kind = AccessKind::store,
          .node = id,
          .buffer = n.buffer,
          .tensor = n.tensor,
          .level = n.level,
          .op = producer,
          .instance = instances_[n.buffer.index()],
          .box = tiles_[n.buffer.index()],
          .tile = tiles_[n.buffer.index()],
          .initialises =
              b.role == BufferRole::intermediate || initialises(producer, ranges, n.atomic),
          .atomic = n.atomic,
          .ranges = &ranges});
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  int kernel_;
  const AccessSink& sink_;
  bool representatives_;
  const LoopSteer steer_;
  std::int64_t block_ = 0;
  struct UnitIndex {
    Unit unit;
    std::int64_t index;
    std::int64_t count;
  };
  std::vector<UnitIndex> units_;
  static constexpr std::int64_t kNear = 1;  ///< to one that is clipped least
  /// A dimension that is read beyond its ends.
  struct Padded {
    OpId op;
    const Affine* index;
    Interval whole;
  };
  std::vector<Padded> padded_;
  Ranges ranges_;                               // at this point of the walk
  std::vector<std::vector<std::int64_t>> low_;  // by op, loop: low end within the block
  std::vector<std::int64_t> instances_;
  std::vector<Box> tiles_;
  std::vector<bool> watched_;
  std::vector<std::unordered_map<std::int64_t, Held>> held_;  // by buffer, instance
  std::unordered_map<NodeId, std::int64_t> inner_blocks_;
};

}  // namespace

void walk(const Schedule& s, const AccessSink& sink) {
  for (std::size_t k = 0; k < s.kernels.size(); ++k)
    Walker(s, static_cast<int>(k), sink, false).run();
}

void walk(const Schedule& s, const AccessSink& sink, const LoopSteer& steer) {
  for (std::size_t k = 0; k < s.kernels.size(); ++k)
    Walker(s, static_cast<int>(k), sink, false, steer).run();
}

void walk_representatives(const Schedule& s, int kernel, const AccessSink& sink) {
  Walker(s, kernel, sink, true).run();
}

}  // namespace tilewright
