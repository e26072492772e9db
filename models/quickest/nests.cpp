#include "models/quickest/nests.h"

#include <algorithm>
#include <optional>

#include "core/workload/access.h"

namespace tilewright::quickest {
namespace {

constexpr std::int64_t kMostTiles = 4096;              ///< that are summed one by one
constexpr std::int64_t kMuch = std::int64_t{1} << 61;  ///< two of them can be added

/// At most kMuch.
std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMuch : std::min(product, kMuch);
}

/// Whether every reader of the operator's result has its loops for the dimensions, so that the
/// ranges that readers need are those that the loops give.
bool has_own_ranges(const Workload& w, OpId id, const std::vector<bool>& own) {
  const Operator& op = w.op(id);
  if (op.running) return false;
  for (const Output& output : op.outputs) {
    const TensorId t = output.target.tensor;
    if (w.consumers(t).empty()) continue;
    if (op.outputs.size() > 1 || w.is_output(t)) return false;
    if (!std::ranges::all_of(output.target.index,
                             [](const Affine& i) { return i.plain_loop().has_value(); }))
      return false;
    for (OpId reader : w.consumers(t)) {
      if (!own[reader.index()]) return false;
      for (const Access& a : w.op(reader).inputs)
        if (a.tensor == t && a.index != output.target.index) return false;
    }
  }
  return true;
}

}  // namespace

Kernel kernel_of(const Nests& t, const Workload& w, const std::string& level) {
  const auto nest = [&w](const Cuts& cuts, Node body) {
    for (auto c = cuts.rbegin(); c != cuts.rend(); ++c)
      body = loop(w.loop(c->loop).name, std::move(body), c->step);
    return body;
  };
  std::vector<Node> body;
  for (TensorId id : t.kept)
    if (!w.producer(id).valid()) body.push_back(load(w.tensor(id).name));
  for (const Run& run : t.runs) {
    std::vector<Node> ops;
    for (OpId op : run.ops) ops.push_back(compute(w.op(op).name));
    body.push_back(nest(run.nest, sequence(std::move(ops))));
  }
  for (TensorId id : t.kept)
    if (w.producer(id).valid()) body.push_back(store(w.tensor(id).name));
  Kernel k{.name = w.op(w.topological_order().back()).name,
           .tree = nest(t.outer, sequence(std::move(body)))};
  k.level = level;
  return k;
}

Bounds::Bounds(const Workload& w) : w_(w), own_(w.operators().size()) {
  for (std::size_t i = w.topological_order().size(); i-- > 0;) {
    const OpId id = w.topological_order()[i];
    own_[id.index()] = has_own_ranges(w, id, own_);
    all_alone_ = all_alone_ && own_[id.index()];
    if (!own_[id.index()]) continue;
    const Operator& op = w.op(id);
    for (const Access& a : op.inputs) {
      const auto same = [&a](const Access& other) { return other.tensor == a.tensor; };
      const bool once = !is_gather(a) && std::ranges::count_if(op.inputs, same) == 1;
      const bool alone = w.consumers(a.tensor).size() == 1;
      all_alone_ = all_alone_ && once && (alone || !w.is_input(a.tensor));
      if (w.is_input(a.tensor) && once) uses_[id].push_back({id, &a, false, alone});
    }
    for (const Output& o : op.outputs)
      if (w.is_output(o.target.tensor)) uses_[id].push_back({id, &o.target, true, true});
  }
}

Bounds::Least Bounds::moved(const Nests& t) {
  Least all{.exact = all_alone_};
  // Of a tensor that several operators read, each may find what another has loaded.
  std::map<TensorId, std::int64_t> shared;
  for (const Run& run : t.runs)
    for (OpId op : run.ops) {
      const auto uses = uses_.find(op);
      if (uses == uses_.end()) continue;
      for (const Use& use : uses->second) {
        const Least its = moved(use, t, run);
        all.exact = all.exact && its.exact;
        if (use.alone)
          all.bytes = std::min(all.bytes + its.bytes, kMuch);
        else
          shared[use.access->tensor] = std::max(shared[use.access->tensor], its.bytes);
      }
    }
  for (const auto& [tensor, its] : shared) all.bytes = std::min(all.bytes + its, kMuch);
  return all;
}

