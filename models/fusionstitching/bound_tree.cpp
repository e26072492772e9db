#include "models/fusionstitching/bound_tree.h"

#include <algorithm>

#include "core/ir/format.h"
#include "models/fusionstitching/column_roots.h"
#include "models/fusionstitching/passes.h"

namespace tilewright::fusionstitching {
namespace {

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kMostWarps = 32;     // of a block: CUDA C++ Programming Guide
constexpr std::int64_t kKeptOfTensor = 64;  // values of one tensor that a thread keeps in registers
constexpr std::int64_t kKeptAlike = 16;     // that every lane keeps for itself alone
constexpr std::int64_t kKept = 160;         // of all, of at most 255 registers
constexpr std::int64_t kWorking = 24;       // registers beside the values that are kept (assumed)
constexpr std::int64_t kThreadsOfTrips = 256;  // of a block, at most, that a loop's trips ask for
constexpr std::int64_t kShortRounds = 4;  // a row of points that a warp goes over in so many is its

Mask bit(LoopId l) { return Mask{1} << l.index(); }
Mask bit(int l) { return Mask{1} << l; }

bool in(std::span<const int> vertices, int v) {
  return std::binary_search(vertices.begin(), vertices.end(), v);
}

Mask loops_of(const Access& a) {
  Mask m = 0;
  for (const Affine& index : a.index)
    for (const Term& t : index.terms) m |= bit(t.loop);
  return m;
}

class Writer {
 public:
  Writer(const Graph& g, const Device& d, const Stitched& s, std::int64_t threads)
      : g_(g), w_(g.workload()), d_(d), s_(s), c_(s.component), threads_(threads) {}

  Result<BoundTree> write() {
    const Scheme scheme = s_.groups.front().scheme;
    if (std::ranges::any_of(s_.groups, [&](const Group& x) { return x.scheme != scheme; }))
      return Reason{"its groups are of different schemes"};
    if (scheme == Scheme::thread && sums_columns(g_, c_)) return columns();
    if (scheme == Scheme::thread && !c_.partial.empty())
      return Reason{"a row a thread leaves no thread a column to sum up"};
    units(scheme);
    make_passes(inner_);
    place_values(scheme);
    if (!refused_.empty()) return Reason{refused_};
    if (spread()) count_loads();
    out_.tree = c_.partial.empty() ? nest(cuts_, sequence(body())) : runs();
    out_.kept = kept_;
    out_.shared_bytes = shared_;
    return std::move(out_);
  }

 private:
  std::int64_t extent(int l) const { return g_.extent(l); }
  const std::string& name(int l) const { return w_.loops()[static_cast<std::size_t>(l)].name; }
  const Operator& op(int v) const { return w_.op(g_.vertex(v).op); }

  /// Loops of the mask in the order in which the part's last operator (or any) has them.
  std::vector<int> ordered(Mask loops) const {
    std::vector<int> out;
    for (std::size_t i = c_.vertices.size(); i-- > 0;)
      for (LoopId l : op(c_.vertices[i]).loops)
        if ((loops & bit(l)) != 0 &&
            std::ranges::find(out, static_cast<int>(l.index())) == out.end())
          out.push_back(static_cast<int>(l.index()));
    return out;
  }

  Node nest(std::span<const Cut> cuts, Node body) const {
    for (std::size_t i = cuts.size(); i-- > 0;)
      body = loop(name(cuts[i].loop), std::move(body), cuts[i].step, cuts[i].binding);
    return body;
  }

  // ---- Units ------------------------------------------------------------------------------------

  /// Cuts around a row's passes, and the loops within it.
  void units(Scheme scheme) {
    std::vector<int> rows = ordered(c_.rows);
    const auto grid = [&](int l, std::int64_t step) {
      cuts_.push_back({l, std::min(step, extent(l)), Binding::grid});
    };
    inner_ = ~c_.rows;
    if (!c_.partial.empty()) return units_of_runs(scheme, std::move(rows));
    const bool points = std::ranges::all_of(
        c_.vertices, [&](int v) { return g_.points(g_.vertex(v).loops & ~c_.rows) <= 1; });
    if (scheme == Scheme::thread && points) return units_of_points(std::move(rows));
    if (scheme == Scheme::block) {
      for (int l : rows) grid(l, 1);
      return bind_to_threads();
    }
    const int last = scheme == Scheme::thread ? last_of(rows) : rows.back();
    std::erase(rows, last);
    for (int l : rows) grid(l, 1);
    grid(last, scheme == Scheme::thread ? threads_ : threads_ / kWarp);
    cuts_.push_back({last, 1, scheme == Scheme::thread ? Binding::thread : Binding::warp});
    bound_ = scheme == Scheme::thread ? Binding::seq : Binding::lane;
  }

