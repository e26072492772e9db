#include "simulator/skipping.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace tilewright {

namespace {

/// Lines touched for each line that a comparison looks at: what looking costs at most.
constexpr std::int64_t kWorkPerLine = 16;
constexpr int kMostFailures = 10;

std::int64_t modulo(std::int64_t a, std::int64_t m) { return (a % m + m) % m; }

/// Iterations until a step of `bytes` each is a multiple of `of`.
std::int64_t until_multiple(std::int64_t bytes, std::int64_t of) {
  return of / std::gcd(of, modulo(bytes, of));
}

/// What was counted between two times, so many times more. Images are of plain engines, which count
/// no more than this.
void add(std::int64_t times, const cache::Tally& before, const cache::Tally& after,
         cache::Tally& to) {
  to.hits += times * (after.hits - before.hits);
  to.misses += times * (after.misses - before.misses);
  to.read_bytes += times * (after.read_bytes - before.read_bytes);
  to.written_bytes += times * (after.written_bytes - before.written_bytes);
}

bool same(const cache::Image& a, const cache::Image& b) {
  for (std::size_t i = 0; i < a.levels.size(); ++i)
    if (a.levels[i].entries != b.levels[i].entries || a.levels[i].states != b.levels[i].states)
      return false;
  return true;
}

}  // namespace

Skipping::Skipping(const Schedule& s, const AddressMap& map, CacheHierarchy& caches,
                   const Counters& counters, std::int64_t granule)
    : s_(s),
      map_(map),
      caches_(caches),
      counters_(counters),
      granule_(granule),
      regions_(map.regions()) {
  for (const ScheduledKernel& k : s.kernels) loops_.emplace_back(k.nodes.size());
  for (const CacheGeometry& g : caches.levels()) lines_ += g.capacity.value / g.line.value;
}

std::string Skipping::refusal(const AddressMap& map, const CacheHierarchy& caches) {
  if (!caches.has_image())
    return "the caches do more than replace lines in an order that their touches decide";
  for (const CacheGeometry& g : caches.levels())
    if (map.alignment() % g.line.value != 0) return "lines are longer than tensors are aligned to";
  return "";
}

std::int64_t Skipping::steer(const LoopPoint& point) {
  Loop& l = loops_[static_cast<std::size_t>(point.kernel)][point.loop.index()];
  if (point.next == 0) {
    begin(l, point);
    begin_run(l.again, point);
  }
  if (l.again.watching) {
    const std::int64_t to = mark(l, point.next, point.count);
    if (to != point.next) return to;
  }
  const std::int64_t to = steer_steps(l, point);
  if (l.again.watching && to != point.next && to + 1 == point.count) mark(l, to, point.count);
  return to;
}

std::int64_t Skipping::steer_steps(Loop& l, const LoopPoint& point) {
  if (!l.watching || point.next < l.moves.first) return point.next;
  if ((point.next - l.moves.first) % l.period != 0) return point.next;
  const std::int64_t left = point.count - 1 - point.next;
  if (left < l.period) {
    give_up(l);
    return point.next;
  }
  if (*counters_.lines - l.work < kWorkPerLine * lines_ && l.work != 0) return point.next;
  if (l.based) return pass(l, point);
  take_base(l, point.next);
  return point.next;
}

void Skipping::begin_run(Reruns& r, const LoopPoint& point) {
  r.watching = false;
  if (r.rest > 0) {
    --r.rest;
    return;
  }
  r.running.clear();
  auto run = point.count < 4 ? std::nullopt : run_of(s_, map_, point);
  if (!run) {
    r.rest = std::int64_t{1} << kMostFailures;
    return;
  }
  if (*run != r.before) r.marks.clear();
  r.now = std::move(*run);
  r.watching = true;
  r.began = *counters_.lines;
}

void Skipping::mark_now(Mark& m, std::int64_t iteration) const {
  m.iteration = iteration;
  caches_.image(m.image);
  m.operations = *counters_.operations;
  m.computes = *counters_.computes;
}

