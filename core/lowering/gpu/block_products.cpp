// Which computes are products that a micro-kernel takes: matrix products, and contractions whose
// rows, columns or depth are several loops.
#include <algorithm>

#include "core/lowering/checks.h"
#include "core/lowering/gpu/block_lowering.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/workload/access.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kLeastUsed = 8;   ///< an eighth of a product's blocks of 16 x 16
constexpr std::int64_t kFullDepth = 12;  ///< of a block of 16: from here on one loop is the depth

bool whole(DType type) { return type == DType::i8 || type == DType::i32; }

}  // namespace

/// Whether an index lies outside its dimension for some points.
bool leaves(const Workload& w, const Access& a, std::size_t d) {
  std::int64_t least = a.index[d].offset, most = least;
  for (const Term& t : a.index[d].terms)
    (t.coefficient < 0 ? least : most) += t.coefficient * (w.loop(t.loop).extent - 1);
  return least < 0 || most >= w.tensor(a.tensor).shape[d];
}
/// Dimensions whose index, where it may leave the tensor, the depth has a part in: whether an
/// element is there is known for a row or column and a point of the depth together.
std::vector<std::size_t> checked_together(const Workload& w, const Operator& op, const Access& a,
                                          const std::vector<int>& depth) {
  std::vector<std::size_t> found;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (leaves(w, a, d) && std::ranges::any_of(depth, [&](int l) {
          return indexes(a.index[d], op.loops[static_cast<std::size_t>(l)]);
        }))
      found.push_back(d);
  return found;
}

void BlockLowering::note_compute(NodeId id, std::span<const std::int64_t> most, bool fits) {
  mosts_[id].assign(most.begin(), most.end());
  if (fits)
    program_.products[id] = as_products(id, most);
  else
    program_.products.erase(id);
  contracted_[id] = 0;
  for (const BlockContraction& c : contractions(id, most)) {
    const auto points = [&](const std::vector<int>& group) {
      std::int64_t n = 1;
      for (int l : group) n *= most[static_cast<std::size_t>(l)];
      return n;
    };
    contracted_[id] +=
        ceil_div(points(c.rows), 16) * ceil_div(points(c.columns), 16) * points(c.products);
  }
}

const std::vector<BlockProduct>* BlockLowering::products(NodeId compute) const {
  const auto of = program_.products.find(compute);
  return of == program_.products.end() ? nullptr : &of->second;
}

const Output& BlockLowering::output_of(NodeId compute, int write) const {
  const ScheduleNode& n = k_.node(compute);
  return workload_.op(n.op)
      .outputs[static_cast<std::size_t>(n.writes[static_cast<std::size_t>(write)].output)];
}

/// The loop that an index runs along, one step an iteration, other loops in it standing still: k in
/// 64 * p + k within one p.
std::optional<LoopId> BlockLowering::runs_along(OpId id, const Affine& index,
                                                std::span<const std::int64_t> most) const {
  if (const auto plain = index.plain_loop()) return plain;
  std::optional<LoopId> found;
  for (const Term& t : index.terms) {
    if (most[static_cast<std::size_t>(workload_.local_index(id, t.loop))] == 1) continue;
    if (found || t.coefficient != 1) return std::nullopt;
    found = t.loop;
  }
  return found;
}

