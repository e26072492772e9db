// Operands of matrix products that are looked up, written by an operator of their own first.
//
//   y[b,e] += T[ids[b],d] * W[d,e]     =>     T_rows[b,d] = T[ids[b],d]
//                                             y[b,e]     += T_rows[b,d] * W[d,e]
//
// Kernels of matrix products copy boxes of their operands. Rows whose numbers are known only at run
// time are no box, so that such a product is computed element by element. A sum that reads each row
// for many columns is faster after a copy of the rows; whether that is so is the caller's question.
//
// So are operands that are read in patches: loops of the depth on both sides of others in memory.
//
//   y[p,q,n] += X[c,p,r,q,s] * W[n,c,r,s]     =>     X_rows[p,q,c,r,s] = X[c,p,r,q,s]
//                                                    y[p,q,n]         += X_rows[p,q,c,r,s] *
//                                                    W[n,c,r,s]
//
// A row of the depth is then many short pieces, which kernels copy one by one for every tile of
// columns. A convolution whose steps are as long as its window reads an image in that way, too.
//
// A transposed convolution reads both operands through windows: of the image, and of the weights
// those of one phase. Both are written row by row, and the product has a result whose rows are
// those of one operand and whose columns are those of the other; an operator of its own brings its
// elements to where they belong.
//
//   y[n,p,a,q,b] += X[c,p-k,q-l] * W[c,n,a+2*k,b+2*l]
//     =>     X_rows[p,q,c,k,l]     = X[c,p-k,q-l]
//            W_rows[n,a,b,c,k,l]   = W[c,n,a+2*k,b+2*l]
//            y_sums[n,a,b,p,q]    += X_rows[p,q,c,k,l] * W_rows[n,a,b,c,k,l]
//            y[n,p,a,q,b]          = y_sums[n,a,b,p,q]
//
// A product whose loops of one role (rows, columns, depth) lie apart in an operand is none of
// matrices. Copies of its operands are, in which these loops follow one another; results that lie
// otherwise are brought to where they belong.
//
//   y[b,d,c] += X[c,e,b,f] * W[f,d,e]     =>     X_rows[b,c,e,f]  = X[c,e,b,f]
//                                                W_rows[d,e,f]    = W[f,d,e]
//                                                y_sums[d,b,c]   += X_rows[b,c,e,f] * W_rows[d,e,f]
//                                                y[b,d,c]         = y_sums[d,b,c]
#include <algorithm>
#include <array>

#include "core/base/format.h"
#include "core/workload/access.h"
#include "core/workload/rewrite/rewrite.h"
#include "core/workload/rewrite/substitute.h"
#include "core/workload/rewrite/written_first.h"

