#include "models/chimera/flat.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace tilewright::chimera::detail {

Flat::Flat(const Workload& w, const Order& order, const Options& options)
    : chain_(std::make_shared<const Chain>(w)), order_(order), options_(options) {
  place();
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    const TensorId id(t);
    if (w.producer(id).valid() && !w.consumers(id).empty() && !options_.spilled.contains(id))
      on_chip_ |= bit(t);
  }
  add_foots();
  add_uses();
}

Flat::Flat(const Flat& other, const Order& order)
    : chain_(other.chain_),
      order_(order),
      options_(other.options_),
      on_chip_(other.on_chip_),
      foots_(other.foots_),
      uses_(other.uses_),
      by_op_(other.by_op_),
      produced_by_(other.produced_by_) {
  place();
  for (Foot& f : foots_) {
    f.accessed = positions_of(other.loops_at(f.accessed));
    f.windows = positions_of(other.loops_at(f.windows));
  }
  for (Use& u : uses_) u.counted = positions_of(other.loops_at(u.counted));
}

void Flat::place() {
  const Workload& w = workload();
  check_order(*chain_, order_);
  position_.assign(w.loops().size(), -1);
  for (LoopId l : chain_->batch_loops())
    if (std::find(order_.begin(), order_.end(), l) == order_.end()) {
      implicit_ |= bit(loops_.size());
      loops_.push_back(l);
    }
  loops_.insert(loops_.end(), order_.begin(), order_.end());
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    position_[loops_[i].index()] = static_cast<int>(i);
    extents_.push_back(w.loop(loops_[i]).extent);
  }
}

Mask Flat::positions_of(Mask loops) const {
  Mask m = 0;
  each(loops, [&](std::size_t l) {
    if (position_[l] >= 0) m |= bit(static_cast<std::size_t>(position_[l]));
  });
  return m;
}

Mask Flat::loops_at(Mask positions) const {
  Mask m = 0;
  each(positions, [&](std::size_t i) { m |= bit(loops_[i].index()); });
  return m;
}

void Flat::add_foots() {
  const Workload& w = workload();
  by_op_.resize(chain_->size());
  produced_by_.assign(w.tensors().size(), 0);
  for (std::size_t p = 0; p < chain_->size(); ++p) {
    const auto add = [&](const Access& a) {
      for (std::size_t f : by_op_[p])
        if (foots_[f].tensor == a.tensor) return foots_[f].accesses.push_back(&a);
      by_op_[p].push_back(foots_.size());
      foots_.push_back({.op = p, .tensor = a.tensor, .accesses = {&a}});
    };
    for (const Access& in : chain_->op(p).inputs) add(in);
    for (const Output& out : chain_->op(p).outputs) {
      add(out.target);
      produced_by_[out.target.tensor.index()] = by_op_[p].back();
    }
  }
  for (Foot& f : foots_) {
    f.plain = f.accesses.size() == 1;
    for (const Access* a : f.accesses) {
      f.accessed |= positions_of(chain_->accessed(f.op, *a, 0));
      f.windows |= positions_of(chain_->accessed(f.op, *a, ~Mask{0}));
    }
    f.windows &= ~f.accessed;
    Mask seen = 0;
    for (std::size_t d = 0; f.plain && d < f.accesses[0]->index.size(); ++d) {
      const auto loop = f.accesses[0]->index[d].plain_loop();
      f.plain = false;
      if (!loop) break;
      const auto local = static_cast<std::size_t>(w.local_index(chain_->id(f.op), *loop));
      const LoopId root = chain_->follows(f.op, local).simple;
      if (!root.valid() || has(seen, root.index())) break;
      seen |= bit(root.index());
      f.plain = w.loop(root).extent == w.tensor(f.tensor).shape[d];
    }
  }
}

void Flat::add_uses() {
  Mask alive = 0;  // loops that this or a later operator has
  std::vector<Mask> not_erased(chain_->size());
  for (std::size_t p = chain_->size(); p-- > 0;) not_erased[p] = alive |= chain_->loops_of(p);
  const Workload& w = workload();
  for (std::size_t i = 0; i < foots_.size(); ++i) {
    const Foot& f = foots_[i];
    const bool written = w.producer(f.tensor) == chain_->id(f.op);
    if (has(on_chip_, f.tensor.index()) && !(written && w.is_output(f.tensor))) continue;
    Mask counted = not_erased[f.op];
    if (options_.reading == Reading::literal) counted &= chain_->loops_of(f.op);
    const double runs =
        options_.op_weights.empty() ? 1.0 : options_.op_weights[chain_->id(f.op).index()];
    uses_.push_back({i, runs * (written ? options_.write_weight : 1.0), positions_of(counted)});
  }
}

