// The reference: evaluates any workload in float64. Knows no plans, tiles or machines, so that
// every generated kernel can be held against it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// Values of every tensor of a workload, by TensorId; each row-major, as long as the tensor has
/// elements.
using TensorValues = std::vector<std::vector<double>>;

struct EvaluateOptions {
  /// 0: a running operator sees its whole reduction as one block. n > 0: the operators that share a
  /// running reduction are evaluated together over n iterations of it at a time, the last block
  /// perhaps partial, so that partial results are rescaled as an online algorithm rescales them.
  std::int64_t running_block = 0;
  /// Only the workload's outputs are kept: other tensors come back empty, and their memory serves
  /// the next ones as soon as nothing reads them any more.
  bool outputs_only = false;
  /// With outputs_only: the inputs are kept, too.
  bool inputs_kept = false;
  /// 0: as many as there are cores. The values do not depend on it.
  int threads = 0;
  /// Called when an operator has been evaluated whole; what it reads and writes is there, integers
  /// that it makes not yet rounded. Not with running_block.
  std::function<void(OpId, TensorValues&)> after = {};
};

/// The value of every tensor, intermediates included. `inputs` is by TensorId, row-major, and must
/// hold the workload's inputs; what it holds for other tensors is ignored, but its memory is used.
///
/// Every input is first rounded to what its tensor's type can hold (round_to), because that is what
/// a kernel would be given; from there on everything is float64, but that what an operator makes of
/// an integer tensor is rounded to it when it is complete. An index outside a tensor reads as zero.
/// An accumulation starts from its combine's identity and adds in an unspecified order. Throws
/// InputError where an input is missing or of the wrong size, a running_block is negative, or where
/// running operators cannot be evaluated block by block (one reads another's partial result that is
/// not running). Cost: one expression evaluation a point of each operator's loops, a row of them at
/// a time; sums of products of two tensors go through Eigen's matrix product, whatever their
/// accesses. On all cores where there is enough to do. Memory: 8 bytes an element of every tensor
/// (outputs_only: of those that are live at once), what gathers have read, and packed copies of a
/// product's operands.
TensorValues evaluate(const Workload& w, TensorValues inputs, const EvaluateOptions& options = {});

/// Inputs for `evaluate`: independent, uniform in [-1, 1) times the
/// tensor's range, rounded to each tensor's type (integers of range 1:
/// -1, 0 or 1; those that index a gather: uniform over what they index). Inputs with values have
/// them, whatever the seed. Other tensors stay empty.
/// The same on every platform for the same workload and seed: the top 53 bits of std::mt19937_64,
/// tensors in workload order. Throws InputError where inputs and outputs exceed the memory there
/// is, or values cannot be read.
TensorValues random_inputs(const Workload& w, std::uint64_t seed);
/// The values that gathers are indexed by: of random_inputs(w, seed) those inputs alone, or, where
/// an operator makes some such index, of every tensor what evaluate makes of all inputs. Memory:
/// without such an operator, 8 bytes an element of those inputs.
TensorValues gather_indices(const Workload& w, std::uint64_t seed);

/// The value of `type` nearest to x, ties to even. Beyond its range: an infinity for floating types
/// (f16 from 65520, bf16 and f32 likewise), the nearest end of the range for integers. Subnormals
/// are kept. NaN stays NaN (0 for integers).
double round_to(DType type, double x);
/// The largest finite value of the type.
double largest_of(DType type);
/// Each of the values so, on all cores.
void round_all(DType type, std::span<double> values, int threads = 0);

/// max|got - reference| / max|reference|, the measure that `run` reports; 0 where both are zero
/// throughout. Infinity where one alone holds a NaN or an infinity, where more than one in twenty
/// elements are NaN in both, or where the reference alone is zero. Both must be of the same length.
double relative_error(std::span<const float> got, std::span<const double> reference);
double relative_error(std::span<const double> got, std::span<const double> reference);

}  // namespace tilewright
