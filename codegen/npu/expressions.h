// Expressions over a slab, made of the vector unit's instructions.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/npu/vector_unit.h"

namespace tilewright::npu {

inline std::optional<VectorOp> binary(std::string_view f) {
  static const std::map<std::string_view, VectorOp> all = {
      {"add", VectorOp::add}, {"sub", VectorOp::sub}, {"mul", VectorOp::mul},
      {"div", VectorOp::div}, {"max", VectorOp::max}, {"min", VectorOp::min},
      {"lt", VectorOp::lt}};
  const auto at = all.find(f);
  return at == all.end() ? std::nullopt : std::optional(at->second);
}

inline std::optional<VectorOp> unary(std::string_view f) {
  static const std::map<std::string_view, VectorOp> all = {
      {"exp", VectorOp::exp},     {"log", VectorOp::log},     {"sqrt", VectorOp::sqrt},
      {"rsqrt", VectorOp::rsqrt}, {"recip", VectorOp::recip}, {"relu", VectorOp::relu},
      {"abs", VectorOp::abs},     {"floor", VectorOp::floor}, {"round", VectorOp::round}};
  const auto at = all.find(f);
  return at == all.end() ? std::nullopt : std::optional(at->second);
}

/// Computes expressions over a slab.
class Expressions {
 public:
  Expressions(VectorUnit& unit, const std::string& op, const std::vector<Value>& inputs,
              Shape shape, std::function<Value(LoopId)> index)
      : unit_(unit), op_(op), inputs_(inputs), shape_(shape), index_(std::move(index)) {}

  /// In f32, in `to` (f32) where given.
  Value value(const Expr& e, const Value* to = nullptr) {
    switch (e.kind) {
      case Expr::Kind::constant:
        return {.constant = e.constant};
      case Expr::Kind::input:
        return wide(inputs_[static_cast<std::size_t>(e.input)]);
      case Expr::Kind::call:
        return call(e, to);
      case Expr::Kind::index:
        return index_(e.loop);
      default:
        throw Refused{op_ + " reads an output of its own, for which the npu target has no code"};
    }
  }

  /// A value in `to`, of whatever type and spread.
  void into(const Value& v, const Value& to) {
    if (v.spread == Spread::constant && to.type == DType::f32)
      return unit_.apply(VectorOp::dup, to, {}, shape_, v.constant);
    if (v.spread == to.spread && v.place == to.place) return;
    if (v.type == to.type && v.spread != Spread::constant)
      return unit_.apply(VectorOp::copy, to, {v}, shape_);
    Value whole = v;
    if (v.spread != to.spread) {
      whole = unit_.temporary(to.spread, shape_);
      into(v, whole);
    }
    unit_.apply(VectorOp::cast, to, {whole}, shape_);
  }

  /// Where an expression is one operation on what has the type of `to`: done at once, rounded once.
  bool directly(const Expr& e, const Value& to) {
    if (e.kind == Expr::Kind::input) {  // a copy
      const Value& from = inputs_[static_cast<std::size_t>(e.input)];
      const bool as_is = from.type == to.type && from.spread == to.spread && is_real(to.type);
      if (as_is && from.place != to.place) unit_.apply(VectorOp::copy, to, {from}, shape_);
      return as_is;
    }
    if (e.kind != Expr::Kind::call || to.type != DType::f16) return false;
    std::vector<Value> from;
    for (const Expr& a : e.args) {
      if (a.kind != Expr::Kind::input) return false;
      from.push_back(inputs_[static_cast<std::size_t>(a.input)]);
      if (from.back().type != to.type || from.back().spread != to.spread) return false;
    }
    const auto op = from.size() == 2 ? binary(e.function) : unary(e.function);
    if (op) unit_.apply(*op, to, from, shape_);
    return op.has_value();
  }

 private:
  /// Whether vector instructions but casts work on it.
  static bool is_real(DType t) { return t == DType::f16 || t == DType::f32; }