/// Iterations of a loop of that size in steps that stand in one another.
std::int64_t Bounds::iterations(std::int64_t size, std::span<const std::int64_t> steps) {
  if (steps.empty()) return 1;
  const std::int64_t full = size / steps[0], rest = size % steps[0];
  const auto inner = steps.subspan(1);
  return times(full, iterations(steps[0], inner)) + (rest == 0 ? 0 : iterations(rest, inner));
}

Bounds::Least Bounds::moved(const Use& use, const Nests& t, const Run& run) {
  const bool kept = t.kept.contains(use.access->tensor);
  if (kept && !use.alone) return {};
  const std::vector<Affine>& index = use.access->index;
  const std::vector<LoopId>& own = w_.op(use.op).loops;
  // Loops of more than one iteration, outermost first; with the dimension whose tile they change.
  struct Around {
    Cut cut;
    int dimension;  ///< none: -1
    bool has;       ///< the operator has the loop
  };
  std::vector<Around> loops;
  std::vector<Tiling> dimensions(index.size());
  std::size_t prefix = 0;  ///< loops up to the innermost that changes the tile
  const auto add = [&](const Cut& c) {
    std::int64_t size = w_.loop(c.loop).extent;
    for (const Around& l : loops)
      if (l.cut.loop == c.loop) size = l.cut.step;
    if (c.step >= size) return true;
    const bool has = std::ranges::find(own, c.loop) != own.end();
    int dimension = -1;
    for (std::size_t d = 0; has && d < index.size(); ++d) {
      if (!indexes(index[d], c.loop)) continue;
      if (dimension >= 0) return false;
      dimension = static_cast<int>(d);
    }
    loops.push_back({c, dimension, has});
    if (dimension < 0) return true;
    Tiling& its = dimensions[static_cast<std::size_t>(dimension)];
    if (its.count == kMostCuts) return false;
    its.cuts[static_cast<std::size_t>(its.count++)] = c;
    prefix = loops.size();
    return true;
  };
  if (!std::ranges::all_of(t.outer, add)) return {};
  if (!kept && !std::ranges::all_of(run.nest, add)) return {};

  // Where a loop goes on, those within begin again. One dimension is another then: the innermost
  // that loops within change, else the loop's own.
  for (std::size_t l = 0; l < prefix; ++l) {
    int other = loops[l].dimension;
    for (std::size_t inner = l + 1; inner < prefix; ++inner)
      if (loops[inner].dimension >= 0 && loops[inner].dimension != loops[l].dimension)
        other = loops[inner].dimension;
    Tiling& its = dimensions[static_cast<std::size_t>(other)];
    unsigned around = 0;  ///< cuts of that dimension around the loop
    for (std::size_t outer = 0; outer < l; ++outer) around += loops[outer].dimension == other;
    (other == loops[l].dimension ? its.goes_on : its.begins_again) |= 1U << around;
  }
  std::int64_t elements = 1;
  bool exact = true, plain = true;
  for (std::size_t d = 0; d < index.size(); ++d) {
    const Sum& sum = summed(use, d, dimensions[d]);
    if (sum.elements < 0) return {};
    elements = times(elements, sum.elements);
    exact = exact && sum.exact;
    plain = plain && sum.plain;
  }
  const std::int64_t bytes = times(elements, size_of(w_.tensor(use.access->tensor).dtype));

  // Iterations of loops that do not change the tile.
  const auto repeated = [&](std::size_t most, bool all) {
    std::int64_t product = 1;
    for (std::size_t l = 0; l < most; ++l) {
      if (loops[l].dimension >= 0 || (!all && loops[l].has)) continue;
      std::vector<std::int64_t> steps;
      bool first = true;
      for (std::size_t other = 0; other < most; ++other) {
        if (loops[other].cut.loop != loops[l].cut.loop) continue;
        first &= other >= l;
        steps.push_back(loops[other].cut.step);
      }
      if (first) product = times(product, iterations(w_.loop(loops[l].cut.loop).extent, steps));
    }
    return product;
  };
  // Where a loop goes on and only loops of its dimension are within it, the tile that is the same
  // is the one before.
  const std::int64_t repeats = repeated(prefix, true);
  exact = exact && (plain || (repeats == 1 && !use.written));
  const std::int64_t filled = times(bytes, repeats);
  if (!use.written) return {filled, exact};
  // A stored tile is written in each iteration, another one when it is replaced. Both are read back
  // but where a sum begins.
  const std::int64_t written = kept ? times(bytes, repeated(loops.size(), true)) : filled;
  return {std::min(kMuch, written + filled - times(bytes, repeated(prefix, false))), exact};
}

