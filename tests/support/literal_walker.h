// plan.md read literally: every node of every iteration, a map of buffers, nothing clever. What
// `exact` must equal to the byte. It shares the Ranges API with `exact`, and no other code.
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <tuple>

#include "core/plan/schedule.h"
#include "core/plan/traffic.h"

namespace tilewright::testing {

class LiteralWalker {
 public:
  using Key = std::tuple<std::string, std::string, std::string>;  // tensor, boundary, direction
  explicit LiteralWalker(const Schedule& s) : s_(s) {
    for (const ScheduledKernel& k : s.kernels) run(k);
  }
  std::map<Key, std::int64_t> bytes;
  std::map<std::string, std::int64_t> operations;

 private:
  using Instance = std::pair<std::int64_t, std::int64_t>;
  struct Held {
    Box tile;
    bool changed = false, fresh = false;
    std::vector<Box> complete = {};
  };

  void run(const ScheduledKernel& k) {
    k_ = &k;
    held_.clear();
    tiles_.assign(k.buffers.size(), Box());
    now_.assign(k.buffers.size(), {});
    index_.clear();
    for (TensorId t : k.zeroed)
      for (const Buffer& b : k.buffers)
        if (b.tensor == t && b.role != BufferRole::input && !b.outer.valid())
          count(b, b.level, b.outer_level, "written", s_.workload->tensor(t).elements().value);
    Ranges r = whole_ranges(s_, k);
    body(NodeId(0), r, std::vector<std::int64_t>(r.size(), 0));
    for (std::size_t b = 0; b < k.buffers.size(); ++b)
      for (auto& [key, h] : held_)
        if (key.first == static_cast<int>(b)) {
          now_[b] = key.second;
          flush(BufferId(b));
        }
  }

  const Buffer& buffer(BufferId b) const { return k_->buffer(b); }
  bool moves(BufferId b) const { return buffer(b).role == BufferRole::output || buffer(b).leaves; }
  Held* find(BufferId b) {
    const auto at = held_.find({b.value, now_[b.index()]});
    return at == held_.end() ? nullptr : &at->second;
  }
  void put(BufferId b, Held h) { held_[{b.value, now_[b.index()]}] = std::move(h); }

  void count(const Buffer& b, LevelId from, LevelId to, const char* direction,
             std::int64_t elements) {
    const Tensor& t = s_.workload->tensor(b.tensor);
    for (const auto& [x, y] : s_.machine->path(from, to))
      bytes[{t.name, s_.machine->boundary(x, y), direction}] += elements * size_of(t.dtype);
  }
  void read_in(BufferId id, const Box& box) {
    const Buffer& b = buffer(id);
    count(b, b.outer_level, b.level, "read", box.size());
    if (b.role == BufferRole::input || !b.outer.valid() || !moves(b.outer)) return;
    Held* outer = find(b.outer);
    const Box tile = tiles_[b.outer.index()];
    if (outer && outer->tile == tile) return;
    flush(b.outer);
    read_in(b.outer, tile);
    put(b.outer, {.tile = tile});
  }
  void write(BufferId id, const Box& box, bool initialises) {
    const Buffer& b = buffer(id);
    count(b, b.level, b.outer_level, "written", box.size());
    if (b.outer.valid()) change(b.outer, tiles_[b.outer.index()], initialises);
  }
  void flush(BufferId b) {
    Held* h = find(b);
    if (!h || !h->changed || !moves(b)) return;
    h->changed = false;
    // What is written late belongs to the outer tile that it was made in, where that is still
    // there.
    const Buffer& buf = buffer(b);
    Held* to = buf.outer.valid() ? find(buf.outer) : nullptr;
    if (to && contains(to->tile, h->tile)) {
      count(buf, buf.level, buf.outer_level, "written", h->tile.size());
      to->changed = moves(buf.outer);
      return;
    }
    write(b, Box(h->tile), h->fresh);
  }
  void change(BufferId b, const Box& tile, bool initialises) {
    Held* h = find(b);
    if (h && h->tile == tile) {
      h->changed = true;
      return;
    }
    flush(b);
    if (moves(b) && !initialises) read_in(b, tile);
    put(b, {.tile = tile, .changed = true, .fresh = initialises});
  }

