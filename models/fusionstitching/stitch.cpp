// The code generator's search: groups, the schemes of their sub-roots, launch dimensions, and the
// latency-evaluator that decides between them.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/ir/format.h"
#include "models/fusionstitching/fusionstitching.h"

namespace tilewright::fusionstitching {
namespace {

constexpr std::array<std::int64_t, 4> kThreads = {128, 256, 512, 1024};
constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kAddressing = 8;  // registers beside the values: indices, pointers (assumed)
constexpr std::int64_t kMostRegisters = 255;  // of a thread: CUDA C++ Programming Guide
constexpr std::size_t kMostGroups = 6;        // of which every combination of schemes is tried
constexpr std::size_t kMostExpensive = 8;     // of which every subset is tried

bool in(std::span<const int> vertices, int v) {
  return std::binary_search(vertices.begin(), vertices.end(), v);
}

double ceil_over(double a, double b) { return std::ceil(a / b); }

/// One part of a pattern, with what its schedules have in common.
class Part {
 public:
  Part(const Graph& g, const Device& d, const Component& c, const Options& o)
      : g_(g), d_(d), c_(c), o_(o) {}

  /// The schedules' best for blocks of so many threads; none where nothing fits.
  std::optional<Stitched> best(std::int64_t threads, std::int64_t& tried) {
    std::optional<Stitched> best;
    double least = 0;
    for (const std::vector<bool>& sub_roots : groupings()) {
      Stitched s{.component = c_, .groups = groups_of(sub_roots)};
      for_each_schemes(s, [&] {
        if (!local(s) || !place(s, threads)) return;
        ++tried;
        cost(s, threads);
        const double waves = ceil_over(static_cast<double>(s.blocks * threads / kWarp),
                                       static_cast<double>(resident_warps(d_, s, threads)));
        if (best && waves * s.cycles_per_warp >= least) return;
        best = s;
        least = waves * s.cycles_per_warp;
      });
    }
    return best;
  }

  static std::int64_t resident_warps(const Device& d, const Stitched& s, std::int64_t threads) {
    return occupancy(d, s.registers, s.shared_bytes, threads);
  }
  /// Warps that are resident on the whole GPU at once.
  static std::int64_t occupancy(const Device& d, std::int64_t registers, std::int64_t shared,
                                std::int64_t threads) {
    std::int64_t blocks = std::min(d.blocks_per_sm, d.threads_per_sm / threads);
    blocks = std::min(blocks, d.registers_per_sm / (registers * threads));
    if (shared > 0) blocks = std::min(blocks, d.shared_per_sm / shared);
    return blocks * (threads / kWarp) * d.sms;
  }

 private:
  std::size_t place_of(int v) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(c_.vertices, v) - c_.vertices.begin());
  }
  bool read_inside(int v) const {
    return std::ranges::any_of(g_.vertex(v).consumers,
                               [this](int c) { return in(c_.vertices, c); });
  }
  bool written_home(int v) const {
    const Vertex& x = g_.vertex(v);
    return x.leaves ||
           std::ranges::any_of(x.consumers, [this](int c) { return !in(c_.vertices, c); });
  }
  /// Points of a row.
  double inner(int v) const { return g_.points(g_.vertex(v).loops & ~c_.rows); }
  /// Elements of a row's result.
  double tile(int v) const {
    const Vertex& x = g_.vertex(v);
    return g_.points(x.loops & ~x.reduced & ~c_.rows);
  }

  // ---- Groups -----------------------------------------------------------------------------------