  /// The tile's values in f32.
  Value wide(const Value& v) {
    if (v.type == DType::f32) return v;
    Value t = unit_.temporary(v.spread, shape_);
    unit_.apply(VectorOp::cast, t, {v}, shape_);
    return t;
  }

  static Spread over(Spread a, Spread b) {
    if (a == b || b == Spread::constant) return a;
    if (a == Spread::constant || a == Spread::one) return b;
    return b == Spread::one ? a : Spread::full;
  }

  Value result(Spread spread, const Value* to) {
    return to != nullptr && to->spread == spread ? *to : unit_.temporary(spread, shape_);
  }

  Value with(VectorOp op, const Value& v, double immediate, const Value* to) {
    const Value t = result(v.spread, to);
    unit_.apply(op, t, {v}, shape_, immediate);
    return t;
  }

  Value call(const Expr& e, const Value* to) {
    std::vector<Value> args;
    for (const Expr& a : e.args) args.push_back(value(a));
    if (std::ranges::all_of(args, [](const Value& v) { return v.spread == Spread::constant; })) {
      std::vector<double> numbers;
      for (const Value& v : args) numbers.push_back(v.constant);
      return {.constant = find_expr_function(e.function)->evaluate(numbers.data())};
    }
    if (args.size() == 2) return call(e.function, args[0], args[1], to);
    if (args.size() == 1) return call(e.function, args[0], to);
    if (e.function == "select") return select(args, to);
    throw unknown(e.function);
  }

  /// In f32 in scratch or in a tile, whatever it was.
  Value somewhere(const Value& v, Spread spread) {
    if (v.spread == spread) return v;
    const Value t = unit_.temporary(spread, shape_);
    into(v, t);
    return t;
  }

  Value select(const std::vector<Value>& args, const Value* to) {
    if (args[0].spread == Spread::constant) return args[args[0].constant != 0 ? 1 : 2];
    Spread spread = over(over(args[0].spread, args[1].spread), args[2].spread);
    std::vector<Value> from;
    for (const Value& v : args)
      from.push_back(v.spread == Spread::constant ? somewhere(v, spread) : v);
    const Value t = result(spread, to);
    unit_.apply(VectorOp::sel, t, from, shape_);
    return t;
  }

  Refused unknown(const std::string& function) const {
    return Refused{op_ + " calls " + function + ", which the vector unit has no instruction for"};
  }

  Value call(const std::string& f, const Value& a, const Value& b, const Value* to) {
    if (f == "pow" && b.spread == Spread::constant) return power(a, b.constant, to);
    const auto op = binary(f);
    if (f == "pow") {  // e^(b ln a)
      Value v = call("mul", with(VectorOp::log, a, 0, nullptr), b, nullptr);
      return with(VectorOp::exp, v, 0, to);
    }
    if (!op) throw unknown(f);
    if (*op == VectorOp::lt) {
      const Spread spread = over(a.spread, b.spread);
      const Value t = result(spread, to);
      unit_.apply(*op, t,
                  {a.spread == Spread::constant ? somewhere(a, spread) : a,
                   b.spread == Spread::constant ? somewhere(b, spread) : b},
                  shape_);
      return t;
    }
    if (b.spread == Spread::constant) {
      switch (*op) {
        case VectorOp::add:
          return with(VectorOp::adds, a, b.constant, to);
        case VectorOp::sub:
          return with(VectorOp::adds, a, -b.constant, to);
        case VectorOp::mul:
          return with(VectorOp::muls, a, b.constant, to);
        case VectorOp::div:
          return with(VectorOp::muls, a, 1 / b.constant, to);
        case VectorOp::max:
          return with(VectorOp::maxs, a, b.constant, to);
        default:
          return with(VectorOp::mins, a, b.constant, to);
      }
    }
    if (a.spread == Spread::constant) {
      if (*op == VectorOp::sub)
        return with(VectorOp::adds, with(VectorOp::muls, b, -1, nullptr), a.constant, to);
      if (*op == VectorOp::div)
        return with(VectorOp::muls, with(VectorOp::recip, b, 0, nullptr), a.constant, to);
      return call(f, b, a, to);  // the others commute
    }
    const Value t = result(over(a.spread, b.spread), to);
    unit_.apply(*op, t, {a, b}, shape_);
    return t;
  }

