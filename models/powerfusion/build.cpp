#include "models/powerfusion/build.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/format.h"

namespace tilewright::powerfusion {
namespace {

/// An operator and who does its iterations; loops are the workload's.
struct Placed {
  OpId op;
  UnitMap units;
};

class TreeWalk {
 public:
  TreeWalk(const Workload& w, const Kernel& k, std::int64_t warps) : w_(w), k_(k), warps_(warps) {
    bound_ = binds(k.tree);
  }

  std::vector<Placed> of(const Node& tree) {
    found_.clear();
    State s;
    for (std::size_t l = 0; l < w_.loops().size(); ++l) s.range.push_back(w_.loops()[l].extent);
    s.with_lanes.assign(s.range.size(), false);
    walk(tree, s);
    return std::move(found_);
  }

 private:
  struct State {
    std::vector<std::int64_t> range;
    std::vector<bool> with_lanes;
    UnitMap digits;
  };

  static bool binds(const Node& n) {
    if (n.kind == Node::Kind::loop &&
        (n.binding == Binding::warp || n.binding == Binding::lane || n.binding == Binding::thread))
      return true;
    return std::ranges::any_of(n.children, binds);
  }

  std::int64_t step_of(const Node& n, std::int64_t range) const {
    if (n.step > 0) return std::min(n.step, range);
    const auto tile = k_.tiles.find(n.name);
    return tile == k_.tiles.end() ? range : std::min(tile->second, range);
  }

  /// Iterations over lanes of the loops directly inside.
  std::int64_t lanes_below(const Node& n, const State& s) const {
    const Node* at = &n.children.front();
    std::int64_t lanes = 1;
    while (at->kind == Node::Kind::loop) {
      if (at->binding == Binding::lane)
        if (const auto l = w_.find_loop(at->name))
          lanes *= ceil_div(s.range[l->index()], step_of(*at, s.range[l->index()]));
      at = &at->children.front();
    }
    return std::min(lanes, kLanes);
  }

  void walk(const Node& n, const State& s) {
    if (n.kind == Node::Kind::compute) {
      if (const auto op = w_.find_op(n.name)) place(*op, s);
      return;
    }
    if (n.kind != Node::Kind::loop) {
      for (const Node& c : n.children) walk(c, s);
      return;
    }
    const auto l = w_.find_loop(n.name);
    if (!l) return;
    State inner = s;
    const std::int64_t range = s.range[l->index()], step = step_of(n, range);
    const auto add = [&](std::int64_t by, std::int64_t count, Place place) {
      if (count > 1) inner.digits.push_back({static_cast<int>(l->index()), by, count, place});
    };
    const std::int64_t count = ceil_div(range, step);
    const auto over = [&](std::int64_t units,
                          std::span<const std::pair<Place, std::int64_t>> places) {
      std::int64_t all = std::min(count, units);
      add(step * all, ceil_div(count, all), Place::trip);
      for (const auto& [place, size] : places) {
        const std::int64_t inside = place == Place::warp ? std::min(kLanes, all) : 1;
        const std::int64_t here = std::min(size, ceil_div(all, inside));
        add(step * inside, here, place);
        if (place == Place::warp) all = inside;
      }
      inner.with_lanes[l->index()] = true;
    };
    switch (n.binding) {
      case Binding::grid:
      case Binding::cluster:
        add(step, count, Place::block);
        break;
      case Binding::warp:
        add(step * std::min(count, warps_), ceil_div(count, warps_), Place::trip);
        add(step, std::min(count, warps_), Place::warp);
        break;
      case Binding::lane: {
        const std::int64_t lanes = std::max<std::int64_t>(1, kLanes / lanes_below(n, s));
        const std::pair<Place, std::int64_t> places[] = {{Place::lane, lanes}};
        over(lanes, places);
        break;
      }
      case Binding::thread: {
        const std::pair<Place, std::int64_t> places[] = {{Place::warp, warps_},
                                                         {Place::lane, kLanes}};
        over(warps_ * kLanes, places);
        break;
      }
      default:
        add(step, count, Place::trip);
    }
    inner.range[l->index()] = step;
    walk(n.children.front(), inner);
  }

