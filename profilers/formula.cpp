#include "profilers/formula.h"

#include <algorithm>
#include <charconv>

#include "core/base/error.h"

namespace tilewright::profilers {

namespace {
constexpr int kDeepest = 100;
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace

class Formula::Parser {
 public:
  Parser(Formula& to, std::string_view where) : to_(to), text_(to.text_), where_(where) {}

  void whole() {
    sum(0);
    space();
    if (at_ != text_.size()) fail();
  }

 private:
  void sum(int depth) {
    product(depth);
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      product(depth);
      to_.steps_.push_back({.what = c});
    }
  }
  void product(int depth) {
    factor(depth);
    for (char c = next(); c == '*' || c == '/'; c = next()) {
      ++at_;
      factor(depth);
      to_.steps_.push_back({.what = c});
    }
  }
  void factor(int depth) {
    if (depth > kDeepest) fail();
    const char c = next();
    if (c == '(') {
      ++at_;
      sum(depth + 1);
      if (next() != ')') fail();
      ++at_;
    } else if (c == '-') {
      ++at_;
      factor(depth + 1);
      to_.steps_.push_back({.what = '~'});
    } else if (letter(c)) {
      name();
    } else {
      number();
    }
  }
  void name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (letter(text_[at_]) || digit(text_[at_]) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    const std::string found(text_.substr(begin, at_ - begin));
    const auto known = std::ranges::find(to_.names_, found);
    to_.steps_.push_back(
        {.what = 'x', .name = static_cast<std::size_t>(known - to_.names_.begin())});
    if (known == to_.names_.end()) to_.names_.push_back(found);
  }
  void number() {
    double value = 0;
    const char* const begin = text_.data() + at_;
    if (at_ >= text_.size() || !(digit(*begin) || *begin == '.')) fail();
    const auto [stop, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) fail();
    at_ = static_cast<std::size_t>(stop - text_.data());
    to_.steps_.push_back({.what = 'n', .number = value});
  }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  char next() {
    space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  [[noreturn]] void fail() const {
    throw InputError({.where = std::string(where_),
                      .value = text_.substr(0, 200),
                      .problem = "is not a formula (at character " + std::to_string(at_ + 1) + ")",
                      .accepted = "numbers, events, + - * / and parentheses"});
  }

  Formula& to_;
  const std::string& text_;
  std::string_view where_;
  std::size_t at_ = 0;
};

Formula::Formula(std::string_view text, std::string_view where) : text_(text) {
  Parser(*this, where).whole();
}

double Formula::value(const std::function<double(const std::string&)>& of) const {
  std::vector<double> stack;
  const auto pop = [&stack] {
    const double top = stack.back();
    stack.pop_back();
    return top;
  };
  for (const Step& s : steps_) {
    if (s.what == 'n') {
      stack.push_back(s.number);
    } else if (s.what == 'x') {
      stack.push_back(of(names_[s.name]));
    } else if (s.what == '~') {
      stack.back() = -stack.back();
    } else {
      const double right = pop(), left = pop();
      stack.push_back(s.what == '+'   ? left + right
                      : s.what == '-' ? left - right
                      : s.what == '*' ? left * right
                                      : left / right);
    }
  }
  return stack.back();
}

}  // namespace tilewright::profilers
