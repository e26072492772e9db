// What a GIR takes: bytes of its moves by tier, and its syncs.
#include <algorithm>
#include <cmath>

#include "models/powerfusion/cores.h"

namespace tilewright::powerfusion {
namespace {

constexpr double kSector = 32;     // bytes, between L2 and a multiprocessor
constexpr double kAheadTrips = 4;  // of a unit, whose loads are under way together (assumed)
constexpr double kShuffles = 5;    // of a sum over 32 lanes

double product_of(const UnitMap& units, std::initializer_list<Place> places) {
  double n = 1;
  for (const Digit& d : units)
    if (std::ranges::find(places, d.place) != places.end()) n *= static_cast<double>(d.count);
  return n;
}

class GirTally {
 public:
  GirTally(const Gir& g, const Device& d) : g_(g), d_(d) {
    const auto units = static_cast<double>(g.blocks * g.warps);
    const auto most =
        static_cast<double>(d.sms * std::max<std::int64_t>(1, d.threads_per_sm / kLanes));
    resident_ = std::min(units, most);
    waves_ = std::ceil(units / most);
  }

  double seconds() const {
    double sum = 0;
    for (const GOp& op : g_.ops) {
      if (op.kind == GKind::move) sum += moved(op);
      if (op.kind == GKind::sync || op.kind == GKind::reduce) sum += waited(op);
    }
    return sum;
  }

 private:
  const Slice& slice(int s) const { return g_.slices[static_cast<std::size_t>(s)]; }
  const UnitMap& units(const Slice& s) const { return g_.maps[static_cast<std::size_t>(s.units)]; }
  double size(const Slice& s) const {
    return static_cast<double>(size_of(g_.tensors[static_cast<std::size_t>(s.tensor)].dtype));
  }

  double moved(const GOp& op) const {
    const Slice& from = slice(op.in.front());
    const Slice& to = slice(op.out);
    const Tier far = std::max(from.tier, to.tier);
    const Slice& s = far == from.tier ? from : to;
    const double bytes = elements_of(g_, s) * size(s);
    if (far == Tier::shared) return bytes / d_.shared_bytes_per_second;
    if (far != Tier::dram) return 0;
    const SlicePattern p = pattern_of(g_, s);
    const double segment = static_cast<double>(p.width) * size(s);
    const double coalescing = std::min(1.0, segment / (std::ceil(segment / kSector) * kSector));
    const double trips = product_of(units(s), {Place::trip});
    const double under_way = resident_ * static_cast<double>(p.num * p.width * p.times) * size(s) *
                             std::min(trips, kAheadTrips);
    const double needed = d_.dram_bytes_per_second * d_.dram / d_.clock_hz;
    const double parallelism = std::min(1.0, under_way / needed);
    return bytes / (d_.dram_bytes_per_second * coalescing * parallelism);
  }

  double waited(const GOp& op) const {
    // Where every unit does it: once a trip that indexes the result.
    const Slice& s = slice(op.out);
    double times = waves_;
    const UnitMap& map = units(s);
    for (std::size_t i = 0; i < map.size(); ++i)
      if (map[i].place == Place::trip && std::ranges::any_of(s.base, [&](const Base& b) {
            return std::ranges::any_of(
                b.terms, [&](const BaseTerm& t) { return t.digit == static_cast<int>(i); });
          }))
        times *= static_cast<double>(map[i].count);
    const double shuffles = kShuffles * (d_.shuffle + d_.light);
    const double cycles =
        op.scope == Scope::lane   ? 0
        : op.scope == Scope::warp ? (op.kind == GKind::reduce ? shuffles : d_.shuffle)
        : op.scope == Scope::block
            ? d_.barrier + 2 * d_.shared + (op.kind == GKind::reduce ? shuffles : 0)
            : d_.launch;
    return times * cycles / d_.clock_hz;
  }

  const Gir& g_;
  const Device& d_;
  double resident_ = 1, waves_ = 1;
};

}  // namespace

double parallel_seconds(const Gir& g, const Device& d) { return GirTally(g, d).seconds(); }

double gir_seconds(std::span<const Gir> parts, const Device& d, const Options& o, double bytes) {
  const double floor = bytes / d.dram_bytes_per_second;
  double sum = 0;
  if (o.price == PriceBy::parallel)
    for (const Gir& g : parts) sum += is_cores(d) ? cores_seconds(g, d) : parallel_seconds(g, d);
  return 1e-6 * o.launch_us + std::max(floor, sum);
}

double launch_seconds(const Device& d, const Options& o) {
  return o.price == PriceBy::overlap ? d.launch / d.clock_hz : 1e-6 * o.launch_us;
}

double library_seconds(const Graph& g, int vertex, const Device& d, const Options& o) {
  const Workload& w = g.workload();
  const OpId id = g.vertex(vertex).op;
  const double flops = 2.0 * static_cast<double>(w.operations(id).value) *
                       static_cast<double>(w.op(id).outputs.size());
  const Operators one = {vertex};
  const auto bytes = static_cast<double>(stitching::compulsory_of(g, one).value);
  const double launch = launch_seconds(d, o);
  const double arithmetic = d.f32_flops_per_second > 0 ? flops / d.f32_flops_per_second : 0;
  return launch + std::max(arithmetic, bytes / d.dram_bytes_per_second);
}

}  // namespace tilewright::powerfusion