namespace tilewright {
namespace {

using rewrite::Looked, rewrite::looked_by, rewrite::stays_inside, rewrite::stride_of,
    rewrite::written_first;

/// Whether the operator sums products of two inputs, of which it looks one up.
bool is_product_of_gathers(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  return !op.running && op.outputs.size() == 1 && w.gathers(id) && !w.reduction_loops(id).empty() &&
         factors_of(op.outputs.front());
}

Looked looked_up(const WorkloadSpec& spec, const Operator& op, const Access& read) {
  Looked out;
  for (int l : gather_loops(op, read)) {
    out.loops.push_back(op.loops[static_cast<std::size_t>(l)]);
    out.shape.push_back(spec.loops[out.loops.back().index()].extent);
    out.elements *= static_cast<double>(out.shape.back());
  }
  return out;
}

/// Pieces of a row this long are copied as fast as whole rows: a line of memory.
constexpr double kLongPiece = 128;

/// The loops of an input that is read in patches, those of the depth last, in the order that the
/// other factor has them in. Nothing where it is read otherwise, or any element by two points of
/// these loops.
std::optional<Looked> patches_of(const Workload& w, OpId id, const Access& read,
                                 const Access& other) {
  const Tensor& tensor = w.tensor(read.tensor);
  std::vector<LoopId> loops;
  for (std::size_t d = 0; d < read.index.size(); ++d) {
    if (!stays_inside(w, read.index[d], tensor.shape[d])) return std::nullopt;
    for (const Term& t : read.index[d].terms)
      if (std::ranges::find(loops, t.loop) == loops.end()) loops.push_back(t.loop);
  }
  const auto outer_first = [&](const Access& a) {
    return [&w, &a](LoopId x, LoopId y) { return stride_of(w, a, x) > stride_of(w, a, y); };
  };
  std::ranges::stable_sort(loops, outer_first(read));
  // From the innermost loop on: each must step over all that those within it reach.
  std::int64_t reach = 1;
  double piece = static_cast<double>(size_of(tensor.dtype));
  bool in_piece = true, other_loop = false, patches = false;
  for (auto l = loops.rbegin(); l != loops.rend(); ++l) {
    const std::int64_t extent = w.loop(*l).extent, stride = stride_of(w, read, *l);
    if (extent == 1) continue;
    if (stride < reach) return std::nullopt;
    reach = stride * (extent - 1) + reach;
    const bool depth = w.is_reduction(id, *l);
    in_piece = in_piece && depth;
    if (in_piece) piece *= static_cast<double>(extent);
    patches = patches || (depth && other_loop);
    other_loop = other_loop || !depth;
  }
  if (!patches || piece >= kLongPiece || !w.is_reduction(id, loops.back())) return std::nullopt;
  const auto depth = std::stable_partition(loops.begin(), loops.end(),
                                           [&](LoopId l) { return !w.is_reduction(id, l); });
  std::stable_sort(depth, loops.end(), outer_first(other));
  return looked_by(w, std::move(loops));
}

/// Whether an index of it is of several loops, of which some are of the depth.
bool through_window(const Workload& w, OpId id, const Access& a) {
  return std::ranges::any_of(a.index, [&](const Affine& index) {
    std::size_t depth = 0, others = 0;
    for (const Term& t : index.terms)
      if (w.loop(t.loop).extent > 1) ++(w.is_reduction(id, t.loop) ? depth : others);
    return depth > 0 && others > 0;
  });
}

/// A product of which both operands are read through windows: the loops of the results that each
/// has, its own alone, and those of the depth.
struct Phases {
  std::array<std::vector<LoopId>, 2> own = {};
  std::vector<LoopId> depth;
};
std::optional<Phases> phases_of(const Workload& w, OpId id, const Access& left,
                                const Access& right) {
  const Access& target = w.op(id).outputs.front().target;
  if (!through_window(w, id, left) || !through_window(w, id, right)) return std::nullopt;
  for (const Access* a : {&left, &right})
    for (const Affine& index : a->index)
      if (index.gathered >= 0) return std::nullopt;
  Phases found;
  for (const Affine& index : target.index) {
    const auto loop = index.plain_loop();
    if (!loop || indexes(left, *loop) == indexes(right, *loop)) return std::nullopt;
    found.own[indexes(left, *loop) ? 0 : 1].push_back(*loop);
  }
  for (LoopId l : w.op(id).loops) {
    if (!w.is_reduction(id, l)) continue;
    if (!indexes(left, l) || !indexes(right, l)) return std::nullopt;
    found.depth.push_back(l);
  }
  // What is read once is copied for nothing.
  for (std::vector<LoopId> loops : found.own) {
    loops.insert(loops.end(), found.depth.begin(), found.depth.end());
    if (2 * looked_by(w, std::move(loops)).elements > static_cast<double>(w.operations(id).value))
      return std::nullopt;
  }
  return found;
}

/// The product with results in a tensor of its own, along these loops, and the operator that brings
/// them to where they belong.
void add_moved(const Workload& w, WorkloadSpec& spec, std::vector<Operator>& all, Operator op,
               const std::vector<LoopId>& loops) {
  const Access target = op.outputs.front().target;
  const Tensor result = spec.tensors[target.tensor.index()];
  Tensor sums{.name = rewrite::unused(spec.tensors, result.name + "_sums"),
              .shape = looked_by(w, loops).shape,
              .dtype = result.dtype};
  Access access{.tensor = TensorId(spec.tensors.size()), .index = {}};
  for (LoopId l : loops) access.index.push_back({.terms = {{.loop = l}}});
  Operator moved{.name = rewrite::unused(spec.operators, result.name + "_moved"),
                 .loops = {},
                 .inputs = {access},
                 .outputs = {}};
  moved.outputs.push_back({.target = target, .value = {.kind = Expr::Kind::input, .input = 0}});
  rewrite::name_loops(moved);
  spec.tensors.push_back(std::move(sums));
  op.outputs.front().target = access;
  rewrite::name_loops(op);
  all.push_back(std::move(op));
  spec.operators.push_back(moved);  // its name is taken
  all.push_back(std::move(moved));
}

/// Both operands row by row, the product, and what brings its results to where they belong.
void add_phases(const Workload& w, WorkloadSpec& spec, std::vector<Operator>& all, Operator op,
                const std::array<int, 2>& factors, const Phases& phases) {
  for (std::size_t side = 0; side < 2; ++side) {
    std::vector<LoopId> loops = phases.own[side];
    loops.insert(loops.end(), phases.depth.begin(), phases.depth.end());
    all.push_back(written_first(spec, op, static_cast<std::size_t>(factors[side]),
                                looked_by(w, std::move(loops))));
    spec.operators.push_back(all.back());  // its name is taken
  }
  // Columns are of the operand that has none of the results' outermost loop: what moves results
  // then reads neighbours that it writes near each other.
  const Access& target = op.outputs.front().target;
  const std::size_t rows =
      std::ranges::find(phases.own[0], *target.index.front().plain_loop()) != phases.own[0].end()
          ? 0
          : 1;
  std::vector<LoopId> loops = phases.own[rows];
  loops.insert(loops.end(), phases.own[1 - rows].begin(), phases.own[1 - rows].end());
  add_moved(w, spec, all, std::move(op), loops);
}

Result<Workload> with_patches(const Workload& w) {
  WorkloadSpec spec = w.spec();
  std::vector<Operator> all;
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    Operator op = spec.operators[i];
    const auto factors = op.running || op.outputs.size() != 1 || w.reduction_loops(OpId(i)).empty()
                             ? std::nullopt
                             : factors_of(op.outputs.front());
    if (const auto phases =
            factors ? phases_of(w, OpId(i), op.inputs[static_cast<std::size_t>((*factors)[0])],
                                op.inputs[static_cast<std::size_t>((*factors)[1])])
                    : std::nullopt) {
      add_phases(w, spec, all, std::move(op), *factors, *phases);
      continue;
    }
    for (int side = 0; factors && side < 2; ++side) {
      const auto input = static_cast<std::size_t>((*factors)[static_cast<std::size_t>(side)]);
      const auto other = static_cast<std::size_t>((*factors)[static_cast<std::size_t>(1 - side)]);
      const auto looked = patches_of(w, OpId(i), op.inputs[input], op.inputs[other]);
      // What is read once is copied for nothing.
      if (!looked || 2 * looked->elements > static_cast<double>(w.operations(OpId(i)).value))
        continue;
      all.push_back(written_first(spec, op, input, *looked));
      spec.operators.push_back(all.back());  // its name is taken
      break;
    }
    all.push_back(std::move(op));
  }
  if (all.size() == w.operators().size())
    return Reason{"no sum of products reads an operand in patches for several of its results"};
  spec.operators = std::move(all);
  return Workload::create(std::move(spec));
}

/// The loops of a product by role, each in the order that its matrices have them in, and what is
/// not a matrix of these yet.
struct Matrices {
  std::array<int, 2> inputs = {};  ///< which input has the rows, and which the columns
  std::vector<LoopId> batch = {}, rows = {}, columns = {}, depth = {};
  bool turned = false;              ///< the right matrix has columns outside of the depth
  std::array<bool, 2> copied = {};  ///< the operands
  bool moved = false;               ///< the results
  bool windows = false;             ///< an operand is read through windows
};

using Loops = std::vector<LoopId>;

/// Whether these loops follow one another in what the access reads: each steps over all of the
/// next.
bool follow(const Workload& w, const Access& a, const Loops& loops) {
  std::optional<std::int64_t> outer;
  for (const LoopId l : loops) {
    if (w.loop(l).extent == 1) continue;
    const std::int64_t stride = stride_of(w, a, l);
    if (outer && *outer != w.loop(l).extent * stride) return false;
    outer = stride;
  }
  return true;
}

/// How far apart neighbours along these loops are that follow one another; 0: there is one alone.
std::int64_t step_along(const Workload& w, const Access& a, const Loops& loops) {
  for (auto l = loops.rbegin(); l != loops.rend(); ++l)
    if (w.loop(*l).extent > 1) return stride_of(w, a, *l);
  return 0;
}

double elements_of(const Workload& w, const Access& a) {
  double elements = 1;
  for (const std::int64_t extent : w.tensor(a.tensor).shape)
    elements *= static_cast<double>(extent);
  return elements;
}

/// Whether each element is read by one point of the loops at most: from the innermost on, each
/// steps over all that those within it reach.
bool reads_once(const Workload& w, const Access& a, const Loops& loops) {
  Loops inner_first = loops;
  std::ranges::stable_sort(
      inner_first, [&](LoopId x, LoopId y) { return stride_of(w, a, x) < stride_of(w, a, y); });
  std::int64_t reach = 1;
  for (const LoopId l : inner_first) {
    if (w.loop(l).extent == 1) continue;
    const std::int64_t stride = stride_of(w, a, l);
    if (stride < reach) return false;
    reach += stride * (w.loop(l).extent - 1);
  }
  return true;
}

/// What of the product is no matrix; nothing where all is, and where an operand that is read
/// through windows, elements several times or outside of its tensor, would make a copy larger than
/// the other operand.
std::optional<Matrices> to_matrices(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (op.running || op.outputs.size() != 1 || op.inputs.size() != 2 || w.gathers(id) ||
      op.outputs.front().rescale)
    return std::nullopt;
  const auto factors = factors_of(op.outputs.front());
  if (!factors) return std::nullopt;
  const Access& out = op.outputs.front().target;
  for (const Affine& index : out.index)
    if (!index.plain_loop()) return std::nullopt;

  Matrices m;
  const auto input = [&](std::size_t side) -> const Access& {
    return op.inputs[static_cast<std::size_t>(m.inputs[side])];
  };
  // The columns are of the operand that has the innermost loop of the results that one has alone.
  m.inputs = {(*factors)[0], (*factors)[1]};
  for (auto index = out.index.rbegin(); index != out.index.rend(); ++index) {
    const LoopId l = *index->plain_loop();
    if (w.loop(l).extent == 1 || indexes(input(0), l) == indexes(input(1), l)) continue;
    if (indexes(input(0), l)) std::swap(m.inputs[0], m.inputs[1]);
    break;
  }
  for (const LoopId l : op.loops) {
    const bool left = indexes(input(0), l), right = indexes(input(1), l), in_out = indexes(out, l);
    if (left + right + in_out < 2) return std::nullopt;
    (left && right ? in_out ? m.batch : m.depth : left ? m.rows : m.columns).push_back(l);
  }
  const auto many = [&](const Loops& loops) {
    return std::ranges::any_of(loops, [&](LoopId l) { return w.loop(l).extent > 1; });
  };
  if (!many(m.rows) || !many(m.columns) || !many(m.depth)) return std::nullopt;
  const auto in_order_of = [&](Loops loops, const Access& a) {
    std::ranges::stable_sort(
        loops, [&](LoopId x, LoopId y) { return stride_of(w, a, x) > stride_of(w, a, y); });
    return loops;
  };
  m.batch = in_order_of(m.batch, out);
  std::array<bool, 2> windows = {};
  std::array<double, 2> elements = {};
  for (const std::size_t side : {0, 1}) {
    Loops own = side == 0 ? m.rows : m.columns;
    for (const Loops* more : {&m.batch, &m.depth})
      own.insert(own.end(), more->begin(), more->end());
    const Access& a = input(side);
    windows[side] = !reads_once(w, a, own);
    for (std::size_t d = 0; d < a.index.size(); ++d)
      windows[side] = windows[side] || !stays_inside(w, a.index[d], w.tensor(a.tensor).shape[d]);
    elements[side] = looked_by(w, std::move(own)).elements;
  }
  for (const std::size_t side : {0, 1})
    if (windows[side] && elements[side] > elements[1 - side]) return std::nullopt;
  m.windows = windows[0] || windows[1];
  // The depth in the order of one operand, rows and columns in the order of the results or of their
  // operand, so that the least is copied.
  double least = 0;
  std::optional<Matrices> best;
  for (const Access* rows_by : {&out, &input(0)})
    for (const Access* columns_by : {&out, &input(1)})
      for (const std::size_t depth_by : {1, 0}) {
        m.rows = in_order_of(m.rows, *rows_by);
        m.columns = in_order_of(m.columns, *columns_by);
        m.depth = in_order_of(m.depth, input(depth_by));
        m.moved = !follow(w, out, m.rows) || !follow(w, out, m.columns) ||
                  step_along(w, out, m.columns) != 1;
        double copied = m.moved ? elements_of(w, out) : 0;
        for (const std::size_t side : {0, 1}) {
          const Loops& own = side == 0 ? m.rows : m.columns;
          const Access& a = input(side);
          m.copied[side] = windows[side] || !follow(w, a, own) || !follow(w, a, m.depth) ||
                           (step_along(w, a, own) != 1 && step_along(w, a, m.depth) != 1);
          if (m.copied[side]) copied += elements[side];
        }
        if (!best || copied < least) least = copied, best = m;
      }
  if (!best->moved && !best->copied[0] && !best->copied[1]) return std::nullopt;
  Loops all = best->columns;
  all.insert(all.end(), best->depth.begin(), best->depth.end());
  best->turned = step_along(w, op.inputs[static_cast<std::size_t>(best->inputs[1])], all) == 1;
  return best;
}

Result<Workload> with_matrices(const Workload& w, std::string_view text) {
  WorkloadSpec spec = w.spec();
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names) {
    if (!to_matrices(w, rewrite::operator_named(w, name, "materialise-matrices:OP;OP")))
      return Reason{
          formatted("operator {} is no product of which an operand or the result lies "
                    "otherwise than a matrix",
                    name)};
  }
  std::vector<Operator> all;
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    Operator op = spec.operators[i];
    if (std::ranges::find(names, op.name) == names.end()) {
      all.push_back(std::move(op));
      continue;
    }
    const Matrices m = *to_matrices(w, OpId(i));
    const auto joined = [&](std::initializer_list<const Loops*> parts) {
      Loops loops = m.batch;
      for (const Loops* part : parts) loops.insert(loops.end(), part->begin(), part->end());
      return loops;
    };
    const std::array<Loops, 2> orders = {
        joined({&m.rows, &m.depth}),
        m.turned ? joined({&m.columns, &m.depth}) : joined({&m.depth, &m.columns})};
    // Inputs change their places where one is no longer read: by what they read.
    std::array<Access, 2> reads = {op.inputs[static_cast<std::size_t>(m.inputs[0])],
                                   op.inputs[static_cast<std::size_t>(m.inputs[1])]};
    for (const std::size_t side : {0, 1}) {
      if (!m.copied[side]) continue;
      const auto at =
          static_cast<std::size_t>(std::ranges::find(op.inputs, reads[side]) - op.inputs.begin());
      all.push_back(written_first(spec, op, at, looked_by(w, orders[side])));
      spec.operators.push_back(all.back());  // its name is taken
    }
    if (m.moved)
      add_moved(w, spec, all, std::move(op), joined({&m.rows, &m.columns}));
    else
      all.push_back(std::move(op));
  }
  spec.operators = std::move(all);
  return Workload::create(std::move(spec));
}

