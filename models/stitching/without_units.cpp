// A kernel that no plan can say with units: loops that a block runs one after the other, tiles in
// shared memory. What it takes, in the seconds of overlap.h, at most.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "core/base/format.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr double kComputing = 128;   // of a block that compute, and as many that bring tiles
constexpr double kCopiesAhead = 4;   // accesses of a thread under way together
constexpr double kOfTileAccess = 4;  // instructions of an access to a tile: its place, itself
constexpr double kOfIndex = 20;      // of a point, for each loop: an integer division
constexpr std::int64_t kRegisters = 64;
constexpr std::int64_t kMostRowsOfBlock = 1024;

/// A walk over the tree: what a block does, every compute and every tile after the one before it.
class TileWalk {
 public:
  TileWalk(const Graph& g, const Device& d, const Component& c)
      : g_(g), w_(g.workload()), d_(d), c_(c) {
    for (const Loop& l : w_.loops()) range_.push_back(l.extent);
    turns_.assign(range_.size(), 1);
  }

  Demand take(const Node& tree) {
    out_.blocks = 1;
    out_.warps = 2 * kComputing / kWarp;
    out_.chain = d_.block;
    out_.registers = static_cast<double>(kRegisters);
    out_.meets = true;
    visit(tree);
    return out_;
  }
  double shared_bytes() const { return shared_; }

 private:
  const Operator& op(int v) const { return w_.op(g_.vertex(v).op); }
  int vertex_named(const std::string& name) const {
    for (int v : c_.vertices)
      if (op(v).name == name) return v;
    return -1;
  }
  bool own(TensorId t) const {
    const OpId producer = w_.producer(t);
    return producer.valid() &&
           std::ranges::any_of(c_.vertices, [&](int v) { return g_.vertex(v).op == producer; });
  }

  void visit(const Node& n) {
    if (n.kind == Node::Kind::compute) return compute(vertex_named(n.name));
    if (n.kind == Node::Kind::store && n.atomic) return add_atomically(n.name);
    if (n.kind != Node::Kind::loop) {
      for (const Node& child : n.children) visit(child);
      return;
    }
    const auto loop = std::ranges::find(w_.loops(), n.name, &Loop::name) - w_.loops().begin();
    const auto l = static_cast<std::size_t>(loop);
    const std::int64_t range = range_[l], step = std::clamp<std::int64_t>(n.step, 1, range);
    const auto trips = static_cast<double>(ceil_div(range, step));
    const double turns = turns_[l];
    range_[l] = step;
    if (n.binding == Binding::grid)
      out_.blocks *= trips;
    else
      turns_[l] *= trips, order_.push_back(l);
    for (const Node& child : n.children) visit(child);
    range_[l] = range;
    turns_[l] = turns;
    if (n.binding != Binding::grid) order_.pop_back();
  }

  double all_turns() const {
    double n = 1;
    for (double t : turns_) n *= t;
    return n;
  }
  /// Times that a tile is another: turns of the loops around it up to the innermost that moves it.
  double fetches(const Access& a) const {
    const LoopSet loops = loops_of(a);
    std::size_t last = 0;
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (loops.has(order_[i])) last = i + 1;
    double n = 1;
    LoopSet seen;
    for (std::size_t i = 0; i < last; ++i) {
      if (!seen.has(order_[i])) n *= turns_[order_[i]];
      seen |= bit(static_cast<int>(order_[i]));
    }
    return n;
  }
  double elements(const Access& a) const {
    double n = 1;
    for (const Affine& index : a.index) {
      double width = 1;
      for (const Term& t : index.terms)
        width += static_cast<double>(std::abs(t.coefficient)) *
                 static_cast<double>(range_[t.loop.index()] - 1);
      n *= width;
    }
    return n;
  }
  /// Elements of the tile that lie one after the other.
  double run_of(const Access& a) const {
    const auto along = a.index.empty() ? std::nullopt : a.index.back().plain_loop();
    return along ? static_cast<double>(range_[along->index()]) : 1;
  }

