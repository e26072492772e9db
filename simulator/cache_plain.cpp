// The engine of plain hierarchies: a level sees only what it is sent, so that whole ranges pass one
// level before the next is asked.
#include <algorithm>
#include <bit>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "simulator/cache_engine.h"
#include "simulator/cache_sets.h"
#include "simulator/cache_walk.h"

namespace tilewright::cache {

namespace {

using Sets = std::variant<Tags, Rows, Ways, WideWays, Lists>;

template <class S>
constexpr bool kKeepsWays = std::is_same_v<S, Ways> || std::is_same_v<S, WideWays>;

constexpr int kMostTensors = static_cast<int>(kMeta >> 1);

struct PlainLevel {
  Sets sets;
  // Of `sets`, so that asking them takes one call.
  void* at = nullptr;
  RunSets run = nullptr;
  TouchSets touch = nullptr;  ///< none: run() does it
  std::uint64_t limit = 0;    ///< lines from here on need wider words
  int line_shift = 6;
  bool draws = false;             ///< what is to come depends on more than what is held
  bool ages = false;              ///< a second touch may change more than a count
  bool repeats = true;            ///< see Engine::repeats
  std::vector<Tally> tally = {};  ///< by tensor
};

PlainLevel make_level(const CacheGeometry& g, const CacheOptions& options, std::uint64_t number) {
  const std::int64_t lines = g.capacity.value / g.line.value;
  const std::int64_t ways = g.ways == 0 ? lines : g.ways;
  const auto sets = static_cast<std::uint64_t>(lines / ways);
  const Replacement policy = *replacement_from_name(g.policy);
  const bool lru = policy.kind == Replacement::Kind::lru;
  const bool narrow = options.tensors <= Tags::kMaxTensors;
  const auto made = [&]() -> Sets {
    if (lru && ways <= static_cast<std::int64_t>(Tags::kMaxWays)) {
      if (narrow) return Tags(sets, ways, options.tensors);
      return Rows(sets, ways);
    }
    if (lru || ways > Ways::kMaxWays) return Lists(sets, ways, !lru);
    const int tensors = narrow ? options.tensors : kMostTensors;
    const std::uint64_t seed = options.seed + number;
    if (narrow) return Ways(sets, ways, policy, {tensors, seed});
    return WideWays(sets, ways, policy, {tensors, seed});
  };
  PlainLevel level{.sets = made(),
                   .line_shift = std::countr_zero(static_cast<std::uint64_t>(g.line.value)),
                   .draws = policy.kind == Replacement::Kind::random || policy.rare != 0,
                   .ages = policy.kind == Replacement::Kind::ages,
                   .repeats = policy.kind != Replacement::Kind::ages &&
                              policy.kind != Replacement::Kind::bit_plru};
  level.tally.resize(static_cast<std::size_t>(options.tensors));
  return level;
}

/// Lets a level's pointers point to its sets, which stay where they are from now on.
void bind(PlainLevel& l) {
  std::visit(
      [&l]<class S>(S& sets) {
        l.at = &sets;
        l.run = sets.runner();
        l.limit = ~std::uint64_t{0};
        l.touch = nullptr;
        if constexpr (std::is_same_v<S, Tags> || kKeepsWays<S>) l.touch = sets.toucher();
        if constexpr (std::is_same_v<S, Tags> || std::is_same_v<S, Ways>) l.limit = sets.limit();
      },
      l.sets);
}

/// Where a set's front lies is one shift of an address.
void add_fronts(Quick& q, int line_shift, std::uint64_t sets, Front* fronts) {
  constexpr int kBytes = std::countr_zero(sizeof(Front)), kLongestLine = 31;
  constexpr std::uint64_t kMostFronts = std::uint64_t{1} << 24;
  if (fronts == nullptr || !std::has_single_bit(sets) || sets > kMostFronts ||
      line_shift < kBytes || line_shift > kLongestLine)
    return;
  q.fronts = fronts;
  q.rows = static_cast<std::uint32_t>((sets - 1) << kBytes);
  q.row_shift = line_shift - kBytes;
}

class PlainEngine final : public Engine {
 public:
  PlainEngine(const std::vector<CacheGeometry>& geometry, const CacheOptions& options) {
    for (const CacheGeometry& g : geometry)
      levels_.push_back(make_level(g, options, levels_.size()));
    for (PlainLevel& l : levels_) bind(l);
    std::visit(
        [this]<class S>(S& sets) {
          if constexpr (std::is_same_v<S, Tags> || kKeepsWays<S>)
            sets.keep_fronts(levels_.front().line_shift);
        },
        levels_.front().sets);
    find_ways();
  }

