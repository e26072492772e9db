#include "models/stitching/bound_tree.h"

#include "core/base/format.h"
#include "models/stitching/bound_writer.h"
#include "models/stitching/window_tiles.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kShortRounds = 4;  // a row of points that a warp goes over in so many is its
constexpr std::int64_t kLeastWarps = 4;   // schedulers of an SM: CUDA C++ Programming Guide

}  // namespace

Result<BoundTree> BoundTreeWriter::write() {
  const Scheme scheme = s_.groups.front().scheme;
  if (std::ranges::any_of(s_.groups, [&](const Group& x) { return x.scheme != scheme; }))
    return Reason{"its groups are of different schemes"};
  if (scheme == Scheme::thread && sums_columns(g_, c_)) return columns();
  if (scheme == Scheme::thread && !c_.partial.empty() && !has_points())
    return Reason{"a row a thread leaves no thread a column to sum up"};
  if (scheme != Scheme::block && c_.rows.empty())
    return Reason{"it has no rows to give to threads or warps"};
  units(scheme);
  make_passes(inner_);
  place_values(scheme);
  if (!refused_.empty()) return Reason{refused_};
  out_.tree = c_.partial.empty() ? nest(cuts_, sequence(body())) : runs();
  out_.kept = kept_;
  return std::move(out_);
}

std::vector<int> BoundTreeWriter::ordered(LoopSet loops) const {
  std::vector<int> out;
  for (std::size_t i = c_.vertices.size(); i-- > 0;)
    for (LoopId l : op(c_.vertices[i]).loops)
      if (loops.has(l) && std::ranges::find(out, static_cast<int>(l.index())) == out.end())
        out.push_back(static_cast<int>(l.index()));
  return out;
}

Node BoundTreeWriter::nest(std::span<const Cut> cuts, Node body) const {
  for (std::size_t i = cuts.size(); i-- > 0;)
    body = loop(name(cuts[i].loop), std::move(body), cuts[i].step, cuts[i].binding);
  return body;
}

void BoundTreeWriter::units(Scheme scheme) {
  std::vector<int> rows = ordered(c_.rows);
  const auto grid = [&](int l, std::int64_t step) {
    cuts_.push_back({l, std::min(step, extent(l)), Binding::grid});
  };
  inner_ = ~c_.rows;
  if (scheme == Scheme::thread && has_points()) return units_of_points(std::move(rows));
  if (!c_.partial.empty()) return units_of_runs(scheme, std::move(rows));
  if (scheme == Scheme::block) {
    for (int l : rows) grid(l, 1);
    if (c_.along >= 0) grid(c_.along, c_.columns);
    return bind_to_threads();
  }
  const int last = scheme == Scheme::thread ? last_of(rows) : rows.back();
  std::erase(rows, last);
  if (scheme == Scheme::thread && !rows.empty() && reads_windows() &&
      extent(last) <= kShortRounds * kWarp) {
    bound_ = Binding::seq;
    units_of_short_rows(rows, last, 1, 1, cuts_);
    return cuts_.push_back({last, 1, Binding::lane});
  }
  for (int l : rows) grid(l, 1);
  grid(last, scheme == Scheme::thread ? threads_ : threads_ / kWarp);
  cuts_.push_back({last, 1, scheme == Scheme::thread ? Binding::thread : Binding::warp});
  bound_ = scheme == Scheme::thread ? Binding::seq : Binding::lane;
}

void BoundTreeWriter::bind_to_threads() {
  bound_ = Binding::thread;
  if (spread()) return;
  const int along = contiguous_loop(g_, c_, inner_);
  const std::int64_t trips = along < 0 ? 1 : ceil_div(extent(along), step_along(along));
  in_warps_ = threads_ != kThreadsOfTrips && trips > threads_;
}

void BoundTreeWriter::units_of_runs(Scheme scheme, std::vector<int> rows) {
  const int run = run_loop(g_, c_);
  std::erase(rows, run);
  for (int l : rows) cuts_.push_back({l, 1, Binding::grid});
  cuts_.push_back({run, std::min(s_.rows_per_block, extent(run)), Binding::grid});
  if (scheme == Scheme::block) return bind_to_threads();
  warp_cuts_.push_back({run, s_.rows_in_turn, Binding::warp});
  bound_ = Binding::lane;
}

