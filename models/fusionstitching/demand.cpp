// What a block asks of each resource, from its schedule's tree: for `--stitch latency=overlap`.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/fusionstitching/column_roots.h"
#include "models/fusionstitching/kept.h"
#include "models/fusionstitching/overlap.h"
#include "models/fusionstitching/part.h"
#include "models/fusionstitching/places.h"

namespace tilewright::fusionstitching {
namespace {

constexpr double kLoopsAhead = 4;   // turns of a loop whose loads are under way together
constexpr double kLeastAhead = 3;   // loads under way, at least, where registers are short
constexpr double kUnrolled = 8;     // turns of a loop over units that are unrolled whatever they do
constexpr double kOfAccess = 2;     // instructions of an access: its address, itself
constexpr double kOfBlock = 20;     // of a warp, once: indices of its block and thread
constexpr double kIndependent = 4;  // instructions of a warp under way together

/// What accesses to a tensor take of a warp in one turn.
struct Accesses {
  double count = 0, sectors = 0, wavefronts = 0;
};

class Tally {
 public:
  /// `kept`: what a walk before this one has found; {}: not known yet.
  Tally(const Graph& g, const Device& d, const Component& c, const BoundTree& tree, Kept kept)
      : g_(g),
        w_(g.workload()),
        d_(d),
        c_(c),
        tree_(tree),
        units_(w_, tree.tree),
        known_(std::move(kept)) {
    for (int v : c.vertices)
      for (const Output& o : op(v).outputs) made_.insert(o.target.tensor);
  }

  Demand take() {
    const Place start = units_.start();
    out_.blocks = 1;
    out_.warps = units_.warps();
    find_readers(tree_.tree, start);
    out_.chain = d_.block + visit(tree_.tree, start) + alike_;
    out_.registers = std::ceil(std::max(kept().most + loading_, ahead_registers_));
    out_.instructions += kOfBlock * out_.warps;
    return out_;
  }

  Kept kept() const { return kept_.registers(); }

 private:
  const Operator& op(int v) const { return w_.op(g_.vertex(v).op); }
  int vertex_named(const std::string& name) const {
    for (int v : c_.vertices) {
      if (op(v).name == name) return v;
      for (const Output& o : op(v).outputs)
        if (w_.tensor(o.target.tensor).name == name) return v;
    }
    return -1;
  }

  /// Whether only computes stand in the loops below: they are one pass.
  static bool is_leaf(const Node& n) {
    if (n.kind == Node::Kind::load || n.kind == Node::Kind::sync) return false;
    if (n.kind != Node::Kind::sequence) return n.children.empty() || is_leaf(n.children.front());
    return std::ranges::all_of(n.children, [](const Node& c) {
      return c.kind == Node::Kind::compute || c.kind == Node::Kind::store;
    });
  }

  // ---- Accesses ---------------------------------------------------------------------------------

  static bool has(const Affine& index, int loop) {
    return std::ranges::any_of(
        index.terms, [&](const Term& t) { return static_cast<int>(t.loop.index()) == loop; });
  }

  /// Elements of the tensor that a thread touches in one turn.
  double elements(const Access& a, const Place& at) const {
    const LoopSet loops = loops_of(a);
    double n = 1;
    for (std::size_t l = 0; l < at.range.size(); ++l)
      if (loops.has(l)) n *= static_cast<double>(at.range[l]);
    return n;
  }

  /// Elements of it that a thread has in all.
  double own(const Access& a, const Place& at) const {
    const LoopSet within = loops_of(a) & ~c_.rows;
    double n = elements(a, at);
    for (std::size_t l = 0; l < at.of_loop.size(); ++l)
      if (within.has(l)) n *= at.of_loop[l];  // of one row at a time
    return n;
  }

  /// Elements that one access moves: neighbours of a thread, of at most 16 bytes, aligned.
  std::int64_t width(const Access& a, const Place& at) const {
    const Tensor& t = w_.tensor(a.tensor);
    if (a.index.empty()) return 1;
    const auto loop = a.index.back().plain_loop();
    if (!loop) return 1;
    std::int64_t width = 16 / size_of(t.dtype);
    while (width > 1 && (at.range[loop->index()] % width != 0 || t.shape.back() % width != 0))
      width /= 2;
    return width;
  }

