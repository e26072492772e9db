#include "core/npu/int_expr.h"

#include <algorithm>
#include <utility>

#include "core/base/units.h"

namespace tilewright::npu {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/// How tightly an operator binds in text; 7 needs no parentheses.
int precedence(IntOp op) {
  switch (op) {
    case IntOp::logical_or:
      return 0;
    case IntOp::logical_and:
      return 1;
    case IntOp::less:
    case IntOp::less_equal:
    case IntOp::greater:
    case IntOp::greater_equal:
    case IntOp::equal:
    case IntOp::not_equal:
      return 2;
    case IntOp::add:
    case IntOp::subtract:
      return 3;
    case IntOp::multiply:
    case IntOp::divide:
    case IntOp::modulo:
      return 4;
    case IntOp::negate:
    case IntOp::logical_not:
      return 5;
    default:
      return 7;
  }
}

std::string_view symbol(IntOp op) {
  switch (op) {
    case IntOp::negate:
      return "-";
    case IntOp::logical_not:
      return "!";
    case IntOp::multiply:
      return "*";
    case IntOp::divide:
      return "/";
    case IntOp::modulo:
      return "%";
    case IntOp::add:
      return "+";
    case IntOp::subtract:
      return "-";
    case IntOp::less:
      return "<";
    case IntOp::less_equal:
      return "<=";
    case IntOp::greater:
      return ">";
    case IntOp::greater_equal:
      return ">=";
    case IntOp::equal:
      return "==";
    case IntOp::not_equal:
      return "!=";
    case IntOp::logical_and:
      return "&&";
    case IntOp::logical_or:
      return "||";
    case IntOp::minimum:
      return "min";
    case IntOp::maximum:
      return "max";
    default:
      return "";
  }
}

struct Piece {
  std::string text;
  int binds = 7;
};

std::string in_parentheses(const Piece& p, bool needed) {
  return needed ? "(" + p.text + ")" : p.text;
}

Piece literal_piece(std::int64_t value) {
  // The least of 64 bits has no literal: its digits alone leave 64 bits.
  if (value == INT64_MIN) return {"(" + std::to_string(value + 1) + " - 1)"};
  return {std::to_string(value), value < 0 ? 5 : 7};
}

Piece binary_piece(IntOp op, const Piece& a, const Piece& b) {
  const std::string name(symbol(op));
  if (op == IntOp::minimum || op == IntOp::maximum) {
    return {name + "(" + a.text + ", " + b.text + ")"};
  }
  const int binds = precedence(op);
  const bool dense = binds >= 4;  // a*b + c
  // Comparisons do not chain.
  const std::string left = in_parentheses(a, a.binds < binds || (binds == 2 && a.binds == 2));
  const std::string right = in_parentheses(b, b.binds <= binds);
  return {left + (dense ? name : " " + name + " ") + right, binds};
}

/// What x op b or b op x is where the literal makes it trivial.
bool keeps_left(IntOp op, const IntExpr& b) {
  if (op == IntOp::add || op == IntOp::subtract) return b.is(0);
  return (op == IntOp::multiply || op == IntOp::divide) && b.is(1);
}
bool keeps_right(IntOp op, const IntExpr& a) {
  return (op == IntOp::add && a.is(0)) || (op == IntOp::multiply && a.is(1));
}

}  // namespace

Result<std::int64_t> apply(IntOp op, std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  bool overflow = false;
  switch (op) {
    case IntOp::literal:
    case IntOp::scalar:
      return Reason{"is not an operator"};
    case IntOp::negate:
      overflow = __builtin_sub_overflow(std::int64_t{0}, a, &r);
      break;
    case IntOp::logical_not:
      return std::int64_t{a == 0};
    case IntOp::multiply:
      overflow = __builtin_mul_overflow(a, b, &r);
      break;
    case IntOp::add:
      overflow = __builtin_add_overflow(a, b, &r);
      break;
    case IntOp::subtract:
      overflow = __builtin_sub_overflow(a, b, &r);
      break;
    case IntOp::divide:
    case IntOp::modulo:
      if (b == 0) return Reason{"divides by zero"};
      if (b == -1) {  // INT64_MIN / -1 traps
        if (op == IntOp::modulo) return std::int64_t{0};
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &r);
      } else {
        const std::int64_t left = a % b;
        r = op == IntOp::divide                     ? floor_div(a, b)
            : left != 0 && (left < 0) != (b < 0) ? left + b
                                                    : left;
      }
      break;
    case IntOp::less:
      return std::int64_t{a < b};
    case IntOp::less_equal:
      return std::int64_t{a <= b};
    case IntOp::greater:
      return std::int64_t{a > b};
    case IntOp::greater_equal:
      return std::int64_t{a >= b};
    case IntOp::equal:
      return std::int64_t{a == b};
    case IntOp::not_equal:
      return std::int64_t{a != b};
    case IntOp::logical_and:
      return std::int64_t{a != 0 && b != 0};
    case IntOp::logical_or:
      return std::int64_t{a != 0 || b != 0};
    case IntOp::minimum:
      return std::min(a, b);
    case IntOp::maximum:
      return std::max(a, b);
  }
  if (overflow) return Reason{"leaves 64 bits"};
  return r;
}

IntExpr IntExpr::of_scalar(std::string name) {
  IntExpr e;
  e.code_ = {{IntOp::scalar, 0, std::move(name)}};
  return e;
}

IntExpr IntExpr::unary(IntOp op, IntExpr a) {
  if (a.is_literal()) {
    if (const auto value = apply(op, a.literal_, 0)) return *value;
  }
  a.code_ = a.code();
  a.code_.push_back({op, 0, {}});
  a.literal_ = 0;
  return a;
}

IntExpr IntExpr::binary(IntOp op, IntExpr a, const IntExpr& b) {
  if (a.is_literal() && b.is_literal()) {
    if (const auto value = apply(op, a.literal_, b.literal_)) return *value;
  }
  if (keeps_left(op, b)) return a;
  if (keeps_right(op, a)) return b;
  a.code_ = a.code();
  const std::vector<Node> right = b.code();
  a.code_.insert(a.code_.end(), right.begin(), right.end());
  a.code_.push_back({op, 0, {}});
  a.literal_ = 0;
  return a;
}

std::string to_text(const IntExpr& e) {
  std::vector<Piece> stack;
  for (const IntExpr::Node& node : e.code()) {
    if (node.op == IntOp::literal) {
      stack.push_back(literal_piece(node.literal));
    } else if (node.op == IntOp::scalar) {
      stack.push_back({node.scalar});
    } else if (node.op == IntOp::negate || node.op == IntOp::logical_not) {
      Piece& a = stack.back();
      // "- -3" and "-9": a sign before a sign or a literal would fold when read back.
      a = {std::string(symbol(node.op)) + in_parentheses(a, a.binds < 7), precedence(node.op)};
    } else {
      const Piece b = std::move(stack.back());
      stack.pop_back();
      stack.back() = binary_piece(node.op, stack.back(), b);
    }
  }
  return stack.back().text;
}

}  // namespace tilewright::npu
