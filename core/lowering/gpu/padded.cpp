// Windows in shared memory (a convolution's tile with its halo) with zeros where they are outside
// of their tensors: no read has a condition, and neighbours are read as one, once for all points of
// a thread whose windows overlap.
#include <algorithm>
#include <numeric>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kMostOfWindow = 64;    // elements of a window that registers hold
constexpr std::int64_t kMostUnrolled = 1024;  // products of a thread that are unrolled, at most
constexpr std::int64_t kNeighbours = 4;       // of floats: 16 bytes

bool divides(const Linear& x, std::int64_t width, bool constant = true) {
  return (!constant || x.constant % width == 0) &&
         std::ranges::all_of(x.terms, [&](const auto& t) { return t.second % width == 0; });
}

std::int64_t factor(const Linear& x, int id) {
  const auto found = x.terms.find(id);
  return found == x.terms.end() ? 0 : found->second;
}

}  // namespace

/// Loops around a use of a tile that are not around the tile.
std::vector<NodeId> Lowering::below_tile(const Value& v, const Use& use) const {
  std::vector<NodeId> loops = loops_around(use.node);
  const std::vector<NodeId>& outer = loops_around(v.anchor);
  std::erase_if(loops, [&](NodeId l) {
    return std::ranges::find(outer, l) != outer.end() ||
           std::ranges::find(v.around, l) != v.around.end();
  });
  return loops;
}

/// All that the units of a tile read by one use: from where on, how much, and where it ends. None
/// where an index falls, or where the tile begins elsewhere.
std::optional<std::vector<Span>> Lowering::reach(const Value& v, const Use& use) const {
  const OpId op = k_.node(use.node).op;
  const Access& a = workload_.op(op).inputs[static_cast<std::size_t>(use.input)];
  const std::vector<NodeId> loops = below_tile(v, use);
  Point at = *facts_[v.producer.index()].at;
  for (const Inference& i : k_.node(v.producer).lookahead) infer(i, at);
  std::vector<Span> box;
  Key key = use_key(use);
  for (std::size_t d = 0; d < key.size(); ++d) {
    Span s = access_span(op, a.index[d], workload_.tensor(a.tensor).shape[d], at, false);
    const Linear end = s.lo + number(s.most);
    std::int64_t most = 1;
    const auto go_along = [&](int id, std::int64_t last) {
      const std::int64_t step = factor(key[d], id);
      most += step * last;
      return step;
    };
    bool falls = false;
    for (NodeId l : loops) {
      const Facts& f = facts_[l.index()];
      const int id = factor(key[d], f.unit) != 0 ? f.unit : f.turn;
      falls = falls || go_along(id, k_.node(l).max_trips - 1) < 0;
      for (int gone : {f.unit, f.turn}) key[d].terms.erase(gone);
    }
    for (int e : facts_[use.node.index()].elements) {
      falls = falls || go_along(e, index(e).count - 1) < 0;
      key[d].terms.erase(e);
    }
    if (falls || key[d] != s.lo) return std::nullopt;
    if (most > s.most) s.ends.push_back(end);
    s.most = std::max(s.most, most);
    box.push_back(std::move(s));
  }
  return box;
}

/// Neighbours of a padded tile that come from home as one: both of them are inside, or none.
std::int64_t Lowering::neighbours_of(const Value& v, const std::vector<Span>& tile) const {
  const std::vector<std::int64_t>& shape = workload_.tensor(v.tensor).shape;
  const Span& row = tile.back();
  if (shape.size() > 1 && shape.back() % kNeighbours == 0 && row.most % kNeighbours == 0 &&
      divides(row.lo, kNeighbours) &&
      std::ranges::all_of(row.ends, [](const Linear& e) { return divides(e, kNeighbours); }))
    return kNeighbours;
  const bool alone =
      shape.size() < 2 || shape.back() % 2 != 0 || !divides(tile.back().lo, 2, false);
  return alone || std::ranges::any_of(tile.back().ends,
                                      [](const Linear& e) { return !divides(e, 2); })
             ? 1
             : 2;
}

