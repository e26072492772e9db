#include "models/quickest/computes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/lowering/byte_products.h"
#include "core/lowering/row_values.h"
#include "core/lowering/window_planes.h"
#include "core/lowering/window_points.h"
#include "core/workload/expr.h"

namespace tilewright::quickest {
namespace {

/// Cycles: a step of a window's depth listed, three stores and where they are.
constexpr double kList = 2.5;

bool moves(const Access& a, LoopId loop) {
  return std::ranges::any_of(a.index, [&](const Affine& index) {
    return std::ranges::any_of(index.terms, [&](const Term& t) { return t.loop == loop; });
  });
}

}  // namespace

double kept(double needed, double capacity) {
  return std::clamp((1.15 * capacity - needed) / (0.4 * capacity), 0.0, 1.0);
}

double Compute::all_points() const {
  double points = 1;
  for (std::int64_t e : extents_) points *= static_cast<double>(e);
  return points;
}

ProductBox Compute::box_of(const Product& x) const {
  const Operator& op = w_.op(n_.op);
  const int outer = rows_of_points(x);
  ProductBox box{.rows = most(x.rows), .columns = most(x.columns), .outer = most(outer)};
  box.columns *= box.outer;
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l) {
    const bool reduced = w_.is_reduction(n_.op, op.loops[static_cast<std::size_t>(l)]);
    if (l == x.depth || (x.window && reduced))
      box.depth *= most(l);
    else if (l != x.rows && l != x.columns && l != outer)
      box.times *= most(l);
  }
  box.blocks = blocks_of_depth(box, x.window);
  return box;
}