Result<Workload> with_operands(const Workload& w) {
  WorkloadSpec spec = w.spec();
  std::vector<Operator> all;
  for (std::size_t i = 0; i < w.operators().size(); ++i) {
    Operator op = spec.operators[i];
    if (is_product_of_gathers(w, OpId(i))) {
      const double points = static_cast<double>(w.operations(OpId(i)).value);
      for (std::size_t input = 0; input < op.inputs.size();) {
        const Looked looked = looked_up(spec, op, op.inputs[input]);
        // What indices are looked up by stays where it is, and so does what is read once.
        const bool whole = is_gather(op.inputs[input]) && looked.elements < points &&
                           rewrite::uses_of(op.outputs.front().value, static_cast<int>(input)) > 0;
        if (!whole) {
          ++input;
          continue;
        }
        all.push_back(written_first(spec, op, input, looked));
        spec.operators.push_back(all.back());  // its name is taken
        input = 0;
      }
    }
    all.push_back(std::move(op));
  }
  if (all.size() == w.operators().size())
    return Reason{"no sum of products reads what it looks up for several of its results"};
  spec.operators = std::move(all);
  return Workload::create(std::move(spec));
}

/// An input that reads the tensor of an earlier one with the same loops in another order.
std::optional<std::size_t> read_in_other_order(const Operator& op) {
  const auto loops_of = [](const Access& a) {
    Loops loops;
    for (const Affine& index : a.index) {
      const auto l = index.plain_loop();
      if (!l) return Loops();
      loops.push_back(*l);
    }
    return loops;
  };
  for (std::size_t later = 1; !op.running && later < op.inputs.size(); ++later)
    for (std::size_t i = 0; i < later; ++i) {
      if (op.inputs[i].tensor != op.inputs[later].tensor) continue;
      const Loops first = loops_of(op.inputs[i]), other = loops_of(op.inputs[later]);
      if (first != other && std::ranges::is_permutation(first, other)) return later;
    }
  return std::nullopt;
}

