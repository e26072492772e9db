#include "core/lowering/gpu/block_computes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/lowering/checks.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
BufferId BlockComputes::buffer_read(const ScheduleNode& n, int input) const {
  for (const InputUse& use : n.reads)
    if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
  return {};
}

/// As the lowering says it (block_sums.cpp): no loop of several iterations moves a dimension
/// whose rows have others between them.
bool BlockComputes::rows_are_neighbours(const ScheduleNode& n,
                                        const std::vector<std::int64_t>& extents) const {
  const Operator& op = w_.op(n.op);
  const auto of = [&](const Access& a, BufferId b) {
    if (!b.valid()) return true;
    const std::vector<std::int64_t>& most = tiles_[b.index()].extents;
    std::int64_t stride = 1;
    for (std::size_t d = most.size(); d-- > 1;) {
      if (stride > 1 && std::ranges::any_of(a.index[d - 1].terms, [&](const Term& t) {
            return extents[static_cast<std::size_t>(w_.local_index(n.op, t.loop))] > 1;
          }))
        return false;
      stride *= most[d - 1];
    }
    return true;
  };
  for (const OutputUse& use : n.writes)
    if (!of(op.outputs[static_cast<std::size_t>(use.output)].target, use.buffer)) return false;
  for (std::size_t i = 0; i < op.inputs.size(); ++i)
    if (!of(op.inputs[i], buffer_read(n, static_cast<int>(i)))) return false;
  return true;
}

/// Whether a tile's rows and columns are those of a product's operand or result, in whole blocks
/// where it is a part of the tile: as the emitter asks (operand_fits in emit_product.cpp).
bool BlockComputes::fits(const Operator& op, const Access& a, BufferId b, std::size_t outer,
                         std::size_t inner, bool in_blocks,
                         const std::vector<std::int64_t>& extents) const {
  if (!b.valid()) return false;
  if (k_.buffer(b).sliding) return false;
  const std::vector<std::int64_t>& most = tiles_[b.index()].extents;
  int row_dims = 0;
  for (std::size_t d = 0; d < a.index.size() && d < most.size(); ++d) {
    // The one loop of several iterations; others stand still.
    std::optional<std::size_t> loop;
    bool several = false;
    for (std::size_t l = 0; l < op.loops.size(); ++l)
      for (const Term& t : a.index[d].terms)
        if (t.loop == op.loops[l] && (extents[l] > 1 || a.index[d].terms.size() == 1)) {
          several = several || loop || t.coefficient != 1;
          loop = l;
        }
    const bool mine = loop && !several && (*loop == outer || *loop == inner);
    const bool last = d + 1 == a.index.size();
    if (!mine) {
      if (most[d] > 1) return false;
      continue;
    }
    if (!last && ++row_dims > 1) return false;
    const std::int64_t here = extents[*loop];
    if (here < most[d] && here % 16 != 0 && !(*loop == inner && !in_blocks)) return false;
  }
  return true;
}