bool BoundTreeWriter::has_points() const {
  return std::ranges::all_of(c_.vertices,
                             [&](int v) { return g_.points(g_.vertex(v).loops & ~c_.rows) <= 1; });
}

int BoundTreeWriter::last_of(const std::vector<int>& rows) const {
  const int l = contiguous_loop(g_, c_, c_.rows);
  return l >= 0 ? l : rows.back();
}

void BoundTreeWriter::units_of_points(std::vector<int> rows) {
  const int along = last_of(rows);
  std::erase(rows, along);
  inner_ |= bit(along);
  if (s_.lanes_across > 1) return units_of_tiles(rows, along, crossing_loops(g_, c_));
  bound_ = Binding::thread;
  const bool is_short = !rows.empty() && extent(along) <= kShortRounds * kWarp * step_along(along);
  if (is_short) {
    bound_ = Binding::lane;
    // Blocks add what all of their warps have.
    return units_of_short_rows(rows, along, step_along(along), s_.turns,
                               c_.partial.empty() ? cuts_ : warp_cuts_);
  }
  for (int l : rows) cuts_.push_back({l, 1, Binding::grid});
  if (reads_slices())
    return bind_to_threads();  // a block has a row's slices, not the box around them
  const std::int64_t block = threads_ * s_.turns * step_along(along);
  cuts_.push_back({along, std::min(block, extent(along)), Binding::grid});
  in_grid_ = true;
  in_warps_ = threads_ != kThreadsOfTrips && (s_.turns > 1 || threads_ > kThreadsOfTrips);
}

void BoundTreeWriter::units_of_short_rows(const std::vector<int>& rows, int along,
                                          std::int64_t step, std::int64_t in_turn,
                                          std::vector<Cut>& within) {
  // Lanes that the contiguous loop leaves free have more of the last of them, where all warps find
  // as many. Each warp takes several in turn likewise.
  const std::int64_t warps = threads_ / kWarp, lanes = ceil_div(extent(along), step);
  // The last loop that has an iteration for each scheduler's warp. Where none has, the longest:
  // blocks of fewer warps would be as many more.
  int last = rows.back();
  for (std::size_t i = rows.size(); i-- > 0 && extent(last) < std::min(warps, kLeastWarps);)
    if (extent(rows[i]) > extent(last)) last = rows[i];
  const std::int64_t together =
      std::max<std::int64_t>(1, std::min(kWarp / lanes, extent(last) / warps));
  const std::int64_t turns = extent(last) % (warps * in_turn * together) == 0 ? in_turn : 1;
  for (int l : rows)
    cuts_.push_back(
        {l, l == last ? std::min(warps * turns * together, extent(l)) : 1, Binding::grid});
  within.push_back({last, turns * together, Binding::warp});
  if (turns > 1) within.push_back({last, together, Binding::seq});
  if (together > 1) within.push_back({last, 1, Binding::lane});
}

bool BoundTreeWriter::reads_windows() const {
  return std::ranges::any_of(c_.vertices, [&](int v) {
    return std::ranges::any_of(op(v).inputs, [&](const Access& a) {
      return !made_here(a.tensor) && !is_gather(a) && is_window(a);
    });
  });
}

bool BoundTreeWriter::is_window(const Access& a) const {
  const auto row = [&](const Term& t) { return c_.rows.has(t.loop); };
  return std::ranges::any_of(a.index, [&](const Affine& x) {
    return std::ranges::any_of(x.terms, row) && !std::ranges::all_of(x.terms, row);
  });
}