  /// Rows go over a block's threads, said as warps where they are longer.
  void bind_to_threads() {
    bound_ = Binding::thread;
    if (spread()) return;
    const int along = contiguous_loop(g_, c_, inner_);
    const std::int64_t trips = along < 0 ? 1 : ceil_div(extent(along), step_along(along));
    in_warps_ = threads_ != kThreadsOfTrips && trips > threads_;
  }

  /// Runs of rows: a block's, in warp scheme each of its warps'.
  void units_of_runs(Scheme scheme, std::vector<int> rows) {
    const int run = run_loop(g_, c_);
    std::erase(rows, run);
    for (int l : rows) cuts_.push_back({l, 1, Binding::grid});
    cuts_.push_back({run, std::min(s_.rows_per_block, extent(run)), Binding::grid});
    if (scheme == Scheme::block) return bind_to_threads();
    warp_cuts_.push_back({run, s_.rows_in_turn, Binding::warp});
    bound_ = Binding::lane;
  }

  /// The row loop that neighbouring threads should differ in.
  int last_of(const std::vector<int>& rows) const {
    const int l = contiguous_loop(g_, c_, c_.rows);
    return l >= 0 ? l : rows.back();
  }

  /// Element-wise: threads go along the contiguous loop; where that is short, a warp does.
  void units_of_points(std::vector<int> rows) {
    const int along = last_of(rows);
    std::erase(rows, along);
    inner_ |= bit(along);
    bound_ = Binding::thread;
    const bool is_short =
        !rows.empty() && extent(along) <= kShortRounds * kWarp * step_along(along);
    // Each warp takes several of the last of them in turn where all warps have as many.
    const std::int64_t warps = threads_ / kWarp;
    const std::int64_t turns =
        is_short && extent(rows.back()) % (warps * s_.turns) == 0 ? s_.turns : 1;
    for (int l : rows)
      cuts_.push_back(
          {l, is_short && l == rows.back() ? std::min(warps * turns, extent(l)) : 1, Binding::grid});
    if (is_short) {
      cuts_.push_back({rows.back(), turns, Binding::warp});
      if (turns > 1) cuts_.push_back({rows.back(), 1, Binding::seq});
      bound_ = Binding::lane;
      return;
    }
    const std::int64_t block = threads_ * s_.turns * step_along(along);
    cuts_.push_back({along, std::min(block, extent(along)), Binding::grid});
    in_grid_ = true;
    in_warps_ = threads_ != kThreadsOfTrips && (s_.turns > 1 || threads_ > kThreadsOfTrips);
  }

  /// Elements a step along a loop: as many of `vector` as divide it.
  std::int64_t step_along(int l) const {
    std::int64_t step = s_.vector;
    while (step > 1 && extent(l) % step != 0) step /= 2;
    return step;
  }

  // ---- Passes -----------------------------------------------------------------------------------

  /// Vertices by the first group that computes them: topological, as groups are.
  std::vector<int> order() const {
    std::vector<int> out;
    for (const Group& group : s_.groups)
      for (int v : group.vertices)
        if (std::ranges::find(out, v) == out.end()) out.push_back(v);
    return out;
  }

  /// Whether its readers, all of them here, need less of it than all (slices): its loops then run
  /// over other ranges than those of operators that are computed whole.
  bool needs_less(int v) {
    const auto known = needs_less_.find(v);
    if (known != needs_less_.end()) return known->second;
    const Vertex& x = g_.vertex(v);
    bool less = false;
    for (const Output& o : op(v).outputs)
      for (std::size_t dim = 0; dim < o.target.index.size(); ++dim)
        less |= !x.leaves && !all_read(v, o.target.tensor, dim);
    return needs_less_[v] = less;
  }
  bool all_read(int v, TensorId t, std::size_t dim) {
    for (int r : g_.vertex(v).consumers) {
      if (!in(c_.vertices, r)) return true;  // at home, whole
      for (const Access& a : op(r).inputs) {
        if (a.tensor != t) continue;
        const auto plain = a.index[dim].plain_loop();
        if (!plain || w_.tensor(t).shape[dim] != w_.loop(*plain).extent) continue;
        if ((g_.vertex(r).reduced & bit(*plain)) != 0 || !needs_less(r)) return true;
      }
    }
    return false;
  }