std::optional<ProductRun> BlockComputes::product(const ScheduleNode& n, const OutputUse& use,
                                                 const std::vector<std::int64_t>& extents,
                                                 double runs) const {
  const Operator& op = w_.op(n.op);
  if (op.inputs.size() < 2 || w_.gathers(n.op)) return std::nullopt;
  const Output& made = op.outputs[static_cast<std::size_t>(use.output)];
  const auto factors = factors_of(made);
  if (!factors || made.target.index.empty()) return std::nullopt;
  int left = (*factors)[0], right = (*factors)[1];
  const auto access = [&](int i) -> const Access& {
    return op.inputs[static_cast<std::size_t>(i)];
  };
  // By mma operands of 16 bits, else floats too; never anything else.
  const DType type = w_.tensor(access(left).tensor).dtype;
  const bool halves = w_.dtype() == DType::f16 || w_.dtype() == DType::bf16;
  if (type != w_.tensor(access(right).tensor).dtype || w_.dtype() == DType::f64 ||
      (type != DType::f16 && type != DType::bf16 && (halves || type != DType::f32)))
    return std::nullopt;
  const Access& out = made.target;
  // Columns run along the result's last dimension.
  for (const Term& t : out.index.back().terms)
    if (indexes(access(left), t.loop) && !indexes(access(right), t.loop)) {
      std::swap(left, right);
      break;
    }
  const Access &a = access(left), &b = access(right);
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  std::array<int, 4> loops{};
  std::array<std::optional<std::size_t>, 3> most;  // of rows, columns, depth: the largest
  std::int64_t deepest = 1;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const bool in_a = indexes(a, op.loops[l]), in_b = indexes(b, op.loops[l]),
               in_out = indexes(out, op.loops[l]);
    const std::size_t role = in_out && in_a && !in_b   ? 0
                             : in_out && in_b && !in_a ? 1
                             : !in_out                 ? 2
                                                       : 3;
    sizes[role] *= extents[l];
    loops[role] += extents[l] > 1 ? 1 : 0;
    if (role == 2) deepest = std::max(deepest, extents[l]);
    if (role == 2 && !(in_a && in_b)) continue;
    if (role == 1 && out.index.back().plain_loop() != op.loops[l]) continue;
    if (role < 3 && (!most[role] || extents[l] > extents[*most[role]])) most[role] = l;
  }
  const bool edges[] = {can_leave(w_, op, a), can_leave(w_, op, b)};
  const BufferId left_tile = buffer_read(n, left), right_tile = buffer_read(n, right);
  const bool whole = loops[0] <= 1 && loops[1] <= 1 && loops[2] <= 1 && loops[3] == 0 && most[0] &&
                     most[1] && most[2] && !edges[0] && !edges[1] &&
                     (!made.rescale || n.writes.size() == 1) && rows_are_neighbours(n, extents) &&
                     fits(op, a, left_tile, *most[0], *most[2], halves, extents) &&
                     fits(op, b, right_tile, *most[1], *most[2], halves, extents) &&
                     fits(op, out, use.buffer, *most[0], *most[1], true, extents);
  ProductRun p;
  p.runs = runs * static_cast<double>(whole ? sizes[3] : 1);
  p.rows = ceil_div(sizes[0], std::int64_t{16});
  p.columns = 2 * ceil_div(sizes[1], std::int64_t{16});
  p.depth = ceil_div(sizes[2], std::int64_t{16});
  if (!whole) {
    // So narrow that most of a block of 16 x 8 would be left unused: point by point.
    if (sizes[2] == 1 || made.rescale ||
        8 * sizes[0] * sizes[1] <
            ceil_div(sizes[0], std::int64_t{16}) * ceil_div(sizes[1], std::int64_t{8}) * 16 * 8)
      return std::nullopt;
    const bool apart = deepest >= 12 || !halves;  // one loop is the depth, others are turns
    p.contraction = {.rows = sizes[0],
                     .columns = sizes[1],
                     .products = sizes[3],
                     .depth = apart ? deepest : sizes[2],
                     .turns = apart ? sizes[2] / deepest : 1,
                     .row_loops = std::max(1, loops[0]),
                     .column_loops = std::max(1, loops[1]),
                     .depth_loops = apart ? 1 : std::max(1, loops[2]),
                     .edges = edges[0] + edges[1]};
  }
  p.left_across = a.index.empty() || std::ranges::all_of(a.index.back().terms, [&](const Term& t) {
                    return indexes(out, t.loop);
                  });
  p.left = left_tile;
  p.right = right_tile;
  p.result = use.buffer;
  p.joins = runs;
  p.points = sizes[0] * sizes[1] * sizes[3];
  p.deep = sizes[2];
  return p;
}

/// Whether an access's neighbours along a loop are neighbours in its tile.
bool BlockComputes::runs_along_rows(const Access& a, BufferId b, LoopId loop) const {
  if (!b.valid() || a.index.empty()) return false;
  const Affine& last = a.index.back();
  const auto has = [&](const Affine& i) {
    return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
  };
  return last.terms.size() == 1 && last.terms.front().loop == loop &&
         last.terms.front().coefficient == 1 && last.offset >= 0 &&
         last.offset + w_.loop(loop).extent <= w_.tensor(a.tensor).shape.back() &&
         std::none_of(a.index.begin(), a.index.end() - 1, has);
}

