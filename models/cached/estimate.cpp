// From the outcomes of a few touches of each kind to bytes.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/base/format.h"
#include "core/lowering/inside_tiles.h"
#include "models/cached/cached.h"
#include "models/cached/outcome.h"
#include "models/cached/strata.h"
#include "models/cached/walked.h"

namespace tilewright {

namespace cached {
namespace {

constexpr int kFirstSamples = 3, kFirstOfLeft = 4, kMostSamples = 512;
/// Draws that fall both ways where none is known to; see Part::doubt.
constexpr double kMore = 0.25;
/// How many draws may fall outside a part for each sample of it.
constexpr int kTries = 16;
/// Parts are looked into further until all together may be off by this share of the misses,
constexpr double kGoal = 0.05;
/// or so many touches were looked into.
constexpr std::int64_t kMostInAll = 480;

/// Points that fill a cube evenly: multiples of the roots of primes, modulo one.
double spread(int n, int dimension, double shift = 0) {
  static constexpr std::array kPrimes = {2.0,  3.0,  5.0,  7.0,  11.0, 13.0, 17.0, 19.0,
                                         23.0, 29.0, 31.0, 37.0, 41.0, 43.0, 47.0, 53.0};
  const double step = std::sqrt(kPrimes[static_cast<std::size_t>(dimension) % kPrimes.size()]);
  const double at = (n + 0.5) * step + 0.37 * dimension + shift;
  return at - std::floor(at);
}

/// Touches of one access whose reuse one loop carries (depth 0: none within the kernel does).
struct Part {
  std::size_t strata = 0;  ///< of which compute
  std::size_t use = 0;
  std::size_t depth = 0;
  double lines = 0;
  /// Not touches, but lines as they are at the end: misses are those not written back from a level
  /// or from further in, dirties those dirty in it.
  bool left = false;
  // Of the samples, by weight.
  int samples = 0, drawn = 0, asked = 0;
  double weight = 0;
  std::array<double, kMostLevels> misses = {}, squares = {}, dirties = {};
  std::array<double, kMostLevels> emptiest = {}, fullest = {};  ///< see Outcome::fullness

  double share(double of) const { return weight > 0 ? of / weight : 0; }
  /// How far the share of misses may be off: as of so many draws. Where sets were near the ways, as
  /// if some more draws had fallen both ways.
  double doubt(std::size_t v) const {
    const double n = samples, d = share(dirties[v]);
    const bool clear = fullest[v] < 0.6 || emptiest[v] > 1.6;
    const double more = clear ? 0 : kMore;
    const double mean = share(misses[v]);
    const double p = (n * mean + more) / (n + 2 * more);
    const double both = mean * (1 - mean);
    // What differs from one draw to the next is less where each is a share of many lines.
    const double spread = std::max(share(squares[v]) - mean * mean, 0.0) + p * (1 - p) - both;
    const double unseen = 0.002 / ((n + 1) * (n + 1));
    return std::sqrt((std::max(spread, 0.0) + 0.5 * d * (1 - d) + unseen) / n);
  }
};

class Estimate {
 public:
  Estimate(const Nest& nest, std::vector<CacheLevel> levels)
      : nest_(nest), levels_(levels), judge_(nest_, std::move(levels)) {
    const std::int64_t line = levels_.front().line;
    for (std::size_t n = 0; n < nest_.nodes().size(); ++n)
      if (nest_.node(static_cast<int>(n)).kind == NodeKind::compute)
        strata_.push_back(strata_of(nest_, static_cast<int>(n), line));
    for (std::size_t c = 0; c < strata_.size(); ++c)
      for (std::size_t u = 0; u < strata_[c].lines.size(); ++u)
        for (std::size_t d = 0; d < strata_[c].lines[u].size(); ++d) add_part(c, u, d);
    add_left();
  }

  void run() {
    for (Part& p : parts_) draw(p, p.left ? kFirstOfLeft : kFirstSamples);
    refine();
    for (Part& p : parts_)
      if (p.weight == 0 && !p.left) unknown(p);
  }

  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<Strata>& strata() const { return strata_; }
  std::int64_t samples() const { return samples_; }
  double doubt() const { return doubt_; }

  LineCounts counts() const {
    LineCounts all(levels_.size(),
                   std::vector<LineCount>(nest_.schedule().workload->tensors().size()));
    for (const Part& p : parts_) {
      const Use& use = nest_.node(strata_[p.strata].leaf).uses[p.use];
      const std::size_t t = nest_.array(use.array).tensor.index();
      for (std::size_t v = 0; v < levels_.size(); ++v) {
        LineCount& count = all[v][t];
        if (p.left) {
          count.written -= p.lines * p.share(p.misses[v]);
          count.dirty += p.lines * p.share(p.dirties[v]);
          continue;
        }
        count.misses += p.lines * p.share(p.misses[v]);
        count.written += p.lines * p.share(p.dirties[v]);
        count.touches += v == 0 ? p.lines : p.lines * p.share(p.misses[v - 1]);
      }
    }
    return all;
  }

