#include "simulator/attribution.h"

namespace tilewright::cache {

Attribution::Attribution(std::span<const LevelSize> levels, int tensors)
    : tensors_(static_cast<std::size_t>(tensors)) {
  for (const LevelSize& l : levels) {
    PerLevel& added = levels_.emplace_back(PerLevel{.associative = Lists(1, l.lines)});
    added.blame.misses.resize(tensors_);
    added.blame.evictions.assign(tensors_, std::vector<std::int64_t>(tensors_, 0));
  }
  expect_loops(0);
}

void Attribution::expect_loops(std::size_t loops) {
  advanced_.assign(loops, 0);
  for (PerLevel& l : levels_)
    l.blame.by_loop.assign(loops + 1, std::vector<std::int64_t>(tensors_, 0));
}

std::size_t Attribution::LastTouch::find(std::uint64_t line) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = (line * 0x9E3779B97F4A7C15u >> 20) & mask;
  while (slots_[at].when != 0 && slots_[at].line != line) at = (at + 1) & mask;
  return at;
}

std::uint64_t& Attribution::LastTouch::operator[](std::uint64_t line) {
  std::size_t at = find(line);
  if (slots_[at].when != 0) return slots_[at].when;
  if (2 * ++used_ > slots_.size()) {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.when != 0) slots_[find(s.line)] = s;
    at = find(line);
  }
  slots_[at].line = line;  // free until the caller says when
  return slots_[at].when;
}

bool Attribution::in_associative(PerLevel& l, std::uint64_t line) {
  Miss miss;
  return l.associative.run(entry_of(line, 0, false), 1, &miss) == 0;
}

void Attribution::touched(std::size_t level, std::uint64_t line, std::uint64_t piece, int tensor,
                          bool missed) {
  PerLevel& l = levels_[level];
  const auto t = static_cast<std::size_t>(tensor);
  const bool would_hit = in_associative(l, line);
  std::uint64_t& last = l.last[piece];
  if (missed) {
    MissKinds& kinds = l.blame.misses[t];
    ++(last == 0 ? kinds.compulsory : would_hit ? kinds.conflict : kinds.capacity);
    if (last != 0) {
      std::size_t loop = 0;
      while (loop < advanced_.size() && advanced_[loop] <= last) ++loop;
      ++l.blame.by_loop[loop][t];
    }
  }
  last = clock_;
}

void Attribution::put(std::size_t level, std::uint64_t line) {
  in_associative(levels_[level], line);
}

}  // namespace tilewright::cache
