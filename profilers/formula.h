// Formulas of event tables: arithmetic over event counts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::profilers {

/// A parsed formula:
///
///   sum     = product {("+" | "-") product}
///   product = factor {("*" | "/") factor}
///   factor  = number | name | "(" sum ")" | "-" factor
///
/// A name starts with a letter and goes on with letters, digits, "_" and ".": L1D.REPLACEMENT.
class Formula {
 public:
  /// Throws InputError (`where` says of what) for anything else, and for parentheses nested deeper
  /// than a hundred.
  Formula(std::string_view text, std::string_view where);

  /// Each name once, in order of appearance.
  const std::vector<std::string>& names() const { return names_; }
  /// With `of` giving each name's value. Division by zero gives what IEEE 754 says.
  double value(const std::function<double(const std::string&)>& of) const;
  const std::string& text() const { return text_; }

 private:
  /// Postfix: a number, a name's index, or an operator.
  struct Step {
    char what;  ///< 'n', 'x', '+', '-', '*', '/', or '~' (negate)
    double number = 0;
    std::size_t name = 0;
  };
  class Parser;
  std::string text_;
  std::vector<Step> steps_;
  std::vector<std::string> names_;
};

}  // namespace tilewright::profilers
