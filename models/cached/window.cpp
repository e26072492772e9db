#include "models/cached/window.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace tilewright::cached {

namespace {

constexpr std::size_t kMostPieces = 64;
/// Lines that pieces share are listed so many times at most.
constexpr std::int64_t kMostOverlap = 2;
constexpr std::int64_t kWord = 64;  ///< lines of a word
constexpr int kMostTurns = 8;       ///< iterations that are looked into in vain

double volume(const Piece& p) {
  double v = 1;
  for (int d = 0; d < p.dims; ++d) v *= static_cast<double>(p.count(d));
  return v;
}

/// Whether both have every so many-th index of the same coordinate, and none in between.
bool in_step(const Piece& a, const Piece& b) {
  if (a.stepped != b.stepped || a.step != b.step) return false;
  const auto i = static_cast<std::size_t>(a.stepped);
  return (a.at[i].lo - b.at[i].lo) % a.step == 0;
}

bool covers(const Piece& a, const Piece& b) {
  if (a.part != b.part || (a.stepped >= 0 && !in_step(a, b))) return false;
  for (int d = 0; d < a.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (b.at[i].lo < a.at[i].lo || b.at[i].hi > a.at[i].hi) return false;
  }
  return true;
}

/// What of `p` is not in `by`, added to `out`. Parts that lie beside it in the same rows, or whose
/// rows begin where rows of it end, leave it the line that both share.
void subtract(const Array& a, Piece p, const Piece& by, std::int64_t line,
              std::vector<Piece>& out) {
  if (p.part != by.part) {
    if (!lies_over(a, by, p)) out.push_back(p);
    return;
  }
  for (int d = 0; d + 1 < p.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (p.at[i].hi <= by.at[i].lo || by.at[i].hi <= p.at[i].lo) return out.push_back(p);
  }
  // Bytes from the end of a row of `by` to the begin of the next one of p, and the other way round.
  const std::int64_t pitch = p.dims > 1 && pitch_of(a, p, p.dims - 2) % line != 0
                                 ? pitch_of(a, p, p.dims - 2)
                                 : 2 * Piece::kFar;
  if (by.stepped >= 0 && !in_step(p, by)) {
    if (p.stepped >= 0) return out.push_back(p);
    // The rows that `by` passes over, and those among which its own are.
    const auto i = static_cast<std::size_t>(by.stepped);
    const Interval all = p.at[i];
    p.stepped = by.stepped;
    p.step = by.step;
    for (std::int64_t lo = all.lo; lo < std::min(all.lo + by.step, all.hi); ++lo) {
      Piece part = p;
      part.at[i].lo = lo;
      if (in_step(part, by))
        subtract(a, part, by, line, out);
      else
        out.push_back(part);
    }
    return;
  }
  if (p.bytes().hi + line <= by.bytes().lo && p.bytes().lo + pitch >= by.bytes().hi + line)
    return out.push_back(p);
  if (by.bytes().hi + line <= p.bytes().lo && by.bytes().lo + pitch >= p.bytes().hi + line)
    return out.push_back(p);
  for (int d = 0; d + 1 < p.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    Piece part = p;
    if (p.at[i].lo < by.at[i].lo) {
      part.at[i] = {p.at[i].lo, by.at[i].lo};
      out.push_back(part);
      p.at[i].lo = p.from(d, by.at[i].lo);
    }
    if (by.at[i].hi < p.at[i].hi) {
      part = p;
      part.at[i] = {p.from(d, by.at[i].hi), p.at[i].hi};
      if (!part.at[i].empty()) out.push_back(part);
      p.at[i].hi = by.at[i].hi;
    }
    if (p.at[i].empty()) return;
  }
  if (p.bytes().lo < by.bytes().lo) {
    Piece part = p;
    part.bytes().hi = std::min(p.bytes().hi, by.bytes().lo);
    part.right = std::min(part.right, by.bytes().lo);
    part.left = std::max(part.left, by.bytes().hi - 1 - pitch);
    out.push_back(part);
  }
  if (by.bytes().hi < p.bytes().hi) {
    Piece part = p;
    part.bytes().lo = std::max(p.bytes().lo, by.bytes().hi);
    part.left = std::max(part.left, by.bytes().hi - 1);
    part.right = std::min(part.right, by.bytes().lo + pitch);
    out.push_back(part);
  }
}

/// Adds what no other piece covers.
void add_piece(const Array& a, std::vector<Piece>& list, const Piece& p) {
  for (const Piece& other : list)
    if (covers(other, p) || lies_over(a, other, p)) return;
  list.push_back(p);
}

/// Adds what is in no other box; those that are in it go.
void add_box(std::vector<Box>& list, const Box& box) {
  if (box.empty()) return;
  for (const Box& other : list)
    if (contains(other, box)) return;
  std::erase_if(list, [&](const Box& other) { return contains(box, other); });
  list.push_back(box);
}

/// Parts of a box that its compute touches before a line's bytes in one of its rows, or after them.
template <class F>
void parts_beside(const Piece& p, const RowBytes& x, bool before, F&& f) {
  Piece rest = p;
  for (int d = 0; d + 1 < p.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    Piece part = rest;
    part.at[i] =
        before ? Interval{p.at[i].lo, x.at[i]} : Interval{p.from(d, x.at[i] + 1), p.at[i].hi};
    if (!part.at[i].empty()) f(part);
    rest.at[i] = {x.at[i], x.at[i] + 1};
  }
  rest.bytes() = before ? Interval{p.bytes().lo, std::min(x.bytes.lo, p.bytes().hi)}
                        : Interval{std::max(x.bytes.hi, p.bytes().lo), p.bytes().hi};
  if (!rest.bytes().empty()) f(rest);
}

}  // namespace