 private:
  void add_part(std::size_t c, std::size_t u, std::size_t d) {
    const auto& lines = strata_[c].lines[u];
    const double rise = d == 0 ? lines[0] : lines[d] - lines[d - 1];
    if (rise > 1e-9 * lines.back()) parts_.push_back({c, u, d, rise});
  }

  /// Of each array that is written the lines at the end: those of the write that has most.
  void add_left() {
    std::vector<const Part*> largest(nest_.arrays().size(), nullptr);
    for (const Part& p : parts_) {
      const Use& use = nest_.node(strata_[p.strata].leaf).uses[p.use];
      if (p.depth != 0 || !use.write) continue;
      const Part*& best = largest[static_cast<std::size_t>(use.array)];
      if (best == nullptr || p.lines > best->lines) best = &p;
    }
    std::vector<Part> left;
    for (const Part* p : largest)
      if (p != nullptr) left.push_back({p->strata, p->use, 0, p->lines, true});
    parts_.insert(parts_.end(), left.begin(), left.end());
  }

  void draw(Part& p, int samples) {
    p.asked = samples;
    const int most = p.drawn + kTries * (samples - p.samples);
    while (p.samples < samples && p.drawn < most) sample(p);
  }

  /// A touch of the part, chosen evenly, is looked into.
  void sample(Part& p) {
    const Strata& s = strata_[p.strata];
    const int n = p.drawn++;
    // Parts are looked into at places of their own, so that what they miss differs.
    const double shift = 0.6180339887498949 * static_cast<double>(&p - parts_.data());
    Path& path = path_;
    nest_.begin(path);
    std::size_t depth = 0, w = 0;
    int dimension = 0;
    const Frame* around = nullptr;
    std::size_t outside = 0;
    for (; depth < p.depth; ++w) {
      std::int64_t i = 0;
      if (nest_.node(s.way[w]).kind == NodeKind::loop) {
        const std::int64_t count = nest_.trips_of(s.way[w], path.back());
        const bool carries = ++depth == p.depth;
        const std::int64_t low = carries ? 1 : 0;
        if (count <= low) return;
        const double at = spread(n, dimension++, shift) * static_cast<double>(count - low);
        i = low + std::min(static_cast<std::int64_t>(at), count - low - 1);
        outside = path.size();
      }
      nest_.enter(path, s.way[w], i);
    }
    const Use& use = nest_.node(s.leaf).uses[p.use];
    const Array& array = nest_.array(use.array);
    const std::int64_t line = levels_.front().line;
    pieces_.clear();
    const auto add = [&](const Use&, const Piece& piece) {
      pieces_.push_back(piece);
      return false;
    };
    if (path.back().node == s.leaf)
      nest_.once(path, p.use, add);
    else
      nest_.sweep_use(path, path.back(), s.way[w], whole(s.way[w], path.back()), s.leaf, p.use,
                      add);
    double total = 0;
    for (const Piece& piece : pieces_) total += static_cast<double>(lines(array, piece, line));
    if (total <= 0) return;
    double pick = spread(n, dimension++, shift) * total;
    const Piece* chosen = &pieces_.back();
    for (const Piece& piece : pieces_) {
      pick -= static_cast<double>(lines(array, piece, line));
      if (pick > 0) continue;
      chosen = &piece;
      break;
    }
    std::array<double, kMaxRank> where{};
    for (double& x : where) x = spread(n, dimension++, shift);
    const Spot x = spot(array, use.array, *chosen, line, where);
    if (p.depth > 0) {
      // Only what the use has touched in an earlier iteration of the loop belongs to this part.
      around = &path.at(outside - 1);
      if (!judge_.look().touched(path, *around, path.at(outside).node,
                                 {0, path.at(outside).iteration}, s.leaf, p.use, x))
        return;
    }
    if (p.left) {
      const Left out = judge_.at_end(x);
      return keep(p, total, out.unwritten, out.dirty, out.fullness, out.unwritten[0] ? 1 : 0);
    }
    if (!judge_.look().first(path, s.leaf, p.use, x)) return;
    constexpr double kMostAlike = 1024;
    if (total > kMostAlike) pieces_.clear();
    const Outcome out = judge_.of(path, x, pieces_);
    keep(p, total, out.miss, out.dirties, out.fullness, out.misses);
  }

