// Sums of products of two tensors as matrix products: operands are packed to [batch][rows][summed]
// and [batch][summed][columns], whatever their accesses are (a convolution's packing is its
// im2col).
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/workload/reference/operators.h"
#include "core/workload/reference/sweep.h"
#include "core/workload/reference/threads.h"

namespace tilewright::reference {
namespace {

// Below this many points packing costs more than it saves.
constexpr std::int64_t kLeastPoints = 4096;
// Beyond this many elements (2 GiB) of one packed operand the plain loop nest is used. Chains past
// the L2 of a GPU have operands of a GiB, and the loop nest would take minutes for them.
constexpr std::int64_t kMostPacked = std::int64_t{1} << 28;
// Rows and columns of the product that are computed together: pieces do not depend on how many
// threads there are, so that sums do not either. Below so many points one thread does them all.
constexpr std::int64_t kRowsTogether = 256, kColumnsTogether = 1024;
constexpr double kThreadedPoints = 1e7;

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Classes {
  std::vector<std::size_t> batch, rows, columns, summed;  // positions in op.loops
};

bool indexed_by(const Access& a, LoopId loop) {
  for (const Affine& f : a.index)
    for (const Term& t : f.terms)
      if (t.loop == loop && t.coefficient != 0) return true;
  return false;
}

// The two inputs that `value` multiplies, or nothing.
std::optional<std::array<int, 2>> factors(const Expr& value) {
  if (value.kind != Expr::Kind::call || value.function != "mul") return std::nullopt;
  const Expr &a = value.args[0], &b = value.args[1];
  if (a.kind != Expr::Kind::input || b.kind != Expr::Kind::input) return std::nullopt;
  return std::array<int, 2>{a.input, b.input};
}

// Nothing where a loop is in no class: one that only an operand or only the output has.
std::optional<Classes> classify(const Operator& op, const Access& a, const Access& b) {
  Classes c;
  for (std::size_t i = 0; i < op.loops.size(); ++i) {
    const LoopId loop = op.loops[i];
    const bool in_a = indexed_by(a, loop), in_b = indexed_by(b, loop);
    const bool out = indexed_by(op.outputs[0].target, loop);
    if (in_a && in_b) {
      (out ? c.batch : c.summed).push_back(i);
    } else if (out && in_a != in_b) {
      (in_a ? c.rows : c.columns).push_back(i);
    } else {
      return std::nullopt;
    }
  }
  return c;
}

// A dense array over some loops of the operator, and the access that indexes it.
struct Packed {
  Domain domain;
  Access access;
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};

void add_loops(Packed& p, const Operator& op, std::span<const Interval> ranges,
               const std::vector<std::size_t>& positions) {
  for (std::size_t i : positions) {
    p.domain.loops.push_back(op.loops[i]);
    p.domain.ranges.push_back(ranges[i]);
    p.access.index.push_back({.terms = {{op.loops[i], 1}}, .offset = -ranges[i].lo});
    p.shape.push_back(ranges[i].size());
  }
}

void fill(Packed& p, const Access& access, std::span<const std::int64_t> shape, const double* data,
          int threads) {
  p.data.assign(static_cast<std::size_t>(p.domain.points()), 0.0);
  const Source source{&access, shape, data};
  sweep(p.domain, Program::of_source(0), {&source, 1}, {&p.access, p.shape, p.data.data()},
        Combine::assign, threads);
}

std::int64_t size_over(std::span<const Interval> ranges,
                       const std::vector<std::size_t>& positions) {
  std::int64_t n = 1;
  for (std::size_t i : positions) n *= ranges[i].size();
  return n;
}

/// z = x y for every batch, all of them dense and one after the other.
struct Product {
  std::int64_t batch, rows, summed, columns;
  const double *x, *y;
  double* z;