void Window::clear() {
  for (const int a : used_) {
    by_array_[static_cast<std::size_t>(a)].clear();
    boxes_[static_cast<std::size_t>(a)].clear();
  }
  used_.clear();
}

void Window::add(int array, const Piece& p) {
  auto& list = by_array_[static_cast<std::size_t>(array)];
  if (list.empty() && boxes_[static_cast<std::size_t>(array)].empty()) used_.push_back(array);
  add_piece(nest_.array(array), list, p);
}

void Window::add(int array, const Box& box) {
  if (box.empty()) return;
  auto& list = boxes_[static_cast<std::size_t>(array)];
  if (list.empty() && by_array_[static_cast<std::size_t>(array)].empty()) used_.push_back(array);
  add_box(list, box);
}

/// Of the word in the table, or where it would be.
std::size_t Window::place_of(std::int64_t word) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = (static_cast<std::uint64_t>(word) * 0x9E3779B97F4A7C15ULL >> 40) & mask;
  while (table_[at].stamp == now_ && table_[at].number != word) at = (at + 1) & mask;
  return at;
}

/// Lines [first, last).
void Window::insert(std::int64_t first, std::int64_t last) {
  for (std::int64_t number = first / kWord; number * kWord < last; ++number) {
    const std::int64_t from = std::max<std::int64_t>(first - number * kWord, 0);
    const std::int64_t size = std::min(last - number * kWord, kWord) - from;
    const std::uint64_t lines = (~std::uint64_t{0} >> (kWord - size)) << from;
    const std::size_t at = place_of(number);
    Word& word = table_[at];
    if (word.stamp != now_) {
      word = {.number = number, .stamp = now_};
      list_.push_back(at);
    }
    lines_ += std::popcount(lines & ~word.lines);
    word.lines |= lines;
  }
}

bool Window::list(std::int64_t line, std::int64_t few) {
  settled_.clear();
  std::int64_t most = 0;
  for (const int a : used_)
    for (const Piece& p : by_array_[static_cast<std::size_t>(a)]) {
      if (p.bytes().empty()) continue;
      const Rows& rows = settled_.emplace_back(rows_of(nest_.array(a), p, line));
      std::int64_t count = rows.bytes / line + 1;
      for (int d = 0; d < rows.dims; ++d) count *= rows.count[static_cast<std::size_t>(d)];
      most += count;
      if (most > kMostOverlap * few) return false;
    }
  const std::size_t places = std::bit_ceil(static_cast<std::size_t>(2 * few + 1));
  if (table_.size() < places) table_.resize(places);
  ++now_;
  list_.clear();
  lines_ = 0;
  counted_ = 0;
  for (const Rows& rows : settled_) {
    rows_.clear();
    list_rows(rows, line, rows_);
    for (const auto& [first, last] : rows_) insert(first, last);
    if (lines_ > few) return false;
  }
  return true;
}

