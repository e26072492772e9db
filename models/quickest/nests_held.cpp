// What a tree of nests holds at least.
#include <algorithm>
#include <optional>

#include "core/workload/access.h"
#include "models/quickest/nests.h"

namespace tilewright::quickest {

/// Where an operator stands: its run, and its place in that.
struct Bounds::Place {
  std::size_t run = 0, at = 0;
};

/// A tensor's tile: who touches it, where it is fixed, and what changes it.
struct Bounds::Tile {
  std::vector<Place> touched;
  std::int64_t bytes = 0;
  bool outer = false;   ///< of the body around all nests; else of one nest's
  bool loaded = false;  ///< where that body begins
  bool stored = false;  ///< where that body ends
  bool stays = false;   ///< the next iteration of the body that fixes it finds it again
  bool waits = false;   ///< of one nest: so does the next time that the nest is run
  bool exact = true;    ///< it has no more bytes, and nobody else touches it
};

/// Whether there are iterations before and after, of the innermost loop around a run, and of the
/// innermost around all runs.
struct Bounds::Sides {
  bool before = false, after = false;
  bool outer_before = false, outer_after = false;
  bool last = false;  ///< of two
};

namespace {

/// A loop of more than one iteration.
struct Around {
  Cut cut;
  std::int64_t trips = 0;
  bool even = true;  ///< all iterations have the same size
};

/// Loops of more than one iteration, outermost first. What the cuts `around` leave of a loop is all
/// that there is of it.
std::vector<Around> iterating(const Workload& w, const Cuts& cuts, const Cuts& around) {
  std::vector<Around> all;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    std::int64_t size = w.loop(cuts[i].loop).extent;
    for (const Cut& c : around)
      if (c.loop == cuts[i].loop) size = std::min(size, c.step);
    for (std::size_t j = 0; j < i; ++j)
      if (cuts[j].loop == cuts[i].loop) size = std::min(size, cuts[j].step);
    if (cuts[i].step < size)
      all.push_back({cuts[i], ceil_div(size, cuts[i].step), size % cuts[i].step == 0});
  }
  return all;
}

bool changes(const Workload& w, OpId op, const Access& a, LoopId loop) {
  return w.local_index(op, loop) >= 0 &&
         std::ranges::any_of(a.index, [&](const Affine& i) { return indexes(i, loop); });
}

bool read_once(const Operator& op, TensorId t) {
  return std::ranges::count(op.inputs, t, &Access::tensor) == 1;
}

const Access& read_of(const Operator& op, TensorId t) {
  return *std::ranges::find(op.inputs, t, &Access::tensor);
}

}  // namespace

/// Of the tile in an iteration from the middle of each loop, where little is clipped.
std::int64_t Bounds::bytes(OpId id, const Access& a, const Nests& t, const Cuts* nest) const {
  const Operator& op = w_.op(id);
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, w_.loop(l).extent});
  const auto cut = [&](const Cut& c) {
    const int at = w_.local_index(id, c.loop);
    if (at < 0) return;
    Interval& range = ranges[static_cast<std::size_t>(at)];
    const std::int64_t trips = ceil_div(range.size(), c.step);
    range.lo += (trips > 2 ? trips / 2 : 0) * c.step;
    range.hi = std::min(range.hi, range.lo + c.step);
  };
  for (const Cut& c : t.outer) cut(c);
  if (nest != nullptr)
    for (const Cut& c : *nest) cut(c);
  return footprint(w_, op, a, ranges).size() * size_of(w_.tensor(a.tensor).dtype);
}

