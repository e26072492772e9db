#include "models/bounds/product.h"

#include <algorithm>

namespace tilewright::bounds {
namespace {

/// The loops that index a tensor, where every subscript is a loop of its own.
std::optional<std::vector<LoopId>> plain(const Access& access) {
  std::vector<LoopId> loops;
  for (const Affine& index : access.index) {
    const auto loop = index.plain_loop();
    if (!loop || std::ranges::find(loops, *loop) != loops.end()) return std::nullopt;
    loops.push_back(*loop);
  }
  return loops;
}

bool has(const std::vector<LoopId>& loops, LoopId l) {
  return std::ranges::find(loops, l) != loops.end();
}

bool whole(const Workload& w, const Access& access, const std::vector<LoopId>& loops) {
  for (std::size_t d = 0; d < loops.size(); ++d)
    if (w.tensor(access.tensor).shape[d] != w.loop(loops[d]).extent) return false;
  return true;
}

}  // namespace

std::optional<Contraction> contraction_of(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (!w.is_contraction(id) || op.running || op.inputs.size() != 2 || op.outputs.size() != 1)
    return std::nullopt;
  const Access &x = op.inputs[0], &y = op.inputs[1], &out = op.outputs[0].target;
  const auto lx = plain(x), ly = plain(y), lo = plain(out);
  if (!lx || !ly || !lo || x.tensor == y.tensor) return std::nullopt;
  if (!whole(w, x, *lx) || !whole(w, y, *ly) || !whole(w, out, *lo)) return std::nullopt;
  for (LoopId l : op.loops)
    if (has(*lx, l) + has(*ly, l) + has(*lo, l) < 2) return std::nullopt;
  double volume = 1;
  for (LoopId l : op.loops) volume *= static_cast<double>(w.loop(l).extent);
  return Contraction{id, x.tensor, y.tensor, out.tensor, volume};
}

std::optional<Product> product_of(const Workload& w, OpId id) {
  const auto c = contraction_of(w, id);
  if (!c) return std::nullopt;
  const Operator& op = w.op(id);
  const auto la = *plain(op.inputs[0]), lb = *plain(op.inputs[1]);
  const auto lc = *plain(op.outputs[0].target);
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