/// The loop of rows of points that are columns of one product, as they follow one another in the
/// output, or in a tile of its own, or are summed so and set apart; -1: none.
int Compute::rows_of_points(const Product& x) const {
  const Operator& op = w_.op(n_.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const Access& c = op.outputs.front().target;
  const std::size_t in_b = b.index.size(), in_c = c.index.size();
  // Of 8-bit numbers only convolutions take points of images.
  if (sums_whole(x) && !takes_bytes(x)) return -1;
  if (in_b < 2 || in_c < 2 || x.columns < 0) return -1;
  const auto outer = c.index[in_c - 2].plain_loop();
  if (!outer || !moves(b, *outer)) return -1;
  const int local = w_.local_index(n_.op, *outer);
  if (local == x.rows || local == x.columns || local == x.depth) return -1;
  const auto width = extents_[static_cast<std::size_t>(x.columns)];
  const bool flat = x.window || !places_.in_place(n_.writes.front().buffer) ||
                    w_.tensor(c.tensor).shape[in_c - 1] == width;
  // Without a window the input is read where it lies.
  const bool lies = x.window || (b.index[in_b - 1] == c.index[in_c - 1] &&
                                 b.index[in_b - 2] == c.index[in_c - 2] &&
                                 w_.tensor(b.tensor).shape[in_b - 1] == width);
  return flat && lies ? local : -1;
}

/// Where points of an image are columns, kernels go by so many channels at a time
/// (codegen/cpu/emit_lines.cpp), panels of which stay in the first cache.
double Compute::blocks_of_depth(const ProductBox& box, bool window) const {
  constexpr double kCopyBytes = 192 << 10, kMostSteps = 1024;
  if (window) return std::max(1.0, std::ceil(box.depth / kMostSteps));
  if (box.outer <= 1) return 1;
  const double line =
      (box.columns + static_cast<double>(r_.lanes)) * static_cast<double>(r_.element);
  const double most = std::clamp(std::floor(kCopyBytes / line), 1.0, kMostSteps);
  return std::max(1.0, std::ceil(box.depth / most));
}

ProductSeconds Compute::product(const Product& x, const ProductBox& box, double stored) const {
  const double groups =
      std::ceil(box.rows / static_cast<double>(block_of(r_, box.rows, box.columns, box.depth)[0]));
  if (takes_bytes(x)) {
    // Copies and panels have a quarter of the vectors, or a half; all channels are one block. Tiles
    // take panels alone: these, and copies, go to the second cache and beyond.
    constexpr double kPacked = 2, kPackedForTiles = 5;  // cycles
    constexpr double kCopiesFurther = 2.5;
    const bool tiles = by_tiles(x);
    double seconds =
        product_seconds(r_, box.rows, box.columns, box.depth, tiles ? kTiled : r_.bytes_steps);
    if (groups > 1 || tiles)
      seconds += box.depth / r_.bytes_steps *
                 std::ceil(box.columns / static_cast<double>(r_.lanes)) *
                 (tiles ? kPackedForTiles : kPacked) * r_.cycle;
    if (x.window) seconds += copies(x, box) / r_.bytes_steps * (tiles ? kCopiesFurther : 1);
    return {.seconds = box.times * (seconds + put_together(x, box))};
  }
  const int steps = steps_at_once(x);
  double seconds = box.times * box.blocks *
                   product_seconds(r_, box.rows, box.columns, box.depth / box.blocks,
                                   by_tiles(x) ? kTiled : steps);
  if (!x.window) seconds += box.times * rows_begun(x, box);
  const double vectors = box.times * box.depth / static_cast<double>(r_.lanes);  // of a row
  if (steps == 2 && !sums_whole(x)) seconds += (box.rows + box.columns) * vectors * r_.pair;
  if (sums_whole(x)) {
    constexpr double kCopied = 0.4;  // cycles: bytes of a vector's elements, as products take them
    // Weights are put together once for all runs.
    const Access& right = w_.op(n_.op).inputs[static_cast<std::size_t>(x.right)];
    const bool kept = w_.tensor(right.tensor).values && places_.in_place(buffer_read(x.right));
    seconds += vectors * (box.rows * kCopied * r_.cycle + (kept ? 0 : box.columns * r_.quad));
  }
  const double begun = x.window ? 0 : box.times * panels_begun(x, box);
  if (groups > 1)
    seconds += box.times * box.depth * std::ceil(box.columns / static_cast<double>(r_.lanes)) *
               stored * r_.cycle;
  if (!x.window && box.outer <= 1) return {.seconds = seconds, .begun = begun};
  const double by_lines = seconds + box.times * copies(x, box), points = by_points(x, box);
  if (by_lines <= points) return {.seconds = by_lines};
  return {.seconds = points, .by_points = true};
}

/// Steps of the depth that an element of a plain product's operands has.
int Compute::steps_at_once(const Product& x) const {
  if (x.window) return 1;
  if (sums_whole(x)) return r_.bytes_steps;
  return r_.fma_pairs > 0 ? 2 : 1;
}

/// Whether it is a plain product of i8 that is summed in whole numbers.
bool Compute::sums_whole(const Product& x) const {
  return !x.window && r_.fma_bytes > 0 && multiplies_bytes(w_, n_.op);
}

bool Compute::by_tiles(const Product& x) const {
  constexpr std::int64_t kTile = 16;  // rows of a convolution's weights that are packed together
  if (!r_.tiles || x.rows < 0) return false;
  if (!takes_bytes(x)) return sums_whole(x) && most(x.rows) >= kLeastTileRows;
  const auto rows = extents_[static_cast<std::size_t>(x.rows)];
  const LoopId loop = w_.op(n_.op).loops[static_cast<std::size_t>(x.rows)];
  return rows >= kTile && (rows % kTile == 0 || rows == w_.loop(loop).extent);
}

bool Compute::takes_bytes(const Product& x) const {
  if (!places_.convolves_bytes(n_.op, x) || most(x.rows) < 4) return false;
  const Operator& op = w_.op(n_.op);
  for (std::size_t l = 0; l < op.loops.size(); ++l)
    if (w_.is_reduction(n_.op, op.loops[l]) && extents_[l] != w_.loop(op.loops[l]).extent)
      return false;
  return true;
}

/// Seconds in which the part of an image that one product reads is put together: rows of each of
/// its dimensions but those that `times` counts.
double Compute::put_together(const Product& x, const ProductBox& box) const {
  constexpr double kOfRow = 1.75;  // cycles: a row's part of a vector of quads or pairs
  const Operator& op = w_.op(n_.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  double elements = 1;
  for (std::size_t d = 0; d < b.index.size(); ++d) {
    double reach = 1;
    for (const Term& t : b.index[d].terms)
      reach +=
          static_cast<double>(std::abs(t.coefficient)) * (most(w_.local_index(n_.op, t.loop)) - 1);
    elements *= std::min(reach, static_cast<double>(w_.tensor(b.tensor).shape[d]));
  }
  // Loops that are left over move the image, or do not: of those that do, one iteration is read.
  double others = 1;
  const int outer = rows_of_points(x);
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l) {
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    if (l != x.rows && l != x.columns && l != outer && !w_.is_reduction(n_.op, loop) &&
        moves(b, loop))
      others *= most(l);
  }
  return elements / std::max(1.0, others) / static_cast<double>(r_.lanes) * kOfRow * r_.cycle +
         box.depth / r_.bytes_steps * kList * r_.cycle;
}

/// Seconds in which panels of the right operand are begun in memory: where loops cut the depth, a
/// tile's panels do not follow one another, unless it is a single one and the next tile is the rest
/// of its depth.
double Compute::panels_begun(const Product& x, const ProductBox& box) const {
  if (r_.caches.empty() || x.depth < 0 || x.columns < 0) return 0;
  const Operator& op = w_.op(n_.op);
  const BufferId right = buffer_read(x.right);
  const LoopId depth = op.loops[static_cast<std::size_t>(x.depth)];
  if (extents_[static_cast<std::size_t>(x.depth)] == w_.loop(depth).extent ||
      !places_.in_place(right))
    return 0;
  const auto moves = [&](NodeId id, int local) {
    return std::ranges::any_of(k_.node(id).cuts,
                               [&](const OpLoop& c) { return c.op == n_.op && c.local == local; });
  };
  NodeId around = n_.parent;
  while (around.valid() && !moves(around, x.depth) && !moves(around, x.columns))
    around = k_.node(around).parent;
  const double panels =
      std::ceil(box.columns /
                static_cast<double>(block_of(r_, box.rows, box.columns, box.depth)[1] * r_.lanes));
  if (panels <= 1 && around.valid() && moves(around, x.depth)) return 0;
  const auto all = static_cast<double>(w_.tensor(k_.buffer(right).tensor).bytes().value);
  return panels * r_.latency * (1 - kept(2 * all, r_.caches.back().capacity));
}

/// Seconds of rows of the left operand that a loop over the depth cuts: each begins anew in each
/// of its blocks, before hardware brings it ahead.
double Compute::rows_begun(const Product& x, const ProductBox& box) const {
  constexpr double kBegins = 40;   // cycles
  constexpr double kStreams = 16;  // of lines that hardware follows at once (assumed)
  if (r_.caches.size() < 2 || x.depth < 0) return 0;
  const LoopId depth = w_.op(n_.op).loops[static_cast<std::size_t>(x.depth)];
  const BufferId left = buffer_read(x.left);
  if (extents_[static_cast<std::size_t>(x.depth)] == w_.loop(depth).extent ||
      !places_.in_place(left))
    return 0;
  // A few rows go on where the tile before has ended, if that is the step of the depth before.
  NodeId around = n_.parent;
  const auto moves = [&](NodeId id, int local) {
    return std::ranges::any_of(k_.node(id).cuts,
                               [&](const OpLoop& c) { return c.op == n_.op && c.local == local; });
  };
  while (around.valid() && !moves(around, x.depth) && !moves(around, x.rows))
    around = k_.node(around).parent;
  if (box.rows <= kStreams && around.valid() && moves(around, x.depth)) return 0;
  const auto all = static_cast<double>(w_.tensor(k_.buffer(left).tensor).bytes().value);
  return box.rows * kBegins * (1 - kept(2 * all, r_.caches[1].capacity)) * r_.cycle;
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
    if (moves(b, loop) && !moves(a, loop) && (rows < 0 || most(l) > most(rows))) rows = l;
  }
  return rows;
}

