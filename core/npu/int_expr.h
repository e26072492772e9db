// Integer expressions of an NPU program: what its scalar unit computes addresses, extents and
// conditions from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"

namespace tilewright::npu {

/// What an expression does, in the order of its postfix code.
enum class IntOp : std::uint8_t {
  literal,
  scalar,
  negate,
  logical_not,
  multiply,
  divide,
  modulo,
  add,
  subtract,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  minimum,
  maximum,
};

/// A 64-bit integer expression over literals and scalars (loop counters, what `set` assigned,
/// `block` and `blocks`). Division rounds towards minus infinity and the remainder has the
/// divisor's sign, so that (i-1)/2 and (i-1)%2 tile the integers; comparisons and logic give 0 or
/// 1, and both sides of && and || are computed. Literals fold when an expression is built.
class IntExpr {
 public:
  struct Node {
    IntOp op = IntOp::literal;
    std::int64_t literal = 0;
    std::string scalar = {};
    friend bool operator==(const Node&, const Node&) = default;
  };

  IntExpr() : IntExpr(0) {}
  IntExpr(std::int64_t literal) : literal_(literal) {}      // NOLINT: implicit
  IntExpr(int literal) : IntExpr(std::int64_t{literal}) {}  // NOLINT: implicit
  static IntExpr of_scalar(std::string name);
  static IntExpr unary(IntOp op, IntExpr a);
  static IntExpr binary(IntOp op, IntExpr a, const IntExpr& b);

  /// Postfix: operands before their operator.
  std::vector<Node> code() const {
    return is_literal() ? std::vector<Node>{{.literal = literal_}} : code_;
  }
  bool is_literal() const { return code_.empty(); }
  bool is(std::int64_t value) const { return is_literal() && literal_ == value; }
  /// Of a literal.
  std::int64_t literal() const { return literal_; }
  friend bool operator==(const IntExpr&, const IntExpr&) = default;

 private:
  std::int64_t literal_ = 0;
  std::vector<Node> code_;  ///< none: a literal. A program has millions of them, and few others.
};

/// `a op b`, or why it has no value (division by zero, 64 bits left). Unary operations ignore b.
Result<std::int64_t> apply(IntOp op, std::int64_t a, std::int64_t b);

inline IntExpr scalar(std::string name) { return IntExpr::of_scalar(std::move(name)); }
inline IntExpr operator-(IntExpr a) { return IntExpr::unary(IntOp::negate, std::move(a)); }
inline IntExpr operator+(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::add, std::move(a), b);
}
inline IntExpr operator-(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::subtract, std::move(a), b);
}
inline IntExpr operator*(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::multiply, std::move(a), b);
}
inline IntExpr operator/(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::divide, std::move(a), b);
}
inline IntExpr operator%(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::modulo, std::move(a), b);
}
inline IntExpr min(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::minimum, std::move(a), b);
}
inline IntExpr max(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::maximum, std::move(a), b);
}
// == and != compare expressions, not values: comparisons of values are named.
inline IntExpr less(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::less, std::move(a), b);
}
inline IntExpr less_equal(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::less_equal, std::move(a), b);
}
inline IntExpr equal(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::equal, std::move(a), b);
}
inline IntExpr not_equal(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::not_equal, std::move(a), b);
}
inline IntExpr both(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::logical_and, std::move(a), b);
}
inline IntExpr either(IntExpr a, const IntExpr& b) {
  return IntExpr::binary(IntOp::logical_or, std::move(a), b);
}
using tilewright::round_up;
/// The least multiple of `step` (positive) that is not below `a`.
inline IntExpr round_up(const IntExpr& a, std::int64_t step) {
  return (a + (step - 1)) / step * step;
}

/// As assembly writes it, with the parentheses that it needs and no others.
std::string to_text(const IntExpr& e);

}  // namespace tilewright::npu