Point Flat::point(std::span<const std::int64_t> tiles) const {
  Point p;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    const std::int64_t t = has(implicit_, i) ? 1 : tiles[loops_[i].index()];
    p.tile[i] = t;
    p.trips[i] = ceil_div(extents_[i], t);
    if (p.trips[i] > 1) p.multi |= bit(i);
  }
  return p;
}

Mask Flat::multipliers(const Use& u, Mask multi, int* decided_by) const {
  const Foot& f = foots_[u.foot];
  Mask ends = f.accessed | (f.windows & multi);
  if (options_.reading == Reading::trip_one) ends &= multi;
  ends &= u.counted;
  const int innermost = kMaxMask - 1 - std::countl_zero(ends);  // -1 where there is none
  if (decided_by != nullptr) *decided_by = innermost;
  if (innermost < 0) return 0;
  return u.counted & (~Mask{0} >> (kMaxMask - 1 - static_cast<std::size_t>(innermost)));
}

Interval interval_of(const Chain& c, const Foot& f, std::size_t dim, std::span<const Interval> r) {
  const Workload& w = c.workload();
  Interval all;
  for (const Access* a : f.accesses) {
    Interval one{a->index[dim].offset, a->index[dim].offset + 1};
    for (const Term& t : a->index[dim].terms) {
      const Interval range =
          r[c.base(f.op) + static_cast<std::size_t>(w.local_index(c.id(f.op), t.loop))];
      if (range.empty()) {
        one.hi = one.lo;
        break;
      }
      const std::int64_t x = t.coefficient * range.lo, y = t.coefficient * (range.hi - 1);
      one.lo += std::min(x, y);
      one.hi += std::max(x, y);
    }
    all = hull(all, one);
  }
  return all;
}

std::vector<Interval> Flat::whole_tiles(const Point& p, Mask cut) const {
  std::vector<Interval> tiles;
  tiles.reserve(workload().loops().size());
  for (const Loop& l : workload().loops()) tiles.push_back({0, l.extent});
  for (std::size_t i = 0; i < loops_.size(); ++i)
    if (has(cut, i)) tiles[loops_[i].index()] = {0, p.tile[i]};
  return tiles;
}

std::int64_t Flat::footprint(const Foot& f, const Point& p, Mask cut) const {
  std::int64_t n = 1;
  if (f.plain) {
    each(f.accessed,
         [&](std::size_t i) { n = saturating_mul(n, has(cut, i) ? p.tile[i] : extents_[i]); });
    return n;
  }
  return footprint_factor(f, p, cut, ~Mask{0});
}

std::int64_t Flat::footprint_factor(const Foot& f, const Point& p, Mask cut, Mask dims) const {
  return size_within(f, chain_->ranges(whole_tiles(p, cut), false), dims);
}

std::int64_t Flat::size_within(const Foot& f, std::span<const Interval> ranges, Mask dims) const {
  const std::vector<std::int64_t>& shape = workload().tensor(f.tensor).shape;
  std::int64_t n = 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (has(dims, d))
      n = saturating_mul(n, std::min(interval_of(*chain_, f, d, ranges).size(), shape[d]));
  return n;
}

namespace {

/// The sum over tiles 0 to `count` - 1 of the product of their parts' sizes, where the ends of all
/// parts only move up, from tile to tile by `speeds` at most. Between two tiles where an end is the
/// same it stays there; between two where it moves as fast as it can, it moves evenly.
std::int64_t sum_of_lines(std::int64_t count, std::span<const std::int64_t> speeds,
                          const std::function<std::vector<Interval>(std::int64_t)>& of_tile) {
  using All = std::vector<Interval>;
  const auto product = [](const All& all) {
    std::int64_t n = 1;
    for (const Interval& part : all) n = saturating_mul(n, part.size());
    return n;
  };
  // Of the tiles after `first` up to `last`.
  const std::function<std::int64_t(std::int64_t, const All&, std::int64_t, const All&)> between =
      [&](std::int64_t first, const All& begin, std::int64_t last, const All& end) -> std::int64_t {
    if (last - first <= 1) return last > first ? product(end) : 0;
    bool even = true, same = true;
    for (std::size_t d = 0; d < begin.size(); ++d)
      for (const auto moves : {end[d].lo - begin[d].lo, end[d].hi - begin[d].hi}) {
        even = even && (moves == 0 || moves == speeds[d] * (last - first));
        same = same && moves == 0;
      }
    if (even && same) return saturating_mul(last - first, product(end));
    if (even) {
      std::int64_t sum = 0;
      for (std::int64_t t = first + 1; t <= last; ++t) {
        All at = begin;
        for (std::size_t d = 0; d < at.size(); ++d) {
          at[d].lo += (end[d].lo - begin[d].lo) / (last - first) * (t - first);
          at[d].hi += (end[d].hi - begin[d].hi) / (last - first) * (t - first);
        }
        sum = saturating_add(sum, product(at));
      }
      return sum;
    }
    const std::int64_t middle = first + (last - first) / 2;
    const All half = of_tile(middle);
    return saturating_add(between(first, begin, middle, half), between(middle, half, last, end));
  };
  const All begin = of_tile(0);
  const All end = count > 1 ? of_tile(count - 1) : begin;
  return saturating_add(product(begin), between(0, begin, count - 1, end));
}

}  // namespace