  Accesses access(const Access& a, const Place& at) const {
    const auto bytes = static_cast<double>(size_of(w_.tensor(a.tensor).dtype));
    const auto wide = static_cast<double>(width(a, at));
    Accesses x{.count = elements(a, at) / wide};
    double lanes = 1;  // that touch other elements
    bool side_by_side = false;
    const LoopSet loops = loops_of(a);
    for (std::size_t l = 0; l < at.lanes.size(); ++l) {
      if (!loops.has(l)) continue;
      lanes *= at.lanes[l];
      side_by_side = side_by_side || (at.lanes[l] > 1 && has(a.index.back(), static_cast<int>(l)));
    }
    double sectors = lanes, wavefronts = lanes;
    if (side_by_side) {
      const bool along = has(a.index.back(), at.along);
      const double apart = std::max(wide, along ? static_cast<double>(at.step) : 1) * bytes;
      sectors = std::max(1.0, lanes * std::min(1.0, apart / kSectorBytes));
      sectors = std::max(sectors, lanes / run_of(a, at));  // each run of lanes touches its own
      wavefronts = std::max(1.0, sectors * kSectorBytes / kWavefrontBytes);
    }
    x.sectors = x.count * sectors;
    x.wavefronts = x.count * wavefronts;
    return x;
  }

  /// Lanes that go along neighbouring elements before the next ones are in another row.
  double run_of(const Access& a, const Place& at) const {
    const auto along = a.index.back().plain_loop();
    if (!along || a.index.size() == 1) return kWarp;
    const auto lanes = at.lanes[along->index()];
    const auto row = static_cast<double>(w_.tensor(a.tensor).shape.back());
    return lanes * static_cast<double>(at.range[along->index()]) < row ? lanes : kWarp;
  }

  void add(const Accesses& x, const Place& at, bool home) {
    const double times = at.turns * at.repeats * warps(at);
    out_.instructions += kOfAccess * x.count * times;
    out_.wavefronts += x.wavefronts * times * at.full;
    if (home) out_.sectors += x.sectors * times * at.full;
    if (home) out_.turns = std::max(out_.turns, at.turns);
  }
  double warps(const Place& at) const { return at.warps == 0 ? out_.warps : at.warps; }

  /// Where the first operator below that reads a tensor does so.
  void find_readers(const Node& n, const Place& around) {
    const Place at = n.kind == Node::Kind::loop ? units_.inside(n, around, true) : around;
    for (const Node& child : n.children) find_readers(child, at);
    const int v = n.kind == Node::Kind::compute ? vertex_named(n.name) : -1;
    if (v < 0) return;
    for (const Access& a : op(v).inputs) readers_.try_emplace(a.tensor, a, at);
  }

  // ---- The walk: cycles of a block's longest warp -----------------------------------------------

  double visit(const Node& n, const Place& at) {
    switch (n.kind) {
      case Node::Kind::loop: {
        if (n.binding == Binding::grid)
          if (const auto l = units_.loop_named(n.name))
            out_.blocks *= static_cast<double>(
                ceil_div(at.range[*l], std::clamp<std::int64_t>(n.step, 1, at.range[*l])));
        const bool leaf = is_leaf(n);
        const Place in = units_.inside(n, at, leaf);
        const std::size_t begin = kept_.pass();
        const double cycles = visit(n.children.front(), in) * (leaf ? 1 : in.repeats / at.repeats);
        if (!leaf && in.repeats > at.repeats) kept_.stay_from(begin);
        return cycles;
      }
      case Node::Kind::sequence:
        return visit_sequence(n, at);
      case Node::Kind::compute:
        return pass({&n, 1}, at);
      case Node::Kind::sync:
        out_.meets |= n.name == "block";
        return n.name == "block" ? d_.barrier : 0;
      case Node::Kind::store:
        if (n.atomic) add_atomically(n.name, at);
        return 0;
      default:
        return 0;
    }
  }

  double visit_sequence(const Node& n, const Place& at) {
    if (is_leaf(n) && at.along >= 0) return pass(n.children, at);
    double cycles = 0, loading = 0;  // loads that follow one another are under way together
    for (const Node& child : n.children) {
      if (child.kind == Node::Kind::load) {
        loading = std::max(loading, load(child, at));
        continue;
      }
      cycles += std::exchange(loading, 0) + visit(child, at);
    }
    return cycles + loading;
  }

