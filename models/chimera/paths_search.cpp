// Blocks at L1 and L0 for a product, or a chain of two, on an NPU's paths.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "core/workload/expr.h"
#include "models/chimera/paths.h"

namespace tilewright::chimera {
namespace {

std::int64_t extent(const Workload& w, LoopId l) { return w.loop(l).extent; }

/// An operator that maps each element of its one big input, `from`, to one of its output.
bool maps_elements(const Workload& w, OpId id, TensorId from) {
  const Operator& op = w.op(id);
  return op.outputs.size() == 1 && op.outputs.front().combine == Combine::assign &&
         op.inputs.size() == 1 && op.inputs.front().tensor == from &&
         op.inputs.front().index == op.outputs.front().target.index;
}

}  // namespace

Result<CubeChain> cube_chain(const Workload& w) {
  CubeChain chain;
  const auto order = w.topological_order();
  Result<MatrixProduct> first = matrix_product(w, order.front());
  if (!first) return Reason{first.reason()};
  chain.first = *first;
  TensorId last = w.op(order.front()).outputs.front().target.tensor;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const bool at_end = i + 1 == order.size();
    if (!w.is_contraction(order[i]) && !at_end && maps_elements(w, order[i], last)) {
      chain.between.push_back(order[i]);
      last = w.op(order[i]).outputs.front().target.tensor;
      continue;
    }
    Result<MatrixProduct> second = matrix_product(w, order[i]);
    if (!second) return Reason{second.reason()};
    const MatrixProduct& s = *second;
    if (!at_end || !s.sums.empty() || !chain.first.sums.empty() ||
        w.op(s.op).inputs[std::size_t(s.left)].tensor != last ||
        s.depth != chain.first.columns || s.rows != chain.first.rows ||
        s.batch != chain.first.batch)
      return Reason{w.op(s.op).name +
                    " does not multiply what the operator before it makes, row by row"};
    chain.second = s;
  }
  if (!chain.between.empty() && !chain.second)
    return Reason{"an element-wise operator ends the chain"};
  return chain;
}

namespace {

/// Tile sizes of a loop that differ in their number of trips: the least multiple of `lanes` of each,
/// ascending, the whole loop last.
std::vector<std::int64_t> sizes(std::int64_t extent, std::int64_t lanes) {
  std::set<std::int64_t> all;
  std::set<std::int64_t> trips;
  for (std::int64_t t = lanes; t < extent; t += lanes)
    if (trips.insert(ceil_div(extent, t)).second) all.insert(t);
  all.insert(extent);
  return {all.begin(), all.end()};
}

/// Builds the loop trees.
class Trees {
 public:
  explicit Trees(const Workload& w) : w_(w) {}

  Kernel product(const MatrixProduct& p, const PathBlocks& b) const {
    const std::string out = output(p);
    std::vector<Node> body;
    const bool deep = b.depth < extent(w_, p.depth) || !p.sums.empty();
    if (!deep) {
      body = {load(left(p), "L1"), load(right(p), "L1"), tiles(p, b.first, block(b), {store(out)})};
    } else {
      Node deeper = cut(p.depth, b.depth,
                        sequence({load(left(p), "L1", 2), load(right(p), "L1", 2),
                                  tiles(p, b.first, block(b), {})}));
      for (std::size_t i = p.sums.size(); i-- > 0;) deeper = cut(p.sums[i], 1, std::move(deeper));
      body = {std::move(deeper), store(out)};
    }
    Node tree = cut(p.columns, b.columns, sequence(std::move(body)), Binding::grid);
    tree = cut(p.rows, b.rows, std::move(tree), Binding::grid);
    return {.name = w_.op(p.op).name,
            .operators = {w_.op(p.op).name},
            .tree = batched(p, std::move(tree)),
            .pins = {{out, {.level = "L0C"}}}};
  }

