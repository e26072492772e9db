// Memory use of a schedule: which buffers are alive together (plan.md, "Memory use").
#include <algorithm>
#include <map>
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

struct Current {
  Box tile;
  std::size_t life = 0;
};

/// A unit within a block: its number in each unit-bound loop around it, outermost first, with what
/// the loop is bound to. A unit's own units begin with it.
using UnitPath = std::vector<std::pair<Binding, std::int64_t>>;

class Lives {
 public:
  Lives(const Schedule& s, const ScheduledKernel& k)
      : s_(s),
        k_(k),
        lives_(k.buffers.size()),
        now_(k.buffers.size()),
        largest_(k.buffers.size(), 0),
        paths_(k.buffers.size()) {}

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
        if (e.instance == kEveryInstance)
          now_[e.buffer.index()].clear();
        else
          now_[e.buffer.index()].erase(e.instance);
        return;
      case AccessKind::update:
        if (touch(e, e.buffer, e.instance, e.tile) && !e.initialises) touch_outer(e);
        return;
      default:
        return;
    }
  }

  std::int64_t largest(BufferId b) const { return largest_[b.index()]; }
  const std::map<std::int64_t, std::vector<Life>>& of(BufferId b) const {
    return lives_[b.index()];
  }
  /// The block and the unit of one instance.
  const std::pair<std::int64_t, UnitPath>& unit(BufferId b, std::int64_t instance) const {
    return paths_[b.index()].at(instance);
  }

 private:
  /// Whether the content is new.
  bool touch(const AccessEvent& e, BufferId b, std::int64_t instance, const Box& tile) {
    largest_[b.index()] = std::max(largest_[b.index()], tile.size());
    auto& lives = lives_[b.index()][instance];
    auto [found, is_new] = now_[b.index()].try_emplace(instance);
    if (is_new) paths_[b.index()][instance] = path_of(e, b, instance);
    if (is_new || !(found->second.tile == tile)) {
      found->second = {tile, lives.size()};
      lives.push_back({time_, time_});
      return true;
    }
    lives[found->second.life].to = time_;
    return false;
  }
  /// What is filled from, read back from or stored to an outer buffer uses what that holds.
  void touch_outer(const AccessEvent& e) {
    const BufferId to = k_.buffer(e.buffer).outer;
    if (to.valid()) touch(e, to, e.instances[to.index()], e.tiles[to.index()]);
  }
  /// Its numbers in the unit-bound loops around the place that has just fixed it.
  std::pair<std::int64_t, UnitPath> path_of(const AccessEvent& e, BufferId b,
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
  std::vector<std::map<std::int64_t, std::vector<Life>>> lives_;  // by buffer, instance
  std::vector<std::map<std::int64_t, Current>> now_;
  std::vector<std::int64_t> largest_;
  std::vector<std::map<std::int64_t, std::pair<std::int64_t, UnitPath>>> paths_;
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
    for (const auto& [instance, spans] : lives.of(BufferId(i)))
      for (const Life& life : spans) {
        auto& list = changes[b.level][lives.unit(BufferId(i), instance)];
        list.push_back({life.from, bytes});
        list.push_back({life.to + 1, -bytes});
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

std::optional<Reason> misfit(const Schedule& s) {
  const auto use = memory_use(s);
  for (const Level& level : s.machine->levels) {
    const auto found = use.find(level.name);
    if (found == use.end() || level.managed != Managed::software || level.capacity.value == 0)
      continue;
    if (found->second > level.capacity)
      return Reason{formatted("the plan needs {} bytes of {}, which holds {}", found->second.value,
                              level.name, level.capacity.value)};
  }
  return std::nullopt;
}

}  // namespace tilewright
