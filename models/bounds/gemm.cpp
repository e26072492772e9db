// One matrix product: three trees, by the tensor that is kept while the third loop is swept.
#include "models/bounds/front.h"
#include "models/bounds/trees.h"

namespace tilewright::bounds {
namespace {

enum Kept { kOutput = 0, kLeft = 1, kRight = 2 };

}  // namespace

std::vector<Choice> gemm_choices(const Product& p, Steps steps) {
  Front front;
  const std::int64_t M = p.extent_m, N = p.extent_n, K = p.extent_k;
  const auto scan = [&](Kept kept, std::int64_t rows, std::int64_t columns, auto traffic) {
    const auto us = steps_of(columns, steps);
    for (std::int64_t t : steps_of(rows, steps))
      for (std::int64_t u : us) {
        const std::int64_t moved = traffic(ceil_div(rows, t), ceil_div(columns, u));
        front.add(
            {.buffer = t * u + std::min(t, u) + 1, .traffic = moved, .form = kept, .cut = {t, u}});
      }
  };
  using I = std::int64_t;
  scan(kOutput, M, N, [=](I ms, I ns) { return M * K * ns + K * N * ms + M * N; });
  scan(kLeft, M, K, [=](I ms, I ks) { return M * K + K * N * ms + M * N * (2 * ks - 1); });
  scan(kRight, N, K, [=](I ns, I ks) { return K * N + M * K * ns + M * N * (2 * ks - 1); });
  return front.finish();
}

Node gemm_tree(const Workload& w, const Product& p, const Choice& c) {
  const TreeMaker make{w};
  const std::int64_t t = c.cut[0], u = c.cut[1];
  const Node work = compute(make.name(p.op));
  // Around the tile, loops `outer` and `inner`; over it, `sweep`; a line of the tile is swept by
  // the loop of the longer side, so that the shorter side is what is kept of the line.
  const auto nest = [&](LoopId outer, std::int64_t rows, LoopId inner, std::int64_t columns,
                        LoopId sweep, auto&& around) {
    Node line = u <= t ? make.cut(outer, 1, std::min(t, rows), {work})
                       : make.cut(inner, 1, std::min(u, columns), {work});
    std::vector<Node> body = around(make.cut(sweep, 1, w.loop(sweep).extent, {std::move(line)}));
    return make.cut(outer, t, rows, {make.cut(inner, u, columns, std::move(body))});
  };
  Node tree;
  switch (static_cast<Kept>(c.form)) {
    case kOutput:
      tree = nest(p.m, p.extent_m, p.n, p.extent_n, p.k, [&](Node body) {
        return std::vector<Node>{std::move(body), store(make.name(p.c))};
      });
      break;
    case kLeft:
      tree = nest(p.m, p.extent_m, p.k, p.extent_k, p.n, [&](Node body) {
        return std::vector<Node>{load(make.name(p.a)), std::move(body)};
      });
      break;
    case kRight:
      tree = nest(p.n, p.extent_n, p.k, p.extent_k, p.m, [&](Node body) {
        return std::vector<Node>{load(make.name(p.b)), std::move(body)};
      });
      break;
  }
  return make.batch(p.batch, std::move(tree));
}

Node TreeMaker::cut(LoopId l, std::int64_t step, std::int64_t range, std::vector<Node> body) const {
  Node inner = body.size() == 1 ? std::move(body.front()) : sequence(std::move(body));
  if (step >= range) return inner;
  return loop(name(l), std::move(inner), step);
}

Node TreeMaker::batch(const std::vector<LoopId>& loops, Node body) const {
  for (std::size_t i = loops.size(); i-- > 0;)
    body = cut(loops[i], 1, w.loop(loops[i]).extent, {std::move(body)});
  return body;
}

}  // namespace tilewright::bounds
