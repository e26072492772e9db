// The code generator's search: groups, the schemes of their sub-roots, launch dimensions.
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "core/base/effort.h"
#include "core/base/format.h"
#include "models/stitching/alike.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"
#include "models/stitching/passes.h"
#include "models/stitching/window_tiles.h"

namespace tilewright::stitching {
namespace {

constexpr std::array<std::int64_t, 4> kBlockSizes = {128, 256, 512, 1024};
constexpr std::array<std::int64_t, 7> kWrittenThreads = {32, 64, 128, 192, 256, 512, 1024};
constexpr std::array<std::int64_t, 3> kFewThreads = {64, 256, 1024};
constexpr std::array<Scheme, 3> kThreeSchemes = {Scheme::thread, Scheme::warp, Scheme::block};
constexpr double kSummedByBlock =
    32;  // of a column, at least: its part is written for each 32 read
constexpr std::int64_t kMostTurns = 8;
constexpr std::int64_t kMostPieces = 4;   // of a transposition, that a thread moves
constexpr std::int64_t kMostSummed = 64;  // turns of a thread that adds up points
constexpr std::size_t kMostGroups = 6;    // of which every combination of schemes is tried
constexpr std::size_t kBeam = 64;         // combinations that are gone on with where there are more
constexpr std::size_t kMostExpensive = 8;  // of which every subset is tried
// The best pack: fewer or more threads still are no better.
constexpr double kFarAbove = 2;
constexpr double kForever = std::numeric_limits<double>::infinity();

/// In order of what they take at least.
std::vector<std::size_t> most_promising_first(std::span<const Part::Candidate> all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return all[i].least; });
  return order;
}

}  // namespace

Part::Part(const Graph& g, const Device& d, const Component& c, const Options& o)
    : in_block_(c.along >= 0 ? std::optional(g.in_block(c)) : std::nullopt),
      g_(in_block_ ? *in_block_ : g),
      d_(d),
      c_(c),
      o_(o) {
  points_ = std::ranges::all_of(c.vertices, [this](int v) { return inner(v) <= 1; });
  if (!o.written) return;
  dram_bytes_ = memory_bytes(g, c);
  image_ = window_loops(g, c);
  sum_up();
  columns_ = sums_columns(g, c);
  over_columns_ = runs_over_columns(g, c);
  widest_ = widest_vector(g, c);
  nested_ = has_nested_rows(g, c);
  if (points_ && c.partial.empty() && c.along < 0) crossing_ = crossing_loops(g, c);
}

// ---- Groups
// ---------------------------------------------------------------------------------------

/// Which vertices are sub-roots: reductions that are read here always, expensive operators by
/// choice.
std::vector<std::vector<bool>> Part::groupings() const {
  std::vector<bool> reductions(c_.vertices.size());
  std::vector<std::size_t> expensive, widened;
  for (std::size_t i = 0; i < c_.vertices.size(); ++i) {
    const int v = c_.vertices[i];
    if (!read_inside(v)) continue;
    if (g_.vertex(v).kind == Kind::reduction) reductions[i] = true;
    if (g_.vertex(v).kind != Kind::expensive) continue;
    expensive.push_back(i);
    const bool wider = std::ranges::any_of(g_.vertex(v).consumers,
                                           [&](int c) { return in(c) && inner(c) > inner(v); });
    if (wider) widened.push_back(i);
  }
  const auto with = [&](std::span<const std::size_t> more) {
    std::vector<bool> all = reductions;
    for (std::size_t i : more) all[i] = true;
    return all;
  };
  std::vector<std::vector<bool>> out = {reductions};
  if (o_.groupings == Groupings::each && expensive.size() <= kMostExpensive) {
    for (std::size_t set = 1; set < std::size_t{1} << expensive.size(); ++set) {
      std::vector<std::size_t> more;
      for (std::size_t i = 0; i < expensive.size(); ++i)
        if ((set >> i & 1) != 0) more.push_back(expensive[i]);
      out.push_back(with(more));
    }
    return out;
  }
  for (const auto& more : {widened, expensive})
    if (std::ranges::find(out, with(more)) == out.end()) out.push_back(with(more));
  return out;
}

