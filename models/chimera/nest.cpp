// Several levels' loops as one tree, and the tree as a plan: where each level's tiles are brought.
#include "models/chimera/nest.h"

#include <algorithm>

#include "core/base/error.h"
#include "models/chimera/flat.h"

namespace tilewright::chimera {
namespace detail {

std::vector<Tiles> extents_of(const Workload& w, std::span<const LevelTiling> tilings) {
  Tiles whole;
  for (const Loop& l : w.loops()) whole.push_back(l.extent);
  std::vector<Tiles> extents{whole};
  for (const LevelTiling& t : tilings) extents.push_back(t.tiles);
  return extents;
}

std::vector<LoopId> loops_of_level(const Chain& c, const LevelTiling& t) {
  std::vector<LoopId> loops;
  for (LoopId l : c.batch_loops())
    if (std::find(t.order.begin(), t.order.end(), l) == t.order.end()) loops.push_back(l);
  loops.insert(loops.end(), t.order.begin(), t.order.end());
  return loops;
}

namespace {

class NestBuilder {
 public:
  NestBuilder(const Chain& c, std::span<const LevelTiling> tilings)
      : c_(c), tilings_(tilings), extents_(extents_of(c.workload(), tilings)) {}

  /// The nests of the levels from `depth` on, of a block of operators.
  void grow(Mask ops, std::size_t depth, int parent) {
    if (depth == tilings_.size()) {
      each(ops, [&](std::size_t p) {
        nest_.push_back({.item = {-1, static_cast<int>(p), parent, 0}, .depth = depth});
      });
      return;
    }
    std::vector<LoopId> turning;
    Mask multi = 0;
    for (LoopId l : loops_of_level(c_, tilings_[depth]))
      if (trips(l, depth) > 1) {
        turning.push_back(l);
        multi |= bit(l.index());
      }
    copy(skeleton_of(c_, turning, multi, ops), -1, depth, parent);
  }
  Nest take() { return std::move(nest_); }

 private:
  std::int64_t trips(LoopId l, std::size_t depth) const {
    return ceil_div(extents_[depth][l.index()], extents_[depth + 1][l.index()]);
  }

  /// What lies in `from` of one level's skeleton; operators side by side are one block.
  void copy(const Skeleton& s, int from, std::size_t depth, int parent) {
    Mask block = 0;
    const auto flush = [&] {
      if (block != 0) grow(block, depth + 1, parent);
      block = 0;
    };
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s[i].parent != from) continue;
      if (s[i].op >= 0) {
        block |= bit(static_cast<std::size_t>(s[i].op));
        continue;
      }
      flush();
      const int at = static_cast<int>(nest_.size());
      nest_.push_back({.item = {s[i].loop, -1, parent, s[i].inside},
                       .depth = depth,
                       .trips = trips(LoopId(s[i].loop), depth)});
      copy(s, static_cast<int>(i), depth, at);
    }
    flush();
  }

  const Chain& c_;
  std::span<const LevelTiling> tilings_;
  std::vector<Tiles> extents_;
  Nest nest_;
};

}  // namespace

Nest nest_of(const Chain& c, std::span<const LevelTiling> tilings) {
  NestBuilder builder(c, tilings);
  builder.grow(c.size() == kMaxMask ? ~Mask{0} : bit(c.size()) - 1, 0, -1);
  return builder.take();
}

std::vector<std::int64_t> runs_of(const Chain& c, const Nest& nest, std::size_t depth) {
  std::vector<std::int64_t> runs(c.workload().operators().size(), 1);
  for (const NestItem& leaf : nest) {
    if (leaf.item.op < 0) continue;
    std::int64_t& n = runs[c.id(static_cast<std::size_t>(leaf.item.op)).index()];
    for (int i = leaf.item.parent; i >= 0; i = nest[static_cast<std::size_t>(i)].item.parent) {
      const NestItem& loop = nest[static_cast<std::size_t>(i)];
      if (loop.depth < depth) n = saturating_mul(n, loop.trips);
    }
  }
  return runs;
}

