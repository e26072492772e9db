#include "core/reference/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "core/reference/operators.h"

namespace tilewright {
namespace {

// The nearest multiple of the type's spacing at |x|; std::nearbyint ties to even.
double round_float(double x, int precision, int least_exponent, double largest) {
  if (!std::isfinite(x) || x == 0.0) return x;
  const int exponent = std::max(std::ilogb(x), least_exponent);
  const double quantum = std::ldexp(1.0, exponent - (precision - 1));
  const double r = std::nearbyint(x / quantum) * quantum;
  return std::abs(r) > largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : r;
}

double round_integer(double x, double least, double largest) {
  return std::isnan(x) ? 0.0 : std::clamp(std::nearbyint(x), least, largest);
}

void check_inputs(const Workload& w, const TensorValues& inputs) {
  for (std::size_t t = 0; t < w.tensors().size(); ++t) {
    if (!w.is_input(TensorId(t))) continue;
    const auto wanted = static_cast<std::size_t>(w.tensors()[t].elements().value);
    const std::size_t given = t < inputs.size() ? inputs[t].size() : 0;
    if (given != wanted)
      throw InputError({.field = "inputs." + w.tensors()[t].name,
                        .value = std::to_string(given) + " elements",
                        .problem = "is not the tensor's size",
                        .accepted = std::to_string(wanted) + " elements"});
  }
}

std::vector<Interval> whole(const Workload& w, OpId op) {
  std::vector<Interval> ranges;
  for (LoopId l : w.op(op).loops) ranges.push_back({0, w.loop(l).extent});
  return ranges;
}

void run_block_by_block(const Workload& w, const reference::Group& group, std::int64_t block,
                        TensorValues& values) {
  const std::int64_t extent = w.loop(group.running).extent;
  for (std::int64_t lo = 0; lo < extent; lo += block) {
    for (OpId op : group.ops) {
      std::vector<Interval> ranges = whole(w, op);
      const int at = w.local_index(op, group.running);
      if (at >= 0) ranges[static_cast<std::size_t>(at)] = {lo, std::min(lo + block, extent)};
      const bool initialise = lo == 0 || !w.is_reduction(op, group.running);
      reference::run_operator(w, op, ranges, initialise, values);
    }
  }
}

/// The least extent of what the tensor's values index; 0 where they index nothing.
std::int64_t gathered_extent(const Workload& w, TensorId t) {
  std::int64_t least = 0;
  for (OpId id : w.consumers(t)) {
    const Operator& op = w.op(id);
    for (const Access& in : op.inputs)
      for (std::size_t d = 0; d < in.index.size(); ++d) {
        const int by = in.index[d].gathered;
        if (by < 0 || op.inputs[static_cast<std::size_t>(by)].tensor != t) continue;
        const std::int64_t extent = w.tensor(in.tensor).shape[d];
        least = least == 0 ? extent : std::min(least, extent);
      }
  }
  return least;
}

template <class T>
double relative_error_of(std::span<const T> got, std::span<const double> reference) {
  TW_CHECK(got.size() == reference.size(), "values of different shapes are compared");
  double error = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto x = static_cast<double>(got[i]);
    if (!std::isfinite(x) || !std::isfinite(reference[i]))
      return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(x - reference[i]));
    largest = std::max(largest, std::abs(reference[i]));
  }
  return error == 0.0 ? 0.0 : error / largest;
}

}  // namespace

double round_to(DType type, double x) {
  switch (type) {
    case DType::f64:
      return x;
    case DType::f32:
      return round_float(x, 24, -126, std::numeric_limits<float>::max());
    case DType::bf16:
      return round_float(x, 8, -126, 0x1.FEp127);
    case DType::f16:
      return round_float(x, 11, -14, 65504.0);
    case DType::i8:
      return round_integer(x, -128.0, 127.0);
    case DType::i32:
      return round_integer(x, -2147483648.0, 2147483647.0);
  }
  return x;
}

TensorValues evaluate(const Workload& w, TensorValues inputs, const EvaluateOptions& options) {
  if (options.running_block < 0)
    throw InputError({.field = "running_block",
                      .value = std::to_string(options.running_block),
                      .problem = "is negative",
                      .accepted = "0 for the whole reduction, or a number of iterations"});
  check_inputs(w, inputs);
  TensorValues values = std::move(inputs);
  values.resize(w.tensors().size());
  for (std::size_t t = 0; t < values.size(); ++t) {
    const Tensor& tensor = w.tensors()[t];
    if (w.is_input(TensorId(t)))
      for (double& x : values[t]) x = round_to(tensor.dtype, x);
    else
      values[t].assign(static_cast<std::size_t>(tensor.elements().value), 0.0);
  }
  if (options.running_block == 0) {
    for (OpId op : w.topological_order())
      reference::run_operator(w, op, whole(w, op), true, values);
    return values;
  }
  for (const reference::Group& group : reference::running_groups(w)) {
    if (group.running.valid())
      run_block_by_block(w, group, options.running_block, values);
    else
      for (OpId op : group.ops) reference::run_operator(w, op, whole(w, op), true, values);
  }
  return values;
}

namespace {

/// Those of the inputs that index gathers, or of all.
TensorValues drawn_inputs(const Workload& w, std::uint64_t seed, bool indices_only) {
  std::mt19937_64 engine(seed);
  TensorValues values(w.tensors().size());
  for (std::size_t t = 0; t < values.size(); ++t) {
    if (!w.is_input(TensorId(t))) continue;
    const Tensor& tensor = w.tensors()[t];
    const auto elements = static_cast<std::size_t>(tensor.elements().value);
    const std::int64_t rows = gathered_extent(w, TensorId(t));
    if (indices_only && rows == 0) {
      engine.discard(elements);
      continue;
    }
    values[t].resize(elements);
    // Standard distributions differ between libraries; this mapping does not.
    for (double& x : values[t]) {
      const double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
      x = rows > 0 ? round_to(tensor.dtype, std::floor(unit * static_cast<double>(rows)))
                   : round_to(tensor.dtype, unit * 2.0 - 1.0);
    }
  }
  return values;
}

}  // namespace

TensorValues random_inputs(const Workload& w, std::uint64_t seed) {
  return drawn_inputs(w, seed, false);
}

TensorValues gather_indices(const Workload& w, std::uint64_t seed) {
  for (OpId id : w.topological_order())
    for (const Output& out : w.op(id).outputs)
      if (gathered_extent(w, out.target.tensor) > 0) return evaluate(w, random_inputs(w, seed));
  return drawn_inputs(w, seed, true);
}

double relative_error(std::span<const float> got, std::span<const double> reference) {
  return relative_error_of(got, reference);
}
double relative_error(std::span<const double> got, std::span<const double> reference) {
  return relative_error_of(got, reference);
}

}  // namespace tilewright