std::vector<Group> Part::groups_of(const std::vector<bool>& sub_roots) const {
  std::vector<Group> out;
  for (std::size_t i = 0; i < c_.vertices.size(); ++i) {
    const int v = c_.vertices[i];
    if (!sub_roots[i] && read_inside(v)) continue;
    Group group{.root = v, .sub_root = sub_roots[i], .vertices = feeding(v, sub_roots)};
    // Roots that run over the same points share a loop: kernel packing's loop fusion
    // (section 4.1).
    const auto same = std::ranges::find_if(out, [&](const Group& o) {
      return !o.sub_root && !group.sub_root && g_.vertex(v).reduced.empty() &&
             g_.vertex(o.root).reduced.empty() &&
             (g_.vertex(o.root).loops & ~c_.rows) == (g_.vertex(v).loops & ~c_.rows);
    });
    if (same == out.end()) {
      out.push_back(std::move(group));
      continue;
    }
    std::vector<int> all;
    std::ranges::set_union(same->vertices, group.vertices, std::back_inserter(all));
    group.vertices = std::move(all);
    out.erase(same);
    out.push_back(std::move(group));
  }
  return out;
}

/// What is computed for a root: backwards up to the next sub-roots.
std::vector<int> Part::feeding(int root, const std::vector<bool>& sub_roots) const {
  std::vector<int> out = {root}, stack = {root};
  while (!stack.empty()) {
    const int v = stack.back();
    stack.pop_back();
    for (int e : g_.vertex(v).in) {
      const int from = g_.edge(e).from;
      if (!in(from) || sub_roots[place_of(from)]) continue;
      if (std::ranges::find(out, from) != out.end()) continue;
      out.push_back(from);
      stack.push_back(from);
    }
  }
  std::ranges::sort(out);
  return out;
}

// ---- Schemes
// --------------------------------------------------------------------------------------

bool Part::try_one(Stitched& s, std::int64_t threads, const Seen& f) const {
  if (!local(s)) return false;
  Effort::spend(static_cast<std::int64_t>(c_.vertices.size()));
  if (!place(s, threads)) return false;
  if (!s.written) cost(s, threads);
  f(s);
  return true;
}

void Part::each(std::int64_t threads, const Seen& f) const {
  if (o_.written) return each_written(threads, [&](Stitched& s) { try_one(s, threads, f); });
  for (const std::vector<bool>& sub_roots : groupings()) {
    Stitched s{.component = c_, .groups = groups_of(sub_roots)};
    if (c_.along >= 0)
      return;  // the paper's schedules have whole rows
    else if (s.groups.size() > kMostGroups)
      each_by_beam(s, threads, f);
    else
      each_of_paper(s, threads, f);
  }
}

/// Every combination of schemes.
void Part::each_of_paper(Stitched& s, std::int64_t threads, const Seen& f) const {
  std::size_t combinations = 1;
  for (std::size_t i = 0; i < s.groups.size(); ++i) combinations *= kThreeSchemes.size();
  for (std::size_t n = 0; n < combinations; ++n) {
    std::size_t rest = n;
    for (Group& g : s.groups) {
      g.scheme = kThreeSchemes[rest % kThreeSchemes.size()];
      rest /= kThreeSchemes.size();
    }
    try_one(s, threads, f);
  }
}

