// Expressions as rewrites write them. Internal to rewrites.
#pragma once

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

}  // namespace tilewright::rewrite
