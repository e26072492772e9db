// Section IV-A's time model, eq. (1)'s shared memory, and section II-A's ratio.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/format.h"
#include "models/mcfuser/detail.h"

namespace tilewright::mcfuser {

using detail::bit;
using detail::has;
using detail::Statement;

namespace detail {

Mask once_at(const Chain& c, std::span<const std::int64_t> tiles) {
  Mask once = 0;
  for (LoopId l : c.dims)
    if (tiles[l.index()] >= c.workload->loop(l).extent) once |= bit(l);
  return once;
}

namespace {
int calls_in(const tilewright::Expr& e) {
  int n = e.kind == tilewright::Expr::Kind::call ? 1 : 0;
  for (const tilewright::Expr& a : e.args) n += calls_in(a);
  return n;
}
}  // namespace

double flops_at_point(const Operator& op, bool product) {
  if (product) return 2;
  double flops = 0;
  for (const Output& o : op.outputs)
    flops += calls_in(o.value) + (o.combine == Combine::assign ? 0 : 1);
  return flops;
}

}  // namespace detail

Result<Device> device_of(const Machine& m, LevelId level, const Workload& w) {
  Device d;
  const auto steps = m.path(m.home(), level);
  TW_CHECK(!steps.empty(), "a level without a path from home");
  const Level& first = m.level(steps.front().second);
  d.bandwidth = first.bandwidth.value * static_cast<double>(first.instances);
  const std::string type(name_of(w.dtype()));
  if (!m.units.empty()) {
    d.units = m.units.front().count;
    const auto peak = m.units.front().peak.find(type);
    if (peak != m.units.front().peak.end()) d.peak = peak->second.value;
  }
  if (d.bandwidth <= 0)
    return Reason{formatted("MCFuser's time model needs a bandwidth: {} gives none into {}", m.name,
                            first.name)};
  if (d.peak <= 0)
    return Reason{
        formatted("MCFuser's time model needs a peak rate: {} gives none for {}", m.name, type)};
  const Bytes reserved(m.kind == "gpu" ? 1024 : 0);  // CUDA C++ Programming Guide: 1 KB a block
  d.shared = m.level(level).capacity - reserved;
  d.element = size_of(w.dtype());
  return d;
}

std::int64_t shared_memory(const Chain& c, const Device&, Shared reading,
                           std::span<const std::int64_t> tiles) {
  const Workload& w = *c.workload;
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    if (reading == Shared::loaded && !w.is_input(TensorId(t))) continue;
    std::int64_t bytes = size_of(w.tensors()[t].dtype);
    for (LoopId l : c.dims)
      if (has(c.tensor_loops[t], l))
        bytes = checked_mul(bytes, tiles[l.index()]).value_or(INT64_MAX);
    sum = checked_add(sum, bytes).value_or(INT64_MAX);
  }
  return sum;
}

// ---- The pricer ---------------------------------------------------------------------------------

namespace {

/// factor * product of tiles * product of trips, both by position in dims.
struct Product {
  double factor = 0;
  std::uint32_t tiles = 0, trips = 0;
};

struct Compiled {
  std::vector<Product> memory, compute;
};

}  // namespace

struct Pricer::Impl {
  Chain chain;
  SubExpression sub;
  Device device;
  Options options;
  double batch = 1;
  std::vector<std::int64_t> extents;             ///< by position in dims
  std::uint32_t bound = 0;                       ///< by position in dims
  std::vector<std::optional<Compiled>> by_once;  ///< by positions of the loops of one trip

  std::uint32_t positions(Mask loops) const {
    std::uint32_t out = 0;
    for (std::size_t i = 0; i < chain.dims.size(); ++i)
      if (has(loops, chain.dims[i])) out |= 1U << i;
    return out;
  }
  Mask loops(std::uint32_t positions) const {
    Mask out = 0;
    for (std::size_t i = 0; i < chain.dims.size(); ++i)
      if ((positions >> i) & 1) out |= bit(chain.dims[i]);
    return out;
  }

  Mask points_of(const Statement& s) const {
    return s.kind == Kind::compute ? chain.op_loops[s.op.index()]
                                   : chain.tensor_loops[s.tensor.index()];
  }
  double weight_of(const Statement& s) const {
    const Workload& w = *chain.workload;
    if (s.kind != Kind::compute) return static_cast<double>(size_of(w.tensor(s.tensor).dtype));
    return detail::flops_at_point(w.op(s.op), detail::is_product(w, s.op));
  }
  /// Loops whose tiles a statement handles together: below it, where it has them.
  Mask trips_of(const Statement& s) const {
    Mask trips = 0;
    for (std::size_t i = 0; i < s.path.size(); ++i)
      if (i < s.depth || has(points_of(s), s.path[i].loop)) trips |= bit(s.path[i].loop);
    return trips;
  }

  const Compiled& compiled(std::uint32_t once) {
    std::optional<Compiled>& slot = by_once[once];
    if (slot) return *slot;
    slot.emplace();
    for (const Statement& s :
         detail::statements_of(chain, sub, loops(once), options.hoist, options.stores)) {
      const Product p{weight_of(s) * batch, positions(points_of(s)), positions(trips_of(s))};
      (s.kind == Kind::compute ? slot->compute : slot->memory).push_back(p);
    }
    return *slot;
  }
};

