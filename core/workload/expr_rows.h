// The functions that expressions may call, over rows of values.
#pragma once

#include <cstdint>

#include "core/workload/workload.h"

namespace tilewright {

/// The larger and the smaller of two; NaN if one of them is. So `max`, `min` and reductions have it
/// (docs/conventions.md).
constexpr double larger(double a, double b) {
  const double most = b > a ? b : a;
  return b == b ? most : b;
}
constexpr double smaller(double a, double b) {
  const double least = b < a ? b : a;
  return b == b ? least : b;
}

/// to[i] = f(args[0][i], ...) for i in [0, n); `to` may be one of the arguments.
using RowFunction = void (*)(const double* const* args, std::int64_t n, double* to);
/// What f.evaluate computes, the same to the bit, without a call through a pointer a value. `f` is
/// one of expr_functions().
RowFunction row_function(const ExprFunction& f);

}  // namespace tilewright
