#include "core/workload/reference/evaluate.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/format.h"
#include "core/base/progress.h"
#include "core/workload/expr.h"
#include "core/workload/reference/operators.h"
#include "core/workload/reference/threads.h"

namespace tilewright {
namespace {

// The nearest multiple of the type's spacing at |x|, ties to even. `least` is the least normal
// number.
double round_float(double x, int precision, double least, double largest) {
  if (!std::isfinite(x)) return x;
  if (std::abs(x) < least) {
    const double quantum = std::ldexp(least, 1 - precision);
    return std::nearbyint(x / quantum) * quantum;  // to even
  }
  // The fraction's lower bits go; a carry out of the fraction is the next exponent.
  const int dropped = std::numeric_limits<double>::digits - precision;
  auto bits = std::bit_cast<std::uint64_t>(x);
  bits += (std::uint64_t{1} << (dropped - 1)) - 1 + (bits >> dropped & 1);
  const auto r = std::bit_cast<double>(bits >> dropped << dropped);
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

void run_block_by_block(const Workload& w, const reference::Group& group,
                        const EvaluateOptions& options, TensorValues& values) {
  const std::int64_t block = options.running_block;
  const std::int64_t extent = w.loop(group.running).extent;
  for (std::int64_t lo = 0; lo < extent; lo += block) {
    for (OpId op : group.ops) {
      std::vector<Interval> ranges = whole(w, op);
      const int at = w.local_index(op, group.running);
      if (at >= 0) ranges[static_cast<std::size_t>(at)] = {lo, std::min(lo + block, extent)};
      const bool initialise = lo == 0 || !w.is_reduction(op, group.running);
      reference::run_operator(w, op, ranges, initialise, values, options.threads);
    }
  }
}

/// What operators have made of tensors of whole numbers is whole.
void round_integers(const Workload& w, OpId op, TensorValues& values, int threads) {
  for (const Output& o : w.op(op).outputs) {
    const DType type = w.tensor(o.target.tensor).dtype;
    if (is_integer(type)) round_all(type, values[o.target.tensor.index()], threads);
  }
}

/// The tensors' memory: each is taken before its operator runs, and where only outputs are kept it
/// serves another once nothing reads it any more, because fresh pages cost as much as evaluating.
class Memory {
 public:
  Memory(const Workload& w, const EvaluateOptions& options, TensorValues& values)
      : w_(w), options_(options), values_(values), readers_(values.size()) {
    for (std::size_t t = 0; t < values.size(); ++t) readers_[t] = w.consumers(TensorId(t)).size();
  }

  /// Zeros for what the operator writes.
  void take(OpId op) {
    for (const Output& o : w_.op(op).outputs) {
      const TensorId t = o.target.tensor;
      const auto n = static_cast<std::size_t>(w_.tensor(t).elements().value);
      const auto fits = [n](const std::vector<double>& v) { return v.size() == n; };
      const auto old = std::find_if(free_.begin(), free_.end(), fits);
      if (old != free_.end()) {
        values_[t.index()] = std::move(*old);
        free_.erase(old);
      } else if (!fits(values_[t.index()])) {
        values_[t.index()].assign(n, 0.0);
        continue;
      }
      double* const data = values_[t.index()].data();
      reference::for_each_range(static_cast<std::int64_t>(n), options_.threads,
                                [data](std::int64_t begin, std::int64_t end) {
                                  std::fill(data + begin, data + end, 0.0);
                                });
    }
  }

  /// What the operator was the last to read.
  void give_back(OpId op) {
    if (!options_.outputs_only) return;
    std::vector<TensorId> read;
    for (const Access& a : w_.op(op).inputs)
      if (std::find(read.begin(), read.end(), a.tensor) == read.end()) read.push_back(a.tensor);
    for (TensorId t : read)
      if (--readers_[t.index()] == 0 && !w_.is_output(t) &&
          !(options_.inputs_kept && w_.is_input(t)))
        free_.push_back(std::exchange(values_[t.index()], {}));
  }

 private:
  const Workload& w_;
  const EvaluateOptions& options_;
  TensorValues& values_;
  std::vector<std::size_t> readers_;
  std::vector<std::vector<double>> free_;
};

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

}  // namespace

double largest_of(DType type) {
  switch (type) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f32:
      return std::numeric_limits<float>::max();
    case DType::bf16:
      return 0x1.FEp127;
    case DType::f16:
      return 65504.0;
    case DType::i8:
      return std::numeric_limits<std::int8_t>::max();
    case DType::i32:
      return std::numeric_limits<std::int32_t>::max();
  }
  return std::numeric_limits<double>::max();
}

double round_to(DType type, double x) {
  switch (type) {
    case DType::f64:
      return x;
    case DType::f32:
      return static_cast<float>(x);  // as the processor rounds: to nearest, ties to even
    case DType::bf16:
      return round_float(x, 8, 0x1p-126, largest_of(type));
    case DType::f16:
      return round_float(x, 11, 0x1p-14, largest_of(type));
    case DType::i8:
      return round_integer(x, -128.0, 127.0);
    case DType::i32:
      return round_integer(x, -2147483648.0, 2147483647.0);
  }
  return x;
}

void round_all(DType type, std::span<double> values, int threads) {
  if (type == DType::f64) return;
  reference::for_each_range(
      static_cast<std::int64_t>(values.size()), threads, [&](std::int64_t begin, std::int64_t end) {
        const auto some =
            values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        if (type == DType::f32)
          for (double& x : some) x = static_cast<float>(x);
        else
          for (double& x : some) x = round_to(type, x);
      });
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
  for (std::size_t t = 0; t < values.size(); ++t)
    if (w.is_input(TensorId(t))) round_all(w.tensors()[t].dtype, values[t], options.threads);
  Memory memory(w, options, values);
  if (options.running_block == 0) {
    Steps steps(static_cast<double>(w.operators().size()));
    for (OpId op : w.topological_order()) {
      memory.take(op);
      reference::run_operator(w, op, whole(w, op), true, values, options.threads);
      if (options.after) options.after(op, values);
      round_integers(w, op, values, options.threads);
      memory.give_back(op);
      steps.done();
    }
    return values;
  }
  for (const reference::Group& group : reference::running_groups(w)) {
    for (OpId op : group.ops) memory.take(op);
    if (group.running.valid())
      run_block_by_block(w, group, options, values);
    else
      for (OpId op : group.ops)
        reference::run_operator(w, op, whole(w, op), true, values, options.threads);
    for (OpId op : group.ops) round_integers(w, op, values, options.threads);
    for (OpId op : group.ops) memory.give_back(op);
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
    if (!tensor.drawn()) {
      if (!indices_only || rows > 0)
        values[t] = read_values(*tensor.values, elements, "values." + tensor.name);
      round_all(tensor.dtype, values[t]);
      continue;
    }
    if (indices_only && rows == 0) {
      engine.discard(elements);
      continue;
    }
    // Standard distributions differ between libraries; this mapping does not.
    std::vector<double>& drawn = values[t];
    drawn.reserve(elements);
    for (std::size_t i = 0; i < elements; ++i)
      drawn.push_back(static_cast<double>(engine() >> 11) * 0x1p-53);
    reference::for_each_range(
        static_cast<std::int64_t>(elements), 0, [&](std::int64_t begin, std::int64_t end) {
          for (double& x : std::span(drawn).subspan(static_cast<std::size_t>(begin),
                                                    static_cast<std::size_t>(end - begin)))
            x = rows > 0       ? std::floor(x * static_cast<double>(rows))
                : tensor.least ? *tensor.least + x * (tensor.range - *tensor.least)
                               : (x * 2.0 - 1.0) * tensor.range;
        });
    round_all(tensor.dtype, drawn);
  }
  return values;
}

/// Bytes that this process may have: the machine's, or less where it is limited.
double memory_there_is() {
  double bytes =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, static_cast<double>(limit.rlim_cur));
  return bytes;
}

/// What no evaluation does without, so that none begins that the machine cannot end.
void check_values_fit(const Workload& w) {
  double bytes = 0;
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_input(TensorId(t)) || std::ranges::find(w.outputs(), TensorId(t)) != w.outputs().end())
      bytes += 8 * static_cast<double>(w.tensors()[t].elements().value);
  const double most = memory_there_is();
  if (bytes <= most) return;
  throw InputError({.where = "workload " + w.name(),
                    .value = formatted("{:.3g} bytes", bytes),
                    .problem = "of inputs and outputs, at 8 an element, cannot be evaluated here",
                    .accepted = formatted("at most {:.3g} bytes, this machine's memory", most)});
}

}  // namespace

TensorValues random_inputs(const Workload& w, std::uint64_t seed) {
  check_values_fit(w);
  return drawn_inputs(w, seed, false);
}

TensorValues gather_indices(const Workload& w, std::uint64_t seed) {
  for (OpId id : w.topological_order())
    for (const Output& out : w.op(id).outputs)
      if (gathered_extent(w, out.target.tensor) > 0) return evaluate(w, random_inputs(w, seed));
  return drawn_inputs(w, seed, true);
}

}  // namespace tilewright
