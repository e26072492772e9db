// Which values are written to memory, and the nests that compute them.
#include <algorithm>
#include <map>
#include <set>

#include "core/workload/subgraph.h"
#include "models/inductor/inductor.h"

namespace tilewright::inductor {
namespace {

/// An index by the loops of a nest: steps by position, and an offset.
struct Form {
  std::vector<std::int64_t> steps;
  std::int64_t offset = 0;

  void add(const Form& f, std::int64_t times) {
    if (steps.size() < f.steps.size()) steps.resize(f.steps.size());
    for (std::size_t i = 0; i < f.steps.size(); ++i) steps[i] += times * f.steps[i];
    offset += times * f.offset;
  }
};
using Forms = std::map<LoopId, Form>;

/// Calls and constants: what is loaded is counted where it is.
std::int64_t operations_in(const Expr& e) {
  std::int64_t n = e.kind == Expr::Kind::call || e.kind == Expr::Kind::constant ? 1 : 0;
  for (const Expr& arg : e.args) n += operations_in(arg);
  return n;
}

/// One nest, from the value that it writes back to those that it reads from memory.
class Walk {
 public:
  /// `makers`: the vertex of each operator.
  Walk(const Graph& g, const Options& o, std::span<const int> makers,
       const std::vector<bool>& written, int value)
      : g_(g), w_(g.workload()), makers_(makers), written_(written) {
    const Operator& op = w_.op(g.vertex(value).op);
    Forms own;
    const auto loop = [&](LoopId l) {
      if (!own.contains(l)) own[l] = new_loop(w_.loop(l).extent);
    };
    const auto sums = w_.reduction_loops(g.vertex(value).op);
    for (const Affine& index : op.outputs.front().target.index)
      for (const Term& t : index.terms) loop(t.loop);
    for (LoopId l : op.loops)
      if (std::ranges::find(sums, l) == sums.end()) loop(l);
    nest_.kept.push_back(extents_);
    for (std::int64_t e : extents_) nest_.points *= e;
    for (LoopId l : sums) {
      loop(l);
      nest_.reduced *= w_.loop(l).extent;
    }
    if (nest_.reduced <= o.unrolled) nest_.reduced = 1;
    for (const Output& out : op.outputs) touch(nest_.writes, out.target, own);
    nest_.gives = {value};
    nest_.first = nest_.last = value;
    collect(value, own);
    nest_.ops.assign(seen_.begin(), seen_.end());
  }

  const Nest& nest() const { return nest_; }
  /// Of the kept loops, then of those that are summed over.
  std::span<const std::int64_t> extents() const { return extents_; }
  std::int64_t operations() const { return operations_; }
  std::size_t reads() const { return nest_.reads.size(); }
  /// Values that the last one reads and that are computed in the nest.
  const std::set<int>& direct() const { return direct_; }

 private:
  Form new_loop(std::int64_t extent) {
    Form f;
    f.steps.assign(extents_.size() + 1, 0);
    f.steps.back() = 1;
    extents_.push_back(extent);
    return f;
  }

  static Form composed(const Affine& index, const Forms& loops) {
    Form f{.steps = {}, .offset = index.offset};
    for (const Term& t : index.terms) f.add(loops.at(t.loop), t.coefficient);
    return f;
  }

  void touch(std::vector<Touched>& all, const Access& a, const Forms& loops) {
    const Tensor& t = w_.tensor(a.tensor);
    Touched out{.tensor = a.tensor, .steps = {}};
    Form at;
    std::int64_t elements = 1;
    for (std::size_t d = a.index.size(); d-- > 0;) {
      if (a.index[d].gathered >= 0)
        out.gather = 1;
      else
        at.add(composed(a.index[d], loops), elements);
      elements *= t.shape[d];
    }
    out.offset = at.offset;
    out.steps = at.steps;
    out.order = in_order(extents_, at.steps);
    if (out.gather != 0) {
      out.gather = 1 + ++gathers_ + 64 * nest_.first;
      out.order.clear();
      out.bytes = t.bytes().value;
    } else {
      out.bytes = size_of(t.dtype);
      for (const Stride& s : out.order) out.bytes *= s.extent;
    }
    if (std::ranges::none_of(all, [&](const Touched& o) { return o.same(out); }))
      all.push_back(std::move(out));
  }

