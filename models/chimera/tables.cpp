// Candidates, factors and subproblems of the solver.
#include "models/chimera/tables.h"

#include <algorithm>
#include <utility>

namespace tilewright::chimera::detail {
std::int64_t least_tile(const Options& o, LoopId loop, std::int64_t extent) {
  const auto own = o.min_tiles.find(loop);
  return std::clamp<std::int64_t>(own != o.min_tiles.end() ? own->second : o.min_tile, 1, extent);
}

std::int64_t multiple_of(const Options& o, LoopId loop) {
  const auto own = o.multiples.find(loop);
  return own != o.multiples.end() ? std::max<std::int64_t>(own->second, 1) : 1;
}

std::vector<Candidate> candidates(std::int64_t extent, std::int64_t min_tile,
                                  std::int64_t multiple) {
  const auto up = [&](std::int64_t tile) {
    return std::min(ceil_div(tile, multiple) * multiple, extent);
  };
  // There are twice the square root of the extent: of millions, those a thousandth apart.
  constexpr std::int64_t kAllOf = std::int64_t{1} << 40;
  std::vector<Candidate> found;
  for (std::int64_t tile = up(min_tile); tile <= extent;) {
    const std::int64_t trips = ceil_div(extent, tile);
    found.push_back({tile, trips});
    if (trips == 1) break;
    const std::int64_t least = extent > kAllOf ? tile + tile / 1024 : 0;
    tile = up(std::max(ceil_div(extent, trips - 1), least));
  }
  return found;
}

Mask left_whole(const Flat& f) {
  Mask whole = 0;
  for (const Foot& foot : f.foots()) {
    if (foot.plain) continue;
    const Mask reduces = f.positions_of(f.chain().reductions_of(foot.op));
    for (Mask loops : f.dimensions(foot)) {
      loops &= ~f.implicit();
      whole |= foot.windows & loops;
      if (std::popcount(loops & ~whole) < 2) continue;
      // Its own reductions are windows too; of the others, the first in the workload stays.
      if ((loops & ~whole & ~reduces) != 0) whole |= loops & reduces;
      const Mask left = loops & ~whole;
      std::size_t first = static_cast<std::size_t>(std::countr_zero(left));
      each(left, [&](std::size_t i) {
        if (f.loop(i) < f.loop(first)) first = i;
      });
      whole |= left & ~bit(first);
    }
  }
  return whole;
}

Point whole_point(const Flat& f) {
  Point p;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const bool one = has(f.implicit(), i);
    set_choice(p, i, one ? Candidate{1, f.extent(i)} : Candidate{f.extent(i), 1});
  }
  return p;
}

void set_choice(Point& p, std::size_t i, const Candidate& c) {
  p.tile[i] = c.tile;
  p.trips[i] = c.trips;
  p.multi = c.trips > 1 ? p.multi | bit(i) : p.multi & ~bit(i);
}

namespace {

void add_plain(const Flat& f, const Foot& foot, std::size_t at, Tables& t) {
  each(foot.accessed, [&](std::size_t i) {
    for (const Candidate& c : t.candidates[i]) t.foot[at][i].push_back(static_cast<double>(c.tile));
    t.exact_base[at] *= static_cast<double>(f.extent(i));
  });
}

/// Dimensions that move with no loop that can be cut make the base.
void add_halo(const Flat& f, const Foot& foot, std::size_t at, Tables& t) {
  const std::vector<Mask> dims = f.dimensions(foot);
  Mask rest = bit(dims.size()) - 1, cuttable = 0;
  for (std::size_t i = 0; i < f.size(); ++i)
    if (t.candidates[i].size() > 1) cuttable |= bit(i);
  const bool exact = f.options().edges == Edges::exact;
  Point p = whole_point(f);
  each((foot.accessed | foot.windows) & cuttable, [&](std::size_t i) {
    Mask mine = 0;
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (has(dims[d], i)) mine |= bit(d);
    rest &= ~mine;
    for (const Candidate& c : t.candidates[i]) {
      set_choice(p, i, c);
      t.foot[at][i].push_back(static_cast<double>(f.footprint_factor(foot, p, ~Mask{0}, mine)));
      if (exact) t.exact[at][i].push_back(static_cast<double>(f.exact_factor(foot, p, mine)));
    }
  });
  t.foot_base[at] = static_cast<double>(f.footprint_factor(foot, p, ~Mask{0}, rest));
  if (exact) t.exact_base[at] = static_cast<double>(f.exact_factor(foot, p, rest));
}

}  // namespace