/// From all roots alike and all sub-roots alike on, a group at a time: the best combinations so far
/// with each scheme for that group, and for its readers where its value would stay in a register.
void Part::each_by_beam(Stitched& s, std::int64_t threads, const Seen& f) const {
  std::vector<std::pair<double, std::vector<Scheme>>> beam;
  std::set<std::vector<Scheme>> seen;
  const auto consider = [&](const std::vector<Scheme>& schemes) {
    if (!seen.insert(schemes).second) return;
    for (std::size_t i = 0; i < schemes.size(); ++i) s.groups[i].scheme = schemes[i];
    if (try_one(s, threads, f)) beam.emplace_back(latency(s, threads), schemes);
  };
  for (Scheme of_roots : kThreeSchemes)
    for (Scheme of_sub_roots : kThreeSchemes) {
      std::vector<Scheme> schemes;
      for (const Group& g : s.groups) schemes.push_back(g.sub_root ? of_sub_roots : of_roots);
      consider(schemes);
    }
  for (std::size_t at = 0; at < s.groups.size(); ++at) {
    const auto from = beam;
    for (const auto& [cycles, schemes] : from)
      for (Scheme scheme : kThreeSchemes) {
        std::vector<Scheme> changed = schemes;
        changed[at] = scheme;
        if (s.groups[at].sub_root && scheme != Scheme::block)
          each_reader(s, s.groups[at].root, [&](const Group& reader) {
            changed[static_cast<std::size_t>(&reader - s.groups.data())] = scheme;
          });
        consider(changed);
      }
    std::ranges::stable_sort(beam, {}, [](const auto& state) { return state.first; });
    if (beam.size() > kBeam) beam.resize(kBeam);
  }
}

/// One scheme for all groups, every width of access, of points several turns a thread, of several
/// loops within a row each way to share them out and, over columns, every number of blocks that the
/// GPU may need. A warp or block along a column would take
/// a sector for an element: left out.
void Part::each_written(std::int64_t threads, const std::function<void(Stitched&)>& f) const {
  const double most =
      columns_ && may_split(g_, c_)
          ? std::min(inner(c_.vertices.front()) / kSummedByBlock, static_cast<double>(4 * d_.sms))
          : 1;
  for (const std::vector<bool>& sub_roots : groupings()) {
    Stitched s{.component = c_, .groups = groups_of(sub_roots), .written = true};
    for (Scheme scheme : kThreeSchemes) {
      // A row of a point is a thread's; a warp or block would have nothing else to do.
      if (scheme != Scheme::thread && (points_ || (over_columns_ && columns_))) continue;
      if (scheme != Scheme::block && c_.along >= 0) continue;
      for (Group& g : s.groups) g.scheme = scheme;
      if (!c_.partial.empty() && !points_) {
        each_run(s, threads, f);
        continue;
      }
      for (s.vector = 1; c_.along < 0 && s.vector <= widest_; s.vector *= 2)
        for (s.turns = 1; s.turns <= (!points_             ? 1
                                      : c_.partial.empty() ? kMostTurns
                                                           : kMostSummed);
             s.turns *= 2)
          for (s.splits = 1; s.splits == 1 || static_cast<double>(s.splits) <= most; s.splits *= 2)
            f(s);
      s.turns = s.splits = 1;
      if (crossing_.other >= 0 && scheme == Scheme::thread) each_tile(s, f);
      if (image_ && scheme == Scheme::thread) each_window_tile(g_, *image_, s, f);
      if (!nested_ || scheme == Scheme::thread) continue;
      for (Spread spread : {Spread::others, Spread::contiguous}) {
        s.spread = spread;
        for (s.vector = 1; s.vector <= widest_; s.vector *= 2) f(s);
      }
      s.spread = Spread::turns;
    }
  }
}

/// Of points of a transposition, tiles of both loops: accesses as wide as can be or half, each
/// way (of pieces, up to four of them), and lanes along one loop or the other.
void Part::each_tile(Stitched& s, const std::function<void(Stitched&)>& f) const {
  const std::int64_t widest =
      crossing_.pieces ? kMostPieces : widest_vector(g_, c_, crossing_.other);
  const std::int64_t least = crossing_.pieces ? 1 : std::max<std::int64_t>(1, widest / 2);
  for (s.vector = std::max<std::int64_t>(1, widest_ / 2); s.vector <= widest_; s.vector *= 2)
    for (s.across = least; s.across <= widest; s.across *= 2)
      for (s.lanes_across = 2; s.lanes_across < kWarp; s.lanes_across *= 2)
        if (s.vector * s.across <= lowering::kArrayValues) f(s);
  s.vector = s.across = s.lanes_across = 1;
}

