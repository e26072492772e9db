// What a block asks of each resource, from its schedule's tree: for `--stitch latency=overlap`.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "models/fusionstitching/column_roots.h"
#include "models/fusionstitching/overlap.h"
#include "models/fusionstitching/part.h"

namespace tilewright::fusionstitching {
namespace {

constexpr std::int64_t kMostWarps = 32;        // of a block: CUDA C++ Programming Guide
constexpr std::int64_t kThreadsOfTrips = 256;  // of a block, at most, that a loop's trips ask for
constexpr double kLoopsAhead = 4;              // turns of a loop whose loads are under way together
constexpr double kUnrolled = 8;  // turns of a loop over units that are unrolled whatever they do
constexpr double kOfExpensive = 10;  // instructions that an expensive one is expanded to
constexpr double kSpecial = 2;       // of them, on the special function units
constexpr double kOfAccess = 2;      // instructions of an access: its address, itself
constexpr double kOfBlock = 20;      // of a warp, once: indices of its block and thread
constexpr double kSteps = 5;         // of a sum over 32 lanes
constexpr double kIndependent = 4;   // instructions of a warp under way together
constexpr double kOwnRegisters = 9;  // of a thread, beside the values that it keeps and loads
constexpr double kWavefrontBytes = 128;

double ceil_over(double a, double b) { return std::ceil(a / b); }

/// Where a node stands.
struct Place {
  std::vector<std::int64_t> range;  ///< of each loop: elements that are left
  std::vector<double> of_loop;      ///< turns of a thread, by loop
  double turns =
      1;  ///< of a thread, one after the other, since the last sequence of several passes
  double repeats = 1;            ///< of that sequence
  double full = 1;               ///< of the units' turns, those that have elements
  double warps = 0;              ///< that run it; 0: all of the block
  std::vector<double> lanes;     ///< of each of them, by loop: those that have other iterations
  std::vector<double> shuffles;  ///< that add up over them, by loop
  std::vector<std::pair<std::size_t, double>> passed;  ///< loops of `turns`, outermost first
  int along = -1;                                      ///< the loop that goes over lanes or threads
  std::int64_t step = 1;                               ///< its
  Mask joined = 0;                                     ///< loops that several warps share
  Mask blocks = 0;                                     ///< loops that several blocks share
};

/// What accesses to a tensor take of a warp in one turn.
struct Accesses {
  double count = 0, sectors = 0, wavefronts = 0;
};

class Tally {
 public:
  Tally(const Graph& g, const Device& d, const Component& c, const BoundTree& tree)
      : g_(g), w_(g.workload()), d_(d), c_(c), tree_(tree) {
    for (int v : c.vertices)
      for (const Output& o : op(v).outputs) made_.insert(o.target.tensor);
  }

  Demand take() {
    Place start;
    for (const Loop& l : w_.loops()) start.range.push_back(l.extent);
    start.of_loop.assign(w_.loops().size(), 1);
    start.lanes = start.of_loop;
    start.shuffles.assign(w_.loops().size(), 0);
    out_.blocks = 1;
    out_.warps = std::clamp<double>(warps_of(tree_.tree, start.range), 1, kMostWarps);
    find_readers(tree_.tree, start);
    out_.chain = d_.block + visit(tree_.tree, start) + alike_;
    out_.registers = std::ceil(kOwnRegisters + most_alive() + loading_);
    out_.instructions += kOfBlock * out_.warps;
    return out_;
  }

 private:
  const Operator& op(int v) const { return w_.op(g_.vertex(v).op); }
  std::optional<std::size_t> loop_named(const std::string& name) const {
    for (std::size_t l = 0; l < w_.loops().size(); ++l)
      if (w_.loops()[l].name == name) return l;
    return std::nullopt;
  }
  int vertex_named(const std::string& name) const {
    for (int v : c_.vertices) {
      if (op(v).name == name) return v;
      for (const Output& o : op(v).outputs)
        if (w_.tensor(o.target.tensor).name == name) return v;
    }
    return -1;
  }

  // ---- Units ------------------------------------------------------------------------------------