  Kernel chain(const CubeChain& c, const PathBlocks& b) const {
    const MatrixProduct &p = c.first, &q = *c.second;
    const std::string mid = output(p), out = output(q);
    Kernel kernel{.name = "fused"};
    kernel.operators.push_back(w_.op(p.op).name);
    kernel.pins[mid] = {.level = "L0C"};
    kernel.pins[out] = {.level = "L0C"};
    std::vector<Node> made;  // what a tile of the first product goes through
    std::string last = mid;
    if (!c.between.empty()) made.push_back(store(mid, "UB"));
    for (OpId op : c.between) {
      kernel.operators.push_back(w_.op(op).name);
      made.push_back(compute(w_.op(op).name));
      last = w_.tensor(w_.op(op).outputs.front().target.tensor).name;
      kernel.pins[last] = {.level = "UB"};
    }
    kernel.operators.push_back(w_.op(q.op).name);
    made.push_back(store(last, "L1"));

    const bool deep = b.depth < extent(w_, p.depth);
    std::vector<Node> inner;
    const CubeTile first_block = block(b);
    if (!deep) {
      inner = {load(right(p), "L1", 2), tiles(p, b.first, first_block, made)};
    } else {
      inner = {cut(p.depth, b.depth,
                   sequence({load(left(p), "L1", 2), load(right(p), "L1", 2),
                             tiles(p, b.first, first_block, {})}))};
      inner.insert(inner.end(), made.begin(), made.end());
    }
    inner.push_back(load(right(q), "L1", 2));
    inner.push_back(tiles(q, b.second,
                          {.rows = b.rows, .columns = b.second_columns, .depth = b.columns}, {}));
    std::vector<Node> body;
    if (!deep) body.push_back(load(left(p), "L1"));
    body.push_back(cut(p.columns, b.columns, sequence(std::move(inner))));
    body.push_back(store(out));
    Node tree = sequence(std::move(body));
    if (b.second_columns < extent(w_, q.columns))
      tree = cut(q.columns, b.second_columns, std::move(tree), Binding::grid);
    tree = cut(p.rows, b.rows, std::move(tree), Binding::grid);
    kernel.tree = batched(p, std::move(tree));
    return kernel;
  }

  /// An element-wise operator on its own: rows of its output, a block each.
  Kernel alone(OpId id, std::int64_t rows) const {
    const Operator& op = w_.op(id);
    const Access& target = op.outputs.front().target;
    const std::string out = w_.tensor(target.tensor).name;
    const std::string in = w_.tensor(op.inputs.front().tensor).name;
    Node tree = sequence({load(in, "UB"), compute(op.name), store(out)});
    for (std::size_t d = target.index.size() - 1; d-- > 0;) {
      const LoopId l = *target.index[d].plain_loop();
      tree = loop(w_.loop(l).name, std::move(tree),
                  d + 2 == target.index.size() ? std::min(rows, extent(w_, l)) : 1, Binding::grid);
    }
    return {.name = op.name,
            .operators = {op.name},
            .tree = std::move(tree),
            .pins = {{out, {.level = "UB"}}}};
  }

 private:
  static CubeTile block(const PathBlocks& b) {
    return {.rows = b.rows, .columns = b.columns, .depth = b.depth};
  }
  std::string name(TensorId t) const { return w_.tensor(t).name; }
  std::string left(const MatrixProduct& p) const {
    return name(w_.op(p.op).inputs[std::size_t(p.left)].tensor);
  }
  std::string right(const MatrixProduct& p) const {
    return name(w_.op(p.op).inputs[std::size_t(p.right)].tensor);
  }
  std::string output(const MatrixProduct& p) const {
    return name(w_.op(p.op).outputs.front().target.tensor);
  }

  /// A loop over blocks; none where one block is all.
  Node cut(LoopId l, std::int64_t step, Node body, Binding binding = Binding::seq) const {
    if (step >= extent(w_, l)) return body;
    return loop(w_.loop(l).name, std::move(body), step, binding);
  }
  /// A loop over what `mad` gets of a block.
  Node within(LoopId l, std::int64_t step, std::int64_t block, Node body) const {
    if (step >= block) return body;
    return loop(w_.loop(l).name, std::move(body), step);
  }

  /// The product's block, tile by tile; `after` each tile of sums.
  Node tiles(const MatrixProduct& p, const CubeTile& t, const CubeTile& block,
             std::vector<Node> after) const {
    std::vector<Node> body = {within(
        p.depth, t.depth, block.depth,
        sequence({load(left(p), "L0A", 2), load(right(p), "L0B", 2), compute(w_.op(p.op).name)}))};
    body.insert(body.end(), after.begin(), after.end());
    return within(p.rows, t.rows, block.rows,
                  within(p.columns, t.columns, block.columns, sequence(std::move(body))));
  }