void Window::settle(const Spot& x, std::int64_t line, std::int64_t few) {
  for (const int a : used_)
    for (const Box& box : boxes_[static_cast<std::size_t>(a)])
      pieces(nest_.array(a), box, nullptr,
             [&](const Piece& p) { by_array_[static_cast<std::size_t>(a)].push_back(p); });
  listed_ = list(line, few);
  if (listed_) return;
  lines_ = 0;
  settled_.clear();
  has_spot_ = false;
  for (const int a : used_) {
    const Array& array = nest_.array(a);
    auto& list = by_array_[static_cast<std::size_t>(a)];
    if (list.size() > 1) {
      // The largest ones first; of those of a size the order is kept.
      order_.clear();
      for (std::size_t i = 0; i < list.size(); ++i) order_.emplace_back(-volume(list[i]), i);
      std::ranges::sort(order_);
      disjoint_.clear();
      for (const auto& [size, i] : order_) {
        rest_.assign(1, list[i]);
        for (const Piece& by : disjoint_) {
          next_.clear();
          for (const Piece& part : rest_) subtract(array, part, by, line, next_);
          rest_.swap(next_);
          if (rest_.empty()) break;
        }
        if (disjoint_.size() < kMostPieces)
          disjoint_.insert(disjoint_.end(), rest_.begin(), rest_.end());
      }
      list.swap(disjoint_);
    }
    for (const Piece& p : list) {
      if (p.bytes().empty()) continue;
      settled_.push_back(rows_of(array, p, line));
      lines_ += settled_.back().lines;
      has_spot_ = has_spot_ || (a == x.array && touches(array, p, x));
    }
  }
}

double Window::in_set(const Spot& x, std::int64_t line, std::int64_t sets, double enough) const {
  if (listed_) {
    const std::int64_t own = x.address / line, set = own % sets;
    if (counted_ == sets)
      return static_cast<double>(counts_[static_cast<std::size_t>(set)] - (has(own) ? 1 : 0));
    std::int64_t count = has(own) ? -1 : 0;
    for (const std::size_t at : list_) {
      const Word& word = table_[at];
      // The first line of the word that is of the set, and those after it.
      std::int64_t l = (set - word.number * kWord % sets + sets) % sets;
      for (; l < kWord; l += sets) count += static_cast<std::int64_t>(word.lines >> l & 1);
    }
    return static_cast<double>(count);
  }
  const double own = has_spot_ ? 1 : 0;
  double sum = 0;
  for (const Rows& rows : settled_) {
    sum += lines_in_set(rows, x.address, line, sets, enough + own - sum);
    if (sum >= enough + own) break;
  }
  return std::max(sum - own, 0.0);
}

double Window::asked_in_set(const Spot& x, std::int64_t line, std::int64_t sets,
                            std::span<const std::pair<std::int64_t, std::int64_t>> within) {
  const std::int64_t own = x.address / line;
  asked_.clear();
  for (const std::size_t at : list_)
    for (std::uint64_t rest = table_[at].lines; rest != 0; rest &= rest - 1)
      if (const std::int64_t y = table_[at].number * kWord + std::countr_zero(rest); y != own)
        asked_.push_back(y);
  for (const auto& [inner, ways] : within) {
    inner_.assign(static_cast<std::size_t>(inner), 0);
    ++inner_[static_cast<std::size_t>(own % inner)];
    for (const std::int64_t y : asked_) ++inner_[static_cast<std::size_t>(y % inner)];
    std::erase_if(asked_, [&](std::int64_t y) {
      return inner_[static_cast<std::size_t>(y % inner)] <= ways;
    });
  }
  return static_cast<double>(
      std::ranges::count_if(asked_, [&](std::int64_t y) { return (y - own) % sets == 0; }));
}

std::int64_t Window::fullest(std::int64_t sets) {
  if (counted_ == sets) return most_;
  counts_.assign(static_cast<std::size_t>(sets), 0);
  counted_ = sets;
  most_ = 0;
  for (const std::size_t at : list_) {
    const std::int64_t begin = table_[at].number * kWord % sets;
    for (std::uint64_t rest = table_[at].lines; rest != 0; rest &= rest - 1) {
      std::int64_t set = begin + std::countr_zero(rest);
      if (set >= sets) set %= sets;
      most_ = std::max(most_, ++counts_[static_cast<std::size_t>(set)]);
    }
  }
  return most_;
}

bool Window::has(std::int64_t line) const {
  const Word& word = table_[place_of(line / kWord)];
  return word.stamp == now_ && (word.lines >> (line % kWord) & 1) != 0;
}

