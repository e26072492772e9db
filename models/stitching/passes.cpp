#include "models/stitching/passes.h"

#include <algorithm>
#include <bit>

#include "models/stitching/loops.h"

namespace tilewright::stitching {
namespace {

std::int64_t power_above(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}
std::int64_t power_below(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

std::int64_t trips(const Graph& g, const LoopShare& s) {
  return ceil_div(g.extent(s.loop), s.step);
}

/// Iterations of a warp: whole rounds of its lanes.
std::int64_t run(const Graph& g, const LoopShare& s) {
  return ceil_div(ceil_div(trips(g, s), s.warps), s.lanes) * s.lanes * s.step;
}

/// Gives a loop as many of the warps as it has iterations for, and counts its turns.
void take_warps(const Graph& g, LoopShare& s, std::int64_t& warps) {
  s.warps = std::min(warps, ceil_div(trips(g, s), s.lanes));
  s.turns = run(g, s) / (s.lanes * s.step);
  s.warps = ceil_div(g.extent(s.loop), run(g, s));
  warps = std::max(std::int64_t{1}, warps / power_above(s.warps));
}

/// The same of the inner of two loops over warps: it must divide a block's.
void take_inner_warps(const Graph& g, LoopShare& s, std::int64_t& warps) {
  std::int64_t most = std::min(warps, power_below(ceil_div(trips(g, s), s.lanes)));
  for (; most > 0; most /= 2) {
    std::int64_t left = most;
    take_warps(g, s, left);
    if (s.warps == power_above(s.warps)) break;
  }
  warps /= s.warps;
}

}  // namespace

std::vector<LoopShare> share_out(const Graph& g, std::span<const int> loops, int bound,
                                 std::int64_t step, std::int64_t warps, Spread spread) {
  std::vector<LoopShare> shares;
  for (int l : loops)
    if (l != bound) shares.push_back({.loop = l, .turns = g.extent(l)});
  // The longest of the others comes first.
  const auto longest = std::ranges::max_element(shares, {}, &LoopShare::turns);
  if (longest != shares.end()) std::rotate(shares.begin(), longest, longest + 1);
  LoopShare along{.loop = bound, .step = step};
  along.lanes = std::min(kWarp, power_above(trips(g, along)));
  if (shares.empty()) {
    take_warps(g, along, warps);
    return {along};
  }
  LoopShare& other = shares.front();
  other.lanes = std::min(kWarp / along.lanes, power_above(other.turns));
  if (spread == Spread::contiguous) {
    take_inner_warps(g, along, warps);
    take_warps(g, other, warps);
  } else {
    take_warps(g, other, warps);
    take_inner_warps(g, along, warps);
  }
  shares.push_back(along);
  return shares;
}

std::vector<Cut> cuts_of(const Graph& g, std::span<const LoopShare> shares, bool in_block) {
  std::vector<Cut> cuts;
  const LoopShare& along = shares.back();
  if (in_block && shares.size() == 1 && along.turns == 1)
    return {{along.loop, along.step, Binding::thread}};
  for (const LoopShare& s : shares)
    if (s.warps > 1) cuts.push_back({s.loop, run(g, s), Binding::warp});
  for (const LoopShare& s : shares.first(shares.size() - 1)) {
    if (s.lanes > 1)
      cuts.push_back({s.loop, 1, Binding::lane});
    else if (s.turns > 1 || s.warps == 1)
      cuts.push_back({s.loop, 1, Binding::seq});
  }
  cuts.push_back({along.loop, along.step, Binding::lane});
  return cuts;
}

std::int64_t values_of(std::span<const LoopShare> shares, LoopSet indexed) {
  std::int64_t n = 1;
  for (const LoopShare& s : shares)
    if (indexed.has(s.loop)) n *= s.turns * s.step;
  return n;
}

std::int64_t sums_of(std::span<const LoopShare> shares, LoopSet indexed, LoopSet reduced) {
  // Loops over warps stand outside of all others: a sum over warps is around every turn.
  bool around = warps_of(shares, reduced) > 1;
  std::int64_t n = 1;
  for (const LoopShare& s : shares) {
    around = around || reduced.has(s.loop);
    if (around && indexed.has(s.loop)) n *= s.turns * s.step;
  }
  return n;
}

std::int64_t lanes_of(std::span<const LoopShare> shares, LoopSet reduced) {
  std::int64_t n = 1;
  for (const LoopShare& s : shares)
    if (reduced.has(s.loop)) n *= s.lanes;
  return n;
}

std::int64_t warps_of(std::span<const LoopShare> shares, LoopSet reduced) {
  std::int64_t n = 1;
  for (const LoopShare& s : shares)
    if (reduced.has(s.loop)) n *= s.warps;
  return n;
}

Contiguous contiguous_of(const Graph& g, const Component& c, int vertex, LoopSet within_row) {
  const Workload& w = g.workload();
  const Operator& op = w.op(g.vertex(vertex).op);
  const LoopSet loops = g.vertex(vertex).loops & within_row;
  const auto own = [&](OpId id) {
    return id.valid() &&
           std::ranges::any_of(c.vertices, [&](int u) { return g.vertex(u).op == id; });
  };
  Contiguous best;
  double most = 0;
  const auto consider = [&](const Access& a) {
    if (a.index.empty()) return;
    LoopSet indexed;
    for (int l : gather_loops(op, a))
      indexed |= bit(static_cast<int>(op.loops[static_cast<std::size_t>(l)].index()));
    const double elements = g.points(indexed & loops);
    for (const Term& t : a.index.back().terms) {
      const int l = static_cast<int>(t.loop.index());
      if (t.coefficient != 1 || !loops.has(l) || elements <= most) continue;
      most = elements;
      best = {l, (indexed & loops) == loops};
    }
  };
  for (const Access& a : op.inputs)
    if (!own(w.producer(a.tensor))) consider(a);
  for (const Output& o : op.outputs) {
    const auto readers = w.consumers(o.target.tensor);
    if (w.is_output(o.target.tensor) ||
        std::ranges::any_of(readers, [&](OpId r) { return !own(r); }))
      consider(o.target);
  }
  return best;
}

bool has_nested_rows(const Graph& g, const Component& c) {
  return std::ranges::any_of(c.vertices, [&](int v) {
    int loops = 0;
    (g.vertex(v).loops & ~c.rows).each([&](std::size_t l) {
      loops += g.extent(static_cast<int>(l)) > 1 ? 1 : 0;
    });
    return loops > 1;
  });
}

}  // namespace tilewright::stitching
