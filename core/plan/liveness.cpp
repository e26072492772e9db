// Memory use of a schedule: which buffers are alive together (plan.md, "Memory use").
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/base/format.h"
#include "core/plan/stream.h"

namespace tilewright {

namespace {

/// One content of one buffer instance: from its filling to its last use, in walk time.
struct Life {
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// A unit within a block: its number in each unit-bound loop around it, outermost first, with what
/// the loop is bound to. A unit's own units begin with it.
using UnitPath = std::vector<std::pair<Binding, std::int64_t>>;

/// What one instance of a buffer has held, and holds.
struct InstanceLives {
  std::vector<Life> lives;
  std::optional<Box> tile;  ///< of the last of them, as long as it is there
  /// The block and the unit of the instance.
  std::pair<std::int64_t, UnitPath> unit;
};

class Lives {
 public:
  Lives(const Schedule& s, const ScheduledKernel& k)
      : s_(s),
        k_(k),
        held_(k.buffers.size()),
        last_(k.buffers.size()),
        largest_(k.buffers.size()) {}

  void see(const AccessEvent& e) {
    switch (e.kind) {
      case AccessKind::load:
        ++time_;
        if (touch(e, e.buffer, e.instance, e.tile)) touch_outer(e);
        return;
      case AccessKind::compute:
        ++time_;
        return;
      case AccessKind::store:
        ++time_;
        touch(e, e.buffer, e.instance, e.tile);
        return touch_outer(e);
      case AccessKind::read:
        touch(e, e.buffer, e.instance, e.tile);
        return;
      case AccessKind::drop:
        return drop(held_[e.buffer.index()], e.instance);
      case AccessKind::update:
        if (touch(e, e.buffer, e.instance, e.tile) && !e.initialises) touch_outer(e);
        return;
      default:
        return;
    }
  }

  std::int64_t largest(BufferId b) const { return largest_[b.index()]; }
  const std::map<std::int64_t, InstanceLives>& of(BufferId b) const { return held_[b.index()]; }

 private:
  static void drop(std::map<std::int64_t, InstanceLives>& of, std::int64_t instance) {
    if (instance == kEveryInstance)
      for (auto& [each, held] : of) held.tile.reset();
    else if (const auto found = of.find(instance); found != of.end())
      found->second.tile.reset();
  }
  /// Whether the content is new.
  bool touch(const AccessEvent& e, BufferId b, std::int64_t instance, const Box& tile) {
    auto& [of, held] = last_[b.index()];
    if (held == nullptr || of != instance)
      of = instance, held = &held_[b.index()][instance];  // a map's elements stay where they are
    if (held->tile && *held->tile == tile) {
      held->lives.back().to = time_;
      return false;
    }
    if (!held->tile) held->unit = unit_of_instance(e, b, instance);
    held->tile = tile;
    largest_[b.index()] = std::max(largest_[b.index()], tile.size());
    // Where one content follows another at once, the room is taken all the time.
    if (!held->lives.empty() && held->lives.back().to + 1 == time_)
      held->lives.back().to = time_;
    else
      held->lives.push_back({time_, time_});
    return true;
  }
  /// What is filled from, read back from or stored to an outer buffer uses what that holds.
  void touch_outer(const AccessEvent& e) {
    const BufferId to = k_.buffer(e.buffer).outer;
    if (to.valid()) touch(e, to, e.instances[to.index()], e.tiles[to.index()]);
  }
  /// Its block, and its numbers in the unit-bound loops around the place that has just fixed it.
  std::pair<std::int64_t, UnitPath> unit_of_instance(const AccessEvent& e, BufferId b,
                                                     std::int64_t instance) const {
    const Buffer& buffer = k_.buffer(b);
    const NodeId place = buffer.fixed_at.valid() ? buffer.fixed_at : e.node;
    UnitPath path;
    std::int64_t number = unit_number(instance);
    const std::vector<NodeId> loops = unit_loops(s_, k_, place, buffer.level);
    for (std::size_t i = loops.size(); i-- > 0;) {
      const ScheduleNode& l = k_.node(loops[i]);
      if (l.binding == Binding::grid) continue;
      path.insert(path.begin(), {l.binding, number % l.max_trips});
      number /= l.max_trips;
    }
    const Level& level = s_.machine->level(buffer.level);
    return {level.private_to == Unit::machine ? 0 : e.block, std::move(path)};
  }

