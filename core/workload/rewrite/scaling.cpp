#include "core/workload/rewrite/scaling.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

namespace tilewright::rewrite {
namespace {

bool is_call(const Expr& e, std::string_view function) {
  return e.kind == Expr::Kind::call && e.function == function;
}
bool is_constant(const Expr& e) { return e.kind == Expr::Kind::constant; }
bool is_zero(const Expr& e) { return is_constant(e) && e.constant == 0.0; }

std::optional<double> negated(std::optional<double> c) {
  if (c) *c = -*c;
  return c;
}

// c where the expression is c * m plus something without m.
std::optional<double> coefficient_of(const Expr& e, const Operator& op, const Scaling& s) {
  if (e.kind == Expr::Kind::input) {
    const Access& a = op.inputs[static_cast<std::size_t>(e.input)];
    if (a.tensor == s.of) return a.index == s.index ? std::optional(1.0) : std::nullopt;
  }
  if (is_call(e, "add") || is_call(e, "sub")) {
    const auto a = coefficient_of(e.args[0], op, s);
    const auto b = coefficient_of(e.args[1], op, s);
    if (!a || !b) return std::nullopt;
    return e.function == "add" ? *a + *b : *a - *b;
  }
  if (is_call(e, "neg")) return negated(coefficient_of(e.args[0], op, s));
  if (is_call(e, "mul") || is_call(e, "div")) {
    const bool divides = e.function == "div";
    for (int by : {1, 0}) {
      const Expr& factor = e.args[static_cast<std::size_t>(by)];
      if (!is_constant(factor) || (divides && by == 0)) continue;
      const auto c = coefficient_of(e.args[static_cast<std::size_t>(1 - by)], op, s);
      if (c) return divides ? *c / factor.constant : *c * factor.constant;
    }
  }
  const auto rate = rate_of(e, op, s);
  return rate == 0.0 ? rate : std::nullopt;
}

// Alternatives and summands must change by the same factor; zero changes by any.
std::optional<double> common(const Expr& x, const Expr& y, const Operator& op, const Scaling& s) {
  const auto a = rate_of(x, op, s), b = rate_of(y, op, s);
  if (is_zero(x)) return b;
  if (is_zero(y) || a == b) return a;
  return std::nullopt;
}

std::optional<double> rate_of_input(const Access& a, const Scaling& s) {
  if (a.tensor == s.of || s.finals.contains(a.tensor)) return std::nullopt;
  const auto found = s.scaled.find(a.tensor);
  if (found == s.scaled.end()) return 0.0;
  if (a.index != found->second.index) return std::nullopt;
  return found->second.rate;
}

std::optional<double> rate_of_two(const Expr& e, const Operator& op, const Scaling& s) {
  const std::string_view f = e.function;
  const auto a = rate_of(e.args[0], op, s), b = rate_of(e.args[1], op, s);
  if (f == "mul" && a && b) return *a + *b;
  if (f == "div" && a && b) return *a - *b;
  if (f == "pow" && a && is_constant(e.args[1])) return *a * e.args[1].constant;
  if (f == "add" || f == "sub" || f == "max" || f == "min")
    return common(e.args[0], e.args[1], op, s);
  return a == 0.0 && b == 0.0 ? a : std::nullopt;
}

std::optional<double> rate_of_one(const Expr& e, const Operator& op, const Scaling& s) {
  const std::string_view f = e.function;
  if (f == "exp") return coefficient_of(e.args[0], op, s);
  const auto a = rate_of(e.args[0], op, s);
  if (!a || *a == 0.0) return a;
  // exp(r m) is positive, so it passes through what keeps signs apart.
  if (f == "neg" || f == "relu" || f == "abs") return a;
  if (f == "square") return 2.0 * *a;
  if (f == "sqrt") return 0.5 * *a;
  if (f == "rsqrt") return -0.5 * *a;
  if (f == "recip") return -*a;
  return std::nullopt;
}

}  // namespace

std::optional<double> rate_of(const Expr& e, const Operator& op, const Scaling& s) {
  switch (e.kind) {
    case Expr::Kind::constant:
    case Expr::Kind::index:
      return 0.0;
    case Expr::Kind::input:
      return rate_of_input(op.inputs[static_cast<std::size_t>(e.input)], s);
    case Expr::Kind::before:
    case Expr::Kind::after:
      return std::nullopt;
    case Expr::Kind::call:
      break;
  }
  if (e.args.size() == 1) return rate_of_one(e, op, s);
  if (e.args.size() == 2) return rate_of_two(e, op, s);
  if (e.function == "select" && rate_of(e.args[0], op, s) == 0.0)
    return common(e.args[1], e.args[2], op, s);
  for (const Expr& a : e.args)
    if (rate_of(a, op, s) != 0.0) return std::nullopt;
  return 0.0;
}

namespace {

/// What an expression of indices is between; nothing where it has other things in it.
struct Bounds {
  double low = 0, high = 0;
};

class FirstScores {
 public:
  FirstScores(const Workload& w, OpId max) : w_(w), over_(w.reduction_loops(max)) {}

  bool number(OpId id, const Expr& e) const {
    const Operator& op = w_.op(id);
    if (e.kind == Expr::Kind::constant) return std::isfinite(e.constant);
    if (e.kind == Expr::Kind::input) {
      const OpId maker = w_.producer(op.inputs[static_cast<std::size_t>(e.input)].tensor);
      if (!maker.valid()) return op.inputs.size() == 1;
      return w_.is_contraction(maker) ||
             std::ranges::all_of(w_.op(maker).outputs,
                                 [&](const Output& o) { return number(maker, o.value); });
    }
    if (is_call(e, "select"))
      if (const auto chosen = always(e.args[0])) return number(id, e.args[*chosen ? 1 : 2]);
    return std::ranges::all_of(e.args, [&](const Expr& a) { return number(id, a); });
  }

 private:
  std::optional<Bounds> bounds(const Expr& e) const {
    if (e.kind == Expr::Kind::constant) return Bounds{e.constant, e.constant};
    if (e.kind == Expr::Kind::index) {
      const bool first = std::ranges::find(over_, e.loop) != over_.end();
      return Bounds{0, first ? 0 : static_cast<double>(w_.loop(e.loop).extent - 1)};
    }
    if (!is_call(e, "add") && !is_call(e, "sub")) return std::nullopt;
    const auto a = bounds(e.args[0]), b = bounds(e.args[1]);
    if (!a || !b) return std::nullopt;
    return e.function == "add" ? Bounds{a->low + b->low, a->high + b->high}
                               : Bounds{a->low - b->high, a->high - b->low};
  }
  /// The value of a condition, where it has the same in every row.
  std::optional<bool> always(const Expr& e) const {
    if (!is_call(e, "lt")) return std::nullopt;
    const auto a = bounds(e.args[0]), b = bounds(e.args[1]);
    if (!a || !b) return std::nullopt;
    if (a->high < b->low) return true;
    if (a->low >= b->high) return false;
    return std::nullopt;
  }

  const Workload& w_;
  std::span<const LoopId> over_;
};

}  // namespace

bool begins_with_a_number(const Workload& w, OpId max) {
  const FirstScores first(w, max);
  return std::ranges::all_of(w.op(max).outputs,
                             [&](const Output& o) { return first.number(max, o.value); });
}

}  // namespace tilewright::rewrite
