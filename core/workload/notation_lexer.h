// Tokens of index notation. Used by the parser only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tilewright::notation {

struct Token {
  enum class Kind : std::uint8_t { end, name, number, symbol };
  Kind kind = Kind::end;
  std::string_view text = {};
  std::size_t column = 0;  ///< from 1
};

inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
    const std::size_t from = at_;
    if (at_ == text_.size()) return {Token::Kind::end, {}, from + 1};
    const char c = text_[at_];
    Token::Kind kind = Token::Kind::symbol;
    if (is_letter(c)) {
      kind = Token::Kind::name;
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    } else if (is_digit(c) || c == '.') {
      kind = Token::Kind::number;
      skip_number();
    } else {
      ++at_;
      if ((c == '+' || c == '*') && at_ < text_.size() && text_[at_] == '=') ++at_;
    }
    return {kind, text_.substr(from, at_ - from), from + 1};
  }

 private:
  void skip_number() {
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
    if (at_ == text_.size() || (text_[at_] != 'e' && text_[at_] != 'E')) return;
    std::size_t digits = at_ + 1;
    if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
    if (digits == text_.size() || !is_digit(text_[digits])) return;
    at_ = digits;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace tilewright::notation