/// Seconds of all products of the form that broadcasts points: nothing is copied, padding is left
/// out.
double Compute::by_points(const Product& x, const ProductBox& box) const {
  const Access& b = w_.op(n_.op).inputs[static_cast<std::size_t>(x.right)];
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
               .near = kRowsNear * (r_.caches.empty() ? 48 << 10 : r_.caches.front().capacity)}));
}

BufferId Compute::buffer_read(int input) const {
  for (const InputUse& use : n_.reads)
    if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
  return n_.reads.front().buffer;
}

std::optional<double> Compute::taps(const Product& x) const {
  constexpr double kFewRows = 3;
  constexpr double kAtEdge = 2;  // cycles more of a vector that lies partly in the padding: lanes
                                 // are chosen for each tap
  const Operator& op = w_.op(n_.op);
  const Access& left = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& right = op.inputs[static_cast<std::size_t>(x.right)];
  double rows = 1, along = 1;
  bool apart = false;
  double edges = 0;
  std::vector<Interval> everywhere;
  for (LoopId l : op.loops) everywhere.push_back({0, w_.loop(l).extent});
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const auto extent = static_cast<double>(extents_[l]);
    if (w_.is_reduction(n_.op, op.loops[l])) continue;
    if (moves(left, op.loops[l]) && !moves(right, op.loops[l])) rows = std::max(rows, extent);
    if (op.outputs.front().target.index.back().plain_loop() != op.loops[l]) continue;
    along = extent;
    for (std::size_t d = 0; d < right.index.size(); ++d)
      for (const Term& t : right.index[d].terms) {
        if (t.loop != op.loops[l]) continue;
        apart = apart || t.coefficient > 1;
        const Interval reach = footprint(op, right.index[d], everywhere);
        edges = (reach.lo < 0) + (reach.hi > w_.tensor(right.tensor).shape[d]);
      }
  }
  if (rows > kFewRows) return std::nullopt;
  // A load that begins anywhere in a line and a multiply-add a tap; elements that lie apart are two
  // loads and put together.
  const double tap = apart ? r_.tap_apart : r_.tap;
  const double vectors = std::ceil(along / static_cast<double>(r_.lanes));
  return all_points() / along * (vectors * tap + std::min(vectors, edges) * kAtEdge * r_.cycle);
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
    (moves(op.inputs[x->image], op.loops[static_cast<std::size_t>(l)]) ? images : times) *= most(l);
  }
  const auto rows = static_cast<std::int64_t>(most(x->rows));
  const auto cycles = cycles_of_plane(*x, rows, static_cast<std::int64_t>(most(x->columns)), unit);
  return images * (cycles.copy + times * cycles.points) * r_.cycle + r_.visit;
}

