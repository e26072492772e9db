// What to compute: loops, tensors, affine accesses, operators, and the DAG that they form.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/workload/box.h"
#include "core/workload/values.h"

namespace tilewright {

/// A named iteration dimension. Its range is [0, extent).
struct Loop {
  std::string name;
  std::int64_t extent = 0;
  friend bool operator==(const Loop&, const Loop&) = default;
};

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< elements, outermost dimension first; rank 0 is a scalar
  DType dtype = DType::f32;
  double range = 1;  ///< of an input: values are drawn from -range to range (random_inputs)
  std::optional<double> least = {};  ///< of an input: they are drawn from here on instead
  /// Of an input: what they are in every run; none: each run may be given others.
  SharedValues values = {};
  /// Of an input: the seed says its values.
  bool drawn() const { return !values || values->drawn(); }
  Elements elements() const;
  Bytes bytes() const { return bytes_of(elements(), dtype); }
  Box whole() const;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// coefficient * loop
struct Term {
  LoopId loop;
  std::int64_t coefficient = 1;
  friend bool operator==(const Term&, const Term&) = default;
};

/// sum of terms + offset. Terms are sorted by first appearance, each loop at most once.
struct Affine {
  std::vector<Term> terms;
  std::int64_t offset = 0;
  /// A gather: this dimension's index is the value of Operator::inputs[gathered], an element of an
  /// integer tensor; terms and offset are then empty. Which elements are read is known only at run
  /// time, so a footprint is the whole dimension. -1: affine.
  int gathered = -1;
  /// The loop, where the form is exactly that loop (coefficient 1, no offset).
  std::optional<LoopId> plain_loop() const;
  friend bool operator==(const Affine&, const Affine&) = default;
};

/// How an operator indexes a tensor: an affine form of loops for each tensor dimension, or, in
/// inputs, another input's value (a gather). Indices that fall outside the tensor (a convolution's
/// padding) read as zero and move nothing.
struct Access {
  TensorId tensor;
  std::vector<Affine> index;
  friend bool operator==(const Access&, const Access&) = default;
};

/// A scalar expression over an operator's inputs. In a running operator an output whose combine is
/// assign may also name another output of the same operator, as it was `before` and as it is
/// `after` this block of the reduction is combined in (online softmax's shift: before - after of
/// the maximum). Where nothing has been combined in yet, `before` is the identity of that combine.
/// The index of one of the operator's loops is a value too, the one in the whole loop whatever the
/// tile: select(lt(m, l), -32768, S[m,l]) is a causal mask.
struct Expr {
  enum class Kind : std::uint8_t { input, constant, index, call, before, after };
  Kind kind = Kind::constant;
  int input = -1;             ///< Kind::input: position in Operator::inputs;
                              ///< Kind::before, Kind::after: position in Operator::outputs
  LoopId loop = {};           ///< Kind::index
  double constant = 0.0;      ///< Kind::constant
  std::string function = {};  ///< Kind::call: a name in expr_functions()
  std::vector<Expr> args = {};
  friend bool operator==(const Expr&, const Expr&) = default;
};

/// A function that expressions may call: "add sub mul div max min pow lt" (two arguments), "select"
/// (three), one: neg exp log sqrt rsqrt recip relu tanh sigmoid erf gelu abs square floor sin cos.
struct ExprFunction {
  std::string_view name;
  int arity;
  double (*evaluate)(const double* args);
  int light;  ///< 1: one arithmetic instruction; 0: expensive (exp, div, sqrt, ...)
};
std::span<const ExprFunction> expr_functions();
const ExprFunction* find_expr_function(std::string_view name);

/// How an operator combines what it computes into its output.
enum class Combine : std::uint8_t { assign, sum, product, max, min };
std::string_view name_of(Combine c);  ///< "=", "+=", "*=", "max=", "min="
/// The value that `c` starts from (0 for sum, -inf for max, ...); 0 for assign.
double identity_of(Combine c);

/// One tensor that an operator writes and the value it combines into it.
struct Output {
  Access target;
  Expr value;
  Combine combine = Combine::assign;
  /// Only in running operators: what the partial result so far is multiplied by before this block
  /// of the reduction is combined in (online softmax's exp(old max - new max)); reads inputs only.
  std::optional<Expr> rescale = {};
  friend bool operator==(const Output&, const Output&) = default;
};

/// Reads inputs, writes outputs, over the box of its loops.
struct Operator {
  std::string name;
  std::vector<LoopId> loops;    ///< in order of first appearance: outputs, then inputs
  std::vector<Access> inputs;   ///< as written, left to right; equal accesses appear once; what a
                                ///< gather is indexed by stands before it
  std::vector<Output> outputs;  ///< all index the same loops
  /// The partial result may be read inside the reduction (plan.md rule 14).
  bool running = false;
  friend bool operator==(const Operator&, const Operator&) = default;
};

/// What a Workload is made from, as files and builders give it; unchecked.
struct WorkloadSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Loop> loops;
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;
  std::vector<TensorId> outputs;
  friend bool operator==(const WorkloadSpec&, const WorkloadSpec&) = default;
};