  /// Each operator joins the first pass over its loops that is late enough for all that it reads.
  void make_passes(Mask inner) {
    passes_.clear();
    pass_of_.clear();
    for (int v : order()) {
      const Mask loops = g_.vertex(v).loops & inner;
      const bool alone = needs_less(v);
      Pass own{.loops = loops, .alone = alone};
      const bool any_bound = spread() && share_loops(own, v);
      std::size_t first = 0;
      for (int e : g_.vertex(v).in) {
        const Edge& edge = g_.edge(e);
        const auto made = pass_of_.find(edge.from);
        if (made == pass_of_.end()) continue;
        const bool waits = (g_.vertex(edge.from).reduced & loops) != 0 || (edge.bad & loops) != 0 ||
                           (edge.bad & g_.vertex(edge.from).loops & inner) != 0;
        first = std::max(first, made->second + (waits ? 1 : 0));
      }
      std::size_t at = first;
      while (at < passes_.size() && (alone || passes_[at].alone || passes_[at].loops != loops ||
                                     passes_[at].fetches != own.fetches ||
                                     (spread() && !any_bound && passes_[at].bound != own.bound)))
        ++at;
      if (at == passes_.size()) {
        passes_.push_back(own);
        Pass& p = passes_.back();
        if (!spread()) {
          p.bound = contiguous_loop(g_, c_, loops);
          if (p.bound < 0 && loops != 0) p.bound = ordered(loops).back();
          if (p.bound >= 0) p.step = step_along(p.bound);
        }
      }
      passes_[at].vertices.push_back(v);
      pass_of_[v] = at;
    }
  }

  // ---- Several loops within a row ---------------------------------------------------------------

  bool spread() const { return s_.spread != Spread::turns; }
  bool in_block() const { return bound_ == Binding::thread; }

  /// How a pass of this operator would go over its loops: along what it reads or writes at home
  /// element by element, else as the last pass over these loops did. False where any other
  /// contiguous loop would do as well.
  bool share_loops(Pass& p, int v) {
    if (p.loops == 0) return true;
    const Contiguous own = contiguous_of(g_, c_, v, inner_);
    const auto before = std::find_if(passes_.rbegin(), passes_.rend(),
                                     [&](const Pass& q) { return q.loops == p.loops; });
    p.bound = own.whole || before == passes_.rend() ? own.loop : before->bound;
    const std::vector<int> loops = ordered(p.loops);
    if (p.bound < 0) p.bound = loops.back();
    p.step = step_along(p.bound);
    const std::int64_t units = in_block() ? threads_ : kWarp;
    while (p.step > 1 && g_.points(p.loops) < static_cast<double>(p.step * units)) p.step /= 2;
    p.shares = share_out(g_, loops, p.bound, p.step, units / kWarp, s_.spread);
    const auto& inputs = op(v).inputs;
    p.fetches =
        std::ranges::any_of(inputs, is_gather) && values_of(p.shares, p.loops) <= kKeptOfTensor;
    return !own.whole;
  }

  /// Whether units have of two passes' values the same.
  static bool same_units(const Pass& p, const Access& a, const Pass& q, const Access& b) {
    const auto plain = [](const Affine& i) { return i.terms.empty() || i.plain_loop(); };
    return p.shares == q.shares && a.index == b.index && std::ranges::all_of(a.index, plain);
  }

  /// Adds up what threads do for an operator; its loops' sums must fit their registers.
  void count_work(const Pass& p, int v, const Access& made) {
    const Mask reduced = g_.vertex(v).reduced & p.loops;
    ThreadWork& work = out_.work[v];
    work.step = p.step;
    for (const LoopShare& share : p.shares) work.turns *= static_cast<double>(share.turns);
    if (reduced == 0) return;
    const std::int64_t sums = sums_of(p.shares, loops_of(made), reduced);
    if (sums > kKeptOfTensor)
      refused_ =
          formatted("a thread would sum up {} values of {}", sums, w_.tensor(made.tensor).name);
    work.lanes = lanes_of(p.shares, reduced);
    work.warps = warps_of(p.shares, reduced);
    work.sums = static_cast<double>(values_of(p.shares, loops_of(made)));
    if (work.warps == 1) return;
    out_.barriers += 1;
    shared_ += sums * (threads_ / kWarp) * (work.lanes == kWarp ? 1 : kWarp) *
               size_of(w_.tensor(made.tensor).dtype);
  }

