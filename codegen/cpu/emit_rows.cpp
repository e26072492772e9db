// Products of few rows whose operands' rows both lie along the depth (a layer of a network on a few
// inputs, its weights by outputs): the right operand is read once, as it lies.
#include <algorithm>
#include <array>

#include "codegen/cpu/emitter.h"
#include "core/base/format.h"
#include "core/lowering/product_loads.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kRowsAtOnce = 4;

/// Columns whose sums are in registers together with those of so many rows: 8 or more sums, which
/// need not wait for one another, and 12 of 16 registers, or 24 of 32, at most.
std::int64_t columns_at_once(std::int64_t rows, int vector_bytes) {
  constexpr std::array<std::array<std::int64_t, kRowsAtOnce>, 2> kColumns = {
      {{8, 4, 4, 3}, {8, 8, 8, 6}}};
  return kColumns[vector_bytes == 64 ? 1 : 0][static_cast<std::size_t>(rows - 1)];
}

}  // namespace

/// Whether `along_depth` multiplies the operands: both lie along the depth, in the type that the
/// kernel computes in.
bool KernelEmitter::lies_along_depth(NodeId id, const Product& p) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  return !op.outputs[0].rescale && std::ranges::all_of(std::array{p.left, p.right}, [&](int input) {
    const Access& a = op.inputs[static_cast<std::size_t>(input)];
    return p_.workload().tensor(a.tensor).dtype == p_.prelude.real() &&
           stride_of(op, a, buffer_of_input(n, input), p.depth) == 1;
  });
}

/// Whether the right operand is read as it lies, along the depth, not turned: by `along_depth`, or,
/// for one row, by points of sums.
bool KernelEmitter::reads_right_as_it_lies(NodeId id, const Product& p) const {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const std::int64_t rows = rows_that_meet(w, op, b);
  const std::int64_t depth = w.loop(op.loops[static_cast<std::size_t>(p.depth)]).extent;
  return p.packs && p_.vector_bytes > 0 && steps_at_once(n.op) == 1 &&
         !p_.constant[b.tensor.index()] &&
         stride_of(op, b, buffer_of_input(n, p.right), p.depth) == 1 &&
         reads_along_depth(rows, depth) && (rows == 1 || lies_along_depth(id, p));
}

void KernelEmitter::along_depth(NodeId id, const Product& p, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, p.left), in_b = buffer_of_input(n, p.right);
  const BufferId in_c = n.writes[0].buffer;
  take_reals(id, {p.left, p.right});
  for (const BufferId each : {in_a, in_b, in_c}) streamed_[each.index()] = true;
  p_.prelude.products = p_.prelude.along_depth = true;

  const Surroundings s = surround(id, {p.rows, p.columns, p.depth}, ranges);
  const std::int64_t most = p.rows < 0 ? 1 : range(ranges, n.op, p.rows).most;
  const std::int64_t rows = ceil_div(most, ceil_div(most, kRowsAtOnce));
  const auto distance = [&](const Access& of, BufferId buffer, int local) {
    return "Known<" + std::to_string(stride_of(op, of, buffer, local)) + ">{}";
  };
  out_.line("along_depth<" + std::to_string(rows) + ", " +
            std::to_string(columns_at_once(rows, p_.vector_bytes)) + ">(" +
            size_of_loop(n.op, p.rows, ranges) + ", " + size_of_loop(n.op, p.columns, ranges) +
            ", " + size_of_loop(n.op, p.depth, ranges) + ", " + corner(op, a, in_a, s.at) + ", " +
            distance(a, in_a, p.rows) + ", " + corner(op, b, in_b, s.at) + ", " +
            distance(b, in_b, p.columns) + ",");
  out_.line("            " + corner(op, c, in_c, s.at) + ", " + distance(c, in_c, p.rows) + ", " +
            s.fresh + ");");
  for (int opened = s.opened; opened > 0; --opened) out_.close();
}