  void place(OpId op, const State& s) {
    Placed p{.op = op};
    p.units = s.digits;
    const auto& loops = w_.op(op).loops;
    // Without units lanes go along the results' last loop or, where blocks leave none of it, along
    // a sum's.
    int last = -1;
    const auto along = [&](LoopId l) {
      if (!bound_ && s.range[l.index()] > 1) last = static_cast<int>(l.index());
    };
    for (const Affine& i : w_.op(op).outputs.front().target.index)
      if (const auto l = i.plain_loop()) along(*l);
    if (last < 0)
      for (LoopId l : loops) along(l);
    for (LoopId l : loops) {
      const std::int64_t range = s.range[l.index()];
      const auto id = static_cast<int>(l.index());
      if (range <= 1) continue;
      if (id == last) {
        const std::int64_t lanes = std::min(range, kLanes);
        if (range > lanes) p.units.push_back({id, lanes, ceil_div(range, lanes), Place::trip});
        p.units.push_back({id, 1, lanes, Place::lane});
      } else {
        p.units.push_back({id, 1, range, s.with_lanes[l.index()] ? Place::item : Place::trip});
      }
    }
    found_.push_back(std::move(p));
  }

  const Workload& w_;
  const Kernel& k_;
  std::int64_t warps_;
  bool bound_ = false;
  std::vector<Placed> found_;
};

class GirBuilder {
 public:
  GirBuilder(const Workload& w, std::string name, std::int64_t warps) : w_(w) {
    g_.name = std::move(name);
    g_.warps = warps;
  }

  Gir of(const std::vector<Placed>& all) {
    for (const Placed& p : all) inside_.push_back(p.op);
    std::ranges::sort(inside_);
    for (const Placed& p : all) add(p);
    std::ranges::sort(g_.leaving);
    return std::move(g_);
  }

 private:
  int loop_id(int loop) {
    const auto [at, fresh] = loops_.emplace(loop, static_cast<int>(g_.loops.size()));
    if (fresh) g_.loops.push_back(w_.loops()[static_cast<std::size_t>(loop)]);
    return at->second;
  }
  int tensor_id(TensorId t) {
    const auto [at, fresh] = tensors_.emplace(t, static_cast<int>(g_.tensors.size()));
    if (fresh) {
      g_.tensors.push_back(w_.tensor(t));
      g_.tensors.back().range = 1;
    }
    return at->second;
  }
  int units_id(const UnitMap& units) {
    const auto at = std::ranges::find(g_.maps, units);
    if (at != g_.maps.end()) return static_cast<int>(at - g_.maps.begin());
    g_.maps.push_back(units);
    std::int64_t blocks = 1;
    for (const Digit& d : units)
      if (d.place == Place::block) blocks *= d.count;
    g_.blocks = std::max(g_.blocks, blocks);
    return static_cast<int>(g_.maps.size()) - 1;
  }

  Base base_of(const Affine& index, const UnitMap& units) const {
    Base b{.offset = index.offset, .looked_up = index.gathered >= 0};
    for (const Term& t : index.terms) {
      const int loop = loops_.at(static_cast<int>(t.loop.index()));
      for (std::size_t d = 0; d < units.size(); ++d)
        if (units[d].loop == loop)
          b.terms.push_back({static_cast<int>(d), t.coefficient * units[d].step});
    }
    return b;
  }
  int add_slice(Slice s) {
    g_.slices.push_back(std::move(s));
    return static_cast<int>(g_.slices.size()) - 1;
  }
  int slice_of(const Access& a, Tier tier, int units) {
    Slice s{.tensor = tensor_id(a.tensor), .tier = tier, .units = units};
    for (const Affine& i : a.index)
      s.base.push_back(base_of(i, g_.maps[static_cast<std::size_t>(units)]));
    return add_slice(std::move(s));
  }
  /// A value for each of the operator's points.
  int points_of(const Operator& op, const std::string& name, DType type, int units) {
    Tensor t{.name = name, .dtype = type};
    Slice s{.tensor = static_cast<int>(g_.tensors.size()), .tier = Tier::lane, .units = units};
    for (LoopId l : op.loops) {
      t.shape.push_back(w_.loop(l).extent);
      Affine plain{.terms = {{l, 1}}};
      s.base.push_back(base_of(plain, g_.maps[static_cast<std::size_t>(units)]));
    }
    g_.tensors.push_back(std::move(t));
    return add_slice(std::move(s));
  }
  void add_op(GKind kind, std::string name, Scope scope, std::vector<int> in, int out) {
    g_.ops.push_back(
        {.kind = kind, .name = std::move(name), .scope = scope, .in = std::move(in), .out = out});
  }