Result<Workload> with_orders(const Workload& w, std::string_view text) {
  const auto names = rewrite::split(text, ';');
  for (const std::string_view name : names)
    if (!read_in_other_order(w.op(rewrite::operator_named(w, name, "materialise-orders:OP;OP"))))
      return Reason{
          formatted("operator {} reads no tensor twice with its loops in two orders", name)};
  return rewrite::after_others(
      w, names,
      [&](WorkloadSpec& spec, OpId, Operator& op, const rewrite::WriteFirst& write_first) {
        while (const auto input = read_in_other_order(op)) {
          Loops loops = op.loops;
          std::erase_if(loops, [&](LoopId l) { return !indexes(op.inputs[*input], l); });
          write_first(written_first(spec, op, *input, looked_by(w, std::move(loops))));
        }
      });
}

}  // namespace

std::vector<OpId> readers_in_orders(const Workload& w) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (read_in_other_order(w.operators()[i])) found.emplace_back(i);
  return found;
}

Rewrite materialise_orders() {
  return {
      .name = "materialise-orders",
      .summary =
          "operators that read a tensor twice with its loops in two orders, as a matrix and its "
          "transpose, read one of them from a copy whose elements lie as they are read",
      .source = "packing of operands before a product: Goto and van de Geijn, ACM TOMS 34(3), 2008",
      .function = nullptr,
      .argument = "OP;OP",
      .with = with_orders};
}

