// What the blocks of several levels cost (section IV-C), and which blocks a tree is.
#include "models/chimera/levels.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/base/error.h"
#include "models/chimera/flat.h"
#include "models/chimera/levels_detail.h"
#include "models/chimera/nest.h"
#include "models/chimera/solver.h"

namespace tilewright::chimera {

using detail::bit;
using detail::Chain;
using detail::each;
using detail::Flat;
using detail::has;
using detail::Mask;

std::string_view name_of(Objective o) { return o == Objective::largest ? "largest" : "sum"; }

std::optional<Objective> objective_from_name(std::string_view name) {
  if (name == "largest") return Objective::largest;
  if (name == "sum") return Objective::sum;
  return std::nullopt;
}

std::vector<LevelId> chip_levels(const Machine& m) {
  std::vector<LevelId> levels;
  for (const auto& [outer, inner] : m.path(m.home(), m.default_level())) levels.push_back(inner);
  return levels;
}

Machine as_scratchpads(const Machine& m, std::span<const LevelId> levels) {
  Machine r = m;
  r.levels = {m.level(m.home())};
  r.plan_level.clear();
  r.npu_core.reset();  // speaks of levels that are not here
  for (LevelId id : levels) {
    Level level = as_scratchpad(m, id).levels[1];
    level.bandwidth = m.level(id).bandwidth;
    level.filled_by = {r.levels.back().name};
    r.levels.push_back(std::move(level));
  }
  check(r, m.name);
  return r;
}

std::vector<double> bandwidths(const Machine& m, std::span<const LevelId> levels) {
  std::vector<double> all;
  for (LevelId id : levels) {
    const Level& l = m.level(id);
    if (l.bandwidth.value <= 0) return std::vector<double>(levels.size(), 1.0);
    all.push_back(l.bandwidth.value * static_cast<double>(l.instances));
  }
  return all;
}

Tiles with_inferred(const Workload& w, Tiles tiles) {
  const Flat f(w, order_loops(w), {});
  detail::check_tiles(f, tiles);
  return detail::tiles_of(f, f.point(tiles));
}

namespace {

/// Where an access of the block begins, and how far it reaches.
Interval reach(const Operator& op, const Affine& index, const Tiles& tiles) {
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, tiles[l.index()]});
  return footprint(op, index, ranges);
}

}  // namespace

Workload block_of(const Workload& w, const Tiles& tiles) {
  WorkloadSpec spec = w.spec();
  for (std::size_t l = 0; l < spec.loops.size(); ++l) spec.loops[l].extent = tiles[l];
  // A tensor is as large as its reads reach together, or as what is written of it; reads of a part
  // start at 0, as no padding is left inside.
  for (std::size_t t = 0; t < spec.tensors.size(); ++t) {
    std::vector<std::int64_t>& shape = spec.tensors[t].shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::vector<Affine*> reads;
      Interval read, written;
      for (Operator& op : spec.operators) {
        for (Access& a : op.inputs) {
          if (a.tensor != TensorId(t)) continue;
          reads.push_back(&a.index[d]);
          read = hull(read, reach(op, a.index[d], tiles));
        }
        for (Output& o : op.outputs)
          if (o.target.tensor == TensorId(t))
            written = hull(written, reach(op, o.target.index[d], tiles));
      }
      const std::int64_t size = written.empty() ? read.size() : written.size();
      // A cut window may read padding alone.
      const bool beside = !reads.empty() && intersect(read, {0, shape[d]}).empty();
      if (size >= shape[d] && !beside) continue;
      shape[d] = std::min(size, shape[d]);
      for (Affine* index : reads) index->offset -= read.lo;
    }
  }
  return Workload::create(std::move(spec));
}

