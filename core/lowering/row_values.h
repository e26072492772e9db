// What an expression has that is the same in all of a row: one rule for whoever emits or prices it.
#pragma once

#include <algorithm>
#include <array>

#include "core/workload/access.h"
#include "core/workload/workload.h"

namespace tilewright::lowering {

/// Exponents whose powers are roots, products and quotients.
inline constexpr std::array kShortPowers = {-2.0, -1.0, -0.5, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0};

/// Whether a call is a power of one of these, whatever its base is.
inline bool is_short_power(const Expr& e) {
  return e.kind == Expr::Kind::call && e.function == "pow" &&
         e.args[1].kind == Expr::Kind::constant &&
         std::ranges::find(kShortPowers, e.args[1].constant) != kShortPowers.end();
}

/// Whether a call of an operator's expression is taken out of its rows along a loop: its arguments
/// are constants and inputs that the loop does not move. Compilers leave such calls where they are,
/// since what is stored might be what is read.
inline bool is_of_row(const Operator& op, const Expr& e, LoopId along) {
  const auto same = [&](const Expr& x, const auto& self) -> bool {
    if (x.kind == Expr::Kind::constant) return true;
    if (x.kind == Expr::Kind::input) {
      const Access& a = op.inputs[static_cast<std::size_t>(x.input)];
      return !indexes(a, along) &&
             std::ranges::none_of(a.index, [](const Affine& i) { return i.gathered >= 0; });
    }
    return x.kind == Expr::Kind::call &&
           std::ranges::all_of(x.args, [&](const Expr& y) { return self(y, self); });
  };
  return e.kind == Expr::Kind::call && along.valid() && same(e, same);
}

}  // namespace tilewright::lowering