  Node batched(const MatrixProduct& p, Node tree) const {
    for (std::size_t i = p.batch.size(); i-- > 0;)
      tree = loop(w_.loop(p.batch[i]).name, std::move(tree), 1, Binding::grid);
    return tree;
  }

  const Workload& w_;
};

/// A workload of one operator of `w`, its loops and tensors as they are named there.
Workload only(const Workload& w, OpId id) {
  WorkloadSpec spec{.name = w.name(), .dtype = w.dtype()};
  std::vector<LoopId> loops(w.loops().size());
  std::vector<TensorId> tensors(w.tensors().size());
  Operator op = w.op(id);
  const auto loop = [&](LoopId& l) {
    LoopId& to = loops[l.index()];
    if (!to.valid()) {
      to = LoopId(spec.loops.size());
      spec.loops.push_back(w.loop(l));
    }
    l = to;
  };
  const auto access = [&](Access& a) {
    TensorId& to = tensors[a.tensor.index()];
    if (!to.valid()) {
      to = TensorId(spec.tensors.size());
      spec.tensors.push_back(w.tensor(a.tensor));
    }
    a.tensor = to;
    for (Affine& i : a.index)
      for (Term& t : i.terms) loop(t.loop);
  };
  for (LoopId& l : op.loops) loop(l);
  for (Access& a : op.inputs) access(a);
  for (Output& o : op.outputs) {
    access(o.target);
    each_index(o.value, loop);
    if (o.rescale) each_index(*o.rescale, loop);
  }
  spec.outputs = {op.outputs.front().target.tensor};
  spec.operators = {std::move(op)};
  return Workload::create(std::move(spec));
}

/// Prices candidates and keeps the best.
class PathSearch {
 public:
  PathSearch(std::shared_ptr<const Workload> w, std::shared_ptr<const Machine> m,
             const PathOptions& options)
      : w_(std::move(w)), m_(std::move(m)), options_(options) {}

  void consider(Kernel kernel) {
    ++counted["priced"];
    Result<PathPlan> p = price_paths({.kernels = {std::move(kernel)}}, w_, m_, options_);
    if (!p) {
      ++counted["unfit"];
      if (why_.empty()) why_ = p.reason();
      return;
    }
    // Blocks come small ones first: where costs are the same, fewer and larger copies.
    if (!best || p->largest < best->largest ||
        (p->largest == best->largest && p->sum <= best->sum))
      best = std::move(p).value();
  }
  std::string why() const { return why_.empty() ? "no block fits L0C" : why_; }

  std::optional<PathPlan> best;
  std::map<std::string, std::int64_t> counted;