namespace {

/// What an order's price depends on beside the tiles, for every set of loops with several trips.
struct Signature {
  std::vector<Mask> multiplied;  ///< loops that multiply a use, or enclose an operator that lacks them
  std::vector<Mask> alive;       ///< tensors alive beside each operator
  std::vector<Mask> cut;         ///< loops around an intermediate's home point
  std::vector<Mask> conflict;    ///< one where it is illegal
  auto operator<=>(const Signature&) const = default;
};

Signature signature_of(const Workload& w, const Order& order, const Options& options, Mask cuttable) {
  Signature all;
  const Flat f(w, order, options);
  // An inner level may have to move an intermediate that an outer one holds.
  Options home = options;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_intermediate(TensorId(t))) home.spilled.insert(TensorId(t));
  const Flat apart(w, order, home);
  const Mask always = f.loops_at(f.implicit());
  for (Mask multi = cuttable;; multi = (multi - 1) & cuttable) {
    const Mask loops = multi | always, at = f.positions_of(loops);
    for (const detail::Use& u : f.uses())
      all.multiplied.push_back(f.loops_at(f.multipliers(u, at)) & loops);
    for (const detail::Use& u : apart.uses())
      all.multiplied.push_back(apart.loops_at(apart.multipliers(u, at)) & loops);
    const detail::Structure& s = f.structure(at);
    for (Mask m : s.foreign) all.multiplied.push_back(f.loops_at(m) & loops);
    for (Mask m : s.cut) all.cut.push_back(f.loops_at(m) & loops);
    all.alive.insert(all.alive.end(), s.live.begin(), s.live.end());
    all.conflict.push_back(detail::conflicts_of(f.chain(), f.loops(), loops).empty() ? 0 : 1);
    if (multi == 0) break;
  }
  return all;
}

bool within(const std::vector<Mask>& a, const std::vector<Mask>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if ((a[i] & ~b[i]) != 0) return false;
  return true;
}

/// Never dearer, larger or illegal where `b` is not, whatever the tiles.
bool dominates(const Signature& a, const Signature& b) {
  return within(a.multiplied, b.multiplied) && within(a.alive, b.alive) && within(b.cut, a.cut) &&
         within(a.conflict, b.conflict);
}

}  // namespace

Result<std::vector<Order>> distinct_orders(const Workload& w, const Options& options,
                                           bool undominated) {
  const Result<detail::Orders> orders = detail::orders_to_try(w, options);
  if (!orders) return Reason{orders.reason()};
  const Flat f(w, orders->orders.front(), options);
  Mask cuttable = f.loops_at(~f.implicit() & ~detail::left_whole(f) & (bit(f.size()) - 1));
  each(cuttable, [&](std::size_t l) {
    if (w.loop(LoopId(l)).extent == 1) cuttable &= ~bit(l);
  });
  std::map<Signature, std::size_t> classes;
  std::vector<std::pair<const Signature*, const Order*>> kept;
  for (const Order& order : orders->orders) {
    const auto [at, fresh] =
        classes.emplace(signature_of(w, order, options, cuttable), kept.size());
    if (fresh) kept.emplace_back(&at->first, &order);
  }
  std::vector<Order> distinct;
  for (const auto& [signature, order] : kept) {
    const Signature& mine = *signature;
    const bool worse = undominated && std::any_of(kept.begin(), kept.end(), [&](const auto& other) {
                         return other.first != &mine && dominates(*other.first, mine);
                       });
    if (!worse) distinct.push_back(*order);
  }
  return distinct;
}

namespace detail {

Options at_level(const Options& options, const Chain& c, const Nest& nest, std::size_t depth) {
  Options o = options;
  const std::vector<std::int64_t> runs = runs_of(c, nest, depth);
  o.op_weights.assign(runs.begin(), runs.end());
  o.spilled.merge(held_outside(c, nest, depth));
  return o;
}

}  // namespace detail

LevelsPrice price_levels(const Workload& w, const Machine& m, std::span<const LevelTiling> tilings,
                         const LevelsOptions& options) {
  const Chain whole(w);
  const detail::Nest nest = detail::nest_of(whole, tilings);
  std::vector<LevelId> levels;
  for (const LevelTiling& t : tilings) levels.push_back(t.level);
  const std::vector<double> bandwidth = bandwidths(m, levels);
  LevelsPrice all;
  for (std::size_t d = 0; d < tilings.size(); ++d) {
    const LevelTiling& t = tilings[d];
    const Workload block = d == 0 ? w : block_of(w, tilings[d - 1].tiles);
    LevelPrice p{.at = t, .runs = detail::runs_of(whole, nest, d)};
    const Options o = detail::at_level(options.model, whole, nest, d);
    p.price = price(block, t.order, t.tiles, o);
    p.capacity = detail::room(w, m, t.level, options);
    p.cost = static_cast<double>(bytes_of(p.price.volume, w.dtype()).value) / bandwidth[d];
    if (p.price.memory > p.capacity && all.fits) {
      all.fits = false;
      all.reason = m.level(t.level).name + " needs " + std::to_string(p.price.memory.value) +
                   " elements, there are " + std::to_string(p.capacity.value);
    }
    if (const Legality legal = legality(block, t.order, t.tiles); !legal.legal && all.legal) {
      all.legal = false;
      all.reason = m.level(t.level).name + ": " + legal.reason;
    }
    all.largest = std::max(all.largest, p.cost);
    all.sum += p.cost;
    all.levels.push_back(std::move(p));
  }
  return all;
}

