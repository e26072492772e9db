#include "models/quickest/computes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/lowering/byte_products.h"
#include "core/lowering/row_values.h"
#include "core/lowering/window_planes.h"
#include "core/lowering/window_points.h"
#include "core/lowering/window_transform.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::quickest {
namespace {

/// Cycles: a step of a window's depth listed, three stores and where they are.
constexpr double kList = 2.5;

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
  if (!outer || !indexes(b, *outer)) return -1;
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
                                   by_tiles(x) ? kTiled : steps, !x.window && has_one_size());
  if (!x.window) seconds += box.times * rows_begun(x, box);
  if (!x.window && steps == 1)
    seconds += box.times * (elements_apart(x, box) + waits_for_parts(x, box));
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
  // What the emitter compares.
  const double lines = seconds + box.times * copies(x, box), points = by_points(x, box);
  const double begins = box.times * begins_window(x);
  const double by_lines = lines + begins + rows_apart(x, box, seconds / box.times);
  const double by_broadcast = points + begins + rows_listed(x, box);
  const bool broadcasts = points < lines;
  if (const auto transformed = by_transform(x, box);
      transformed && transformed->seconds < (broadcasts ? by_broadcast : by_lines))
    return *transformed;
  if (!broadcasts) return {.seconds = by_lines};
  return {.seconds = by_broadcast, .passes = std::max(1.0, box.columns / 14)};
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
        indexes(b, loop))
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

/// Seconds of a product whose operands lie otherwise than its matrices: panels of the right one
/// that are put together for each of the loops around, and elements of the left one each on a line
/// of its own, which the first cache has no room for until the next panel.
double Compute::elements_apart(const Product& x, const ProductBox& box) const {
  constexpr double kAlone = 3;   // cycles: one that is copied alone
  constexpr double kOfLine = 4;  // cycles: a line of the second cache for each element
  if (x.columns < 0 || x.depth < 0 || box.outer > 1 || r_.caches.empty()) return 0;
  const double turned = r_.turn * static_cast<double>(r_.element) / r_.caches.front().line;
  const Operator& op = w_.op(n_.op);
  const auto stride = [&](const Access& a, int local) {
    return local < 0
               ? 0
               : std::abs(places_.stride_at_home(a, op.loops[static_cast<std::size_t>(local)]));
  };
  double cycles = 0, seconds = 0;
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  bool one_matrix = true;
  for (int l = 0; l < static_cast<int>(extents_.size()); ++l)
    one_matrix = one_matrix && (l == x.columns || l == x.depth || most(l) == 1 ||
                                !indexes(b, op.loops[static_cast<std::size_t>(l)]));
  // Where there is one row in all, it is read as it lies (codegen/cpu/emit_product.cpp).
  const bool one_row =
      x.rows < 0 || w_.loop(op.loops[static_cast<std::size_t>(x.rows)]).extent == 1;
  const bool whole_row = one_row && stride(b, x.depth) == 1;
  // Copied tiles keep the order of their tensor's dimensions; what lies in place is counted as it
  // is loaded, but for iterations that multiply it again.
  const bool copied = !places_.in_place(buffer_read(x.right));
  double again = 1;
  if (!copied && places_.turns({n_.op, x.right})) {
    double times = 1;
    for (int l = 0; l < static_cast<int>(extents_.size()); ++l)
      if (l != x.rows && l != x.columns && l != x.depth &&
          !indexes(b, op.loops[static_cast<std::size_t>(l)]))
        times *= most(l);
    again -= 1 / times;
  }
  if ((!one_matrix || copied) && !whole_row && !w_.tensor(b.tensor).values &&
      stride(b, x.columns) != 1)
    seconds +=
        again * box.columns * box.depth * (stride(b, x.depth) == 1 ? turned : kAlone * r_.cycle);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const std::int64_t near = x.rows < 0 || most(x.rows) == 1
                                ? stride(a, x.depth)
                                : std::min(stride(a, x.rows), stride(a, x.depth));
  const double lines = box.rows * box.depth * r_.caches.front().line;
  if (static_cast<double>(near * r_.element) >= r_.caches.front().line &&
      places_.in_place(buffer_read(x.left))) {
    const double panels =
        std::ceil(box.columns / static_cast<double>(
                                    block_of(r_, box.rows, box.columns, box.depth)[1] * r_.lanes));
    cycles +=
        panels * box.rows * box.depth * kOfLine * (1 - kept(lines, r_.caches.front().capacity));
  }
  return seconds + cycles * r_.cycle;
}

