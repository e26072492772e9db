// Scalar expressions as C++ text. Functions are called by f_NAME, which the emitted program has.
#pragma once

#include <functional>
#include <string>

#include "core/workload/workload.h"

namespace tilewright::codegen {

/// `real(value)`, infinities and NaN included.
std::string literal(double value, const std::string& real);
/// Inputs are x0, x1, ...; `of_index` is a loop's index as a value, in the whole loop; `of_output`
/// names what another output was `before` (or is after). `short_powers`: the program has
/// f_short_pow, too, for exponents that are roots, products and quotients.
std::string expression(const Expr& e, const std::string& real,
                       const std::function<std::string(LoopId)>& of_index,
                       const std::function<std::string(int output, bool before)>& of_output = {},
                       bool short_powers = false);
/// The statement that joins the value to the result so far, `y`.
std::string combined(Combine c, const std::string& y, const std::string& value);

}  // namespace tilewright::codegen