namespace detail {

Elements room(const Workload& w, const Machine& m, LevelId level, const LevelsOptions& options) {
  const auto own = options.capacities.find(level);
  if (own != options.capacities.end()) return own->second;
  return Elements(m.level(level).capacity.value / size_of(w.dtype()));
}

bool choose_orders(const Workload& w, const Machine& m, std::vector<LevelTiling>& tilings,
                   const std::vector<Order>& orders, const LevelsOptions& options,
                   std::span<const std::vector<LoopId>> turning) {
  const Chain whole(w);
  for (std::size_t d = 0; d < tilings.size(); ++d) {
    const Workload block = d == 0 ? w : block_of(w, tilings[d - 1].tiles);
    const std::span<const LevelTiling> outer = std::span(tilings).first(d + 1);
    const Options o = at_level(options.model, whole, nest_of(whole, outer), d);
    const Elements most = room(w, m, tilings[d].level, options);
    const Order* best = nullptr;
    std::tuple<bool, std::int64_t, std::int64_t> least;
    for (const Order& order : orders) {
      const Flat f(block, order, o);
      const Point p = f.point(tilings[d].tiles);
      if (!turning.empty()) {
        tilings[d].order = order;
        if (turning_of(whole, nest_of(whole, outer), d) != turning[d]) continue;
      }
      if (!conflicts_of(f.chain(), f.loops(), f.loops_at(p.multi)).empty()) continue;
      std::vector<std::int64_t> df(f.foots().size());
      f.footprints(p, df);
      const std::int64_t memory = f.memory(o.memory, p, df);
      double volume = 0;
      for (const Use& u : f.uses()) volume += u.weight * static_cast<double>(f.movement(u, p, df));
      const std::tuple now(memory > most.value, static_cast<std::int64_t>(std::min(volume, 9e18)),
                           memory);
      if (best != nullptr && now >= least) continue;
      best = &order;
      least = now;
    }
    if (best == nullptr) return false;
    tilings[d].order = *best;
  }
  return true;
}

Tiles grown(const Flat& f, Tiles tiles, std::int64_t capacity, std::span<const LoopId> loops) {
  std::vector<std::int64_t> feet(f.foots().size());
  const auto volume_if_fits = [&](const Tiles& t) {
    const Point p = f.point(t);
    f.footprints(p, feet);
    const bool fits = f.memory(f.options().memory, p, feet) <= capacity &&
                      conflicts_of(f.chain(), f.loops(), f.loops_at(p.multi)).empty();
    double volume = fits ? 0 : INFINITY;
    for (const Use& u : f.uses())
      volume += u.weight * static_cast<double>(f.movement(u, p, feet));
    return volume;
  };
  const double most = volume_if_fits(tiles);
  for (bool larger = true; larger;) {
    larger = false;
    for (LoopId l : loops) {
      const std::int64_t extent = f.workload().loop(l).extent, now = tiles[l.index()];
      if (now >= extent || f.options().pinned.contains(l)) continue;
      tiles[l.index()] = std::min(extent, 2 * now);
      if (volume_if_fits(tiles) <= most)
        larger = true;
      else
        tiles[l.index()] = now;
    }
  }
  return tiles_of(f, f.point(tiles));
}

std::vector<LoopId> turning_of(const Chain& c, const Nest& nest, std::size_t depth) {
  std::vector<LoopId> turning;
  for (const NestItem& n : nest) {
    if (n.item.op >= 0 || n.depth != depth) continue;
    const LoopId l(n.item.loop);
    if (c.batch(l) || c.stand_in(l, n.item.inside) != l) continue;
    if (std::find(turning.begin(), turning.end(), l) == turning.end()) turning.push_back(l);
  }
  return turning;
}

}  // namespace detail

}  // namespace tilewright::chimera