  Value call(const std::string& f, const Value& a, const Value* to) {
    if (const auto op = unary(f)) return with(*op, a, 0, to);
    if (f == "neg") return with(VectorOp::muls, a, -1, to);
    if (f == "square") return call("mul", a, a, to);
    const Value out = result(a.spread, to);
    const std::int64_t used = unit_.used();
    if (!composed(f, a, &out)) throw unknown(f);
    unit_.release_to(used);
    return out;
  }

  /// A function that is made of several instructions, into `to`.
  bool composed(const std::string& f, const Value& a, const Value* to) {
    if (f == "sigmoid" || f == "tanh") {  // 1 / (1 + e^-x); tanh x = 2 sigmoid(2x) - 1
      const double scale = f == "tanh" ? 2 : 1;
      Value v = with(VectorOp::muls, a, -scale, nullptr);
      v = with(VectorOp::exp, v, 0, &v);
      v = with(VectorOp::adds, v, 1, &v);
      v = with(VectorOp::recip, v, 0, scale == 1 ? to : &v);
      if (scale == 1) return true;
      v = with(VectorOp::muls, v, 2, &v);
      v = with(VectorOp::adds, v, -1, &v);
      constexpr double s[] = {62.0 / 2835, -17.0 / 315, 2.0 / 15, -1.0 / 3, 1};
      near_zero(a, 0.25, {s[0], s[1], s[2], s[3], s[4]}, v, to);
    } else if (f == "sin" || f == "cos") {
      sine(a, f == "cos", to);
    } else if (f == "erf") {
      erf(a, to);
    } else if (f == "gelu") {  // x / 2 (1 + erf(x / sqrt 2))
      Value v = with(VectorOp::muls, a, 1 / std::numbers::sqrt2, nullptr);
      v = erf(v, nullptr);
      v = with(VectorOp::adds, v, 1, &v);
      v = with(VectorOp::muls, v, 0.5, &v);
      call("mul", v, a, to);
    } else {
      return false;
    }
    return true;
  }

  /// Where |x| is less than `below`, where what is computed otherwise loses its leading digits, an
  /// odd series: x (s[0] + s[1] x^2 + ...), most of it first.
  Value near_zero(const Value& x, double below, std::initializer_list<double> s,
                  const Value& otherwise, const Value* to) {
    const Value square = call("mul", x, x, nullptr);
    Value sum = with(VectorOp::muls, square, *s.begin(), nullptr);
    for (const double* c = s.begin() + 1; c != s.end(); ++c) {
      sum = with(VectorOp::adds, sum, *c, &sum);
      sum = call("mul", sum, c + 1 == s.end() ? x : square, &sum);
    }
    const Value limit{.constant = below * below};
    return select({call("lt", square, limit, &square), sum, otherwise}, to);
  }

