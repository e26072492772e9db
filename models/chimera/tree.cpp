// An order as a loop tree, and a solution as a plan.
#include "models/chimera/flat.h"

namespace tilewright::chimera {
namespace {

using detail::Chain;
using detail::Flat;
using detail::has;
using detail::Item;
using detail::Mask;
using detail::Skeleton;

Mask multi_of(const Flat& f, const Tiles& tiles) {
  if (tiles.empty()) return ~Mask{0};
  detail::check_tiles(f, tiles);
  return f.loops_at(f.point(tiles).multi);
}

/// The loop that an item cuts: its own, or where nobody inside has that, the producer's loop that
/// follows it. None: nobody follows it either.
LoopId cut_loop(const Chain& c, const Item& item) {
  return c.stand_in(LoopId(item.loop), item.inside);
}

/// `around`: loops that enclose it. What stands in for another loop is not cut twice: what is
/// inside is computed for all of the outer cut.
Node body_of(const Flat& f, const Skeleton& s, int parent, Mask around = 0) {
  std::vector<Node> parts;
  const Workload& w = f.workload();
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i].parent != parent) continue;
    if (s[i].op >= 0) {
      parts.push_back(compute(f.chain().op(static_cast<std::size_t>(s[i].op)).name));
      continue;
    }
    LoopId l = cut_loop(f.chain(), s[i]);
    if (l.valid() && has(around, l.index())) l = {};
    Node body =
        body_of(f, s, static_cast<int>(i), l.valid() ? around | detail::bit(l.index()) : around);
    const bool implicit_batch = has(f.loops_at(f.implicit()), static_cast<std::size_t>(s[i].loop));
    if (l.valid())
      parts.push_back(loop(w.loop(l).name, std::move(body), implicit_batch ? 1 : 0));
    else if (body.kind == Node::Kind::sequence)
      parts.insert(parts.end(), body.children.begin(), body.children.end());
    else
      parts.push_back(std::move(body));
  }
  return parts.size() == 1 ? std::move(parts.front()) : sequence(std::move(parts));
}

Skeleton skeleton(const Flat& f, const Tiles& tiles) {
  return detail::skeleton_of(f.chain(), f.loops(), multi_of(f, tiles));
}

}  // namespace

namespace detail {
Node tree_at(const Flat& f, const Tiles& tiles) { return body_of(f, skeleton(f, tiles), -1); }
}  // namespace detail

Node tree_of(const Workload& w, const Order& order, const Tiles& tiles) {
  return detail::tree_at(Flat(w, order, {}), tiles);
}

std::map<std::string, std::int64_t> tile_table(const Workload& w, const Order& order,
                                               const Tiles& tiles) {
  const Flat f(w, order, {});
  detail::check_tiles(f, tiles);
  std::map<std::string, std::int64_t> table;
  for (const Item& item : skeleton(f, tiles)) {
    if (item.op >= 0) continue;
    const LoopId own(item.loop), l = cut_loop(f.chain(), item);
    if (!l.valid() || has(f.loops_at(f.implicit()), own.index())) continue;
    // A stand-in makes as many trips; alone with its producer it needs no halo.
    const std::int64_t trips = ceil_div(w.loop(own).extent, tiles[own.index()]);
    table[w.loop(l).name] = l == own ? tiles[l.index()] : ceil_div(w.loop(l).extent, trips);
  }
  return table;
}

Plan plan_of(const Workload& w, const Order& order, const Tiles& tiles, const Machine& m,
             LevelId level, const Options& options) {
  Kernel k{.name = "fused",
           .level = m.level(level).name,
           .tree = tree_of(w, order, tiles),
           .tiles = tile_table(w, order, tiles)};
  for (TensorId t : options.spilled) k.pins[w.tensor(t).name] = {.level = m.level(m.home()).name};
  return {.kernels = {std::move(k)}};
}

Plan plan_of(const Workload& w, const Solution& s, const Machine& m, LevelId level,
             const Options& options) {
  return plan_of(w, s.order, s.tiles, m, level, options);
}

}  // namespace tilewright::chimera