  /// A thread's accesses to what comes from home.
  void count_loads() {
    for (const Pass& p : passes_)
      for (int v : p.vertices)
        for (const Access& a : op(v).inputs) {
          if (made_here(a.tensor)) continue;
          Mask indexed = 0;
          for (int l : gather_loops(op(v), a))
            indexed |= bit(op(v).loops[static_cast<std::size_t>(l)]);
          const bool wide =
              p.bound >= 0 && !a.index.empty() &&
              a.index.back().plain_loop() == LoopId(static_cast<std::size_t>(p.bound));
          double& most = out_.loads[a.tensor];
          most = std::max(most, static_cast<double>(values_of(p.shares, indexed & p.loops)) /
                                    static_cast<double>(wide ? p.step : 1));
        }
  }

  // ---- Where values are -------------------------------------------------------------------------

  /// The tensor dimension that a pass's bound loop walks; -1: none, -2: not plainly.
  int dimension(const Pass& p, const Access& a) const {
    int found = -1;
    for (std::size_t i = 0; i < a.index.size(); ++i) {
      const auto plain = a.index[i].plain_loop();
      const bool has = std::ranges::any_of(a.index[i].terms, [&](const Term& t) {
        return static_cast<int>(t.loop.index()) == p.bound;
      });
      if (!has && a.index[i].gathered < 0) continue;
      if (found != -1 || !plain) return -2;
      found = static_cast<int>(i);
    }
    return found;
  }

  /// Values of a tensor that a thread has of one row, spread as the pass goes over it.
  std::int64_t share_of(const Pass& p, const Access& a) const {
    const Mask loops = loops_of(a) & p.loops;
    if (spread()) return values_of(p.shares, loops);
    std::int64_t n = 1;
    for (int l : ordered(loops)) {
      if (l != p.bound) {
        n *= extent(l);
        continue;
      }
      if (bound_ == Binding::thread && in_warps_ && !in_grid_) {
        n *= run_of(p) / kWarp;
        continue;
      }
      const std::int64_t units = bound_ == Binding::lane     ? kWarp
                                 : bound_ == Binding::thread ? threads_
                                                             : 1;
      n *= ceil_div(ceil_div(extent(l), p.step), units) * p.step;
    }
    return n;
  }
  std::int64_t row_bytes(const Access& a) const {
    std::int64_t n = size_of(w_.tensor(a.tensor).dtype);
    for (int l : ordered(loops_of(a) & inner_)) n *= extent(l);
    return n;
  }

  /// A value of a row kept between passes: in registers if each thread keeps what it reads itself
  /// and has room, else in shared memory if that has; else nowhere.
  enum class Where : std::uint8_t { registers, shared, nowhere };
  Where keep(std::int64_t share, std::int64_t bytes, bool aligned) {
    const std::int64_t most = std::min(kKept, d_.registers_per_sm / threads_ - kWorking);
    if (aligned && share <= kKeptOfTensor && kept_ + share <= most) {
      kept_ += share;
      return Where::registers;
    }
    const std::int64_t rows = bound_ == Binding::lane  ? threads_ / kWarp
                              : bound_ == Binding::seq ? threads_
                                                       : 1;
    if (shared_ + bytes * rows > d_.shared_per_sm) return Where::nowhere;
    shared_ += bytes * rows;
    return Where::shared;
  }

  void place_values(Scheme scheme) {
    place_inputs();
    for (std::size_t p = 0; p < passes_.size(); ++p)
      for (int v : passes_[p].vertices)
        for (const Output& o : op(v).outputs) place_output(scheme, p, v, o.target);
  }