  void settle(BufferId b, NodeId place) {
    Instance i{0, 0};
    std::int64_t depth = 0;
    for (NodeId l : unit_loops(s_, *k_, place, buffer(b).level)) {
      const ScheduleNode& n = k_->node(l);
      if (n.binding == Binding::grid)
        i.first += index_[l] * blocks_below(*k_, l);
      else
        i.second = i.second * n.max_trips + index_[l], ++depth;
    }
    i.second += depth << 40;  // a unit is not the first of those within it
    if (s_.machine->level(buffer(b).level).private_to != Unit::machine)
      for (NodeId p = place; p.valid(); p = k_->node(p).parent) i.first += k_->node(p).first_block;
    now_[b.index()] = i;
  }
  bool low_end(OpId op, const Ranges& r, bool atomic,
               const std::vector<std::int64_t>& block_low) const {
    for (LoopId l : s_.workload->reduction_loops(op)) {
      const std::size_t slot =
          k_->range_base[op.index()] + static_cast<std::size_t>(s_.workload->local_index(op, l));
      if (r[slot].lo != (atomic ? block_low[slot] : 0)) return false;
    }
    return true;
  }
  bool skipped(NodeId id, const Ranges& r) {
    const ScheduleNode& n = k_->node(id);
    if (!n.once) return false;
    for (const OutputUse& use : n.writes) {
      const Box box = write_box(s_, *k_, n.op, use.output, r);
      const bool fixed = buffer(use.buffer).fixed_at.valid();
      if (!fixed) settle(use.buffer, id);
      const Held* h = find(use.buffer);
      if (!h || !(h->tile == (fixed ? tiles_[use.buffer.index()] : box)) ||
          std::ranges::find(h->complete, box) == h->complete.end())
        return false;
    }
    return true;
  }

  void body(NodeId id, Ranges r, const std::vector<std::int64_t>& block_low) {
    const ScheduleNode& n = k_->node(id);
    for (BufferId b : n.fixes) settle(b, id);
    for (const Inference& i : n.infer) {
      const Held* h = i.sliding ? find(i.buffer) : nullptr;
      const Box before = h ? h->tile : Box();
      infer(s_, *k_, i, r, h ? &before : nullptr);
    }
    for (BufferId b : n.fixes) {
      const Box region = tiles_[b.index()] = tile_of(s_, *k_, buffer(b), r);
      Held* h = find(b);
      if (h && h->tile == region) continue;
      if (!moves(b)) put(b, {.tile = region});
      if (moves(b) && h) h->complete.clear();
    }
    for (NodeId c : n.children) node(c, r, block_low);
  }

  void node(NodeId id, const Ranges& r, const std::vector<std::int64_t>& block_low) {
    const ScheduleNode& n = k_->node(id);
    switch (n.kind) {
      case NodeKind::sequence:
      case NodeKind::pack:
        for (NodeId c : n.children) node(c, r, block_low);
        return;
      case NodeKind::loop:
        return loop(id, r, block_low);
      case NodeKind::load:
        return load(id, r);
      case NodeKind::sync:
        return;
      case NodeKind::drop:
        return drop(id);
      case NodeKind::store: {
        Held* h = find(n.buffer);
        if (!h || !h->changed) return;
        h->changed = false;
        const bool atomic = std::ranges::find(k_->zeroed, n.tensor) != k_->zeroed.end();
        return write(n.buffer, Box(h->tile), low_end(n.op, r, atomic, block_low));
      }
      case NodeKind::compute:
        return compute(id, r, block_low);
    }
  }

  void loop(NodeId id, const Ranges& r, const std::vector<std::int64_t>& block_low) {
    const ScheduleNode& n = k_->node(id);
    for (std::int64_t i = 0; i < trips(*k_, id, r); ++i) {
      Ranges inner = r;
      cut(*k_, id, i, r, inner);
      auto block = block_low;
      if (i >= n.max_trips) throw std::logic_error("a loop has more trips than max_trips");
      if (i >= n.max_trips) throw std::logic_error("a loop has more trips than max_trips");
      index_[id] = i;
      if (n.binding == Binding::grid)
        for (const OpLoop& c : n.cuts) {
          const std::size_t slot = k_->range_base[c.op.index()] + static_cast<std::size_t>(c.local);
          block[slot] = inner[slot].lo;
        }
      body(id, inner, block);
    }
  }