/// Product over groups of dimensions that share no loop of the sum over those loops' tiles of the
/// product of the dimensions' sizes. `dims`: positions that each dimension moves with.
std::int64_t Flat::sum_over_tiles(std::span<const Mask> dims, const Point& p, Mask cut,
                                  const Parts& parts) const {
  std::int64_t total = 1;
  std::vector<bool> done(dims.size(), false);
  for (std::size_t first = 0; first < dims.size(); ++first) {
    if (done[first]) continue;
    Mask loops = dims[first];
    std::vector<std::size_t> group;
    for (bool grown = true; grown;) {
      grown = false;
      for (std::size_t d = first; d < dims.size(); ++d) {
        if (done[d] || (d != first && (dims[d] & loops) == 0)) continue;
        done[d] = grown = true;
        group.push_back(d);
        loops |= dims[d];
      }
    }
    loops &= cut & p.multi;
    std::vector<Interval> tiles = whole_tiles(p, cut);
    std::vector<std::int64_t> at(loops_.size(), 0);
    const auto set = [&](std::size_t i) {
      const std::int64_t lo = at[i] * p.tile[i];
      tiles[loops_[i].index()] = {lo, std::min(lo + p.tile[i], extents_[i])};
    };
    const auto own_parts = [&] {
      const std::vector<Interval> r = chain_->ranges(tiles, true);
      std::vector<Interval> own;
      for (std::size_t d : group) own.push_back(parts.part(d, r));
      return own;
    };
    const bool in_lines = loops != 0 && chain_->moves_up();
    const auto first_loop = static_cast<std::size_t>(std::countr_zero(loops));
    std::vector<std::int64_t> speeds;
    if (in_lines) {
      const std::vector<std::int64_t> s = chain_->speeds(loops_[first_loop], p.tile[first_loop]);
      for (std::size_t d : group) speeds.push_back(parts.speed(d, s));
    }
    std::int64_t sum = 0;
    for (bool more = true; more;) {
      each(loops, set);
      if (in_lines) {
        const auto of_tile = [&](std::int64_t t) {
          at[first_loop] = t, set(first_loop);
          return own_parts();
        };
        sum = saturating_add(sum, sum_of_lines(p.trips[first_loop], speeds, of_tile));
        at[first_loop] = p.trips[first_loop] - 1;
      } else {
        std::int64_t n = 1;
        for (const Interval& part : own_parts()) n = saturating_mul(n, part.size());
        sum = saturating_add(sum, n);
      }
      more = false;
      each(loops, [&](std::size_t i) {  // the next tile, as an odometer
        if (more) return;
        more = ++at[i] < p.trips[i];
        if (!more) at[i] = 0;
      });
    }
    total = saturating_mul(total, sum);
  }
  return total;
}

std::int64_t Flat::exact_sum(const Foot& f, const Point& p) const {
  const std::vector<std::int64_t>& shape = workload().tensor(f.tensor).shape;
  if (f.plain) {
    std::int64_t n = 1;
    for (std::int64_t extent : shape) n = saturating_mul(n, extent);
    return n;
  }
  return exact_factor(f, p, ~Mask{0});
}

std::vector<Mask> Flat::dimensions(const Foot& f) const {
  std::vector<Mask> dims(f.accesses.front()->index.size(), 0);
  for (std::size_t d = 0; d < dims.size(); ++d)
    for (const Access* a : f.accesses)
      dims[d] |= positions_of(chain_->accessed(f.op, a->index[d], ~Mask{0}));
  return dims;
}

std::int64_t Flat::exact_factor(const Foot& f, const Point& p, Mask dims) const {
  std::vector<Mask> moves, all = dimensions(f);
  std::vector<std::size_t> which;
  for (std::size_t d = 0; d < all.size(); ++d)
    if (has(dims, d)) {
      which.push_back(d);
      moves.push_back(all[d]);
    }
  const std::vector<std::int64_t>& shape = workload().tensor(f.tensor).shape;
  return sum_over_tiles(
      moves, p, ~Mask{0},
      {.part =
           [&](std::size_t i, std::span<const Interval> r) {
             return intersect(interval_of(*chain_, f, which[i], r), {0, shape[which[i]]});
           },
       .speed =
           [&](std::size_t i, std::span<const std::int64_t> speeds) {
             std::int64_t most = 0;
             for (const Access* a : f.accesses) {
               std::int64_t its = 0;
               for (const Term& t : a->index[which[i]].terms)
                 its += t.coefficient *
                        speeds[chain_->base(f.op) + static_cast<std::size_t>(workload().local_index(
                                                        chain_->id(f.op), t.loop))];
               most = std::max(most, its);
             }
             return most;
           }});
}

