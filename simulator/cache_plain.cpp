// The engine of plain hierarchies: a level sees only what it is sent, so that whole ranges pass one
// level before the next is asked.
#include <algorithm>
#include <bit>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/ir/error.h"
#include "simulator/cache_engine.h"
#include "simulator/cache_sets.h"

namespace tilewright::cache {

namespace {

using Sets = std::variant<Tags, Rows, Ways, Lists>;

struct PlainLevel {
  Sets sets;
  std::uint64_t limit = 0;  ///< lines from here on need wider tags
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
  const auto made = [&]() -> Sets {
    if (lru && ways <= static_cast<std::int64_t>(Tags::kMaxWays)) {
      if (options.tensors <= Tags::kMaxTensors) return Tags(sets, ways);
      return Rows(sets, ways);
    }
    if (!lru && ways <= Ways::kMaxWays) return Ways(sets, ways, policy, options.seed + number);
    return Lists(sets, ways, !lru);
  };
  PlainLevel level{.sets = made(),
                   .line_shift = std::countr_zero(static_cast<std::uint64_t>(g.line.value)),
                   .draws = policy.kind == Replacement::Kind::random || policy.rare != 0,
                   .ages = policy.kind == Replacement::Kind::ages,
                   .repeats = policy.kind != Replacement::Kind::ages &&
                              policy.kind != Replacement::Kind::bit_plru};
  const auto* tags = std::get_if<Tags>(&level.sets);
  level.limit = tags != nullptr ? tags->limit() : ~std::uint64_t{0};
  level.tally.resize(static_cast<std::size_t>(options.tensors));
  return level;
}

class PlainEngine final : public Engine {
 public:
  PlainEngine(const std::vector<CacheGeometry>& geometry, const CacheOptions& options) {
    for (const CacheGeometry& g : geometry)
      levels_.push_back(make_level(g, options, levels_.size()));
  }

  bool range(std::uint64_t first, std::uint64_t last, bool write, int tensor,
             std::size_t entry) override {
    const int shift = levels_[entry].line_shift;
    const std::uint64_t limit = levels_[0].limit;
    lines(entry, first >> shift, last >> shift, tensor, write);
    return levels_[0].limit != limit;
  }

  void missed(int tensor, std::span<const Miss> misses) override { fetch(0, tensor, misses); }

  void store_around(std::uint64_t, std::uint64_t, int) override {
    TW_CHECK(false, "a store around caches that were made without CacheOptions::general");
  }

  void more_hits(int tensor, std::int64_t n, std::size_t entry) override {
    levels_[entry].tally[static_cast<std::size_t>(tensor)].hits += n;
  }

  bool settled(std::uint64_t address, bool write, int tensor) const override {
    const PlainLevel& l = levels_.front();
    if (!l.ages) return true;
    const auto* ways = std::get_if<Ways>(&l.sets);
    return ways != nullptr && ways->settled(entry_of(address >> l.line_shift, tensor, write));
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
    const auto of = [&]<class S>(S& sets, std::size_t stride) -> Quick {
      const Modulus& set_of = sets.set_of();
      if (!set_of.power_of_two()) return {};
      return {.tags = sets.tags(),
              .meta = sets.meta(),
              .tally = l.tally.data(),
              .mask = set_of.divisor() - 1,
              .stride = static_cast<std::uint32_t>(stride),
              .line_shift = l.line_shift,
              .set_shift = set_of.shift(),
              .settles = !l.ages,
              .run =
                  [](void* of_level, std::uint64_t first, std::size_t n, Miss* misses,
                     std::int64_t times) {
                    S& s = *static_cast<S*>(of_level);
                    if constexpr (std::is_same_v<S, Ways>) return s.run(first, n, misses, times);
                    return s.run(first, n, misses);
                  },
              .sets = &sets,
              .limit = l.limit};
    };
    if (auto* tags = std::get_if<Tags>(&l.sets)) {
      Quick q = of(*tags, tags->stride());
      q.in_order = q.tags != nullptr;
      return q;
    }
    if (auto* ways = std::get_if<Ways>(&l.sets)) return of(*ways, 1);
    return {};
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
    if constexpr (std::is_same_v<S, Ways>) out.states.resize(sets.ordered() ? 0 : out.sets);
    for (std::uint64_t s = 0; s < out.sets; ++s) {
      Entry* to = &out.entries[s * out.ways];
      if constexpr (std::is_same_v<S, Ways>) {
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
      if constexpr (std::is_same_v<S, Ways>)
        sets.assign(s, entries, from.states.empty() ? nullptr : &from.states[s]);
      else
        sets.assign(s, entries);
    }
  }

  static constexpr std::size_t kBatch = 64;

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
    switch (l.sets.index()) {
      case 0:
        return std::get_if<Tags>(&l.sets)->run(first, n, misses);
      case 1:
        return std::get_if<Rows>(&l.sets)->run(first, n, misses);
      case 2:
        return std::get_if<Ways>(&l.sets)->run(first, n, misses);
      default:
        return std::get_if<Lists>(&l.sets)->run(first, n, misses);
    }
  }

  /// A line is too far out for 32-bit tags.
  static void widen(PlainLevel& l) {
    l.limit = ~std::uint64_t{0};
    l.sets = Rows(std::get<Tags>(l.sets));
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
    if (at == 0) {
      const std::uint64_t address = misses.front().line << levels_[0].line_shift;
      for (std::size_t l = levels_.size() - 1; l > 0; --l) prefetch(l, address);
    }
    for (std::size_t i = 0; i < misses.size();) {
      std::size_t end = i + 1;
      while (end < misses.size() && !is_dirty(misses[end - 1].victim) &&
             misses[end].line == misses[end - 1].line + 1)
        ++end;
      const Entry victim = misses[end - 1].victim;
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

  /// The set of a level further out, which may lie far from the processor that simulates.
  void prefetch(std::size_t at, std::uint64_t address) const {
    const PlainLevel& l = levels_[at];
    if (const auto* tags = std::get_if<Tags>(&l.sets)) tags->prefetch(address >> l.line_shift);
  }

  void write_back(std::size_t at, Entry victim) {
    const int tensor = tensor_of(victim);
    ++levels_[at].tally[static_cast<std::size_t>(tensor)].written_bytes;
    if (at + 1 == levels_.size()) return;
    const auto [first, last] = seen_from_outside(at, line_of(victim));
    PlainLevel& outer = levels_[at + 1];
    const bool covers = outer.line_shift <= levels_[at].line_shift;
    for (std::uint64_t line = first; line <= last; ++line) {
      Miss miss;
      const bool found = touch(at + 1, entry_of(line, tensor, true), 1, &miss) == 0;
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

  /// In a tally here, written_bytes counts lines until they are asked for.
  std::vector<PlainLevel> levels_;
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