 private:
  std::shared_ptr<const Workload> w_;
  std::shared_ptr<const Machine> m_;
  const PathOptions& options_;
  std::string why_;
};

Bytes part(const Machine& m, LevelId level, std::int64_t of) {
  return Bytes(m.level(level).capacity.value / of);
}

constexpr std::int64_t kSum = 4;  // bytes of a sum in L0C

void try_products(const Workload& w, const Machine& m, const CubeLevels& levels,
                  const MatrixProduct& p, std::int64_t lanes, PathSearch& search) {
  const Trees trees(w);
  const std::int64_t room = m.level(levels.l0c).capacity.value;
  const std::vector<std::int64_t> depths = sizes(extent(w, p.depth), lanes);
  for (std::int64_t r : sizes(extent(w, p.rows), lanes))
    for (std::int64_t c : sizes(extent(w, p.columns), lanes))
      for (std::int64_t d : {depths.back(), std::min<std::int64_t>(512, depths.back()),
                             std::min<std::int64_t>(256, depths.back())}) {
        PathBlocks b{.rows = r, .depth = d, .columns = c};
        const bool deep = d < depths.back() || !p.sums.empty();
        if (deep && r * c * kSum > room) continue;
        b.first = mad_tile({.rows = r, .columns = c, .depth = d}, part(m, levels.l0a, 2),
                           part(m, levels.l0b, 2), Bytes(deep ? room : room / 2), lanes);
        if (b.first.rows == 0) continue;
        search.consider(trees.product(p, b));
        if (d == depths.back() && d <= 256) break;
      }
}

void try_chains(const Workload& w, const Machine& m, const CubeLevels& levels, const CubeChain& c,
                std::int64_t lanes, PathSearch& search) {
  const Trees trees(w);
  const MatrixProduct &p = c.first, &q = *c.second;
  const std::int64_t room = m.level(levels.l0c).capacity.value;
  const std::int64_t depth = extent(w, p.depth);
  for (std::int64_t rows : sizes(extent(w, p.rows), lanes))
    for (std::int64_t out : sizes(extent(w, q.columns), lanes)) {
      const std::int64_t left = room - ceil_div(rows, lanes) * lanes * ceil_div(out, lanes) *
                                           lanes * kSum;
      if (left <= 0) break;
      for (std::int64_t mid : sizes(extent(w, p.columns), lanes))
        for (std::int64_t d : {depth, std::min<std::int64_t>(256, depth)}) {
          PathBlocks b{.rows = rows, .depth = d, .columns = mid, .second_columns = out};
          const bool deep = d < depth;
          if (deep && rows * mid * kSum > left) continue;
          b.first = mad_tile({.rows = rows, .columns = mid, .depth = d}, part(m, levels.l0a, 4),
                             part(m, levels.l0b, 4), Bytes(deep ? left : left / 2), lanes);
          b.second = mad_tile({.rows = rows, .columns = out, .depth = mid},
                              part(m, levels.l0a, 4), part(m, levels.l0b, 4), Bytes(room), lanes);
          if (b.first.rows == 0 || b.second.rows == 0) continue;
          search.consider(trees.chain(c, b));
          if (depth <= 256) break;
        }
    }
}

/// Adds what a kernel of its own costs.
void append(PathPlan& all, PathPlan one) {
  all.plan.kernels.push_back(std::move(one.plan.kernels.front()));
  all.costs.insert(all.costs.end(), one.costs.begin(), one.costs.end());
  Traffic& traffic = all.traffic;
  if (traffic.by.empty()) {
    traffic = std::move(one.traffic);
  } else {
    traffic.entries.insert(traffic.entries.end(), one.traffic.entries.begin(),
                           one.traffic.entries.end());
    traffic.operations.merge(one.traffic.operations);
  }
  all.largest += one.largest;
  all.sum += one.sum;
  all.blocks = one.blocks;
  for (const auto& [level, bytes] : one.memory)
    all.memory[level] = std::max(all.memory[level], bytes);
  for (const auto& [what, n] : one.counted) all.counted[what] += n;
}

Result<PathPlan> best_alone(const Workload& whole, OpId op, const std::shared_ptr<const Machine>& m,
                            const CubeLevels& levels, const PathOptions& options) {
  const auto w = std::make_shared<const Workload>(only(whole, op));
  PathSearch search(w, m, options);
  if (w->is_contraction(OpId(0))) {
    const Result<MatrixProduct> p = matrix_product(*w, OpId(0));
    if (!p) return Reason{p.reason()};
    try_products(*w, *m, levels, *p, options.lanes, search);
  } else {
    for (std::int64_t rows = options.lanes; rows <= 256; rows *= 2)
      search.consider(Trees(*w).alone(OpId(0), rows));
  }
  if (!search.best) return Reason{w->op(OpId(0)).name + ": nothing fits: " + search.why()};
  search.best->counted = search.counted;
  return *search.best;
}

}  // namespace

Result<Plan> plan_of(const Workload& w, const PathBlocks& blocks) {
  const Result<CubeChain> chain = cube_chain(w);
  if (!chain) return Reason{chain.reason()};
  const Trees trees(w);
  return Plan{.kernels = {chain->second ? trees.chain(*chain, blocks)
                                        : trees.product(chain->first, blocks)}};
}

Result<PathPlan> best_paths(const Workload& w, std::shared_ptr<const Machine> m,
                            const PathOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const Result<CubeLevels> levels = cube_levels(*m);
  if (!levels) return Reason{levels.reason()};
  const Result<CubeChain> chain = cube_chain(w);
  if (!chain) return Reason{chain.reason()};
  PathPlan all;
  if (options.fused && chain->second) {
    PathSearch search(std::make_shared<const Workload>(w), m, options);
    try_chains(w, *m, *levels, *chain, options.lanes, search);
    if (!search.best) return Reason{"nothing fits: " + search.why()};
    all = *search.best;
    all.counted = search.counted;
  } else {
    for (OpId op : w.topological_order()) {
      Result<PathPlan> one = best_alone(w, op, m, *levels, options);
      if (!one) return one;
      append(all, std::move(one).value());
    }
  }
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return all;
}

}  // namespace tilewright::chimera