  void collect(int v, const Forms& loops) {
    seen_.insert(v);
    const Operator& op = w_.op(g_.vertex(v).op);
    for (const Output& out : op.outputs) operations_ += operations_in(out.value);
    for (const Access& a : op.inputs) {
      const OpId maker = w_.producer(a.tensor);
      const int from = maker.valid() ? makers_[maker.index()] : -1;
      if (from < 0 || written_[static_cast<std::size_t>(from)]) {
        const std::size_t before = nest_.reads.size();
        touch(nest_.reads, a, loops);
        operations_ += nest_.reads.size() > before ? 1 : 0;
        continue;
      }
      if (v == nest_.last) direct_.insert(from);
      const Operator& producer = w_.op(g_.vertex(from).op);
      const Access& target = producer.outputs.front().target;
      Forms inner;
      for (std::size_t d = 0; d < target.index.size(); ++d)
        inner[*target.index[d].plain_loop()] = composed(a.index[d], loops);
      for (LoopId l : producer.loops)
        if (!inner.contains(l)) inner[l] = new_loop(w_.loop(l).extent);
      collect(from, inner);
    }
  }

  const Graph& g_;
  const Workload& w_;
  std::span<const int> makers_;
  const std::vector<bool>& written_;
  Nest nest_;
  std::vector<std::int64_t> extents_;  // of the nest's loops, by position
  std::set<int> seen_, direct_;
  std::int64_t operations_ = 0;
  int gathers_ = 0;
};

/// In how many parts a sum down columns is taken: so that the whole device has something to do
/// (Reduction.num_splits, and reduction_split_factor of an outer reduction). 1: in one phase. Sums
/// along rows are cut only where there are fewer than two for each SM.
std::int64_t parts_of(const Nest& n, std::span<const std::int64_t> extents, const Device& d) {
  constexpr std::int64_t kLeast = 32, kMost = 512;  // elements of a thread
  constexpr std::int64_t kThreads = 256, kRows = 4, kColumns = 128;
  if (!n.reduces() || n.reduced <= kLeast || n.points >= d.sms * 2 * kLeast) return 1;
  const std::size_t kept = n.kept.front().size();
  int down = 0, along = 0;
  for (const Touched& t : n.reads) {
    if (t.gather != 0) continue;
    bool whole = t.steps.size() >= extents.size(), far = true;
    for (std::size_t i = 0; whole && i < extents.size(); ++i) {
      whole = extents[i] == 1 || t.steps[i] != 0;
      far = far && (i < kept || t.steps[i] > 1);
    }
    if (whole) ++(far ? down : along);
  }
  const std::int64_t all = n.reduced * n.points;
  const std::int64_t few = kLeast * d.sms * d.threads_per_sm;
  const std::int64_t many = kMost * d.sms * d.threads_per_sm;
  // A divisor of the sum's length that is close to what is wanted makes even parts.
  const auto even = [&](std::int64_t wanted, std::int64_t within, std::int64_t least) {
    std::int64_t best = 1;
    for (std::int64_t x = 1; x <= std::min(n.reduced, 2 * wanted); ++x)  // others are further off
      if (n.reduced % x == 0 && std::abs(x - wanted) < std::abs(best - wanted)) best = x;
    return std::abs(best - wanted) < within ? std::max(best, least) : wanted;
  };
  const auto ceil = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  if (down <= along) {
    if (along == 0 || n.points >= 2 * d.sms || n.reduced <= 8192) return 1;
    std::int64_t size = kLeast;
    if (all >= many)
      size = even(kMost, 50, 1);
    else if (all > few)
      size = even(
          ceil(n.reduced, kThreads * ceil(d.sms * d.threads_per_sm / (2 * kThreads), n.points)), 30,
          kLeast);
    return ceil(n.reduced, size * kThreads);
  }
  std::int64_t size = kLeast;
  if (all >= many)
    size = even(kMost, 50, 1);
  else if (all >= few)
    size = even(ceil(n.reduced,
                     kRows * ceil(d.sms * d.threads_per_sm / kThreads, ceil(n.points, kColumns))),
                20, kLeast);
  return ceil(n.reduced, kRows * size);
}

/// Whether others can compute it themselves, at whatever index they read it.
bool computed_anywhere(const Operator& op) {
  if (op.outputs.size() != 1) return false;
  std::set<LoopId> loops;
  for (const Affine& index : op.outputs.front().target.index) {
    const auto loop = index.plain_loop();
    if (!loop || !loops.insert(*loop).second) return false;
  }
  return true;
}

/// Whether an operator gathers from the tensor, or by it.
bool gathers_with(const Operator& op, TensorId t) {
  for (const Access& a : op.inputs)
    for (const Affine& index : a.index)
      if (index.gathered >= 0 &&
          (a.tensor == t || op.inputs[static_cast<std::size_t>(index.gathered)].tensor == t))
        return true;
  return false;
}

std::vector<bool> libraries_of(const Graph& g) {
  std::set<OpId> tied;
  for (const auto& [a, b] : tied_operators(g.workload())) tied.insert({a, b});
  std::vector<bool> out;
  for (const Vertex& v : g.vertices())
    out.push_back(v.kind == Kind::product || g.workload().op(v.op).running || tied.contains(v.op));
  return out;
}

/// Whether the value is written whatever it costs to compute it again.
bool always_written(const Graph& g, const std::vector<bool>& library, int v, const Options& o) {
  const Vertex& x = g.vertex(v);
  const Operator& op = g.workload().op(x.op);
  std::int64_t terms = 1;
  for (LoopId l : g.workload().reduction_loops(x.op)) terms *= g.workload().loop(l).extent;
  if (library[static_cast<std::size_t>(v)] || x.leaves || terms > o.unrolled ||
      !computed_anywhere(op))
    return true;
  const TensorId t = op.outputs.front().target.tensor;
  return std::ranges::any_of(x.consumers, [&](int c) {
    return library[static_cast<std::size_t>(c)] || gathers_with(g.workload().op(g.vertex(c).op), t);
  });
}

}  // namespace

std::vector<Stride> in_order(std::span<const std::int64_t> extents,
                             std::span<const std::int64_t> steps) {
  std::vector<Stride> out;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::int64_t step = i < steps.size() ? steps[i] : 0;
    if (step == 0 || extents[i] == 1) continue;
    if (!out.empty() && out.back().step == step * extents[i])
      out.back() = {out.back().extent * extents[i], step};
    else
      out.push_back({extents[i], step});
  }
  return out;
}

