// Expressions as rewrites write them. Internal to rewrites.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::rewrite {

/// An operator's input, by its position.
inline Expr read(std::size_t input) {
  return {.kind = Expr::Kind::input, .input = static_cast<int>(input)};
}
inline Expr value(double x) { return {.kind = Expr::Kind::constant, .constant = x}; }
inline Expr index(LoopId l) { return {.kind = Expr::Kind::index, .loop = l}; }
inline Expr make(std::string function, std::vector<Expr> args) {
  return {.kind = Expr::Kind::call, .function = std::move(function), .args = std::move(args)};
}

/// What is known of an input, by its position.
using OfInput = std::function<bool(int input)>;
/// Whether the expression is a finite number where these inputs are. Cost: its size.
bool is_finite(const Expr& e, const OfInput& finite);
/// Whether the expression is zero where inputs are that are `zero`, if those that are `finite` are
/// so. Cost: the square of its size at most.
bool vanishes(const Expr& e, const OfInput& zero, const OfInput& finite);

/// Indices are values of f32 on most targets: beyond this they are not exact.
inline constexpr std::int64_t kExactInF32 = std::int64_t{1} << 24;

/// A loop in chunks of so many iterations, the last of which may have fewer.
struct CutLoop {
  LoopId whole, chunk, within;
  std::int64_t length = 1;

  /// The whole loop's index.
  Expr place() const {
    return make("add",
                {make("mul", {value(static_cast<double>(length)), index(chunk)}), index(within)});
  }
  /// Both of them in place of the whole loop.
  void cut(Affine& i) const {
    const auto at = std::ranges::find(i.terms, whole, &Term::loop);
    if (!whole.valid() || at == i.terms.end()) return;
    const std::int64_t by = at->coefficient;
    *at = {chunk, by * length};
    i.terms.insert(at + 1, {within, by});
  }
  void cut(Expr& e) const {
    if (e.kind == Expr::Kind::index && whole.valid() && e.loop == whole) {
      e = place();
      return;
    }
    for (Expr& a : e.args) cut(a);
  }
  /// `e`, and `behind` from the iteration `extent` on.
  Expr until(std::int64_t extent, Expr e, double behind) const {
    return make("select", {make("lt", {place(), value(static_cast<double>(extent))}), std::move(e),
                           value(behind)});
  }
};

}  // namespace tilewright::rewrite
