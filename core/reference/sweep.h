// Evaluating one scalar expression over a box of loops, a row of the innermost loop at a time.
// Internal to the evaluator.
#pragma once

#include <span>
#include <vector>

#include "core/ir/workload.h"

namespace tilewright::reference {

/// A row-major array that an access reads; indices outside `shape` read as zero.
struct Source {
  const Access* access = nullptr;
  std::span<const std::int64_t> shape;
  const double* data = nullptr;
};

/// A row-major array that an access writes; indices outside `shape` are skipped.
struct Target {
  const Access* access = nullptr;
  std::span<const std::int64_t> shape;
  double* data = nullptr;
};

/// An expression as postfix code over rows of values.
class Program {
 public:
  struct Instruction {
    enum class Code : std::uint8_t { source, constant, add, sub, mul, max, min, neg, call };
    Code code = Code::constant;
    int source = -1;                         ///< Code::source: position in the sources
    double constant = 0.0;                   ///< Code::constant
    const ExprFunction* function = nullptr;  ///< Code::call
  };

  /// Inputs are sources by their number; `before` and `after` of output j are sources
  /// `inputs + 2 j` and `inputs + 2 j + 1`.
  Program(const Expr& e, int inputs);
  static Program of_constant(double value);
  static Program of_source(int source);

  std::span<const Instruction> code() const { return code_; }
  int depth() const { return depth_; }  ///< most values on the stack at once

 private:
  Program() = default;
  void emit(const Expr& e, int inputs, int below);
  std::vector<Instruction> code_;
  int depth_ = 0;
};

/// The loops to run over and their ranges, position by position. The forms in accesses may name
/// these loops only.
struct Domain {
  std::vector<LoopId> loops;
  std::vector<Interval> ranges;
  std::int64_t points() const;
};

/// target[...] = combine(target[...], program(sources[...])) at every point of the domain.
/// Cost: a few nanoseconds a point and instruction.
void sweep(const Domain& domain, const Program& program, std::span<const Source> sources,
           const Target& target, Combine combine);

}  // namespace tilewright::reference
