#include <algorithm>
#include <cmath>

#include "core/lowering/checks.h"
#include "core/workload/access.h"
#include "models/quickest/quickest.h"

namespace tilewright::quickest {
namespace {

/// Loads of a step: a vector of each column, an element of each row, and addresses of rows that
/// registers have no room for.
double loads_of_step(double rows, double vectors) {
  constexpr double kAddresses = 8;
  return rows + vectors + (rows > kAddresses + 1 ? rows - kAddresses : 0);
}

/// Whether the right operand is an image with padding around points that are columns: kernels walk
/// it as a window of one tap (codegen/cpu/emit_window.cpp).
bool is_padded_image(const Workload& w, const Operator& op, const Access& left,
                     const Access& right) {
  const Access& out = op.outputs[0].target;
  if (right.index.size() < 2 || out.index.empty() || lowering::can_leave(w, op, left) ||
      !lowering::can_leave(w, op, right))
    return false;
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  for (std::size_t d = 0; d < right.index.size(); ++d) {
    const Interval inside{0, w.tensor(right.tensor).shape[d]};
    if (contains(inside, footprint(op, right.index[d], whole))) continue;
    for (const Term& t : right.index[d].terms)
      if (!indexes(out, t.loop)) return false;  // joined along the depth: no padding
  }
  const auto loop = out.index.back().plain_loop();
  const std::vector<Term>& along = right.index.back().terms;
  return loop && along.size() == 1 && along[0].loop == *loop && !indexes(left, *loop);
}

/// Whether the columns that a window moves along are the last dimension of what it reads: of others
/// kernels compute one point after the other (codegen/cpu/emit_window.cpp).
bool lies_along(const Workload& w, const Access& image, LoopId columns) {
  const auto& shape = w.tensor(image.tensor).shape;
  bool last = true;  // so far, from the end
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (last && indexes(image.index[d], columns)) return true;
    last = last && shape[d] == 1;
  }
  return false;
}

}  // namespace

bool through_window(const Access& a) {
  return std::ranges::any_of(a.index, [](const Affine& i) {
    return i.terms.size() > 1 || (i.terms.size() == 1 && std::abs(i.terms[0].coefficient) > 1);
  });
}

std::optional<Product> product_of(const Workload& w, OpId id,
                                  const std::vector<std::int64_t>& extents, bool on_gpu) {
  const Operator& op = w.op(id);
  if (op.outputs.size() != 1 || op.inputs.size() < 2 || w.gathers(id) ||
      (op.inputs.size() > 2 && (!on_gpu || !op.outputs[0].rescale)))
    return std::nullopt;
  const Output& out = op.outputs[0];
  const Expr& e = out.value;
  if (out.combine != Combine::sum || e.kind != Expr::Kind::call || e.function != "mul" ||
      e.args[0].kind != Expr::Kind::input || e.args[1].kind != Expr::Kind::input ||
      e.args[0].input == e.args[1].input)
    return std::nullopt;
  std::optional<Product> best;
  std::int64_t best_size = -1;
  const auto most = [&](int l) { return l < 0 ? 1 : extents[static_cast<std::size_t>(l)]; };
  for (int left : {0, 1}) {
    Product p{.left = e.args[static_cast<std::size_t>(left)].input,
              .right = e.args[static_cast<std::size_t>(1 - left)].input};
    const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
    p.window = through_window(a) || through_window(b) || is_padded_image(w, op, a, b);
    // What may lie outside of its tensor is asked point by point.
    if (!p.window && (lowering::can_leave(w, op, a) || lowering::can_leave(w, op, b))) continue;
    for (int l = 0; l < static_cast<int>(op.loops.size()); ++l) {
      const LoopId loop = op.loops[static_cast<std::size_t>(l)];
      const bool in_a = indexes(a, loop), in_b = indexes(b, loop);
      const bool in_out = indexes(out.target, loop);
      const auto pick = [&](int& slot) {
        if (slot < 0 || most(l) > most(slot)) slot = l;
      };
      if (in_out && in_b && !in_a && out.target.index.back().plain_loop() == loop) pick(p.columns);
      if (in_out && in_a && !in_b) pick(p.rows);
      if (!in_out && in_a && in_b) pick(p.depth);
    }
    if (p.columns < 0 || p.depth < 0) continue;
    if (p.window && !on_gpu && !lies_along(w, b, op.loops[static_cast<std::size_t>(p.columns)])) continue;
    const std::int64_t size = most(p.columns) * most(p.rows);
    if (size > best_size) best_size = size, best = p;
  }
  return best;
}

std::optional<Product> product_of(const Workload& w, OpId op, bool on_gpu) {
  std::vector<std::int64_t> extents;
  for (LoopId l : w.op(op).loops) extents.push_back(w.loop(l).extent);
  return product_of(w, op, extents, on_gpu);
}

Blocks blocks_of(const Rates& r, double rows, double columns, double depth) {
  const auto whole = [](double x) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(x)));
  };
  const std::int64_t lines = whole(rows), vectors = whole(columns / static_cast<double>(r.lanes));
  const RegisterBlock& b =
      r.micro_kernels[block_fitting(r.micro_kernels, lines, vectors, whole(depth))];
  const std::int64_t width = ceil_div(vectors, ceil_div(vectors, b.vectors));
  const std::int64_t most = std::min(kMostBlockRows, b.rows * b.vectors / width);
  const std::int64_t height = ceil_div(lines, ceil_div(lines, most));
  return {{height, width}, {b.rows, b.vectors}};
}