/// Seconds of rows of the left operand that a loop over the depth cuts: each begins anew in each
/// of its blocks, before hardware brings it ahead.
double Compute::rows_begun(const Product& x, const ProductBox& box) const {
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
  // Of one matrix: those of other heads are met once it is done with.
  const Operator& op = w_.op(n_.op);
  const auto extent = [&](int local) {
    return local < 0
               ? 1.0
               : static_cast<double>(w_.loop(op.loops[static_cast<std::size_t>(local)]).extent);
  };
  const double all = extent(x.rows) * extent(x.depth) * static_cast<double>(r_.element);
  // Of a row's line that two blocks have parts of, one block begins with it.
  const double lines = box.depth * static_cast<double>(r_.element) / r_.caches.front().line;
  // Rows of a block of registers begin together, with one wait for the last cache.
  const double groups =
      std::ceil(box.rows / static_cast<double>(block_of(r_, box.rows, box.columns, box.depth)[0]));
  return groups * r_.last_cache * std::min(1.0, lines) * (1 - kept(2 * all, r_.caches[1].capacity));
}

bool Compute::has_one_size() const {
  std::vector<NodeId> around;
  for (NodeId at = n_.parent; at.valid(); at = k_.node(at).parent) around.push_back(at);
  const Operator& op = w_.op(n_.op);
  std::vector<std::int64_t> size;
  for (const LoopId l : op.loops) size.push_back(w_.loop(l).extent);
  for (std::size_t i = around.size(); i-- > 0;)
    for (const OpLoop& c : k_.node(around[i]).cuts) {
      if (c.op != n_.op) continue;
      std::int64_t& now = size[static_cast<std::size_t>(c.local)];
      if (now % k_.node(around[i]).step != 0) return false;
      now = k_.node(around[i]).step;
    }
  return true;
}

/// Whether a tile has a part of its sums' steps: they come back for the others.
bool Compute::sums_return() const {
  const Operator& op = w_.op(n_.op);
  for (std::size_t l = 0; l < op.loops.size(); ++l)
    if (w_.is_reduction(n_.op, op.loops[l]) && extents_[l] < w_.loop(op.loops[l]).extent)
      return true;
  return false;
}

/// Seconds in which a tile waits for the tile before, which has stored a part of a vector in the
/// line that this one loads its sums from: such a store has to reach the first cache before, and
/// nothing of the two tiles passes beside the other. Tiles of other rows do not wait.
double Compute::waits_for_parts(const Product& x, const ProductBox& box) const {
  const auto lanes = static_cast<double>(r_.lanes);
  if (x.columns < 0 || std::fmod(box.columns, lanes) == 0 || !sums_return()) return 0;
  NodeId around = n_.parent;
  while (
      around.valid() &&
      (k_.node(around).kind != NodeKind::loop || k_.node(around).max_trips < 2 ||
       std::ranges::find(k_.node(around).cuts, n_.op, &OpLoop::op) == k_.node(around).cuts.end()))
    around = k_.node(around).parent;
  if (!around.valid()) return 0;
  for (const OpLoop& c : k_.node(around).cuts) {
    const LoopId loop = w_.op(n_.op).loops[static_cast<std::size_t>(c.local)];
    if (c.op == n_.op && c.local != x.columns && !w_.is_reduction(n_.op, loop)) return 0;
  }
  const auto [height, width] = block_of(r_, box.rows, box.columns, box.depth);
  const double rows = std::min(box.rows, static_cast<double>(height));
  const double vectors = std::min(std::ceil(box.columns / lanes), static_cast<double>(width));
  const double passing = product_seconds(r_, rows, vectors * lanes,
                                         box.depth / std::max(1.0, box.blocks), 1, has_one_size());
  const double step =
      std::max({kLatency * r_.cycle, rows * vectors * r_.fma, (rows + vectors) / 2 * r_.cycle});
  const double alone = box.depth * step + (kPartStored + rows * vectors) * r_.cycle;
  return std::max(0.0, alone - passing);
}

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
  constexpr double kOfRow = 30, kOfTap = 4;  // cycles
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
               .packs = !w_.tensor(op.inputs[static_cast<std::size_t>(x.left)].tensor).values,
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

BufferId Compute::buffer_read(int input) const {
  for (const InputUse& use : n_.reads)
    if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
  return n_.reads.front().buffer;
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