  /// A tile between home and shared memory, so many times.
  void move(const Access& a, double times) {
    const auto bytes = static_cast<double>(size_of(w_.tensor(a.tensor).dtype));
    const double n = elements(a), run = std::min(n, run_of(a));
    const double accesses = n / run * ceil_over(run * bytes, 16);
    out_.sectors += times * n / run * ceil_over(run * bytes, kSectorBytes);
    out_.instructions += times * kOfTileAccess * ceil_over(accesses, kWarp);
    out_.wavefronts += times * n / run * ceil_over(run * bytes, kWavefrontBytes);
    out_.chain += times * d_.home() * ceil_over(accesses, kComputing * kCopiesAhead);
  }
  /// From the first to the last place along a dimension that an index goes to.
  Interval reach(const Affine& index) const {
    Interval r{index.offset, index.offset + 1};
    for (const Term& t : index.terms) {
      const std::int64_t far = t.coefficient * (range_[t.loop.index()] - 1);
      (far < 0 ? r.lo : r.hi) += far;
    }
    return r;
  }
  /// A tensor's tile, around all accesses to it of an operator. Rows in shared memory are chunks of
  /// 16 bytes, one or an even number of them.
  void hold(TensorId t, std::span<const Access> all) {
    std::vector<Interval> box;
    for (const Access& a : all) {
      if (a.tensor != t || is_gather(a)) continue;
      box.resize(a.index.size(), {std::numeric_limits<std::int64_t>::max(), 0});
      for (std::size_t i = 0; i < box.size(); ++i) {
        const Interval r = reach(a.index[i]);
        box[i] = {std::min(box[i].lo, r.lo), std::max(box[i].hi, r.hi)};
      }
    }
    const auto size = static_cast<double>(std::max<std::int64_t>(4, size_of(w_.tensor(t).dtype)));
    double bytes = size;
    for (std::size_t i = 0; i < box.size(); ++i) {
      const auto wide = static_cast<double>(std::min(box[i].hi - box[i].lo, w_.tensor(t).shape[i]));
      if (i + 1 < box.size()) {
        bytes *= wide;
        continue;
      }
      const double chunks = ceil_over(wide * size, 16);
      bytes *= 16 / size * (chunks == 1 ? chunks : 2 * ceil_over(chunks, 2));
    }
    double& most = tiles_[t];
    shared_ += std::max(0.0, bytes - most);
    most = std::max(most, bytes);
  }

  /// A point of the output a thread, which runs the reductions; all meet before and after it.
  void compute(int v) {
    if (v < 0) return;
    const Vertex& x = g_.vertex(v);
    double outer = 1, reduced = 1, loops = 0;
    for (LoopId l : op(v).loops) {
      const auto n = static_cast<double>(range_[l.index()]);
      (x.reduced.has(l) ? reduced : outer) *= n;
      if (!x.reduced.has(l)) ++loops;
    }
    const double turns = all_turns(), rounds = ceil_over(outer, kComputing);
    const auto light = static_cast<double>(x.light), expensive = static_cast<double>(x.expensive);
    const auto inputs = static_cast<double>(op(v).inputs.size());
    const double warps = turns * ceil_over(outer, kWarp);  // that compute a point each
    out_.instructions +=
        warps * (kOfIndex * loops + kOfTileAccess * static_cast<double>(x.outputs));
    out_.instructions +=
        warps * reduced * (light + kOfExpensive * expensive + kOfTileAccess * inputs);
    out_.special += warps * reduced * kSpecial * expensive;
    out_.wavefronts += warps * (reduced * inputs + static_cast<double>(x.outputs));
    out_.turns = std::max(out_.turns, turns);
    out_.chain +=
        turns * (2 * d_.barrier +
                 rounds * (kOfIndex * loops * d_.light / 4 + d_.shared +
                           reduced * (d_.shared + light * d_.light + expensive * d_.expensive)));
    for (const Access& a : op(v).inputs) {
      if (is_gather(a)) {  // from home, each point
        out_.sectors += turns * outer * reduced;
        out_.wavefronts += warps * reduced * kWarp;
        out_.chain += turns * rounds * reduced * d_.home();
        continue;
      }
      const bool first = read_.insert(a.tensor).second;
      hold(a.tensor, op(v).inputs);
      if (!own(a.tensor) && first) move(a, fetches(a));
    }
    for (const Output& o : op(v).outputs) {
      hold(o.target.tensor, {&o.target, 1});
      const bool home = x.leaves || std::ranges::any_of(x.consumers, [&](int r) {
                          return !std::ranges::binary_search(c_.vertices, r);
                        });
      if (home) move(o.target, fetches(o.target));
    }
  }