/// Every width of access and every run of rows.
void Part::each_run(Stitched& s, std::int64_t threads,
                    const std::function<void(Stitched&)>& f) const {
  const std::int64_t units = s.groups.front().scheme == Scheme::warp ? threads / kWarp : 1;
  for (s.vector = 1; s.vector <= widest_; s.vector *= 2)
    for (std::int64_t in_turn : row_runs(g_, d_, c_, units)) {
      s.rows_in_turn = in_turn;
      f(s);
    }
}

/// A value in a register is read by its own thread or warp only, and is a single one a row.
bool Part::local(const Stitched& s) const {
  for (const Group& g : s.groups) {
    if (!g.sub_root || g.scheme == Scheme::block) continue;
    if (tile(g.root) > 1) return false;
    bool all = true;
    each_reader(s, g.root, [&](const Group& r) { all = all && r.scheme == g.scheme; });
    if (!all) return false;
  }
  return true;
}

double Part::latency(const Stitched& s, std::int64_t threads) const {
  const auto resident = static_cast<double>(occupancy(d_, s.registers, s.shared_bytes, threads));
  if (s.written && o_.latency == Latency::overlap)
    return overlap(d_, {&s.demand, 1}, resident_blocks(d_, s.demand, s.shared_bytes), dram_bytes_)
        .seconds;
  return std::ceil(static_cast<double>(s.blocks * threads / kWarp) / resident) * s.cycles_per_warp;
}

std::vector<Part::Candidate> Part::candidates(std::int64_t threads) const {
  std::vector<Candidate> all;
  std::set<std::string> texts;
  each_written(threads, [&](Stitched& s) {
    if (!local(s)) return;
    rows_and_blocks(s, threads);
    auto tree = bound_tree(g_, d_, s, threads);
    if (!tree) return;
    std::string text = text_of(*tree);
    if (!texts.insert(text).second) return;
    const double seconds = least(*tree, threads);
    all.push_back({s, threads, std::move(tree).value(), std::move(text), seconds});
  });
  return all;
}

std::optional<Stitched> Part::best(std::int64_t threads, std::int64_t& tried) {
  std::optional<Stitched> best;
  double least = kForever;
  const auto better = [&](const Stitched& s) {
    ++tried;
    const double cycles = latency(s, threads);
    if (cycles >= least) return false;
    best = s;
    least = cycles;
    return true;
  };
  if (!o_.written || o_.latency != Latency::overlap) {
    each(threads, better);
    return best;
  }
  std::vector<Candidate> all = candidates(threads);
  for (const std::size_t i : most_promising_first(all)) {
    if (all[i].least >= least) break;
    if (place(all[i])) better(all[i].schedule);
  }
  return best;
}

std::span<const std::int64_t> threads_of(const Options& o) {
  if (o.written && o.few_sizes) return kFewThreads;
  if (o.written) return kWrittenThreads;
  return kBlockSizes;
}

bool Part::any() {
  std::int64_t tried = 0;
  return std::ranges::any_of(
      threads_of(o_), [&](std::int64_t threads) { return best(threads, tried).has_value(); });
}

std::string Part::why_unwritten() const {
  std::string why;
  for (Scheme scheme : kThreeSchemes) {
    Stitched s{.component = c_, .groups = groups(), .written = true};
    for (Group& group : s.groups) group.scheme = scheme;
    rows_and_blocks(s, kThreadsOfTrips);
    if (const auto tree = bound_tree(g_, d_, s, kThreadsOfTrips); !tree) why = tree.reason();
  }
  return why.empty() ? "no schedule with units fits an SM" : why;
}

namespace {

/// The parts of a pack, of which many may differ in names alone.
class PartsOfPack {
 public:
  PartsOfPack(const Graph& g, const Device& d, const Options& o) : g_(g), d_(d), o_(o) {}