  /// Warps that the loops below a node are shared out to: nested ones multiply.
  double warps_of(const Node& n, std::vector<std::int64_t> range) const {
    double most = 1, own = 1;
    if (n.kind == Node::Kind::loop) {
      const auto l = loop_named(n.name);
      if (!l) return 1;
      const std::int64_t step = std::clamp<std::int64_t>(n.step, 1, range[*l]);
      const auto trips = static_cast<double>(ceil_div(range[*l], step));
      if (n.binding == Binding::warp) own = trips;
      if (n.binding == Binding::thread)
        own = ceil_over(std::min<double>(trips, kThreadsOfTrips), kWarp);
      range[*l] = step;
    }
    for (const Node& child : n.children) most = std::max(most, warps_of(child, range));
    return own * most;
  }

  /// Lanes that the loops below a node are shared out to: nested ones share a warp's.
  double lanes_of(const Node& n, std::vector<std::int64_t> range) const {
    double most = 1, own = 1;
    const auto l = n.kind == Node::Kind::loop ? loop_named(n.name) : std::nullopt;
    const std::int64_t step = l ? std::clamp<std::int64_t>(n.step, 1, range[*l]) : 1;
    const std::int64_t trips = l ? ceil_div(range[*l], step) : 1;
    if (l) range[*l] = step;
    for (const Node& child : n.children) most = std::max(most, lanes_of(child, range));
    if (n.binding == Binding::lane)
      own = std::min(power_above(static_cast<double>(trips)), kWarp / most);
    return own * most;
  }
  static double power_above(double n) {
    return static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(n)));
  }