/// Where all blocks' rows are the same, what of them exists comes from home as widely as its place
/// there allows, and only what is read.
void Lowering::bring_rows_whole(Value& v, Span& row) const {
  const std::vector<std::int64_t>& shape = workload_.tensor(v.tensor).shape;
  const auto known = [](const Linear& x) { return x.is_constant(); };
  if (shape.size() < 2 || !known(row.lo) || !std::ranges::all_of(row.ends, known)) return;
  const std::int64_t from = std::max<std::int64_t>(0, row.lo.constant);
  std::int64_t to = std::min(shape.back(), row.lo.constant + row.most);
  for (const Linear& e : row.ends) to = std::min(to, e.constant);
  std::int64_t width = kNeighbours;
  while (from % width != 0 || to % width != 0 || shape.back() % width != 0) width /= 2;
  if (width == 1 || to <= from) return;
  if ((from - row.lo.constant) % 2 != 0) row.lo = row.lo - number(1), ++row.most;
  row.most = kNeighbours * ceil_div(row.most, kNeighbours);
  row.ends.clear(), row.from_zero = false;
  v.padded = width, v.whole = to - from, v.whole_from = from - row.lo.constant;
}

/// Gives a window that a warp or more share its zeros, where that can be.
bool Lowering::pad(Value& v) {
  if (!v.loaded() || p_.f64 || v.tile.empty() || !reads_window(v) ||
      !copies({}, v.around).of_warp())
    return false;
  std::vector<Span> tile;
  for (const Use& use : v.uses) {
    std::optional<std::vector<Span>> box = reach(v, use);
    if (!box) return false;
    if (tile.empty()) {
      tile = std::move(*box);
      continue;
    }
    for (std::size_t d = 0; d < tile.size(); ++d) {
      if (!(tile[d].lo - (*box)[d].lo).is_constant()) return false;
      tile[d] = hull(tile[d], (*box)[d]);
    }
  }
  Span& row = tile.back();
  bring_rows_whole(v, row);
  if (v.whole == 0) v.padded = neighbours_of(v, tile);
  if (v.padded == 2 && row.lo.constant % 2 != 0 && v.whole == 0) {
    v.begins_early = variables_.upper(row.lo) > 0;  // else it is outside of the tensor
    row.lo = row.lo - number(1), ++row.most;
  }
  if (row.most == 1) v.padded = 1;  // no neighbour is read
  if (row.most > 1 && v.whole == 0) {
    const std::int64_t whole = kNeighbours * ceil_div(row.most, kNeighbours);
    if (whole > row.most) {
      const Linear end = row.lo + number(row.most);
      // What is loaded is what is read.
      if (v.padded == 2 && !divides(end, 2)) v.padded = 1;
      row.ends.push_back(end);
    }
    row.most = whole;
  }
  // Of two ends that are so far apart the nearer one is enough.
  for (Span& s : tile)
    std::erase_if(s.ends, [&](const Linear& e) {
      return std::ranges::any_of(s.ends, [&](const Linear& other) {
        const Linear apart = e - other;
        return apart.is_constant() && apart.constant > 0;
      });
    });
  for (Span& s : tile)
    s.from_zero = s.from_zero || (variables_.lower(s.lo) < 0 && !(v.whole > 0 && &s == &row));
  v.tile = std::move(tile);
  return true;
}

/// Units that have no iteration of a loop within the tile read what the first ones do.
Read Lowering::read_padded(const Use& use) const {
  const std::size_t value = used_by_.at({use.node, use.input});
  const Value& v = values_[value];
  Read r{.from = Read::From::shared,
         .input = use.input,
         .tensor = v.tensor,
         .value = static_cast<int>(value)};
  r.at = shared_at(v, use_key(use));
  std::vector<int> units;
  for (NodeId l : below_tile(v, use)) {
    const Facts& f = facts_[l.index()];
    if (f.unit < 0 || k_.node(l).max_trips <= 1) continue;
    units.push_back(f.unit);
    const std::int64_t size = index(f.unit).count, trips = k_.node(l).max_trips;
    const std::int64_t turns = f.turn < 0 ? 1 : index(f.turn).count;
    if (size * turns == trips) continue;
    r.busy.push_back(number(trips) - linear(f.unit));
    if (f.turn >= 0) r.busy.back() = r.busy.back() - size * linear(f.turn);
  }
  if (!r.busy.empty())
    for (int unit : units) {
      const std::int64_t step = factor(r.at, unit);
      if (step == 0) continue;
      r.own = r.own + step * linear(unit);
      r.at.terms.erase(unit);
    }
  // Tiles of warps' own that idle ones were not given.
  for (const Linear& x : facts_[use.node.index()].inside)
    if (std::ranges::any_of(v.around,
                            [&](NodeId l) { return x.terms.contains(facts_[l.index()].unit); }))
      r.inside.push_back(x);
  return r;
}

