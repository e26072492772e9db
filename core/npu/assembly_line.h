// Tokens and expressions of one line of assembly. Used by the parser only.
#pragma once

#include <string>
#include <string_view>

#include "core/npu/int_expr.h"

namespace tilewright::npu {

/// Without spaces at its ends.
std::string_view trimmed(std::string_view text);

/// One line, without its comment. Every failure is an InputError that names its line and column.
class Line {
 public:
  Line(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  [[noreturn]] void fail(std::size_t at, std::string_view found, std::string expected) const;
  /// At what comes next.
  [[noreturn]] void fail(std::string expected);

  bool at_end();
  void end();
  /// Takes the symbol if it comes next.
  bool take(std::string_view symbol);
  void expect(std::string_view symbol);
  std::string_view word();
  /// Takes that word if it comes next.
  bool take_word(std::string_view wanted);
  void expect_word(std::string_view wanted);
  std::string identifier(const char* what);
  std::int64_t integer(std::int64_t least, std::int64_t most);
  /// A number, inf or -inf.
  double real();
  /// A word that `from_name` knows.
  template <class F>
  auto named(F from_name, const char* accepted) {
    skip();
    const std::size_t from = at_;
    const std::string_view name = word();
    const auto value = from_name(name);
    if (!value) fail(from, name.empty() ? text_.substr(from) : name, accepted);
    return *value;
  }
  /// or > and > comparison > sum > product > unary > primary
  IntExpr expression();

 private:
  struct Nested;
  void skip();
  IntExpr combined(IntOp op, IntExpr a, const IntExpr& b);
  IntExpr conjunction();
  IntExpr comparison();
  IntExpr sum();
  IntExpr product();
  IntExpr unary();
  IntExpr primary();

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tilewright::npu