  bool range(std::uint64_t first, std::uint64_t last, bool write, int tensor,
             std::size_t entry) override {
    const int shift = levels_[entry].line_shift;
    const int renewed = renewed_;
    if (entry == 0 && blame_ == nullptr && walks_ != nullptr && (last >> shift) < limit()) {
      walk(first >> shift, last >> shift, tensor, write);
    } else {
      settle();
      lines(entry, first >> shift, last >> shift, tensor, write);
    }
    return renewed_ != renewed;
  }

  /// A miss on its own waits for others: a set that lies far from the processor that simulates has
  /// time to come closer.
  void missed(int tensor, std::span<const Miss> misses) override {
    const Miss& first = misses.front();
    const std::uint64_t address = first.line << levels_[0].line_shift;
    for (const Far& f : far_) f.prefetch(f.sets, address >> f.line_shift);
    if (misses.size() > 1) {
      settle();
      return fetch(0, tensor, misses);
    }
    walk_.missed(entry_of(first.line, tensor, false), first.victim, levels_[0].tally.data());
    if (walk_.many()) settle();
  }

  void settle() override {
    const std::size_t at = walk_.outer != nullptr ? 1 : 0;
    for (std::size_t i = 0; i < walk_.asked; ++i) {
      const Entry e = walk_.asks[i];
      const Miss miss{line_of(e), kEmpty};
      if (is_dirty(e))
        put(at + 1, e);
      else
        fetch(at, tensor_of(e), {&miss, 1});
    }
    walk_.asked = 0;
  }

  void store_around(std::uint64_t, std::uint64_t, int) override {
    TW_CHECK(false, "a store around caches that were made without CacheOptions::general");
  }

  void more_hits(int tensor, std::int64_t n, std::size_t entry) override {
    levels_[entry].tally[static_cast<std::size_t>(tensor)].hits += n;
  }

  bool settled(std::uint64_t address, bool write, int tensor) const override {
    const PlainLevel& l = levels_.front();
    if (!l.ages) return true;
    const Entry now = entry_of(address >> l.line_shift, tensor, write);
    if (const auto* ways = std::get_if<Ways>(&l.sets)) return ways->settled(now);
    const auto* wide = std::get_if<WideWays>(&l.sets);
    return wide != nullptr && wide->settled(now);
  }
  bool always_settled(std::size_t level) const override { return !levels_[level].ages; }

  std::int64_t innermost_misses() const override {
    std::int64_t sum = 0;
    for (const Tally& t : levels_.front().tally) sum += t.misses;
    return sum;
  }
  bool repeats() const override { return levels_.front().repeats; }

  void on_core(int) override {}

  Quick quick() override {
    if (blame_ != nullptr) return {};
    PlainLevel& l = levels_.front();
    Quick q{.tally = l.tally.data(),
            .in_line = static_cast<std::uint32_t>((std::uint64_t{1} << l.line_shift) - 1),
            .settles = !l.ages,
            .walk = walks_,
            .through = &walk_,
            .run = l.run,
            .sets = l.at,
            .limit = limit()};
    std::visit(
        [&]<class S>(S& sets) {
          if constexpr (std::is_same_v<S, Tags> || kKeepsWays<S>)
            add_fronts(q, l.line_shift, sets.sets(), sets.fronts());
          if constexpr (std::is_same_v<S, Tags>)
            if (q.fronts != nullptr) sets.add_words(q, l.line_shift);
        },
        l.sets);
    return q;
  }

  std::vector<Tally> tallies(std::size_t level) const override {
    const PlainLevel& l = levels_[level];
    std::vector<Tally> all = l.tally;
    for (Tally& t : all) {
      t.read_bytes = t.misses << l.line_shift;
      t.written_bytes <<= l.line_shift;
    }
    return all;
  }

  std::vector<std::int64_t> resident_dirty(std::size_t level) const override {
    const PlainLevel& l = levels_[level];
    std::vector<std::int64_t> bytes(l.tally.size(), 0);
    each(level, [&](std::uint64_t, Entry e) {
      if (is_dirty(e)) bytes[static_cast<std::size_t>(tensor_of(e))] += 1 << l.line_shift;
    });
    return bytes;
  }