std::vector<Nest> nests_of(const Graph& g, const Device& d, const Options& o) {
  const std::vector<bool> library = libraries_of(g);
  std::vector<bool> written(static_cast<std::size_t>(g.size()), false);
  std::vector<bool> kept(written);  // whatever the limits say
  std::vector<int> makers(g.workload().operators().size(), -1);
  for (int v = 0; v < g.size(); ++v) makers[g.vertex(v).op.index()] = v;
  const auto held = [&](const Nest& n) {
    if (n.ops.size() < 2) return true;
    stitching::SharedKernel kernel;
    for (int v : n.ops) kernel.ops.push_back(g.vertex(v).op);
    for (int v : n.gives) kernel.gives.push_back(g.vertex(v).op);
    return !stitching::not_one_kernel(g.workload(), kernel, 0, o.kernels.most_operators);
  };
  // Producers come first, and what is written of them is settled when their readers are met.
  std::vector<Nest> out;
  for (int v = 0; v < g.size(); ++v) {
    const auto at = static_cast<std::size_t>(v);
    Walk walk(g, o, makers, written, v);
    const bool large = walk.operations() > o.operations;
    const auto reads = static_cast<std::int64_t>(walk.reads());
    const bool reused = g.vertex(v).consumers.size() > 1 && (reads > o.reads || large);
    written[at] =
        kept[at] || always_written(g, library, v, o) || reused || large || reads > o.gathered_reads;
    const std::set<int> direct = walk.direct();
    Nest nest = walk.nest();
    if (written[at] && !held(nest)) {
      // What was to be computed on the way is written after all, and its own nest with it.
      for (int from : direct) kept[static_cast<std::size_t>(from)] = true;
      v = *direct.begin() - 1;
      while (!out.empty() && out.back().last > v) out.pop_back();
      continue;
    }
    nest.library = library[at];
    if (o.phases && !nest.library) nest.parts = parts_of(nest, walk.extents(), d);
    if (written[at]) out.push_back(std::move(nest));
  }
  return out;
}

}  // namespace tilewright::inductor