std::size_t depth_of(const Chain& c, const Nest& nest, TensorId t, std::size_t innermost) {
  const Workload& w = c.workload();
  Mask users = bit(c.position(w.producer(t)));
  for (OpId q : w.consumers(t)) users |= bit(c.position(q));
  std::size_t outermost = innermost;
  for (const NestItem& leaf : nest) {
    if (leaf.item.op < 0 || !has(users, static_cast<std::size_t>(leaf.item.op))) continue;
    for (int i = leaf.item.parent; i >= 0; i = nest[static_cast<std::size_t>(i)].item.parent) {
      const NestItem& loop = nest[static_cast<std::size_t>(i)];
      if ((users & ~loop.item.inside) == 0) break;
      outermost = std::min(outermost, loop.depth);
    }
  }
  return outermost;
}

std::set<TensorId> held_outside(const Chain& c, const Nest& nest, std::size_t depth) {
  std::set<TensorId> held;
  const Workload& w = c.workload();
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_intermediate(TensorId(t)) && depth_of(c, nest, TensorId(t), depth) < depth)
      held.insert(TensorId(t));
  return held;
}

}  // namespace detail

namespace {

using detail::bit;
using detail::Chain;
using detail::each;
using detail::has;
using detail::Mask;
using detail::Nest;
using detail::NestItem;

/// Turns a nest into a tree with the movement of every level.
class Planner {
 public:
  Planner(const Chain& c, std::span<const LevelTiling> tilings, const Machine& m,
          const Options& options)
      : c_(c),
        w_(c.workload()),
        tilings_(tilings),
        m_(m),
        options_(options),
        extents_(detail::extents_of(w_, tilings)),
        nest_(detail::nest_of(c, tilings)),
        children_(nest_.size() + 1) {
    leaf_.assign(c.size(), -1);
    for (std::size_t i = 0; i < nest_.size(); ++i) {
      children_[slot(nest_[i].item.parent)].push_back(static_cast<int>(i));
      if (nest_[i].item.op >= 0) leaf_[static_cast<std::size_t>(nest_[i].item.op)] = static_cast<int>(i);
    }
    before_.resize(nest_.size());
    after_.resize(nest_.size());
  }

  Plan plan() {
    for (std::size_t t = 0; t < w_.tensors().size(); ++t) {
      const TensorId id(t);
      const bool spilled = options_.spilled.contains(id);
      if (w_.is_intermediate(id) && !spilled) {
        const std::size_t at = detail::depth_of(c_, nest_, id, last());
        store_outward(id, at);
        load_inward(id, at + 1);
        continue;
      }
      if (w_.producer(id).valid()) store_outward(id, npos);
      if (!w_.consumers(id).empty()) load_inward(id, 0);
    }
    Kernel k{.name = "fused", .level = level_name(last()), .tree = body(-1)};
    for (TensorId t : options_.spilled)
      k.pins[w_.tensor(t).name] = {.level = m_.level(m_.home()).name};
    return {.kernels = {std::move(k)}};
  }

 private:
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  std::size_t last() const { return tilings_.size() - 1; }
  static std::size_t slot(int item) { return static_cast<std::size_t>(item + 1); }
  const NestItem& at(int i) const { return nest_[static_cast<std::size_t>(i)]; }
  std::string level_name(std::size_t depth) const { return m_.level(tilings_[depth].level).name; }

  /// The child of the innermost loop of `depth` or outside it on the way to a compute.
  int child_below(int leaf, std::size_t depth) const {
    int child = leaf;
    while (at(child).item.parent >= 0 && at(at(child).item.parent).depth > depth)
      child = at(child).item.parent;
    return child;
  }
  bool indexes(int loop, std::size_t op, const Access& a) const {
    return has(c_.accessed(op, a, ~Mask{0}), static_cast<std::size_t>(at(loop).item.loop));
  }

