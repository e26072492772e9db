// Section IV-B's closed form for mlkn.
#include <algorithm>
#include <cmath>

#include "models/chimera/flat.h"

namespace tilewright::chimera {
namespace {

struct Roles {
  LoopId m, l, k, n;
};

/// The loops of two chained matrix products by their roles: C[m,l] += A[m,k] B[k,l] and
/// E[m,n] += C[m,l] D[l,n], whatever they and the dimensions' order are called, batch loops aside.
std::optional<Roles> gemm_chain(const detail::Flat& f) {
  const detail::Chain& c = f.chain();
  if (c.size() != 2 || c.order_loops().size() != 4) return std::nullopt;
  const Workload& w = f.workload();
  for (std::size_t p = 0; p < 2; ++p)
    if (!w.is_contraction(c.id(p)) || c.op(p).inputs.size() != 2 || c.op(p).outputs.size() != 1)
      return std::nullopt;
  const TensorId middle = c.op(0).outputs[0].target.tensor;
  if (!w.is_intermediate(middle) || c.dependents_of(0) == 0) return std::nullopt;
  for (const detail::Foot& foot : f.foots())
    if (!foot.plain) return std::nullopt;
  detail::Mask batch = 0;
  for (LoopId l : c.batch_loops()) batch |= detail::bit(l.index());
  const detail::Mask first = c.loops_of(0) & ~batch, second = c.loops_of(1) & ~batch;
  const detail::Mask k = c.reductions_of(0), l = c.reductions_of(1), n = second & ~first,
                     m = first & second & ~l;
  for (detail::Mask one : {k, l, m, n})
    if (std::popcount(one) != 1) return std::nullopt;
  if ((first | second) != (k | l | m | n) || (first & l) == 0 || (second & k) != 0)
    return std::nullopt;
  // A[m,k] B[k,l] and D[l,n], each once.
  std::vector<detail::Mask> moved;
  for (const detail::Use& u : f.uses())
    moved.push_back(f.loops_at(f.foots()[u.foot].accessed) & ~batch);
  std::vector<detail::Mask> expected{m | k, k | l, l | n, m | n};
  std::sort(moved.begin(), moved.end());
  std::sort(expected.begin(), expected.end());
  if (moved != expected) return std::nullopt;
  const auto loop = [](detail::Mask one) {
    return LoopId(static_cast<std::size_t>(std::countr_zero(one)));
  };
  return Roles{loop(m), loop(l), loop(k), loop(n)};
}

}  // namespace

Result<ClosedForm> closed_form(const Workload& w, const Order& order, Elements capacity,
                               std::int64_t alpha) {
  const auto own = std::ranges::count_if(order, [&](LoopId l) { return !w.is_batch(l); });
  if (w.operators().size() != 2 || own != 4)  // said before anything is analysed: others ask often
    return Reason{"the closed form is for two chained matrix products"};
  const Options options{.edges = Edges::exact, .memory = Memory::paper};
  const detail::Flat f(w, order, options);
  const auto roles = gemm_chain(f);
  if (!roles) return Reason{"the closed form is for two chained matrix products"};
  Order plain = order;
  std::erase_if(plain, [&](LoopId l) { return w.is_batch(l); });
  if (plain != Order{roles->m, roles->l, roles->k, roles->n} || plain.size() != order.size())
    return Reason{"the closed form is for the order " +
                  to_text(w, {roles->m, roles->l, roles->k, roles->n}) + " only"};
  if (alpha < 1) return Reason{"alpha must be at least 1"};
  const auto a = static_cast<double>(alpha);
  ClosedForm r;
  r.tile = -a + std::sqrt(a * a + static_cast<double>(capacity.value));
  if (!(r.tile >= 1)) return Reason{"the capacity is too small for a tile of one element"};
  const auto extent = [&](LoopId l) { return static_cast<double>(w.loop(l).extent); };
  double batch = 1;
  for (LoopId l : f.chain().batch_loops()) batch *= extent(l);
  r.volume = 2 * batch * extent(roles->m) * extent(roles->l) *
             (extent(roles->k) + extent(roles->n)) / r.tile;
  r.tiles.assign(w.loops().size(), 1);
  const auto whole = static_cast<std::int64_t>(std::floor(r.tile));
  for (LoopId l : {roles->m, roles->l}) {
    const std::int64_t t = std::min(whole, w.loop(l).extent);
    r.tiles[l.index()] = t;
    r.bound = std::max(r.bound, 1 + r.tile / extent(l) + 1 / static_cast<double>(t));
  }
  for (LoopId l : {roles->k, roles->n}) r.tiles[l.index()] = std::min(alpha, w.loop(l).extent);
  r.price = detail::price_of(f, f.point(r.tiles));
  return r;
}

}  // namespace tilewright::chimera
