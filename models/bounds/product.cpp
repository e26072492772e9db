#include "models/bounds/product.h"

#include <algorithm>

namespace tilewright::bounds {
namespace {

bool has(const std::vector<LoopId>& loops, LoopId l) {
  return std::ranges::find(loops, l) != loops.end();
}

/// What subscripts touch of a tensor while their loops run.
struct Touched {
  std::vector<LoopId> loops;
  double inside = 1;    ///< combinations of the loops with an element inside the tensor
  double elements = 1;  ///< different ones
  double most = 1;      ///< combinations that have the same element
};

/// None where a loop is in two places or a dimension has more than a million combinations.
std::optional<Touched> touched(const Workload& w, const Access& access) {
  constexpr std::int64_t kMost = 1 << 20;
  Touched all;
  for (std::size_t d = 0; d < access.index.size(); ++d) {
    const Affine& index = access.index[d];
    const std::int64_t extent = w.tensor(access.tensor).shape[d];
    std::vector<std::int64_t> values = {index.offset};
    for (const Term& t : index.terms) {
      if (has(all.loops, t.loop)) return std::nullopt;
      all.loops.push_back(t.loop);
      const std::int64_t steps = w.loop(t.loop).extent;
      if (steps > kMost / static_cast<std::int64_t>(values.size())) return std::nullopt;
      std::vector<std::int64_t> sums;
      sums.reserve(values.size() * static_cast<std::size_t>(steps));
      for (std::int64_t i = 0; i < steps; ++i)
        for (std::int64_t v : values) sums.push_back(v + t.coefficient * i);
      values = std::move(sums);
    }
    std::erase_if(values, [extent](std::int64_t v) { return v < 0 || v >= extent; });
    std::ranges::sort(values);
    std::int64_t elements = 0, most = 0, same = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      same = i > 0 && values[i] == values[i - 1] ? same + 1 : 1;
      elements += same == 1;
      most = std::max(most, same);
    }
    all.inside *= static_cast<double>(values.size());
    all.elements *= static_cast<double>(elements);
    all.most *= static_cast<double>(most);
  }
  return all;
}

}  // namespace

std::optional<std::vector<LoopId>> whole_loops(const Workload& w, const Access& a) {
  std::vector<LoopId> loops;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = a.index[d].plain_loop();
    if (!loop || has(loops, *loop)) return std::nullopt;
    if (w.loop(*loop).extent != w.tensor(a.tensor).shape[d]) return std::nullopt;
    loops.push_back(*loop);
  }
  return loops;
}

std::optional<Contraction> contraction_of(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (!w.is_contraction(id) || op.running || op.inputs.size() != 2 || op.outputs.size() != 1)
    return std::nullopt;
  const Access &x = op.inputs[0], &y = op.inputs[1], &out = op.outputs[0].target;
  if (x.tensor == y.tensor) return std::nullopt;
  const auto lo = whole_loops(w, out);
  if (!lo) return std::nullopt;
  const auto tx = touched(w, x), ty = touched(w, y);
  if (!tx || !ty) return std::nullopt;
  // Which iterations have both operands is a product of counts where one operand alone may be
  // missing, or both by loops of their own.
  double volume = 1, shared = 1;
  for (LoopId l : op.loops) {
    const double extent = static_cast<double>(w.loop(l).extent);
    const bool in_x = has(tx->loops, l), in_y = has(ty->loops, l);
    if (in_x + in_y + has(*lo, l) < 2) return std::nullopt;
    volume *= extent;
    if (in_x && in_y) shared *= extent;
  }
  double all_x = 1, all_y = 1;
  for (LoopId l : tx->loops) all_x *= static_cast<double>(w.loop(l).extent);
  for (LoopId l : ty->loops) all_y *= static_cast<double>(w.loop(l).extent);
  if (tx->inside < all_x && ty->inside < all_y && shared > 1) return std::nullopt;
  volume *= tx->inside / all_x * (ty->inside / all_y);
  if (!(volume > 0)) return std::nullopt;
  double made = 1;
  for (std::int64_t extent : w.tensor(out.tensor).shape) made *= static_cast<double>(extent);
  return Contraction{.op = id,
                     .x = x.tensor,
                     .y = y.tensor,
                     .out = out.tensor,
                     .volume = volume,
                     .spread = tx->most * ty->most,
                     .elements_x = tx->elements,
                     .elements_y = ty->elements,
                     .elements_out = made};
}

std::optional<Product> product_of(const Workload& w, OpId id) {
  const auto c = contraction_of(w, id);
  if (!c) return std::nullopt;
  const Operator& op = w.op(id);
  const auto la_ = whole_loops(w, op.inputs[0]), lb_ = whole_loops(w, op.inputs[1]);
  if (!la_ || !lb_) return std::nullopt;
  const std::vector<LoopId>&la = *la_, &lb = *lb_, lc = *whole_loops(w, op.outputs[0].target);
  Product p{.op = id, .a = c->x, .b = c->y, .c = c->out};
  for (LoopId l : op.loops) {
    const std::int64_t extent = w.loop(l).extent;
    LoopId* role = nullptr;
    if (has(la, l) && has(lb, l) && has(lc, l)) {
      p.batch.push_back(l);
      p.repeats *= extent;
      continue;
    }
    std::int64_t* size = nullptr;
    if (!has(lb, l))
      role = &p.m, size = &p.extent_m;
    else if (!has(la, l))
      role = &p.n, size = &p.extent_n;
    else
      role = &p.k, size = &p.extent_k;
    if (role->valid()) return std::nullopt;
    *role = l;
    *size = extent;
  }
  if (!p.m.valid() || !p.n.valid() || !p.k.valid()) return std::nullopt;
  return p;
}

std::optional<Chain> chain_of(const Workload& w) {
  if (w.operators().size() != 2) return std::nullopt;
  const auto one = product_of(w, w.topological_order()[0]);
  const auto two = product_of(w, w.topological_order()[1]);
  if (!one || !two || !w.is_intermediate(one->c)) return std::nullopt;
  if (two->a != one->c && two->b != one->c) return std::nullopt;
  Chain c{.first = one->op, .second = two->op, .c = one->c};
  // The second product reduces over the intermediate's l; the other of its loops is m.
  const bool left = two->a == one->c;
  c.m = left ? two->m : two->n;
  c.n = left ? two->n : two->m;
  c.l = two->k;
  c.d = left ? two->b : two->a;
  c.e = two->c;
  c.k = one->k;
  const bool straight = one->m == c.m;
  if (!(straight ? one->n == c.l : one->n == c.m && one->m == c.l)) return std::nullopt;
  c.a = straight ? one->a : one->b;
  c.b = straight ? one->b : one->a;
  if (c.n == c.k || c.d == c.a || c.d == c.b) return std::nullopt;
  std::vector<LoopId> batch = one->batch, other = two->batch;
  std::ranges::sort(batch);
  std::ranges::sort(other);
  if (batch != other) return std::nullopt;
  c.batch = one->batch;
  c.repeats = one->repeats;
  const auto extent = [&w](LoopId l) { return w.loop(l).extent; };
  c.M = extent(c.m), c.L = extent(c.l), c.K = extent(c.k), c.N = extent(c.n);
  return c;
}

std::int64_t word_bytes(const Workload& w) {
  const DType first = w.tensors().front().dtype;
  for (const Tensor& t : w.tensors())
    if (t.dtype != first) return 0;
  return size_of(first);
}

}  // namespace tilewright::bounds
