#include "models/quickest/computes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/lowering/byte_products.h"
#include "core/lowering/row_values.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::quickest {

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
                                   by_tiles(x) ? kTiled : steps, !x.window && has_one_size(),
                                   stored == 0 ? lines_of_vector(x) : 1);
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
  constexpr double kJoined = 5;  // cycles: the lanes of a vector, added up
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
  // Where there are few rows in all, it is read as it lies (codegen/cpu/emit_rows.cpp), and the
  // vectors of several rows' sums are joined.
  const bool few_rows = stride(b, x.depth) == 1 && stride(b, x.columns) != 1 &&
                        !w_.tensor(b.tensor).values && places_.reads_right_as_it_lies(op, x);
  if (few_rows && box.rows > 1) cycles += kJoined * box.rows * box.columns;
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
  if ((!one_matrix || copied) && !few_rows && !w_.tensor(b.tensor).values &&
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

/// Lines that a vector of a plain product's right operand has parts of, where its rows begin
/// anywhere.
double Compute::lines_of_vector(const Product& x) const {
  if (x.window || x.depth < 0 || !places_.in_place(buffer_read(x.right))) return 1;
  const Operator& op = w_.op(n_.op);
  const double apart =
      static_cast<double>(places_.stride_at_home(op.inputs[static_cast<std::size_t>(x.right)],
                                                 op.loops[static_cast<std::size_t>(x.depth)])) *
      static_cast<double>(r_.element);
  if (std::fmod(apart, places_.line()) == 0) return 1;
  return 1 + std::min(1.0, static_cast<double>(r_.lanes) * r_.element / places_.line());
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

BufferId Compute::buffer_read(int input) const {
  for (const InputUse& use : n_.reads)
    if (std::ranges::find(use.inputs, input) != use.inputs.end()) return use.buffer;
  return n_.reads.front().buffer;
}

}  // namespace tilewright::quickest