/// One output as a matrix product, with the loops that are largest; nothing where it is none.
std::optional<BlockProduct> BlockLowering::as_product(NodeId id, int write,
                                                      std::span<const std::int64_t> most) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  if (f64_ || choices_.tight || workload_.gathers(n.op)) return std::nullopt;
  const Output& out = output_of(id, write);
  if (out.rescale && n.writes.size() > 1) return std::nullopt;
  const auto factors = factors_of(out);
  if (!factors || out.target.index.empty()) return std::nullopt;
  const auto size = [&](int l) { return most[static_cast<std::size_t>(l)]; };
  for (const std::size_t left : {0, 1}) {
    BlockProduct p{.write = write, .left = (*factors)[left], .right = (*factors)[1 - left]};
    const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
    if (can_leave(workload_, op, a) || can_leave(workload_, op, b)) continue;
    if (whole(workload_.tensor(a.tensor).dtype) || whole(workload_.tensor(b.tensor).dtype))
      return std::nullopt;
    const auto pick = [&](int& slot, std::size_t l) {
      if (slot < 0 || most[l] > size(slot)) slot = static_cast<int>(l);
    };
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const LoopId loop = op.loops[l];
      const bool in_a = indexes(a, loop), in_b = indexes(b, loop),
                 in_out = indexes(out.target, loop);
      if (in_out && in_a && !in_b) pick(p.rows, l);
      if (in_out && in_b && !in_a && out.target.index.back().plain_loop() == loop)
        pick(p.columns, l);
      if (!in_out && in_a && in_b) pick(p.depth, l);
    }
    if (p.rows < 0 || p.columns < 0 || p.depth < 0) continue;
    bool only_these = true;
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const int at = static_cast<int>(l);
      if (at != p.rows && at != p.columns && at != p.depth && most[l] > 1) only_these = false;
    }
    const auto plain = [&](const Access& x, int l) {
      return std::ranges::any_of(x.index, [&](const Affine& i) {
        return runs_along(n.op, i, most) == op.loops[static_cast<std::size_t>(l)];
      });
    };
    if (only_these && plain(a, p.rows) && plain(a, p.depth) && plain(b, p.columns) &&
        plain(b, p.depth) && plain(out.target, p.rows))
      return p;
  }
  return std::nullopt;
}

/// Every output as a product of the same rows, columns and depth; nothing where one is none.
std::vector<BlockProduct> BlockLowering::as_products(NodeId id,
                                                     std::span<const std::int64_t> most) const {
  std::vector<BlockProduct> all;
  for (std::size_t w = 0; w < k_.node(id).writes.size(); ++w) {
    const auto p = as_product(id, static_cast<int>(w), most);
    if (!p || (!all.empty() && (p->rows != all.front().rows || p->columns != all.front().columns ||
                                p->depth != all.front().depth)))
      return {};
    all.push_back(*p);
  }
  return all;
}

/// Both operands of a type that the micro-kernel takes. Without fragments, operands are elements in
/// shared memory, and sums are not rescaled in between.
bool BlockLowering::operands_suit(NodeId id, const BlockProduct& p) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const auto type = [&](int input) {
    return workload_.tensor(op.inputs[static_cast<std::size_t>(input)].tensor).dtype;
  };
  if (type(p.left) != type(p.right) || !micro_kernel().takes(type(p.left))) return false;
  return micro_kernel().fragments ||
         (tile(buffer_of_input(n, p.right)).form != BlockTile::Form::computed &&
          !output_of(id, p.write).rescale);
}

bool BlockLowering::product_fits(NodeId id, const BlockProduct& p,
                                 std::span<const std::int64_t> most, const BoxesInTiles& boxes) {
  const bool exact_depth = !micro_kernel().blocks;
  return operands_suit(id, p) && operand_fits(id, p, p.left, exact_depth, most, boxes) &&
         operand_fits(id, p, p.right, exact_depth, most, boxes) &&
         operand_fits(id, p, std::nullopt, false, most, boxes);
}