  /// The place within a loop.
  Place inside(const Node& n, Place at, bool leaf) {
    const auto l = loop_named(n.name);
    if (!l) return at;
    const std::int64_t step = std::clamp<std::int64_t>(n.step, 1, at.range[*l]);
    const auto trips = static_cast<double>(ceil_div(at.range[*l], step));
    const auto whole = static_cast<double>(at.range[*l]);
    at.range[*l] = step;
    double turns = trips, units = 1;
    switch (n.binding) {
      case Binding::grid:
        if (trips > 1) at.blocks |= Mask{1} << *l;
        at.full *= whole / (trips * static_cast<double>(step));
        return at;
      case Binding::warp:
        at.warps = std::min(std::max(1.0, at.warps) * trips, out_.warps);
        at.joined |= Mask{1} << *l;
        units = out_.warps;
        turns = ceil_over(trips, units);
        break;
      case Binding::lane:
        units = kWarp / lanes_of(n.children.front(), at.range);
        at.shuffles[*l] = std::log2(at.along < 0 ? units : std::min(units, power_above(trips)));
        at.lanes[*l] = std::min<double>(trips, units);
        turns = ceil_over(trips, units);
        at.along = static_cast<int>(*l), at.step = step;
        if (at.warps == 0) at.warps = 1;
        break;
      case Binding::thread:
        at.warps = std::min(ceil_over(trips, kWarp), out_.warps);
        if (at.warps > 1) at.joined |= Mask{1} << *l;
        at.lanes[*l] = std::min<double>(trips, kWarp);
        at.shuffles[*l] = kSteps;
        units = kWarp * out_.warps;
        turns = ceil_over(trips, units);
        at.along = static_cast<int>(*l), at.step = step;
        break;
      default:
        break;
    }
    (leaf ? at.turns : at.repeats) *= turns;
    if (leaf && (turns > 1 || units > 1)) at.passed.emplace_back(*l, turns);
    if (turns > 1) at.full *= trips / (turns * std::min(trips, units));
    at.of_loop[*l] *= turns;
    return at;
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

  static Mask loops_of(const Access& a) {
    Mask loops = 0;
    for (const Affine& index : a.index)
      for (const Term& t : index.terms) loops |= Mask{1} << t.loop.index();
    return loops;
  }
  static bool has(const Affine& index, int loop) {
    return std::ranges::any_of(
        index.terms, [&](const Term& t) { return static_cast<int>(t.loop.index()) == loop; });
  }

  /// Elements of the tensor that a thread touches in one turn.
  double elements(const Access& a, const Place& at) const {
    const Mask loops = loops_of(a);
    double n = 1;
    for (std::size_t l = 0; l < at.range.size(); ++l)
      if ((loops >> l & 1) != 0) n *= static_cast<double>(at.range[l]);
    return n;
  }

  /// Elements of it that a thread has in all.
  double own(const Access& a, const Place& at) const {
    Mask loops = loops_of(a);
    double n = elements(a, at);
    for (std::size_t l = 0; l < at.of_loop.size(); ++l)
      if ((loops & ~c_.rows) >> l & 1) n *= at.of_loop[l];  // of one row at a time
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
    const Mask loops = loops_of(a);
    for (std::size_t l = 0; l < at.lanes.size(); ++l) {
      if ((loops >> l & 1) == 0) continue;
      lanes *= at.lanes[l];
      side_by_side = side_by_side || (at.lanes[l] > 1 && has(a.index.back(), static_cast<int>(l)));
    }
    double sectors = lanes, wavefronts = lanes;
    if (side_by_side) {
      const bool along = has(a.index.back(), at.along);
      const double apart = std::max(wide, along ? static_cast<double>(at.step) : 1) * bytes;
      sectors = std::max(1.0, lanes * std::min(1.0, apart / kSectorBytes));
      wavefronts = std::max(1.0, sectors * kSectorBytes / kWavefrontBytes);
    }
    x.sectors = x.count * sectors;
    x.wavefronts = x.count * wavefronts;
    return x;
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
    const Place at = n.kind == Node::Kind::loop ? inside(n, around, true) : around;
    for (const Node& child : n.children) find_readers(child, at);
    const int v = n.kind == Node::Kind::compute ? vertex_named(n.name) : -1;
    if (v < 0) return;
    for (const Access& a : op(v).inputs) readers_.try_emplace(a.tensor, a, at);
  }

  // ---- The walk: cycles of a block's longest warp
  // -------------------------------------------------

  double visit(const Node& n, const Place& at) {
    switch (n.kind) {
      case Node::Kind::loop: {
        if (n.binding == Binding::grid)
          if (const auto l = loop_named(n.name))
            out_.blocks *= static_cast<double>(
                ceil_div(at.range[*l], std::clamp<std::int64_t>(n.step, 1, at.range[*l])));
        const bool leaf = is_leaf(n);
        const Place in = inside(n, at, leaf);
        return visit(n.children.front(), in) * (leaf ? 1 : in.repeats / at.repeats);
      }
      case Node::Kind::sequence:
        return visit_sequence(n, at);
      case Node::Kind::compute:
        return pass({&n, 1}, at);
      case Node::Kind::sync:
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

  // ---- Registers --------------------------------------------------------------------------------

  /// A value that a thread keeps from one pass to a later one.
  struct Kept {
    double values = 0;
    std::size_t made = 0, last = 0;  ///< passes
  };
  void make(TensorId t, double values) { kept_.try_emplace(t, Kept{values, passes_, passes_}); }
  void read(TensorId t) {
    if (const auto k = kept_.find(t); k != kept_.end()) k->second.last = passes_;
  }
  /// The most that are alive between two passes: what a pass reads for the last time makes room for
  /// what it makes.
  double most_alive() const {
    double most = 0;
    for (std::size_t p = 0; p < passes_; ++p) {
      double alive = 0;
      for (const auto& [t, k] : kept_)
        if (k.made <= p && p < k.last) alive += k.values;
      most = std::max(most, alive);
    }
    return most;
  }

  double load(const Node& n, const Place& at) {
    const auto reader = std::ranges::find_if(
        readers_, [&](const auto& r) { return w_.tensor(r.first).name == n.name; });
    if (reader == readers_.end()) return 0;
    const auto& [a, there] = reader->second;
    held_[reader->first] = n.level == "shared";
    if (n.level != "shared") {
      add(access(a, there), there, true);
      make(a.tensor, own(a, there));
      return latency(a, there);
    }
    // Threads bring the tile an element at a time.
    const double threads = at.warps == 0 ? kWarp * out_.warps : kWarp;
    const double tile = elements(a, at);
    const double turns = ceil_over(tile, threads);
    Place staging = at;
    staging.turns = turns;
    add({1, 4, 2}, staging, true);
    return turns * latency(a, at);
  }

  /// Cycles until a load is there: what other blocks read, too, they have brought to L2.
  double latency(const Access& a, const Place& at) const {
    return (at.blocks & ~loops_of(a)) != 0 ? d_.l2 : d_.dram;
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
    ++passes_;
    double loads = 0;
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
        read(a.tensor);
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
        dependent |=
            gathers && std::ranges::any_of(a.index, [&](const Affine& i) {
              return i.gathered >= 0 &&
                     !held_.contains(op(v).inputs[static_cast<std::size_t>(i.gathered)].tensor);
            });
      }
      for (const Output& o : op(v).outputs) {
        here.insert(o.target.tensor);
        if (!shared(o.target.tensor)) make(o.target.tensor, own(o.target, at));
        after += finish(v, o, at);
      }
    }
    // Several turns' loads are under way together.
    loading_ = std::max(loading_, 2 * (most - 1) + (at.turns > 1 ? loaded / 2 : 0));
    // What all threads read alike, outside of loops, is loaded before anything else.
    if (at.along < 0) alike_ = std::max(alike_, std::exchange(loads, 0));
    const double rounds = ceil_over(at.turns, ahead(computes, at)) * (dependent ? 2 : 1);
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
      const bool reduced = (x.reduced >> l & 1) != 0;
      if (reduced && one_by_one) break;
      if (!reduced && (x.loops >> l & 1) != 0) turns *= times;
    }
    return turns;
  }