  /// Abramowitz and Stegun 7.1.26, off by 1.5e-7 at most: with t = 1 / (1 + p |x|),
  /// 1 - (a1 t + a2 t^2 + ... + a5 t^5) e^(-x^2), with the sign of x. Near zero its series to x^11,
  /// off by a part of 3e-8.
  Value erf(const Value& x, const Value* to) {
    constexpr double p = 0.3275911;
    constexpr double a[] = {1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592};
    Value sum = unit_.temporary(x.spread, shape_);
    const std::int64_t used = unit_.used();
    const Value size = with(VectorOp::abs, x, 0, nullptr);
    Value t = with(VectorOp::muls, size, p, nullptr);
    t = with(VectorOp::adds, t, 1, &t);
    t = with(VectorOp::recip, t, 0, &t);
    sum = with(VectorOp::muls, t, a[0], &sum);
    for (int i = 1; i < 5; ++i) {
      sum = with(VectorOp::adds, sum, a[i], &sum);
      sum = call("mul", sum, t, &sum);
    }
    Value falls = call("mul", size, size, &size);
    falls = with(VectorOp::muls, falls, -1, &falls);
    falls = with(VectorOp::exp, falls, 0, &falls);
    sum = call("mul", sum, falls, &sum);
    sum = with(VectorOp::muls, sum, -1, &sum);
    sum = with(VectorOp::adds, sum, 1, &sum);
    Value sign = with(VectorOp::muls, x, 1e30, &t);
    sign = with(VectorOp::mins, sign, 1, &t);
    sign = with(VectorOp::maxs, sign, -1, &t);
    sum = call("mul", sum, sign, &sum);
    unit_.release_to(used);
    constexpr double c = 2 * std::numbers::inv_sqrtpi;
    return near_zero(x, 0.5, {-c / 1320, c / 216, -c / 42, c / 10, -c / 3, c}, sum, to);
  }

  /// With n the whole number nearest to x / pi (of a cosine, the half nearest) and r = x - n pi,
  /// taken in three steps of which the first two are exact: sin x = (-1)^n sin r, and the cosine by
  /// the half below. sin r by its series to r^11: off by 6e-8 at most.
  Value sine(const Value& x, bool cosine, const Value* to) {
    constexpr double parts[] = {3.140625, 9.67502593994140625e-4, 1.509957990978376432e-7};
    constexpr double series[] = {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                                 1.0 / 120,       -1.0 / 6,     1};
    Value n = with(VectorOp::muls, x, 1 / std::numbers::pi, nullptr);
    if (!cosine) n = with(VectorOp::adds, n, 0.5, &n);
    n = with(VectorOp::floor, n, 0, &n);
    // (-1)^n, from n - 2 floor(n / 2)
    Value sign = with(VectorOp::muls, n, 0.5, nullptr);
    sign = with(VectorOp::floor, sign, 0, &sign);
    sign = with(VectorOp::muls, sign, -2, &sign);
    sign = call("add", sign, n, &sign);
    sign = with(VectorOp::muls, sign, cosine ? 2 : -2, &sign);
    sign = with(VectorOp::adds, sign, cosine ? -1 : 1, &sign);
    if (cosine) n = with(VectorOp::adds, n, 0.5, &n);
    Value r = with(VectorOp::muls, n, 0, nullptr);
    r = call("add", r, x, &r);
    for (const double part : parts) {
      const Value whole = with(VectorOp::muls, n, -part, nullptr);
      r = call("add", r, whole, &r);
    }
    const Value square = call("mul", r, r, nullptr);
    Value sum = with(VectorOp::muls, square, series[0], nullptr);
    for (int i = 1; i < 6; ++i) {
      sum = with(VectorOp::adds, sum, series[i], &sum);
      if (i < 5) sum = call("mul", sum, square, &sum);
    }
    sum = call("mul", sum, r, &sum);
    return call("mul", sum, sign, to);
  }

  /// A small whole power by products, another as e^(b ln a).
  Value power(const Value& a, double b, const Value* to) {
    constexpr double most = 8;
    if (b != std::floor(b)) {
      Value v = with(VectorOp::log, a, 0, nullptr);
      v = with(VectorOp::muls, v, b, &v);
      return with(VectorOp::exp, v, 0, to);
    }
    if (b == 0) return {.constant = 1};
    if (std::abs(b) > most) throw unknown("pow");
    Value v = a;
    for (double i = 1; i < std::abs(b); ++i) v = call("mul", v, a, nullptr);
    return b < 0 ? with(VectorOp::recip, v, 0, to) : v;
  }

  VectorUnit& unit_;
  const std::string& op_;
  const std::vector<Value>& inputs_;
  Shape shape_;
  std::function<Value(LoopId)> index_;
};

}  // namespace tilewright::npu
