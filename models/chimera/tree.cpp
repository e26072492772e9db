// An order as a loop tree, and a solution as a plan.
#include <algorithm>
#include <numeric>

#include "core/workload/access.h"
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

/// Whether blocks of this loop need nothing of each other: each operator has it in its results'
/// indices, or, where it does not run over it, makes intermediates alone, once more for each block.
bool independent(const Workload& w, LoopId l) {
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    const OpId op(o);
    const bool runs = w.local_index(op, l) >= 0;
    for (const Output& output : w.op(op).outputs) {
      if (!indexes(output.target, l) && (runs || !w.is_intermediate(output.target.tensor)))
        return false;
    }
  }
  return true;
}

std::int64_t trips_of(const Workload& w, const Kernel& k, const Node& loop) {
  const std::int64_t step = loop.step > 0 ? loop.step : k.tiles.at(loop.name);
  return ceil_div(w.loop(*w.find_loop(loop.name)).extent, step);
}

/// The outermost loops of a tree, one inside the other, whose blocks are independent. Loops of one
/// trip are passed over.
std::vector<Node*> independent_loops(const Workload& w, Kernel& k) {
  std::vector<Node*> loops;
  for (Node* at = &k.tree;; at = &at->children.front()) {
    while (at->kind == Node::Kind::sequence && at->children.size() == 1) at = &at->children.front();
    if (at->kind != Node::Kind::loop) return loops;
    if (independent(w, *w.find_loop(at->name)))
      loops.push_back(at);
    else if (trips_of(w, k, *at) > 1)
      return loops;
  }
}

}  // namespace

namespace detail {
Node tree_at(const Flat& f, const Tiles& tiles) { return body_of(f, skeleton(f, tiles), -1); }

bool shared_by_blocks(const Machine& m, LevelId level, const Options& options) {
  const Level& l = m.level(level);
  // What goes home and back between two operators would need a barrier of all blocks.
  return m.kind == "gpu" && l.private_to == Unit::grid && l.instances > 1 &&
         options.spilled.empty();
}

double Blocks::cost(std::int64_t instances) const {
  const std::int64_t rounds = ceil_div(count, instances);
  return elements * static_cast<double>(rounds * instances) / static_cast<double>(count);
}

Blocks share(const Workload& w, const Order& order, const Tiles& tiles, const Options& options,
             std::int64_t instances, Kernel& k) {
  const chimera::Price price = chimera::price(w, order, tiles, options);
  Blocks now, best;
  std::vector<double> moved;
  for (const TensorPrice& t : price.tensors) moved.push_back(static_cast<double>(t.movement.value));
  now.elements = std::accumulate(moved.begin(), moved.end(), 0.0);
  best = now;
  const std::vector<Node*> loops = independent_loops(w, k);
  std::size_t shared = 0;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    const LoopId l = *w.find_loop(loops[i]->name);
    const std::int64_t trips = trips_of(w, k, *loops[i]);
    now.count *= trips;
    for (std::size_t t = 0; t < moved.size(); ++t)
      if (std::ranges::find(price.tensors[t].reused, l) != price.tensors[t].reused.end())
        moved[t] *= static_cast<double>(trips);
    now.elements = std::accumulate(moved.begin(), moved.end(), 0.0);
    if (now.cost(instances) <= best.cost(instances)) best = now, shared = i + 1;
  }
  for (std::size_t i = 0; i < shared; ++i) loops[i]->binding = Binding::grid;
  return best;
}
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
  if (detail::shared_by_blocks(m, level, options))
    detail::share(w, order, tiles, options, m.level(level).instances, k);
  return {.kernels = {std::move(k)}};
}

Plan plan_of(const Workload& w, const Solution& s, const Machine& m, LevelId level,
             const Options& options) {
  return plan_of(w, s.order, s.tiles, m, level, options);
}

}  // namespace tilewright::chimera