/// Whether the expression is the same in all lanes of a vector that runs along the loop.
bool Compute::uniform(const Expr& e, LoopId along) const {
  if (e.kind == Expr::Kind::constant) return true;
  if (e.kind == Expr::Kind::index) return e.loop != along;
  if (e.kind != Expr::Kind::call) return false;
  return std::ranges::all_of(e.args, [&](const Expr& a) { return uniform(a, along); });
}

/// Seconds of a function beside its arguments: of a vector, or of a point that is computed alone.
double Compute::call(const Expr& e, bool alone) const {
  static constexpr std::array kShort = {"exp", "sqrt", "rsqrt"};
  static constexpr std::array kQuotients = {"div", "recip"};
  static constexpr std::array kOurs = {"tanh", "erf"};  // as vectors
  const auto is = [&e](const auto& names) {
    return std::ranges::find(names, e.function) != names.end();
  };
  const ExprFunction* const f = find_expr_function(e.function);
  const bool light = f != nullptr && f->light == 1;
  const double lanes = static_cast<double>(r_.lanes);
  if (alone) {
    // The library's extremes are calls, too: they look at NaN.
    if (e.function == "max" || e.function == "min") return r_.expensive_one;
    if (light || is(kQuotients)) return r_.light_one;
    return e.function == "tanh" ? r_.library_one : r_.expensive_one;
  }
  // Roots and squares have instructions.
  const bool short_power =
      e.function == "pow" && e.args[1].kind == Expr::Kind::constant &&
      (e.args[1].constant == 0.5 || e.args[1].constant == 0.75 || e.args[1].constant == 2);
  if (light) return r_.light;
  if (is(kQuotients)) return r_.divide;
  // Half of its division runs beside the next vector's exponential.
  if (e.function == "sigmoid") return r_.expensive + r_.divide / 2;
  if (is(kShort) || short_power) return r_.expensive;
  if (e.function == "gelu") return 1.28 * lanes * r_.library;
  // Of functions without code for vectors the library's is called for each lane.
  return lanes * (is(kOurs) ? r_.library : r_.expensive_one);
}