void BoundTreeWriter::units_of_tiles(const std::vector<int>& rows, int along,
                                     const Crossing& crossing) {
  struct Side {
    int loop;
    std::int64_t step, lanes, warps = 1;
    std::int64_t of_warp() const { return step * lanes; }
    std::int64_t of_block() const { return of_warp() * warps; }
  };
  const int other = crossing.other;
  // Lanes that move a piece.
  const std::int64_t of_piece =
      crossing.pieces ? static_cast<std::int64_t>(std::bit_ceil(
                            static_cast<std::uint64_t>(ceil_div(extent(along), step_along(along)))))
                      : 1;
  const std::int64_t lanes = std::max<std::int64_t>(1, kWarp / of_piece);
  Side o{.loop = other,
         .step = step_along(other, s_.across),
         .lanes = std::min(s_.lanes_across, std::max<std::int64_t>(1, lanes / 2))};
  Side a{.loop = crossing.along,
         .step = crossing.pieces ? 1 : step_along(along),
         .lanes = lanes / o.lanes};
  std::int64_t together = 1;  // such tiles a warp, where both loops are short
  for (Side* s : {&a, &o})
    while (s->lanes > 1 && s->of_warp() / 2 >= extent(s->loop)) s->lanes /= 2, together *= 2;
  for (std::int64_t warps = threads_ / kWarp; warps > 1; warps /= 2) {
    const bool longer = o.of_block() > a.of_block();
    Side& first = longer ? a : o;
    Side& second = longer ? o : a;
    if (first.of_block() < extent(first.loop))
      first.warps *= 2;
    else if (second.of_block() < extent(second.loop))
      second.warps *= 2;
  }
  // Warps and lanes that find none of a short tile have tiles of their own: along the next loop in
  // memory, so that both sides' runs are longer; else along the longest loop around.
  const std::int64_t left = together * (threads_ / kWarp / (a.warps * o.warps));
  int more = -1;
  const auto around = [&](int l) { return l != a.loop && l != o.loop; };
  for (int l : rows)
    if (around(l) && left > 1 && extent(l) > 1 && (more < 0 || extent(l) >= extent(more))) more = l;
  if (more >= 0 && crossing.around >= 0 && extent(crossing.around) >= left) more = crossing.around;
  for (int l : rows)
    if (around(l)) cuts_.push_back({l, l == more ? std::min(left, extent(l)) : 1, Binding::grid});
  for (const Side* s : {&o, &a})
    cuts_.push_back({s->loop, std::min(s->of_block(), extent(s->loop)), Binding::grid});
  if (more >= 0) cuts_.push_back({more, std::min(together, extent(more)), Binding::warp});
  for (const Side* s : {&o, &a})
    if (s->warps > 1) cuts_.push_back({s->loop, s->of_warp(), Binding::warp});
  if (more >= 0 && together > 1) cuts_.push_back({more, 1, Binding::lane});
  cuts_.push_back({other, o.step, Binding::lane});
  if (crossing.pieces) cuts_.push_back({a.loop, 1, Binding::lane});
  bound_ = Binding::lane;
}

std::int64_t BoundTreeWriter::step_along(int l, std::int64_t most) const {
  std::int64_t step = most;
  const std::int64_t all = w_.loops()[static_cast<std::size_t>(l)].extent;
  while (step > 1 && (extent(l) % step != 0 || all % step != 0)) step /= 2;
  return step;
}

std::vector<int> BoundTreeWriter::order() const {
  std::vector<int> out;
  for (const Group& group : s_.groups)
    for (int v : group.vertices)
      if (std::ranges::find(out, v) == out.end()) out.push_back(v);
  return out;
}

bool BoundTreeWriter::needs_less(int v) {
  const auto known = needs_less_.find(v);
  if (known != needs_less_.end()) return known->second;
  const Vertex& x = g_.vertex(v);
  bool less = false;
  for (const Output& o : op(v).outputs)
    for (std::size_t dim = 0; dim < o.target.index.size(); ++dim)
      less |= !x.leaves && !all_read(v, o.target.tensor, dim);
  return needs_less_[v] = less;
}

bool BoundTreeWriter::all_read(int v, TensorId t, std::size_t dim) {
  for (int r : g_.vertex(v).consumers) {
    if (!in(c_.vertices, r)) return true;  // at home, whole
    for (const Access& a : op(r).inputs) {
      if (a.tensor != t) continue;
      const auto plain = a.index[dim].plain_loop();
      if (!plain || w_.tensor(t).shape[dim] != w_.loop(*plain).extent) continue;
      if (g_.vertex(r).reduced.has(*plain) || !needs_less(r)) return true;
    }
  }
  return false;
}

