#include "models/cached/walked.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tilewright::cached {

namespace {

/// One LRU level. Where all lines that there are fit, whatever their sets, none ever leaves.
class Held {
 public:
  /// Of `lines` lines, of which the first one's number is `first`.
  Held(const CacheLevel& level, std::int64_t first, std::int64_t lines)
      : ways_(static_cast<std::uint32_t>(level.ways)),
        sets_(static_cast<std::uint32_t>(level.sets)),
        mask_(std::has_single_bit(sets_) ? sets_ - 1 : 0),
        shift_(static_cast<std::uint32_t>(first % level.sets)),
        keeps_all_(lines <= level.sets * level.ways),
        linked_(!keeps_all_ && level.ways > kMostSearched) {
    held_.assign(static_cast<std::size_t>(keeps_all_ || linked_ ? lines : level.sets * level.ways),
                 kNone);
    if (!linked_) return;
    links_.resize(held_.size());
    ends_.assign(sets_, {});
  }

  static constexpr std::uint32_t kNone = 0xffff'fffe;  ///< as a line that is clean
  struct Answer {
    bool found = false;
    std::uint32_t victim = kNone;  ///< that had to go: its line, and whether it is dirty
  };

  /// `line` from the first one on.
  Answer touch(std::uint32_t line, bool write) {
    const std::uint32_t now = line << 1 | (write ? 1 : 0);
    if (keeps_all_) {
      std::uint32_t& own = held_[line];
      const bool found = own != kNone;
      own = found ? own | now : now;
      return {.found = found};
    }
    const std::uint32_t number = line + shift_;
    const std::size_t of = mask_ != 0 ? number & mask_ : number % sets_;
    if (linked_) return touch_linked(line, now, ends_[of]);
    std::uint32_t* const set = &held_[of * ways_];
    if (set[0] >> 1 == line) {
      set[0] |= now;
      return {.found = true};
    }
    std::uint32_t w = 1;
    while (w < ways_ && set[w] >> 1 != line) ++w;
    const bool found = w < ways_;
    if (!found) --w;
    const std::uint32_t last = set[w];
    for (; w > 0; --w) set[w] = set[w - 1];
    set[0] = found ? last | now : now;
    return {.found = found, .victim = found ? kNone : last};
  }

  template <class F>
  void each_dirty(F&& f) const {
    for (const std::uint32_t e : held_)
      if ((e & 1) != 0) f(e >> 1);
  }

 private:
  static constexpr std::int64_t kMostSearched = 32;  ///< ways that are looked through one by one
  struct Link {
    std::uint32_t newer = kNone, older = kNone;
  };
  struct Ends {
    std::uint32_t newest = kNone, oldest = kNone, lines = 0;
  };

  Answer touch_linked(std::uint32_t line, std::uint32_t now, Ends& set) {
    std::uint32_t& own = held_[line];
    Answer answer{.found = own != kNone};
    if (answer.found) {
      own |= now;
      if (set.newest == line) return answer;
      take_out(line, set);
    } else {
      own = now;
      if (set.lines == ways_) {
        const std::uint32_t oldest = set.oldest;
        take_out(oldest, set);
        answer.victim = std::exchange(held_[oldest], kNone);
      }
    }
    links_[line] = {.newer = kNone, .older = set.newest};
    (set.newest == kNone ? set.oldest : links_[set.newest].newer) = line;
    set.newest = line;
    ++set.lines;
    return answer;
  }

  void take_out(std::uint32_t line, Ends& set) {
    const Link link = links_[line];
    (link.newer == kNone ? set.newest : links_[link.newer].older) = link.older;
    (link.older == kNone ? set.oldest : links_[link.older].newer) = link.newer;
    --set.lines;
  }

  std::uint32_t ways_, sets_, mask_;  ///< mask_ 0: sets_ is no power of two
  std::uint32_t shift_;
  bool keeps_all_, linked_;
  /// Lines of each set, the newest first; keeps_all_, linked_: by line.
  std::vector<std::uint32_t> held_;
  std::vector<Link> links_ = {};  ///< linked_: by line, those of its set that were touched next
  std::vector<Ends> ends_ = {};   ///< linked_: by set
};

class Walk {
 public:
  Walk(const Nest& nest, const std::vector<CacheLevel>& levels, std::int64_t first,
       std::int64_t lines)
      : nest_(nest), line_(levels.front().line), first_(first) {
    for (const CacheLevel& level : levels) held_.emplace_back(level, first, lines);
    counts_.assign(levels.size(),
                   std::vector<LineCount>(nest.schedule().workload->tensors().size()));
    for (const AddressMap::Region& r : nest.map().regions()) regions_.push_back(r);
  }