std::vector<OpId> no_products_of_matrices(const Workload& w, bool windows) {
  std::vector<OpId> found;
  for (std::size_t i = 0; i < w.operators().size(); ++i)
    if (const auto m = to_matrices(w, OpId(i)); m && m->windows == windows) found.emplace_back(i);
  return found;
}

Rewrite materialise_matrices() {
  return {.name = "materialise-matrices",
          .summary =
              "products of which an operand or the result has loops of the rows, the columns "
              "or the depth apart from one another read copies that are matrices; "
              "results are brought to where they belong by an operator of their own",
          .source = "Springer and Bientinesi, ACM TOMS 44(3), 2018 (TTGT)",
          .function = nullptr,
          .argument = "OP;OP",
          .with = with_matrices};
}

Rewrite materialise_gathers() {
  return {
      .name = "materialise-gathers",
      .summary =
          "what a matrix product looks up is written by an operator of its own first, so that "
          "the product reads a plain matrix",
      .source = "packing of operands before a product: Goto and van de Geijn, ACM TOMS 34(3), 2008",
      .function = with_operands};
}

Rewrite materialise_patches() {
  return {
      .name = "materialise-patches",
      .summary =
          "what a matrix product reads in patches, as a convolution whose windows do not "
          "overlap, or through windows of both operands, as a transposed convolution, is written "
          "row by row by an operator of its own first",
      .source = "packing of operands before a product: Goto and van de Geijn, ACM TOMS 34(3), 2008",
      .function = with_patches};
}

}  // namespace tilewright
