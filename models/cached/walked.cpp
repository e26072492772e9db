#include "models/cached/walked.h"

#include <algorithm>

namespace tilewright::cached {

namespace {

/// One LRU level. Where all lines that there are fit, whatever their sets, none ever leaves.
class Held {
 public:
  /// Lines of [first, end) may be asked for.
  Held(const CacheLevel& level, std::int64_t first, std::int64_t end)
      : ways_(static_cast<std::size_t>(level.ways)),
        sets_(static_cast<std::uint64_t>(level.sets)),
        first_(first),
        keeps_all_(end - first <= level.sets * level.ways) {
    if (keeps_all_)
      state_.assign(static_cast<std::size_t>(end - first), 0);
    else
      lines_.assign(static_cast<std::size_t>(level.sets * level.ways), kNone);
  }

  struct Answer {
    bool found = false;
    std::uint64_t victim = kNone;  ///< that had to go; see entry()
  };
  static constexpr std::uint64_t kNone = 0;
  static std::uint64_t entry(std::int64_t line, std::size_t tensor, bool dirty) {
    return static_cast<std::uint64_t>(line) << 16 | static_cast<std::uint64_t>(tensor) << 1 |
           (dirty ? 1 : 0);
  }
  static std::int64_t line_of(std::uint64_t e) { return static_cast<std::int64_t>(e >> 16); }
  static std::size_t tensor_of(std::uint64_t e) { return e >> 1 & 0x7fff; }

  Answer touch(std::int64_t line, std::size_t tensor, bool write) {
    if (keeps_all_) {
      std::uint32_t& state = state_[static_cast<std::size_t>(line - first_)];
      const bool found = state != 0;
      state |= static_cast<std::uint32_t>(tensor << 2 | (write ? 2 : 0) | 1);
      return {.found = found};
    }
    std::uint64_t* const set = &lines_[static_cast<std::uint64_t>(line) % sets_ * ways_];
    const std::uint64_t now = entry(line, tensor, write);
    if (set[0] >> 16 == now >> 16) {
      set[0] |= now;
      return {.found = true};
    }
    std::uint64_t moved = now;
    for (std::size_t w = 0; w < ways_; ++w) {
      std::swap(moved, set[w]);
      if (moved >> 16 == now >> 16) {
        set[0] |= moved;
        return {.found = true};
      }
    }
    return {.victim = moved};
  }

  template <class F>
  void each_dirty(F&& f) const {
    for (const std::uint32_t s : state_)
      if ((s & 2) != 0) f(s >> 2);
    for (const std::uint64_t e : lines_)
      if ((e & 1) != 0) f(tensor_of(e));
  }

 private:
  std::size_t ways_;
  std::uint64_t sets_;
  std::int64_t first_;
  bool keeps_all_;
  std::vector<std::uint32_t> state_ = {};  ///< by line: tensor, whether dirty, whether there
  std::vector<std::uint64_t> lines_ = {};  ///< by set, the newest first
};

class Walk {
 public:
  Walk(const Nest& nest, const std::vector<CacheLevel>& levels)
      : nest_(nest), line_(levels.front().line) {
    std::int64_t first = 0, end = 0;
    for (const AddressMap::Region& r : nest.map().regions()) {
      if (end == 0) first = r.base / line_;
      end = ceil_div(r.end, line_);
    }
    for (const CacheLevel& level : levels) held_.emplace_back(level, first, end);
    counts_.assign(levels.size(),
                   std::vector<LineCount>(nest.schedule().workload->tensors().size()));
  }

  LineCounts run() {
    Path path;
    nest_.begin(path);
    for (const int c : nest_.node(0).children) go(path, c);
    for (std::size_t v = 0; v < held_.size(); ++v)
      held_[v].each_dirty([&](std::size_t tensor) { ++counts_[v][tensor].dirty; });
    return std::move(counts_);
  }

 private:
  void go(Path& path, int at) {
    const NestNode& n = nest_.node(at);
    if (n.kind == NodeKind::compute) {
      if (!nest_.idle(n, path.back().ranges))
        for (const Use& u : n.uses) use(path, n, u);
      return;
    }
    const std::int64_t count =
        n.kind == NodeKind::loop ? nest_.trips_of(at, path.back()) : 1;
    const std::size_t size = path.size();
    for (std::int64_t i = 0; i < count; ++i) {
      nest_.enter(path, at, i);
      for (const int c : n.children) go(path, c);
      path.cut(size);
    }
  }

  void use(const Path& path, const NestNode& n, const Use& u) {
    const Box box = u.reach.box(path.back().ranges);
    if (box.empty()) return;
    const Array& a = nest_.array(u.array);
    const std::size_t tensor = a.tensor.index();
    const auto run = [&](std::int64_t address, std::int64_t bytes) {
      const std::int64_t last = (address + bytes - 1) / line_;
      for (std::int64_t l = address / line_; l <= last; ++l) touch(0, l, tensor, u.write);
    };
    if (a.packed)
      nest_.map().packed_runs(n.kernel, u.tile, path.tiles[static_cast<std::size_t>(u.array)], box,
                              run);
    else
      nest_.map().runs(a.tensor, box, run);
  }

  void touch(std::size_t v, std::int64_t line, std::size_t tensor, bool write) {
    if (v == held_.size()) return;
    ++counts_[v][tensor].touches;
    const Held::Answer answer = held_[v].touch(line, tensor, write);
    if (answer.found) return;
    ++counts_[v][tensor].misses;
    touch(v + 1, line, tensor, false);
    leave(v, answer.victim);
  }

  /// A line that had to go is written back, where it is dirty.
  void leave(std::size_t v, std::uint64_t victim) {
    if ((victim & 1) == 0) return;
    const std::size_t tensor = Held::tensor_of(victim);
    ++counts_[v][tensor].written;
    if (v + 1 == held_.size()) return;
    const Held::Answer answer = held_[v + 1].touch(Held::line_of(victim), tensor, true);
    if (!answer.found) leave(v + 1, answer.victim);
  }

  const Nest& nest_;
  std::int64_t line_;
  std::vector<Held> held_;
  LineCounts counts_;
};

/// About: all iterations as the first ones.
double steps_of(const Nest& nest, Path& path, int at, std::int64_t line) {
  const NestNode& n = nest.node(at);
  const bool loop = n.kind == NodeKind::loop;
  const auto count = static_cast<double>(loop ? nest.trips_of(at, path.back()) : 1);
  const std::size_t size = path.size();
  nest.enter(path, at, 0);
  double steps = kStepsOfCompute;
  for (std::size_t u = 0; u < n.uses.size(); ++u)
    nest.once(path, u, [&](const Use& of, const Piece& p) {
      steps += static_cast<double>(lines(nest.array(of.array), p, line));
      return false;
    });
  for (const int c : n.children) steps += steps_of(nest, path, c, line);
  path.cut(size);
  return count * steps;
}

}  // namespace

std::optional<LineCounts> walked(const Nest& nest, const std::vector<CacheLevel>& levels,
                                 std::int64_t most) {
  Path path;
  nest.begin(path);
  double steps = 0;
  for (const int c : nest.node(0).children)
    steps += steps_of(nest, path, c, levels.front().line);
  if (steps > static_cast<double>(most)) return std::nullopt;
  return Walk(nest, levels).run();
}

}  // namespace tilewright::cached