/// Whether the box that one operand or the result takes of a tile consists of whole blocks of 16,
/// or is all there is. Notes how large the tile must be for whole blocks.
bool BlockLowering::operand_fits(NodeId id, const BlockProduct& product, std::optional<int> input,
                                 bool exact_depth, std::span<const std::int64_t> most,
                                 const BoxesInTiles& boxes) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Access& a =
      input ? op.inputs[static_cast<std::size_t>(*input)] : output_of(id, product.write).target;
  const BufferId b =
      input ? buffer_of_input(n, *input) : n.writes[static_cast<std::size_t>(product.write)].buffer;
  const int outer = input && *input == product.right ? product.columns : product.rows,
            depth = input ? product.depth : product.columns;
  if (tile(b).in_registers()) return true;
  if (buffer(b).sliding) return false;  // what lies beyond it is an older tile's
  const LoopId loops[] = {op.loops[static_cast<std::size_t>(outer)],
                          op.loops[static_cast<std::size_t>(depth)]};
  if (input && runs_along(n.op, a.index.back(), most) == loops[1])
    (*input == product.left ? at(b).left_along : at(b).right_along) = true;
  const std::vector<BoxInTile> in_tile = boxes(input);
  std::int64_t need_rows = tile(b).need_rows, need_columns = tile(b).need_columns;
  // Sums in registers are an operand of whole blocks, whatever the micro-kernel.
  const bool to_the_point =
      exact_depth && input && tile(buffer_of_input(n, product.left)).form != BlockTile::Form::sums;
  const std::int64_t rows = most[static_cast<std::size_t>(product.rows)],
                     columns = most[static_cast<std::size_t>(product.columns)];
  // Tiles of which most would be padding are left as they are where loops, be it of one turn, cut
  // them: measured on an H200, of which no recording is kept.
  const bool narrow = kLeastUsed * rows * columns < round_up(rows, 16) * round_up(columns, 16);
  int row_dims = 0;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = runs_along(n.op, a.index[d], most);
    const bool mine = loop && (*loop == loops[0] || *loop == loops[1]);
    const bool last = d + 1 == a.index.size();
    const BoxInTile& x = in_tile[d];
    if (!mine) {
      if (x.tile > 1) return false;
      continue;
    }
    if (!last && ++row_dims > 1) return false;
    const bool along_depth = *loop == loops[1] && input;
    const bool part = !x.covers || (narrow && cut_below_tile(id, b, *loop));
    if (part && (x.box % 16 != 0 || x.apart % 16 != 0) && !(along_depth && exact_depth))
      return false;
    // The last box begins at the last multiple of what all begin at.
    const std::int64_t each = x.covers ? x.tile : x.apart;
    const std::int64_t need =
        along_depth && to_the_point ? x.tile : (x.tile - 1) / each * each + round_up(x.box, 16);
    std::int64_t& target = last ? need_columns : need_rows;
    target = std::max(target, need);
  }
  if (measuring_) at(b).need_rows = need_rows, at(b).need_columns = need_columns;
  return true;
}

/// Whether a loop between a tile and a compute cuts that loop of the operator.
bool BlockLowering::cut_below_tile(NodeId compute, BufferId b, LoopId loop) const {
  const OpId op = k_.node(compute).op;
  const auto is_around = [&](NodeId scope) {
    for (NodeId n = compute; n.valid(); n = k_.node(n).parent)
      if (n == scope) return true;
    return false;
  };
  NodeId scope = buffer(b).fixed_at;
  if (buffer(b).role == BufferRole::input)
    for (const ScheduleNode& n : k_.nodes)
      if (n.kind == NodeKind::load && n.buffer == b && is_around(n.parent)) scope = n.parent;
  if (!scope.valid()) return false;  // the tile is what the compute writes
  for (NodeId n = k_.node(compute).parent; n.valid() && n != scope; n = k_.node(n).parent)
    if (std::ranges::any_of(k_.node(n).cuts, [&](const OpLoop& cut) {
          return cut.op == op &&
                 workload_.op(op).loops[static_cast<std::size_t>(cut.local)] == loop;
        }))
      return true;
  return false;
}

/// One output as a contraction that the micro-kernel takes; nothing where it is none, or so narrow
/// that it would leave most of a block of 16 x 8 unused.
std::optional<BlockContraction> BlockLowering::as_contraction(
    NodeId id, int write, std::span<const std::int64_t> most) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const OutputUse& use = n.writes[static_cast<std::size_t>(write)];
  const Output& out = op.outputs[static_cast<std::size_t>(use.output)];
  const auto factors = factors_of(out);
  if (f64_ || choices_.tight || !micro_kernel().elements || workload_.gathers(n.op) ||
      out.rescale || !factors || out.target.index.empty())
    return std::nullopt;
  BlockContraction c{.write = write, .left = (*factors)[0], .right = (*factors)[1]};
  const auto access = [&](int input) -> const Access& {
    return op.inputs[static_cast<std::size_t>(input)];
  };
  // Neighbours at home are columns.
  for (const Term& t : out.target.index.back().terms)
    if (!indexes(access(c.right), t.loop) && indexes(access(c.left), t.loop)) {
      std::swap(c.left, c.right);
      break;
    }
  const DType type = workload_.tensor(access(c.left).tensor).dtype;
  if (workload_.tensor(access(c.right).tensor).dtype != type || !micro_kernel().takes(type))
    return std::nullopt;
  std::int64_t rows = 1, columns = 1;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const int at = static_cast<int>(l);
    if (most[l] == 1) continue;
    const LoopId loop = op.loops[l];
    const bool left = indexes(access(c.left), loop), right = indexes(access(c.right), loop);
    if (!indexes(out.target, loop)) {
      c.depth.push_back(at);
    } else if (left && right) {
      c.products.push_back(at);
    } else if (right) {
      c.columns.push_back(at);
      columns *= most[l];
    } else {
      c.rows.push_back(at);
      rows *= most[l];
    }
  }
  if (c.depth.empty() || 8 * rows * columns < ceil_div(rows, 16) * ceil_div(columns, 8) * 16 * 8)
    return std::nullopt;
  // One long loop fills the depth's blocks; short ones fill them together.
  const auto longest = std::ranges::max_element(
      c.depth, {}, [&](int l) { return most[static_cast<std::size_t>(l)]; });
  if (most[static_cast<std::size_t>(*longest)] >= kFullDepth || !micro_kernel().blocks) {
    for (int l : c.depth)
      if (l != *longest) c.turns.push_back(l);
    c.depth = {*longest};
  }
  for (int input : {c.left, c.right})  // At has room for two of them
    if (checked_together(workload_, op, access(input), c.depth).size() > 2) return std::nullopt;
  return c;
}