  /// Registers of a thread that are taken when the pass begins.
  double before() const {
    return kept_.pass() < known_.before.size() ? known_.before[kept_.pass()] : 0;
  }

  double load(const Node& n, const Place& at) {
    const auto reader = std::ranges::find_if(
        readers_, [&](const auto& r) { return w_.tensor(r.first).name == n.name; });
    if (reader == readers_.end()) return 0;
    const auto& [a, there] = reader->second;
    held_[reader->first] = n.level == "shared";
    if (n.level != "shared") {
      Place once = there;  // turns of other loops find it in registers
      once.turns = 1;
      for (const auto& [l, times] : there.passed)
        if (loops_of(a).has(l)) once.turns *= times;
      Accesses all = access(a, once);
      const double parts = parts_of(a.tensor);
      all.count *= parts, all.sectors *= parts, all.wavefronts *= parts;
      add(all, once, true);
      kept_.make(a.tensor, parts * own(a, there));
      return latency(a, there);
    }
    // Threads bring the tile an element at a time; of a row a thread, all rows of a warp.
    const double threads = at.warps == 0 ? kWarp * out_.warps : kWarp;
    double tile = elements(a, at);
    for (std::size_t l = 0; l < at.lanes.size(); ++l)
      if (loops_of(a).has(l)) tile *= at.lanes[l];
    const double turns = ceil_over(tile, threads);
    Place staging = at;
    staging.turns = turns;
    add({1, 4, 2}, staging, true);
    return turns * latency(a, at);
  }

  /// Places that a row's operators read the tensor at: at X[i] and X[i+64], say.
  double parts_of(TensorId t) const {
    std::vector<const Access*> parts;
    for (int v : c_.vertices)
      for (const Access& a : op(v).inputs)
        if (a.tensor == t && !is_gather(a) &&
            std::ranges::none_of(parts, [&](const Access* b) { return a.index == b->index; }))
          parts.push_back(&a);
    return static_cast<double>(std::max<std::size_t>(1, parts.size()));
  }

  /// Cycles until a load is there: what other blocks read, too, they have brought to L2.
  double latency(const Access& a, const Place& at) const {
    return !(at.blocks & ~loops_of(a)).empty() ? d_.l2 : d_.dram;
  }

  void add_atomically(const std::string& tensor, const Place& at) {
    const int v = vertex_named(tensor);
    if (v < 0) return;
    for (const Output& o : op(v).outputs)
      if (w_.tensor(o.target.tensor).name == tensor)
        out_.added +=
            elements(o.target, at) * static_cast<double>(size_of(w_.tensor(o.target.tensor).dtype));
  }