  struct Use {
    std::size_t pass;
    const Access* access;
  };
  std::map<TensorId, std::vector<Use>> home_reads() const {
    std::map<TensorId, std::vector<Use>> reads;
    for (std::size_t p = 0; p < passes_.size(); ++p)
      for (int v : passes_[p].vertices)
        for (const Access& a : op(v).inputs)
          if (!made_here(a.tensor) && !is_gather(a)) reads[a.tensor].push_back({p, &a});
    return reads;
  }
  /// Whether some operator of the part reads another tensor by the values of this one.
  bool says_where(TensorId t) const {
    return std::ranges::any_of(c_.vertices, [&](int v) {
      return std::ranges::any_of(op(v).inputs, [&](const Access& a) {
        return std::ranges::any_of(a.index, [&](const Affine& i) {
          return i.gathered >= 0 && op(v).inputs[static_cast<std::size_t>(i.gathered)].tensor == t;
        });
      });
    });
  }
  bool made_here(TensorId t) const {
    const OpId producer = w_.producer(t);
    return producer.valid() &&
           std::ranges::any_of(c_.vertices, [&](int u) { return g_.vertex(u).op == producer; });
  }

  /// An input that several passes read, or that all lanes read alike (one value, or what a gather
  /// is indexed by), is loaded before them.
  void place_inputs() {
    for (const auto& [t, uses] : home_reads()) {
      if (!c_.partial.empty() && place_for_run(t, uses)) continue;
      const Use& first = uses.front();
      bool several = false, aligned = true, alike = false;
      std::int64_t share = 0;
      for (const Use& u : uses) {
        const Pass& p = passes_[u.pass];
        several |= u.pass != first.pass;
        share = std::max(share, share_of(p, *u.access));
        if (spread()) {
          aligned &= same_units(passes_[first.pass], *first.access, p, *u.access);
          alike |= (p.loops & ~loops_of(*u.access)) != 0 || first.pass > 0;
          continue;
        }
        const int d = dimension(p, *u.access);
        aligned &= d != -2 && d == dimension(passes_[first.pass], *first.access) &&
                   p.step == passes_[first.pass].step;
        alike |= d == -1 && p.bound >= 0 && bound_ != Binding::seq;
      }
      if (!several && !(alike && (share <= kKeptAlike || says_where(t)))) continue;
      switch (keep(share, row_bytes(*first.access), aligned)) {
        case Where::registers:
          // In a run of rows what all lanes wait for comes after what each loads for itself.
          loads_.insert(!c_.partial.empty() && !alike ? loads_.begin() : loads_.end(),
                        load(w_.tensor(t).name, "registers"));
          break;
        case Where::shared:
          loads_.push_back(load(w_.tensor(t).name, "shared"));
          break;
        case Where::nowhere:
          refused_ = formatted("a row of {} fits neither a thread's registers nor shared memory",
                               w_.tensor(t).name);
      }
    }
  }

  /// Pins what a pass hands on to later ones; says where threads wait for each other, and what is
  /// stored once the units' sums are joined.
  void place_output(Scheme scheme, std::size_t at, int v, const Access& made) {
    const Pass& p = passes_[at];
    const std::string& tensor = w_.tensor(made.tensor).name;
    if (in(c_.partial, v)) return place_partial(p, made);
    bool read_here = false, later = false, aligned = true;
    double readers = 0;  // accesses of a thread
    const int d = dimension(p, made);
    for (std::size_t q = 0; q < passes_.size(); ++q)
      for (int r : passes_[q].vertices)
        for (const Access& a : op(r).inputs) {
          if (a.tensor != made.tensor) continue;
          read_here = true;
          if (q == at) continue;
          later = true;
          readers += static_cast<double>(values_of(passes_[q].shares, loops_of(a)));
          if (spread())
            aligned &= (loops_of(made) & p.loops) == 0 || same_units(p, made, passes_[q], a);
          else
            aligned &=
                d == -1 || (d >= 0 && dimension(passes_[q], a) == d && passes_[q].step == p.step);
        }
    const Mask over = spread() ? p.loops : p.bound < 0 ? 0 : bit(p.bound);
    const bool joined = bound_ != Binding::seq && (g_.vertex(v).reduced & over) != 0;
    const std::string scope = bound_ == Binding::lane ? "warp" : "block";
    if (spread()) count_work(p, v, made);
    if (joined && !read_here) after_[at].push_back(store(tensor));
    if (!later) return;
    const bool sub_root = std::ranges::any_of(
        s_.groups, [&](const Group& group) { return group.root == v && group.sub_root; });
    // A value that a sub-root hands on by block composition is in shared memory (figure 3).
    const bool asks_shared = sub_root && scheme == Scheme::block;
    Where where = keep(share_of(p, made), row_bytes(made), aligned && !asks_shared);
    if (where == Where::nowhere) {
      refused_ =
          formatted("a row of {} fits neither a thread's registers nor shared memory", tensor);
      return;
    }
    if (where == Where::shared) {
      out_.pins[tensor].level = "shared";
      out_.handed_on += static_cast<double>(values_of(p.shares, loops_of(made))) + readers;
    }
    if ((joined || where == Where::shared) && bound_ != Binding::seq) {
      if (where == Where::shared) ++out_.barriers;
      syncs_[at] = scope;
    }
  }

