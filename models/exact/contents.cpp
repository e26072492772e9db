#include "models/exact/contents.h"

namespace tilewright::exact_model {

namespace {

/// Calls f on every box of `c`, in a fixed order.
template <class C, class F>
void for_boxes(C& c, F&& f) {
  for (auto& instances : c.held)
    for (auto& [instance, content] : instances) {
      f(content.tile);
      for (auto& p : content.complete) {
        f(p.first);
        f(p.last);
      }
    }
  for (auto& box : c.fixed) f(box);
}

bool same_shape(const Content& a, const Content& b) {
  if (a.changed != b.changed || a.fresh != b.fresh || a.tile.rank() != b.tile.rank() ||
      a.complete.size() != b.complete.size())
    return false;
  for (std::size_t i = 0; i < a.complete.size(); ++i)
    // A run that grows keeps its step, so its first and last tile say the rest; runs of one and two
    // tiles have yet to show a step.
    if (std::min<std::int64_t>(a.complete[i].count, 3) !=
        std::min<std::int64_t>(b.complete[i].count, 3))
      return false;
  return true;
}

Interval shifted(Interval from, Interval to) { return {to.lo - from.lo, to.hi - from.hi}; }

/// The tile `steps` after p.first, if there is a whole number of steps to `box`.
std::optional<std::int64_t> position_of(const Progression& p, const Box& box) {
  if (box == p.first) return 0;
  if (p.count < 2) return std::nullopt;
  std::optional<std::int64_t> position;
  for (int d = 0; d < box.rank(); ++d) {
    const Interval whole = shifted(p.first[d], p.last[d]);
    const Interval here = shifted(p.first[d], box[d]);
    const Interval step{whole.lo / (p.count - 1), whole.hi / (p.count - 1)};
    for (const auto& [s, h] : {std::pair{step.lo, here.lo}, std::pair{step.hi, here.hi}}) {
      if (s == 0 && h == 0) continue;
      if (s == 0 || h % s != 0) return std::nullopt;
      if (position && *position != h / s) return std::nullopt;
      position = h / s;
    }
  }
  return position;
}

}  // namespace

std::vector<std::int64_t> coordinates(const Contents& c) {
  std::vector<std::int64_t> values;
  for_boxes(c, [&](const Box& box) {
    for (Interval d : box) {
      values.push_back(d.lo);
      values.push_back(d.hi);
    }
  });
  return values;
}

bool same_shape(const Contents& a, const Contents& b) {
  for (std::size_t i = 0; i < a.held.size(); ++i) {
    if (a.held[i].size() != b.held[i].size()) return false;
    for (auto x = a.held[i].begin(), y = b.held[i].begin(); x != a.held[i].end(); ++x, ++y)
      if (x->first != y->first || !same_shape(x->second, y->second)) return false;
  }
  for (std::size_t i = 0; i < a.fixed.size(); ++i)
    if (a.fixed[i].rank() != b.fixed[i].rank()) return false;
  return true;
}

Contents with_coordinates(const Contents& a, const std::vector<std::int64_t>& values) {
  Contents r = a;
  std::size_t next = 0;
  for_boxes(r, [&](Box& box) {
    for (int d = 0; d < box.rank(); ++d) {
      box[d] = {values[next], values[next + 1]};
      next += 2;
    }
  });
  // A run that grew by moving its last tile has more tiles; its step is as before.
  for (std::size_t b = 0; b < r.held.size(); ++b)
    for (auto& [instance, content] : r.held[b]) {
      const Content& old = a.held[b].at(instance);
      for (std::size_t i = 0; i < content.complete.size(); ++i) {
        Progression& p = content.complete[i];
        Progression step = old.complete[i];
        if (p.count < 2) continue;
        for (int d = 0; d < p.first.rank(); ++d) {  // the old run, from where the new one starts
          const Interval by = shifted(step.first[d], step.last[d]);
          step.first[d] = p.first[d];
          step.last[d] = {p.first[d].lo + by.lo, p.first[d].hi + by.hi};
        }
        if (const auto position = position_of(step, p.last)) p.count = *position + 1;
      }
    }
  return r;
}

std::optional<Found> find_complete(const Content& c, const Box& box) {
  for (std::size_t i = 0; i < c.complete.size(); ++i) {
    const auto position = position_of(c.complete[i], box);
    if (position && *position >= 0 && *position < c.complete[i].count) return Found{i, *position};
  }
  return std::nullopt;
}

void complete(Content& c, const Box& box) {
  if (find_complete(c, box)) return;
  if (!c.complete.empty()) {
    Progression& p = c.complete.back();
    bool same_size = true;
    for (int d = 0; d < box.rank(); ++d) same_size &= box[d].size() == p.first[d].size();
    if (same_size && (p.count == 1 || position_of(p, box) == p.count)) {
      p.last = box;
      ++p.count;
      return;
    }
  }
  c.complete.push_back({box, box, 1});
}

}  // namespace tilewright::exact_model