double Window::lost(const Spot& x, bool misses, const std::vector<Piece>& alike, std::int64_t line,
                    std::int64_t sets, std::int64_t ways) {
  const std::int64_t own = x.address / line;
  const bool apart = !has(own);
  std::int64_t seen = 1, gone = misses ? 1 : 0;
  rows_.clear();
  for (const Piece& p : alike)
    if (!p.bytes().empty()) list_rows(rows_of(nest_.array(x.array), p, line), line, rows_);
  for (const auto& [first, last] : rows_)
    for (std::int64_t y = first; y < last; ++y) {
      if (y == own || !has(y)) continue;
      // All but itself, and x.
      const std::int64_t others = counts_[static_cast<std::size_t>(y % sets)] - 1 +
                                  (apart && (y - own) % sets == 0 ? 1 : 0);
      ++seen;
      if (others >= ways) ++gone;
    }
  return static_cast<double>(gone) / static_cast<double>(seen);
}

bool Lookback::holds(const Path& path, const Frame& around, int node, Interval iterations,
                     const Spot& x, bool writes) const {
  return nest_.has(path, around, node, iterations, -1, 0, x, writes);
}

const std::vector<Lookback::Touched>& Lookback::touched_by(const Frame& around, int kernel) const {
  by_kernel_.resize(nest_.nodes().size());
  std::vector<Touched>& all = by_kernel_[static_cast<std::size_t>(kernel)];
  if (!all.empty()) return all;
  const auto of = [&](int array) -> Touched& {
    const auto at = std::ranges::find(all, array, &Touched::array);
    return at != all.end() ? *at : all.emplace_back(Touched{.array = array});
  };
  const bool loop = nest_.node(kernel).kind == NodeKind::loop;
  const Interval whole{0, loop ? nest_.trips_of(kernel, around) : 1};
  Path path;
  nest_.begin(path);
  nest_.sweep_boxes(
      path, around, kernel, whole,
      [&](int array, const Box& box) { add_box(of(array).boxes, box); },
      [&](const Use& u, const Piece& p) {
        add_piece(nest_.array(u.array), of(u.array).pieces, p);
      });
  const auto mark = [&](auto&& self, int node) -> void {
    for (const Use& u : nest_.node(node).uses)
      if (u.write) of(u.array).written = true;
    for (const int c : nest_.node(node).children) self(self, c);
  };
  mark(mark, kernel);
  return all;
}

void Lookback::pass(const Path& path, const Frame& around, int node, Interval iterations,
                    Window& window) const {
  const NestNode& n = nest_.node(node);
  if (n.parent == 0 &&
      (n.kind != NodeKind::loop || iterations == Interval{0, nest_.trips_of(node, around)})) {
    for (const Touched& t : touched_by(around, node)) {
      for (const Box& box : t.boxes) window.add(t.array, box);
      for (const Piece& p : t.pieces) window.add(t.array, p);
    }
    return;
  }
  nest_.sweep_boxes(
      path, around, node, iterations, [&](int array, const Box& box) { window.add(array, box); },
      [&](const Use& u, const Piece& p) { window.add(u.array, p); });
}

/// Bits stand for many arrays where there are many.
bool Lookback::may_hold(const Frame& around, int kernel, const Spot& x, bool writes) const {
  const std::vector<Touched>& all = touched_by(around, kernel);
  const auto at = std::ranges::find(all, x.array, &Touched::array);
  return at != all.end() && (at->written || !writes);
}

bool Lookback::touched(const Path& path, const Frame& around, int loop, Interval iterations,
                       int leaf, std::size_t use, const Spot& x) const {
  return nest_.has(path, around, loop, iterations, leaf, use, x);
}

bool Lookback::into_uses(Path& before, std::size_t end, const Spot& x, Window& window,
                         bool writes) const {
  const NestNode& n = nest_.node(before.back().node);
  for (std::size_t i = end; i-- > 0;) {
    const Use& use = n.uses[i];
    const bool sought = use.array == x.array && (use.write || !writes);
    bool found = false;
    if (!nest_.array(use.array).packed && !use.strided) {
      const Box box = use.reach.box(before.back().ranges);
      found = sought && x.meets(box);
      if (!found) {
        window.add(use.array, box);
        continue;
      }
    } else if (sought) {
      nest_.once(before, i, [&](const Use&, const Piece& p) {
        return found = touches(nest_.array(use.array), p, x);
      });
    }
    nest_.once(before, i, [&](const Use&, const Piece& p) {
      if (!found)
        window.add(use.array, p);
      else if (const auto row = touched_row(nest_.array(use.array), p, x, true))
        parts_beside(p, *row, false, [&](const Piece& part) { window.add(use.array, part); });
      return false;
    });
    if (!found) continue;
    before.use = i;
    return true;
  }
  return false;
}

