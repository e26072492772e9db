#include "simulator/cache.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "core/ir/error.h"
#include "simulator/cache_sets.h"

namespace tilewright {

using cache::Entry;
using cache::entry_of;
using cache::Miss;

namespace {

/// In lines; bytes are made when asked for.
struct Tally {
  std::int64_t hits = 0, misses = 0, written = 0;
};

struct CacheLevel {
  std::variant<cache::Rows, cache::Lists> sets;
  int line_shift = 6;
  std::vector<Tally> tally;  // by tensor
};

std::variant<cache::Rows, cache::Lists> make_sets(const CacheGeometry& g) {
  const std::int64_t lines = g.capacity.value / g.line.value;
  const std::int64_t ways = g.ways == 0 ? lines : g.ways;
  const auto sets = static_cast<std::uint64_t>(lines / ways);
  if (ways <= static_cast<std::int64_t>(cache::Rows::kMaxWays)) return cache::Rows(sets, ways);
  return cache::Lists(sets, ways);
}

void check_geometry(const CacheGeometry& g) {
  const auto bad = [&](const char* field, std::int64_t value, const char* accepted) {
    throw InputError({.field = "cache " + g.name + " " + field,
                      .value = std::to_string(value),
                      .problem = "is not accepted",
                      .accepted = accepted});
  };
  if (g.line.value <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(g.line.value)))
    bad("line", g.line.value, "a power of two");
  if (g.ways < 0) bad("ways", g.ways, "0 (fully associative) or more");
  const std::int64_t row = checked_mul(g.line.value, std::max<std::int64_t>(g.ways, 1)).value_or(0);
  if (row == 0 || g.capacity.value <= 0 || g.capacity.value % row != 0)
    bad("capacity", g.capacity.value, "a positive multiple of line * ways");
  if (g.capacity.value / g.line.value > std::int64_t{1} << 31)
    bad("capacity", g.capacity.value, "at most 2^31 lines");
}

}  // namespace

class CacheHierarchy::Impl {
 public:
  Impl(const std::vector<CacheGeometry>& geometry, int tensors) {
    for (const CacheGeometry& g : geometry)
      levels_.push_back({.sets = make_sets(g),
                         .line_shift = std::countr_zero(static_cast<std::uint64_t>(g.line.value)),
                         .tally = std::vector<Tally>(static_cast<std::size_t>(tensors))});
  }

  const CacheLevel& level(std::size_t i) const { return levels_[i]; }
  CacheLevel& level(std::size_t i) { return levels_[i]; }

  /// Touches lines [first, last] of a level for whoever asks.
  void lines(std::size_t at, std::uint64_t first, std::uint64_t last, int tensor, bool write) {
    Miss misses[kBatch];
    Tally& tally = levels_[at].tally[static_cast<std::size_t>(tensor)];
    for (std::uint64_t line = first; line <= last; line += kBatch) {
      const std::size_t n = std::min<std::uint64_t>(kBatch, last - line + 1);
      const std::size_t missed = touch(at, entry_of(line, tensor, write), n, misses);
      tally.misses += static_cast<std::int64_t>(missed);
      tally.hits += static_cast<std::int64_t>(n - missed);
      if (missed != 0) fetch(at, tensor, {misses, missed});
    }
  }

 private:
  static constexpr std::size_t kBatch = 64;

  std::size_t touch(std::size_t at, Entry first, std::size_t n, Miss* misses) {
    CacheLevel& l = levels_[at];
    if (auto* rows = std::get_if<cache::Rows>(&l.sets)) return rows->run(first, n, misses);
    return std::get<cache::Lists>(l.sets).run(first, n, misses);
  }

  /// One after the other: asks the next level for a line, then hands it what had to go. Lines in a
  /// row between which nothing goes out are asked for together.
  void fetch(std::size_t at, int tensor, std::span<const Miss> misses) {
    for (std::size_t i = 0; i < misses.size();) {
      std::size_t end = i + 1;
      while (end < misses.size() && !cache::is_dirty(misses[end - 1].victim) &&
             misses[end].line == misses[end - 1].line + 1)
        ++end;
      const Entry victim = misses[end - 1].victim;
      if (at + 1 < levels_.size()) {
        const std::uint64_t first = seen_from_outside(at, misses[i].line).first;
        const std::uint64_t last = seen_from_outside(at, misses[end - 1].line).second;
        if (levels_[at + 1].line_shift <= levels_[at].line_shift)
          lines(at + 1, first, last, tensor, false);
        else  // longer lines there: each asks on its own, neighbours for the same one
          for (std::size_t k = i; k < end; ++k) {
            const std::uint64_t line = seen_from_outside(at, misses[k].line).first;
            lines(at + 1, line, line, tensor, false);
          }
      }
      if (cache::is_dirty(victim)) write_back(at, victim);
      i = end;
    }
  }