  using Flags = std::array<bool, kMostLevels>;
  void keep(Part& p, double weight, const Flags& misses, const Flags& dirties,
            const std::array<double, kMostLevels>& fullness, double innermost) {
    ++p.samples;
    ++samples_;
    p.weight += weight;
    for (std::size_t v = 0; v < levels_.size(); ++v) {
      p.emptiest[v] = p.samples == 1 ? fullness[v] : std::min(p.emptiest[v], fullness[v]);
      p.fullest[v] = std::max(p.fullest[v], fullness[v]);
      const double share = v == 0 ? innermost : misses[v] ? 1 : 0;
      p.misses[v] += weight * share;
      p.squares[v] += weight * share * share;
      if (dirties[v]) p.dirties[v] += weight;
    }
  }

  Interval whole(int node, const Frame& around) const {
    return {0, nest_.node(node).kind == NodeKind::loop ? nest_.trips_of(node, around) : 1};
  }

  /// By how much the part may put the misses of a level off, as a share of them.
  double off(const Part& p, const std::array<double, kMostLevels>& all) const {
    double worst = 0;
    for (std::size_t v = 0; v < levels_.size(); ++v)
      worst = std::max(worst, p.lines * p.doubt(v) / std::max(all[v], 1.0));
    return worst;
  }

  /// More samples where they tell most, until the sum is sure enough.
  void refine() {
    std::vector<double> gains(parts_.size());
    while (samples_ < kMostInAll) {
      std::array<double, kMostLevels> all{};
      for (const Part& p : parts_)
        for (std::size_t v = 0; v < levels_.size() && !p.left; ++v)
          all[v] += p.lines * p.share(p.misses[v]);
      double sum = 0, largest = 0;
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        const Part& p = parts_[i];
        const double square = std::pow(off(p, all), 2);
        sum += square;
        // None are to be found, or enough were.
        const bool done = 2 * p.samples < p.asked || p.samples >= kMostSamples;
        // Twice the samples take a share of the square off: what one of them takes off on average.
        gains[i] = done ? 0 : square / std::max(p.samples, 1);
        if (!done) largest = std::max(largest, square);
      }
      doubt_ = std::sqrt(sum);
      if (sum < kGoal * kGoal || largest < std::pow(kGoal / 50, 2)) return;
      // Those that gain most, together; the sums are renewed after them.
      const double most = *std::ranges::max_element(gains);
      for (std::size_t i = 0; i < parts_.size() && samples_ < kMostInAll; ++i)
        if (gains[i] > 0.25 * most) draw(parts_[i], 2 * parts_[i].samples);
    }
  }

  /// No touch was found: as the part next to it further in or out does.
  void unknown(Part& p) {
    for (const Part& other : parts_)
      if (other.strata == p.strata && other.use == p.use && !other.left && other.weight > 0) {
        p.weight = other.weight;
        p.misses = other.misses;
        p.squares = other.squares;
        p.dirties = other.dirties;
        if (other.depth > p.depth) return;
      }
  }