bool Lookback::into_children(Path& before, std::size_t end, const Spot& x, Window& window,
                             bool writes) const {
  const int parent = before.back().node;
  const std::size_t size = before.size();
  for (std::size_t c = end; c-- > 0;) {
    const int child = nest_.node(parent).children[c];
    const NestNode& n = nest_.node(child);
    if (((writes ? n.written : n.arrays) & bit_of(x.array)) != 0 &&
        (parent != 0 || may_hold(before.back(), child, x, writes))) {
      if (into(before, child, x, window, writes)) return true;
      before.cut(size);
      continue;  // passed on the way
    }
    const std::int64_t count = n.kind == NodeKind::loop ? nest_.trips_of(child, before.back()) : 1;
    pass(before, before.back(), child, {0, count}, window);
  }
  return false;
}

/// Looks for the line in a node below the path's last; adds what comes after it, or all.
bool Lookback::into(Path& before, int node, const Spot& x, Window& window, bool writes) const {
  const NestNode& n = nest_.node(node);
  if (n.kind == NodeKind::loop)
    return into_iterations(before, node, nest_.trips_of(node, before.back()), x, window, writes);
  if (!holds(before, before.back(), node, {0, 1}, x, writes)) {
    pass(before, before.back(), node, {0, 1}, window);
    return false;
  }
  nest_.enter(before, node, 0);
  if (n.kind == NodeKind::compute) return into_uses(before, n.uses.size(), x, window, writes);
  return into_children(before, n.children.size(), x, window, writes);
}

/// The same in the iterations of a loop before `end`.
bool Lookback::into_iterations(Path& before, int loop, std::int64_t end, const Spot& x,
                               Window& window, bool writes) const {
  const std::size_t size = before.size();
  for (int turn = 0; end > 0; ++turn) {
    const auto from = [&](std::int64_t i) {
      return holds(before, before.back(), loop, {i, end}, x, writes);
    };
    std::int64_t low = 0, high = end - 1;
    const bool in_last = turn < kMostTurns && from(high);
    if (in_last) low = high;
    if (turn == kMostTurns || (!in_last && !from(0))) {
      pass(before, before.back(), loop, {0, end}, window);
      return false;
    }
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (from(middle) ? low : high) = middle;
    }
    pass(before, before.back(), loop, {low + 1, end}, window);
    nest_.enter(before, loop, low);
    if (into_children(before, nest_.node(loop).children.size(), x, window, writes)) return true;
    // The hull of what the iteration touches has the line, but nothing in it does.
    before.cut(size);
    end = low;
  }
  return false;
}

bool Lookback::last(const Path& now, const Spot& x, Path& before, Window& window,
                    bool writes) const {
  if (now.size() == 1) {
    before.copy(now, 1);
    return into_children(before, nest_.node(0).children.size(), x, window, writes);
  }
  before.copy(now, now.size());
  const Use& use = nest_.node(now.back().node).uses[now.use];
  nest_.once(now, now.use, [&](const Use&, const Piece& p) {
    if (const auto row = touched_row(nest_.array(use.array), p, x))
      parts_beside(p, *row, true, [&](const Piece& part) { window.add(use.array, part); });
    return false;
  });
  if (into_uses(before, now.use, x, window, writes)) return true;
  for (std::size_t f = now.size() - 1; f > 0; --f) {
    const int node = now.at(f).node;
    const int parent = now.at(f - 1).node;
    const NestNode& p = nest_.node(parent);
    const auto place =
        static_cast<std::size_t>(std::ranges::find(p.children, node) - p.children.begin());
    before.cut(f);
    if (into_children(before, place, x, window, writes)) return true;
    if (p.kind != NodeKind::loop) continue;
    before.cut(f - 1);
    if (into_iterations(before, parent, now.at(f - 1).iteration, x, window, writes)) return true;
  }
  return false;
}

bool Lookback::first(Path& path, int leaf, std::size_t use, const Spot& x) const {
  while (path.back().node != leaf) {
    int next = leaf;
    while (nest_.node(next).parent != path.back().node) next = nest_.node(next).parent;
    std::int64_t i = 0;
    if (nest_.node(next).kind == NodeKind::loop) {
      const std::int64_t count = nest_.trips_of(next, path.back());
      const auto upto = [&](std::int64_t end) {
        return touched(path, path.back(), next, {0, end}, leaf, use, x);
      };
      std::int64_t low = 0, high = count;  // not in [0, low), in [0, high)
      if (upto(1))
        high = 1;
      else if (!upto(count))
        return false;
      while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (upto(middle) ? high : low) = middle;
      }
      i = high - 1;
    }
    nest_.enter(path, next, i);
  }
  path.use = use;
  return true;
}

}  // namespace tilewright::cached