  std::vector<std::int64_t> held(std::size_t level) const override {
    std::vector<std::int64_t> lines(levels_[level].tally.size(), 0);
    each(level, [&](std::uint64_t, Entry e) { ++lines[static_cast<std::size_t>(tensor_of(e))]; });
    return lines;
  }

  std::vector<std::vector<CacheLine>> contents(std::size_t level, int) const override {
    std::vector<std::vector<CacheLine>> all(
        std::visit([](const auto& sets) { return sets.sets(); }, levels_[level].sets));
    each(level, [&](std::uint64_t set, Entry e) {
      all[set].push_back({.line = static_cast<std::int64_t>(line_of(e)),
                          .tensor = tensor_of(e),
                          .dirty = is_dirty(e)});
    });
    return all;
  }

  DramCount dram() const override { return {}; }

  bool has_image() const override {
    return blame_ == nullptr && std::none_of(levels_.begin(), levels_.end(),
                                             [](const PlainLevel& l) { return l.draws; });
  }

  void image(Image& out) const override {
    out.levels.resize(levels_.size());
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      std::visit([&](const auto& sets) { copy(sets, out.levels[i]); }, levels_[i].sets);
      out.levels[i].line_shift = levels_[i].line_shift;
      out.levels[i].tally = levels_[i].tally;
    }
  }

  void assign(const Image& image) override {
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      PlainLevel& l = levels_[i];
      const LevelImage& from = image.levels[i];
      for (const Entry e : from.entries)
        if (e != kEmpty && line_of(e) >= l.limit) {
          widen(l);
          break;
        }
      std::visit([&](auto& sets) { put(from, sets); }, l.sets);
      std::copy(from.tally.begin(), from.tally.end(), l.tally.begin());
    }
  }

 private:
  template <class S>
  static void copy(const S& sets, LevelImage& out) {
    out.sets = sets.sets();
    out.ways = sets.ways();
    out.entries.resize(out.sets * out.ways);
    if constexpr (kKeepsWays<S>) out.states.resize(sets.ordered() ? 0 : out.sets);
    for (std::uint64_t s = 0; s < out.sets; ++s) {
      Entry* to = &out.entries[s * out.ways];
      if constexpr (kKeepsWays<S>) {
        sets.copy(s, to, out.states.empty() ? nullptr : &out.states[s]);
      } else {
        Entry* const end = to + out.ways;
        sets.each(s, [&](Entry e) { *to++ = e; });
        std::fill(to, end, kEmpty);
      }
    }
  }

  template <class S>
  static void put(const LevelImage& from, S& sets) {
    if constexpr (std::is_same_v<S, Lists>) sets.clear();
    for (std::uint64_t s = 0; s < from.sets; ++s) {
      const Entry* const entries = &from.entries[s * from.ways];
      if constexpr (kKeepsWays<S>)
        sets.assign(s, entries, from.states.empty() ? nullptr : &from.states[s]);
      else
        sets.assign(s, entries);
    }
  }

  static constexpr std::size_t kBatch = 64;

  /// Lines from here on need wider words, in a level that quick() has touched.
  std::uint64_t limit() const {
    const std::uint64_t inner = levels_.front().limit;
    return walk_.outer != nullptr ? std::min(inner, walk_.outer->limit()) : inner;
  }

  void walk(std::uint64_t first, std::uint64_t last, int tensor, bool write) {
    for (std::uint64_t line = first; line <= last; line += Quick::kMost) {
      const std::size_t n = std::min<std::uint64_t>(Quick::kMost, last - line + 1);
      walks_(walk_, entry_of(line, tensor, write), n, static_cast<std::int64_t>(n));
    }
  }

  template <class F>
  void each(std::size_t level, F&& f) const {
    std::visit(
        [&](const auto& sets) {
          for (std::uint64_t s = 0; s < sets.sets(); ++s) sets.each(s, [&](Entry e) { f(s, e); });
        },
        levels_[level].sets);
  }

  std::size_t touch(std::size_t at, Entry first, std::size_t n, Miss* misses) {
    PlainLevel& l = levels_[at];
    if (line_of(first) + n > l.limit) widen(l);
    return l.run(l.at, first, n, misses, 1);
  }

  /// The same of one line, at a level that lies within another one.
  Answer touch_one(std::size_t at, Entry now) {
    PlainLevel& l = levels_[at];
    if (line_of(now) >= l.limit) widen(l);
    if (l.touch != nullptr) return l.touch(l.at, now);
    Miss miss;
    if (l.run(l.at, now, 1, &miss, 1) == 0) return {};
    return {.victim = miss.victim, .missed = true};
  }