  std::optional<Stitched> best(const Component& c, std::int64_t threads, std::int64_t& tried) {
    const auto anew = [&] { return Part(g_, d_, c, o_).best(threads, tried); };
    if (!c.partial.empty() || c.along >= 0) return anew();
    auto [at, fresh] = names_.try_emplace(c.vertices);
    Named& own = at->second;
    if (fresh) own = {text_without_names(g_, c.vertices), names_in_order(g_, c.vertices)};
    if (own.text.empty()) return anew();
    std::string key = own.text;
    for (int l : own.names.loops) key += c.rows.has(l) ? 'r' : '-';
    for (std::size_t i : own.names.order) key += ' ' + std::to_string(i);
    key += ' ' + std::to_string(threads);
    const auto known = best_.find(key);
    if (known == best_.end()) {
      auto made = anew();
      best_.emplace(std::move(key), std::pair(own.names, made));
      return made;
    }
    const auto& [names, part] = known->second;
    if (!part) return std::nullopt;
    Stitched out = renamed(*part, names, own.names);
    out.component = c;
    return out;
  }

 private:
  struct Named {
    std::string text;
    NamesInOrder names;
  };
  const Graph& g_;
  const Device& d_;
  const Options& o_;
  std::map<Pattern, Named> names_;
  std::map<std::string, std::pair<NamesInOrder, std::optional<Stitched>>> best_;
};

/// Which of these is chosen: the one of least price; where others, of as many threads each the
/// first of least price, are tied with it, the one of least L, which is the slowest warp's.
std::size_t chosen_of(std::span<const StitchedKernel> all, const Options& o) {
  std::map<std::int64_t, std::size_t> best;  // by threads
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double price = price_of(all[i], o);
    least = std::min(least, price);
    const auto [at, fresh] = best.try_emplace(all[i].threads, i);
    if (!fresh && price < price_of(all[at->second], o)) at->second = i;
  }
  std::size_t chosen = all.size();
  for (const auto& [threads, i] : best) {
    if (price_of(all[i], o) > (1 + kTied) * least) continue;
    const auto key = [&](std::size_t k) { return std::pair(all[k].cycles, price_of(all[k], o)); };
    if (chosen == all.size() || key(i) < key(chosen)) chosen = i;
  }
  return chosen;
}

/// Of each packing of one part and each number of threads the best schedule, where that is tied
/// with the best of all; by packing and threads.
std::map<std::pair<std::size_t, std::int64_t>, Stitched> best_of_one_part(
    const Graph& g, const Device& d, const Options& o,
    std::span<const std::vector<Component>> packings, std::int64_t& tried) {
  std::vector<std::unique_ptr<Part>> parts(packings.size());
  std::vector<Part::Candidate> all;
  std::vector<std::size_t> packing;  // of a candidate
  for (std::size_t p = 0; p < packings.size(); ++p) {
    if (packings[p].size() != 1) continue;
    parts[p] = std::make_unique<Part>(g, d, packings[p].front(), o);
    for (std::int64_t threads : threads_of(o)) {
      std::ranges::move(parts[p]->candidates(threads), std::back_inserter(all));
      packing.resize(all.size(), p);
    }
  }
  struct Found {
    double seconds;
    std::size_t candidate;
  };
  std::map<std::pair<std::size_t, std::int64_t>, Found> best;
  double least = kForever;
  for (const std::size_t i : most_promising_first(all)) {
    if (all[i].least >= (1 + kTied) * least) break;
    const Part& part = *parts[packing[i]];
    if (!part.place(all[i])) continue;
    ++tried;
    const double seconds = part.latency(all[i].schedule, all[i].threads);
    least = std::min(least, seconds);
    const auto [at, fresh] = best.try_emplace({packing[i], all[i].threads}, Found{seconds, i});
    Found& known = at->second;
    if (!fresh && std::pair(seconds, i) < std::pair(known.seconds, known.candidate))
      known = {seconds, i};
  }
  std::map<std::pair<std::size_t, std::int64_t>, Stitched> out;
  for (const auto& [key, found] : best)
    if (found.seconds <= (1 + kTied) * least)
      out.emplace(key, std::move(all[found.candidate].schedule));
  return out;
}

