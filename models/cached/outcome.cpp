#include "models/cached/outcome.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewright::cached {

namespace {
constexpr int kMostSteps = 6, kMostStepsFromEnd = 24;
// Lines in a set are counted so far, by the ways.
constexpr double kFull = 1.75;
// So many lines at most are listed; and where they are, so many sets are looked at one by one.
constexpr std::int64_t kMostListed = 2048, kFewSets = 256;
}  // namespace

Judge::Judge(const Nest& nest, std::vector<CacheLevel> levels)
    : nest_(nest), levels_(std::move(levels)), look_(nest), window_(nest) {
  listed_ = levels_.front().sets * levels_.front().ways;
  apart_.assign(levels_.size(), false);
  for (std::size_t v = 0; v < levels_.size(); ++v) {
    const CacheLevel& level = levels_[v];
    for (const auto& [sets, ways] : within_)
      if (level.sets % sets != 0) apart_[v] = true;
    if (apart_[v]) listed_ = std::max(listed_, level.sets * level.ways);
    within_.emplace_back(level.sets, level.ways);
  }
}

Judge::Step Judge::back(const Path& now, const Spot& x, std::size_t from,
                        std::array<double, kMostLevels>* fullness, bool writes) {
  window_.clear();
  Step step{.found = look_.last(now, x, before_, window_, writes), .hit = levels_.size()};
  if (fullness != nullptr && !step.found) fullness->fill(INFINITY);
  if (!step.found) return step;
  const CacheLevel& inner = levels_.front();
  window_.settle(x, inner.line, std::min(2 * listed_, kMostListed));
  for (std::size_t v = from; v < levels_.size(); ++v) {
    const CacheLevel& level = levels_[v];
    const double lines =
        window_.lines() < level.ways ? static_cast<double>(window_.lines())
        : v > 0 && apart_[v] && window_.listed()
            ? window_.asked_in_set(x, level.line, level.sets, std::span(within_).first(v))
            : window_.in_set(x, level.line, level.sets, kFull * static_cast<double>(level.ways));
    const bool misses = lines >= static_cast<double>(level.ways);
    if (fullness != nullptr) {
      double& full = (*fullness)[v];
      full = lines / static_cast<double>(level.ways);
      if (!misses && window_.listed() && level.sets <= kFewSets)
        full = static_cast<double>(window_.fullest(level.sets)) / static_cast<double>(level.ways);
      // Another line's set may have what is the mean of all.
      else if (!misses)
        full = std::max(full, static_cast<double>(window_.lines()) /
                                  static_cast<double>(level.ways * level.sets));
    }
    if (misses) continue;
    step.hit = v;
    break;
  }
  return step;
}

/// Where the touch before `now` is by the same access, in an earlier iteration of one loop, it is
/// alike further back: moves before_ to the first of these iterations that touches the line.
void Judge::to_run_begin(const Path& now, const Spot& x) {
  if (before_.size() != now.size() || before_.use != now.use ||
      before_.back().node != now.back().node)
    return;
  std::size_t f = 0;
  while (f < now.size() && now.at(f).iteration == before_.at(f).iteration) ++f;
  if (f == now.size()) return;
  const int leaf = now.back().node;
  jump_.copy(before_, f);
  const int loop = now.at(f).node;
  std::int64_t low = 0, high = before_.at(f).iteration + 1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (look_.touched(jump_, jump_.back(), loop, {0, middle}, leaf, now.use, x) ? high : low) = middle;
  }
  nest_.enter(jump_, loop, high - 1);
  if (look_.first(jump_, leaf, now.use, x)) std::swap(jump_, before_);
}

std::size_t Judge::since_write(const Path* last, const Spot& x, std::size_t kept, int most) {
  std::size_t tried = levels_.size();  // `kept` of the last leap
  for (int steps = 0; steps < most && kept < levels_.size(); ++steps) {
    if (nest_.node(before_.back().node).uses[before_.use].write) return kept;
    if (last != nullptr) to_run_begin(*last, x);
    std::swap(now_, before_);
    last = &now_;
    if (kept != tried) {
      // All at once: where what is touched since the write leaves the line its place, so does what
      // is touched between any two reads of it.
      tried = kept;
      const Step leap = back(now_, x, kept, nullptr, true);
      if (!leap.found) return levels_.size();
      if (leap.hit <= kept) return kept;
    }
    kept = std::max(kept, back(now_, x, kept).hit);
  }
  return kept;
}

Outcome Judge::of(const Path& touch, const Spot& x, const std::vector<Piece>& alike) {
  Outcome out;
  const bool write = nest_.node(touch.back().node).uses[touch.use].write;
  const Step step = back(touch, x, 0, &out.fullness);
  for (std::size_t v = 0; v < levels_.size(); ++v) out.miss[v] = v < step.hit;
  const CacheLevel& inner = levels_.front();
  out.misses = out.miss[0] ? 1 : 0;
  if (step.found && window_.listed() && window_.lines() >= inner.ways &&
      window_.fullest(inner.sets) >= inner.ways)
    out.misses = window_.lost(x, out.miss[0], alike, inner.line, inner.sets, inner.ways);
  if (!write) return out;
  // Dirty already where an earlier write is met before the line has left.
  const std::size_t kept = since_write(&touch, x, step.hit, kMostSteps);
  for (std::size_t v = 0; v < kept; ++v) out.dirties[v] = true;
  return out;
}

Left Judge::at_end(const Spot& x) {
  Left left;
  nest_.begin(end_);
  const std::size_t hit = back(end_, x, 0, &left.fullness).hit;
  const std::size_t kept = since_write(nullptr, x, hit, kMostStepsFromEnd);
  for (std::size_t v = kept; v < levels_.size(); ++v) left.unwritten[v] = true;
  if (kept < levels_.size()) left.dirty[kept] = true;
  return left;
}

}  // namespace tilewright::cached
