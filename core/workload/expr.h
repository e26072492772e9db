// Questions about expressions that several parts ask.
#pragma once

#include <optional>
#include <string>

#include "core/workload/workload.h"

namespace tilewright {

/// Whether it names another output of its operator, as it was before or is after (running
/// operators).
bool names_outputs(const Expr& e);
/// Whether it reads that input.
bool reads_input(const Expr& e, int input);
/// Whether nothing in it takes more than an arithmetic instruction; a division by a constant is a
/// multiplication to a compiler.
bool is_light(const Expr& e);
/// Whether a type's values are whole numbers.
constexpr bool is_integer(DType type) { return type == DType::i8 || type == DType::i32; }
/// Whether what an operator combines into an output is a whole number whatever its inputs are: made
/// of integer tensors, whole constants and loops' indices by functions that leave whole numbers
/// whole.
bool is_whole(const WorkloadSpec& spec, const Operator& op, const Expr& value);
/// Why the loop's index is no value in expressions: its name is not its own, or f32 does not hold
/// all of its indices. None: it is one.
std::optional<std::string> why_no_value(const WorkloadSpec& spec, LoopId loop);
/// Calls f(loop) wherever the expression has a loop's index as a value; `e` may be const.
template <class E, class F>
void each_index(E& e, const F& f) {
  if (e.kind == Expr::Kind::index) f(e.loop);
  for (auto& a : e.args) each_index(a, f);
}

}  // namespace tilewright