  /// Turns whose loads are under way together: a few; all, where a gather does nothing but fetch
  /// what registers keep; none, where a long loop ends a sum in each turn or hands on values.
  double ahead(std::span<const Node> computes, const Place& at) const {
    bool fetches = computes.size() == 1, serial = false;
    for (const Node& n : computes) {
      const int v = n.kind == Node::Kind::compute ? vertex_named(n.name) : -1;
      if (v < 0) continue;
      const Vertex& x = g_.vertex(v);
      fetches = fetches && x.reduced == 0 && std::ranges::any_of(op(v).inputs, is_gather);
      for (const Output& o : op(v).outputs) {
        fetches = fetches && !shared(o.target.tensor);
        serial = serial || shared(o.target.tensor);
      }
      serial = serial || (x.reduced != 0 && completed(x, at, true) > 1);
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
    if (x.reduced != 0) once.turns = completed(x, at, false);
    double runs = 1;  // of rows one after the other, over which a partial sum is kept
    if (std::ranges::binary_search(c_.partial, v))
      runs = at.of_loop[static_cast<std::size_t>(run_loop(g_, c_))];
    once.repeats /= runs;
    const double values = elements(o.target, once);
    const double sums = values * once.turns;
    double steps = 0;
    for (std::size_t l = 0; l < at.shuffles.size(); ++l)
      if ((x.reduced >> l & 1) != 0) steps += at.shuffles[l];
    if (steps > 0) {
      const double times = sums * once.repeats * warps(at);
      out_.instructions += 2 * steps * times;
      out_.wavefronts += steps * times;
      cycles += steps * (d_.shuffle + d_.light) + sums - 1;
    }
    if ((x.reduced & at.joined) != 0) {
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
  std::set<TensorId> made_;
  std::map<TensorId, std::pair<Access, Place>> readers_;
  std::map<TensorId, Kept> kept_;
  std::size_t passes_ = 0;
  double alike_ = 0;    ///< cycles until what all threads read alike is there
  double loading_ = 0;  ///< registers of the pass that needs most for what it loads and computes
  std::map<TensorId, bool> held_;  ///< loaded before: whether in shared memory
  Demand out_;
};

}  // namespace

Demand demand_of(const Graph& g, const Device& d, const Component& c, const BoundTree& tree) {
  return Tally(g, d, c, tree).take();
}

}  // namespace tilewright::fusionstitching