Tables make_tables(const Flat& f) {
  const std::size_t n = f.size(), feet = f.foots().size();
  const Mask whole = left_whole(f);
  Tables t{.candidates = std::vector<std::vector<Candidate>>(n),
           .trips = std::vector<Factors>(n),
           .foot = std::vector<std::vector<Factors>>(feet, std::vector<Factors>(n)),
           .foot_base = std::vector<double>(feet, 1)};
  t.exact = t.foot;
  t.exact_base = t.foot_base;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t extent = f.extent(i);
    if (has(f.implicit(), i))
      t.candidates[i] = {{1, extent}};
    else if (has(whole, i))
      t.candidates[i] = {{extent, 1}};
    else if (const auto pin = f.options().pinned.find(f.loop(i));
             pin != f.options().pinned.end() && pin->second < extent)
      // The whole loop stands for its being left uncut, which solver.cpp does not try then.
      t.candidates[i] = {{pin->second, ceil_div(extent, pin->second)}, {extent, 1}};
    else
      t.candidates[i] = candidates(extent, least_tile(f.options(), f.loop(i), extent),
                                   multiple_of(f.options(), f.loop(i)));
    for (const Candidate& c : t.candidates[i]) t.trips[i].push_back(static_cast<double>(c.trips));
  }
  for (std::size_t i = 0; i < feet; ++i) {
    const Foot& foot = f.foots()[i];
    if (foot.plain)
      add_plain(f, foot, i, t);
    else
      add_halo(f, foot, i, t);
  }
  return t;
}

namespace {

class Maker {
 public:
  Maker(const Flat& f, const Tables& t, std::span<const std::size_t> rows, Mask multi)
      : f_(f), t_(t), rows_(rows), multi_(multi) {}

  std::vector<std::size_t> open() {
    choose();
    std::vector<std::size_t> positions;
    for (const Free& l : p_.loops) positions.push_back(l.position);
    return positions;
  }
  Problem make(bool relaxed) {
    choose();
    reserve();
    for (const Use& u : f_.uses()) add_use(u);
    relaxed ? add_least_memory() : add_memory();
    return std::move(p_);
  }

 private:
  /// Where a loop's trips multiply nothing and it has no halo, a larger tile is better only if it
  /// pads less at the edge.
  void choose() {
    Mask all_matter = 0;
    for (const Use& u : f_.uses())
      all_matter |= f_.multipliers(u, multi_) & ~f_.foots()[u.foot].accessed;
    for (const Foot& foot : f_.foots())
      if (!foot.plain) all_matter |= foot.accessed | foot.windows;
    for (std::size_t i = 0; i < f_.size(); ++i) {
      if (!has(multi_, i) || t_.candidates[rows_[i]].size() == 1) continue;
      Free loop{i, {}};
      std::int64_t least = 0;
      for (std::size_t c = 0; c + 1 < t_.candidates[rows_[i]].size(); ++c) {  // the last: one trip
        const Candidate& x = t_.candidates[rows_[i]][c];
        const std::int64_t padded =
            f_.options().edges == Edges::exact ? f_.extent(i) : x.tile * x.trips;
        if (!has(all_matter, i) && !loop.choice.empty() && padded >= least) continue;
        least = padded;
        loop.choice.push_back(static_cast<int>(c));
      }
      p_.loops.push_back(std::move(loop));
    }
    std::stable_sort(p_.loops.begin(), p_.loops.end(), [](const Free& a, const Free& b) {
      return a.choice.size() < b.choice.size();
    });
    for (const Free& l : p_.loops) open_ |= bit(l.position);
  }

  /// Room for every product that add_use and add_memory make, in one piece.
  void reserve() {
    std::size_t one = 0;
    for (const Free& l : p_.loops) one += l.choice.size();
    const std::size_t sizes = f_.foots().size();
    p_.volume.reserve(f_.uses().size());
    p_.least.reserve(f_.uses().size());
    p_.sizes.reserve(sizes);
    p_.store = std::make_unique_for_overwrite<double[]>(one * (2 * f_.uses().size() + sizes));
    free_ = p_.store.get();
  }

  template <class F>
  const double* stored(const Free& loop, F&& factor) {
    double* values = std::exchange(free_, free_ + loop.choice.size());
    for (std::size_t c = 0; c < loop.choice.size(); ++c)
      values[c] = factor(static_cast<std::size_t>(loop.choice[c]));
    return values;
  }

  void add_use(const Use& u) {
    const Foot& foot = f_.foots()[u.foot];
    const bool exact = f_.options().edges == Edges::exact;
    const Mask times = f_.multipliers(u, multi_) & ~(exact ? foot.accessed | foot.windows : 0);
    const std::vector<Factors>& factors = exact ? t_.exact[u.foot] : t_.foot[u.foot];
    Product m{u.weight * (exact ? t_.exact_base : t_.foot_base)[u.foot]};
    for (std::size_t i = 0; i < f_.size(); ++i) {
      if (has(open_, i)) continue;
      if (!factors[rows_[i]].empty()) m.base *= factors[rows_[i]].back();
      if (has(times, i) && has(multi_, i)) m.base *= t_.trips[rows_[i]].back();
    }
    Product least = m;
    for (std::size_t j = 0; j < p_.loops.size(); ++j) {
      const Free& loop = p_.loops[j];
      const Factors& own = factors[rows_[loop.position]];
      const bool counts = has(times, loop.position);
      if (own.empty() && !counts) continue;
      m.factor[j] = stored(loop, [&](std::size_t c) {
        return (own.empty() ? 1 : own[c]) * (counts ? t_.trips[rows_[loop.position]][c] : 1);
      });
      std::size_t at = 0;
      double lowest = m.factor[j][0];
      least.factor[j] =
          stored(loop, [&](std::size_t) { return lowest = std::min(lowest, m.factor[j][at++]); });
    }
    p_.volume.push_back(m);
    p_.least.push_back(least);
  }