  /// Every level from `from` on gets the tile where the level's innermost loop turns.
  void load_inward(TensorId t, std::size_t from) {
    for (std::size_t depth = from; depth < tilings_.size(); ++depth) {
      std::vector<int> bodies;  // one load serves all below it
      for (OpId consumer : w_.consumers(t)) {
        const int child = child_below(leaf_[c_.position(consumer)], depth);
        const int body = at(child).item.parent;
        if (std::find(bodies.begin(), bodies.end(), body) != bodies.end()) continue;
        bodies.push_back(body);
        before_[static_cast<std::size_t>(child)].push_back(
            load(w_.tensor(t).name, level_name(depth)));
      }
    }
  }

  const Access& target(OpId op, TensorId t) const {
    for (const Output& o : w_.op(op).outputs)
      if (o.target.tensor == t) return o.target;
    TW_CHECK(false, "an operator writes its own outputs");
    return w_.op(op).outputs.front().target;
  }

  /// From each inner level to the next, up to level `to` (npos: home), where no loop that turns
  /// below moves the tile.
  void store_outward(TensorId t, std::size_t to) {
    const OpId op = w_.producer(t);
    const std::size_t p = c_.position(op);
    const Access& a = target(op, t);
    for (std::size_t depth = tilings_.size(); depth-- > 0 && depth != to;) {
      int child = child_below(leaf_[p], depth);
      for (int up = at(child).item.parent; up >= 0 && !indexes(up, p, a) && !reads_inside(t, up);
           up = at(up).item.parent)
        child = up;
      const std::string name =
          depth == 0 ? m_.level(m_.home()).name : level_name(depth - 1);
      after_[static_cast<std::size_t>(child)].push_back(store(w_.tensor(t).name, name));
    }
  }
  /// Whether a consumer of an on-chip tensor lies inside the loop: it must be stored before that.
  bool reads_inside(TensorId t, int loop) const {
    if (!w_.is_intermediate(t)) return false;
    bool inside = false;
    for (OpId q : w_.consumers(t)) inside |= has(at(loop).item.inside, c_.position(q));
    return inside;
  }

  Node loop_node(int i) {
    const NestItem& n = at(i);
    const LoopId own(n.item.loop), l = c_.stand_in(own, n.item.inside);
    if (!l.valid()) return body(i);
    const Tiles& around = extents_[n.depth];
    // A stand-in makes as many trips; alone with its producer it needs no halo.
    const std::int64_t step =
        l == own ? tilings_[n.depth].tiles[l.index()] : ceil_div(around[l.index()], n.trips);
    return loop(w_.loop(l).name, body(i), step);
  }

  Node body(int parent) {
    std::vector<Node> parts;
    const auto add = [&](Node n) {
      if (n.kind == Node::Kind::sequence)
        parts.insert(parts.end(), n.children.begin(), n.children.end());
      else
        parts.push_back(std::move(n));
    };
    for (int i : children_[slot(parent)]) {
      std::vector<Node>& loads = before_[static_cast<std::size_t>(i)];
      for (std::size_t depth = 0; depth < tilings_.size(); ++depth)  // outer levels first
        for (const Node& l : loads)
          if (l.level == level_name(depth)) parts.push_back(l);
      add(at(i).item.op >= 0
              ? compute(c_.op(static_cast<std::size_t>(at(i).item.op)).name)
              : loop_node(i));
      for (Node& s : after_[static_cast<std::size_t>(i)]) parts.push_back(std::move(s));
    }
    return parts.size() == 1 ? std::move(parts.front()) : sequence(std::move(parts));
  }

  const Chain& c_;
  const Workload& w_;
  std::span<const LevelTiling> tilings_;
  const Machine& m_;
  const Options& options_;
  std::vector<Tiles> extents_;
  Nest nest_;
  std::vector<std::vector<int>> children_;
  std::vector<int> leaf_;
  std::vector<std::vector<Node>> before_, after_;
};

}  // namespace

Plan plan_of(const Workload& w, std::span<const LevelTiling> tilings, const Machine& m,
             const Options& options) {
  const Chain c(w);
  return Planner(c, tilings, m, options).plan();
}

}  // namespace tilewright::chimera
