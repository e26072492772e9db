// Which thread has which iteration: a block's warps and lanes, shared out to nested loops.
#include <algorithm>
#include <bit>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {
namespace {

bool is_unit(Binding b) { return b == Binding::warp || b == Binding::lane || b == Binding::thread; }

}  // namespace

bool binds_units(const ScheduledKernel& k) {
  return std::ranges::any_of(k.nodes, [](const ScheduleNode& n) {
    return n.kind == NodeKind::loop && is_unit(n.binding);
  });
}

bool Lowering::is_around(NodeId outer, NodeId inner) const {
  for (NodeId n = k_.node(inner).parent; n.valid(); n = k_.node(n).parent)
    if (n == outer) return true;
  return false;
}

/// Whether the node stands in a loop that is bound to the unit.
bool Lowering::below(NodeId node, Binding unit) const {
  for (NodeId n = k_.node(node).parent; n.valid(); n = k_.node(n).parent)
    if (k_.node(n).kind == NodeKind::loop && k_.node(n).binding == unit) return true;
  return false;
}

/// How many units the loops below a node are shared out to: nested ones multiply.
std::int64_t Lowering::units_below(NodeId node, Binding unit) const {
  std::int64_t most = 1;
  for (NodeId c : k_.node(node).children) {
    const ScheduleNode& n = k_.node(c);
    const std::int64_t inner = units_below(c, unit);
    std::int64_t own = 1;
    if (n.kind == NodeKind::loop && n.binding == unit) {
      own = std::min(n.max_trips, std::max<std::int64_t>(1, kLanes / inner));
      // Lanes meet by shuffles, which take powers of two.
      if (unit == Binding::lane)
        own = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(own)));
    }
    most = std::max(most, own * inner);
  }
  return most;
}

void Lowering::shape_block() {
  static_assert(kLanes == kBlockWarps);
  warps_ = std::min(kBlockWarps, units_below(NodeId(0), Binding::warp));
  const int asked = options_.warps > 0 ? options_.warps : k_.launch.warps.value_or(0);
  const std::int64_t most = asked > 0 ? asked : kTripWarps;
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::loop || n.binding != Binding::thread) continue;
    for (Binding other : {Binding::thread, Binding::warp, Binding::lane})
      if (below(NodeId(i), other))
        throw Refused{"loop " + workload_.loop(n.loop).name +
                      " is bound to threads inside a loop that is bound to " +
                      std::string(name_of(other)) + "s"};
    warps_ = std::max(warps_, std::min(most, ceil_div(n.max_trips, kLanes)));
  }
  for (std::size_t i = 0; i < k_.nodes.size(); ++i) {
    const ScheduleNode& n = k_.nodes[i];
    if (n.kind != NodeKind::loop || (n.binding != Binding::warp && n.binding != Binding::lane))
      continue;
    if (below(NodeId(i), Binding::thread) ||
        (n.binding == Binding::warp && below(NodeId(i), Binding::lane)))
      throw Refused{"loop " + workload_.loop(n.loop).name + " is bound to " +
                    std::string(name_of(n.binding)) + "s inside a loop of smaller units"};
  }
}

int Lowering::unit_index(Binding unit, std::int64_t stride, std::int64_t size) {
  const auto key = std::pair{static_cast<int>(unit), std::pair{stride, size}};
  const auto found = unit_indices_.find(key);
  if (found != unit_indices_.end()) return found->second;
  const std::int64_t all = unit == Binding::warp   ? warps_
                           : unit == Binding::lane ? kLanes
                                                   : warps_ * kLanes;
  const std::string base(name_of(unit));
  const std::int64_t count = std::min(size, ceil_div(all, stride));
  const int id =
      add_index({.kind = ProgramIndex::Kind::unit,
                 .text = stride == 1 && size >= all ? base : p_.names.fresh(base + "_part"),
                 .count = count,
                 .node = {},
                 .unit = unit,
                 .stride = stride,
                 .size = size});
  unit_indices_[key] = id;
  return id;
}

/// Which iteration of a grid loop a block has. Loops that share out the same blocks in the same
/// way, before and after a barrier of all of them, have one index.
int Lowering::block_index(NodeId loop) {
  std::vector<std::int64_t> place;
  for (NodeId n = loop; n.valid(); n = k_.node(n).parent) {
    const ScheduleNode& of = k_.node(n);
    const bool part = of.parent.valid() && k_.node(of.parent).kind == NodeKind::pack;
    if (of.kind == NodeKind::loop) {
      place.push_back(of.max_trips);
      place.push_back(blocks_below(k_, n));
    }
    if (part) place.push_back(-1 - of.first_block);
  }
  const auto [at, fresh] = block_indices_.try_emplace(place, -1);
  if (fresh)
    at->second = add_index(
        {.kind = ProgramIndex::Kind::block,
         .text = p_.names.fresh(identifier("b_", workload_.loop(k_.node(loop).loop).name)),
         .count = k_.node(loop).max_trips,
         .node = loop});
  return at->second;
}

/// Gives a loop its indices: iteration i goes to unit i mod size, in turn i / size.
void Lowering::bind(NodeId loop) {
  const ScheduleNode& n = k_.node(loop);
  Facts& facts = facts_[loop.index()];
  const std::string name = workload_.loop(n.loop).name;
  std::int64_t size = 1;
  if (n.binding == Binding::grid) {
    if (n.max_trips > 1) facts.turn = block_index(loop);
    return;
  }
  if (is_unit(n.binding)) {
    const std::int64_t inner = n.binding == Binding::thread ? 1 : units_below(loop, n.binding);
    const std::int64_t all = n.binding == Binding::warp   ? warps_
                             : n.binding == Binding::lane ? kLanes
                                                          : warps_ * kLanes;
    size = ceil_div(all, inner);
    if (all % inner != 0 && n.max_trips > all / inner)
      throw Refused{"loop " + name + " has " + std::to_string(n.max_trips) + " turns of " +
                    std::to_string(inner) + " warps, and a block has " + std::to_string(all)};
    if (below(loop, n.binding)) {
      size = std::min(n.max_trips, std::max<std::int64_t>(1, kLanes / inner));
      if (n.binding == Binding::lane)
        size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
    }
    if (size > 1) facts.unit = unit_index(n.binding, inner, size);
  }
  const std::int64_t turns = ceil_div(n.max_trips, size);
  if (turns > 1)
    facts.turn =
        add_index({.kind = ProgramIndex::Kind::loop,
                   .text = p_.names.fresh(identifier(is_unit(n.binding) ? "j_" : "i_", name)),
                   .count = turns,
                   .node = loop});
}

/// Threads whose numbers differ where neither the key nor the loops around a place tell them apart.
Copies Lowering::copies(const Key& key, const std::vector<NodeId>& around) const {
  std::set<int> present;
  for (const Linear& x : key)
    for (const auto& [id, c] : x.terms)
      if (index(id).kind == ProgramIndex::Kind::unit) present.insert(id);
  for (NodeId l : around) {
    const int unit = facts_[l.index()].unit;
    if (unit >= 0) present.insert(unit);
  }
  std::int64_t lanes = 1, warps = 1;
  Linear lane = number(0), warp = number(0);
  for (int id : present) {
    const ProgramIndex& i = index(id);
    if (i.unit == Binding::thread) return {};
    Linear& first = i.unit == Binding::lane ? lane : warp;
    first = first + i.stride * linear(id);
    (i.unit == Binding::lane ? lanes : warps) *= i.count;
  }
  Copies c;
  if (lanes < kLanes) c.lane = lane;
  if (warps < warps_) c.warp = warp;
  return c;
}

}  // namespace tilewright::lowering