  /// Whether lanes, items or trips of the slice's units that the operator has do not index it.
  bool is_alike(int slice) const {
    const Slice& s = g_.slices[static_cast<std::size_t>(slice)];
    const UnitMap& units = g_.maps[static_cast<std::size_t>(s.units)];
    for (std::size_t d = 0; d < units.size(); ++d) {
      if (units[d].place == Place::block || units[d].place == Place::warp) continue;
      const bool indexed = std::ranges::any_of(s.base, [&](const Base& b) {
        return b.looked_up || std::ranges::any_of(b.terms, [&](const BaseTerm& t) {
                 return t.digit == static_cast<int>(d);
               });
      });
      if (!indexed) return true;
    }
    return false;
  }

  int loaded(const Operator& op, const Access& a, int units) {
    const int to = slice_of(a, Tier::lane, units);
    int from = slice_of(a, Tier::dram, units);
    if (const auto made = stored_.find(a.tensor); made != stored_.end())
      add_op(GKind::sync, "", Scope::device, {made->second}, from);
    add_op(GKind::move, "", Scope::lane, {from}, to);
    if (!is_alike(to)) return to;
    const int wide =
        points_of(op, formatted("{}.{}", op.name, ++values_), w_.tensor(a.tensor).dtype, units);
    add_op(GKind::broadcast, op.name, Scope::lane, {to}, wide);
    return wide;
  }

  /// Who has parts of its sums.
  Scope joined_by(OpId op, int units) const {
    Scope scope = Scope::lane;
    for (const Digit& d : g_.maps[static_cast<std::size_t>(units)])
      for (LoopId l : w_.reduction_loops(op))
        if (loops_.at(static_cast<int>(l.index())) == d.loop)
          scope = std::max(scope, d.place == Place::block  ? Scope::device
                                  : d.place == Place::warp ? Scope::block
                                  : d.place == Place::lane ? Scope::warp
                                                           : Scope::lane);
    return scope;
  }

  static bool copies(const Output& o) {
    return o.value.kind == Expr::Kind::input && o.combine == Combine::assign;
  }

  void add(const Placed& p) {
    const Operator& op = w_.op(p.op);
    UnitMap renamed = p.units;
    for (LoopId l : op.loops) loop_id(static_cast<int>(l.index()));
    for (Digit& d : renamed) d.loop = loop_id(d.loop);
    const int units = units_id(renamed);
    const bool sums = !w_.reduction_loops(p.op).empty();
    const bool plain = op.outputs.size() == 1 && copies(op.outputs.front());
    std::vector<int> in;
    for (const Access& a : op.inputs) {
      // The operator's points are what sums are of; nothing else is widened where it only moves.
      in.push_back(loaded(op, a, units));
    }
    for (const Output& o : op.outputs) {
      const int result = slice_of(o.target, Tier::lane, units);
      if (!sums) {
        add_op(plain ? GKind::transpose : GKind::elementwise, op.name, Scope::lane, in, result);
      } else {
        int points = in.empty() ? -1 : in.front();
        if (o.value.kind != Expr::Kind::input || in.size() != 1) {
          points = points_of(op, formatted("{}.{}", op.name, ++values_),
                             w_.tensor(o.target.tensor).dtype, units);
          add_op(GKind::elementwise, op.name, Scope::lane, in, points);
        }
        add_op(GKind::reduce, op.name, joined_by(p.op, units), {points}, result);
      }
      const int home = slice_of(o.target, Tier::dram, units);
      add_op(GKind::move, "", Scope::lane, {result}, home);
      stored_[o.target.tensor] = home;
      const auto readers = w_.consumers(o.target.tensor);
      if (w_.is_output(o.target.tensor) || std::ranges::any_of(readers, [&](OpId r) {
            return !std::ranges::binary_search(inside_, r);
          }))
        g_.leaving.push_back(tensor_id(o.target.tensor));
    }
  }

  const Workload& w_;
  Gir g_;
  std::vector<OpId> inside_;
  std::map<int, int> loops_;
  std::map<TensorId, int> tensors_;
  std::map<TensorId, int> stored_;  ///< its slice in DRAM
  int values_ = 0;
};

}  // namespace

std::vector<Gir> gir_of(const Workload& w, const Kernel& k, std::int64_t warps) {
  TreeWalk walk(w, k, warps);
  if (k.tree.kind != Node::Kind::pack) return {GirBuilder(w, k.name, warps).of(walk.of(k.tree))};
  std::vector<Gir> out;
  for (const Node& part : k.tree.children) {
    const std::string name = formatted("{}_{}", k.name, out.size() + 1);
    out.push_back(GirBuilder(w, name, warps).of(walk.of(part)));
  }
  return out;
}

}  // namespace tilewright::powerfusion
