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

std::string expression(const Expr& e, const std::string& real,
                       const std::function<std::string(LoopId)>& of_index,
                       const std::function<std::string(int, bool)>& of_output, bool short_powers) {
  if (e.kind == Expr::Kind::input) return "x" + std::to_string(e.input);
  if (e.kind == Expr::Kind::constant) return literal(e.constant, real);
  if (e.kind == Expr::Kind::index) return of_index(e.loop);
  if (e.kind == Expr::Kind::before || e.kind == Expr::Kind::after) {
    TW_CHECK(of_output, "an operator that does not run has a running expression");
    return of_output(e.input, e.kind == Expr::Kind::before);
  }
  TW_CHECK(find_expr_function(e.function) != nullptr, "an expression calls an unknown function");
  std::string text = "f_" + e.function + "(";
  if (short_powers && lowering::is_short_power(e)) text = "f_short_pow(";
  for (std::size_t i = 0; i < e.args.size(); ++i)
    text += (i == 0 ? "" : ", ") + expression(e.args[i], real, of_index, of_output, short_powers);
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