  const Schedule& s_;
  const ScheduledKernel& k_;
  std::int64_t time_ = 0;
  std::vector<std::map<std::int64_t, InstanceLives>> held_;    // by buffer, instance
  std::vector<std::pair<std::int64_t, InstanceLives*>> last_;  // by buffer: that was touched
  std::vector<std::int64_t> largest_;                          // by buffer
};

/// Units that share out the iterations of a loop among them, at most: lanes of a warp, warps and
/// threads of a block (CUDA C++ Programming Guide).
std::int64_t units_of(const ScheduleNode& loop) {
  switch (loop.binding) {
    case Binding::warp:
    case Binding::lane:
      return std::min<std::int64_t>(loop.max_trips, 32);
    case Binding::thread:
      return std::min<std::int64_t>(loop.max_trips, 1024);
    default:
      return loop.max_trips;
  }
}

/// By buffer: the loads that fill it and the computes that use it.
struct Places {
  std::vector<NodeId> loads, computes;
};
std::vector<Places> places_of(const ScheduledKernel& k) {
  std::vector<Places> places(k.buffers.size());
  for (std::size_t i = 0; i < k.nodes.size(); ++i) {
    const ScheduleNode& n = k.nodes[i];
    if (n.kind == NodeKind::load) places[n.buffer.index()].loads.emplace_back(i);
    for (const InputUse& use : n.reads)
      if (use.buffer.valid()) places[use.buffer.index()].computes.emplace_back(i);
    for (const OutputUse& use : n.writes) places[use.buffer.index()].computes.emplace_back(i);
  }
  return places;
}

/// How many units a buffer's tile is spread over: the unit loops between the place that fixes it
/// and the computes, to whose units its level is private.
std::int64_t spread(const Schedule& s, const ScheduledKernel& k, BufferId id,
                    const Places& places) {
  std::int64_t most = 1;
  const Buffer& b = k.buffer(id);
  const auto product = [&](NodeId place) {
    std::int64_t n = 1;
    for (NodeId l : unit_loops(s, k, place, b.level))
      if (k.node(l).binding != Binding::grid) n *= units_of(k.node(l));
    return n;
  };
  std::int64_t fixed = 0;
  for (NodeId load : places.loads) fixed = std::max(fixed, product(load));
  if (b.fixed_at.valid()) fixed = product(b.fixed_at);
  if (fixed == 0) return 1;  // fixed at each compute: never spread
  for (NodeId compute : places.computes)
    most = std::max(most, product(compute) / std::max<std::int64_t>(fixed, 1));
  return std::max<std::int64_t>(most, 1);
}

/// Blocks that run at the same time and have tiles of their own in a level shared by all.
std::int64_t running_together(const Schedule& s, const ScheduledKernel& k, const Level& level) {
  if (level.private_to != Unit::machine || k.blocks == 1) return 1;
  std::int64_t units = 1;
  for (const Level& l : s.machine->levels)
    if (l.private_to == Unit::grid) units = std::max(units, l.instances);
  return std::min(k.blocks, units);
}

/// Blocks that wait for one another share a unit's memory where there are more of them than units.
std::int64_t sharing_an_instance(const ScheduledKernel& k, const Level& level) {
  if (!k.co_resident || level.private_to != Unit::grid) return 1;
  return ceil_div(k.blocks, level.instances);
}

/// The largest tile of one block.
std::int64_t largest_of_block(const Buffer& b, std::int64_t tile) {
  std::int64_t most = b.parts.empty() ? tile : 0;
  for (const BlockPart& part : b.parts) {
    std::int64_t elements = 1;
    for (std::int64_t n : part.most) elements *= n;
    most = std::max(most, elements);
  }
  return std::min(most, tile);
}

struct Change {
  std::int64_t time;
  std::int64_t bytes;
};

std::int64_t most_alive(std::vector<Change>& changes) {
  // At equal times a filling comes before a death, which is recorded one tick later.
  std::ranges::sort(changes, {}, &Change::time);
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < changes.size();) {
    const std::int64_t time = changes[i].time;
    for (; i < changes.size() && changes[i].time == time; ++i) now += changes[i].bytes;
    most = std::max(most, now);
  }
  return most;
}

void kernel_memory(const Schedule& s, std::size_t kernel, std::map<LevelId, std::int64_t>& most) {
  const ScheduledKernel& k = s.kernels[kernel];
  Lives lives(s, k);
  walk_representatives(s, static_cast<int>(kernel), [&](const AccessEvent& e) { lives.see(e); });

  // Every unit's own, and its part of what is spread over the units of the one that it belongs to.
  using Unit = std::pair<std::int64_t, UnitPath>;
  std::map<LevelId, std::map<Unit, std::vector<Change>>> changes;
  const std::vector<Places> places = places_of(k);
  for (std::size_t i = 0; i < k.buffers.size(); ++i) {
    const Buffer& b = k.buffers[i];
    const std::int64_t tile = largest_of_block(b, lives.largest(BufferId(i))) * b.copies;
    const std::int64_t own = ceil_div(tile, spread(s, k, BufferId(i), places[i]));
    const std::int64_t bytes = own * size_of(s.workload->tensor(b.tensor).dtype) *
                               running_together(s, k, s.machine->level(b.level));
    for (const auto& [instance, held] : lives.of(BufferId(i))) {
      auto& list = changes[b.level][held.unit];
      for (const Life& life : held.lives) {
        list.push_back({life.from, bytes});
        list.push_back({life.to + 1, -bytes});
      }
    }
  }
  for (const auto& [level, units] : changes)
    for (const auto& [unit, own] : units) {
      std::vector<Change> all = own;
      for (UnitPath outer = unit.second; !outer.empty();) {
        outer.pop_back();
        if (const auto at = units.find({unit.first, outer}); at != units.end())
          all.insert(all.end(), at->second.begin(), at->second.end());
      }
      const Level& l = s.machine->level(level);
      most[level] = std::max(most[level], most_alive(all) * sharing_an_instance(k, l));
    }
}

}  // namespace

std::map<std::string, Bytes> memory_use(const Schedule& s) {
  std::map<LevelId, std::int64_t> most;
  for (std::size_t k = 0; k < s.kernels.size(); ++k) kernel_memory(s, k, most);
  std::map<std::string, Bytes> result;
  for (const auto& [level, bytes] : most) result[s.machine->level(level).name] = Bytes(bytes);
  return result;
}

Bytes touched_bytes(const Workload& w, OpId id, std::span<const Interval> ranges) {
  const Operator& op = w.op(id);
  std::map<TensorId, std::int64_t> touched;
  const auto add = [&](const Access& a) {
    if (is_gather(a)) return;
    std::int64_t& most = touched[a.tensor];
    most = std::max(most, footprint(w, op, a, ranges).size() * size_of(w.tensor(a.tensor).dtype));
  };
  for (const Access& a : op.inputs) add(a);
  for (const Output& o : op.outputs) add(o.target);
  std::int64_t all = 0;
  for (const auto& [tensor, bytes] : touched) all += bytes;
  return Bytes(all);
}

std::optional<Reason> misfit(const Schedule& s) {
  const auto limits = [](const Level& l) {
    return l.managed == Managed::software && l.capacity.value != 0;
  };
  // Where a cache is planned for, no tile need be anywhere else.
  if (std::ranges::none_of(s.kernels, [&](const ScheduledKernel& k) {
        return std::ranges::any_of(
            k.buffers, [&](const Buffer& b) { return limits(s.machine->level(b.level)); });
      }))
    return std::nullopt;
  const auto use = memory_use(s);
  for (const Level& level : s.machine->levels) {
    const auto found = use.find(level.name);
    if (found == use.end() || !limits(level)) continue;
    if (found->second > level.capacity)
      return Reason{formatted("the plan needs {} bytes of {}, which holds {}", found->second.value,
                              level.name, level.capacity.value)};
  }
  return std::nullopt;
}

}  // namespace tilewright