void BoundTreeWriter::make_passes(LoopSet inner) {
  passes_.clear();
  pass_of_.clear();
  for (int v : order()) {
    const LoopSet loops = g_.vertex(v).loops & inner;
    const bool alone = needs_less(v);
    Pass own{.loops = loops, .alone = alone};
    const bool any_bound = spread() && share_loops(own, v);
    std::size_t first = 0;
    for (int e : g_.vertex(v).in) {
      const Edge& edge = g_.edge(e);
      const auto made = pass_of_.find(edge.from);
      if (made == pass_of_.end()) continue;
      const bool waits = !(g_.vertex(edge.from).reduced & loops).empty() ||
                         !(edge.bad & loops).empty() ||
                         !(edge.bad & g_.vertex(edge.from).loops & inner).empty();
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
        if (p.bound < 0 && !loops.empty()) p.bound = ordered(loops).back();
        if (p.bound >= 0) p.step = step_along(p.bound);
      }
    }
    passes_[at].vertices.push_back(v);
    pass_of_[v] = at;
  }
}

bool BoundTreeWriter::share_loops(Pass& p, int v) {
  if (p.loops.empty()) return true;
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
  p.fetches = std::ranges::any_of(inputs, is_gather) &&
              values_of(p.shares, p.loops) <= lowering::kArrayValues;
  return !own.whole;
}

Node BoundTreeWriter::runs() {
  std::vector<Node> row = body();
  std::vector<Node> in_warp = std::move(run_loads_);
  if (s_.rows_in_turn > 1) {
    // The next row's sums come where other warps may still read this one's.
    if (std::ranges::any_of(syncs_, [](const auto& s) { return s.second == "block"; }))
      row.push_back(sync("block"));
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

std::vector<Node> BoundTreeWriter::body() {
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

void BoundTreeWriter::bind(const Pass& p, std::vector<Cut>& cuts) const {
  if (bound_ != Binding::thread || !in_warps_) return cuts.push_back({p.bound, p.step, bound_});
  const std::int64_t run = run_of(p);
  if (run < extent(p.bound) || in_grid_)
    cuts.push_back({p.bound, std::min(run, extent(p.bound)), Binding::warp});
  cuts.push_back({p.bound, p.step, Binding::lane});
}

std::int64_t BoundTreeWriter::run_of(const Pass& p) const {
  const std::int64_t warps = threads_ / kWarp;
  const std::int64_t round = kWarp * p.step;
  if (in_grid_) return round * s_.turns;
  return ceil_div(ceil_div(extent(p.bound), warps), round) * round;
}

Result<BoundTree> BoundTreeWriter::columns() {
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
    if (!g_.vertex(v).reduced.empty())
      for (const Output& o : op(v).outputs)
        nodes.push_back(store(w_.tensor(o.target.tensor).name, {}, s_.splits > 1));
  return BoundTree{.tree = nest(cuts, sequence(std::move(nodes))), .kept = step};
}

namespace {

/// How often a tree has each C.name.
void count_computes(const Node& n, std::map<std::string_view, std::int64_t>& counts) {
  if (n.kind == Node::Kind::compute) ++counts[n.name];
  for (const Node& child : n.children) count_computes(child, counts);
}

}  // namespace

std::string text_of(const BoundTree& tree) {
  std::string text = to_text(tree.tree);
  for (const auto& [tensor, pin] : tree.pins) text += ' ' + tensor + ':' + pin.level + '@' + pin.at;
  return text;
}

Result<BoundTree> bound_tree(const Graph& g, const Device& d, const Stitched& s,
                             std::int64_t threads) {
  const Component& c = s.component;
  if (s.window_along > 0) return window_tree(g, s, threads);
  const bool whole = c.along >= 0 && g.extent(c.along) != c.columns;
  Result<BoundTree> out = whole ? BoundTreeWriter(g.in_block(c), d, s, threads).write()
                                : BoundTreeWriter(g, d, s, threads).write();
  // A schedule whose tree leaves something out cannot be said, whatever the reason.
  if (!out) return out;
  std::map<std::string_view, std::int64_t> counts;
  count_computes(out->tree, counts);
  for (int v : s.component.vertices) {
    const std::string& name = g.workload().op(g.vertex(v).op).name;
    if (counts[name] != 1)
      return Reason{formatted("its tree computes {} {} times", name, counts[name])};
  }
  return out;
}

}  // namespace tilewright::stitching