  /// One tensor's size: with the tiles of `cut`, other loops whole. Several operators may read it:
  /// the largest factor of any (their footprints are equal but for halos).
  std::size_t add_size(std::span<const std::size_t> feet, Mask cut) {
    Product m{0};
    for (std::size_t foot : feet) {
      double base = t_.foot_base[foot];
      for (std::size_t i = 0; i < f_.size(); ++i)
        if (!(has(open_, i) && has(cut, i)) && !t_.foot[foot][rows_[i]].empty())
          base *= t_.foot[foot][rows_[i]].back();
      m.base = std::max(m.base, base);
    }
    for (std::size_t j = 0; j < p_.loops.size(); ++j) {
      const Free& loop = p_.loops[j];
      if (!has(cut, loop.position)) continue;
      const auto factor = [&](std::size_t c) {
        double most = 1;
        for (std::size_t foot : feet)
          if (const Factors& own = t_.foot[foot][rows_[loop.position]]; !own.empty())
            most = std::max(most, own[c]);
        return most;
      };
      if (std::any_of(feet.begin(), feet.end(), [&](std::size_t foot) {
            return !t_.foot[foot][rows_[loop.position]].empty();
          }))
        m.factor[j] = stored(loop, factor);
    }
    p_.sizes.push_back(m);
    return p_.sizes.size() - 1;
  }

  /// An intermediate counts by its producer's tile: a consumer's may have a halo.
  void add_least_memory() {
    std::vector<std::size_t> size;
    for (std::size_t i = 0; i < f_.foots().size(); ++i) {
      const TensorId t = f_.foots()[i].tensor;
      size.push_back(
          add_size({{has(f_.on_chip(), t.index()) ? f_.producer_foot(t) : i}}, ~Mask{0}));
    }
    for (std::size_t op = 0; op < f_.chain().size(); ++op) {
      p_.rows.emplace_back();
      for (std::size_t i : f_.foots_of(op)) p_.rows.back().push_back(size[i]);
    }
  }

  void add_memory() {
    const Memory mode = f_.options().memory;
    if (mode == Memory::paper) {
      for (std::size_t op = 0; op < f_.chain().size(); ++op) {
        p_.rows.emplace_back();
        for (std::size_t i : f_.foots_of(op)) p_.rows.back().push_back(add_size({{i}}, ~Mask{0}));
      }
      return;
    }
    const Structure& s = f_.structure(multi_);
    std::vector<std::vector<std::size_t>> feet(f_.workload().tensors().size());
    for (std::size_t i = 0; i < f_.foots().size(); ++i)
      feet[f_.foots()[i].tensor.index()].push_back(i);
    std::vector<std::size_t> size(feet.size());
    Mask all = 0;
    for (std::size_t t = 0; t < feet.size(); ++t) {
      if (feet[t].empty()) continue;
      all |= bit(t);
      const bool region = has(f_.on_chip(), t);
      if (region) feet[t] = {f_.producer_foot(TensorId(t))};
      size[t] = add_size(feet[t], region ? s.cut[t] : ~Mask{0});
    }
    const auto add_row = [&](Mask tensors) {
      p_.rows.emplace_back();
      each(tensors, [&](std::size_t t) { p_.rows.back().push_back(size[t]); });
    };
    if (mode == Memory::sum) return add_row(all);
    const std::vector<Mask>& alive = mode == Memory::held ? s.held : s.live;
    for (std::size_t i = 0; i < alive.size(); ++i) {  // a part of another needs no row
      bool covered = false;
      for (std::size_t j = 0; j < alive.size() && !covered; ++j)
        covered = j != i && (alive[i] & ~alive[j]) == 0 && (alive[i] != alive[j] || j < i);
      if (!covered) add_row(alive[i]);
    }
  }

  const Flat& f_;
  const Tables& t_;
  std::span<const std::size_t> rows_;
  Mask multi_, open_ = 0;
  double* free_ = nullptr;  ///< of Problem::store
  Problem p_;
};

}  // namespace

Problem make_problem(const Flat& f, const Tables& t, std::span<const std::size_t> rows,
                     Mask multi) {
  return Maker(f, t, rows, multi).make(false);
}

Problem make_relaxed_problem(const Flat& f, const Tables& t, std::span<const std::size_t> rows,
                             Mask multi) {
  return Maker(f, t, rows, multi).make(f.options().memory != Memory::paper);
}

std::vector<std::size_t> free_loops(const Flat& f, const Tables& t,
                                    std::span<const std::size_t> rows, Mask multi) {
  return Maker(f, t, rows, multi).open();
}

std::vector<std::size_t> rows_in(const Flat& base, const Flat& f) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < f.size(); ++i)
    rows.push_back(static_cast<std::size_t>(std::ranges::find(base.loops(), f.loop(i)) -
                                            base.loops().begin()));
  return rows;
}

}  // namespace tilewright::chimera::detail