const Bounds::Sum& Bounds::summed(const Use& use, std::size_t dimension, const Tiling& its) {
  const Operator& op = w_.op(use.op);
  const Affine& index = use.access->index[dimension];
  const Interval all{0, w_.tensor(use.access->tensor).shape[dimension]};
  const auto [at, begun] = sums_.try_emplace({&index, its});
  Sum& sum = at->second;
  if (!begun) return sum;
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, w_.loop(l).extent});
  const auto range = [&](const Cut& c) -> Interval& {
    return ranges[static_cast<std::size_t>(w_.local_index(use.op, c.loop))];
  };
  const Interval whole = footprint(op, index, ranges);
  if (its.count == 0) {
    const Interval tile = intersect(whole, all);
    return sum = {tile.size(), true, true};
  }
  if (its.count == 1 && contains(all, whole)) {
    // Nothing is clipped: all iterations but the last have the same size, and no two the same tile.
    const std::int64_t extent = range(its.cuts[0]).hi, step = its.cuts[0].step;
    range(its.cuts[0]) = {0, step};
    const std::int64_t full = times(extent / step, footprint(op, index, ranges).size());
    range(its.cuts[0]) = {0, extent % step};
    return sum = {std::min(kMuch, full + footprint(op, index, ranges).size()), true, true};
  }
  // All tiles but empty ones, which are not loaded, and whether one may be that before.
  std::vector<Interval> tiles;
  std::vector<bool> same;
  std::int64_t left = kMostTiles;
  int went_on = kMostCuts;  // the outermost cut since the last tile
  bool plain = true;        // no tile is empty or that before it
  bool exact = true;
  const auto visit = [&](const auto& self, int cut) -> void {
    if (cut == its.count) {
      if (--left < 0) return;
      const Interval tile = intersect(footprint(op, index, ranges), all);
      if (tile.empty()) return void(plain = false);
      same.push_back(!tiles.empty() && ((its.goes_on >> went_on) & 1U) != 0 &&
                     tiles.back() == tile);
      tiles.push_back(tile);
      went_on = kMostCuts;
      return;
    }
    const Cut& c = its.cuts[static_cast<std::size_t>(cut)];
    const Interval around = range(c);
    const std::size_t first = tiles.size();
    for (std::int64_t lo = around.lo; lo < around.hi && left > 0; lo += c.step) {
      range(c) = {lo, std::min(lo + c.step, around.hi)};
      if (lo > around.lo) went_on = std::min(went_on, cut);
      self(self, cut + 1);
    }
    range(c) = around;
    if (((its.begins_again >> cut) & 1U) != 0 && first < tiles.size() &&
        tiles[first] == tiles.back())
      same[first] = true, exact = false;  // another dimension may differ
  };
  visit(visit, 0);
  if (left < 0) return sum;
  sum.elements = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    sum.elements += same[i] ? 0 : tiles[i].size();
    plain = plain && !same[i];
  }
  sum.exact = exact;
  sum.plain = plain;
  return sum;
}

}  // namespace tilewright::quickest