  LineCounts run() {
    Path path;
    nest_.begin(path);
    for (const int kernel : nest_.node(0).children) go(path, kernel);
    for (std::size_t v = 0; v < held_.size(); ++v)
      held_[v].each_dirty([&](std::uint32_t line) { ++counts_[v][tensor_of(line)].dirty; });
    return std::move(counts_);
  }

 private:
  void go(Path& path, int at) {
    const NestNode& n = nest_.node(at);
    const std::int64_t count = n.kind == NodeKind::loop ? nest_.trips_of(at, path.back()) : 1;
    const std::size_t size = path.size();
    for (std::int64_t i = 0; i < count; ++i) {
      if (i == 0)
        nest_.enter(path, at, 0);
      else
        nest_.move_on(path, i);
      for (const int c : n.children) {
        const NestNode& child = nest_.node(c);
        if (child.kind != NodeKind::compute)
          go(path, c);
        else if (!nest_.idle(child, path.back().ranges))
          for (const Use& u : child.uses) use(path, child, u);
      }
    }
    path.cut(size);
  }

  void use(const Path& path, const NestNode& n, const Use& u) {
    const Box box = u.reach.box(path.back().ranges);
    if (box.empty()) return;
    const Array& a = nest_.array(u.array);
    const std::size_t tensor = a.tensor.index();
    LineCount& count = counts_[0][tensor];
    const auto run = [&](std::int64_t address, std::int64_t bytes) {
      const auto from = static_cast<std::uint32_t>(address / line_ - first_);
      const auto last = static_cast<std::uint32_t>((address + bytes - 1) / line_ - first_);
      count.touches += last - from + 1;
      for (std::uint32_t l = from; l <= last; ++l) {
        const Held::Answer answer = held_[0].touch(l, u.write);
        if (!answer.found) missed(0, l, tensor, answer.victim);
      }
    };
    if (a.packed)
      nest_.map().packed_runs(n.kernel, u.tile, nest_.tile(path, u), box, run);
    else
      nest_.map().runs(a.tensor, box, run);
  }

  void missed(std::size_t v, std::uint32_t line, std::size_t tensor, std::uint32_t victim) {
    ++counts_[v][tensor].misses;
    if (v + 1 < held_.size()) {
      ++counts_[v + 1][tensor].touches;
      const Held::Answer answer = held_[v + 1].touch(line, false);
      if (!answer.found) missed(v + 1, line, tensor, answer.victim);
    }
    leave(v, victim);
  }

  /// A line that had to go is written back, where it is dirty.
  void leave(std::size_t v, std::uint32_t victim) {
    if ((victim & 1) == 0) return;
    ++counts_[v][tensor_of(victim >> 1)].written;
    if (v + 1 == held_.size()) return;
    const Held::Answer answer = held_[v + 1].touch(victim >> 1, true);
    if (!answer.found) leave(v + 1, answer.victim);
  }

  /// No two tensors share a line.
  std::size_t tensor_of(std::uint32_t line) const {
    const std::int64_t address = (line + first_) * line_;
    const auto after = std::ranges::upper_bound(regions_, address, {}, &AddressMap::Region::base);
    return (after - 1)->tensor.index();
  }

  const Nest& nest_;
  std::int64_t line_, first_;
  std::vector<Held> held_;
  std::vector<AddressMap::Region> regions_ = {};
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
  for (const int c : nest.node(0).children) steps += steps_of(nest, path, c, levels.front().line);
  if (steps > static_cast<double>(most)) return std::nullopt;
  const auto regions = nest.map().regions();
  if (regions.empty()) return std::nullopt;
  const std::int64_t line = levels.front().line, first = regions.front().base / line;
  const std::int64_t lines = ceil_div(regions.back().end, line) - first;
  constexpr std::int64_t kMostLines = std::int64_t{1} << 22;
  if (lines > kMostLines) return std::nullopt;
  return Walk(nest, levels, first, lines).run();
}

}  // namespace tilewright::cached
