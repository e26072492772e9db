#include "core/lowering/gpu/block_computes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/lowering/checks.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

ProductRun run_of(const BlockLowering& block, NodeId compute, int left, int right, int write) {
  const ScheduleNode& n = block.program().kernel->node(compute);
  ProductRun p;
  p.left = block.buffer_of_input(n, left), p.right = block.buffer_of_input(n, right);
  p.result = n.writes[static_cast<std::size_t>(write)].buffer;
  const BlockTile& operand = block.tile(p.left);
  p.left_sums = operand.in_registers();
  p.left_tile = operand.form == BlockTile::Form::computed && !operand.narrow;
  p.result_tile = !block.tile(p.result).in_registers();
  return p;
}

/// Whether an access's neighbours along a loop are neighbours in its tile.
bool runs_along_rows(const Workload& w, const Access& a, BufferId b, LoopId loop) {
  if (!b.valid() || a.index.empty()) return false;
  const Affine& last = a.index.back();
  const auto has = [&](const Affine& i) {
    return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
  };
  return last.terms.size() == 1 && last.terms.front().loop == loop &&
         last.terms.front().coefficient == 1 && last.offset >= 0 &&
         last.offset + w.loop(loop).extent <= w.tensor(a.tensor).shape.back() &&
         std::none_of(a.index.begin(), a.index.end() - 1, has);
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
  for (const int input : {c.left, c.right})
    p.contraction->edges += can_leave(w, op, op.inputs[static_cast<std::size_t>(input)]);
  p.deep = p.contraction->depth * p.contraction->turns;
  p.rows = ceil_div(p.contraction->rows, std::int64_t{16});
  p.columns = 2 * ceil_div(p.contraction->columns, std::int64_t{16});
  p.depth = ceil_div(p.deep, std::int64_t{16});
  return p;
}

PointsRun points_run(const BlockLowering& block, NodeId compute,
                     const std::vector<std::int64_t>& most, double points, double runs) {
  const Workload& w = *block.program().workload;
  const ScheduleNode& n = block.program().kernel->node(compute);
  const Operator& op = w.op(n.op);
  PointsRun p{.runs = runs, .points = points, .writes = static_cast<double>(n.writes.size())};
  bool again = false;  // results are read before they are made
  for (const Output& out : op.outputs) {
    count_operations(out.value, p.light, p.expensive);
    p.light += out.rescale ? 2 : 1;
    again = again || out.rescale || names_outputs(out.value);
  }
  p.reads = static_cast<double>(op.inputs.size());
  p.wide = w.dtype() == DType::f64;
  p.gathers = w.gathers(n.op);
  for (const Access& a : op.inputs) p.narrow += size_of(w.tensor(a.tensor).dtype) == 2 ? 1 : 0;
  count_tiles(block, compute, p);
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const bool sum = w.is_reduction(n.op, op.loops[l]);
    if (w.loop(op.loops[l]).extent % std::max<std::int64_t>(1, most[l]) != 0) p.edges = true;
    if (most[l] <= 1) continue;
    p.reduces = p.reduces || sum;
    (sum ? p.sum_loops : p.loops) += 1;
    if (sum) p.sum *= static_cast<double>(most[l]);
  }
  const auto along = [&](std::size_t l) {
    double inputs = 0;
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      inputs +=
          runs_along_rows(w, op.inputs[i], buffer_of_input(n, static_cast<int>(i)), op.loops[l]);
    return inputs;
  };
  std::optional<std::size_t> strip;
  const auto whole = [&](std::size_t l) {
    return most[l] % kStripOfPoints == 0 && w.loop(op.loops[l]).extent % kStripOfPoints == 0;
  };
  for (std::size_t l = 0; l < op.loops.size() && !p.wide; ++l) {
    if (!whole(l) || w.is_reduction(n.op, op.loops[l]) != p.reduces) continue;
    if (strip && most[l] <= most[*strip]) continue;
    bool can = along(l) > 0;
    if (!p.reduces) {  // the results' columns
      can = !again;
      for (const OutputUse& use : n.writes) {
        const Output& out = op.outputs[static_cast<std::size_t>(use.output)];
        can = can && out.combine == Combine::assign &&
              out.target.index.back().plain_loop() == op.loops[l] &&
              runs_along_rows(w, out.target, use.buffer, op.loops[l]);
      }
    }
    if (can) strip = l;
  }
  p.strip = strip.has_value();
  p.in_strips = strip ? along(*strip) : 0;
  p.blocks = {{.own = p.reads}};
  if (p.reduces && strip && !again && n.writes.size() == 1)
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      if (w.is_reduction(n.op, op.loops[l])) continue;
      PointBlock b{.loop = static_cast<int>(l)};
      for (std::size_t i = 0; i < op.inputs.size(); ++i)
        (!indexes(op.inputs[i], op.loops[l]) &&
                 runs_along_rows(w, op.inputs[i], buffer_of_input(n, static_cast<int>(i)),
                                 op.loops[*strip])
             ? b.alike
             : b.own) += 1;
      for (b.block = 2; b.block <= 8; ++b.block)
        if (most[l] % b.block == 0 && b.alike > 0) {
          b.some = w.loop(op.loops[l]).extent % b.block == 0 ? 1 : 1.2;
          p.blocks.push_back(b);
        }
    }
  if (p.sum > 1)
    p.shares = share_points(static_cast<std::int64_t>(p.points / p.sum),
                            static_cast<std::int64_t>(p.sum), p.strip ? kStripOfPoints : 1,
                            1 + p.light + p.expensive, block.program().threads(), p.blocks);
  return p;
}

}  // namespace tilewright::lowering
