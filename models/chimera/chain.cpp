#include "models/chimera/chain.h"

#include <algorithm>

#include "core/base/error.h"

namespace tilewright::chimera::detail {
namespace {

void require_few(std::size_t n, const char* what) {
  if (n <= kMaxMask) return;
  throw InputError({.field = what,
                    .value = std::to_string(n),
                    .problem = "too many for this model",
                    .accepted = "at most " + std::to_string(kMaxMask)});
}

/// The interval of an affine index over the ranges of an operator's loops (all not empty).
Interval interval_of(const Workload& w, OpId op, const Affine& index, const Interval* ranges) {
  Interval r{index.offset, index.offset + 1};
  for (const Term& t : index.terms) {
    const Interval range = ranges[w.local_index(op, t.loop)];
    if (range.empty()) return {index.offset, index.offset};
    const std::int64_t first = t.coefficient * range.lo, last = t.coefficient * (range.hi - 1);
    r.lo += std::min(first, last);
    r.hi += std::max(first, last);
  }
  return r;
}

void require_no_gathers(const Workload& w) {
  for (OpId op : w.topological_order())
    if (w.gathers(op))
      throw InputError({.where = "workload " + w.name(),
                        .field = "operator",
                        .value = w.op(op).name,
                        .problem = "reads by another tensor's values, and Chimera's footprints are "
                                   "boxes known beforehand",
                        .accepted = "a model that takes gathers: one of graphs"});
}

}  // namespace

Chain::Chain(const Workload& w) : w_(&w) {
  require_few(w.loops().size(), "loops");
  require_few(w.tensors().size(), "tensors");
  require_few(w.operators().size(), "operators");
  require_no_gathers(w);
  relate_ops();
  follows_.resize(size());
  loops_.resize(size());
  reductions_.resize(size());
  Mask owned = 0;
  for (std::size_t p = size(); p-- > 0;) {
    find_follows(p);
    for (std::size_t i = 0; i < op(p).loops.size(); ++i) {
      const Follows& f = follows_[p][i];
      loops_[p] |= f.loops;
      if (!f.inferred) owned |= f.loops;
      if (w.is_reduction(id(p), op(p).loops[i])) reductions_[p] |= f.loops;
    }
  }
  for (std::size_t l = 0; l < w.loops().size(); ++l) {
    if (w.is_batch(LoopId(l))) {
      batch_ |= bit(l);
      batch_loops_.push_back(LoopId(l));
    } else if (has(owned, l)) {
      order_loops_.push_back(LoopId(l));
    }
  }
  moves_up_ = find_moves_up();
}

/// Calls `see` for each dimension of what an operator hands on that is one of its loops, with each
/// index that reads it: position of the consumer, its index, and the loop's local number.
template <class See>
void Chain::each_reader(std::size_t p, See&& see) const {
  for (const Output& out : op(p).outputs) {
    const TensorId t = out.target.tensor;
    if (!w_->is_intermediate(t)) continue;
    for (std::size_t d = 0; d < out.target.index.size(); ++d) {
      const auto plain = out.target.index[d].plain_loop();
      if (!plain) continue;
      for (OpId consumer : w_->consumers(t))
        for (const Access& in : w_->op(consumer).inputs)
          if (in.tensor == t)
            see(position(consumer), in.index[d],
                static_cast<std::size_t>(w_->local_index(id(p), *plain)));
    }
  }
}

bool Chain::find_moves_up() const {
  const auto up = [](const Affine& i) {
    return std::ranges::all_of(i.terms, [](const Term& t) { return t.coefficient >= 0; });
  };
  for (const Operator& o : w_->operators()) {
    for (const Access& a : o.inputs)
      if (!std::ranges::all_of(a.index, up)) return false;
    for (const Output& out : o.outputs)
      if (!std::ranges::all_of(out.target.index, up)) return false;
  }
  std::vector<Interval> whole;
  for (const Loop& l : w_->loops()) whole.push_back({0, l.extent});
  const std::vector<Interval> r = ranges(whole, true);
  bool within = true;
  for (std::size_t p = 0; p < size(); ++p)
    each_reader(p, [&](std::size_t q, const Affine& index, std::size_t local) {
      const Interval need = interval_of(*w_, id(q), index, r.data() + base_[q]);
      within = within && need.lo >= 0 && need.hi <= w_->loop(op(p).loops[local]).extent;
    });
  return within;
}

std::vector<std::int64_t> Chain::speeds(LoopId loop, std::int64_t step) const {
  std::vector<std::int64_t> s(base_.back());
  for (std::size_t p = size(); p-- > 0;) {
    for (std::size_t i = 0; i < op(p).loops.size(); ++i)
      s[base_[p] + i] = op(p).loops[i] == loop ? step : 0;
    std::vector<bool> found(op(p).loops.size(), false);
    each_reader(p, [&](std::size_t q, const Affine& index, std::size_t local) {
      std::int64_t its = 0;
      for (const Term& t : index.terms)
        its +=
            t.coefficient * s[base_[q] + static_cast<std::size_t>(w_->local_index(id(q), t.loop))];
      std::int64_t& mine = s[base_[p] + local];
      mine = found[local] ? std::max(mine, its) : its;
      found[local] = true;
    });
  }
  return s;
}

void Chain::relate_ops() {
  position_.resize(w_->operators().size());
  base_.assign(size() + 1, 0);
  ancestors_.assign(size(), 0);
  dependents_.assign(size(), 0);
  for (std::size_t p = 0; p < size(); ++p) {
    position_[id(p).index()] = p;
    base_[p + 1] = base_[p] + op(p).loops.size();
    for (const Access& in : op(p).inputs) {
      const OpId producer = w_->producer(in.tensor);
      if (!producer.valid()) continue;
      const std::size_t q = position(producer);
      ancestors_[p] |= ancestors_[q] | bit(q);
    }
    each(ancestors_[p], [&](std::size_t a) { dependents_[a] |= bit(p); });
  }
}

/// Consumers have been done: `op` follows them in the dimensions of what it hands on.
void Chain::find_follows(std::size_t p) {
  const Operator& o = op(p);
  std::vector<Follows>& f = follows_[p];
  f.resize(o.loops.size());
  for (const Output& out : o.outputs) {
    const TensorId t = out.target.tensor;
    if (!w_->is_intermediate(t)) continue;
    for (std::size_t d = 0; d < out.target.index.size(); ++d) {
      const auto plain = out.target.index[d].plain_loop();
      if (!plain) continue;
      Follows& mine = f[static_cast<std::size_t>(w_->local_index(id(p), *plain))];
      for (OpId consumer : w_->consumers(t)) {
        const std::size_t q = position(consumer);
        for (const Access& in : w_->op(consumer).inputs) {
          if (in.tensor != t) continue;
          const Affine& index = in.index[d];
          const auto reduces = [&](const Term& term) {
            return w_->is_reduction(consumer, term.loop);
          };
          const bool slides = std::any_of(index.terms.begin(), index.terms.end(), reduces) &&
                              !std::all_of(index.terms.begin(), index.terms.end(), reduces);
          for (const Term& term : index.terms) {
            const Follows& theirs =
                follows_[q][static_cast<std::size_t>(w_->local_index(consumer, term.loop))];
            (slides && reduces(term) ? mine.windows : mine.loops) |= theirs.loops;
            mine.windows |= theirs.windows;
          }
          const auto same = index.plain_loop();
          const LoopId simple =
              same ? follows_[q][static_cast<std::size_t>(w_->local_index(consumer, *same))].simple
                   : LoopId();
          mine.simple = !mine.inferred || mine.simple == simple ? simple : LoopId();
          mine.inferred = true;
        }
      }
    }
  }
  for (std::size_t i = 0; i < o.loops.size(); ++i) {
    if (!f[i].inferred) f[i] = {false, bit(o.loops[i].index()), 0, o.loops[i]};
    f[i].windows &= ~f[i].loops;
    const bool same_range =
        f[i].simple.valid() && w_->loop(f[i].simple).extent == w_->loop(o.loops[i]).extent;
    if (!same_range) f[i].simple = LoopId();
  }
}

Mask Chain::accessed(std::size_t p, const Affine& index, Mask multi) const {
  Mask m = 0;
  for (const Term& t : index.terms) {
    const Follows& f = follows_[p][static_cast<std::size_t>(w_->local_index(id(p), t.loop))];
    m |= f.loops | (f.windows & multi);
  }
  return m;
}

Mask Chain::accessed(std::size_t p, const Access& access, Mask multi) const {
  Mask m = 0;
  for (const Affine& index : access.index) m |= accessed(p, index, multi);
  return m;
}

void Chain::infer(std::size_t p, bool clip, std::vector<Interval>& r) const {
  const Operator& o = op(p);
  std::vector<bool> found(o.loops.size(), false);
  for (const Output& out : o.outputs) {
    const TensorId t = out.target.tensor;
    if (!w_->is_intermediate(t)) continue;
    for (std::size_t d = 0; d < out.target.index.size(); ++d) {
      const auto plain = out.target.index[d].plain_loop();
      if (!plain) continue;
      const auto local = static_cast<std::size_t>(w_->local_index(id(p), *plain));
      const std::int64_t extent = w_->loop(*plain).extent;
      Interval need;
      for (OpId consumer : w_->consumers(t))
        for (const Access& in : w_->op(consumer).inputs)
          if (in.tensor == t)
            need = hull(need, interval_of(*w_, consumer, in.index[d],
                                          r.data() + base_[position(consumer)]));
      if (clip)
        need = intersect(need, {0, extent});
      else if (need.size() > extent)
        need = {0, extent};
      Interval& mine = r[base_[p] + local];
      mine = found[local] ? hull(mine, need) : need;
      found[local] = true;
    }
  }
}

std::vector<Interval> Chain::ranges(std::span<const Interval> tiles, bool clip) const {
  std::vector<Interval> r(base_.back());
  for (std::size_t p = size(); p-- > 0;) {
    for (std::size_t i = 0; i < op(p).loops.size(); ++i)
      r[base_[p] + i] = tiles[op(p).loops[i].index()];
    infer(p, clip, r);
  }
  return r;
}

LoopId Chain::stand_in(LoopId loop, Mask ops) const {
  bool present = false;
  each(ops, [&](std::size_t p) { present = present || w_->local_index(id(p), loop) >= 0; });
  if (present) return loop;
  for (std::size_t p = size(); p-- > 0;) {
    if (!has(ops, p)) continue;
    for (std::size_t i = 0; i < op(p).loops.size(); ++i)
      if (has(follows_[p][i].loops, loop.index())) return op(p).loops[i];
  }
  return LoopId();
}

namespace {

/// A running result is held on chip from block to block of its reduction. Where a loop inside that
/// is around the result's producer and all its consumers, it moves on to other results instead.
void add_dropped(const Chain& c, std::size_t p, std::span<const LoopId> order, Mask multi,
                 std::vector<Conflict>& found) {
  const Skeleton s = skeleton_of(c, order, multi);
  std::size_t leaf = 0;
  while (s[leaf].op != static_cast<int>(p)) ++leaf;
  for (const Output& out : c.op(p).outputs) {
    const TensorId t = out.target.tensor;
    if (out.combine == Combine::assign || !c.workload().is_intermediate(t)) continue;
    Mask users = bit(p);
    for (OpId consumer : c.workload().consumers(t)) users |= bit(c.position(consumer));
    LoopId moving;
    for (int i = s[leaf].parent; i >= 0; i = s[static_cast<std::size_t>(i)].parent) {
      const Item& item = s[static_cast<std::size_t>(i)];
      const auto x = static_cast<std::size_t>(item.loop);
      if (!has(multi, x)) continue;
      if (has(c.reductions_of(p), x) && moving.valid())
        return found.push_back({p, LoopId(item.loop), {}, moving});
      if ((users & ~item.inside) == 0 && has(c.accessed(p, out.target, multi), x))
        moving = LoopId(item.loop);
    }
  }
}

}  // namespace

std::vector<Conflict> conflicts_of(const Chain& c, std::span<const LoopId> order, Mask multi) {
  std::vector<LoopId> cut;
  for (LoopId l : order)
    if (has(multi, l.index())) cut.push_back(l);
  std::vector<Conflict> found;
  for (std::size_t p = 0; p < c.size(); ++p) {
    if (c.op(p).running) {
      add_dropped(c, p, order, multi, found);
      continue;
    }
    Mask consumers = 0;
    each(c.dependents_of(p), [&](std::size_t q) { consumers |= c.loops_of(q); });
    if (consumers == 0) continue;
    const Mask outputs = c.loops_of(p) & ~c.reductions_of(p);
    for (std::size_t i = 0; i < cut.size(); ++i) {
      if (!has(c.reductions_of(p), cut[i].index())) continue;
      for (std::size_t j = i + 1; j < cut.size(); ++j) {
        if (!has(consumers & ~c.loops_of(p), cut[j].index())) continue;
        for (std::size_t k = j + 1; k < cut.size(); ++k)
          if (has(outputs, cut[k].index())) found.push_back({p, cut[i], cut[j], cut[k]});
      }
    }
  }
  return found;
}

}  // namespace tilewright::chimera::detail
