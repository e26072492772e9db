#include "core/workload/matrix_product.h"

#include <algorithm>
#include <optional>
#include <string>

namespace tilewright {
namespace {

bool has(const Access& a, LoopId l) {
  return std::ranges::any_of(a.index, [&](const Affine& i) { return i.plain_loop() == l; });
}

/// Whether no tensor has the loop in two dimensions.
bool is_once(const Operator& op, LoopId l) {
  const auto once = [&](const Access& a) {
    return std::ranges::count_if(a.index, [&](const Affine& i) { return i.plain_loop() == l; }) < 2;
  };
  return std::ranges::all_of(op.inputs, once) &&
         std::ranges::all_of(op.outputs, once, &Output::target);
}

bool ends_in(const Access& a, LoopId one, LoopId other) {
  const auto last = a.index.empty() ? std::nullopt : a.index.back().plain_loop();
  return last == one || last == other;
}

}  // namespace

Result<MatrixProduct> matrix_product(const Workload& w, OpId id,
                                     const std::function<std::int64_t(LoopId)>& size) {
  const Operator& op = w.op(id);
  const auto no = [&](const std::string& why) { return Reason{op.name + " " + why}; };
  if (!w.is_contraction(id) || op.inputs.size() != 2 || op.outputs.size() != 1)
    return no("is not a product of two tensors");
  const Access& target = op.outputs.front().target;
  for (const Access& a : op.inputs)
    for (const Affine& i : a.index)
      if (!i.plain_loop()) return no("reads a tensor through more than a loop");
  MatrixProduct p{.op = id};
  const auto last = target.index.empty() ? std::nullopt : target.index.back().plain_loop();
  if (last && has(op.inputs[0], *last) && !has(op.inputs[1], *last)) std::swap(p.left, p.right);
  const Access& left = op.inputs[static_cast<std::size_t>(p.left)];
  const Access& right = op.inputs[static_cast<std::size_t>(p.right)];
  std::vector<LoopId> rows, columns, depths;
  for (LoopId l : op.loops) {
    if (!is_once(op, l)) continue;
    const bool x = has(left, l), y = has(right, l);
    if (w.is_reduction(id, l)) {
      if (x && y) depths.push_back(l);
    } else if (x != y) {
      (x ? rows : columns).push_back(l);
    }
  }
  if (depths.empty()) return no("sums over a loop that one input does not have");
  if (rows.empty() || columns.empty()) return no("has fewer loops than a matrix product");
  double most = -1;
  for (LoopId r : rows)
    for (LoopId c : columns)
      for (LoopId d : depths) {
        const bool in_rows = last == c && r != c && ends_in(left, r, d) && ends_in(right, c, d);
        const auto of = [&](LoopId l) {
          return static_cast<double>(size ? size(l) : w.loop(l).extent);
        };
        const double its = of(r) * of(c) * of(d);
        if (p.in_rows && !in_rows) continue;
        if (in_rows == p.in_rows && its <= most) continue;
        most = its;
        p.rows = r, p.columns = c, p.depth = d, p.in_rows = in_rows;
      }
  if (!p.in_rows && rows.size() * columns.size() * depths.size() > 1)
    return no("has more loops than a matrix product");
  for (LoopId l : op.loops)
    if (l != p.rows && l != p.columns && l != p.depth)
      (w.is_reduction(id, l) ? p.sums : p.batch).push_back(l);
  return p;
}

}  // namespace tilewright