/// The best schedule of each packing of the pattern; none where nothing fits.
std::optional<StitchedKernel> best_of(const Graph& g, const Device& d, const Options& o,
                                      std::span<const std::vector<Component>> packings,
                                      std::int64_t& tried) {
  std::vector<StitchedKernel> all;
  PartsOfPack pack(g, d, o);
  const bool seconds = o.written && o.latency == Latency::overlap;
  std::map<std::pair<std::size_t, std::int64_t>, Stitched> single;
  if (seconds) single = best_of_one_part(g, d, o, packings, tried);
  std::map<std::int64_t, StitchedKernel> made;  // of a packing, by threads
  const auto make = [&](std::size_t p, std::int64_t threads) {
    const std::vector<Component>& parts = packings[p];
    std::vector<Stitched> chosen;
    if (parts.size() == 1 && seconds) {
      const auto found = single.find({p, threads});
      if (found != single.end()) chosen.push_back(std::move(found->second));
    } else {
      for (const Component& c : parts)
        if (auto s = pack.best(c, threads, tried)) chosen.push_back(std::move(*s));
    }
    if (chosen.size() != parts.size()) return kForever;
    StitchedKernel k = put_together(g, d, o, std::move(chosen), threads);
    if (k.occupancy == 0) return kForever;
    const double price = price_of(k, o);
    made.emplace(threads, std::move(k));
    return price;
  };
  const std::span<const std::int64_t> sizes = threads_of(o);
  for (std::size_t p = 0; p < packings.size(); ++p) {
    made.clear();
    if (seconds && packings[p].size() > 1) {
      // From the middle outwards, each way until far above the best.
      const std::size_t middle = sizes.size() / 2;
      double least = make(p, sizes[middle]);
      const auto goes_on = [&](std::size_t at) {
        const double price = make(p, sizes[at]);
        least = std::min(least, price);
        return price == kForever || price <= kFarAbove * least;
      };
      for (std::size_t at = middle + 1; at < sizes.size() && goes_on(at);) ++at;
      for (std::size_t at = middle; at-- > 0 && goes_on(at);) {
      }
    } else {
      for (std::int64_t threads : sizes) make(p, threads);
    }
    for (auto& [threads, k] : made) {
      const bool known = std::ranges::any_of(all, [&k = k](const StitchedKernel& other) {
        return k.overlap.seconds > 0 && other.overlap == k.overlap;  // its tree is the same
      });
      if (!known) all.push_back(std::move(k));
    }
  }
  if (all.empty()) return std::nullopt;
  return std::move(all[chosen_of(all, o)]);
}

}  // namespace

Result<StitchedKernel> stitched_anew(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o) {
  const auto packings = packings_of(g, p, o.most_operators);
  if (packings.empty()) return Reason{"the operators cannot be one kernel"};
  const bool written = o.written && o.latency == Latency::overlap;
  const auto of_paper = [&] {
    Options options = o;
    options.written = false;
    return stitch(g, d, p, options);
  };
  if (written &&
      std::ranges::any_of(p, [&](int v) { return g.workload().op(g.vertex(v).op).running; })) {
    auto k = without_units(g, d, p, o, "running operators go in blocks of what they reduce over");
    return k ? std::move(k) : of_paper();
  }
  std::int64_t tried = 0;
  std::optional<StitchedKernel> best = best_of(g, d, o, packings, tried);
  if (!best && written) {
    std::string why;  // else its parts have schedules, of no common number of threads
    for (const Component& c : packings.front())
      if (why.empty() && !Part(g, d, c, o).any()) why = Part(g, d, c, o).why_unwritten();
    if (why.empty()) why = "its parts have no schedules for blocks of the same number of threads";
    return without_units(g, d, p, o, std::move(why));
  }
  if (!best && o.written) return of_paper();
  if (!best)
    return Reason{
        formatted("no schedule of {} fits an SM", g.workload().op(g.vertex(p.front()).op).name)};
  best->schedules = tried;
  return *best;
}

Result<StitchedKernel> stitch(const Graph& g, const Device& d, const Pattern& p, const Options& o) {
  const auto anew = [&] { return stitched_anew(g, d, p, o); };
  return o.written ? stitched_like(g, d, p, o, anew) : anew();
}

}  // namespace tilewright::stitching