  /// Operators that share a loop.
  double pass(std::span<const Node> computes, const Place& at) {
    const double times = at.turns * at.repeats * warps(at);
    double depth = 0, most = 1, after = 0, loaded = 0;
    const std::set<int> operators = vertices_of(computes);
    const bool meets = hands_on(operators), unrolled = !meets && is_unrolled(operators, at);
    std::set<std::size_t> loops;
    for (const auto& [l, turns] : at.passed) loops.insert(l);
    kept_.next_pass(loops.size());
    double loads = 0, fetches = 0;
    bool dependent = false;
    std::set<TensorId> here;
    for (const Node& n : computes) {
      if (n.kind == Node::Kind::store) continue;
      const int v = vertex_named(n.name);
      if (v < 0) continue;
      const Vertex& x = g_.vertex(v);
      double points = 1;
      for (LoopId l : op(v).loops) points *= static_cast<double>(at.range[l.index()]);
      most = std::max(most, points);
      const auto light = static_cast<double>(x.light), expensive = static_cast<double>(x.expensive);
      out_.instructions += times * points * (light + kOfExpensive * expensive);
      out_.special += times * points * kSpecial * expensive;
      depth += points * (light * d_.light + expensive * d_.expensive);
      for (const Access& a : op(v).inputs) {
        const bool gathers =
            std::ranges::any_of(a.index, [](const Affine& i) { return i.gathered >= 0; });
        if (!here.insert(a.tensor).second) continue;
        kept_.read(a.tensor);
        const auto held = held_.find(a.tensor);
        if (made_.contains(a.tensor) ? shared(a.tensor) : held != held_.end()) {
          if (held == held_.end() || held->second)
            add(access(a, at), at, false), after += at.turns * d_.shared / kIndependent;
          continue;
        }
        if (made_.contains(a.tensor)) continue;
        add(access(a, at), at, true);
        loads = std::max(loads, latency(a, at));
        loaded += elements(a, at);
        fetches += access(a, at).count;
        dependent |=
            gathers && std::ranges::any_of(a.index, [&](const Affine& i) {
              return i.gathered >= 0 &&
                     !held_.contains(op(v).inputs[static_cast<std::size_t>(i.gathered)].tensor);
            });
      }
      for (const Output& o : op(v).outputs) {
        here.insert(o.target.tensor);
        if (std::ranges::binary_search(c_.partial, v))
          kept_.make_throughout(own(o.target, at));
        else if (!shared(o.target.tensor))
          kept_.make(o.target.tensor, own(o.target, at));
        after += finish(v, o, at);
      }
    }
    const double fitting = std::min(at.turns, known_ahead(fetches, loaded));
    const double together = meets      ? 1
                            : unrolled ? fitting
                                       : std::min(at.turns, ahead(computes, at));
    if (meets) after += 2 * at.turns * (d_.barrier + d_.shared);
    // Several turns' loads are under way together, in registers; where nothing is kept, with
    // temporaries.
    double under_way = together * loaded;
    if (!unrolled && !meets && at.along >= 0)
      under_way = (fitting + (at.turns > 1 ? 0.25 : 0)) * loaded + 2 * (most - 1);
    if (unrolled || at.turns <= kUnrolled)
      ahead_registers_ = std::max(ahead_registers_, before() + under_way);
    loading_ = std::max(loading_, 2 * (most - 1) + (at.turns > 1 && !unrolled ? loaded / 2 : 0));
    // What all threads read alike, outside of loops, is loaded before anything else.
    if (at.along < 0) alike_ = std::max(alike_, std::exchange(loads, 0));
    const double rounds = ceil_over(at.turns, together) * (dependent ? 2 : 1);
    return rounds * loads + at.turns * depth / std::min(kIndependent, most * at.turns) + after;
  }

  bool shared(TensorId t) const {
    const auto pin = tree_.pins.find(w_.tensor(t).name);
    return pin != tree_.pins.end() && pin->second.level == "shared";
  }

  /// Turns of a thread that have a sum of their own; `one_by_one`: of those, the ones around all of
  /// the loops that are added up.
  double completed(const Vertex& x, const Place& at, bool one_by_one) const {
    double turns = 1;
    for (const auto& [l, times] : at.passed) {
      const bool reduced = x.reduced.has(l);
      if (reduced && one_by_one) break;
      if (!reduced && x.loops.has(l)) turns *= times;
    }
    return turns;
  }

  std::set<int> vertices_of(std::span<const Node> computes) const {
    std::set<int> out;
    for (const Node& n : computes)
      if (n.kind == Node::Kind::compute) out.insert(vertex_named(n.name));
    out.erase(-1);
    return out;
  }

  /// Whether an operator hands another of the same loops a value through shared memory: threads
  /// meet in every turn, and no load passes that.
  bool hands_on(const std::set<int>& here) const {
    return std::ranges::any_of(here, [&](int v) {
      return std::ranges::any_of(op(v).outputs,
                                 [&](const Output& o) { return shared(o.target.tensor); }) &&
             std::ranges::any_of(g_.vertex(v).consumers, [&](int r) { return here.contains(r); });
    });
  }

  /// Whether the emitter unrolls the loops of a pass: what registers keep for other passes is
  /// indexed by them.
  bool is_unrolled(const std::set<int>& here, const Place& at) const {
    LoopSet passed;
    for (const auto& [l, times] : at.passed)
      if (times > 1) passed |= LoopSet(static_cast<std::size_t>(l));
    return std::ranges::any_of(here, [&](int v) {
      const auto kept = [&](const Access& a) {
        return !(loops_of(a) & passed).empty() && kept_.has(a.tensor);
      };
      const auto keeps = [&](const Output& o) {
        return !(loops_of(o.target) & passed).empty() && !shared(o.target.tensor) &&
               (std::ranges::binary_search(c_.partial, v) ||
                std::ranges::any_of(g_.vertex(v).consumers, [&](int r) {
                  return !here.contains(r) && std::ranges::binary_search(c_.vertices, r);
                }));
      };
      return std::ranges::any_of(op(v).inputs, kept) || std::ranges::any_of(op(v).outputs, keeps);
    });
  }

