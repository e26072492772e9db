#include "codegen/common/expression.h"

#include <charconv>
#include <cmath>

#include "core/lowering/row_values.h"

namespace tilewright::codegen {

std::string literal(double value, const std::string& real) {
  if (std::isinf(value)) return real + (value > 0 ? "(HUGE_VAL)" : "(-HUGE_VAL)");
  if (std::isnan(value)) return real + "(NAN)";
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return real + "(" + std::string(text, end) + ")";
}

namespace {

/// A condition as a bool. Its parts are joined without branches.
std::string condition(const Expr& e, const std::function<std::string(const Expr&)>& value) {
  const auto joined = [&](const char* by) {
    return "(" + condition(e.args[0], value) + by + condition(e.args[1], value) + ")";
  };
  if (e.function == "lt") return "(" + value(e.args[0]) + " < " + value(e.args[1]) + ")";
  if (e.function == "sub") return "!" + condition(e.args[1], value);
  return joined(e.function == "max" ? " | " : " & ");
}

}  // namespace

std::string expression(const Expr& e, const std::string& real,
                       const std::function<std::string(LoopId)>& of_index,
                       const std::function<std::string(int, bool)>& of_output, bool of_device) {
  if (e.kind == Expr::Kind::input) return "x" + std::to_string(e.input);
  if (e.kind == Expr::Kind::constant) return literal(e.constant, real);
  if (e.kind == Expr::Kind::index) return of_index(e.loop);
  if (e.kind == Expr::Kind::before || e.kind == Expr::Kind::after) {
    TW_CHECK(of_output, "an operator that does not run has a running expression");
    return of_output(e.input, e.kind == Expr::Kind::before);
  }
  TW_CHECK(find_expr_function(e.function) != nullptr, "an expression calls an unknown function");
  if (of_device && e.function != "lt" && lowering::is_condition(e)) {
    const auto value = [&](const Expr& x) {
      return expression(x, real, of_index, of_output, of_device);
    };
    // What is left of 1 is named the other way round: nvcc 13.0 keeps more registers for "!".
    const bool left = e.function == "sub";
    const std::string one = real + "(1)", none = real + "(0)";
    return "(" + condition(left ? e.args[1] : e, value) + " ? " + (left ? none : one) + " : " +
           (left ? one : none) + ")";
  }
  std::string text = "f_" + e.function + "(";
  if (of_device && lowering::is_short_power(e)) text = "f_short_pow(";
  for (std::size_t i = 0; i < e.args.size(); ++i)
    text += (i == 0 ? "" : ", ") + expression(e.args[i], real, of_index, of_output, of_device);
  return text + ")";
}

std::string combined(Combine c, const std::string& y, const std::string& value) {
  switch (c) {
    case Combine::assign:
      return y + " = " + value + ";";
    case Combine::sum:
      return y + " += " + value + ";";
    case Combine::product:
      return y + " *= " + value + ";";
    case Combine::max:
      return y + " = f_max(" + y + ", " + value + ");";
    case Combine::min:
      return y + " = f_min(" + y + ", " + value + ");";
  }
  return "";
}

}  // namespace tilewright::codegen