/// A window's taps are known to the compiler, so that what several points read is read once.
void Lowering::unroll_windows() {
  for (const Value& v : values_) {
    if (v.padded == 0) continue;
    for (const Use& use : v.uses) {
      std::int64_t products = size_of_dims(facts_[use.node.index()].elements);
      const Key key = use_key(use);
      std::vector<int> taps;
      for (NodeId l : below_tile(v, use)) {
        const int turn = facts_[l.index()].turn;
        if (turn < 0 || k_.node(l).binding != Binding::seq) continue;
        products *= index(turn).count;
        if (std::ranges::any_of(key, [&](const Linear& x) { return x.terms.contains(turn); }))
          taps.push_back(turn);
      }
      if (products <= kMostUnrolled)
        for (int turn : taps) index(turn).unrolled = true;
    }
  }
}

/// Before a loop along a window's rows, what all of its turns read: as few accesses as can be.
void Lowering::hold_windows(NodeId loop, std::vector<Step>& out) {
  const int turn = facts_[loop.index()].turn;
  if (turn < 0 || !index(turn).unrolled) return;
  for (const auto& [key, value] : used_by_) {
    const Use use{key.first, key.second};
    const Value& v = values_[value];
    if (v.padded == 0 || held_windows_.contains(key) || !is_around(loop, use.node)) continue;
    const Key place = use_key(use);
    if (factor(place.back(), turn) == 0) continue;
    Read r = read_padded(use);
    // Along the row: the loop's turns and the thread's own points. Others say which row.
    std::vector<int> along{turn}, others;
    bool plain = r.inside.empty();
    for (int e : facts_[use.node.index()].elements) {
      if (factor(r.at, e) == 0) continue;
      plain = plain && index(e).unrolled;
      (factor(place.back(), e) != 0 ? along : others).push_back(e);
    }
    for (const auto& [id, c] : r.at.terms)
      plain = plain && (id == turn || index(id).kind != ProgramIndex::Kind::loop ||
                        !is_around(loop, index(id).node));
    Linear start = r.at, within = number(0);
    std::int64_t count = 1;
    for (int id : along) {
      plain = plain && factor(start, id) == factor(place.back(), id);
      within = within + factor(start, id) * linear(id);
      count += factor(start, id) * (index(id).count - 1);
      start.terms.erase(id);
    }
    std::int64_t width = kNeighbours;
    while (width > 1 && !(divides(start, width, false) && divides(r.own, width, false))) width /= 2;
    const std::int64_t shift = ((start.constant % width) + width) % width;
    count = width * ceil_div(count + shift, width);
    if (!plain || width == 1 || size_of_dims(others) * count > kMostOfWindow) continue;
    const int w = add_index({.kind = ProgramIndex::Kind::element,
                             .text = p_.names.fresh("w"),
                             .count = count,
                             .node = use.node,
                             .unrolled = true});
    Step step = of_value(Step::Kind::hold, value);
    step.node = loop;
    count_units(step, loops_around(use.node));
    step.dims = others;
    step.dims.push_back(w);
    step.strip = {.element = w, .width = width, .whole = count == width};
    step.read = r;
    step.read.at = start - number(shift) + linear(w);
    step.read.name = p_.names.fresh(v.name + "_row");
    r.from = Read::From::held;
    r.name = step.read.name;
    for (int e : others) r.place.push_back(linear(e));
    r.place.push_back(within + number(shift));
    held_windows_[key] = std::move(r);
    out.push_back(std::move(step));
  }
}

}  // namespace tilewright::lowering
