// How errors pass through the functions that expressions may call, a row at a time. Internal to the
// evaluator.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright::reference {

/// The arithmetic that errors are of. Errors are standard deviations: `unit` is that of one
/// rounding, relative to its result, and `reach` how many of them an argument may be off by where a
/// function is not straight.
struct Arithmetic {
  double unit = 0;
  double reach = 0;
  /// What functions between -1 and 1 are off by beside, wherever they are (Rounding::other).
  double absolute = 0;
};

/// to[i] = the error of f(values[0][i], ...), whose value is result[i], where values[a][i] is off
/// by errors[a][i]: |df/dx| times each of these, added, and f's own rounding. Infinite where an
/// argument may be where f has a pole. `to` may be one of `errors`.
using ErrorRule = void (*)(const double* const* values, const double* const* errors,
                           const double* result, std::int64_t n, const Arithmetic& in, double* to);
/// Of a function of expr_functions().
ErrorRule error_rule(std::string_view function);

}  // namespace tilewright::reference
