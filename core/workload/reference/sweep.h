// Evaluating one scalar expression over a box of loops, a row of the innermost loop at a time.
// Internal to the evaluator.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "core/workload/expr_rows.h"
#include "core/workload/reference/error_rows.h"
#include "core/workload/workload.h"

namespace tilewright::reference {

/// A row-major array that an access reads; indices outside `shape` read as zero.
struct Source {
  const Access* access = nullptr;
  std::span<const std::int64_t> shape;
  const double* data = nullptr;
  const double* errors = nullptr;  ///< of each element; none: exact
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
    enum class Code : std::uint8_t { source, constant, index, max, min, call };
    Code code = Code::constant;
    int place = -1;    ///< Code::source: in the sources; Code::constant: in constants()
    LoopId loop = {};  ///< Code::index
    RowFunction function = nullptr;  ///< Code::call
    int arity = 0;                   ///< Code::call
    ErrorRule errors = nullptr;      ///< Code::max, min, call
    /// Code::max, min, call: its value is that of other terms of a sum, too, and so is its
    /// rounding.
    bool alike = false;
  };
  /// What a sweep gives of each point: the expression's value, the error of it, what it may reach
  /// (value - and + reach times the error, |value| + that), or the square of the error and, times a
  /// factor, that of the value.
  enum class Give : std::uint8_t { value, error, lowest, highest, largest, squares };

  /// Inputs are sources by their number; `before` and `after` of output j are sources
  /// `inputs + 2 j` and `inputs + 2 j + 1`.
  Program(const Expr& e, int inputs) : Program(e, inputs, nullptr, {}) {}
  /// Of a sum of the operator over these loops: which calls are alike in several terms is found.
  Program(const Expr& e, int inputs, const Operator* op, std::span<const LoopId> summed);
  static Program of_constant(double value);
  static Program of_source(int source);

  std::span<const Instruction> code() const { return code_; }
  std::span<const double> constants() const { return constants_; }
  int depth() const { return depth_; }  ///< most values on the stack at once

  /// The same program, giving something else. `factor`: of Give::squares.
  Program giving(Give give, const Arithmetic& in, double factor = 0) const;
  /// The same program, whose calls that are alike in several terms are rounded so.
  Program with_alike(const Arithmetic& in) const;
  Give give() const { return give_; }
  const Arithmetic& arithmetic() const { return arithmetic_; }
  const Arithmetic& arithmetic_of(const Instruction& i) const {
    return i.alike ? alike_ : arithmetic_;
  }
  bool has_alike() const { return std::ranges::any_of(code_, &Instruction::alike); }
  double factor() const { return factor_; }

 private:
  Program() = default;
  struct Summed {
    const Operator* op;
    std::span<const LoopId> loops;
  };
  void emit(const Expr& e, int inputs, int below, const Summed& in);
  std::vector<Instruction> code_;
  std::vector<double> constants_;
  int depth_ = 0;
  Give give_ = Give::value;
  Arithmetic arithmetic_, alike_;
  double factor_ = 0;
};

/// The loops to run over and their ranges, position by position. Forms in accesses and indices in
/// programs may name these loops only.
struct Domain {
  std::vector<LoopId> loops;
  std::vector<Interval> ranges;
  std::int64_t points() const;
};

/// target[...] = combine(target[...], program(sources[...])) at every point of the domain, on up to
/// `threads` threads (0: all cores); what it computes does not depend on how many. An accumulation
/// adds in an order that depends on the extents alone. Where a source is the target's own array,
/// every point must read the element that it writes.
/// Cost: about a nanosecond a point and instruction, exp and the like 5 to 20, on one thread.
void sweep(const Domain& domain, const Program& program, std::span<const Source> sources,
           const Target& target, Combine combine, int threads = 1);

}  // namespace tilewright::reference