Pricer::Pricer(const Chain& c, const SubExpression& s, const Device& d, const Options& o)
    : impl_(std::make_unique<Impl>()) {
  impl_->chain = c;
  impl_->sub = s;
  impl_->device = d;
  impl_->options = o;
  for (LoopId l : c.batch) impl_->batch *= static_cast<double>(c.workload->loop(l).extent);
  for (LoopId l : c.dims) impl_->extents.push_back(c.workload->loop(l).extent);
  for (LoopId l : s.bound) impl_->bound |= impl_->positions(bit(l));
  impl_->by_once.resize(std::size_t{1} << c.dims.size());
}
Pricer::~Pricer() = default;
Pricer::Pricer(Pricer&&) noexcept = default;

Quick Pricer::quick(std::span<const std::int64_t> tiles) {
  Impl& p = *impl_;
  const std::size_t n = p.extents.size();
  std::array<double, kMostLoops> tile{}, trips{};
  std::uint32_t once = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t t = tiles[p.chain.dims[i].index()];
    const std::int64_t r = ceil_div(p.extents[i], t);
    tile[i] = static_cast<double>(t);
    trips[i] = static_cast<double>(r);
    if (r == 1) once |= 1U << i;
  }
  const auto sum = [&](const std::vector<Product>& products) {
    double total = 0;
    for (const Product& product : products) {
      double x = product.factor;
      for (std::uint32_t m = product.tiles; m != 0; m &= m - 1)
        x *= tile[static_cast<std::size_t>(std::countr_zero(m))];
      for (std::uint32_t m = product.trips; m != 0; m &= m - 1)
        x *= trips[static_cast<std::size_t>(std::countr_zero(m))];
      total += x;
    }
    return total;
  };
  const Compiled& c = p.compiled(once);
  double blocks = p.batch;
  for (std::size_t i = 0; i < n; ++i)
    if ((p.bound >> i) & 1) blocks *= trips[i];
  Quick q;
  q.memory_seconds = sum(c.memory) / p.device.bandwidth;
  q.compute_seconds = sum(c.compute) / p.device.peak;
  q.blocks = detail::whole(blocks);
  q.slowdown = (blocks + static_cast<double>(p.device.units)) / blocks;
  q.seconds = (q.memory_seconds + q.compute_seconds) * q.slowdown;
  return q;
}

Price Pricer::price(const Tiles& tiles) {
  Impl& p = *impl_;
  Price out;
  out.time = quick(tiles);
  const Mask once = detail::once_at(p.chain, tiles);
  const auto trips = [&](LoopId l) {
    return static_cast<double>(ceil_div(p.chain.workload->loop(l).extent, tiles[l.index()]));
  };
  double bytes = 0;
  for (const Statement& s :
       detail::statements_of(p.chain, p.sub, once, p.options.hoist, p.options.stores)) {
    StatementPrice one{.kind = s.kind,
                       .op = s.op,
                       .tensor = s.tensor,
                       .name = detail::statement_name(*p.chain.workload, s.kind, s.op, s.tensor),
                       .loops = {},
                       .trips = p.batch};
    const Mask points = p.points_of(s);
    const double weight = p.weight_of(s);
    one.amount = s.kind == Kind::compute ? weight : 1;
    double passes = 1;
    for (LoopId l : p.chain.dims)
      if (has(points, l)) one.amount *= static_cast<double>(tiles[l.index()]);
    for (std::size_t i = 0; i < s.path.size(); ++i) {
      if (i < s.depth) {
        one.loops.push_back(s.path[i].loop);
        one.trips *= trips(s.path[i].loop);
        if (!has(points, s.path[i].loop)) passes *= trips(s.path[i].loop);
      } else if (has(points, s.path[i].loop)) {
        one.amount *= trips(s.path[i].loop);
      }
    }
    one.total = one.amount * one.trips * (s.kind == Kind::compute ? 1 : weight);
    if (s.kind == Kind::compute)
      one.points = one.amount / weight;
    else
      one.true_edges =
          passes * static_cast<double>(p.chain.workload->tensor(s.tensor).bytes().value);
    (s.kind == Kind::compute ? out.flops : bytes) += one.total;
    out.statements.push_back(std::move(one));
  }
  out.bytes = Bytes(detail::whole(bytes));
  out.memory = Bytes(shared_memory(p.chain, p.device, p.options.shared, tiles));
  return out;
}

// ---- Section II-A -------------------------------------------------------------------------------

double intensity(double tile_m, double tile_n, double k, Ratio reading) {
  const double output = (reading == Ratio::printed ? 2 : 1) * tile_m * tile_n;
  return 2 * tile_m * tile_n * k / (output + tile_m * k + tile_n * k);
}

std::vector<Intensity> intensities(const Chain& c, const Device& d, Ratio reading,
                                   std::int64_t tile) {
  const Workload& w = *c.workload;
  std::vector<Intensity> out;
  for (OpId p : c.products) {
    const Operator& op = w.op(p);
    const Mask output = c.op_loops[p.index()] & ~c.op_reduced[p.index()];
    const auto extent = [&](Mask loops) {
      double product = 1;
      for (LoopId l : c.dims)
        if (has(loops, l)) product *= static_cast<double>(w.loop(l).extent);
      return product;
    };
    const Mask left = c.tensor_loops[op.inputs.front().tensor.index()] & output;
    const double most = static_cast<double>(tile);
    Intensity one{.op = p};
    one.ratio = intensity(std::min(most, extent(left)), std::min(most, extent(output & ~left)),
                          extent(c.op_reduced[p.index()]), reading);
    one.threshold = d.peak / d.bandwidth * static_cast<double>(d.element);
    one.memory_bound = one.ratio < one.threshold;
    out.push_back(one);
  }
  return out;
}

}  // namespace tilewright::mcfuser