std::string along_depth_text(int vector_bytes, bool f64) {
  // Within 16 bytes lanes are exchanged at once.
  const int lanes = vector_bytes / (f64 ? 8 : 4), block = f64 ? 2 : 4;
  const auto exchanged = [&](const char* a, const char* b, const auto& lane) {
    std::string text = formatted("__builtin_shufflevector({}, {}", a, b);
    for (int i = 0; i < lanes; ++i)
      text += ", " + std::to_string(i / block * block + lane(i % block));
    return text + ")";
  };
  // Lanes of a and b in turn, and the other half of each 16 bytes' lanes.
  const auto pair = [&](const char* a, const char* b) {
    const auto in_turn = [&](int first) {
      return exchanged(a, b, [&](int i) { return first + i / 2 + (i % 2) * lanes; });
    };
    return in_turn(0) + " + " + in_turn(block / 2);
  };
  std::string text = formatted(
      "\n// Sums of the lanes of so many vectors, in the first lanes.\nconstexpr int kJoined = "
      "{};\n"
      "TILEWRIGHT_TARGET inline Vector joined(const Vector (&v)[kJoined]) {{\n",
      block);
  if (f64) {
    text += "  Vector sum = " + pair("v[0]", "v[1]") + ";\n";
  } else {
    const auto half = [&](int first) {
      return exchanged("a", "b", [&](int i) { return first + i % 2 + (i / 2) * lanes; });
    };
    text += "  const Vector a = " + pair("v[0]", "v[1]") +
            ";\n  const Vector b = " + pair("v[2]", "v[3]") + ";\n  Vector sum = " + half(0) +
            " + " + half(2) + ";\n";
  }
  for (int apart = lanes / 2; apart >= block; apart /= 2) {
    text += "  sum += __builtin_shufflevector(sum, sum";
    for (int i = 0; i < lanes; ++i) text += ", " + std::to_string((i + apart) % lanes);
    text += ");\n";
  }
  return text + R"(  return sum;
}
// C[i,j] += sum over k of A[i,k] * B[j,k], for R rows and J columns: sums are vectors along the depth,
// joined at its end.
template <int R, int J, class ARow, class BColumn, class CRow>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void block_along_depth(int64_t depth, const Real* a, ARow a_row, const Real* b,
                                                           BColumn b_column, Real* c, CRow c_row, bool fresh) {
  Vector sum[R * J] = {};
  const auto step = [&](const auto& read) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
    Vector x[R];
    for (int i = 0; i < R; ++i) x[i] = read(a + i * a_row);
    for (int j = 0; j < J; ++j) {
      const Vector y = read(b + j * b_column);
      for (int i = 0; i < R; ++i) sum[i * J + j] += x[i] * y;
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes)
    step([&](const Real* row) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS {
      return static_cast<Vector>(*reinterpret_cast<const Unaligned*>(row + k));
    });
  if (k < depth) {
    const Lanes lanes = first_lanes(depth - k);
    step([&](const Real* row) TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS { return load_part(row + k, lanes); });
  }
  for (int n = 0; n < R * J; n += kJoined) {
    Vector some[kJoined] = {};
    for (int m = 0; m < kJoined && n + m < R * J; ++m) some[m] = sum[n + m];
    const Vector all = joined(some);
    for (int m = 0; m < kJoined && n + m < R * J; ++m) {
      Real& to = c[(n + m) / J * c_row + (n + m) % J];
      to = (fresh ? Real(0) : to) + all[m];
    }
  }
}
// The rows that are left, fewer than R.
template <int R, int J, class ARow, class BColumn, class CRow>
TILEWRIGHT_TARGET TILEWRIGHT_INLINE void rest_along_depth(int64_t rows, int64_t depth, const Real* a, ARow a_row,
                                                          const Real* b, BColumn b_column, Real* c, CRow c_row,
                                                          bool fresh) {
  if constexpr (R > 1) {
    if (rows == R - 1) return block_along_depth<R - 1, J>(depth, a, a_row, b, b_column, c, c_row, fresh);
    rest_along_depth<R - 1, J>(rows, depth, a, a_row, b, b_column, c, c_row, fresh);
  }
}
// Any numbers of rows and columns. B's rows are read once for all rows.
template <int R, int J, class ARow, class BColumn, class CRow>
TILEWRIGHT_TARGET void along_depth(int64_t rows, int64_t columns, int64_t depth, const Real* a, ARow a_row, const Real* b,
                                   BColumn b_column, Real* c, CRow c_row, bool fresh) {
  int64_t j = 0;
  for (; j + J <= columns; j += J) {
    int64_t i = 0;
    for (; i + R <= rows; i += R)
      block_along_depth<R, J>(depth, a + i * a_row, a_row, b + j * b_column, b_column, c + i * c_row + j, c_row, fresh);
    rest_along_depth<R, J>(rows - i, depth, a + i * a_row, a_row, b + j * b_column, b_column, c + i * c_row + j, c_row,
                           fresh);
  }
  if constexpr (J > 1)
    if (j < columns)
      along_depth<R, J / 2>(rows, columns - j, depth, a, a_row, b + j * b_column, b_column, c + j, c_row, fresh);
}
)";
}

}  // namespace tilewright::cpu