std::int64_t Skipping::mark(Loop& l, std::int64_t iteration, std::int64_t count) {
  Reruns& r = l.again;
  const bool last = iteration + 1 == count;
  if (!last) {
    // 1, 2, 3, 4, 6, 8, 12...; before so much is touched the caches still hold what was before.
    const auto bits = static_cast<std::uint64_t>(iteration);
    const bool due = std::has_single_bit(bits) || (bits % 3 == 0 && std::has_single_bit(bits / 3));
    if (!due || *counters_.lines - r.began < lines_ || (!r.marks.empty() && iteration < r.from))
      return iteration;
  }
  Mark& now = r.running.emplace_back();
  mark_now(now, iteration);
  if (last) {
    const bool useful = r.running.size() > 1;
    const bool knew = !r.marks.empty();
    std::swap(r.marks, r.running);
    r.before = r.now;
    if (!useful) r.marks.clear();
    if (!useful || knew) {
      r.failures = std::min(r.failures + 1, kMostFailures);
      r.rest = (std::int64_t{1} << r.failures) - 1;
    }
    r.from = 0;
    return iteration;
  }
  const auto then = std::find_if(r.marks.begin(), r.marks.end(),
                                 [&](const Mark& m) { return m.iteration == iteration; });
  if (then == r.marks.end() || !same(then->image, now.image)) return iteration;
  const Mark& end = r.marks.back();
  for (std::size_t i = 0; i < now.image.levels.size(); ++i) {
    now.image.levels[i].entries = end.image.levels[i].entries;
    now.image.levels[i].states = end.image.levels[i].states;
    for (std::size_t t = 0; t < now.image.levels[i].tally.size(); ++t)
      add(1, then->image.levels[i].tally[t], end.image.levels[i].tally[t],
          now.image.levels[i].tally[t]);
  }
  caches_.assign(now.image);
  add_counters(1, then->operations, end.operations, then->computes, end.computes);
  l.skipped += end.iteration - iteration;
  r.from = iteration;
  r.failures = 0;
  r.watching = false;
  return end.iteration;
}

/// What was counted between two times, once more.
void Skipping::add_counters(std::int64_t times, const std::vector<std::int64_t>& before,
                            const std::vector<std::int64_t>& after, std::int64_t computes_before,
                            std::int64_t computes_after) {
  for (std::size_t o = 0; o < before.size(); ++o) {
    if (after[o] < 0) continue;  // never ran
    std::int64_t& count = (*counters_.operations)[o];
    count = std::max<std::int64_t>(count, 0) +
            times * (after[o] - std::max<std::int64_t>(before[o], 0));
  }
  const std::int64_t computes = times * (computes_after - computes_before);
  *counters_.computes += computes;
  skipped_computes_ += computes;
}

void Skipping::begin(Loop& l, const LoopPoint& point) {
  l.watching = l.based = false;
  l.tests = 0;
  l.power = 1;
  if (l.rest > 0) {
    --l.rest;
    return;
  }
  auto moves = translation_of(s_, map_, point);
  if (moves) {
    l.moves = std::move(*moves);
    l.period = period_of(l.moves, (point.count - 1 - l.moves.first) / 2);
    l.watching = l.period != 0;
  }
  if (!l.watching) give_up(l);
}

/// Nothing came of this instance: the next ones are left alone, ever more of them.
void Skipping::give_up(Loop& l) {
  l.watching = false;
  l.failures = std::min(l.failures + 1, kMostFailures);
  l.rest = (std::int64_t{1} << l.failures) - 1;
}

void Skipping::take_base(Loop& l, std::int64_t at) {
  caches_.image(l.base);
  l.base_operations = *counters_.operations;
  l.base_computes = *counters_.computes;
  l.base_at = at;
  l.based = true;
  l.work = std::max<std::int64_t>(*counters_.lines, 1);
}

std::int64_t Skipping::period_of(const LoopTranslation& moves, std::int64_t most) const {
  std::int64_t period = 1;
  std::optional<std::int64_t> reference;
  for (std::size_t r = 0; r < regions_.size(); ++r) {
    if (!moves.touched[r]) continue;
    if (!reference) reference = moves.bytes[r];
    period = std::lcm(period, until_multiple(moves.bytes[r], granule_));
    for (const CacheGeometry& g : caches_.levels()) {
      const std::int64_t sets = g.ways == 0 ? 1 : g.capacity.value / (g.line.value * g.ways);
      period = std::lcm(period, until_multiple(moves.bytes[r], g.line.value));
      period = std::lcm(period, until_multiple(moves.bytes[r] - *reference, g.line.value * sets));
      if (period > most) return 0;
    }
  }
  return most < 1 ? 0 : period;
}

/// Looks whether the caches repeat themselves, and passes over what repeats.
std::int64_t Skipping::pass(Loop& l, const LoopPoint& point) {
  caches_.image(now_);
  const std::int64_t distance = point.next - l.base_at;
  l.work = std::max<std::int64_t>(*counters_.lines, 1);
  const std::int64_t times = (point.count - 1 - point.next) / distance;
  if (times == 0) {
    give_up(l);
    return point.next;
  }
  if (!moved(l.base, now_, l.moves, distance) || !move(now_, l.moves, times * distance)) {
    // Brent's way to find a period: the base goes on after 1, 2, 4... comparisons.
    if (++l.tests < l.power) return point.next;
    l.tests = 0;
    l.power *= 2;
    take_base(l, point.next);
    return point.next;
  }
  for (std::size_t i = 0; i < now_.levels.size(); ++i)
    for (std::size_t t = 0; t < now_.levels[i].tally.size(); ++t) {
      cache::Tally& tally = now_.levels[i].tally[t];
      const cache::Tally after = tally;
      add(times, l.base.levels[i].tally[t], after, tally);
    }
  caches_.assign(now_);
  const std::vector<std::int64_t> operations = *counters_.operations;
  add_counters(times, l.base_operations, operations, l.base_computes, *counters_.computes);
  l.skipped += times * distance;
  l.failures = 0;
  l.watching = false;
  return point.next + times * distance;
}