  /// A line is too far out for narrow words.
  void widen(PlainLevel& l) {
    if (const auto* tags = std::get_if<Tags>(&l.sets))
      l.sets = Rows(*tags);
    else
      l.sets = widened(std::get<Ways>(l.sets));
    bind(l);
    find_ways();
    ++renewed_;
  }

  /// Touches lines [first, last] of a level for whoever asks.
  void lines(std::size_t at, std::uint64_t first, std::uint64_t last, int tensor, bool write) {
    Miss misses[kBatch];
    Tally& tally = levels_[at].tally[static_cast<std::size_t>(tensor)];
    for (std::uint64_t line = first; line <= last; line += kBatch) {
      const std::size_t n = std::min<std::uint64_t>(kBatch, last - line + 1);
      const std::size_t missed = touch(at, entry_of(line, tensor, write), n, misses);
      tally.misses += static_cast<std::int64_t>(missed);
      tally.hits += static_cast<std::int64_t>(n - missed);
      if (blame_ != nullptr) tell(at, line, n, tensor, {misses, missed});
      if (missed != 0) fetch(at, tensor, {misses, missed});
    }
  }

  void tell(std::size_t at, std::uint64_t line, std::size_t n, int tensor,
            std::span<const Miss> misses) {
    for (const std::uint64_t end = line + n; line < end; ++line) {
      const bool missed = !misses.empty() && misses.front().line == line;
      blame_->touched(at, line, line, tensor, missed);
      if (!missed) continue;
      if (misses.front().victim != kEmpty)
        blame_->evicted(at, tensor, tensor_of(misses.front().victim));
      misses = misses.subspan(1);
    }
  }

  /// One after the other: asks the next level for a line, then hands it what had to go. Lines in a
  /// row between which nothing goes out are asked for together.
  void fetch(std::size_t at, int tensor, std::span<const Miss> misses) {
    if (at + 1 == levels_.size()) {
      for (const Miss& m : misses)
        if (is_dirty(m.victim))
          ++levels_[at].tally[static_cast<std::size_t>(tensor_of(m.victim))].written_bytes;
      return;
    }
    for (std::size_t i = 0; i < misses.size();) {
      std::size_t end = i + 1;
      while (end < misses.size() && !is_dirty(misses[end - 1].victim) &&
             misses[end].line == misses[end - 1].line + 1)
        ++end;
      const Entry victim = misses[end - 1].victim;
      if (end == i + 1 && levels_[at + 1].line_shift >= levels_[at].line_shift &&
          blame_ == nullptr) {
        ask(at + 1, seen_from_outside(at, misses[i].line).first, tensor);
        if (is_dirty(victim)) write_back(at, victim);
        i = end;
        continue;
      }
      const std::uint64_t first = seen_from_outside(at, misses[i].line).first;
      const std::uint64_t last = seen_from_outside(at, misses[end - 1].line).second;
      if (levels_[at + 1].line_shift <= levels_[at].line_shift)
        lines(at + 1, first, last, tensor, false);
      else  // longer lines there: each asks on its own, neighbours for the same one
        for (std::size_t k = i; k < end; ++k) {
          const std::uint64_t line = seen_from_outside(at, misses[k].line).first;
          lines(at + 1, line, line, tensor, false);
        }
      if (is_dirty(victim)) write_back(at, victim);
      i = end;
    }
  }

  /// Asks for one line from a level that lies within another one.
  void ask(std::size_t at, std::uint64_t line, int tensor) {
    const Answer answer = touch_one(at, entry_of(line, tensor, false));
    PlainLevel& l = levels_[at];
    Tally& tally = l.tally[static_cast<std::size_t>(tensor)];
    tally.misses += answer.missed ? 1 : 0;
    tally.hits += answer.missed ? 0 : 1;
    if (at + 1 < levels_.size()) {
      if (!answer.missed) return;
      if (levels_[at + 1].line_shift >= l.line_shift) {
        ask(at + 1, seen_from_outside(at, line).first, tensor);
      } else {
        const auto [first, last] = seen_from_outside(at, line);
        lines(at + 1, first, last, tensor, false);
      }
    }
    if (is_dirty(answer.victim)) write_back(at, answer.victim);
  }

  void write_back(std::size_t at, Entry victim) {
    ++levels_[at].tally[static_cast<std::size_t>(tensor_of(victim))].written_bytes;
    put(at + 1, victim);
  }