std::vector<Bounds::Tile> Bounds::tiles_of(const Nests& t, const std::vector<Place>& places) const {
  const std::vector<Around> outer = iterating(w_, t.outer, {});
  std::vector<std::vector<Around>> nests;
  for (const Run& run : t.runs) nests.push_back(iterating(w_, run.nest, t.outer));
  std::vector<Tile> all;

  // Of one access; all that touch the tensor are in `its`.
  const auto add = [&](Tile its, OpId op, const Access& a, bool own) {
    const std::size_t run = places[op.index()].run;
    its.bytes = bytes(op, a, t, &t.runs[run].nest);
    its.exact = own && is_plain(op, a);
    // Where nothing is read here, what was loaded for others may be gone.
    if (its.outer && its.bytes > 0) its.bytes = bytes(op, a, t, nullptr);
    const auto same = [&](const std::vector<Around>& loops, std::size_t from) {
      return own && std::all_of(loops.begin() + static_cast<long>(from), loops.end(),
                                [&](const Around& l) { return !changes(w_, op, a, l.cut.loop); });
    };
    const std::vector<Around>& nest = nests[run];
    const bool again = outer.empty() || same(outer, outer.size() - 1);
    if (its.outer || nest.empty()) {
      its.stays = own && again;
    } else {
      its.stays = same(nest, nest.size() - 1);
    }
    its.waits = !its.outer && own && again && same(nest, 0);
    all.push_back(std::move(its));
  };
  for (std::size_t i = 0; i < w_.tensors().size(); ++i) {
    const TensorId id(i);
    const OpId producer = w_.producer(id);
    const bool kept = t.kept.contains(id);
    std::vector<OpId> readers;  // whose reads say what the tile has at least
    bool known = true;
    for (OpId op : w_.consumers(id)) {
      const bool reads =
          own_[op.index()] && read_once(w_.op(op), id) && !is_gather(read_of(w_.op(op), id));
      if (reads) readers.push_back(op);
      known = known && reads;
    }
    const auto largest = [&](const Tile& its) {
      return *std::ranges::max_element(readers, {}, [&](OpId op) {
        return bytes(op, read_of(w_.op(op), id), t,
                     its.outer ? nullptr : &t.runs[places[op.index()].run].nest);
      });
    };
    Tile its;
    for (OpId op : readers) its.touched.push_back(places[op.index()]);
    if (!producer.valid() && kept) {
      if (readers.empty()) continue;
      its.outer = its.loaded = true;
      const OpId op = largest(its);
      add(std::move(its), op, read_of(w_.op(op), id), known && readers.size() == 1);
    } else if (!producer.valid() || (w_.is_output(id) && !w_.consumers(id).empty())) {
      for (OpId op : readers)
        add({.touched = {places[op.index()]}, .outer = kept}, op, read_of(w_.op(op), id),
            known && readers.size() == 1 && !producer.valid());
    } else if (w_.is_output(id)) {
      if (!own_[producer.index()]) continue;
      its.touched = {places[producer.index()]};
      its.outer = its.stored = kept;
      const auto& outputs = w_.op(producer).outputs;
      const auto target =
          std::ranges::find_if(outputs, [&](const Output& o) { return o.target.tensor == id; });
      add(std::move(its), producer, target->target, true);
    } else {
      if (readers.empty()) continue;
      its.touched.push_back(places[producer.index()]);
      its.outer = std::ranges::any_of(w_.consumers(id), [&](OpId op) {
        return places[op.index()].run != places[producer.index()].run;
      });
      if (own_[producer.index()]) {
        add(std::move(its), producer, w_.op(producer).outputs.front().target, true);
      } else {
        const OpId op = largest(its);
        add(std::move(its), op, read_of(w_.op(op), id), false);
      }
    }
  }
  return all;
}

/// Whether no tile is clipped, and tiles of other iterations are others.
bool Bounds::is_plain(OpId id, const Access& a) const {
  const Operator& op = w_.op(id);
  std::vector<Interval> ranges;
  for (LoopId l : op.loops) ranges.push_back({0, w_.loop(l).extent});
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto& terms = a.index[d].terms;
    const Interval all{0, w_.tensor(a.tensor).shape[d]};
    if (!contains(all, footprint(op, a.index[d], ranges)) ||
        std::ranges::count_if(terms, [&](const Term& x) { return w_.loop(x.loop).extent > 1; }) > 1)
      return false;
  }
  return true;
}