/// What a vector, or a point alone, of an expression costs, lanes along a loop: what all lanes
/// share is a scalar's work beside, as a branch is, and what is written twice is computed once.
double Compute::seconds_of(const Operator& op, const Expr& e, LoopId along,
                           std::vector<const Expr*>& known) const {
  if (e.kind != Expr::Kind::call || uniform(e, along) || lowering::is_of_row(op, e, along))
    return 0;
  if (std::ranges::any_of(known, [&](const Expr* k) { return *k == e; })) return 0;
  known.push_back(&e);
  double seconds = 0;
  for (const Expr& a : e.args) seconds += seconds_of(op, a, along, known);
  if (e.function == "select" && uniform(e.args.front(), along)) return seconds;
  return seconds + call(e, !along.valid());
}

/// What is computed once a row, beside its vectors.
double Compute::row_seconds(const Operator& op, const Expr& e, LoopId along) const {
  double seconds = lowering::is_of_row(op, e, along) ? call(e, true) : 0;
  for (const Expr& a : e.args) seconds += row_seconds(op, a, along);
  return seconds;
}

/// Of all results of an operator, and of combining or storing them.
double Compute::value_seconds(const Operator& op, LoopId along) const {
  const bool alone = !along.valid();
  const double light = alone ? r_.light_one : r_.light;
  std::vector<const Expr*> known;
  double seconds = 0;
  for (const Output& out : op.outputs) {
    seconds += seconds_of(op, out.value, along, known) + light;
    if (out.rescale) seconds += light;
    if (alone && (out.combine == Combine::max || out.combine == Combine::min))
      seconds += r_.expensive_one;
  }
  return seconds;
}

/// The longest loop that vectors run along, as the CPU target chooses it: every access walks it
/// element by element or not at all; -1: none does, and points are computed one by one.
int Compute::vector_loop() const {
  const Operator& op = w_.op(n_.op);
  // What moves from one iteration to the next: nothing (0), to a neighbour (1), further in the same
  // row (2), to another row (3).
  const auto step = [&](const Access& a, LoopId loop, bool packed) {
    int found = 0;
    bool last = true;  // but for dimensions of one element
    for (std::size_t d = a.index.size(); d-- > 0;) {
      for (const Term& t : a.index[d].terms)
        if (t.loop == loop)
          found = std::max(found, !last ? 3 : std::abs(t.coefficient) == 1 ? 1 : 2);
      bool one = w_.tensor(a.tensor).shape[d] == 1;
      if (packed)
        one = one || std::ranges::all_of(a.index[d].terms, [&](const Term& t) {
                return most(w_.local_index(n_.op, t.loop)) == 1;
              });
      last = last && one;
    }
    return found;
  };
  int best = -1;
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l) {
    if (most(l) < 2 || (best >= 0 && most(l) <= most(best))) continue;
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    const bool reduced = w_.is_reduction(n_.op, loop);
    bool fits = true, walks = false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      const BufferId buffer = buffer_read(static_cast<int>(i));
      const int by = step(op.inputs[i], loop, buffer.valid() && !places_.in_place(buffer));
      walks = walks || by == 1;
      // Points of a window may lie apart in their row.
      const bool strip = !reduced && by == 2 && through_window(op.inputs[i]);
      // Places that are read from a tensor along the loop are found point by point.
      const bool placed = std::ranges::any_of(op.inputs[i].index, [&](const Affine& x) {
        return x.gathered >= 0 && moves(op.inputs[static_cast<std::size_t>(x.gathered)], loop);
      });
      fits = fits && !placed && (by < 2 || strip);
    }
    for (const OutputUse& use : n_.writes) {
      const Access& out = op.outputs[static_cast<std::size_t>(use.output)].target;
      fits = fits && step(out, loop, !places_.in_place(use.buffer)) == (reduced ? 0 : 1);
    }
    if (fits && (walks || !reduced)) best = l;
  }
  return best;
}