  /// Turns of unrolled loops whose loads are under way together; each has so many, of so many
  /// values.
  double known_ahead(double loads, double values) const {
    const double fitting =
        (registers_allowed(d_, kWarp * out_.warps, known_.most) - before()) / std::max(1.0, values);
    const bool widest = values >= 4 * loads;  // ptxas fetches one more where it nearly fits
    return std::max(std::floor(widest ? fitting + 0.5 : fitting),
                    std::ceil(kLeastAhead / std::max(1.0, loads)));
  }

  /// Turns whose loads are under way together: a few; all, where a gather does nothing but fetch
  /// what registers keep; none, where a long loop ends a sum in each turn or hands on values.
  double ahead(std::span<const Node> computes, const Place& at) const {
    bool fetches = computes.size() == 1, serial = false;
    for (const Node& n : computes) {
      const int v = n.kind == Node::Kind::compute ? vertex_named(n.name) : -1;
      if (v < 0) continue;
      const Vertex& x = g_.vertex(v);
      fetches = fetches && x.reduced.empty() && std::ranges::any_of(op(v).inputs, is_gather);
      for (const Output& o : op(v).outputs) {
        fetches = fetches && !shared(o.target.tensor);
        serial = serial || shared(o.target.tensor);
      }
      serial = serial || (!x.reduced.empty() && completed(x, at, true) > 1);
    }
    return fetches ? at.turns : serial && at.turns > kUnrolled ? 1 : kLoopsAhead;
  }

  /// What an operator's output takes: sums over units, shared memory, home.
  double finish(int v, const Output& o, const Place& at) {
    const Vertex& x = g_.vertex(v);
    const TensorId t = o.target.tensor;
    const bool home = x.leaves || std::ranges::any_of(x.consumers, [&](int r) {
                        return !std::ranges::binary_search(c_.vertices, r);
                      });
    double cycles = 0;
    Place once = at;  // of a sum: when it is complete
    if (!x.reduced.empty()) once.turns = completed(x, at, false);
    double runs = 1;  // of rows one after the other, over which a partial sum is kept
    if (std::ranges::binary_search(c_.partial, v))
      runs = at.of_loop[static_cast<std::size_t>(run_loop(g_, c_))];
    once.repeats /= runs;
    const double values = elements(o.target, once);
    const double sums = values * once.turns;
    double steps = 0;
    for (std::size_t l = 0; l < at.shuffles.size(); ++l)
      if (x.reduced.has(l)) steps += at.shuffles[l];
    if (steps > 0) {
      const double times = sums * once.repeats * warps(at);
      out_.instructions += 2 * steps * times;
      out_.wavefronts += steps * times;
      cycles += steps * (d_.shuffle + d_.light) + sums - 1;
    }
    if (!(x.reduced & at.joined).empty()) {
      // A warp's sum goes to shared memory, and every warp reads those of all.
      const double times = sums * once.repeats * warps(at);
      out_.instructions += times * (2 + out_.warps);
      out_.wavefronts += times * (1 + out_.warps);
      cycles += completed(x, at, true) * (2 * d_.shared + d_.barrier) + sums * out_.warps;
    }
    if (shared(t)) add(access(o.target, once), once, false), cycles += d_.shared;
    if (home) add(access(o.target, once), once, true);
    return cycles / runs;
  }
  const Graph& g_;
  const Workload& w_;
  const Device& d_;
  const Component& c_;
  const BoundTree& tree_;
  const Units units_;
  std::set<TensorId> made_;
  std::map<TensorId, std::pair<Access, Place>> readers_;
  KeptValues kept_;
  Kept known_;
  double ahead_registers_ = 0;  ///< the most that a pass with loads under way has
  double alike_ = 0;            ///< cycles until what all threads read alike is there
  double loading_ = 0;  ///< registers of the pass that needs most for what it loads and computes
  std::map<TensorId, bool> held_;  ///< loaded before: whether in shared memory
  Demand out_;
};

}  // namespace

Demand demand_of(const Graph& g, const Device& d, const Component& c, const BoundTree& tree) {
  Tally first(g, d, c, tree, {});
  first.take();
  return Tally(g, d, c, tree, first.kept()).take();
}

}  // namespace tilewright::fusionstitching
