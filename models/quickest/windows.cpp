// What products through windows take: their lines of points, points that are broadcast, taps of few
// channels, and images that windows slide over.
#include <algorithm>
#include <cmath>

#include "core/lowering/window_planes.h"
#include "core/lowering/window_points.h"
#include "core/lowering/window_transform.h"
#include "core/workload/access.h"
#include "models/quickest/computes.h"

namespace tilewright::quickest {

/// Taps of a tile of a window; 0: of a pointwise convolution.
double Compute::taps_of_window(const Product& x) const {
  double taps = 1;
  bool one = true;
  for (const Affine& index : w_.op(n_.op).inputs[static_cast<std::size_t>(x.right)].index)
    for (const Term& t : index.terms)
      if (index.terms.size() > 1 && w_.is_reduction(n_.op, t.loop)) {
        taps *= most(w_.local_index(n_.op, t.loop));
        one = one && w_.loop(t.loop).extent == 1;
      }
  return one ? 0 : taps;
}

/// Seconds until a tile of a window begins, beside its list of steps: which taps lie inside is
/// asked of each, and where their copies are.
double Compute::begins_window(const Product& x) const {
  constexpr double kBegins = 100, kOfTap = 15;  // cycles
  const double taps = taps_of_window(x);
  return taps > 0 ? (kBegins + kOfTap * taps) * r_.cycle : 0;
}

/// Seconds in which each row of points that are broadcast looks at its taps, and for the list of
/// what lies inside.
double Compute::rows_listed(const Product& x, const ProductBox& box) const {
  constexpr double kOfRow = 20, kOfTap = 4;  // cycles
  const double taps = taps_of_window(x);
  const double height = box.outer > 1 ? box.outer * box.times : box.times;
  return taps > 0 ? height * (kOfRow + kOfTap * taps) * r_.cycle : 0;
}

/// Seconds more where rows of points of a window do not follow one another in the result: each is
/// multiplied alone, or their sums are set apart, and added afterwards
/// (codegen/cpu/emit_lines.cpp).
double Compute::rows_apart(const Product& x, const ProductBox& box, double together) const {
  constexpr double kSetApart = 6;  // cycles: a vector of sums, to its place
  constexpr double kFewSteps = 48, kFill = 16;
  const Access& c = w_.op(n_.op).outputs.front().target;
  const double lanes = static_cast<double>(r_.lanes), width = box.columns / box.outer;
  if (!x.window || box.outer <= 1 || !places_.in_place(n_.writes.front().buffer) ||
      static_cast<double>(w_.tensor(c.tensor).shape.back()) == width)
    return 0;
  const double alone = box.outer * std::ceil(width / lanes),
               vectors = std::ceil(box.columns / lanes);
  if (box.depth >= kFewSteps && (alone - vectors) * box.depth > kFill * alone)
    return box.times * box.rows * alone * kSetApart * r_.cycle;
  return box.times *
         std::max(0.0, box.outer * product_seconds(r_, box.rows, width, box.depth) - together);
}

/// Seconds of the copies of lines that a window's taps read, and of listing its steps.
double Compute::copies(const Product& x, const ProductBox& box) const {
  constexpr double kLine = 2;   // cycles: a vector of a line that others follow
  constexpr double kApart = 5;  // cycles: a vector of one whose elements or ends lie apart
  const Operator& op = w_.op(n_.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const double list = box.depth * kList * r_.cycle;
  if (!x.window) return list;
  const LoopId columns = op.loops[static_cast<std::size_t>(x.columns)];
  double copied = 1, height = box.outer, step = 1;
  for (const Affine& index : b.index) {
    const auto of_columns = std::ranges::find(index.terms, columns, &Term::loop);
    const bool across = of_columns != index.terms.end();
    const bool down = !across && index.terms.size() > 1;
    if (across) step = static_cast<double>(of_columns->coefficient);
    for (const Term& t : index.terms) {
      if (!w_.is_reduction(n_.op, t.loop)) continue;
      const int local = w_.local_index(n_.op, t.loop);
      const auto extent = static_cast<double>(extents_[static_cast<std::size_t>(local)]);
      if (down)
        height += extent - 1;
      else
        copied *= extent;
    }
  }
  const double width = box.columns / box.outer, lanes = static_cast<double>(r_.lanes);
  const bool flat = step == 1 && width == static_cast<double>(w_.tensor(b.tensor).shape.back());
  const double vectors =
      flat ? std::ceil(height * width / lanes) : height * std::ceil(width / lanes);
  return list + copied * vectors * (flat ? kLine : kApart) * r_.cycle;
}

/// The loop of rows of points where points are broadcast: they need not follow one another.
int Compute::rows_of_window(const Product& x) const {
  const Operator& op = w_.op(n_.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  int rows = -1;
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l) {
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    if (w_.is_reduction(n_.op, loop) || l == x.columns || l == x.rows) continue;
    if (indexes(b, loop) && !indexes(a, loop) && (rows < 0 || most(l) > most(rows))) rows = l;
  }
  return rows;
}

/// Seconds of all products of the form that broadcasts points: nothing is copied, padding is left
/// out.
double Compute::by_points(const Product& x, const ProductBox& box) const {
  const Operator& op = w_.op(n_.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  double inside = 1;
  for (std::size_t d = 0; d < b.index.size(); ++d)
    if (b.index[d].terms.size() > 1 && b.index[d].gathered < 0) inside *= inside_share(w_, b, d);
  const double height = box.outer > 1 ? box.outer : most(rows_of_window(x));
  const double times = box.outer > 1 ? box.times : std::max(1.0, box.times / height);
  return times * r_.cycle *
         (box.depth * kList +
          cycles_of_points(
              {.rows = box.rows,
               .width = box.columns / box.outer,
               .height = height,
               .steps = box.depth,
               .inside = inside,
               .lanes = r_.lanes,
               .registers = r_.registers,
               .multiply_add = r_.fma / r_.cycle,
               .ahead = kStepsAhead,
               .near = kRowsNear * (r_.caches.empty() ? 48 << 10 : r_.caches.front().capacity)}));
}

/// Seconds of all products of taps that are transformed once for all runs; nothing where the
/// CPU target does not do that (codegen/cpu/emit_transformed.cpp).
std::optional<ProductSeconds> Compute::by_transform(const Product& x, const ProductBox& box) const {
  const Operator& op = w_.op(n_.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  if (!x.window || x.rows < 0 || x.columns < 0 || steps_at_once(x) != 1 || sums_whole(x) ||
      !w_.tensor(a.tensor).values || !places_.in_place(buffer_read(x.left)))
    return std::nullopt;
  const auto local = [&](LoopId l) { return w_.local_index(n_.op, l); };
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l)
    if (const LoopId loop = op.loops[static_cast<std::size_t>(l)];
        w_.is_reduction(n_.op, loop) &&
        extents_[static_cast<std::size_t>(l)] != w_.loop(loop).extent)
      return std::nullopt;
  // The last dimension has the columns; one of the others has the rows, with taps or the longest
  // without any.
  const int rows_loop = rows_of_window(x);
  int outer = -1;
  std::int64_t down = 1, across = 1;
  for (const Affine& index : b.index) {
    if (index.gathered >= 0) return std::nullopt;
    int points = -1;
    std::int64_t taps = 1;
    for (const Term& t : index.terms) {
      if (!w_.is_reduction(n_.op, t.loop))
        points = local(t.loop);
      else
        taps = w_.loop(t.loop).extent;
    }
    const bool window = index.terms.size() == 2 && points >= 0;
    if (points < 0 || (!window && points != x.columns && points != rows_loop)) continue;
    if (index.terms.size() > 2 ||
        std::ranges::any_of(index.terms, [](const Term& t) { return t.coefficient != 1; }))
      return std::nullopt;
    if (points == x.columns) {
      across = taps;
    } else if (window) {
      if (down > 1) return std::nullopt;
      outer = points, down = taps;
    } else if (outer < 0) {
      outer = points;
    }
  }
  const double channels = box.depth / static_cast<double>(down * across);
  if (outer < 0 || !can_transform(down, across, channels)) return std::nullopt;
  const double height = most(outer), rows = most(x.rows);
  const auto all = w_.loop(op.loops[static_cast<std::size_t>(x.rows)]).extent;
  TransformedWindow window{
      .rows = rows,
      .width = most(x.columns),
      .height = height,
      .channels = channels,
      .down = down,
      .across = across,
      .begins = static_cast<std::int64_t>(rows) < all ? static_cast<std::int64_t>(rows) : 0,
      .lanes = r_.lanes,
      .registers = r_.registers,
      .multiply_add = r_.fma / r_.cycle,
      .element = static_cast<double>(r_.element)};
  if (height < 2) return std::nullopt;
  if (r_.caches.size() > 1) window.near = r_.caches[1].capacity;
  const TransformedBands bands = bands_of_transformed(window);
  const double times = box.outer > 1 ? box.times : std::max(1.0, box.times / height);
  return ProductSeconds{
      .seconds = times * r_.cycle * bands.cycles,
      .passes = static_cast<double>(bands.bands),
      .larger = static_cast<double>(places_of_taps(down) * places_of_taps(across)) /
                static_cast<double>(down * across)};
}

std::optional<double> Compute::taps(const Product& x) const {
  constexpr double kFewRows = 3;
  constexpr double kOneByOne = 2;  // cycles a tap of one point: 1 to 2.6 on a Zen 5
  constexpr double kAtEdge = 0.5;  // cycles more, for each vector that is read, of one that lies
                                   // partly in the padding: lanes are chosen for each tap
  constexpr double kBegins = 2;    // cycles: a vector of sums
  const Operator& op = w_.op(n_.op);
  const Access& left = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& right = op.inputs[static_cast<std::size_t>(x.right)];
  double rows = 1, along = 1, steps = 1, step = 1;
  double edges = 0;
  bool apart = false;  // neighbouring points of the image are not side by side
  std::vector<Interval> everywhere;
  for (LoopId l : op.loops) everywhere.push_back({0, w_.loop(l).extent});
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const auto extent = static_cast<double>(extents_[l]);
    if (w_.is_reduction(n_.op, op.loops[l])) {
      steps *= extent;
      continue;
    }
    if (indexes(left, op.loops[l]) && !indexes(right, op.loops[l])) rows = std::max(rows, extent);
    if (op.outputs.front().target.index.back().plain_loop() != op.loops[l]) continue;
    along = extent;
    for (std::size_t d = 0; d < right.index.size(); ++d)
      for (const Term& t : right.index[d].terms) {
        if (t.loop != op.loops[l]) continue;
        apart = d + 1 != right.index.size();
        step = std::max(step, static_cast<double>(t.coefficient));
        const Interval reach = footprint(op, right.index[d], everywhere);
        edges = (reach.lo < 0) + (reach.hi > w_.tensor(right.tensor).shape[d]);
      }
  }
  if (rows > kFewRows) return std::nullopt;
  // Where vectors run along nothing, or along taps, points are broadcast.
  if (!apart && x.window && x.rows >= 0 && vector_loop() != x.columns) return std::nullopt;
  if (apart) return all_points() * steps * kOneByOne * r_.cycle;
  // A load that begins anywhere in a line and a multiply-add a tap; elements that lie two apart are
  // two loads and put together, others as many more. Tiles of one channel of several take no longer
  // for many taps (recorded plans of convolutions).
  const double lanes = static_cast<double>(r_.lanes), element = static_cast<double>(r_.element);
  const double vectors = std::ceil(along / lanes);
  // Two loads a cycle: the image's, which has a part of two lines where it begins anywhere, and the
  // tap's, which all lanes share.
  const double loads = (2 + std::min(1.0, lanes * element / places_.line())) / 2 * r_.cycle;
  const double tap = step > 1     ? r_.tap_apart * step / 2
                     : along == 1 ? r_.tap
                                  : std::max(r_.tap, loads);
  const bool part = std::fmod(along, lanes) != 0;
  if (step > 1 && part) edges += 1;
  const double chain = along > 1 || x.rows < 0 ? passing_chains(steps) : 0;
  double row =
      steps * std::max(vectors * std::max(tap, chain),
                       vectors * tap + std::min(vectors, edges) * kAtEdge * step * r_.cycle) +
      vectors * kBegins * r_.cycle;
  // The next row's sums are loaded from the line that a part of this one's has been stored to.
  const double apart_by =
      static_cast<double>(w_.tensor(op.outputs.front().target.tensor).shape.back()) -
      std::floor(along / lanes) * lanes;
  if (part && along > 1 && apart_by < lanes && sums_return())
    row = std::max(row, (steps * kLatency + kPartStored) * r_.cycle);
  return all_points() / along / steps * row;
}

std::optional<double> Compute::plane() const {
  const VectorUnit unit{.lanes = r_.lanes,
                        .registers = r_.registers,
                        .element_bytes = static_cast<std::int64_t>(r_.element),
                        .multiply_add = r_.fma / r_.cycle};
  const auto x = window_plane(w_, n_.op, extents_, unit);
  if (!x) return std::nullopt;
  const Operator& op = w_.op(n_.op);
  double images = 1, times = 1;  // copied, and met by what each tap is joined with
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l) {
    if (l == x->rows || l == x->columns || l == x->down || l == x->across) continue;
    (indexes(op.inputs[x->image], op.loops[static_cast<std::size_t>(l)]) ? images : times) *=
        most(l);
  }
  const auto rows = static_cast<std::int64_t>(most(x->rows));
  const auto cycles = cycles_of_plane(*x, rows, static_cast<std::int64_t>(most(x->columns)), unit);
  return images * (cycles.copy + times * cycles.points) * r_.cycle + r_.visit;
}

}  // namespace tilewright::quickest