  // ---- Runs of rows: parts with partial sums ----------------------------------------------------

  /// What all rows of a run read alike stays in registers; a row's own values, which all threads of
  /// a block need, come to shared memory for the whole run, so that no row waits for them.
  bool place_for_run(TensorId t, const std::vector<Use>& uses) {
    Mask loops = 0;
    std::int64_t share = 0;
    for (const Use& u : uses) {
      loops |= loops_of(*u.access);
      share = std::max(share, share_of(passes_[u.pass], *u.access));
      // Elsewhere than where the loops say, or of other elements in each pass.
      if (u.access->index != uses.front().access->index || says_where(t)) return false;
    }
    const std::int64_t most = std::min(kKept, d_.registers_per_sm / threads_ - kWorking);
    if (s_.rows_in_turn == 1) return false;
    if ((loops & c_.rows) == 0 && share <= kKeptOfTensor && kept_ + share <= most) {
      kept_ += share;
      run_loads_.push_back(load(w_.tensor(t).name, "registers"));
      return true;
    }
    if (bound_ != Binding::thread || (loops & inner_) != 0) return false;
    const std::int64_t bytes = s_.rows_per_block * size_of(w_.tensor(t).dtype);
    if (shared_ + bytes > d_.shared_per_sm) return false;
    shared_ += bytes;
    run_loads_.push_back(load(w_.tensor(t).name, "shared"));
    return true;
  }

  /// A sum over the run's rows stays in registers to its end.
  void place_partial(const Pass& p, const Access& made) {
    const std::int64_t share = share_of(p, made);
    kept_ += share;
    if (share > kKeptOfTensor)
      refused_ = formatted("a thread would sum up {} values of {}: at most {}", share,
                           w_.tensor(made.tensor).name, kKeptOfTensor);
  }

  Node runs() {
    std::vector<Node> row = body();
    std::vector<Node> in_warp = std::move(run_loads_);
    if (s_.rows_in_turn > 1) {
      const Cut turn{run_loop(g_, c_)};
      in_warp.push_back(nest({&turn, 1}, sequence(std::move(row))));
    } else {
      std::ranges::move(row, std::back_inserter(in_warp));
    }
    std::vector<Node> in_block;
    if (warp_cuts_.empty())
      in_block = std::move(in_warp);
    else
      in_block.push_back(nest(warp_cuts_, sequence(std::move(in_warp))));
    for (int v : c_.partial)
      for (const Output& o : op(v).outputs)
        in_block.push_back(store(w_.tensor(o.target.tensor).name, {}, true));
    return nest(cuts_, sequence(std::move(in_block)));
  }

  // ---- The tree ---------------------------------------------------------------------------------

  std::vector<Node> body() {
    std::vector<Node> nodes = std::move(loads_);
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const Pass& p = passes_[i];
      std::vector<Node> computes;
      for (int v : p.vertices) computes.push_back(compute(op(v).name));
      if (p.bound < 0) {
        std::ranges::move(computes, std::back_inserter(nodes));
      } else {
        std::vector<Cut> cuts;
        if (spread()) {
          cuts = cuts_of(g_, p.shares, in_block());
        } else {
          for (int l : ordered(p.loops & ~bit(p.bound))) cuts.push_back({l});
          bind(p, cuts);
        }
        nodes.push_back(nest(cuts, sequence(std::move(computes))));
      }
      if (const auto scope = syncs_.find(i); scope != syncs_.end())
        nodes.push_back(sync(scope->second));
      std::ranges::move(after_[i], std::back_inserter(nodes));
    }
    return nodes;
  }

