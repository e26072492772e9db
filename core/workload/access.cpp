#include "core/workload/access.h"

#include <algorithm>

namespace tilewright {

bool indexes(const Affine& index, LoopId loop) {
  return std::ranges::any_of(index.terms, [&](const Term& t) { return t.loop == loop; });
}

bool indexes(const Access& access, LoopId loop) {
  return std::ranges::any_of(access.index, [&](const Affine& i) { return indexes(i, loop); });
}

std::optional<std::array<int, 2>> factors_of(const Output& output) {
  const Expr& e = output.value;
  if (output.combine != Combine::sum || e.kind != Expr::Kind::call || e.function != "mul" ||
      e.args[0].kind != Expr::Kind::input || e.args[1].kind != Expr::Kind::input ||
      e.args[0].input == e.args[1].input)
    return std::nullopt;
  return std::array{e.args[0].input, e.args[1].input};
}

}  // namespace tilewright