  /// Which vertices are sub-roots: reductions that are read here always, expensive operators by
  /// choice.
  std::vector<std::vector<bool>> groupings() const {
    std::vector<bool> reductions(c_.vertices.size());
    std::vector<std::size_t> expensive, widened;
    for (std::size_t i = 0; i < c_.vertices.size(); ++i) {
      const int v = c_.vertices[i];
      if (!read_inside(v)) continue;
      if (g_.vertex(v).kind == Kind::reduction) reductions[i] = true;
      if (g_.vertex(v).kind != Kind::expensive) continue;
      expensive.push_back(i);
      const bool wider = std::ranges::any_of(
          g_.vertex(v).consumers, [&](int c) { return in(c_.vertices, c) && inner(c) > inner(v); });
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

  std::vector<Group> groups_of(const std::vector<bool>& sub_roots) const {
    std::vector<Group> out;
    for (std::size_t i = 0; i < c_.vertices.size(); ++i) {
      const int v = c_.vertices[i];
      if (!sub_roots[i] && read_inside(v)) continue;
      Group group{.root = v, .sub_root = sub_roots[i], .vertices = feeding(v, sub_roots)};
      // Roots that run over the same points share a loop: kernel packing's loop fusion
      // (section 4.1).
      const auto same = std::ranges::find_if(out, [&](const Group& o) {
        return !o.sub_root && !group.sub_root && g_.vertex(v).reduced == 0 &&
               g_.vertex(o.root).reduced == 0 &&
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
  std::vector<int> feeding(int root, const std::vector<bool>& sub_roots) const {
    std::vector<int> out = {root}, stack = {root};
    while (!stack.empty()) {
      const int v = stack.back();
      stack.pop_back();
      for (int e : g_.vertex(v).in) {
        const int from = g_.edge(e).from;
        if (!in(c_.vertices, from) || sub_roots[place_of(from)]) continue;
        if (std::ranges::find(out, from) != out.end()) continue;
        out.push_back(from);
        stack.push_back(from);
      }
    }
    std::ranges::sort(out);
    return out;
  }

  // ---- Schemes ----------------------------------------------------------------------------------

  /// Calls f with every combination of schemes; of many groups, with all roots alike and all
  /// sub-roots alike.
  template <class F>
  void for_each_schemes(Stitched& s, F&& f) const {
    constexpr std::array<Scheme, 3> kSchemes = {Scheme::thread, Scheme::warp, Scheme::block};
    if (s.groups.size() > kMostGroups) {
      for (Scheme of_roots : kSchemes)
        for (Scheme of_sub_roots : kSchemes) {
          for (Group& g : s.groups) g.scheme = g.sub_root ? of_sub_roots : of_roots;
          f();
        }
      return;
    }
    std::size_t combinations = 1;
    for (std::size_t i = 0; i < s.groups.size(); ++i) combinations *= kSchemes.size();
    for (std::size_t n = 0; n < combinations; ++n) {
      std::size_t rest = n;
      for (Group& g : s.groups) {
        g.scheme = kSchemes[rest % kSchemes.size()];
        rest /= kSchemes.size();
      }
      f();
    }
  }

  /// Groups that read a sub-root's value.
  template <class F>
  void each_reader(const Stitched& s, int sub_root, F&& f) const {
    for (const Group& g : s.groups) {
      const bool reads = std::ranges::any_of(g.vertices, [&](int v) {
        return v != sub_root && std::ranges::any_of(g_.vertex(v).in, [&](int e) {
                 return g_.edge(e).from == sub_root;
               });
      });
      if (reads) f(g);
    }
  }

  /// A value in a register is read by its own thread or warp only, and is a single one a row.
  bool local(const Stitched& s) const {
    for (const Group& g : s.groups) {
      if (!g.sub_root || g.scheme == Scheme::block) continue;
      if (tile(g.root) > 1) return false;
      bool all = true;
      each_reader(s, g.root, [&](const Group& r) { all = all && r.scheme == g.scheme; });
      if (!all) return false;
    }
    return true;
  }

  // ---- Resources --------------------------------------------------------------------------------

  /// Rows a block, registers, shared memory. False where they do not fit.
  bool place(Stitched& s, std::int64_t threads) const {
    s.rows_per_block = 1;
    for (const Group& g : s.groups)
      s.rows_per_block = std::max(s.rows_per_block, g.scheme == Scheme::thread ? threads
                                                    : g.scheme == Scheme::warp ? threads / kWarp
                                                                               : 1);
    s.rows_per_block =
        static_cast<std::int64_t>(std::min(static_cast<double>(s.rows_per_block), c_.row_count));
    s.blocks =
        static_cast<std::int64_t>(ceil_over(c_.row_count, static_cast<double>(s.rows_per_block)));
    std::vector<SharedRequest> requests;
    std::int64_t partials = 0;
    for (const Group& g : s.groups) {
      const Vertex& root = g_.vertex(g.root);
      if (g.scheme == Scheme::block && root.kind == Kind::reduction)
        partials = std::max(partials, threads / kWarp * root.row_bytes);
      if (!g.sub_root || g.scheme != Scheme::block) continue;
      const double bytes = tile(g.root) * static_cast<double>(s.rows_per_block * root.row_bytes);
      if (bytes > static_cast<double>(d_.shared_per_sm)) return false;
      requests.push_back({g.root, static_cast<std::int64_t>(bytes), {}});
      each_reader(s, g.root, [&](const Group& r) { requests.back().readers.push_back(r.root); });
    }
    s.shared_unshared_bytes = partials;
    for (const SharedRequest& r : requests) s.shared_unshared_bytes += r.bytes;
    s.shared_bytes = share(g_, c_.vertices, requests).bytes + partials;
    s.registers = registers(s);
    return s.shared_bytes <= d_.shared_per_sm && s.registers <= kMostRegisters &&
           occupancy(d_, s.registers, s.shared_bytes, threads) > 0;
  }

  static std::int64_t words(const Vertex& v) { return (v.row_bytes + 3) / 4; }

  /// The most values alive at once in a thread: a value lives from its operator to the last that
  /// reads it in the group; a sub-root's in registers, to the last group that does.
  std::int64_t registers(const Stitched& s) const {
    std::int64_t most = 0;
    for (std::size_t at = 0; at < s.groups.size(); ++at) {
      std::int64_t across = 0;
      for (std::size_t i = 0; i < at; ++i) {
        const Group& from = s.groups[i];
        if (!from.sub_root || from.scheme == Scheme::block) continue;
        bool later = false;
        each_reader(s, from.root, [&](const Group& r) { later = later || &r >= &s.groups[at]; });
        if (later) across += words(g_.vertex(from.root));
      }
      most = std::max(most, across + within(s.groups[at]));
    }
    return kAddressing + most;
  }

  std::int64_t within(const Group& g) const {
    std::vector<std::int64_t> alive(g.vertices.size() + 1);
    const auto at = [&g](int v) {
      return static_cast<std::size_t>(std::ranges::lower_bound(g.vertices, v) - g.vertices.begin());
    };
    for (std::size_t i = 0; i < g.vertices.size(); ++i) {
      const Vertex& v = g_.vertex(g.vertices[i]);
      std::size_t last = i;
      for (int c : v.consumers)
        if (in(g.vertices, c)) last = std::max(last, at(c));
      for (std::size_t t = i; t <= last; ++t) alive[t] += words(v);
      alive[i] += static_cast<std::int64_t>(g_.workload().op(v.op).inputs.size());  // being read
    }
    return *std::ranges::max_element(alive);
  }

  // ---- Latency ----------------------------------------------------------------------------------

  /// Times that a warp of a block of R rows goes through `points` points a row.
  static double rounds(Scheme scheme, double points, double rows, double threads) {
    switch (scheme) {
      case Scheme::thread:
        return ceil_over(rows, threads) * points;
      case Scheme::warp:
        return ceil_over(rows, threads / kWarp) * ceil_over(points, kWarp);
      case Scheme::block:
        return rows * ceil_over(points, threads);
    }
    return 0;
  }

  /// Points of a row at which a group computes each of its operators: where its readers do, once
  /// for those that read at the same index, again for each other index; once where it is the row's.
  std::vector<double> evaluations(const Group& g) const {
    std::vector<double> out(g.vertices.size());
    for (std::size_t i = g.vertices.size(); i-- > 0;) {
      const int v = g.vertices[i];
      double aligned = 0, others = 0;
      for (int e : g_.vertex(v).out) {
        const Edge& edge = g_.edge(e);
        if (!in(g.vertices, edge.to)) continue;
        const auto to = static_cast<std::size_t>(std::ranges::lower_bound(g.vertices, edge.to) -
                                                 g.vertices.begin());
        if (edge.bad == 0)
          aligned = std::max(aligned, out[to]);
        else
          others += out[to];
      }
      out[i] = inner(v) <= 1 ? 1 : aligned + others > 0 ? aligned + others : inner(v);
    }
    return out;
  }

  void cost(Stitched& s, std::int64_t threads) const {
    const auto rows = static_cast<double>(s.rows_per_block);
    const auto wide = static_cast<double>(threads);
    double cycles = 0, computed = 0, points = 0;
    std::vector<bool> stored(c_.vertices.size());
    for (const Group& g : s.groups) {
      const std::vector<double> evaluated = evaluations(g);
      for (std::size_t i = 0; i < g.vertices.size(); ++i) {
        const int v = g.vertices[i];
        const Vertex& x = g_.vertex(v);
        double each = static_cast<double>(x.light) * d_.light +
                      static_cast<double>(x.expensive) * d_.expensive +
                      static_cast<double>(x.outside_inputs) * d_.global;
        double once = 0;  // a row: values that do not change within it
        for (int e : x.in) read(s, g, g_.edge(e).from, each, once);
        if (written_home(v) && !stored[place_of(v)]) {
          stored[place_of(v)] = true;
          const double stores = static_cast<double>(x.outputs) * d_.global;
          (x.kind == Kind::reduction ? once : each) += stores;
        }
        cycles += rounds(g.scheme, evaluated[i], rows, wide) * each +
                  rounds(g.scheme, 1, rows, wide) * once;
        computed += evaluated[i] * c_.row_count;
        if (place_first(s, g, v)) points += g_.points(x.loops);
      }
      cycles += exchange(g, rows, wide);
    }
    s.cycles_per_warp = cycles;
    s.recomputed = points > 0 ? computed / points : 1;
  }

  /// Adds what reading a producer's value takes, where it is none of the group's own.
  void read(const Stitched& s, const Group& own, int from, double& each, double& once) const {
    if (in(own.vertices, from)) return;
    if (!in(c_.vertices, from)) {
      each += d_.global;
      return;
    }
    for (const Group& g : s.groups) {
      if (g.root != from || !g.sub_root) continue;
      const double cycles = g.scheme == Scheme::block  ? d_.shared
                            : g.scheme == Scheme::warp ? d_.shuffle
                                                       : 0;
      (tile(from) > 1 ? each : once) += cycles;
    }
  }

  static bool place_first(const Stitched& s, const Group& g, int v) {
    for (const Group& other : s.groups) {
      if (&other == &g) return true;
      if (in(other.vertices, v)) return false;
    }
    return true;
  }

  /// Combining partial results, and handing on a sub-root's value.
  double exchange(const Group& g, double rows, double threads) const {
    const double tree = 5 * (d_.shuffle + d_.light);
    const Vertex& root = g_.vertex(g.root);
    const double results = rounds(g.scheme, 1, rows, threads) * tile(g.root);
    double cycles = 0;
    if (root.kind == Kind::reduction && g.scheme == Scheme::warp) cycles += results * tree;
    if (root.kind == Kind::reduction && g.scheme == Scheme::block)
      cycles += results * (2 * tree + 2 * d_.shared) + 2 * rows * d_.barrier;
    if (g.sub_root && g.scheme == Scheme::block)
      cycles += rounds(g.scheme, tile(g.root), rows, threads) * d_.shared + d_.barrier;
    return cycles;
  }

  const Graph& g_;
  const Device& d_;
  const Component& c_;
  const Options& o_;
};

StitchedKernel put_together(const Device& d, std::vector<Stitched> parts, std::int64_t threads) {
  StitchedKernel k{.parts = std::move(parts), .threads = threads};
  std::int64_t registers = 0, shared = 0;
  double cycles = 0;
  for (const Stitched& s : k.parts) {
    const std::int64_t warps = s.blocks * (threads / kWarp);
    registers = std::max(registers, s.registers);
    shared = std::max(shared, s.shared_bytes);
    k.warps += warps;
    cycles += static_cast<double>(warps) * s.cycles_per_warp;
  }
  k.occupancy = Part::occupancy(d, registers, shared, threads);
  if (k.occupancy == 0) return k;
  k.waves = ceil_over(static_cast<double>(k.warps), static_cast<double>(k.occupancy));
  k.cycles = k.waves * cycles / static_cast<double>(k.warps);  // a pack's warps: their mean
  k.seconds = k.cycles / d.clock_hz;
  return k;
}

}  // namespace

Result<StitchedKernel> stitch(const Graph& g, const Device& d, const Pattern& p, const Options& o) {
  const auto parts = components_of(g, p, o.most_operators);
  if (!parts) return Reason{"the operators cannot be one kernel"};
  std::optional<StitchedKernel> best;
  std::int64_t tried = 0;
  for (std::int64_t threads : kThreads) {
    std::vector<Stitched> chosen;
    for (const Component& c : *parts)
      if (auto s = Part(g, d, c, o).best(threads, tried)) chosen.push_back(std::move(*s));
    if (chosen.size() != parts->size()) continue;
    StitchedKernel k = put_together(d, std::move(chosen), threads);
    if (k.occupancy > 0 && (!best || k.cycles < best->cycles)) best = std::move(k);
  }
  if (!best)
    return Reason{
        formatted("no schedule of {} fits an SM", g.workload().op(g.vertex(p.front()).op).name)};
  best->schedules = tried;
  return *best;
}

Result<PlanPrice> price(const Graph& g, const Device& d, const FusionPlan& p, const Options& o,
                        Known* known) {
  Known own;
  Known& stitched = known != nullptr ? *known : own;
  PlanPrice out;
  std::vector<bool> taken(static_cast<std::size_t>(g.size()));
  std::vector<Pattern> all;
  for (const Scored& s : p.patterns) {
    all.push_back(s.pattern);
    for (int v : s.pattern) taken[static_cast<std::size_t>(v)] = true;
  }
  for (int v = 0; v < g.size(); ++v)
    if (!taken[static_cast<std::size_t>(v)]) all.push_back({v});
  for (Pattern& pattern : launch_order(g, std::move(all))) {
    if (g.vertex(pattern.front()).kind == Kind::product) {
      out.kernels.emplace_back();
    } else {
      auto it = stitched.find(pattern);
      if (it == stitched.end()) it = stitched.emplace(pattern, stitch(g, d, pattern, o)).first;
      const Result<StitchedKernel>& k = it->second;
      if (!k) return Reason{k.reason()};
      out.seconds += k->seconds;
      out.kernels.push_back(*k);
    }
    out.patterns.push_back(std::move(pattern));
  }
  return out;
}

}  // namespace tilewright::fusionstitching