  /// A pass's bound loop, over lanes or threads. A tree says how many threads a block has by the
  /// trips of its loops: where there are more trips than these, warps take runs of elements in
  /// turn.
  void bind(const Pass& p, std::vector<Cut>& cuts) const {
    if (bound_ != Binding::thread || !in_warps_) return cuts.push_back({p.bound, p.step, bound_});
    const std::int64_t run = run_of(p);
    if (run < extent(p.bound) || in_grid_)
      cuts.push_back({p.bound, std::min(run, extent(p.bound)), Binding::warp});
    cuts.push_back({p.bound, p.step, Binding::lane});
  }
  /// Elements of a row that a warp of the block takes: whole rounds of its lanes.
  std::int64_t run_of(const Pass& p) const {
    const std::int64_t warps = threads_ / kWarp;
    const std::int64_t round = kWarp * p.step;
    if (in_grid_) return round * s_.turns;
    return ceil_div(ceil_div(extent(p.bound), warps), round) * round;
  }

  // ---- Columns ----------------------------------------------------------------------------------

  Result<BoundTree> columns() {
    make_passes(~c_.rows);
    std::vector<int> rows = ordered(c_.rows);
    const int along = last_of(rows), reduced = ordered(passes_.front().loops).front();
    std::erase(rows, along);
    std::vector<Cut> cuts;
    for (int l : rows) cuts.push_back({l, 1, Binding::grid});
    const std::int64_t step = step_along(along);
    cuts.push_back({along, std::min(kWarp * step, extent(along)), Binding::grid});
    std::int64_t part = extent(reduced);
    if (s_.splits > 1) {
      part = ceil_div(part, s_.splits);
      cuts.push_back({reduced, part, Binding::grid});
    }
    const std::int64_t warps = std::min({threads_ / kWarp, kMostWarps, part});
    std::vector<Node> computes;
    for (int v : passes_.front().vertices) computes.push_back(compute(op(v).name));
    const std::vector<Cut> within = {{reduced, ceil_div(part, warps), Binding::warp},
                                     {along, step, Binding::lane},
                                     {reduced, 1, Binding::seq}};
    std::vector<Node> nodes = {nest(within, sequence(std::move(computes)))};
    for (int v : passes_.front().vertices)
      if (g_.vertex(v).reduced != 0)
        for (const Output& o : op(v).outputs)
          nodes.push_back(store(w_.tensor(o.target.tensor).name, {}, s_.splits > 1));
    return BoundTree{.tree = nest(cuts, sequence(std::move(nodes))), .kept = step};
  }

  const Graph& g_;
  const Workload& w_;
  const Device& d_;
  const Stitched& s_;
  const Component& c_;
  std::int64_t threads_;

  std::vector<Cut> cuts_, warp_cuts_;
  Mask inner_ = 0;
  Binding bound_ = Binding::seq;
  bool in_warps_ = false;  ///< threads are said as warps and their lanes
  bool in_grid_ = false;   ///< the loop over threads is cut for blocks, too
  std::vector<Pass> passes_;
  std::map<int, std::size_t> pass_of_;
  std::map<int, bool> needs_less_;
  BoundTree out_;
  std::vector<Node> loads_, run_loads_;
  std::map<std::size_t, std::string> syncs_;
  std::map<std::size_t, std::vector<Node>> after_;
  std::int64_t kept_ = 0, shared_ = 0;
  std::string refused_;
};

}  // namespace

namespace {

/// How often a tree has C.name.
std::int64_t computes(const Node& n, const std::string& name) {
  std::int64_t count = n.kind == Node::Kind::compute && n.name == name ? 1 : 0;
  for (const Node& child : n.children) count += computes(child, name);
  return count;
}

}  // namespace

Result<BoundTree> bound_tree(const Graph& g, const Device& d, const Stitched& s,
                             std::int64_t threads) {
  Result<BoundTree> out = Writer(g, d, s, threads).write();
  // A schedule whose tree leaves something out cannot be said, whatever the reason.
  if (out)
    for (int v : s.component.vertices) {
      const std::string& name = g.workload().op(g.vertex(v).op).name;
      if (computes(out->tree, name) != 1)
        return Reason{formatted("its tree computes {} {} times", name, computes(out->tree, name))};
    }
  return out;
}

}  // namespace tilewright::fusionstitching