BlockStep BlockLowering::way_of(NodeId compute, std::span<const std::int64_t> most) const {
  using Method = BlockStep::Method;
  BlockStep way{.kind = BlockStep::Kind::compute, .node = compute};
  const auto largest = [&](const std::vector<int>& rows, const std::vector<int>& columns,
                           const std::vector<int>& depth) {
    const std::vector<std::int64_t>& all = mosts_.at(compute);
    const auto points = [&](const std::vector<int>& group) {
      std::int64_t n = 1;
      for (int l : group) n *= all[static_cast<std::size_t>(l)];
      return n;
    };
    way.micro_kernel = micro_kernel().name;
    way.rows = points(rows), way.columns = points(columns), way.depth = points(depth);
  };
  if (const auto* all = products(compute)) {
    way.method = Method::product;
    largest({all->back().rows}, {all->back().columns}, {all->back().depth});
  } else if (fragment_op(compute)) {
    way.method = Method::fragments;
  } else if (const auto several = contractions(compute, most); !several.empty()) {
    way.method = Method::contraction;
    largest(several.back().rows, several.back().columns, several.back().depth);
  }
  return way;
}

BlockLowering::Parts BlockLowering::parts_of(const BlockProduct& p,
                                             std::span<const std::int64_t> most) const {
  Parts parts{.rows = ceil_div(most[static_cast<std::size_t>(p.rows)], 16) / program_.warp_rows,
              .columns = ceil_div(most[static_cast<std::size_t>(p.columns)], 16) * 2 /
                         program_.warp_columns};
  for (std::int64_t c = 2; c <= parts.columns; c += 2)
    if (parts.columns % c == 0 && parts.rows * c * 4 <= part_floats_) parts.at_once = c;
  return parts;
}

/// As large ones as give every warp one.
std::pair<std::int64_t, std::int64_t> BlockLowering::contraction_blocks(
    const BlockContraction& c, std::span<const std::int64_t> most) const {
  const auto points = [&](const std::vector<int>& group) {
    std::int64_t n = 1;
    for (int l : group) n *= most[static_cast<std::size_t>(l)];
    return n;
  };
  for (const auto& [m, w] : {std::pair<std::int64_t, std::int64_t>{2, 4}, {1, 4}, {2, 2}, {1, 2}})
    if (ceil_div(points(c.rows), 16) >= m && ceil_div(points(c.columns), 8) >= w &&
        ceil_div(points(c.rows), 16 * m) * ceil_div(points(c.columns), 8 * w) *
                points(c.products) >=
            program_.threads() / 32)
      return {m, w};
  return {1, micro_kernel().fours ? 2 : 1};
}

/// Every output of a compute as a contraction, or none of them.
std::vector<BlockContraction> BlockLowering::contractions(
    NodeId id, std::span<const std::int64_t> most) const {
  std::vector<BlockContraction> all;
  const std::size_t writes = k_.node(id).writes.size();
  for (std::size_t w = 0; w < writes; ++w)
    if (auto c = as_contraction(id, static_cast<int>(w), most)) all.push_back(std::move(*c));
  if (all.size() != writes) all.clear();
  return all;
}

}  // namespace tilewright::lowering