std::size_t Skipping::region_of(std::int64_t address) const {
  const auto after =
      std::upper_bound(regions_.begin(), regions_.end(), address,
                       [](std::int64_t a, const AddressMap::Region& r) { return a < r.base; });
  TW_CHECK(after != regions_.begin(), "a line before all tensors");
  return static_cast<std::size_t>(after - regions_.begin()) - 1;
}

std::uint64_t Skipping::turn(const cache::LevelImage& level, const LoopTranslation& moves,
                             std::int64_t iterations) const {
  for (std::size_t r = 0; r < regions_.size(); ++r)
    if (moves.touched[r])
      return static_cast<std::uint64_t>(modulo((moves.bytes[r] * iterations) >> level.line_shift,
                                               static_cast<std::int64_t>(level.sets)));
  return 0;
}

bool Skipping::moved(const cache::Image& from, const cache::Image& to, const LoopTranslation& moves,
                     std::int64_t iterations) const {
  for (std::size_t i = 0; i < from.levels.size(); ++i) {
    const cache::LevelImage& a = from.levels[i];
    const cache::LevelImage& b = to.levels[i];
    std::uint64_t set = turn(a, moves, iterations);
    for (std::uint64_t s = 0; s < a.sets; ++s, set = set + 1 == a.sets ? 0 : set + 1) {
      if (!a.states.empty() && !(a.states[s] == b.states[set])) return false;
      for (std::size_t w = 0; w < a.ways; ++w) {
        cache::Entry e = a.entries[s * a.ways + w];
        if (e != cache::kEmpty) {
          const auto line = static_cast<std::int64_t>(cache::line_of(e));
          const std::int64_t bytes = moves.bytes[region_of(line << a.line_shift)] * iterations;
          e += static_cast<cache::Entry>(bytes >> a.line_shift) << cache::kMetaBits;
        }
        if (e != b.entries[set * a.ways + w]) return false;
      }
    }
  }
  return true;
}

bool Skipping::move(cache::Image& image, const LoopTranslation& moves,
                    std::int64_t iterations) const {
  std::vector<std::vector<cache::Entry>> entries(image.levels.size());
  std::vector<std::vector<cache::PolicyState>> states(image.levels.size());
  for (std::size_t i = 0; i < image.levels.size(); ++i) {
    const cache::LevelImage& level = image.levels[i];
    entries[i].resize(level.entries.size());
    states[i].resize(level.states.size());
    std::uint64_t set = turn(level, moves, iterations);
    for (std::uint64_t s = 0; s < level.sets; ++s, set = set + 1 == level.sets ? 0 : set + 1) {
      if (!level.states.empty()) states[i][set] = level.states[s];
      for (std::size_t w = 0; w < level.ways; ++w) {
        cache::Entry e = level.entries[s * level.ways + w];
        if (e != cache::kEmpty) {
          const std::int64_t address = static_cast<std::int64_t>(cache::line_of(e))
                                       << level.line_shift;
          const AddressMap::Region& region = regions_[region_of(address)];
          const std::int64_t bytes =
              moves.bytes[static_cast<std::size_t>(&region - regions_.data())] * iterations;
          if (address + bytes < region.base || address + bytes >= region.end) return false;
          e += static_cast<cache::Entry>(bytes >> level.line_shift) << cache::kMetaBits;
        }
        entries[i][set * level.ways + w] = e;
      }
    }
  }
  for (std::size_t i = 0; i < image.levels.size(); ++i) {
    image.levels[i].entries = std::move(entries[i]);
    image.levels[i].states = std::move(states[i]);
  }
  return true;
}

Skipped Skipping::result() const {
  Skipped all{.computes = skipped_computes_, .of_computes = *counters_.computes};
  for (std::size_t k = 0; k < loops_.size(); ++k)
    for (std::size_t n = 0; n < loops_[k].size(); ++n) {
      if (loops_[k][n].skipped == 0) continue;
      const ScheduleNode& node = s_.kernels[k].nodes[n];
      all.loops.push_back(
          {.kernel = s_.kernels[k].name,
           .loop = s_.workload->loop(node.loop).name + "/" + std::to_string(node.step),
           .iterations = loops_[k][n].skipped});
    }
  return all;
}

}  // namespace tilewright