Bounds::Least Bounds::held(const Nests& t) const {
  std::vector<Place> places(w_.operators().size());
  for (std::size_t r = 0; r < t.runs.size(); ++r)
    for (std::size_t i = 0; i < t.runs[r].ops.size(); ++i)
      places[t.runs[r].ops[i].index()] = {r, i};
  const std::vector<Tile> tiles = tiles_of(t, places);
  const std::vector<Around> outer = iterating(w_, t.outer, {});

  /// While an operator computes. Of what may be clipped other iterations say nothing.
  const auto alive = [](const Tile& tile, Place at, bool iterates, const Sides& asked) {
    if (!tile.exact && asked.last) return false;
    const Sides sides = tile.exact ? asked : Sides{};
    bool before = tile.outer && tile.loaded, after = tile.outer && tile.stored;
    if (!tile.outer && tile.touched.front().run != at.run) {
      if (!tile.waits) return false;
      const bool earlier = tile.touched.front().run < at.run;
      return earlier ? sides.outer_after : sides.outer_before;
    }
    for (const Place& p : tile.touched) {
      if (p.run == at.run && p.at == at.at) return true;
      const bool here = p.run == at.run;
      before = before || p.run < at.run || (here && p.at < at.at);
      after = after || p.run > at.run || (here && p.at > at.at);
      // The run's next iteration touches the tile of the outer body again.
      if (tile.outer && here && iterates) before |= sides.before, after |= sides.after;
    }
    if (tile.stays) {
      before = before || (tile.outer ? sides.outer_before : sides.before);
      after = after || (tile.outer ? sides.outer_after : sides.after);
    }
    return before && after;
  };

  Least all{.exact = all_alone_ && std::ranges::all_of(outer, &Around::even)};
  for (const Tile& tile : tiles) all.exact = all.exact && tile.exact;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < t.runs.size(); ++r) {
    const std::vector<Around> nest = iterating(w_, t.runs[r].nest, t.outer);
    all.exact = all.exact && std::ranges::all_of(nest, &Around::even);
    const std::int64_t outer_trips = outer.empty() ? 1 : outer.back().trips;
    const std::int64_t trips = nest.empty() ? outer_trips : nest.back().trips;
    for (std::size_t i = 0; i < t.runs[r].ops.size(); ++i) {
      if (!own_[t.runs[r].ops[i].index()]) continue;
      const auto sum = [&](const Sides& sides) {
        std::int64_t bytes = 0;
        for (const Tile& tile : tiles)
          if (alive(tile, {r, i}, !nest.empty(), sides)) bytes += tile.bytes;
        return bytes;
      };
      const auto some = [](std::int64_t of, bool there) { return of > 2 || (of > 1 && there); };
      const std::int64_t both = sum({trips > 1, trips > 1, outer_trips > 1, outer_trips > 1});
      most = std::max(most, both);
      if (trips != 2 && outer_trips != 2) {
        all.bytes = std::max(all.bytes, both);
        continue;
      }
      // Of two iterations one is the first, the other the last.
      for (const bool first : {true, false})
        for (const bool outer_first : {true, false}) {
          if (nest.empty() && first != outer_first) continue;
          // The last iteration may be shorter, and so may all within it.
          if (outer_trips == 2 && !outer_first && !outer.back().even) continue;
          if (trips == 2 && !first && !(nest.empty() ? outer : nest).back().even) continue;
          all.bytes =
              std::max(all.bytes,
                       sum({.before = some(trips, !first),
                            .after = some(trips, first),
                            .outer_before = some(outer_trips, !outer_first),
                            .outer_after = some(outer_trips, outer_first),
                            .last = (trips == 2 && !first) || (outer_trips == 2 && !outer_first)}));
        }
    }
  }
  all.exact = all.exact && all.bytes == most;
  return all;
}

}  // namespace tilewright::quickest