/// A checked workload: identifiers valid and unique, sizes within 64 bits, every loop used, every
/// access in rank, one writer a tensor, no cycle, outputs written. Immutable. operator_graph.h
/// gives its DAG to Boost.Graph's algorithms.
class Workload {
 public:
  /// Throws InputError naming what is wrong. Cost: linear in the spec.
  static Workload create(WorkloadSpec spec);

  const std::string& name() const { return spec_.name; }
  DType dtype() const { return spec_.dtype; }
  const WorkloadSpec& spec() const { return spec_; }
  std::span<const Loop> loops() const { return spec_.loops; }
  std::span<const Tensor> tensors() const { return spec_.tensors; }
  std::span<const Operator> operators() const { return spec_.operators; }
  std::span<const TensorId> outputs() const { return spec_.outputs; }
  const Loop& loop(LoopId id) const { return spec_.loops[id.index()]; }
  const Tensor& tensor(TensorId id) const { return spec_.tensors[id.index()]; }
  const Operator& op(OpId id) const { return spec_.operators[id.index()]; }

  std::optional<LoopId> find_loop(std::string_view name) const;
  std::optional<TensorId> find_tensor(std::string_view name) const;
  /// By operator name, else by the name of a tensor that only it writes.
  std::optional<OpId> find_op(std::string_view name) const;

  /// Producers before consumers; ties in the order of the file.
  std::span<const OpId> topological_order() const { return order_; }
  /// The operator that writes a tensor; none for a workload input.
  OpId producer(TensorId t) const { return producer_[t.index()]; }
  /// Operators that read a tensor, in topological order, each once.
  std::span<const OpId> consumers(TensorId t) const { return consumers_[t.index()]; }
  bool is_input(TensorId t) const { return !producer(t).valid(); }
  bool is_output(TensorId t) const;
  /// Written by one operator, read by another, and no output of the workload.
  bool is_intermediate(TensorId t) const;

  /// Position of `loop` in op.loops, or -1.
  int local_index(OpId op, LoopId loop) const;
  /// Loops of `op` that index none of its outputs, in op.loops order.
  std::span<const LoopId> reduction_loops(OpId op) const { return reductions_[op.index()]; }
  bool is_reduction(OpId op, LoopId loop) const;
  /// True where every tensor of every operator that has the loop is indexed by it: a batch loop,
  /// over which the operators repeat independently, and all operators have it. They may read its
  /// index.
  bool is_batch(LoopId loop) const;
  /// Every point of the operator's iteration space once; multiply-accumulates for a contraction.
  Operations operations(OpId op) const;
  /// True where an index of one of its inputs is another input's value.
  bool gathers(OpId op) const;
  /// True where the operator is a product of two or more inputs summed over a loop.
  bool is_contraction(OpId op) const;
  /// 2 a multiply-accumulate, 1 an expression node otherwise, over the whole workload.
  double flops() const;
  /// Every workload input read once and every output written once.
  Bytes compulsory_bytes() const;

  friend bool operator==(const Workload& a, const Workload& b) { return a.spec_ == b.spec_; }

 private:
  WorkloadSpec spec_;
  std::vector<OpId> order_;
  std::vector<OpId> producer_;
  std::vector<std::vector<OpId>> consumers_;
  std::vector<std::vector<LoopId>> reductions_;
};

/// Whether a dimension of the access is indexed by another input's value.
bool is_gather(const Access& access);
/// The loops that say which element a gather reads: those of its own indices and of the inputs that
/// it is indexed by. Positions in op.loops, ascending.
std::vector<int> gather_loops(const Operator& op, const Access& access);

/// The smallest box of the tensor that `access` touches while each of the operator's loops runs
/// over its range, clipped to the tensor: 1 + sum |coefficient| (T - 1) a dimension. `ranges` is by
/// position in op.loops. A gathered dimension is touched whole.
Box footprint(const Workload& w, const Operator& op, const Access& access,
              std::span<const Interval> ranges);
/// One dimension of it before clipping; an affine one.
Interval footprint(const Operator& op, const Affine& index, std::span<const Interval> ranges);

}  // namespace tilewright
