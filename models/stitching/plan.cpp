// A priced fusion plan in the plan language.
#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/format.h"
#include "core/lowering/gpu/product_tiles.h"
#include "core/plan/schedule.h"
#include "core/workload/expr.h"
#include "models/stitching/bound_tree.h"
#include "models/stitching/column_roots.h"
#include "models/stitching/loops.h"
#include "models/stitching/part.h"

namespace tilewright::stitching {
namespace {

constexpr std::int64_t kRun = 256;     // elements of a cut loop within a row
constexpr std::int64_t kProduct = 64;  // a product's blocks; section 4 leaves products to libraries
constexpr std::int64_t kReduced = 16;

/// `body` inside a loop over each of these loops, the first outermost.
struct LoopCut {
  LoopId loop;
  std::int64_t step = 1;
  Binding binding = Binding::seq;
};
Node nest(const Workload& w, std::span<const LoopCut> cuts, Node body) {
  for (std::size_t i = cuts.size(); i-- > 0;)
    body = loop(w.loop(cuts[i].loop).name, std::move(body), cuts[i].step, cuts[i].binding);
  return body;
}

/// A grid over the rows; of the innermost, `last` if it is one of them, a block takes several.
std::vector<LoopCut> grid_over(const Workload& w, LoopSet rows, const Operator& root,
                               std::int64_t rows_per_block, int last) {
  std::vector<LoopCut> cuts;
  for (LoopId l : root.loops)
    if (rows.has(l)) cuts.push_back({l, 1, Binding::grid});
  std::stable_partition(cuts.begin(), cuts.end(), [&](const LoopCut& cut) {
    return static_cast<int>(cut.loop.index()) != last;
  });
  if (!cuts.empty()) cuts.back().step = std::min(rows_per_block, w.loop(cuts.back().loop).extent);
  return cuts;
}

/// Adds a vertex and those that make what it is rescaled by, back to the running operators among
/// them.
void add_makers(const Graph& g, int v, bool by_factor, std::vector<int>& chain) {
  const Workload& w = g.workload();
  const Operator& op = w.op(g.vertex(v).op);
  chain.push_back(v);
  for (int e : g.vertex(v).in) {
    const int from = g.edge(e).from;
    const auto reads = [&](std::size_t i) {
      return w.producer(op.inputs[i].tensor) == g.vertex(from).op;
    };
    bool needed = !by_factor;
    for (const Output& out : op.outputs)
      for (std::size_t i = 0; by_factor && out.rescale && i < op.inputs.size(); ++i)
        needed |= reads(i) && reads_input(*out.rescale, static_cast<int>(i));
    if (!needed || std::ranges::find(chain, from) != chain.end()) continue;
    if (w.op(g.vertex(from).op).running)
      chain.push_back(from);
    else
      add_makers(g, from, false, chain);
  }
}

/// Whether the component has a running operator and another kernel one that rescales the same sums:
/// of no block of the reduction but the last would one see what the other makes.
bool cuts_running(const Graph& g, const Component& c) {
  const auto has = [&](int v) { return std::ranges::binary_search(c.vertices, v); };
  const auto runs = [&](int v) { return g.workload().op(g.vertex(v).op).running; };
  if (std::ranges::none_of(c.vertices, runs)) return false;
  for (int v = 0; v < g.size(); ++v) {
    if (!runs(v)) continue;
    std::vector<int> chain;
    add_makers(g, v, true, chain);
    if (std::ranges::any_of(chain, [&](int x) { return runs(x) && has(x); }) &&
        !std::ranges::all_of(chain, has))
      return true;
  }
  return false;
}

/// Loops of every operator within a row may be cut where no operator waits for another's sum.
std::vector<LoopCut> cuts_within(const Graph& g, const Component& c) {
  LoopSet common = LoopSet::all();
  const bool runs_apart = cuts_running(g, c);
  for (int v : c.vertices) {
    const Vertex& x = g.vertex(v);
    common &= x.loops & ~c.split();
    if (runs_apart && g.workload().op(x.op).running) common &= ~x.reduced;
    const bool handed_on =
        x.kind == Kind::reduction && std::ranges::any_of(x.consumers, [&c](int reader) {
          return std::ranges::binary_search(c.vertices, reader);
        });
    if (handed_on) return {};
    for (int e : x.in)
      if (std::ranges::binary_search(c.vertices, g.edge(e).from)) common &= ~g.edge(e).bad;
  }
  const Workload& w = g.workload();
  std::vector<LoopCut> cuts;
  for (LoopId l : w.op(g.vertex(c.vertices.back()).op).loops)
    if (common.has(l)) cuts.push_back({l});
  if (!cuts.empty()) cuts.back().step = std::min(kRun, w.loop(cuts.back().loop).extent);
  return cuts;
}

/// The one loop over which the component's running operators reduce in blocks; none: it has no such
/// operators, they reduce over several, or other kernels have some of them.
std::optional<LoopId> running_loop(const Graph& g, const Component& c) {
  if (cuts_running(g, c)) return std::nullopt;
  std::optional<LoopId> found;
  for (int v : c.vertices) {
    const OpId op = g.vertex(v).op;
    if (!g.workload().op(op).running) continue;
    const std::span<const LoopId> reduced = g.workload().reduction_loops(op);
    if (reduced.size() != 1 || (found && *found != reduced.front())) return std::nullopt;
    found = reduced.front();
  }
  return found;
}

/// What is read while it runs need not be whole: blocks of the reduction, each for a block of rows.
Node running_tree(const Graph& g, const Component& c, LoopId reduced, std::int64_t tile) {
  const Workload& w = g.workload();
  const auto has_loop = [&](int v) { return g.vertex(v).loops.has(reduced); };
  const auto after = std::ranges::find_if(c.vertices.rbegin(), c.vertices.rend(), has_loop).base();
  std::vector<Node> in_loop, parts;
  for (auto v = c.vertices.begin(); v != c.vertices.end(); ++v)
    (v < after ? in_loop : parts).push_back(compute(w.op(g.vertex(*v).op).name));
  parts.insert(parts.begin(), loop(w.loop(reduced).name, sequence(std::move(in_loop)),
                                   std::min(tile, w.loop(reduced).extent)));
  return nest(w, grid_over(w, c.split(), w.op(g.vertex(c.vertices.back()).op), tile, -1),
              sequence(std::move(parts)));
}

}  // namespace

Node tree_without_units(const Graph& g, const Stitched& s) {
  const Workload& w = g.workload();
  const Component& c = s.component;
  if (const auto reduced = running_loop(g, c); reduced && c.partial.empty())
    return running_tree(g, c, *reduced, kProduct);
  std::vector<Node> computes;
  for (int v : c.vertices) computes.push_back(compute(w.op(g.vertex(v).op).name));
  std::vector<LoopCut> cuts = grid_over(w, c.split(), w.op(g.vertex(c.vertices.back()).op),
                                        s.rows_per_block, c.partial.empty() ? -1 : run_loop(g, c));
  // A block's rows are taken one at a time, so that a buffer holds one; a row of a point needs
  // none.
  const bool long_rows = std::ranges::any_of(
      c.vertices, [&](int v) { return g.points(g.vertex(v).loops & ~c.split()) > 1; });
  if (long_rows && !cuts.empty() && cuts.back().step > 1) cuts.push_back({cuts.back().loop});
  const std::vector<LoopCut> within = cuts_within(g, c);
  if (c.partial.empty()) {
    cuts.insert(cuts.end(), within.begin(), within.end());
    return nest(w, cuts, sequence(std::move(computes)));
  }
  const auto in_block = std::stable_partition(
      cuts.begin(), cuts.end(), [](const LoopCut& cut) { return cut.binding == Binding::grid; });
  std::vector<LoopCut> inner(in_block, cuts.end());
  cuts.erase(in_block, cuts.end());
  inner.insert(inner.end(), within.begin(), within.end());
  std::vector<Node> body = {nest(w, inner, sequence(std::move(computes)))};
  for (int v : c.partial)
    for (const Output& o : w.op(g.vertex(v).op).outputs)
      body.push_back(store(w.tensor(o.target.tensor).name, {}, true));
  return nest(w, cuts, sequence(std::move(body)));
}

namespace {

/// The largest of an operator's loops among some; none where there are none.
LoopId largest_of(const Workload& w, const Operator& op, LoopSet among) {
  LoopId found;
  for (LoopId l : op.loops)
    if (among.has(l) && (!found.valid() || w.loop(l).extent > w.loop(found).extent)) found = l;
  return found;
}

struct ProductCuts {
  std::int64_t row = kProduct, column = kProduct, depth = kReduced;
};

/// A product of matrices in each iteration: columns along the output's last dimension, rows along
/// the largest loop that the other operand has alone, the largest reduction. Other loops (a batch,
/// a convolution's other rows and its window) are a block's or an iteration's each.
struct ProductLoops {
  LoopSet reduced;
  LoopId row, column, depth;
};
ProductLoops product_loops(const Graph& g, int v) {
  const Workload& w = g.workload();
  const Operator& op = w.op(g.vertex(v).op);
  const LoopSet reduced = g.vertex(v).reduced;
  const Access& target = op.outputs.front().target;
  const LoopSet out = loops_of(target);
  const auto last = target.index.empty() ? std::nullopt : target.index.back().plain_loop();
  const LoopId column = last ? *last : largest_of(w, op, out);
  LoopSet others = out, both = out;
  for (const Access& a : op.inputs) {
    both &= loops_of(a);
    if (column.valid() && loops_of(a).has(column)) others &= ~loops_of(a);
  }
  LoopId row = largest_of(w, op, others);
  if (!row.valid() && column.valid() && both.has(column)) row = largest_of(w, op, out & ~both);
  return {reduced, row, column, largest_of(w, op, reduced)};
}

Node product_tree(const Graph& g, int v, const ProductCuts& tile) {
  const Workload& w = g.workload();
  const Operator& op = w.op(g.vertex(v).op);
  const auto [reduced, row, column, depth] = product_loops(g, v);
  std::vector<LoopCut> cuts;
  for (bool inner : {false, true})
    for (LoopId l : op.loops)
      if (reduced.has(l) == inner)
        cuts.push_back({l,
                        std::min(l == column  ? tile.column
                                 : l == row   ? tile.row
                                 : l == depth ? tile.depth
                                              : 1,
                                 w.loop(l).extent),
                        inner ? Binding::seq : Binding::grid});
  return nest(w, cuts, compute(op.name));
}

/// Whether each operand's tile is a matrix: its rows lie along the product's rows, columns or
/// depth. The tiles of others (a convolution's weights end in its window) have rows of an element,
/// which are padded.
bool matrices(const Operator& op, const ProductLoops& l) {
  return std::ranges::all_of(op.inputs, [&](const Access& a) {
    if (a.index.empty()) return false;
    for (const Affine& i : a.index)
      if (!i.plain_loop()) return false;
    const LoopId last = *a.index.back().plain_loop();
    return last == l.row || last == l.column || last == l.depth;
  });
}

/// A product by itself, in the tiles that the GPU does best with.
std::optional<Kernel> product_kernel(const Graph& g, const Device& d, int v, std::string name) {
  const Workload& w = g.workload();
  const Operator& op = w.op(g.vertex(v).op);
  const DType type = w.tensor(op.inputs.front().tensor).dtype;
  if (d.machine == nullptr) return {};
  const auto unit = lowering::product_unit(*d.machine, type);
  const ProductLoops l = product_loops(g, v);
  if (!unit || !l.row.valid() || !l.column.valid() || !l.depth.valid()) return {};
  if (!matrices(op, l)) return {};
  lowering::ProductShape shape{.rows = w.loop(l.row).extent,
                               .columns = w.loop(l.column).extent,
                               .depth = w.loop(l.depth).extent,
                               .element = size_of(type)};
  for (LoopId other : op.loops)
    if (other != l.row && other != l.column && !l.reduced.has(other))
      shape.batch = std::min(shape.batch * w.loop(other).extent, std::int64_t{1} << 40);
  const auto tile = lowering::best_tile(*unit, shape);
  if (!tile) return {};
  Kernel kernel{.name = std::move(name)};
  kernel.tree = product_tree(g, v, {tile->rows, tile->columns, tile->depth});
  kernel.launch = {.warps = tile->warps, .stages = tile->stages};
  return kernel;
}

Kernel unbound_kernel(const Graph& g, const PlanPrice& p, std::size_t k) {
  Kernel kernel{.name = formatted("stitch{}", k + 1)};
  if (p.kernels[k].parts.empty()) {
    kernel.tree = product_tree(g, p.patterns[k].front(), {});
  } else if (p.kernels[k].parts.size() == 1) {
    kernel.tree = tree_without_units(g, p.kernels[k].parts.front());
  } else {
    kernel.tree.kind = Node::Kind::pack;
    for (const Stitched& s : p.kernels[k].parts)
      kernel.tree.children.push_back(tree_without_units(g, s));
  }
  return kernel;
}

std::set<std::string> loaded_in(const Node& n) {
  std::set<std::string> all;
  if (n.kind == Node::Kind::load) all.insert(n.name);
  for (const Node& child : n.children) all.merge(loaded_in(child));
  return all;
}

/// Loads these tensors where an operator reads them.
void load_where_read(const Workload& w, Node& n, const std::set<std::string>& tensors) {
  if (n.kind != Node::Kind::compute) {
    for (Node& child : n.children) load_where_read(w, child, tensors);
    return;
  }
  std::vector<Node> nodes;
  for (const Operator& op : w.operators()) {
    if (op.name != n.name) continue;
    std::set<std::string> read;
    for (const Access& a : op.inputs)
      if (!is_gather(a) && tensors.contains(w.tensor(a.tensor).name))
        read.insert(w.tensor(a.tensor).name);
    for (const std::string& name : read) nodes.push_back(load(name, "registers"));
  }
  if (nodes.empty()) return;
  nodes.push_back(n);
  n = sequence(std::move(nodes));
}

/// An input that one part of a pack loads must be loaded by all parts that read it: nothing else
/// holds it there.
void load_in_all_parts(const Workload& w, std::vector<Node>& parts) {
  std::vector<std::set<std::string>> own;
  std::set<std::string> any;
  for (const Node& part : parts) {
    own.push_back(loaded_in(part));
    any.insert(own.back().begin(), own.back().end());
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::set<std::string> others;
    std::ranges::set_difference(any, own[i], std::inserter(others, others.end()));
    load_where_read(w, parts[i], others);
  }
}

Result<Kernel> bound_kernel(const Graph& g, const Device& d, const PlanPrice& p, std::size_t k) {
  const StitchedKernel& stitched = p.kernels[k];
  if (stitched.parts.empty()) return Reason{"a product is left to libraries"};
  if (!stitched.without_units.empty()) return Reason{stitched.without_units};
  Kernel kernel{.name = formatted("stitch{}", k + 1), .level = "registers"};
  std::vector<Node> trees;
  for (const Stitched& s : stitched.parts) {
    Result<BoundTree> part = bound_tree(g, d, s, stitched.threads);
    if (!part) return Reason{part.reason()};
    for (const auto& [tensor, pin] : part->pins) kernel.pins[tensor] = pin;
    trees.push_back(std::move(part->tree));
  }
  if (trees.size() == 1) {
    kernel.tree = std::move(trees.front());
  } else {
    load_in_all_parts(g.workload(), trees);
    kernel.tree.kind = Node::Kind::pack;
    kernel.tree.children = std::move(trees);
  }
  return kernel;
}

}  // namespace

Plan plan_of(const Graph& g, const PlanPrice& p) {
  Plan plan;
  for (std::size_t k = 0; k < p.patterns.size(); ++k)
    plan.kernels.push_back(unbound_kernel(g, p, k));
  return plan;
}

WrittenPlan write_plan(const Graph& g, const Device& d, const PlanPrice& p,
                       const std::shared_ptr<const Machine>& machine) {
  WrittenPlan out{plan_of(g, p), std::vector<std::string>(p.patterns.size())};
  const Plan without = out.plan;
  for (std::size_t k = 0; k < p.patterns.size(); ++k) {
    if (p.kernels[k].parts.empty())
      if (auto product = product_kernel(g, d, p.patterns[k].front(), out.plan.kernels[k].name))
        out.plan.kernels[k] = *std::move(product);
    Result<Kernel> bound = bound_kernel(g, d, p, k);
    if (bound)
      out.plan.kernels[k] = std::move(bound).value();
    else
      out.unbound[k] = bound.reason();
  }
  if (resolve(out.plan, g.shared_workload(), machine).ok() ||
      !resolve(without, g.shared_workload(), machine).ok())
    return out;
  for (std::size_t k = 0; k < p.patterns.size(); ++k) {
    if (!out.unbound[k].empty()) continue;
    Plan alone = without;
    alone.kernels[k] = out.plan.kernels[k];
    const auto resolved = resolve(alone, g.shared_workload(), machine);
    if (resolved.ok()) continue;
    out.unbound[k] = resolved.reason();
    out.plan.kernels[k] = without.kernels[k];
  }
  return out;
}

std::vector<WrittenKernel> kernel_choices(const Graph& g, const Device& d, const PlanPrice& p,
                                          std::size_t k, const Options& o) {
  std::vector<WrittenKernel> out;
  if (p.kernels[k].parts.empty()) {
    if (auto kernel = product_kernel(g, d, p.patterns[k].front(), formatted("stitch{}", k + 1)))
      out.push_back({*std::move(kernel), 0, {}});
    for (std::int64_t tile = kProduct; tile >= kReduced; tile /= 2) {
      Kernel kernel{.name = formatted("stitch{}", k + 1)};
      kernel.tree = product_tree(g, p.patterns[k].front(), {tile, tile, kReduced});
      out.push_back({std::move(kernel), 0, {}});
    }
    return out;
  }
  PlanPrice one = p;
  if (p.kernels[k].parts.size() == 1) {
    const Component& c = p.kernels[k].parts.front().component;
    if (const auto reduced = running_loop(g, c); reduced && c.partial.empty()) {
      for (std::int64_t tile = kProduct; tile >= kReduced; tile /= 2) {
        Kernel kernel{.name = formatted("stitch{}", k + 1)};
        kernel.tree = running_tree(g, c, *reduced, tile);
        out.push_back({std::move(kernel), p.kernels[k].seconds, {}});
      }
      return out;
    }
  }
  for (StitchedKernel& choice : choices(g, d, p.patterns[k], o)) {
    const double seconds = choice.seconds;
    one.kernels[k] = std::move(choice);
    Result<Kernel> bound = bound_kernel(g, d, one, k);
    const std::string& why = one.kernels[k].without_units;
    if (bound)
      out.push_back({std::move(bound).value(), seconds, {}});
    else if (!why.empty())
      out.push_back({unbound_kernel(g, one, k), seconds, why});
  }
  return out;
}

}  // namespace tilewright::stitching