  std::int64_t down() const { return ceil_div(rows, kRowsTogether); }
  std::int64_t across() const { return ceil_div(columns, kColumnsTogether); }
  std::int64_t pieces() const { return batch * down() * across(); }
  void piece(std::int64_t i) const {
    const std::int64_t b = i / (down() * across()), row = i / across() % down() * kRowsTogether,
                       column = i % across() * kColumnsTogether;
    const std::int64_t high = std::min(kRowsTogether, rows - row),
                       wide = std::min(kColumnsTogether, columns - column);
    const Eigen::OuterStride<> apart(columns);
    const Eigen::Map<const Matrix> left(x + (b * rows + row) * summed, high, summed);
    const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> right(y + b * summed * columns + column,
                                                                  summed, wide, apart);
    Eigen::Map<Matrix, 0, Eigen::OuterStride<>>(z + (b * rows + row) * columns + column, high, wide,
                                                apart)
        .noalias() = left * right;
  }
  void run(double points, int threads) const {
    for_each_piece(pieces(), points < kThreadedPoints ? 1 : threads,
                   [this](std::int64_t i) { piece(i); });
  }
};

}  // namespace

bool run_contraction(const Workload& w, OpId id, std::span<const Interval> ranges,
                     TensorValues& values, int threads) {
  const auto pair = factors_of(w, id);
  if (!pair) return false;
  const Operator& op = w.op(id);
  const auto of = [&](int input) {
    return values[op.inputs[static_cast<std::size_t>(input)].tensor.index()].data();
  };
  return multiply(w, id, ranges, of((*pair)[0]), of((*pair)[1]),
                  values[op.outputs[0].target.tensor.index()].data(), threads);
}

std::optional<std::array<int, 2>> factors_of(const Workload& w, OpId id) {
  const Operator& op = w.op(id);
  if (op.outputs.size() != 1 || op.outputs[0].combine != Combine::sum || w.gathers(id))
    return std::nullopt;
  return factors(op.outputs[0].value);
}

bool multiply(const Workload& w, OpId id, std::span<const Interval> ranges, const double* left_data,
              const double* right_data, double* to, int threads) {
  const Operator& op = w.op(id);
  const auto pair = factors(op.outputs[0].value);
  const Access& left = op.inputs[static_cast<std::size_t>((*pair)[0])];
  const Access& right = op.inputs[static_cast<std::size_t>((*pair)[1])];
  const auto classes = classify(op, left, right);
  if (!classes) return false;

  const std::int64_t batch = size_over(ranges, classes->batch);
  const std::int64_t rows = size_over(ranges, classes->rows);
  const std::int64_t columns = size_over(ranges, classes->columns);
  const std::int64_t summed = size_over(ranges, classes->summed);
  const double points = 1.0 * static_cast<double>(batch) * static_cast<double>(rows) *
                        static_cast<double>(columns) * static_cast<double>(summed);
  // Without reuse of either operand packing them only costs.
  if (points < kLeastPoints || rows == 1 || columns == 1) return false;
  for (const auto& [x, y] : {std::pair{rows, summed}, {summed, columns}, {rows, columns}})
    if (static_cast<double>(batch) * static_cast<double>(x) * static_cast<double>(y) >
        static_cast<double>(kMostPacked))
      return false;

  Packed a, b, c;
  for (const auto* part : {&classes->batch, &classes->rows, &classes->summed})
    add_loops(a, op, ranges, *part);
  for (const auto* part : {&classes->batch, &classes->summed, &classes->columns})
    add_loops(b, op, ranges, *part);
  for (const auto* part : {&classes->batch, &classes->rows, &classes->columns})
    add_loops(c, op, ranges, *part);
  fill(a, left, w.tensor(left.tensor).shape, left_data, threads);
  fill(b, right, w.tensor(right.tensor).shape, right_data, threads);
  c.data.resize(static_cast<std::size_t>(batch * rows * columns));
  const Product multiply{batch, rows, summed, columns, a.data.data(), b.data.data(), c.data.data()};
  multiply.run(points, threads);
  const TensorId out = op.outputs[0].target.tensor;
  const Source product{&c.access, c.shape, c.data.data()};
  sweep(c.domain, Program::of_source(0), {&product, 1},
        {&op.outputs[0].target, w.tensor(out).shape, to}, Combine::sum, threads);
  return true;
}

}  // namespace tilewright::reference