  void load(NodeId id, const Ranges& r) {
    const ScheduleNode& n = k_->node(id);
    if (n.only_for.valid() && skipped(n.only_for, r)) return;
    const Box tile = load_box(s_, *k_, id, r);
    if (tile.empty()) return;
    for (BufferId b = n.flush; b.valid(); b = buffer(b).outer) flush(b);
    settle(n.buffer, id);
    const Held* h = find(n.buffer);
    if (h && h->tile == tile) return;
    read_in(n.buffer, h && buffer(n.buffer).sliding ? new_part(h->tile, tile) : tile);
    put(n.buffer, {.tile = tile});
  }

  void drop(NodeId id) {
    const ScheduleNode& n = k_->node(id);
    settle(n.buffer, id);
    const Instance here = now_[n.buffer.index()];
    std::erase_if(held_, [&](const auto& held) {
      return held.first.first == static_cast<int>(n.buffer.index()) &&
             (n.all_units || held.first.second == here);
    });
  }

  void compute(NodeId id, const Ranges& r, const std::vector<std::int64_t>& block_low) {
    const ScheduleNode& n = k_->node(id);
    const std::int64_t points = tilewright::operations(s_, *k_, n.op, r).value;
    if (points == 0 || skipped(id, r)) return;
    operations[s_.workload->op(n.op).name] += points;
    for (const InputUse& use : n.reads)
      if (!use.buffer.valid()) gather(s_.workload->op(n.op), use, ranges_of(s_, *k_, r, n.op));
    for (const OutputUse& use : n.writes) {
      const bool fixed = buffer(use.buffer).fixed_at.valid();
      if (!fixed) settle(use.buffer, id);
      const Box box = write_box(s_, *k_, n.op, use.output, r);
      change(use.buffer, fixed ? tiles_[use.buffer.index()] : box,
             low_end(n.op, r, use.atomic, block_low));
      bool done = true;
      for (LoopId l : s_.workload->reduction_loops(n.op)) {
        const auto local = static_cast<std::size_t>(s_.workload->local_index(n.op, l));
        done &= ranges_of(s_, *k_, r, n.op)[local].hi == s_.workload->loop(l).extent;
      }
      Held* h = find(use.buffer);
      if (done && h && std::ranges::find(h->complete, box) == h->complete.end())
        h->complete.push_back(box);
    }
  }

  /// An element of the table for every value of the loops that the table or its indices name,
  /// unless it lies beyond an edge: point by point.
  void gather(const Operator& op, const InputUse& use, std::span<const Interval> ranges) {
    const Access& table = op.inputs[static_cast<std::size_t>(use.inputs.front())];
    std::vector<std::int64_t> point(op.loops.size());
    count(Buffer{.tensor = use.tensor}, s_.machine->home(), k_->level, "read",
          elements(op, table, ranges, point, 0));
  }
  std::int64_t elements(const Operator& op, const Access& table, std::span<const Interval> ranges,
                        std::vector<std::int64_t>& point, std::size_t l) {
    if (l == op.loops.size()) {
      for (std::size_t d = 0; d < table.index.size(); ++d) {
        std::int64_t at = table.index[d].offset;
        for (const Term& t : table.index[d].terms)
          at += t.coefficient * point[static_cast<std::size_t>(std::ranges::find(op.loops, t.loop) -
                                                               op.loops.begin())];
        if (at < 0 || at >= s_.workload->tensor(table.tensor).shape[d]) return 0;
      }
      return 1;
    }
    const auto names = [&](const Access& a) {
      return std::ranges::any_of(a.index, [&](const Affine& index) {
        return std::ranges::any_of(index.terms,
                                   [&](const Term& t) { return t.loop == op.loops[l]; });
      });
    };
    bool named = names(table);
    for (const Affine& index : table.index)
      named |= index.gathered >= 0 && names(op.inputs[static_cast<std::size_t>(index.gathered)]);
    if (!named) return elements(op, table, ranges, point, l + 1);
    std::int64_t n = 0;
    for (point[l] = ranges[l].lo; point[l] < ranges[l].hi; ++point[l])
      n += elements(op, table, ranges, point, l + 1);
    return n;
  }

  const Schedule& s_;
  const ScheduledKernel* k_ = nullptr;
  std::map<std::pair<int, Instance>, Held> held_;
  std::vector<Box> tiles_;
  std::vector<Instance> now_;
  std::map<NodeId, std::int64_t> index_;
};

}  // namespace tilewright::testing
