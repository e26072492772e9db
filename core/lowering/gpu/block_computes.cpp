#include "core/lowering/gpu/block_computes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/lowering/checks.h"
#include "core/lowering/row_values.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

ProductRun run_of(const BlockLowering& block, NodeId compute, int left, int right, int write) {
  const ScheduleNode& n = block.program().kernel->node(compute);
  ProductRun p;
  p.left = block.buffer_of_input(n, left), p.right = block.buffer_of_input(n, right);
  p.result = n.writes[static_cast<std::size_t>(write)].buffer;
  const auto floats = [&](BufferId b) {
    return block.tile(b).form == BlockTile::Form::computed && !block.tile(b).narrow;
  };
  p.left_sums = block.tile(p.left).in_registers();
  p.left_tile = floats(p.left);
  p.right_tile = p.right.valid() && floats(p.right);
  p.result_tile = !block.tile(p.result).in_registers();
  return p;
}

/// The tiles that an operator on values in registers reads and writes.
void count_tiles(const BlockLowering& block, NodeId compute, PointsRun& p) {
  const Workload& w = *block.program().workload;
  const ScheduleNode& n = block.program().kernel->node(compute);
  const Operator& op = w.op(n.op);
  std::map<BufferId, const Access*> tiles;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    if (const BufferId b = buffer_of_input(n, static_cast<int>(i)); b.valid())
      tiles[b] = &op.inputs[i];
  for (const OutputUse& use : n.writes)
    tiles[use.buffer] = &op.outputs[static_cast<std::size_t>(use.output)].target;
  std::optional<LoopId> column;
  for (const auto& [b, access] : tiles) {
    const BlockTile& t = block.tile(b);
    if (!t.in_registers()) continue;
    p.elements = std::max(p.elements, static_cast<double>(round_up(t.rows, std::int64_t{16}) *
                                                          round_up(t.columns, std::int64_t{16})));
    if (t.form == BlockTile::Form::sums && t.column_dim >= 0)
      column = access->index[static_cast<std::size_t>(t.column_dim)].plain_loop();
  }
  for (const auto& [b, access] : tiles)
    if (!block.tile(b).in_registers())
      (column && !indexes(*access, *column) ? p.of_rows : p.of_elements) += 1;
}

}  // namespace

ProductRun product_run(const BlockLowering& block, NodeId compute, const BlockProduct& product,
                       const std::vector<std::int64_t>& most, double runs, double joins) {
  const OpId id = block.program().kernel->node(compute).op;
  const Operator& op = block.program().workload->op(id);
  const auto size = [&](int l) { return most[static_cast<std::size_t>(l)]; };
  ProductRun p = run_of(block, compute, product.left, product.right, product.write);
  p.runs = runs, p.joins = joins;
  p.rows = ceil_div(size(product.rows), std::int64_t{16});
  p.columns = 2 * ceil_div(size(product.columns), std::int64_t{16});
  p.deep = size(product.depth);
  p.depth = ceil_div(p.deep, std::int64_t{16});
  p.at_once = block.parts_of(product, most).at_once;
  const Access& left = op.inputs[static_cast<std::size_t>(product.left)];
  p.left_across = left.index.empty() || block.runs_along(id, left.index.back(), most) !=
                                            op.loops[static_cast<std::size_t>(product.depth)];
  return p;
}

ProductRun contraction_run(const BlockLowering& block, NodeId compute, const BlockContraction& c,
                           const std::vector<std::int64_t>& most, double runs, double joins) {
  const Workload& w = *block.program().workload;
  const Operator& op = w.op(block.program().kernel->node(compute).op);
  const auto points = [&](const std::vector<int>& group) {
    std::int64_t n = 1;
    for (int l : group) n *= most[static_cast<std::size_t>(l)];
    return n;
  };
  const auto loops = [](const std::vector<int>& group) {
    return std::max(1, static_cast<int>(group.size()));
  };
  ProductRun p = run_of(block, compute, c.left, c.right, c.write);
  p.runs = runs, p.joins = joins;
  p.contraction = {.rows = points(c.rows),
                   .columns = points(c.columns),
                   .products = points(c.products),
                   .depth = points(c.depth),
                   .turns = points(c.turns),
                   .row_loops = loops(c.rows),
                   .column_loops = loops(c.columns),
                   .depth_loops = loops(c.depth)};
  std::tie(p.contraction->high, p.contraction->wide) = block.contraction_blocks(c, most);
  for (const int input : {c.left, c.right})
    p.contraction->edges += can_leave(w, op, op.inputs[static_cast<std::size_t>(input)]);
  p.deep = p.contraction->depth * p.contraction->turns;
  p.rows = ceil_div(p.contraction->rows, std::int64_t{16});
  p.columns = 2 * ceil_div(p.contraction->columns, std::int64_t{16});
  p.depth = ceil_div(p.deep, std::int64_t{16});
  return p;
}

double beside_special(const Expr& e) {
  if (e.kind != Expr::Kind::call || is_short_power(e)) return 0;
  for (const auto& [name, more] : {std::pair("tanh", 16.0),
                                   {"erf", 22.0},
                                   {"gelu", 26.0},
                                   {"sigmoid", 6.0},
                                   {"log", 20.0},
                                   {"sin", 25.0},
                                   {"cos", 25.0},
                                   {"pow", 70.0}})
    if (e.function == name) return more;
  return 0;
}

void count_operations(const Expr& e, double& light, double& expensive) {
  for (const Expr& a : e.args) count_operations(a, light, expensive);
  if (e.kind != Expr::Kind::call) return;
  const ExprFunction* f = find_expr_function(e.function);
  (f != nullptr && f->light == 1 ? light : expensive) += 1;
  light += beside_special(e);
}

PointsRun points_run(BlockLowering& block, NodeId compute, const PointRanges& of, double points,
                     double runs, bool in_registers) {
  const Workload& w = *block.program().workload;
  const ScheduleNode& n = block.program().kernel->node(compute);
  const Operator& op = w.op(n.op);
  PointsRun p{.runs = runs,
              .points = points,
              .writes = static_cast<double>(n.writes.size()),
              .in_registers = in_registers};
  for (const Output& out : op.outputs) {
    count_operations(out.value, p.light, p.expensive);
    p.light += out.rescale ? 2 : 1;
  }
  p.reads = static_cast<double>(op.inputs.size());
  p.wide = w.dtype() == DType::f64;
  p.gathers = w.gathers(n.op);
  for (const Access& a : op.inputs) {
    p.narrow += size_of(w.tensor(a.tensor).dtype) == 2 ? 1 : 0;
    p.outside += can_leave(w, op, a) ? 1 : 0;
  }
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const bool sum = w.is_reduction(n.op, op.loops[l]);
    if (w.loop(op.loops[l]).extent % std::max<std::int64_t>(1, of.most[l]) != 0)
      (sum ? p.sum_edges : p.edges) = true;
    if (of.most[l] <= 1) continue;
    p.reduces = p.reduces || sum;
    (sum ? p.sum_loops : p.loops) += 1;
    if (sum) p.sum *= static_cast<double>(of.most[l]);
  }
  if (in_registers)
    count_tiles(block, compute, p);
  else
    p.way = block.points_of(compute, of);
  return p;
}

}  // namespace tilewright::lowering