std::array<std::int64_t, 2> block_of(const Rates& r, double rows, double columns, double depth) {
  return blocks_of(r, rows, columns, depth).used;
}

/// Seconds of tiles: each step of 16 quads multiplies those of 16 rows and 16 columns. Sums leave
/// their tiles for memory, and come back by vectors.
double tile_seconds(const Rates& r, double rows, double columns, double depth) {
  constexpr double kTile = 16, kQuads = 4;
  constexpr double kLeaves = 3;     // cycles: a vector of sums, stored, read and converted
  constexpr double kBegins = 60;    // cycles: a block of four tiles, until the first and after the
                                    // last
  constexpr double kAgain = 2500;   // cycles: until tiles that have rested are as fast again
  constexpr double kWaiting = 8;    // blocks whose sums leave together: meanwhile tiles rest
  constexpr double kFurther = 100;  // cycles: a step of four tiles that come from the second cache
  const double high = std::ceil(rows / kTile), wide = std::ceil(columns / kTile);
  const double deep = std::ceil(depth / (kTile * kQuads));
  const double blocks = std::ceil(high / 2) * std::ceil(wide / 2);
  const double bytes = std::min(high, 2.0) * kTile * depth + std::min(wide, 2.0) * kTile * depth;
  const bool further = !r.caches.empty() && bytes > r.caches.front().capacity;
  return high * wide * deep * kTile * kTile * r.fma_bytes +
         (rows * wide * kLeaves + blocks * (kBegins + (further ? deep * kFurther : 0)) +
          std::ceil(blocks / kWaiting) * kAgain) *
             r.cycle;
}

/// Instructions that a processor has under way: 256 of a Zen 3; of those that begin two
/// multiply-adds of 64 bytes a cycle 448 (Zen 5; a Golden Cove 512).
double instructions_ahead(const Rates& r) {
  const bool wide = static_cast<double>(r.lanes) * r.element >= 64 && r.fma < 0.75 * r.cycle;
  return wide ? 448 : 256;
}

double instructions_of_block(double rows, double vectors, double depth) {
  constexpr double kOfBlock = 20;
  return depth * (rows * vectors + loads_of_step(rows, vectors)) + kOfBlock;
}

double seen_of_block(const Rates& r, double rows, double columns, double depth) {
  const auto [height, width] = block_of(r, rows, columns, depth);
  const double instructions = instructions_of_block(
      std::min(rows, static_cast<double>(height)),
      std::min(std::ceil(columns / static_cast<double>(r.lanes)), static_cast<double>(width)),
      depth);
  return std::min(1.0, instructions / instructions_ahead(r));
}

double product_seconds(const Rates& r, double rows, double columns, double depth, int steps,
                       bool known, double lines) {
  if (steps == kTiled) return tile_seconds(r, rows, columns, depth);
  const double fma = steps == 1        ? r.fma
                     : r.fma_bytes > 0 ? std::max(r.fma_bytes, r.cycle / 2)
                                       : r.fma_pairs;
  depth = std::ceil(depth / steps);
  const auto [height, width] = block_of(r, rows, columns, depth);
  const double vectors = std::ceil(columns / static_cast<double>(r.lanes));
  const double groups = std::ceil(rows / static_cast<double>(height));
  const double panels = std::ceil(vectors / static_cast<double>(width));
  // Groups and panels are as even as they can be: what is computed is what is there.
  const double m = std::max(1.0, rows / groups), n = std::max(1.0, vectors / panels);
  // Each step of a sum waits for the one before, but the next block's begin beside it as far as the
  // processor looks ahead.
  const double seen = std::min(1.0, instructions_of_block(m, n, depth) / instructions_ahead(r));
  const double waits = kLatency * seen * r.cycle;
  const double step =
      std::max({m * n * fma, (loads_of_step(m, n) + n * (lines - 1)) / 2 * r.cycle, waits});
  // What a block of known size begins and ends with passes beside its neighbours' steps.
  const double block = depth * step + (known ? seen : 1) * (r.call + m * n * kTouched * r.cycle);
  return groups * panels * block;
}

double least_seconds(const Workload& w, const Rates& r) {
  double vectors = 0, bytes = 0;
  for (std::size_t o = 0; o < w.operators().size(); ++o) {
    if (!product_of(w, OpId(o))) continue;
    double points = 1;
    for (LoopId l : w.operators()[o].loops) points *= static_cast<double>(w.loop(l).extent);
    vectors += points / static_cast<double>(r.lanes);
  }
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (!w.producer(TensorId(t)).valid() || w.is_output(TensorId(t)))
      bytes += static_cast<double>(w.tensors()[t].bytes().value);
  double moved = 0;
  if (!r.caches.empty()) {
    const CacheRate& home = r.caches.back();
    moved = bytes * std::max(home.core / r.threads, home.all);
  }
  double fma = r.fma_pairs > 0 ? std::min(r.fma, r.fma_pairs / 2) : r.fma;
  if (r.fma_bytes > 0) fma = std::min(fma, r.fma_bytes / r.bytes_steps);
  return std::max(vectors * fma / r.threads, moved);
}

}  // namespace tilewright::quickest
