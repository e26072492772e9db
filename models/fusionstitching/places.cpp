#include "models/fusionstitching/places.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "models/fusionstitching/part.h"

namespace tilewright::fusionstitching {
namespace {

constexpr double kSteps = 5;  // of a sum over 32 lanes

double power_above(double n) {
  return static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

}  // namespace

Units::Units(const Workload& w, const Node& tree) : w_(w) {
  warps_ = std::clamp<double>(warps_of(tree, start().range), 1, kMostWarps);
}

Place Units::start() const {
  Place start;
  for (const Loop& l : w_.loops()) start.range.push_back(l.extent);
  start.of_loop.assign(w_.loops().size(), 1);
  start.lanes = start.of_loop;
  start.shuffles.assign(w_.loops().size(), 0);
  return start;
}

std::optional<std::size_t> Units::loop_named(const std::string& name) const {
  for (std::size_t l = 0; l < w_.loops().size(); ++l)
    if (w_.loops()[l].name == name) return l;
  return std::nullopt;
}

/// Warps that the loops below a node are shared out to: nested ones multiply.
double Units::warps_of(const Node& n, std::vector<std::int64_t> range) const {
  double most = 1, own = 1;
  if (n.kind == Node::Kind::loop) {
    const auto l = loop_named(n.name);
    if (!l) return 1;
    const std::int64_t step = std::clamp<std::int64_t>(n.step, 1, range[*l]);
    const auto trips = static_cast<double>(ceil_div(range[*l], step));
    if (n.binding == Binding::warp) own = trips;
    if (n.binding == Binding::thread)
      own = ceil_over(std::min<double>(trips, kThreadsOfTrips), kWarp);
    range[*l] = step;
  }
  for (const Node& child : n.children) most = std::max(most, warps_of(child, range));
  return own * most;
}

/// Lanes that the loops below a node are shared out to: nested ones share a warp's.
double Units::lanes_of(const Node& n, std::vector<std::int64_t> range) const {
  double most = 1, own = 1;
  const auto l = n.kind == Node::Kind::loop ? loop_named(n.name) : std::nullopt;
  const std::int64_t step = l ? std::clamp<std::int64_t>(n.step, 1, range[*l]) : 1;
  const std::int64_t trips = l ? ceil_div(range[*l], step) : 1;
  if (l) range[*l] = step;
  for (const Node& child : n.children) most = std::max(most, lanes_of(child, range));
  if (n.binding == Binding::lane)
    own = std::min(power_above(static_cast<double>(trips)), kWarp / most);
  return own * most;
}
Place Units::inside(const Node& n, Place at, bool leaf) const {
  const auto l = loop_named(n.name);
  if (!l) return at;
  const std::int64_t step = std::clamp<std::int64_t>(n.step, 1, at.range[*l]);
  const auto trips = static_cast<double>(ceil_div(at.range[*l], step));
  const auto whole = static_cast<double>(at.range[*l]);
  at.range[*l] = step;
  at.full *= whole / (trips * static_cast<double>(step));  // the last one may have fewer
  double turns = trips, units = 1;
  switch (n.binding) {
    case Binding::grid:
      if (trips > 1) at.blocks |= LoopSet(*l);
      return at;
    case Binding::warp:
      at.warps = std::min(std::max(1.0, at.warps) * trips, warps_);
      at.joined |= LoopSet(*l);
      units = warps_;
      turns = ceil_over(trips, units);
      break;
    case Binding::lane:
      units = kWarp / lanes_of(n.children.front(), at.range);
      at.shuffles[*l] = std::log2(at.along < 0 ? units : std::min(units, power_above(trips)));
      at.lanes[*l] = std::min<double>(trips, units);
      turns = ceil_over(trips, units);
      at.along = static_cast<int>(*l), at.step = step;
      if (at.warps == 0) at.warps = 1;
      break;
    case Binding::thread:
      at.warps = std::min(ceil_over(trips, kWarp), warps_);
      if (at.warps > 1) at.joined |= LoopSet(*l);
      at.lanes[*l] = std::min<double>(trips, kWarp);
      at.shuffles[*l] = kSteps;
      units = kWarp * warps_;
      turns = ceil_over(trips, units);
      at.along = static_cast<int>(*l), at.step = step;
      break;
    default:
      break;
  }
  (leaf ? at.turns : at.repeats) *= turns;
  if (leaf && (turns > 1 || units > 1)) at.passed.emplace_back(*l, turns);
  if (turns > 1) at.full *= trips / (turns * std::min(trips, units));
  at.of_loop[*l] *= turns;
  return at;
}

}  // namespace tilewright::fusionstitching
