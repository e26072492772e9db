#include "simulator/gpu/l2.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.h"

namespace tilewright::gpu {

namespace {

std::uint64_t mixed(std::uint64_t x) {  // SplitMix64's finaliser
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

constexpr std::int64_t kHomeBytes = 4096;

int shift_of(Bytes b) { return std::countr_zero(static_cast<std::uint64_t>(b.value)); }

[[noreturn]] void refuse(const char* field, const std::string& value, const char* accepted) {
  throw InputError({.field = std::string("L2: ") + field,
                    .value = value,
                    .problem = "is not for a GPU's cache",
                    .accepted = accepted});
}

}  // namespace

void check(const L2Geometry& g) {
  if (g.policy != "lru" && g.policy != "fifo" && g.policy != "random")
    refuse("policy", g.policy, "lru, fifo, random");
  if (g.partitions != 1 && g.partitions != 2)
    refuse("partitions", std::to_string(g.partitions), "1 or 2");
  if (g.line.value < g.sector.value || g.line.value > 8 * g.sector.value)
    refuse("sector", std::to_string(g.sector.value), "an eighth of a line to a line");
  if (g.line.value > kHomeBytes) refuse("line", std::to_string(g.line.value), "at most 4096 bytes");
  if (g.ways < 1) refuse("ways", std::to_string(g.ways), "at least 1");
  if (g.capacity.value % (g.line.value * g.ways * g.partitions) != 0 || g.capacity.value <= 0)
    refuse("capacity", std::to_string(g.capacity.value), "a multiple of line * ways * partitions");
}

L2::L2(const L2Geometry& g, int tensors, std::uint64_t seed, L2Share share)
    : line_shift_(shift_of(g.line)),
      sector_shift_(shift_of(g.sector)),
      home_shift_(shift_of(Bytes(kHomeBytes)) - line_shift_),
      partitions_(g.partitions),
      sector_(g.sector.value),
      ways_(static_cast<std::size_t>(g.ways)),
      policy_(g.policy == "lru"    ? Policy::lru
              : g.policy == "fifo" ? Policy::fifo
                                   : Policy::random),
      sets_(static_cast<std::uint64_t>(g.capacity.value / (g.line.value * g.ways * g.partitions))),
      moved_(static_cast<std::size_t>(tensors)) {
  const std::uint64_t sets = sets_.divisor();
  low_ = static_cast<std::uint32_t>(sets * static_cast<std::uint64_t>(share.index) /
                                    static_cast<std::uint64_t>(share.count));
  high_ = static_cast<std::uint32_t>(sets * (static_cast<std::uint64_t>(share.index) + 1) /
                                     static_cast<std::uint64_t>(share.count));
  const std::size_t lines = sets * ways_ * static_cast<std::size_t>(partitions_);
  tags_.assign(lines, 0);
  held_.resize(lines);
  if (policy_ == Policy::random) {
    draws_.resize(sets * static_cast<std::size_t>(partitions_));
    for (std::size_t s = 0; s < draws_.size(); ++s) draws_[s] = mixed(seed ^ mixed(s));
  }
  // The hash is the machine's, not the run's: no seed in it. 2^16 turns, then again.
  turn_.resize(g.index == SetIndex::hashed ? std::size_t{1} << 16 : 0);
  for (std::size_t p = 0; p < turn_.size(); ++p)
    turn_[p] = static_cast<std::uint32_t>(mixed(p) % sets);
}

std::uint32_t L2::set_of(std::uint32_t line) const {
  const auto [page, at] = sets_.split(line);
  if (turn_.empty()) return static_cast<std::uint32_t>(at);
  const std::uint64_t set = at + turn_[page & (turn_.size() - 1)];
  return static_cast<std::uint32_t>(set >= sets_.divisor() ? set - sets_.divisor() : set);
}

void L2::rows(Touch how, std::int64_t address, std::int64_t bytes, std::int64_t pitch,
              std::int64_t rows, int tensor, int side) {
  const std::int64_t line_bytes = std::int64_t{1} << line_shift_;
  const auto sectors = [&](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint8_t>(((1u << (to - from)) - 1) << from);
  };
  for (; rows > 0; --rows, address += pitch) {
    for (std::int64_t line = address >> line_shift_; line << line_shift_ < address + bytes;
         ++line) {
      const std::int64_t base = line << line_shift_;
      const std::int64_t first = std::max(address - base, std::int64_t{0});
      const std::int64_t end = std::min(address + bytes - base, line_bytes);
      const std::int64_t from = (first + sector_ - 1) >> sector_shift_, to = end >> sector_shift_;
      touch(how, static_cast<std::uint32_t>(line),
            sectors(first >> sector_shift_, ((end - 1) >> sector_shift_) + 1),
            to > from ? sectors(from, to) : std::uint8_t{0}, tensor, side);
    }
  }
}

void L2::touch(Touch how, std::uint32_t line, std::uint8_t need, std::uint8_t covered, int tensor,
               int side) {
  const std::uint32_t set = set_of(line);
  if (set < low_ || set >= high_) return;
  if (how == Touch::read) return read(line, set, need, tensor, side);
  // Atomic operations happen at the home: what they read makes no copy.
  if (how == Touch::update) read(line, set, need, tensor, home_of(line));
  write(line, set, need, covered, tensor);
}

void L2::read(std::uint32_t line, std::uint32_t set, std::uint8_t need, int tensor, int side) {
  Moved& m = moved_[static_cast<std::size_t>(tensor)];
  const int home = home_of(line);
  std::uint8_t missing = need;
  if (side != home) {
    const Found near = find(side, set, line);
    Way& copy = near.at >= 0 ? use(near) : insert(near, set, line, tensor);
    missing = static_cast<std::uint8_t>(need & ~copy.valid);
    copy.valid |= need;
    if (missing == 0) {
      ++m.hits;
      return;
    }
  }
  const Found f = find(home, set, line);
  Way& way = f.at >= 0 ? use(f) : insert(f, set, line, tensor);
  const auto fetched = static_cast<std::uint8_t>(missing & ~way.valid);
  way.valid |= missing;
  ++(fetched == 0 ? m.hits : m.misses);
  fetch(std::popcount(fetched), tensor);
}

void L2::write(std::uint32_t line, std::uint32_t set, std::uint8_t need, std::uint8_t covered,
               int tensor) {
  Moved& m = moved_[static_cast<std::size_t>(tensor)];
  const int home = home_of(line);
  if (partitions_ == 2)
    if (const Found copy = find(1 - home, set, line); copy.at >= 0)
      copy.ways[copy.at].valid &= static_cast<std::uint8_t>(~need);
  const Found f = find(home, set, line);
  Way& way = f.at >= 0 ? use(f) : insert(f, set, line, tensor);
  ++((need & ~way.valid) == 0 ? m.hits : m.misses);
  fetch(std::popcount(static_cast<std::uint8_t>(need & ~covered & ~way.valid)), tensor);
  way.valid |= need;
  way.dirty |= need;
  way.tensor = static_cast<std::uint16_t>(tensor);
}

L2::Found L2::find(int partition, std::uint32_t set, std::uint32_t line) {
  const std::size_t base = (static_cast<std::size_t>(partition) * sets_.divisor() + set) * ways_;
  Found f{&tags_[base], &held_[base], -1};
  for (std::size_t w = 0; w < ways_; ++w)
    if (f.tags[w] == line + 1) {
      f.at = static_cast<int>(w);
      break;
    }
  return f;
}

L2::Way& L2::use(const Found& f) {
  if (policy_ != Policy::lru || f.at == 0) return f.ways[f.at];
  const auto n = static_cast<std::size_t>(f.at);
  const std::uint32_t tag = f.tags[n];
  const Way way = f.ways[n];
  std::memmove(f.tags + 1, f.tags, n * sizeof *f.tags);
  std::memmove(f.ways + 1, f.ways, n * sizeof *f.ways);
  f.tags[0] = tag;
  f.ways[0] = way;
  return f.ways[0];
}

/// Whose place a new line takes: the oldest's, which an empty way is; or, drawn, any line's.
std::size_t L2::victim(const Found& f, std::uint32_t set) {
  if (policy_ != Policy::random || f.tags[ways_ - 1] == 0) return ways_ - 1;
  const auto partition =
      static_cast<std::size_t>(f.tags - tags_.data()) / (sets_.divisor() * ways_);
  std::uint64_t& draw = draws_[partition * sets_.divisor() + set];
  draw = mixed(draw);
  return (draw >> 32) * ways_ >> 32;
}

L2::Way& L2::insert(const Found& f, std::uint32_t set, std::uint32_t line, int tensor) {
  const std::size_t gone = victim(f, set);
  const Way& old = f.ways[gone];
  if (old.dirty != 0) moved_[old.tensor].written += std::popcount(old.dirty) * sector_;
  std::memmove(f.tags + 1, f.tags, gone * sizeof *f.tags);
  std::memmove(f.ways + 1, f.ways, gone * sizeof *f.ways);
  f.tags[0] = line + 1;
  f.ways[0] = {.valid = 0, .dirty = 0, .tensor = static_cast<std::uint16_t>(tensor)};
  return f.ways[0];
}

std::vector<CacheCount> L2::counts() const {
  std::vector<CacheCount> all(moved_.size());
  for (std::size_t t = 0; t < all.size(); ++t) {
    all[t].hits = moved_[t].hits;
    all[t].misses = moved_[t].misses;
    all[t].read = Bytes(moved_[t].read);
    all[t].written = Bytes(moved_[t].written);
  }
  for (const Way& w : held_)
    all[w.tensor].resident_dirty += Bytes(std::popcount(w.dirty) * sector_);
  return all;
}

}  // namespace tilewright::gpu