  void add_atomically(const std::string& tensor) {
    for (int v : c_.partial)
      for (const Output& o : op(v).outputs)
        if (w_.tensor(o.target.tensor).name == tensor)
          out_.added +=
              elements(o.target) * static_cast<double>(size_of(w_.tensor(o.target.tensor).dtype));
  }

  const Graph& g_;
  const Workload& w_;
  const Device& d_;
  const Component& c_;
  std::vector<std::int64_t> range_;
  std::vector<double> turns_;
  std::vector<std::size_t> order_;  ///< loops around, of one block, outermost first
  std::map<TensorId, double> tiles_;
  std::set<TensorId> read_;
  double shared_ = 0;
  Demand out_;
};

/// The part with so many rows a block; none where its tiles do not fit.
std::optional<Stitched> tiled(const Graph& g, const Device& d, const Stitched& from,
                              std::int64_t rows) {
  Stitched s = from;
  s.rows_per_block = rows;
  TileWalk walk(g, d, s.component);
  s.demand = walk.take(tree_without_units(g, s));
  const double shared = walk.shared_bytes();
  if (shared > static_cast<double>(d.shared_per_sm)) return std::nullopt;
  s.shared_bytes = s.shared_unshared_bytes = static_cast<std::int64_t>(shared);
  s.registers = kRegisters;
  s.blocks = static_cast<std::int64_t>(s.demand.blocks);
  s.added_bytes = static_cast<std::int64_t>(s.demand.added * s.demand.blocks);
  s.cycles_per_warp = s.demand.chain;
  return s;
}

}  // namespace

Result<StitchedKernel> without_units(const Graph& g, const Device& d, const Pattern& p,
                                     const Options& o, std::string why) {
  const auto parts = components_of(g, p, o.most_operators);
  if (!parts) return Reason{"the operators cannot be one kernel"};
  std::vector<Stitched> chosen;
  const auto threads = static_cast<std::int64_t>(2 * kComputing);
  for (const Component& c : *parts) {
    Stitched s{.component = c, .groups = Part(g, d, c, o).groups()};
    for (Group& group : s.groups) group.scheme = Scheme::block;
    const auto most = std::min(kMostRowsOfBlock, static_cast<std::int64_t>(c.row_count));
    std::optional<Stitched> best;
    double least = 0;
    for (std::int64_t rows = 1; rows <= most; rows *= 2) {
      auto t = tiled(g, d, s, rows);
      if (!t) continue;
      const double seconds = put_together(g, d, o, {*t}, threads).seconds;
      if (best && seconds >= least) continue;
      best = std::move(t);
      least = seconds;
    }
    if (!best)
      return Reason{formatted("no schedule of {} fits an SM",
                              g.workload().op(g.vertex(c.vertices.front()).op).name)};
    chosen.push_back(std::move(*best));
  }
  StitchedKernel k = put_together(g, d, o, std::move(chosen), threads);
  if (k.occupancy == 0)
    return Reason{
        formatted("no schedule of {} fits an SM", g.workload().op(g.vertex(p.front()).op).name)};
  k.without_units = std::move(why);
  k.schedules = 1;
  return k;
}

}  // namespace tilewright::stitching