  /// Hands a level what the one within it had to write back.
  void put(std::size_t to, Entry victim) {
    if (to == levels_.size()) return;
    const std::size_t at = to - 1;
    const int tensor = tensor_of(victim);
    const auto [first, last] = seen_from_outside(at, line_of(victim));
    PlainLevel& outer = levels_[at + 1];
    const bool covers = outer.line_shift <= levels_[at].line_shift;
    for (std::uint64_t line = first; line <= last; ++line) {
      const Answer answer = touch_one(at + 1, entry_of(line, tensor, true));
      const bool found = !answer.missed;
      const Miss miss{line, answer.victim};
      if (blame_ != nullptr) {
        if (found || covers)
          blame_->put(at + 1, line);
        else
          blame_->touched(at + 1, line, line, tensor, true);
        if (!found && miss.victim != kEmpty)
          blame_->evicted(at + 1, tensor, tensor_of(miss.victim));
      }
      if (found) continue;
      if (!covers) {
        ++outer.tally[static_cast<std::size_t>(tensor)].misses;
        fetch(at + 1, tensor, {&miss, 1});
      } else if (is_dirty(miss.victim)) {
        write_back(at + 1, miss.victim);
      }
    }
  }

  /// A line of one level as lines [first, last] of the next.
  std::pair<std::uint64_t, std::uint64_t> seen_from_outside(std::size_t at,
                                                            std::uint64_t line) const {
    const int by = levels_[at + 1].line_shift - levels_[at].line_shift;
    if (by >= 0) return {line >> by, line >> by};
    return {line << -by, (line << -by) + (std::uint64_t{1} << -by) - 1};
  }

  /// An outer level whose sets do not fit into the caches nearest to the processor that simulates.
  struct Far {
    const void* sets;
    int line_shift;
    void (*prefetch)(const void* sets, std::uint64_t line);
  };
  static constexpr std::size_t kNear = std::size_t{1} << 12;  ///< sets

  /// How levels are asked, now that they keep their sets as they do.
  void find_ways() {
    walk_.engine = this;
    Tags* const inner = std::get_if<Tags>(&levels_[0].sets);
    Tags* const outer = tags_within(1, 0);
    walk_.inner = inner;
    walk_.outer = inner != nullptr ? outer : nullptr;
    walk_.inner_tally = levels_[0].tally.data();
    walk_.outer_tally = walk_.outer != nullptr ? levels_[1].tally.data() : nullptr;
    walk_.beyond = tags_within(walk_.outer != nullptr ? 2 : 1, 0);
    walks_ = inner != nullptr ? inner->walker(walk_.outer) : nullptr;
    far_.clear();
    for (std::size_t i = 1; i < levels_.size(); ++i)
      std::visit(
          [&]<class S>(const S& sets) {
            if constexpr (std::is_same_v<S, Tags> || kKeepsWays<S>)
              if (sets.sets() > kNear)
                far_.push_back(
                    {&sets, levels_[i].line_shift, [](const void* of, std::uint64_t line) {
                       static_cast<const S*>(of)->prefetch(line);
                     }});
          },
          levels_[i].sets);
  }

  /// A level's sets in order of use, if its lines are as long as another one's.
  Tags* tags_within(std::size_t at, std::size_t other) {
    if (at >= levels_.size() || levels_[at].line_shift != levels_[other].line_shift) return nullptr;
    return std::get_if<Tags>(&levels_[at].sets);
  }

  /// In a tally here, written_bytes counts lines until they are asked for.
  std::vector<PlainLevel> levels_;
  std::vector<Far> far_;
  Walk walk_;
  WalkSets walks_ = nullptr;  ///< none: the innermost level keeps its sets in another way
  int renewed_ = 0;           ///< how often quick() became another
};

}  // namespace

bool is_plain(const std::vector<CacheGeometry>& levels, const CacheOptions& options) {
  return options.cores == 1 && options.dram.row_bytes == 0 && !options.general &&
         std::all_of(levels.begin(), levels.end(), [](const CacheGeometry& g) {
           return g.behaviour.plain() && (g.sector == Bytes(0) || g.sector == g.line);
         });
}

std::unique_ptr<Engine> plain_engine(const std::vector<CacheGeometry>& levels,
                                     const CacheOptions& options) {
  return std::make_unique<PlainEngine>(levels, options);
}

}  // namespace tilewright::cache