/// Whether vectors along the loop read what was summed up and stored element by element: a load of
/// several stores waits until these have left.
bool Compute::reads_sums_together(int along) const {
  if (along < 0 || most(along) < 2) return false;
  const Operator& op = w_.op(n_.op);
  const LoopId loop = op.loops[static_cast<std::size_t>(along)];
  return std::ranges::any_of(op.inputs, [&](const Access& a) {
    const OpId by = w_.producer(a.tensor);
    if (!by.valid() || a.index.empty() || !moves(a, loop)) return false;
    const Operator& sum = w_.op(by);
    return !product_of(w_, by) && !sum.inputs.empty() && !sum.inputs.front().index.empty() &&
           std::ranges::any_of(sum.inputs.front().index.back().terms,
                               [&](const Term& t) { return w_.is_reduction(by, t.loop); });
  });
}

/// Of a vector of all operators before this one whose values it takes from registers.
double Compute::in_step(const InRegisters& registers, const Operator& op, LoopId along) const {
  double seconds = 0;
  for (const Access& a : op.inputs) {
    const OpId by = w_.producer(a.tensor);
    if (!by.valid() || product_of(w_, by)) continue;
    const bool taken = std::ranges::any_of(registers.reads, [&](const auto& read) {
      return &w_.op(read.first) == &op && k_.buffer(read.second).tensor == a.tensor;
    });
    if (taken) seconds += value_seconds(w_.op(by), along) + in_step(registers, w_.op(by), along);
  }
  return seconds;
}

/// What a sum or an extreme along vectors takes beside its additions: each waits for the one
/// before, and the lanes are joined where a row ends. The compiler unrolls short rows, and the next
/// row begins beside; where a loop ends, it does not.
double Compute::joined(const InRegisters& registers, bool follows, int along) const {
  constexpr double kChains = 4;    // codegen/cpu/emit_points.cpp; a follower has one
  constexpr double kUnrolls = 16;  // vectors
  const Operator& op = w_.op(n_.op);
  const LoopId loop = op.loops[static_cast<std::size_t>(along)];
  const double vectors = std::ceil(most(along) / static_cast<double>(r_.lanes));
  const double outputs = static_cast<double>(op.outputs.size());
  double rows = 1;
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l)
    if (l != along) rows *= most(l);
  const bool chains = !follows && vectors >= 2 * kChains;
  const double steps =
      chains ? std::floor(vectors / kChains) + std::fmod(vectors, kChains) : vectors;
  double waits = 0;
  if (chains || vectors > kUnrolls) {
    const double busy = vectors * (value_seconds(op, loop) + in_step(registers, op, loop));
    waits = std::max(0.0, steps * kLatency * r_.cycle - busy);
  }
  // A follower keeps a row's lanes apart until the row is whole.
  const double ends = follows ? most(along) / static_cast<double>(w_.loop(loop).extent) : 1;
  const double apart = follows && ends < 1 ? 3 * r_.light : 0;
  return rows * (waits + outputs * (ends * r_.join + apart));
}