  void write_back(std::size_t at, Entry victim) {
    const int tensor = cache::tensor_of(victim);
    ++levels_[at].tally[static_cast<std::size_t>(tensor)].written;
    if (at + 1 == levels_.size()) return;
    const auto [first, last] = seen_from_outside(at, cache::line_of(victim));
    CacheLevel& outer = levels_[at + 1];
    const bool covers = outer.line_shift <= levels_[at].line_shift;
    for (std::uint64_t line = first; line <= last; ++line) {
      Miss miss;
      if (touch(at + 1, entry_of(line, tensor, true), 1, &miss) == 0) continue;
      if (!covers) {
        ++outer.tally[static_cast<std::size_t>(tensor)].misses;
        fetch(at + 1, tensor, {&miss, 1});
      } else if (cache::is_dirty(miss.victim)) {
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

  std::vector<CacheLevel> levels_;
};

CacheGeometry geometry_of(const Level& level) {
  return {.name = level.name, .capacity = level.capacity, .ways = level.ways, .line = level.line};
}

CacheHierarchy::CacheHierarchy(std::vector<CacheGeometry> inner_to_outer, int tensors)
    : geometry_(std::move(inner_to_outer)), tensors_(tensors) {
  TW_CHECK(!geometry_.empty(), "a hierarchy has at least one level");
  if (tensors < 1 || tensors > 32768)
    throw InputError({.field = "tensors",
                      .value = std::to_string(tensors),
                      .problem = "cannot be told apart in a cache",
                      .accepted = "1 to 32768"});
  for (const CacheGeometry& g : geometry_) check_geometry(g);
  impl_ = std::make_unique<Impl>(geometry_, tensors);
}

CacheHierarchy::~CacheHierarchy() = default;
CacheHierarchy::CacheHierarchy(CacheHierarchy&&) noexcept = default;
CacheHierarchy& CacheHierarchy::operator=(CacheHierarchy&&) noexcept = default;

void CacheHierarchy::range(std::int64_t address, std::int64_t bytes, bool write, int tensor,
                           std::size_t entry) {
  if (bytes <= 0) return;
  const int shift = impl_->level(entry).line_shift;
  impl_->lines(entry, static_cast<std::uint64_t>(address) >> shift,
               static_cast<std::uint64_t>(address + bytes - 1) >> shift, tensor, write);
}

void CacheHierarchy::update(std::int64_t address, std::int64_t bytes, int tensor,
                            std::size_t entry) {
  if (bytes <= 0) return;
  // A line that was just read is most recently used: its write is one more hit and makes it dirty,
  // which a write in place of the read would have done as well.
  range(address, bytes, true, tensor, entry);
  CacheLevel& level = impl_->level(entry);
  level.tally[static_cast<std::size_t>(tensor)].hits +=
      ((address + bytes - 1) >> level.line_shift) - (address >> level.line_shift) + 1;
}

void CacheHierarchy::elements(std::int64_t address, std::int64_t count, std::int64_t element,
                              bool write, int tensor) {
  if (count <= 0 || element <= 0) return;
  range(address, count * element, write, tensor);
  // The range touched each line once; each element touches the lines it lies in.
  CacheLevel& level = impl_->level(0);
  const std::int64_t line = std::int64_t{1} << level.line_shift;
  const std::int64_t lines = (address + count * element - 1) / line - address / line + 1;
  std::int64_t touches = count;
  for (std::int64_t edge = (address / line + 1) * line; edge < address + count * element;
       edge += line)
    if ((edge - address) % element != 0) ++touches;
  level.tally[static_cast<std::size_t>(tensor)].hits += touches - lines;
}

std::vector<CacheCount> CacheHierarchy::counts(std::size_t level) const {
  const CacheLevel& l = impl_->level(level);
  const Bytes line = geometry_[level].line;
  std::vector<CacheCount> counts;
  for (const Tally& t : l.tally)
    counts.push_back({.hits = t.hits,
                      .misses = t.misses,
                      .read = t.misses * line,
                      .written = t.written * line,
                      .resident_dirty = Bytes(0)});
  std::visit(
      [&](const auto& sets) {
        for (std::uint64_t s = 0; s < sets.sets(); ++s)
          sets.each(s, [&](Entry e) {
            if (!cache::is_dirty(e)) return;
            counts[static_cast<std::size_t>(cache::tensor_of(e))].resident_dirty += line;
          });
      },
      l.sets);
  return counts;
}

CacheCount CacheHierarchy::total(std::size_t level) const {
  CacheCount sum;
  for (const CacheCount& c : counts(level)) {
    sum.hits += c.hits;
    sum.misses += c.misses;
    sum.read += c.read;
    sum.written += c.written;
    sum.resident_dirty += c.resident_dirty;
  }
  return sum;
}

std::vector<std::vector<CacheLine>> CacheHierarchy::contents(std::size_t level) const {
  return std::visit(
      [](const auto& sets) {
        std::vector<std::vector<CacheLine>> all(sets.sets());
        for (std::uint64_t s = 0; s < sets.sets(); ++s)
          sets.each(s, [&](Entry e) {
            all[s].push_back({.line = static_cast<std::int64_t>(cache::line_of(e)),
                              .tensor = cache::tensor_of(e),
                              .dirty = cache::is_dirty(e)});
          });
        return all;
      },
      impl_->level(level).sets);
}

}  // namespace tilewright