PointsRun BlockComputes::points(const ScheduleNode& n, const std::vector<std::int64_t>& extents,
                                double points, double runs) const {
  const Operator& op = w_.op(n.op);
  PointsRun p{.runs = runs, .points = points, .writes = static_cast<double>(n.writes.size())};
  bool again = false;  // results are read before they are made
  for (const Output& out : op.outputs) {
    count_operations(out.value, p.light, p.expensive);
    p.light += out.rescale ? 2 : 1;
    again = again || out.rescale || names_outputs(out.value);
  }
  p.reads = static_cast<double>(op.inputs.size());
  p.wide = w_.dtype() == DType::f64;
  p.gathers = w_.gathers(n.op);
  for (const Access& a : op.inputs) p.narrow += size_of(w_.tensor(a.tensor).dtype) == 2 ? 1 : 0;
  const auto touched = [&](const Access& a) {
    std::int64_t all = 1;
    for (const Affine& i : a.index) {
      std::int64_t here = 1;
      for (const Term& t : i.terms)
        here += std::abs(t.coefficient) *
                (extents[static_cast<std::size_t>(w_.local_index(n.op, t.loop))] - 1);
      all *= here;
    }
    return all;
  };
  for (const InputUse& use : n.reads)
    if (use.buffer.valid()) {
      p.touched.push_back(use.buffer);
      p.volumes.push_back(touched(op.inputs[static_cast<std::size_t>(use.inputs.front())]));
      p.loaded += k_.buffers[use.buffer.index()].role == BufferRole::input;
    }
  for (const OutputUse& use : n.writes) {
    p.touched.push_back(use.buffer);
    p.volumes.push_back(touched(op.outputs[static_cast<std::size_t>(use.output)].target));
  }
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const bool sum = w_.is_reduction(n.op, op.loops[l]);
    if (w_.loop(op.loops[l]).extent % std::max<std::int64_t>(1, extents[l]) != 0) p.edges = true;
    if (extents[l] <= 1) continue;
    p.reduces = p.reduces || sum;
    (sum ? p.sum_loops : p.loops) += 1;
    if (sum) p.sum *= static_cast<double>(extents[l]);
  }
  const auto along = [&](std::size_t l) {
    double inputs = 0;
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      inputs += runs_along_rows(op.inputs[i], buffer_read(n, static_cast<int>(i)), op.loops[l]);
    return inputs;
  };
  std::optional<std::size_t> strip;
  const auto whole = [&](std::size_t l) {
    return extents[l] % kStripOfPoints == 0 && w_.loop(op.loops[l]).extent % kStripOfPoints == 0;
  };
  for (std::size_t l = 0; l < op.loops.size() && !p.wide; ++l) {
    if (!whole(l) || w_.is_reduction(n.op, op.loops[l]) != p.reduces) continue;
    if (strip && extents[l] <= extents[*strip]) continue;
    bool can = along(l) > 0;
    if (!p.reduces) {  // the results' columns
      can = !again;
      for (const OutputUse& use : n.writes) {
        const Output& out = op.outputs[static_cast<std::size_t>(use.output)];
        can = can && out.combine == Combine::assign &&
              out.target.index.back().plain_loop() == op.loops[l] &&
              runs_along_rows(out.target, use.buffer, op.loops[l]);
      }
    }
    if (can) strip = l;
  }
  p.strip = strip.has_value();
  p.in_strips = strip ? along(*strip) : 0;
  p.blocks = {{.own = p.reads}};
  if (p.reduces && strip && !again && n.writes.size() == 1)
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      if (w_.is_reduction(n.op, op.loops[l])) continue;
      PointBlock block{.loop = static_cast<int>(l)};
      for (std::size_t i = 0; i < op.inputs.size(); ++i)
        (!indexes(op.inputs[i], op.loops[l]) &&
                 runs_along_rows(op.inputs[i], buffer_read(n, static_cast<int>(i)),
                                 op.loops[*strip])
             ? block.alike
             : block.own) += 1;
      for (block.block = 2; block.block <= 8; ++block.block)
        if (extents[l] % block.block == 0 && block.alike > 0) {
          block.some = w_.loop(op.loops[l]).extent % block.block == 0 ? 1 : 1.2;
          p.blocks.push_back(block);
        }
    }
  return p;
}

}  // namespace tilewright::lowering