double Compute::points(const InRegisters& registers) const {
  const double points = all_points();
  const Operator& op = w_.op(n_.op);
  const int vector = vector_loop();
  const LoopId along = vector < 0 ? LoopId() : op.loops[static_cast<std::size_t>(vector)];
  const double light = vector < 0 ? r_.light_one : r_.light;
  double each = value_seconds(op, along);
  constexpr double kApart = 2.5;   // operations: a second load, and neighbours put together
  constexpr double kGathered = 2;  // operations: an index that is read is converted and multiplied
  bool follows = false;
  for (const InputUse& use : n_.reads) {
    if (use.buffer.valid() && registers.reads.contains({n_.op, use.buffer}))
      follows = true;
    else
      each += 0.5 * light * static_cast<double>(use.inputs.size());
    for (int i : use.inputs)
      for (const Affine& index : op.inputs[static_cast<std::size_t>(i)].index) {
        if (vector < 0 && index.gathered >= 0) each += kGathered * light;
        for (const Term& t : index.terms)
          if (t.loop == along && std::abs(t.coefficient) > 1) each += kApart * light;
      }
  }
  const bool unstored = registers.unstored.contains(n_.writes.front().buffer);
  if (unstored) each -= 0.5 * light;
  const double lanes = static_cast<double>(r_.lanes);
  // What a loop leaves over of its last vector costs a vector, too.
  const double run = most(vector), rows = points / run;
  double seconds = rows * (vector < 0 ? 1 : std::ceil(run / lanes)) * each;
  // A part of a vector that is stored: with AVX2 on a Zen 3, such a store takes ten cycles. Sums of
  // a row, and what stays in registers, leave lanes out by one more operation.
  if (vector >= 0 && std::fmod(run, lanes) != 0)
    seconds += rows * (unstored || w_.is_reduction(n_.op, along) ? light : r_.part);
  for (const Output& out : op.outputs) seconds += rows * row_seconds(op, out.value, along);
  if (vector >= 0 && w_.is_reduction(n_.op, along)) seconds += joined(registers, follows, vector);
  // A row begins; `join` and `part` are measured with rows of one vector, and have most of it.
  constexpr double kRowBegins = 0.5;  // cycles
  if (!follows) seconds += r_.visit + rows * kRowBegins * r_.cycle;
  if (reads_sums_together(vector))
    seconds += r_.reread;
  else
    seconds += waits_for_rows(vector);
  return seconds;
}

/// How often this compute is visited in the iteration in which its kernel has the operator; 0: the
/// kernel has not.
double Compute::visits_since(OpId by) const {
  const auto made = std::ranges::find_if(
      k_.nodes, [by](const ScheduleNode& n) { return n.kind == NodeKind::compute && n.op == by; });
  if (made == k_.nodes.end()) return 0;
  std::set<NodeId> around;
  for (NodeId at = made->parent; at.valid(); at = k_.node(at).parent) around.insert(at);
  double visits = 1;
  for (NodeId at = n_.parent; at.valid() && !around.contains(at); at = k_.node(at).parent)
    if (k_.node(at).kind == NodeKind::loop)
      visits *= static_cast<double>(std::max<std::int64_t>(1, k_.node(at).max_trips));
  return visits;
}

/// Seconds until what was made of a row just before is there, once a tile: the last row's sum is
/// joined, or its root found, before this compute begins with it, and no other row is left that
/// could be worked on meanwhile.
double Compute::waits_for_rows(int along) const {
  constexpr double kJoined = 32, kRoot = 32, kValue = 10;  // cycles
  const Operator& op = w_.op(n_.op);
  double waits = 0;
  for (const Access& a : op.inputs) {
    const OpId by = w_.producer(a.tensor);
    if (!by.valid() || product_of(w_, by)) continue;
    if (along >= 0 && moves(a, op.loops[static_cast<std::size_t>(along)])) continue;
    const bool sums = !w_.reduction_loops(by).empty();
    const bool light = std::ranges::all_of(w_.op(by).outputs, [](const Output& o) {
      return o.value.kind != Expr::Kind::call || (find_expr_function(o.value.function) != nullptr &&
                                                  find_expr_function(o.value.function)->light == 1);
    });
    if (along < 0 && !sums) continue;  // a point alone
    const double visits = visits_since(by);
    if (visits > 0) waits = std::max(waits, (sums ? kJoined : light ? kValue : kRoot) / visits);
  }
  return waits * r_.cycle;
}

}  // namespace tilewright::quickest
