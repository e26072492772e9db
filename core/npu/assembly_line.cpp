#include "core/npu/assembly_line.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace tilewright::npu {
namespace {

constexpr int kMaxParentheses = 32;
constexpr std::size_t kMaxNodes = 512;  ///< of one expression
constexpr std::size_t kMaxShown = 32;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

std::string shown(std::string_view text) {
  std::string r;
  for (char c : text.substr(0, kMaxShown)) {
    r += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  }
  return text.size() > kMaxShown ? r + "..." : r;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

/// Bounds recursion: parentheses and signs inside one another.
struct Line::Nested {
  explicit Nested(Line& l) : line(l) {
    if (++line.depth_ > kMaxParentheses) {
      line.fail("at most " + std::to_string(kMaxParentheses) + " parentheses and signs deep");
    }
  }
  ~Nested() { --line.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  Line& line;
};

void Line::fail(std::size_t at, std::string_view found, std::string expected) const {
  throw InputError({.where = where_,
                    .field = "column " + std::to_string(at + 1),
                    .value = found.empty() ? "end of line" : shown(found),
                    .problem = "is not accepted here",
                    .accepted = std::move(expected)});
}

void Line::fail(std::string expected) {
  skip();
  fail(at_, text_.substr(at_), std::move(expected));
}

bool Line::at_end() {
  skip();
  return at_ == text_.size();
}

void Line::end() {
  if (!at_end()) fail("the end of the line");
}

bool Line::take(std::string_view symbol) {
  skip();
  if (text_.substr(at_, symbol.size()) != symbol) return false;
  at_ += symbol.size();
  return true;
}

void Line::expect(std::string_view symbol) {
  if (!take(symbol)) fail("'" + std::string(symbol) + "'");
}

std::string_view Line::word() {
  skip();
  const std::size_t from = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(from, at_ - from);
}

bool Line::take_word(std::string_view wanted) {
  const std::size_t from = at_;
  if (word() == wanted) return true;
  at_ = from;
  return false;
}

void Line::expect_word(std::string_view wanted) {
  if (!take_word(wanted)) fail(std::string(wanted));
}

std::string Line::identifier(const char* what) {
  skip();
  const std::size_t from = at_;
  const std::string_view name = word();
  if (!is_identifier(name)) {
    fail(from, name.empty() ? text_.substr(from) : name,
         std::string(what) + ": letters, digits and _, not starting with a digit, at most 64");
  }
  return std::string(name);
}

std::int64_t Line::integer(std::int64_t least, std::int64_t most) {
  skip();
  const std::size_t from = at_;
  const std::string_view digits = word();
  std::int64_t value = 0;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value);
  if (digits.empty() || error != std::errc() || end != last || value < least || value > most) {
    fail(from, digits.empty() ? text_.substr(from) : digits,
         "an integer from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

double Line::real() {
  skip();
  const std::size_t from = at_;
  std::string_view rest = text_.substr(at_);
  if (take("-inf")) return -__builtin_inf();
  if (take("inf")) return __builtin_inf();
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || !std::isfinite(value)) fail(from, rest, "a number, inf or -inf");
  at_ += static_cast<std::size_t>(end - rest.data());
  return value;
}

IntExpr Line::expression() {
  IntExpr e = conjunction();
  while (take("||")) e = combined(IntOp::logical_or, std::move(e), conjunction());
  return e;
}

void Line::skip() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

IntExpr Line::combined(IntOp op, IntExpr a, const IntExpr& b) {
  if (a.code().size() + b.code().size() > kMaxNodes) {
    fail("an expression of at most " + std::to_string(kMaxNodes) + " parts");
  }
  return IntExpr::binary(op, std::move(a), b);
}

IntExpr Line::conjunction() {
  IntExpr e = comparison();
  while (take("&&")) e = combined(IntOp::logical_and, std::move(e), comparison());
  return e;
}

IntExpr Line::comparison() {
  static constexpr std::array<std::pair<std::string_view, IntOp>, 6> kSymbols = {
      {{"<=", IntOp::less_equal},
       {">=", IntOp::greater_equal},
       {"==", IntOp::equal},
       {"!=", IntOp::not_equal},
       {"<", IntOp::less},
       {">", IntOp::greater}}};
  IntExpr e = sum();
  for (const auto& [symbol, op] : kSymbols) {
    if (take(symbol)) return combined(op, std::move(e), sum());
  }
  return e;
}

IntExpr Line::sum() {
  IntExpr e = product();
  while (true) {
    if (take("+"))
      e = combined(IntOp::add, std::move(e), product());
    else if (take("-"))
      e = combined(IntOp::subtract, std::move(e), product());
    else
      return e;
  }
}

IntExpr Line::product() {
  IntExpr e = unary();
  while (true) {
    if (take("*"))
      e = combined(IntOp::multiply, std::move(e), unary());
    else if (take("/"))
      e = combined(IntOp::divide, std::move(e), unary());
    else if (take("%"))
      e = combined(IntOp::modulo, std::move(e), unary());
    else
      return e;
  }
}

IntExpr Line::unary() {
  Nested nested(*this);
  skip();
  if (text_.substr(at_, 2) != "!=" && take("!")) {
    return IntExpr::unary(IntOp::logical_not, unary());
  }
  if (take("-")) return IntExpr::unary(IntOp::negate, unary());
  return primary();
}

IntExpr Line::primary() {
  if (take("(")) {
    IntExpr e = expression();
    expect(")");
    return e;
  }
  skip();
  if (at_ < text_.size() && is_digit(text_[at_])) return integer(0, INT64_MAX);
  const std::size_t from = at_;
  const std::string name = identifier("a number, a scalar or an expression in parentheses");
  if (!take("(")) return scalar(name);
  if (name != "min" && name != "max") fail(from, name, "min(a, b) or max(a, b)");
  IntExpr a = expression();
  expect(",");
  const IntExpr b = expression();
  expect(")");
  return combined(name == "min" ? IntOp::minimum : IntOp::maximum, std::move(a), b);
}

}  // namespace tilewright::npu
