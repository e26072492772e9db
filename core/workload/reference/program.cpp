#include <algorithm>

#include "core/workload/reference/operators.h"
#include "core/workload/reference/sweep.h"

namespace tilewright::reference {

using Code = Program::Instruction::Code;

Program::Program(const Expr& e, int inputs, const Operator* op, std::span<const LoopId> summed) {
  emit(e, inputs, 0, {op, summed});
}

Program Program::of_constant(double value) {
  return Program(Expr{.kind = Expr::Kind::constant, .constant = value}, 0);
}

Program Program::of_source(int source) {
  return Program(Expr{.kind = Expr::Kind::input, .input = source}, 0);
}

void Program::emit(const Expr& e, int inputs, int below, const Summed& in) {
  depth_ = std::max(depth_, below + 1);
  switch (e.kind) {
    case Expr::Kind::input:
      code_.push_back({.code = Code::source, .place = e.input});
      return;
    case Expr::Kind::index:
      code_.push_back({.code = Code::index, .loop = e.loop});
      return;
    case Expr::Kind::before:
      code_.push_back({.code = Code::source, .place = inputs + 2 * e.input});
      return;
    case Expr::Kind::after:
      code_.push_back({.code = Code::source, .place = inputs + 2 * e.input + 1});
      return;
    case Expr::Kind::constant:
      code_.push_back({.code = Code::constant, .place = static_cast<int>(constants_.size())});
      constants_.push_back(e.constant);
      return;
    case Expr::Kind::call:
      break;
  }
  int args = 0;
  for (const Expr& a : e.args) emit(a, inputs, below + args++, in);
  const ExprFunction* f = find_expr_function(e.function);
  TW_CHECK(f != nullptr && f->arity == args, "a checked workload calls '" + e.function + "'");
  const ErrorRule errors = error_rule(e.function);
  const bool alike =
      std::ranges::any_of(in.loops, [&](LoopId loop) { return !depends_on(*in.op, e, loop); });
  // So often asked that they have no call.
  if (e.function == "max" || e.function == "min")
    code_.push_back({.code = e.function == "max" ? Code::max : Code::min,
                     .arity = args,
                     .errors = errors,
                     .alike = alike});
  else
    code_.push_back({.code = Code::call,
                     .function = row_function(*f),
                     .arity = args,
                     .errors = errors,
                     .alike = alike});
}

Program Program::giving(Give give, const Arithmetic& in, double factor) const {
  Program other = *this;
  other.give_ = give;
  other.arithmetic_ = other.alike_ = in;
  other.factor_ = factor;
  return other;
}

Program Program::with_alike(const Arithmetic& in) const {
  Program other = *this;
  other.alike_ = in;
  return other;
}

}  // namespace tilewright::reference
