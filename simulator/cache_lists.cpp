#include <algorithm>
#include <bit>

#include "simulator/cache_sets.h"

namespace tilewright::cache {

namespace {
constexpr std::uint32_t kFree = ~std::uint32_t{0};
}  // namespace

Lists::Lists(std::uint64_t sets, std::int64_t ways, bool fifo)
    : set_of_(sets),
      ways_(static_cast<std::size_t>(ways)),
      fifo_(fifo),
      lines_(sets * ways_),
      nodes_(lines_ + sets),
      used_(sets, 0) {
  const int bits = std::max(4, static_cast<int>(std::bit_width(lines_)) + 1);
  shift_ = 64 - bits;
  table_.assign(std::size_t{1} << bits, kFree);
  for (std::uint64_t s = 0; s < sets; ++s) nodes_[head(s)].prev = nodes_[head(s)].next = head(s);
}

void Lists::unlink(std::uint32_t i) {
  nodes_[nodes_[i].prev].next = nodes_[i].next;
  nodes_[nodes_[i].next].prev = nodes_[i].prev;
}

void Lists::push_front(std::uint64_t set, std::uint32_t i) {
  const std::uint32_t h = head(set);
  nodes_[i].prev = h;
  nodes_[i].next = nodes_[h].next;
  nodes_[nodes_[h].next].prev = i;
  nodes_[h].next = i;
}

std::size_t Lists::slot_of(std::uint64_t line) const {
  return static_cast<std::size_t>((line * 0x9E3779B97F4A7C15u) >> shift_);
}

std::size_t Lists::find(std::uint64_t line) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = slot_of(line);
  while (table_[slot] != kFree && line_of(nodes_[table_[slot]].entry) != line)
    slot = (slot + 1) & mask;
  return slot;
}

void Lists::erase(std::size_t slot) {
  const std::size_t mask = table_.size() - 1;
  std::size_t gap = slot;
  for (std::size_t i = (slot + 1) & mask; table_[i] != kFree; i = (i + 1) & mask) {
    const std::size_t wanted = slot_of(line_of(nodes_[table_[i]].entry));
    if (((i - wanted) & mask) < ((i - gap) & mask)) continue;  // wanted lies after the gap
    table_[gap] = table_[i];
    gap = i;
  }
  table_[gap] = kFree;
}

bool Lists::touch(Entry now, Entry& victim) {
  const std::uint64_t line = line_of(now);
  const std::uint64_t set = set_of_(line);
  const std::size_t slot = find(line);
  if (table_[slot] != kFree) {
    const std::uint32_t i = table_[slot];
    nodes_[i].entry = touched(nodes_[i].entry, now);
    if (!fifo_ && nodes_[head(set)].next != i) {
      unlink(i);
      push_front(set, i);
    }
    return true;
  }
  std::uint32_t i = 0;
  victim = kEmpty;
  if (used_[set] < ways_) {
    i = static_cast<std::uint32_t>(set * ways_) + used_[set]++;
  } else {
    i = nodes_[head(set)].prev;
    victim = nodes_[i].entry;
    unlink(i);
    erase(find(line_of(victim)));
  }
  nodes_[i].entry = now;
  table_[find(line)] = i;
  push_front(set, i);
  return false;
}

std::size_t Lists::run_all(void* sets, Entry first, std::size_t n, Miss* misses, std::int64_t) {
  Lists& l = *static_cast<Lists*>(sets);
  std::size_t missed = 0;
  Entry victim = kEmpty;
  for (std::size_t i = 0; i < n; ++i) {
    const Entry now = first + (i << kMetaBits);
    if (!l.touch(now, victim)) misses[missed++] = {line_of(now), victim};
  }
  return missed;
}

void Lists::clear() {
  std::fill(table_.begin(), table_.end(), kFree);
  std::fill(used_.begin(), used_.end(), 0);
  for (std::uint64_t s = 0; s < sets(); ++s) nodes_[head(s)].prev = nodes_[head(s)].next = head(s);
}

void Lists::assign(std::uint64_t, const Entry* in) {
  Entry nothing = kEmpty;
  for (std::size_t i = ways_; i-- > 0;)
    if (in[i] != kEmpty) touch(in[i], nothing);
}

}  // namespace tilewright::cache