  const Nest& nest_;
  std::vector<CacheLevel> levels_;
  Judge judge_;
  std::vector<Strata> strata_;
  std::vector<Part> parts_;
  std::int64_t samples_ = 0;
  double doubt_ = 0;
  Path path_;
  std::vector<Piece> pieces_;
};

/// What a cache does that a plain one does not; empty: nothing.
std::string behaviour(const CacheBehaviour& b) {
  if (b.inclusion != Inclusion::non_inclusive)
    return "is " + std::string(name_of(b.inclusion)) + " of what the levels within it hold";
  if (b.write == WriteHit::through) return "passes writes through";
  if (b.write_miss != WriteMiss::fetch)
    return "takes writes that miss by " + std::string(name_of(b.write_miss));
  if (b.index != Index::modulo) return "has sets by " + std::string(name_of(b.index));
  if (!b.prefetch.empty()) return "has a prefetcher";
  return b.plain() ? "" : "takes a share of clean victims";
}

/// Why the hierarchy, or what the plan touches of it, is none that this says; empty: it is one.
std::string refusal(const Schedule& s) {
  const Machine& m = *s.machine;
  const auto is_cache = [&](LevelId l) {
    return l != m.home() && m.level(l).managed == Managed::hardware;
  };
  std::size_t caches = 0;
  for (std::size_t l = 1; l < m.levels.size(); ++l) {
    const Level& level = m.levels[l];
    if (!is_cache(LevelId(l))) continue;
    ++caches;
    if (level.policy != "lru")
      return level.name + " replaces lines by " + level.policy + ", and this knows lru";
    if (std::string other = behaviour(level.behaviour); !other.empty())
      return level.name + " " + other + ", and this knows plain caches";
    if (level.sector != level.line) return level.name + " is filled by sectors";
    if (level.line != m.level(m.default_level()).line)
      return "its caches have lines of two lengths";
  }
  if (caches == 0) return "hardware manages no level of it";
  if (caches > kMostLevels) return formatted("it has more than {} caches", kMostLevels);
  for (const ScheduledKernel& k : s.kernels) {
    for (const Buffer& b : k.buffers) {
      if (!is_cache(b.level) && b.level != m.home())
        return "software manages " + m.level(b.level).name + ", which the plan uses";
      if (b.role == BufferRole::intermediate && !b.leaves && !b.fixed_at.valid())
        return "no loop fixes the tile of " + s.workload->tensor(b.tensor).name + ", which " +
               k.name + " makes and nobody in it reads";
      if (b.sliding) return "what a sliding tensor's compute touches depends on what is held";
    }
    for (const ScheduleNode& n : k.nodes) {
      if (n.once) return "whether a !once compute runs depends on what is held";
      for (const InputUse& use : n.reads)
        if (!use.buffer.valid()) return "a gather's addresses are values";
    }
  }
  return "";
}

std::int64_t bytes_of_lines(double lines, std::int64_t line) {
  return std::max<std::int64_t>(std::llround(lines), 0) * line;
}

/// Sums by tensor and boundary, outer boundaries first.
Traffic traffic_of(const Schedule& s, const LineCounts& counts,
                   const std::vector<CacheLevel>& levels, const std::vector<LevelId>& ids) {
  const Workload& w = *s.workload;
  const Machine& m = *s.machine;
  Traffic out{.source = Source::predicted,
              .by = "cached",
              .machine = m.name,
              .counts = {.write_allocate = true, .write_back = true}};
  for (std::size_t v = levels.size(); v-- > 0;) {
    const auto path = m.path(m.home(), ids[v]);
    for (std::size_t t = 0; t < w.tensors().size(); ++t) {
      const LineCount& count = counts[v][t];
      if (count.touches < 0.5 && count.dirty < 0.5) continue;
      const std::int64_t line = levels[v].line;
      out.entries.push_back({.tensor = w.tensors()[t].name,
                             .boundary = m.boundary(path.back().first, path.back().second),
                             .read = Bytes(bytes_of_lines(count.misses, line)),
                             .written = Bytes(bytes_of_lines(count.written, line)),
                             .hits = std::llround(count.touches - count.misses),
                             .misses = std::llround(count.misses),
                             .resident_dirty = Bytes(bytes_of_lines(count.dirty, line))});
    }
  }
  return out;
}

}  // namespace
}  // namespace cached

Result<Traffic> cached_traffic(const Schedule& schedule, Layout layout, CachedCost* cost,
                               std::int64_t most_steps) {
  using namespace tilewright::cached;
  if (std::string why = refusal(schedule); !why.empty()) return Reason{std::move(why)};
  const Machine& m = *schedule.machine;
  std::vector<CacheLevel> levels;
  std::vector<LevelId> ids;
  for (std::size_t l = m.levels.size(); l-- > 1;) {
    const Level& level = m.levels[l];
    if (level.managed != Managed::hardware) continue;
    const std::int64_t lines = level.capacity.value / level.line.value;
    levels.push_back({.line = level.line.value,
                      .sets = level.ways == 0 ? 1 : lines / level.ways,
                      .ways = level.ways == 0 ? lines : level.ways});
    ids.push_back(LevelId(l));
  }
  const std::optional<Schedule> inside = with_loops_inside(schedule);
  const Nest nest(inside ? *inside : schedule, AddressMap(schedule, layout));
  if (cost != nullptr) *cost = {};
  if (most_steps > 0)
    if (const auto counts = walked(nest, levels, most_steps)) {
      if (cost != nullptr) cost->walked = true;
      return traffic_of(schedule, *counts, levels, ids);
    }
  Estimate estimate(nest, levels);
  estimate.run();
  if (cost != nullptr) {
    *cost = {.strata = static_cast<std::int64_t>(estimate.parts().size()),
             .samples = estimate.samples(),
             .doubt = estimate.doubt()};
    for (const Strata& one : estimate.strata()) cost->counted += one.counted;
    for (const Part& p : estimate.parts()) {
      if (p.left) continue;
      CachedKind& kind =
          cost->kinds.emplace_back(CachedKind{.compute = estimate.strata()[p.strata].leaf,
                                              .use = p.use,
                                              .depth = p.depth,
                                              .touches = p.lines,
                                              .samples = p.samples});
      for (std::size_t v = 0; v < levels.size(); ++v) kind.misses.push_back(p.share(p.misses[v]));
    }
  }
  return traffic_of(schedule, estimate.counts(), levels, ids);
}

}  // namespace tilewright