void Flat::footprints(const Point& p, std::span<std::int64_t> out) const {
  std::vector<Interval> ranges;  // what all that are not plain have in common
  for (std::size_t f = 0; f < foots_.size(); ++f) {
    if (foots_[f].plain) {
      out[f] = footprint(foots_[f], p);
      continue;
    }
    if (ranges.empty()) ranges = chain_->ranges(whole_tiles(p, ~Mask{0}), false);
    out[f] = size_within(foots_[f], ranges, ~Mask{0});
  }
}

std::int64_t Flat::movement(const Use& u, const Point& p, std::span<const std::int64_t> df) const {
  const Foot& f = foots_[u.foot];
  Mask times = multipliers(u, p.multi);
  std::int64_t n = df[u.foot];
  if (options_.edges == Edges::exact) {
    times &= ~(f.accessed | f.windows);
    n = exact_sum(f, p);
  }
  each(times & p.multi, [&](std::size_t i) { n = saturating_mul(n, p.trips[i]); });
  return n;
}

const Structure& Flat::structure(Mask multi) const {
  if (last_ != nullptr && last_multi_ == multi) return *last_;
  const auto [it, added] = structures_.try_emplace(multi);
  if (added) {
    const Mask loops = loops_at(multi);
    it->second = structure_of(*chain_, skeleton_of(*chain_, loops_, loops), loops, on_chip_);
    for (Mask& m : it->second.cut) m = positions_of(m);
    for (Mask& m : it->second.foreign) m = positions_of(m);
  }
  last_multi_ = multi;
  return *(last_ = &it->second);
}

std::int64_t Flat::memory(Memory mode, const Point& p, std::span<const std::int64_t> df) const {
  std::int64_t most = 0;
  if (mode == Memory::paper) {
    for (const std::vector<std::size_t>& foots : by_op_) {
      std::int64_t sum = 0;
      for (std::size_t f : foots) sum = saturating_add(sum, df[f]);
      most = std::max(most, sum);
    }
    return most;
  }
  const Structure& s = structure(p.multi);
  std::array<std::int64_t, kMaxMask> size{};  // by tensor: its largest tile, or its whole region
  for (std::size_t f = 0; f < foots_.size(); ++f) {
    const std::size_t t = foots_[f].tensor.index();
    // A producer's rows serve its consumer's whole window, however the consumer cuts that.
    const bool slid = (foots_[f].windows & p.multi) != 0;
    size[t] = std::max(size[t], slid ? footprint(foots_[f], p, ~foots_[f].windows) : df[f]);
  }
  each(on_chip_, [&](std::size_t t) { size[t] = footprint(foots_[produced_by_[t]], p, s.cut[t]); });
  const auto sum_of = [&](Mask tensors) {
    std::int64_t sum = 0;
    each(tensors, [&](std::size_t t) { sum = saturating_add(sum, size[t]); });
    return sum;
  };
  if (mode == Memory::sum) {
    Mask all = 0;
    for (const Foot& f : foots_) all |= bit(f.tensor.index());
    return sum_of(all);
  }
  for (Mask tensors : mode == Memory::held ? s.held : s.live)
    most = std::max(most, sum_of(tensors));
  return most;
}

std::int64_t Flat::operations(std::size_t op, const Point& p) const {
  const Structure& s = structure(p.multi);
  const Operator& o = chain_->op(op);
  Mask cut = ~Mask{0};  // what of the loops it follows lies around its results' home
  for (const Output& out : o.outputs)
    if (has(on_chip_, out.target.tensor.index())) cut &= s.cut[out.target.tensor.index()];
  std::int64_t n = 1, points = 1;
  std::vector<std::size_t> slid;  // loops whose ranges depend on the tile; others are whole
  std::vector<Mask> dims;
  for (std::size_t i = 0; i < o.loops.size(); ++i) {
    const Follows& f = chain_->follows(op, i);
    if (f.inferred && !f.simple.valid()) {
      slid.push_back(i);
      dims.push_back(positions_of(f.loops | f.windows));
    } else {
      points = saturating_mul(points, workload().loop(o.loops[i]).extent);
    }
  }
  const auto own = [&](std::size_t d, const auto& all) { return all[chain_->base(op) + slid[d]]; };
  points = saturating_mul(points, sum_over_tiles(dims, p, cut, {.part = own, .speed = own}));
  each(s.foreign[op] & p.multi, [&](std::size_t i) { n = saturating_mul(n, p.trips[i]); });
  return saturating_mul(n, points);
}

}  // namespace tilewright::chimera::detail
